//! What people change at run time: endpoints, and how they are protected.
//!
//! Every change is made durable first and takes effect then, so that a change that was answered is
//! kept over restarts and one that could not be stored has changed nothing. Changes are made one
//! after the other; a reload of the configuration in between loses none of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::key::endpoint_key;
use policy::ladder::Disabled;
use policy::setting::SettingErrors;
use policy::suggest::suggestion;
use store::{
    AddedEndpoint, Change, KeptEndpoint, Protection, Reference, RotatedToken, StoreError, Stored,
};
use tidegate::LadderRecord;
use url::Url;

use super::keep::fit_to_store;
use super::overlay::{Overlay, laid_over};
use super::served::rules;
use super::{Engine, Remote, Route};
use crate::settings::{self, Endpoint, PlainFiles};
use crate::upstream::{Addresses, Trust};

/// What was changed, and whose turn it is to change something.
#[derive(Debug, Default)]
pub(super) struct Control {
    turn: tokio::sync::Mutex<()>,
    overlay: Mutex<Overlay>,
}

impl Control {
    /// What was changed. Whoever serves anew holds on to it meanwhile.
    pub(super) fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
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
    /// Some values cannot be.
    #[error("{} wrong", if .0.len() == 1 { "a value is" } else { "some values are" })]
    Wrong(Vec<Wrong>),
    /// The address must not be dialled.
    #[error("`{0}` is not a public address; allow it in `[network]` if that is meant")]
    AddressNotAllowed(String),
    /// It cannot be made durable, so it was not done.
    #[error("the change cannot be stored, so nothing was changed: {0}")]
    Store(#[from] StoreError),
}

fn did_you_mean(close: Option<&str>) -> String {
    close.map_or_else(String::new, |close| format!("; did you mean `{close}`?"))
}

/// A value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its name.
    pub field: String,
    /// The value as far as it may be shown; `None` if it is missing, or may be a secret.
    pub value: Option<String>,
    /// What could be.
    pub expected: String,
}

