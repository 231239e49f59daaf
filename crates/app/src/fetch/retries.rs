//! Items that wait to be sent again.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

use policy::time::Timestamp;
use tidegate::Clock;
use tokio::sync::Notify;
use url::Url;

use super::item::FetchItem;

/// Items that wait to be sent again, by the time when they may be.
#[derive(Debug, Default)]
pub(super) struct Retries {
    heap: RefCell<BinaryHeap<Waiting>>,
    /// The first one has changed.
    changed: Notify,
}

#[derive(Debug)]
struct Waiting {
    at: Timestamp,
    item: Box<FetchItem>,
}

impl Retries {
    pub(super) fn len(&self) -> usize {
        self.heap.borrow().len()
    }

    pub(super) fn push(&self, at: Timestamp, item: Box<FetchItem>) {
        let mut heap = self.heap.borrow_mut();
        let is_first = heap.peek().is_none_or(|first| at < first.at);
        heap.push(Waiting { at, item });
        if is_first {
            self.changed.notify_one();
        }
    }

    /// The time and the URL of the first one.
    pub(super) fn first(&self) -> Option<(Timestamp, Url)> {
        let heap = self.heap.borrow();
        heap.peek().map(|first| (first.at, first.item.url.clone()))
    }

    /// The next item, when its time has come.
    pub(super) async fn next(&self, clock: &Clock) -> Box<FetchItem> {
        loop {
            let first = self.heap.borrow().peek().map(|first| first.at);
            let Some(at) = first else {
                self.changed.notified().await;
                continue;
            };
            if at <= clock.now()
                && let Some(first) = self.heap.borrow_mut().pop()
            {
                return first.item;
            }
            tokio::select! {
                () = clock.sleep_until(at) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

impl Ord for Waiting {
    /// The earliest is the greatest: a heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Waiting {}
