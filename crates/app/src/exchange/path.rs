//! From the path of a request to a pool, and to the path at its endpoint.

use http::uri::PathAndQuery;

/// A path, taken apart: the pool's name, and what is for the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    pub(crate) pool: &'a str,
    /// Begins with `/` or `?`, or is empty.
    pub(crate) rest: &'a str,
}

/// Takes `/POOL/rest?query` apart. `None` if it names no pool, or tries to climb out of it: what an
/// endpoint's address allows is all that may be asked of it.
pub(crate) fn split(path_and_query: &str) -> Option<Split<'_>> {
    let path = path_and_query.strip_prefix('/')?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (pool, rest) = path.split_at(end);
    (!pool.is_empty() && !climbs(rest)).then_some(Split { pool, rest })
}

/// Does a path have a segment `..`, written in whatever way?
fn climbs(path_and_query: &str) -> bool {
    // Searched for by single bytes, which is faster than for a string.
    let bytes = path_and_query.as_bytes();
    let has_dots = memchr::memchr_iter(b'.', bytes).any(|at| bytes.get(at + 1) == Some(&b'.'));
    if !has_dots && memchr::memchr(b'%', bytes).is_none() {
        return false;
    }
    let path = path_and_query.split('?').next().unwrap_or_default();
    path.split(['/', '\\']).any(|segment| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        // Some servers take these for slashes.
        segment
            .replace("%2f", "/")
            .replace("%5c", "/")
            .replace("%3b", ";")
            .split('/')
            // And ignore what is behind a semicolon.
            .any(|part| part.split(';').next() == Some(".."))
    })
}

/// The path at an endpoint whose own path is `base`; `None` if that is longer than 65,534 bytes, the
/// most that a URI may have here.
pub(crate) fn join(base: &str, rest: &str) -> Option<PathAndQuery> {
    let slash = if base.is_empty() && !rest.starts_with('/') {
        "/"
    } else {
        ""
    };
    let mut joined = String::with_capacity(base.len() + slash.len() + rest.len());
    joined.push_str(base);
    joined.push_str(slash);
    joined.push_str(rest);
    PathAndQuery::try_from(joined).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> Option<(&str, &str)> {
        split(path).map(|split| (split.pool, split.rest))
    }

    #[test]
    fn splits_the_pool_from_the_path() {
        assert_eq!(parts("/llm/v1/chat?x=1"), Some(("llm", "/v1/chat?x=1")));
        assert_eq!(parts("/llm"), Some(("llm", "")));
        assert_eq!(parts("/llm/"), Some(("llm", "/")));
        assert_eq!(parts("/llm?x=1"), Some(("llm", "?x=1")));
        assert_eq!(parts("/"), None);
        assert_eq!(parts("//llm"), None);
        assert_eq!(parts("*"), None);
    }

    #[test]
    fn refuses_parent_segments_however_written() {
        for path in [
            "/llm/..",
            "/llm/../admin",
            "/llm/a/%2e%2E/b",
            "/llm/.%2e/b",
            "/llm/a%2f..%2fb",
            "/llm/..%5cb",
            "/llm/a\\..\\b",
            "/llm/..;/b",
            "/llm/..;x=1",
            "/llm/%2e%2e%3bx/b",
        ] {
            assert_eq!(parts(path), None, "{path}");
        }
        for path in [
            "/llm/a..b",
            "/llm/...",
            "/llm/a?x=../b",
            "/llm/%20",
            "/llm/v1..2/c",
            "/llm/a;..",
        ] {
            assert!(parts(path).is_some(), "{path}");
        }
    }

    #[test]
    fn joins_the_rest_to_the_endpoints_path() {
        let joined = |base, rest| join(base, rest).unwrap().to_string();
        assert_eq!(joined("", "/a?b"), "/a?b");
        assert_eq!(joined("/v1", "/a?b"), "/v1/a?b");
        assert_eq!(joined("/v1", ""), "/v1");
        assert_eq!(joined("/v1", "?b"), "/v1?b");
        assert_eq!(joined("", ""), "/");
        assert_eq!(joined("", "?b"), "/?b");
    }
}
