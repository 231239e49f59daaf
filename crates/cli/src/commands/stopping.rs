//! Waiting for the end of something that runs: its time, SIGTERM or Ctrl-C.
//!
//! The first signal lets it finish what is in flight, the second ends it at once.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::ctrl_c;
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

/// Waits for the end, of itself after `length`, and then calls `finish`, whose result is missing if
/// a second signal came first.
pub(super) fn serve<T: Send + 'static>(
    length: Option<Duration>,
    finish: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(Stop, Option<T>)> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let stop = match length {
            Some(length) => tokio::select! {
                () = tokio::time::sleep(length) => Stop::Elapsed,
                stop = signals.next() => stop?,
            },
            None => signals.next().await?,
        };
        let (sender, finished) = oneshot::channel();
        thread::spawn(move || {
            // Nobody is there to be told after a second signal.
            _ = sender.send(finish());
        });
        tokio::select! {
            result = finished => Ok((stop, result.ok())),
            again = signals.next() => Ok((again?, None)),
        }
    })
}

#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).map(Self)
    }

    async fn next(&mut self) -> io::Result<Stop> {
        tokio::select! {
            interrupted = ctrl_c() => interrupted.map(|()| Stop::Interrupted),
            _ = self.0.recv() => Ok(Stop::Terminated),
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> io::Result<Stop> {
        ctrl_c().await.map(|()| Stop::Interrupted)
    }
}
