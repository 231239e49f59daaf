//! What is known of a URL when it is done.

use std::fmt;

use policy::item::TerminalReason;
use serde::{Deserialize, Serialize};

/// What became of one URL: a line of `--jsonl`, and what a report is made of.
///
/// The fields of the contract are always there, `null` if they do not apply; the others are left out
/// where they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlRecord {
    /// The URL as it was queued.
    pub url: String,
    /// The status of the last response.
    pub status: Option<u16>,
    /// Why it failed, in one word.
    pub error: Option<UrlError>,
    /// How many requests were sent, those for redirects included.
    pub attempts: u32,
    /// How long it waited for its gate and between attempts.
    pub wait_ms: u64,
    /// From the last request to the head of its response.
    pub latency_ms: Option<u64>,
    /// The length of the decoded body.
    pub bytes: u64,
    /// The SHA-256 of the decoded body, in hexadecimal.
    pub sha256: Option<String>,
    /// `Content-Type` of the last response.
    pub content_type: Option<String>,
    /// The title of a page.
    pub title: Option<String>,
    /// More about the error, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where redirects led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_url: Option<String>,
    /// How many links away from a given URL it is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// The page that linked to it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its file below the folder of `--out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether it is unchanged since an earlier run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_modified: bool,
    /// Hosts of other sites from which a page loads something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub third_parties: Vec<ThirdParty>,
}

/// A host of another site from which a page loads something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThirdParty {
    /// The host.
    pub host: String,
    /// Whether it is known as a tracker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tracker: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// Why a URL failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum UrlError {
    /// Its item ended: the server rejected it, attempts are used up, its gate refused for too long.
    Item(TerminalReason),
    /// It is no URL that can be requested.
    BadUrl,
    /// robots.txt does not allow it.
    RobotsDenied,
    /// robots.txt could not be read, so nothing of the host is requested for a time.
    RobotsUnavailable,
    /// Its address must not be dialled.
    AddressNotAllowed,
    /// More redirects than are followed.
    TooManyRedirects,
    /// A redirect to a URL that it came from.
    RedirectLoop,
    /// A redirect without a target that can be requested.
    BadRedirect,
    /// The body is longer than is fetched.
    BodyTooLarge,
    /// The body cannot be decoded, or grows too much.
    BadEncoding,
    /// The connection broke in the middle of the body, in every attempt.
    Truncated,
    /// It is no sitemap, or one that is too long.
    BadSitemap,
    /// The body could not be stored.
    NotStored,
    /// The process could not send it: no descriptors, too many hosts.
    NotSent,
}

impl UrlError {
    /// Every error that is not the end of an item.
    const OWN: [Self; 13] = [
        Self::BadUrl,
        Self::RobotsDenied,
        Self::RobotsUnavailable,
        Self::AddressNotAllowed,
        Self::TooManyRedirects,
        Self::RedirectLoop,
        Self::BadRedirect,
        Self::BodyTooLarge,
        Self::BadEncoding,
        Self::Truncated,
        Self::BadSitemap,
        Self::NotStored,
        Self::NotSent,
    ];

    /// The word for it in records and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Item(reason) => reason.as_str(),
            Self::BadUrl => "bad_url",
            Self::RobotsDenied => "robots_denied",
            Self::RobotsUnavailable => "robots_unavailable",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::TooManyRedirects => "too_many_redirects",
            Self::RedirectLoop => "redirect_loop",
            Self::BadRedirect => "bad_redirect",
            Self::BodyTooLarge => "body_too_large",
            Self::BadEncoding => "bad_encoding",
            Self::Truncated => "truncated",
            Self::BadSitemap => "bad_sitemap",
            Self::NotStored => "not_stored",
            Self::NotSent => "not_sent",
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<UrlError> for &'static str {
    fn from(error: UrlError) -> Self {
        error.as_str()
    }
}

impl TryFrom<String> for UrlError {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let own = Self::OWN.into_iter().find(|error| error.as_str() == name);
        own.or_else(|| TerminalReason::named(&name).map(Self::Item))
            .ok_or_else(|| format!("no error has the name `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_fields_of_the_contract_always() {
        let record = UrlRecord {
            url: "http://a.example/".to_owned(),
            error: Some(UrlError::Item(TerminalReason::BreakerOpen)),
            ..UrlRecord::default()
        };
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(
            json,
            r#"{"url":"http://a.example/","status":null,"error":"breaker_open","attempts":0,"wait_ms":0,"latency_ms":null,"bytes":0,"sha256":null,"content_type":null,"title":null}"#
        );
        assert_eq!(serde_json::from_str::<UrlRecord>(&json).unwrap(), record);
    }

    #[test]
    fn errors_are_read_by_their_names() {
        for error in UrlError::OWN {
            assert_eq!(UrlError::try_from(error.to_string()), Ok(error));
        }
        assert!(UrlError::try_from("other".to_owned()).is_err());
    }
}
