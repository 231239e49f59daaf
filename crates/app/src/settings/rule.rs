//! Rules of a route: `[[gate."HOST".rule]]`, `[[pool.NAME.rule]]`, `[[operation.TYPE.rule]]`.

use policy::classify::{HeaderRule, Rule};
use policy::outcome::Verdict;
use policy::setting;

use super::problem::Problem;
use super::reader::Section;
use super::value;

/// The rules of a section, in their order.
pub(crate) fn read(section: &Section<'_>) -> Vec<Rule> {
    let rules = section.tables("rule");
    rules.iter().filter_map(read_one).collect()
}

fn read_one(section: &Section<'_>) -> Option<Rule> {
    let verdict = section.require("verdict", verdict);
    let statuses = section.list("status", |text| setting::whole(text, 100_u16, 999));
    let code = section.read("code", value::filled);
    let text = section.read("text", value::filled);
    let header = section.section("header");
    let header = header.is_written().then(|| HeaderRule {
        name: header
            .require("name", value::header_name)
            .unwrap_or_default(),
        matches: header
            .read("matches", |text| Ok::<_, &str>(text.to_owned()))
            .unwrap_or_default(),
    });
    let conditions = ["status", "header", "code", "text"];
    if !conditions.iter().any(|name| section.node(name).is_some()) {
        // One that holds for every answer would turn off everything built in.
        let what = "has no condition, expected `status`, `header`, `code` or `text`";
        section
            .reader
            .report(Problem::about(&section.place, &section.path, what));
    }
    Some(Rule {
        statuses: statuses.unwrap_or_default(),
        header,
        code,
        text,
        verdict: verdict?,
    })
}

fn verdict(text: &str) -> Result<Verdict, String> {
    let mut verdicts = Verdict::ALL.into_iter();
    verdicts
        .find(|verdict| verdict.as_str() == text)
        .ok_or_else(|| {
            let words = Verdict::ALL.map(Verdict::as_str);
            format!("one of `{}`", words.join("`, `"))
        })
}
