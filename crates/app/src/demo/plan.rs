//! When the script does what, since the start of a round, and to what.

use std::time::Duration;

use policy::time::Timestamp;
use sim::upstream::Outage;

/// How long the script takes.
pub(super) const LENGTH: Duration = Duration::from_secs(60);

/// From the start of one round to the start of the next: there is time to look around.
pub(super) const ROUND: Duration = Duration::from_secs(90);

/// The limit on status checks of the job: a page that follows it from the start waits 2, 4 and 8 s
/// and recovers within a minute.
pub(super) const STATUS_LIMIT: &str = "14/45s";

/// Orders are handed over.
pub(super) const ORDERS_AT: Duration = Duration::from_secs(9);

/// The profile is changed by two programs.
pub(super) const PROFILE_AT: Duration = Duration::from_secs(18);

/// An endpoint resets connections.
pub(super) const OUTAGE: (Duration, Duration) = (Duration::from_secs(24), Duration::from_secs(32));

/// Another one answers 503.
pub(super) const FAILING: (Duration, Duration) = (Duration::from_secs(33), Duration::from_secs(43));

/// The script enables it again.
pub(super) const ENABLE_AT: Duration = Duration::from_secs(44);

/// The pool with several endpoints.
pub(super) const POOL: &str = "pool";

/// The endpoint that resets connections, and the key of its gate.
pub(super) const OUTAGE_ENDPOINT: &str = "b";
pub(super) const OUTAGE_KEY: &str = "pool/b";

/// The endpoint that answers 503.
pub(super) const FAILING_ENDPOINT: &str = "c";

/// The gates of the upstream that is learned, and of the one that sends Retry-After.
pub(super) const STEADY: &str = "steady/only";
pub(super) const POLITE: &str = "polite/only";

/// Outages in the first rounds; afterwards there are none.
const ROUNDS: u32 = 40;

/// An outage in every round, with a status or without responses.
pub(super) fn outages((from, to): (Duration, Duration), status: Option<u16>) -> Vec<Outage> {
    let rounds = (0..ROUNDS).map(|round| Timestamp::ZERO + ROUND * round);
    let outages = rounds.map(|start| Outage {
        from: start + from,
        to: start + to,
        timeout_share: 0.0,
        timeout: Duration::from_secs(5),
        status,
    });
    outages.collect()
}

#[cfg(test)]
mod tests {
    use policy::poll::{JobStatus, Poll, PollSettings, ResponseKind, StatusResponse};

    use super::*;
    use crate::demo::site;
    use crate::jobs::{StatusClient, StatusLimiter};

    /// A page that follows the job from `opened` on, by the product's own policy and limit.
    struct Followed {
        /// When a status check was refused, and the wait after it.
        refused: Vec<(Duration, Duration)>,
        /// When one was answered again.
        recovered: Option<Duration>,
        /// The job's progress then, in per cent.
        progress: f64,
    }

    fn follow(opened: Duration) -> Followed {
        let (settings, limiter) = (PollSettings::default(), StatusLimiter::default());
        let limit = STATUS_LIMIT.parse().unwrap();
        let client = StatusClient {
            peer: None,
            credential: 1,
        };
        let mut now = Timestamp::ZERO + opened;
        let mut poll = Poll::new(now);
        let mut followed = Followed {
            refused: Vec::new(),
            recovered: None,
            progress: 0.0,
        };
        loop {
            let progress = progress(now.since(Timestamp::ZERO));
            let is_admitted = limiter.admit(client.clone(), 1, limit, now).is_ok();
            let response = match is_admitted {
                true => StatusResponse {
                    kind: ResponseKind::Success,
                    job: Some(match progress < 100.0 {
                        true => JobStatus::Running {
                            progress: Some(progress),
                        },
                        false => JobStatus::Done,
                    }),
                },
                false => ResponseKind::Throttled { wait: None }.into(),
            };
            let step = poll.after(&settings, &response, now);
            let at = now.since(Timestamp::ZERO);
            assert_eq!(poll.banner(), !is_admitted);
            if is_admitted && !followed.refused.is_empty() {
                followed.recovered = Some(at);
                followed.progress = progress;
                return followed;
            }
            let Some(wait) = step.wait else {
                return followed;
            };
            if !is_admitted {
                followed.refused.push((at, wait));
            }
            now = now + wait;
        }
    }

    /// The crawl starts a page every [`site::CRAWL_DELAY`]; progress is stored every second.
    fn progress(elapsed: Duration) -> f64 {
        let stored = Duration::from_secs(elapsed.as_secs());
        let done = stored.as_millis() / site::CRAWL_DELAY.as_millis();
        site::progress_after(u32::try_from(done).unwrap())
    }

    #[test]
    fn job_page_waits_2_4_8_seconds_and_recovers_within_the_minute() {
        // A person needs some seconds to open it.
        for opened in (0..=20).map(|half| Duration::from_millis(half * 500)) {
            let followed = follow(opened);
            let waits = followed.refused.iter().map(|(_, wait)| wait.as_secs());
            assert_eq!(
                waits.collect::<Vec<_>>(),
                [2, 4, 8],
                "opened after {opened:?}"
            );
            let recovered = followed.recovered.unwrap();
            assert!(recovered < LENGTH, "opened after {opened:?}: {recovered:?}");
        }
    }

    #[test]
    fn job_still_runs_when_a_page_that_was_opened_at_once_recovers() {
        let followed = follow(Duration::ZERO);
        let (first, _) = followed.refused[0];
        assert_eq!(first, Duration::from_millis(36_500));
        assert_eq!(followed.recovered, Some(Duration::from_millis(50_500)));
        assert!(followed.progress > 80.0 && followed.progress < 100.0);
        // The longest that status checks may be late altogether, without another wait.
        let refused_too_late = Duration::from_secs(39);
        assert!(refused_too_late - first >= Duration::from_secs(2));
    }

    #[test]
    fn outages_do_not_overlap_and_are_in_every_round() {
        let outages = outages(FAILING, Some(503));
        assert!(outages.windows(2).all(|pair| pair[0].to < pair[1].from));
        assert!(outages.iter().all(|outage| outage.status == Some(503)));
        assert!(OUTAGE.1 < FAILING.0 && FAILING.1 < ENABLE_AT && ENABLE_AT < LENGTH);
    }
}
