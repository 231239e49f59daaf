//! Errors of upstreams as they may be stored and shown.

use http::StatusCode;
use policy::classify::Because;

/// Describes an error by its status, the code or words by which it was judged, and the phrase that
/// counts for the endpoint's ladder. These are our own spellings; nothing else of the body is in it,
/// because servers repeat what they were sent.
pub(super) fn describe_error(
    status: StatusCode,
    because: Because,
    body: &[u8],
    phrase_in: impl Fn(&str) -> Option<String>,
) -> String {
    let status = status.as_u16();
    match (because, phrase_in(&message(body))) {
        (Because::Code(code), None) => format!("HTTP {status} {code}"),
        (Because::Code(code), Some(phrase)) => format!("HTTP {status} {code}: {phrase}"),
        (_, Some(phrase)) => format!("HTTP {status}: {phrase}"),
        // The ladder looks for its phrases in this text, and counts only those at the beginning of a
        // message.
        (Because::Text(words), None) if phrase_in(words).is_none() => {
            format!("HTTP {status}: {words}")
        }
        _ => format!("HTTP {status}"),
    }
}

/// The beginning of what a server says about an error, in which phrases are looked for.
fn message(body: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let pointers = [
        "/error/message",
        "/message",
        "/error_description",
        "/detail",
        "/error",
        "/title",
    ];
    let message = parsed.as_ref().and_then(|json| {
        let mut texts = pointers
            .iter()
            .filter_map(|pointer| json.pointer(pointer)?.as_str());
        texts.next()
    });
    match message {
        Some(message) => message.chars().take(MAX_MESSAGE).collect(),
        None => {
            let start = String::from_utf8_lossy(&body[..body.len().min(2 * MAX_MESSAGE)]);
            start.chars().take(MAX_MESSAGE).collect()
        }
    }
}

/// Phrases count in the first 200 characters of a message.
const MAX_MESSAGE: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(because: Because, body: &str) -> String {
        let phrase_in = |text: &str| {
            let text = text.to_lowercase();
            text.contains("too many").then(|| "too many".to_owned())
        };
        describe_error(StatusCode::BAD_REQUEST, because, body.as_bytes(), phrase_in)
    }

    #[test]
    fn shows_only_our_own_words() {
        for (because, body, expected) in [
            (Because::Status(400), "key sk-123 of Ann", "HTTP 400"),
            (
                Because::Code("rate_limited"),
                "Ann",
                "HTTP 400 rate_limited",
            ),
            (Because::Text("rate limit"), "Ann", "HTTP 400: rate limit"),
            (
                Because::Code("rate_limited"),
                r#"{"message":"Ann: Too many calls"}"#,
                "HTTP 400 rate_limited: too many",
            ),
        ] {
            assert_eq!(describe(because, body), expected);
        }
    }

    #[test]
    fn counts_a_phrase_only_at_the_beginning_of_a_message() {
        let late = format!("{} too many requests", "x".repeat(MAX_MESSAGE));
        let because = Because::Text("too many requests");
        assert_eq!(describe(because, &late), "HTTP 400");
    }
}
