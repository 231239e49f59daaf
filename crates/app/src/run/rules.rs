//! The rules of a run: a built-in pack, a file, or none; and what they say about an attempt.
//!
//! The decision is [`policy::rules`]'s. This module reads rule files, chooses the line of the output
//! that people are shown, and explains a decision.

use std::borrow::Cow;
use std::path::Path;

use config::{Location, Problem};
pub use policy::rules::{Class, Exit, PACKS};
use policy::rules::{Judgement as Decision, Rules};
use policy::suggest::suggestion;

mod explain;
mod line;
mod read;
#[cfg(test)]
mod reference;

pub use self::explain::{ExplainedRule, Explanation, Place};
pub use self::line::printable;

/// The rules of a run. The default has none: exit code 0 is a success, anything else is retryable.
///
/// ```
/// use app::run::rules::{Class, Exit, RuleSet};
///
/// let rules = RuleSet::named("yt-dlp").unwrap();
/// let output = b"[youtube] Extracting URL: x\nERROR: [youtube] x: Private video\n";
/// let judgement = rules.judge(Exit::Code(1), output);
/// assert_eq!(judgement.class, Class::Terminal);
/// assert_eq!(judgement.rule, Some("private_video"));
/// assert_eq!(judgement.text, "ERROR: [youtube] x: Private video");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    name: String,
    rules: Rules,
}

/// What the rules say about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<'r> {
    /// The class.
    pub class: Class,
    /// The name of the rule that matched; `None` if none did.
    pub rule: Option<&'r str>,
    /// Why it is of this class, for people.
    pub reason: Cow<'r, str>,
    /// The line of the output that decided, or the one that most likely names the error; printable,
    /// short, empty if nothing was printed.
    pub text: String,
}

impl RuleSet {
    /// The built-in pack of this name, one of [`PACKS`].
    ///
    /// # Errors
    ///
    /// There is no such pack; the problem lists them.
    pub fn named(name: &str) -> Result<Self, Vec<Problem>> {
        let pack = Rules::pack(name).ok_or_else(|| {
            let close = suggestion(name, PACKS)
                .map(|pack| format!("; did you mean `{pack}`?"))
                .unwrap_or_default();
            let expected = format!("a pack ({}) or a rules file{close}", PACKS.join(", "));
            let flag = Location::Flag("--rules".to_owned());
            vec![Problem::expected(&flag, "", name, expected)]
        })?;
        Ok(Self {
            name: name.to_owned(),
            rules: pack,
        })
    }

    /// The rules in a TOML file.
    ///
    /// # Errors
    ///
    /// Every problem of the file, each with its place and what was expected.
    pub fn read(path: &Path) -> Result<Self, Vec<Problem>> {
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&name, &bytes),
            Err(error) => {
                let what = format!("cannot read the rules: {error}");
                let location = Location::UnreadableFile(name);
                Err(vec![Problem::about(&location, "", what)])
            }
        }
    }

    /// The rules in the bytes of a file; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// Every problem, in the order of the file.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        Ok(Self {
            name: name.to_owned(),
            rules: read::rules(name, bytes)?,
        })
    }

    /// The pack of this name or else the file at this path.
    ///
    /// # Errors
    ///
    /// As [`RuleSet::read`]; a name that is neither a pack nor looks like a path is an unknown pack.
    pub fn load(name_or_path: &str) -> Result<Self, Vec<Problem>> {
        let path = Path::new(name_or_path);
        let looks_like_path = name_or_path.contains(['/', '.']) || path.exists();
        match PACKS.contains(&name_or_path) {
            false if looks_like_path => Self::read(path),
            _ => Self::named(name_or_path),
        }
    }

    /// The name of the pack, the path of the file, or nothing for no rules.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The class of an attempt, by how its process ended and by the last part of what it printed on
    /// stdout and stderr.
    pub fn judge(&self, exit: Exit, output: &[u8]) -> Judgement<'_> {
        let output = line::without_escapes(output);
        let decision = self.rules.judge(exit, &output);
        let matched = decision.matched.as_ref();
        let found = matched.and_then(|matched| matched.found.as_ref());
        let line = match found {
            Some(found) => line::around(&output, found.place.start),
            None => line::most_telling(&output),
        };
        Judgement {
            class: decision.class,
            rule: decision.rule().map(|rule| &*rule.name),
            reason: self.reason(exit, &decision),
            text: printable(line),
        }
    }

    fn reason<'r>(&'r self, exit: Exit, decision: &Decision<'r>) -> Cow<'r, str> {
        match (decision.rule(), exit) {
            (Some(rule), _) => Cow::Borrowed(&rule.reason),
            (None, Exit::Code(code @ 0)) => format!("exit code {code}").into(),
            (None, Exit::Code(code)) if self.rules.rules().is_empty() => {
                format!("exit code {code}").into()
            }
            (None, Exit::Code(code)) => format!("exit code {code}, and no rule matches").into(),
            (None, Exit::Signal(signal)) => format!("ended by signal {signal}").into(),
            (None, Exit::TimedOut) => "took longer than an attempt may".into(),
        }
    }
}

#[cfg(test)]
mod tests;
