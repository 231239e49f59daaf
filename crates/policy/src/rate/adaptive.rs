//! The default strategy: finds an unknown limit and stays just below it.
//!
//! It *searches* fast until the first refusal, falls below what the server delivered, *rises* back
//! to the ceiling, *stays* there for some time and then *probes* whether more is accepted. A probe
//! that goes well past the place of the last refusal shows that the limit has risen, and the search
//! begins again. One decrease per epoch allows large steps, because a burst of refusals is one event.
//!
//! **The ceiling is measured.** A token bucket is empty at two refusals, so what it accepted between
//! them is exactly what its limit gave, whatever the rate was. See [`refusal`] for buckets that save
//! nothing, windows, limits that others use too, and bans.
//!
//! Refusals indicate rate limits, latency indicates queues ([`guard`]). Failures other than 503 say
//! nothing about the rate; the breaker handles them.

use std::time::Duration;

use super::{CeilingSource, Moment, RateView, Reaction, Signal, Why};
use crate::gate::GateSettings;
use crate::time::Timestamp;

mod coarse;
mod delivery;
mod guard;
mod refusal;

use coarse::narrow;
pub(crate) use coarse::{Coarse, Rough};
use delivery::Delivery;
use guard::{LatencyGuard, Queueing};

/// The current phase of the strategy, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No ceiling is known: the rate grows fast.
    Searching,
    /// The rate grows towards the ceiling.
    Rising,
    /// The rate stays at the ceiling.
    Staying,
    /// The rate grows above the ceiling, in case the limit has risen.
    Probing,
}

/// The strategy's state. Rates are per second, times in seconds. What accepted responses change or
/// read comes first, in 64 bytes; what only refusals change comes last.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Adaptive {
    latency: LatencyGuard,
    delivery: Delivery,
    /// The limit as far as it is known; infinite if it is not.
    ceiling: f32,
    /// When staying or probing began.
    since: Coarse,
    phase: Phase,
    source: CeilingSource,
    /// Whether the bucket saves tokens, so that what is measured is exact.
    saves_tokens: bool,
    /// Whether the first measurement, which tells the burst, is still to come.
    is_burst_unknown: bool,
    /// Whether `opened_at` is when a window opened, so that a cycle of it can be measured.
    is_opening_known: bool,
    /// How much indicates that others use the limit too.
    sharing: u8,
    /// How many probes in a row were refused at the same place, see [`Adaptive::stay_seconds`];
    /// negative while the limit is likely to rise again.
    patience: i8,
    /// Refusals since the last success.
    streak: u8,
    /// Decreases since the rate last stayed long enough to probe.
    unstable: u8,
    bans: u8,
    /// The length of the server's window; zero if it does not seem to have one. Clients that share a
    /// bucket have something similar, see [`refusal`].
    period: Rough,
    /// The highest ceiling at which the rate stayed without a refusal; zero if there is none.
    confirmed: Rough,
    /// The rate at the last refusal; zero before the first.
    refused_at: Rough,
    /// The rate at which the last probe was refused; zero if there is none.
    probe_refused_at: Rough,
    /// What was measured between the last two refusals; zero if too little was sent.
    measured: Rough,
    /// Recent refusals at the last decrease, see [`Adaptive::recent_refusals`].
    recent_refusals: Rough,
    /// The rate is never higher, because the server banned this client; infinite without a ban.
    ban_cap: Rough,
    /// The last decrease, and the number of the request that was admitted last before it.
    fell_at: Coarse,
    fell_number: u32,
    /// When the server's window last opened, and how many requests had succeeded before.
    opened_at: Coarse,
    opened_succeeded: u32,
}

impl Adaptive {
    pub(crate) fn new(now: Timestamp) -> Self {
        let now_coarse = Coarse::of(now);
        Self {
            latency: LatencyGuard::new(now),
            delivery: Delivery::new(now),
            ceiling: f32::INFINITY,
            since: now_coarse,
            fell_at: now_coarse,
            fell_number: 0,
            opened_at: now_coarse,
            opened_succeeded: 0,
            period: Rough::ZERO,
            confirmed: Rough::ZERO,
            refused_at: Rough::ZERO,
            probe_refused_at: Rough::ZERO,
            measured: Rough::ZERO,
            recent_refusals: Rough::ZERO,
            ban_cap: Rough::INFINITY,
            phase: Phase::Searching,
            source: CeilingSource::Estimated,
            saves_tokens: false,
            is_burst_unknown: true,
            is_opening_known: false,
            sharing: 0,
            patience: 0,
            streak: 0,
            unstable: 0,
            bans: 0,
        }
    }

