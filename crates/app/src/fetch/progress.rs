//! How far a fetch is.

use std::time::Duration;

use policy::gate::Reason;

/// A stage of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Lists and sitemaps are being read, or pages that may link to further ones are left.
    Discovery,
    /// Requests are left.
    Extraction,
    /// Records are being put together for the report.
    Processing,
    /// The report is being written.
    Output,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [
        Self::Discovery,
        Self::Extraction,
        Self::Processing,
        Self::Output,
    ];

    /// The name in the API and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Extraction => "extraction",
            Self::Processing => "processing",
            Self::Output => "output",
        }
    }
}

/// How far a fetch is.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchProgress {
    /// The first stage with unfinished work.
    pub stage: Stage,
    /// The highest share of done in done and known so far, in per cent.
    pub percent: f64,
    /// What is counted.
    pub counts: FetchCounts,
    /// URLs per second over the last seconds.
    pub rate_per_second: f64,
    /// How long the known URLs take at that rate.
    pub eta: Option<Duration>,
    /// The host that most URLs wait for, and why.
    pub waiting: Option<HostWait>,
}

/// What a fetch has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCounts {
    /// URLs that were found, each once.
    pub known: u64,
    /// Of these, the ones that wait for their turn.
    pub queued: u64,
    /// Being requested.
    pub in_flight: u64,
    /// Waiting to be sent again.
    pub retrying: u64,
    /// Ended, failed ones included.
    pub done: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Of the failed, the ones that a robots.txt does not allow.
    pub denied: u64,
    /// Unchanged since an earlier run.
    pub not_modified: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Bytes of bodies, decoded.
    pub bytes: u64,
}

/// Why URLs of a host wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Its gate does not admit them.
    Gate(Reason),
    /// Its robots.txt asks for a delay between requests.
    CrawlDelay,
    /// They failed, and are sent again later.
    Retry,
}

/// A host for which URLs wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWait {
    /// The key of its gate.
    pub key: String,
    /// Why.
    pub reason: WaitReason,
    /// For how long, if that is known.
    pub wait: Option<Duration>,
    /// How many URLs wait for it.
    pub urls: u64,
}
