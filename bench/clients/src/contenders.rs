//! The clients, each as its documentation shows it.
//!
//! Limits are unknown, so clients that need a number get a guess. governor gets two: one that no server
//! minds, which takes longer, and one that is about the average of what the servers accept.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use reqwest::{Client, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tidegate::Limiter;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
use tower_resilience::ratelimiter::RateLimiterLayer;
use tower_resilience::retry::RetryLayer;

/// Fetches URLs.
pub(crate) trait Contender: Send + Sync {
    /// The status of the last response; `None` if there was none.
    fn fetch<'a>(&'a self, host: &'a str, url: String) -> Fetch<'a>;
}

pub(crate) type Fetch<'a> = Pin<Box<dyn Future<Output = Option<u16>> + Send + 'a>>;

/// A name, and what makes the client for these hosts.
pub(crate) type Entry = (&'static str, fn(&[String]) -> Box<dyn Contender>);

pub(crate) const CONTENDERS: [Entry; 5] = [
    ("tidegate", |_| Box::new(Tidegate::new())),
    ("governor (10/s) + reqwest-retry", |_| {
        Box::new(Governor::new(CAUTIOUS))
    }),
    ("governor (40/s) + reqwest-retry", |_| {
        Box::new(Governor::new(AVERAGE))
    }),
    ("reqwest-retry", |_| Box::new(retries())),
    ("tower-resilience (40/s)", |hosts| {
        Box::new(TowerResilience::new(hosts))
    }),
];

/// Requests per second and host, for clients that need a number. The servers accept 20 to 130.
const AVERAGE: u32 = 40;
const CAUTIOUS: u32 = 10;

/// For each request, besides the first attempt; the value of the examples in reqwest-retry.
const RETRIES: u32 = 3;

fn client() -> Client {
    let client = Client::builder().redirect(redirect::Policy::none());
    let client = client.retry(retry::never()).build();
    client.expect("a client without TLS")
}

struct Tidegate {
    limiter: Limiter,
    client: Client,
}

impl Tidegate {
    fn new() -> Self {
        Self {
            limiter: Limiter::new(),
            client: client(),
        }
    }
}

impl Contender for Tidegate {
    fn fetch<'a>(&'a self, _host: &'a str, url: String) -> Fetch<'a> {
        Box::pin(async move {
            let sent = self.limiter.send(&self.client, self.client.get(url)).await;
            let response = sent.ok()?;
            let status = response.status().as_u16();
            response.bytes().await.ok()?;
            Some(status)
        })
    }
}

fn retries() -> ClientWithMiddleware {
    let policy = ExponentialBackoff::builder().build_with_max_retries(RETRIES);
    let retries = RetryTransientMiddleware::new_with_policy(policy);
    ClientBuilder::new(client()).with(retries).build()
}

impl Contender for ClientWithMiddleware {
    fn fetch<'a>(&'a self, _host: &'a str, url: String) -> Fetch<'a> {
        Box::pin(async move {
            let response = self.get(url).send().await.ok()?;
            let status = response.status().as_u16();
            response.bytes().await.ok()?;
            Some(status)
        })
    }
}

struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
    client: ClientWithMiddleware,
}

impl Governor {
    fn new(guess: u32) -> Self {
        let guess = NonZeroU32::new(guess).expect("more than zero");
        Self {
            limiter: RateLimiter::keyed(Quota::per_second(guess)),
            client: retries(),
        }
    }
}

impl Contender for Governor {
    fn fetch<'a>(&'a self, host: &'a str, url: String) -> Fetch<'a> {
        Box::pin(async move {
            self.limiter.until_key_ready(&host.to_owned()).await;
            self.client.fetch(host, url).await
        })
    }
}

/// A limiter and retries for each host.
struct TowerResilience(HashMap<String, Stack>);

type Stack = BoxCloneSyncService<String, u16, BoxError>;

impl TowerResilience {
    fn new(hosts: &[String]) -> Self {
        let client = client();
        let stacks = hosts.iter().map(|host| (host.clone(), stack(&client)));
        Self(stacks.collect())
    }
}

fn stack(client: &Client) -> Stack {
    let limits = RateLimiterLayer::builder()
        .limit_for_period(AVERAGE as usize)
        .refresh_period(Duration::from_secs(1))
        .timeout_duration(Duration::from_secs(60))
        .build()
        .expect("valid settings");
    let retries = RetryLayer::<String, u16, BoxError>::builder()
        .max_attempts(RETRIES as usize + 1)
        .exponential_backoff(Duration::from_secs(1))
        .retry_on_response(|status: &u16| *status == 429 || *status >= 500)
        .build();
    let client = Arc::new(client.clone());
    let send = service_fn(move |url: String| {
        let client = Arc::clone(&client);
        async move {
            let response = client.get(url).send().await?;
            let status = response.status().as_u16();
            response.bytes().await?;
            Ok::<u16, reqwest::Error>(status)
        }
    });
    let limited = ServiceBuilder::new().layer(limits).service(send);
    let boxed = limited.map_err(|error| BoxError::from(error.to_string()));
    BoxCloneSyncService::new(ServiceBuilder::new().layer(retries).service(boxed))
}

impl Contender for TowerResilience {
    fn fetch<'a>(&'a self, host: &'a str, url: String) -> Fetch<'a> {
        Box::pin(async move {
            let stack = self.0.get(host)?.clone();
            stack.oneshot(url).await.ok()
        })
    }
}
