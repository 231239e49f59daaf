//! Response latency: a moving average and an estimate of the 95th percentile, in 27 bytes.
//!
//! The average is exponentially weighted: each sample moves it a fifth of the way. The percentile
//! comes from a histogram with four buckets per three octaves, so that one byte per bucket covers
//! half a millisecond to a minute with a constant relative error. Sketches that are exact to one
//! percent (t-digest, DDSketch, P²) need hundreds of bytes, allocation or a logarithm per sample,
//! but this number only tells a person whether it is 100 ms or 1 s. Recording costs a
//! `leading_zeros`, a comparison and an increment.
//!
//! # Error
//!
//! When a counter is full, all counters are halved. A sample therefore weighs 1 until the next
//! halving, then ½, ¼ and so on: the estimate covers recent samples, at least the last 128. Halving
//! preserves the tail: the remainder of a counter is carried over to the next faster bucket, so the
//! weight above any bucket boundary is kept to within one sample, however often it is halved.
//! [`Latency::p95`] is the geometric middle of the bucket that holds the weighted percentile. For
//! samples from 0.45 ms to 68 s:
//!
//! * until the first halving the estimate is within 30 % of the sample at the nearest rank of
//!   95 %;
//! * after it, the estimate is within 30 % of a sample between the 94th and the 96th weighted
//!   percentile.
//!
//! Faster samples read as at most 0.57 ms, slower ones as 53 s. Zero and [`Duration::MAX`] are
//! valid samples.

use std::time::Duration;

use crate::time::{nanos, saturating_u64};

/// The latencies of one gate: 27 bytes, no allocation.
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::latency::Latency;
///
/// let mut latency = Latency::new(Duration::from_secs(1));
/// assert_eq!(latency.p95(), None);
/// latency.record(Duration::from_millis(100));
/// assert_eq!(latency.ewma().as_millis(), 820);
/// assert_eq!(latency.p95().map(|p95| p95.as_millis()), Some(103));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// In nanoseconds, as an `f32`. It rounds by less than one in ten million, and old rounding
    /// errors decay like old samples. Stored as bytes to avoid alignment padding in a gate.
    ewma: [u8; 4],
    /// Samples per bucket, fastest first.
    counts: [u8; BUCKETS],
}

impl Latency {
    /// No samples, and an average that starts at `start`.
    pub fn new(start: Duration) -> Self {
        Self {
            ewma: (nanos(start) as f32).to_ne_bytes(),
            counts: [0; BUCKETS],
        }
    }

    /// Records a sample. Saturates at 584 years.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = nanos(latency);
        let ewma = f32::from_ne_bytes(self.ewma);
        self.ewma = (ewma + WEIGHT * (nanos as f32 - ewma)).to_ne_bytes();
        let bucket = bucket_of(nanos);
        if self.counts[bucket] == u8::MAX {
            self.halve();
        }
        self.counts[bucket] += 1;
    }

    /// The exponentially weighted moving average, λ = 0.2; the start value before the first sample.
    pub fn ewma(&self) -> Duration {
        Duration::from_nanos(saturating_u64(f64::from(f32::from_ne_bytes(self.ewma))))
    }

    /// The 95th percentile of the recent samples, with the error stated in the module
    /// documentation; `None` before the first sample.
    pub fn p95(&self) -> Option<Duration> {
        let total = self.samples();
        let slower_at_most = total - (total * 95).div_ceil(100);
        let mut slower = 0;
        // From the slow end, which is closer to the 95th percentile.
        for (bucket, &count) in self.counts.iter().enumerate().rev() {
            slower += u32::from(count);
            if slower > slower_at_most {
                return Some(middle_of(bucket));
            }
        }
        None
    }

    /// An upper bound of the 95th percentile: the end of its bucket. At most one recent sample in
    /// twenty is above it, also if all are nearly equal.
    pub fn p95_at_most(&self) -> Option<Duration> {
        self.p95().map(|p95| p95.mul_f64(TO_BUCKET_END))
    }

    /// How many recent samples there are, as the percentile weighs them.
    pub fn samples(&self) -> u32 {
        self.counts.iter().map(|&count| u32::from(count)).sum()
    }

    /// Halves all counters. The remainder of each is carried to the next faster one, rounded up at
    /// the slow end, so the sum over any number of the slowest buckets is halved and rounded up.
    #[cold]
    fn halve(&mut self) {
        let mut odd = 1;
        for count in self.counts.iter_mut().rev() {
            let rest = *count % 2;
            *count = *count / 2 + (rest & odd);
            odd ^= rest;
        }
    }
}

