//! Rules that classify a program's attempts by exit code and output.
//!
//! Programs such as downloaders report errors as sentences. A final error must neither be retried
//! nor slow down other items. Rules are an ordered list, and the first match wins. A failure
//! without a match is retryable: one retry too many costs a gap, while giving up wrongly loses the
//! item. Phrases match as whole words in any case ([`crate::text`]).
//!
//! Exit code 0 is a success, whatever was printed, unless a rule names that code. An attempt that
//! was ended by a signal or its timeout is retryable, whatever was printed: it could not report its
//! result.

use std::borrow::Cow;
use std::ops::Range;

use crate::text::find_words;

mod packs;

pub use self::packs::PACKS;

/// The class of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It succeeded, or there was nothing to do.
    Success,
    /// It failed and may succeed later.
    Retryable,
    /// It will never succeed, because of the item itself.
    Terminal,
    /// The site suspects a bot: a failure, but the item may succeed later.
    BotCheck,
}

crate::words! {
    pub Class {
        Success = "success",
        Retryable = "retryable",
        Terminal = "terminal",
        BotCheck = "bot_check",
    }
}

impl Class {
    /// Whether it counts as a failure of the upstream.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Retryable | Self::BotCheck => true,
            Self::Success | Self::Terminal => false,
        }
    }
}

/// How the process of an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It ran for longer than an attempt may, and was killed.
    TimedOut,
}

/// A rule: attempts that meet all its conditions get its class.
///
/// A rule without conditions matches nothing. A rule without exit codes matches every code but 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A short name, such as `private_video`.
    pub name: Cow<'static, str>,
    /// The class of a matching attempt.
    pub class: Class,
    /// Why it has this class, as a sentence.
    pub reason: Cow<'static, str>,
    /// Condition: at least one of these phrases occurs in the output. Empty: no condition.
    pub any: Vec<Cow<'static, str>>,
    /// Condition: all of these phrases occur in the output, anywhere and in any order.
    pub all: Vec<Cow<'static, str>>,
    /// Condition: the exit code is one of these. Empty: any code but 0.
    pub exits: Vec<i32>,
    /// Condition: nothing but white space was printed.
    pub no_output: bool,
    /// Output that the rule matches; for built-in rules, of a real program.
    pub sample: Option<Cow<'static, str>>,
}

impl Rule {
    /// A rule without conditions.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        class: Class,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            name: name.into(),
            class,
            reason: reason.into(),
            any: Vec::new(),
            all: Vec::new(),
            exits: Vec::new(),
            no_output: false,
            sample: None,
        }
    }

    /// Whether it matches, and by which phrase. Without `exit`, conditions on exit codes count as
    /// met if the rule also has a condition on the output.
    fn find(&self, exit: Option<Exit>, output: &[u8]) -> Option<Match<'_>> {
        let reads_output = !self.any.is_empty() || !self.all.is_empty() || self.no_output;
        let exit_matches = match exit {
            None => reads_output,
            Some(Exit::Code(code)) if self.exits.is_empty() => code != 0 && reads_output,
            Some(Exit::Code(code)) => self.exits.contains(&code),
            Some(Exit::Signal(_) | Exit::TimedOut) => false,
        };
        if !exit_matches || self.no_output && !output.trim_ascii().is_empty() {
            return None;
        }
        let any = self
            .any
            .iter()
            .find_map(|phrase| Found::new(phrase, output));
        if any.is_none() && !self.any.is_empty() {
            return None;
        }
        let mut all = self.all.iter().map(|phrase| Found::new(phrase, output));
        let first = all.next();
        if first == Some(None) || all.any(|found| found.is_none()) {
            return None;
        }
        Some(Match {
            rule: self,
            found: any.or_else(|| first.flatten()),
        })
    }
}

/// A matching rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The phrase found in the output; `None` if the rule has no phrases.
    pub found: Option<Found<'r>>,
}

/// A phrase and its position in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'r> {
    /// The phrase as written in the rule.
    pub phrase: &'r str,
    /// Its position in bytes.
    pub place: Range<usize>,
}

impl<'r> Found<'r> {
    fn new(phrase: &'r str, output: &[u8]) -> Option<Self> {
        let place = find_words(output, phrase)?;
        Some(Self { phrase, place })
    }
}

/// The classification of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<'r> {
    /// The class.
    pub class: Class,
    /// The rule that matched; `None` if none did.
    pub matched: Option<Match<'r>>,
}

impl<'r> Judgement<'r> {
    /// The rule that matched.
    pub fn rule(&self) -> Option<&'r Rule> {
        self.matched.as_ref().map(|matched| matched.rule)
    }
}

/// An ordered list of rules.
///
/// ```
/// use tidegate_policy::rules::{Class, Exit, Rules};
///
/// let rules = Rules::pack("yt-dlp").unwrap();
/// let class = |exit, output| rules.judge(exit, output).class;
/// let private = b"ERROR: Private video. Sign in if you have access";
/// assert_eq!(class(Exit::Code(1), private), Class::Terminal);
/// assert_eq!(class(Exit::Code(1), b"ERROR: Read timed out."), Class::Retryable);
/// assert_eq!(class(Exit::Code(0), private), Class::Success);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Creates a list of rules, in this order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// The built-in rules with this name, one of [`PACKS`].
    pub fn pack(name: &str) -> Option<Self> {
        packs::pack(name).map(Self)
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Classifies an attempt by its exit and output: the class of the first matching rule; without
    /// a match, success for exit code 0 and retryable otherwise.
    pub fn judge(&self, exit: Exit, output: &[u8]) -> Judgement<'_> {
        let otherwise = match exit {
            Exit::Code(0) => Class::Success,
            Exit::Code(_) | Exit::Signal(_) | Exit::TimedOut => Class::Retryable,
        };
        first(self.matches(Some(exit), output), otherwise)
    }

    /// Classifies the message of a failed attempt whose exit code is unknown.
    pub fn judge_text(&self, text: &[u8]) -> Judgement<'_> {
        first(self.matches(None, text), Class::Retryable)
    }

    /// All matching rules, in order; the first one decides. Without `exit`, rules match by the
    /// output alone.
    pub fn matches(&self, exit: Option<Exit>, output: &[u8]) -> impl Iterator<Item = Match<'_>> {
        let rules = self.0.iter();
        rules.filter_map(move |rule| rule.find(exit, output))
    }
}

fn first<'r>(mut matches: impl Iterator<Item = Match<'r>>, otherwise: Class) -> Judgement<'r> {
    let matched = matches.next();
    Judgement {
        class: matched
            .as_ref()
            .map_or(otherwise, |matched| matched.rule.class),
        matched,
    }
}

#[cfg(test)]
mod tests;
