//! The macro that defines settings, and what it builds on.

use core::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Kind, SettingError, SettingErrors, number};
use crate::duration::{self, Seconds};
use crate::suggest::suggestion;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// The default as it is written, lists with commas; `None` if there is none.
    pub default: Option<&'static str>,
    /// The default under the strategy `aimd`, where it is another.
    pub aimd: Option<&'static str>,
    /// A value for the default file where there is no default.
    pub example: Option<&'static str>,
    #[doc(hidden)]
    pub doc: &'static str,
}

impl Setting {
    /// What it is for.
    pub fn description(&self) -> &'static str {
        self.doc.trim_start()
    }

    /// The setting of this name.
    ///
    /// # Errors
    ///
    /// What was expected instead of a name that no setting has.
    pub fn find<'s>(name: &str, settings: &'s [Self]) -> Result<&'s Self, String> {
        settings
            .iter()
            .find(|setting| setting.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = settings.iter().map(|setting| setting.name).collect();
                match suggestion(name, &names) {
                    Some(close) => format!("a known setting; did you mean `{close}`?"),
                    None => format!("a known setting: {}", names.join(", ")),
                }
            })
    }

    /// Whether these parts are the default, however they are spelled.
    pub fn is_default(&self, parts: &[&str]) -> bool {
        let Some(default) = self.default else {
            return false;
        };
        let default = self.kind.split(default);
        let pairs = default.iter().zip(parts);
        default.len() == parts.len() && pairs.into_iter().all(|(a, b)| self.kind.is_same(a, b))
    }

    /// The default as a value. The definition of a setting is wrong if it cannot be read; every
    /// default is read by a test.
    #[doc(hidden)]
    pub fn default_value<T: SettingValue>(&self, is_aimd: bool) -> T {
        let text = self.aimd.filter(|_| is_aimd).or(self.default);
        let parts = self.kind.split(text.unwrap_or_default());
        T::read(&parts).expect("a default is a value of its own setting")
    }
}

/// The name of a field, without the `r#` that a keyword needs.
#[doc(hidden)]
pub const fn plain_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Settings that are set by name; made by [`settings!`](crate::settings).
pub trait Options: Default {
    /// All of them, in the order of the default file.
    const SETTINGS: &'static [Setting];

    /// Sets one from the parts of its value: several of a list, else one.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the value, or that no setting has this name.
    fn assign(&mut self, name: &str, parts: &[&str]) -> Result<(), SettingErrors>;

    /// Everything that is out of bounds, for values that were filled in by hand.
    fn out_of_bounds(&self) -> Vec<SettingError>;

    /// Sets one from text, lists with commas between their parts.
    ///
    /// # Errors
    ///
    /// As [`Options::assign`].
    fn set_text(&mut self, name: &str, text: &str) -> Result<(), SettingErrors> {
        match Setting::find(name, Self::SETTINGS) {
            Ok(setting) => self.assign(name, &setting.kind.split(text)),
            Err(expected) => Err(SettingError::new(name, text.trim(), expected).into()),
        }
    }
}

/// The values of all settings of one kind; made by [`settings!`](crate::settings).
pub trait Values: Default {
    /// Their defaults, under the strategy `aimd` or another.
    fn defaults_of(is_aimd: bool) -> Self;

    /// Every value by the name of its setting, in parts: several of a list, else one.
    fn written(&self) -> Vec<(&'static str, Vec<String>)>;
}

/// A type of value that a setting can have.
pub trait SettingValue: Sized {
    /// Reads it from its parts: several of a list, else one.
    ///
    /// # Errors
    ///
    /// What was expected instead.
    fn read(parts: &[&str]) -> Result<Self, String>;

    /// The parts that read as this value again.
    fn write(&self) -> Vec<String>;
}

impl<T: SettingValue> SettingValue for Vec<T> {
    fn read(parts: &[&str]) -> Result<Self, String> {
        parts.iter().map(|part| T::read(&[part])).collect()
    }

