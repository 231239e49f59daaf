//! How a request ended, as its label says it.

use policy::item::TerminalReason;

/// Declares [`RequestOutcome`] and its words from one list, so that they cannot drift apart.
macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// How a request of the data plane ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum RequestOutcome {
            $($(#[$doc])* $variant,)*
        }

        impl RequestOutcome {
            /// Every outcome.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word for it in metrics and logs; of answers that are made here it is the
            /// reason that they carry.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

outcomes! {
    /// The upstream answered well.
    Success = "success",
    /// All sends were used up; the upstream's last answer was passed on.
    Exhausted = "exhausted",
    /// The upstream will not take this request; its answer was passed on.
    Rejected = "rejected",
    /// The credential is not accepted.
    AuthFailed = "auth_failed",
    /// It contradicts what the upstream has.
    Conflict = "conflict",
    /// An allowance is used up.
    QuotaExhausted = "quota_exhausted",
    /// It was not delivered in the time it had.
    Expired = "expired",
    /// The client went away.
    Cancelled = "cancelled",
    /// What it was meant for is switched off.
    Disabled = "disabled",
    /// Its gate has had no success for too long.
    GaveUp = "gave_up",
    /// Its gate's breaker is open for longer than it can wait.
    BreakerOpen = "breaker_open",
    /// The wait would be longer than may be.
    WaitTooLong = "wait_too_long",
    /// Too many wait already.
    QueueFull = "queue_full",
    /// Its own time was over before it could be sent.
    Deadline = "deadline",
    /// No endpoint of its pool can be used.
    NoEndpoint = "no_endpoint",
    /// No place in flight was free before its deadline.
    InFlight = "in_flight",
    /// The process has no descriptor left for a connection.
    NoDescriptors = "no_descriptors",
    /// There is no room for another gate.
    TooManyGates = "too_many_gates",
    /// No answer came from the upstream.
    Unreachable = "unreachable",
    /// It came while everything was about to stop.
    Draining = "draining",
    /// It carried no token, or a wrong one.
    NoToken = "no_token",
    /// Its host may not be called.
    HostNotAllowed = "host_not_allowed",
    /// Its host has an address that must not be dialled.
    AddressNotAllowed = "address_not_allowed",
    /// It comes from a web page whose origin is not allowed.
    CrossSite = "cross_site",
    /// It was meant for someone else, by its `Host`.
    WrongHost = "wrong_host",
    /// Its body was too large.
    BodyTooLarge = "body_too_large",
    /// Its headers were too large.
    HeadersTooLarge = "headers_too_large",
    /// No route has its path.
    NoRoute = "no_route",
    /// Its body paused for too long, or broke off.
    BodyIncomplete = "body_incomplete",
    /// It came from this gateway.
    LoopDetected = "loop_detected",
    /// How long it would wait cannot be read.
    BadWait = "bad_wait",
    /// It is not HTTP, or its framing contradicts itself.
    BadRequest = "bad_request",
}

impl RequestOutcome {
    /// How many there are.
    pub(super) const COUNT: usize = Self::ALL.len();
}

impl From<TerminalReason> for RequestOutcome {
    fn from(reason: TerminalReason) -> Self {
        match reason {
            TerminalReason::Exhausted => Self::Exhausted,
            TerminalReason::Rejected => Self::Rejected,
            TerminalReason::AuthFailed => Self::AuthFailed,
            TerminalReason::Conflict => Self::Conflict,
            TerminalReason::QuotaExhausted => Self::QuotaExhausted,
            TerminalReason::Expired => Self::Expired,
            TerminalReason::Cancelled => Self::Cancelled,
            TerminalReason::Disabled => Self::Disabled,
            TerminalReason::GaveUp => Self::GaveUp,
            TerminalReason::BreakerOpen => Self::BreakerOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_reasons_keep_their_words() {
        for reason in TerminalReason::ALL {
            assert_eq!(RequestOutcome::from(reason).as_str(), reason.as_str());
        }
    }

    #[test]
    fn every_outcome_has_its_place_and_its_word() {
        for (&outcome, index) in RequestOutcome::ALL.iter().zip(0..) {
            assert_eq!(outcome as usize, index);
            let same = |other: &&RequestOutcome| other.as_str() == outcome.as_str();
            assert_eq!(RequestOutcome::ALL.iter().filter(same).count(), 1);
        }
    }
}
