//! The one thread that writes.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::Database;
use crate::queue::Queue;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue>,
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

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A waker that drops the last store does so on this very thread, which cannot wait for
        // itself. It ends by itself when it comes back.
        if thread.thread().id() != thread::current().id() {
            // A panic of the thread was reported to every waiting future.
            let _ = thread.join();
        }
    }
}

fn write_all(queue: &Queue, mut database: Database) {
    while let Some(changes) = queue.take() {
        let result = database.write(&changes);
        queue.finish(changes.len(), result);
    }
}

/// However the thread ends, every waiting future is completed.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended();
    }
}
