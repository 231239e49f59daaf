//! robots.txt: which URLs of a host may be requested, and how often (RFC 9309).
//!
//! `robotxt` reads the file and matches paths. Where it differs from the RFC, the file or the path is
//! rewritten before it sees them:
//! - section 2.2.1: a group is chosen by product token, so `User-agent: tidegate/1.0` names `tidegate`.
//! - section 2.2.2 and 2.2.3: `%2A` and `%24` in a rule stand for `*` and `$` in a path, and a
//!   character that is neither reserved nor unreserved matches its escape.
//! - section 2.2.4: `Crawl-delay` is no record of the RFC, so it must not end a group.

use std::borrow::Cow;
use std::time::Duration;

use robotxt::{BYTE_LIMIT, Robots};
use url::{Position, Url};

use super::url::{escaped_byte, is_unreserved};

/// How many bytes of a robots.txt count (RFC 9309, section 2.5: at least 500 KiB).
pub(crate) const MAX_ROBOTS_LEN: usize = BYTE_LIMIT;

/// Rules times bytes of a path, the work for one URL. 10,000 rules reach it with a path of 3 KiB, the
/// 50,000 that fit into a file with one of 670 bytes.
const MAX_MATCHED: usize = 32 << 20;

/// What the robots.txt of a host says to this program.
#[derive(Clone, Debug)]
pub(crate) struct RobotsRules {
    rules: Robots,
    crawl_delay: Option<Duration>,
}

impl RobotsRules {
    /// Reads a robots.txt; what follows after [`MAX_ROBOTS_LEN`] bytes is ignored, and so is the line
    /// that goes beyond. It never fails: a line that says nothing is skipped.
    pub(crate) fn parse(body: &[u8], user_agent: &str) -> Self {
        let token = product_token(user_agent);
        let body = whole_lines(body);
        Self {
            rules: Robots::parse(&rewrite(body), token),
            crawl_delay: Robots::parse(body, token).crawl_delay(),
        }
    }

    /// What holds for a host without a robots.txt.
    pub(crate) fn allow_all() -> Self {
        Self {
            rules: Robots::allow_all(),
            crawl_delay: None,
        }
    }

    /// Whether a URL of this host may be requested. With so many rules that trying them all on so long
    /// a URL would hold up other hosts, it may not.
    pub(crate) fn allows(&self, url: &Url) -> bool {
        let path = &url[Position::BeforePath..Position::AfterQuery];
        if self.rules.rules().len().saturating_mul(path.len()) > MAX_MATCHED {
            return false;
        }
        self.rules
            .is_allowed(&escape(path.as_bytes(), Wildcards::Escaped))
    }

    /// The time between two requests that the host asks for.
    pub(crate) const fn crawl_delay(&self) -> Option<Duration> {
        self.crawl_delay
    }
}

/// What the status of a response to `/robots.txt` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RobotsOutcome {
    /// The body has the rules.
    Read,
    /// There are no rules.
    AllowAll,
    /// Nothing may be requested until the file can be read.
    Unavailable,
}

/// Reads the status by RFC 9309, section 2.3.1. What still is a redirect after those that were followed
/// counts as a file that does not exist (2.3.1.2); 429 is no answer about the file.
pub(crate) const fn after_status(status: u16) -> RobotsOutcome {
    match status {
        200..=299 => RobotsOutcome::Read,
        300..=428 | 430..=499 => RobotsOutcome::AllowAll,
        _ => RobotsOutcome::Unavailable,
    }
}

/// The part of the user agent that a robots.txt names: `tidegate` of `tidegate/0.1 (+https://…)`.
fn product_token(user_agent: &str) -> &str {
    let is_other = |c: char| !(c.is_ascii_alphabetic() || c == '_' || c == '-');
    user_agent.split(is_other).next().unwrap_or_default()
}

/// The first [`MAX_ROBOTS_LEN`] bytes, without a line that goes beyond.
fn whole_lines(body: &[u8]) -> &[u8] {
    let Some(head) = body.get(..=MAX_ROBOTS_LEN) else {
        return body;
    };
    let end = head.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
    &body[..end.unwrap_or(0)]
}

/// Rewrites the lines that `robotxt` would read differently from the RFC.
fn rewrite(body: &[u8]) -> Vec<u8> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut out = Vec::with_capacity(body.len() + 1);
    for line in body.split(|byte| matches!(byte, b'\n' | b'\r' | b'\0')) {
        rewrite_line(line, &mut out);
        out.push(b'\n');
    }
    out
}

fn rewrite_line(line: &[u8], out: &mut Vec<u8>) {
    let record = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    let colon = record.iter().position(|&byte| byte == b':');
    let end = colon.unwrap_or(record.len());
    let key = record[..end].trim_ascii();
    let value = record.get(end + 1..).unwrap_or_default().trim_ascii();
    let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
    if key.len() >= CRAWL_DELAY.len() && key[..CRAWL_DELAY.len()].eq_ignore_ascii_case(CRAWL_DELAY)
    {
        return;
    }
    if is("user-agent") {
        out.extend_from_slice(b"user-agent: ");
        out.extend_from_slice(named_token(value));
    } else if is("allow") || is("disallow") {
        out.extend_from_slice(key);
        out.extend_from_slice(b": ");
        out.extend_from_slice(escape(value, Wildcards::Kept).as_bytes());
    } else {
        out.extend_from_slice(line);
    }
}

