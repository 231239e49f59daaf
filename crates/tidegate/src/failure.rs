//! Classifies client errors: which transport failure occurred, and in which phase.
//!
//! Clients wrap their errors, and details such as "the connect failed" are only available through
//! methods of types that this crate does not depend on. Every error does have a chain of sources.
//! The classifier searches it for an [`io::Error`], whose kind says what happened, and for fixed
//! messages of hyper, reqwest, h2 and tower. A message matches only at the start of an error's
//! text, because later parts may quote anything.
//!
//! **When in doubt, assume that the server may have acted.** A request is resent if none of it was
//! written. A wrong [`Phase::Connecting`] therefore executes a request twice, while a wrong
//! [`Phase::Waiting`] only gives up early. An unreachable host or network counts as not connected
//! only if an error in the chain says that it was connecting, because Linux reports the same kinds
//! when a connection breaks after the request was sent.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use policy::outcome::{Failure, Outcome, Phase};

use crate::ask::Refusal;

/// The outcome of an attempt that failed with `error` after `latency`.
///
/// ```
/// # #[cfg(feature = "http")] {
/// use std::io;
/// use std::time::Duration;
/// use tidegate::http;
///
/// let error = io::Error::from(io::ErrorKind::ConnectionRefused);
/// assert!(!http::failed(&error, Duration::ZERO).server_may_have_acted());
/// let error = io::Error::from(io::ErrorKind::ConnectionReset);
/// assert!(http::failed(&error, Duration::ZERO).server_may_have_acted());
/// # }
/// ```
pub fn failed(error: &(dyn Error + 'static), latency: Duration) -> Outcome {
    let (failure, phase) = failure(error);
    Outcome::failure(failure, phase, latency)
}

/// The transport failure and the phase the attempt had reached. An unknown error counts as a
/// connection that broke while waiting for the response.
pub fn failure(error: &(dyn Error + 'static)) -> (Failure, Phase) {
    recognise(error).unwrap_or((Failure::Reset, Phase::Waiting))
}

/// The transport failure that an error of any kind comes from; `None` if it may come from something
/// else, such as a body that could not be parsed.
pub(crate) fn recognise(error: &(dyn Error + 'static)) -> Option<(Failure, Phase)> {
    let (otherwise, phase) = if links(error).any(says_nothing_was_written) {
        (Some(Failure::Connect), Phase::Connecting)
    } else {
        let is_broken = links(error).any(|link| begins_with_one_of(link, BROKEN));
        (is_broken.then_some(Failure::Reset), Phase::Waiting)
    };
    let known = links(error).find_map(|link| by_words(link).or_else(|| by_kind(link)));
    Some((known.or(otherwise)?, phase))
}

/// Whether the request was never sent: a limiter below refused it, or the client cannot send it at
/// all. There was no attempt then, so the permit should be [given back](crate::Permit::give_back).
pub fn never_sent(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| link.is::<Refusal>() || begins_with_one_of(link, NEVER_LEFT))
}

/// The error and its sources, outermost first.
pub(crate) fn links<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |link| beneath(*link)).take(MAX_LINKS)
}

/// Several times the longest chain seen. Also bounds a chain that loops.
const MAX_LINKS: usize = 32;

fn beneath<'a>(link: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // `io::Error::source` skips the error it wraps and returns that error's source.
    let wrapped = link
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => link.source(),
    }
}

fn says_nothing_was_written(link: &(dyn Error + 'static)) -> bool {
    let by_kind = link.downcast_ref::<io::Error>().is_some_and(|error| {
        // These kinds only occur while connecting.
        matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse
        )
    });
    by_kind || begins_with_one_of(link, BEFORE_SENDING)
}

