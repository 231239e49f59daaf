//! Reading a hint never panics, and what it says fits together.

#![no_main]

mod answer;

use libfuzzer_sys::fuzz_target;
use policy::hint::{self, Source};
use policy::time::WallTime;

fuzz_target!(|raw: &[u8]| {
    let response = answer::parse(raw);
    for now in [
        None,
        Some(1_794_722_400_000),
        Some(i64::MIN),
        Some(i64::MAX),
    ] {
        let hint = hint::read(&response, now.map(WallTime::from_unix_millis));
        if hint.wait.is_some() {
            assert!(hint.source.is_some());
        }
        assert_ne!(hint.source, Some(Source::Assumed));
        if hint.source == Some(Source::Body) {
            assert!(hint.wait.is_some() && !(200..400).contains(&response.status));
        }
        let known = hint.remaining.is_some() || hint.reset.is_some() || hint.limit.is_some();
        assert!(known || (hint.scope.is_none() && hint.period.is_none()));
        assert_eq!(known || hint.wait.is_some(), hint.source.is_some());
        assert!(hint.period.is_none_or(|period| !period.is_zero()));
    }
});
