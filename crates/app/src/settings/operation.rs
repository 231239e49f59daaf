//! Types of operations, and the credentials that they and pools use.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use config::{Location, Reader};
use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::classify::Rule;
use policy::hosts::HostPattern;
use policy::merge::MergeRule;
use policy::outcome::Verdict;
use policy::setting::Kind;
use url::Url;

use super::rule;
use super::secret::Secret;
use super::value::{self, Size};
use crate::base64;

policy::settings! {
    /// What is written in `[operation.TYPE]`.
    pub struct OperationOptions;
    /// The values of `[operation.TYPE]`.
    pub struct OperationValues(pub) {
        /// Which backoff they have.
        backoff: String = "standard", Kind::NameOf("backoff");
        /// How long after they were accepted they expire.
        expires_after: Duration = "24h", Kind::POSITIVE;
        /// How many are sent at once per destination.
        concurrency: u32 = "16", Kind::whole(1, 100_000);
        /// The longest body that is accepted.
        max_body: Size = "1MiB", value::BOUNDED_SIZE;
        /// How long finished ones are stored; failed ones and conflicts stay until a person handles them.
        retain: Duration = "7d", Kind::POSITIVE;
        /// What resolves a conflict: none, ours, theirs or json (a three-way merge).
        merge: MergeRule = "none", MergeRule::KIND;
        /// The credential that is sent and refreshed.
        credential: String = none, Kind::NameOf("credential"), example "crm";
    }

    /// What is written in `operation.TYPE.webhook`.
    pub struct WebhookOptions {
        /// Where to.
        url: String = none, value::URL;
        /// What the report is signed with.
        secret: Secret = none, Kind::SECRET;
    }
}

/// `[operation.TYPE]`. What is not written is as in `[operation.default]`.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationType {
    /// The name of a section `[backoff.NAME]`, which exists.
    pub backoff: String,
    /// How long after it was accepted an operation expires.
    pub expires_after: Duration,
    /// How many are sent at once per destination.
    pub concurrency: u32,
    /// The longest body in bytes.
    pub max_body: u64,
    /// How long finished ones are stored.
    pub retain: Duration,
    /// What resolves a conflict.
    pub merge: MergeRule,
    /// The name of a section `[credential.NAME]`, which exists.
    pub credential: Option<String>,
    /// Where the end of every operation is reported.
    pub webhook: Option<Webhook>,
    /// What the owner of the settings knows of the responses.
    pub rules: Vec<Rule>,
}

/// `webhook = { url = "https://…", secret = "env:…" }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Where reports are sent.
    pub url: Url,
    /// What they are signed with.
    pub secret: Secret,
}

impl Webhook {
    /// The key of signatures: what stands behind `whsec_` is decoded, any other secret is used as it
    /// is.
    pub(crate) fn key(&self) -> Vec<u8> {
        let secret = self.secret.expose();
        let encoded = secret.strip_prefix(ENCODED_SECRET);
        let decoded = encoded.and_then(base64::decode);
        decoded.unwrap_or_else(|| secret.as_bytes().to_vec())
    }
}

/// Secrets of Standard Webhooks begin with it, and go on in base 64.
const ENCODED_SECRET: &str = "whsec_";

/// The type of reports to webhooks. It is built in, and can be neither configured nor posted.
pub const WEBHOOK_OPERATION: &str = "webhook";

/// The type of reports: the defaults, a backoff of its own, and what a receiver answers is no conflict.
pub(super) static WEBHOOK_TYPE: LazyLock<OperationType> = LazyLock::new(|| OperationType {
    backoff: WEBHOOK_OPERATION.to_owned(),
    rules: vec![Rule {
        statuses: vec![409, 412],
        header: None,
        code: None,
        text: None,
        verdict: Verdict::Overloaded,
    }],
    ..OperationType::new(&OperationValues::default())
});

/// The backoff of reports, unless `[backoff.webhook]` says otherwise: receivers are down for hours now
/// and then. 20 sends take about ten hours.
pub(super) static WEBHOOK_BACKOFF: LazyLock<BackoffSettings> = LazyLock::new(|| {
    let options = BackoffOptions {
        base: Some(Duration::from_secs(5)),
        max: Some(Duration::from_secs(3600)),
        max_attempts: Some(20),
        ..BackoffOptions::default()
    };
    options.build().expect("its base is below its max")
});

