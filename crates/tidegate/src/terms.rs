//! How requests are sent, for everything that makes the calls itself: layers and clients.

use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::hedge::Hedge;
use policy::item::ItemKind;

use crate::ask::Ask;
use crate::call::Call;
use crate::credential::Refresh;
use crate::limiter::Limiter;

/// Settings for every request.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    pub(crate) within: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) hedge: Option<Hedge>,
    pub(crate) is_background: bool,
    pub(crate) retry_unsafe: bool,
    pub(crate) backoff: Option<BackoffSettings>,
    pub(crate) credential: Option<Arc<dyn Refresh>>,
}

impl Terms {
    /// The call that sends a request of this kind through the gate of `key`.
    pub(crate) fn call<'a>(
        &'a self,
        limiter: &'a Limiter,
        key: &'a str,
        kind: ItemKind,
    ) -> Call<'a> {
        let ask = if self.is_background {
            Ask::new(key).background()
        } else {
            Ask::new(key)
        };
        let mut call = limiter.call(ask).kind(ItemKind {
            retry_unsafe: self.retry_unsafe,
            ..kind
        });
        if let Some(within) = self.within {
            call = call.within(within);
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
        if let Some(credential) = &self.credential {
            call = call.credential(credential.as_ref());
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
