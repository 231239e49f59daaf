//! Keys, and the order in which they are visited.
//!
//! A walk is every key once, shuffled, with the texts themselves in that order. Reading it is
//! reading memory from front to back, which costs next to nothing, while an index into a list of
//! texts would add two cache misses to everyone's time and so make all look alike.

use std::fmt::Write;

/// The text of a key: as long as names of hosts are.
pub(crate) fn key(number: usize) -> String {
    let mut text = String::with_capacity(LENGTH);
    write_key(&mut text, number);
    text
}

/// The same into a text that is there already.
pub(crate) fn write_key(text: &mut String, number: usize) {
    text.clear();
    write!(text, "host-{number:07}.example.com").expect("writing to a text does not fail");
}

/// How long the text of every key is.
pub(crate) const LENGTH: usize = "host-0000123.example.com".len();

/// All of `keys` keys once, in an order that the seed alone decides; again and again if that is
/// less than `at_least`.
pub(crate) fn walk(keys: usize, at_least: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let mut order: Vec<usize> = (0..keys).collect();
    for last in (1..keys).rev() {
        order.swap(last, random.below(last + 1));
    }
    let visits = keys.max(at_least);
    order.into_iter().cycle().take(visits).map(key).collect()
}

/// A linear congruential generator with Knuth's numbers: the same walk in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a generator repeat soon.
        (self.0 >> 33) as usize % end
    }
}
