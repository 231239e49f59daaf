//! Credentials with single-flight refresh.
//!
//! When a token expires, all requests in flight get a 401 at about the same time. One refresh is
//! enough for all of them, and most token servers treat more as abuse. The first call that needs a
//! refresh runs it and the others wait for the result; a later call with an old token does not
//! refresh again. If the call running the refresh is cancelled, one of the waiters takes over.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::call::BoxError;
use crate::sync::{Mutex, lock};
use crate::waiters::Waiters;

/// A credential that can be refreshed when a server rejects it.
pub trait Refresh: Send + Sync {
    /// The name shown in events. Never the secret itself.
    fn name(&self) -> &str;

    /// The number of refreshes so far.
    fn generation(&self) -> u64;

    /// Refreshes the credential unless that has happened since generation `used`. It is newer than
    /// `used` afterwards, or there is an error.
    fn refresh(&self, used: u64) -> RefreshFuture<'_>;
}

/// Resolves when the credential was refreshed, or could not be.
pub type RefreshFuture<'a> = Pin<Box<dyn Future<Output = Result<(), RefreshError>> + Send + 'a>>;

/// A credential could not be refreshed. All calls that waited for the refresh get the same error.
#[derive(Clone, Debug)]
pub struct RefreshError {
    credential: Arc<str>,
    source: Arc<dyn Error + Send + Sync>,
}

impl RefreshError {
    /// The refresh of `credential`, which is its name, failed with `source`.
    pub fn new(credential: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            credential: credential.into(),
            source: source.into().into(),
        }
    }
}

impl fmt::Display for RefreshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credential `{}` could not be refreshed", self.credential)
    }
}

impl Error for RefreshError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// A value such as a token, and the function that renews it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::RefreshError> {
/// use tidegate::{Credential, Refresh};
///
/// async fn new_token() -> std::io::Result<String> {
///     Ok("new".to_owned()) // … ask the token server
/// }
///
/// let credential = Credential::new("crm", "old".to_owned(), new_token);
/// assert_eq!(*credential.current(), "old");
/// credential.refresh(credential.generation()).await?;
/// assert_eq!(*credential.current(), "new");
/// # Ok(())
/// # }
/// ```
pub struct Credential<V> {
    name: Box<str>,
    make: Box<dyn Fn() -> ValueFuture<V> + Send + Sync>,
    state: Mutex<CredentialState<V>>,
    /// Calls waiting for the refresh in progress.
    waiters: Waiters,
}

/// Resolves to a new value.
type ValueFuture<V> = Pin<Box<dyn Future<Output = Result<V, BoxError>> + Send>>;

struct CredentialState<V> {
    value: Arc<V>,
    generation: u64,
    /// Refreshes that have finished, successfully or not.
    ended: u64,
    is_running: bool,
    /// Why the last refresh that has finished failed, if it did.
    error: Option<RefreshError>,
}

impl<V: Send + Sync> Credential<V> {
    /// Creates a credential with its first value. `make` is an async function that obtains a new one.
    pub fn new<F, E>(name: &str, value: V, make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self {
            name: name.into(),
            make: Box::new(move || {
                let made = make();
                Box::pin(async move { made.await.map_err(Into::into) })
            }),
            state: Mutex::new(CredentialState {
                value: Arc::new(value),
                generation: 0,
                ended: 0,
                is_running: false,
                error: None,
            }),
            waiters: Waiters::default(),
        }
    }

    /// The current value.
    pub fn current(&self) -> Arc<V> {
        Arc::clone(&lock(&self.state).value)
    }

