//! One value that gives a wait: a number, a duration or a date.
//!
//! The first byte and the magnitude determine the form, so numbers never reach a date parser. A
//! number above 10⁹ cannot be a wait in seconds (31 years), so it is Unix time in seconds; above
//! 10¹² it is Unix time in milliseconds.

use std::time::Duration;

use super::number::{Decimal, ceil};
use super::{Source, date, span};
use crate::time::WallTime;

/// A wait as written: the server's time is only known after all headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// This many milliseconds from now.
    In(u64),
    /// At this Unix time in milliseconds.
    At(i64),
}

/// The unit of a number without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Delay {
    /// All readable values of a header, separated by commas.
    pub(super) fn all(
        value: &[u8],
        unit: Unit,
        now: Option<WallTime>,
    ) -> impl Iterator<Item = Self> {
        Segments(Some(value)).filter_map(move |segment| Self::one(segment, unit, now))
    }

    /// One value. `now` is only used to read two-digit years.
    pub(super) fn one(value: &[u8], unit: Unit, now: Option<WallTime>) -> Option<Self> {
        let value = bare(value);
        match value.first()? {
            b'0'..=b'9' if value.get(4) == Some(&b'-') => date::rfc3339(value).map(Self::At),
            b'0'..=b'9' => match Decimal::exact(value) {
                Some(number) => Self::number(number, unit),
                None => span::exact(value).map(Self::In),
            },
            b'P' | b'p' => span::exact(value).map(Self::In),
            _ => date::http(value, now).map(Self::At),
        }
    }

    /// A number without a unit; `None` if it is a time beyond the calendar.
    pub(super) fn number(value: Decimal, unit: Unit) -> Option<Self> {
        let millis = |factor| ceil(value.steps_times(factor));
        if value > UNIX_MILLIS_ABOVE {
            return i64::try_from(millis(1)).ok().map(Self::At);
        }
        match unit {
            Unit::Seconds if value > UNIX_SECONDS_ABOVE => {
                i64::try_from(millis(1000)).ok().map(Self::At)
            }
            Unit::Seconds => Some(Self::In(millis(1000))),
            Unit::Milliseconds => Some(Self::In(millis(1))),
        }
    }
}

const UNIX_SECONDS_ABOVE: Decimal = Decimal::whole(1_000_000_000);
const UNIX_MILLIS_ABOVE: Decimal = Decimal::whole(1_000_000_000_000);

/// The longest of several delays and its source. Relative and absolute ones are kept separate until
/// the server's time is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Longest {
    relative: Option<(u64, Source)>,
    absolute: Option<(i64, Source)>,
}

impl Longest {
    pub(super) fn add(&mut self, delay: Delay, source: Source) {
        match delay {
            Delay::In(millis) => raise(&mut self.relative, millis, source),
            Delay::At(moment) => raise(&mut self.absolute, moment, source),
        }
    }

    /// The longest wait, if the server's time is known where needed. A time in the past is no wait.
    pub(super) fn from(&self, now: Option<WallTime>) -> Option<(Duration, Source)> {
        let relative = self
            .relative
            .map(|(millis, source)| (Duration::from_millis(millis), source));
        let absolute = self.absolute.and_then(|(moment, source)| {
            let wait = now?.until(WallTime::from_unix_millis(moment))?;
            Some((wait, source))
        });
        match (relative, absolute) {
            (Some(relative), Some(absolute)) if absolute.0 > relative.0 => Some(absolute),
            (Some(relative), _) => Some(relative),
            (None, absolute) => absolute,
        }
    }
}

/// Keeps the larger value; for equal values, the source that comes first in the list of sources.
fn raise<T: Ord + Copy>(slot: &mut Option<(T, Source)>, value: T, source: Source) {
    let better = slot.is_none_or(|(kept, by)| value > kept || (value == kept && source < by));
    if better {
        *slot = Some((value, source));
    }
}

/// Splits at commas, except for the comma after a weekday, which belongs to a date.
struct Segments<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let comma = |from: usize| {
            let tail = rest.get(from..)?;
            Some(from + tail.iter().position(|&byte| byte == b',')?)
        };
        let mut end = comma(0);
        if let Some(first) = end
            && date::is_weekday(bare(rest.get(..first)?))
        {
            end = comma(first + 1);
        }
        let Some(end) = end else {
            return self.0.take();
        };
        self.0 = rest.get(end + 1..);
        rest.get(..end)
    }
}

