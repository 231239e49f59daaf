//! What a refusal means for the rate: which limit there is, and whether others use it too.
//!
//! **Buckets.** Between two refusals a bucket accepted what its limit gave: n requests in t seconds.
//! A bucket that saves no tokens gave more, which was lost while the rate was below the limit. Then
//! the limit is between the last confirmed ceiling and the refused rate, and the strategy bisects. It
//! finds out which kind it is: a guess that is refused is measured again, a guess that holds was
//! right.
//!
//! **Windows.** If the server refuses everything for a while, or names a wait of seconds, its window
//! is used up, and lowering the rate does not help. One request at a time finds out when it opens
//! again. Then the rate is what was accepted from one opening to the next. If the server names the
//! time, the rate is chosen so that the window is used up well before its end; and rates of clients
//! that share a window approach each other, because a lower rate is raised by more. If it also tells
//! the quota in headers, the gate stops in time, and this is for quotas that others use too.
//!
//! **Sharing.** Alone, a client is refused when it probes, always at the same place. Refusals at
//! other places indicate other clients. Then every refusal lowers the rate by the same share, and
//! growth is the same for all, so that shares become equal.
//!
//! **Bans.** Servers ban clients that are refused too often, so a cluster of refusals is followed by
//! a longer stay. After a ban the rate never exceeds half of what provoked it.

use std::time::Duration;

use super::super::{CeilingSource, Moment, Reaction, Why};
use super::coarse::{Coarse, Rough, narrow};
use super::{Adaptive, EAGER, MAX_PATIENCE, MIN_STRETCH_SECONDS, Phase, is_slow};
use crate::gate::GateSettings;
use crate::time::Timestamp;

/// What was sent between the last decrease and the refused request.
struct Sent {
    requests: f64,
    seconds: f64,
}

impl Sent {
    /// What the limit gave. The half is the expected rest of a token.
    fn per_second(&self) -> f64 {
        (self.requests + 0.5) / self.seconds
    }

    /// The same, but careful: from [`super::SLOW_RATE`] on, a ceiling that is a little too low costs less
    /// than another refusal, which may be the one that leads to a ban. With the half, 38 instead of 33 of
    /// 1400 random upstreams have less than 60 % of goodput.
    fn safe_per_second(&self, rate: f64) -> f64 {
        let rest = if is_slow(rate) { 0.5 } else { 0.25 };
        let measured = (self.requests + rest) / self.seconds;
        // Within milliseconds a handful of requests is no measurement; half of the rate is a fall
        // that repeats as often as it has to.
        match self.seconds < MIN_STRETCH_SECONDS {
            true => measured.max(0.5 * rate),
            false => measured,
        }
    }
}

impl Adaptive {
    /// The server refused and named no wait.
    pub(super) fn refused(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let nothing_accepted = self.streak >= 1;
        let refusals = if nothing_accepted {
            self.recent_refusals.get()
        } else {
            self.recent_refusals(moment.now)
        };
        self.recent_refusals = Rough::of((refusals + 1.0).min(MAX_RECENT_REFUSALS));
        self.latency.restart(moment.now);
        let (rate, wait) = if nothing_accepted {
            // It was refused, so it does not count as sent.
            self.fell_number = self.fell_number.wrapping_add(1);
            (moment.rate, Some(self.wait_while_closed(moment.rate)))
        } else {
            if self.source != CeilingSource::Window {
                self.period = Rough::of(0.7 * self.period.get());
            }
            let rate = self.fall(moment).max(settings.min_rate);
            self.fell_at = Coarse::of(moment.now);
            self.fell_number = moment.admitted;
            (rate, None)
        };
        self.streak = self.streak.saturating_add(1);
        Reaction {
            drain: true,
            assumed_wait: wait,
            ..Reaction::lower(rate, Why::Throttled)
        }
    }

    fn wait_while_closed(&self, rate: f64) -> Duration {
        let factor = 4f64.powi(i32::from(self.streak).min(20));
        let wait = (factor / rate).max(factor / 8.0);
        Duration::from_secs_f64(wait.min(MAX_ASSUMED_WAIT_SECONDS))
    }

