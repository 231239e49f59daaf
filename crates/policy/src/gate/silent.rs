//! Finds out when a window begins, if the server does not tell.
//!
//! A server that refuses everything for a while and then accepts again has a window that began between the
//! last request it refused and the first it accepted. Two beginnings give its length. From then on, a
//! refusal means that the window is used up until the next one begins, as if the server had named the wait,
//! and what it accepts is [counted](super::counted).
//!
//! The length is known only roughly at first. Then the next request is sent in the middle of the time in
//! which the window may begin, which halves it. To come too late costs nothing as long as the window is
//! still used up.

use std::time::Duration;

use super::{Gate, GateSettings, Permit, counted};
use crate::hint::Source;
use crate::rate::{Coarse, Moment, Reaction, Signal};

/// A window began after the first of these, and no later than the second.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    after: Coarse,
    by: Coarse,
}

/// From one beginning to the next takes between so many seconds; `most` is infinite before it is measured.
#[derive(Clone, Copy, Debug)]
struct Period {
    least: f32,
    most: f32,
}

/// What the server refuses since a window was used up.
#[derive(Clone, Copy, Debug)]
struct UsedUp {
    since: Coarse,
    /// The request that was refused first.
    number: u32,
    /// When the one that was refused last had been sent.
    sent: Coarse,
    refusals: u16,
    /// When the next window begins and how many windows after the present one, if the period is known.
    next: Option<(Beginning, u16)>,
}

/// The window of a server that does not tell when the next one begins, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SilentWindow {
    /// When the present window began; none before a beginning was seen.
    began: Option<Beginning>,
    /// The request that was admitted last before.
    before: u32,
    /// What the last window that was used up had accepted; zero if that is unknown.
    accepted: u32,
    period: Period,
    /// Windows are counted from this one on.
    first: Option<Beginning>,
    windows: u16,
    /// How many beginnings were seen without a period.
    seen: u8,
    /// Whether nothing was accepted after half of the period. Otherwise it is that of two windows or more.
    is_checked: bool,
    used_up: Option<UsedUp>,
}

impl Period {
    const UNKNOWN: Self = Self {
        least: 0.0,
        most: f32::INFINITY,
    };

    /// Whether a beginning after this time cannot be that of the second window.
    fn is_known(self) -> bool {
        self.most < 2.0 * self.least
    }

    fn is_exact(self) -> bool {
        self.most - self.least < EXACT * self.most
    }

    /// What agrees with both. Servers have windows of whole seconds, so of those that are possible it is
    /// one.
    fn and(self, least: f64, most: f64) -> Self {
        let (least, most) = (self.least.max(narrow(least)), self.most.min(narrow(most)));
        let whole = Self {
            least: (least - MAX_DELAYED).ceil(),
            most: (most + MAX_DELAYED).floor(),
        };
        match whole.least <= whole.most {
            true => whole,
            false => Self { least, most },
        }
    }
}

impl SilentWindow {
    /// The server refuses everything since this request.
    fn new(used_up: UsedUp) -> Self {
        Self {
            began: None,
            before: 0,
            accepted: 0,
            period: Period::UNKNOWN,
            first: None,
            windows: 0,
            seen: 0,
            is_checked: false,
            used_up: Some(used_up),
        }
    }

    fn forget(&mut self) {
        self.period = Period::UNKNOWN;
        self.began = None;
        self.is_checked = false;
    }

    /// Whether the next request shows that a window has begun.
    pub(super) fn is_next_uncertain(&self) -> bool {
        self.used_up.is_some_and(|used_up| used_up.next.is_some())
    }

