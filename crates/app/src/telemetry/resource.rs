//! What spans and metrics have in common: the process that they come from, and attributes.

use super::protobuf::Message;

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Writes an attribute as this field of a message.
pub(super) fn attribute<'a>(
    message: &mut Message,
    field: u32,
    name: &str,
    value: impl Into<Value<'a>>,
) {
    let value = value.into();
    message.message(field, |pair| {
        pair.text(1, name);
        pair.message(2, |any| match value {
            Value::Text(text) => any.text(1, text),
            // Written as `int64`, which has the same bytes up to its largest number.
            Value::Number(number) => any.number(3, number.min(i64::MAX.unsigned_abs())),
        });
    });
}

/// Writes an export: the process, the scope, and what `write` adds to it. Requests for spans and for
/// metrics have the same numbers of fields up to there.
pub(super) fn export(instance: &str, write: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |resource| {
            attribute(resource, 1, "service.name", "tidegate");
            attribute(resource, 1, "service.version", env!("CARGO_PKG_VERSION"));
            attribute(resource, 1, "service.instance.id", instance);
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, "tidegate");
                scope.text(2, env!("CARGO_PKG_VERSION"));
            });
            write(of_scope);
        });
    });
    request.into_bytes()
}
