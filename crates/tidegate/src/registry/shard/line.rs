//! Serves lines: which tickets leave, and when the gate is due again.

use std::task::Waker;
use std::time::Duration;

use policy::gate::Reason;
use policy::time::Timestamp;

use super::{Shard, not_back};
use crate::ask::Refusal;
use crate::clock::TasksRun;
use crate::registry::seats::SeatState;
use crate::registry::slab::SlotIndex;

impl Shard {
    /// Lets every ticket leave that was due before `now`, each at the time it was due.
    ///
    /// Alarms fire late, by milliseconds on a busy machine. Tokens beyond the bucket's capacity
    /// would be lost meanwhile, and with them the rate. So a line is served as if its alarm had
    /// fired on time.
    pub(crate) fn catch_up(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        let earliest = now.as_nanos().saturating_sub(MAX_LATE_NANOS);
        let earliest = Timestamp::from_nanos(earliest);
        let mut last = None;
        while let Some(&due) = self.due_at.get(&index)
            && due < now
        {
            let at = self.time_at(index, due.max(earliest));
            if at >= now || last.is_some_and(|last| at <= last) {
                return;
            }
            self.serve(index, at, wakers);
            last = Some(at);
        }
    }

    /// Lets every ticket leave that is admitted or has expired, and records when the gate is due
    /// next.
    pub(crate) fn serve(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        let now = not_back(self.parts(index).0, now);
        loop {
            let before = wakers.len();
            self.admit_all(index, now, wakers);
            self.expire_all(index, now, wakers);
            if wakers.len() == before {
                break;
            }
        }
        let next = match self.shared(index) {
            Some(mut shared) => shared.next_wake(now),
            None => {
                let (gate, settings, tickets) = self.parts(index);
                gate.next_wake(settings, tickets, now)
            }
        };
        self.look_again(index, next);
        self.schedule_call(index, now, wakers);
    }

    fn admit_all(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        loop {
            let admitted = match self.shared(index) {
                Some(mut shared) => shared.admit_next(now),
                None => {
                    let (gate, settings, tickets) = self.parts(index);
                    gate.admit_next(settings, tickets, now)
                }
            };
            let Some((ticket, permit)) = admitted else {
                return;
            };
            wakers.extend(self.seats.fill(ticket, SeatState::Admitted(permit), now));
        }
    }

    fn expire_all(&mut self, index: SlotIndex, now: Timestamp, wakers: &mut Vec<Waker>) {
        loop {
            let at_fleet = self.shared(index).map(|mut it| it.next_admission(now));
            let (gate, settings, tickets) = self.parts(index);
            let until = at_fleet.unwrap_or_else(|| gate.next_admission(settings, tickets));
            let is_full = gate.in_flight() >= settings.max_in_flight();
            let Some(ticket) = gate.expire_next(tickets, now) else {
                return;
            };
            self.counts.denied += 1;
            let reason = match until {
                None if is_full => Reason::InFlight,
                _ => Reason::Deadline,
            };
            let refused = SeatState::Refused(Refusal::new(reason, until, now));
            wakers.extend(self.seats.fill(ticket, refused, now));
        }
    }

    fn look_again(&mut self, index: SlotIndex, at: Option<Timestamp>) {
        if let Some(before) = self.due_at.remove(&index) {
            self.due.remove(&(before, index));
        }
        if let Some(at) = at {
            self.due_at.insert(index, at);
            self.due.insert((at, index));
        }
    }

