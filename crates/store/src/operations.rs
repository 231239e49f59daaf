//! The queue of durable operations: what every backend does, and the records it stores.
//!
//! An operation is accepted once its insert is durable. A worker claims operations of one
//! lane when it may send there, and settles each claim with its result. Which state
//! follows which event is decided by [`policy::operation`]; a backend applies that table and makes
//! the result durable, in one transaction per call.
//!
//! - **A claim is a lease with a fencing number.** A worker that does not extend its lease loses it:
//!   [`OperationQueue::sweep`] takes the operation back. The next claim has a higher number, and a
//!   late worker that settles with the old one changes nothing. Leases of a process that ended
//!   are taken back by [`OperationQueue::recover`].
//! - **Order keys.** Of the unfinished operations with one order key, only the oldest can be claimed.
//!   A failed, cancelled or completed one no longer blocks the next.
//! - **Times are wall times**, because a backend compares them in queries. A clock that was set back
//!   is corrected by [`OperationQueue::recover`].

pub(crate) mod columns;
pub(crate) mod entry;
pub(crate) mod size;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use policy::item::{ItemRecord, TerminalReason};
use policy::operation::{IllegalTransition, OperationEvent, OperationState};
use policy::time::WallTime;
use thiserror::Error;

use crate::error::StoreError;
use entry::Entry;

