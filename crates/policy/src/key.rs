//! The key of a gate: one normalised name per server.
//!
//! Two spellings of one server with separate gates would send at twice the rate it accepts. So a
//! host, a `host:port` or a URL is normalised before its gate is looked up: lower case, IDNA, no
//! trailing dot, no default port, IPv6 compressed and in brackets. A general URL parser does not
//! fit: keys also come from places without a scheme (settings, a `Host` header, a replay event),
//! and it would repair what should be refused: `\` for `/`, a tab within a name, `%41` for `a`.
//!
//! Decisions:
//!
//! * Without a scheme both 80 and 443 are removed, because either may be meant. With a scheme only
//!   its own default port is: `http://example.com:443` is a different server from `example.com`.
//!   Its key, `example.com:443`, must not be normalised again; all other keys are stable.
//! * Any scheme is accepted; only `http`, `https`, `ws` and `wss` have a default port.
//! * A path, a query or user info requires a scheme: `example.com/path` and `//example.com/path`
//!   are errors.
//! * `::ffff:127.0.0.1` and `127.0.0.1` are different keys: they are different sockets, and this
//!   module does not judge which addresses may be reached. Four dotted numbers must be an IPv4
//!   address; shorter spellings of one (`127.1`) are treated as names. Zone ids are refused,
//!   because they are only meaningful on one machine.
//! * Names that are not ASCII need the feature `idna`, which brings tables of Unicode along.
//! * Names are checked for length and characters (letters, digits, `-`, `_`), not for existence.
//!
//! Error messages show neither user info nor anything after the host, because both can be secret.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

#[cfg(feature = "idna")]
use idna::AsciiDenyList;
#[cfg(feature = "idna")]
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// The gate key for a host, `host:port` or URL. Surrounding white space is ignored.
///
/// # Errors
///
/// If the text does not name exactly one server: no host, a port over 65 535, white space or
/// control characters, a path without a scheme, a name over 253 characters, or a label that is
/// empty or over 63. Never panics.
///
/// ```
/// # use tidegate_policy as tidegate;
/// use tidegate::key::normalize;
///
/// assert_eq!(normalize(" Example.COM. ").as_deref(), Ok("example.com"));
/// assert_eq!(normalize("https://user:pw@Example.com:443/x").as_deref(), Ok("example.com"));
/// assert_eq!(normalize("http://example.com:8080").as_deref(), Ok("example.com:8080"));
/// assert_eq!(normalize("2001:DB8:0::1").as_deref(), Ok("[2001:db8::1]"));
/// assert_eq!(
///     normalize("example.com:99999").unwrap_err().to_string(),
/// "`example.com:99999` is not a gate key: expected a port from 0 to 65535",
/// );
/// ```
pub fn normalize(text: &str) -> Result<String, KeyError> {
    let text = text.trim();
    parse(text).map_err(|expected| KeyError {
        value: displayable(text),
        expected,
    })
}

/// The gate key for a pool's endpoint: `pool/endpoint`, with the names from the settings. Never
/// equal to a [normalised](normalize) key, which has no `/`.
pub fn endpoint_key(pool: &str, endpoint: &str) -> String {
    format!("{pool}/{endpoint}")
}

/// Why a text is not the key of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    value: String,
    expected: &'static str,
}

impl KeyError {
    /// The text in a form that is safe to show: shortened, without user info, path or query.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What was expected instead.
    pub const fn expected(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, expected } = self;
        write!(
            formatter,
            "`{value}` is not a gate key: expected {expected}"
        )
    }
}

impl Error for KeyError {}

/// `Err` says what was expected.
type Parsed<T> = Result<T, &'static str>;

const A_HOST: &str = "a host, such as `example.com`";
const A_SCHEME: &str = "a scheme before user info, path or query, such as `https://`";
const A_VALID_SCHEME: &str =
    "a scheme of letters, digits, `+`, `-` and `.` before `://`, such as `https`";
const NO_SPACE: &str = "no white space or control characters";
const A_NAME: &str = "a name of letters, digits, `-` and `_` with dots between";
const A_SHORTER_NAME: &str = "a name of at most 253 characters, each part with 1 to 63";
const AN_IPV4: &str = "an IPv4 address of four numbers from 0 to 255 without leading zeros";
const AN_IPV6: &str = "an IPv6 address without a zone in brackets, such as `[2001:db8::1]`";
const A_PORT: &str = "a port from 0 to 65535";

