//! Every section of the file. Names are checked against this tree; the default file, the JSON schema
//! and the reference are rendered from it.

use config::schema::{Inner, Name, Section, Shape};
use policy::backoff::BackoffOptions;
use policy::budget::BudgetOptions;
use policy::failure_queue::FailureQueueOptions;
use policy::gate::GateOptions;
use policy::ladder::LadderOptions;
use policy::poll::PollOptions;

use super::gates::ShareOptions;
use super::http::{FetchOptions, HttpOptions, JobsOptions, TimeoutOptions, TrailsOptions};
use super::operation::{CredentialOptions, OperationOptions, RefreshOptions, WebhookOptions};
use super::pool::{EndpointOptions, PoolOptions};
use super::rule::{HeaderOptions, RuleOptions};
use super::server::{
    ClientOptions, ForwardOptions, NetworkOptions, ServerOptions, StorageOptions, TelemetryOptions,
    TlsOptions,
};

/// The whole file.
pub(crate) static ROOT: Section = Section::new("", "", &[]).with(&[
    table("server", &SERVER),
    table("storage", &STORAGE),
    table("gate", &GATE),
    table("backoff", &BACKOFFS),
    table("pool", &POOLS),
    table("forward", &FORWARD),
    table("network", &NETWORK),
    table("client", &CLIENTS),
    table("http", &HTTP),
    table("retry_budget", &RETRY_BUDGET),
    table("trails", &TRAILS),
    table("run", &RUN),
    table("poll", &POLL),
    table("operation", &OPERATIONS),
    table("credential", &CREDENTIALS),
    table("fetch", &FETCH),
    table("jobs", &JOBS),
    table("telemetry", &TELEMETRY),
]);

static SERVER: Section = Section::new(
    "server",
    "Where Tidegate listens and keeps its data.",
    &[ServerOptions::SETTINGS],
)
.with(&[
    Inner {
        name: "tls",
        shape: Shape::One(&TLS),
        about: "Certificates of the data plane, from PEM files; client_ca asks clients for theirs.",
        example: r#"{ cert = "file:/etc/tls/cert.pem", key = "file:/etc/tls/key.pem", client_ca = "file:/etc/tls/ca.pem" }"#,
    },
    Inner {
        name: "admin_tls",
        shape: Shape::One(&TLS),
        about: "The same for admin API and console.",
        example: r#"{ cert = "file:/etc/tls/cert.pem", key = "file:/etc/tls/key.pem" }"#,
    },
]);

static TLS: Section = Section::new(
    "server.tls",
    "Certificates of a listener.",
    &[TlsOptions::SETTINGS],
);

static STORAGE: Section = Section::new(
    "storage",
    "Everything is in the data folder by default; servers are for several machines that share.",
    &[StorageOptions::SETTINGS],
);

static GATE: Section = Section::new(
    "gate",
    "Gates: the pace, the breaker and the waiting line of every host and endpoint.",
    &[GateOptions::SETTINGS],
)
.named(Name::Host, &GATE_HOST);

static GATE_HOST: Section = Section::new(
    "gate.HOST",
    "The same for one host, or with \"*.example.com\" for all below it; the rest is as in [gate].",
    &[GateOptions::SETTINGS, ShareOptions::SETTINGS],
)
.with(RULES);

const RULES: &[Inner] = &[Inner {
    name: "rule",
    shape: Shape::List(&RULE),
    about: "",
    example: "",
}];

static RULE: Section = Section::new(
    "rule",
    "What you know of the responses; the first rule that fits wins, before everything built in.",
    &[RuleOptions::SETTINGS],
)
.with(&[Inner {
    name: "header",
    shape: Shape::One(&RULE_HEADER),
    about: "And with a header of this name, in which these words are found; any value if left out.",
    example: r#"{ name = "x-error", matches = "busy" }"#,
}]);

static RULE_HEADER: Section = Section::new(
    "rule.header",
    "The header of a rule.",
    &[HeaderOptions::SETTINGS],
);

static BACKOFFS: Section = Section::new("backoff", "", &[]).named(Name::Word, &BACKOFF);

static BACKOFF: Section = Section::new(
    "backoff.NAME",
    "Backoffs: how often and how soon one request is sent again. Own ones may be added, and begin as standard.",
    &[BackoffOptions::SETTINGS],
);

static POOLS: Section = Section::new("pool", "", &[]).named(Name::Word, &POOL);

