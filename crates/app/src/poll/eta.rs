//! How long a job will take, by its progress so far.

use std::time::Duration;

/// Estimates from the first known progress to the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Eta {
    first: Option<(Duration, f64)>,
}

impl Eta {
    /// The time that is left after a response with this progress in per cent; `None` while there is
    /// no pace to go by. A job that starts over is estimated anew.
    pub(super) fn after(&mut self, elapsed: Duration, progress: Option<f64>) -> Option<Duration> {
        let progress = progress.filter(|progress| (0.0..100.0).contains(progress))?;
        let (first_at, first) = match self.first {
            Some(first) if first.1 <= progress => first,
            _ => {
                self.first = Some((elapsed, progress));
                return None;
            }
        };
        let passed = elapsed.saturating_sub(first_at).as_secs_f64();
        let left = passed * (100.0 - progress) / (progress - first);
        Duration::try_from_secs_f64(left)
            .ok()
            .filter(|left| !left.is_zero() && *left < MAX_SHOWN)
    }
}

/// A longer estimate says nothing.
const MAX_SHOWN: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_from_the_first_progress_on() {
        let mut eta = Eta::default();
        let mut after = |seconds, progress| {
            let left = eta.after(Duration::from_secs(seconds), progress);
            left.map(|left| left.as_secs())
        };
        assert_eq!(after(0, None), None);
        assert_eq!(after(2, Some(10.0)), None);
        assert_eq!(after(4, Some(10.0)), None, "no progress, no pace");
        assert_eq!(after(12, Some(60.0)), Some(8));
        assert_eq!(after(14, None), None);
        assert_eq!(after(20, Some(100.0)), None);
        assert_eq!(after(22, Some(5.0)), None, "it started over");
        assert_eq!(after(24, Some(15.0)), Some(17));
        assert_eq!(after(26, Some(f64::NAN)), None);
    }
}
