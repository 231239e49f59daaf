//! How many retries there may be at all.
//!
//! Attempts bound the retries of one item, but not their sum. When an upstream fails, five sends per
//! item are five times the load, at the worst moment. A budget
//! bounds the sum: a retry is paid for by ordinary requests, `ratio` of a retry each, or comes out
//! of a minimum that is always there, so that callers that send little may retry too.
//!
//! The minimum is a token bucket of `min_per_second` that holds one second's worth: as long as
//! fewer than `min_per_second` retries were granted in the last second, the next is granted. What
//! requests pay in is worth something for ten seconds: an hour of success must not pay for a storm
//! afterwards. Ten slices of a second keep it, so the size is fixed and every call takes the same
//! few steps. All arithmetic is in whole numbers; a ratio of 0.1 and ten requests are one retry.
//!
//! A retry that is refused may wait until [`RetryBudget::next_at`]; that uses no attempt up, for
//! nothing was sent. Otherwise the last response is passed on.
//!
//! What follows, and is tested: in any stretch of `t` seconds at most `ratio ·` (requests in it and
//! in the ten seconds before it) `+ min_per_second · (t + 1)` retries are granted.

use std::time::Duration;

use crate::setting::{Kind, Options, SettingErrors};
use crate::time::Timestamp;

crate::settings! {
    /// What was written about the budget; `None` leaves the default.
    pub struct BudgetOptions;
    /// All values of a budget.
    pub(crate) struct BudgetValues(pub(crate)) {
        /// Retries per ordinary request.
        // One retry for five requests: an outage costs the upstream a fifth more load, not four
        // times more.
        ratio: f64 = "0.2", Kind::number("a number of retries per request", 0.0, 10.0);
        /// This many retries a second are always allowed, so that little traffic can retry too.
        // Ten a second are no load for any server, and plenty for a caller with few requests.
        min_per_second: u32 = "10", Kind::whole(0, 1_000_000);
    }
}

impl BudgetOptions {
    /// Fits everything together.
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
    /// What a request pays in, in millionths of a retry.
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

/// What one retry costs, in the unit of what requests pay in.
const RETRY: u64 = 1_000_000;

/// How many retries may still be sent, for one key. Its owner reports every ordinary request and
/// asks before every retry.
///
/// ```
/// use policy::budget::{BudgetSettings, RetryBudget};
/// use policy::time::Timestamp;
///
/// let settings = BudgetSettings::default();
/// let now = Timestamp::ZERO;
/// let mut budget = RetryBudget::new(&settings, now);
/// for _ in 0..10 {
///     assert!(budget.withdraw(&settings, now), "ten a second are always there");
/// }
/// assert!(!budget.withdraw(&settings, now));
/// for _ in 0..5 {
///     budget.deposit(&settings, now);
/// }
/// assert!(budget.withdraw(&settings, now), "five requests pay for one more");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// What is left of the minimum, in thousand-millionths of a retry.
    minimum: u64,
    /// When the minimum was last counted.
    counted: Timestamp,
    /// What requests paid in and no retry has used yet, by second, in millionths of a retry.
    paid: [u64; SLICES],
    /// The number of the latest second that `paid` knows, counted from the clock's origin.
    latest: u64,
}

impl RetryBudget {
    /// A budget with a full minimum and nothing paid in.
    pub fn new(settings: &BudgetSettings, now: Timestamp) -> Self {
        Self {
            minimum: most(settings),
            counted: now,
            paid: [0; SLICES],
            latest: second(now),
        }
    }

    /// An ordinary request was sent: a first attempt, not a retry.
    pub fn deposit(&mut self, settings: &BudgetSettings, now: Timestamp) {
        self.pass(settings, now);
        let slice = &mut self.paid[slice(self.latest)];
        *slice = slice.saturating_add(settings.per_request);
    }

    /// May one more retry be sent? If so, it is paid for: out of the minimum first, which comes
    /// back by itself, then out of what is oldest, which is lost soonest.
    pub fn withdraw(&mut self, settings: &BudgetSettings, now: Timestamp) -> bool {
        self.pass(settings, now);
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

    /// When the next retry is there if no request pays for it: `now` if one is there already,
    /// `None` if the minimum is zero.
    pub fn next_at(&self, settings: &BudgetSettings, now: Timestamp) -> Option<Timestamp> {
        let mut then = *self;
        then.pass(settings, now);
        if then.minimum >= WHOLE || then.paid_in() >= RETRY {
            return Some(now);
        }
        let rate = u64::from(settings.min_per_second);
        let missing = WHOLE - then.minimum;
        (rate > 0).then(|| now + Duration::from_nanos(missing.div_ceil(rate)))
    }

    /// Whole retries that could be granted at once.
    pub fn available(&self, settings: &BudgetSettings, now: Timestamp) -> u64 {
        let mut then = *self;
        then.pass(settings, now);
        then.minimum / WHOLE + then.paid_in() / RETRY
    }

    /// Lets time do what it does: the minimum comes back, old payments are lost. A clock that
    /// steps back changes nothing.
    fn pass(&mut self, settings: &BudgetSettings, now: Timestamp) {
        let nanos = now.as_nanos().saturating_sub(self.counted.as_nanos());
        // A rate per second is as many thousand-millionths per nanosecond.
        let back = nanos.saturating_mul(u64::from(settings.min_per_second));
        self.minimum = self.minimum.saturating_add(back).min(most(settings));
        self.counted = self.counted.max(now);
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

/// For how many seconds a payment counts. Long enough for an item that backs off once or twice,
/// short against an outage.
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

    /// How many of `asked` retries are granted at once.
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
    fn bad_settings_are_refused_with_what_could_be() {
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
    fn requests_pay_for_retries_exactly() {
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
    fn the_oldest_payment_is_used_first() {
        let settings = settings("1", "0");
        let mut budget = RetryBudget::new(&settings, at(0));
        budget.deposit(&settings, at(0));
        budget.deposit(&settings, at(5000));
        assert!(budget.withdraw(&settings, at(5000)));
        assert_eq!(budget.available(&settings, at(10_000)), 1);
    }

    #[test]
    fn the_minimum_comes_back_at_its_rate() {
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
    fn an_outage_is_not_multiplied() {
        // 1000 requests a second, every one of which fails and would be sent four times more.
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
    fn a_clock_that_steps_back_gives_nothing() {
        let settings = settings("1", "10");
        let mut budget = RetryBudget::new(&settings, at(100_000));
        budget.deposit(&settings, at(100_000));
        assert_eq!(granted(&mut budget, &settings, 20, at(50_000)), 11);
        assert_eq!(granted(&mut budget, &settings, 20, at(100_000)), 0);
        assert_eq!(granted(&mut budget, &settings, 20, at(100_100)), 1);
    }

    #[test]
    fn the_ends_of_time_are_ordinary_instants() {
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
    fn it_is_small() {
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
        fn retries_are_bounded_in_any_stretch_and_the_minimum_is_always_granted(
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
                            let lately = retries.iter().filter(|t| **t + 1000 >= now).count();
                            prop_assert!(lately >= minimum as usize, "refused after {lately}");
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
