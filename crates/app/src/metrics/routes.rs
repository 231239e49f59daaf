//! Requests by route.

use std::array;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;

use super::family::{self, Sample};
use super::outcome::RequestOutcome;
use super::{Metrics, OTHER};

/// Where the requests of one route are counted.
#[derive(Debug)]
pub struct RouteMetrics {
    requests: [Counter; RequestOutcome::COUNT],
}

impl RouteMetrics {
    /// Counts a request that has ended.
    #[inline]
    pub fn request(&self, outcome: RequestOutcome) {
        self.requests[outcome as usize].inc();
    }
}

impl Default for RouteMetrics {
    fn default() -> Self {
        Self {
            requests: array::from_fn(|_| Counter::default()),
        }
    }
}

/// All routes.
#[derive(Debug, Default)]
pub(super) struct Routes(Mutex<BTreeMap<String, Arc<RouteMetrics>>>);

impl Routes {
    pub(super) fn named(&self, name: &str) -> Arc<RouteMetrics> {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = routes.get(name) {
            return Arc::clone(route);
        }
        // `_other` comes on top of the bound.
        let name = match routes.len() < Metrics::MAX_ROUTES {
            true => name,
            false => OTHER,
        };
        Arc::clone(routes.entry(name.to_owned()).or_default())
    }
}

impl Collector for Routes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = routes.iter().flat_map(|(name, route)| {
            let counts = RequestOutcome::ALL.iter().zip(&route.requests);
            counts.filter_map(|(&outcome, counter)| {
                let count = counter.get();
                // What never happened is left out, except success, so that every route is shown.
                let is_shown = count > 0 || outcome == RequestOutcome::Success;
                is_shown.then(|| ([&**name, outcome.as_str()], Sample::Number(count)))
            })
        });
        family::REQUESTS.encode(&mut encoder, samples)
    }
}
