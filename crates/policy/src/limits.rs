//! Known limits: at most a given count in any interval of a given length.
//!
//! A token bucket cannot guarantee this: full and then drained, it lets almost twice the count
//! through in one interval. A log of every admission could, at eight bytes each. This is a log with
//! at most [`GROUPS`] entries. Up to that many admissions have an entry each, and the limit is
//! exact. Beyond that, neighbours share an entry, which counts as if all of them had left when its
//! last one did. That errs on the safe side only, by at most 1/[`GROUPS`] of the interval.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use crate::setting::{self, Format, Kind, ValueError};
use crate::time::Timestamp;

/// At most `count` in any interval of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    count: u32,
    period: Duration,
}

impl Limit {
    /// Its format in settings.
    pub const KIND: Kind = Kind::Format(&Format::of(
        "limit",
        "\"10/1s\"",
        Some("^[0-9][0-9_]* */ *([0-9].*)?[a-z]+$"),
        |text| text.parse::<Self>().map(drop).map_err(String::from),
    ));

    /// `None` if either is zero: such a limit would admit nothing, or limit nothing.
    pub fn new(count: u32, period: Duration) -> Option<Self> {
        (count > 0 && !period.is_zero()).then_some(Self { count, period })
    }

    /// The maximum count.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The length of the interval.
    pub fn period(&self) -> Duration {
        self.period
    }
}

impl FromStr for Limit {
    type Err = ValueError;

    /// Reads `10/1s`, `5000/1d`, and `10/s` for `10/1s`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let expected = || ValueError::new("a count and a period such as `10/1s` or `5000/1d`");
        let (count, period) = text.split_once('/').ok_or_else(expected)?;
        let count = setting::number(count.trim()).ok_or_else(expected)?;
        let period = period.trim();
        let spelled = if period.starts_with(|c: char| c.is_ascii_digit()) {
            duration::parse(period)
        } else {
            duration::parse(&format!("1{period}"))
        };
        let period = spelled.map_err(|_| expected())?;
        Self::new(count, period).ok_or_else(|| ValueError::new("a count and a period above zero"))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, duration::Exact(self.period))
    }
}

crate::setting_values!(Limit);

/// The recent admissions, under several limits at once.
#[derive(Clone, Debug)]
pub struct Limits {
    logs: Box<[Log]>,
}

impl Limits {
    /// Empty logs for these limits. All memory that they ever need is allocated here.
    pub fn new(limits: &[Limit]) -> Self {
        Self {
            logs: limits.iter().map(|&limit| Log::new(limit)).collect(),
        }
    }

    /// Logs for `limits`, if there are any, continuing those of `before`. A limit that was there
    /// keeps its log. A new one starts with the log that reaches back furthest, so that a changed
    /// limit does not start with a full allowance.
    pub fn of(limits: &[Limit], before: Option<&Self>) -> Option<Self> {
        if limits.is_empty() {
            return None;
        }
        let known = before.map_or(&[][..], |before| &before.logs);
        let furthest = known.iter().max_by_key(|log| log.limit.period);
        let logs = limits.iter().map(|&limit| {
            let kept = known.iter().find(|log| log.limit == limit);
            kept.cloned().unwrap_or_else(|| {
                let mut log = Log::new(limit);
                for entry in furthest.into_iter().flat_map(Log::ring) {
                    log.take(entry.units, entry.last);
                }
                log
            })
        });
        Some(Self {
            logs: logs.collect(),
        })
    }

    /// When `ahead` units and then `cost` more may have left, under every limit; `None` if `cost`
    /// exceeds a limit's count.
    pub fn ready_at(&self, ahead: u64, cost: u32, now: Timestamp) -> Option<Timestamp> {
        let mut latest = now;
        for log in &self.logs {
            latest = latest.max(log.ready_at(ahead, cost, now)?);
        }
        Some(latest)
    }

    /// Records that `cost` units leave now. Call [`Limits::ready_at`] first.
    pub fn take(&mut self, cost: u32, now: Timestamp) {
        for log in &mut self.logs {
            log.take(cost, now);
        }
    }

    /// Removes `cost` units that were recorded at `taken_at` but never left.
    pub fn give_back(&mut self, cost: u32, taken_at: Timestamp, now: Timestamp) {
        for log in &mut self.logs {
            log.give_back(cost, taken_at, now);
        }
    }

    /// Corrects the last admissions to the actual cost.
    pub fn correct(&mut self, asked: u32, used: u32) {
        for log in &mut self.logs {
            log.correct(asked, used);
        }
    }
}

/// Entries per log. With 64, a limit of up to 64 is exact; above, at most 1.6 % of the interval is
/// lost, for 1 KiB of memory.
pub const GROUPS: u32 = 64;

