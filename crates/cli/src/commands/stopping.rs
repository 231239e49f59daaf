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
use tokio::time::MissedTickBehavior;

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
        let stop = self.watch(length, NEVER, || {});
        match self.finish(finish) {
            Ok(result) => (stop, result),
            Err(again) => (again, None),
        }
    }

    /// Waits for the end, of itself after `length`; calls `look` at once and every so often
    /// meanwhile.
    pub(super) fn watch(
        &mut self,
        length: Option<Duration>,
        every: Duration,
        mut look: impl FnMut(),
    ) -> Stop {
        let Self { runtime, signals } = self;
        runtime.block_on(async {
            let looking = async {
                let mut ticks = tokio::time::interval(every);
                // Whoever was stopped for a while is not shown the same thing many times.
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    look();
                }
            };
            tokio::select! {
                () = elapsed(length) => Stop::Elapsed,
                stop = signals.next() => stop,
                never = looking => never,
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
                // Nobody is there to be told after a second signal.
                _ = sender.send(finish());
            });
            tokio::select! {
                result = finished => Ok(result.ok()),
                again = self.signals.next() => Err(again),
            }
        })
    }
}

/// Longer than anything runs, and short enough for every timer.
const NEVER: Duration = Duration::from_secs(1 << 30);

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
