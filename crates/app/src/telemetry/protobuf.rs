//! Writes Protocol Buffers: the few kinds of fields that OTLP needs.
//!
//! Not `prost` with the published types: they bring a dozen crates and their derive macros for
//! messages that are written in one place and never read. The tests read what is written with those
//! types.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Its bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// `uint32`, `uint64`, `int64` above zero, `bool` and enumerations.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    /// `fixed64`, and `sfixed64` above zero.
    pub(super) fn fixed(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// `double`
    pub(super) fn double(&mut self, field: u32, number: f64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// `string`
    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// `bytes`
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message inside of this one. It is written apart first, because its length comes before it.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// `repeated fixed64`, packed.
    pub(super) fn fixed_list(&mut self, field: u32, numbers: impl Iterator<Item = u64>) {
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &bytes);
    }

    /// `repeated double`, packed.
    pub(super) fn double_list(&mut self, field: u32, numbers: impl Iterator<Item = f64>) {
        self.fixed_list(field, numbers.map(f64::to_bits));
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    /// Seven bits in a byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

/// How the length of a field is known.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_examples_of_the_format() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.into_bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "testing");
        let expected = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(message.into_bytes(), expected);
        let mut message = Message::default();
        message.message(3, |inner| inner.number(1, 150));
        assert_eq!(message.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }

    #[test]
    fn writes_numbers_of_every_length() {
        let mut message = Message::default();
        message.number(16, u64::MAX);
        let mut expected = vec![0x80, 0x01];
        expected.extend([0xff; 9]);
        expected.push(0x01);
        assert_eq!(message.into_bytes(), expected);
        let mut message = Message::default();
        message.fixed_list(1, [1, 2].into_iter());
        let expected = [0x0a, 16, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(message.into_bytes(), expected);
    }
}
