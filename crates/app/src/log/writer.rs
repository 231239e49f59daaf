//! Lines on their way to the sink: a bounded queue, and the thread that empties it.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Log;
use super::line::Line;
use super::render::Style;

/// The near end of the queue. The thread ends when this is dropped, after what is in the queue.
pub(super) struct Writer(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    /// There is something to write, or it is over.
    has_come: Condvar,
    /// Something was written.
    has_gone: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// How many of all lines were taken in, and how many of these have reached the sink.
    taken: u64,
    written: u64,
    /// Lines that found no room, and how many of these a line has told of.
    dropped: u64,
    told: u64,
    is_over: bool,
}

impl State {
    /// Lines that the thread is writing still need their room.
    fn has_room(&self) -> bool {
        self.taken - self.written < Log::MOST_WAITING as u64
    }

    fn push(&mut self, line: String) {
        self.lines.push_back(line);
        self.taken += 1;
    }
}

impl Writer {
    pub(super) fn start(sink: Box<dyn Write + Send>, style: Arc<Style>) -> Self {
        let queue = Arc::new(Queue {
            state: Mutex::new(State::default()),
            has_come: Condvar::new(),
            has_gone: Condvar::new(),
        });
        let far_end = Arc::clone(&queue);
        let started = thread::Builder::new()
            .name("tidegate-log".to_owned())
            .spawn(move || far_end.drain(sink, &style));
        // A machine that has no thread left has no log: everything else may still work.
        queue.lock().is_over = started.is_err();
        Self(queue)
    }

    /// Hands a line over, or drops it if there is no room.
    pub(super) fn push(&self, line: String) {
        let mut state = self.0.lock();
        if state.is_over || !state.has_room() {
            state.dropped += 1;
            return;
        }
        state.push(line);
        drop(state);
        self.0.has_come.notify_one();
    }

    /// Waits until all lines taken in so far have reached the sink.
    pub(super) fn flush(&self, at_most: Duration) -> bool {
        let state = self.0.lock();
        let goal = state.taken;
        let waited = self
            .0
            .has_gone
            .wait_timeout_while(state, at_most, |state| state.written < goal);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.written >= goal
    }

    pub(super) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.has_come.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self, mut sink: Box<dyn Write + Send>, style: &Style) {
        while let Some(lines) = self.next() {
            for line in &lines {
                // Nobody can be told that nobody can be told.
                _ = sink.write_all(line.as_bytes());
            }
            _ = sink.flush();
            self.written(lines.len(), style);
        }
    }

    /// Waits for lines and takes them all; `None` when it is over.
    fn next(&self) -> Option<VecDeque<String>> {
        let waited = self.has_come.wait_while(self.lock(), |state| {
            state.lines.is_empty() && !state.is_over
        });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut state.lines);
        (!lines.is_empty()).then_some(lines)
    }

    /// Makes room. All that is in the queue now came before the first line that found none, so a
    /// line behind it tells of these at the right place.
    fn written(&self, count: usize, style: &Style) {
        let mut state = self.lock();
        state.written += count as u64;
        let count = state.dropped - state.told;
        if count > 0 {
            state.told = state.dropped;
            state.push(style.render(&Line::LinesDropped { count }));
        }
        drop(state);
        self.has_gone.notify_all();
    }
}
