//! Says again and again that the server works, for as long as it does.
//!
//! systemd itself sees that the process exists, and a timer would go on while all workers hang. So
//! before each message every event loop has to run a task, and the thread of the clock, which wakes
//! waiting requests, has to wake one. While one of them hangs nothing is sent, and nothing any more if
//! one has ended before the server stops.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tidegate::Clock;
use tokio::runtime::Handle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::ServiceManager;

/// Everything that must respond for the server to work.
#[derive(Debug)]
pub(crate) struct EventLoops {
    pub(crate) loops: Vec<Handle>,
    pub(crate) clock: Clock,
}

impl ServiceManager {
    /// Sends messages while all of `loops` respond; none without a watchdog. Never ends.
    pub(crate) async fn watch(&self, loops: &EventLoops) -> Infallible {
        let mut ticks = self.ticks().await;
        loop {
            ticks.tick().await;
            if loops.respond().await {
                self.alive();
            }
        }
    }

    /// The same while the server stops: its loops end one after the other, and that is bounded anyway.
    pub(crate) async fn watch_end(&self) -> Infallible {
        let mut ticks = self.ticks().await;
        loop {
            ticks.tick().await;
            self.alive();
        }
    }

    /// Twice in the time after which systemd acts, as sd_watchdog_enabled(3) recommends.
    async fn ticks(&self) -> Interval {
        let Some(timeout) = self.watchdog else {
            return pending().await;
        };
        let mut ticks = interval((timeout / 2).max(MIN_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}

/// An interval of zero is not possible.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

impl EventLoops {
    /// Whether each has run a task. Waits for one that hangs.
    async fn respond(&self) -> bool {
        for event_loop in &self.loops {
            // One that has ended cancels it.
            if event_loop.spawn(async {}).await.is_err() {
                return false;
            }
        }
        // A time that has come needs no thread.
        let soon = self.clock.now() + Duration::from_millis(1);
        self.clock.sleep_until(soon).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};

    use tokio::net::UnixDatagram;
    use tokio::sync::oneshot;

    use super::super::tests::Variables;
    use super::*;

    /// A thread with an event loop, as workers have.
    struct Worker {
        handle: Handle,
        end: oneshot::Sender<()>,
        thread: JoinHandle<()>,
    }

    impl Worker {
        fn new() -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.unwrap();
            let handle = runtime.handle().clone();
            let (end, ended) = oneshot::channel();
            let thread = thread::spawn(move || {
                _ = runtime.block_on(ended);
            });
            Self {
                handle,
                end,
                thread,
            }
        }

        fn end(self) {
            self.end.send(()).unwrap();
            self.thread.join().unwrap();
        }
    }

    fn loops<const N: usize>(workers: [&Worker; N]) -> EventLoops {
        EventLoops {
            loops: workers.map(|worker| worker.handle.clone()).into(),
            clock: Clock::system(),
        }
    }

    #[tokio::test]
    async fn a_loop_that_hangs_does_not_respond_until_it_goes_on() {
        let (first, second) = (Worker::new(), Worker::new());
        let (go_on, waits) = mpsc::channel::<()>();
        let hanging = second.handle.spawn(async move { waits.recv() });
        let loops = loops([&first, &second]);
        let responding = tokio::spawn(async move { loops.respond().await });
        first.handle.spawn(async {}).await.unwrap();
        assert!(!responding.is_finished());
        go_on.send(()).unwrap();
        assert!(responding.await.unwrap());
        hanging.await.unwrap().unwrap();
        first.end();
        second.end();
    }

    #[tokio::test]
    async fn a_loop_that_has_ended_does_not_respond() {
        let (first, second) = (Worker::new(), Worker::new());
        let loops = loops([&first, &second]);
        assert!(loops.respond().await);
        second.end();
        assert!(!loops.respond().await);
        first.end();
    }

    #[tokio::test]
    async fn sends_messages_while_loops_respond_and_while_it_stops() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::new(&Variables::new([
            ("NOTIFY_SOCKET", path.display().to_string()),
            ("WATCHDOG_USEC", "2000".to_owned()),
        ]));
        let worker = Worker::new();
        let loops = loops([&worker]);
        let mut buffer = [0; 64];
        for _ in 0..3 {
            tokio::select! {
                never = manager.watch(&loops) => match never {},
                length = socket.recv(&mut buffer) => {
                    assert_eq!(&buffer[..length.unwrap()], b"WATCHDOG=1");
                }
            }
        }
        worker.end();
        tokio::select! {
            never = manager.watch_end() => match never {},
            length = socket.recv(&mut buffer) => {
                assert_eq!(&buffer[..length.unwrap()], b"WATCHDOG=1");
            }
        }
    }
}
