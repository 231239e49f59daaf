//! Waiting for the end of something that runs: its time, SIGTERM or Ctrl-C.
//!
//! The first signal lets it finish what is in flight, the second ends it at once.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
#[cfg(unix)]
use tokio::signal::unix;
#[cfg(windows)]
use tokio::signal::windows;
use tokio::sync::oneshot;

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its time was over.
    Elapsed,
    /// SIGTERM.
    Terminated,
    /// Ctrl-C.
    Interrupted,
}

/// Signals are taken from the moment this is made, so make it before anybody is told where to call.
#[derive(Debug)]
pub(super) struct Stopping {
    runtime: Runtime,
    signals: Signals,
}

impl Stopping {
    pub(super) fn new() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let signals = {
            let _inside = runtime.enter();
            Signals::new()?
        };
        Ok(Self { runtime, signals })
    }

    /// Waits for the end, of itself after `length`, and then calls `finish`, whose result is
    /// missing if a second signal came first.
    pub(super) fn wait<T: Send + 'static>(
        mut self,
        length: Option<Duration>,
        finish: impl FnOnce() -> T + Send + 'static,
    ) -> (Stop, Option<T>) {
        self.runtime.block_on(async {
            let stop = tokio::select! {
                () = elapsed(length) => Stop::Elapsed,
                stop = self.signals.next() => stop,
            };
            let (sender, finished) = oneshot::channel();
            thread::spawn(move || {
                // Nobody is there to be told after a second signal.
                _ = sender.send(finish());
            });
            tokio::select! {
                result = finished => (stop, result.ok()),
                again = self.signals.next() => (again, None),
            }
        })
    }
}

async fn elapsed(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

#[cfg(unix)]
#[derive(Debug)]
struct Signals {
    interrupted: unix::Signal,
    terminated: unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: unix::signal(unix::SignalKind::interrupt())?,
            terminated: unix::signal(unix::SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupted.recv() => Stop::Interrupted,
            _ = self.terminated.recv() => Stop::Terminated,
        }
    }
}

#[cfg(windows)]
#[derive(Debug)]
struct Signals {
    interrupted: windows::CtrlC,
    terminated: windows::CtrlClose,
}

#[cfg(windows)]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: windows::ctrl_c()?,
            terminated: windows::ctrl_close()?,
        })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupted.recv() => Stop::Interrupted,
            _ = self.terminated.recv() => Stop::Terminated,
        }
    }
}
