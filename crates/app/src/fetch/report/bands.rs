//! When a gate was held, and when its breaker was not Closed: a bounded number of periods.

use std::time::Duration;

use super::{Band, BandKind};

/// How many periods a host has at most. Beyond it the two with the shortest gap are joined: at 800
/// pixels no more could be told apart.
pub(super) const MAX_BANDS: usize = 100;

/// The periods of one host, by start.
#[derive(Clone, Debug, Default)]
pub(super) struct Bands {
    periods: Vec<Period>,
    are_joined: bool,
}

#[derive(Clone, Debug)]
struct Period {
    kind: BandKind,
    from: Duration,
    to: Duration,
    reason: String,
}

impl Bands {
    /// From `from` to `to`; extends a period of this kind that has not ended before `from`.
    pub(super) fn add(
        &mut self,
        kind: BandKind,
        from: Duration,
        to: Duration,
        reason: impl FnOnce() -> String,
    ) {
        let last = self.last_mut(kind).filter(|last| last.to >= from);
        match last {
            Some(last) => last.to = last.to.max(to),
            None => self.periods.push(Period {
                kind,
                from,
                to,
                reason: reason(),
            }),
        }
        if self.periods.len() > MAX_BANDS {
            self.join_closest();
        }
    }

    /// The breaker is HalfOpen at `now`: since the end of its open time.
    pub(super) fn half_open(&mut self, now: Duration) {
        let since = self.last_mut(BandKind::Open).map(|open| {
            open.to = open.to.min(now);
            open.to
        });
        let known = self.last_mut(BandKind::HalfOpen).map(|half| half.from);
        let from = match (known, since) {
            // The same HalfOpen period as before, or the one after the last Open one.
            (Some(known), Some(since)) => known.max(since),
            (Some(known), None) => known,
            (None, since) => since.unwrap_or(now),
        };
        self.add(BandKind::HalfOpen, from, now, || "probing".to_owned());
    }

    /// A person or a used-up quota has isolated the gate, until it is closed again.
    pub(super) fn isolate(&mut self, now: Duration) {
        self.add(BandKind::Isolated, now, Duration::MAX, || {
            "isolated".to_owned()
        });
    }

    /// The breaker is Closed at `now`: whatever it was has ended.
    pub(super) fn close(&mut self, now: Duration) {
        for kind in [BandKind::Open, BandKind::HalfOpen, BandKind::Isolated] {
            if let Some(last) = self.last_mut(kind) {
                last.to = last.to.min(now).max(last.from);
            }
        }
    }

    fn last_mut(&mut self, kind: BandKind) -> Option<&mut Period> {
        let mut periods = self.periods.iter_mut().rev();
        periods.find(|period| period.kind == kind)
    }

    fn join_closest(&mut self) {
        let mut closest: Option<(Duration, usize, usize)> = None;
        for (index, period) in self.periods.iter().enumerate() {
            let mut later = self.periods.iter().enumerate().skip(index + 1);
            let next = later.find(|(_, next)| next.kind == period.kind);
            if let Some((next, at)) = next.map(|(next, at)| (next, at.from)) {
                let gap = at.saturating_sub(period.to);
                if closest.is_none_or(|(shortest, _, _)| gap < shortest) {
                    closest = Some((gap, index, next));
                }
            }
        }
        if let Some((_, first, second)) = closest {
            let joined = self.periods.remove(second);
            let first = &mut self.periods[first];
            first.to = first.to.max(joined.to);
            self.are_joined = true;
        }
    }

    pub(super) const fn are_joined(&self) -> bool {
        self.are_joined
    }

    /// The periods until `end`, by start.
    pub(super) fn until(&self, end: Duration) -> Vec<Band> {
        let started = self.periods.iter().filter(|period| period.from <= end);
        let mut bands: Vec<Band> = started
            .map(|period| Band {
                kind: period.kind,
                from_ms: millis(period.from),
                to_ms: millis(period.to.min(end)),
                reason: period.reason.clone(),
            })
            .collect();
        bands.sort_by_key(|band| band.from_ms);
        bands
    }
}

/// In whole milliseconds; saturates.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn shown(bands: &Bands, end: u64) -> Vec<(BandKind, u64, u64)> {
        let bands = bands.until(secs(end));
        let bands = bands.iter();
        bands
            .map(|band| (band.kind, band.from_ms / 1000, band.to_ms / 1000))
            .collect()
    }

    #[test]
    fn an_extended_hold_is_one_period() {
        let mut bands = Bands::default();
        bands.add(BandKind::Held, secs(1), secs(3), || "retry-after".into());
        bands.add(BandKind::Held, secs(2), secs(5), || "retry-after".into());
        bands.add(BandKind::Held, secs(7), secs(9), || "assumed".into());
        assert_eq!(
            shown(&bands, 8),
            [(BandKind::Held, 1, 5), (BandKind::Held, 7, 8)]
        );
    }

    #[test]
    fn half_open_starts_where_open_ended() {
        let mut bands = Bands::default();
        bands.add(BandKind::Open, secs(1), secs(3), String::new);
        bands.half_open(secs(4));
        bands.half_open(secs(5));
        bands.add(BandKind::Open, secs(6), secs(8), String::new);
        bands.half_open(secs(9));
        bands.close(secs(10));
        assert_eq!(
            shown(&bands, 20),
            [
                (BandKind::Open, 1, 3),
                (BandKind::HalfOpen, 3, 5),
                (BandKind::Open, 6, 8),
                (BandKind::HalfOpen, 8, 9),
            ]
        );
    }

    #[test]
    fn too_many_periods_are_joined_where_the_gap_is_shortest() {
        let mut bands = Bands::default();
        for index in 0..=MAX_BANDS as u64 {
            let shift = u64::from(index > 50);
            let from = secs(10 * index - shift);
            bands.add(BandKind::Held, from, from + secs(1), String::new);
        }
        assert!(bands.are_joined());
        let shown = shown(&bands, 100_000);
        assert_eq!(shown.len(), MAX_BANDS);
        assert_eq!(shown[50], (BandKind::Held, 500, 510));
    }
}