fn by_words(link: &(dyn Error + 'static)) -> Option<Failure> {
    let text = link.to_string();
    let known = WORDS.iter().find(|(words, _)| text.starts_with(words));
    known.map(|&(_, failure)| failure)
}

fn by_kind(link: &(dyn Error + 'static)) -> Option<Failure> {
    match link.downcast_ref::<io::Error>()?.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable
        | ErrorKind::AddrInUse => Some(Failure::Connect),
        // A blocking socket reports `WouldBlock` when its read timeout expires.
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Some(Failure::Timeout),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => Some(Failure::Reset),
        _ => None,
    }
}

fn begins_with_one_of(link: &(dyn Error + 'static), beginnings: &[&str]) -> bool {
    let text = link.to_string();
    beginnings.iter().any(|words| text.starts_with(words))
}

/// Messages that clients only produce before any of the request was written.
const BEFORE_SENDING: &[&str] = &[
    "client error (Connect)",  // hyper-util, also below reqwest
    "client error (Canceled)", // hyper-util: the connection returned the request unstarted
    "tcp connect error",       // connectors of hyper-util and hyper
    "dns error",               // connectors of hyper-util and hyper
    "error trying to connect", // hyper before 1.0
];

/// Messages and the failures they mean. If a message and the kind of an `io::Error` disagree, the
/// outer error wins, because it knows which step failed.
const WORDS: &[(&str, Failure)] = &[
    ("dns error", Failure::Dns),
    ("client error (Canceled)", Failure::Reset),
    ("invalid peer certificate", Failure::Tls), // rustls, as the next two
    ("received fatal alert", Failure::Tls),
    ("tls handshake eof", Failure::Tls),
    ("operation timed out", Failure::Timeout),  // reqwest
    ("deadline has elapsed", Failure::Timeout), // tokio
    ("request timed out", Failure::Timeout),    // tower
    // h2: the server reset the stream. Resets by the client have a different message.
    (
        "stream error received: refused stream",
        Failure::RefusedStream,
    ),
    // h2: the stream is beyond the last one in the server's GOAWAY, so the server did not process
    // it. Processed streams that break with the connection are broken pipes.
    (
        "connection error received: not a result of an error",
        Failure::RefusedStream,
    ),
];

/// Messages about connections that broke, for errors without an `io::Error` in their chain.
const BROKEN: &[&str] = &[
    "client error (SendRequest)",     // hyper-util, also below reqwest
    "client error (ChannelClosed)",   // hyper-util
    "connection closed before",       // hyper: before a message was complete
    "error reading a body from",      // hyper
    "request or response body error", // reqwest
    "http2 error",                    // hyper
];

/// Messages about requests that the client cannot send.
const NEVER_LEFT: &[&str] = &[
    "client error (User", // hyper-util: `UserAbsoluteUriRequired` and similar errors
    "builder error",      // reqwest
    "invalid URL,",       // hyper-util's connector: an unsupported scheme or host
];

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use policy::gate::Reason;
    use policy::time::Timestamp;

    /// A client error with a given message and source.
    #[derive(Debug)]
    struct TestError(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl fmt::Display for TestError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for TestError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    fn test_error(text: &'static str) -> TestError {
        TestError(text, None)
    }

    fn error_with_source(
        text: &'static str,
        source: impl Error + Send + Sync + 'static,
    ) -> TestError {
        TestError(text, Some(Box::new(source)))
    }

    #[test]
    fn io_error_kind_determines_failure() {
        use Phase::{Connecting, Waiting};
        let cases = [
            (ErrorKind::ConnectionRefused, Failure::Connect, Connecting),
            (ErrorKind::AddrNotAvailable, Failure::Connect, Connecting),
            (ErrorKind::HostUnreachable, Failure::Connect, Waiting),
            (ErrorKind::NetworkUnreachable, Failure::Connect, Waiting),
            (ErrorKind::TimedOut, Failure::Timeout, Waiting),
            (ErrorKind::WouldBlock, Failure::Timeout, Waiting),
            (ErrorKind::ConnectionReset, Failure::Reset, Waiting),
            (ErrorKind::BrokenPipe, Failure::Reset, Waiting),
            (ErrorKind::UnexpectedEof, Failure::Reset, Waiting),
            (ErrorKind::PermissionDenied, Failure::Reset, Waiting),
        ];
        for (kind, expected, phase) in cases {
            let error = io::Error::from(kind);
            assert_eq!(failure(&error), (expected, phase), "{kind:?}");
            let wrapped = error_with_source(
                "error sending request",
                error_with_source("connection error", error),
            );
            assert_eq!(failure(&wrapped), (expected, phase), "{kind:?}, wrapped");
        }
    }

    #[test]
    fn any_kind_while_connecting_is_before_sending() {
        let kinds = [
            (ErrorKind::HostUnreachable, Failure::Connect),
            (ErrorKind::TimedOut, Failure::Timeout),
            (ErrorKind::ConnectionReset, Failure::Reset),
            (ErrorKind::PermissionDenied, Failure::Connect),
        ];
        for (kind, expected) in kinds {
            let error = error_with_source("client error (Connect)", io::Error::from(kind));
            assert_eq!(failure(&error), (expected, Phase::Connecting), "{kind:?}");
        }
    }

    #[test]
    fn finds_error_wrapped_in_io_error() {
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        let error = io::Error::other(error_with_source("tcp connect error", refused));
        assert_eq!(failure(&error), (Failure::Connect, Phase::Connecting));
    }

    #[test]
    fn unknown_error_means_server_may_have_acted() {
        let unknown = test_error("something odd");
        assert_eq!(failure(&unknown), (Failure::Reset, Phase::Waiting));
    }

    #[test]
    fn message_matches_only_at_the_start() {
        let quoted = test_error("the server said: dns error");
        assert_eq!(failure(&quoted), (Failure::Reset, Phase::Waiting));
        let prefixed = test_error("dns error: no such host");
        assert_eq!(failure(&prefixed), (Failure::Dns, Phase::Connecting));
    }

    #[test]
    fn refused_stream_means_server_did_not_act() {
        let words = "stream error received: refused stream before processing any application logic";
        let error = error_with_source("http2 error", test_error(words));
        assert_eq!(failure(&error).0, Failure::RefusedStream);
        assert!(!failed(&error, Duration::ZERO).server_may_have_acted());
        let going = error_with_source(
            "http2 error",
            test_error("connection error received: not a result of an error"),
        );
        assert!(!failed(&going, Duration::ZERO).server_may_have_acted());
        let broken = error_with_source(
            "http2 error",
            test_error("connection error received: unexpected internal error encountered"),
        );
        assert!(failed(&broken, Duration::ZERO).server_may_have_acted());
    }

    #[test]
    fn untrusted_certificate_is_tls_failure() {
        let rustls = io::Error::new(
            ErrorKind::InvalidData,
            test_error("invalid peer certificate: UnknownIssuer"),
        );
        let error = error_with_source("client error (Connect)", rustls);
        assert_eq!(failure(&error), (Failure::Tls, Phase::Connecting));
    }

    #[test]
    fn request_returned_by_connection_was_not_sent() {
        let incomplete = test_error("connection closed before message completed");
        let canceled = error_with_source("operation was canceled", incomplete);
        let error = error_with_source("client error (Canceled)", canceled);
        assert_eq!(failure(&error), (Failure::Reset, Phase::Connecting));
    }

    #[test]
    fn refusal_anywhere_in_chain_means_never_sent() {
        let refusal = Refusal::new(Reason::QueueFull, None, Timestamp::ZERO);
        assert!(never_sent(&error_with_source(
            "the request failed",
            refusal
        )));
        assert!(never_sent(&test_error(
            "client error (UserAbsoluteUriRequired)"
        )));
        assert!(never_sent(&test_error("builder error for url (nothing)")));
        assert!(!never_sent(&test_error("client error (SendRequest)")));
    }

    #[test]
    fn endless_source_chain_terminates() {
        #[derive(Debug)]
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("again")
            }
        }
        impl Error for Endless {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Self)
            }
        }
        assert_eq!(failure(&Endless), (Failure::Reset, Phase::Waiting));
    }
}