/// The type that all others are laid over.
pub const DEFAULT_OPERATION: &str = "default";

/// Reads all types; `default` is always one of them.
pub(crate) fn read_types(reader: &Reader<'_>) -> BTreeMap<String, OperationType> {
    let default = reader.table(DEFAULT_OPERATION);
    let (values, default) = read_type(&default, OperationValues::default(), None);
    let mut types = BTreeMap::new();
    for (name, reader) in reader.tables() {
        if name == WEBHOOK_OPERATION {
            reader.report_table("is the type of reports to webhooks, expected another name");
        } else if name != DEFAULT_OPERATION {
            let (_, operation) = read_type(&reader, values.clone(), Some(&default));
            types.insert(name.to_owned(), operation);
        }
    }
    types.insert(DEFAULT_OPERATION.to_owned(), default);
    types
}

fn read_type(
    reader: &Reader<'_>,
    values: OperationValues,
    default: Option<&OperationType>,
) -> (OperationValues, OperationType) {
    let values = reader.options::<OperationOptions>().over(values);
    let webhook = reader.table("webhook");
    let operation = OperationType {
        webhook: match webhook.is_written() {
            true => read_webhook(&webhook),
            false => default.and_then(|default| default.webhook.clone()),
        },
        rules: match (reader.has("rule"), default) {
            (false, Some(default)) => default.rules.clone(),
            _ => rule::read(reader),
        },
        ..OperationType::new(&values)
    };
    (values, operation)
}

impl OperationType {
    /// Without a webhook and rules.
    fn new(values: &OperationValues) -> Self {
        Self {
            backoff: values.backoff.clone(),
            expires_after: values.expires_after,
            concurrency: values.concurrency,
            max_body: match values.max_body {
                Size::Bytes(most) => most,
                Size::None => u64::MAX,
            },
            retain: values.retain,
            merge: values.merge,
            credential: values.credential.clone(),
            webhook: None,
            rules: Vec::new(),
        }
    }
}

fn read_webhook(reader: &Reader<'_>) -> Option<Webhook> {
    reader.require_of::<WebhookOptions>(&["url", "secret"]);
    let options = reader.options::<WebhookOptions>();
    let secret = options.secret?;
    let encoded = secret.expose().strip_prefix(ENCODED_SECRET);
    if encoded.is_some_and(|encoded| base64::decode(encoded).is_none()) {
        reader.report("secret", "begins with `whsec_`, expected base 64 behind it");
    }
    Some(Webhook {
        url: value::http_url(&options.url?).ok()?,
        secret,
    })
}

policy::settings! {
    /// What is written in `[credential.NAME]`.
    pub struct CredentialOptions;
    /// The values of `[credential.NAME]`.
    pub struct CredentialValues(pub(super)) {
        /// The header it is sent in.
        header: String = "authorization", value::HEADER_NAME;
        /// Hosts that operations may send it to, such as ["api.example.com", "*.example.com"]; none: any.
        hosts: Vec<HostPattern> = "", Kind::list(&value::HOST_PATTERN, 1000);
    }

    /// What is written in `credential.NAME.refresh`.
    pub(super) struct RefreshOptions {
        /// How a new token is obtained: oauth2_refresh, client_credentials or command.
        kind: RefreshKind = none, RefreshKind::KIND, example "oauth2_refresh";
        /// Where tokens are obtained.
        token_url: String = none, value::URL, example "https://login.example.com/token";
        /// Identifies this client there; no secret by itself.
        // Every client sends it in the open.
        client_id: Secret = none, Kind::Secret { literal: true }, example "env:CRM_ID";
        /// Its secret.
        client_secret: Secret = none, Kind::SECRET, example "env:CRM_SECRET";
        /// oauth2_refresh: the token that a new one is obtained with.
        refresh_token: Secret = none, Kind::SECRET, example "file:/run/secrets/crm";
        /// command: a program and its arguments, run without a shell; it prints the token. Accepted in this file only.
        command: Vec<String> = none, Kind::list(&Kind::TEXT, 100), example "print-token,crm";
    }
}

/// How a new token is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefreshKind {
    /// With a refresh token.
    OAuth2Refresh,
    /// With the credentials of the client.
    ClientCredentials,
    /// By a program.
    Command,
}

