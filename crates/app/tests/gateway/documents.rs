//! The reference of the gateway says what the gateway does.

use std::collections::BTreeSet;
use std::time::Duration;

use app::gateway::GatewayError;
use app::metrics::RequestOutcome;

use crate::support::Fixture;

const PAGE: &str = include_str!("../../../../docs/reference/gateway.md");

/// Every answer of our own, as it is when waiting helps.
fn all() -> Vec<GatewayError> {
    let wait = Some(Duration::from_secs(7));
    let all = vec![
        GatewayError::WaitTooLong { wait },
        GatewayError::QueueFull { wait: None },
        GatewayError::BreakerOpen { wait },
        GatewayError::NoEndpoint { wait },
        GatewayError::InFlight,
        GatewayError::NoDescriptors,
        GatewayError::TooManyGates,
        GatewayError::Draining,
        GatewayError::Deadline,
        GatewayError::Unreachable(String::new()),
        GatewayError::NoToken,
        GatewayError::NoProxyToken,
        GatewayError::ClientLimit {
            wait: Duration::from_secs(7),
        },
        GatewayError::HostNotAllowed,
        GatewayError::AddressNotAllowed,
        GatewayError::CrossSite,
        GatewayError::WrongHost,
        GatewayError::BodyTooLarge,
        GatewayError::HeadersTooLarge,
        GatewayError::NoRoute(String::new()),
        GatewayError::BodyIncomplete,
        GatewayError::LoopDetected,
        GatewayError::BadWait,
        GatewayError::BadCost,
        GatewayError::StoreUnavailable,
        GatewayError::TooManyOperations,
        GatewayError::KeyReused,
        GatewayError::BadRequest,
        GatewayError::NotTls,
    ];
    // A new one belongs into the list above and into the page.
    for error in &all {
        match error {
            GatewayError::WaitTooLong { .. }
            | GatewayError::QueueFull { .. }
            | GatewayError::BreakerOpen { .. }
            | GatewayError::NoEndpoint { .. }
            | GatewayError::InFlight
            | GatewayError::NoDescriptors
            | GatewayError::TooManyGates
            | GatewayError::TooManyOperations
            | GatewayError::Draining
            | GatewayError::Deadline
            | GatewayError::Unreachable(_)
            | GatewayError::NoToken
            | GatewayError::NoProxyToken
            | GatewayError::ClientLimit { .. }
            | GatewayError::HostNotAllowed
            | GatewayError::AddressNotAllowed
            | GatewayError::CrossSite
            | GatewayError::WrongHost
            | GatewayError::BodyTooLarge
            | GatewayError::HeadersTooLarge
            | GatewayError::NoRoute(_)
            | GatewayError::BodyIncomplete
            | GatewayError::LoopDetected
            | GatewayError::BadWait
            | GatewayError::BadCost
            | GatewayError::StoreUnavailable
            | GatewayError::KeyReused
            | GatewayError::BadRequest
            | GatewayError::NotTls => {}
        }
    }
    all
}

/// The rows of the table below a heading, in cells.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split("\n## ").find(|part| part.starts_with(heading));
    let lines = section
        .unwrap()
        .lines()
        .filter(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    lines.skip(2).map(cells).collect()
}

#[test]
fn reference_lists_every_reason_with_its_status() {
    let gateway = Fixture::new("");
    let id = gateway.gateway.trails().new_id(0);
    let documented: BTreeSet<(String, String, bool)> = rows("The gateway's own responses")
        .iter()
        .map(|row| {
            let reason = row[1].trim_matches('`').to_owned();
            (row[0].to_owned(), reason, row[2] != "–")
        })
        .collect();
    let made: BTreeSet<(String, String, bool)> = all()
        .iter()
        .map(|error| {
            let has_wait = error.response(id).headers().contains_key("retry-after");
            let status = error.status().as_u16().to_string();
            (status, error.reason().to_owned(), has_wait)
        })
        .collect();
    assert_eq!(documented, made);
}

#[test]
fn reference_lists_every_outcome() {
    let word = |cell: &str| cell.trim_matches('`').to_owned();
    let own = rows("The gateway's own responses")
        .into_iter()
        .map(|row| word(row[1]));
    let others = rows("Responses of upstreams")
        .into_iter()
        .map(|row| word(row[0]));
    let documented: BTreeSet<String> = own.chain(others).collect();
    let known: BTreeSet<String> = RequestOutcome::ALL
        .iter()
        .map(|outcome| outcome.as_str().to_owned())
        .collect();
    assert_eq!(documented, known);
}
