//! Counts what a window accepts, if the server tells only when the next one begins.
//!
//! A window that is used up after the same number of requests as the one before, at another speed, will
//! accept as many the next time. So the gate stops there until the next one begins, instead of being
//! refused at the end of each. From time to time it tries more, a few requests one at a time: then a
//! single refusal tells that the number is still right.
//!
//! If others use much of the window, what it accepts of this client depends on how fast the client is, and
//! the gate does not stop. The gate's rate tells only how fast a client could be: one that waits for each
//! response may be slower.

use std::time::Duration;

use super::{Gate, GateSettings, Permit};
use crate::hint::Source;
use crate::rate::{Coarse, Moment, Reaction, Rough, Signal};
use crate::time::Timestamp;

/// The window of a server, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedWindow {
    /// The request that was admitted last before the present window began.
    before: u32,
    /// When the present window began, or begins.
    begins: Coarse,
    /// From one beginning to the next, in seconds; zero until two are known.
    period: f32,
    /// What the last window that was used up had accepted.
    accepted: u32,
    /// How fast this client used it up, per second.
    speed: Rough,
    /// Whether two in a row accepted that at different speeds, so that the gate stops there.
    is_known: bool,
    /// The gate tries more after so many windows.
    tries_in: u8,
}

/// What a refusal with a named wait means.
enum Refusal {
    /// No more than is known of the window.
    Expected,
    /// The window is used up, although the wait is short.
    UsedUp,
    /// Nothing about a window that is known.
    Other,
}

impl CountedWindow {
    /// After the first window that was used up; it began before anything was counted.
    fn first(begins: Coarse, admitted: u32) -> Self {
        Self {
            before: admitted,
            begins,
            period: 0.0,
            accepted: 0,
            speed: Rough::ZERO,
            is_known: false,
            tries_in: 0,
        }
    }

    /// The server refused request `number`. The next window begins then, with the first request after
    /// `admitted`. Returns whether it was used up about as fast as the last one, so that it shows nothing.
    fn used_up(&mut self, number: u32, now: Timestamp, begins: Coarse, admitted: u32) -> bool {
        let accepted = self.sent_before(number);
        let speed = f64::from(accepted) / self.begins.seconds_until(now).max(0.1);
        let is_repeated = (speed / self.speed.get() - 1.0).abs() < OTHER_SPEED;
        let period = self.period_until(begins);
        if self.is_known {
            self.accepted = accepted;
        } else if self.is_same(accepted) && !is_repeated && self.is_period(period) {
            // Servers round the wait up to whole seconds. A mean of two is wrong by less than half of one.
            self.period = (0.5 * (self.period + period)).round();
            self.accepted = self.accepted.min(accepted);
            self.is_known = true;
        } else {
            self.period = period;
            self.accepted = accepted;
            self.speed = Rough::of(speed);
        }
        self.tries_in = windows_between_tries(self.accepted, self.period);
        self.begin_at(begins, admitted);
        is_repeated
    }

    /// The present window of so many seconds began with the first request after `admitted`.
    pub(super) fn align(&mut self, begins: Coarse, period: f32, admitted: u32) {
        self.begin_at(begins, admitted);
        self.period = period;
    }

    pub(super) fn begin_at(&mut self, begins: Coarse, admitted: u32) {
        self.begins = begins;
        self.before = admitted;
    }

    /// Begins the present window with request `number`, if the last one is over.
    fn follow(&mut self, number: u32, now: Timestamp) -> bool {
        let period = f64::from(self.period);
        let windows = (Coarse::of(now).seconds_since(self.begins) / period).floor();
        if windows < -1.0 {
            // Times have overflowed in weeks without a request.
            self.begin_at(Coarse::of(now), number.wrapping_sub(1));
            return true;
        }
        if windows < 1.0 {
            return false;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole positive number; more than 255 are as many"
        )]
        let passed = windows as u8;
        self.tries_in = self.tries_in.saturating_sub(passed);
        let begins = self.begins.after_seconds(windows * period);
        self.begin_at(begins, number.wrapping_sub(1));
        true
    }

    /// Requests of the present window that were sent before this one.
    fn sent_before(&self, number: u32) -> u32 {
        number.wrapping_sub(self.before).wrapping_sub(1)
    }

    /// How many more requests than a window accepts there are with this one; negative if fewer.
    fn excess(&self, number: u32) -> i32 {
        let sent = self.sent_before(number).wrapping_add(1);
        sent.wrapping_sub(self.accepted).cast_signed()
    }

    fn is_same(&self, accepted: u32) -> bool {
        is_same(self.accepted, accepted)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "seven digits of seconds suffice"
    )]
    fn period_until(&self, begins: Coarse) -> f32 {
        begins.seconds_since(self.begins) as f32
    }

    fn is_period(&self, seconds: f32) -> bool {
        (seconds - self.period).abs() <= 2.0 * MAX_ROUNDED_SECONDS
    }

    /// What request `number` learns from being refused until the next window begins.
    fn judge(&mut self, number: u32, wait: Duration, now: Timestamp, admitted: u32) -> Refusal {
        let begins = Coarse::of(now + wait);
        let sent = self.sent_before(number);
        if self.is_known && self.is_same(sent) {
            self.used_up(number, now, begins, admitted);
            return Refusal::Expected;
        }
        if self.is_known && sent == 0 && wait <= MAX_EARLY {
            // The window begins a little later than was computed.
            self.begin_at(begins, admitted);
            return Refusal::Expected;
        }
        self.is_known = false;
        let is_window =
            self.period >= MIN_PERIOD_SECONDS && self.is_period(self.period_until(begins));
        match is_window && sent >= MIN_ACCEPTED {
            true => Refusal::UsedUp,
            false => Refusal::Other,
        }
    }
}

