//! The keys of a shard, concatenated in one buffer.
//!
//! A `String` per key would cost 16 bytes for pointer and length and about as much again in the
//! allocator, for each of a million keys. A [`TextRef`] takes six bytes. Removing a key leaves a
//! hole; when half of the buffer is holes, the owner copies the remaining keys into a new buffer.

/// The position of a key in the buffer. Packed, so that the two bytes after it in a slot are not lost
/// to alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub(super) struct TextRef {
    start: u32,
    len: u16,
}

impl TextRef {
    fn start(self) -> usize {
        self.start as usize
    }

    fn len(self) -> usize {
        usize::from(self.len)
    }
}

/// The longest key in bytes.
pub(super) const MAX_KEY: usize = u16::MAX as usize;

#[derive(Debug, Default)]
pub(super) struct Text {
    buffer: String,
    /// Unused bytes in the buffer.
    holes: usize,
}

impl Text {
    #[inline(always)]
    pub(super) fn get(&self, text: TextRef) -> &str {
        self.buffer
            .get(text.start()..text.start() + text.len())
            .unwrap_or_default()
    }

    /// Whether `text` is `key`.
    #[inline(always)]
    pub(super) fn is(&self, text: TextRef, key: &str) -> bool {
        let bytes = self.buffer.as_bytes();
        bytes.get(text.start()..text.start() + text.len()) == Some(key.as_bytes())
    }

    /// `None` if the buffer is full, at four gigabytes of keys, or the key is longer than [`MAX_KEY`].
    pub(super) fn insert(&mut self, key: &str) -> Option<TextRef> {
        let start = u32::try_from(self.buffer.len()).ok()?;
        u32::try_from(self.buffer.len() + key.len()).ok()?;
        let len = u16::try_from(key.len()).ok()?;
        self.buffer.push_str(key);
        Some(TextRef { start, len })
    }

    pub(super) fn remove(&mut self, text: TextRef) {
        self.holes += text.len();
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether compacting is worthwhile.
    pub(super) fn has_many_holes(&self) -> bool {
        /// Compacting a smaller buffer gains nothing.
        const MIN_CAPACITY: usize = 4096;
        self.holes > MIN_CAPACITY && self.holes > self.buffer.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_every_key() {
        let mut text = Text::default();
        let keys = ["api.example.com", "", "bücher.example", "api.example.co"];
        let places = keys.map(|key| text.insert(key).unwrap());
        for (key, place) in keys.iter().zip(places) {
            assert_eq!(text.get(place), *key);
            for other in keys {
                assert_eq!(text.is(place, other), other == *key, "{key}, {other}");
            }
        }
    }

    #[test]
    fn refuses_a_key_that_is_too_long() {
        let mut text = Text::default();
        let longest = "k".repeat(MAX_KEY);
        let place = text.insert(&longest).unwrap();
        assert_eq!(text.get(place), longest);
        assert_eq!(text.insert(&"k".repeat(MAX_KEY + 1)), None);
        assert_eq!(text.buffer.len(), MAX_KEY, "nothing is left of it");
    }

    #[test]
    fn has_many_holes_when_half_of_a_large_buffer_is_unused() {
        let mut text = Text::default();
        let places: Vec<TextRef> = (0..100)
            .map(|_| text.insert(&"k".repeat(100)).unwrap())
            .collect();
        for place in &places[..50] {
            text.remove(*place);
            assert!(!text.has_many_holes());
        }
        text.remove(places[50]);
        assert!(text.has_many_holes());
        let mut short = Text::default();
        let place = short.insert(&"k".repeat(4096)).unwrap();
        short.remove(place);
        assert!(!short.has_many_holes(), "not for four kilobytes");
    }
}
