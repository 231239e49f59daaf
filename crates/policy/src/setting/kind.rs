//! Kinds of values: which are allowed, and the message for one that is not.

use std::fmt;
use std::ops::Bound;
use std::time::Duration;

use super::{SettingError, number, split_list};
use crate::duration::{self, Seconds};
use crate::suggest::suggestion;

/// The kind of value that a setting takes, with its bounds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number, both bounds included.
    Whole {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
        /// Values between them that are not allowed.
        except: &'static [u64],
    },
    /// A power of two up to this one.
    PowerOfTwo(u64),
    /// A number.
    Number {
        /// What it counts: `a number of requests per second`.
        noun: &'static str,
        /// The lower bound.
        min: Bound<f64>,
        /// The upper bound.
        max: Bound<f64>,
    },
    /// A duration of at least this; one nanosecond means "above zero".
    Duration(Duration),
    /// One of these names.
    Choice(&'static [&'static str]),
    /// Text of a given format.
    Format(&'static Format),
    /// A reference to a secret, `env:NAME` or `file:PATH`; never shown.
    Secret {
        /// Whether the value itself may be written instead.
        literal: bool,
    },
    /// The name of a section `[SECTION.NAME]`.
    NameOf(&'static str),
    /// A list.
    List {
        /// The kind of each part.
        of: &'static Self,
        /// The minimum number of parts.
        min: usize,
        /// The maximum number of parts.
        max: usize,
    },
}

/// A text format.
#[derive(Debug)]
pub struct Format {
    /// Its name in the reference: `limit`, `URL`.
    pub name: &'static str,
    /// An example in TOML: `"10/1s"`.
    pub example: &'static str,
    /// A regular expression that every such text matches, for the JSON schema.
    pub pattern: Option<&'static str>,
    /// How a message shows the text, if not unchanged.
    pub shown: Option<fn(&str) -> String>,
    /// Whether it may be written as a number too.
    pub or_number: bool,
    /// Checks a text; the error says what was expected.
    pub check: fn(&str) -> Result<(), String>,
}

impl Format {
    /// Any non-empty text.
    pub const TEXT: Self = Self {
        name: "string",
        example: "\"text\"",
        pattern: None,
        shown: None,
        or_number: false,
        check: |text| match text {
            "" => Err("some text".to_owned()),
            _ => Ok(()),
        },
    };

    /// A format that is read by [`std::str::FromStr`].
    pub const fn of(
        name: &'static str,
        example: &'static str,
        pattern: Option<&'static str>,
        check: fn(&str) -> Result<(), String>,
    ) -> Self {
        Self {
            name,
            example,
            pattern,
            shown: None,
            or_number: false,
            check,
        }
    }
}

impl Kind {
    /// Any non-empty text.
    pub const TEXT: Self = Self::Format(&Format::TEXT);
    /// Any duration.
    pub const DURATION: Self = Self::Duration(Duration::ZERO);
    /// A duration above zero.
    pub const POSITIVE: Self = Self::Duration(Duration::from_nanos(1));
    /// A duration above zero, or `none`.
    pub const DURATION_OR_NONE: Self = Self::Format(&Format::of(
        "duration",
        "\"5m\"",
        Some("^(none|([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h|d) ?)+)$"),
        |text| match text {
            "none" => Ok(()),
            _ => Self::POSITIVE.check_one(text),
        },
    ));
    /// A secret that must be a reference.
    pub const SECRET: Self = Self::Secret { literal: false };

    /// A whole number from `min` to `max`, both included.
    pub const fn whole(min: u64, max: u64) -> Self {
        let except = &[];
        Self::Whole { min, max, except }
    }

    /// A number from `min` to `max`, both included.
    pub const fn number(noun: &'static str, min: f64, max: f64) -> Self {
        let (min, max) = (Bound::Included(min), Bound::Included(max));
        Self::Number { noun, min, max }
    }

    /// A list of at most `max` parts.
    pub const fn list(of: &'static Self, max: usize) -> Self {
        Self::List { of, min: 0, max }
    }

    /// The parts of a text of this kind: several for a list, else the text itself.
    pub fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        match self {
            Self::List { .. } => split_list(text).collect(),
            _ => vec![text.trim()],
        }
    }

    /// All parts that are not allowed, and a wrong number of parts.
    pub fn check(&self, name: &str, parts: &[&str]) -> Vec<SettingError> {
        let Self::List { of, min, max } = self else {
            let text = parts.first().copied().unwrap_or_default();
            let wrong = self.check_one(text).err();
            return wrong
                .map(|expected| SettingError::new(name, text, expected))
                .into_iter()
                .collect();
        };
        if !(*min..=*max).contains(&parts.len()) {
            let expected = match min {
                0 => format!("at most {max} values"),
                _ => format!("{min} to {max} values, each {}", of.expected()),
            };
            return vec![SettingError::new(name, parts.join(","), expected)];
        }
        let wrong = parts.iter().enumerate().filter_map(|(index, part)| {
            let expected = of.check_one(part).err()?;
            let name = match parts.len() {
                1 => name.to_owned(),
                _ => format!("{name}[{index}]"),
            };
            Some(SettingError::new(&name, part, expected))
        });
        wrong.collect()
    }

    /// Checks a single `text`. For a list, checks one part.
    ///
    /// # Errors
    ///
    /// What was expected instead.
    pub fn check_one(&self, text: &str) -> Result<(), String> {
        let is_fine = match self {
            Self::Switch => matches!(text, "true" | "false"),
            Self::Whole { min, max, except } => number::<u64>(text)
                .is_some_and(|number| (*min..=*max).contains(&number) && !except.contains(&number)),
            Self::PowerOfTwo(max) => {
                number::<u64>(text).is_some_and(|number| number.is_power_of_two() && number <= *max)
            }
            Self::Number { min, max, .. } => {
                let range = (*min, *max);
                number::<f64>(text)
                    .is_some_and(|number| std::ops::RangeBounds::contains(&range, &number))
            }
            Self::Duration(min) => duration::parse(text)? >= *min,
            Self::Choice(words) => words.contains(&text),
            Self::Format(format) => return (format.check)(text),
            Self::Secret { .. } => !text.is_empty(),
            Self::NameOf(_) => true,
            Self::List { of, .. } => return of.check_one(text),
        };
        if is_fine {
            return Ok(());
        }
        Err(match self {
            Self::Choice(words) => match suggestion(text, words) {
                Some(close) => format!("{}; did you mean `{close}`?", self.expected()),
                None => self.expected(),
            },
            _ => self.expected(),
        })
    }

    /// A description of valid values, for messages.
    pub fn expected(&self) -> String {
        match self {
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Whole { min, max, except } => {
                let except: Vec<String> = except.iter().map(ToString::to_string).collect();
                match except.as_slice() {
                    [] => format!("a whole number from {min} to {max}"),
                    _ => format!(
                        "a whole number from {min} to {max} except {}",
                        except.join(", ")
                    ),
                }
            }
            Self::PowerOfTwo(max) => format!("a power of two from 1 to {max}"),
            Self::Number { noun, min, max } => format!("{noun} {}", Range(*min, *max)),
            Self::Duration(Duration::ZERO) => "a duration such as `500ms` or `30s`".to_owned(),
            Self::Duration(min) if min.as_nanos() == 1 => "a duration above zero".to_owned(),
            Self::Duration(min) => format!("a duration of at least {}", Seconds(*min)),
            Self::Choice(words) => one_of(words),
            Self::Format(format) => format!("a {} such as `{}`", format.name, format.example),
            Self::Secret { .. } => "a reference such as `env:NAME` or `file:PATH`".to_owned(),
            Self::NameOf(section) => format!("the name of a section `[{section}.NAME]`"),
            Self::List { of, .. } => format!("a list, each {}", of.expected()),
        }
    }
}

/// Quoted names: `` `a`, `b` or `c` ``.
fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => format!("`{only}`"),
        [front @ .., last] => format!("`{}` or `{last}`", front.join("`, `")),
    }
}

struct Range(Bound<f64>, Bound<f64>);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(Bound::Included(min), Bound::Included(max)) => write!(f, "from {min} to {max}"),
            Self(min, max) => {
                match min {
                    Bound::Included(min) => write!(f, "of at least {min}")?,
                    Bound::Excluded(min) => write!(f, "above {min}")?,
                    Bound::Unbounded => {}
                }
                match max {
                    Bound::Included(max) => write!(f, " and at most {max}"),
                    Bound::Excluded(max) => write!(f, " and below {max}"),
                    Bound::Unbounded => Ok(()),
                }
            }
        }
    }
}
