//! How long a caller waits: what it says, or what the settings say.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use policy::duration;

/// What a caller says in `Tidegate-Max-Wait: 5s`, or else in `Prefer: wait=5`; `None` if it says
/// nothing. A preference that cannot be read is none; a header that is for us alone must be right.
pub(super) fn asked(headers: &HeaderMap) -> Result<Option<Duration>, Unreadable> {
    if let Some(value) = headers.get(&MAX_WAIT) {
        let text = value.to_str().map_err(|_| Unreadable)?;
        let wait = duration::parse(text.trim()).map_err(|_| Unreadable)?;
        return Ok(Some(wait.min(LONGEST)));
    }
    let preferences = headers
        .get_all(&PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut waits = preferences
        .flat_map(|text| text.split([',', ';']))
        .filter_map(preferred);
    Ok(waits.next().map(|wait| wait.min(LONGEST)))
}

/// A wait that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

fn preferred(preference: &str) -> Option<Duration> {
    let (name, value) = preference.split_once('=')?;
    let seconds = value.trim().trim_matches('"').parse().ok()?;
    name.trim()
        .eq_ignore_ascii_case("wait")
        .then(|| Duration::from_secs(seconds))
}

const MAX_WAIT: HeaderName = HeaderName::from_static("tidegate-max-wait");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Nobody keeps a connection open for longer.
const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(HeaderName, &'static str)], expected: Result<Option<u64>, Unreadable>) {
        let headers = fields
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let expected = expected.map(|millis| millis.map(Duration::from_millis));
        assert_eq!(asked(&headers.collect()), expected, "{fields:?}");
    }

    #[test]
    fn both_ways_of_saying_it_are_read_and_ours_wins() {
        check(&[], Ok(None));
        check(&[(MAX_WAIT, "5s")], Ok(Some(5000)));
        check(&[(MAX_WAIT, "250ms"), (PREFER, "wait=9")], Ok(Some(250)));
        check(&[(MAX_WAIT, "0s")], Ok(Some(0)));
        check(&[(MAX_WAIT, "5")], Err(Unreadable));
        check(&[(MAX_WAIT, "soon")], Err(Unreadable));
        check(&[(MAX_WAIT, "9999h")], Ok(Some(3_600_000)));
        check(&[(PREFER, "wait=5")], Ok(Some(5000)));
        check(&[(PREFER, "respond-async, Wait=\"7\"; x")], Ok(Some(7000)));
        check(
            &[(PREFER, "return=minimal"), (PREFER, "wait=2")],
            Ok(Some(2000)),
        );
        check(&[(PREFER, "wait=soon")], Ok(None));
        check(&[(PREFER, "wait")], Ok(None));
    }
}
