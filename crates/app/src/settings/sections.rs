//! Every section of the file. Names are checked against this tree; the default file, the JSON schema
//! and the reference are rendered from it.

use config::schema::{Inner, Name, Section, Shape};
use policy::backoff::BackoffOptions;
use policy::budget::BudgetOptions;
use policy::failure_queue::FailureQueueOptions;
use policy::gate::GateOptions;
use policy::ladder::LadderOptions;
use policy::poll::PollOptions;

use super::forward::ForwardOptions;
use super::gates::ShareOptions;
use super::http::{FetchOptions, HttpOptions, JobsOptions, TimeoutOptions, TrailsOptions};
use super::network::NetworkOptions;
use super::operation::{CredentialOptions, OperationOptions, RefreshOptions, WebhookOptions};
use super::pool::{EndpointOptions, PoolOptions};
use super::rule::{HeaderOptions, RuleOptions};
use super::server::{
    ClientOptions, ServerOptions, SharedGateOptions, StorageOptions, StorageSizeOptions,
    TelemetryOptions,
};
use super::tls::TlsOptions;

/// The tree: for each section the name of its static, its path, what it is for, and its options; then
/// its tables. `in_line` is a table that the default file shows in one line.
macro_rules! sections {
    ($($NAME:ident: $path:literal, $about:literal, [$($Options:ident),*] $(, $with:ident $arguments:tt)*;)+) => {$(
        pub(super) static $NAME: Section =
            Section::new($path, $about, &[$($Options::SETTINGS),*])$(.$with $arguments)*;
    )+};
}