fn parse(text: &str) -> Parsed<String> {
    if text.is_empty() {
        return Err(A_HOST);
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(NO_SPACE);
    }
    match split_scheme(text) {
        Some((scheme, rest)) => parse_url(scheme, rest),
        None => parse_host_and_port(text),
    }
}

fn parse_url(scheme: &str, rest: &str) -> Parsed<String> {
    if !is_scheme(scheme) {
        return Err(A_VALID_SCHEME);
    }
    let authority = before_any(rest, &['/', '?', '#']);
    if authority.contains('\\') {
        // Browsers end the host here; other clients treat the text before it as user info.
        return Err(A_NAME);
    }
    let host_and_port = match authority.rfind('@') {
        Some(at) => &authority[at + 1..],
        None => authority,
    };
    let (host, port) = split_port(host_and_port)?;
    let default = default_port(scheme);
    key(host, port.filter(|&port| Some(port) != default))
}

fn parse_host_and_port(text: &str) -> Parsed<String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    if text.contains(['/', '?', '#', '@', '\\']) {
        return Err(A_SCHEME);
    }
    if text.ends_with(':') {
        // In a URL this means the default port; without a scheme it is incomplete.
        return Err(A_PORT);
    }
    let (host, port) = split_port(text)?;
    key(host, port.filter(|port| ![80, 443].contains(port)))
}

/// The scheme and the text after `://`, if the text starts with a scheme.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let head = before_any(text, &['/', '?', '#', '\\', '@']);
    let scheme = head.strip_suffix(':')?;
    let rest = text[head.len()..].strip_prefix("//")?;
    Some((scheme, rest))
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn default_port(scheme: &str) -> Option<u16> {
    let is = |name| scheme.eq_ignore_ascii_case(name);
    if is("http") || is("ws") {
        Some(80)
    } else if is("https") || is("wss") {
        Some(443)
    } else {
        None
    }
}

/// The host, with brackets if any, and the port if given.
fn split_port(text: &str) -> Parsed<(&str, Option<u16>)> {
    let host = if text.starts_with('[') {
        let end = text.find(']').ok_or(AN_IPV6)?;
        &text[..=end]
    } else {
        before_any(text, &[':'])
    };
    match text[host.len()..].strip_prefix(':') {
        None if host.len() == text.len() => Ok((host, None)),
        None => Err(A_PORT),
        Some("") => Ok((host, None)),
        Some(rest) if rest.contains(':') => Err(AN_IPV6),
        Some(port) => Ok((host, Some(parse_port(port)?))),
    }
}

fn parse_port(text: &str) -> Parsed<u16> {
    // `parse` alone would accept a `+`.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(A_PORT);
    }
    text.parse().map_err(|_| A_PORT)
}

fn key(host: &str, port: Option<u16>) -> Parsed<String> {
    let mut key = normalize_host(host)?;
    if let Some(port) = port {
        key.push(':');
        key.push_str(&port.to_string());
    }
    Ok(key)
}

fn normalize_host(host: &str) -> Parsed<String> {
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let address: Ipv6Addr = address.parse().map_err(|_| AN_IPV6)?;
        return Ok(format!("[{address}]"));
    }
    // IDNA drops some characters, so any input length could normalise to a valid name. Four bytes
    // for each character that may remain are enough for every real name.
    if host.len() > 4 * 253 {
        return Err(A_SHORTER_NAME);
    }
    let ascii = to_ascii(host)?;
    // After IDNA, because it maps other characters to dots.
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err(A_HOST);
    }
    if name.len() > MAX_NAME
        || !name
            .split('.')
            .all(|label| (1..=MAX_LABEL).contains(&label.len()))
    {
        return Err(A_SHORTER_NAME);
    }
    if is_dotted_quad(name) && name.parse::<Ipv4Addr>().is_err() {
        return Err(AN_IPV4);
    }
    Ok(name.to_owned())
}

/// The limits of DNS.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A name in ASCII and lower case.
#[cfg(feature = "idna")]
fn to_ascii(host: &str) -> Parsed<Cow<'_, str>> {
    Uts46::new()
        .to_ascii(host.as_bytes(), NAMES, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| A_NAME)
}

