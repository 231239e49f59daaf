//! The loop of a run: which item starts when, and what becomes of it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use policy::failure_queue::{FailureQueueSettings, PacerRecord};
use policy::key::normalize;
use policy::rules::Class;
use policy::time::Timestamp;
use tidegate::Clock;
use tidegate::pace::{NotStarted, Pace, Turn, WorkResult};
use tokio::task::JoinSet;

use super::event::{FailReason, FailedItem, ItemResult, RunEvent, RunObserver, RunSummary};
use super::item::{Input, Item, ItemFormat, Listed};
use super::journal::{EndedAttempt, Journal, Past};
use super::output::LiveOutput;
use super::rules::{Exit, RuleSet};
use super::spill::Spill;
use super::{RunError, Stop, StopLevel};

/// Makes attempts.
pub(super) trait Runner: Send + Sync + 'static {
    fn attempt(&self, item: &Item, live: &LiveOutput) -> impl Future<Output = AttemptEnd> + Send;
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    Exited {
        exit: Exit,
        /// The end of what it printed.
        output: Vec<u8>,
    },
    NotStarted(io::Error),
}

/// The most sites with a gap of their own; beyond that one that was not used for long begins anew.
pub const MAX_SITES: usize = 10_000;

/// Items that are read ahead, so that a site that waits does not hold up the others.
const MAX_AHEAD: usize = 10_000;

#[derive(Debug)]
pub(super) struct Engine<R> {
    runner: Arc<R>,
    input: Input,
    clock: Clock,
    jobs: usize,
    settings: FailureQueueSettings,
    rules: RuleSet,
    format: ItemFormat,
    sites: Sites,
    /// Has the input ended?
    has_all: bool,
    retries: Spill<Item>,
    running: JoinSet<Step>,
    journal: Option<Journal>,
    /// What earlier runs left of the pace of each site.
    past: Arc<Past>,
    earlier: u64,
    failed_items: Spill<FailedItem>,
    done: u64,
    failed: u64,
    has_given_up: bool,
    /// The end of the gap that was reported last.
    reported: Option<Timestamp>,
}

/// What a slot waits for.
#[derive(Debug)]
enum Step {
    /// The end of an attempt.
    Attempt(Ended),
    /// The end on the disk.
    Record(Box<Recorded>, io::Result<()>),
}

/// An end that has been judged.
#[derive(Debug)]
struct Recorded {
    item: Item,
    site: usize,
    elapsed: Duration,
    verdict: Verdict,
    result: ItemResult,
}

/// An attempt that has ended.
#[derive(Debug)]
struct Ended {
    item: Item,
    site: usize,
    turn: Turn,
    began: Timestamp,
    end: AttemptEnd,
}

/// What an end means.
#[derive(Debug)]
struct Verdict {
    class: Class,
    rule: Option<String>,
    text: String,
    exit: Option<Exit>,
}

impl<R: Runner> Engine<R> {
    pub(super) fn new(
        runner: R,
        input: Input,
        clock: Clock,
        jobs: usize,
        settings: FailureQueueSettings,
        rules: RuleSet,
    ) -> Self {
        Self {
            runner: Arc::new(runner),
            input,
            clock,
            jobs,
            settings,
            rules,
            format: ItemFormat::default(),
            journal: None,
            past: Arc::default(),
            earlier: 0,
            sites: Sites::default(),
            has_all: false,
            retries: Spill::default(),
            running: JoinSet::new(),
            failed_items: Spill::default(),
            done: 0,
            failed: 0,
            has_given_up: false,
            reported: None,
        }
    }

    pub(super) fn with_format(self, format: ItemFormat) -> Self {
        Self { format, ..self }
    }

    /// Records what happens, and goes on where earlier runs stopped.
    pub(super) fn continuing(
        mut self,
        journal: Option<Journal>,
        past: Arc<Past>,
    ) -> Result<Self, RunError> {
        for failed in &past.failed {
            let failed = failed.clone();
            self.failed_items.push(failed).map_err(RunError::Spill)?;
        }
        self.failed = past.failed.len() as u64;
        self.done = past.done;
        self.earlier = self.failed + self.done;
        self.journal = journal;
        self.past = past;
        Ok(self)
    }