sections! {
    ROOT: "", "", [], with(&[
        one("server", &SERVER), one("storage", &STORAGE), one("gate", &GATE), one("backoff", &BACKOFFS),
        one("pool", &POOLS), one("forward", &FORWARD), one("network", &NETWORK), one("client", &CLIENTS),
        one("http", &HTTP), one("retry_budget", &RETRY_BUDGET), one("trails", &TRAILS), one("run", &RUN),
        one("poll", &POLL), one("operation", &OPERATIONS), one("credential", &CREDENTIALS),
        one("fetch", &FETCH), one("jobs", &JOBS), one("telemetry", &TELEMETRY),
    ]);
    SERVER: "server", "Where Tidegate listens and stores its data.", [ServerOptions], with(&[
        in_line(
            one("tls", &TLS),
            "Certificates of the data plane, from PEM files; client_ca asks clients for theirs.",
            r#"{ cert = "file:/etc/tls/cert.pem", key = "file:/etc/tls/key.pem", client_ca = "file:/etc/tls/ca.pem" }"#,
        ),
        in_line(
            one("admin_tls", &TLS),
            "The same for admin API and console.",
            r#"{ cert = "file:/etc/tls/cert.pem", key = "file:/etc/tls/key.pem" }"#,
        ),
    ]);
    TLS: "server.tls", "Certificates of a listener.", [TlsOptions];
    STORAGE: "storage",
        "Shared storage for several machines; by default everything is in the data folder.",
        [StorageOptions, SharedGateOptions, StorageSizeOptions];
    GATE: "gate", "Gates: the rate, the breaker and the waiting line of every host and endpoint.",
        [GateOptions], named(Name::Host, &GATE_HOST);
    GATE_HOST: "gate.HOST",
        "The same for one host, or with \"*.example.com\" for all below it; the rest is as in [gate].",
        [GateOptions, ShareOptions], with(&[list("rule", &RULE)]);
    RULE: "rule",
        "Rules that classify responses; the first that matches wins, before the built-in ones.",
        [RuleOptions], with(&[in_line(
            one("header", &RULE_HEADER),
            "And with a header of this name, in which these words are found; any value if left out.",
            r#"{ name = "x-error", matches = "busy" }"#,
        )]);
    RULE_HEADER: "rule.header", "The header of a rule.", [HeaderOptions];
    BACKOFFS: "backoff", "", [], named(Name::Word, &BACKOFF);
    BACKOFF: "backoff.NAME",
        "Backoffs: how often and how soon one request is sent again. Others may be added; what they leave out is as in standard.",
        [BackoffOptions];
    POOLS: "pool", "", [], named(Name::Word, &POOL);
    POOL: "pool.NAME", "Pools: endpoints that can do the same work, served at http://listen/NAME/…",
        [PoolOptions, TimeoutOptions], with(&[
            in_line(
                list("endpoints", &ENDPOINT),
                "Each has name, url, headers and, if need be, ca, client_cert, client_key, http2; a secret is env:NAME or file:PATH.",
                r#"[
  { name = "a", url = "https://a.example.com/v1", headers = { authorization = "Bearer env:KEY_A" } },
  { name = "b", url = "https://b.example.com/v1", headers = { x-api-key = "file:/run/secrets/b" } },
]"#,
            ),
            one("protection", &PROTECTION),
            list("rule", &RULE),
        ]);
    ENDPOINT: "pool.NAME.endpoints", "One endpoint of a pool.", [EndpointOptions], with(&[in_line(
        table("headers", Shape::Map),
        "Headers that every request gets.",
        r#"{ authorization = "Bearer env:KEY_A" }"#,
    )]);
    PROTECTION: "pool.NAME.protection",
        "Pauses a failing endpoint, so that the others do its work.",
        [LadderOptions];
    FORWARD: "forward", "HTTP_PROXY mode, off unless hosts are allowed.", [ForwardOptions];
    NETWORK: "network", "What may be dialled besides public addresses.", [NetworkOptions];
    CLIENTS: "client", "", [], named(Name::Word, &CLIENT);
    CLIENT: "client.NAME", "Who may use the data plane; required when listen is not loopback.", [ClientOptions];
    HTTP: "http", "Times and sizes of single requests.", [HttpOptions];
    RETRY_BUDGET: "retry_budget",
        "How many retries there may be per key, so that they do not multiply the load in an outage.",
        [BudgetOptions];
    TRAILS: "trails", "Decision trails, which `tidegate explain` shows.", [TrailsOptions];
    RUN: "run", "`tidegate run`: a command per item, paced by recent failures.", [FailureQueueOptions];
    POLL: "poll", "`tidegate poll`: following a job's status.", [PollOptions];
    OPERATIONS: "operation", "", [], named(Name::Word, &OPERATION);
    OPERATION: "operation.TYPE",
        "Operations: requests accepted for durable delivery. What a type leaves out is as in default.",
        [OperationOptions], with(&[
            in_line(
                one("webhook", &WEBHOOK),
                "Where the end of every operation is reported.",
                r#"{ url = "https://hooks.example.com/tidegate", secret = "env:HOOK_SECRET" }"#,
            ),
            list("rule", &RULE),
        ]);
    WEBHOOK: "operation.TYPE.webhook", "Where the end of every operation is reported.", [WebhookOptions];
    CREDENTIALS: "credential", "", [], named(Name::Word, &CREDENTIAL);
    CREDENTIAL: "credential.NAME", "Credentials that are refreshed once after a 401, for pools and operations.",
        [CredentialOptions], with(&[one("refresh", &REFRESH)]);
    REFRESH: "credential.NAME.refresh", "How a new token is obtained.", [RefreshOptions];
    FETCH: "fetch", "Fetching and crawling, by `tidegate fetch` and by jobs.", [FetchOptions];
    JOBS: "jobs", "Jobs: fetching and crawling on the server.", [JobsOptions];
    TELEMETRY: "telemetry", "Where traces and metrics are sent.", [TelemetryOptions], with(&[in_line(
        table("headers", Shape::Map),
        "Headers of every export, such as the token of a collector; a secret is env:NAME or file:PATH.",
        r#"{ authorization = "Bearer env:OTLP_TOKEN" }"#,
    )]);
}

const fn one(name: &'static str, section: &'static Section) -> Inner {
    table(name, Shape::One(section))
}

const fn list(name: &'static str, section: &'static Section) -> Inner {
    table(name, Shape::List(section))
}

const fn table(name: &'static str, shape: Shape) -> Inner {
    let (about, example) = ("", "");
    Inner {
        name,
        shape,
        about,
        example,
    }
}

const fn in_line(table: Inner, about: &'static str, example: &'static str) -> Inner {
    Inner {
        about,
        example,
        ..table
    }
}
