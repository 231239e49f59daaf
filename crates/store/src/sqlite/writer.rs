//! The one thread that writes.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::database::{BoxedCall, Database};
use crate::queue::Queue;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue<BoxedCall>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(database: Database) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let ending = Ending(Arc::clone(&queue));
        let thread = thread::Builder::new()
            .name("tidegate-store".to_owned())
            .spawn(move || write_all(&ending.0, database))?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    pub(super) fn queue(&self) -> &Queue<BoxedCall> {
        &self.queue
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
        join(self.thread.take());
    }
}

/// Waits for the end of a thread. A waker that drops the last store does so on such a thread, which
/// cannot wait for itself; it ends when that waker has returned.
pub(super) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
        // A panic of the thread was reported to every waiting future.
        let _ = thread.join();
    }
}

fn write_all(queue: &Queue<BoxedCall>, mut database: Database) {
    while let Some(taken) = queue.take() {
        let (finished, calls) = database.write(taken);
        queue.finish(finished);
        for (call, result) in calls {
            call.finish(result);
        }
    }
}

/// However the thread ends, every waiting future is completed.
struct Ending(Arc<Queue<BoxedCall>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended();
    }
}
