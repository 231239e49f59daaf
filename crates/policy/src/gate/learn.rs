//! Applies outcomes to hold, breaker and rate, once each.

use std::time::Duration;

use super::{Gate, GateSettings, Permit, ResponseBody};
use crate::breaker::{self, Change};
use crate::hint::Source;
use crate::outcome::{Outcome, UpstreamResponse, Verdict};
use crate::rate::{self, LastProgress, Moment, Reaction, Strategy, Why};
use crate::time::{CoarseTime, Timestamp};

impl Gate {
    /// Returns a permit with its outcome; the attempt is over. `verdict` is `None` for responses
    /// that change nothing.
    #[inline(always)]
    pub fn settle(
        &mut self,
        settings: &GateSettings,
        permit: Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        self.counters.end();
        self.learn_from(settings, &permit, outcome, verdict, now);
    }

    /// Settles at the head of a response whose body has not ended: the gate learns from the
    /// outcome, and the attempt stays in flight until [`Gate::finish`].
    pub fn settle_head(
        &mut self,
        settings: &GateSettings,
        permit: Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> ResponseBody {
        self.counters.answer();
        self.learn_from(settings, &permit, outcome, verdict, now);
        ResponseBody(())
    }

    /// Ends the body of a response, or stops reading it: the attempt is no longer in flight.
    pub fn finish(&mut self, settings: &GateSettings, body: ResponseBody, now: Timestamp) {
        let ResponseBody(()) = body;
        self.advance(settings, now);
        self.counters.finish();
        self.update_fast_path();
    }

    #[inline(always)]
    fn learn_from(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let says_nothing_else = outcome.hint.remaining.is_none() && outcome.used.is_none();
        let is_fast = self.has_fast_path && settings.enabled;
        if is_fast && verdict == Some(Verdict::Success) && says_nothing_else {
            self.settle_plain_success(settings, permit.epoch, outcome, now);
        } else {
            self.settle_slow_path(settings, permit, outcome, verdict, now);
        }
    }

    /// The fast path for most outcomes: a success without a remaining count, at a gate that has a
    /// fast path and keeps it. It takes the same steps as the slow path, without those that would
    /// have no effect.
    #[inline(never)]
    fn settle_plain_success(
        &mut self,
        settings: &GateSettings,
        epoch: u32,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket.refill_unpaused(now, burst);
        self.last_progress = LastProgress::at(now);
        self.last_success = Some(CoarseTime::of(now));
        if let UpstreamResponse::Status(_) = outcome.response {
            self.latency.record(outcome.latency);
        }
        self.succeeded = self.succeeded.saturating_add(1);
        let moment = self.moment(settings, now);
        if epoch != self.counters.epoch() {
            self.adaptive.late_success(moment);
            return;
        }
        self.breaker.succeed_while_closed(&settings.breaker, now);
        let reaction = rate::accepted(settings, &mut self.adaptive, outcome.latency, moment);
        self.apply(settings, reaction, now);
    }

    #[inline(never)]
    pub(super) fn settle_slow_path(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        self.advance(settings, now);
        let present = self.end_attempt(permit, now);
        self.learn_outcome(settings, permit, outcome, verdict, present, now);
        self.update_fast_path();
    }

    fn learn_outcome(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        present: bool,
        now: Timestamp,
    ) {
        if verdict == Some(Verdict::Success) {
            self.last_success = Some(CoarseTime::of(now));
        }
        if !settings.enabled {
            return;
        }
        if let Some(used) = outcome.used {
            self.correct(settings, permit.cost.get(), used);
        }
        if let UpstreamResponse::Status(_) = outcome.response {
            self.latency.record(outcome.latency);
        }
        let Some(verdict) = verdict else { return };
        self.count(verdict);
        let left = self.left(settings, permit, outcome);
        let exhausted = left == Some(0);
        if let Some(wait) = hinted_wait(outcome, verdict, exhausted) {
            self.hold(now + wait, outcome.hint.source.unwrap_or(Source::Assumed));
        }
        if present {
            self.learn(settings, outcome, verdict, left, now);
        } else if verdict == Verdict::Success {
            self.adaptive.late_success(self.moment(settings, now));
        }
    }

    /// Returns an unused permit: certainly nothing was sent. Like [`Gate::abandon`], but returns
    /// the tokens, up to the burst, and the units of known limits. Tickets in line may be able to
    /// leave now.
    pub fn give_back(&mut self, settings: &GateSettings, permit: Permit, now: Timestamp) {
        self.advance(settings, now);
        self.counters.end();
        self.end_attempt(&permit, now);
        if !settings.enabled {
            return;
        }
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket.correct(-f64::from(permit.cost.get()), burst);
        if let Some(limits) = &mut self.limits {
            limits.give_back(permit.cost.get(), permit.admitted_at, now);
        }
    }

    /// Returns a permit without an outcome: it is unknown whether anything was sent.
    pub fn abandon(&mut self, settings: &GateSettings, permit: Permit, now: Timestamp) {
        self.advance(settings, now);
        self.counters.end();
        self.end_attempt(&permit, now);
    }

    /// Ends an attempt, except for its body: frees everything it held but its slot in flight.
    /// Returns `true` if its outcome belongs to the current epoch.
    fn end_attempt(&mut self, permit: &Permit, now: Timestamp) -> bool {
        self.last_progress = LastProgress::at(now);
        let probing = self.breaker.give_back(permit.probe);
        self.update_fast_path();
        permit.epoch == self.counters.epoch() && probing
    }

    fn correct(&mut self, settings: &GateSettings, asked: u32, used: u32) {
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket
            .correct(f64::from(used) - f64::from(asked), burst);
        if let Some(limits) = &mut self.limits {
            limits.correct(asked, used);
        }
    }

    fn count(&mut self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Success => &mut self.succeeded,
            Verdict::Throttled | Verdict::QuotaExhausted => &mut self.throttled,
            Verdict::Overloaded | Verdict::Unreachable => &mut self.failed,
            Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => return,
        };
        *counter = counter.saturating_add(1);
    }

