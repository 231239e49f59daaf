//! Controllers that Tidegate's strategies are compared with.
//!
//! `cubic` and `autothrottle` are reimplemented from public descriptions of products. `epochs` and
//! `model` are earlier designs of the default strategy. They are for comparison only: each follows
//! its description, even where that is unwise. Naive retries and a fixed rate are compared too;
//! those are strategies of the product.

mod autothrottle;
mod breaker;
mod bucket;
mod cubic;
mod delivered;
#[cfg(test)]
mod driven;
mod epochs;
mod latency;
mod model;
mod pacer;
mod quota;
#[cfg(test)]
mod tests;

use sim::client::{CustomController, Driver};
use sim::scenario::Scenario;

use autothrottle::AutoThrottle;
use cubic::Cubic;
use epochs::{Epochs, Steps};
use model::Model;

/// All baselines.
const BASELINES: [CustomController; 5] = [
    CustomController {
        name: "cubic",
        build: |max_in_flight| Box::new(Cubic::new(max_in_flight)),
    },
    CustomController {
        name: "autothrottle",
        build: |max_in_flight| Box::new(AutoThrottle::new(max_in_flight)),
    },
    CustomController {
        name: "epochs-gentle",
        build: |max_in_flight| Box::new(Epochs::new(Steps::GENTLE, max_in_flight)),
    },
    CustomController {
        name: "epochs-brisk",
        build: |max_in_flight| Box::new(Epochs::new(Steps::BRISK, max_in_flight)),
    },
    CustomController {
        name: "model",
        build: |max_in_flight| Box::new(Model::new(max_in_flight)),
    },
];

/// Makes the baseline `name` drive all clients of a scenario. `None` if the baseline does not
/// exist.
pub(crate) fn drive(mut scenario: Scenario, name: &str) -> Option<Scenario> {
    let baseline = BASELINES.into_iter().find(|known| known.name == name)?;
    for client in &mut scenario.clients {
        client.driver = Driver::Custom(baseline);
    }
    Some(scenario)
}
