//! Randomises delays, so that callers that failed together do not retry together.
//!
//! A jitter is a range of factors: `0.5..1.5` preserves the mean and spreads callers over one whole
//! delay; `full` (0 to 1) spreads further and halves the mean. The latter suits many small
//! requests, where only the total matters; the former suits requests that a person waits for, where
//! a delay of zero would be surprising.
//!
//! A drawn delay is truncated to whole milliseconds, so that the logged delay is the actual one. If
//! that would fall below the lower bound, as for delays of a few milliseconds, it is not truncated.
//! The caller applies its maximum afterwards, because jitter could exceed it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration::{self, Seconds};
use crate::random::Random;
use crate::setting::{self, Format, Kind, ValueError};

/// How a delay is randomised.
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::jitter::Jitter;
///
/// let jitter: Jitter = "0.5..1.5".parse().unwrap();
/// let (least, most) = jitter.bounds(Duration::from_secs(1));
/// assert_eq!((least.as_millis(), most.as_millis()), (500, 1500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// No jitter: all callers wait equally long. For tests and for a single caller.
    None,
    /// From zero up to the whole delay.
    Full,
    /// A factor between two bounds.
    Range(Factors),
}

impl Jitter {
    /// `0.5..1.5`: preserves the mean and is never zero.
    pub const STANDARD: Self = Self::Range(Factors {
        low: 0.5,
        high: 1.5,
    });

    /// The shortest and longest result for `delay`. The longest is exclusive unless both are equal.
    pub fn bounds(self, delay: Duration) -> (Duration, Duration) {
        match self {
            Self::None => (delay, delay),
            Self::Full => (Duration::ZERO, delay),
            Self::Range(factors) => (scaled(delay, factors.low), scaled(delay, factors.high)),
        }
    }

    /// Draws a result for `delay`. Always consumes one random number, so that disabling jitter does
    /// not change later draws.
    pub fn draw(self, delay: Duration, random: &mut Random) -> Duration {
        self.at(delay, random.unit())
    }

    /// The result for `delay` at `unit` in [0, 1); other values are clamped, and NaN counts as
    /// zero.
    pub fn at(self, delay: Duration, unit: f64) -> Duration {
        let (least, most) = self.bounds(delay);
        let (low, high) = match self {
            Self::None => return delay,
            Self::Full => (0.0, 1.0),
            Self::Range(factors) => (factors.low, factors.high),
        };
        let unit = unit.clamp(0.0, 1.0);
        let drawn = scaled(delay, low + unit * (high - low)).clamp(least, most);
        let whole = whole_millis(drawn);
        if whole < least { drawn } else { whole }
    }
}

impl FromStr for Jitter {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let factors = || {
            let (low, high) = text.split_once("..")?;
            Factors::new(setting::number(low.trim())?, setting::number(high.trim())?)
        };
        match text {
            "none" => Ok(Self::None),
            "full" => Ok(Self::Full),
            _ => factors()
                .map(Self::Range)
                .ok_or_else(|| ValueError::new(EXPECTED)),
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Full => f.write_str("full"),
            Self::Range(Factors { low, high }) => write!(f, "{low}..{high}"),
        }
    }
}

/// Two factors, `0 ≤ low ≤ high ≤ 10` and `high` above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    low: f64,
    high: f64,
}

impl Factors {
    /// `None` if the factors are out of order or out of bounds. Both zero would mean no wait; above
    /// ten, the configured delay would mean little.
    pub fn new(low: f64, high: f64) -> Option<Self> {
        let in_order = 0.0 <= low && low <= high;
        // Adding zero turns -0 into 0.
        let low = low + 0.0;
        (in_order && high > 0.0 && high <= MAX_FACTOR).then_some(Self { low, high })
    }
}

const MAX_FACTOR: f64 = 10.0;
const EXPECTED: &str = "`none`, `full` or two factors in order such as `0.5..1.5`, \
                        the second above 0 and at most 10";

/// How much random delay is added to a wait that the server names, so that callers refused together
/// do not return together.
///
/// ```
/// use std::time::Duration;
/// # use tidegate_policy::jitter as tidegate;
/// use tidegate::RetryAfterJitter;
///
/// let share: RetryAfterJitter = "10%".parse().unwrap();
/// assert_eq!(share.max_for(Duration::from_secs(20)), Duration::from_secs(2));
/// assert_eq!(share.max_for(Duration::from_secs(600)), Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryAfterJitter {
    /// Up to this duration, however long the wait.
    UpTo(Duration),
    /// Up to this percentage of the wait, at most 5 s.
    Percent(f64),
}

impl RetryAfterJitter {
    /// Its format in settings.
    pub const KIND: Kind = Kind::Format(&Format::of("duration or share", "\"5s\"", None, |text| {
        text.parse::<Self>().map(drop).map_err(String::from)
    }));

    /// The default for library calls and pools: a caller that has to wait a second does not wait
    /// for five more.
    pub const CALLS: Self = Self::Percent(10.0);

    /// The maximum that is added to `wait`.
    pub fn max_for(self, wait: Duration) -> Duration {
        match self {
            Self::UpTo(max) => max,
            Self::Percent(percent) => scaled(wait, percent / 100.0).min(MAX_SHARE),
        }
    }
}