    /// The server refused and named a wait.
    pub(super) fn directed(
        &mut self,
        settings: &GateSettings,
        wait: Duration,
        moment: Moment,
    ) -> Reaction {
        let wait = wait.as_secs_f64();
        // A wait costs more than a refusal, so the next probe comes later.
        let refusals = self.recent_refusals(moment.now) + 1.0 + 2.0 * wait;
        let is_window = self.is_window(wait, moment);
        let rate = if is_window {
            self.refused_at = Rough::of(moment.rate);
            self.pace_window(wait, moment)
        } else {
            let rate = self.fall(moment);
            // A bucket refills meanwhile, but a wait that was rounded up to a second is too long for
            // a fast one.
            let is_rounded = wait <= 1.0 && wait * rate >= 5.0;
            let from = if is_rounded { wait } else { 0.0 };
            self.fell_at = Coarse::of(moment.now.after_seconds(from));
            if is_rounded && self.is_shared() {
                self.period = Rough::of(SHORT_WAITS * wait);
            }
            rate
        };
        self.recent_refusals = Rough::of(refusals.min(MAX_RECENT_REFUSALS));
        self.fell_number = moment.admitted;
        self.latency.restart(moment.now);
        Reaction {
            is_window,
            ..Reaction::lower(rate.max(settings.min_rate), Why::Directed)
        }
    }

    /// A window whose requests are counted begins.
    pub(crate) fn follow_window(&mut self, begins: Coarse, moment: Moment) {
        self.opened_at = begins;
        self.opened_succeeded = moment.succeeded;
        self.fell_at = begins;
        self.fell_number = moment.admitted;
    }

    /// A quota that the server's headers tell is used up before its end, by others too or because the
    /// client was too fast to see it.
    pub(super) fn used_up(
        &mut self,
        settings: &GateSettings,
        wait: Duration,
        refused: bool,
        moment: Moment,
    ) -> Reaction {
        let seconds = wait.as_secs_f64();
        if seconds * moment.rate <= 3.0 {
            return match refused {
                true => self.directed(settings, wait, moment),
                false => Reaction::default(),
            };
        }
        if refused {
            self.refused_at = Rough::of(moment.rate);
            let refusals = self.recent_refusals(moment.now) + 1.0;
            self.recent_refusals = Rough::of(refusals.min(MAX_RECENT_REFUSALS));
        }
        let rate = self.pace_window(seconds, moment);
        self.fell_number = moment.admitted;
        self.latency.restart(moment.now);
        Reaction {
            is_window: refused,
            ..Reaction::lower(rate.max(settings.min_rate), Why::Directed)
        }
    }

    /// A bucket opens again for one request, a window for many.
    fn is_window(&self, wait: f64, moment: Moment) -> bool {
        let requests = self.sent(moment).requests;
        let is_new = self.phase == Phase::Searching && requests < 1.0;
        wait >= 5.0 && wait * moment.rate > 3.0 && (requests >= 3.0 || is_new)
    }

    /// The rate for a window that opens after `wait` seconds.
    ///
    /// At first it is unknown how long the window was open before. After that, the rate is changed by
    /// how long it took to use up the window, relative to a quarter of it, and raised by more the
    /// lower it is.
    fn pace_window(&mut self, wait: f64, moment: Moment) -> f64 {
        let opens_at = Coarse::of(moment.now.after_seconds(wait));
        let open = Coarse::of(moment.now)
            .seconds_since(self.opened_at)
            .max(0.1);
        let cycle = opens_at.seconds_since(self.opened_at).max(0.1);
        let quota = f64::from(moment.succeeded.wrapping_sub(self.opened_succeeded));
        let paced = if self.phase == Phase::Searching {
            (10.0 * moment.rate).sqrt()
        } else {
            let factor = 4.0 * open / cycle * (300.0 / moment.rate).powf(0.4);
            moment.rate * factor.clamp(0.25, 4.0)
        };
        let accepted = quota / cycle;
        let rate = match self.phase != Phase::Searching && self.ban_cap.get().is_finite() {
            // The requests in flight at the end of a window are refused together, which the server
            // counts. At this rate they are few.
            true => EVENLY * accepted,
            false => paced.max(1.5 * accepted),
        };
        let rate = rate.min(self.ban_cap.get());
        self.opened_at = opens_at;
        self.opened_succeeded = moment.succeeded;
        self.period = Rough::of(cycle);
        self.measured = Rough::of(accepted);
        self.set_ceiling(rate, CeilingSource::Window);
        self.phase = Phase::Rising;
        self.since = opens_at;
        self.fell_at = opens_at;
        rate.min(moment.rate)
    }

