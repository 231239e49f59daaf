//! A quota per window, learned from Retry-After.
//!
//! The length of a window is the next usual length above the longest wait. The quota is what was
//! accepted in it, including attempts in flight at the refusal, and is spread over 98 % of each window.
//! A window used up without a refusal raises it by 5 %.

use std::time::Duration;

use policy::time::Timestamp;

#[derive(Debug)]
pub(super) struct Quota {
    longest_wait: Duration,
    length: Duration,
    ends: Timestamp,
    quota: f64,
    /// Sent in the current window.
    sent: f64,
    refused_at: Option<Timestamp>,
}

impl Quota {
    /// After a first refusal with a wait; `accepted` tells how many were accepted from a time on.
    /// `None` if windows of that length are not known.
    pub(super) fn learn(
        before: Option<Self>,
        wait: Duration,
        accepted: impl Fn(Timestamp) -> u64,
        now: Timestamp,
    ) -> Option<Self> {
        let longest_wait = before
            .as_ref()
            .map_or(wait, |quota| quota.longest_wait.max(wait));
        let length = LENGTHS_S.map(Duration::from_secs);
        let length = length.into_iter().find(|length| *length >= longest_wait)?;
        let named_end = now + wait;
        // Waits are rounded up, so the earliest end of a window is right.
        let ends = match &before {
            Some(quota) if now < quota.ends => quota.ends.min(named_end),
            Some(_) | None => named_end,
        };
        let since = ends.since(Timestamp::ZERO).saturating_sub(length);
        Some(Self {
            longest_wait,
            length,
            ends,
            quota: accepted(Timestamp::ZERO + since) as f64,
            sent: f64::INFINITY,
            refused_at: Some(now),
        })
    }

    /// Counts a request that was sent before the refusal: the window had room for it.
    pub(super) fn accepted(&mut self, sent_at: Timestamp) {
        if self.refused_at.is_some_and(|at| sent_at <= at) {
            self.quota += 1.0;
        }
    }

    pub(super) fn sent(&mut self) {
        self.sent += 1.0;
    }

    /// Requests per second, or when the next window begins if this one is used up.
    pub(super) fn pace(&mut self, now: Timestamp) -> Result<f64, Timestamp> {
        if now >= self.ends {
            self.begin(now);
        }
        let left = self.quota - self.sent;
        if left < 1.0 {
            return Err(self.ends);
        }
        let rest_s = self.ends.seconds_since(now) - 0.02 * self.length.as_secs_f64();
        Ok(left / rest_s.max(MIN_SPREAD_S))
    }

    fn begin(&mut self, now: Timestamp) {
        if self.refused_at.is_none() && self.sent + 1.0 > self.quota {
            self.quota *= 1.05;
        }
        while self.ends <= now {
            self.ends = self.ends + self.length;
        }
        self.sent = 0.0;
        self.refused_at = None;
    }
}

/// Usual lengths of windows, in seconds.
const LENGTHS_S: [u64; 10] = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300];
/// The rest of the quota is spread over at least this.
const MIN_SPREAD_S: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_window_and_quota_from_a_refusal() {
        let at = Timestamp::from_secs;
        let wait = Duration::from_secs(57);
        let mut quota = Quota::learn(None, wait, |from| 590 - from.as_nanos(), at(3)).unwrap();
        for _ in 0..10 {
            quota.accepted(at(3));
        }
        quota.accepted(at(4));
        assert_eq!(quota.pace(at(10)), Err(at(60)), "this window is used up");
        let pace = quota.pace(at(60)).unwrap();
        assert!((pace - 600.0 / 58.8).abs() < 1e-9, "{pace}");
        for _ in 0..600 {
            quota.sent();
        }
        assert_eq!(quota.pace(at(119)), Err(at(120)));
        let pace = quota.pace(at(120)).unwrap();
        assert!((pace - 630.0 / 58.8).abs() < 1e-9, "it might be more");
    }
}
