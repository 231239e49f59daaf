//! The shop that takes the demo's orders. What it answers to an order is in the order's query:
//! `failures=2` is 502 twice and then 201, and `invalid` is 422.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::servers::{Respond, text};

/// Counts how often each order arrived.
#[derive(Debug, Default)]
pub(super) struct Shop {
    arrivals: Mutex<BTreeMap<String, u32>>,
}

/// Orders whose arrivals are counted; the first ones are forgotten.
const MAX_ORDERS: usize = 100;

impl Respond for Shop {
    fn respond(&self, request: &Request<Bytes>) -> (Response<Bytes>, Duration) {
        let query = request.uri().query().unwrap_or_default();
        let (status, body) = if query == "invalid" {
            let body = r#"{"error":"the address has no street"}"#;
            (StatusCode::UNPROCESSABLE_ENTITY, body)
        } else {
            let failures = query.strip_prefix("failures=");
            let failures = failures.and_then(|count| count.parse().ok()).unwrap_or(0);
            match self.count(request.uri().path()) > failures {
                true => (StatusCode::CREATED, r#"{"status":"ordered"}"#),
                false => (
                    StatusCode::BAD_GATEWAY,
                    r#"{"error":"no answer from the till"}"#,
                ),
            }
        };
        (text(status, "application/json", body), LATENCY)
    }
}

const LATENCY: Duration = Duration::from_millis(120);

impl Shop {
    /// Counts an arrival, and returns how many there were.
    fn count(&self, path: &str) -> u32 {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if arrivals.len() >= MAX_ORDERS {
            arrivals.pop_first();
        }
        let count = arrivals.entry(path.to_owned()).or_default();
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails_as_often_as_the_order_says() {
        let shop = Shop::default();
        let post = |path: &str| {
            let request = Request::post(path).body(Bytes::new()).unwrap();
            shop.respond(&request).0.status().as_u16()
        };
        let statuses: Vec<u16> = (0..4).map(|_| post("/orders/1?failures=2")).collect();
        assert_eq!(statuses, [502, 502, 201, 201]);
        assert_eq!(post("/orders/2"), 201);
        assert_eq!(post("/orders/3?invalid"), 422);
    }

    #[test]
    fn counts_a_bounded_number_of_orders() {
        let shop = Shop::default();
        for order in 0..1000 {
            shop.count(&format!("/orders/{order}"));
        }
        assert_eq!(shop.arrivals.lock().unwrap().len(), MAX_ORDERS);
    }
}