static POOL: Section = Section::new(
    "pool.NAME",
    "Pools: endpoints that can do the same work, served at http://listen/NAME/…",
    &[PoolOptions::SETTINGS, TimeoutOptions::SETTINGS],
)
.with(&[
    Inner {
        name: "endpoints",
        shape: Shape::List(&ENDPOINT),
        about: "Each has name, url, headers and, if need be, ca, client_cert, client_key, http2; a secret is env:NAME or file:PATH.",
        example: r#"[
  { name = "a", url = "https://a.example.com/v1", headers = { authorization = "Bearer env:KEY_A" } },
  { name = "b", url = "https://b.example.com/v1", headers = { x-api-key = "file:/run/secrets/b" } },
]"#,
    },
    table("protection", &PROTECTION),
    Inner {
        name: "rule",
        shape: Shape::List(&RULE),
        about: "",
        example: "",
    },
]);

static ENDPOINT: Section = Section::new(
    "pool.NAME.endpoints",
    "One endpoint of a pool.",
    &[EndpointOptions::SETTINGS],
)
.with(&[Inner {
    name: "headers",
    shape: Shape::Map,
    about: "Headers that every request gets.",
    example: r#"{ authorization = "Bearer env:KEY_A" }"#,
}]);

static PROTECTION: Section = Section::new(
    "pool.NAME.protection",
    "Pauses after errors, so that a failing endpoint is left alone and the others do its work.",
    &[LadderOptions::SETTINGS],
);

static FORWARD: Section = Section::new(
    "forward",
    "HTTP_PROXY mode, off unless hosts are allowed.",
    &[ForwardOptions::SETTINGS],
);

static NETWORK: Section = Section::new(
    "network",
    "What may be dialled besides public addresses.",
    &[NetworkOptions::SETTINGS],
);

static CLIENTS: Section = Section::new("client", "", &[]).named(Name::Word, &CLIENT);

static CLIENT: Section = Section::new(
    "client.NAME",
    "Who may use the data plane; required when listen is not loopback.",
    &[ClientOptions::SETTINGS],
);

static HTTP: Section = Section::new(
    "http",
    "Times and sizes of single requests.",
    &[HttpOptions::SETTINGS],
);

static RETRY_BUDGET: Section = Section::new(
    "retry_budget",
    "How many retries there may be per key, so that retries do not double an outage.",
    &[BudgetOptions::SETTINGS],
);

static TRAILS: Section = Section::new(
    "trails",
    "Decision trails, which `tidegate explain` shows.",
    &[TrailsOptions::SETTINGS],
);

static RUN: Section = Section::new(
    "run",
    "`tidegate run`: a command per item, paced by recent failures.",
    &[FailureQueueOptions::SETTINGS],
);

static POLL: Section = Section::new(
    "poll",
    "`tidegate poll`: following a job's status.",
    &[PollOptions::SETTINGS],
);

static OPERATIONS: Section = Section::new("operation", "", &[]).named(Name::Word, &OPERATION);

static OPERATION: Section = Section::new(
    "operation.TYPE",
    "Operations: requests accepted for durable delivery. What a type leaves out is as in default.",
    &[OperationOptions::SETTINGS],
)
.with(&[
    Inner {
        name: "webhook",
        shape: Shape::One(&WEBHOOK),
        about: "Where the end of every operation is reported.",
        example: r#"{ url = "https://hooks.example.com/tidegate", secret = "env:HOOK_SECRET" }"#,
    },
    Inner {
        name: "rule",
        shape: Shape::List(&RULE),
        about: "",
        example: "",
    },
]);

static WEBHOOK: Section = Section::new(
    "operation.TYPE.webhook",
    "Where the end of every operation is reported.",
    &[WebhookOptions::SETTINGS],
);

static CREDENTIALS: Section = Section::new("credential", "", &[]).named(Name::Word, &CREDENTIAL);

static CREDENTIAL: Section = Section::new(
    "credential.NAME",
    "Credentials that are refreshed once after a 401, for pools and operations.",
    &[CredentialOptions::SETTINGS],
)
.with(&[table("refresh", &REFRESH)]);

static REFRESH: Section = Section::new(
    "credential.NAME.refresh",
    "How a new token is obtained.",
    &[RefreshOptions::SETTINGS],
);

static FETCH: Section = Section::new(
    "fetch",
    "Fetching and crawling, by `tidegate fetch` and by jobs.",
    &[FetchOptions::SETTINGS],
);

static JOBS: Section = Section::new(
    "jobs",
    "Jobs: fetching and crawling on the server.",
    &[JobsOptions::SETTINGS],
);

static TELEMETRY: Section = Section::new(
    "telemetry",
    "Where traces are sent.",
    &[TelemetryOptions::SETTINGS],
);

/// A table with a heading of its own.
const fn table(name: &'static str, section: &'static Section) -> Inner {
    Inner {
        name,
        shape: Shape::One(section),
        about: "",
        example: "",
    }
}
