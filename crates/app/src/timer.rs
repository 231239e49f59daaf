//! A timer that is used for one wait after the other.
//!
//! To register a timer for every request and to cancel it again costs as much as a gate's decision,
//! and nearly none of them fires. So a connection has one timer for all its requests. It is
//! registered when there is none, and only when it fires is it compared with the deadline of the
//! present request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for waits that follow each other. One whose deadline is before that of an earlier wait may
/// end late.
#[derive(Debug, Default)]
pub(crate) struct ReusableTimer(Option<Pin<Box<Sleep>>>);

impl ReusableTimer {
    /// Waits for `work` until the time that `ends` says; that may move on while it is waited for.
    /// `None` if it took longer.
    pub(crate) async fn wait_for<F: Future>(
        &mut self,
        work: F,
        ends: impl Fn() -> Instant,
    ) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            self.poll_end(&ends, context).map(|()| None)
        })
        .await
    }

    /// Ready at the time that `ends` says.
    pub(crate) fn poll_end(
        &mut self,
        ends: impl Fn() -> Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(ends())));
        loop {
            ready!(sleep.as_mut().poll(context));
            let end = ends();
            if end <= sleep.deadline() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    /// Virtual time: nothing is slept.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn each_wait_has_its_own_deadline_on_one_timer() {
        run(async {
            let mut timer = ReusableTimer::default();
            for seconds in [3, 5, 1] {
                let end = Instant::now() + Duration::from_secs(seconds);
                assert_eq!(timer.wait_for(ready(seconds), || end).await, Some(seconds));
                let ended = timer.wait_for(pending::<()>(), || end).await;
                assert_eq!(ended, None);
                assert!(Instant::now() >= end);
                assert!(Instant::now() < end + Duration::from_millis(10));
            }
        });
    }

    #[test]
    fn waits_for_a_deadline_that_moves() {
        run(async {
            let began = Instant::now();
            let second = Duration::from_secs(1);
            // As long as a request is being sent, the time for its answer has not begun.
            let ends = || {
                let now = Instant::now();
                if now < began + 3 * second {
                    now + second
                } else {
                    began + 4 * second
                }
            };
            assert_eq!(
                ReusableTimer::default()
                    .wait_for(pending::<()>(), ends)
                    .await,
                None
            );
            assert!(Instant::now() >= began + 4 * second);
        });
    }
}