/// The result of a call, when it is durable. The call itself is made at once, not at the first poll,
/// and is completed even if the future is dropped.
pub type QueueFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Blocks until a call is durable, for callers without a runtime.
pub fn wait<T>(call: QueueFuture<T>) -> Result<T, StoreError> {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut call = pin!(call);
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// A queue of operations that survives restarts.
pub trait OperationQueue: fmt::Debug + Send + Sync {
    /// Stores an operation. An operation of the same client with the same idempotency key is not
    /// stored twice.
    fn insert(&self, operation: NewOperation) -> QueueFuture<Inserted>;

    /// Claims up to `limit` operations of a lane that are due: highest priority first, then the one
    /// that is due for longest. One that has expired is failed instead, and one whose request cannot
    /// be read is put off for a minute; both count towards `limit`.
    fn claim(&self, lane: &Lane, lease: Lease, limit: usize) -> QueueFuture<Claims>;

    /// Ends a claim with its result, and returns the operation as it is then. `None`: the claim
    /// was lost, because its lease had ended or a person had decided meanwhile; the state stays.
    fn settle(
        &self,
        claim: ClaimId,
        settlement: Settlement,
    ) -> QueueFuture<Option<StoredOperation>>;

    /// Extends the leases of these claims; of those that were lost, nothing changes. A claim that its
    /// caller never learned of, because the connection broke, is in no heartbeat: its lease ends.
    fn heartbeat(&self, claims: Vec<ClaimId>, lease: Lease) -> QueueFuture<()>;

    /// Applies what a person or a merge rule decided, and returns the operation as it is then.
    fn decide(&self, decision: Decision) -> QueueFuture<Result<StoredOperation, DecisionError>>;

    /// Fails operations that have expired, takes back those whose lease has ended, and deletes those
    /// whose retention has ended; at most `limit` of each.
    fn sweep(&self, now: WallTime, limit: usize) -> QueueFuture<Swept>;

    /// Takes back every operation that was running in a process that has ended. Comes first.
    fn recover(&self, now: WallTime) -> QueueFuture<Vec<StoredOperation>>;

    /// Lanes with operations that can be claimed now or later, in their order, after `after`; with the
    /// time at which the first operation is due.
    fn lanes(&self, after: Option<&Lane>, limit: usize) -> QueueFuture<Vec<(Lane, WallTime)>>;

    /// Operations that have ended and are to be reported by a webhook, those that ended first before
    /// others. One that is started again before it was reported is not reported.
    fn unreported(&self, limit: usize) -> QueueFuture<Vec<StoredOperation>>;

    /// Marks an operation as reported, and stores its report, if there is one, in the same
    /// transaction. Does nothing if there is nothing to report any more.
    fn report(&self, number: u64, report: Option<NewOperation>) -> QueueFuture<()>;

    /// One operation.
    fn get(&self, id: &str) -> QueueFuture<Option<StoredOperation>>;

    /// The last attempts of an operation, oldest first; at most [`MAX_ATTEMPT_RECORDS`].
    fn attempts(&self, number: u64) -> QueueFuture<Vec<AttemptRecord>>;

    /// What an operation sends.
    fn request(&self, number: u64) -> QueueFuture<Option<StoredRequest>>;

    /// The conflict of an operation.
    fn conflict(&self, number: u64) -> QueueFuture<Option<StoredConflict>>;

    /// The response to a completed operation.
    fn response(&self, number: u64) -> QueueFuture<Option<StoredResponse>>;

    /// Operations that match `filter`, newest first, with numbers below `before`.
    fn page(
        &self,
        filter: OperationFilter,
        before: Option<u64>,
        limit: usize,
    ) -> QueueFuture<Vec<StoredOperation>>;

    /// Operations with all that is stored about them and numbers above `after`, oldest first.
    fn export(&self, after: u64, limit: usize) -> QueueFuture<Vec<ExportedOperation>>;

    /// Stores operations of another queue, all or none, and returns how many. One whose id, or whose
    /// client and key, are stored already is left out. What was running waits again: no node
    /// has its claim any more.
    fn import(&self, operations: Vec<ExportedOperation>, now: WallTime) -> QueueFuture<usize>;

    /// Deletes operations with all that is stored about them, in whatever state they are.
    fn forget(&self, numbers: Vec<u64>) -> QueueFuture<()>;

    /// How many operations there are in each state. Does not wait for the disk. Those that other
    /// processes have changed are counted a second later.
    fn counts(&self) -> OperationCounts;

    /// Calls `listener` when other processes have made an operation due. In a queue that only this
    /// process uses, it is never called.
    fn listen(&self, listener: ReadyListener) {
        drop(listener);
    }
}

/// Called with the lane of an operation that is due, and when; `None`: all lanes have to be read.
pub type ReadyListener = Box<dyn Fn(Option<(Lane, WallTime)>) + Send + Sync>;

/// Moves all operations to another queue, `batch` at a time, and returns how many. No worker may use
/// either queue meanwhile. If it fails half-way, it can be made again: what was stored there and not
/// yet deleted here is not stored twice.
///
/// # Errors
///
/// If either queue fails, or something cannot be read.
pub async fn move_all(
    from: &dyn OperationQueue,
    to: &dyn OperationQueue,
    now: WallTime,
    batch: usize,
) -> Result<usize, StoreError> {
    let mut moved = 0;
    loop {
        let exported = from.export(0, batch).await?;
        if exported.is_empty() {
            return Ok(moved);
        }
        let numbers: Vec<u64> = exported.iter().map(ExportedOperation::number).collect();
        moved += numbers.len();
        to.import(exported, now).await?;
        from.forget(numbers).await?;
    }
}

/// An operation with all that is stored about it, on its way to another queue. `Debug` shows no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedOperation {
    pub(crate) entry: Entry,
    pub(crate) request: StoredRequest,
    pub(crate) conflict: Option<StoredConflict>,
    pub(crate) response: Option<StoredResponse>,
    pub(crate) attempts: Vec<AttemptRecord>,
}

impl ExportedOperation {
    /// Its number in the queue that it comes from.
    pub const fn number(&self) -> u64 {
        self.entry.operation.number
    }
}

/// At most this many attempts are stored per operation; older ones are dropped.
pub const MAX_ATTEMPT_RECORDS: usize = 100;

/// The operations of one type for one destination: they share a bound on how many run at once, and
/// are claimed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// See [`NewOperation::destination`].
    pub destination: String,
    /// The type.
    pub kind: String,
}

