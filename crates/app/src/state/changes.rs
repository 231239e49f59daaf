//! Changes of a person at run time: endpoints, their protection, and overrides of gates.
//!
//! A change is made durable first and then takes effect, so that one that succeeded survives
//! restarts and one that could not be stored has changed nothing. Changes run one at a time and to
//! their end; a reload in between loses none of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use policy::key::endpoint_key;
use policy::ladder::Disabled;
use policy::setting::SettingErrors;
use policy::suggest::suggestion;
use store::{
    AddedEndpoint, Change, Protection, Reference, RotatedToken, StoreError, StoredEndpoint,
    StoredGate, StoredState,
};
use tidegate::{GateOverride, LadderRecord, Refusal};
use url::Url;

use super::State;
use super::overlay::with_changes;
use super::watermark::redacted;
use crate::exchange::Addresses;
use crate::host_check::is_localhost;
use crate::settings::{self, EndpointSettings, PlainFiles, Settings};
use crate::tls::Transport;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such pool.
    #[error("there is no pool `{name}`{}", did_you_mean(.close.as_deref()))]
    NoPool {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        close: Option<String>,
    },
    /// There is no such endpoint.
    #[error("pool `{pool}` has no endpoint `{name}`{}", did_you_mean(.close.as_deref()))]
    NoEndpoint {
        /// The pool.
        pool: String,
        /// What was asked for.
        name: String,
        /// What may have been meant.
        close: Option<String>,
    },
    /// Some values are invalid.
    #[error("{} invalid", if .0.len() == 1 { "a value is" } else { "some values are" })]
    Invalid(Vec<InvalidValue>),
    /// The address must not be dialled.
    #[error("`{0}` is not a public address; allow it in `[network]` if that is meant")]
    AddressNotAllowed(String),
    /// There is no room for another gate.
    #[error("{0}")]
    TooManyGates(Refusal),
    /// It cannot be made durable, so it was not done.
    #[error("the change cannot be stored, so nothing was changed: {0}")]
    Store(#[from] StoreError),
}

fn did_you_mean(close: Option<&str>) -> String {
    close.map_or_else(String::new, |close| format!("; did you mean `{close}`?"))
}

/// What is expected of an address that must not be dialled.
pub(crate) const PUBLIC: &str = "a public address, or one that `[network]` allows";

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// Its name.
    pub field: String,
    /// The value as far as it may be shown; `None` if it is missing, or may be a secret.
    pub value: Option<String>,
    /// What is expected.
    pub expected: String,
}

impl From<SettingErrors> for ChangeError {
    fn from(errors: SettingErrors) -> Self {
        let invalid = errors.into_iter().map(|error| InvalidValue {
            field: error.setting,
            value: Some(error.value),
            expected: error.expected,
        });
        Self::Invalid(invalid.collect())
    }
}

/// An endpoint to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEndpoint {
    /// Its name, which no other endpoint of the pool has.
    pub name: String,
    /// What the rest of a request's path is put behind.
    pub url: String,
    /// Headers of every request; values are references to secrets.
    pub headers: Vec<(String, String)>,
}

impl State {
    /// Continues with the refresh tokens that were stored, and forgets those of other settings.
    pub(super) fn restore_tokens(&self, stored: &StoredState) {
        let configuration = self.configuration();
        let is_unused = |rotated: &&RotatedToken| {
            let token = configuration.credential(&rotated.credential);
            !token.is_some_and(|token| token.restore(rotated))
        };
        let unused = stored.rotated.iter().filter(is_unused);
        let forget = unused.map(|rotated| Change::ForgetRotated {
            credential: rotated.credential.clone(),
        });
        self.store().save_all(forget);
    }