/// Denies everything but letters, digits, `-`, `_` and the dot: no name that resolves has other
/// characters, and keys appear in logs, metrics and paths.
#[cfg(feature = "idna")]
const NAMES: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// The same without IDNA: other names are refused, and punycode is not checked.
#[cfg(not(feature = "idna"))]
fn to_ascii(host: &str) -> Parsed<Cow<'_, str>> {
    if !host.is_ascii() {
        return Err(
            "a name in ASCII, such as `xn--exmple-cua.com`; others need the feature `idna`",
        );
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match host.bytes().all(is_allowed) {
        true => Ok(Cow::Owned(host.to_ascii_lowercase())),
        false => Err(A_NAME),
    }
}

/// Whether the name consists of four dotted numbers, like an IPv4 address.
fn is_dotted_quad(name: &str) -> bool {
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').count() == 4 && name.split('.').all(is_number)
}

/// The text in a form that is safe to show in an error.
fn displayable(text: &str) -> String {
    let (scheme, rest) = split_scheme(text).map_or(("", text), |(scheme, rest)| (scheme, rest));
    let authority = before_any(rest, &['/', '?', '#', '\\']);
    let host = match authority.rfind('@') {
        Some(at) => format!("…@{}", &authority[at + 1..]),
        // A password containing `/` would otherwise be mistaken for host and path.
        None if rest.contains('@') => "…".to_owned(),
        None => authority.to_owned(),
    };
    let mut displayable = String::new();
    if !scheme.is_empty() {
        displayable.push_str(scheme);
        displayable.push_str("://");
    }
    displayable.push_str(&host);
    if authority.len() < rest.len() && host != "…" {
        displayable.push_str("/…");
    }
    shorten(&displayable)
}

/// At most 80 characters, with control characters escaped.
fn shorten(text: &str) -> String {
    const MAX: usize = 80;
    let mut short: String = text.escape_debug().take(MAX).collect();
    if text.escape_debug().nth(MAX).is_some() {
        short.push('…');
    }
    short
}