impl From<SettingErrors> for ControlError {
    fn from(errors: SettingErrors) -> Self {
        let wrong = errors.into_iter().map(|error| Wrong {
            field: error.setting,
            value: Some(error.value),
            expected: error.expected,
        });
        Self::Wrong(wrong.collect())
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

impl Engine {
    /// Takes up what was stored before a restart: what people changed, and what was known of
    /// endpoints and gates. Gives back what of it cannot be used, in words. Comes before the first
    /// request, for a gate that is there already is not restored.
    pub fn restore(&self, stored: &Stored) -> Vec<String> {
        let settings = Arc::clone(self.served().settings());
        let now = self.limiter().clock().wall();
        let (mut overlay, warnings) = Overlay::of(stored, &settings, &PlainFiles, now);
        let mut kept = self.control.overlay();
        self.serve(settings, &overlay);
        overlay.forget_records();
        *kept = overlay;
        drop(kept);
        self.restore_tokens(stored);
        self.take_up(stored);
        warnings
    }

    /// Continues with the refresh tokens that were stored, and forgets those of other settings.
    fn restore_tokens(&self, stored: &Stored) {
        let served = self.served();
        let is_unused = |rotated: &&RotatedToken| {
            let token = served.tokens().get(&rotated.credential);
            !token.is_some_and(|token| token.restore(rotated))
        };
        let unused = stored.rotated.iter().filter(is_unused);
        let forget = unused.map(|rotated| Change::ForgetRotated {
            credential: rotated.credential.clone(),
        });
        self.store().save_all(forget);
    }

    /// The route of a pool.
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn route(&self, pool: &str) -> Result<Arc<Route>, ControlError> {
        let served = self.served();
        if let Some(route) = served.route(pool) {
            return Ok(Arc::clone(route));
        }
        let names: Vec<&str> = served.routes().map(|(name, _)| name).collect();
        Err(ControlError::NoPool {
            name: pool.to_owned(),
            close: suggestion(pool, &names).map(str::to_owned),
        })
    }

    /// Runs a change to its end in a task of its own: between the store and the live state a change
    /// must not be dropped half-way because its caller disconnects. Changes run one at a time.
    async fn complete<F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<(), ControlError>
    where
        F: Future<Output = Result<(), ControlError>> + Send,
    {
        let engine = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _turn = engine.control.turn.lock().await;
            change(Arc::clone(&engine)).await
        });
        match task.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(ControlError::Store(StoreError::Stopped)),
            },
        }
    }

    /// Waits until the changes that have begun are completed.
    pub async fn finish_changes(&self) {
        drop(self.control.turn.lock().await);
    }

    /// Enables an endpoint, which clears all its error state, or disables it until it is enabled.
    /// Enabling one that was disabled because its quota was used up also releases its gate, which
    /// was isolated for the same reason. Completes even if the returned future is dropped.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the store fails.
    pub async fn switch_endpoint(
        self: &Arc<Self>,
        pool: &str,
        name: &str,
        is_enabled: bool,
    ) -> Result<(), ControlError> {
        let (pool, name) = (pool.to_owned(), name.to_owned());
        self.complete(move |engine| async move { engine.switch(&pool, &name, is_enabled).await })
            .await
    }

    async fn switch(&self, pool: &str, name: &str, is_enabled: bool) -> Result<(), ControlError> {
        let record = self.record_of(pool, name)?;
        let is_quota_reset = is_enabled && record.disabled == Some(Disabled::QuotaExhausted);
        let key = endpoint_key(pool, name);
        let record = if is_enabled {
            LadderRecord::default()
        } else {
            LadderRecord {
                disabled: Some(Disabled::Person),
                ..record
            }
        };
        let kept = KeptEndpoint {
            pool: pool.to_owned(),
            name: name.to_owned(),
            record: fit_to_store(record),
            at: self.limiter().clock().wall(),
        };
        let _in_hand = self.keeper.take_in_hand(pool, name);
        let mut changes = vec![Change::Endpoint(kept)];
        if is_quota_reset {
            changes.extend(self.released_gate(&key));
        }
        self.store().save_all(changes).await?;
        // A reload waits, so that it is not done to a pool that is being replaced.
        let _overlay = self.control.overlay();
        let live = &self.route(pool)?.pool;
        if is_quota_reset {
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
    /// If something about it cannot be, its address must not be dialled, or the store fails.
    pub async fn add_endpoint(
        self: &Arc<Self>,
        pool: &str,
        new: NewEndpoint,
    ) -> Result<(), ControlError> {
        let pool = pool.to_owned();
        self.complete(move |engine| async move { engine.add(&pool, new).await })
            .await
    }

    async fn add(&self, pool: &str, new: NewEndpoint) -> Result<(), ControlError> {
        let (endpoint, added) = self.read(pool, new)?;
        self.store().save(Change::EndpointAdded(added)).await?;
        let mut overlay = self.control.overlay();
        overlay.add(pool, endpoint.clone());
        self.attach(pool, &endpoint)
    }

    /// Removes an endpoint; what is under way through it ends as if it were still there. The last
    /// one may go too: then requests are answered `no_endpoint` until one is added.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the store fails.
    pub async fn remove_endpoint(
        self: &Arc<Self>,
        pool: &str,
        name: &str,
    ) -> Result<(), ControlError> {
        let (pool, name) = (pool.to_owned(), name.to_owned());
        self.complete(move |engine| async move { engine.remove(pool, name).await })
            .await
    }

    async fn remove(&self, pool: String, name: String) -> Result<(), ControlError> {
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
        let _in_hand = self.keeper.take_in_hand(&pool, &name);
        self.store().save_all([change, forget]).await?;
        let mut overlay = self.control.overlay();
        if is_configured {
            overlay.remove(&pool, &name);
        } else {
            overlay.take_back(&pool, &name);
        }
        self.route(&pool)?.pool.remove(&name);
        Ok(())
    }

    /// Changes some settings of a pool's protection, by name; the others stay.
    ///
    /// # Errors
    ///
    /// With everything that cannot be, or if the store fails.
    pub async fn change_protection(
        self: &Arc<Self>,
        pool: &str,
        changes: BTreeMap<String, String>,
    ) -> Result<(), ControlError> {
        let pool = pool.to_owned();
        self.complete(move |engine| async move {
            let live = engine.route(&pool)?;
            laid_over(&live.pool.protection(), &changes)?;
            let mut values = engine.control.overlay().protection_changes(&pool);
            values.extend(changes);
            engine.set_protection(&pool, values).await
        })
        .await
    }

    /// Takes back every change of a pool's protection: it is as configured.
    ///
    /// # Errors
    ///
    /// If there is no such pool, or the store fails.
    pub async fn reset_protection(self: &Arc<Self>, pool: &str) -> Result<(), ControlError> {
        let pool = pool.to_owned();
        self.complete(move |engine| async move {
            engine.route(&pool)?;
            engine.set_protection(&pool, BTreeMap::new()).await
        })
        .await
    }

    async fn set_protection(
        &self,
        pool: &str,
        values: BTreeMap<String, String>,
    ) -> Result<(), ControlError> {
        let protection = Protection {
            values: values.clone(),
        };
        let change = Change::Protection {
            pool: pool.to_owned(),
            protection: (!values.is_empty()).then_some(protection),
        };
        self.store().save(change).await?;
        let mut overlay = self.control.overlay();
        overlay.set_protection(pool, values);
        let served = self.served();
        if let (Some(configured), Some(route)) =
            (served.settings().pools.get(pool), served.route(pool))
        {
            route.pool.set_protection(overlay.protection(configured));
        }
        Ok(())
    }

    /// What is known of an endpoint.
    fn record_of(&self, pool: &str, name: &str) -> Result<LadderRecord, ControlError> {
        let records = self.route(pool)?.pool.records();
        let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
        let close = suggestion(name, &names).map(str::to_owned);
        let mut records = records.into_iter();
        let found = records.find(|(known, _)| known == name);
        let missing = || ControlError::NoEndpoint {
            pool: pool.to_owned(),
            name: name.to_owned(),
            close,
        };
        found.map(|(_, record)| record).ok_or_else(missing)
    }

    fn is_configured(&self, pool: &str, name: &str) -> bool {
        let served = self.served();
        let pool = served.settings().pools.get(pool);
        pool.is_some_and(|pool| pool.endpoints.iter().any(|endpoint| endpoint.name == name))
    }

    /// What is to be added, as it is used and as it is stored.
    fn read(
        &self,
        pool: &str,
        new: NewEndpoint,
    ) -> Result<(Endpoint, AddedEndpoint), ControlError> {
        let live = self.route(pool)?;
        let mut wrong = Vec::new();
        let name = match settings::endpoint_name(&new.name) {
            Ok(name) => name,
            Err(expected) => {
                wrong.push(Wrong {
                    field: "name".to_owned(),
                    value: Some(new.name.chars().take(100).collect()),
                    expected: expected.to_owned(),
                });
                String::new()
            }
        };
        let known = live.pool.view();
        if known.iter().any(|endpoint| endpoint.name == name) {
            wrong.push(Wrong {
                field: "name".to_owned(),
                value: Some(name.clone()),
                expected: "a name that no other endpoint of the pool has".to_owned(),
            });
        }
        if known.len() >= policy::pool::Pool::MOST {
            wrong.push(Wrong {
                field: "name".to_owned(),
                value: Some(name.clone()),
                expected: format!("a pool with fewer than {} endpoints", known.len()),
            });
        }
        let url = read_url(&new.url).map_err(|error| wrong.push(error)).ok();
        let mut headers: Vec<(String, Reference, settings::Secret)> = Vec::new();
        for (written, value) in &new.headers {
            match read_header(written, value) {
                Ok((name, ..)) if headers.iter().any(|(known, ..)| *known == name) => {
                    wrong.push(about_header(written, "each header once"));
                }
                Ok(header) => headers.push(header),
                Err(error) => wrong.push(error),
            }
        }
        let (Some(url), true) = (url, wrong.is_empty()) else {
            return Err(ControlError::Wrong(wrong));
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
        let endpoint = Endpoint {
            name,
            url,
            headers: headers.map(|(name, _, secret)| (name, secret)).collect(),
        };
        Ok((endpoint, added))
    }

    /// An address that is written out is judged now; a name when it is dialled.
    fn check_address(&self, url: &Url) -> Result<(), ControlError> {
        let address: Option<IpAddr> = match url.host() {
            Some(url::Host::Ipv4(address)) => Some(address.into()),
            Some(url::Host::Ipv6(address)) => Some(address.into()),
            Some(url::Host::Domain(name)) if is_local(name) => Some(Ipv4Addr::LOCALHOST.into()),
            Some(url::Host::Domain(_)) | None => None,
        };
        let served = self.served();
        let allowed = Addresses::new(served.settings().network.allow.clone());
        match address {
            Some(address) if !allowed.permit(address) => {
                let host = url.host_str().unwrap_or_default();
                Err(ControlError::AddressNotAllowed(host.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Puts an endpoint into the pool that is served now.
    fn attach(&self, pool: &str, endpoint: &Endpoint) -> Result<(), ControlError> {
        let route = self.route(pool)?;
        let served = self.served();
        let host = endpoint.url.host_str().unwrap_or_default();
        let settings = served.settings();
        let known = settings.pools.get(pool);
        let rules = known.map_or_else(|| [].into(), |known| rules(known, settings, host));
        let counts = self.metrics.key(&endpoint_key(pool, &endpoint.name));
        let remote = Remote::new(endpoint, rules, Trust::Nobody, counts, self.workers);
        let remote = remote.map_err(|error| {
            ControlError::Wrong(vec![Wrong {
                field: "url".to_owned(),
                value: Some(settings::shown_url(endpoint.url.as_str())),
                expected: error.to_string(),
            }])
        })?;
        route.pool.add(&endpoint.name, host, remote);
        Ok(())
    }
}

/// By definition these are loopback.
fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn read_url(text: &str) -> Result<Url, Wrong> {
    let expected = match settings::http_url(text) {
        _ if text.chars().count() > LONGEST_URL => "a URL of up to 2048 characters",
        Ok(url) if url.query().is_some() => "a URL without `?`",
        Ok(url) => return Ok(url),
        Err(expected) => expected,
    };
    Err(Wrong {
        field: "url".to_owned(),
        value: Some(settings::shown_url(text).chars().take(200).collect()),
        expected: expected.to_owned(),
    })
}

/// What is stored has a bound, and no server takes much longer paths.
const LONGEST_URL: usize = 2048;

fn read_header(written: &str, value: &str) -> Result<(String, Reference, settings::Secret), Wrong> {
    let name =
        settings::endpoint_header(written).map_err(|expected| about_header(written, expected))?;
    let reference: Reference = value
        .parse()
        .map_err(|error: store::NotStorable| about_header(written, &error.to_string()))?;
    let secret = settings::follow(reference.as_str(), &PlainFiles);
    match secret {
        Ok(Some(secret)) => Ok((name, reference, secret)),
        Ok(None) => Err(about_header(written, "`env:NAME` or `file:PATH`")),
        Err(why) => Err(about_header(written, &why)),
    }
}

/// Its value is not told, for it may be a secret.
fn about_header(name: &str, expected: &str) -> Wrong {
    let name: String = name.chars().take(100).collect();
    Wrong {
        field: format!("headers.{name}"),
        value: None,
        expected: expected.to_owned(),
    }
}
