//! A route's own rules for verdicts.

use super::code;
use crate::hint::Response;
use crate::outcome::Verdict;
use crate::text::contains_words;

/// A verdict for responses that meet all conditions. A rule without conditions matches every
/// response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The response has one of these statuses; any if empty.
    pub statuses: Vec<u16>,
    /// The response has this header.
    pub header: Option<HeaderRule>,
    /// A structured body has this code, at any depth and in any spelling.
    pub code: Option<String>,
    /// The body contains this text, see [`contains_words`].
    pub text: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// The header's name, in any case.
    pub name: String,
    /// Its value contains this text, see [`contains_words`]; empty for any value.
    pub matches: String,
}

impl Rule {
    /// A rule without conditions, to be narrowed down.
    pub const fn new(verdict: Verdict) -> Self {
        Self {
            statuses: Vec::new(),
            header: None,
            code: None,
            text: None,
            verdict,
        }
    }

    /// Whether `response` meets every condition.
    pub fn holds<'a, H>(&self, response: &Response<'a, H>) -> bool
    where
        H: IntoIterator<Item = (&'a str, &'a [u8])> + Clone,
    {
        let body = response.read_body();
        (self.statuses.is_empty() || self.statuses.contains(&response.status))
            && self.header.as_ref().is_none_or(|rule| {
                let mut headers = response.headers.clone().into_iter();
                headers.any(|(name, value)| rule.holds(name, value))
            })
            && self
                .code
                .as_ref()
                .is_none_or(|code| code::contains(body, code))
            && self
                .text
                .as_ref()
                .is_none_or(|text| contains_words(body, text))
    }
}

impl HeaderRule {
    fn holds(&self, name: &str, value: &[u8]) -> bool {
        name.eq_ignore_ascii_case(&self.name)
            && (self.matches.is_empty() || contains_words(value, &self.matches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [(&str, &[u8]); 2] = [("Server", b"cloudflare"), ("X-Error", b"Busy: slow")];

    fn check(rule: &Rule, expected: bool) {
        let response = Response {
            status: 403,
            headers: HEADERS,
            body: br#"{"error":{"code":"BANNED","message":"You are banned"}}"#,
        };
        assert_eq!(rule.holds(&response), expected, "{rule:?}");
    }

    fn header(name: &str, matches: &str) -> Option<HeaderRule> {
        Some(HeaderRule {
            name: name.into(),
            matches: matches.into(),
        })
    }

    #[test]
    fn all_conditions_must_hold() {
        let any = Rule::new(Verdict::Throttled);
        check(&any, true);
        let full = Rule {
            statuses: vec![400, 403],
            header: header("x-error", "busy"),
            code: Some("banned".into()),
            text: Some("you are banned".into()),
            ..any
        };
        check(&full, true);
        let others = [
            Rule {
                statuses: vec![404],
                ..full.clone()
            },
            Rule {
                header: header("x-error", "bus"),
                ..full.clone()
            },
            Rule {
                header: header("x-other", ""),
                ..full.clone()
            },
            Rule {
                code: Some("ban".into()),
                ..full.clone()
            },
            Rule {
                text: Some("you are ban".into()),
                ..full
            },
        ];
        for other in &others {
            check(other, false);
        }
        check(
            &Rule {
                header: header("SERVER", ""),
                ..Rule::new(Verdict::Throttled)
            },
            true,
        );
    }
}
