//! Every setting there is, by section and name, and the kind of value it takes.
//!
//! This table is what unknown names are found by, and what the JSON schema and the reference are
//! made from. What a value means and which ones are allowed is judged where it is used; the
//! default and the reason for it stand in `default.toml`.

/// A table of the file: `[server]`, one entry of `[[pool.NAME.rule]]`, …
#[derive(Debug)]
pub(crate) struct Section {
    /// Its path, with a word in capitals for what people name themselves.
    pub(crate) path: &'static str,
    /// Its settings.
    pub(crate) keys: &'static [Key],
    /// The section of every other name, if people may add their own.
    pub(crate) named: Option<Named>,
}

/// A setting.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

/// A section of which there may be several, each with a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// What the name is.
    pub(crate) name: Name,
    pub(crate) section: &'static Section,
}

/// What people may call a section of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A word of ASCII letters, digits, `-`, `_` and `.`.
    Word,
    /// A host, or `*.` and a host.
    Host,
}

/// What kind of value a setting takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// A string with a number and a unit.
    Duration,
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// `"1MiB"` or `"none"`.
    Size,
    /// `"10/1s"`.
    Limit,
    /// `"127.0.0.1:7070"`.
    Address,
    /// `"https://…"`.
    Url,
    /// A path.
    Path,
    /// `env:NAME`, `file:PATH`, or a literal where the setting allows it; never shown.
    Secret,
    /// The name of a section of this kind, `backoff` or `credential`.
    NameOf(&'static str),
    /// A list of values, each of this kind.
    List(&'static Self),
    /// A table of names and secrets.
    Headers,
    /// A table within.
    Table(&'static Section),
    /// A list of tables.
    Tables(&'static Section),
}

impl Section {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// Can it be written as one text, in the environment or in a flag?
    pub(crate) const fn is_value(self) -> bool {
        !matches!(self, Self::Headers | Self::Table(_) | Self::Tables(_))
    }
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind }
}

/// A section without named ones in it.
const fn section(path: &'static str, keys: &'static [Key]) -> Section {
    Section {
        path,
        keys,
        named: None,
    }
}

/// A section with nothing but named ones in it.
const fn group(path: &'static str, section: &'static Section) -> Section {
    Section {
        path,
        keys: &[],
        named: Some(Named {
            name: Name::Word,
            section,
        }),
    }
}

/// The whole file.
pub(crate) static ROOT: Section = section(
    "",
    &[
        key("server", Kind::Table(&SERVER)),
        key("storage", Kind::Table(&STORAGE)),
        key("gate", Kind::Table(&GATE)),
        key("backoff", Kind::Table(&BACKOFFS)),
        key("pool", Kind::Table(&POOLS)),
        key("forward", Kind::Table(&FORWARD)),
        key("network", Kind::Table(&NETWORK)),
        key("client", Kind::Table(&CLIENTS)),
        key("http", Kind::Table(&HTTP)),
        key("retry_budget", Kind::Table(&RETRY_BUDGET)),
        key("trails", Kind::Table(&TRAILS)),
        key("run", Kind::Table(&RUN)),
        key("poll", Kind::Table(&POLL)),
        key("operation", Kind::Table(&OPERATIONS)),
        key("credential", Kind::Table(&CREDENTIALS)),
        key("jobs", Kind::Table(&JOBS)),
    ],
);

static SERVER: Section = section(
    "server",
    &[
        key("listen", Kind::Address),
        key("admin", Kind::Address),
        key("hosts", Kind::List(&Kind::Text)),
        key("origins", Kind::List(&Kind::Text)),
        key("secrets", Kind::List(&Kind::Text)),
        key("data", Kind::Path),
    ],
);

static STORAGE: Section = section(
    "storage",
    &[key("operations", Kind::Secret), key("gates", Kind::Secret)],
);

static GATE: Section = Section {
    path: "gate",
    keys: GATE_KEYS,
    named: Some(Named {
        name: Name::Host,
        section: &GATE_HOST,
    }),
};

static GATE_HOST: Section = section("gate.HOST", &GATE_HOST_KEYS);

/// What `[gate]` has, and after it what only `[gate."HOST"]` has.
static GATE_HOST_KEYS: [Key; 30] = [
    key("enabled", Kind::Switch),
    key("strategy", Kind::Choice(&["adaptive", "aimd", "fixed"])),
    key("initial_rate", Kind::Number),
    key("min_rate", Kind::Number),
    key("max_rate", Kind::Number),
    key("limits", Kind::List(&Kind::Limit)),
    key("max_in_flight", Kind::Whole),
    key("max_waiting", Kind::Whole),
    key("max_wait", Kind::Duration),
    key("max_hold", Kind::Duration),
    key("error_rate_threshold", Kind::Number),
    key("min_samples", Kind::Whole),
    key("consecutive_failures", Kind::Whole),
    key("window", Kind::Duration),
    key("window_slice", Kind::Duration),
    key("open_first", Kind::Duration),
    key("open_for", Kind::Duration),
    key("half_open_probes", Kind::Whole),
    key("idle_after", Kind::Duration),
    key("max_gates", Kind::Whole),
    key("shards", Kind::Whole),
    key("throttled_after", Kind::Duration),
    key("burst", Kind::Number),
    key("increase", Kind::Number),
    key("decrease", Kind::Number),
    key("latency_target", Kind::Duration),
    key("latency_degrade_factor", Kind::Number),
    key("count_throttled", Kind::Switch),
    key("share", Kind::Switch),
    key("rule", Kind::Tables(&RULE)),
];

static GATE_KEYS: &[Key] = GATE_HOST_KEYS.split_at(28).0;

static RULE: Section = section(
    "rule",
    &[
        key("status", Kind::List(&Kind::Whole)),
        key("header", Kind::Table(&RULE_HEADER)),
        key("code", Kind::Text),
        key("text", Kind::Text),
        key("verdict", Kind::Choice(&VERDICTS)),
    ],
);

static VERDICTS: [&str; 8] = [
    "success",
    "throttled",
    "overloaded",
    "unreachable",
    "quota_exhausted",
    "unauthorized",
    "conflict",
    "rejected",
];

static RULE_HEADER: Section = section(
    "rule.header",
    &[key("name", Kind::Text), key("matches", Kind::Text)],
);

static BACKOFFS: Section = group("backoff", &BACKOFF);

static BACKOFF: Section = section(
    "backoff.NAME",
    &[
        key("base", Kind::Duration),
        key("max", Kind::Duration),
        key("max_attempts", Kind::Whole),
        key("jitter", Kind::Text),
        key("retry_after_jitter", Kind::Duration),
        key("growth", Kind::Text),
    ],
);

static POOLS: Section = group("pool", &POOL);

static POOL: Section = section(
    "pool.NAME",
    &[
        key(
            "balance",
            Kind::Choice(&["least_loaded", "round_robin", "first"]),
        ),
        key("endpoints", Kind::Tables(&ENDPOINT)),
        key("backoff", Kind::NameOf("backoff")),
        key("retry_unsafe", Kind::Switch),
        key("credential", Kind::NameOf("credential")),
        key("protection", Kind::Table(&PROTECTION)),
        key("rule", Kind::Tables(&RULE)),
    ],
);

static ENDPOINT: Section = section(
    "pool.NAME.endpoints",
    &[
        key("name", Kind::Text),
        key("url", Kind::Url),
        key("headers", Kind::Headers),
    ],
);

static PROTECTION: Section = section(
    "pool.NAME.protection",
    &[
        key("enabled", Kind::Switch),
        key("pauses", Kind::List(&Kind::Duration)),
        key("disable_after", Kind::Whole),
        key("unreachable", Kind::Switch),
        key("show_test_tool", Kind::Switch),
        key("probing_after", Kind::Whole),
        key("statuses", Kind::List(&Kind::Whole)),
        key("texts", Kind::List(&Kind::Text)),
    ],
);

static FORWARD: Section = section("forward", &[key("allow", Kind::List(&Kind::Text))]);

static NETWORK: Section = section("network", &[key("allow", Kind::List(&Kind::Text))]);

static CLIENTS: Section = group("client", &CLIENT);

static CLIENT: Section = section("client.NAME", &[key("token", Kind::Secret)]);

static HTTP: Section = section(
    "http",
    &[
        key("connect_timeout", Kind::Duration),
        key("first_byte_timeout", Kind::Duration),
        key("idle_timeout", Kind::Duration),
        key("max_body", Kind::Size),
        key("replay_buffer", Kind::Size),
    ],
);

static RETRY_BUDGET: Section = section(
    "retry_budget",
    &[
        key("ratio", Kind::Number),
        key("min_per_second", Kind::Whole),
    ],
);

static TRAILS: Section = section("trails", &[key("keep", Kind::Whole)]);

static RUN: Section = section(
    "run",
    &[
        key("base", Kind::Duration),
        key("max_size", Kind::Whole),
        key("max_age", Kind::Duration),
        key("growth", Kind::Choice(&["linear", "double"])),
        key("variance", Kind::Duration),
        key("attempts", Kind::Whole),
        key("give_up_after", Kind::Duration),
    ],
);

static POLL: Section = section(
    "poll",
    &[
        key("early", Kind::Duration),
        key("middle", Kind::Duration),
        key("late", Kind::Duration),
        key("first", Kind::Duration),
        key("base", Kind::Duration),
        key("max", Kind::Duration),
        key("give_up_after", Kind::Duration),
        key("other_retries", Kind::Whole),
    ],
);

static OPERATIONS: Section = group("operation", &OPERATION);

static OPERATION: Section = section(
    "operation.TYPE",
    &[
        key("backoff", Kind::NameOf("backoff")),
        key("expires_after", Kind::Duration),
        key("credential", Kind::NameOf("credential")),
        key("rule", Kind::Tables(&RULE)),
    ],
);

static CREDENTIALS: Section = group("credential", &CREDENTIAL);

static CREDENTIAL: Section = section(
    "credential.NAME",
    &[
        key("header", Kind::Text),
        key("refresh", Kind::Table(&REFRESH)),
    ],
);

static REFRESH: Section = section(
    "credential.NAME.refresh",
    &[
        key("kind", Kind::Choice(&["oauth2_refresh"])),
        key("token_url", Kind::Url),
        key("client_id", Kind::Secret),
        key("client_secret", Kind::Secret),
        key("refresh_token", Kind::Secret),
    ],
);

static JOBS: Section = section(
    "jobs",
    &[
        key("status_limit", Kind::Limit),
        key("status_retry_after", Kind::Switch),
    ],
);

#[cfg(test)]
mod tests {
    use policy::gate::GateOptions;
    use policy::outcome::Verdict;

    use super::*;

    #[test]
    fn gates_have_the_settings_of_the_policy() {
        let names: Vec<&str> = GATE.keys.iter().map(|key| key.name).collect();
        assert_eq!(names, GateOptions::NAMES);
    }

    #[test]
    fn rules_have_the_verdicts_of_the_policy() {
        assert_eq!(VERDICTS, Verdict::ALL.map(Verdict::as_str));
    }
}
