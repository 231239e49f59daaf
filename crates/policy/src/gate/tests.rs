//! Behaviour of the gate, one rule at a time, in virtual time.

use std::time::Duration;

use super::*;
use crate::hint::Hint;

#[test]
fn a_gate_is_four_cache_lines() {
    assert_eq!(size_of::<Gate>(), 256);
    assert_eq!(std::mem::offset_of!(Gate, breaker), 48);
    assert!(size_of::<Permit>() <= 32);
}
#[test]
fn print() {
    println!("{} {} {} {} {} {}", size_of::<Gate>(), size_of::<Breaker>(), size_of::<Adaptive>(), size_of::<Latency>(), size_of::<crate::window::Window>(), size_of::<Bucket>());
}
