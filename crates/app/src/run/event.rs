//! What happens in a run, for displays and logs.

use std::sync::Arc;
use std::time::Duration;

use policy::rules::Class;
use policy::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::item::Item;
use super::output::LiveOutput;
use super::rules::Exit;
use super::spill::Spill;

/// Sees what happens in a run, in order.
pub trait RunObserver {
    /// Called for every event, by the task that runs everything: it should be quick.
    fn event(&mut self, event: &RunEvent<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub enum RunEvent<'e> {
    /// An attempt has started.
    Started {
        /// The item.
        item: &'e Item,
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// What it prints.
        output: Arc<LiveOutput>,
    },
    /// An attempt has ended.
    Ended {
        /// The item.
        item: &'e Item,
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// How the program ended; `None` if it could not be started.
        exit: Option<Exit>,
        /// What that means.
        class: Class,
        /// The rule that said so.
        rule: Option<&'e str>,
        /// The line that decided; may be empty.
        text: &'e str,
        /// How long the attempt took.
        elapsed: Duration,
        /// What becomes of the item.
        result: ItemResult,
        /// Failures that count now: the multiplier of the base.
        failures: usize,
        /// The gap to the next start.
        gap: Duration,
        /// The site, if each has its own gap.
        site: Option<&'e str>,
    },
    /// An item was not run because it cannot be an argument of the command.
    Refused {
        /// The item.
        item: &'e Item,
        /// Why.
        why: &'e str,
    },
    /// Nothing may start before a time.
    Waiting {
        /// The end of the gap.
        until: Timestamp,
        /// From now.
        wait: Duration,
        /// Failures that count now: the multiplier of the base.
        failures: usize,
        /// The whole gap.
        gap: Duration,
        /// The site, if each has its own gap.
        site: Option<&'e str>,
    },
    /// There was no success for longer than `give_up_after`.
    GaveUp {
        /// The site, if each has its own gap.
        site: Option<&'e str>,
    },
}

/// What becomes of an item after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemResult {
    /// It succeeded.
    Done,
    /// It is tried again, at the end of the list.
    Retry,
    /// It is not tried again.
    Failed(FailReason),
}

impl ItemResult {
    /// Its word in events and journals.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Failed(_) => "failed",
        }
    }
}

/// Why an item is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// A rule says that it will never succeed.
    Rejected,
    /// Its attempts are used up.
    Exhausted,
    /// There was no success for longer than `give_up_after`.
    GaveUp,
    /// It cannot be an argument of the command.
    Refused,
}

impl FailReason {
    /// Its word in events and journals.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::GaveUp => "gave_up",
            Self::Refused => "refused",
        }
    }
}

/// An item that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedItem {
    /// The item.
    pub item: Box<str>,
    /// Why it is not tried again.
    pub reason: FailReason,
    /// Attempts it had.
    pub attempts: u32,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// The line that decided; may be empty.
    pub text: String,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunSummary {
    /// Items that succeeded.
    pub done: u64,
    /// Items that failed, those given up included.
    pub failed: u64,
    /// How many of both ended in an earlier run, by the journal.
    pub earlier: u64,
    /// Was anything given up because there was no success?
    pub has_given_up: bool,
    /// Was it asked to stop before its end?
    pub is_interrupted: bool,
    /// How long it took.
    pub elapsed: Duration,
    pub(super) failed_items: Spill<FailedItem>,
}

impl RunSummary {
    /// The next of the items that failed, in the order in which they did.
    pub fn next_failed(&mut self) -> Option<FailedItem> {
        // They were written by this process; what cannot be read back is missing in the list only.
        self.failed_items.pop().ok().flatten()
    }
}
