//! Types of operations, and the credentials they and pools use.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::classify::Rule;
use policy::setting;
use policy::suggest::suggestion;
use url::Url;

use super::reader::Section;
use super::rule;
use super::secret::{Literal, Secret};
use super::value;

/// `[operation.TYPE]`. What is not written is that of `[operation.default]`.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationType {
    /// The name of a section `[backoff.NAME]`, which exists.
    pub backoff: String,
    /// From being accepted until it is given up.
    pub expires_after: Duration,
    /// The name of a section `[credential.NAME]`, which exists.
    pub credential: Option<String>,
    /// What the owner of the settings knows of the answers.
    pub rules: Vec<Rule>,
}

impl Default for OperationType {
    fn default() -> Self {
        Self {
            backoff: "standard".to_owned(),
            expires_after: Duration::from_secs(24 * 3600),
            credential: None,
            rules: Vec::new(),
        }
    }
}

/// The type that all others begin with.
pub const DEFAULT_OPERATION: &str = "default";

/// Reads all types; `default` is always one of them.
pub(crate) fn read_types(section: &Section<'_>, names: &Names) -> BTreeMap<String, OperationType> {
    let default = read_type(
        &section.section(DEFAULT_OPERATION),
        &OperationType::default(),
        names,
    );
    let others = section
        .sections()
        .filter(|(name, _)| *name != DEFAULT_OPERATION);
    let mut types: BTreeMap<String, OperationType> = others
        .map(|(name, section)| (name.to_owned(), read_type(&section, &default, names)))
        .collect();
    types.insert(DEFAULT_OPERATION.to_owned(), default);
    types
}

fn read_type(section: &Section<'_>, default: &OperationType, names: &Names) -> OperationType {
    let rules = section.node("rule").map(|_| rule::read(section));
    OperationType {
        backoff: names
            .backoff(section)
            .unwrap_or_else(|| default.backoff.clone()),
        expires_after: section
            .read("expires_after", setting::positive)
            .unwrap_or(default.expires_after),
        credential: names
            .credential(section)
            .or_else(|| default.credential.clone()),
        rules: rules.unwrap_or_else(|| default.rules.clone()),
    }
}

/// Names that other sections may refer to.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) backoffs: Vec<String>,
    pub(crate) credentials: Vec<String>,
}

impl Names {
    /// The preset a section refers to.
    pub(crate) fn backoff(&self, section: &Section<'_>) -> Option<String> {
        section.read("backoff", |name| one_of(name, &self.backoffs, "backoff"))
    }

    /// The credential a section refers to.
    pub(crate) fn credential(&self, section: &Section<'_>) -> Option<String> {
        section.read("credential", |name| {
            one_of(name, &self.credentials, "credential")
        })
    }
}

fn one_of(name: &str, known: &[String], section: &str) -> Result<String, String> {
    if known.iter().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let expected = format!("the name of a section `[{section}.NAME]`");
    Err(match suggestion(name, &names) {
        Some(close) => format!("{expected}; did you mean `{close}`?"),
        None if names.is_empty() => format!("{expected}; there is none"),
        None => format!("{expected}: {}", names.join(", ")),
    })
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
    /// Where new tokens are had.
    pub token_url: Url,
    /// Who asks.
    pub client_id: Secret,
    /// With which secret.
    pub client_secret: Secret,
    /// The token that buys a new one.
    pub refresh_token: Secret,
}

pub(crate) fn read_credentials(section: &Section<'_>) -> BTreeMap<String, Credential> {
    let credentials = section.sections().map(|(name, section)| {
        let header = section.read("header", value::header_name);
        let refresh = section.section("refresh");
        let credential = Credential {
            header: header.unwrap_or_else(|| "authorization".to_owned()),
            refresh: refresh
                .is_written()
                .then(|| read_refresh(&refresh))
                .flatten(),
        };
        (name.to_owned(), credential)
    });
    credentials.collect()
}

fn read_refresh(section: &Section<'_>) -> Option<Refresh> {
    let kind = section.require("kind", |kind| match kind {
        "oauth2_refresh" => Ok(()),
        _ => Err("`oauth2_refresh`"),
    });
    let token_url = section.require_url("token_url");
    // An identifier is sent in the open by every client; it may stand in the file.
    let client_id = section.require_secret("client_id", Literal::Allowed);
    let client_secret = section.require_secret("client_secret", Literal::Refused);
    let refresh_token = section.require_secret("refresh_token", Literal::Refused);
    kind?;
    Some(Refresh {
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        refresh_token: refresh_token?,
    })
}
