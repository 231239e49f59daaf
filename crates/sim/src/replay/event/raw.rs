//! Raw values of an event: numbers, texts and headers, exactly as written.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::problem::{Problem, excerpt};
use super::{Event, FIELDS};

/// Names and values in order, including repeated headers.
///
/// Values are bytes: a JSON string may contain unpaired surrogates, which are not text, and header
/// values never make a line bad.
#[derive(Debug, Default)]
pub(super) struct Headers<'a>(pub(super) Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

impl<'a> Headers<'a> {
    pub(super) fn read(value: &'a RawValue) -> Result<Self, Problem> {
        let raw: RawHeaders<'a> = serde_json::from_str(value.get()).map_err(|_| {
            Problem::kind("`headers`", value, "an object of names and values", HEADERS)
        })?;
        let mut headers = Vec::with_capacity(raw.0.len());
        for (name, value) in raw.0 {
            let values = header_values(value).ok_or_else(|| {
                let header = format!("header `{}`", excerpt(&name));
                Problem::kind(&header, value, "a string, or a list of strings", HEADERS)
            })?;
            headers.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        Ok(Self(headers))
    }
}

/// One string, several for a repeated header, none for null.
fn header_values(value: &RawValue) -> Option<Vec<Cow<'_, [u8]>>> {
    match value.get().as_bytes().first()? {
        b'"' => Some(vec![bytes(value)?]),
        b'[' => {
            let list: Vec<Bytes<'_>> = serde_json::from_str(value.get()).ok()?;
            Some(list.into_iter().map(|Bytes(value)| value).collect())
        }
        b'n' => Some(Vec::new()),
        _ => None,
    }
}

/// A whole number, written without fraction or exponent.
pub(super) fn whole(value: &RawValue) -> Option<u64> {
    value.get().parse().ok()
}

pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    match bytes(value)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

pub(super) fn bytes(value: &RawValue) -> Option<Cow<'_, [u8]>> {
    let text = value.get();
    if !text.starts_with('"') {
        return None;
    }
    let Bytes(bytes) = serde_json::from_str(text).ok()?;
    Some(bytes)
}

/// A JSON string as bytes, borrowed where it has no escapes.
struct Bytes<'a>(Cow<'a, [u8]>);

impl<'de> Deserialize<'de> for Bytes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Bytes(Cow::Borrowed(bytes)))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(Bytes(Cow::Owned(bytes.to_vec())))
            }
        }

        deserializer.deserialize_bytes(BytesVisitor)
    }
}

/// All members of an object, in order.
struct RawHeaders<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawHeaders<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = RawHeaders<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Bytes(name), value)) = map.next_entry()? {
                    members.push((lossy(name), value));
                }
                Ok(RawHeaders(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

impl<'de> Deserialize<'de> for Event<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EventVisitor;

        impl<'de> Visitor<'de> for EventVisitor {
            type Value = Event<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Bytes(name)) = map.next_key()? {
                    let known = FIELDS.iter().find(|field| field.as_bytes() == &*name);
                    let Some(&field) = known else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    if fields.iter().any(|(known, _)| *known == field) {
                        return Err(Error::duplicate_field(field));
                    }
                    fields.push((field, map.next_value()?));
                }
                Ok(Event(fields))
            }
        }

        deserializer.deserialize_map(EventVisitor)
    }
}

pub(super) fn lossy(name: Cow<'_, [u8]>) -> Cow<'_, str> {
    match name {
        Cow::Borrowed(name) => String::from_utf8_lossy(name),
        Cow::Owned(name) => Cow::Owned(String::from_utf8_lossy(&name).into_owned()),
    }
}

const HEADERS: &str = "write them as `\"headers\":{\"retry-after\":\"2\"}`";
