//! Senders that know nothing but retries: workers, each with one thing to send until it is over.
//!
//! A worker that waits before it sends again is busy: that is what keeps such senders from
//! hammering without end, and what makes them slow when much fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use policy::backoff::BackoffSettings;
use policy::item::{Item, ItemKind, Step};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{Afterwards, Attempt, Controller, FlightId, Kept, Next, Outstanding};

#[derive(Debug)]
pub(super) struct Retrying {
    settings: BackoffSettings,
    manner: Manner,
    workers: u32,
    busy: u32,
    under_way: Outstanding<Work>,
    /// Those who wait, by the time they send again, with the place where their work is kept.
    waiting: BinaryHeap<Reverse<(Timestamp, usize)>>,
    kept: Vec<Option<Work>>,
    free: Vec<usize>,
}

/// How they retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Always again, whatever was answered, and for as long as it takes; hints are not read.
    Naive,
    /// As `policy::item` says.
    ByItem,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// So many attempts were made.
    Naive(u32),
    Item(Item),
}

impl Retrying {
    pub(super) fn new(settings: BackoffSettings, manner: Manner, workers: u32) -> Self {
        Self {
            settings,
            manner,
            workers,
            busy: 0,
            under_way: Outstanding::new(),
            waiting: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
        }
    }

    fn begin(&self, now: Timestamp) -> Work {
        match self.manner {
            Manner::Naive => Work::Naive(0),
            Manner::ByItem => Work::Item(Item::new(ItemKind::of("GET"), now)),
        }
    }

    /// When the work is tried again; `None` if it is over.
    fn again(
        &self,
        work: Work,
        attempt: &Attempt,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<(Timestamp, Work)> {
        match work {
            Work::Naive(_) if attempt.is_accepted() => None,
            Work::Naive(attempts) => {
                let attempts = attempts.saturating_add(1);
                let delay = self.settings.delay(attempts, random);
                Some((now + delay, Work::Naive(attempts)))
            }
            Work::Item(mut item) => {
                let Attempt { outcome, verdict } = attempt;
                match item.after(&self.settings, outcome, *verdict, now, random) {
                    Step::SendAt { at, .. } => Some((at, Work::Item(item))),
                    Step::Done | Step::Refresh | Step::Conflict | Step::Failed(_) => None,
                }
            }
        }
    }

    fn keep(&mut self, at: Timestamp, work: Work) -> Kept {
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        self.kept[place] = Some(work);
        self.waiting.push(Reverse((at, place)));
        Kept(place)
    }

    fn due(&mut self, now: Timestamp) -> Option<(Kept, Work)> {
        let Reverse((at, place)) = *self.waiting.peek()?;
        if at > now {
            return None;
        }
        self.waiting.pop();
        self.free.push(place);
        let work = self.kept.get_mut(place)?.take()?;
        Some((Kept(place), work))
    }
}

impl Controller for Retrying {
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, _: &mut Random) -> Next {
        if let Some((kept, work)) = self.due(now) {
            self.under_way.put(id, work);
            return Next::SendAgain(kept);
        }
        if has_fresh && self.busy < self.workers {
            self.busy += 1;
            self.under_way.put(id, self.begin(now));
            return Next::SendFresh;
        }
        Next::Wait {
            until: self.waiting.peek().map(|Reverse((at, _))| *at),
        }
    }

    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        random: &mut Random,
    ) -> Afterwards {
        let work = self.under_way.take(id);
        match work.and_then(|work| self.again(work, attempt, now, random)) {
            Some((at, work)) => Afterwards::Kept(self.keep(at, work)),
            None => {
                self.busy = self.busy.saturating_sub(1);
                Afterwards::Over
            }
        }
    }
}