    /// A request was refused. Returns when the next one should be sent, if the period is known.
    fn refused(&mut self, refusal: UsedUp) -> Option<Coarse> {
        let Some(mut used_up) = self.used_up else {
            let accepted = self.admitted_before(refusal.number);
            if self.began.is_some() && accepted < 0 {
                // It had been sent when the window before was used up.
                return None;
            }
            if self.has_overflowed(refusal.sent) {
                self.forget();
            }
            let next = self.next_after(refusal.sent);
            self.used_up = Some(UsedUp { next, ..refusal });
            let (next, windows) = next?;
            if windows == 1 {
                self.accepted = accepted.unsigned_abs();
            }
            let check = self.time_to_check().filter(|check| {
                check.seconds_since(refusal.sent) > 0.0 && next.after.seconds_since(*check) > 0.0
            });
            return Some(check.unwrap_or_else(|| self.time_to_try(next)));
        };
        used_up.sent = refusal.sent;
        used_up.refusals = used_up.refusals.saturating_add(1);
        if let Some((next, _)) = &mut used_up.next {
            next.after = next.after.later(refusal.sent);
            self.is_checked = true;
            if next.by.seconds_since(refusal.sent) <= 0.0 {
                // It should have begun.
                used_up.next = None;
                self.forget();
            }
        }
        self.used_up = Some(used_up);
        used_up.next.map(|(next, _)| self.time_to_try(next))
    }

    /// Whether the window began so many weeks ago that it seems to be in the future.
    fn has_overflowed(&self, now: Coarse) -> bool {
        let seconds = self.began.map(|began| now.seconds_since(began.by));
        seconds.is_some_and(|seconds| seconds < -f64::from(MAX_PERIOD_SECONDS))
    }

    /// Requests of the present window that were admitted before this one; negative if it is not of this
    /// window.
    fn admitted_before(&self, number: u32) -> i32 {
        number.wrapping_sub(self.before).cast_signed() - 1
    }

    /// The next beginning after a refused request, and how many windows after the present one it is: others
    /// have begun unnoticed if they were not used up.
    fn next_after(&self, refused: Coarse) -> Option<(Beginning, u16)> {
        let began = self.began.filter(|_| self.period.is_known())?;
        let (least, most) = (f64::from(self.period.least), f64::from(self.period.most));
        let passed = (refused.seconds_since(began.by) / most).floor().max(0.0);
        let windows = passed + 1.0;
        let next = Beginning {
            after: began.after.after_seconds(windows * least).later(refused),
            by: began.by.after_seconds(windows * most),
        };
        Some((next, whole(windows)))
    }

    /// When a request tells most about the beginning of the next window, without passing that of another.
    fn time_to_try(&self, next: Beginning) -> Coarse {
        let least = f64::from(self.period.least);
        let seconds = next.by.seconds_since(next.after).clamp(0.0, least);
        match seconds > UNKNOWN_SHARE * least {
            true => next.after.after_seconds(0.5 * seconds),
            false => next.by,
        }
    }

    /// When a request shows whether the period is that of several windows, if this is not known yet.
    fn time_to_check(&self) -> Option<Coarse> {
        let began = self.began.filter(|_| !self.is_checked)?;
        Some(began.by.after_seconds(0.5 * f64::from(self.period.most)))
    }

    /// Until when nothing is accepted, if this is known although the period is not.
    fn refuses_until(&self) -> Option<Coarse> {
        let began = self.began?;
        Some(began.after.after_seconds(f64::from(self.period.least)))
    }

    /// A request was accepted, the first one since the window was used up. If it may be the first of a window
    /// that tells the period, returns for how many seconds everything had been refused.
    fn accepted(&mut self, permit: &Permit, rate: f64) -> Option<f64> {
        let used_up = self.used_up.take()?;
        let sent = Coarse::of(permit.admitted_at);
        let accepted = self.admitted_before(used_up.number);
        self.before = permit.number.wrapping_sub(1);
        if let Some((next, windows)) = used_up.next {
            if next.after.seconds_since(sent) > 0.0 {
                // It began too early.
                self.forget();
                return None;
            }
            let by = next.by.min(sent);
            self.windows = self.windows.saturating_add(windows);
            self.seen = 0;
            self.began = Some(Beginning { by, ..next });
            self.measure();
            return None;
        }
        let refused_for = sent.seconds_since(used_up.since);
        let is_window = used_up.refusals >= MIN_REFUSALS
            && refused_for >= MIN_REFUSED_SECONDS
            && refused_for * rate >= MIN_REFUSED_REQUESTS
            && accepted >= MIN_ACCEPTED
            && self.seen < MAX_SEEN;
        if !is_window {
            self.forget();
            return None;
        }
        let last = std::mem::replace(&mut self.accepted, accepted.unsigned_abs());
        let is_same = counted::is_same(last, self.accepted);
        self.seen += 1;
        let began = Beginning {
            after: used_up.sent,
            by: sent,
        };
        self.measure_from_last(began, is_same, &used_up);
        Some(refused_for)
    }

