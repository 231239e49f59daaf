//! Rule files: from TOML to rules, or to everything that is wrong with them.

use std::borrow::Cow;

use config::document::{self, Node, Value};
use config::{Context, Location, Problem, Reader};
use policy::rules::{Class, Exit, PACKS, Rule, Rules};
use policy::setting::{Format, Kind};

/// Reads a rule file; `file` is what messages call it.
pub(super) fn rules(file: &str, bytes: &[u8]) -> Result<Rules, Vec<Problem>> {
    let mut problems = Vec::new();
    let Some(table) = document::parse(file, bytes, &mut problems) else {
        return Err(problems);
    };
    let context = Context::default();
    let beginning = Location::File {
        file: file.into(),
        line: 1,
        column: 1,
    };
    let rules = read(&Reader::root(&context, &table, beginning));
    problems.extend(context.into_problems());
    match rules {
        Some(rules) if problems.is_empty() => Ok(rules),
        _ => Err(problems),
    }
}

/// Rules of the file come before those of the pack it builds on, and replace those of the same name.
fn read(root: &Reader<'_>) -> Option<Rules> {
    root.allow(&["base", "rule"]);
    let base = base(root);
    let tables = root.list("rule");
    if tables.is_empty() && !root.has("rule") && !root.has("base") {
        root.report_table("has no rules, expected a table `[[rule]]` or `base = \"yt-dlp\"`");
    }
    let read: Vec<Option<Rule>> = tables.iter().map(rule).collect();
    let mut rules: Vec<Rule> = read.into_iter().collect::<Option<_>>()?;
    report_names_given_twice(&tables, &rules);
    let own = rules.len();
    for rule in base?.rules() {
        if rules[..own].iter().all(|own| own.name != rule.name) {
            rules.push(rule.clone());
        }
    }
    let rules = Rules::new(rules);
    for (reader, rule) in tables.iter().zip(rules.rules()) {
        check_sample(reader, rule, &rules);
    }
    Some(rules)
}

/// The pack that the file builds on: the one that `base` names, or none.
fn base(root: &Reader<'_>) -> Option<Rules> {
    let Some(node) = root.node("base") else {
        return Some(Rules::default());
    };
    let name = root.value(node, &Kind::Choice(PACKS), "base")?;
    Rules::pack(&name)
}

fn rule(reader: &Reader<'_>) -> Option<Rule> {
    reader.allow(&[
        "name",
        "class",
        "text",
        "all",
        "exit",
        "no_output",
        "reason",
        "sample",
    ]);
    reader.require("name", "a word such as `not_found`");
    reader.require("class", Class::KIND.expected());
    let one = |name: &str, kind: &Kind| -> Option<String> {
        let node = reader.node(name)?;
        reader.value(node, kind, &reader.key(name))
    };
    let conditions = ["text", "all", "exit", "no_output"];
    if !conditions.iter().any(|name| reader.has(name)) {
        reader.report_table("matches nothing, expected `text`, `all`, `exit` or `no_output`");
    }
    let exits = values(reader, "exit", &EXIT_CODE);
    let (any, all) = (phrases(reader, "text"), phrases(reader, "all"));
    let no_output = one("no_output", &Kind::Switch);
    let (reason, sample) = (one("reason", &Kind::TEXT), one("sample", &Kind::TEXT));
    let (name, class) = (one("name", &NAME), one("class", &Class::KIND));
    let reason = reason.or_else(|| Some(format!("as rule `{}` says", name.as_ref()?)));
    let exits = exits.iter().map(|code| code.parse());
    Some(Rule {
        any,
        all,
        exits: exits.collect::<Result<_, _>>().ok()?,
        no_output: no_output.as_deref() == Some("true"),
        sample: sample.map(Cow::Owned),
        ..Rule::new(name?, class?.parse().ok()?, reason?)
    })
}

/// Systems keep the last eight bits of a code.
const EXIT_CODE: Kind = Kind::whole(0, 255);

const NAME: Kind = Kind::Format(&Format::of("name", "\"not_found\"", None, |name| {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=64).contains(&name.len()) && name.chars().all(is_part) {
        true => Ok(()),
        false => Err("up to 64 letters, digits, `-`, `_` and `.`".to_owned()),
    }
}));

/// A phrase without a letter or digit would be found in nearly every output.
const PHRASE: Kind = Kind::Format(&Format::of(
    "phrase",
    "\"not found\"",
    None,
    |text| match text.chars().any(char::is_alphanumeric) {
        true => Ok(()),
        false => Err("a phrase with a letter or a digit".to_owned()),
    },
));

fn phrases(reader: &Reader<'_>, name: &str) -> Vec<Cow<'static, str>> {
    let phrases = values(reader, name, &PHRASE);
    phrases.into_iter().map(Cow::Owned).collect()
}

/// The right ones of one value, or of a list of them.
fn values(reader: &Reader<'_>, name: &str, kind: &Kind) -> Vec<String> {
    let Some(node) = reader.node(name) else {
        return Vec::new();
    };
    let key = reader.key(name);
    let Value::List(nodes) = &node.value else {
        return reader.value(node, kind, &key).into_iter().collect();
    };
    if nodes.is_empty() {
        reader.report(name, "is empty, expected at least one value");
    }
    let value =
        |(index, node): (usize, &Node)| reader.value(node, kind, &format!("{key}[{index}]"));
    nodes.iter().enumerate().filter_map(value).collect()
}

fn report_names_given_twice(tables: &[Reader<'_>], rules: &[Rule]) {
    for (index, rule) in rules.iter().enumerate() {
        if rules[..index].iter().any(|before| before.name == rule.name) {
            let what = format!(
                "another rule is called `{}`, expected a name of its own",
                rule.name
            );
            tables[index].report("name", what);
        }
    }
}

/// A sample must be matched by its rule, and by no rule before it.
fn check_sample(reader: &Reader<'_>, rule: &Rule, rules: &Rules) {
    let Some(sample) = &rule.sample else {
        return;
    };
    let exit = rule.exits.first().copied().unwrap_or(1);
    let judged = rules.judge(Exit::Code(exit), sample.as_bytes()).rule();
    match judged {
        Some(first) if first.name == rule.name => {}
        Some(first) => {
            let what = format!("rule `{}` matches this sample first", first.name);
            reader.report("sample", what);
        }
        None => reader.report(
            "sample",
            "no rule matches this sample, expected this rule to",
        ),
    }
}
