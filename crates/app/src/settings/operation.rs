//! Types of operations, and the credentials that they and pools use.

use std::collections::BTreeMap;
use std::time::Duration;

use config::Reader;
use policy::classify::Rule;
use policy::setting::Kind;
use url::Url;

use super::rule;
use super::secret::Secret;
use super::value::{self, Size};

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
        merge: String = "none", Kind::Choice(&["none", "ours", "theirs", "json"]);
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
    /// From being accepted until it is given up.
    pub expires_after: Duration,
    /// The name of a section `[credential.NAME]`, which exists.
    pub credential: Option<String>,
    /// What the owner of the settings knows of the responses.
    pub rules: Vec<Rule>,
}

/// The type that all others are laid over.
pub const DEFAULT_OPERATION: &str = "default";

/// Reads all types; `default` is always one of them.
pub(crate) fn read_types(reader: &Reader<'_>) -> BTreeMap<String, OperationType> {
    let read = |reader: &Reader<'_>, values: OperationValues, rules: &[Rule]| {
        let webhook = reader.table("webhook");
        if webhook.is_written() {
            webhook.require_of::<WebhookOptions>(&["url"]);
            webhook.options::<WebhookOptions>();
        }
        let values = reader.options::<OperationOptions>().over(values);
        let rules = match reader.has("rule") {
            true => rule::read(reader),
            false => rules.to_vec(),
        };
        let operation = OperationType {
            backoff: values.backoff.clone(),
            expires_after: values.expires_after,
            credential: values.credential.clone(),
            rules,
        };
        (values, operation)
    };
    let default = reader.table(DEFAULT_OPERATION);
    let (values, default) = read(&default, OperationValues::default(), &[]);
    let mut types = BTreeMap::new();
    for (name, reader) in reader
        .tables()
        .filter(|(name, _)| *name != DEFAULT_OPERATION)
    {
        let (_, operation) = read(&reader, values.clone(), &default.rules);
        types.insert(name.to_owned(), operation);
    }
    types.insert(DEFAULT_OPERATION.to_owned(), default);
    types
}

policy::settings! {
    /// What is written in `[credential.NAME]`.
    pub struct CredentialOptions;
    /// The values of `[credential.NAME]`.
    pub struct CredentialValues(pub(super)) {
        /// The header it is sent in.
        header: String = "authorization", value::HEADER_NAME;
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
        /// command: a program and its arguments; it prints the token.
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
    /// How to get a new one; `None` cannot.
    pub refresh: Option<Refresh>,
}

/// `refresh = { kind = "oauth2_refresh", … }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Where new tokens are obtained.
    pub token_url: Url,
    /// Identifies this client.
    pub client_id: Secret,
    /// Its secret.
    pub client_secret: Secret,
    /// The token that a new one is obtained with.
    pub refresh_token: Secret,
}

pub(crate) fn read_credentials(reader: &Reader<'_>) -> BTreeMap<String, Credential> {
    let credentials = reader.tables().map(|(name, reader)| {
        let options = reader.options::<CredentialOptions>();
        let values = options.over(CredentialValues::default());
        let refresh = reader.table("refresh");
        let credential = Credential {
            header: values.header.to_ascii_lowercase(),
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
    let required: &[&str] = match options.kind? {
        RefreshKind::OAuth2Refresh => &["token_url", "client_id", "client_secret", "refresh_token"],
        RefreshKind::ClientCredentials => &["token_url", "client_id", "client_secret"],
        RefreshKind::Command => &["command"],
    };
    reader.require_of::<RefreshOptions>(required);
    Some(Refresh {
        token_url: value::http_url(&options.token_url?).ok()?,
        client_id: options.client_id?,
        client_secret: options.client_secret?,
        refresh_token: options.refresh_token?,
    })
}
