//! Reading the body of a request field by field, with every problem reported at once.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Limited};
use policy::suggest::suggestion;
use serde_json::{Map, Value};

use super::problem::{Kind, Refused};
use crate::state::InvalidValue;

/// The longest body that is read.
const MAX_BODY: usize = 64 << 10;

/// How long it may take to arrive.
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
        let kind = head.headers.get(CONTENT_TYPE);
        if !kind.is_some_and(|kind| is_json(kind.as_bytes())) {
            let detail = "expected `Content-Type: application/json`";
            return Err(Refused::new(Kind::NotJson, detail));
        }
        let bytes = read(body).await?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(left)) => Ok(Self {
                left,
                ..Self::default()
            }),
            Ok(_) => Err(Refused::invalid(vec![InvalidValue {
                field: String::new(),
                value: None,
                expected: "the body to be an object".to_owned(),
            }])),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let detail = format!("the body is not JSON at line {line}, column {column}");
                Err(Refused::new(Kind::BadRequest, detail))
            }
        }
    }
}

fn is_json(kind: &[u8]) -> bool {
    let name = kind.split(|byte| *byte == b';').next().unwrap_or(kind);
    name.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

async fn read(body: Body) -> Result<bytes::Bytes, Refused> {
    let whole = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(READ_TIMEOUT, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Refused::new(Kind::BodyTooLarge, "at most 64 KiB are read"))
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

    /// Ends reading: nothing was wrong, and nothing is left.
    pub(super) fn end(mut self) -> Result<(), Refused> {
        let left: Vec<String> = self.left.keys().take(20).cloned().collect();
        for name in left {
            let expected = match suggestion(&name, &self.known) {
                Some(close) => format!("is not known; did you mean `{close}`?"),
                None => format!("is not known, expected `{}`", self.known.join("`, `")),
            };
            let name: String = name.chars().take(100).collect();
            self.note(&name, None, &expected);
        }
        if self.invalid.is_empty() {
            return Ok(());
        }
        Err(Refused::invalid(self.invalid))
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
