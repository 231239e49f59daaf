//! Requests by route.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::counter::Counter;
use super::family;
use super::outcome::RequestOutcome;
use super::text::Exposition;
use super::{Metrics, OTHER};

/// Where the requests of one route are counted.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    requests: [Counter; RequestOutcome::COUNT],
}

impl RouteMetrics {
    /// Counts a request that has ended.
    #[inline]
    pub fn request(&self, outcome: RequestOutcome) {
        self.requests[outcome as usize].increment();
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
        // The one place for all that find no room comes on top of the bound.
        let name = match routes.len() < Metrics::MOST_ROUTES {
            true => name,
            false => OTHER,
        };
        Arc::clone(routes.entry(name.to_owned()).or_default())
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let mut requests = out.family(&family::REQUESTS);
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, route) in &*routes {
            for (&outcome, counter) in RequestOutcome::ALL.iter().zip(&route.requests) {
                let count = counter.value();
                // What never happened is left out, but for success, so that a route can be seen.
                if count > 0 || outcome == RequestOutcome::Success {
                    requests.number(&[name, outcome.as_str()], count);
                }
            }
        }
    }
}
