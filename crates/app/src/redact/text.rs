//! Text of servers without what may be secret.
//!
//! A word is left out if it comes after a name such as `api_key=` or `Bearer`, if it begins as the
//! keys of known services do, if it is long and looks drawn by lot, or if it is an address of
//! e-mail. Sentences, names of models and of errors stay readable.

use super::{LEFT_OUT, Shown, url};

/// Shows a text, word by word.
pub(super) fn show(text: &str, shown: &mut Shown) {
    let mut rest = text;
    let mut next = Next::Ordinary;
    while !rest.is_empty() && !shown.is_full() {
        let (gap, after) = split_at(rest, |c| !is_gap(c));
        shown.push_str(gap);
        next = next.after_gap(gap);
        let (word, after) = match next {
            Next::Secret => split_secret(gap, after),
            Next::Ordinary | Next::Named => split_word(after),
        };
        next = show_word(word, next, shown);
        rest = after;
    }
}

/// What is known about the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing.
    Ordinary,
    /// It is a secret if it is given as the value of the word before.
    Named,
    /// It is a secret.
    Secret,
}

impl Next {
    fn after_gap(self, gap: &str) -> Self {
        match self {
            Self::Named if gap.contains([':', '=']) => Self::Secret,
            Self::Named => Self::Ordinary,
            Self::Ordinary | Self::Secret => self,
        }
    }
}

fn show_word(word: &str, next: Next, shown: &mut Shown) -> Next {
    if word.is_empty() {
        return next;
    }
    if SCHEMES
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
    {
        shown.push_str(word);
        return Next::Secret;
    }
    if next == Next::Secret {
        shown.push_str(LEFT_OUT);
        return Next::Ordinary;
    }
    if is_url(word) {
        url::show(word, shown);
    } else if let Some(prefix) = known_prefix(word) {
        shown.push_str(prefix);
        shown.push_str(LEFT_OUT);
    } else if is_secret(word) {
        shown.push_str(LEFT_OUT);
    } else {
        shown.push_str(word);
    }
    match names_secret(word) {
        true => Next::Named,
        false => Next::Ordinary,
    }
}

/// What stands before a secret in a header.
const SCHEMES: [&str; 3] = ["bearer", "basic", "digest"];

/// A secret ends where its quotes do; without any, at the next blank or quote.
fn split_secret<'a>(gap: &str, text: &'a str) -> (&'a str, &'a str) {
    match gap.chars().next_back().filter(|c| is_quote(*c)) {
        Some(quote) => split_at(text, |c| c == quote),
        None => split_at(text, |c| c.is_whitespace() || is_quote(c)),
    }
}

/// A word ends at the next gap, a URL only where it must.
fn split_word(text: &str) -> (&str, &str) {
    let (chunk, rest) = split_at(text, |c| c.is_whitespace() || is_quote(c));
    match is_url(chunk) {
        true => (chunk, rest),
        false => split_at(text, is_gap),
    }
}

/// A URL, or a part of one that has a query.
fn is_url(chunk: &str) -> bool {
    let query = chunk.split_once('?');
    chunk.contains("://") || query.is_some_and(|(_, query)| query.contains('='))
}

fn split_at(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || ":=,;()[]{}|\\".contains(c)
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '<' | '>' | '“' | '”' | '‘' | '’')
}

/// Does the name of a header, a parameter or a field say that its value is a secret?
pub(super) fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut parts = name.split(['-', '_', '.', ' ']);
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || parts.any(|part| SECRET_PARTS.contains(&part))
}

/// `apikey`, `accessToken` and the like are in one word.
const ENDINGS: [&str; 5] = ["key", "token", "secret", "password", "cookie"];

const SECRET_PARTS: [&str; 18] = [
    "auth",
    "authentication",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "session",
    "sid",
    "sig",
    "signature",
    "token",
];

/// Is this word better not shown?
pub(super) fn is_secret(word: &str) -> bool {
    is_address(word) || known_prefix(word).is_some() || word.split(is_outside).any(is_random)
}

/// `ann@example.com`, in a URL also `ann%40example.com`.
fn is_address(word: &str) -> bool {
    let parts = word.split_once('@').or_else(|| word.split_once("%40"));
    parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

/// How the keys of known services begin, if the word is long enough to be one.
fn known_prefix(word: &str) -> Option<&'static str> {
    let prefixes = PREFIXES.into_iter();
    let mut fitting = prefixes.filter(|prefix| word.starts_with(prefix));
    fitting.find(|prefix| word.len() >= prefix.len() + SHORTEST_KEY)
}

/// Words such as `sk-learn` are shorter.
const SHORTEST_KEY: usize = 8;

const PREFIXES: [&str; 22] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "hf_",
    "gsk_",
    "npm_",
    "pypi-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "SG.",
    "eyJ",
];

/// What cannot be inside of a key that is drawn by lot: base64 in both alphabets, hex, and the
/// same written in a URL.
fn is_outside(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || "-_+/=~%".contains(c))
}

/// Is this long, and does enough of it look drawn by lot? Words and dates joined by hyphens do not.
fn is_random(run: &str) -> bool {
    run.len() >= LONG
        && run
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|part| is_odd(part))
            .map(str::len)
            .sum::<usize>()
            >= ODD_ENOUGH
}

/// Shorter keys are rare, and shorter names of things are not.
const LONG: usize = 20;

/// More than a version, a number or a model's name has.
const ODD_ENOUGH: usize = 8;

/// Not a word, and not a number such as a year.
fn is_odd(part: &str) -> bool {
    let count = |is: fn(&u8) -> bool| part.bytes().filter(is).count();
    let digits = count(u8::is_ascii_digit);
    let capitals = count(u8::is_ascii_uppercase);
    if digits == part.len() {
        return digits > LONGEST_NUMBER;
    }
    // Words in camel case have a capital in four letters or fewer.
    let is_mixed = capitals < part.len() && capitals * 3 > part.len();
    let is_hex = part.len() >= ODD_ENOUGH && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits > 0 || is_mixed || is_hex
}

const LONGEST_NUMBER: usize = 4;