    /// The limit as far as it is known.
    pub(crate) fn ceiling(&self) -> Option<f64> {
        self.has_ceiling().then_some(f64::from(self.ceiling))
    }

    /// The rate is never higher, because the server banned this client.
    pub(crate) fn banned_above(&self) -> Option<f64> {
        self.ban_cap.get().is_finite().then_some(self.ban_cap.get())
    }

    /// What is known about the limit at this rate, for display.
    pub(crate) fn view(&self, rate: f64, paused_until: Timestamp, now: Timestamp) -> RateView {
        let can_probe = self.phase == Phase::Staying && rate < self.ban_cap.get();
        let stayed = self.since.max(Coarse::of(paused_until.min(now)), now);
        let stayed = Coarse::of(now).seconds_since(stayed).max(0.0);
        let left = (self.stay_seconds(rate) - stayed).max(self.calm_in(now));
        RateView {
            phase: self.phase,
            ceiling: self.ceiling(),
            source: self.has_ceiling().then_some(self.source),
            probes_at: can_probe.then(|| now.max(paused_until).after_seconds(left.max(0.0))),
            is_shared: self.is_shared(),
            period: self.window(),
            banned_above: self.banned_above(),
        }
    }

    /// The length of the server's window, if it seems to have one.
    fn window(&self) -> Option<Duration> {
        let period = self.period.get();
        let is_spacing = self.is_shared() && period <= refusal::MAX_SPACING_SECONDS;
        (period > 0.0 && !is_spacing).then(|| Duration::from_secs_f64(period))
    }

    /// Restores what was learned before a restart.
    pub(crate) fn restore(&mut self, ceiling: Option<f64>, banned_above: Option<f64>) {
        self.restore_ceiling(ceiling);
        self.ban_cap = banned_above.map_or(Rough::INFINITY, Rough::of);
    }

    /// Sets the ceiling, if there is one. What else was learned about it is forgotten.
    pub(crate) fn restore_ceiling(&mut self, ceiling: Option<f64>) {
        self.search();
        if let Some(ceiling) = ceiling {
            self.ceiling = narrow(ceiling);
            self.phase = Phase::Rising;
            self.source = CeilingSource::Restored;
        }
    }

    /// A window begins whose length is to be measured, or is known.
    pub(crate) fn begin_window(&mut self, begins: Coarse, rate: f64, moment: Moment) -> Reaction {
        self.follow_window(begins, moment);
        self.streak = 0;
        self.set_ceiling(rate, CeilingSource::Window);
        self.phase = Phase::Rising;
        self.is_opening_known = true;
        Reaction::lower(rate, Why::Throttled)
    }

    /// The rate for the window that begins.
    pub(crate) fn set_window_rate(&mut self, rate: f64) {
        self.ceiling = narrow(rate);
    }

    /// The limit is higher by this, as far as it is known.
    pub(crate) fn raise_ceiling(&mut self, by: f64) {
        self.ceiling += narrow(by);
    }

    /// Whether the number of unanswered attempts has reached its bound: twice what the rate fills
    /// at the usual latency, plus [`ALWAYS_IN_FLIGHT`]. More would only queue at the server. The
    /// bound is one while it is unknown whether the server accepts anything.
    #[inline]
    pub(crate) fn is_filled_by(&self, unanswered: u32, rate: f64) -> bool {
        if self.is_probing_blind() {
            return unanswered >= 1;
        }
        match self.latency.base() {
            Some(base) => f64::from(unanswered) >= f64::from(ALWAYS_IN_FLIGHT) + 2.0 * rate * base,
            None => false,
        }
    }

    /// The recent mean latency in seconds; zero before the first response.
    pub(crate) fn mean_latency(&self) -> f64 {
        self.latency.mean()
    }

    /// Whether the server has refused since the last success.
    pub(crate) fn is_refused(&self) -> bool {
        self.streak > 0
    }

    /// Whether it is unknown if the server accepts anything.
    #[inline]
    pub(crate) fn is_probing_blind(&self) -> bool {
        self.streak >= 2
    }

    /// Whether the server has refused everything for a while.
    #[inline]
    fn refuses_everything(&self) -> bool {
        self.streak >= 3
    }

    /// Whether a ceiling is known. Only then does the end of the last pause matter.
    #[inline]
    pub(crate) fn has_ceiling(&self) -> bool {
        self.ceiling.is_finite()
    }