/// A larger share of a long wait does not spread callers any better.
const MAX_SHARE: Duration = Duration::from_secs(5);

impl FromStr for RetryAfterJitter {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXPECTED: &str = "a duration such as `5s`, or a share such as `10%`";
        match text.strip_suffix('%') {
            None => duration::parse(text)
                .map(Self::UpTo)
                .map_err(|_| ValueError::new(EXPECTED)),
            Some(percent) => setting::number(percent.trim())
                .filter(|percent| (0.0..=100.0).contains(percent))
                .map(Self::Percent)
                .ok_or_else(|| ValueError::new(EXPECTED)),
        }
    }
}

impl fmt::Display for RetryAfterJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpTo(max) => Seconds(*max).fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

crate::setting_values!(Jitter, RetryAfterJitter);

/// Rounded to the nearest nanosecond; saturates.
fn scaled(delay: Duration, factor: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates and takes NaN to zero, which is what is wanted"
    )]
    let nanos = (delay.as_nanos() as f64 * factor).round() as u64;
    Duration::from_nanos(nanos)
}

fn whole_millis(delay: Duration) -> Duration {
    let beyond = delay.subsec_nanos() % NANOS_PER_MILLI;
    delay - Duration::from_nanos(u64::from(beyond))
}

const NANOS_PER_MILLI: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn displays_as_it_parses() {
        for text in ["none", "full", "0.5..1.5", "0..1", "1..1", "0..10"] {
            assert_eq!(text.parse::<Jitter>().unwrap().to_string(), text);
        }
        assert_eq!("0.5 .. 1.5".parse(), Ok(Jitter::STANDARD));
        assert_eq!("-0..1".parse::<Jitter>().unwrap().to_string(), "0..1");
    }

    #[test]
    fn refuses_invalid_ranges() {
        for text in [
            "",
            "half",
            "0.5",
            "0.5..",
            "..1.5",
            "1.5..0.5",
            "-0.5..1.5",
            "NaN..1",
            "0..NaN",
            "0..inf",
            "0..10.1",
            "0..0",
            "0.5...1.5",
            "0.5..1.5..2",
            "None",
        ] {
            assert_eq!(
                text.parse::<Jitter>(),
                Err(ValueError::new(EXPECTED)),
                "{text}"
            );
        }
    }

    #[test]
    fn truncates_draws_to_whole_milliseconds() {
        assert_eq!(Jitter::STANDARD.at(millis(333), 0.123), millis(207));
        assert_eq!(Jitter::STANDARD.at(millis(4000), 0.0), millis(2000));
        assert_eq!(Jitter::STANDARD.at(millis(4000), 0.5), millis(4000));
        assert_eq!(Jitter::Full.at(millis(5000), 0.5), millis(2500));
        assert_eq!(Jitter::Full.at(millis(5000), 0.999_999_9), millis(4999));
    }

    #[test]
    fn does_not_truncate_below_the_lower_bound() {
        let drawn = Jitter::STANDARD.at(millis(1), 0.1);
        assert_eq!(drawn, Duration::from_micros(600));
        assert_eq!(Jitter::STANDARD.at(millis(1), 0.7), millis(1));
    }

    #[test]
    fn no_jitter_leaves_delay_unchanged() {
        for delay in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(Jitter::None.at(delay, 0.3), delay);
            assert_eq!(Jitter::None.bounds(delay), (delay, delay));
        }
    }

    #[test]
    fn clamps_units_outside_the_range() {
        assert_eq!(Jitter::STANDARD.at(millis(1000), -7.0), millis(500));
        assert_eq!(Jitter::STANDARD.at(millis(1000), f64::NAN), millis(500));
        assert_eq!(Jitter::STANDARD.at(millis(1000), 7.0), millis(1500));
    }

    #[test]
    fn mean_matches_the_range() {
        let mut random = Random::from_seed(1);
        let mut mean = |jitter: Jitter| {
            let total: Duration = (0..10_000)
                .map(|_| jitter.draw(millis(1000), &mut random))
                .sum();
            total.as_secs_f64() / 10_000.0
        };
        // Four standard deviations of the mean of 10 000 draws.
        assert!((mean(Jitter::STANDARD) - 1.0).abs() < 0.012);
        assert!((mean(Jitter::Full) - 0.5).abs() < 0.012);
    }

    #[test]
    fn disabling_jitter_keeps_other_draws() {
        let (mut with, mut without) = (Random::from_seed(3), Random::from_seed(3));
        Jitter::Full.draw(millis(1), &mut with);
        Jitter::None.draw(millis(1), &mut without);
        assert_eq!(with, without);
    }

    proptest! {
        #[test]
        fn every_draw_is_within_its_bounds(
            nanos: u64,
            low in 0.0..10.0,
            width in 0.0..10.0,
            seed: u64,
        ) {
            let delay = Duration::from_nanos(nanos);
            let high = f64::min(low + width, 10.0);
            let mut random = Random::from_seed(seed);
            for jitter in [Jitter::None, Jitter::Full].into_iter()
                .chain(Factors::new(low, high).map(Jitter::Range))
            {
                let (least, most) = jitter.bounds(delay);
                let drawn = jitter.draw(delay, &mut random);
                prop_assert!(least <= drawn && drawn <= most, "{jitter} of {delay:?}: {drawn:?}");
            }
        }
    }
}
