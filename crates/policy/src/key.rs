//! The key of a gate: one name for one server, however it is spelled.
//!
//! Two spellings of the same server with a gate each would send twice as fast as the server takes,
//! so a host, a `host:port` or a whole URL is brought into one form before a gate is looked up: lower
//! case, IDNA, no trailing dot, no port that the scheme implies, IPv6 in brackets and compressed.
//! A general URL parser is not used because a key also comes from places that have no scheme
//! (settings, a `Host` header, an event of a replay), and because it would repair what is better
//! refused: a `\` for a `/`, a tab within a name, `%41` for `a`.
//!
//! Decisions:
//!
//! * Without a scheme both 80 and 443 are removed, because either may be meant. With one only its
//!   own: `http://example.com:443` is another server than `example.com`. Its key,
//!   `example.com:443`, must not be normalised again; for every other key that changes nothing.
//! * Any scheme will do; only `http`, `https`, `ws` and `wss` have a default port.
//! * A path, a query or user info needs a scheme before it; alone, `example.com/path` and
//!   `//example.com/path` are errors rather than guesses.
//! * `::ffff:127.0.0.1` stays apart from `127.0.0.1`: different sockets, and what an address may
//!   reach is not judged here. Four numbers with dots must be an IPv4 address; shorter spellings
//!   of one (`127.1`) are taken as names. Zone ids are refused, for they mean something on one
//!   machine only.
//! * Names are checked for length and characters (letters, digits, `-`, `_`) and not for
//!   existence.
//!
//! Error texts show neither user info nor anything after the host, for both can be secrets.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::error::Error;
use std::fmt;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46, verify_dns_length};

/// The key of the gate for a host, `host:port` or URL, with white space around it ignored.
///
/// # Errors
///
/// Whatever does not name exactly one server: no host, a port over 65 535, white space or control
/// characters, a path without a scheme, a name over 253 characters or with a part that is empty or
/// over 63. Never panics.
///
/// ```
/// use policy::key::normalize;
///
/// assert_eq!(normalize(" Example.COM. ").as_deref(), Ok("example.com"));
/// assert_eq!(normalize("https://user:pw@Example.com:443/x").as_deref(), Ok("example.com"));
/// assert_eq!(normalize("http://example.com:8080").as_deref(), Ok("example.com:8080"));
/// assert_eq!(normalize("2001:DB8:0::1").as_deref(), Ok("[2001:db8::1]"));
/// assert_eq!(
///     normalize("example.com:99999").unwrap_err().to_string(),
///     "`example.com:99999` is no key of a gate: expected a port from 0 to 65535",
/// );
/// ```
pub fn normalize(text: &str) -> Result<String, KeyError> {
    let text = text.trim();
    parse(text).map_err(|expected| KeyError {
        value: shown(text),
        expected,
    })
}

/// The key of the gate for an endpoint of a pool: `pool/endpoint`, both as they are named in the
/// settings. Never the same as a [normalised](normalize) key, which has no `/`.
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
    /// The text as it may be shown: shortened, without user info, path or query.
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
            "`{value}` is no key of a gate: expected {expected}"
        )
    }
}

impl Error for KeyError {}

/// What was expected, where it is not found.
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
        // Browsers end the host here, others take what is before it for user info.
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
        // In a URL this means the default port; alone it is half of something.
        return Err(A_PORT);
    }
    let (host, port) = split_port(text)?;
    key(host, port.filter(|port| ![80, 443].contains(port)))
}

/// `scheme` and what follows `://`, if that is what the text begins with.
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

/// The host, with its brackets if it has any, and the port if there is one.
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
    // `parse` alone would take a `+`.
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
    // Characters that IDNA drops could make any length valid: four bytes for each that may stay
    // are enough for every real name.
    if host.len() > 4 * 253 {
        return Err(A_SHORTER_NAME);
    }
    let ascii = Uts46::new()
        .to_ascii(host.as_bytes(), NAMES, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| A_NAME)?;
    // Only now, because IDNA knows dots that are not ours.
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err(A_HOST);
    }
    if !verify_dns_length(name, false) {
        return Err(A_SHORTER_NAME);
    }
    if is_dotted_quad(name) && name.parse::<Ipv4Addr>().is_err() {
        return Err(AN_IPV4);
    }
    Ok(name.to_owned())
}

/// Everything but letters, digits, `-`, `_` and the dot is denied: no name that can be looked up
/// has it, and keys go into logs, metrics and paths.
const NAMES: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// Four numbers with dots, as people write an IPv4 address.
fn is_dotted_quad(name: &str) -> bool {
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').count() == 4 && name.split('.').all(is_number)
}

/// The text as an error may show it.
fn shown(text: &str) -> String {
    let (scheme, rest) = split_scheme(text).map_or(("", text), |(scheme, rest)| (scheme, rest));
    let authority = before_any(rest, &['/', '?', '#', '\\']);
    let host = match authority.rfind('@') {
        Some(at) => format!("…@{}", &authority[at + 1..]),
        // A password with a `/` in it would be taken for host and path.
        None if rest.contains('@') => "…".to_owned(),
        None => authority.to_owned(),
    };
    let mut shown = String::new();
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    shown.push_str(&host);
    if authority.len() < rest.len() && host != "…" {
        shown.push_str("/…");
    }
    shorten(&shown)
}

