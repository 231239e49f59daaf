//! The URL and the headers of a status request, as typed.

use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::settings::{
    Environment, endpoint_header, follow, http_url, is_secret_header, shown_url,
};

/// Reads a status URL.
///
/// # Errors
///
/// The URL as it may be shown, and what was expected.
pub fn status_url(text: &str) -> Result<Url, (String, &'static str)> {
    http_url(text).map_err(|expected| {
        let expected = match text.contains('@') {
            true => "a URL without user info; credentials go into a header",
            false => expected,
        };
        (shown_url(text), expected)
    })
}

/// Why a header cannot be used. Nothing of its value is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It has no colon.
    #[error("expected NAME: VALUE")]
    NoColon,
    /// Its name cannot be set.
    #[error("`{name}` cannot be set, expected {expected}")]
    Name {
        /// The name.
        name: String,
        /// What was expected.
        expected: &'static str,
    },
    /// Its value is a secret that is written out, where other users of the machine can read it.
    #[error("the value of `{name}` is written out, expected `env:NAME` or `file:PATH`")]
    Literal {
        /// The name.
        name: String,
    },
    /// Its value cannot be had or sent.
    #[error("the value of `{name}` cannot be used: {why}")]
    Value {
        /// The name.
        name: String,
        /// Why not.
        why: String,
    },
}

/// Reads headers as `NAME: VALUE`. A secret is `env:NAME` or `file:PATH`, after a word such as
/// `Bearer` if need be. Returns those that can be used, and every problem with the others.
pub fn headers(texts: &[String], environment: &dyn Environment) -> (HeaderMap, Vec<HeaderError>) {
    let mut headers = HeaderMap::new();
    let mut problems = Vec::new();
    for text in texts {
        match header(text, environment) {
            Ok((name, value)) => _ = headers.append(name, value),
            Err(problem) => problems.push(problem),
        }
    }
    (headers, problems)
}

fn header(
    text: &str,
    environment: &dyn Environment,
) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let (name, value) = text.split_once(':').ok_or(HeaderError::NoColon)?;
    let (written, value) = (name.trim(), value.trim());
    let name = endpoint_header(written).map_err(|expected| HeaderError::Name {
        name: config::shortened(written),
        expected,
    })?;
    let wrong = |why: String| HeaderError::Value {
        name: name.clone(),
        why,
    };
    let secret = follow(value, environment).map_err(wrong)?;
    if secret.is_none() && is_secret_header(&name) {
        return Err(HeaderError::Literal { name });
    }
    let text = secret.as_ref().map_or(value, |secret| secret.expose());
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| wrong("expected visible ASCII characters".to_owned()))?;
    value.set_sensitive(secret.is_some());
    let name = HeaderName::try_from(&name).map_err(|_| HeaderError::NoColon)?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Process;

    fn problem(text: &str) -> String {
        header(text, &Process).unwrap_err().to_string()
    }

    #[test]
    fn reads_headers_with_secrets_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        let text = format!("Authorization: Bearer file:{}", file.display());
        let (name, value) = header(&text, &Process).unwrap();
        assert_eq!(
            (name.as_str(), value.as_bytes()),
            ("authorization", &b"Bearer s3cret"[..])
        );
        assert!(value.is_sensitive());
        let (name, value) = header("Accept:text/plain", &Process).unwrap();
        assert_eq!(
            (name.as_str(), value.as_bytes()),
            ("accept", &b"text/plain"[..])
        );
    }

    #[test]
    fn refuses_headers_without_showing_their_values() {
        assert_eq!(problem("s3cret"), "expected NAME: VALUE");
        assert_eq!(
            problem("authorization: Bearer s3cret"),
            "the value of `authorization` is written out, expected `env:NAME` or `file:PATH`"
        );
        assert_eq!(
            problem("host: example.com"),
            "`host` cannot be set, expected another header; this one is set for every request anyway"
        );
        assert_eq!(
            problem("x y: 1"),
            "`x y` cannot be set, expected the name of a header, such as `authorization`"
        );
        assert_eq!(
            problem("x-key: env:NO_SUCH_VARIABLE_HERE"),
            "the value of `x-key` cannot be used: the environment variable `NO_SUCH_VARIABLE_HERE` is not set"
        );
    }

    #[test]
    fn refuses_other_urls_without_showing_their_paths() {
        let refused = |text: &str| status_url(text).unwrap_err();
        assert_eq!(
            refused("ftp://example.com/s3cret"),
            (
                "ftp://example.com/…".to_owned(),
                "a URL that begins with `http://` or `https://`"
            )
        );
        assert_eq!(
            refused("https://me:pw@example.com/").0,
            "https://…@example.com/…"
        );
    }
}
