//! Decides on asks: which are admitted, wait or are refused.

use std::num::NonZeroU32;

use super::silent::SilentWindow;
use super::{Ask, Counters, Decision, Gate, GateSettings, Permit, Reason};
use crate::breaker::{BreakerState, Probe, max_probes_at_once};
use crate::bucket::Pause;
use crate::cost::{AttemptCost, CostLimit};
use crate::line::{Ahead, Ticket, Tickets};
use crate::rate::{self, LastProgress, Strategy};
use crate::time::Timestamp;

impl Gate {
    /// Decides on `ask` and applies the decision: takes the tokens or joins the line.
    #[inline]
    pub fn acquire(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Decision {
        match self.acquire_at_once(settings, ask, now) {
            Some(permit) => Decision::Admit(permit),
            None => self.acquire_slow_path(settings, tickets, ask, now),
        }
    }

    /// The fast path for most asks: the line is empty, only tokens and the in-flight count decide,
    /// and both suffice. `None` means that the slow path is needed: call [`Gate::acquire`], which
    /// also tries the fast path, but returns its permit in a larger type.
    #[inline(always)]
    pub fn acquire_at_once(
        &mut self,
        settings: &GateSettings,
        ask: &Ask,
        now: Timestamp,
    ) -> Option<Permit> {
        let in_time = self.bucket.refilled_at() <= now && now <= ask.deadline;
        let is_fast = self.has_fast_path && settings.enabled && in_time;
        if !is_fast || self.is_waited_for() || !self.has_room(settings) {
            return None;
        }
        let cost = ask.cost();
        if cost != 1 && settings.strategy == Strategy::Adaptive {
            return None;
        }
        let burst = rate::burst(settings, self.bucket.rate());
        self.bucket.refill_unpaused(now, burst);
        if !self.bucket.take_whole(f64::from(cost), burst) {
            return None;
        }
        Some(self.permit(cost, None, now))
    }

    #[inline(never)]
    pub(super) fn acquire_slow_path(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Decision {
        let evaluation = self.evaluate(settings, tickets, ask, now);
        self.update_fast_path();
        match evaluation {
            Evaluation::Admit => match self.grant(settings, ask.cost(), now) {
                Some(permit) => Decision::Admit(permit),
                None => self.join(settings, tickets, ask, now, Reason::Rate, None),
            },
            Evaluation::Wait { reason, until } => {
                self.join(settings, tickets, ask, now, reason, until)
            }
            Evaluation::Refuse { reason, until } => Decision::Refuse { reason, until },
        }
    }

    /// What [`Gate::acquire`] would decide, without taking anything or joining the line: `Ok` means
    /// that it would be admitted at once.
    pub fn peek(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<(), (Reason, Option<Timestamp>)> {
        let evaluation = self.evaluate(settings, tickets, ask, now);
        self.update_fast_path();
        match evaluation {
            Evaluation::Admit => Ok(()),
            Evaluation::Wait { reason, until } | Evaluation::Refuse { reason, until } => {
                Err((reason, until))
            }
        }
    }

    /// When the first in line would leave, if only time decides; never before the last event at
    /// this gate. `None` if the line is empty, or if it depends on a response or a person.
    pub fn next_admission(&self, settings: &GateSettings, tickets: &Tickets) -> Option<Timestamp> {
        let cost = tickets.first_cost(self.line)?;
        let looked_at = self.bucket.refilled_at();
        let is_isolated = self.breaker.state(looked_at) == BreakerState::Isolated;
        if is_isolated || self.in_flight() >= settings.max_in_flight {
            return None;
        }
        let probe_at = self.breaker.next_probe(&settings.breaker);
        let answer_at = self.is_waiting_for_answers(settings).then(|| {
            self.last_progress
                .waits_until(looked_at, settings.lost_after())
        });
        let leaves_at = self.leaves_at(settings, cost, looked_at)?;
        [Some(leaves_at), probe_at, answer_at]
            .into_iter()
            .flatten()
            .max()
    }

    /// Why the first in line does not leave at `now`, from the present state; `None` if the line is
    /// empty. One that is about to leave waits for the rate.
    pub fn waiting_for(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        now: Timestamp,
    ) -> Option<Reason> {
        let cost = tickets.first_cost(self.line)?;
        if self.hold_until(now).is_some() {
            return Some(Reason::Hold);
        }
        if self.breaker.state(now) != BreakerState::Closed {
            return Some(Reason::BreakerOpen);
        }
        let has_tokens = self
            .leaves_at(settings, cost, now)
            .is_some_and(|leaves_at| leaves_at <= now);
        match has_tokens && self.is_full(settings, now) {
            true => Some(Reason::InFlight),
            false => Some(Reason::Rate),
        }
    }

    /// When to call again at the latest: a ticket may leave then, or its deadline passes.
    pub fn next_wake(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let deadline = tickets.next_deadline(self.line).map(|at| {
            if at < self.blocked_until(now) {
                now
            } else {
                at
            }
        });
        let admission = self.next_admission(settings, tickets);
        [deadline, admission].into_iter().flatten().min()
    }

    /// Lets the first in line leave, if it may at `now`. Call it until it returns `None`.
    pub fn admit_next(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        now: Timestamp,
    ) -> Option<(Ticket, Permit)> {
        let cost = tickets.first_cost(self.line)?;
        self.advance(settings, now);
        self.update_fast_path();
        let is_blocked = match self.breaker.state(now) {
            BreakerState::Closed => false,
            BreakerState::HalfOpen => self.breaker.free_probes(&settings.breaker, now) == 0,
            BreakerState::Open | BreakerState::Isolated => true,
        };
        if is_blocked || self.is_full(settings, now) || self.leaves_at(settings, cost, now)? > now {
            return None;
        }
        let permit = self.grant(settings, cost, now)?;
        let ticket = tickets.leave_first(&mut self.line)?;
        Some((ticket, permit))
    }

    /// Removes a ticket whose deadline has passed, or will certainly pass before a hold or an open
    /// breaker ends. Call it until it returns `None`.
    pub fn expire_next(&mut self, tickets: &mut Tickets, now: Timestamp) -> Option<Ticket> {
        let deadline = tickets.next_deadline(self.line)?;
        let is_too_late = deadline <= now || deadline < self.blocked_until(now);
        if is_too_late {
            tickets.leave_soonest_deadline(&mut self.line)
        } else {
            None
        }
    }

    /// Leaves the line. Returns `false` if the ticket had already left.
    pub fn cancel(&mut self, tickets: &mut Tickets, ticket: Ticket) -> bool {
        tickets.cancel(&mut self.line, ticket)
    }

    fn evaluate(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Evaluation {
        self.advance(settings, now);
        if !settings.enabled {
            return match self.in_flight() {
                Counters::MAX_IN_FLIGHT => Evaluation::Wait {
                    reason: Reason::InFlight,
                    until: None,
                },
                _ => Evaluation::Admit,
            };
        }
        self.count_costs(settings, ask.cost(), now);
        let at_breaker = match self.pass_breaker(settings, tickets, ask, now) {
            Ok(reason) => reason,
            Err(evaluation) => return evaluation,
        };
        let at_hold = match self.pass_hold(settings, ask, now) {
            Ok(reason) => reason,
            Err(evaluation) => return evaluation,
        };
        let ahead = tickets.ahead(self.line, ask.class);
        let Some(leaves_at) = self.leaves_after_line(settings, tickets, ahead, ask, now) else {
            // The cost exceeds a known limit.
            return Evaluation::Refuse {
                reason: Reason::Rate,
                until: None,
            };
        };
        let until = (!self.needs_responses(settings, ahead.tickets, now)).then_some(leaves_at);
        if leaves_at > ask.deadline && self.is_limit_known(settings, ahead, ask, now) {
            return Evaluation::Refuse {
                reason: Reason::Deadline,
                until,
            };
        }
        let at_bucket = (leaves_at > now).then_some(Reason::Rate);
        match at_hold.or(at_breaker).or(at_bucket) {
            Some(reason) => Evaluation::Wait { reason, until },
            None if self.is_full(settings, now) => Evaluation::Wait {
                reason: Reason::InFlight,
                until: None,
            },
            // The first in line is about to leave: no overtaking.
            None if ahead.tickets > 0 => Evaluation::Wait {
                reason: Reason::Rate,
                until,
            },
            None => Evaluation::Admit,
        }
    }

    /// `Ok` if the breaker admits the ask or the ask may wait for it.
    pub(super) fn pass_breaker(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<Option<Reason>, Evaluation> {
        let reason = Reason::BreakerOpen;
        match self.breaker.state(now) {
            BreakerState::Closed => Ok(None),
            BreakerState::Isolated => Err(Evaluation::Refuse {
                reason,
                until: None,
            }),
            BreakerState::Open => {
                let until = self.breaker.open_until(now);
                let waits =
                    ask.waits_for_breaker && until.is_none_or(|until| until <= ask.deadline);
                if waits {
                    Ok(Some(reason))
                } else {
                    Err(Evaluation::Refuse { reason, until })
                }
            }
            // Tickets in line leave first, as probes.
            BreakerState::HalfOpen => {
                let waiting = tickets.waiting(self.line);
                let probe_left = self.breaker.free_probes(&settings.breaker, now) > waiting;
                match (probe_left, ask.waits_for_breaker) {
                    (true, _) => Ok(None),
                    (false, true) => Err(Evaluation::Wait {
                        reason,
                        until: None,
                    }),
                    (false, false) => Err(Evaluation::Refuse {
                        reason,
                        until: None,
                    }),
                }
            }
        }
    }

    /// `Ok` if there is no hold or the ask may wait for its end.
    pub(super) fn pass_hold(
        &self,
        settings: &GateSettings,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<Option<Reason>, Evaluation> {
        let Some(until) = self.hold_until(now) else {
            return Ok(None);
        };
        if until.since(now) > settings.max_hold {
            return Err(Evaluation::Refuse {
                reason: Reason::Hold,
                until: Some(until),
            });
        }
        if until > ask.deadline {
            return Err(Evaluation::Refuse {
                reason: Reason::Deadline,
                until: Some(until),
            });
        }
        Ok(Some(Reason::Hold))
    }

    /// When an ask with no tickets ahead leaves, by rate and known limits. `None`: never.
    fn leaves_at(&self, settings: &GateSettings, cost: u32, now: Timestamp) -> Option<Timestamp> {
        let burst = rate::burst(settings, self.bucket.rate());
        let pause = self.pause(settings);
        let at_rate = self
            .bucket
            .ready_at(0.0, self.tokens(cost), burst, pause)
            .max(self.cost_ready_at(settings, 0, cost, pause));
        Some(at_rate.max(self.within_limits_at(settings, 0, cost, now)?))
    }

    /// When the limit on cost, if there is one, lets `ahead` and then `cost` leave.
    fn cost_ready_at(
        &self,
        settings: &GateSettings,
        ahead: u64,
        cost: u32,
        pause: Pause,
    ) -> Timestamp {
        match self.cost() {
            Some(limit) => limit.ready_at(settings, ahead, cost, pause),
            None => Timestamp::ZERO,
        }
    }

    /// When `ask` leaves behind the current line, by rate and known limits. `None`: never.
    ///
    /// Rate and limits bind alternately: a limit counts when the tickets ahead actually leave,
    /// which the rate decides, and vice versa. So with known limits the departure of every ticket
    /// ahead is computed, in O(line length); without, the bucket alone decides.
    fn leaves_after_line(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        ahead: Ahead,
        ask: &Ask,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let burst = rate::burst(settings, self.bucket.rate());
        let pause = self.pause(settings);
        let at_cost = self
            .cost_ready_at(settings, ahead.cost, ask.cost(), pause)
            .max(now);
        let Some(limits) = self.limits() else {
            let tokens_ahead = match self.cost() {
                Some(_) => f64::from(ahead.tickets),
                None => ahead.cost as f64,
            };
            let tokens = self.tokens(ask.cost());
            let ready_at = self.bucket.ready_at(tokens_ahead, tokens, burst, pause);
            return Some(ready_at.max(at_cost));
        };
        if ahead.tickets == 0 {
            return self.leaves_at(settings, ask.cost(), now);
        }
        let mut bucket = self.bucket;
        let mut limits = limits.clone();
        let mut departure = now.max(pause.until);
        bucket.refill(departure, burst, pause);
        // Taken since the bucket was last refilled: one division for many tickets rounds once.
        let mut taken = 0.0;
        let costs = tickets.costs_ahead(self.line, ask.class);
        for cost in costs.chain([ask.cost()]) {
            let tokens = self.tokens(cost);
            let at_rate = bucket.ready_at(taken, tokens, burst, pause);
            departure = limits.ready_at(0, cost, departure.max(at_rate))?;
            if departure > at_rate {
                bucket.correct(taken, burst);
                bucket.refill(departure, burst, pause);
                taken = 0.0;
            }
            taken += tokens;
            limits.take(cost, departure);
        }
        Some(departure.max(at_cost))
    }

    /// Whether the departure of an ask behind `ahead` tickets depends on responses: attempts in
    /// flight and tickets ahead take all slots in flight or all probes.
    fn needs_responses(&self, settings: &GateSettings, ahead: u32, now: Timestamp) -> bool {
        let in_flight = self.in_flight().saturating_add(ahead);
        let unanswered = self.counters.unanswered().saturating_add(ahead);
        let is_adaptive = settings.strategy == Strategy::Adaptive;
        let probes = match self.breaker.state(now) {
            BreakerState::Open => Some(max_probes_at_once(&settings.breaker)),
            BreakerState::HalfOpen => Some(self.breaker.free_probes(&settings.breaker, now)),
            BreakerState::Closed | BreakerState::Isolated => None,
        };
        in_flight >= settings.max_in_flight
            || is_adaptive && self.adaptive.is_filled_by(unanswered, self.bucket.rate())
            || probes.is_some_and(|probes| ahead >= probes)
    }

    pub(super) fn within_limits_at(
        &self,
        settings: &GateSettings,
        ahead: u64,
        cost: u32,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let earliest = now.max(self.pause(settings).until);
        match self.limits() {
            Some(limits) => limits.ready_at(ahead, cost, earliest),
            None => Some(now),
        }
    }

    /// Whether it is certain that `ask` cannot leave in time. A rate that is still being learned
    /// may rise until then; a fixed rate, a known limit and what the server says remains will not.
    fn is_limit_known(
        &self,
        settings: &GateSettings,
        ahead: Ahead,
        ask: &Ask,
        now: Timestamp,
    ) -> bool {
        settings.strategy == Strategy::Fixed
            || self
                .cost()
                .is_some_and(|limit| limit.allowed_at(ahead.cost, ask.cost()) > ask.deadline)
            || self
                .within_limits_at(settings, ahead.cost, ask.cost(), now)
                .is_some_and(|at| at > ask.deadline)
    }

    /// Whether the maximum number of attempts is in flight. The bound of `adaptive` expires after
    /// silence, `max_in_flight` never does.
    pub(super) fn is_full(&self, settings: &GateSettings, now: Timestamp) -> bool {
        self.in_flight() >= settings.max_in_flight
            || self.is_waiting_for_answers(settings)
                && now < self.last_progress.waits_until(now, settings.lost_after())
    }

    #[inline]
    fn is_waiting_for_answers(&self, settings: &GateSettings) -> bool {
        settings.strategy == Strategy::Adaptive
            && (self
                .adaptive
                .is_filled_by(self.counters.unanswered(), self.bucket.rate())
                || self.counters.unanswered() > 0
                    && (self.is_trying_more()
                        || !self.has_fast_path
                            && self.silent().is_some_and(SilentWindow::is_next_uncertain)
                        || self.cost().is_some_and(CostLimit::is_probing_blind)))
    }

    /// Whether a gate with a fast path certainly has room in flight. A small number is admitted
    /// without reading the state of `adaptive`, which is in another cache line.
    #[inline]
    fn has_room(&self, settings: &GateSettings) -> bool {
        let few = self.counters.unanswered() < rate::ALWAYS_IN_FLIGHT;
        self.in_flight() < settings.max_in_flight && (few || !self.is_waiting_for_answers(settings))
    }

    pub(super) fn join(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        now: Timestamp,
        reason: Reason,
        until: Option<Timestamp>,
    ) -> Decision {
        if ask.deadline <= now {
            return Decision::Refuse { reason, until };
        }
        if tickets.waiting(self.line) >= settings.max_waiting {
            return Decision::Refuse {
                reason: Reason::QueueFull,
                until: None,
            };
        }
        let ticket = tickets.join(&mut self.line, ask.class, ask.cost(), ask.deadline);
        Decision::Wait {
            ticket,
            until,
            reason,
        }
    }

    /// Issues a permit if the tokens can be taken.
    fn grant(&mut self, settings: &GateSettings, cost: u32, now: Timestamp) -> Option<Permit> {
        if settings.enabled {
            let burst = rate::burst(settings, self.bucket.rate());
            if let Some(limit) = self.cost()
                && !limit.has(settings, cost, now)
            {
                return None;
            }
            if !self.bucket.take(self.tokens(cost), burst) {
                return None;
            }
            let attempt = AttemptCost {
                number: self.admitted.wrapping_add(1),
                sent_since: 0,
                asked: cost,
            };
            if let Some(limit) = self.cost_mut() {
                limit.take(attempt);
            }
            if let Some(limits) = self.limits_mut() {
                limits.take(cost, now);
            }
        }
        let probe = self.breaker.admit(&settings.breaker, now);
        let permit = self.permit(cost, probe, now);
        self.use_up_quota(now);
        self.follow_counted_window(settings, &permit, now);
        Some(permit)
    }

    #[inline]
    pub(super) fn permit(&mut self, cost: u32, probe: Option<Probe>, now: Timestamp) -> Permit {
        self.last_progress = LastProgress::at(now);
        self.counters.admit();
        self.admitted = self.admitted.wrapping_add(1);
        Permit {
            admitted_at: now,
            epoch: self.counters.epoch(),
            number: self.admitted,
            cost: NonZeroU32::new(cost).unwrap_or(NonZeroU32::MIN),
            probe,
        }
    }

    /// The end of the hold or open breaker: no ask leaves before.
    fn blocked_until(&self, now: Timestamp) -> Timestamp {
        let open_until = self.breaker.open_until(now).unwrap_or(Timestamp::ZERO);
        self.hold_until.max(open_until)
    }
}

pub(super) enum Evaluation {
    Admit,
    Wait {
        reason: Reason,
        until: Option<Timestamp>,
    },
    Refuse {
        reason: Reason,
        until: Option<Timestamp>,
    },
}
