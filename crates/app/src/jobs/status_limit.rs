//! The limit on status requests: so many per client and job in a period, then 429.
//!
//! The period is counted from a client's first request, and the next one begins with the first
//! request after its end. Refused requests are not counted, so that a client which asks too often
//! gets its whole allowance again at the end of the period. A sliding log, as a gate's known limits
//! have it, would let a client that was refused pass after a few seconds, one request at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use policy::limits::Limit;
use policy::time::Timestamp;

/// Who requests the status of a job: a peer with its credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusClient {
    /// The address that the connection comes from; none for a call in the same process.
    pub peer: Option<IpAddr>,
    /// What identifies the credential, without being one. All requests with the admin token have the
    /// same.
    pub credential: u64,
}

/// Counts status requests.
#[derive(Debug, Default)]
pub(crate) struct StatusLimiter {
    periods: Mutex<HashMap<(StatusClient, u64), Period>>,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    start: Timestamp,
    admitted: u32,
}

/// At most this many periods are counted at once. If there are more, the one that began first is
/// forgotten, and its client has its whole allowance again.
const MAX_PERIODS: usize = 10_000;

impl StatusLimiter {
    /// Counts a request for the status of a job.
    ///
    /// # Errors
    ///
    /// The time until the end of the period, if the client has used up the limit.
    pub(crate) fn admit(
        &self,
        client: StatusClient,
        job: u64,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (client, job);
        match periods.get_mut(&key) {
            Some(period) if now.since(period.start) < limit.period() => {
                if period.admitted >= limit.count() {
                    return Err(limit.period() - now.since(period.start));
                }
                period.admitted += 1;
            }
            _ => {
                if periods.len() >= MAX_PERIODS {
                    make_room(&mut periods, limit, now);
                }
                let period = Period {
                    start: now,
                    admitted: 1,
                };
                periods.insert(key, period);
            }
        }
        Ok(())
    }
}

fn make_room<K: Clone + Eq + std::hash::Hash>(
    periods: &mut HashMap<K, Period>,
    limit: Limit,
    now: Timestamp,
) {
    periods.retain(|_, period| now.since(period.start) < limit.period());
    if periods.len() < MAX_PERIODS {
        return;
    }
    let oldest = periods.iter().min_by_key(|(_, period)| period.start);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        periods.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> StatusClient {
        StatusClient {
            peer: Some([127, 0, 0, last].into()),
            credential: 0,
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn limit(text: &str) -> Limit {
        text.parse().unwrap()
    }

    #[test]
    fn refuses_past_the_count_until_the_period_ends() {
        let limiter = StatusLimiter::default();
        let admit = |seconds| limiter.admit(client(1), 7, limit("3/10s"), at(seconds));
        for seconds in [5, 6, 6] {
            assert_eq!(admit(seconds), Ok(()));
        }
        assert_eq!(admit(7), Err(Duration::from_secs(8)));
        // A refused request neither counts nor extends the period.
        assert_eq!(admit(14), Err(Duration::from_secs(1)));
        for seconds in [15, 16, 24] {
            assert_eq!(admit(seconds), Ok(()));
        }
        assert_eq!(admit(24), Err(Duration::from_secs(1)));
    }

    #[test]
    fn shows_seed_000s_ladder_with_the_limit_of_the_demo() {
        // 14 requests every 2.5 s; then 2, 4 and 8 s after a refusal, and the last one is admitted.
        let limiter = StatusLimiter::default();
        let at_millis = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let admit = |millis| {
            limiter
                .admit(client(1), 7, limit("14/45s"), at_millis(millis))
                .is_ok()
        };
        assert!((0..14).all(|number| admit(number * 2500)));
        let refused = [35_000, 37_000, 41_000];
        assert!(refused.into_iter().all(|millis| !admit(millis)));
        assert!(admit(49_000));
    }

    #[test]
    fn counts_each_client_and_each_job() {
        let limiter = StatusLimiter::default();
        let other_credential = StatusClient {
            credential: 1,
            ..client(1)
        };
        for (client, job) in [
            (client(1), 1),
            (client(1), 2),
            (client(2), 1),
            (other_credential, 1),
        ] {
            let admit = || limiter.admit(client.clone(), job, limit("1/10s"), at(1));
            assert_eq!(admit(), Ok(()));
            assert_eq!(admit(), Err(Duration::from_secs(10)));
        }
    }

    #[test]
    fn forgets_the_oldest_period_when_there_are_too_many() {
        let limiter = StatusLimiter::default();
        let admit = |job, seconds| limiter.admit(client(1), job, limit("1/1h"), at(seconds));
        let jobs = MAX_PERIODS as u64;
        for job in 0..=jobs {
            assert_eq!(admit(job, job / 1000), Ok(()));
        }
        let periods = limiter.periods.lock().unwrap();
        assert_eq!(periods.len(), MAX_PERIODS);
        drop(periods);
        assert!(admit(jobs, 20).is_err());
        // After an hour all of them have ended.
        assert_eq!(admit(jobs + 1, 10_000), Ok(()));
        assert_eq!(limiter.periods.lock().unwrap().len(), 1);
    }
}
