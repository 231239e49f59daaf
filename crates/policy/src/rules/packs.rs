//! The built-in rules, one pack per program.
//!
//! Every rule has a sample of the program's real output. Tests judge every sample by the whole
//! pack, which finds rules hidden by earlier ones.

use std::borrow::Cow;

use super::{Class, Rule};

mod curl;
mod git;
mod rclone;
mod wget;
mod yt_dlp;

/// The names of the built-in packs.
pub const PACKS: &[&str] = &["yt-dlp", "curl", "wget", "git", "rclone"];

/// The rules of a pack.
pub(super) fn pack(name: &str) -> Option<Vec<Rule>> {
    let rules = match name {
        "yt-dlp" => yt_dlp::RULES,
        "curl" => curl::RULES,
        "wget" => wget::RULES,
        "git" => git::RULES,
        "rclone" => rclone::RULES,
        _ => return None,
    };
    Some(rules.iter().map(BuiltIn::rule).collect())
}

/// What libcurl prints for a server that fails or is overloaded; git uses it, too.
const CURL_SERVER_ERRORS: &[&str] = &[
    "returned error: 408",
    "returned error: 500",
    "returned error: 502",
    "returned error: 503",
    "returned error: 504",
    "returned error: 520",
    "returned error: 521",
    "returned error: 522",
    "returned error: 523",
    "returned error: 524",
    "returned error: 529",
];

/// Words of the page that a site shows in place of its own to check for a browser.
const BOT_CHECK_PAGE: &[&str] = &[
    "just a moment",
    "enable javascript and cookies to continue",
    "verify you are human",
    "captcha",
];

/// A rule of a pack, with the fields of [`Rule`].
struct BuiltIn {
    name: &'static str,
    class: Class,
    any: &'static [&'static str],
    all: &'static [&'static str],
    exits: &'static [i32],
    reason: &'static str,
    sample: &'static str,
}

impl BuiltIn {
    /// A rule without conditions.
    const EMPTY: Self = Self {
        name: "",
        class: Class::Retryable,
        any: &[],
        all: &[],
        exits: &[],
        reason: "",
        sample: "",
    };

    fn rule(&self) -> Rule {
        let phrases = |list: &[&'static str]| list.iter().copied().map(Cow::Borrowed).collect();
        Rule {
            any: phrases(self.any),
            all: phrases(self.all),
            exits: self.exits.to_vec(),
            sample: Some(Cow::Borrowed(self.sample)),
            ..Rule::new(self.name, self.class, self.reason)
        }
    }
}
