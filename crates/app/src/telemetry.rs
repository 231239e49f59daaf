//! Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP with Protocol Buffers.
//!
//! A thread with a runtime of its own exports what waits in the queue of spans, once a second or when
//! a batch is full, and all metrics once in `telemetry.metrics_interval`. Exports are calls like any
//! other: they pass the gate of the collector's host, are sent by `exchange`, and are sent again by
//! the usual rules. While a collector does not respond, its breaker is open and the queue fills;
//! what finds no room is dropped and counted. No request ever waits for it.

mod exporter;
mod metrics;
mod protobuf;
mod resource;
mod spans;

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;

use crate::core::Core;
use crate::exchange::DestinationError;
use crate::observe::SpanQueue;
use crate::settings::Settings;
use exporter::Exporter;

/// The thread that exports.
#[derive(Debug)]
pub struct Telemetry {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector is no server that can be called.
    #[error("`telemetry.otlp` is no server that can be called")]
    Destination(#[source] DestinationError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

impl Telemetry {
    /// How long the last export may take when the server stops.
    pub const MAX_LAST_EXPORT: Duration = Duration::from_secs(5);

    /// Exports what requests of `core` do from now on; `None` if no collector is set.
    ///
    /// # Errors
    ///
    /// If the address cannot be called, or no thread can be started.
    pub fn start(core: &Arc<Core>, settings: &Settings) -> Result<Option<Self>, TelemetryError> {
        let Some(url) = &settings.telemetry.otlp else {
            return Ok(None);
        };
        let queue = Arc::new(SpanQueue::new(settings.telemetry.sample));
        let exporter = Exporter::new(core, settings, url, Arc::clone(&queue))
            .map_err(TelemetryError::Destination)?;
        let (stop, stopping) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(TelemetryError::Thread)?;
        let interval = settings.telemetry.metrics_interval;
        let thread = Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || runtime.block_on(exporter.run(interval, stopping)))
            .map_err(TelemetryError::Thread)?;
        core.observers().export_spans(queue);
        Ok(Some(Self { stop, thread }))
    }

    /// Exports what waits, for at most [`Telemetry::MAX_LAST_EXPORT`], and ends.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        while !self.thread.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
