//! Reading the body of a request field by field, with every problem reported at once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use policy::suggest::suggestion;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::problem::{Kind, Refused};
use crate::state::InvalidValue;
use crate::whole_body::read_whole;

/// The longest body that is read, documents aside.
pub(super) const MAX_BODY: usize = 64 << 10;

/// How long it may take to arrive, and a second more for each MiB that is allowed.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The fields of a body that are not read yet, and the problems of those that are.
#[derive(Debug, Default)]
pub(super) struct Fields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
    invalid: Vec<InvalidValue>,
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let (head, body) = request.into_parts();
        let (fields, _) = Self::read(&head.headers, body, MAX_BODY, &[]).await?;
        Ok(fields)
    }
}

/// Fields that are passed on as they were written, by name: parsing them would change numbers and
/// the order of keys.
pub(super) type Documents = BTreeMap<&'static str, Box<RawValue>>;

impl Fields {
    /// Reads a body of at most `max` bytes, with the fields in `documents` apart from the others.
    pub(super) async fn read(
        headers: &HeaderMap,
        body: Body,
        max: usize,
        documents: &[&'static str],
    ) -> Result<(Self, Documents), Refused> {
        let kind = headers.get(CONTENT_TYPE);
        if !kind.is_some_and(|kind| is_json(kind.as_bytes())) {
            let detail = "expected `Content-Type: application/json`";
            return Err(Refused::new(Kind::NotJson, detail));
        }
        let bytes = read_bytes(body, max).await?;
        match serde_json::from_slice(&bytes) {
            Ok(fields) => Self::split(fields, documents),
            Err(error) if error.is_data() => Err(Refused::invalid(vec![InvalidValue {
                field: String::new(),
                value: None,
                expected: "the body to be an object".to_owned(),
            }])),
            Err(error) => Err(not_json(&error)),
        }
    }

    fn split(
        mut fields: BTreeMap<String, &RawValue>,
        names: &[&'static str],
    ) -> Result<(Self, Documents), Refused> {
        let mut documents = Documents::new();
        for name in names {
            if let Some(document) = fields.remove(*name) {
                documents.insert(name, document.to_owned());
            }
        }
        let mut left = Map::new();
        for (name, value) in fields {
            let value = serde_json::from_str(value.get()).map_err(|error| not_json(&error))?;
            left.insert(name, value);
        }
        let known = names.to_vec();
        let invalid = Vec::new();
        let fields = Self {
            left,
            known,
            invalid,
        };
        Ok((fields, documents))
    }
}

fn not_json(error: &serde_json::Error) -> Refused {
    let (line, column) = (error.line(), error.column());
    let detail = format!("the body is not JSON at line {line}, column {column}");
    Refused::new(Kind::BadRequest, detail)
}

pub(super) fn is_json(kind: &[u8]) -> bool {
    let name = kind.split(|byte| *byte == b';').next().unwrap_or(kind);
    name.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

async fn read_bytes(body: Body, max: usize) -> Result<Bytes, Refused> {
    let whole = read_whole(body, max as u64);
    let timeout = READ_TIMEOUT + Duration::from_secs((max >> 20) as u64);
    match tokio::time::timeout(timeout, whole).await {
        Ok(Ok(Some(whole))) => Ok(whole),
        Ok(Ok(None)) => {
            let detail = format!("at most {} KiB are read", max >> 10);
            Err(Refused::new(Kind::BodyTooLarge, detail))
        }
        Ok(Err(_)) | Err(_) => Err(Refused::new(
            Kind::BadRequest,
            "the body broke off, or did not come in time",
        )),
    }
}

impl Fields {
    /// Takes a field; `None` if it is not there, or wrong, which is noted.
    pub(super) fn take<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        self.known.push(name);
        let value = self.left.remove(name)?;
        let taken = read(&value);
        if taken.is_none() {
            self.note(name, Some(shown(&value)), expected);
        }
        taken
    }

    /// Takes a field that has to be there.
    pub(super) fn require<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        if !self.left.contains_key(name) {
            self.known.push(name);
            self.note(name, None, &format!("is missing, expected {expected}"));
            return None;
        }
        self.take(name, expected, read)
    }

    pub(super) fn note(&mut self, field: &str, value: Option<String>, expected: &str) {
        self.invalid.push(InvalidValue {
            field: field.to_owned(),
            value,
            expected: expected.to_owned(),
        });
    }

    /// Takes a field whose value a problem must not repeat.
    pub(super) fn take_secret<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        self.known.push(name);
        let value = self.left.remove(name)?;
        let taken = read(&value);
        if taken.is_none() {
            self.note(name, None, expected);
        }
        taken
    }

    /// Takes the fields of an object that has to be there.
    pub(super) fn require_object(&mut self, name: &'static str, expected: &str) -> Self {
        let object = |value: &Value| value.as_object().cloned();
        let left = self.require(name, expected, object).unwrap_or_default();
        Self {
            left,
            ..Self::default()
        }
    }

    /// Is something wrong with this field?
    pub(super) fn has_problem(&self, field: &str) -> bool {
        self.invalid.iter().any(|invalid| invalid.field == field)
    }

    /// Ends reading the fields of an object that was a field itself.
    pub(super) fn end_object(&mut self, name: &str, object: Self) {
        for mut invalid in object.problems() {
            invalid.field = format!("{name}.{}", invalid.field);
            self.invalid.push(invalid);
        }
    }

    /// Ends reading: nothing was wrong, and nothing is left.
    pub(super) fn end(self) -> Result<(), Refused> {
        match self.problems() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(Refused::invalid(problems)),
        }
    }

    /// Ends reading: everything that was wrong, fields that are left among it.
    pub(super) fn problems(mut self) -> Vec<InvalidValue> {
        let left: Vec<String> = self.left.keys().take(20).cloned().collect();
        for name in left {
            let expected = match suggestion(&name, &self.known) {
                Some(close) => format!("is not known; did you mean `{close}`?"),
                None => format!("is not known, expected `{}`", self.known.join("`, `")),
            };
            let name: String = name.chars().take(100).collect();
            self.note(&name, None, &expected);
        }
        self.invalid
    }
}

/// A whole number that is not negative. JSON has one kind of numbers: `3.0` is the same as `3`.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let as_float = || {
        let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{number:.0}").parse().ok()
    };
    value.as_u64().or_else(as_float)
}

/// A whole number, as `3` or `3.0`.
pub(super) fn integer(value: &Value) -> Option<i32> {
    let as_float = || {
        let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{number:.0}").parse().ok()
    };
    i32::try_from(value.as_i64().or_else(as_float)?).ok()
}

/// A value as a response repeats it: short, without the contents of lists and objects.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.chars().take(100).collect(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whole_numbers_in_any_notation() {
        let check = |json: &str, expected: Option<u64>| {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(whole(&value), expected, "{json}");
        };
        check("3", Some(3));
        check("3.0", Some(3));
        check("5e2", Some(500));
        check("18446744073709551615", Some(u64::MAX));
        for none in ["3.5", "-1", "-1.0", "1e300", "\"3\"", "null", "true", "[3]"] {
            check(none, None);
        }
    }
}
