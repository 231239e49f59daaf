//! Normal forms of URLs, so that a page is requested once however its links are written.
//!
//! Only the equivalences of RFC 3986, section 6.2.2 and 6.2.3, are used: a server may tell apart
//! everything else, also the order of a query. The parser (`url`) has already lowered scheme and host,
//! encoded the host by IDNA, removed the default port and the dot segments; what is left are the
//! percent-escapes, the fragment and the user info.

use std::fmt;

use url::{ParseError, Url};

use crate::redact;

/// The longest URL that is requested, in bytes. Servers refuse longer ones with 414.
pub(crate) const MAX_URL_LEN: usize = 8 * 1024;

/// Returns the normal form: no fragment, no user info, upper-case escapes, and no escape of a
/// character that needs none.
fn normalize(mut url: Url) -> Url {
    if url.fragment().is_some() {
        url.set_fragment(None);
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Fails only for URLs without a host, which have no user info.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    if let Some(path) = normalize_escapes(url.path()) {
        url.set_path(&path);
    }
    if let Some(query) = url.query().and_then(normalize_escapes) {
        url.set_query(Some(&query));
    }
    url
}

/// Reads a URL that a person or a list gives.
///
/// # Errors
///
/// If it is no `http` or `https` URL, has a user or a password, or is longer than 8 KiB.
pub fn parse_given(text: &str) -> Result<Url, BadUrl> {
    let bad = |problem| BadUrl {
        shown: redact::Url::new(text).to_string(),
        problem,
    };
    if text.len() > MAX_URL_LEN {
        return Err(bad(Problem::TooLong));
    }
    let url = Url::parse(text).map_err(|error| bad(Problem::Syntax(error)))?;
    if !is_http(&url) {
        return Err(bad(Problem::Scheme));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad(Problem::UserInfo));
    }
    let url = normalize(url);
    if url.as_str().len() > MAX_URL_LEN {
        return Err(bad(Problem::TooLong));
    }
    Ok(url)
}

/// Resolves what a page, a sitemap or a redirect refers to. Returns the normal form, or nothing for
/// what cannot be requested: `mailto:`, `javascript:`, a broken URL or one that is too long.
pub(crate) fn resolve(base: &Url, reference: &str) -> Option<Url> {
    if reference.len() > MAX_URL_LEN {
        return None;
    }
    usable(base.join(reference).ok()?)
}

/// The normal form, if the URL can be requested.
pub(crate) fn usable(url: Url) -> Option<Url> {
    if !is_http(&url) {
        return None;
    }
    let url = normalize(url);
    (url.as_str().len() <= MAX_URL_LEN).then_some(url)
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

/// Why a given URL cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl {
    shown: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Syntax(ParseError),
    Scheme,
    UserInfo,
    TooLong,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.shown;
        match self.problem {
            Problem::Syntax(ParseError::RelativeUrlWithoutBase) | Problem::Scheme => write!(
                f,
                "`{shown}` cannot be fetched: expected a URL that starts with `http://` or `https://`"
            ),
            Problem::Syntax(error) => write!(f, "`{shown}` is no URL: {error}"),
            Problem::UserInfo => write!(
                f,
                "`{shown}` has a user or a password: expected a URL without, and the credential in a header"
            ),
            Problem::TooLong => write!(
                f,
                "`{shown}` is too long: expected at most {MAX_URL_LEN} bytes"
            ),
        }
    }
}

impl std::error::Error for BadUrl {}