/// How far one sample moves the average.
const WEIGHT: f32 = 0.2;

/// From the middle of a bucket to its end: 2^⅜.
const TO_BUCKET_END: f64 = 1.296_839_554_651_009_7;

/// Four buckets per three octaves over eighteen octaves, without the fastest bucket.
const BUCKETS: usize = 23;

/// The octaves start at 2¹⁸ ns, so the fastest bucket starts at 0.44 ms; the slowest ends at 2³⁶ ns
/// = 69 s.
const FIRST_OCTAVE: u32 = 18;

/// The boundaries within three octaves, at 2^¾, 2^½ and 2^¼ times their starts, as left-aligned
/// fixed-point numbers.
const SPLITS: [u64; 3] = [
    0xD744_FCCA_D69D_6AF5,
    0xB504_F333_F9DE_6485,
    0x9837_F051_8DB8_A970,
];

/// The bucket of a latency. Latencies beyond either end fall into the last bucket there.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.clamp(1 << FIRST_OCTAVE, (1 << (FIRST_OCTAVE + 18)) - 1);
    let zeros = nanos.leading_zeros();
    let octave = (63 - zeros - FIRST_OCTAVE) as usize;
    let (three, of_three) = (octave / 3, octave % 3);
    let beyond_split = (nanos << zeros) >= SPLITS[of_three];
    (three * 4 + of_three + usize::from(beyond_split)).saturating_sub(1)
}

