//! Keys of gates in paths: `llm/a` may be written `llm%2Fa` or as it is.
//!
//! Paths are cut at every `/`, so a key that has one is joined before routing. The last part is
//! an action if it has the name of one: for an endpoint of that name write `%2F`.

use http::{Request, Uri};

/// Puts the key of a gate into one part of the path.
pub(super) fn join<B>(request: &mut Request<B>) {
    let path = request.uri().path();
    let Some(joined) = joined(path) else {
        return;
    };
    let target = match request.uri().query() {
        Some(query) => format!("{joined}?{query}"),
        None => joined,
    };
    if let Ok(uri) = Uri::try_from(target) {
        *request.uri_mut() = uri;
    }
}

const GATES: &str = "/api/v1/gates/";
const ACTIONS: [&str; 6] = [
    "reset", "isolate", "release", "history", "servers", "scenario",
];

fn joined(path: &str) -> Option<String> {
    let rest = path.strip_prefix(GATES)?;
    let (key, action) = match rest.rsplit_once('/') {
        Some((key, action)) if ACTIONS.contains(&action) => (key, Some(action)),
        _ => (rest, None),
    };
    if !key.contains('/') {
        return None;
    }
    let key = key.replace('/', "%2F");
    Some(match action {
        Some(action) => format!("{GATES}{key}/{action}"),
        None => format!("{GATES}{key}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_becomes_one_part() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(joined(path).as_deref(), expected, "{path}");
        };
        check("/api/v1/gates/llm/a", Some("/api/v1/gates/llm%2Fa"));
        check(
            "/api/v1/gates/llm/a/reset",
            Some("/api/v1/gates/llm%2Fa/reset"),
        );
        check(
            "/api/v1/gates/llm/a/history",
            Some("/api/v1/gates/llm%2Fa/history"),
        );
        check(
            "/api/v1/gates/llm/a/servers",
            Some("/api/v1/gates/llm%2Fa/servers"),
        );
        check("/api/v1/gates/llm%2Fa/reset", None);
        check(
            "/api/v1/gates/llm/a/scenario",
            Some("/api/v1/gates/llm%2Fa/scenario"),
        );
        check("/api/v1/gates/a.example.com:8080", None);
        check("/api/v1/gates/a.example.com/isolate", None);
        check("/api/v1/gates", None);
        check("/api/v1/pools/llm/endpoints/a", None);
    }
}
