//! The retry budget: bounds the total number of retries.
//!
//! `max_attempts` bounds the retries of one item, but not their sum. When an upstream fails, five
//! sends per item are five times the load, at the worst moment. A budget bounds the sum: each
//! ordinary request adds `ratio` of a retry, and a small minimum is always available, so that
//! callers with little traffic can retry too.
//!
//! The minimum is a token bucket of `min_per_second` that holds one second's worth: while fewer
//! than `min_per_second` retries were granted in the last second, the next is granted. Deposits of
//! requests expire after ten seconds, so that an hour of success does not pay for a storm
//! afterwards. They are stored in ten slices of a second, so the size is fixed and every call takes
//! constant time. All arithmetic uses integers: with a ratio of 0.1, ten requests are exactly one
//! retry.
//!
//! A refused retry may wait until [`RetryBudget::next_at`]. That does not count as an attempt,
//! because nothing was sent. Otherwise the last response is passed on.
//!
//! Guaranteed and tested: in any interval of `t` seconds at most `ratio ·` (requests in it and in
//! the ten seconds before it) `+ min_per_second · (t + 1)` retries are granted.

use std::time::Duration;

use crate::setting::{Kind, Options, SettingErrors};
use crate::time::Timestamp;

crate::settings! {
    /// What was written about the budget; `None` leaves the default.
    pub struct BudgetOptions;
    /// All values of a budget.
    pub(crate) struct BudgetValues(pub(crate)) {
        /// Retries per ordinary request.
        // One retry per five requests: an outage adds a fifth to the upstream's load, not four
        // times the load.
        ratio: f64 = "0.2", Kind::number("a number of retries per request", 0.0, 10.0);
        /// This many retries a second are always allowed, so that little traffic can retry too.
        // Ten per second are no load for any server, and plenty for a caller with few requests.
        min_per_second: u32 = "10", Kind::whole(0, 1_000_000);
    }
}

impl BudgetOptions {
    /// Combines the options with the defaults.
    ///
    /// # Errors
    ///
    /// Every value out of bounds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is out of bounds is an error"
    )]
    pub fn build(self) -> Result<BudgetSettings, SettingErrors> {
        let problems = self.out_of_bounds();
        let values = self.over(BudgetValues::default());
        let settings = BudgetSettings {
            per_request: (values.ratio * RETRY as f64).round() as u64,
            min_per_second: values.min_per_second,
        };
        SettingErrors::none_of(problems, settings)
    }
}

/// The settings of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// The deposit per request, in millionths of a retry.
    per_request: u64,
    min_per_second: u32,
}

impl BudgetSettings {
    /// Retries per ordinary request.
    pub fn ratio(&self) -> f64 {
        self.per_request as f64 / RETRY as f64
    }

    /// Retries per second that are always allowed.
    pub fn min_per_second(&self) -> u32 {
        self.min_per_second
    }
}

impl Default for BudgetSettings {
    fn default() -> Self {
        BudgetOptions::default()
            .build()
            .expect("the defaults fit together")
    }
}

/// The cost of one retry, in the unit of deposits.
const RETRY: u64 = 1_000_000;

/// The remaining retries for one key. Its owner reports every ordinary request and asks before
/// every retry.
///
/// ```
/// use tidegate_policy::budget::{BudgetSettings, RetryBudget};
/// use tidegate_policy::time::Timestamp;
///
/// let settings = BudgetSettings::default();
/// let now = Timestamp::ZERO;
/// let mut budget = RetryBudget::new(&settings, now);
/// for _ in 0..10 {
/// assert!(budget.withdraw(&settings, now), "ten per second are always available");
/// }
/// assert!(!budget.withdraw(&settings, now));
/// for _ in 0..5 {
///     budget.deposit(&settings, now);
/// }
/// assert!(budget.withdraw(&settings, now), "five requests pay for one more");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// What is left of the minimum, in billionths of a retry.
    minimum: u64,
    /// When the minimum was last refilled.
    refilled_at: Timestamp,
    /// Unused deposits by second, in millionths of a retry.
    paid: [u64; SLICES],
    /// The latest second in `paid`, counted from the clock's origin.
    latest: u64,
}