/// At most 80 characters, control characters escaped.
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

    /// Cases that the design decides otherwise, with the reason.
    const SUPERSEDED: [(&str, &str); 1] = [(
        "example.com:0",
        "only default ports are removed; every other port is kept",
    )];

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
            match case["expect"].as_str().unwrap() {
                "ERR" => assert!(normalize(input).is_err(), "{input}"),
                key => check(input, key),
            }
        }
        assert_eq!(skipped, SUPERSEDED.len());
    }

    #[test]
    fn case_dots_and_space_around_do_not_matter() {
        check("\t Example.COM \n", "example.com");
        check("example.com.", "example.com");
        check("https://example.com.", "example.com");
        check("example.com.:8080", "example.com:8080");
        check("HTTP://EXAMPLE.com:80/", "example.com");
        check("my_host", "my_host");
        check("localhost", "localhost");
    }

    #[test]
    fn a_scheme_removes_its_own_default_port_only() {
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
    fn without_a_scheme_both_web_ports_are_removed() {
        check("example.com:80", "example.com");
        check("example.com:443", "example.com");
        check("example.com:0443", "example.com");
        check("example.com:8080", "example.com:8080");
        check("example.com:0", "example.com:0");
        check("example.com:00000000000000008080", "example.com:8080");
        check("example.com:65535", "example.com:65535");
    }

    #[test]
    fn of_a_url_only_host_and_port_are_left() {
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
    fn ipv4_is_taken_as_it_is() {
        check("127.0.0.1:8080", "127.0.0.1:8080");
        check("http://127.0.0.1.", "127.0.0.1");
        check("127。0。0。1", "127.0.0.1");
        check("127.1", "127.1");
        check_error("256.0.0.1", AN_IPV4);
        check_error("010.0.0.1", AN_IPV4);
    }

    #[test]
    fn international_names_become_ascii() {
        check("exämple.com", "xn--exmple-cua.com");
        check("https://EXÄMPLE.com:443/", "xn--exmple-cua.com");
        check("例え。テスト", "xn--r8jz45g.xn--zckzah");
        check_error("xn--a.com", A_NAME);
        check_error("exa\u{fffd}mple.com", A_NAME);
    }

    #[test]
    fn a_text_without_a_host_is_refused() {
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
            "\u{ad}",
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
    fn bad_schemes_ports_and_names_are_refused() {
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
    fn space_and_control_characters_within_are_refused() {
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
    fn names_that_dns_cannot_hold_are_refused() {
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
    fn errors_name_the_value_and_what_was_expected() {
        let message = |text| normalize(text).expect_err(text).to_string();
        assert_eq!(
            message("example.com/path"),
            "`example.com/…` is no key of a gate: \
             expected a scheme before user info, path or query, such as `https://`"
        );
        assert_eq!(
            message(""),
            "`` is no key of a gate: expected a host, such as `example.com`"
        );
        assert!(message("a\u{1b}[31m").starts_with("`a\\u{1b}[31m`"));
        let long = normalize(&"ä".repeat(1_000_000)).expect_err("too long");
        assert_eq!(long.value().chars().count(), 81);
    }

    #[test]
    fn errors_keep_secrets() {
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
    fn a_pools_endpoint_has_its_own_kind_of_key() {
        assert_eq!(endpoint_key("search", "EU West"), "search/EU West");
        assert!(normalize(&endpoint_key("a", "b")).is_err());
    }

    /// Keys of a URL with the other scheme's default port; the only ones that change when they are
    /// normalised again.
    fn has_a_web_port(key: &str) -> bool {
        key.ends_with(":80") || key.ends_with(":443")
    }

    fn pieces() -> impl Strategy<Value = String> {
        let pieces = "http|HTTPS|ws|://|:|/|//|@|[|]|::|1|127|.|。|a|B|ä|xn--|xn--exmple-cua|-|_|80|443|0|\
                      65536|%|?|#|\\| |\u{ad}|\u{200d}|ß|Σ|İ|Ⅷ|ffff|א|٣|example.com";
        let piece = prop::sample::select(pieces.split('|').collect::<Vec<_>>());
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    fn holds_for(text: &str) -> Result<(), TestCaseError> {
        match normalize(text) {
            Ok(key) => {
                prop_assert!(key.is_ascii() && !key.is_empty());
                prop_assert!(
                    !key.contains(|c: char| c.is_ascii_uppercase() || "/@?# ".contains(c))
                );
                if !has_a_web_port(&key) {
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
        fn every_text_has_one_key_or_none(text: String) {
            holds_for(&text)?;
        }

        #[test]
        fn every_mixture_of_parts_has_one_key_or_none(text in pieces()) {
            holds_for(&text)?;
        }
    }
}