/// `value` without surrounding spaces, quotes and semicolon.
fn bare(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    let value = value.strip_suffix(b";").unwrap_or(value).trim_ascii_end();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let value = value.strip_suffix(b"\"").unwrap_or(value);
    value.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &[Delay]) {
        let read: Vec<Delay> = Delay::all(value.as_bytes(), Unit::Seconds, None).collect();
        assert_eq!(read, expected, "{value}");
    }

    #[test]
    fn reads_each_form() {
        check("120", &[Delay::In(120_000)]);
        check(" \"120\" ; ", &[Delay::In(120_000)]);
        check("1.5", &[Delay::In(1500)]);
        check("1m30s", &[Delay::In(90_000)]);
        check("PT5S", &[Delay::In(5000)]);
        check("1000000000", &[Delay::In(1_000_000_000_000)]);
        check("1000000000.5", &[Delay::At(1_000_000_000_500)]);
        check("1763186460", &[Delay::At(1_763_186_460_000)]);
        check("1000000000000", &[Delay::At(1_000_000_000_000_000)]);
        check("1763186460000", &[Delay::At(1_763_186_460_000)]);
        check("1970-01-01T00:00:01Z", &[Delay::At(1000)]);
        check("Thu, 01 Jan 1970 00:00:01 GMT", &[Delay::At(1000)]);
    }

    #[test]
    fn commas_separate_values_but_not_dates() {
        check(
            "1, 2,3",
            &[Delay::In(1000), Delay::In(2000), Delay::In(3000)],
        );
        check(
            "5, Thu, 01 Jan 1970 00:00:01 GMT, Thursday, 01-Jan-70 00:00:02 GMT, 7",
            &[
                Delay::In(5000),
                Delay::At(1000),
                Delay::At(2000),
                Delay::In(7000),
            ],
        );
        check("\"Thu, 01 Jan 1970 00:00:01 GMT\"", &[Delay::At(1000)]);
        check(",,5,,soon,-3,", &[Delay::In(5000)]);
        check("Thu,", &[]);
    }

    #[test]
    fn ignores_unreadable_values() {
        for value in [
            "",
            " ",
            "\"\"",
            "soon",
            "-5",
            "+5",
            "1e3",
            "0x10",
            "NaN",
            "inf",
            "٣",
            "5 5",
            "10:30",
            "99999999999999999999",
            "2026-11-15",
            "12345-",
            "Sun, 32 Nov 2026 00:00:00 GMT",
        ] {
            check(value, &[]);
        }
    }

    #[test]
    fn large_millisecond_numbers_are_unix_times() {
        let read = |value: &str| Delay::one(value.as_bytes(), Unit::Milliseconds, None);
        assert_eq!(read("1500"), Some(Delay::In(1500)));
        assert_eq!(read("0.2"), Some(Delay::In(1)));
        assert_eq!(read("1763186460"), Some(Delay::In(1_763_186_460)));
        assert_eq!(read("1763186460000"), Some(Delay::At(1_763_186_460_000)));
        assert_eq!(read("2s"), Some(Delay::In(2000)));
    }

    #[test]
    fn longest_wins_in_any_form() {
        let mut longest = Longest::default();
        assert_eq!(longest.from(None), None);
        longest.add(Delay::At(70_000), Source::RetryAfter);
        longest.add(Delay::At(60_000), Source::RetryAfter);
        let now = |millis| Some(WallTime::from_unix_millis(millis));
        assert_eq!(longest.from(None), None);
        let nothing = (Duration::ZERO, Source::RetryAfter);
        assert_eq!(longest.from(now(70_000)), Some(nothing));
        assert_eq!(longest.from(now(70_001)), None);
        longest.add(Delay::In(5000), Source::RetryAfterMs);
        longest.add(Delay::In(5000), Source::RetryAfter);
        longest.add(Delay::In(5000), Source::XMsRetryAfterMs);
        let seconds = |secs| (Duration::from_secs(secs), Source::RetryAfter);
        assert_eq!(longest.from(now(10_000)), Some(seconds(60)));
        assert_eq!(longest.from(now(69_000)), Some(seconds(5)));
        assert_eq!(longest.from(now(80_000)), Some(seconds(5)));
        assert_eq!(longest.from(None), Some(seconds(5)));
    }
}
