//! Lines on their way to the sink: a bounded queue, and the thread that empties it.
//!
//! Not `tracing-appender`, which reports no gap at its place, can be flushed only at its end, and
//! brings a channel and a calendar.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate::Clock;
use tracing::Level;

use super::line::Fields;
use super::{Format, Log};

/// Owns the thread, which ends when this is dropped and the queue is empty.
pub(super) struct Writer(Arc<Queue>);

pub(super) struct Queue {
    state: Mutex<State>,
    /// There is something to write, or it has ended.
    pushed: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// Lines ever taken in, and those of them that have reached the sink.
    taken: u64,
    written: u64,
    /// Lines that found no room, and those of them that were reported.
    dropped: u64,
    reported: u64,
    has_ended: bool,
}

impl State {
    fn push(&mut self, line: String) {
        self.lines.push_back(line);
        self.taken += 1;
    }
}

impl Writer {
    pub(super) fn start(sink: Box<dyn Write + Send>, format: Format, clock: &Clock) -> Self {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            pushed: Condvar::new(),
            written: Condvar::new(),
        });
        let (shared, clock) = (Arc::clone(&queue), clock.clone());
        let started = thread::Builder::new()
            .name("tidegate-log".to_owned())
            .spawn(move || shared.drain(sink, format, &clock));
        // Without a thread there is no log; everything else may still work.
        queue.lock().has_ended = started.is_err();
        Self(queue)
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.0)
    }

    /// Waits until all lines taken in so far have reached the sink.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let state = self.0.lock();
        let goal = state.taken;
        let is_behind = |state: &mut State| state.written < goal;
        let waited = self.0.written.wait_timeout_while(state, timeout, is_behind);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.written >= goal
    }

    pub(super) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.pushed.notify_one();
    }
}

impl Queue {
    /// Takes a line, or drops it if there is no room. Lines that are being written need room too.
    pub(super) fn push(&self, line: String) {
        let mut state = self.lock();
        if state.has_ended || state.taken - state.written >= Log::MAX_QUEUED as u64 {
            state.dropped += 1;
            return;
        }
        state.push(line);
        drop(state);
        self.pushed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self, mut sink: Box<dyn Write + Send>, format: Format, clock: &Clock) {
        while let Some(lines) = self.next() {
            for line in &lines {
                // There is no place to report that the log cannot be written.
                _ = sink.write_all(line.as_bytes());
            }
            _ = sink.flush();
            self.after(lines.len(), format, clock);
        }
    }

    /// Waits for lines and takes them all; `None` at the end.
    fn next(&self) -> Option<VecDeque<String>> {
        let waited = self.pushed.wait_while(self.lock(), |state| {
            state.lines.is_empty() && !state.has_ended
        });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut state.lines);
        (!lines.is_empty()).then_some(lines)
    }

    /// Makes room. What is queued now came before the first line that found no room, so the report
    /// of the dropped ones has its right place behind it.
    fn after(&self, written: usize, format: Format, clock: &Clock) {
        let mut state = self.lock();
        state.written += written as u64;
        let count = state.dropped - state.reported;
        if count > 0 {
            state.reported = state.dropped;
            let message =
                format!("{count} lines are missing here: the log could not be written as fast");
            let fields = Fields::new("count", count, message);
            state.push(fields.line(format, clock, Level::WARN, "lines_dropped"));
        }
        drop(state);
        self.written.notify_all();
    }
}
