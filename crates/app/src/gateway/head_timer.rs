//! The timeout for heads of requests, as hyper asks for it: a new timer for each head. Those of one
//! connection share a single one.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::timer::ReusableTimer;

/// The timer of one connection.
#[derive(Debug, Default)]
pub(super) struct HeadTimer(Arc<Mutex<ReusableTimer>>);

/// Ready at its deadline.
struct HeadDeadline {
    timer: Arc<Mutex<ReusableTimer>>,
    deadline: Instant,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadDeadline {
            timer: Arc::clone(&self.0),
            deadline,
        })
    }

    /// The clock of the runtime, which tests pause.
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Future for HeadDeadline {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.poll_end(|| self.deadline.into(), context)
    }
}

impl Sleep for HeadDeadline {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_one_connection_have_their_own_deadlines() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let timer = HeadTimer::default();
            let began = timer.now();
            let second = Duration::from_secs(1);
            let mut first = timer.sleep(second);
            let polled = std::future::poll_fn(|context| Poll::Ready(first.as_mut().poll(context)));
            assert!(polled.await.is_pending());
            drop(first);
            timer.sleep_until(began + 3 * second).await;
            assert!(timer.now() >= began + 3 * second);
            timer.sleep(second).await;
            assert!(timer.now() >= began + 4 * second);
            assert!(timer.now() < began + 5 * second);
        });
    }
}