    /// Runs a change to its end in a task of its own: between the store and the live state a change
    /// must not be dropped half-way because its caller disconnects. Changes run one at a time.
    async fn run_to_end<F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<(), ChangeError>
    where
        F: Future<Output = Result<(), ChangeError>> + Send,
    {
        let state = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _changing = state.changing.lock().await;
            change(Arc::clone(&state)).await
        });
        match task.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(ChangeError::Store(StoreError::Stopped)),
            },
        }
    }

    /// Waits until the changes that have begun are completed.
    pub async fn finish_changes(&self) {
        drop(self.changing.lock().await);
    }

    /// Enables an endpoint, which clears all its error state, or disables it until it is enabled.
    /// Enabling one whose quota was used up, or whose gate is isolated, also releases its gate.
    /// Completes even if the returned future is dropped.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the store fails.
    pub async fn switch_endpoint(
        self: &Arc<Self>,
        pool: &str,
        name: &str,
        is_enabled: bool,
    ) -> Result<(), ChangeError> {
        let (pool, name) = (pool.to_owned(), name.to_owned());
        self.run_to_end(
            move |state| async move { state.set_enabled(&pool, &name, is_enabled).await },
        )
        .await
    }

    async fn set_enabled(
        &self,
        pool: &str,
        name: &str,
        is_enabled: bool,
    ) -> Result<(), ChangeError> {
        let record = self.record_of(pool, name)?;
        let key = endpoint_key(pool, name);
        let releases_gate = is_enabled
            && (record.disabled == Some(Disabled::QuotaExhausted) || self.is_isolated(&key));
        let record = if is_enabled {
            LadderRecord::default()
        } else {
            LadderRecord {
                disabled: Some(Disabled::Person),
                disabled_for: record.disabled_for.or(Some(Duration::ZERO)),
                ..record
            }
        };
        let stored = StoredEndpoint {
            pool: pool.to_owned(),
            name: name.to_owned(),
            record: redacted(record),
            at: self.limiter().clock().wall(),
        };
        let mut changes = vec![Change::Endpoint(stored)];
        let gate = self.stored_after(&key, GateOverride::Release);
        let gate_key = gate.as_ref().map_or(key.as_str(), |gate| &gate.key);
        let _rows = self.persistence.lock_endpoint(pool, name, gate_key);
        if releases_gate {
            changes.extend(gate.map(Change::Gate));
        }
        self.store().save_all(changes).await?;
        // Without the overlay's lock, which listeners may take: a reload updates pools in place, so
        // this is the live pool during a reload, too.
        let live = self.pool(pool)?;
        if releases_gate {
            self.limiter().release(&key);
        }
        if is_enabled {
            live.enable(name);
        } else {
            live.disable(name);
        }
        Ok(())
    }

    /// Adds an endpoint at the end of the list.
    ///
    /// # Errors
    ///
    /// If something about it is invalid, its address or a secret is not allowed, or the store fails.
    pub async fn add_endpoint(
        self: &Arc<Self>,
        pool: &str,
        new: NewEndpoint,
    ) -> Result<(), ChangeError> {
        let pool = pool.to_owned();
        self.run_to_end(move |state| async move { state.add(&pool, new).await })
            .await
    }

    async fn add(&self, pool: &str, new: NewEndpoint) -> Result<(), ChangeError> {
        let (endpoint, added) = self.parse_endpoint(pool, new)?;
        self.store().save(Change::EndpointAdded(added)).await?;
        let mut overlay = self.overlay();
        let live = self.pool(pool)?;
        let attached = self
            .configuration()
            .add_endpoint(&self.core, &live, &endpoint);
        let shown = settings::shown_url(endpoint.url.as_str());
        overlay.add(pool, endpoint);
        attached.map_err(|error| {
            ChangeError::Invalid(vec![InvalidValue {
                field: "url".to_owned(),
                value: Some(shown),
                expected: error.to_string(),
            }])
        })
    }

    /// Removes an endpoint; requests in flight through it finish. The last one may be removed, too:
    /// then requests are answered `no_endpoint` until one is added.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the store fails.
    pub async fn remove_endpoint(
        self: &Arc<Self>,
        pool: &str,
        name: &str,
    ) -> Result<(), ChangeError> {
        let (pool, name) = (pool.to_owned(), name.to_owned());
        self.run_to_end(move |state| async move { state.remove(pool, name).await })
            .await
    }

    async fn remove(&self, pool: String, name: String) -> Result<(), ChangeError> {
        self.record_of(&pool, &name)?;
        let is_configured = self.is_configured(&pool, &name);
        let change = if is_configured {
            Change::EndpointRemoved {
                pool: pool.clone(),
                name: name.clone(),
            }
        } else {
            Change::EndpointAsConfigured {
                pool: pool.clone(),
                name: name.clone(),
            }
        };
        let forget = Change::ForgetEndpoint {
            pool: pool.clone(),
            name: name.clone(),
        };
        let key = endpoint_key(&pool, &name);
        let _rows = self.persistence.lock_endpoint(&pool, &name, &key);
        self.store().save_all([change, forget]).await?;
        let mut overlay = self.overlay();
        if is_configured {
            overlay.remove(&pool, &name);
        } else {
            overlay.forget_added(&pool, &name);
        }
        self.pool(&pool)?.remove(&name);
        Ok(())
    }

    /// Changes some settings of a pool's protection, by name; the others stay.
    ///
    /// # Errors
    ///
    /// With every invalid value, or if the store fails.
    pub async fn change_protection(
        self: &Arc<Self>,
        pool: &str,
        changes: BTreeMap<String, String>,
    ) -> Result<(), ChangeError> {
        let pool = pool.to_owned();
        self.run_to_end(move |state| async move {
            let live = state.pool(&pool)?;
            with_changes(&live.protection(), &changes)?;
            let mut values = state.overlay().protection_changes(&pool);
            values.extend(changes);
            state.set_protection(&pool, values).await
        })
        .await
    }

    /// Takes back every change of a pool's protection: it is as configured again.
    ///
    /// # Errors
    ///
    /// If there is no such pool, or the store fails.
    pub async fn reset_protection(self: &Arc<Self>, pool: &str) -> Result<(), ChangeError> {
        let pool = pool.to_owned();
        self.run_to_end(move |state| async move {
            state.pool(&pool)?;
            state.set_protection(&pool, BTreeMap::new()).await
        })
        .await
    }

    async fn set_protection(
        &self,
        pool: &str,
        values: BTreeMap<String, String>,
    ) -> Result<(), ChangeError> {
        let protection = Protection {
            values: values.clone(),
        };
        let change = Change::Protection {
            pool: pool.to_owned(),
            protection: (!values.is_empty()).then_some(protection),
        };
        self.store().save(change).await?;
        let mut overlay = self.overlay();
        overlay.set_protection(pool, values);
        let configuration = self.configuration();
        let configured = configuration.settings().pools.get(pool);
        if let (Some(configured), Some(live)) = (configured, configuration.pool(pool)) {
            live.set_protection(overlay.protection(configured));
        }
        Ok(())
    }

    /// Overrides a gate. Isolating creates the gate if there is none; otherwise a gate that does not
    /// exist stays absent. Completes even if the returned future is dropped.
    ///
    /// # Errors
    ///
    /// If there is no room for another gate, or the store fails.
    pub async fn override_gate(
        self: &Arc<Self>,
        key: &str,
        change: GateOverride,
    ) -> Result<(), ChangeError> {
        let key = key.to_owned();
        self.run_to_end(move |state| async move {
            let Some(stored) = state.stored_after(&key, change) else {
                return Ok(());
            };
            // Until it has taken effect, so that the thread that writes does not store the gate as
            // it still is; afterwards it writes what happened meanwhile, or forgets a gate that
            // there was no room for.
            let _row = state.persistence.lock_gate(&stored.key);
            state.store().save(Change::Gate(stored)).await?;
            let limiter = state.limiter();
            match change {
                GateOverride::Reset => _ = limiter.reset(&key),
                GateOverride::Release => _ = limiter.release(&key),
                GateOverride::Isolate => {
                    limiter.isolate(&key).map_err(ChangeError::TooManyGates)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// A gate as it is stored for an override; `None` if there is no such gate.
    fn stored_after(&self, key: &str, change: GateOverride) -> Option<StoredGate> {
        let (key, record) = self.limiter().record_after(key, change)?;
        let at = self.limiter().clock().wall();
        Some(StoredGate { key, record, at })
    }

    /// The state of an endpoint.
    fn record_of(&self, pool: &str, name: &str) -> Result<LadderRecord, ChangeError> {
        let records = self.pool(pool)?.records();
        let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
        let close = suggestion(name, &names).map(str::to_owned);
        let mut records = records.into_iter();
        let found = records.find(|(known, _)| known == name);
        let missing = || ChangeError::NoEndpoint {
            pool: pool.to_owned(),
            name: name.to_owned(),
            close,
        };
        found.map(|(_, record)| record).ok_or_else(missing)
    }

    fn is_configured(&self, pool: &str, name: &str) -> bool {
        let configuration = self.configuration();
        let pool = configuration.settings().pools.get(pool);
        pool.is_some_and(|pool| pool.endpoints.iter().any(|endpoint| endpoint.name == name))
    }

    /// What is to be added, as it is used and as it is stored.
    fn parse_endpoint(
        &self,
        pool: &str,
        new: NewEndpoint,
    ) -> Result<(EndpointSettings, AddedEndpoint), ChangeError> {
        let live = self.pool(pool)?;
        let mut invalid = Vec::new();
        let name = match settings::endpoint_name(&new.name) {
            Ok(name) => name,
            Err(expected) => {
                invalid.push(InvalidValue {
                    field: "name".to_owned(),
                    value: Some(new.name.chars().take(100).collect()),
                    expected: expected.to_owned(),
                });
                String::new()
            }
        };
        let known = live.view();
        if known.iter().any(|endpoint| endpoint.name == name) {
            invalid.push(InvalidValue {
                field: "name".to_owned(),
                value: Some(name.clone()),
                expected: "a name that no other endpoint of the pool has".to_owned(),
            });
        }
        if known.len() >= policy::pool::Pool::MAX_ENDPOINTS {
            invalid.push(InvalidValue {
                field: "name".to_owned(),
                value: Some(name.clone()),
                expected: format!("a pool with fewer than {} endpoints", known.len()),
            });
        }
        let url = read_url(&new.url).map_err(|error| invalid.push(error)).ok();
        let settings = Arc::clone(self.configuration().settings());
        let mut headers: Vec<(String, Reference, settings::Secret)> = Vec::new();
        for (written, value) in &new.headers {
            match read_header(written, value, &settings) {
                Ok((name, ..)) if headers.iter().any(|(known, ..)| *known == name) => {
                    invalid.push(invalid_header(written, "each header once"));
                }
                Ok(header) => headers.push(header),
                Err(error) => invalid.push(error),
            }
        }
        let (Some(url), true) = (url, invalid.is_empty()) else {
            return Err(ChangeError::Invalid(invalid));
        };
        self.check_address(&url)?;
        let added = AddedEndpoint {
            pool: pool.to_owned(),
            name: name.clone(),
            url: url.to_string(),
            headers: headers
                .iter()
                .map(|(name, reference, _)| (name.clone(), reference.clone()))
                .collect(),
        };
        let headers = headers.into_iter();
        let endpoint = EndpointSettings {
            name,
            url,
            headers: headers.map(|(name, _, secret)| (name, secret)).collect(),
            transport: Transport::default(),
        };
        Ok((endpoint, added))
    }

    /// An address that is written out is judged now; a name when it is dialled.
    pub(crate) fn check_address(&self, url: &Url) -> Result<(), ChangeError> {
        let address: Option<IpAddr> = match url.host() {
            Some(url::Host::Ipv4(address)) => Some(address.into()),
            Some(url::Host::Ipv6(address)) => Some(address.into()),
            Some(url::Host::Domain(name)) if is_localhost(name) => Some(Ipv4Addr::LOCALHOST.into()),
            Some(url::Host::Domain(_)) | None => None,
        };
        let configuration = self.configuration();
        let allowed = Addresses::new(configuration.settings().network.allow.clone());
        match address {
            Some(address) if !allowed.permit(address) => {
                let host = url.host_str().unwrap_or_default();
                Err(ChangeError::AddressNotAllowed(host.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

fn read_url(text: &str) -> Result<Url, InvalidValue> {
    let expected = match settings::http_url(text) {
        _ if text.chars().count() > MAX_URL => "a URL of up to 2048 characters",
        Ok(url) if url.query().is_some() => "a URL without `?`",
        Ok(url) => return Ok(url),
        Err(expected) => expected,
    };
    Err(InvalidValue {
        field: "url".to_owned(),
        value: Some(settings::shown_url(text).chars().take(200).collect()),
        expected: expected.to_owned(),
    })
}

/// What is stored has a bound, and no server takes much longer paths.
const MAX_URL: usize = 2048;

fn read_header(
    written: &str,
    value: &str,
    settings: &Settings,
) -> Result<(String, Reference, settings::Secret), InvalidValue> {
    let name =
        settings::endpoint_header(written).map_err(|expected| invalid_header(written, expected))?;
    let reference: Reference = value
        .parse()
        .map_err(|error: store::InvalidReference| invalid_header(written, &error.to_string()))?;
    if !settings.allows_reference(reference.as_str()) {
        // Not read: the admin token must not be a way to find out which files exist.
        return Err(invalid_header(written, NOT_ALLOWED));
    }
    let secret = settings::follow(reference.as_str(), &PlainFiles);
    match secret {
        Ok(Some(secret)) => Ok((name, reference, secret)),
        Ok(None) => Err(invalid_header(written, "`env:NAME` or `file:PATH`")),
        Err(why) => Err(invalid_header(written, &why)),
    }
}

const NOT_ALLOWED: &str = "expected a secret that the configuration file uses, or one that is \
                           listed in its `server.secrets`";

/// Without its value, which may be a secret.
fn invalid_header(name: &str, expected: &str) -> InvalidValue {
    let name: String = name.chars().take(100).collect();
    InvalidValue {
        field: format!("headers.{name}"),
        value: None,
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use store::Store;
    use tidegate::event::Event;
    use tidegate::{Clock, Timestamp};

    use super::*;
    use crate::core::Core;
    use crate::log::Log;
    use crate::settings::{Process, Sources};

    #[tokio::test]
    async fn publishes_events_without_the_lock_of_the_overlay() {
        let text = "[pool.p]\nendpoints = [{ name = \"a\", url = \"http://127.0.0.1:9\" }]";
        let sources = Sources {
            file: Some(("test.toml".to_owned(), text.into())),
            flags: Vec::new(),
        };
        let settings = Arc::new(Settings::load(&sources, &Process).unwrap());
        let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
        let (state, _) = State::restore(core, settings, Store::memory()).unwrap();
        let events = Arc::new(AtomicUsize::new(0));
        let (count, weak) = (Arc::clone(&events), Arc::downgrade(&state));
        let listener = move |_: Timestamp, _: &Event<'_>| {
            let state = weak.upgrade().unwrap();
            assert!(state.overlay.try_lock().is_ok());
            count.fetch_add(1, Ordering::Relaxed);
        };
        state.core().events().add(Arc::new(listener));
        state.limiter().isolate("p/a").unwrap();
        state.switch_endpoint("p", "a", false).await.unwrap();
        state.switch_endpoint("p", "a", true).await.unwrap();
        // Isolated and released, each by a person; disabled, enabled.
        assert_eq!(events.load(Ordering::Relaxed), 6);
    }
}
