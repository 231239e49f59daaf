//! Which header fields belong to one connection, to a head, or to Tidegate, and so never pass in
//! trailers.

use http::{HeaderMap, HeaderName};

/// About one connection, and not about the message.
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// For us, or what only a proxy may say.
pub(crate) fn is_not_callers(name: &HeaderName) -> bool {
    let name = name.as_str();
    is_ours(name) || name.starts_with("x-forwarded-") || name == "forwarded"
}

fn is_ours(name: &str) -> bool {
    name.starts_with("tidegate-")
}

/// Takes away what is not for the endpoint.
pub(super) fn clean_request_trailers(trailers: HeaderMap) -> HeaderMap {
    clean(trailers, is_not_callers)
}

/// Takes away what is not for the client.
pub(super) fn clean_response_trailers(trailers: HeaderMap) -> HeaderMap {
    clean(trailers, |name| is_ours(name.as_str()))
}

fn clean(mut trailers: HeaderMap, is_dropped: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let dropped: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| is_of_connection(name) || is_only_for_heads(name) || is_dropped(name))
        .cloned()
        .collect();
    for name in dropped {
        trailers.remove(name);
    }
    trailers
}

/// Is it about how a message is read or for whom it is? Such a field must not come after the body (RFC
/// 9110, section 6.5.1).
fn is_only_for_heads(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "authorization"
            | "cache-control"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "content-type"
            | "host"
            | "max-forwards"
            | "set-cookie"
            | "trailer"
    )
}