    pub(super) async fn run(
        mut self,
        mut stop: Stop,
        observer: &mut dyn RunObserver,
    ) -> Result<RunSummary, RunError> {
        let began = self.clock.now();
        let mut problem = None;
        loop {
            let level = *stop.borrow_and_update();
            if level == StopLevel::Quit {
                break;
            }
            let goes_on = level == StopLevel::Run && problem.is_none();
            let ask_again = match goes_on {
                true => self.advance(observer).unwrap_or_else(|error| {
                    problem = Some(error);
                    None
                }),
                false => None,
            };
            let goes_on = goes_on && problem.is_none();
            let wants_input = goes_on && !self.has_all && self.sites.waiting < self.max_ahead();
            if self.running.is_empty() && !wants_input && ask_again.is_none() {
                break;
            }
            tokio::select! {
                Some(step) = self.running.join_next(), if !self.running.is_empty() => {
                    let done = match step {
                        Ok(Step::Attempt(ended)) => self.ended(ended, observer),
                        Ok(Step::Record(recorded, synced)) => {
                            self.recorded(*recorded, observer)
                                .and_then(|()| synced.map_err(RunError::Record))
                        }
                        // A task that panicked has reported that.
                        Err(_) => Ok(()),
                    };
                    problem = problem.or_else(|| done.err());
                }
                batch = self.input.next(), if wants_input => match batch {
                    Ok(batch) => problem = self.listed(batch, observer).err(),
                    Err(error) => problem = Some(error),
                },
                () = sleep(&self.clock, ask_again), if ask_again.is_some() => {}
                // The sender is gone when nothing can stop the run.
                Ok(()) = stop.changed() => {}
            }
        }
        let is_interrupted = *stop.borrow() != StopLevel::Run;
        self.running.shutdown().await;
        match problem {
            Some(problem) => Err(problem),
            None => Ok(RunSummary {
                done: self.done,
                failed: self.failed,
                earlier: self.earlier,
                has_given_up: self.has_given_up,
                is_interrupted,
                elapsed: self.clock.now().since(began),
                failed_items: self.failed_items,
            }),
        }
    }

    fn max_ahead(&self) -> usize {
        match self.format.is_per_host {
            true => MAX_AHEAD,
            false => self.jobs.max(16),
        }
    }