    pub(crate) fn react(
        &mut self,
        settings: &GateSettings,
        signal: Signal,
        moment: Moment,
    ) -> Reaction {
        match signal {
            Signal::Accepted { latency } => self.accepted(settings, latency, moment),
            Signal::Refused { wait: Some(wait) } => self.directed(settings, wait, moment),
            Signal::Refused { wait: None } => self.refused(settings, moment),
            Signal::UsedUp { wait, refused } => self.used_up(settings, wait, refused, moment),
            Signal::Banned => self.banned(settings, moment),
            Signal::Failed => {
                // A failure is an answer too: the server has capacity for it.
                self.late_success(moment);
                Reaction::default()
            }
            Signal::BreakerClosed => self.recovered(settings, moment),
        }
    }

    /// Counts a response that is too late to teach anything else.
    pub(crate) fn late_success(&mut self, moment: Moment) {
        self.delivery.count(moment.now, self.stretch(moment.rate));
    }

    #[inline]
    pub(super) fn accepted(
        &mut self,
        settings: &GateSettings,
        latency: Duration,
        moment: Moment,
    ) -> Reaction {
        let Moment { now, rate, .. } = moment;
        self.delivery.count(now, self.stretch(rate));
        let refused_everything = self.refuses_everything();
        self.streak = 0;
        if refused_everything && let Some(reaction) = self.reopened(settings, moment) {
            return reaction;
        }
        match self.latency.measure(latency, rate, now) {
            Queueing::Building => self.slowed(settings, moment),
            Queueing::Lasting => self.eased(settings, moment),
            Queueing::Suspected => {
                self.since = Coarse::of(now);
                Reaction::default()
            }
            Queueing::None => self.grow(settings, moment),
        }
    }

    /// The server delivers less than the rate: what it delivers is its capacity.
    #[cold]
    fn slowed(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let capacity = moment.rate.min(self.delivered(moment));
        self.limit_by_latency(capacity);
        self.enter(Phase::Rising, moment.now);
        Reaction::lower((SLOWED * capacity).max(settings.min_rate), Why::SlowAnswers)
    }

    /// A few requests wait at the server all the time. Below the ceiling the queue shrinks anyway.
    /// This is no new epoch: responses on the way still tell whether the queue shrinks.
    #[cold]
    fn eased(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        if self.phase == Phase::Rising {
            return Reaction::default();
        }
        let rate = (EASED * moment.rate).max(settings.min_rate);
        self.limit_by_latency(rate);
        self.enter(Phase::Staying, moment.now);
        Reaction {
            rate: Some((rate, Why::SlowAnswers)),
            ..Reaction::default()
        }
    }

    /// The breaker has closed: the upstream gets time to recover.
    fn recovered(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        if !self.has_ceiling() {
            self.set_ceiling(moment.rate, CeilingSource::Recovery);
        }
        self.enter(Phase::Rising, moment.now);
        Reaction::lower((moment.rate * 0.5).max(settings.min_rate), Why::Recovered)
    }

    #[inline]
    fn grow(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let rate = moment.rate;
        let step = match self.phase {
            Phase::Searching if rate < 1.0 => 0.25 * rate,
            Phase::Searching => (0.5 * rate).min(1.0),
            // A late ban bounds the rate, and the first success of the present epoch lowers it.
            _ if rate > self.ban_cap.get() => {
                return Reaction {
                    rate: Some((self.ban_cap.get(), Why::Banned)),
                    ..Reaction::default()
                };
            }
            Phase::Rising | Phase::Staying | Phase::Probing => self.step_at_ceiling(moment),
        };
        if step <= 0.0 || rate >= settings.max_rate {
            return Reaction::default();
        }
        // An unused rate proves nothing. This limits growth only; it never lowers the rate.
        let used = 1.6 * self.delivered(moment) + 4.0;
        let bound = settings.max_rate.min(self.ban_cap.get()).min(used);
        let mut grown = rate.max((rate + step).min(bound));
        match self.phase {
            Phase::Rising if grown >= f64::from(self.ceiling) => {
                grown = rate.max(f64::from(self.ceiling));
                self.enter(Phase::Staying, moment.now);
            }
            Phase::Probing if self.is_disproved_by(grown) => self.search(),
            Phase::Searching | Phase::Rising | Phase::Staying | Phase::Probing => {}
        }
        if grown > rate {
            Reaction::raise(grown)
        } else {
            Reaction::default()
        }
    }