policy::words! {
    RefreshKind {
        OAuth2Refresh = "oauth2_refresh",
        ClientCredentials = "client_credentials",
        Command = "command",
    }
}

/// `[credential.NAME]`: sent with a request, and refreshed once when it is refused with 401.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The header it is sent in, in lower case.
    pub header: String,
    /// Hosts that operations may send it to; none: any.
    pub hosts: Vec<HostPattern>,
    /// How to get a new one; `None` cannot.
    pub refresh: Option<Refresh>,
}

impl Credential {
    /// May operations send it to this URL?
    pub fn is_for(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host))
    }
}

/// `refresh = { kind = "oauth2_refresh", … }`: how a new token is obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// With a refresh token (RFC 6749, section 6).
    OAuth2Refresh {
        /// Where, and as which client.
        endpoint: TokenEndpoint,
        /// The token that a new one is obtained with.
        refresh_token: Secret,
    },
    /// With the credentials of the client (RFC 6749, section 4.4).
    ClientCredentials(TokenEndpoint),
    /// By a program that prints it.
    Command(TokenCommand),
}

impl Refresh {
    /// Where tokens are requested, if it is a server.
    pub fn token_url(&self) -> Option<&Url> {
        match self {
            Self::OAuth2Refresh { endpoint, .. } | Self::ClientCredentials(endpoint) => {
                Some(&endpoint.url)
            }
            Self::Command(_) => None,
        }
    }
}

/// A server that issues tokens, and the client that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenEndpoint {
    /// Where tokens are requested.
    pub url: Url,
    /// Identifies this client.
    pub client_id: Secret,
    /// Its secret.
    pub client_secret: Secret,
}

/// A program that prints a token. `Debug` does not show its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenCommand {
    /// The program; one without `/` is found in `PATH`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl fmt::Debug for TokenCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCommand")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

pub(crate) fn read_credentials(reader: &Reader<'_>) -> BTreeMap<String, Credential> {
    let credentials = reader.tables().map(|(name, reader)| {
        let options = reader.options::<CredentialOptions>();
        let values = options.over(CredentialValues::default());
        let refresh = reader.table("refresh");
        let credential = Credential {
            header: values.header.to_ascii_lowercase(),
            hosts: values.hosts,
            refresh: refresh
                .is_written()
                .then(|| read_refresh(&refresh))
                .flatten(),
        };
        (name.to_owned(), credential)
    });
    credentials.collect()
}

fn read_refresh(reader: &Reader<'_>) -> Option<Refresh> {
    reader.require_of::<RefreshOptions>(&["kind"]);
    let options = reader.options::<RefreshOptions>();
    let kind = options.kind?;
    let required: &[&str] = match kind {
        RefreshKind::OAuth2Refresh => &["token_url", "client_id", "client_secret", "refresh_token"],
        RefreshKind::ClientCredentials => &["token_url", "client_id", "client_secret"],
        RefreshKind::Command => &["command"],
    };
    reader.require_of::<RefreshOptions>(required);
    if kind == RefreshKind::Command {
        return read_command(reader, options.command?).map(Refresh::Command);
    }
    let endpoint = TokenEndpoint {
        url: value::http_url(&options.token_url?).ok()?,
        client_id: options.client_id?,
        client_secret: options.client_secret?,
    };
    Some(match kind {
        RefreshKind::ClientCredentials => Refresh::ClientCredentials(endpoint),
        RefreshKind::OAuth2Refresh | RefreshKind::Command => Refresh::OAuth2Refresh {
            endpoint,
            refresh_token: options.refresh_token?,
        },
    })
}

/// A variable or a flag can be set by a program that may not run others, so a command is taken from
/// the file only.
fn read_command(reader: &Reader<'_>, command: Vec<String>) -> Option<TokenCommand> {
    let is_in_file = |name| {
        let node = reader.node(name);
        node.is_some_and(|node| matches!(node.location, Location::File { .. }))
    };
    if !(is_in_file("kind") && is_in_file("command")) {
        reader.report("command", "is accepted in the configuration file only");
        return None;
    }
    let mut words = command.into_iter();
    let Some(program) = words.next().filter(|program| !program.is_empty()) else {
        reader.report("command", "is empty, expected a program and its arguments");
        return None;
    };
    Some(TokenCommand {
        program,
        arguments: words.collect(),
    })
}