/// An operation to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct NewOperation {
    /// Its public name.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// Where it is sent: the key of a gate, or `/` and the name of a pool.
    pub destination: String,
    /// What is sent.
    pub request: StoredRequest,
    /// Method and URL without anything secret, for people.
    pub summary: String,
    /// The key under which the server knows a second copy.
    pub idempotency_key: String,
    /// Identifies the request: the same key with another fingerprint is another request.
    pub fingerprint: Vec<u8>,
    /// The client that it belongs to; empty for the admin API.
    pub client: String,
    /// The name of its credential.
    pub credential: Option<String>,
    /// The name of its backoff, if it is not that of its type.
    pub backoff: Option<String>,
    /// Operations with the same order key are sent one at a time, oldest first.
    pub order_key: Option<String>,
    /// Higher leaves first. Every priority that is in use makes a claim a little slower.
    pub priority: i32,
    /// Connects log lines.
    pub trace_id: Option<String>,
    /// When it was accepted; it is due from then on.
    pub accepted_at: WallTime,
    /// When it expires.
    pub expires_at: WallTime,
    /// How long it is stored after it completed or was cancelled.
    pub retain: Duration,
    /// Is its end reported by a webhook?
    pub is_reported: bool,
}

/// What an operation sends. `Debug` shows none of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredRequest {
    /// The method.
    pub method: String,
    /// The URL, or the path behind the name of a pool.
    pub url: String,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The document that the caller's edit started from.
    pub base: Option<Vec<u8>>,
    /// The URL whose GET returns what the server has.
    pub resource: Option<String>,
}

/// Names and values in order.
pub type Headers = Vec<(String, Vec<u8>)>;

/// An operation, without its request. `Debug` shows no key that a caller has chosen.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredOperation {
    /// Numbers rise with every insert.
    pub number: u64,
    /// Its public name.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// See [`NewOperation::destination`].
    pub destination: String,
    /// Method and URL without anything secret.
    pub summary: String,
    /// The key under which the server knows a second copy.
    pub idempotency_key: String,
    /// The client that it belongs to; empty for the admin API.
    pub client: String,
    /// The name of its credential.
    pub credential: Option<String>,
    /// The name of its own backoff.
    pub backoff: Option<String>,
    /// See [`NewOperation::order_key`].
    pub order_key: Option<String>,
    /// Higher leaves first.
    pub priority: i32,
    /// Connects log lines.
    pub trace_id: Option<String>,
    /// Its state.
    pub state: OperationState,
    /// How often a rule has merged its conflict.
    pub merges: u8,
    /// Attempts so far.
    pub counters: Counters,
    /// When it was accepted.
    pub accepted_at: WallTime,
    /// When it is due, while it is available or retryable.
    pub next_at: Option<WallTime>,
    /// When it expires, while it is not finished.
    pub expires_at: WallTime,
    /// When it reached a state that it does not leave by itself.
    pub ended_at: Option<WallTime>,
    /// Does an older operation with the same order key come first?
    pub is_blocked: bool,
    /// The lane of another operation with the same order key that can be claimed now, and when it is
    /// due: in the result of the call that unblocked it, and nowhere else.
    pub unblocked: Option<(Lane, WallTime)>,
    /// Is its end reported by a webhook?
    pub is_reported: bool,
}

/// What of an item is stored: see [`ItemRecord`], whose times are columns of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often it was sent.
    pub sent: u32,
    /// How many of these count against `max_attempts`.
    pub attempts: u32,
    /// How often the server named a wait.
    pub directed_waits: u32,
    /// Was the credential refreshed, and nothing but 401 answered since?
    pub refreshed: bool,
}

impl From<ItemRecord> for Counters {
    fn from(record: ItemRecord) -> Self {
        Self {
            sent: record.sent,
            attempts: record.attempts,
            directed_waits: record.directed_waits,
            refreshed: record.refreshed,
        }
    }
}

