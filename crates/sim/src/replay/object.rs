//! One line of output: a JSON object with its fields in order.
//!
//! Not serialised from records, for two reasons: instants are exact numbers of seconds, which the
//! serialiser cannot represent, and `at` is echoed as written.

use std::fmt::Display;
use std::io::Write;

use policy::time::Timestamp;

use super::at::{At, Seconds};

#[derive(Debug)]
pub(super) struct Object<'o> {
    out: &'o mut Vec<u8>,
    separator: u8,
}

impl<'o> Object<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Self {
        Self {
            out,
            separator: b'{',
        }
    }

    /// Starts with the time of the event, if it has one.
    pub(super) fn answering(at: Option<At<'_>>, out: &'o mut Vec<u8>) -> Self {
        let object = Self::new(out);
        match at {
            Some(at) => object.raw("at", at.text),
            None => object,
        }
    }

    /// A value that displays as JSON: a number, or null if there is none.
    pub(super) fn number(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self.raw(name, "null"),
        }
    }

    pub(super) fn float(self, name: &str, value: f64) -> Self {
        self.number(name, value.is_finite().then_some(value))
    }

    pub(super) fn time(self, name: &str, value: Option<Timestamp>) -> Self {
        self.number(name, value.map(Seconds))
    }

    pub(super) fn text(mut self, name: &str, value: Option<&str>) -> Self {
        let Some(value) = value else {
            return self.raw(name, "null");
        };
        self.name(name);
        serde_json::to_writer(&mut *self.out, value).expect("a string can be written to memory");
        self
    }

    pub(super) fn switch(self, name: &str, value: bool) -> Self {
        self.raw(name, value)
    }

    /// The sentence of `--explain`, as the last field; without one, no field.
    pub(super) fn explained(self, sentence: Option<String>) -> Self {
        match sentence {
            Some(sentence) => self.text("explain", Some(&sentence)),
            None => self,
        }
    }

    pub(super) fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }

    fn raw(mut self, name: &str, value: impl Display) -> Self {
        self.name(name);
        write!(self.out, "{value}").expect("writing to memory cannot fail");
        self
    }

    fn name(&mut self, name: &str) {
        self.out.push(self.separator);
        self.separator = b',';
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}