impl RetryBudget {
    /// A budget with a full minimum and no deposits.
    pub fn new(settings: &BudgetSettings, now: Timestamp) -> Self {
        Self {
            minimum: most(settings),
            refilled_at: now,
            paid: [0; SLICES],
            latest: second(now),
        }
    }

    /// Counts an ordinary request: a first attempt, not a retry.
    pub fn deposit(&mut self, settings: &BudgetSettings, now: Timestamp) {
        self.advance(settings, now);
        let slice = &mut self.paid[slice(self.latest)];
        *slice = slice.saturating_add(settings.per_request);
    }

    /// Takes one retry if available: from the minimum first, which refills, then from the oldest
    /// deposits, which expire first.
    pub fn withdraw(&mut self, settings: &BudgetSettings, now: Timestamp) -> bool {
        self.advance(settings, now);
        if self.minimum >= WHOLE {
            self.minimum -= WHOLE;
            return true;
        }
        if self.paid_in() < RETRY {
            return false;
        }
        self.take_oldest();
        true
    }

    /// Takes one retry from deposits only. For attempts that are not needed: the minimum stays
    /// for retries.
    pub fn withdraw_paid(&mut self, settings: &BudgetSettings, now: Timestamp) -> bool {
        self.advance(settings, now);
        let is_paid = self.paid_in() >= RETRY;
        if is_paid {
            self.take_oldest();
        }
        is_paid
    }

    /// When the next retry is available without further deposits: `now` if one is available, `None`
    /// if the minimum is zero.
    pub fn next_at(&self, settings: &BudgetSettings, now: Timestamp) -> Option<Timestamp> {
        let mut then = *self;
        then.advance(settings, now);
        if then.minimum >= WHOLE || then.paid_in() >= RETRY {
            return Some(now);
        }
        let rate = u64::from(settings.min_per_second);
        let missing = WHOLE - then.minimum;
        (rate > 0).then(|| now + Duration::from_nanos(missing.div_ceil(rate)))
    }

    /// The number of whole retries available now.
    pub fn available(&self, settings: &BudgetSettings, now: Timestamp) -> u64 {
        let mut then = *self;
        then.advance(settings, now);
        then.minimum / WHOLE + then.paid_in() / RETRY
    }

    /// Refills the minimum and expires old deposits. A clock that steps back changes nothing.
    fn advance(&mut self, settings: &BudgetSettings, now: Timestamp) {
        let nanos = now.as_nanos().saturating_sub(self.refilled_at.as_nanos());
        // A rate per second equals as many billionths per nanosecond.
        let back = nanos.saturating_mul(u64::from(settings.min_per_second));
        self.minimum = self.minimum.saturating_add(back).min(most(settings));
        self.refilled_at = self.refilled_at.max(now);
        let passed = second(now).saturating_sub(self.latest);
        for _ in 0..passed.min(SLICES as u64) {
            self.latest += 1;
            self.paid[slice(self.latest)] = 0;
        }
        self.latest = self.latest.max(second(now));
    }

    fn paid_in(&self) -> u64 {
        self.paid
            .iter()
            .fold(0, |sum, paid| sum.saturating_add(*paid))
    }

    fn take_oldest(&mut self) {
        let mut owed = RETRY;
        for age in (0..SLICES as u64).rev() {
            let Some(second) = self.latest.checked_sub(age) else {
                continue;
            };
            let paid = &mut self.paid[slice(second)];
            let taken = owed.min(*paid);
            *paid -= taken;
            owed -= taken;
        }
    }
}

/// How many seconds a deposit is valid. Long enough for an item that backs off once or twice, short
/// compared with an outage.
const SLICES: usize = 10;

/// One retry, in the unit of the minimum.
const WHOLE: u64 = 1_000_000_000;

/// One second's worth of the minimum.
fn most(settings: &BudgetSettings) -> u64 {
    u64::from(settings.min_per_second) * WHOLE
}

