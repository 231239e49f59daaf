//! Classifies the error of a client: which transport failure it was, and in which phase.
//!
//! Clients wrap their errors, and what they know about them ("it was the connect that failed") is
//! in methods of types that this crate does not depend on. What every client has is the chain of
//! sources below its error. It is searched for an [`io::Error`], whose kind says what happened, and
//! for the fixed words of hyper, reqwest, h2 and tower. Words count only as the beginning of what a
//! link says, because further on it may quote anything.
//!
//! **The careful choice is "the server may have acted".** A request is repeated if nothing of it
//! was written, so a wrong [`Phase::Connecting`] does something twice, and a wrong
//! [`Phase::Waiting`] only gives up early. Hence a host or network that is unreachable counts as
//! never connected only if a link says that it was connecting: Linux reports the same kinds on a
//! connection that breaks after the request was sent.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use policy::outcome::{Failure, Outcome, Phase};

use crate::ask::Refusal;

/// What an attempt that ended with `error` after `latency` means to a gate.
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use tidegate::http;
///
/// let error = io::Error::from(io::ErrorKind::ConnectionRefused);
/// assert!(!http::failed(&error, Duration::ZERO).server_may_have_acted());
/// let error = io::Error::from(io::ErrorKind::ConnectionReset);
/// assert!(http::failed(&error, Duration::ZERO).server_may_have_acted());
/// ```
pub fn failed(error: &(dyn Error + 'static), latency: Duration) -> Outcome {
    let (failure, phase) = failure(error);
    Outcome::failure(failure, phase, latency)
}

/// What went wrong, and how far the attempt had got. What is not known is a connection that broke
/// while waiting.
pub fn failure(error: &(dyn Error + 'static)) -> (Failure, Phase) {
    let is_connecting = links(error).any(says_nothing_was_written);
    let (otherwise, phase) = if is_connecting {
        (Failure::Connect, Phase::Connecting)
    } else {
        (Failure::Reset, Phase::Waiting)
    };
    let known = links(error).find_map(|link| by_words(link).or_else(|| by_kind(link)));
    (known.unwrap_or(otherwise), phase)
}

/// Is the error about the request and not about the server: refused by a limiter below, or a request
/// that the client cannot send? Then there was no attempt, and its permit is
/// [given back](crate::Permit::give_back).
pub fn never_left(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| link.is::<Refusal>() || begins_with_one_of(link, NEVER_LEFT))
}

/// The error and what it comes from, outermost first.
fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |link| beneath(*link)).take(MAX_LINKS)
}

/// Several times the longest chain seen, and an end for one that leads back to itself.
const MAX_LINKS: usize = 32;

fn beneath<'a>(link: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // An error that was put into an `io::Error` is not its source: only what lies beneath it is.
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
        // Only making a connection can fail like this.
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
        // The second is what a blocking socket says whose time to read is over.
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

/// What clients say only while nothing of the request was written.
const BEFORE_SENDING: &[&str] = &[
    "client error (Connect)",  // hyper-util, below reqwest too
    "client error (Canceled)", // hyper-util: the connection gave the request back unstarted
    "tcp connect error",       // hyper-util's and hyper's connector
    "dns error",               // the same
    "error trying to connect", // hyper before 1.0
];

/// What clients say, and what that is. Where words and the kind of an `io::Error` both say
/// something, the outer link wins, for it knows what was being done.
const WORDS: &[(&str, Failure)] = &[
    ("dns error", Failure::Dns),
    ("client error (Canceled)", Failure::Reset),
    ("invalid peer certificate", Failure::Tls), // rustls, as the next two
    ("received fatal alert", Failure::Tls),
    ("tls handshake eof", Failure::Tls),
    ("operation timed out", Failure::Timeout),  // reqwest
    ("deadline has elapsed", Failure::Timeout), // tokio
    ("request timed out", Failure::Timeout),    // tower
    // h2, of a stream that the server reset; what it says when it resets one itself is different.
    (
        "stream error received: refused stream",
        Failure::RefusedStream,
    ),
    // h2, of a stream beyond the last one in the server's GOAWAY, which it did not process. Processed
    // streams that break with the connection are broken pipes.
    (
        "connection error received: not a result of an error",
        Failure::RefusedStream,
    ),
];

