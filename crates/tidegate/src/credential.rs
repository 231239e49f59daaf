//! Credentials with single-flight refresh.
//!
//! When a token expires, all requests in flight get a 401 at about the same time. One refresh is
//! enough for all of them, and most token servers treat more as abuse. The first call that needs a
//! refresh runs it and the others wait for the result; a later call with an old token does not
//! refresh again. If the call running the refresh is cancelled, one of the waiters takes over.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::sync::{Mutex, lock};
use crate::waiters::Waiters;

/// A credential that can be refreshed when a server rejects it.
pub trait Refresh: Send + Sync {
    /// The name shown in events. Never the secret itself.
    fn name(&self) -> &str;

    /// The number of refreshes so far.
    fn generation(&self) -> u64;

    /// Refreshes the credential unless that has happened since generation `used`. Returns `true` if
    /// it is newer than `used` now.
    fn refresh(&self, used: u64) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// A value such as a token, and the function that renews it.
///
/// ```
/// # async fn example() {
/// use tidegate::{Credential, Refresh};
///
/// # async fn new_token() -> Result<String, std::io::Error> { Ok("new".to_owned()) }
/// let credential = Credential::new("crm", "old".to_owned(), || Box::pin(async {
///     new_token().await.ok()
/// }));
/// assert_eq!(*credential.current(), "old");
/// assert!(credential.refresh(credential.generation()).await);
/// assert_eq!(*credential.current(), "new");
/// # }
/// ```
pub struct Credential<V> {
    name: Box<str>,
    make: Box<dyn Fn() -> RefreshFuture<V> + Send + Sync>,
    state: Mutex<CredentialState<V>>,
    /// Calls waiting for the refresh in progress.
    waiters: Waiters,
}

/// Resolves to a new value, or `None` if none could be obtained.
pub type RefreshFuture<V> = Pin<Box<dyn Future<Output = Option<V>> + Send>>;

struct CredentialState<V> {
    value: Arc<V>,
    generation: u64,
    /// Refreshes that have finished, successfully or not.
    ended: u64,
    is_running: bool,
}

impl<V: Send + Sync> Credential<V> {
    /// Creates a credential with its first value.
    pub fn new(
        name: &str,
        value: V,
        make: impl Fn() -> RefreshFuture<V> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            make: Box::new(make),
            state: Mutex::new(CredentialState {
                value: Arc::new(value),
                generation: 0,
                ended: 0,
                is_running: false,
            }),
            waiters: Waiters::default(),
        }
    }

    /// The current value.
    pub fn current(&self) -> Arc<V> {
        Arc::clone(&lock(&self.state).value)
    }

    async fn refresh_once(&self, used: u64) -> bool {
        let began = lock(&self.state).ended;
        match self.turn(used, began).await {
            Turn::Over(succeeded) => succeeded,
            Turn::Mine => {
                let running = Running(self);
                let made = (self.make)().await;
                running.end(made)
            }
        }
    }

    /// Waits until the refresh in progress has finished or was dropped.
    async fn turn(&self, used: u64, began: u64) -> Turn {
        let mut waiter = self.waiters.waiter();
        poll_fn(|context| {
            waiter.set_waker(context.waker());
            let mut state = lock(&self.state);
            if state.generation > used {
                return Poll::Ready(Turn::Over(true));
            }
            if state.ended > began {
                return Poll::Ready(Turn::Over(false));
            }
            if !state.is_running {
                state.is_running = true;
                return Poll::Ready(Turn::Mine);
            }
            Poll::Pending
        })
        .await
    }

    /// Ends the refresh in progress and wakes the waiters.
    fn stop(&self, made: Option<V>, has_ended: bool) {
        let mut state = lock(&self.state);
        state.is_running = false;
        if has_ended {
            state.ended += 1;
        }
        if let Some(value) = made {
            state.value = Arc::new(value);
            state.generation += 1;
        }
        drop(state);
        self.waiters.wake_all();
    }
}

impl<V: Send + Sync> Refresh for Credential<V> {
    fn name(&self) -> &str {
        &self.name
    }

    fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    fn refresh(&self, used: u64) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.refresh_once(used))
    }
}

// The value is a secret.
impl<V> fmt::Debug for Credential<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a call has to do.
enum Turn {
    Mine,
    /// Another call has refreshed it.
    Over(bool),
}

/// A refresh in progress. If it is dropped early, another call takes over.
struct Running<'a, V: Send + Sync>(&'a Credential<V>);

impl<V: Send + Sync> Running<'_, V> {
    fn end(self, made: Option<V>) -> bool {
        let succeeded = made.is_some();
        self.0.stop(made, true);
        std::mem::forget(self);
        succeeded
    }
}

impl<V: Send + Sync> Drop for Running<'_, V> {
    fn drop(&mut self) {
        self.0.stop(None, false);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context, Waker};

    use super::*;

    /// A token server driven by the test: each refresh takes the next answer.
    #[derive(Default)]
    struct Server {
        asked: u32,
        answers: VecDeque<Option<u32>>,
    }

    fn served() -> (Arc<Mutex<Server>>, Credential<u32>) {
        let server = Arc::new(Mutex::new(Server::default()));
        let asked = Arc::clone(&server);
        let credential = Credential::new("crm", 0, move || {
            lock(&asked).asked += 1;
            let answers = Arc::clone(&asked);
            Box::pin(poll_fn(move |_| {
                let answer = lock(&answers).answers.pop_front();
                answer.map_or(Poll::Pending, Poll::Ready)
            }))
        });
        (server, credential)
    }

    fn answer(server: &Mutex<Server>, made: Option<u32>) {
        lock(server).answers.push_back(made);
    }

    type Refreshing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

    fn poll(refreshing: &mut Refreshing<'_>) -> Poll<bool> {
        let mut context = Context::from_waker(Waker::noop());
        refreshing.as_mut().poll(&mut context)
    }

    #[test]
    fn waiter_takes_over_a_cancelled_refresh() {
        let (server, credential) = served();
        let mut leader = credential.refresh(0);
        let [mut second, mut third] = [credential.refresh(0), credential.refresh(0)];
        assert!(poll(&mut leader).is_pending());
        assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
        assert_eq!(lock(&server).asked, 1);
        drop(leader);
        assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
        assert_eq!(lock(&server).asked, 2, "one of them, not both");
        answer(&server, Some(7));
        assert_eq!(poll(&mut second), Poll::Ready(true));
        assert_eq!(poll(&mut third), Poll::Ready(true));
        assert_eq!((*credential.current(), lock(&server).asked), (7, 2));
    }

    #[test]
    fn failed_refresh_is_shared_by_its_waiters_only() {
        let (server, credential) = served();
        let [mut first, mut second] = [credential.refresh(0), credential.refresh(0)];
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        answer(&server, None);
        assert_eq!(poll(&mut first), Poll::Ready(false));
        assert_eq!(poll(&mut second), Poll::Ready(false));
        assert_eq!((credential.generation(), lock(&server).asked), (0, 1));
        answer(&server, Some(7));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!((credential.generation(), lock(&server).asked), (1, 2));
    }

    #[test]
    fn only_a_call_with_the_newest_token_refreshes_again() {
        let (server, credential) = served();
        answer(&server, Some(7));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!(lock(&server).asked, 1, "there is a newer one already");
        answer(&server, Some(8));
        let newest = credential.generation();
        assert_eq!(poll(&mut credential.refresh(newest)), Poll::Ready(true));
        assert_eq!((*credential.current(), lock(&server).asked), (8, 2));
    }

    #[test]
    fn spurious_poll_keeps_one_waker() {
        let (_server, credential) = served();
        let [mut leader, mut follower] = [credential.refresh(0), credential.refresh(0)];
        assert!(poll(&mut leader).is_pending());
        for _ in 0..10 {
            assert!(poll(&mut follower).is_pending());
        }
        assert_eq!(credential.waiters.len(), 1);
        drop((leader, follower));
        assert_eq!(credential.waiters.len(), 0);
    }
}
