//! Which gates are forgotten, which never are, and what is left of them.

use crate::support::{Caller, KEY, limiter, ok, secs};
use tidegate::Ask;

const OTHER: &str = "account:42";

#[test]
fn a_refusal_that_is_not_collected_is_dropped_with_its_gate_gone() {
    let (clock, limiter) = limiter(&[("max_gates", "1"), ("max_in_flight", "1")]);
    let permit = limiter.try_acquire(KEY).unwrap();
    let mut refused = Caller::new(limiter.acquire(Ask::new(KEY).within(secs(1))));
    assert!(refused.poll().is_pending());
    clock.advance(secs(1));
    assert!(refused.is_woken());
    permit.settle(&ok());
    limiter.try_acquire(OTHER).unwrap().settle(&ok());
    assert!(limiter.gate(KEY).is_none(), "it made room");
    drop(refused);
    assert!(limiter.try_acquire(OTHER).is_err(), "nothing is poisoned");
}