fn second(now: Timestamp) -> u64 {
    now.as_nanos() / 1_000_000_000
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below ten"
)]
fn slice(second: u64) -> usize {
    (second % SLICES as u64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(ratio: &str, min_per_second: &str) -> BudgetSettings {
        let mut options = BudgetOptions::default();
        options.set("ratio", ratio).unwrap();
        options.set("min_per_second", min_per_second).unwrap();
        options.build().unwrap()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// How many of `asked` retries are granted now.
    fn granted(
        budget: &mut RetryBudget,
        settings: &BudgetSettings,
        asked: usize,
        now: Timestamp,
    ) -> usize {
        (0..asked)
            .filter(|_| budget.withdraw(settings, now))
            .count()
    }

    #[test]
    fn defaults() {
        let settings = BudgetSettings::default();
        assert_eq!(settings.ratio().to_bits(), 0.2_f64.to_bits());
        assert_eq!(settings.min_per_second(), 10);
    }

    #[test]
    fn refuses_bad_settings_with_expectation() {
        let error = |name: &str, value: &str| {
            let error = BudgetOptions::default().set(name, value).unwrap_err();
            error.expected
        };
        for value in ["-0.1", "NaN", "10.1", "inf", "x", ""] {
            assert_eq!(
                error("ratio", value),
                "a number of retries per request from 0 to 10"
            );
        }
        assert_eq!(
            error("min_per_second", "-1"),
            "a whole number from 0 to 1000000"
        );
        assert_eq!(
            error("ration", "1"),
            "a known setting; did you mean `ratio`?"
        );
        let by_hand = BudgetOptions {
            ratio: Some(f64::NAN),
            ..BudgetOptions::default()
        };
        assert_eq!(by_hand.build().unwrap_err().len(), 1);
    }

    #[test]
    fn deposits_add_up_exactly() {
        let settings = settings("0.1", "0");
        let mut budget = RetryBudget::new(&settings, at(0));
        for _ in 0..9 {
            budget.deposit(&settings, at(0));
        }
        assert!(!budget.withdraw(&settings, at(0)));
        budget.deposit(&settings, at(0));
        assert!(budget.withdraw(&settings, at(0)));
        assert!(!budget.withdraw(&settings, at(0)));
    }

    #[test]
    fn deposits_expire_after_ten_seconds() {
        let settings = settings("1", "0");
        let mut budget = RetryBudget::new(&settings, at(500));
        for _ in 0..100 {
            budget.deposit(&settings, at(500));
        }
        assert_eq!(budget.available(&settings, at(9999)), 100);
        assert_eq!(budget.available(&settings, at(10_000)), 0);
        assert_eq!(budget.next_at(&settings, at(10_000)), None);
    }

    #[test]
    fn withdraws_oldest_deposit_first() {
        let settings = settings("1", "0");
        let mut budget = RetryBudget::new(&settings, at(0));
        budget.deposit(&settings, at(0));
        budget.deposit(&settings, at(5000));
        assert!(budget.withdraw(&settings, at(5000)));
        assert_eq!(budget.available(&settings, at(10_000)), 1);
    }

    #[test]
    fn attempts_that_are_not_needed_leave_the_minimum() {
        let settings = settings("0.5", "10");
        let mut budget = RetryBudget::new(&settings, at(0));
        assert!(!budget.withdraw_paid(&settings, at(0)));
        for _ in 0..4 {
            budget.deposit(&settings, at(0));
        }
        assert!(budget.withdraw_paid(&settings, at(0)));
        assert!(budget.withdraw_paid(&settings, at(0)));
        assert!(!budget.withdraw_paid(&settings, at(0)));
        assert_eq!(granted(&mut budget, &settings, 20, at(0)), 10);
    }

    #[test]
    fn minimum_refills_at_its_rate() {
        let settings = settings("0", "10");
        let mut budget = RetryBudget::new(&settings, at(0));
        assert_eq!(budget.available(&settings, at(0)), 10);
        assert_eq!(granted(&mut budget, &settings, 20, at(0)), 10);
        assert_eq!(budget.next_at(&settings, at(0)), Some(at(100)));
        assert_eq!(budget.next_at(&settings, at(40)), Some(at(100)));
        assert_eq!(granted(&mut budget, &settings, 20, at(99)), 0);
        assert_eq!(granted(&mut budget, &settings, 20, at(100)), 1);
        assert_eq!(granted(&mut budget, &settings, 20, at(60_000)), 10);
    }

    #[test]
    fn outage_adds_a_fifth_of_the_load() {
        // 1000 requests per second, all of which fail and would be resent four times.
        let settings = BudgetSettings::default();
        let mut budget = RetryBudget::new(&settings, at(0));
        let mut retries = 0;
        for millis in 0..60_000 {
            budget.deposit(&settings, at(millis));
            retries += granted(&mut budget, &settings, 4, at(millis));
        }
        assert!((12_600..12_620).contains(&retries), "{retries}");
    }

    #[test]
    fn clock_step_back_grants_nothing() {
        let settings = settings("1", "10");
        let mut budget = RetryBudget::new(&settings, at(100_000));
        budget.deposit(&settings, at(100_000));
        assert_eq!(granted(&mut budget, &settings, 20, at(50_000)), 11);
        assert_eq!(granted(&mut budget, &settings, 20, at(100_000)), 0);
        assert_eq!(granted(&mut budget, &settings, 20, at(100_100)), 1);
    }

    #[test]
    fn accepts_first_and_last_timestamp() {
        let settings = settings("10", "1000000");
        let mut budget = RetryBudget::new(&settings, Timestamp::ZERO);
        budget.deposit(&settings, Timestamp::MAX);
        assert!(budget.withdraw(&settings, Timestamp::MAX));
        assert!(budget.withdraw(&settings, Timestamp::ZERO));
        assert_eq!(
            budget.next_at(&settings, Timestamp::MAX),
            Some(Timestamp::MAX)
        );
    }

    #[test]
    fn size_is_bounded() {
        assert_eq!(size_of::<RetryBudget>(), 104);
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Request,
        Retry,
        Pass(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Request),
            8 => Just(Event::Retry),
            2 => (1_u64..300).prop_map(Event::Pass),
            1 => (300_u64..12_000).prop_map(Event::Pass),
        ]
    }

    proptest! {
        #[test]
        fn bounds_retries_in_any_interval_and_grants_the_minimum(
            events in prop::collection::vec(event(), 1..400),
            ratio in 0_u64..30,
            minimum in 0_u32..6,
        ) {
            let settings = settings(&format!("{}", ratio as f64 / 10.0), &minimum.to_string());
            let mut budget = RetryBudget::new(&settings, at(0));
            let (mut now, mut requests, mut retries) = (0_u64, Vec::new(), Vec::new());
            for event in events {
                match event {
                    Event::Pass(millis) => now += millis,
                    Event::Request => {
                        budget.deposit(&settings, at(now));
                        requests.push(now);
                    }
                    Event::Retry => {
                        let forecast = budget.next_at(&settings, at(now));
                        if budget.withdraw(&settings, at(now)) {
                            prop_assert_eq!(forecast, Some(at(now)));
                            retries.push(now);
                        } else {
                            // A whole second, both ends included.
                            let recent = retries.iter().filter(|t| **t + 1000 >= now).count();
                            prop_assert!(recent >= minimum as usize, "refused after {recent}");
                            if let Some(next) = forecast {
                                prop_assert!(next > at(now));
                                let mut later = budget;
                                prop_assert!(later.withdraw(&settings, next));
                            }
                        }
                    }
                }
            }
            for (i, start) in retries.iter().enumerate() {
                for (j, end) in retries.iter().enumerate().skip(i) {
                    let paying = requests.iter().filter(|t| **t + 10_000 >= *start && *t <= end);
                    let seconds = (end - start) as f64 / 1000.0;
                    let bound = paying.count() as f64 * settings.ratio()
                        + f64::from(minimum) * (seconds + 1.0);
                    let count = (j - i + 1) as f64;
                    prop_assert!(count <= bound + 1e-6, "{count} in {seconds} s, bound {bound}");
                }
            }
        }
    }
}
