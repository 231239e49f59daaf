//! Decides on asks at a gate whose key is shared.
//!
//! The same checks in the same order as at a local gate, with the fleet's breaker and hold beside the
//! gate's own, and slots in place of tokens.

use super::{External, ExternalBreaker};
use crate::breaker::BreakerState;
use crate::gate::admit::Evaluation;
use crate::gate::{Ask, Counters, Decision, Gate, GateSettings, Permit, Reason};
use crate::hint::Source;
use crate::line::{Ticket, Tickets};
use crate::time::Timestamp;

impl Gate {
    /// [`Gate::acquire`] at a shared gate.
    #[inline]
    pub fn acquire_external(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        external: &mut External,
        now: Timestamp,
    ) -> Decision {
        match self.acquire_external_at_once(settings, ask, external, now) {
            Some(permit) => Decision::Admit(permit),
            None => self.acquire_external_slow_path(settings, tickets, ask, external, now),
        }
    }

    /// [`Gate::acquire_at_once`] at a shared gate.
    #[inline]
    pub fn acquire_external_at_once(
        &mut self,
        settings: &GateSettings,
        ask: &Ask,
        external: &mut External,
        now: Timestamp,
    ) -> Option<Permit> {
        let in_time = self.bucket.refilled_at() <= now && now <= ask.deadline;
        let is_fast = self.has_fast_path && settings.enabled && in_time;
        let is_allowed = external.hold_until <= now && external.breaker == ExternalBreaker::Closed;
        let has_room = self.in_flight() < settings.max_in_flight;
        let cost = ask.cost();
        let is_plain = is_fast && is_allowed && has_room && !self.is_waited_for();
        if !is_plain || !external.take(cost, self.admitted.wrapping_add(1), now) {
            return None;
        }
        external.counts.asked = external.counts.asked.saturating_add(1);
        self.bucket.refill_unpaused(now, 1.0);
        Some(self.permit(cost, None, now))
    }

    #[inline(never)]
    fn acquire_external_slow_path(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        ask: &Ask,
        external: &mut External,
        now: Timestamp,
    ) -> Decision {
        external.counts.asked = external.counts.asked.saturating_add(1);
        let evaluation = self.evaluate_external(settings, tickets, ask, external, now);
        self.update_fast_path();
        match evaluation {
            Evaluation::Admit => match self.grant_external(settings, ask.cost(), external, now) {
                Some(permit) => Decision::Admit(permit),
                None => self.join(settings, tickets, ask, now, Reason::Rate, None),
            },
            Evaluation::Wait { reason, until } => {
                external.was_short |= reason == Reason::Rate;
                self.join(settings, tickets, ask, now, reason, until)
            }
            Evaluation::Refuse { reason, until } => Decision::Refuse { reason, until },
        }
    }

    /// [`Gate::peek`] at a shared gate.
    pub fn peek_external(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        external: &External,
        now: Timestamp,
    ) -> Result<(), (Reason, Option<Timestamp>)> {
        let evaluation = self.evaluate_external(settings, tickets, ask, external, now);
        self.update_fast_path();
        match evaluation {
            Evaluation::Admit => Ok(()),
            Evaluation::Wait { reason, until } | Evaluation::Refuse { reason, until } => {
                Err((reason, until))
            }
        }
    }

    /// [`Gate::admit_next`] at a shared gate.
    pub fn admit_next_external(
        &mut self,
        settings: &GateSettings,
        tickets: &mut Tickets,
        external: &mut External,
        now: Timestamp,
    ) -> Option<(Ticket, Permit)> {
        let cost = tickets.first_cost(self.line)?;
        self.follow_hold(external, now);
        self.advance(settings, now);
        self.update_fast_path();
        let is_blocked = match self.breaker.state(now) {
            BreakerState::Closed => false,
            BreakerState::HalfOpen => self.breaker.free_probes(&settings.breaker, now) == 0,
            BreakerState::Open | BreakerState::Isolated => true,
        };
        if is_blocked
            || !external.admits(now)
            || self.hold_until(now).is_some()
            || self.is_full(settings, now)
            || self.within_limits_at(settings, 0, cost, now)? > now
        {
            return None;
        }
        let Some(permit) = self.grant_external(settings, cost, external, now) else {
            external.was_short = true;
            return None;
        };
        let ticket = tickets.leave_first(&mut self.line)?;
        Some((ticket, permit))
    }

    /// [`Gate::next_wake`] at a shared gate. What depends on the store is no reason to wake up.
    pub fn next_wake_external(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        external: &External,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let deadline = tickets.next_deadline(self.line);
        let admission = self.next_external_admission(settings, tickets, external, now);
        [deadline, admission].into_iter().flatten().min()
    }

