//! How requests are sent, for everything that makes the calls itself: layers and clients.

use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::hedge::Hedge;
use policy::item::ItemKind;
use policy::jitter::RetryAfterJitter;

use crate::ask::Ask;
use crate::call::{Call, TrailStep};
use crate::credential::Refresh;
use crate::limiter::Limiter;

/// Settings for every request.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    pub(crate) within: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) hedge: Option<Hedge>,
    pub(crate) cost: Option<u32>,
    pub(crate) is_background: bool,
    pub(crate) fails_fast: bool,
    pub(crate) give_up_after: Option<GiveUpAfter>,
    pub(crate) retry_unsafe: bool,
    pub(crate) backoff: Option<BackoffSettings>,
    pub(crate) retry_after_jitter: Option<RetryAfterJitter>,
    pub(crate) credential: Option<Arc<dyn Refresh>>,
    pub(crate) watcher: Option<Arc<Watcher>>,
}

/// How long a gate may go without a success; `None` is without bound.
type GiveUpAfter = Option<Duration>;

/// Called with every step of every request.
type Watcher = dyn Fn(&TrailStep) + Send + Sync;

impl Terms {
    /// The call that sends a request of this kind through the gate of `key`.
    pub(crate) fn call<'a>(
        &'a self,
        limiter: &'a Limiter,
        key: &'a str,
        kind: ItemKind,
    ) -> Call<'a> {
        let mut ask = Ask::new(key);
        if let Some(cost) = self.cost {
            ask = ask.cost(cost);
        }
        if self.is_background {
            ask = ask.background();
        }
        if self.fails_fast {
            ask = ask.fail_fast();
        }
        let mut call = limiter.call(ask).kind(ItemKind {
            retry_unsafe: self.retry_unsafe,
            ..kind
        });
        if let Some(within) = self.within {
            call = call.within(within);
        }
        if let Some(time) = self.give_up_after {
            call = call.give_up_after(time);
        }
        if let Some(timeout) = self.attempt_timeout {
            call = call.attempt_timeout(timeout);
        }
        if let Some(hedge) = self.hedge {
            call = call.hedge(hedge);
        }
        if let Some(backoff) = &self.backoff {
            call = call.backoff(backoff);
        }
        if let Some(jitter) = self.retry_after_jitter {
            call = call.retry_after_jitter(jitter);
        }
        if let Some(credential) = &self.credential {
            call = call.credential(credential.as_ref());
        }
        if let Some(watcher) = &self.watcher {
            call = call.watch(watcher.as_ref());
        }
        call
    }
}

/// The methods that set the terms, for a type with a field `terms`.
macro_rules! term_setters {
    () => {
        /// Bounds each request with all its waits and attempts, see
        /// [`Call::within`](crate::Call::within). If a resend cannot meet the bound, the last response
        /// is returned at once.
        pub fn within(mut self, time: std::time::Duration) -> Self {
            self.terms.within = Some(time);
            self
        }

        /// Bounds each attempt up to the head of its response; one that takes longer counts as a
        /// timeout, see [`Call::attempt_timeout`](crate::Call::attempt_timeout).
        pub fn attempt_timeout(mut self, time: std::time::Duration) -> Self {
            self.terms.attempt_timeout = Some(time);
            self
        }

        /// Sends a safe request a second time if its first attempt is not answered soon, see
        /// [`Call::hedge`](crate::Call::hedge). Requests whose body cannot be copied are sent once.
        pub fn hedge(mut self, hedge: crate::Hedge) -> Self {
            self.terms.hedge = Some(hedge);
            self
        }

        /// What each attempt costs, see [`Ask::cost`](crate::Ask::cost); one by default.
        pub fn cost(mut self, cost: u32) -> Self {
            self.terms.cost = Some(cost);
            self
        }

        /// Never waits at the gate: each attempt is admitted at once, or the request ends, see
        /// [`Ask::fail_fast`](crate::Ask::fail_fast).
        pub fn fail_fast(mut self) -> Self {
            self.terms.fails_fast = true;
            self
        }

        /// How long its gate may go without any success of any request, five minutes by default, see
        /// [`Call::give_up_after`](crate::Call::give_up_after).
        pub fn give_up_after(mut self, time: Option<std::time::Duration>) -> Self {
            self.terms.give_up_after = Some(time);
            self
        }

        /// Lets interactive requests go first, but still gets at least every eighth turn.
        pub fn background(mut self) -> Self {
            self.terms.is_background = true;
            self
        }

        /// Sets the delays between attempts and the maximum number of attempts.
        pub fn backoff(mut self, backoff: crate::BackoffSettings) -> Self {
            self.terms.backoff = Some(backoff);
            self
        }

        /// What is added to a wait that the server names, see
        /// [`Call::retry_after_jitter`](crate::Call::retry_after_jitter).
        pub fn retry_after_jitter(mut self, jitter: crate::RetryAfterJitter) -> Self {
            self.terms.retry_after_jitter = Some(jitter);
            self
        }

        /// Calls `watcher` with every step of every request as it happens. It should return quickly.
        pub fn watch(
            mut self,
            watcher: impl Fn(&crate::call::TrailStep) + Send + Sync + 'static,
        ) -> Self {
            self.terms.watcher = Some(std::sync::Arc::new(watcher));
            self
        }

        /// Declares every request safe to resend, whatever its method.
        pub fn retry_unsafe(mut self) -> Self {
            self.terms.retry_unsafe = true;
            self
        }

        /// Sets the credential to refresh when the server answers 401. Its current value has to be
        /// added to every attempt.
        pub fn credential(mut self, credential: std::sync::Arc<dyn crate::Refresh>) -> Self {
            self.terms.credential = Some(credential);
            self
        }
    };
}

pub(crate) use term_setters;