    /// The first success after everything was refused: a window opened, if it was long and many had
    /// been accepted before.
    #[cold]
    pub(super) fn reopened(&mut self, settings: &GateSettings, moment: Moment) -> Option<Reaction> {
        let now = Coarse::of(moment.now);
        let quota = moment.succeeded.wrapping_sub(self.opened_succeeded);
        let was_closed_for = now.seconds_since(self.fell_at);
        if self.is_shared() || was_closed_for < 2.0 {
            return None;
        }
        if quota < 10 {
            return self.refilled(settings, was_closed_for, moment);
        }
        let cycle = now.seconds_since(self.opened_at).max(0.1);
        let mut measured = (f64::from(quota) / cycle).max(settings.min_rate);
        self.opened_at = now;
        self.opened_succeeded = moment.succeeded;
        self.fell_at = now;
        self.fell_number = moment.admitted;
        if measured >= moment.rate {
            self.is_opening_known = true;
            return Some(Reaction::default());
        }
        if self.is_opening_known || was_closed_for > 0.5 * cycle {
            self.period = Rough::of(cycle);
        } else {
            // It may have been slow for most of the time: the limit is between the mean and the rate.
            measured = (measured * moment.rate).sqrt();
        }
        self.is_opening_known = true;
        self.set_ceiling(measured, CeilingSource::Window);
        self.confirmed = Rough::ZERO;
        self.enter(Phase::Rising, moment.now);
        let rate = (0.95 * measured).max(settings.min_rate);
        Some(Reaction::lower(rate, Why::Throttled))
    }

    /// The first success after everything was refused for `seconds`, of a client that has sent little:
    /// a bucket has a token again. The limit is about one token in this time, or more, because the
    /// client did not try all the time. So the search begins again, close to it.
    fn refilled(
        &mut self,
        settings: &GateSettings,
        seconds: f64,
        moment: Moment,
    ) -> Option<Reaction> {
        if moment.succeeded > MAX_SUCCEEDED_NEW {
            return None;
        }
        let rate = (REFILLED / seconds).max(settings.min_rate);
        if rate >= moment.rate {
            return None;
        }
        self.search();
        self.fell_at = Coarse::of(moment.now);
        self.fell_number = moment.admitted;
        Some(Reaction {
            drain: true,
            ..Reaction::lower(rate, Why::Throttled)
        })
    }

    /// The server has banned this client: a pause that grows with every ban, one request to see
    /// whether it is over, and then at most half the rate that provoked it. It begins as slowly as a
    /// new gate, because the limit may have fallen far below that.
    pub(super) fn banned(&mut self, settings: &GateSettings, moment: Moment) -> Reaction {
        let pause = self.next_ban_pause();
        let is_still_banned = self.ban_cap.get().is_finite() && self.is_probing_blind();
        let cap = if is_still_banned {
            self.ban_cap.get()
        } else {
            self.cap_after_ban(settings, self.refused_at.get().max(moment.rate))
        };
        self.ban_cap = Rough::of(cap);
        self.set_ceiling(cap, CeilingSource::Ban);
        self.enter(Phase::Rising, moment.now);
        self.streak = self.streak.max(2);
        self.fell_at = Coarse::of(moment.now);
        self.fell_number = moment.admitted;
        Reaction {
            drain: true,
            assumed_wait: Some(pause),
            ..Reaction::lower(settings.initial_rate.min(cap).min(moment.rate), Why::Banned)
        }
    }

    /// A request that was on its way at the last decrease met a ban. Its epoch is over, so it leaves the
    /// rate as it is. But no other response may tell of the ban: it can end while the gate is held. All
    /// such responses of an epoch count once.
    pub(crate) fn late_ban(&mut self, settings: &GateSettings) -> Reaction {
        if self.source == CeilingSource::Ban {
            return Reaction::default();
        }
        let cap = self.cap_after_ban(settings, self.refused_at.get());
        self.ban_cap = Rough::of(cap.min(self.ban_cap.get()));
        self.set_ceiling(cap, CeilingSource::Ban);
        Reaction {
            assumed_wait: Some(self.next_ban_pause()),
            ..Reaction::default()
        }
    }

