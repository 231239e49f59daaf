//! Does everyone get something?
//!
//! Nothing shares a limit out among clients that know nothing of each other. What is promised is
//! that `adaptive` leaves nobody with next to nothing where refusals alone tell of the limit: at a
//! token bucket with room for one request of each client.
//!
//! **Not promised**, because it is not so: where the server names waits of whole seconds, at slots,
//! and where there is room for one or two at a time, single clients were seen to get next to nothing
//! in a run while others fill the limit. Who is refused waits, and who was not takes its place; with
//! holds that end at the same instant, clients keep step, and the same one is always first. A fixed
//! rate yields to nobody, and `aimd` opens its breaker where it is refused.

use policy::rate::Strategy;

use super::counts::Counts;
use super::{Found, Promise};
use crate::client::Driver;
use crate::load::Backlog;
use crate::measure::Figures;
use crate::scenario::Scenario;
use crate::upstream::Kind;

pub(super) fn judge(scenario: &Scenario, figures: &Figures, counts: &Counts, found: &mut Found) {
    if figures.bans > 0 || !is_judged(scenario) {
        return;
    }
    let accepted = counts.accepted_by_client();
    let mean = accepted.iter().sum::<u64>() as f64 / accepted.len() as f64;
    let least = accepted.iter().copied().min().unwrap_or_default() as f64;
    found.expect(
        mean < ENOUGH || least >= LEAST_SHARE * mean,
        Promise::NobodyStarves,
        || format!("{least} accepted of one client, {mean:.1} on average"),
    );
}

/// Fewer than this say nothing.
const ENOUGH: f64 = 100.0;
/// Of what each would have if all had the same. Runs are short, and some start late.
const LEAST_SHARE: f64 = 0.01;

fn is_judged(scenario: &Scenario) -> bool {
    let [clients] = &*scenario.clients else {
        return false;
    };
    let upstream = &scenario.upstream;
    let Kind::Bucket { burst, .. } = upstream.kind else {
        return false;
    };
    let says_nothing = !upstream.retry_after && !upstream.headers;
    let is_steady = upstream.steps.is_empty() && upstream.outages.is_empty();
    let is_endless = clients.backlog == Backlog::Endless;
    let learns = match &clients.driver {
        Driver::Gate(settings) => settings.strategy() == Strategy::Adaptive,
        _ => false,
    };
    let has_room = burst >= f64::from(clients.count.max(2));
    learns && is_endless && says_nothing && is_steady && has_room
}
