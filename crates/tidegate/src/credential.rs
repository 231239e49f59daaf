//! Credentials that can be refreshed, once for everyone who uses them.
//!
//! When a token expires, every request that is under way comes back with 401 at about the same
//! time. One refresh is enough for all of them, and most token servers treat a second as abuse. So
//! a refresh is single-flight: the first who needs it runs it, the others wait for the result, and
//! who comes later with a token of before does not run it again. If whoever runs it is cancelled,
//! one of those who wait takes over.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

/// Something that can be refreshed when a server does not accept it any more.
pub trait Refresh: Send + Sync {
    /// What it is called in events. Never the secret itself.
    fn name(&self) -> &str;

    /// How often it was refreshed.
    fn generation(&self) -> u64;

    /// Refreshes it, unless that has happened since generation `used`. `true` if there is a newer
    /// one now.
    fn refresh(&self, used: u64) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// A value such as a token, and the function that makes a new one.
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
    make: Box<dyn Fn() -> Making<V> + Send + Sync>,
    state: Mutex<State<V>>,
}

/// A new value on its way; `None` if there is none to be had.
pub type Making<V> = Pin<Box<dyn Future<Output = Option<V>> + Send>>;

struct State<V> {
    value: Arc<V>,
    generation: u64,
    /// How many refreshes have ended, well or not.
    ended: u64,
    is_running: bool,
    waiting: Vec<Waker>,
}

impl<V: Send + Sync> Credential<V> {
    /// A credential with its first value.
    pub fn new(name: &str, value: V, make: impl Fn() -> Making<V> + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            make: Box::new(make),
            state: Mutex::new(State {
                value: Arc::new(value),
                generation: 0,
                ended: 0,
                is_running: false,
                waiting: Vec::new(),
            }),
        }
    }

    /// The value to use now.
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

    /// Waits until it is known how it went, or until nobody else does it.
    async fn turn(&self, used: u64, began: u64) -> Turn {
        poll_fn(|context| {
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
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Lets the others look again.
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
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting {
            waker.wake();
        }
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

/// Whose turn it is to refresh.
enum Turn {
    Mine,
    /// It has been done.
    Over(bool),
}

/// A refresh under way. Dropped before its end, somebody else takes over.
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
