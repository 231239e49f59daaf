//! The breaker of a gate: Closed, Open, HalfOpen, Isolated.
//!
//! It opens on consecutive failures or on a failure rate in a sliding window, and lets nothing
//! through while Open. Then it probes: a bounded number of probes at once, as many successes close
//! it, and the first failure opens it again for longer. Only failures can trip it, so a success
//! never opens it.
//!
//! Open becomes HalfOpen by time alone. Nothing runs at that instant; the next call applies the
//! change ([`Breaker::advance`]). Probe slots cannot leak: a permit carries the *round* it was
//! issued in, every change of state starts a new round, and only a permit of the current round
//! returns its slot. A probe without a result counts as lost after the longest time a response may
//! take, and at least [`MIN_PROBE_LOST_AFTER`], so no breaker stays HalfOpen indefinitely.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Timestamp;
use crate::window::{Counts, Window};

/// When a breaker opens and how it closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// The failure rate in the window that opens it, above 0 and at most 1.
    pub error_rate_threshold: f64,
    /// With fewer outcomes in the window, the failure rate does not open it.
    pub min_samples: u32,
    /// This many consecutive failures open it whatever the window says.
    pub consecutive_failures: u16,
    /// Length of the sliding window.
    pub window: Duration,
    /// The window moves in steps of this length.
    pub window_slice: Duration,
    /// The length of the first open time.
    pub open_first: Duration,
    /// Later open times grow by [`OPEN_GROWTH`] up to this.
    pub open_for: Duration,
    /// The maximum number of concurrent probes, and the number of successes that close it.
    pub half_open_probes: u8,
    /// Send one probe first; the next after its success, or after the open time.
    pub one_probe_first: bool,
    /// A probe without a result counts as lost after this; at least [`MIN_PROBE_LOST_AFTER`].
    pub probe_lost_after: Duration,
}

/// The state of a breaker: what it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything, the normal state.
    Closed,
    /// Nothing, until the open time ends.
    Open,
    /// Probes only.
    HalfOpen,
    /// Nothing, until a person ends it.
    Isolated,
}

impl BreakerState {
    /// The name in logs, metrics, replay and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Isolated => "isolated",
        }
    }
}

/// What an attempt says about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The upstream works.
    Success,
    /// The upstream does not work.
    Failure,
    /// Neither: counted in the total, but not as a failure, and it resets nothing.
    Neutral,
    /// Says nothing about the upstream's health: not counted.
    Silent,
}

/// How a signal changed the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It opened, from Closed or from HalfOpen.
    Opened,
    /// Its probes succeeded.
    Closed,
}

/// The round of probes that a permit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe(NonZeroU32);

/// A breaker. The fields that a success touches come last: everything but the older slices of the
/// window and the end of the open time.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Breaker {
    /// While Open: the end of the open time. While HalfOpen: when outstanding probes count as lost.
    until: Timestamp,
    window: Window,
    state: BreakerState,
    probes_out: u8,
    successes: u8,
    /// How many times it opened without closing in between; determines the next open time.
    openings: u8,
    consecutive: u16,
    round: u16,
}

impl Breaker {
    /// A closed breaker without history.
    pub fn new() -> Self {
        Self {
            until: Timestamp::ZERO,
            window: Window::new(),
            state: BreakerState::Closed,
            probes_out: 0,
            successes: 0,
            openings: 0,
            consecutive: 0,
            round: 0,
        }
    }

    /// The state at `now`; HalfOpen from the end of the open time.
    pub fn state(&self, now: Timestamp) -> BreakerState {
        match self.state {
            BreakerState::Open if now >= self.until => BreakerState::HalfOpen,
            state => state,
        }
    }

    /// Whether it is Closed, which does not depend on the time.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// [`Breaker::record`] for a success while Closed, which changes no state.
    #[inline]
    pub(crate) fn succeed_while_closed(&mut self, settings: &BreakerSettings, now: Timestamp) {
        self.count(settings, false, now);
        self.consecutive = 0;
    }

