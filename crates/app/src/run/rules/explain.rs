//! Which rule matches a text, and why.

use std::fmt;

use policy::rules::{Class, Exit, Match, Rule};

use super::{RuleSet, line};

/// Which rules match a text, in order: the first decides, the second would without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'r> {
    /// The class.
    pub class: Class,
    /// Every rule that matches.
    pub matches: Vec<ExplainedRule<'r>>,
    /// Without an exit code: the rules that look at nothing else, with their codes.
    pub by_exit: Vec<(&'r str, &'r [i32])>,
}

/// A rule that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedRule<'r> {
    /// Its name.
    pub name: &'r str,
    /// Its class.
    pub class: Class,
    /// Why it is of this class.
    pub reason: &'r str,
    /// The exit codes that it needs; empty for any but 0.
    pub exits: &'r [i32],
    /// The phrase that occurs, and where; `None` if the rule has no phrases.
    pub phrase: Option<(&'r str, Place)>,
}

/// A place in a text; line and column are counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl RuleSet {
    /// Which rules match this text of a failed attempt. Without an exit code, rules that need certain
    /// codes match by their phrases alone.
    pub fn explain(&self, exit: Option<i32>, text: &str) -> Explanation<'_> {
        let text = line::without_escapes(text.as_bytes());
        let exit = exit.map(Exit::Code);
        let decision = match exit {
            Some(exit) => self.rules.judge(exit, &text),
            None => self.rules.judge_text(&text),
        };
        let matches = self.rules.matches(exit, &text);
        let by_exit = self
            .rules
            .rules()
            .iter()
            .filter(|rule| reads_exit_only(rule));
        Explanation {
            class: decision.class,
            matches: matches.map(|matched| explained(&matched, &text)).collect(),
            by_exit: match exit {
                Some(_) => Vec::new(),
                None => by_exit.map(|rule| (&*rule.name, &*rule.exits)).collect(),
            },
        }
    }
}

fn reads_exit_only(rule: &Rule) -> bool {
    rule.any.is_empty() && rule.all.is_empty() && !rule.no_output && !rule.exits.is_empty()
}

fn explained<'r>(matched: &Match<'r>, text: &[u8]) -> ExplainedRule<'r> {
    let found = matched.found.as_ref();
    ExplainedRule {
        name: &matched.rule.name,
        class: matched.rule.class,
        reason: &matched.rule.reason,
        exits: &matched.rule.exits,
        phrase: found.map(|found| (found.phrase, Place::of(found.place.start, text))),
    }
}

impl Place {
    fn of(offset: usize, text: &[u8]) -> Self {
        let before = &text[..offset];
        let line = before
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        Self {
            line: before.split(|byte| *byte == b'\n').count(),
            column: String::from_utf8_lossy(line).chars().count() + 1,
        }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rule) = self.matches.first() else {
            write!(f, "{}: no rule matches", self.class)?;
            for (index, (name, exits)) in self.by_exit.iter().enumerate() {
                f.write_str(if index == 0 { "\nby exit code: " } else { ", " })?;
                write!(f, "{name} ({})", list(exits))?;
            }
            return Ok(());
        };
        write!(f, "{}: rule `{}`", rule.class, rule.name)?;
        write!(f, "\nreason: {}", rule.reason)?;
        if let Some((phrase, Place { line, column })) = rule.phrase {
            write!(f, "\nphrase: `{phrase}` at line {line}, column {column}")?;
        }
        if !rule.exits.is_empty() {
            write!(f, "\nexit code: {}", list(rule.exits))?;
        }
        match self.matches.get(1) {
            Some(next) => write!(f, "\nnext: {}, rule `{}`", next.class, next.name),
            None => write!(f, "\nnext: no other rule matches"),
        }
    }
}

fn list(exits: &[i32]) -> String {
    let exits: Vec<String> = exits.iter().map(ToString::to_string).collect();
    exits.join(", ")
}
