//! Random values, and how they are written in a scenario file.

use policy::random::Random;

#[derive(Debug)]
pub(crate) struct Draw(Random);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        // Different from the stream of the run.
        Self(Random::from_seed(!seed))
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0.between(low, high)
    }

    /// Log-uniform between `low` and `high`.
    pub(crate) fn spread(&mut self, low: f64, high: f64) -> f64 {
        self.0.between(low.ln(), high.ln()).exp()
    }
}

/// A number with four significant digits.
pub(crate) fn number(value: f64) -> String {
    let digits = (3.0 - value.abs().max(1e-6).log10().floor()).clamp(0.0, 9.0);
    let digits = (0..10).find(|count| *count as f64 >= digits);
    let text = format!("{value:.*}", digits.unwrap_or(9));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A duration in quotes: in milliseconds, or below 10 ms in microseconds, so that nothing is rounded
/// to zero; whole seconds as such.
pub(crate) fn seconds(seconds: f64) -> String {
    let millis = (seconds * 1e3).round();
    if millis < 10.0 {
        format!("\"{}us\"", (seconds * 1e6).round().max(1.0))
    } else if millis % 1e3 < 0.5 {
        format!("\"{}s\"", (millis / 1e3).round())
    } else {
        format!("\"{millis}ms\"")
    }
}
