//! Sends exports to the collector, and says when it does not accept them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use policy::backoff::BackoffSettings;
use policy::item::ItemKind;
use tidegate::{Attempt, AttemptResult};
use tokio::sync::watch;
use tokio::time::{self, Instant, MissedTickBehavior};
use url::Url;

use super::Telemetry;
use super::spans::SpanTime;
use super::{metrics, spans};
use crate::core::Core;
use crate::exchange::{
    Destination, DestinationError, Exchange, ReplayableBody, RequestBody, Target, Trust,
};
use crate::metrics::KeyMetrics;
use crate::observe::{Signal, SpanQueue};
use crate::redact::Text;
use crate::settings::{Settings, header_fields};

/// Exports spans and metrics.
pub(super) struct Exporter {
    core: Arc<Core>,
    exchange: Exchange,
    destination: Arc<Destination>,
    key: String,
    backoff: BackoffSettings,
    attempts: Arc<KeyMetrics>,
    queue: Arc<SpanQueue>,
    paths: [Uri; 2],
    /// What exports carry besides, such as a token.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Tells processes apart that send to one collector.
    instance: String,
    /// Since when counters count, in nanoseconds since 1970.
    start: u64,
    /// Whether the last export of a signal failed.
    has_failed: [bool; 2],
}

/// How long spans wait for others.
const SPAN_INTERVAL: Duration = Duration::from_secs(1);

/// How long an export may take, with all its attempts. Spans that end meanwhile wait in the queue.
const MAX_EXPORT: Duration = Duration::from_secs(30);

/// How soon and how often an export is sent again.
const BACKOFF: &str = "standard";

impl Exporter {
    pub(super) fn new(
        core: &Arc<Core>,
        settings: &Settings,
        url: &str,
        queue: Arc<SpanQueue>,
    ) -> Result<Self, DestinationError> {
        let exchange = Exchange::new(core, settings);
        // The settings allow only a URL of a server.
        let url: Url = url.parse().map_err(|_| DestinationError::Host)?;
        let key = policy::key::normalize(url.as_str()).map_err(|_| DestinationError::Host)?;
        let path = |signal: &str| {
            let base = url.path().trim_end_matches('/');
            format!("{base}/v1/{signal}").parse::<Uri>()
        };
        let paths = match (path("traces"), path("metrics")) {
            (Ok(traces), Ok(metrics)) => [traces, metrics],
            _ => return Err(DestinationError::Host),
        };
        let time = SpanTime::new(core.clock());
        let start = time.nanos(time.now);
        Ok(Self {
            destination: exchange.destination(&url, Trust::Operator)?,
            exchange,
            attempts: core.metrics().key(&key),
            key,
            // Presets always exist; a file can only change them.
            backoff: settings.backoffs[BACKOFF].clone(),
            queue,
            paths,
            headers: header_fields(&settings.telemetry_headers),
            // The hasher of the standard library is seeded by the system.
            instance: format!("{:016x}", RandomState::new().hash_one(0)),
            start,
            has_failed: [false; 2],
            core: Arc::clone(core),
        })
    }

    /// Exports until `stopping` says so, and then what is left, for a bounded time.
    pub(super) async fn run(mut self, interval: Duration, stopping: watch::Receiver<bool>) {
        let mut stopped = stopping.clone();
        let deadline = async {
            _ = stopped.wait_for(|stops| *stops).await;
            time::sleep(Telemetry::MAX_LAST_EXPORT).await;
        };
        tokio::select! {
            () = self.export_all(interval, stopping) => {}
            // What takes longer is lost with the process.
            () = deadline => {}
        }
    }