    /// Half of the rate that provoked a ban, and less than the ceiling.
    fn cap_after_ban(&self, settings: &GateSettings, provoked_by: f64) -> f64 {
        // Requests in flight when a window is used up are refused together. Below the rate that it accepts
        // it is not used up.
        let known = match self.source {
            CeilingSource::Window if self.measured != Rough::ZERO => self.measured.get(),
            _ => f64::from(self.ceiling),
        };
        (0.5 * provoked_by)
            .min(BELOW_LIMIT * known)
            .max(settings.min_rate)
    }

    fn next_ban_pause(&mut self) -> Duration {
        let pause = BAN_PAUSES[usize::from(self.bans).min(BAN_PAUSES.len() - 1)];
        self.bans = self.bans.saturating_add(1);
        Duration::from_secs(pause)
    }

    /// Whether a 403 now means a ban.
    pub(crate) fn was_refused_lately(&self, now: Timestamp) -> bool {
        let is_still_banned = self.ban_cap.get().is_finite() && self.is_probing_blind();
        let is_lately = Coarse::of(now).seconds_since(self.fell_at) < 120.0;
        is_still_banned || self.refused_at.get() > 0.0 && is_lately
    }

    /// Counts a refusal of an earlier epoch: a server that bans counts it too.
    pub(crate) fn late_refusal(&mut self) {
        self.recent_refusals =
            Rough::of((self.recent_refusals.get() + 1.0).min(MAX_RECENT_REFUSALS));
    }

    /// Seconds until a refusal would not add to others of late.
    pub(super) fn calm_in(&self, now: Timestamp) -> f64 {
        if self.is_shared() {
            return 0.0;
        }
        (self.recent_refusals(now) - CALM) * REFUSAL_SECONDS
    }

    /// Refusals of late. Each counts for [`REFUSAL_SECONDS`], one after the other.
    fn recent_refusals(&self, now: Timestamp) -> f64 {
        let elapsed = Coarse::of(now).seconds_since(self.fell_at).max(0.0);
        (self.recent_refusals.get() - elapsed / REFUSAL_SECONDS).max(0.0)
    }

    fn sent(&self, moment: Moment) -> Sent {
        let requests = moment.number.wrapping_sub(self.fell_number);
        let seconds = Coarse::of(moment.sent_at).seconds_since(self.fell_at);
        Sent {
            requests: f64::from(requests.saturating_sub(1)),
            seconds: seconds.max(0.001),
        }
    }

    /// Learns from the first refusal of an epoch. Returns the new rate.
    fn fall(&mut self, moment: Moment) -> f64 {
        let rate = moment.rate;
        let sent = self.sent(moment);
        let is_probe = self.phase == Phase::Probing;
        self.refused_at = Rough::of(rate);
        let lowered = match self.has_ceiling() {
            false => self.fall_from_search(moment, &sent),
            true => {
                let before = f64::from(self.ceiling);
                self.measure_burst(&sent, moment);
                let ceiling = self.ceiling_after(rate, &sent);
                if self.probe_refused_at.get() > 0.0 && ceiling < HAS_FALLEN * before && rate >= 2.0
                {
                    self.patience = EAGER;
                }
                self.ceiling = narrow(ceiling);
                FALL * ceiling
            }
        };
        if is_probe {
            self.probe_refused_at = Rough::of(rate);
        }
        self.unstable = self.unstable.saturating_add(1);
        self.enter(Phase::Rising, moment.now);
        lowered
    }

    fn fall_from_search(&mut self, moment: Moment, sent: &Sent) -> f64 {
        let (ceiling, factor) = if sent.requests < 8.0 {
            let factor = if moment.rate < 1.0 { FALL_SLOW } else { 0.5 };
            (factor * moment.rate, 1.0)
        } else {
            let delivered = 0.88 * self.delivered(moment);
            let least = MIN_DELIVERED * moment.rate;
            (delivered.clamp(least, moment.rate), 0.65)
        };
        let ceiling = ceiling.min(self.ban_cap.get());
        self.set_ceiling(ceiling, CeilingSource::Estimated);
        factor * ceiling
    }

