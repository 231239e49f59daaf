//! Times and sizes of requests, decision trails, fetching and jobs.

use std::time::Duration;

use config::Reader;
use policy::limits::Limit;
use policy::setting::Kind;

use super::value::{self, ByteRate, Size};

policy::settings! {
    /// What is written in `[http]`.
    pub struct HttpOptions;
    /// `[http]`
    #[derive(Eq)]
    pub struct Http(pub) {
        /// Until a connection is established, with name lookup and TLS.
        connect_timeout: Duration = "5s", Kind::POSITIVE;
        /// From the end of a request to the first byte of its response.
        first_byte_timeout: Duration = "60s", Kind::POSITIVE;
        /// Between two pieces of a body, and of a connection that is not used.
        idle_timeout: Duration = "60s", Kind::POSITIVE;
        /// The longest request body that is passed on, such as "10MiB".
        max_body: Size = "none", value::SIZE;
        /// How much of a request body is buffered for resending; longer ones are sent once.
        replay_buffer: Size = "1MiB", value::BOUNDED_SIZE;
        /// How much is buffered of all requests together; while that is used up, bodies are sent once.
        replay_memory: Size = "256MiB", value::BOUNDED_SIZE;
        /// Slower uploads and downloads are ended; "0B/s": none is. Requests that send less and wait for
        /// responses meanwhile need that.
        min_body_rate: ByteRate = "1KiB/s", value::BYTE_RATE;
    }

    /// Timeouts of `[http]` in `[pool.NAME]`.
    pub struct TimeoutOptions {
        /// As in [http], for this pool.
        connect_timeout: Duration = none, Kind::POSITIVE, example "5s";
        /// As in [http], for this pool.
        first_byte_timeout: Duration = none, Kind::POSITIVE, example "60s";
        /// As in [http], for this pool.
        idle_timeout: Duration = none, Kind::POSITIVE, example "60s";
    }
}

/// Timeouts of `[pool.NAME]`; what is `None` is as in `[http]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTimeouts {
    /// Until a connection is established, with name lookup and TLS.
    pub connect: Option<Duration>,
    /// From the end of a request to the first byte of its response.
    pub first_byte: Option<Duration>,
    /// Between two pieces of a body, and of a connection that is not used.
    pub idle: Option<Duration>,
}

impl From<TimeoutOptions> for PoolTimeouts {
    fn from(options: TimeoutOptions) -> Self {
        Self {
            connect: options.connect_timeout,
            first_byte: options.first_byte_timeout,
            idle: options.idle_timeout,
        }
    }
}

impl Http {
    pub(crate) fn read(reader: &Reader<'_>) -> Self {
        let http = reader.options::<HttpOptions>().over(Self::default());
        if let Size::Bytes(max) = http.max_body
            && reader.has("replay_buffer")
            && http.replay_buffer() > max
        {
            let expected = format!("at most `max_body` ({})", http.max_body);
            reader.expected("replay_buffer", expected);
        }
        http
    }

    /// How many bytes of a request body are buffered for resending.
    pub fn replay_buffer(&self) -> u64 {
        bytes(self.replay_buffer)
    }

    /// How many bytes are buffered of all requests together.
    pub fn replay_memory(&self) -> u64 {
        bytes(self.replay_memory)
    }
}

fn bytes(size: Size) -> u64 {
    match size {
        Size::Bytes(bytes) => bytes,
        Size::None => u64::MAX,
    }
}

policy::settings! {
    /// What is written in `[trails]`.
    pub struct TrailsOptions;
    /// `[trails]`: decision trails.
    #[derive(Eq)]
    pub struct Trails(pub) {
        /// How many are held in memory; the oldest is dropped first.
        keep: u32 = "10_000", Kind::whole(0, 10_000_000);
    }

    /// What is written in `[fetch]`.
    pub struct FetchOptions;
    /// `[fetch]`: fetching and jobs.
    pub struct Fetch(pub) {
        /// Sent as User-Agent; VERSION is replaced by the version of Tidegate.
        user_agent: String = "tidegate/VERSION", Kind::TEXT;
        /// Whether robots.txt is obeyed.
        robots: bool = "true", Kind::Switch;
        /// The longest Crawl-delay of a robots.txt that is obeyed.
        max_crawl_delay: Duration = "30s", Kind::DURATION;
        /// The longest body that is fetched.
        max_body: Size = "16MiB", value::BOUNDED_SIZE;
        /// How many redirects in a row are followed.
        max_redirects: u32 = "10", Kind::whole(0, 100);
        /// How many links away from the first page a crawl follows.
        depth: u32 = "5", Kind::whole(0, 1000);
        /// Requests in flight at once, over all hosts.
        concurrency: u32 = "256", Kind::whole(1, 100_000);
        /// Without any success for this long at a gate that refuses, its requests end as gave_up.
        give_up_after: Duration = "60s", Kind::POSITIVE;
    }

    /// What is written in `[jobs]`.
    pub struct JobsOptions;
    /// `[jobs]`: fetching and crawling on the server.
    #[derive(Eq)]
    pub struct Jobs(pub) {
        /// How many jobs run at once. Each has a thread of its own.
        max_running: u32 = "2", Kind::whole(1, 64);
        /// How many jobs may wait to be started; further ones are refused.
        max_queued: u32 = "1000", Kind::whole(1, 100_000);
        /// How many URLs a job fetches at most; further ones are left out.
        max_urls: u32 = "1_000_000", Kind::whole(1, 10_000_000);
        /// How long finished jobs and their reports are stored.
        retain: Duration = "30d", Kind::POSITIVE;
        /// Status requests per client and job; more are answered 429.
        status_limit: Limit = "60/1m", Limit::KIND;
        /// Whether that response has a Retry-After.
        status_retry_after: bool = "true", Kind::Switch;
    }
}