    #[inline(never)]
    fn step_at_ceiling(&mut self, moment: Moment) -> f64 {
        let Moment {
            now,
            rate,
            paused_until,
            ..
        } = moment;
        let ceiling = f64::from(self.ceiling);
        self.since = self.since.max(Coarse::of(paused_until.min(now)), now);
        match self.phase {
            Phase::Rising if rate < QUICK * ceiling => (0.1 * rate).min(1.0),
            Phase::Rising => RISE_PER_SECOND * ceiling / rate,
            Phase::Probing => self.probe_step(moment),
            Phase::Staying => {
                let stayed = self.since.seconds_until(now) >= self.stay_seconds(rate);
                if stayed && self.calm_in(now) <= 0.0 && rate < self.ban_cap.get() {
                    self.begin_probe(now);
                }
                0.0
            }
            Phase::Searching => 0.0,
        }
    }

    fn begin_probe(&mut self, now: Timestamp) {
        if self.is_guess() {
            // What was measured was less than the guess, and the guess was right.
            self.saves_tokens = false;
        }
        self.confirmed = Rough::of(f64::from(self.ceiling));
        self.source = CeilingSource::Confirmed;
        self.unstable = 0;
        self.enter(Phase::Probing, now);
    }

    /// The same for every rate, so that clients that share a limit gain equally. Alone at a window,
    /// at least [`WINDOW_SLOPE`] of the ceiling: doublings take too long there to make up for it.
    fn probe_step(&self, moment: Moment) -> f64 {
        let rate = moment.rate;
        let period = self.period.get();
        let (doubling, requests, share): (f64, f64, f64) = match self.is_shared() {
            true => (4.0, SHARED_DOUBLING_REQUESTS, SHARED_SLOPE),
            false => (0.6, 4.0, 0.1),
        };
        let doubling = doubling
            .max(4.0 * self.latency.mean())
            .max(requests / rate)
            .max(0.5 * period);
        let ceiling = f64::from(self.ceiling);
        let mut slope = (share * ceiling).min(0.5) * (5.0 / period).min(1.0);
        if period > 0.0 && !self.is_shared() {
            slope = slope.max(WINDOW_SLOPE * ceiling);
        }
        let doublings = (self.since.seconds_until(moment.now) / doubling).min(20.0);
        let max_step = if is_slow(rate) {
            MAX_STEP_SLOW
        } else {
            MAX_STEP
        };
        (slope * doublings.exp2() / rate).min(max_step * rate)
    }

    /// Whether a probe at this rate shows that the limit has risen.
    fn is_disproved_by(&self, rate: f64) -> bool {
        let ceiling = f64::from(self.ceiling);
        if self.is_shared() {
            return rate > 2.0 * ceiling + 2.0;
        }
        let last = self.probe_refused_at.get();
        rate > 1.5 * ceiling + 2.0 || last > 0.0 && rate > 1.1 * last + 0.5
    }

    /// The ceiling is wrong.
    fn search(&mut self) {
        self.ceiling = f32::INFINITY;
        self.confirmed = Rough::ZERO;
        self.probe_refused_at = Rough::ZERO;
        self.measured = Rough::ZERO;
        self.phase = Phase::Searching;
        self.patience = 0;
        self.period = Rough::ZERO;
        self.is_opening_known = false;
        self.is_burst_unknown = false;
        self.unstable = 0;
    }

    fn set_ceiling(&mut self, ceiling: f64, source: CeilingSource) {
        self.ceiling = narrow(ceiling);
        self.source = source;
    }

    /// A queue limits the client. That refusals come at other places than before does not show other
    /// clients then: a queue makes room for more than its server delivers.
    fn limit_by_latency(&mut self, ceiling: f64) {
        self.sharing = self.sharing.saturating_sub(1);
        self.set_ceiling(ceiling, CeilingSource::Latency);
    }

    fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.phase = phase;
        self.since = Coarse::of(now);
    }

    /// How long to stay at the ceiling, in seconds.
    fn stay_seconds(&self, rate: f64) -> f64 {
        let (least, requests): (f64, f64) = match self.patience {
            _ if self.is_shared() => (1.0, 4.0),
            ..=0 => (3.0, 16.0),
            1 => (5.0, 32.0),
            2 => (10.0, 64.0),
            3.. => (15.0, 64.0),
        };
        // The slower the rate, the larger the share of a refusal.
        let requests = match self.patience {
            _ if rate < 1.0 => 2.0 * requests,
            2.. if rate < RATHER_SLOW_RATE && !self.is_shared() => 1.4 * requests,
            _ => requests,
        };
        least.max(requests / rate).max(self.period.get())
    }

    /// Others use the limit too. Then it gives way like everyone else, instead of returning to a
    /// ceiling of its own.
    fn is_shared(&self) -> bool {
        self.sharing >= 2
    }

    /// Whether the ceiling was never measured or confirmed.
    fn is_guess(&self) -> bool {
        matches!(
            self.source,
            CeilingSource::Estimated | CeilingSource::Window
        )
    }

    fn delivered(&self, moment: Moment) -> f64 {
        self.delivery
            .per_second(moment.now, self.stretch(moment.rate))
    }

    /// The rate has fallen for another reason, so it has to rise to the ceiling again.
    pub(crate) fn forget_growth(&mut self) {
        if self.has_ceiling() {
            self.phase = Phase::Rising;
        }
    }

    /// Nothing is sent until then. The first responses after that are the fastest.
    pub(crate) fn pause_until(&mut self, until: Timestamp) {
        self.latency.settle(until);
    }

    /// The interval over which delivery is measured: long enough for a handful of responses.
    #[inline]
    fn stretch(&self, rate: f64) -> f64 {
        // At 20 per second and above, six responses arrive within the shortest interval, and the
        // division by the rate can be skipped; below, they take longer.
        let handful = if rate < 20.0 {
            6.0 / rate
        } else {
            MIN_STRETCH_SECONDS
        };
        let round_trips = 2.0 * self.latency.mean();
        if round_trips > handful {
            round_trips
        } else {
            handful
        }
    }
}

/// When an attempt last started or ended, in seconds modulo 18 hours. Stored apart from the rest of
/// the state, because every granted ask writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastProgress(u16);

impl LastProgress {
    #[expect(clippy::cast_possible_truncation, reason = "modulo 18 hours is meant")]
    pub(crate) fn at(now: Timestamp) -> Self {
        Self((now.as_nanos() / 1_000_000_000) as u16)
    }

    /// When attempts in flight count as lost if none starts or ends meanwhile. Without this, a
    /// handful of attempts that never return would block the gate.
    pub(crate) fn waits_until(self, now: Timestamp, lost_after: Duration) -> Timestamp {
        let silent_for = u64::from(Self::at(now).0.wrapping_sub(self.0));
        now + lost_after.saturating_sub(Duration::from_secs(silent_for))
    }
}

/// The minimum bound on attempts in flight, however fast responses are.
pub(crate) const ALWAYS_IN_FLIGHT: u32 = 6;

/// Over shorter intervals the delivered rate is mostly noise.
const MIN_STRETCH_SECONDS: f64 = 0.3;

/// Below this share of the ceiling the rate rises by a tenth per response.
const QUICK: f64 = 0.84;
/// Above it, by this share of the ceiling per second, so that a bucket can save a few tokens.
const RISE_PER_SECOND: f64 = 0.2;

/// Empties a queue of half a second within four seconds. With 0.8, 40 slots lose 1 % of goodput.
const SLOWED: f64 = 0.85;
/// With 0.97, servers with few slots lose 0.5 % of goodput.
const EASED: f64 = 0.99;

/// A probe of a window grows by at least this share of the ceiling per second. Without it, 589/s in
/// windows of 24 s was still missed by a quarter after two minutes of probing.
const WINDOW_SLOPE: f64 = 0.005;

/// The slope of a probe by a client that shares a limit, as a share of the ceiling per second. At a shared
/// limit a client is refused by chance, so what it gains meanwhile decides how often: with 0.1, clients of
/// 2/s were refused 7 % of their requests. With 0.03, 11 more of 1400 random upstreams are refused too often.
const SHARED_SLOPE: f64 = 0.02;
/// So many requests without a refusal let the slope double; fewer say little at a shared limit. With 64, eight
/// clients at 100/s share it less equally: Jain's index is 0.94 instead of 0.96.
const SHARED_DOUBLING_REQUESTS: f64 = 32.0;

/// A probe grows by at most this share of the rate with each response.
const MAX_STEP: f64 = 0.25;
/// Below [`SLOW_RATE`] a refusal is a large share of all requests. A probe in small steps tells the
/// limit by a single one.
const MAX_STEP_SLOW: f64 = 0.1;
/// Per second.
const SLOW_RATE: f64 = 2.0;
/// Below this rate, per second, long stays are longer by two fifths. A probe after every 64 requests alone is
/// 1.6 %: without it, 15 more of 1400 random upstreams are refused too often.
const RATHER_SLOW_RATE: f64 = 6.0;

fn is_slow(rate: f64) -> bool {
    rate < SLOW_RATE
}

/// Probes refused at the same place that make stays longer.
const MAX_PATIENCE: i8 = 3;
/// After the limit fell: so many short stays more, because it is likely to rise again.
const EAGER: i8 = -6;