    /// The first measurement tells how much the bucket had saved: it was full at first and is empty now,
    /// so it had what was accepted in all, without what its limit gave meanwhile.
    fn measure_burst(&mut self, sent: &Sent, moment: Moment) {
        if !self.is_burst_unknown {
            return;
        }
        self.is_burst_unknown = false;
        let age = Coarse::of(moment.sent_at).seconds_since(self.opened_at);
        let accepted = moment.succeeded.wrapping_sub(self.opened_succeeded);
        let burst = f64::from(accepted) - sent.safe_per_second(moment.rate) * age;
        self.saves_tokens |= burst >= MIN_SAVED_TOKENS;
    }

    /// The new ceiling after a refusal at `rate`.
    fn ceiling_after(&mut self, rate: f64, sent: &Sent) -> f64 {
        let measured = sent.safe_per_second(rate);
        let confirmed = self.confirmed.get();
        let is_probe = self.phase == Phase::Probing;
        let was_guess = self.is_guess();
        self.judge_sharing(rate, sent);
        self.source = CeilingSource::Measured;
        let ceiling = if self.ban_cap.get().is_finite() {
            self.ban_cap = Rough::of(0.5 * rate);
            0.5 * rate
        } else if self.is_shared() {
            0.85 * rate
        } else if rate < 1.01 * confirmed {
            self.confirmed = Rough::ZERO;
            measured
        } else if was_guess && measured < confirmed {
            self.bisect(confirmed, rate, true)
        } else if was_guess {
            self.saves_tokens |= sent.requests >= 5.0;
            measured
        } else if is_probe {
            self.saves_tokens &= measured >= 0.98 * confirmed;
            let least = measured.max(confirmed);
            match self.saves_tokens {
                true if self.was_full(rate, least) => self.measure_again(least),
                true => least,
                false => self.bisect(least, rate, false),
            }
        } else {
            measured
        };
        ceiling.min(rate)
    }

    /// The middle between what is certain and what was refused; what is certain, if they are close.
    ///
    /// At a slow limit a refusal is a large share of all requests, so less is tried after a guess that
    /// was refused.
    fn bisect(&mut self, certain: f64, refused: f64, was_guess: bool) -> f64 {
        let close = match self.patience >= 2 && is_slow(refused) {
            true => CLOSE_SLOW,
            false => CLOSE,
        };
        if refused <= close * certain {
            return certain;
        }
        self.source = CeilingSource::Estimated;
        let share = match was_guess && is_slow(refused) {
            true => 0.3,
            false => 0.5,
        };
        certain + share * (refused - certain)
    }

    /// Whether a bucket that saves tokens has been full, so that less was measured than its limit.
    fn was_full(&self, refused: f64, measured: f64) -> bool {
        let is_only = self.recent_refusals.get() < ONLY;
        is_only && refused >= FAST && refused > FAR * measured
    }

    /// A guess that is soon refused. Servers ban clients for refusals that are close to each other, so the
    /// next ones come later.
    fn measure_again(&mut self, measured: f64) -> f64 {
        self.source = CeilingSource::Estimated;
        self.recent_refusals = Rough::of(self.recent_refusals.get() + 2.0);
        SOON_REFUSED * measured
    }

    /// Judges whether others use the limit too.
    fn judge_sharing(&mut self, rate: f64, sent: &Sent) {
        let is_probe = self.phase == Phase::Probing;
        let measured = sent.per_second();
        let before = self.measured.get();
        let enough = sent.requests >= 10.0;
        self.measured = match enough {
            true => Rough::of(measured),
            false => Rough::ZERO,
        };
        // Alone, the same is measured every time.
        let is_same = (measured - before).abs() < (0.03 + 1.0 / sent.requests) * before;
        let is_steady = enough && is_same;
        if is_steady {
            self.sharing = self.sharing.saturating_sub(1);
        }
        let last = self.probe_refused_at.get();
        let is_unexpected = if is_probe {
            !is_steady && last > 0.0 && (rate - last).abs() > (0.15 + 0.5 / rate) * last
        } else {
            rate < 0.97 * self.confirmed.get() || self.unstable >= MAX_UNSTABLE
        };
        if is_unexpected {
            self.sharing = (self.sharing + 2).min(MAX_SHARING);
            self.patience = self.patience.min(0);
            self.confirmed = Rough::ZERO;
        } else if !is_probe && !self.is_guess() && sent.requests >= 12.0 {
            self.sharing = (self.sharing + 1).min(MAX_SHARING);
        } else if is_probe && self.sharing > 0 {
            // Another measurement than before shows that others still use the limit. The place of the
            // probe alone does not: at low rates nearly every place is as expected.
            let is_still_shared = self.is_shared() && enough && before > 0.0 && !is_same;
            if !is_still_shared {
                self.sharing -= 1;
            }
        } else if is_probe {
            self.patience = (self.patience + 1).min(MAX_PATIENCE);
        }
    }
}

