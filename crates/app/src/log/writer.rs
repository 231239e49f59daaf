//! Lines on their way to a sink: a bounded queue, and the thread that empties it. The log has one, and
//! the access log another.
//!
//! Not `tracing-appender`, which reports no gap at its place, can be flushed only at its end, and
//! brings a channel and a calendar.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Owns the thread, which ends when this is dropped and the queue is empty.
pub(crate) struct Writer(Arc<Queue>);

pub(crate) struct Queue {
    state: Mutex<State>,
    max_queued: u64,
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
    /// Writes lines to `sink` by a thread of this name; further lines than `max_queued` are dropped.
    /// When there is room again, `report` is called with their number. The line that it returns, if
    /// any, is written in their place.
    pub(crate) fn start(
        thread: &str,
        sink: Box<dyn Write + Send>,
        max_queued: usize,
        report: impl FnMut(u64) -> Option<String> + Send + 'static,
    ) -> Self {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            max_queued: max_queued as u64,
            pushed: Condvar::new(),
            written: Condvar::new(),
        });
        let shared = Arc::clone(&queue);
        let started = thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || shared.drain(sink, report));
        // Without a thread there is no log; everything else may still work.
        queue.lock().has_ended = started.is_err();
        Self(queue)
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.0)
    }

    /// Waits until all lines taken in so far have reached the sink.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let state = self.0.lock();
        let goal = state.taken;
        let is_behind = |state: &mut State| state.written < goal;
        let waited = self.0.written.wait_timeout_while(state, timeout, is_behind);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.written >= goal
    }

    pub(crate) fn dropped(&self) -> u64 {
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
    pub(crate) fn push(&self, line: String) {
        let mut state = self.lock();
        if state.has_ended || state.taken - state.written >= self.max_queued {
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

    fn drain(
        &self,
        mut sink: Box<dyn Write + Send>,
        mut report: impl FnMut(u64) -> Option<String>,
    ) {
        while let Some(lines) = self.next() {
            for line in &lines {
                // A log has no place to report that it cannot be written.
                _ = sink.write_all(line.as_bytes());
            }
            _ = sink.flush();
            self.after(lines.len(), &mut report);
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
    fn after(&self, written: usize, report: &mut impl FnMut(u64) -> Option<String>) {
        let mut state = self.lock();
        state.written += written as u64;
        let count = state.dropped - state.reported;
        if count > 0 {
            state.reported = state.dropped;
            if let Some(line) = report(count) {
                state.push(line);
            }
        }
        drop(state);
        self.written.notify_all();
    }
}