    async fn refresh_once(&self, used: u64) -> Result<(), RefreshError> {
        let began = lock(&self.state).ended;
        match self.turn(used, began).await {
            Turn::Over(result) => result,
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
                return Poll::Ready(Turn::Over(Ok(())));
            }
            if state.ended > began
                && let Some(error) = &state.error
            {
                return Poll::Ready(Turn::Over(Err(error.clone())));
            }
            if !state.is_running {
                state.is_running = true;
                return Poll::Ready(Turn::Mine);
            }
            Poll::Pending
        })
        .await
    }

    /// Ends the refresh in progress and wakes the waiters; `None` if it was dropped.
    fn stop(&self, made: Option<Result<V, RefreshError>>) {
        let mut state = lock(&self.state);
        state.is_running = false;
        if let Some(made) = made {
            state.ended += 1;
            match made {
                Ok(value) => {
                    state.value = Arc::new(value);
                    state.generation += 1;
                    state.error = None;
                }
                Err(error) => state.error = Some(error),
            }
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

    fn refresh(&self, used: u64) -> RefreshFuture<'_> {
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
    Over(Result<(), RefreshError>),
}

/// A refresh in progress. If it is dropped early, another call takes over.
struct Running<'a, V: Send + Sync>(&'a Credential<V>);

impl<V: Send + Sync> Running<'_, V> {
    fn end(self, made: Result<V, BoxError>) -> Result<(), RefreshError> {
        let made = made.map_err(|error| RefreshError::new(&self.0.name, error));
        let result = made.as_ref().map(drop).map_err(RefreshError::clone);
        self.0.stop(Some(made));
        std::mem::forget(self);
        result
    }
}

impl<V: Send + Sync> Drop for Running<'_, V> {
    fn drop(&mut self) {
        self.0.stop(None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context, Waker};

    use super::*;

    /// A token server driven by the test: each refresh takes the next response.
    #[derive(Default)]
    struct Server {
        asked: u32,
        responses: VecDeque<Result<u32, &'static str>>,
    }

    fn served() -> (Arc<Mutex<Server>>, Credential<u32>) {
        let server = Arc::new(Mutex::new(Server::default()));
        let asked = Arc::clone(&server);
        let credential = Credential::new("crm", 0, move || {
            lock(&asked).asked += 1;
            let server = Arc::clone(&asked);
            poll_fn(move |_| {
                let response = lock(&server).responses.pop_front();
                response.map_or(Poll::Pending, Poll::Ready)
            })
        });
        (server, credential)
    }

    fn respond(server: &Mutex<Server>, made: Result<u32, &'static str>) {
        lock(server).responses.push_back(made);
    }

    /// Whether it succeeded, once it is ready.
    fn poll(refresh: &mut RefreshFuture<'_>) -> Poll<bool> {
        let mut context = Context::from_waker(Waker::noop());
        let polled = refresh.as_mut().poll(&mut context);
        polled.map(|refreshed| refreshed.is_ok())
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
        respond(&server, Ok(7));
        assert_eq!(poll(&mut second), Poll::Ready(true));
        assert_eq!(poll(&mut third), Poll::Ready(true));
        assert_eq!((*credential.current(), lock(&server).asked), (7, 2));
    }

    #[test]
    fn failed_refresh_is_shared_by_its_waiters_only() {
        let (server, credential) = served();
        let [mut first, mut second] = [credential.refresh(0), credential.refresh(0)];
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        respond(&server, Err("no such account"));
        assert_eq!(poll(&mut first), Poll::Ready(false));
        assert_eq!(poll(&mut second), Poll::Ready(false));
        assert_eq!((credential.generation(), lock(&server).asked), (0, 1));
        respond(&server, Ok(7));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!((credential.generation(), lock(&server).asked), (1, 2));
    }

    #[test]
    fn only_a_call_with_the_newest_token_refreshes_again() {
        let (server, credential) = served();
        respond(&server, Ok(7));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!(poll(&mut credential.refresh(0)), Poll::Ready(true));
        assert_eq!(lock(&server).asked, 1, "there is a newer one already");
        respond(&server, Ok(8));
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
    #[test]
    fn every_waiter_gets_the_error_of_the_failed_refresh() {
        let (server, credential) = served();
        let [mut first, mut second] = [credential.refresh(0), credential.refresh(0)];
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        respond(&server, Err("no such account"));
        let mut context = Context::from_waker(Waker::noop());
        for refresh in [&mut first, &mut second] {
            let Poll::Ready(Err(error)) = refresh.as_mut().poll(&mut context) else {
                panic!("the refresh failed");
            };
            assert_eq!(error.to_string(), "credential `crm` could not be refreshed");
            assert_eq!(error.source().unwrap().to_string(), "no such account");
        }
    }
}