    async fn export_all(&mut self, interval: Duration, mut stopping: watch::Receiver<bool>) {
        let mut measure = time::interval_at(Instant::now() + interval, interval);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stops| *stops) => break,
                _ = measure.tick() => self.export_metrics().await,
                () = self.queue.filled() => self.export_spans().await,
                () = time::sleep(SPAN_INTERVAL) => self.export_spans().await,
            }
        }
        while self.export_batch().await {}
        self.export_metrics().await;
    }

    /// Exports what waits, and whole batches that fill meanwhile.
    async fn export_spans(&mut self) {
        while self.export_batch().await && self.queue.has_batch() {}
    }

    /// `false` if nothing waited.
    async fn export_batch(&mut self) -> bool {
        let batch = self.queue.take_batch();
        if batch.is_empty() {
            return false;
        }
        let body = spans::encode(&batch, self.span_time(), &self.instance);
        if !self.export(Signal::Spans, body).await {
            self.queue.count_dropped(batch.len() as u64);
        }
        true
    }

    async fn export_metrics(&mut self) {
        let text = self.core.metrics().render();
        let time = self.span_time();
        let now = time.nanos(time.now);
        let body = metrics::encode(&text, self.start, now, &self.instance);
        self.export(Signal::Metrics, body).await;
    }

    fn span_time(&self) -> SpanTime {
        SpanTime::new(self.core.clock())
    }

    /// Whether the collector has accepted it.
    async fn export(&mut self, signal: Signal, body: Vec<u8>) -> bool {
        let sent = self.send(signal, body.into()).await;
        let has_failed = &mut self.has_failed[signal as usize];
        let log = self.core.log();
        if let Err(problem) = &sent {
            self.queue.count_failure(signal);
            if !*has_failed {
                log.otlp_failed(signal.as_str(), Text::new(problem));
            }
        } else if *has_failed {
            log.otlp_recovered(signal.as_str());
        }
        *has_failed = sent.is_err();
        sent.is_ok()
    }

    /// Sends it, and again where that is useful; or says why it was not accepted.
    async fn send(&self, signal: Signal, body: Bytes) -> Result<(), String> {
        let kind = ItemKind {
            // A collector that gets spans twice recognises them by their ids.
            retry_unsafe: true,
            ..ItemKind::of("POST")
        };
        let call = self.core.limiter().call(&*self.key).kind(kind);
        let call = call.backoff(&self.backoff).within(MAX_EXPORT);
        let ended = call
            .run(|attempt| self.attempt(attempt, signal, body.clone()))
            .await;
        let error = match ended {
            Ok(sent) if sent.value.as_ref().is_ok_and(StatusCode::is_success) => return Ok(()),
            Ok(sent) => return Err(describe(&sent.value)),
            Err(error) => error,
        };
        Err(match &error.last {
            Some(last) => describe(last),
            None => error.reason.to_string(),
        })
    }

    async fn attempt(
        &self,
        attempt: Attempt,
        signal: Signal,
        body: Bytes,
    ) -> AttemptResult<Result<StatusCode, String>> {
        let target = Target {
            destination: &self.destination,
            rules: &[],
            phrase_in: |_: &str| None,
            metrics: &self.attempts,
            worker: self.core.telemetry_worker(),
        };
        let make = || (self.request(signal, body.clone()), ReplayableBody::NONE);
        let mut answered = self.exchange.attempt(&attempt, target, make).await;
        // Read to its end, so that the connection can be used again.
        if let Ok(response) = &mut answered.value {
            response.body_mut().read_beginning(MAX_RESPONSE).await;
        }
        answered.has_body = false;
        answered.map(|result| match result {
            Ok(response) => Ok(response.status()),
            Err(error) => Err(error.message),
        })
    }

    fn request(&self, signal: Signal, body: Bytes) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::whole(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.paths[signal as usize].clone();
        let headers = request.headers_mut();
        headers.extend(self.headers.iter().cloned());
        headers.insert(HOST, self.destination.authority().clone());
        headers.insert(CONTENT_TYPE, PROTOBUF);
        request
    }
}

/// Collectors respond with a few bytes.
const MAX_RESPONSE: usize = 4 << 10;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

fn describe(result: &Result<StatusCode, String>) -> String {
    match result {
        Ok(status) => format!("HTTP {}", status.as_u16()),
        Err(message) => message.clone(),
    }
}