    /// The number of requests that the server still accepts, if it says so. For `adaptive`, minus
    /// those sent since, which the server did not know of when it responded.
    fn left(&self, settings: &GateSettings, permit: &Permit, outcome: &Outcome) -> Option<u64> {
        let sent_since = match settings.strategy {
            Strategy::Adaptive => self.admitted.wrapping_sub(permit.number),
            Strategy::Aimd | Strategy::Fixed => 0,
        };
        let remaining = outcome.hint.remaining?;
        Some(remaining.saturating_sub(u64::from(sent_since)))
    }

    /// Slows down before the last remaining request, so that the gate learns that it is the last
    /// before it sends another. The remaining requests are spread over the time of two responses
    /// like this one, or of two and a half recent ones, or until the reset if that is sooner.
    /// Returns `true` if that is slower than the current rate.
    fn spread_remaining(&mut self, settings: &GateSettings, outcome: &Outcome, left: u64) -> bool {
        let Some(reset) = outcome.hint.reset else {
            return false;
        };
        // One response may be fast by chance, and the next may take more than twice as long.
        let recent = SPREAD_OVER_RESPONSES * self.adaptive.mean_latency();
        let spread = recent.max(2.0 * outcome.latency.as_secs_f64());
        let spread = spread.min(reset.as_secs_f64());
        let is_slower = self.bucket.rate() * spread > left as f64;
        if is_slower {
            self.bucket
                .set_rate((left as f64 / spread).max(settings.min_rate));
            self.bucket.cut_to(0.0);
            self.adaptive.forget_growth();
            self.why = Why::NearlyUsedUp;
            self.begin_epoch();
        }
        is_slower
    }

    fn learn(
        &mut self,
        settings: &GateSettings,
        outcome: &Outcome,
        verdict: Verdict,
        left: Option<u64>,
        now: Timestamp,
    ) {
        let moment = self.moment(settings, now);
        let signal = breaker_signal(settings, outcome, verdict);
        let change = self.breaker.record(&settings.breaker, signal, now);
        if change.is_some() {
            self.begin_epoch();
        }
        if verdict == Verdict::QuotaExhausted && outcome.hint.wait.or(outcome.hint.reset).is_none()
        {
            self.breaker.isolate();
            self.begin_epoch();
        }
        let adaptive = settings.strategy == Strategy::Adaptive;
        let is_spread = match left.filter(|_| adaptive && verdict == Verdict::Success) {
            Some(0) => true,
            Some(left) => self.spread_remaining(settings, outcome, left),
            None => false,
        };
        let signal = match change {
            Some(Change::Closed) if adaptive => Some(rate::Signal::BreakerClosed),
            // Growing into an exhausted window proves nothing.
            _ if is_spread => None,
            _ => rate_signal(outcome, verdict),
        };
        if let Some(signal) = signal {
            let reaction = rate::react(settings, &mut self.adaptive, signal, moment);
            self.apply(settings, reaction, now);
        }
    }