const CRAWL_DELAY: &[u8] = b"crawl-delay";

/// The product token of a `User-agent` line, `*` included.
fn named_token(value: &[u8]) -> &[u8] {
    if let [b'*', rest @ ..] = value
        && rest.first().is_none_or(u8::is_ascii_whitespace)
    {
        return b"*";
    }
    let is_other = |&byte: &u8| !(byte.is_ascii_alphabetic() || byte == b'_' || byte == b'-');
    match value.iter().position(is_other) {
        // A name such as `360Spider` is compared as it is.
        Some(0) | None => value,
        Some(end) => &value[..end],
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wildcards {
    /// `*`, and `$` at the end, stand for something else: a rule.
    Kept,
    /// They are characters as all others: a path.
    Escaped,
}

/// Escapes what has to be compared escaped: everything that is neither unreserved nor reserved, and
/// the characters that a rule can only name by their escapes.
fn escape(text: &[u8], wildcards: Wildcards) -> Cow<'_, str> {
    let is_wildcard = |index: usize, byte: u8| {
        wildcards == Wildcards::Kept && (byte == b'*' || (byte == b'$' && index + 1 == text.len()))
    };
    let is_plain = |index: usize, byte: u8| {
        is_unreserved(byte)
            || is_wildcard(index, byte)
            || matches!(
                byte,
                b'%' | b'/'
                    | b'?'
                    | b':'
                    | b'@'
                    | b'!'
                    | b'&'
                    | b'('
                    | b')'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
            )
    };
    let mut bytes = text.iter().copied().enumerate();
    if bytes.all(|(index, byte)| is_plain(index, byte) && byte != b'%')
        && let Ok(text) = str::from_utf8(text)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut index = 0;
    while let Some(&byte) = text.get(index) {
        let escaped = escaped_byte(&text[index..]);
        let byte = escaped.unwrap_or(byte);
        if (escaped.is_some() && is_unreserved(byte))
            || (escaped.is_none() && is_plain(index, byte))
        {
            out.push(char::from(byte));
        } else {
            push_escape(byte, &mut out);
        }
        index += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

fn push_escape(byte: u8, out: &mut String) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    out.push('%');
    out.push(HEX[usize::from(byte >> 4)]);
    out.push(HEX[usize::from(byte & 15)]);
}

#[cfg(test)]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;

    fn url(path: &str) -> Url {
        Url::parse(&format!("http://a.example{path}")).unwrap()
    }

    const AGENT: &str = "tidegate/0.1 (+https://tidegate.example)";

    #[track_caller]
    fn check(body: &str, allowed: &[&str], denied: &[&str]) {
        let rules = RobotsRules::parse(body.as_bytes(), AGENT);
        for path in allowed {
            assert!(rules.allows(&url(path)), "{path} is denied by\n{body}");
        }
        for path in denied {
            assert!(!rules.allows(&url(path)), "{path} is allowed by\n{body}");
        }
    }

    #[test]
    fn reads_the_group_of_its_product_token() {
        let body = "User-agent: *\nDisallow: /\n\nUser-agent: Tidegate\nDisallow: /private\n";
        check(body, &["/", "/x"], &["/private", "/private/x"]);
        let body =
            "User-agent: tidegate/2.0\nDisallow: /a\n\nUser-agent: tidegate-images\nDisallow: /b";
        check(body, &["/b"], &["/a"]);
        let body = "User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /c";
        check(body, &["/a"], &["/c"]);
    }

    #[test]
    fn merges_the_groups_of_one_name() {
        let body = "User-agent: tidegate\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nuser-agent: TIDEGATE\nuser-agent: y\nDisallow: /b\n";
        check(body, &["/c"], &["/a", "/b"]);
    }

    #[test]
    fn a_crawl_delay_does_not_end_a_group() {
        let body = "User-agent: tidegate\nCrawl-delay: 5\nUser-agent: other\nDisallow: /a\n";
        check(body, &["/b"], &["/a"]);
        let rules = RobotsRules::parse(body.as_bytes(), AGENT);
        assert_eq!(rules.crawl_delay(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn the_longest_rule_wins_and_allow_wins_a_tie() {
        let body =
            "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\nAllow: /x\nDisallow: /x\n";
        check(body, &["/a/b", "/a/b/d", "/x"], &["/a", "/a/c", "/a/b/c"]);
        check("User-agent: *\nDisallow:\n", &["/", "/a"], &[]);
        check(
            "User-agent: *\nAllow: /$\nDisallow: /\n",
            &["/", "/robots.txt"],
            &["/a", "/?x"],
        );
        check(
            "User-agent: *\nDisallow: /*?\n",
            &["/a"],
            &["/a?", "/a?b", "/?b"],
        );
        check(
            "User-agent: *\nDisallow: /*.pdf$\n",
            &["/a.pdfx", "/a.pdf?x"],
            &["/a.pdf", "/b/a.pdf"],
        );
    }

    #[test]
    fn compares_escapes_as_the_rfc_says() {
        check(
            "User-agent: *\nDisallow: /%7Ea/%2f\n",
            &["/~a//"],
            &["/~a/%2F", "/%7ea/%2f"],
        );
        check(
            "User-agent: *\nDisallow: /ツ\n",
            &["/x"],
            &["/%E3%83%84", "/ツ", "/%e3%83%84"],
        );
        check(
            "User-agent: *\nDisallow: /a-%2A.html\nDisallow: /b%24c\n",
            &["/a-b.html", "/b"],
            &["/a-*.html", "/a-%2a.html", "/b$c"],
        );
        check(
            "User-agent: *\nDisallow: /a$b\n",
            &["/a"],
            &["/a$b", "/a%24bc"],
        );
        check(
            "User-agent: *\nDisallow: /a|b^c'd\\e\n",
            &["/a"],
            &["/a|b^c'd%5Ce", "/a%7Cb%5ec%27d%5ce"],
        );
    }

    #[test]
    fn reads_odd_files() {
        check(
            "\u{feff}User-agent: *\rDisallow: /a\r\rDisallow: /b",
            &["/c"],
            &["/a", "/b"],
        );
        check(
            "  USER-AGENT :tidegate # us\n\tdisallow\t:\t/a b # no\n",
            &["/a"],
            &["/a%20b"],
        );
        check(
            "<!doctype html><html><body>Not found</body></html>",
            &["/", "/a"],
            &[],
        );
        check("Disallow: /\n", &["/"], &[]);
        let rules = RobotsRules::parse(
            b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /b\n\x00\x01",
            AGENT,
        );
        assert!(
            !rules.allows(&url("/b")) && !rules.allows(&url("/%FF%FE")) && rules.allows(&url("/a"))
        );
    }

    #[test]
    fn ignores_what_follows_after_500_kib() {
        let mut body = b"User-agent: *\nDisallow: /a\n".to_vec();
        while body.len() < MAX_ROBOTS_LEN - 10 {
            body.extend_from_slice(b"#\n");
        }
        let fits = body.clone();
        body.extend_from_slice(b"Disallow: /bbbbbbbbb\nDisallow: /c\n");
        let rules = RobotsRules::parse(&body, AGENT);
        assert!(!rules.allows(&url("/a")) && rules.allows(&url("/b")) && rules.allows(&url("/c")));
        assert!(!RobotsRules::parse(&fits, AGENT).allows(&url("/a")));
    }

    #[test]
    fn denies_urls_that_take_too_long_to_match() {
        let body = format!("User-agent: *\n{}", "Allow:/*a*b\n".repeat(40_000));
        let rules = RobotsRules::parse(body.as_bytes(), AGENT);
        assert!(rules.allows(&url("/aaaa")));
        assert!(!rules.allows(&url(&format!("/{}", "a".repeat(8_000)))));
    }

    #[test]
    fn reads_the_crawl_delay() {
        let body = "User-agent: *\nCrawl-delay: 0.5\nSitemap: /x\nDisallow: /a\nUser-agent: other\nCrawl-delay: 0.1";
        let rules = RobotsRules::parse(body.as_bytes(), AGENT);
        assert_eq!(rules.crawl_delay(), Some(Duration::from_millis(500)));
        for delay in ["-1", "nan", "inf", "soon", "1e300"] {
            let body = format!("User-agent: *\nCrawl-delay: {delay}\n");
            assert_eq!(
                RobotsRules::parse(body.as_bytes(), AGENT).crawl_delay(),
                None,
                "{delay}"
            );
        }
    }

    #[test]
    fn takes_the_product_token_out_of_the_user_agent() {
        assert_eq!(product_token(AGENT), "tidegate");
        assert_eq!(product_token("My-Bot_x (y)"), "My-Bot_x");
        assert_eq!(product_token(""), "");
        let rules = RobotsRules::parse(b"User-agent:\nDisallow: /\n", "");
        assert!(rules.allows(&url("/a")));
    }

    #[test]
    fn a_status_reads_allows_or_stops() {
        let outcomes = [
            200, 204, 301, 304, 400, 401, 403, 404, 410, 429, 499, 500, 503, 599, 100, 600,
        ]
        .map(after_status);
        use RobotsOutcome::{AllowAll, Read, Unavailable};
        assert_eq!(
            outcomes,
            [
                Read,
                Read,
                AllowAll,
                AllowAll,
                AllowAll,
                AllowAll,
                AllowAll,
                AllowAll,
                AllowAll,
                Unavailable,
                AllowAll,
                Unavailable,
                Unavailable,
                Unavailable,
                Unavailable,
                Unavailable
            ]
        );
        assert!(RobotsRules::allow_all().allows(&url("/a")));
    }
}