#[derive(Clone, Debug)]
struct Log {
    limit: Limit,
    /// A new entry is started when the newest holds this many units.
    group: u32,
    /// A ring of `len` entries starting at `oldest`.
    entries: Box<[Entry]>,
    oldest: usize,
    len: usize,
    /// The sum of all entries.
    used: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    last: Timestamp,
    units: u32,
}

impl Log {
    fn new(limit: Limit) -> Self {
        let group = limit.count.div_ceil(GROUPS);
        // All entries but the newest hold at least `group` units.
        let entries = limit.count.div_ceil(group) as usize + 1;
        let entries = vec![Entry::default(); entries].into_boxed_slice();
        Self {
            limit,
            group,
            entries,
            oldest: 0,
            len: 0,
            used: 0,
        }
    }

    fn ready_at(&self, ahead: u64, cost: u32, now: Timestamp) -> Option<Timestamp> {
        let count = u64::from(self.limit.count);
        if u64::from(cost) > count {
            return None;
        }
        // A line longer than the limit leaves over several periods; its last ask waits for its
        // share of the last one.
        let wanted = ahead.saturating_add(u64::from(cost));
        let whole_periods = (wanted - 1) / count;
        let rest = wanted - whole_periods * count;
        let lead = self
            .limit
            .period
            .saturating_mul(u32::try_from(whole_periods).unwrap_or(u32::MAX));
        Some(self.room_at(rest, now) + lead)
    }

    /// When there is room for `units` more.
    fn room_at(&self, units: u64, now: Timestamp) -> Timestamp {
        let mut used = self.used;
        let mut room = now;
        for entry in self.ring() {
            let expires_at = entry.last + self.limit.period;
            if expires_at > now && used + units <= u64::from(self.limit.count) {
                break;
            }
            used -= u64::from(entry.units);
            room = room.max(expires_at);
        }
        room
    }

    fn ring(&self) -> impl Iterator<Item = &Entry> {
        (0..self.len).map(|i| &self.entries[(self.oldest + i) % self.entries.len()])
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.drop_expired(now);
        let group = self.group;
        match self.newest() {
            Some(newest) if newest.units < group => {
                let before = newest.units;
                newest.units = newest.units.saturating_add(cost);
                newest.last = newest.last.max(now);
                self.used += u64::from(newest.units - before);
            }
            _ => self.push(Entry {
                last: now,
                units: cost,
            }),
        }
    }

    fn correct(&mut self, asked: u32, used: u32) {
        if let Some(newest) = self.newest() {
            let before = newest.units;
            newest.units = before.saturating_add(used).saturating_sub(asked);
            let after = newest.units;
            self.used = self.used + u64::from(after) - u64::from(before);
        }
    }

    /// Removes the units from the earliest entries that can hold them. The earliest expires first,
    /// so this errs on the safe side only.
    fn give_back(&mut self, cost: u32, taken_at: Timestamp, now: Timestamp) {
        if taken_at + self.limit.period <= now {
            // The entry may have expired, and the next one belongs to other asks.
            return;
        }
        let mut rest = cost;
        for i in 0..self.len {
            let slot = (self.oldest + i) % self.entries.len();
            let entry = &mut self.entries[slot];
            if entry.last >= taken_at {
                let given = rest.min(entry.units);
                entry.units -= given;
                rest -= given;
                self.used -= u64::from(given);
            }
        }
    }

    fn newest(&mut self) -> Option<&mut Entry> {
        let newest = self.len.checked_sub(1)?;
        let slot = (self.oldest + newest) % self.entries.len();
        Some(&mut self.entries[slot])
    }

    fn push(&mut self, entry: Entry) {
        if self.len == self.entries.len() {
            // Only when corrections made entries smaller than a group. Dropping the oldest would
            // violate the limit, so it is merged with its neighbour.
            let oldest = self.entries[self.oldest];
            self.drop_oldest();
            let next = &mut self.entries[self.oldest];
            let before = next.units;
            next.units = before.saturating_add(oldest.units);
            self.used += u64::from(next.units - before);
        }
        let slot = (self.oldest + self.len) % self.entries.len();
        self.entries[slot] = entry;
        self.len += 1;
        self.used += u64::from(entry.units);
    }