    fn next_external_admission(
        &self,
        settings: &GateSettings,
        tickets: &Tickets,
        external: &External,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let cost = tickets.first_cost(self.line)?;
        let is_isolated = self.breaker.state(now) == BreakerState::Isolated;
        let probe_is_due = match external.breaker {
            ExternalBreaker::Closed => true,
            ExternalBreaker::Open { .. } => false,
            ExternalBreaker::HalfOpen { may_probe } => may_probe,
        };
        if is_isolated || !probe_is_due || self.in_flight() >= settings.max_in_flight {
            return None;
        }
        let held_until = self.hold_until.max(external.hold_until);
        let at_pace = external.leaves_at(0, now.max(held_until))?;
        let within_limits = self.within_limits_at(settings, 0, cost, now)?;
        let open_until = self.breaker.open_until(now);
        let probe_at = self.breaker.next_probe(&settings.breaker);
        let own = open_until.max(probe_at).unwrap_or(Timestamp::ZERO);
        Some(at_pace.max(within_limits).max(own).max(held_until))
    }

    fn evaluate_external(
        &mut self,
        settings: &GateSettings,
        tickets: &Tickets,
        ask: &Ask,
        external: &External,
        now: Timestamp,
    ) -> Evaluation {
        self.follow_hold(external, now);
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
        let is_first = !self.is_waited_for();
        let passed = external
            .pass_breaker(ask, is_first, now)
            .and_then(|at_fleet| {
                let at_breaker = self.pass_breaker(settings, tickets, ask, now)?;
                let at_hold = self.pass_hold(settings, ask, now)?;
                Ok(at_hold.or(at_fleet).or(at_breaker))
            });
        let blocked = match passed {
            Ok(reason) => reason,
            Err(evaluation) => return evaluation,
        };
        let ahead = tickets.ahead(self.line, ask.class);
        let Some(within) = self.within_limits_at(settings, ahead.cost, ask.cost(), now) else {
            // The cost exceeds a known limit.
            return Evaluation::Refuse {
                reason: Reason::Rate,
                until: None,
            };
        };
        let leaves_at = external.leaves_at(ahead.cost, now.max(self.hold_until));
        let until = leaves_at.map(|at| at.max(within));
        let at_pace = until.is_none_or(|at| at > now).then_some(Reason::Rate);
        match blocked.or(at_pace) {
            Some(reason) => Evaluation::Wait { reason, until },
            None if self.is_full(settings, now) => Evaluation::Wait {
                reason: Reason::InFlight,
                until: None,
            },
            None if ahead.tickets > 0 => Evaluation::Wait {
                reason: Reason::Rate,
                until,
            },
            None => Evaluation::Admit,
        }
    }

    fn grant_external(
        &mut self,
        settings: &GateSettings,
        cost: u32,
        external: &mut External,
        now: Timestamp,
    ) -> Option<Permit> {
        let number = self.admitted.wrapping_add(1);
        if settings.enabled {
            if !external.take(cost, number, now) {
                return None;
            }
            if let Some(limits) = self.limits_mut() {
                limits.take(cost, now);
            }
            if external.breaker == (ExternalBreaker::HalfOpen { may_probe: true }) {
                external.breaker = ExternalBreaker::HalfOpen { may_probe: false };
                external.probe = Some(number);
            }
        }
        let probe = self.breaker.admit(&settings.breaker, now);
        Some(self.permit(cost, probe, now))
    }

    fn follow_hold(&mut self, external: &External, now: Timestamp) {
        if external.hold_until > now {
            self.hold(external.hold_until, Source::Assumed);
        }
    }
}

impl External {
    fn admits(&self, now: Timestamp) -> bool {
        let is_allowed = match self.breaker {
            ExternalBreaker::Closed => true,
            ExternalBreaker::Open { .. } => false,
            ExternalBreaker::HalfOpen { may_probe } => may_probe,
        };
        is_allowed && self.hold_until <= now
    }

    /// `Ok` if the fleet's breaker admits the ask or the ask may wait for it.
    fn pass_breaker(
        &self,
        ask: &Ask,
        is_first: bool,
        now: Timestamp,
    ) -> Result<Option<Reason>, Evaluation> {
        let reason = Reason::BreakerOpen;
        let until = match self.breaker {
            ExternalBreaker::Closed => return Ok(None),
            // Tickets in line leave first, as probes.
            ExternalBreaker::HalfOpen { may_probe: true } if is_first => return Ok(None),
            ExternalBreaker::HalfOpen { .. } => None,
            ExternalBreaker::Open { until } => Some(until).filter(|until| *until > now),
        };
        if ask.waits_for_breaker && until.is_none_or(|until| until <= ask.deadline) {
            Err(Evaluation::Wait {
                reason,
                until: None,
            })
        } else {
            Err(Evaluation::Refuse { reason, until })
        }
    }
}
