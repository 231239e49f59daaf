//! Waiting for the end of a run: its time, SIGTERM or Ctrl-C.
//!
//! After the first signal requests in flight finish; the second ends the run at once.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
#[cfg(unix)]
use tokio::signal::unix;
#[cfg(windows)]
use tokio::signal::windows;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::Failure;
use crate::exit::Exit;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its time elapsed.
    Elapsed,
    /// SIGTERM.
    Terminated,
    /// Ctrl-C.
    Interrupted,
}

impl Stop {
    /// Only Ctrl-C has an exit code of its own.
    pub(super) fn result(self) -> Result<(), Failure> {
        match self {
            Self::Elapsed | Self::Terminated => Ok(()),
            Self::Interrupted => Err(Failure::silent(Exit::Interrupted)),
        }
    }
}

/// Catches signals from the moment it is made, so make it before the address is printed.
#[derive(Debug)]
pub(super) struct Stopping {
    runtime: Runtime,
    signals: Signals,
}

impl Stopping {
    pub(super) fn new() -> Result<Self, Failure> {
        let build = || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let signals = runtime.block_on(async { Signals::new() })?;
            Ok(Self { runtime, signals })
        };
        build().map_err(|error: io::Error| {
            let error = anyhow::Error::new(error).context("cannot wait for signals");
            Failure::new(Exit::Failed, error)
        })
    }

    /// Waits for a signal or for `length` to elapse, then calls `finish`. Its result is missing if
    /// a second signal came first.
    pub(super) fn wait<T: Send + 'static>(
        mut self,
        length: Option<Duration>,
        finish: impl FnOnce() -> T + Send + 'static,
    ) -> (Stop, Option<T>) {
        let stop = self.watch(length, NEVER, || {});
        match self.finish(finish) {
            Ok(result) => (stop, result),
            Err(again) => (again, None),
        }
    }

    /// Waits for a signal or for `length` to elapse; calls `show` at once and after every
    /// `interval`.
    pub(super) fn watch(
        &mut self,
        length: Option<Duration>,
        interval: Duration,
        mut show: impl FnMut(),
    ) -> Stop {
        let Self { runtime, signals } = self;
        runtime.block_on(async {
            let showing = async {
                let mut ticks = tokio::time::interval(interval);
                // A process that was suspended shows one picture afterwards, not all it missed.
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    show();
                }
            };
            tokio::select! {
                () = elapsed(length) => Stop::Elapsed,
                stop = signals.next() => stop,
                never = showing => never,
            }
        })
    }

    /// Calls `finish`, unless a second signal comes first. Its result is missing if it panicked.
    pub(super) fn finish<T: Send + 'static>(
        mut self,
        finish: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Stop> {
        self.runtime.block_on(async {
            let (sender, finished) = oneshot::channel();
            thread::spawn(move || {
                // After a second signal the receiver is gone.
                _ = sender.send(finish());
            });
            tokio::select! {
                result = finished => Ok(result.ok()),
                again = self.signals.next() => Err(again),
            }
        })
    }
}

/// Longer than any run, and within the range of the timers.
const NEVER: Duration = Duration::from_secs(1 << 30);

async fn elapsed(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

#[cfg(unix)]
#[derive(Debug)]
pub(super) struct Signals {
    interrupted: unix::Signal,
    terminated: unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: unix::signal(unix::SignalKind::interrupt())?,
            terminated: unix::signal(unix::SignalKind::terminate())?,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupted.recv() => Stop::Interrupted,
            _ = self.terminated.recv() => Stop::Terminated,
        }
    }
}

#[cfg(windows)]
#[derive(Debug)]
pub(super) struct Signals {
    interrupted: windows::CtrlC,
    terminated: windows::CtrlClose,
}

#[cfg(windows)]
impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupted: windows::ctrl_c()?,
            terminated: windows::ctrl_close()?,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupted.recv() => Stop::Interrupted,
            _ = self.terminated.recv() => Stop::Terminated,
        }
    }
}
