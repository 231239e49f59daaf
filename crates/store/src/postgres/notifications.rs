//! Notifications between nodes about lanes with operations that are due, and about changed pools and jobs,
//! over LISTEN and NOTIFY.
//!
//! A message only makes others look sooner: none is needed, because every node reads all lanes every
//! few seconds. So messages are sent apart from the transactions that they are about, and gathered:
//! a commit with a message would wait for every other such commit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::time::WallTime;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::jobs::JobListener;
use crate::operations::{Lane, ReadyListener};

/// Lanes to announce to other nodes, and the listener for what they announce.
#[derive(Default)]
pub(super) struct Notifications {
    state: Mutex<State>,
    /// Signals that there is something to announce.
    waiting: Notify,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<Lane, WallTime>,
    /// Whether there is something about pools to announce.
    has_pools: bool,
    /// Whether there is something about jobs to announce.
    has_jobs: bool,
    listener: Option<Arc<ReadyListener>>,
    pool_listener: Option<Arc<PoolListener>>,
    job_listener: Option<Arc<JobListener>>,
}

/// Called when another node may have changed something about pools.
pub(crate) type PoolListener = Box<dyn Fn() + Send + Sync>;

/// What is announced at once.
pub(super) struct Announcement {
    pub(super) lanes: BTreeMap<Lane, WallTime>,
    pub(super) has_pools: bool,
    pub(super) has_jobs: bool,
}

/// What another node announced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An operation of a lane is due.
    Ready(Lane, WallTime),
    /// All lanes are to be read.
    AnyLane,
    /// Pools are to be read.
    Pools,
    /// A job was queued or cancelled.
    Jobs,
}

/// Further lanes are not announced by name; they are found when lanes are read.
const MAX_ANNOUNCED: usize = 1000;

impl Notifications {
    /// Announces to the other nodes that operations of these lanes are due.
    pub(super) fn announce(&self, ready: BTreeMap<Lane, WallTime>) {
        if ready.is_empty() {
            return;
        }
        let mut state = self.lock();
        for (lane, at) in ready {
            if state.lanes.len() < MAX_ANNOUNCED || state.lanes.contains_key(&lane) {
                let first = state.lanes.entry(lane).or_insert(at);
                *first = at.min(*first);
            }
        }
        drop(state);
        self.waiting.notify_one();
    }

    /// Announces to the other nodes that something about pools has changed.
    pub(super) fn announce_pools(&self) {
        self.lock().has_pools = true;
        self.waiting.notify_one();
    }

    /// Announces to the other nodes that a job was queued or cancelled.
    pub(super) fn announce_jobs(&self) {
        self.lock().has_jobs = true;
        self.waiting.notify_one();
    }

    /// Waits until there is something to announce, and takes it.
    pub(super) async fn next(&self) -> Announcement {
        loop {
            self.waiting.notified().await;
            let mut state = self.lock();
            let announcement = Announcement {
                lanes: std::mem::take(&mut state.lanes),
                has_pools: std::mem::take(&mut state.has_pools),
                has_jobs: std::mem::take(&mut state.has_jobs),
            };
            drop(state);
            let is_empty = announcement.lanes.is_empty();
            if announcement.has_pools || announcement.has_jobs || !is_empty {
                return announcement;
            }
        }
    }

    /// Sets what is called when another node may have changed something about pools.
    pub(super) fn set_pool_listener(&self, listener: PoolListener) {
        self.lock().pool_listener = Some(Arc::new(listener));
    }

    /// Sets what is called when another node may have queued or cancelled a job.
    pub(super) fn set_job_listener(&self, listener: JobListener) {
        self.lock().job_listener = Some(Arc::new(listener));
    }

    /// Another node announced something.
    pub(super) fn received(&self, message: Message) {
        match message {
            Message::Ready(lane, at) => self.lane_is_ready(Some((lane, at))),
            Message::AnyLane => self.lane_is_ready(None),
            Message::Pools => {
                let listener = self.lock().pool_listener.clone();
                if let Some(listener) = listener {
                    listener();
                }
            }
            Message::Jobs => {
                let listener = self.lock().job_listener.clone();
                if let Some(listener) = listener {
                    listener();
                }
            }
        }
    }

    /// What other nodes announced is not known: everything is to be read.
    pub(super) fn missed(&self) {
        self.received(Message::AnyLane);
        self.received(Message::Pools);
        self.received(Message::Jobs);
    }

    /// Sets what is called with the announcements of other nodes.
    pub(super) fn set_listener(&self, listener: ReadyListener) {
        self.lock().listener = Some(Arc::new(listener));
    }

    fn lane_is_ready(&self, ready: Option<(Lane, WallTime)>) {
        let listener = self.lock().listener.clone();
        if let Some(listener) = listener {
            listener(ready);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of a message. The longest that the server takes has 8000 bytes.
pub(super) fn message(session: u64, lane: &Lane, at: WallTime) -> String {
    let text = json!({
        "from": session,
        "destination": lane.destination,
        "kind": lane.kind,
        "at_ms": at.as_unix_millis(),
    });
    let text = text.to_string();
    match text.len() < 8000 {
        true => text,
        false => json!({ "from": session }).to_string(),
    }
}

/// The text of a message about pools. Nodes of an earlier version read all lanes then.
pub(super) fn pools_message(session: u64) -> String {
    json!({ "from": session, "pools": true }).to_string()
}

/// The text of a message about jobs.
pub(super) fn jobs_message(session: u64) -> String {
    json!({ "from": session, "jobs": true }).to_string()
}

/// What a message of another node says; `None` for one's own and for those that cannot be read.
pub(super) fn read(session: u64, text: &str) -> Option<Message> {
    let message: Value = serde_json::from_str(text).ok()?;
    if message["from"].as_u64()? == session {
        return None;
    }
    let lane = || {
        let lane = Lane {
            destination: message["destination"].as_str()?.to_owned(),
            kind: message["kind"].as_str()?.to_owned(),
        };
        let at = WallTime::from_unix_millis(message["at_ms"].as_i64()?);
        Some(Message::Ready(lane, at))
    };
    if message["pools"] == true {
        return Some(Message::Pools);
    }
    if message["jobs"] == true {
        return Some(Message::Jobs);
    }
    Some(lane().unwrap_or(Message::AnyLane))
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(destination: &str) -> Lane {
        Lane {
            destination: destination.to_owned(),
            kind: "default".to_owned(),
        }
    }

    #[test]
    fn a_message_is_read_by_others_only() {
        let at = WallTime::from_unix_millis(7);
        let text = message(1, &lane("a"), at);
        assert_eq!(read(1, &text), None);
        assert_eq!(read(2, &text), Some(Message::Ready(lane("a"), at)));
        assert_eq!(read(1, &pools_message(1)), None);
        assert_eq!(read(2, &pools_message(1)), Some(Message::Pools));
        assert_eq!(read(1, &jobs_message(1)), None);
        assert_eq!(read(2, &jobs_message(1)), Some(Message::Jobs));
        assert_eq!(read(2, "something else"), None);
        assert_eq!(read(2, "{}"), None);
    }

    #[test]
    fn a_lane_with_a_long_name_makes_others_read_all() {
        let text = message(1, &lane(&"x".repeat(9000)), WallTime::from_unix_millis(7));
        assert!(text.len() < 8000);
        assert_eq!(read(2, &text), Some(Message::AnyLane));
    }
}