    fn listed(
        &mut self,
        batch: Vec<Listed>,
        observer: &mut dyn RunObserver,
    ) -> Result<(), RunError> {
        self.has_all = batch.is_empty();
        for listed in batch {
            match listed {
                // It was at the end of the list already.
                Listed::Item(item) if item.attempts > 0 => {
                    self.retries.push(item).map_err(RunError::Spill)?;
                }
                Listed::Item(item) => self.enqueue(item)?,
                Listed::Bad(item, why) => {
                    observer.event(&RunEvent::Refused {
                        item: &item,
                        why: &why,
                    });
                    self.fail(&item, FailReason::Refused, None, why)?;
                }
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, item: Item) -> Result<(), RunError> {
        let key = match self.format.is_per_host {
            // Items that have none were refused.
            true => normalize(&item.text).unwrap_or_default(),
            false => String::new(),
        };
        let record = self.past.paces.get(&key);
        let site = self.sites.find(key, record, &self.settings, &self.clock);
        match self.sites.get(site).has_given_up {
            true => self.fail(&item, FailReason::GaveUp, None, String::new()),
            false => {
                self.sites.push(site, item);
                Ok(())
            }
        }
    }

    /// Starts what may start. Returns when to try again, if nothing else happens.
    fn advance(&mut self, observer: &mut dyn RunObserver) -> Result<Option<Timestamp>, RunError> {
        while self.has_all && self.sites.waiting < self.max_ahead() {
            match self.retries.pop().map_err(RunError::Spill)? {
                Some(item) => self.enqueue(item)?,
                None => break,
            }
        }
        let mut next = None;
        while self.running.len() < self.jobs {
            match self.pick() {
                Pick::Start(site, turn) => self.start(site, turn, observer)?,
                Pick::GaveUp(site) => self.give_up(site, observer)?,
                Pick::Wait { ask_again, gap } => {
                    if let Some((until, site)) = gap {
                        self.report_gap(until, site, observer);
                    }
                    next = Some(ask_again);
                    break;
                }
                Pick::None => break,
            }
        }
        Ok(next)
    }

    /// The first item in the order of the list whose site may start.
    fn pick(&self) -> Pick {
        let mut ask_again = None;
        let mut gap: Option<(Timestamp, usize)> = None;
        for &site in self.sites.order.values() {
            match self.sites.get(site).pace.try_start() {
                Ok(turn) => return Pick::Start(site, turn),
                Err(NotStarted::GaveUp) => return Pick::GaveUp(site),
                Err(NotStarted::Wait {
                    until,
                    ask_again: again,
                }) => {
                    ask_again = Some(ask_again.map_or(again, |at: Timestamp| at.min(again)));
                    if let Some(until) = until
                        && gap.is_none_or(|(first, _)| until < first)
                    {
                        gap = Some((until, site));
                    }
                }
            }
        }
        match ask_again {
            Some(ask_again) => Pick::Wait { ask_again, gap },
            None => Pick::None,
        }
    }

    fn start(
        &mut self,
        site: usize,
        turn: Turn,
        observer: &mut dyn RunObserver,
    ) -> Result<(), RunError> {
        let Some(item) = self.sites.pop(site) else {
            return Ok(());
        };
        if let Some(journal) = &self.journal {
            let written = journal.started(&item, self.clock.wall());
            written.map_err(RunError::Record)?;
        }
        let output = Arc::new(LiveOutput::default());
        observer.event(&RunEvent::Started {
            item: &item,
            attempt: item.attempts + 1,
            output: Arc::clone(&output),
        });
        let began = self.clock.now();
        let runner = Arc::clone(&self.runner);
        self.running.spawn(async move {
            let end = runner.attempt(&item, &output).await;
            Step::Attempt(Ended {
                item,
                site,
                turn,
                began,
                end,
            })
        });
        Ok(())
    }

    /// An attempt has ended: its pace learns from it at once, its item when it is recorded.
    fn ended(&mut self, ended: Ended, observer: &mut dyn RunObserver) -> Result<(), RunError> {
        let Ended {
            mut item,
            site,
            turn,
            began,
            end,
        } = ended;
        let verdict = self.judge(end);
        turn.end(match verdict.class {
            Class::Success => WorkResult::Success,
            Class::Retryable | Class::BotCheck => WorkResult::Failure,
            Class::Terminal => WorkResult::Neutral,
        });
        item.attempts += 1;
        let result = match verdict.class {
            Class::Success => ItemResult::Done,
            Class::Terminal => ItemResult::Failed(FailReason::Rejected),
            Class::Retryable | Class::BotCheck if item.attempts < self.settings.attempts() => {
                ItemResult::Retry
            }
            Class::Retryable | Class::BotCheck => ItemResult::Failed(FailReason::Exhausted),
        };
        let recorded = Recorded {
            item,
            site,
            elapsed: self.clock.now().since(began),
            verdict,
            result,
        };
        let Some(journal) = &self.journal else {
            return self.recorded(recorded, observer);
        };
        let ended = EndedAttempt {
            item: &recorded.item,
            result,
            class: recorded.verdict.class,
            rule: recorded.verdict.rule.as_deref(),
            text: &recorded.verdict.text,
        };
        let synced = journal.ended(&ended, self.clock.wall());
        let synced = synced.map_err(RunError::Record)?;
        self.running.spawn(async move {
            let lost = || {
                Err(io::Error::other(
                    "the thread that syncs the journal has ended",
                ))
            };
            let synced = synced.await.unwrap_or_else(|_| lost());
            Step::Record(Box::new(recorded), synced)
        });
        Ok(())
    }

    /// An end is on the disk, if it has to be.
    fn recorded(
        &mut self,
        recorded: Recorded,
        observer: &mut dyn RunObserver,
    ) -> Result<(), RunError> {
        let Recorded {
            item,
            site,
            elapsed,
            verdict,
            result,
        } = recorded;
        let site = self.sites.get(site);
        let view = site.pace.view();
        observer.event(&RunEvent::Ended {
            item: &item,
            attempt: item.attempts,
            exit: verdict.exit,
            class: verdict.class,
            rule: verdict.rule.as_deref(),
            text: &verdict.text,
            elapsed,
            result,
            failures: view.failures,
            gap: view.gap,
            site: site.name(),
        });
        match result {
            ItemResult::Done => {
                self.done += 1;
                Ok(())
            }
            ItemResult::Retry => self.retries.push(item).map_err(RunError::Spill),
            ItemResult::Failed(reason) => self.fail(&item, reason, verdict.rule, verdict.text),
        }
    }

    fn judge(&self, end: AttemptEnd) -> Verdict {
        match end {
            AttemptEnd::Exited { exit, output } => {
                let judgement = self.rules.judge(exit, &output);
                // A program that printed nothing still has a reason.
                let text = match (judgement.class, judgement.text.is_empty()) {
                    (Class::Retryable | Class::Terminal | Class::BotCheck, true) => {
                        judgement.reason.into_owned()
                    }
                    _ => judgement.text,
                };
                Verdict {
                    class: judgement.class,
                    rule: judgement.rule.map(str::to_owned),
                    text,
                    exit: Some(exit),
                }
            }
            AttemptEnd::NotStarted(error) => Verdict {
                class: Class::Retryable,
                rule: None,
                text: format!("cannot start: {error}"),
                exit: None,
            },
        }
    }

    fn fail(
        &mut self,
        item: &Item,
        reason: FailReason,
        rule: Option<String>,
        text: String,
    ) -> Result<(), RunError> {
        self.failed += 1;
        self.has_given_up |= reason == FailReason::GaveUp;
        let failed = FailedItem {
            item: item.text.clone(),
            reason,
            attempts: item.attempts,
            rule,
            text,
        };
        self.failed_items.push(failed).map_err(RunError::Spill)
    }

    /// Nothing of this site starts any more.
    fn give_up(&mut self, site: usize, observer: &mut dyn RunObserver) -> Result<(), RunError> {
        let name = self.sites.get(site).name();
        observer.event(&RunEvent::GaveUp { site: name });
        self.sites.get_mut(site).has_given_up = true;
        self.has_given_up = true;
        while let Some(item) = self.sites.pop(site) {
            self.fail(&item, FailReason::GaveUp, None, String::new())?;
        }
        // With one gap for all, the rest of a list is given up with it, unless another process
        // decides when the list ends.
        if !self.format.is_per_host && !self.input.is_finite {
            self.has_all = true;
        }
        Ok(())
    }

    fn report_gap(&mut self, until: Timestamp, site: usize, observer: &mut dyn RunObserver) {
        if self.reported == Some(until) {
            return;
        }
        self.reported = Some(until);
        let site = self.sites.get(site);
        let view = site.pace.view();
        observer.event(&RunEvent::Waiting {
            until,
            wait: until.since(self.clock.now()),
            failures: view.failures,
            gap: view.gap,
            site: site.name(),
        });
    }
}

async fn sleep(clock: &Clock, until: Option<Timestamp>) {
    if let Some(until) = until {
        clock.sleep_until(until).await;
    }
}

enum Pick {
    Start(usize, Turn),
    GaveUp(usize),
    Wait {
        ask_again: Timestamp,
        /// The end of the first gap, and its site.
        gap: Option<(Timestamp, usize)>,
    },
    None,
}

/// Everything that has a gap of its own: one site for all items, or one per server.
#[derive(Debug, Default)]
struct Sites {
    sites: Vec<Site>,
    by_key: BTreeMap<Box<str>, usize>,
    /// Sites with items that wait, by the number of their first one.
    order: BTreeMap<u64, usize>,
    next_number: u64,
    waiting: usize,
    /// Where the search for a site that can be replaced goes on.
    hand: usize,
}

#[derive(Debug)]
struct Site {
    key: Box<str>,
    pace: Pace,
    /// In order, with the number that each got when it came.
    waiting: VecDeque<(u64, Item)>,
    has_given_up: bool,
}

impl Site {
    fn name(&self) -> Option<&str> {
        Some(&*self.key).filter(|key| !key.is_empty())
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.pace.view().in_flight > 0 || self.has_given_up
    }
}

impl Sites {
    fn get(&self, site: usize) -> &Site {
        &self.sites[site]
    }

    fn get_mut(&mut self, site: usize) -> &mut Site {
        &mut self.sites[site]
    }

    /// The site with this key, a new one if need be.
    fn find(
        &mut self,
        key: String,
        record: Option<&PacerRecord>,
        settings: &FailureQueueSettings,
        clock: &Clock,
    ) -> usize {
        if let Some(&site) = self.by_key.get(&*key) {
            return site;
        }
        let key: Box<str> = key.into();
        let new = Site {
            key: key.clone(),
            pace: match record {
                Some(record) => Pace::restored(settings.clone(), clock.clone(), record),
                None => Pace::with_clock(settings.clone(), clock.clone()),
            },
            waiting: VecDeque::new(),
            has_given_up: false,
        };
        let place = match self.replaceable() {
            Some(place) => {
                let old = std::mem::replace(&mut self.sites[place], new);
                self.by_key.remove(&old.key);
                place
            }
            None => {
                self.sites.push(new);
                self.sites.len() - 1
            }
        };
        self.by_key.insert(key, place);
        place
    }

    /// A site that can make room, if there are too many: best one that is as good as new.
    fn replaceable(&mut self) -> Option<usize> {
        if self.sites.len() < MAX_SITES {
            return None;
        }
        let mut found = None;
        for step in 0..MAX_SITES {
            let place = (self.hand + step) % self.sites.len();
            let site = &self.sites[place];
            if site.is_busy() {
                continue;
            }
            let is_idle = site.pace.is_idle();
            found = found.or(Some(place));
            if is_idle || step >= 64 {
                found = if is_idle { Some(place) } else { found };
                break;
            }
        }
        self.hand = found.map_or(self.hand, |place| place + 1);
        found
    }

    fn push(&mut self, site: usize, item: Item) {
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let waiting = &mut self.sites[site].waiting;
        if waiting.is_empty() {
            self.order.insert(number, site);
        }
        waiting.push_back((number, item));
    }

    fn pop(&mut self, site: usize) -> Option<Item> {
        let waiting = &mut self.sites[site].waiting;
        let (number, item) = waiting.pop_front()?;
        self.order.remove(&number);
        if let Some((next, _)) = waiting.front() {
            self.order.insert(*next, site);
        }
        self.waiting -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests;