/// Decodes escapes of unreserved characters and writes the others in upper case; `None` if there is
/// nothing to change.
fn normalize_escapes(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let first = memchr::memchr(b'%', bytes)?;
    let mut out = String::with_capacity(bytes.len());
    out.push_str(&text[..first]);
    let mut rest = &text[first..];
    // How many of the next characters would complete a stray `%` to an escape.
    let mut stray = 0_u8;
    while let Some(character) = rest.chars().next() {
        if let Some(byte) = escaped_byte(rest.as_bytes()) {
            // Decoding after a stray `%`, as in `%%32F`, would make an escape that was none.
            if is_unreserved(byte) && (stray == 0 || !byte.is_ascii_hexdigit()) {
                out.push(char::from(byte));
            } else {
                out.push_str(&rest[..3].to_ascii_uppercase());
            }
            stray = 0;
            rest = &rest[3..];
            continue;
        }
        stray = match character {
            '%' => 2,
            _ if character.is_ascii_hexdigit() => stray.saturating_sub(1),
            _ => 0,
        };
        out.push(character);
        rest = &rest[character.len_utf8()..];
    }
    (out != text).then_some(out)
}

/// The byte of the escape that the text starts with.
pub(super) fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *text else {
        return None;
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Whether a character means the same escaped or not (RFC 3986, section 2.3).
pub(super) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(given: &str, normal: &str) {
        assert_eq!(normalize(Url::parse(given).unwrap()).as_str(), normal);
    }

    #[test]
    fn writes_equivalent_urls_alike() {
        check("HTTP://Example.COM:80", "http://example.com/");
        check("https://example.com:443/a#top", "https://example.com/a");
        check("http://example.com:8080/", "http://example.com:8080/");
        check("http://example.com/a/./b/../c", "http://example.com/a/c");
        check(
            "http://example.com/%7euser/%2e%2E/x",
            "http://example.com/x",
        );
        check(
            "http://example.com/%7euser%2fx",
            "http://example.com/~user%2Fx",
        );
        check("http://me:pw@example.com/", "http://example.com/");
        check(
            "http://bücher.example/ä",
            "http://xn--bcher-kva.example/%C3%A4",
        );
        check("http://[::1]:80/", "http://[::1]/");
        check("http://example.com\\a", "http://example.com/a");
    }

    #[test]
    fn leaves_what_a_server_may_tell_apart() {
        for url in [
            "http://example.com/a?b=2&a=1",
            "http://example.com/a?",
            "http://example.com/a//b",
            "http://example.com/a/",
            "http://example.com/%2F%3F%23",
            "http://example.com/a%20b?c+d%20e",
            "http://example.com/%",
            "http://example.com/%zz%4",
            "http://www.example.com/",
        ] {
            check(url, url);
        }
        check("http://example.com/?a=%2f%41", "http://example.com/?a=%2FA");
    }

    #[test]
    fn makes_no_escape_out_of_a_stray_percent_sign() {
        check("http://example.com/%%32e", "http://example.com/%%32e");
        check("http://example.com/%2%65", "http://example.com/%2%65");
        check("http://example.com/%%7e", "http://example.com/%~");
        check("http://example.com/%%2f%41", "http://example.com/%%2FA");
    }

    #[test]
    fn resolves_links_and_ignores_what_is_no_page() {
        let base = Url::parse("http://example.com/dir/page?x=1").unwrap();
        let resolved = |link: &str| resolve(&base, link).map(String::from);
        assert_eq!(resolved("next#a").unwrap(), "http://example.com/dir/next");
        assert_eq!(resolved(" \n/a\nb\t ").unwrap(), "http://example.com/ab");
        assert_eq!(resolved("?y").unwrap(), "http://example.com/dir/page?y");
        assert_eq!(resolved("//b.example/x").unwrap(), "http://b.example/x");
        assert_eq!(resolved("\\\\b.example\\x").unwrap(), "http://b.example/x");
        assert_eq!(
            resolved("http://u:p@b.example").unwrap(),
            "http://b.example/"
        );
        assert_eq!(resolved("").unwrap(), base.as_str());
        for link in [
            "javascript:alert(1)",
            "JavaScript :x",
            "mailto:a@b.example",
            "data:text/html,x",
            "tel:1",
            "ftp://b.example/",
            "file:///etc/passwd",
            "http://",
            "http://[",
            "http://a b/",
            "http://999.999.999.999/",
        ] {
            let found = resolved(link);
            assert!(
                found
                    .as_deref()
                    .is_none_or(|url| url.contains("/dir/JavaScript")),
                "{link}: {found:?}"
            );
        }
        assert_eq!(resolved(&"a".repeat(MAX_URL_LEN)), None);
        // Each takes six bytes when it is escaped.
        assert_eq!(resolved(&"ä".repeat(MAX_URL_LEN / 4)), None);
    }

    #[test]
    fn says_what_is_wrong_with_a_given_url() {
        let refused = |text: &str| parse_given(text).unwrap_err().to_string();
        insta::assert_snapshot!(refused("example.com/a"), @"`…` cannot be fetched: expected a URL that starts with `http://` or `https://`");
        insta::assert_snapshot!(refused("ftp://example.com/a?key=1"), @"`ftp://example.com/a?key=…` cannot be fetched: expected a URL that starts with `http://` or `https://`");
        insta::assert_snapshot!(refused("http://me:secret@example.com/"), @"`http://example.com/` has a user or a password: expected a URL without, and the credential in a header");
        insta::assert_snapshot!(refused("http://exa mple.com/"), @"`…` is no URL: invalid international domain name");
        insta::assert_snapshot!(refused("https://"), @"`…` is no URL: empty host");
        assert!(
            refused(&format!("http://a.example/{}", "a".repeat(MAX_URL_LEN)))
                .ends_with("at most 8192 bytes")
        );
        assert_eq!(
            parse_given(" http://A.example ").unwrap().as_str(),
            "http://a.example/"
        );
    }

    /// A URL with what normalising has to do with: escapes, stray signs, dots, all of Unicode.
    fn url() -> impl Strategy<Value = Url> {
        let piece = prop_oneof![
            Just("%".to_owned()),
            "%[0-9a-fA-F]{2}",
            "%[0-9a-fA-F]",
            "[.]{1,3}/",
            "[a-fA-F0-9]",
            "[?/&=;+ \\\\]",
            any::<char>().prop_map(String::from),
        ];
        let scheme = prop_oneof![Just("http"), Just("https"), Just("ftp"), Just("x")];
        (scheme, prop::collection::vec(piece, 0..24)).prop_filter_map(
            "no URL",
            |(scheme, pieces)| {
                Url::parse(&format!("{scheme}://u:p@host.example/{}", pieces.concat())).ok()
            },
        )
    }

    /// What a server reads: every escape decoded, apart from those of reserved characters.
    fn decoded(text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes();
        let mut out = Vec::new();
        while let Some((&first, rest)) = bytes.split_first() {
            if let Some(byte) = escaped_byte(bytes) {
                if is_unreserved(byte) {
                    out.push(byte);
                } else {
                    out.extend_from_slice(&bytes[..3].to_ascii_uppercase());
                }
                bytes = &bytes[3..];
            } else {
                out.push(first);
                bytes = rest;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing_more(url in url()) {
            let once = normalize(url);
            prop_assert_eq!(&normalize(once.clone()), &once);
            prop_assert_eq!(Url::parse(once.as_str()).unwrap(), once);
        }

        #[test]
        fn a_server_sees_the_same(url in url()) {
            let normal = normalize(url.clone());
            prop_assert_eq!(decoded(normal.path()), decoded(url.path()));
            prop_assert_eq!(normal.query().map(decoded), url.query().map(decoded));
            prop_assert_eq!(normal.host_str(), url.host_str());
            prop_assert_eq!(normal.port(), url.port());
        }

        #[test]
        fn resolving_never_panics(text in any::<String>()) {
            let base = Url::parse("http://example.com/dir/").unwrap();
            if let Some(url) = resolve(&base, &text) {
                prop_assert!(url.as_str().len() <= MAX_URL_LEN && url.fragment().is_none());
                prop_assert_eq!(parse_given(url.as_str()), Ok(url));
            }
            let _ = parse_given(&text);
        }
    }
}