/// Whether two windows accepted the same.
pub(super) fn is_same(one: u32, other: u32) -> bool {
    one > 0 && other.abs_diff(one) <= one / TOLERANCE
}

impl Gate {
    /// Learns from a refusal that names a wait, or that of a silent window, which certainly is a window.
    pub(super) fn learn_named_wait(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        wait: Duration,
        is_window: bool,
        moment: Moment,
    ) -> Option<Reaction> {
        let now = moment.now;
        let (begins, admitted) = (Coarse::of(now + wait), self.admitted);
        let refusal = match self.counted_mut() {
            Some(window) => window.judge(permit.number, wait, now, admitted),
            None => Refusal::Other,
        };
        let signal = match refusal {
            Refusal::Expected => {
                self.adaptive.follow_window(begins, moment);
                self.begin_epoch();
                return None;
            }
            Refusal::Other if !is_window => Signal::Refused { wait: Some(wait) },
            Refusal::UsedUp | Refusal::Other => Signal::UsedUp {
                wait,
                refused: true,
            },
        };
        let mut reaction = crate::rate::react(settings, &mut self.adaptive, signal, moment);
        if reaction.is_window
            && let Some((rate, _)) = &mut reaction.rate
        {
            let counted = self.count_window(permit, begins, now, *rate);
            *rate = counted.max(settings.min_rate);
        }
        Some(reaction)
    }

    /// Counts what a window accepted. Returns the rate for the next one, which is lower if that is needed to
    /// tell whether others use the window too.
    fn count_window(&mut self, permit: &Permit, begins: Coarse, now: Timestamp, rate: f64) -> f64 {
        let admitted = self.admitted;
        let Some(window) = self.counted_mut() else {
            let first = CountedWindow::first(begins, admitted);
            self.change_extras(|extras| extras.counted = Some(first));
            return rate;
        };
        if window.used_up(permit.number, now, begins, admitted) && !window.is_known {
            let slower = rate.min(window.speed.get()) * (1.0 - 1.5 * OTHER_SPEED);
            self.adaptive.set_window_rate(slower);
            return slower;
        }
        rate
    }

    /// What a window accepts, if that is known: then there is no reason to raise the rate.
    pub(super) fn window_accepts(&self) -> Option<u32> {
        let window = self.counted().filter(|window| window.is_known)?;
        Some(window.accepted)
    }

    /// Whether the next request is one more than a window accepted before.
    pub(super) fn is_trying_more(&self) -> bool {
        self.counted().is_some_and(|window| {
            let is_next = (0..MAX_TRIED).contains(&window.excess(self.admitted));
            window.is_known && window.tries_in == 0 && is_next
        })
    }

    /// Holds the gate if the last request of the window has just been admitted.
    pub(super) fn follow_counted_window(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        now: Timestamp,
    ) {
        let number = permit.number;
        let Some(window) = self.counted_mut().filter(|window| window.is_known) else {
            return;
        };
        let has_begun = window.follow(number, now);
        let window = *window;
        if has_begun {
            let moment = self.moment(settings, permit, now);
            let admitted = number.wrapping_sub(1);
            self.adaptive
                .follow_window(window.begins, Moment { admitted, ..moment });
        }
        let excess = window.excess(number);
        if window.tries_in > 0 && excess >= 0 {
            let next = window.begins.after_seconds(f64::from(window.period));
            let wait = next.seconds_since(Coarse::of(now));
            self.hold(now.after_seconds(wait), Source::Counted);
        } else if excess > window.accepted.cast_signed() / TOLERANCE.cast_signed() + MAX_TRIED {
            // More is accepted than before. How much is counted again.
            if let Some(window) = self.counted_mut() {
                window.is_known = false;
            }
        }
    }
}

/// For how many windows a gate does not try more: one in fifty requests may be refused, and one in half a
/// minute; but no more than ten windows, or those of five minutes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive numbers up to 255"
)]
fn windows_between_tries(accepted: u32, period: f32) -> u8 {
    let in_seconds = |seconds: f32| (seconds / period.max(1.0)).ceil() as u8;
    let by_requests = (50 / accepted.max(1)).min(10) as u8;
    let by_time = in_seconds(30.0).saturating_sub(1);
    by_requests.min(in_seconds(300.0)).max(by_time)
}

/// So many requests more than a window accepted before are sent one at a time.
const MAX_TRIED: i32 = 4;
/// Numbers are the same if they differ by no more than one in so many: before the number is known, several
/// requests are refused at the end, and not always the first of them is the first response.
const TOLERANCE: u32 = 64;
/// Speeds are different if one is higher by this share.
const OTHER_SPEED: f64 = 0.25;
/// What a server may add to the wait it names.
const MAX_ROUNDED_SECONDS: f32 = 1.0;
/// A request that comes just before the window begins is refused for no longer than this.
const MAX_EARLY: Duration = Duration::from_secs(2);
/// Shorter windows cannot be told from buckets by the waits that the server names, nor can fewer requests.
const MIN_PERIOD_SECONDS: f32 = 5.0;
const MIN_ACCEPTED: u32 = 10;
