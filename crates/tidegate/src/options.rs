//! Options as a map of names and values, for configuration files that serde reads.
//!
//! Each setting has the name and the value that [`set`](crate::GateOptions::set) takes. Numbers and
//! switches may be written as such, lists as a list or with commas; a setting that is missing or null
//! has its default. Serialised are the options that are set.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use tidegate::{GateOptions, Limiter};
//!
//! #[derive(Deserialize, Serialize)]
//! struct Config {
//!     #[serde(with = "tidegate::options")]
//!     gate: GateOptions,
//! }
//!
//! let file = r#"{ "gate": { "max_rate": 50, "limits": ["100/1m"], "max_wait": "10s" } }"#;
//! let config: Config = serde_json::from_str(file)?;
//! let limiter = Limiter::builder().gate(config.gate.build()?).build();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same for [`LadderOptions`](crate::LadderOptions), [`BackoffOptions`](crate::BackoffOptions) and
//! [`BudgetOptions`](crate::BudgetOptions). The format has to say which type a value has, as JSON, TOML
//! and YAML do.

use std::fmt;
use std::marker::PhantomData;

pub use policy::setting::Options;
use policy::setting::{Kind, Setting, SettingError};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reads options.
///
/// # Errors
///
/// If a name is not known, or a value is not one of its setting: all of them, with what was expected.
/// Whether the options fit each other is only known when they are built.
pub fn deserialize<'de, O: Options, D: Deserializer<'de>>(deserializer: D) -> Result<O, D::Error> {
    deserializer.deserialize_map(OptionsVisitor(PhantomData))
}

/// Writes the options that are set.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<O: Options, S: Serializer>(options: &O, serializer: S) -> Result<S::Ok, S::Error> {
    let written = options.written();
    let mut map = serializer.serialize_map(Some(written.len()))?;
    for (name, parts) in written {
        map.serialize_entry(name, &Written::new::<O>(name, parts))?;
    }
    map.end()
}

/// The value of a setting that is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Written {
    Switch(bool),
    Whole(u64),
    Number(f64),
    Text(String),
    List(Vec<String>),
}

impl Written {
    fn new<O: Options>(name: &str, parts: Vec<String>) -> Self {
        let setting = Setting::find(name, O::SETTINGS).ok();
        let kind = setting.map(|setting| setting.kind);
        if let Some(Kind::List { .. }) = kind {
            return Self::List(parts);
        }
        let text = parts.concat();
        let typed = match kind {
            Some(Kind::Switch) => text.parse().ok().map(Self::Switch),
            Some(Kind::Whole { .. } | Kind::PowerOfTwo(_)) => text.parse().ok().map(Self::Whole),
            Some(Kind::Number { .. }) => text.parse().ok().map(Self::Number),
            _ => None,
        };
        typed.unwrap_or(Self::Text(text))
    }
}

struct OptionsVisitor<O>(PhantomData<O>);

impl<'de, O: Options> Visitor<'de> for OptionsVisitor<O> {
    type Value = O;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<O, A::Error> {
        let mut options = O::default();
        let mut problems: Vec<SettingError> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Option<Value>>()? {
            let is_set = match value {
                None => Ok(()),
                Some(Value::Text(text)) => options.set_text(&name, &text),
                Some(Value::List(parts)) => {
                    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                    options.assign(&name, &parts)
                }
            };
            problems.extend(is_set.err().into_iter().flatten());
        }
        policy::setting::SettingErrors::none_of(problems, options).map_err(A::Error::custom)
    }
}

/// A value as it is read.
enum Value {
    Text(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false, or a list of these")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = list.next_element()? {
            match part {
                Value::Text(text) => parts.push(text),
                Value::List(_) => return Err(A::Error::custom("a list in a list")),
            }
        }
        Ok(Value::List(parts))
    }
}

#[cfg(test)]
mod tests {
    use policy::backoff::BackoffOptions;
    use policy::budget::BudgetOptions;
    use policy::gate::GateOptions;
    use policy::ladder::LadderOptions;
    use serde_json::Deserializer as Json;

    use super::*;

    fn read<O: Options>(json: &str) -> Result<O, String> {
        deserialize(&mut Json::from_str(json)).map_err(|error| error.to_string())
    }

    fn write<O: Options>(options: &O) -> String {
        let mut json = Vec::new();
        serialize(options, &mut serde_json::Serializer::new(&mut json)).expect("it fits JSON");
        String::from_utf8(json).expect("JSON is text")
    }

    #[test]
    fn options_read_back_as_they_were_written() {
        let mut gate = GateOptions::default();
        for (name, value) in [
            ("enabled", "true"),
            ("strategy", "fixed"),
            ("initial_rate", "2.5"),
            ("limits", "10/1s, 5000/1d"),
            ("max_in_flight", "8"),
            ("max_wait", "90s"),
            ("shards", "16"),
        ] {
            gate.set(name, value).expect("a valid setting");
        }
        let json = write(&gate);
        let expected = r#"{"enabled":true,"strategy":"fixed","initial_rate":2.5,"limits":["10/1s","5000/1d"],"max_in_flight":8,"max_wait":"90s","shards":16}"#;
        assert_eq!(json, expected);
        assert_eq!(read::<GateOptions>(&json), Ok(gate));
    }

    #[test]
    fn text_with_a_comma_stays_one_part_of_a_list() {
        let json = r#"{"texts":["overloaded, try later"],"pauses":"10s, 1m"}"#;
        let options: LadderOptions = read(json).expect("valid settings");
        let expected = r#"["overloaded, try later"]"#;
        assert!(write(&options).contains(expected), "{}", write(&options));
        assert_eq!(options.pauses.as_ref().map(Vec::len), Some(2));
        assert_eq!(read::<LadderOptions>(&write(&options)), Ok(options));
    }

    #[test]
    fn missing_and_null_settings_have_their_default() {
        let options: BackoffOptions = read(r#"{"base":null,"max_attempts":3}"#).expect("valid");
        assert_eq!((options.base, options.max_attempts), (None, Some(3)));
        assert_eq!(read("{}"), Ok(BudgetOptions::default()));
        assert_eq!(write(&BudgetOptions::default()), "{}");
    }

    #[test]
    fn all_problems_are_reported_with_what_was_expected() {
        let json = r#"{"max_rat":1,"max_in_flight":-1,"strategy":true,"max_wait":[["x"]]}"#;
        let error = read::<GateOptions>(r#"{"max_rat":1,"max_in_flight":-1,"strategy":true}"#);
        let error = error.unwrap_err();
        for expected in [
            "did you mean `max_rate`",
            "`max_in_flight` is `-1`",
            "`strategy` is `true`",
        ] {
            assert!(error.contains(expected), "{error}");
        }
        assert!(
            read::<GateOptions>(json)
                .unwrap_err()
                .contains("a list in a list")
        );
        assert!(
            read::<GateOptions>("[]")
                .unwrap_err()
                .contains("a map of settings")
        );
    }
}