/// The geometric middle of a bucket.
fn middle_of(bucket: usize) -> Duration {
    /// 2^⅜, and then each 2^¾ times the one before.
    const MIDDLES: [f64; 4] = [
        1.296_839_554_651_009_7,
        2.181_015_465_330_515_3,
        3.668_016_172_818_685,
        6.168_843_301_631_763,
    ];
    let number = bucket + 1;
    let three_octaves = (1_u64 << FIRST_OCTAVE) << (number / 4 * 3);
    Duration::from_nanos(saturating_u64(three_octaves as f64 * MIDDLES[number % 4]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::random::Random;

    const MILLISECOND: Duration = Duration::from_millis(1);
    /// Half a bucket in either direction: 2^⅜.
    const HALF_BUCKET: f64 = 1.296_839_6;

    fn fresh() -> Latency {
        Latency::new(Duration::from_secs(1))
    }

    #[test]
    fn size_is_27_bytes() {
        assert_eq!((size_of::<Latency>(), align_of::<Latency>()), (27, 1));
    }

    #[test]
    fn average_matches_the_conformance_case() {
        let text = include_str!("../../../conformance/004_aimd.json");
        let file: Value = serde_json::from_str(text).unwrap();
        let cases = file["cases"].as_array().unwrap();
        let case = cases
            .iter()
            .find(|case| case["id"] == "fast-success-to-ceiling")
            .unwrap();
        let mut latency = fresh();
        for step in case["steps"].as_array().unwrap() {
            latency.record(MILLISECOND.mul_f64(step["latency_ms"].as_f64().unwrap()));
            let Some(expected) = step["expect"]["latency_ewma_ms"].as_f64() else {
                continue;
            };
            let ewma = latency.ewma().as_secs_f64() * 1e3;
            assert!((ewma / expected - 1.0).abs() < 1e-6, "{ewma} {expected}");
        }
    }

    #[test]
    fn average_starts_at_the_given_value_and_converges() {
        let mut latency = Latency::new(Duration::from_secs(3));
        assert_eq!(latency.ewma(), Duration::from_secs(3));
        for _ in 0..200 {
            latency.record(250 * MILLISECOND);
        }
        let off = latency.ewma().abs_diff(250 * MILLISECOND);
        assert!(off < Duration::from_nanos(100), "{off:?}");
    }

    #[test]
    fn no_percentile_before_the_first_sample() {
        assert_eq!(fresh().p95(), None);
    }

    #[test]
    fn upper_bound_is_above_samples_that_are_nearly_equal() {
        for millis in [1, 7, 33, 50, 200, 1900] {
            let mut latency = fresh();
            for _ in 0..100 {
                latency.record(millis * MILLISECOND);
            }
            let (p95, bound) = (latency.p95().unwrap(), latency.p95_at_most().unwrap());
            let highest = (millis * MILLISECOND).mul_f64(2.0_f64.powf(0.75));
            assert!(bound > p95 && bound >= millis * MILLISECOND, "{millis}");
            assert!(bound <= highest, "{millis}: {bound:?}");
        }
    }

    #[test]
    fn accepts_samples_beyond_both_ends() {
        let mut latency = fresh();
        latency.record(Duration::ZERO);
        assert_eq!(latency.p95().unwrap().as_micros(), 571);
        latency.record(Duration::MAX);
        assert_eq!(latency.p95().unwrap().as_secs(), 52);
        assert!(latency.ewma() > Duration::from_secs(1 << 30));
        let mut latency = Latency::new(Duration::MAX);
        latency.record(Duration::MAX);
        assert_eq!(latency.ewma(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn two_slow_samples_in_twenty_determine_the_percentile() {
        let mut latency = fresh();
        for _ in 0..19 {
            latency.record(10 * MILLISECOND);
        }
        latency.record(1000 * MILLISECOND);
        assert!(latency.p95().unwrap() < 13 * MILLISECOND);
        latency.record(1000 * MILLISECOND);
        assert!(latency.p95().unwrap() > 800 * MILLISECOND);
    }

    #[test]
    fn halving_halves_every_tail_rounded_up() {
        let mut random = Random::from_seed(11);
        for _ in 0..1000 {
            let mut latency = fresh();
            for count in &mut latency.counts {
                *count = u8::try_from(random.below(256)).unwrap() >> random.below(8);
            }
            let before = latency.clone();
            latency.halve();
            for bucket in 0..BUCKETS {
                let tail = |latency: &Latency| -> u32 {
                    latency.counts[bucket..].iter().map(|&c| u32::from(c)).sum()
                };
                assert_eq!(tail(&latency), tail(&before).div_ceil(2));
            }
        }
    }

    #[test]
    fn thin_tail_survives_halving() {
        // Six percent, spread so thin that rounding down each bucket would lose all of it.
        let mut latency = fresh();
        for round in 0..4000_u32 {
            let slow = 400 * MILLISECOND * (1 << (round / 17 % 6));
            let is_slow = round % 17 == 0;
            latency.record(if is_slow { slow } else { 20 * MILLISECOND });
        }
        assert!(latency.p95().unwrap() > 330 * MILLISECOND);
    }

    #[test]
    fn old_tail_decays() {
        let mut latency = fresh();
        for number in 0..2000 {
            latency.record(MILLISECOND * (1 + number * 30));
        }
        assert!(latency.p95().unwrap() > 20_000 * MILLISECOND);
        for _ in 0..1500 {
            latency.record(20 * MILLISECOND);
        }
        assert!(latency.p95().unwrap() < 24 * MILLISECOND);
    }

    /// A latency next to the exact list of its samples with their weights.
    struct Checked {
        latency: Latency,
        samples: Vec<(f64, f64)>,
        halved: bool,
    }

    impl Checked {
        fn new() -> Self {
            Self {
                latency: fresh(),
                samples: Vec::new(),
                halved: false,
            }
        }

        fn record(&mut self, millis: f64) {
            let sample = MILLISECOND.mul_f64(millis);
            if self.latency.counts[bucket_of(nanos(sample))] == u8::MAX {
                self.halved = true;
                self.samples
                    .iter_mut()
                    .for_each(|(_, weight)| *weight /= 2.0);
                // Such small weights do not affect the comparison.
                self.samples.retain(|&(_, weight)| weight > 1e-6);
            }
            self.latency.record(sample);
            self.samples.push((sample.as_secs_f64() * 1e3, 1.0));
        }

        /// The weighted percentile: the first sample with this share at or below it.
        fn percentile(&self, share: f64) -> f64 {
            let mut samples = self.samples.clone();
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            let total: f64 = samples.iter().map(|sample| sample.1).sum();
            let mut below = 0.0;
            for (value, weight) in samples {
                below += weight;
                if below >= share * total - 1e-9 {
                    return value;
                }
            }
            f64::NAN
        }

        fn check(&self, name: &str) {
            let p95 = self.latency.p95().unwrap().as_secs_f64() * 1e3;
            let (low, high) = if self.halved {
                (self.percentile(0.94), self.percentile(0.96))
            } else {
                (self.percentile(0.95), self.percentile(0.95))
            };
            assert!(
                low / HALF_BUCKET <= p95 && p95 <= high * HALF_BUCKET,
                "{name}: {p95} ms after {} samples, expected {low} to {high} ms",
                self.samples.len(),
            );
        }
    }

    /// A normal variable from two uniform ones (Box-Muller).
    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// Draws thousands of samples under several seeds and checks the stated error throughout.
    fn check(name: &str, draw: impl Fn(&mut Random) -> f64) {
        for seed in 0..4 {
            let mut random = Random::from_seed(seed);
            let mut checked = Checked::new();
            for number in 1..=4000 {
                checked.record(draw(&mut random));
                if number % 97 == 0 || (number < 300 && number % 11 == 1) {
                    checked.check(&format!("{name}, seed {seed}"));
                }
            }
        }
    }

    #[test]
    fn error_is_bounded_for_constant_latency() {
        for millis in [0.45, 1.0, 1.5, 99.0, 1448.0, 30_000.0, 65_000.0] {
            check(&format!("constant {millis}"), |_| millis);
        }
    }

    #[test]
    fn error_is_bounded_for_uniform_latencies() {
        check("uniform", |random| random.between(1.0, 500.0));
        check("narrow", |random| random.between(80.0, 85.0));
    }

    #[test]
    fn error_is_bounded_for_lognormal_latencies() {
        for spread in [0.1, 0.25, 1.0] {
            check(&format!("lognormal {spread}"), |random| {
                70.0 * (spread * normal(random)).exp()
            });
        }
    }

    #[test]
    fn error_is_bounded_for_bimodal_latencies() {
        for slow_share in [0.01, 0.04, 0.05, 0.06, 0.2] {
            check(&format!("bimodal {slow_share}"), |random| {
                let middle = if random.unit() < slow_share {
                    2000.0
                } else {
                    20.0
                };
                middle * (0.1 * normal(random)).exp()
            });
        }
    }

    #[test]
    fn error_is_bounded_while_latency_changes() {
        let step = std::cell::Cell::new(0.0);
        check("rising", |random| {
            step.set((step.get() + 1.0) % 4000.0);
            (10.0 + step.get()) * (0.2 * normal(random)).exp()
        });
    }

    #[test]
    fn four_buckets_span_three_octaves() {
        let border = |number: u32| {
            let octaves = f64::from(FIRST_OCTAVE) + 0.75 * f64::from(number);
            saturating_u64(octaves.exp2().ceil())
        };
        let borders: Vec<u64> = (1..=24).map(border).collect();
        for (bucket, border) in borders.iter().enumerate().take(BUCKETS) {
            assert_eq!(bucket_of(*border), bucket);
            assert_eq!(bucket_of(*border - 1), bucket.saturating_sub(1));
            let middle = middle_of(bucket).as_nanos() as f64;
            let (low, high) = (*border as f64, borders[bucket + 1] as f64);
            assert!((middle / low - HALF_BUCKET).abs() < 1e-4);
            assert!((high / middle - HALF_BUCKET).abs() < 1e-4);
        }
    }

    proptest! {
        #[test]
        fn average_stays_within_the_samples(
            start: u64,
            samples in prop::collection::vec(any::<u64>(), 1..400),
        ) {
            let mut latency = Latency::new(Duration::from_nanos(start));
            for &sample in &samples {
                latency.record(Duration::from_nanos(sample));
            }
            let all = || samples.iter().copied().chain([start]);
            let low = all().min().unwrap_or(0) as f64;
            let high = all().max().unwrap_or(0) as f64;
            let ewma = latency.ewma().as_nanos() as f64;
            prop_assert!(low * 0.999_999 <= ewma && ewma <= high * 1.000_001);
            prop_assert!(latency.p95().is_some());
        }
    }
}