/// The text before the first of `ends`, or all of it.
fn before_any<'a>(text: &'a str, ends: &[char]) -> &'a str {
    text.split(ends).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(text: &str, key: &str) {
        assert_eq!(normalize(text).as_deref(), Ok(key), "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = normalize(text).expect_err(text);
        assert_eq!(error.expected(), expected, "{text}");
    }

    /// Conformance cases that the design supersedes, with the reason.
    const SUPERSEDED: [(&str, &str); 1] = [(
        "example.com:0",
        "only default ports are removed; every other port is kept",
    )];

    /// Whether a text can only be read with the feature `idna`, which is off.
    fn needs_idna(text: &str) -> bool {
        !cfg!(feature = "idna") && (!text.is_ascii() || text.contains("xn--"))
    }

    #[test]
    fn conformance_cases_hold() {
        let text = include_str!("../../../conformance/004_normalize.json");
        let file: Value = serde_json::from_str(text).unwrap();
        let mut skipped = 0;
        for case in file["cases"].as_array().unwrap() {
            let input = case["input"].as_str().unwrap();
            if SUPERSEDED
                .iter()
                .any(|(superseded, _)| *superseded == input)
            {
                skipped += 1;
                continue;
            }
            if needs_idna(input) {
                continue;
            }
            match case["expect"].as_str().unwrap() {
                "ERR" => assert!(normalize(input).is_err(), "{input}"),
                key => check(input, key),
            }
        }
        assert_eq!(skipped, SUPERSEDED.len());
    }

    #[test]
    fn ignores_case_trailing_dot_and_surrounding_space() {
        check("\t Example.COM \n", "example.com");
        check("example.com.", "example.com");
        check("https://example.com.", "example.com");
        check("example.com.:8080", "example.com:8080");
        check("HTTP://EXAMPLE.com:80/", "example.com");
        check("my_host", "my_host");
        check("localhost", "localhost");
    }

    #[test]
    fn scheme_removes_only_its_own_default_port() {
        check("http://example.com:80", "example.com");
        check("https://example.com:443/", "example.com");
        check("ws://example.com:80", "example.com");
        check("WSS://example.com:443", "example.com");
        check("http://example.com:443", "example.com:443");
        check("https://example.com:80", "example.com:80");
        check("wss://example.com:80", "example.com:80");
        check("ftp://example.com:21", "example.com:21");
        check("git+ssh://example.com:80", "example.com:80");
    }

    #[test]
    fn without_scheme_removes_80_and_443() {
        check("example.com:80", "example.com");
        check("example.com:443", "example.com");
        check("example.com:0443", "example.com");
        check("example.com:8080", "example.com:8080");
        check("example.com:0", "example.com:0");
        check("example.com:00000000000000008080", "example.com:8080");
        check("example.com:65535", "example.com:65535");
    }

    #[test]
    fn url_is_reduced_to_host_and_port() {
        check("http://example.com?x", "example.com");
        check("http://example.com#x", "example.com");
        check("http://example.com/a@b:c", "example.com");
        check("http://example.com/?u=http://other.com", "example.com");
        check("https://user:p@ss@example.com:8443/", "example.com:8443");
        check("http://user@[::1]:8080/x", "[::1]:8080");
        check("http://example.com:/x", "example.com");
    }

    #[test]
    fn ipv6_is_bracketed_and_compressed() {
        check("2001:db8::1", "[2001:db8::1]");
        check("2001:0DB8:0:0:0:0:0:1", "[2001:db8::1]");
        check("::", "[::]");
        check("http://[::1]:8080/x", "[::1]:8080");
        check("[::1]:80", "[::1]");
        check("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]");
        check("::ffff:7f00:1", "[::ffff:127.0.0.1]");
    }

    #[test]
    fn refuses_malformed_ipv6() {
        for text in [
            "[::1",
            "[::1%eth0]",
            "http://[fe80::1%25eth0]/",
            "[127.0.0.1]",
            "[]",
            "[example.com]",
            "invalid::domain",
            "1:2:3",
            "http://2001:db8::1/",
            "[::1]:80:80",
        ] {
            check_error(text, AN_IPV6);
        }
        check_error("fe80::1%eth0", AN_IPV6);
        check_error("[::1]x", A_PORT);
        check_error("[::1].", A_PORT);
    }

    #[test]
    fn keeps_ipv4_unchanged() {
        check("127.0.0.1:8080", "127.0.0.1:8080");
        check("http://127.0.0.1.", "127.0.0.1");
        check("127.1", "127.1");
        check_error("256.0.0.1", AN_IPV4);
        check_error("010.0.0.1", AN_IPV4);
    }

    #[cfg(feature = "idna")]
    #[test]
    fn international_names_become_ascii() {
        check("127。0。0。1", "127.0.0.1");
        check("exämple.com", "xn--exmple-cua.com");
        check("https://EXÄMPLE.com:443/", "xn--exmple-cua.com");
        check("例え。テスト", "xn--r8jz45g.xn--zckzah");
        check_error("\u{ad}", A_HOST);
        check_error("xn--a.com", A_NAME);
        check_error("exa\u{fffd}mple.com", A_NAME);
    }

    #[cfg(not(feature = "idna"))]
    #[test]
    fn without_idna_only_ascii_names_are_accepted() {
        check("EXAMPLE.com", "example.com");
        let error = normalize("exämple.com").unwrap_err();
        assert!(error.expected().contains("the feature `idna`"), "{error}");
        check_error("exa+mple.com", A_NAME);
    }

    #[test]
    fn refuses_text_without_host() {
        for text in [
            "",
            "  ",
            ".",
            ":80",
            "http://",
            "http:///x",
            "http://:80",
            "http://u@/",
            "file:///x",
        ] {
            check_error(text, A_HOST);
        }
    }

    #[test]
    fn refuses_paths_and_user_info_without_a_scheme() {
        for text in [
            "example.com/path",
            "//example.com/path",
            "/path",
            "example.com?x",
            "example.com#x",
            "user@example.com",
            "user:pw@example.com",
            "example.com\\path",
            "localhost:8080/http://x",
        ] {
            check_error(text, A_SCHEME);
        }
    }

    #[test]
    fn refuses_bad_schemes_ports_and_names() {
        check_error("://example.com", A_VALID_SCHEME);
        check_error("1http://example.com", A_VALID_SCHEME);
        check_error("ht_tp://example.com", A_VALID_SCHEME);
        for port in [
            "65536",
            "99999999999999999999",
            "+80",
            "-1",
            "8o",
            "８０",
            "http",
        ] {
            check_error(&format!("example.com:{port}"), A_PORT);
        }
        check_error("example.com:", A_PORT);
        for text in [
            "http://ex%61mple.com",
            "http://example.com\\@other.com",
            "*.example.com",
            "a,b",
        ] {
            check_error(text, A_NAME);
        }
    }

    #[test]
    fn refuses_inner_space_and_control_characters() {
        for text in [
            "exa mple.com",
            "example.com :80",
            "http://example.com/a b",
            "exam\tple.com",
            "exam\u{0}ple.com",
            "exam\u{7f}ple.com",
            "exam\u{3000}ple.com",
        ] {
            check_error(text, NO_SPACE);
        }
    }

    #[test]
    fn refuses_names_too_long_for_dns() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        check(&longest, &longest);
        check(&format!("{longest}."), &longest);
        check_error(&format!("{longest}a"), A_SHORTER_NAME);
        check_error(&"a".repeat(64), A_SHORTER_NAME);
        check_error(&"ä".repeat(1_000_000), A_SHORTER_NAME);
        for text in ["a..b", ".a", "a..", ".."] {
            check_error(text, A_SHORTER_NAME);
        }
    }

    #[test]
    fn error_shows_value_and_expectation() {
        let message = |text| normalize(text).expect_err(text).to_string();
        assert_eq!(
            message("example.com/path"),
            "`example.com/…` is not a gate key: \
             expected a scheme before user info, path or query, such as `https://`"
        );
        assert_eq!(
            message(""),
            "`` is not a gate key: expected a host, such as `example.com`"
        );
        assert!(message("a\u{1b}[31m").starts_with("`a\\u{1b}[31m`"));
        let long = normalize(&"ä".repeat(1_000_000)).expect_err("too long");
        assert_eq!(long.value().chars().count(), 81);
    }

    #[test]
    fn errors_do_not_leak_secrets() {
        for text in [
            "user:SECRET@example.com",
            "https://user:SECRET@exa mple.com/",
            "https://user:SEC/RET@exa mple.com/",
            "https://user:SECRET/@exa mple.com/",
            "https://user:SECRET?@exa mple.com/",
            "https://user:SECRET@@:1:1/",
            "https://example.com:x/SECRET",
            "https://example.com:x/?token=SECRET",
            "https://example.com:x/?token=a@SECRET",
            "example.com/SECRET",
            "example.com?SECRET",
        ] {
            let message = normalize(text).expect_err(text).to_string();
            assert!(!message.contains("SEC"), "{message}");
        }
    }

    #[test]
    fn endpoint_key_is_not_a_normalised_key() {
        assert_eq!(endpoint_key("search", "EU West"), "search/EU West");
        assert!(normalize(&endpoint_key("a", "b")).is_err());
    }

    /// Whether the key has a port that is default for another scheme. Only these keys change when
    /// normalised again.
    fn has_web_port(key: &str) -> bool {
        key.ends_with(":80") || key.ends_with(":443")
    }

    fn pieces() -> impl Strategy<Value = String> {
        let pieces = "http|HTTPS|ws|://|:|/|//|@|[|]|::|1|127|.|。|a|B|ä|xn--|xn--exmple-cua|-|_|80|443|0|\
                      65536|%|?|#|\\| |\u{ad}|\u{200d}|ß|Σ|İ|Ⅷ|ffff|א|٣|example.com";
        let piece = prop::sample::select(pieces.split('|').collect::<Vec<_>>());
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    fn check_properties(text: &str) -> Result<(), TestCaseError> {
        match normalize(text) {
            Ok(key) => {
                prop_assert!(key.is_ascii() && !key.is_empty());
                prop_assert!(
                    !key.contains(|c: char| c.is_ascii_uppercase() || "/@?# ".contains(c))
                );
                if !has_web_port(&key) {
                    prop_assert_eq!(normalize(&key), Ok(key.clone()));
                }
                prop_assert_eq!(normalize(&format!("x://{key}/y")), Ok(key));
            }
            Err(error) => prop_assert!(error.value().chars().count() <= 81),
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn any_text_normalises_or_fails(text: String) {
            check_properties(&text)?;
        }

        #[test]
        fn any_mix_of_parts_normalises_or_fails(text in pieces()) {
            check_properties(&text)?;
        }
    }
}