/// The result of an insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored.
    New(StoredOperation),
    /// The same request was stored before under this key.
    Same(StoredOperation),
    /// Another request was stored before under this key. Nothing was changed.
    OtherRequest,
}

/// When a claim is made, and how long it lasts without a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Now.
    pub now: WallTime,
    /// When it ends.
    pub until: WallTime,
}

/// What was claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The operations, now running.
    pub claimed: Vec<Claimed>,
    /// Operations that had expired, now failed.
    pub expired: Vec<StoredOperation>,
    /// Operations whose request cannot be read, such as without the key that it was encrypted with.
    /// They are due again in a minute.
    pub unreadable: Vec<(StoredOperation, StoreError)>,
    /// When the next operation of the lane is due, at the earliest now; `None`: there is none.
    pub next_at: Option<WallTime>,
}

/// An operation that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Names the claim.
    pub claim: ClaimId,
    /// The operation.
    pub operation: StoredOperation,
    /// What it sends.
    pub request: StoredRequest,
}

/// Names a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// The operation.
    pub number: u64,
    /// Higher than that of every earlier claim of the operation.
    pub fence: u64,
}

/// The result of a claim, and what is stored with it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Now.
    pub now: WallTime,
    /// What happened.
    pub result: ClaimResult,
    /// Attempts so far, this one included.
    pub counters: Counters,
    /// The attempts that were made; none if it was released unsent. Stored even if the claim is lost.
    pub attempts: Vec<AttemptRecord>,
}

/// What happened to a claimed operation.
#[derive(Clone, Debug)]
pub enum ClaimResult {
    /// It was delivered. The response is stored if its client wants to read it.
    Completed(Option<StoredResponse>),
    /// It is to be sent again, not before this time.
    Retry(WallTime),
    /// It will not be sent again by itself.
    Failed(TerminalReason),
    /// The server has something else, and this is what a rule decides about it. Without a decision,
    /// and when rules have decided too often, a person decides.
    Conflict(StoredConflict, Option<RuleDecision>),
    /// It was not sent, and is due as before.
    Released,
}

/// What a merge rule decides about a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleDecision {
    /// This is sent next.
    Send(RequestChange),
    /// There is nothing left to send.
    Complete,
}

/// One attempt of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// When it was sent.
    pub at: WallTime,
    /// How far it got: a word of [`policy::outcome::Phase`].
    pub phase: String,
    /// The status of its response.
    pub status: Option<u16>,
    /// How long it took.
    pub latency: Duration,
    /// How long it waited before, since it was due.
    pub waited: Duration,
    /// The word of its verdict, or of its failure.
    pub reason: String,
}

/// A response that is stored for the client. `Debug` shows only its status.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

/// What the server has instead. `Debug` shows no document.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredConflict {
    /// The server's document, if it could be fetched.
    pub theirs: Option<Vec<u8>>,
    /// The version of it, for `If-Match`.
    pub etag: Option<String>,
    /// When it was fetched, or when the conflict was found.
    pub fetched_at: WallTime,
}

/// What a person, or a merge rule, decides about an operation.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The operation.
    pub id: String,
    /// Now.
    pub now: WallTime,
    /// What happens to it.
    pub event: OperationEvent,
    /// What it sends from now on, if that changes.
    pub request: Option<RequestChange>,
}

/// Changes of what an operation sends. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestChange {
    /// What it sends.
    pub request: StoredRequest,
    /// Under which key.
    pub idempotency_key: String,
}

/// Why a decision was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecisionError {
    /// That cannot happen in the operation's present state.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// There is no such operation.
    #[error("there is no such operation")]
    Unknown,
}

/// What [`OperationQueue::sweep`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Operations that have expired, now failed.
    pub expired: Vec<StoredOperation>,
    /// Operations whose lease has ended, now retryable.
    pub reclaimed: Vec<StoredOperation>,
    /// How many finished operations were deleted.
    pub deleted: usize,
}