/// If the refused rate is at most this many times what is certain, a guess could gain little and would
/// cost a refusal. Of 1400 random upstreams, 8 more are refused too often with 1.05, and 12 more miss 90 %
/// of goodput with 1.15.
const CLOSE: f64 = 1.1;
/// The same at a slow limit with long stays, where a refusal more is rare: with 1.1, a bucket of 0.5 per second
/// that saves nothing stays at 91 % of its limit, with this at 94 to 97 %.
const CLOSE_SLOW: f64 = 1.05;

/// A probe that is refused only at this many times what was measured has used up what the bucket had saved: it
/// was full for some time, and gave less than its limit. This is measured again, without a stay in which the
/// bucket could fill up, so at a rate that is soon refused. A client whose feedback takes half a second, or 8
/// servers that share 100/s, otherwise stay at 94 to 97 % of the limit for minutes.
const FAR: f64 = 1.15;
const SOON_REFUSED: f64 = 1.1;
/// The refusal of the probe itself, and hardly anything of earlier ones.
const ONLY: f64 = 1.1;
/// Per second. Below it, a refusal more costs more than a limit that is a little higher gains.
const FAST: f64 = 20.0;

/// A bucket that had so many tokens at first saves them. Without this, a probe of such a bucket is refused
/// once more for every guess: of 1400 random upstreams, 8 more are refused too often.
const MIN_SAVED_TOKENS: f64 = 3.0;

/// A new ceiling below this share of the last one: the limit has fallen.
const HAS_FALLEN: f64 = 0.8;

/// What was delivered before the first refusal, relative to the rate, is at least this: after a pause little
/// was delivered of late, which says nothing about the limit.
const MIN_DELIVERED: f64 = 0.25;

/// A client that has not had more successes is new.
const MAX_SUCCEEDED_NEW: u32 = 10;
/// The rate after a bucket had its first token, in tokens of the time it took.
const REFILLED: f64 = 1.5;
/// Clients that share a bucket whose refusals name a short wait stay for so many of these waits. Each costs
/// the time of many requests. Of 1400 random upstreams, 5 more miss 90 % of goodput without it.
const SHORT_WAITS: f64 = 6.0;
/// No period of this length is that of a window: short waits are up to a second.
pub(super) const MAX_SPACING_SECONDS: f64 = SHORT_WAITS;

/// The rate at a window after a ban, relative to what the window accepts: it is used up just before its end.
const EVENLY: f64 = 1.1;

/// Below one per second the search grows by a quarter with each response, so the limit is not further below.
const FALL_SLOW: f64 = 0.8;

/// The rate after a refusal, relative to the new ceiling: a bucket saves a few tokens.
const FALL: f64 = 0.85;

/// One request every ten seconds finds the opening of a window soon enough.
const MAX_ASSUMED_WAIT_SECONDS: f64 = 10.0;

/// With this, a client is refused at most four times in 30 s, but for the search.
const REFUSAL_SECONDS: f64 = 8.0;
/// A probe begins when no more refusals than this count.
const CALM: f64 = 0.5;
const MAX_RECENT_REFUSALS: f64 = 4.0;

const MAX_SHARING: u8 = 4;
/// After so many decreases without a stay between them, others must use the limit.
const MAX_UNSTABLE: u8 = 5;

/// The rate after a ban, relative to the limit as far as it is known.
const BELOW_LIMIT: f64 = 0.9;

/// In seconds.
const BAN_PAUSES: [u64; 5] = [30, 60, 120, 300, 600];
