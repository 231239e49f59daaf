//! One header about a limit, on its way into the rows.

use super::{Family, Limits, Row};
use crate::hint::Source;
use crate::hint::delay::{Delay, Unit};
use crate::hint::field::{Piece, pieces};
use crate::hint::number::Decimal;
use crate::time::WallTime;

/// A header and the table that it goes into.
pub(super) struct Header<'l, 'a> {
    pub(super) limits: &'l mut Limits<'a>,
    pub(super) source: Source,
    pub(super) value: &'a [u8],
    pub(super) now: Option<WallTime>,
}

impl<'a> Header<'_, 'a> {
    pub(super) fn read(self) {
        use Family::{
            AnthropicInputTokens, AnthropicOutputTokens, AnthropicRequests, AnthropicTokens, Ietf,
            XRateLimit, XRatelimit, XRatelimitRequests, XRatelimitTokens,
        };
        match self.source {
            Source::XRatelimitLimit => self.limit(XRatelimit),
            Source::XRatelimitRemaining => self.remaining(XRatelimit),
            Source::XRatelimitReset | Source::XRatelimitResetAfter => self.reset(XRatelimit),
            Source::XRatelimitLimitRequests => self.limit(XRatelimitRequests),
            Source::XRatelimitRemainingRequests => self.remaining(XRatelimitRequests),
            Source::XRatelimitResetRequests => self.reset(XRatelimitRequests),
            Source::XRatelimitLimitTokens => self.limit(XRatelimitTokens),
            Source::XRatelimitRemainingTokens => self.remaining(XRatelimitTokens),
            Source::XRatelimitResetTokens => self.reset(XRatelimitTokens),
            Source::XRateLimitLimit => self.limit(XRateLimit),
            Source::XRateLimitRemaining => self.remaining(XRateLimit),
            Source::XRateLimitReset => self.reset(XRateLimit),
            Source::AnthropicRequestsLimit => self.limit(AnthropicRequests),
            Source::AnthropicRequestsRemaining => self.remaining(AnthropicRequests),
            Source::AnthropicRequestsReset => self.reset(AnthropicRequests),
            Source::AnthropicTokensLimit => self.limit(AnthropicTokens),
            Source::AnthropicTokensRemaining => self.remaining(AnthropicTokens),
            Source::AnthropicTokensReset => self.reset(AnthropicTokens),
            Source::AnthropicInputTokensLimit => self.limit(AnthropicInputTokens),
            Source::AnthropicInputTokensRemaining => self.remaining(AnthropicInputTokens),
            Source::AnthropicInputTokensReset => self.reset(AnthropicInputTokens),
            Source::AnthropicOutputTokensLimit => self.limit(AnthropicOutputTokens),
            Source::AnthropicOutputTokensRemaining => self.remaining(AnthropicOutputTokens),
            Source::AnthropicOutputTokensReset => self.reset(AnthropicOutputTokens),
            Source::RatelimitLimit => self.limit(Ietf),
            Source::RatelimitRemaining => self.remaining(Ietf),
            Source::RatelimitReset => self.reset(Ietf),
            Source::Ratelimit | Source::RatelimitPolicy => self.structured(),
            Source::AppRateLimit | Source::XAppRateLimit => self.app(|row| &mut row.limit),
            Source::AppRateLimitCount | Source::XAppRateLimitCount => {
                self.app(|row| &mut row.used);
            }
            Source::RetryAfter
            | Source::RetryAfterMs
            | Source::XMsRetryAfterMs
            | Source::XAmzRetryAfter
            | Source::Body
            | Source::Assumed => {}
        }
    }

    /// `100`, or `100, 100;w=60`: the limit, then the policies that it may be one of.
    fn limit(self, family: Family<'a>) {
        let mut present = None;
        for piece in pieces(self.value) {
            let Some(row) = self.limits.row(family) else {
                return;
            };
            match piece.value {
                None if piece.first => {
                    present = count(piece.name);
                    let limit = present.map(|count| (count, self.source));
                    row.limit = row.limit.or(limit);
                }
                Some(value) if names(&piece, &["w", "window"]) => {
                    let same = present.is_some() && present == row.limit.map(|(count, _)| count);
                    let period = period(value).filter(|_| same);
                    row.period = row.period.or(period);
                }
                _ => {}
            }
        }
    }

    /// `5`; of several the fewest.
    fn remaining(self, family: Family<'a>) {
        let counts = pieces(self.value).filter(|piece| piece.first && piece.value.is_none());
        let fewest = counts.filter_map(|piece| count(piece.name)).min();
        if let (Some(fewest), Some(row)) = (fewest, self.limits.row(family)) {
            lower(&mut row.remaining, fewest, self.source);
        }
    }

    /// A moment or a length of time; of several the longest.
    fn reset(self, family: Family<'a>) {
        for delay in Delay::all(self.value, Unit::Seconds, self.now) {
            if let Some(row) = self.limits.row(family) {
                row.reset.add(delay, self.source);
            }
        }
    }

    /// `RateLimit` and `RateLimit-Policy`, in all their drafts.
    fn structured(mut self) {
        let mut family = Family::Ietf;
        for piece in pieces(self.value) {
            match piece.value {
                None if piece.first => family = self.member(piece.name),
                None => {}
                Some(value) => {
                    // `limit=100, remaining=5`: the older form, one nameless limit.
                    if piece.first {
                        family = Family::Ietf;
                    }
                    self.parameter(&mut family, &piece, value);
                }
            }
        }
    }

    /// What the member of a list that begins with `name` is about. A bare number is the quota of
    /// a nameless policy, whose period follows.
    fn member(&self, name: &'a [u8]) -> Family<'a> {
        match count(name) {
            Some(quota) => Family::Policy(quota, 0),
            None => Family::Named(name.get(..MAX_NAME).unwrap_or(name)),
        }
    }

    fn parameter(&mut self, family: &mut Family<'a>, piece: &Piece<'a>, value: &'a [u8]) {
        let source = self.source;
        let window = period(value).filter(|_| names(piece, &["w", "window"]));
        if let (Family::Policy(quota, 0), Some(window)) = (*family, window) {
            *family = Family::Policy(quota, window);
        }
        if matches!(*family, Family::Policy(_, 0)) {
            return;
        }
        let now = self.now;
        let Some(row) = self.limits.row(*family) else {
            return;
        };
        if let Family::Policy(quota, _) = *family {
            lower(&mut row.limit, quota, source);
        }
        if window.is_some() {
            row.period = row.period.or(window);
        } else if names(piece, &["t", "reset"]) {
            if let Some(delay) = Delay::one(value, Unit::Seconds, now) {
                row.reset.add(delay, source);
            }
        } else if let Some(count) = count(value) {
            if names(piece, &["r", "remaining"]) {
                lower(&mut row.remaining, count, source);
            } else if names(piece, &["q", "limit"]) {
                lower(&mut row.limit, count, source);
            }
        }
    }

    /// `20:1,100:120`: counts by period in seconds.
    fn app(self, slot: impl for<'r> Fn(&'r mut Row<'a>) -> &'r mut Option<(u64, Source)>) {
        for pair in self.value.split(|&byte| byte == b',') {
            let mut halves = pair.splitn(2, |&byte| byte == b':');
            let (Some(count), Some(period)) = (
                halves.next().and_then(count),
                halves.next().and_then(period),
            ) else {
                continue;
            };
            if let Some(row) = self.limits.row(Family::App(period)) {
                row.period = Some(period);
                *slot(row) = Some((count, self.source));
            }
        }
    }
}

/// Names longer than this are cut: they are shown to people.
const MAX_NAME: usize = 64;

fn names(piece: &Piece<'_>, names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| piece.name.eq_ignore_ascii_case(name.as_bytes()))
}

/// A count, rounded down so that what remains is never overstated.
fn count(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    Decimal::exact(text).map(Decimal::floor)
}

/// A length of time in seconds or with a unit, as milliseconds.
fn period(text: &[u8]) -> Option<u64> {
    match Delay::one(text, Unit::Seconds, None)? {
        Delay::In(millis) => Some(millis).filter(|&millis| millis > 0),
        Delay::At(_) => None,
    }
}

fn lower(slot: &mut Option<(u64, Source)>, count: u64, source: Source) {
    if slot.is_none_or(|(kept, _)| count < kept) {
        *slot = Some((count, source));
    }
}