/// Which operations are listed. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// The words of states; none of them is any.
    pub states: Vec<String>,
    /// A type.
    pub kind: Option<String>,
    /// The reason of failed ones.
    pub reason: Option<TerminalReason>,
    /// A destination.
    pub destination: Option<String>,
    /// What the id begins with.
    pub id_prefix: Option<String>,
}

/// How many operations there are, by the word of their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Waiting for a worker.
    pub available: u64,
    /// Claimed by a worker.
    pub running: u64,
    /// Waiting for a time.
    pub retryable: u64,
    /// Delivered.
    pub completed: u64,
    /// Not tried again by themselves.
    pub failed: u64,
    /// Waiting for a decision.
    pub conflict: u64,
    /// Cancelled by a person.
    pub cancelled: u64,
}

impl OperationCounts {
    /// How many stay until they are delivered or a person has dealt with them: all but those that
    /// retention deletes.
    pub fn unresolved(&self) -> u64 {
        self.available + self.running + self.retryable + self.failed + self.conflict
    }
}

/// Why an encrypted value cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// It was sealed with a key that is not configured.
    #[error(
        "it was encrypted with another key\nhint: add that key to `storage.key`, after the present one"
    )]
    OtherKey,
    /// It was changed since it was written.
    #[error("it was changed since it was written")]
    Tampered,
    /// The system has no random numbers to encrypt with.
    #[error("it cannot be encrypted: the system has no random numbers")]
    Random,
    /// It is longer than what can be encrypted in one piece, which is 64 GiB.
    #[error("it is too long to be encrypted")]
    TooLong,
}

impl NewOperation {
    /// The lane that it is claimed in.
    pub fn lane(&self) -> Lane {
        Lane {
            destination: self.destination.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl StoredOperation {
    /// The lane that it is claimed in.
    pub fn lane(&self) -> Lane {
        Lane {
            destination: self.destination.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl OperationFilter {
    /// Is this operation listed?
    pub fn matches(&self, operation: &StoredOperation) -> bool {
        let is = |expected: &Option<String>, found: &str| {
            expected.as_deref().is_none_or(|expected| expected == found)
        };
        let state = operation.state.as_str();
        (self.states.is_empty() || self.states.iter().any(|expected| expected == state))
            && is(&self.kind, &operation.kind)
            && is(&self.destination, &operation.destination)
            && (self.reason.is_none() || self.reason == operation.state.reason())
            && self
                .id_prefix
                .as_deref()
                .is_none_or(|prefix| operation.id.starts_with(prefix))
    }
}

impl OperationCounts {
    /// The count of a state.
    pub fn of(&mut self, state: OperationState) -> &mut u64 {
        match state {
            OperationState::Available => &mut self.available,
            OperationState::Running => &mut self.running,
            OperationState::Retryable => &mut self.retryable,
            OperationState::Completed => &mut self.completed,
            OperationState::Failed(_) => &mut self.failed,
            OperationState::Conflict => &mut self.conflict,
            OperationState::Cancelled => &mut self.cancelled,
        }
    }

    /// Every count with the word of its state.
    pub fn all(&self) -> [(&'static str, u64); 7] {
        [
            ("available", self.available),
            ("running", self.running),
            ("retryable", self.retryable),
            ("completed", self.completed),
            ("failed", self.failed),
            ("conflict", self.conflict),
            ("cancelled", self.cancelled),
        ]
    }
}

impl fmt::Debug for NewOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewOperation")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredOperation")
            .field("number", &self.number)
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("destination", &self.destination)
            .field("state", &self.state)
            .field("counters", &self.counters)
            .field("accepted_at", &self.accepted_at)
            .field("next_at", &self.next_at)
            .field("expires_at", &self.expires_at)
            .field("ended_at", &self.ended_at)
            .field("is_blocked", &self.is_blocked)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestChange").finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredConflict")
            .field("fetched_at", &self.fetched_at)
            .finish_non_exhaustive()
    }
}