    #[inline]
    fn apply(&mut self, settings: &GateSettings, reaction: Reaction, now: Timestamp) {
        if let Some((rate, why)) = reaction.rate {
            self.bucket.set_rate(rate);
            self.why = why;
        }
        if reaction.decreased {
            self.begin_epoch();
            self.bucket
                .cut_to(rate::burst(settings, self.bucket.rate()));
        }
        if reaction.drain {
            self.bucket.cut_to(0.0);
        }
        if let Some(wait) = reaction.assumed_wait {
            self.hold(now + wait, Source::Assumed);
        }
    }

    #[inline]
    fn moment(&self, settings: &GateSettings, now: Timestamp) -> Moment {
        // Only `adaptive` needs it, and only below a ceiling; reading it touches another cache
        // line.
        let asks = settings.strategy == Strategy::Adaptive && self.adaptive.has_ceiling();
        let paused_until = match asks {
            true if self.breaker.is_closed() => self.pause(settings).until,
            // Probes show whether the upstream works, not how fast; the pause is not over yet.
            true => now,
            false => Timestamp::ZERO,
        };
        Moment {
            now,
            rate: self.bucket.rate(),
            paused_until,
        }
    }
}

/// How many recent response times to spread over. Chosen on 150 simulated runs of 30 windows each.
/// On 150 other runs nothing was refused; with the last response time alone, 40 of them had
/// refusals. With 3, more windows were not used up.
const SPREAD_OVER_RESPONSES: f64 = 2.5;

/// The wait that the server asks for.
fn hinted_wait(outcome: &Outcome, verdict: Verdict, exhausted: bool) -> Option<Duration> {
    let hint = &outcome.hint;
    match verdict {
        Verdict::Throttled | Verdict::Overloaded => hint.wait,
        Verdict::QuotaExhausted => hint.wait.or(hint.reset),
        // A Retry-After on a success is about that resource ("not ready yet"), not about pace.
        Verdict::Success if exhausted => hint.reset,
        Verdict::Success
        | Verdict::Unreachable
        | Verdict::Unauthorized
        | Verdict::Conflict
        | Verdict::Rejected => None,
    }
}

fn breaker_signal(settings: &GateSettings, outcome: &Outcome, verdict: Verdict) -> breaker::Signal {
    use breaker::Signal;
    let counts_throttled = settings.strategy == Strategy::Aimd && settings.aimd.count_throttled;
    match verdict {
        Verdict::Success => Signal::Success,
        Verdict::Rejected => Signal::Neutral,
        // A server that names a wait is healthy enough to respond.
        Verdict::Overloaded | Verdict::Unreachable if !outcome.is_directed() => Signal::Failure,
        Verdict::Throttled if counts_throttled && !outcome.is_directed() => Signal::Failure,
        Verdict::Overloaded
        | Verdict::Unreachable
        | Verdict::Throttled
        | Verdict::QuotaExhausted
        | Verdict::Unauthorized
        | Verdict::Conflict => Signal::Silent,
    }
}

fn rate_signal(outcome: &Outcome, verdict: Verdict) -> Option<rate::Signal> {
    let refused = rate::Signal::Refused {
        directed: outcome.is_directed(),
    };
    match verdict {
        Verdict::Success => Some(rate::Signal::Accepted {
            latency: outcome.latency,
        }),
        Verdict::Throttled => Some(refused),
        Verdict::Overloaded if outcome.response == UpstreamResponse::Status(503) => Some(refused),
        Verdict::Overloaded | Verdict::Unreachable => Some(rate::Signal::Failed),
        Verdict::QuotaExhausted | Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => {
            None
        }
    }
}