    fn write(&self) -> Vec<String> {
        self.iter().flat_map(T::write).collect()
    }
}

impl SettingValue for Duration {
    fn read(parts: &[&str]) -> Result<Self, String> {
        Ok(duration::parse(only(parts))?)
    }

    fn write(&self) -> Vec<String> {
        vec![Seconds(*self).to_string()]
    }
}

impl SettingValue for Option<Duration> {
    fn read(parts: &[&str]) -> Result<Self, String> {
        match only(parts) {
            "none" => Ok(None),
            _ => Duration::read(parts).map(Some),
        }
    }

    fn write(&self) -> Vec<String> {
        self.map_or_else(|| vec!["none".to_owned()], |duration| duration.write())
    }
}

/// Implements [`SettingValue`] for types that are read from text and written as text.
#[macro_export]
macro_rules! setting_values {
    ($($type:ty),+ $(,)?) => { $(
        impl $crate::setting::SettingValue for $type {
            fn read(parts: &[&str]) -> Result<Self, String> {
                let text = parts.first().copied().unwrap_or_default();
                text.parse::<Self>().map_err(|expected| expected.to_string())
            }

            fn write(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        }
    )+ };
}

/// Implements what a setting needs for an enum of words: `KIND`, `as_str`, reading and writing.
#[macro_export]
macro_rules! words {
    ($vis:vis $Type:ident { $($Variant:ident = $word:literal),+ $(,)? }) => {
        impl $Type {
            /// The words of settings for it.
            $vis const KIND: $crate::setting::Kind = $crate::setting::Kind::Choice(&[$($word),+]);

            /// The word for it in settings, logs and the API.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }
        }

        impl std::str::FromStr for $Type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$Variant),)+
                    _ => Err(Self::KIND.expected()),
                }
            }
        }

        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        $crate::setting_values!($Type);
    };
}

macro_rules! numbers {
    ($($type:ty),+) => { $(
        impl SettingValue for $type {
            fn read(parts: &[&str]) -> Result<Self, String> {
                number(only(parts)).ok_or_else(|| "a number".to_owned())
            }

            fn write(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        }
    )+ };
}

numbers!(u8, u16, u32, u64, f64);
setting_values!(bool, String, SocketAddr);

impl SettingValue for Box<str> {
    fn read(parts: &[&str]) -> Result<Self, String> {
        Ok(only(parts).into())
    }

    fn write(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl SettingValue for PathBuf {
    fn read(parts: &[&str]) -> Result<Self, String> {
        Ok(only(parts).into())
    }

    fn write(&self) -> Vec<String> {
        vec![self.display().to_string()]
    }
}

fn only<'a>(parts: &[&'a str]) -> &'a str {
    parts.first().copied().unwrap_or_default()
}

/// A value that another bounds: the name of its setting, what was written, and that or the default.
pub(crate) type Bounded<'a, T> = (&'static str, Option<T>, &'a mut T);

/// Fits two values of which the first is at most the second: a default gives way to what was
/// written, and two written ones that contradict are a problem.
pub(crate) fn fit<T: SettingValue + PartialOrd + Copy>(
    low: Bounded<'_, T>,
    high: Bounded<'_, T>,
    problems: &mut Vec<SettingError>,
) {
    let ((low_name, low_written, low), (high_name, high_written, high)) = (low, high);
    if *low <= *high {
        return;
    }
    match (low_written, high_written) {
        (Some(written), Some(bound)) => {
            let (written, bound) = (written.write().concat(), bound.write().concat());
            let expected = format!("at most `{high_name}` ({bound})");
            problems.push(SettingError::new(low_name, written, expected));
        }
        (Some(written), None) => *high = written,
        (None, _) => *low = *high,
    }
}

