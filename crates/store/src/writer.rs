//! The one thread that writes to a database: everything that waits, again and again.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::queue::{Finished, Queue, Taken};

/// What the thread writes to.
pub(crate) trait Database: Send + 'static {
    /// A call that waits.
    type Call: Send + 'static;
    /// A call with its result.
    type Done;

    /// Makes durable what was taken. Every call is returned with its result, to be given to its
    /// caller.
    fn write(&mut self, taken: Taken<Self::Call>) -> (Finished, Vec<Self::Done>);

    /// Gives a result to its caller.
    fn reply(done: Self::Done);
}

#[derive(Debug)]
pub(crate) struct Writer<C> {
    queue: Arc<Queue<C>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Writer<C> {
    pub(crate) fn start(database: impl Database<Call = C>) -> io::Result<Self> {
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
}

impl<C> Writer<C> {
    pub(crate) fn queue(&self) -> &Queue<C> {
        &self.queue
    }
}

impl<C> Drop for Writer<C> {
    fn drop(&mut self) {
        self.queue.end();
        join(self.thread.take());
    }
}

/// Waits for the end of a thread. A waker that drops the last store does so on such a thread, which
/// cannot wait for itself; it ends when that waker has returned.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
        // A panic of the thread was reported to every waiting future.
        let _ = thread.join();
    }
}

fn write_all<D: Database>(queue: &Queue<D::Call>, mut database: D) {
    while let Some(taken) = queue.take() {
        let (finished, calls) = database.write(taken);
        queue.finish(finished);
        for call in calls {
            D::reply(call);
        }
    }
}

/// However the thread ends, every waiting future is completed.
struct Ending<C>(Arc<Queue<C>>);

impl<C> Drop for Ending<C> {
    fn drop(&mut self) {
        self.0.ended();
    }
}