/// What clients say about requests that they cannot send.
const NEVER_LEFT: &[&str] = &[
    "client error (User", // hyper-util: `UserAbsoluteUriRequired` and similar errors
    "builder error",      // reqwest
    "invalid URL,",       // hyper-util's connector: a scheme or host that it cannot take
];

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use policy::gate::Reason;
    use policy::time::Timestamp;

    /// An error of some client.
    #[derive(Debug)]
    struct Says(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl fmt::Display for Says {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Says {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    fn says(text: &'static str) -> Says {
        Says(text, None)
    }

    fn over(text: &'static str, source: impl Error + Send + Sync + 'static) -> Says {
        Says(text, Some(Box::new(source)))
    }

    #[test]
    fn kinds_of_io_say_what_happened() {
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
            let wrapped = over("error sending request", over("connection error", error));
            assert_eq!(failure(&wrapped), (expected, phase), "{kind:?}, wrapped");
        }
    }

    #[test]
    fn while_connecting_every_kind_is_before_sending() {
        let kinds = [
            (ErrorKind::HostUnreachable, Failure::Connect),
            (ErrorKind::TimedOut, Failure::Timeout),
            (ErrorKind::ConnectionReset, Failure::Reset),
            (ErrorKind::PermissionDenied, Failure::Connect),
        ];
        for (kind, expected) in kinds {
            let error = over("client error (Connect)", io::Error::from(kind));
            assert_eq!(failure(&error), (expected, Phase::Connecting), "{kind:?}");
        }
    }

    #[test]
    fn an_error_inside_of_an_io_error_is_found() {
        let refused = io::Error::from(ErrorKind::ConnectionRefused);
        let error = io::Error::other(over("tcp connect error", refused));
        assert_eq!(failure(&error), (Failure::Connect, Phase::Connecting));
    }

    #[test]
    fn unknown_outcome_may_have_been_applied() {
        let unknown = says("something odd");
        assert_eq!(failure(&unknown), (Failure::Reset, Phase::Waiting));
    }

    #[test]
    fn words_count_only_at_the_beginning() {
        let quoted = says("the server said: dns error");
        assert_eq!(failure(&quoted), (Failure::Reset, Phase::Waiting));
        let told = says("dns error: no such host");
        assert_eq!(failure(&told), (Failure::Dns, Phase::Connecting));
    }

    #[test]
    fn a_stream_that_the_server_gave_back_was_not_acted_on() {
        let words = "stream error received: refused stream before processing any application logic";
        let error = over("http2 error", says(words));
        assert_eq!(failure(&error).0, Failure::RefusedStream);
        assert!(!failed(&error, Duration::ZERO).server_may_have_acted());
        let going = over(
            "http2 error",
            says("connection error received: not a result of an error"),
        );
        assert!(!failed(&going, Duration::ZERO).server_may_have_acted());
        let broken = over(
            "http2 error",
            says("connection error received: unexpected internal error encountered"),
        );
        assert!(failed(&broken, Duration::ZERO).server_may_have_acted());
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_about_tls() {
        let rustls = io::Error::new(
            ErrorKind::InvalidData,
            says("invalid peer certificate: UnknownIssuer"),
        );
        let error = over("client error (Connect)", rustls);
        assert_eq!(failure(&error), (Failure::Tls, Phase::Connecting));
    }

    #[test]
    fn a_request_that_the_connection_gave_back_was_not_sent() {
        let incomplete = says("connection closed before message completed");
        let canceled = over("operation was canceled", incomplete);
        let error = over("client error (Canceled)", canceled);
        assert_eq!(failure(&error), (Failure::Reset, Phase::Connecting));
    }

    #[test]
    fn a_refusal_anywhere_in_the_chain_means_that_nothing_left() {
        let refusal = Refusal::new(Reason::QueueFull, None, Timestamp::ZERO);
        assert!(never_left(&over("the request failed", refusal)));
        assert!(never_left(&says("client error (UserAbsoluteUriRequired)")));
        assert!(never_left(&says("builder error for url (nothing)")));
        assert!(!never_left(&says("client error (SendRequest)")));
    }

    #[test]
    fn a_chain_without_an_end_has_one() {
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