/// Defines settings.
///
/// For each, in this order: a description as doc comment, name, type, default (`none` if there is
/// none) and [`Kind`]; then, if need be, the default under the strategy `aimd`, an example for the
/// default file, and `get copy` for a public getter. This makes two types. The first holds what was written, each value optional;
/// it implements [`Options`], and `set` and `SETTINGS` are methods of its own too. The second holds
/// all values, with the given visibility; `over` makes it from what was written and a base. Where
/// only the first is needed, the second line is left out. One call may define several.
///
/// ```
/// use std::time::Duration;
/// use policy::setting::Kind;
///
/// policy::settings! {
///     /// What was written about tea.
///     pub struct TeaOptions;
///     /// How to make tea.
///     #[derive(Eq)]
///     pub struct Tea(pub) {
///         /// How long it steeps.
///         steep: Duration = "3m", Kind::POSITIVE;
///         /// Spoons of sugar.
///         sugar: u32 = none, Kind::whole(0, 5), example "1";
///     }
/// }
///
/// let mut options = TeaOptions::default();
/// options.set("steep", "5m").unwrap();
/// let error = options.set("sugar", "9").unwrap_err();
/// assert_eq!(error.to_string(), "`sugar` is `9`, expected a whole number from 0 to 5");
/// let tea = options.over(Tea::default());
/// assert_eq!((tea.steep, tea.sugar), (Duration::from_secs(300), None));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$options_attribute:meta])*
        $vis:vis struct $Options:ident;
        $(#[$values_attribute:meta])*
        $values_vis:vis struct $Values:ident($field_vis:vis) {$($settings:tt)+}
        $($more:tt)+
    ) => {
        $crate::settings! {
            $(#[$options_attribute])*
            $vis struct $Options;
            $(#[$values_attribute])*
            $values_vis struct $Values($field_vis) {$($settings)+}
        }
        $crate::settings! { $($more)+ }
    };

    (
        $(#[$attribute:meta])*
        $vis:vis struct $Options:ident {$($settings:tt)+}
        $($more:tt)+
    ) => {
        $crate::settings! { $(#[$attribute])* $vis struct $Options {$($settings)+} }
        $crate::settings! { $($more)+ }
    };

    (
        $(#[$options_attribute:meta])*
        $vis:vis struct $Options:ident;
        $(#[$values_attribute:meta])*
        $values_vis:vis struct $Values:ident($field_vis:vis) {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $default:tt, $kind:expr
                $(, aimd $aimd:literal)? $(, example $example:expr)? $(, get $get:tt)?;
        )+}
    ) => {
        $crate::settings! {
            $(#[$options_attribute])*
            $vis struct $Options {$(
                $(#[doc = $doc])+
                $field: $type = $default, $kind $(, aimd $aimd)? $(, example $example)?;
            )+}
        }

        $(#[$values_attribute])*
        #[derive(Clone, Debug, PartialEq)]
        $values_vis struct $Values {$(
            $(#[doc = $doc])+
            $field_vis $field: $crate::settings!(@type $default $type),
        )+}

        impl $Values {$(
            $crate::settings! { @getter [$($get)?] $(#[doc = $doc])+ $field $default $type }
        )+}

        impl Default for $Values {
            fn default() -> Self {
                $crate::setting::Values::defaults_of(false)
            }
        }

        impl $Options {
            /// What was written, and the values of `base` for the rest.
            $field_vis fn over(self, base: $Values) -> $Values {
                $Values {$(
                    $field: $crate::settings!(@over $default self.$field, base.$field),
                )+}
            }
        }

        impl $crate::setting::Values for $Values {
            fn defaults_of(is_aimd: bool) -> Self {
                let mut settings = $Options::SETTINGS.iter();
                let mut next = || settings.next().expect("one for each field, in their order");
                Self {$(
                    $field: {
                        let setting = next();
                        $crate::settings!(@default $default setting, is_aimd)
                    },
                )+}
            }

            fn written(&self) -> Vec<(&'static str, Vec<String>)> {
                let values = [$((
                    $crate::setting::plain_name(stringify!($field)),
                    $crate::settings!(@as_option $default &self.$field)
                        .map($crate::setting::SettingValue::write),
                )),+];
                let written = values.into_iter();
                written.filter_map(|(name, parts)| Some((name, parts?))).collect()
            }
        }

        impl From<$Values> for $Options {
            fn from(values: $Values) -> Self {
                Self {$($field: $crate::settings!(@some $default values.$field),)+}
            }
        }
    };

    (
        $(#[$attribute:meta])*
        $vis:vis struct $Options:ident {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $default:tt, $kind:expr
                $(, aimd $aimd:literal)? $(, example $example:expr)?;
        )+}
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $Options {$(
            $(#[doc = $doc])+
            pub $field: Option<$type>,
        )+}

        impl $Options {
            /// All settings, in the order of the default file.
            pub const SETTINGS: &'static [$crate::setting::Setting] = &[$(
                $crate::setting::Setting {
                    name: $crate::setting::plain_name(stringify!($field)),
                    kind: $kind,
                    default: $crate::settings!(@text $default),
                    aimd: $crate::settings!(@option $($aimd)?),
                    example: $crate::settings!(@option $($example)?),
                    doc: concat!($($doc),+),
                },
            )+];

            /// The names of all settings.
            pub const NAMES: &'static [&'static str] =
                &[$($crate::setting::plain_name(stringify!($field))),+];

            /// Sets one setting from text; a list has commas between its parts. Only the value
            /// itself is checked here, not how it fits with the others.
            ///
            /// # Errors
            ///
            /// What was expected instead.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), $crate::setting::SettingError> {
                $crate::setting::Options::set_text(self, name, text)
                    .map_err(|problems| problems[0].clone())
            }
        }

        impl $crate::setting::Options for $Options {
            const SETTINGS: &'static [$crate::setting::Setting] = Self::SETTINGS;

            fn assign(&mut self, name: &str, parts: &[&str]) -> Result<(), $crate::setting::SettingErrors> {
                let wrong = |expected: String| {
                    $crate::setting::SettingError::new(name, parts.join(","), expected)
                };
                let setting = $crate::setting::Setting::find(name, Self::SETTINGS).map_err(wrong)?;
                if let Some(problems) = $crate::setting::SettingErrors::of(setting.kind.check(name, parts)) {
                    return Err(problems);
                }
                $(if name == $crate::setting::plain_name(stringify!($field)) {
                    let value = <$type as $crate::setting::SettingValue>::read(parts);
                    self.$field = Some(value.map_err(wrong)?);
                })+
                Ok(())
            }

            fn out_of_bounds(&self) -> Vec<$crate::setting::SettingError> {
                let mut problems = Vec::new();
                $(if let Some(value) = &self.$field {
                    let parts = $crate::setting::SettingValue::write(value);
                    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                    let name = $crate::setting::plain_name(stringify!($field));
                    problems.extend(($kind).check(name, &parts));
                })+
                problems
            }
        }
    };

    (@getter [] $(#[$doc:meta])+ $field:ident $default:tt $type:ty) => {};
    (@getter [copy] $(#[$doc:meta])+ $field:ident $default:tt $type:ty) => {
        $(#[$doc])+
        pub fn $field(&self) -> $crate::settings!(@type $default $type) {
            self.$field
        }
    };
    (@type none $type:ty) => { Option<$type> };
    (@type $default:literal $type:ty) => { $type };
    (@text none) => { None };
    (@text $default:literal) => { Some($default) };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@over none $written:expr, $base:expr) => { $written.or($base) };
    (@over $default:literal $written:expr, $base:expr) => { $written.unwrap_or($base) };
    (@default none $setting:ident, $is_aimd:ident) => {{ let _ = $setting; None }};
    (@default $default:literal $setting:ident, $is_aimd:ident) => { $setting.default_value($is_aimd) };
    (@as_option none $value:expr) => { $value.as_ref() };
    (@as_option $default:literal $value:expr) => { Some($value) };
    (@some none $value:expr) => { $value };
    (@some $default:literal $value:expr) => { Some($value) };
}
