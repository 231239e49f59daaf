//! Rules that classify the messages of a program.
//!
//! Programs such as downloaders report errors as sentences. An error that is final must neither be
//! retried nor slow other items down. Rules are an ordered list, the first that matches wins, and a
//! text that none matches is retryable: one retry too many costs a gap, giving up wrongly costs the
//! item. Phrases match as whole words in any case ([`crate::text`]).

use std::borrow::Cow;

use crate::text::contains_words;

/// The class of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It succeeded, or there was nothing to do.
    Success,
    /// It failed and may succeed later.
    Retryable,
    /// It will never succeed: the item itself is the reason.
    Terminal,
    /// The site suspects a bot: a failure that may succeed later.
    BotCheck,
}

impl Class {
    /// Its name in replay, rules and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Retryable => "retryable",
            Self::Terminal => "terminal",
            Self::BotCheck => "bot_check",
        }
    }

    /// Does it count as a failure of the upstream?
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Retryable | Self::BotCheck => true,
            Self::Success | Self::Terminal => false,
        }
    }
}

/// One rule: a text with all of these phrases is of this class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Phrases that must all occur, anywhere and in any order. A rule without any never matches.
    pub phrases: Vec<Cow<'static, str>>,
    /// The class of such a text.
    pub class: Class,
    /// A short name, such as `private_video`.
    pub name: Cow<'static, str>,
}

impl Rule {
    fn built_in(phrases: &[&'static str], class: Class, name: &'static str) -> Self {
        Self {
            phrases: phrases.iter().copied().map(Cow::Borrowed).collect(),
            class,
            name: Cow::Borrowed(name),
        }
    }

    fn matches(&self, text: &[u8]) -> bool {
        let mut phrases = self.phrases.iter();
        !self.phrases.is_empty() && phrases.all(|phrase| contains_words(text, phrase))
    }
}

/// An ordered list of rules.
///
/// ```
/// use policy::rules::{Class, Rules};
///
/// let rules = Rules::yt_dlp();
/// assert_eq!(rules.judge(b"ERROR: Private video. Sign in if you have access").class, Class::Terminal);
/// assert_eq!(rules.judge(b"ERROR: Read timed out.").class, Class::Retryable);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// The result of judging a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement<'r> {
    /// The class.
    pub class: Class,
    /// The rule that matched; `None` if none did.
    pub rule: Option<&'r Rule>,
}

impl Rules {
    /// These rules, in this order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// The built-in rules for yt-dlp's messages.
    pub fn yt_dlp() -> Self {
        use Class::{BotCheck, Terminal};
        Self(vec![
            Rule::built_in(&["private video"], Terminal, "private_video"),
            Rule::built_in(&["removed for violating"], Terminal, "terms_violation"),
            Rule::built_in(&["video unavailable"], Terminal, "unavailable"),
            Rule::built_in(&["sign in to confirm your age"], Terminal, "age_restricted"),
            Rule::built_in(&["age restricted"], Terminal, "age_restricted"),
            Rule::built_in(
                &["requested format is not available"],
                Terminal,
                "invalid_format",
            ),
            Rule::built_in(
                &["sign in to confirm you", "not a bot"],
                BotCheck,
                "bot_check",
            ),
        ])
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The class of `text`: that of the first rule that matches, else retryable.
    pub fn judge(&self, text: &[u8]) -> Judgement<'_> {
        let rule = self.0.iter().find(|rule| rule.matches(text));
        Judgement {
            class: rule.map_or(Class::Retryable, |rule| rule.class),
            rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, class: Class, name: Option<&str>) {
        let rules = Rules::yt_dlp();
        let judgement = rules.judge(text.as_bytes());
        assert_eq!(judgement.class, class, "{text}");
        assert_eq!(judgement.rule.map(|rule| &*rule.name), name, "{text}");
    }

    #[test]
    fn final_errors_are_terminal() {
        for (text, name) in [
            (
                "ERROR: [youtube] x: Private video. Sign in",
                "private_video",
            ),
            ("PRIVATE VIDEO", "private_video"),
            (
                "This video has been removed for violating YouTube's Terms of Service",
                "terms_violation",
            ),
            (
                "Video unavailable. This content isn't available",
                "unavailable",
            ),
            (
                "Sign in to confirm your age. This video may be inappropriate for some users.",
                "age_restricted",
            ),
            ("this video is age-restricted", "age_restricted"),
            (
                "ERROR: Requested format is not available. Use --list-formats",
                "invalid_format",
            ),
        ] {
            check(text, Class::Terminal, Some(name));
        }
    }

    #[test]
    fn a_bot_check_is_its_own_class_and_a_failure() {
        for text in [
            "Sign in to confirm you're not a bot",
            "Sign in to confirm you\u{2019}re not a bot. Use --cookies",
            "sign in to confirm you are NOT A BOT",
        ] {
            check(text, Class::BotCheck, Some("bot_check"));
        }
        assert!(Class::BotCheck.is_failure());
        check("I am not a bot", Class::Retryable, None);
    }

    #[test]
    fn unknown_texts_are_retryable() {
        for text in [
            "",
            "Read timed out.",
            "tlsv1 alert protocol version",
            "Videos unavailable",
            "private videos",
        ] {
            check(text, Class::Retryable, None);
        }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        check(
            "Private video. Video unavailable",
            Class::Terminal,
            Some("private_video"),
        );
        let rule = |phrase: &'static str, class| Rule::built_in(&[phrase], class, phrase);
        let rules = Rules::new(vec![
            rule("already downloaded", Class::Success),
            rule("downloaded", Class::Terminal),
            Rule::built_in(&[], Class::BotCheck, "never"),
        ]);
        assert_eq!(rules.judge(b"already downloaded").class, Class::Success);
        assert_eq!(rules.judge(b"not downloaded").class, Class::Terminal);
        assert_eq!(rules.judge(b"else").rule, None);
        assert_eq!(rules.rules().len(), 3);
    }

    #[test]
    fn only_retryable_and_bot_check_are_failures() {
        for (class, is_failure) in [
            (Class::Success, false),
            (Class::Retryable, true),
            (Class::Terminal, false),
            (Class::BotCheck, true),
        ] {
            assert_eq!(class.is_failure(), is_failure, "{}", class.as_str());
        }
    }
}
