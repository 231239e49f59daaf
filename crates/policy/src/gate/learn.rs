//! Applies outcomes to hold, breaker and rate, once each.

use std::time::Duration;

use super::{Gate, GateSettings, Permit, ResponseBody};
use crate::breaker::{self, Change};
use crate::cost::AttemptCost;
use crate::hint::{Exceeded, Source};
use crate::outcome::{Outcome, UpstreamResponse, Verdict};
use crate::rate::{self, LastProgress, Moment, Reaction, Rough, Strategy};
use crate::time::{CoarseTime, Timestamp};

impl Gate {
    /// Returns a permit with its outcome; the attempt is over. `verdict` is `None` for responses
    /// that change nothing. Returns the verdict for the item: the given one, but
    /// [`Throttled`](Verdict::Throttled) for a 403 that is a ban.
    #[inline(always)]
    pub fn settle(
        &mut self,
        settings: &GateSettings,
        permit: Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> Option<Verdict> {
        self.counters.end();
        self.learn_from(settings, &permit, outcome, verdict, now)
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
        let verdict = self.learn_from(settings, &permit, outcome, verdict, now);
        ResponseBody {
            number: permit.number,
            cost: permit.cost,
            verdict,
        }
    }

    /// Corrects the cost of an attempt to the actual one, which its response body gave.
    pub fn correct_cost(
        &mut self,
        settings: &GateSettings,
        body: &ResponseBody,
        used: u32,
        now: Timestamp,
    ) {
        if !settings.enabled {
            return;
        }
        self.advance(settings, now);
        self.count_costs(settings, used, now);
        let attempt = self.attempt_cost(body.number, body.cost.get());
        self.correct(settings, attempt, used, true);
        self.update_fast_path();
    }

    /// Ends the body of a response, or stops reading it: the attempt is no longer in flight.
    pub fn finish(&mut self, settings: &GateSettings, body: ResponseBody, now: Timestamp) {
        let ResponseBody { .. } = body;
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
    ) -> Option<Verdict> {
        let says_nothing_else = outcome.hint.remaining.is_none() && outcome.used.is_none();
        let is_fast = self.has_fast_path && settings.enabled;
        if is_fast && verdict == Some(Verdict::Success) && says_nothing_else {
            self.settle_plain_success(settings, permit, outcome, now);
            verdict
        } else {
            self.settle_slow_path(settings, permit, outcome, verdict, now)
        }
    }

    /// The fast path for most outcomes: a success without a remaining count, at a gate that has a
    /// fast path and keeps it. It takes the same steps as the slow path, without those that would
    /// have no effect.
    #[inline(never)]
    fn settle_plain_success(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
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
        let moment = self.moment(settings, permit, now);
        if permit.epoch != self.counters.epoch() {
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
    ) -> Option<Verdict> {
        self.advance(settings, now);
        let is_current = self.end_attempt(permit, now);
        let verdict = self.learn_outcome(settings, permit, outcome, verdict, is_current, now);
        self.update_fast_path();
        verdict
    }

    /// Learns from an outcome; `is_current` is whether it belongs to the present epoch.
    fn learn_outcome(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        is_current: bool,
        now: Timestamp,
    ) -> Option<Verdict> {
        if verdict == Some(Verdict::Success) {
            self.last_success = Some(CoarseTime::of(now));
        }
        if !settings.enabled {
            return verdict;
        }
        self.settle_cost(settings, permit, outcome, verdict, now);
        if let UpstreamResponse::Status(_) = outcome.response {
            self.latency.record(outcome.latency);
        }
        let is_ban = self.is_ban(settings, outcome, verdict, now);
        let verdict = match is_ban {
            true => Verdict::Throttled,
            false => verdict?,
        };
        self.count(verdict);
        let is_limited = self.follow_hint(settings, permit, outcome, verdict, is_current, now);
        if is_ban {
            // It says nothing about breaker and cost.
            self.learn_ban(settings, permit, is_current, now);
            return Some(verdict);
        }
        if is_current {
            self.learn(settings, permit, outcome, verdict, is_limited, now);
        } else if verdict == Verdict::Success {
            self.adaptive
                .late_success(self.moment(settings, permit, now));
        } else if verdict == Verdict::Throttled {
            self.adaptive.late_refusal();
        }
        self.learn_cost(settings, permit, outcome, verdict, is_current, now);
        Some(verdict)
    }

    /// Counts the cost of an accepted attempt, and corrects the cost if the outcome tells the actual one.
    fn settle_cost(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) {
        let attempt = self.attempt_cost(permit.number, permit.cost.get());
        let accepted = verdict == Some(Verdict::Success);
        if let Some(used) = outcome.used {
            self.count_costs(settings, used, now);
        }
        if let Some(limit) = self.cost_mut()
            && accepted
        {
            limit.count_accepted(attempt);
        }
        if let Some(used) = outcome.used {
            self.correct(settings, attempt, used, accepted);
        }
    }

    /// Follows the quota that the server tells, or else waits as it asks. Returns `true` if the quota
    /// limits the rate.
    fn follow_hint(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Verdict,
        is_current: bool,
        now: Timestamp,
    ) -> bool {
        let (remaining, reset) = self.remaining_requests(outcome);
        let remaining = remaining.filter(|_| !is_outdated(settings, outcome, reset));
        let follows_quotas = settings.strategy == Strategy::Adaptive && has_served(verdict);
        if let Some((remaining, reset)) = remaining.zip(reset)
            && follows_quotas
        {
            return self.follow_quota(settings, permit, remaining, reset, outcome, is_current, now);
        }
        let reset = reset.filter(|_| remaining == Some(0));
        if let Some(wait) = hinted_wait(outcome, verdict, reset) {
            self.hold(now + wait, outcome.hint.source.unwrap_or(Source::Assumed));
        }
        false
    }

    fn learn_ban(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        is_current: bool,
        now: Timestamp,
    ) {
        let reaction = if is_current {
            let moment = self.moment(settings, permit, now);
            rate::react(settings, &mut self.adaptive, rate::Signal::Banned, moment)
        } else {
            self.adaptive.late_ban(settings)
        };
        self.apply(settings, reaction, now);
    }

    fn attempt_cost(&self, number: u32, asked: u32) -> AttemptCost {
        AttemptCost {
            number,
            sent_since: self.admitted.wrapping_sub(number),
            asked,
        }
    }

    /// What the limit on cost, if there is one, learns from an outcome.
    fn learn_cost(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Verdict,
        is_current: bool,
        now: Timestamp,
    ) {
        if self.cost().is_none() {
            return;
        }
        let attempt = self.attempt_cost(permit.number, permit.cost.get());
        let spread = self.spread(outcome.latency);
        let moment = Moment {
            paused_until: self.paused_until(settings, now),
            ..self.moment(settings, permit, now)
        };
        let latency = Duration::from_secs_f64(self.adaptive.mean_latency());
        let Some(limit) = self.cost_mut() else { return };
        let quotas = outcome.hint.quotas.as_deref();
        let is_spread = quotas
            .is_some_and(|quotas| limit.limit_to(settings, quotas.tokens, attempt, spread, now));
        let reaction = match rate_signal(outcome, verdict) {
            Some(rate::Signal::Accepted { .. }) => {
                limit.accepted(settings, is_current && !is_spread, latency, moment)
            }
            Some(rate::Signal::Refused { wait })
                if is_current && exceeded(outcome, attempt.asked) != Some(Exceeded::Requests) =>
            {
                limit.refused(settings, wait, moment)
            }
            _ => return,
        };
        if reaction.decreased {
            self.begin_epoch();
        }
        if let Some(wait) = reaction.assumed_wait {
            self.hold(now + wait, Source::Assumed);
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
        let cost = permit.cost.get();
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket.correct(-self.tokens(cost), burst);
        let attempt = self.attempt_cost(permit.number, cost);
        if let Some(limit) = self.cost_mut() {
            limit.give_back(settings, attempt);
        }
        if let Some(limits) = self.limits_mut() {
            limits.give_back(cost, permit.admitted_at, now);
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

    fn correct(
        &mut self,
        settings: &GateSettings,
        attempt: AttemptCost,
        used: u32,
        accepted: bool,
    ) {
        let asked = attempt.asked;
        let burst = rate::burst(settings, self.bucket.rate());
        match self.cost_mut() {
            Some(limit) => limit.correct(settings, attempt, used, accepted),
            None => self
                .bucket
                .correct(f64::from(used) - f64::from(asked), burst),
        }
        if let Some(limits) = self.limits_mut() {
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

    /// How many requests remain and until when, if the server says so. If cost has its own limit,
    /// what remains of tokens belongs there.
    fn remaining_requests(&self, outcome: &Outcome) -> (Option<u64>, Option<Duration>) {
        let hint = &outcome.hint;
        match &hint.quotas {
            Some(quotas) if self.cost().is_some() => {
                let requests = quotas.requests;
                (
                    requests.map(|quota| quota.remaining),
                    requests.and_then(|quota| quota.reset),
                )
            }
            _ => (hint.remaining, hint.reset),
        }
    }

    /// The seconds that two responses take. This one may be fast by chance, and the next may take more
    /// than twice as long.
    pub(super) fn spread(&self, latency: Duration) -> f64 {
        let recent = SPREAD_OVER_RESPONSES * self.adaptive.mean_latency();
        recent.max(2.0 * latency.as_secs_f64())
    }

    fn learn(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        outcome: &Outcome,
        verdict: Verdict,
        is_limited: bool,
        now: Timestamp,
    ) {
        let moment = self.moment(settings, permit, now);
        let signal = match breaker_signal(settings, outcome, verdict) {
            breaker::Signal::Failure if self.is_outdated_probe(settings, permit) => {
                breaker::Signal::Neutral
            }
            signal => signal,
        };
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
        let signal = match change {
            Some(Change::Closed) if adaptive => Some(rate::Signal::BreakerClosed),
            _ => rate_signal(outcome, verdict),
        };
        let signal = signal.map(|signal| self.quota_signal(outcome, is_limited, signal, now));
        let is_beginning = matches!(signal, Some(rate::Signal::Accepted { .. }))
            && self.learn_beginning(settings, permit, moment);
        let is_limited = is_limited || is_beginning || self.window_accepts().is_some();
        if is_limited && matches!(signal, Some(rate::Signal::Accepted { .. })) {
            // Growing into an exhausted quota proves nothing.
            self.adaptive.late_success(moment);
            return;
        }
        let is_about_cost =
            self.cost().is_some() && exceeded(outcome, permit.cost.get()) == Some(Exceeded::Tokens);
        let signal = signal
            .filter(|signal| !(is_about_cost && matches!(signal, rate::Signal::Refused { .. })));
        let reaction = match signal {
            Some(rate::Signal::Refused { wait: Some(wait) }) if verdict == Verdict::Throttled => {
                self.learn_named_wait(settings, permit, wait, false, moment)
            }
            Some(rate::Signal::Refused { wait: None })
                if adaptive && verdict == Verdict::Throttled =>
            {
                self.learn_silent_refusal(settings, permit, moment)
            }
            Some(signal) => Some(rate::react(settings, &mut self.adaptive, signal, moment)),
            None => None,
        };
        if let Some(reaction) = reaction {
            self.apply(settings, reaction, now);
        }
    }

    /// Whether a probe that was sent later has succeeded since: then a timeout of this one says nothing
    /// about the upstream now.
    fn is_outdated_probe(&self, settings: &GateSettings, permit: &Permit) -> bool {
        settings.breaker.one_probe_first
            && permit.probe.is_some()
            && self
                .last_success()
                .is_some_and(|success| permit.admitted_at < success)
    }

    /// Whether the server has banned this client for being refused too often.
    fn is_ban(
        &self,
        settings: &GateSettings,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
    ) -> bool {
        settings.strategy == Strategy::Adaptive
            && verdict == Some(Verdict::Rejected)
            && outcome.response == UpstreamResponse::Status(403)
            && self.adaptive.was_refused_lately(now)
    }

    #[inline]
    pub(super) fn apply(&mut self, settings: &GateSettings, reaction: Reaction, now: Timestamp) {
        if let Some((rate, why)) = reaction.rate {
            if rate < self.bucket.rate() {
                self.bucket.cut_to(rate::burst(settings, rate));
            }
            self.bucket.set_rate(rate);
            self.why = why;
            if let Some(quota) = self.quota_mut() {
                quota.full_rate = Rough::ZERO;
            }
        }
        if reaction.decreased {
            self.begin_epoch();
        }
        if reaction.drain {
            self.bucket.cut_to(0.0);
        }
        if let Some(wait) = reaction.assumed_wait {
            self.hold(now + wait, Source::Assumed);
        }
    }

    #[inline]
    pub(super) fn moment(
        &self,
        settings: &GateSettings,
        permit: &Permit,
        now: Timestamp,
    ) -> Moment {
        // Only `adaptive` needs it, and only below a ceiling; reading it touches another cache
        // line.
        let asks = settings.strategy == Strategy::Adaptive && self.adaptive.has_ceiling();
        Moment {
            now,
            rate: self.full_rate(),
            paused_until: match asks {
                true => self.paused_until(settings, now),
                false => Timestamp::ZERO,
            },
            sent_at: permit.admitted_at,
            number: permit.number,
            admitted: self.admitted,
            succeeded: self.succeeded,
        }
    }

    pub(super) fn paused_until(&self, settings: &GateSettings, now: Timestamp) -> Timestamp {
        match self.breaker.is_closed() {
            true => self.pause(settings).until,
            // Probes show whether the upstream works, not how fast; the pause is not over yet.
            false => now,
        }
    }
}

/// How many recent response times to spread over. Chosen on 150 simulated runs of 30 windows each.
/// On 150 other runs nothing was refused; with the last response time alone, 40 of them had
/// refusals. With 3, more windows were not used up.
const SPREAD_OVER_RESPONSES: f64 = 2.5;

/// Whether what the server said of remaining requests has changed by now, because the reset came
/// soon after the response was sent. So do buckets that refill faster than responses arrive.
fn is_outdated(settings: &GateSettings, outcome: &Outcome, reset: Option<Duration>) -> bool {
    settings.strategy == Strategy::Adaptive
        && reset.is_some_and(|reset| reset < outcome.latency / 4)
}

/// Whether the server did what was asked, or would have: only then is the request one of its quota.
fn has_served(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Success | Verdict::Rejected | Verdict::Conflict
    )
}

/// The wait that the server asks for. `reset` is that of an exhausted quota of requests.
fn hinted_wait(outcome: &Outcome, verdict: Verdict, reset: Option<Duration>) -> Option<Duration> {
    let hint = &outcome.hint;
    match verdict {
        Verdict::Throttled | Verdict::Overloaded => hint.wait,
        Verdict::QuotaExhausted => hint.wait.or(hint.reset),
        // A Retry-After on a success is about that resource ("not ready yet"), not about pace.
        Verdict::Success => reset,
        Verdict::Unreachable | Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => {
            None
        }
    }
}

/// Which limit a refusal is about, if the server says so: in words, or because only one of the limits
/// has too little left for a request with this cost.
fn exceeded(outcome: &Outcome, cost: u32) -> Option<Exceeded> {
    let hint = &outcome.hint;
    let quotas = hint.quotas.as_deref();
    hint.exceeded.or_else(|| {
        let no_tokens = quotas?.tokens.remaining < u64::from(cost);
        let no_requests = quotas?.requests.is_some_and(|quota| quota.remaining == 0);
        match (no_tokens, no_requests) {
            (true, false) => Some(Exceeded::Tokens),
            (false, true) => Some(Exceeded::Requests),
            _ => None,
        }
    })
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
        wait: outcome
            .is_directed()
            .then(|| outcome.hint.wait.or(outcome.hint.reset))
            .flatten(),
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