    /// Measures the period as the time since the window before began, if none has begun unnoticed since. None
    /// has if everything was refused for longer than the window took to be used up, or if it accepted the same
    /// as the one before.
    fn measure_from_last(&mut self, began: Beginning, is_same: bool, used_up: &UsedUp) {
        let refused_for = used_up.sent.seconds_since(used_up.since);
        let last = self.began.replace(began);
        let last =
            last.filter(|last| is_same || used_up.since.seconds_since(last.by) <= refused_for);
        match last {
            Some(last) => {
                self.first = Some(last);
                self.windows = 1;
                self.measure();
            }
            None => self.period = Period::UNKNOWN.and(refused_for, f64::INFINITY),
        }
    }

    /// Measures the period as the mean of all since the first.
    fn measure(&mut self) {
        let (Some(first), Some(began)) = (self.first, self.began) else {
            return;
        };
        let windows = f64::from(self.windows);
        let least = began.after.seconds_since(first.by) / windows;
        let most = began.by.seconds_since(first.after) / windows;
        self.period = self.period.and(least, most);
        let is_possible = self.period.least <= self.period.most;
        let seconds = MIN_PERIOD_SECONDS..=MAX_PERIOD_SECONDS;
        if !is_possible || !seconds.contains(&self.period.most) {
            self.forget();
        } else if self.windows >= MAX_WINDOWS {
            (self.first, self.windows) = (Some(began), 0);
        }
    }
}

impl Gate {
    /// Learns from a refusal that names no wait.
    pub(super) fn learn_silent_refusal(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        moment: Moment,
    ) -> Option<Reaction> {
        let now = Coarse::of(moment.now);
        let refusal = UsedUp {
            since: now,
            number: permit.number,
            sent: Coarse::of(permit.admitted_at),
            refusals: 1,
            next: None,
        };
        if self.silent().is_none() && self.adaptive.is_refused() {
            // The refusal before was the first.
            let number = permit.number.wrapping_sub(1);
            let window = SilentWindow::new(UsedUp { number, ..refusal });
            self.change_extras(|extras| extras.silent = Some(window));
        }
        let next = self.silent_mut().and_then(|window| window.refused(refusal));
        match next {
            Some(next) => self.wait_for_window(settings, permit, next, moment),
            None => Some(self.search_beginning(settings, moment)),
        }
    }

    /// The period of the window is unknown, so requests one at a time find its beginning.
    fn search_beginning(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let signal = Signal::Refused { wait: None };
        let reaction = crate::rate::react(settings, &mut self.adaptive, signal, moment);
        let now = Coarse::of(moment.now);
        let Some((window, used_up)) = self
            .silent()
            .and_then(|window| window.refuses_until().zip(window.used_up))
        else {
            return reaction;
        };
        let left = window.seconds_since(now);
        let wait = match left > 1.0 {
            true => left,
            // Less would cost refusals, and more would miss a window.
            false => (0.5 * now.seconds_since(used_up.since)).clamp(0.5, 10.0),
        };
        Reaction {
            assumed_wait: Some(Duration::from_secs_f64(wait)),
            ..reaction
        }
    }

