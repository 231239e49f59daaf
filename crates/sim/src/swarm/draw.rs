//! Random values.

use policy::random::Random;

#[derive(Debug)]
pub(super) struct Draw(Random);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        // Different from the stream of the run.
        Self(Random::from_seed(!seed))
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0.between(low, high)
    }

    /// Log-uniform between `low` and `high`.
    pub(super) fn spread(&mut self, low: f64, high: f64) -> f64 {
        self.0.between(low.ln(), high.ln()).exp()
    }
}

/// A number with four significant digits.
pub(super) fn number(value: f64) -> String {
    let digits = (3.0 - value.abs().max(1e-6).log10().floor()).clamp(0.0, 9.0);
    let digits = (0..10).find(|count| *count as f64 >= digits);
    let text = format!("{value:.*}", digits.unwrap_or(9));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
