//! Rules of a route: `[[gate."HOST".rule]]`, `[[pool.NAME.rule]]`, `[[operation.TYPE.rule]]`.

use config::Reader;
use policy::classify::{HeaderRule, Rule};
use policy::outcome::Verdict;
use policy::setting::Kind;

use super::value;

policy::settings! {
    /// What is written in a rule.
    pub struct RuleOptions {
        /// Responses with one of these statuses.
        status: Vec<u16> = none, Kind::list(&STATUS, 100), example "404";
        /// And with this code in a JSON body.
        code: String = none, Kind::TEXT, example "BUSY";
        /// And with these words in the body.
        text: String = none, Kind::TEXT, example "try later";
        /// What such a response means: success, throttled, overloaded, unreachable, quota_exhausted, unauthorized, conflict or rejected.
        verdict: Verdict = none, Verdict::KIND, example "overloaded";
    }

    /// What is written about the header of a rule.
    pub struct HeaderOptions {
        /// Its name.
        name: String = none, value::HEADER_NAME;
        /// Words that are found in it; any value if left out.
        matches: String = none, Kind::TEXT;
    }
}

const STATUS: Kind = Kind::whole(100, 999);

/// The rules of a table, in their order.
pub(crate) fn read(reader: &Reader<'_>) -> Vec<Rule> {
    reader.list("rule").iter().filter_map(read_one).collect()
}

fn read_one(reader: &Reader<'_>) -> Option<Rule> {
    reader.require_of::<RuleOptions>(&["verdict"]);
    let options = reader.options::<RuleOptions>();
    let header = reader.table("header");
    let header = header.is_written().then(|| {
        header.require_of::<HeaderOptions>(&["name"]);
        let options = header.options::<HeaderOptions>();
        HeaderRule {
            name: options.name.unwrap_or_default().to_ascii_lowercase(),
            matches: options.matches.unwrap_or_default(),
        }
    });
    if !["status", "header", "code", "text"]
        .iter()
        .any(|name| reader.has(name))
    {
        // One that holds for every response would turn off everything built in.
        reader.report_table("has no condition, expected `status`, `header`, `code` or `text`");
    }
    Some(Rule {
        statuses: options.status.unwrap_or_default(),
        header,
        code: options.code,
        text: options.text,
        verdict: options.verdict?,
    })
}