    fn wait_for_window(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        next: Coarse,
        moment: Moment,
    ) -> Option<Reaction> {
        let window = *self.silent()?;
        let wait = next
            .seconds_since(Coarse::of(moment.now))
            .max(MIN_WAIT_SECONDS);
        let wait = Duration::from_secs_f64(wait);
        self.hold(moment.now + wait, Source::Counted);
        if window.used_up.is_some_and(|used_up| used_up.refusals > 1) {
            // It was sent before the window began, and shows nothing else.
            let admitted = self.admitted;
            if let Some(counted) = self.counted_mut() {
                counted.begin_at(next, admitted);
            }
            self.adaptive.follow_window(next, moment);
            self.begin_epoch();
            return None;
        }
        let mut reaction = self.learn_named_wait(settings, permit, wait, true, moment)?;
        if let Some((rate, _)) = &mut reaction.rate
            && !window.period.is_exact()
        {
            let quick = TIMES_SOONER * f64::from(window.accepted) / f64::from(window.period.most);
            *rate = rate.max(quick.min(moment.rate));
            self.adaptive.set_window_rate(*rate);
        }
        Some(reaction)
    }

    /// Learns from a success whether it is the first one of a window. Returns whether the rate has been
    /// chosen for that.
    pub(super) fn learn_beginning(
        &mut self,
        settings: &GateSettings,
        permit: &Permit,
        moment: Moment,
    ) -> bool {
        let Some(window) = self.silent_mut().filter(|window| window.used_up.is_some()) else {
            return false;
        };
        let refused_for = window.accepted(permit, moment.rate);
        let window = *window;
        if let Some(began) = window.began
            && window.period.is_known()
            && let Some(counted) = self.counted_mut()
        {
            counted.align(began.by, window.period.most, permit.number.wrapping_sub(1));
        }
        if let Some(seconds) = refused_for {
            self.begin_window(settings, &window, seconds, moment);
        }
        refused_for.is_some()
    }

    /// A window has begun whose period is to be measured. So it should be used up soon, but with few requests
    /// in flight at its end.
    fn begin_window(
        &mut self,
        settings: &GateSettings,
        window: &SilentWindow,
        seconds: f64,
        moment: Moment,
    ) {
        let Some(began) = window.began else { return };
        let quick = TIMES_SOONER * f64::from(window.accepted) / seconds;
        let rate = (10.0 * moment.rate).sqrt().max(quick).min(moment.rate);
        let rate = rate.max(settings.min_rate);
        let reaction = self.adaptive.begin_window(began.by, rate, moment);
        self.apply(settings, reaction, moment.now);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits of seconds suffice"
)]
fn narrow(seconds: f64) -> f32 {
    seconds as f32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole positive number; more than 65,535 are as many"
)]
fn whole(windows: f64) -> u16 {
    windows as u16
}

/// Fewer refusals in a row, or for a shorter time, may be those of a bucket that others use too. To measure shorter
/// windows would cost requests their attempts.
const MIN_REFUSALS: u16 = 3;
const MIN_REFUSED_SECONDS: f64 = 5.0;
const MIN_REFUSED_REQUESTS: f64 = 5.0;
/// A bucket accepts one request after a refusal, so fewer say little.
const MIN_ACCEPTED: i32 = 10;
/// After so many beginnings without a period, the rate follows what is accepted in all.
const MAX_SEEN: u8 = 4;

/// Shorter windows begin before much is lost.
const MIN_PERIOD_SECONDS: f32 = 5.0;
/// The beginning of a longer one is asked for every ten seconds, because to be wrong would cost too long a wait.
const MAX_PERIOD_SECONDS: f32 = 3600.0;
/// What a request may take on its way, in seconds: beginnings are those at the server.
const MAX_DELAYED: f32 = 0.05;
/// As many are the mean of; over more, times in milliseconds would overflow.
const MAX_WINDOWS: u16 = 100;
/// The beginning is searched as long as it is not known to this share of the period.
const UNKNOWN_SHARE: f64 = 0.05;
const EXACT: f32 = 0.02;
/// As long as the beginning is not known, a window is used up so many times sooner than at its end, because the
/// client may come late.
const TIMES_SOONER: f64 = 3.0;
/// A window begins no sooner than this after a refusal.
const MIN_WAIT_SECONDS: f64 = 0.05;
