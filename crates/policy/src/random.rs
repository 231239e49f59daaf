//! Randomness as a value.
//!
//! Jitter and probing need random numbers, and only repeatable decisions can be tested. So a policy
//! never draws from the system; its caller passes in a [`Random`]. The generator is SplitMix64
//! (Steele, Lea and Flood, 2014): eight bytes of state, one addition and two multiplications per
//! number, no bad seeds. A few numbers per request do not need the longer period of the xoshiro
//! family. It is not cryptographically secure.
//!
//! The numbers depend only on the seed, not on platform, compiler or release. Recorded traces rely
//! on this, and tests pin the numbers.

/// A small random number generator, repeatable from its seed.
///
/// Not `Copy`: a copy would silently repeat the original's numbers.
///
/// ```
/// use tidegate_policy::random::Random;
///
/// let mut random = Random::from_seed(7);
/// let jitter = random.between(0.5, 1.5);
/// assert!((0.5..1.5).contains(&jitter));
/// assert_eq!(Random::from_seed(7).between(0.5, 1.5), jitter);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Creates the generator for `seed`. Every seed is good, including zero; neighbouring seeds
    /// give unrelated numbers.
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits. The sequence repeats after 2⁶⁴ numbers.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A uniform number in [0, 1) with 53 bits. Never 1, so that an index or share computed from it
    /// stays in range.
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * SCALE
    }

    /// A uniform integer in 0..`n`; 0 if `n` is 0.
    ///
    /// Lemire's method: multiplies instead of dividing, and redraws in the rare case (probability
    /// below `n` / 2⁶⁴) that would introduce bias.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        let unfair = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            let (high, low) = halves(product);
            if low >= unfair {
                return high;
            }
        }
    }

    /// A number in [`low`, `high`), uniform except for rounding. Returns `low` if the range is
    /// empty, reversed or not finite. Always consumes one draw.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = self.unit();
        if low < high && low.is_finite() && high.is_finite() {
            // Not `low + unit * (high - low)`: the difference of two finite numbers may be
            // infinite.
            let value = low * (1.0 - unit) + high * unit;
            value.clamp(low, high.next_down())
        } else {
            low
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "cuts a product into its two words"
)]
const fn halves(product: u128) -> (u64, u64) {
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_the_published_generator() {
        let mut random = Random::from_seed(1_234_567);
        let numbers = [(); 5].map(|()| random.next_u64());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
        assert_eq!(Random::from_seed(0).next_u64(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn derived_numbers_are_pinned() {
        let mut random = Random::from_seed(42);
        assert_eq!(random.unit().to_bits(), 0x3fe7_bae6_44c5_fd6d);
        assert_eq!([(); 8].map(|()| random.below(6)), [0, 1, 2, 0, 5, 1, 4, 2]);
        assert_eq!(random.between(0.5, 1.5).to_bits(), 0x3ff1_e54d_7382_97f7);
    }

    #[test]
    fn equal_seeds_repeat_and_other_seeds_differ() {
        let draw = |seed| {
            let mut random = Random::from_seed(seed);
            [(); 16].map(|()| random.next_u64())
        };
        assert_eq!(draw(9), draw(9));
        assert!(draw(9).iter().all(|number| !draw(10).contains(number)));
    }

    #[test]
    fn unit_is_uniform() {
        let mut random = Random::from_seed(1);
        let units: Vec<f64> = (0..100_000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        // Four standard deviations, for a mean of 100 000 samples and for a count of 10 000.
        let mean = units.iter().sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.0037, "mean {mean}");
        for tenth in 0..10 {
            let low = f64::from(tenth) / 10.0;
            let inside = |unit: &&f64| (low..low + 0.1).contains(*unit);
            let count = units.iter().filter(inside).count();
            assert!(count.abs_diff(10_000) < 380, "{count} from {low}");
        }
    }

    #[test]
    fn below_is_uniform() {
        let mut random = Random::from_seed(2);
        let numbers: Vec<u64> = (0..70_000).map(|_| random.below(7)).collect();
        for number in 0..7 {
            let count = numbers.iter().filter(|&&drawn| drawn == number).count();
            assert!(count.abs_diff(10_000) < 371, "{count} times {number}");
        }
    }

    #[test]
    fn below_is_unbiased_for_large_bounds() {
        // With three quarters of the range, plain multiplication is biased by a factor of two.
        let bound = 3 << 62;
        let mut random = Random::from_seed(3);
        let low = (0..30_000)
            .filter(|_| random.below(bound) < bound / 3)
            .count();
        assert!(low.abs_diff(10_000) < 327, "{low}");
    }

    #[test]
    fn below_zero_and_below_one_return_zero() {
        let mut random = Random::from_seed(4);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn between_returns_low_for_invalid_range() {
        let mut random = Random::from_seed(5);
        let mut check = |low: f64, high: f64| {
            assert_eq!(random.between(low, high).to_bits(), low.to_bits());
        };
        check(1.0, 1.0);
        check(2.0, 1.0);
        check(3.0, f64::NAN);
        check(4.0, f64::INFINITY);
        check(f64::NEG_INFINITY, 5.0);
    }

    proptest! {
        #[test]
        fn below_stays_below(seed: u64, n in 1_u64..) {
            prop_assert!(Random::from_seed(seed).below(n) < n);
        }

        #[test]
        fn between_stays_between(seed: u64, a: f64, b: f64) {
            let value = Random::from_seed(seed).between(a, b);
            if a.is_finite() && b.is_finite() && a < b {
                prop_assert!((a..b).contains(&value), "{value} is not in {a}..{b}");
            }
        }
    }
}
