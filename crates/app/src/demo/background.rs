//! A thread of the demo with a runtime of its own.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::oneshot;

/// Work in the background, until this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs what `work` returns on a new thread.
    pub(super) fn start<F: Future<Output = ()>>(
        name: &str,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = stopped => {}
                    () = work() => {}
                }
            });
        })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            _ = thread.join();
        }
    }
}