    /// When the next gate or seat is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let gate = self.due.first().map(|(at, _)| *at);
        let seat = self.seats.next_forfeit();
        [gate, seat].into_iter().flatten().min()
    }

    /// Serves every gate and seat that is due.
    pub(crate) fn serve_due(&mut self, now: Timestamp, tasks: TasksRun, wakers: &mut Vec<Waker>) {
        self.forfeit(now, tasks, wakers);
        while let Some(&(at, index)) = self.due.first() {
            // What is due at the end of time would be due again and again.
            if at > now || at == Timestamp::MAX {
                return;
            }
            self.catch_up(index, now, wakers);
            self.serve(index, now, wakers);
            // Alarms are late by some hundred microseconds, and bursts cover two milliseconds. At
            // high rates several tickets leave per wakeup instead of one.
            if let Some(&next) = self.due_at.get(&index) {
                self.look_again(index, Some(next.max(now + GRAIN)));
            }
        }
    }

    /// Takes back permits that were not collected.
    fn forfeit(&mut self, now: Timestamp, tasks: TasksRun, wakers: &mut Vec<Waker>) {
        while let Some((index, permit)) = self.seats.forfeit_next(now, tasks) {
            self.give_back(index, permit, now);
            self.serve(index, now, wakers);
        }
    }
}

/// Longer than alarms are late on a busy machine. After a longer gap the machine was asleep, and
/// the tickets due meanwhile must not leave in a burst.
const MAX_LATE_NANOS: u64 = 100_000_000;

/// The minimum time between wakeups of one gate.
const GRAIN: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use policy::gate::GateOptions;
    use policy::hosts::Hosts;

    use super::super::AskResult;
    use super::*;
    use crate::ask::Ask;
    use crate::registry::members::GateHosts;
    use crate::settings::HostSettings;

    const KEY: &str = "api.example.com";

    /// A shard with one gate of 500 per second and `waiting` asks in line since the start.
    fn shard(waiting: usize) -> (Shard, SlotIndex) {
        let mut options = GateOptions::default();
        for (name, value) in [("strategy", "fixed"), ("initial_rate", "500")] {
            options.set(name, value).unwrap();
        }
        let settings = HostSettings::from(options.build().unwrap());
        let hosts = GateHosts::new(&Arc::new(Hosts::new(settings)), None);
        let mut shard = Shard::new(&hosts, None);
        let now = Timestamp::ZERO;
        let index = shard.insert(7, KEY, None, now).unwrap();
        while shard.try_acquire(index, 1, now).is_ok() {}
        for _ in 0..waiting {
            let ask = Ask::new(KEY);
            let asked = shard.acquire(index, &ask, now, Waker::noop(), now);
            assert!(matches!(asked, AskResult::Waiting { .. }));
        }
        shard.serve(index, now, &mut Vec::new());
        (shard, index)
    }

    fn serve_due(shard: &mut Shard, now: Timestamp, left: &mut Vec<Waker>) {
        let tasks = TasksRun {
            last: now,
            next: now,
        };
        shard.serve_due(now, tasks, left);
    }

    #[test]
    fn late_alarm_does_not_lose_tokens() {
        let (mut shard, _) = shard(1000);
        let mut left = Vec::new();
        for ring in [3, 17, 90, 95, 180, 200] {
            serve_due(&mut shard, Timestamp::from_millis(ring), &mut left);
        }
        assert_eq!(left.len(), 100, "500 a second for 200 ms");
    }

    #[test]
    fn asks_do_not_leave_in_a_burst_after_the_machine_slept() {
        let (mut shard, _) = shard(1000);
        let mut left = Vec::new();
        serve_due(&mut shard, Timestamp::from_secs(20), &mut left);
        let most = 500 / 10 + 2;
        assert!((50..=most).contains(&left.len()), "{}", left.len());
    }

    #[test]
    fn late_ask_does_not_lose_tokens_of_waiters() {
        let (mut shard, index) = shard(1000);
        let mut left = Vec::new();
        for at in (7..=200).step_by(7) {
            let now = Timestamp::from_millis(at);
            shard.catch_up(index, now, &mut left);
            // An ask refills the bucket, which discards tokens beyond its capacity.
            assert!(
                shard.try_acquire(index, 1, now).is_err(),
                "overtook the line"
            );
        }
        serve_due(&mut shard, Timestamp::from_millis(200), &mut left);
        assert_eq!(left.len(), 100);
    }
}