    fn drop_expired(&mut self, now: Timestamp) {
        while self.len > 0 && self.entries[self.oldest].last + self.limit.period <= now {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        self.used -= u64::from(self.entries[self.oldest].units);
        self.oldest = (self.oldest + 1) % self.entries.len();
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(texts: &[&str]) -> Limits {
        let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Limits::new(&limits)
    }

    fn secs(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    #[test]
    fn reads_counts_and_periods() {
        let limit: Limit = "10/1s".parse().unwrap();
        assert_eq!(
            (limit.count(), limit.period()),
            (10, Duration::from_secs(1))
        );
        let limit: Limit = "5000/d".parse().unwrap();
        assert_eq!(
            (limit.count(), limit.period()),
            (5000, Duration::from_secs(86_400))
        );
        assert_eq!(limit.to_string(), "5000/1d");
        for bad in [
            "",
            "10",
            "10/",
            "/1s",
            "0/1s",
            "10/0s",
            "-1/1s",
            "10/1",
            "1.5/1s",
            "9999999999/1s",
        ] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn eleventh_ask_of_ten_per_second_waits_for_a_second() {
        let mut log = limits(&["10/1s"]);
        assert_eq!(log.ready_at(9, 1, secs(0)), Some(secs(0)), "all ten fit");
        for _ in 0..10 {
            assert_eq!(log.ready_at(0, 1, secs(0)), Some(secs(0)));
            log.take(1, secs(0));
        }
        assert_eq!(log.ready_at(0, 1, secs(0)), Some(secs(1)));
        assert_eq!(log.ready_at(9, 1, secs(0)), Some(secs(1)));
        assert_eq!(
            log.ready_at(10, 1, secs(0)),
            Some(secs(2)),
            "the eleventh in line"
        );
        assert_eq!(log.ready_at(0, 1, secs(1)), Some(secs(1)));
    }

    #[test]
    fn long_line_spreads_over_several_periods() {
        let mut log = limits(&["10/1s"]);
        for millis in [0, 500] {
            log.take(5, Timestamp::from_millis(millis));
        }
        let leaves = |ahead| log.ready_at(ahead, 1, Timestamp::from_millis(500));
        assert_eq!(leaves(0), Some(secs(1)));
        assert_eq!(leaves(5), Some(Timestamp::from_millis(1500)));
        assert_eq!(
            leaves(10),
            Some(secs(2)),
            "the first share of the second period"
        );
    }

    /// Neighbours share an entry to keep the log small. Evenly spaced callers, the worst case,
    /// still get nearly all of a large limit, and never more.
    #[test]
    fn evenly_spaced_callers_reach_a_limit_with_shared_entries() {
        let mut log = limits(&["640/1s"]);
        let mut left: Vec<Timestamp> = Vec::new();
        for step in 0..20_000 {
            let now = Timestamp::from_millis(step);
            if log.ready_at(0, 1, now) == Some(now) {
                log.take(1, now);
                left.push(now);
            }
        }
        assert!(
            left.len() >= 640 * 20 * 98 / 100,
            "{} of {}",
            left.len(),
            640 * 20
        );
        let crowded = left
            .windows(641)
            .any(|some| some[640] < some[0] + Duration::from_secs(1));
        assert!(!crowded, "never more in any stretch");
        assert!(log.logs[0].len <= GROUPS as usize + 1);
        log.take(1, secs(100));
        assert_eq!(log.logs[0].len, 1, "what no longer counts is not kept");
    }

    #[test]
    fn slowest_of_several_limits_decides() {
        let mut log = limits(&["2/1s", "3/1m"]);
        for second in [0, 0, 1] {
            assert_eq!(log.ready_at(0, 1, secs(second)), Some(secs(second)));
            log.take(1, secs(second));
        }
        assert_eq!(log.ready_at(0, 1, secs(1)), Some(secs(60)));
    }

    #[test]
    fn cost_above_the_limit_is_never_admitted() {
        assert_eq!(limits(&["10/1s"]).ready_at(0, 11, secs(0)), None);
        assert_eq!(limits(&[]).ready_at(0, 11, secs(5)), Some(secs(5)));
    }

    #[test]
    fn corrected_cost_counts() {
        let mut log = limits(&["10/1s"]);
        log.take(2, secs(0));
        log.correct(2, 9);
        assert_eq!(log.ready_at(0, 1, secs(0)), Some(secs(0)));
        assert_eq!(log.ready_at(0, 2, secs(0)), Some(secs(1)));
        log.correct(9, 0);
        assert_eq!(log.ready_at(0, 10, secs(0)), Some(secs(0)));
    }

    #[test]
    fn merges_entries_made_small_by_corrections() {
        let mut log = limits(&["3/1s"]);
        for _ in 0..20 {
            log.take(1, secs(0));
            log.correct(1, 0);
            log.take(1, secs(0));
            log.correct(1, 1);
        }
        assert_eq!(log.ready_at(0, 1, secs(0)), Some(secs(1)));
    }

    #[test]
    fn given_back_admission_is_removed() {
        let mut log = limits(&["3/10s"]);
        for second in [0, 1, 2] {
            log.take(1, secs(second));
        }
        log.give_back(1, secs(1), secs(3));
        assert_eq!(log.ready_at(0, 1, secs(3)), Some(secs(3)));
        assert_eq!(log.ready_at(0, 2, secs(3)), Some(secs(10)));
        assert_eq!(log.ready_at(0, 3, secs(3)), Some(secs(12)));
        log.take(1, secs(3));
        log.give_back(1, secs(0), secs(10));
        assert_eq!(
            log.ready_at(0, 3, secs(10)),
            Some(secs(13)),
            "expired units free nothing"
        );
    }

    #[test]
    fn giving_back_removes_at_most_what_was_recorded() {
        let mut log = limits(&["300/10s"]);
        log.take(7, secs(0));
        log.take(2, secs(1));
        for _ in 0..2 {
            log.give_back(100, secs(1), secs(1));
            assert_eq!(log.ready_at(0, 293, secs(1)), Some(secs(1)));
            assert_eq!(log.ready_at(0, 294, secs(1)), Some(secs(10)));
        }
    }

    #[test]
    fn unchanged_limit_keeps_its_log_and_new_one_starts_with_the_longest() {
        let all = |texts: &[&str]| -> Vec<Limit> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let mut before = limits(&["10/1s", "100/1h"]);
        before.take(5, secs(0));
        let after = |texts: &[&str]| Limits::of(&all(texts), Some(&before)).unwrap();
        let kept = after(&["10/1s"]);
        assert_eq!(kept.ready_at(0, 5, secs(0)), Some(secs(0)));
        assert_eq!(kept.ready_at(0, 6, secs(0)), Some(secs(1)));
        let changed = after(&["4/1m", "10/1s"]);
        assert_eq!(changed.ready_at(0, 1, secs(0)), Some(secs(60)));
        assert!(Limits::of(&[], Some(&before)).is_none());
    }

    proptest! {
        /// Some admissions are given back unused: the rest stays within the limit.
        #[test]
        fn giving_back_never_exceeds_the_count(
            count in 1u32..200,
            steps in prop::collection::vec((0u64..2_000_000_000, 0usize..8), 1..1200),
        ) {
            let period = Duration::from_secs(1);
            let mut log = Limits::new(&[Limit::new(count, period).unwrap()]);
            let mut now = Timestamp::ZERO;
            let mut left: Vec<Timestamp> = Vec::new();
            for (gap, back) in steps {
                now = now + Duration::from_nanos(gap / 2 / u64::from(count));
                if log.ready_at(0, 1, now) == Some(now) {
                    log.take(1, now);
                    left.push(now);
                }
                if back < 3 && back < left.len() {
                    let taken_at = left.remove(left.len() - 1 - back);
                    log.give_back(1, taken_at, now);
                }
            }
            for (i, &start) in left.iter().enumerate() {
                let inside = left[i..].iter().take_while(|&&at| at < start + period).count();
                prop_assert!(inside <= count as usize);
            }
        }

        /// A defect of other libraries: a window of 100/s that lets 199 through in 100 ms.
        #[test]
        fn never_exceeds_the_count_in_any_interval(
            count in 1u32..300, gaps in prop::collection::vec(0u64..2_000_000_000, 1..1200),
        ) {
            let period = Duration::from_secs(1);
            let mut log = Limits::new(&[Limit::new(count, period).unwrap()]);
            let mut now = Timestamp::ZERO;
            let mut left: Vec<Timestamp> = Vec::new();
            for gap in gaps {
                // On average half as long as the limit allows, so that it binds.
                now = now + Duration::from_nanos(gap / 2 / u64::from(count));
                if log.ready_at(0, 1, now) == Some(now) {
                    log.take(1, now);
                    left.push(now);
                }
            }
            for (i, &start) in left.iter().enumerate() {
                let inside = left[i..].iter().take_while(|&&at| at < start + period).count();
                prop_assert!(inside <= count as usize);
            }
        }

        /// Erring on the safe side costs little: asks that leave when due use 98 % of the limit.
        #[test]
        fn endless_line_reaches_the_limit(count in 1u32..2000) {
            let mut log = Limits::new(&[Limit::new(count, Duration::from_secs(1)).unwrap()]);
            let mut now = Timestamp::ZERO;
            let mut left = 0u32;
            while now < secs(5) {
                log.take(1, now);
                left += 1;
                now = log.ready_at(0, 1, now).unwrap();
            }
            prop_assert!(f64::from(left) >= f64::from(count) * 5.0 * 0.98, "{left} of {}", count * 5);
        }
    }
}
