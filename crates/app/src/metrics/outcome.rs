//! How a request ended: the label `outcome`.

use policy::item::TerminalReason;

/// Declares [`RequestOutcome`] and its words from one list, so that they stay in step.
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

            /// The word for it in metrics and logs; for a response made by the gateway, its
            /// `Tidegate-Reason`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

outcomes! {
    /// The upstream's response is a success.
    Success = "success",
    /// All attempts were used; the upstream's last response was passed on.
    Exhausted = "exhausted",
    /// The upstream rejected the request; its response was passed on.
    Rejected = "rejected",
    /// The credential is not accepted.
    AuthFailed = "auth_failed",
    /// It conflicts with the upstream's state (409, 412).
    Conflict = "conflict",
    /// A quota is used up.
    QuotaExhausted = "quota_exhausted",
    /// It expired before it was delivered.
    Expired = "expired",
    /// The client disconnected.
    Cancelled = "cancelled",
    /// Its endpoint or pool is disabled.
    Disabled = "disabled",
    /// Its gate has had no success for too long.
    GaveUp = "gave_up",
    /// Its gate's breaker is open past its deadline.
    BreakerOpen = "breaker_open",
    /// Its response could not be used.
    Unusable = "unusable",
    /// Its wait would end after its deadline, or past `max_hold`.
    WaitTooLong = "wait_too_long",
    /// The gate's line is full.
    QueueFull = "queue_full",
    /// Its deadline passed while it waited.
    Deadline = "deadline",
    /// No endpoint of its pool can be used.
    NoEndpoint = "no_endpoint",
    /// No place in flight was free before its deadline.
    InFlight = "in_flight",
    /// The process has no descriptor left for a connection.
    NoDescriptors = "no_descriptors",
    /// There is no room for another gate.
    TooManyGates = "too_many_gates",
    /// No response came from the upstream.
    Unreachable = "unreachable",
    /// It arrived while the server was draining.
    Draining = "draining",
    /// It has no client token, or a wrong one.
    NoToken = "no_token",
    /// Its client has sent as much as it may.
    ClientLimit = "client_limit",
    /// Requests to its host are not allowed.
    HostNotAllowed = "host_not_allowed",
    /// Its host has an address that must not be dialled.
    AddressNotAllowed = "address_not_allowed",
    /// It comes from a web page whose origin is not allowed.
    CrossSite = "cross_site",
    /// Its `Host` is none of this server's.
    WrongHost = "wrong_host",
    /// Its body was too large.
    BodyTooLarge = "body_too_large",
    /// Its headers were too large.
    HeadersTooLarge = "headers_too_large",
    /// No route has its path.
    NoRoute = "no_route",
    /// Its body stalled or ended early.
    BodyIncomplete = "body_incomplete",
    /// It came from this gateway.
    LoopDetected = "loop_detected",
    /// Its `Tidegate-Max-Wait` or `Prefer` cannot be parsed.
    BadWait = "bad_wait",
    /// It was to become an operation, which could not be stored.
    StoreUnavailable = "store_unavailable",
    /// Its idempotency key was used for another request.
    KeyReused = "idempotency_key_reused",
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
            TerminalReason::Unusable => Self::Unusable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_reasons_keep_their_words() {
        for &reason in TerminalReason::ALL {
            assert_eq!(RequestOutcome::from(reason).as_str(), reason.as_str());
        }
    }

    #[test]
    fn outcomes_have_distinct_indices_and_words() {
        for (&outcome, index) in RequestOutcome::ALL.iter().zip(0..) {
            assert_eq!(outcome as usize, index);
            let same = |other: &&RequestOutcome| other.as_str() == outcome.as_str();
            assert_eq!(RequestOutcome::ALL.iter().filter(same).count(), 1);
        }
    }
}