    /// The end of the open time, while Open.
    pub fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.state(now) == BreakerState::Open).then_some(self.until)
    }

    /// The end of the open time, while Open and until the next call after that.
    pub(crate) fn pending_end(&self) -> Option<Timestamp> {
        (self.state == BreakerState::Open).then_some(self.until)
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u16 {
        self.consecutive
    }

    /// The counts in the window.
    pub fn counts(&self, settings: &BreakerSettings, now: Timestamp) -> Counts {
        self.window
            .counts(settings.window, settings.window_slice, now)
    }

    /// Applies the passing of time: Open becomes HalfOpen, and lost probes are given up.
    pub fn advance(&mut self, now: Timestamp) {
        let over = now >= self.until;
        match self.state {
            BreakerState::Open if over => self.enter(BreakerState::HalfOpen),
            BreakerState::HalfOpen if over && self.probes_out > 0 => {
                self.probes_out = 0;
                self.round = self.round.wrapping_add(1);
            }
            BreakerState::Closed
            | BreakerState::Open
            | BreakerState::HalfOpen
            | BreakerState::Isolated => {}
        }
    }

    /// How many more probes may be sent at `now`; call [`Breaker::advance`] first.
    pub fn free_probes(&self, settings: &BreakerSettings, now: Timestamp) -> u32 {
        if self.state != BreakerState::HalfOpen || self.next_probe(settings) > Some(now) {
            return 0;
        }
        let free = settings.half_open_probes.saturating_sub(self.probes_out);
        u32::from(free).min(max_probes_at_once(settings))
    }

    /// When the next probe may be sent at the latest if the outstanding ones get no result. `None`
    /// if one may be sent now, or if the breaker is not HalfOpen.
    pub fn next_probe(&self, settings: &BreakerSettings) -> Option<Timestamp> {
        if self.state != BreakerState::HalfOpen || self.probes_out == 0 {
            return None;
        }
        if self.probes_out >= settings.half_open_probes {
            return Some(self.until);
        }
        settings.one_probe_first.then(|| {
            // The last probe was sent `probe_lost_after` before `until`.
            let until = self.until.since(Timestamp::ZERO);
            let last_probe = Timestamp::ZERO + until.saturating_sub(settings.probe_lost_after);
            last_probe + open_time(settings, self.openings.saturating_sub(1))
        })
    }

    /// Issues a probe while HalfOpen; `None` while Closed.
    pub fn admit(&mut self, settings: &BreakerSettings, now: Timestamp) -> Option<Probe> {
        if self.state != BreakerState::HalfOpen {
            return None;
        }
        self.probes_out = self.probes_out.saturating_add(1);
        self.until = self.until.max(now + settings.probe_lost_after);
        Some(self.probe())
    }

    fn probe(&self) -> Probe {
        // One more than the round, so that zero can mean a permit without a probe.
        Probe(NonZeroU32::MIN.saturating_add(u32::from(self.round)))
    }

    /// Returns a probe's slot. Probes of an earlier round have none: `false` while HalfOpen means
    /// that the outcome is too late to count.
    pub fn give_back(&mut self, probe: Option<Probe>) -> bool {
        if self.state != BreakerState::HalfOpen {
            return true;
        }
        let present = probe == Some(self.probe());
        if present {
            self.probes_out = self.probes_out.saturating_sub(1);
        }
        present
    }

    /// Records the outcome of an attempt of the current epoch. Its probe has already been returned.
    pub fn record(
        &mut self,
        settings: &BreakerSettings,
        signal: Signal,
        now: Timestamp,
    ) -> Option<Change> {
        match signal {
            Signal::Silent => None,
            Signal::Neutral => {
                self.count(settings, false, now);
                None
            }
            Signal::Success => {
                self.count(settings, false, now);
                self.consecutive = 0;
                self.succeed(settings)
            }
            Signal::Failure => {
                self.count(settings, true, now);
                self.consecutive = self.consecutive.saturating_add(1);
                self.fail(settings, now)
            }
        }
    }

    /// Refuses every ask until a person ends it.
    pub fn isolate(&mut self) {
        self.enter(BreakerState::Isolated);
    }

    /// A person resets it: Closed, without history.
    pub fn reset(&mut self) {
        let round = self.round.wrapping_add(1);
        *self = Self {
            round,
            ..Self::new()
        };
    }

    /// The slice length has changed, so the window's content is no longer comparable.
    pub(crate) fn forget_window(&mut self) {
        self.window.clear();
    }

    /// The state to persist. The window is not persisted, because it covers only seconds.
    pub fn record_state(&self, now: Timestamp) -> BreakerRecord {
        BreakerRecord {
            state: self.state(now),
            open_for: self
                .open_until(now)
                .map(|until| until.since(now))
                .unwrap_or_default(),
            openings: self.openings,
        }
    }

    /// Restores a breaker. One that was HalfOpen starts its probes again.
    pub fn restore(record: &BreakerRecord, now: Timestamp) -> Self {
        let state = match record.state {
            BreakerState::HalfOpen => BreakerState::Open,
            state => state,
        };
        Self {
            state,
            openings: record.openings,
            until: now + record.open_for,
            ..Self::new()
        }
    }

    #[inline]
    fn count(&mut self, settings: &BreakerSettings, failed: bool, now: Timestamp) {
        self.window.record(settings.window_slice, now, failed);
    }

    fn succeed(&mut self, settings: &BreakerSettings) -> Option<Change> {
        if self.state != BreakerState::HalfOpen {
            return None;
        }
        self.successes = self.successes.saturating_add(1);
        if self.successes < settings.half_open_probes {
            return None;
        }
        self.enter(BreakerState::Closed);
        self.openings = 0;
        self.window.clear();
        Some(Change::Closed)
    }

    fn fail(&mut self, settings: &BreakerSettings, now: Timestamp) -> Option<Change> {
        let opens = match self.state {
            BreakerState::Closed => self.trips(settings, now),
            BreakerState::HalfOpen => true,
            BreakerState::Open | BreakerState::Isolated => false,
        };
        if !opens {
            return None;
        }
        self.until = now + open_time(settings, self.openings);
        self.openings = self.openings.saturating_add(1);
        self.enter(BreakerState::Open);
        Some(Change::Opened)
    }

    fn trips(&self, settings: &BreakerSettings, now: Timestamp) -> bool {
        if self.consecutive >= settings.consecutive_failures {
            return true;
        }
        let counts = self.counts(settings, now);
        counts.total >= settings.min_samples && counts.error_rate() >= settings.error_rate_threshold
    }

    fn enter(&mut self, state: BreakerState) {
        self.state = state;
        self.probes_out = 0;
        self.successes = 0;
        self.round = self.round.wrapping_add(1);
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

/// A breaker as it is stored: durations instead of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRecord {
    /// Its state when it was recorded.
    pub state: BreakerState,
    /// The remaining open time.
    pub open_for: Duration,
    /// How many times it opened without closing in between.
    pub openings: u8,
}

/// The factor between open times: fast recovery from short failures, few probes during long
/// outages.
pub const OPEN_GROWTH: f64 = 1.6;

/// The minimum time after which a probe counts as lost: twice the default time to the first byte.
pub const MIN_PROBE_LOST_AFTER: Duration = Duration::from_secs(120);

/// How many probes may be sent together when the breaker becomes HalfOpen.
pub(crate) fn max_probes_at_once(settings: &BreakerSettings) -> u32 {
    if settings.one_probe_first {
        1
    } else {
        u32::from(settings.half_open_probes)
    }
}

fn open_time(settings: &BreakerSettings, openings: u8) -> Duration {
    let growth = OPEN_GROWTH.powi(i32::from(openings));
    let grown = settings.open_first.as_secs_f64() * growth;
    Duration::try_from_secs_f64(grown)
        .unwrap_or(Duration::MAX)
        .min(settings.open_for)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        error_rate_threshold: 0.4,
        min_samples: 10,
        consecutive_failures: 5,
        window: Duration::from_secs(30),
        window_slice: Duration::from_secs(2),
        open_first: Duration::from_secs(15),
        open_for: Duration::from_secs(15),
        half_open_probes: 3,
        one_probe_first: false,
        probe_lost_after: MIN_PROBE_LOST_AFTER,
    };

    impl Breaker {
        /// What a success touches: so many bytes at the end.
        pub(crate) const BYTES_OF_SUCCESS: usize =
            size_of::<Self>() - offset_of!(Self, window) - Window::OLDER_BYTES;
    }

    #[test]
    fn size_is_a_cache_line() {
        assert_eq!(size_of::<Breaker>(), 64);
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    /// Feeds a sequence of `S`uccess, `F`ailure, `N`eutral and `-` silent, 0.1 s apart.
    fn after(signals: &str) -> Breaker {
        let mut breaker = Breaker::new();
        for (i, signal) in signals.chars().enumerate() {
            let signal = match signal {
                'S' => Signal::Success,
                'F' => Signal::Failure,
                'N' => Signal::Neutral,
                _ => Signal::Silent,
            };
            let now = Timestamp::from_millis(100 * (i as u64 + 1));
            breaker.record(&SETTINGS, signal, now);
        }
        breaker
    }

    fn state_after(signals: &str) -> BreakerState {
        after(signals).state(at(2))
    }

    #[test]
    fn opens_on_consecutive_failures() {
        assert_eq!(state_after("FFFF"), BreakerState::Closed);
        assert_eq!(state_after("FFFFF"), BreakerState::Open);
        assert_eq!(
            state_after("FFSFFF"),
            BreakerState::Closed,
            "a success resets the count"
        );
        assert_eq!(
            state_after("FFNF-FF"),
            BreakerState::Open,
            "a neutral outcome resets nothing"
        );
    }

    #[test]
    fn opens_on_failure_rate_with_enough_samples() {
        assert_eq!(
            state_after("FFSFFSFFS"),
            BreakerState::Closed,
            "nine samples are not enough"
        );
        assert_eq!(state_after("FFSFFSFFSF"), BreakerState::Open);
        assert_eq!(
            state_after("SFSFSSSSSF"),
            BreakerState::Closed,
            "three of ten"
        );
        assert_eq!(
            state_after("SFSFSFSSSF"),
            BreakerState::Open,
            "exactly four of ten"
        );
        assert_eq!(
            state_after("SFSFSF---F"),
            BreakerState::Closed,
            "silent outcomes are not counted"
        );
        assert_eq!(
            state_after("SFSFSFNNNF"),
            BreakerState::Open,
            "neutral outcomes are"
        );
    }

    #[test]
    fn success_never_opens() {
        assert_eq!(
            state_after("FFSFFSFFSS"),
            BreakerState::Closed,
            "six of ten, but only failures trip it"
        );
    }

    #[test]
    fn old_failures_do_not_count() {
        let mut breaker = after("FFSFFSFFS");
        assert_eq!(breaker.record(&SETTINGS, Signal::Failure, at(40)), None);
        assert_eq!(breaker.counts(&SETTINGS, at(40)).total, 1);
    }

    #[test]
    fn signals_while_open_or_isolated_change_no_state() {
        let mut breaker = after("FFFFF");
        assert_eq!(breaker.record(&SETTINGS, Signal::Failure, at(3)), None);
        assert_eq!(breaker.record(&SETTINGS, Signal::Success, at(3)), None);
        assert_eq!(
            breaker.open_until(at(3)),
            Some(Timestamp::from_millis(15_500))
        );
        breaker.isolate();
        assert_eq!(breaker.record(&SETTINGS, Signal::Success, at(99)), None);
        assert_eq!(
            (breaker.state(at(99)), breaker.open_until(at(99))),
            (BreakerState::Isolated, None)
        );
        breaker.reset();
        assert_eq!(
            (breaker.state(at(99)), breaker.consecutive_failures()),
            (BreakerState::Closed, 0)
        );
    }

    #[test]
    fn probes_of_an_earlier_round_return_no_slot() {
        let mut breaker = after("FFFFF");
        breaker.advance(at(16));
        let old = [
            breaker.admit(&SETTINGS, at(16)),
            breaker.admit(&SETTINGS, at(16)),
        ];
        assert_eq!(breaker.free_probes(&SETTINGS, at(16)), 1);
        assert_eq!(
            breaker.record(&SETTINGS, Signal::Failure, at(17)),
            Some(Change::Opened)
        );
        breaker.advance(at(32));
        let present = breaker.admit(&SETTINGS, at(32));
        assert!(
            !breaker.give_back(old[0]) && !breaker.give_back(old[1]) && !breaker.give_back(None)
        );
        assert_eq!(breaker.free_probes(&SETTINGS, at(32)), 2);
        assert!(breaker.give_back(present));
        assert_eq!(breaker.free_probes(&SETTINGS, at(32)), 3);
    }

    #[test]
    fn next_probe_is_due_when_outstanding_probes_are_lost() {
        let mut breaker = after("FFFFF");
        assert_eq!(breaker.next_probe(&SETTINGS), None);
        breaker.advance(at(16));
        for second in 16..19 {
            assert_eq!(breaker.next_probe(&SETTINGS), None);
            assert!(breaker.admit(&SETTINGS, at(second)).is_some());
        }
        assert_eq!(breaker.next_probe(&SETTINGS), Some(at(18 + 120)));
        breaker.advance(at(18 + 119));
        assert_eq!(breaker.free_probes(&SETTINGS, at(18 + 119)), 0);
        breaker.advance(at(18 + 120));
        assert_eq!(breaker.free_probes(&SETTINGS, at(18 + 120)), 3);
    }

    #[test]
    fn one_probe_first_sends_the_next_after_a_success_or_the_open_time() {
        let settings = BreakerSettings {
            one_probe_first: true,
            ..SETTINGS
        };
        let mut breaker = after("FFFFF");
        breaker.advance(at(16));
        assert_eq!(breaker.free_probes(&settings, at(16)), 1);
        let first = breaker.admit(&settings, at(16));
        assert_eq!(breaker.next_probe(&settings), Some(at(16 + 15)));
        assert_eq!(breaker.free_probes(&settings, at(30)), 0);
        assert_eq!(breaker.free_probes(&settings, at(31)), 1, "no result yet");
        breaker.give_back(first);
        breaker.record(&settings, Signal::Success, at(20));
        assert_eq!(breaker.free_probes(&settings, at(20)), 1);
        for second in [20, 35, 50] {
            assert!(breaker.admit(&settings, at(second)).is_some());
        }
        assert_eq!(breaker.next_probe(&settings), Some(at(50 + 120)), "all out");
    }

    #[test]
    fn open_times_never_overflow() {
        let settings = BreakerSettings {
            open_first: Duration::from_secs(1 << 40),
            open_for: Duration::MAX,
            ..SETTINGS
        };
        assert_eq!(open_time(&settings, u8::MAX), Duration::MAX);
        assert_eq!(open_time(&SETTINGS, u8::MAX), SETTINGS.open_for);
    }

    #[test]
    fn record_keeps_remaining_open_time() {
        let breaker = after("FFFFF");
        let restored = Breaker::restore(&breaker.record_state(at(10)), at(100));
        assert_eq!(
            restored.open_until(at(100)),
            Some(Timestamp::from_millis(105_500))
        );
        assert_eq!(
            restored.record_state(at(100)).openings,
            1,
            "the next open time is longer"
        );
        let half_open = breaker.record_state(at(16));
        assert_eq!(
            Breaker::restore(&half_open, at(100)).state(at(100)),
            BreakerState::HalfOpen
        );
        assert_eq!(
            Breaker::default().record_state(at(1)).state,
            BreakerState::Closed
        );
    }
}
