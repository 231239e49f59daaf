//! Limits in headers: the limit, the remaining count and the reset.
//!
//! A response may state several limits: requests and tokens, per second and per day. Each becomes a
//! row, and the *binding* row is reported:
//! 1. a row with nothing remaining; of several, the one with the longest reset, because every
//!    request is refused until then;
//! 2. else the row with the smallest remaining share of its limit, then the smallest remaining
//!    count;
//! 3. else, if no header gives the remaining count, the row with the longest reset, then the one
//!    with the lowest rate.
//!
//! Rows are stored in a fixed table without allocation; limits beyond its size are ignored.

use std::time::Duration;

use super::delay::{Delay, Longest, Unit};
use super::field::{Piece, pieces};
use super::number::Decimal;
use super::source::{Family, Field};
use super::{Hint, Quota, Quotas, Scope, Source};
use crate::time::WallTime;

/// All limits of one response.
#[derive(Debug, Default)]
pub(super) struct Limits<'a> {
    /// Sixteen, because the most verbose known dialect has six limits, and few servers send two
    /// dialects.
    rows: [Option<Row<'a>>; 16],
}

impl<'a> Limits<'a> {
    /// Reads one header.
    pub(super) fn read(&mut self, source: Source, value: &'a [u8], now: Option<WallTime>) {
        if let Some((family, field)) = source.family() {
            return match field {
                Field::Limit => self.read_limit(family, source, value),
                Field::Remaining => self.read_remaining(family, source, value),
                Field::Reset => self.read_reset(family, source, value, now),
            };
        }
        match source {
            Source::XRatelimitResetAfter => {
                self.read_reset(Family::XRatelimit, source, value, now);
            }
            Source::Ratelimit | Source::RatelimitPolicy => {
                self.read_structured(source, value, now);
            }
            Source::AppRateLimit | Source::XAppRateLimit => {
                self.read_app(source, value, |row| &mut row.limit);
            }
            Source::AppRateLimitCount | Source::XAppRateLimitCount => {
                self.read_app(source, value, |row| &mut row.used);
            }
            _ => {}
        }
    }

    /// `100`, or `100, 100;w=60`: the limit, then the policies that it may be one of.
    fn read_limit(&mut self, family: Family, source: Source, value: &'a [u8]) {
        let Some(row) = self.row(Key::Headers(family)) else {
            return;
        };
        let mut is_this_limit = false;
        for piece in pieces(value) {
            match piece.value {
                None if piece.first => {
                    let quota = count(piece.name).map(|number| (number, source));
                    row.limit = row.limit.or(quota);
                    is_this_limit = quota.is_some() && quota == row.limit && row.period.is_none();
                }
                Some(value) if names(&piece, &["w", "window"]) && is_this_limit => {
                    row.period = period(value).or(row.period);
                }
                _ => {}
            }
        }
    }

    /// `5`; the smallest of several.
    fn read_remaining(&mut self, family: Family, source: Source, value: &'a [u8]) {
        let counts = pieces(value).filter(|piece| piece.first && piece.value.is_none());
        let fewest = counts.filter_map(|piece| count(piece.name)).min();
        if let (Some(fewest), Some(row)) = (fewest, self.row(Key::Headers(family))) {
            lower(&mut row.remaining, fewest, source);
        }
    }

    /// An absolute time or a duration; the longest of several.
    fn read_reset(
        &mut self,
        family: Family,
        source: Source,
        value: &'a [u8],
        now: Option<WallTime>,
    ) {
        for delay in Delay::all(value, Unit::Seconds, now) {
            if let Some(row) = self.row(Key::Headers(family)) {
                row.reset.add(delay, source);
            }
        }
    }

    /// `RateLimit` and `RateLimit-Policy`, in all their drafts: a list of named members with
    /// parameters, or the older `limit=100, remaining=5`, which is one unnamed member.
    fn read_structured(&mut self, source: Source, value: &'a [u8], now: Option<WallTime>) {
        let mut member = Member::default();
        for piece in pieces(value) {
            match piece.value {
                None if piece.first => {
                    self.add_member(&member, source, now);
                    member = Member {
                        name: Some(piece.name),
                        ..Member::default()
                    };
                }
                None => {}
                Some(value) => {
                    if piece.first && member.name.is_some() {
                        self.add_member(&member, source, now);
                        member = Member::default();
                    }
                    member.set(&piece, value);
                }
            }
        }
        self.add_member(&member, source, now);
    }

    fn add_member(&mut self, member: &Member<'a>, source: Source, now: Option<WallTime>) {
        let window = member.window.and_then(period);
        let quota = member.quota.and_then(count);
        let (key, quota) = match member.name {
            None => (Key::Headers(Family::Ratelimit), quota),
            // A bare number is the quota of an unnamed policy, which needs a period.
            Some(name) => match (count(name), window) {
                (Some(number), Some(window)) => (Key::Policy(number, window), Some(number)),
                (Some(_), None) => return,
                (None, _) => (Key::Named(name.get(..MAX_NAME).unwrap_or(name)), quota),
            },
        };
        let remaining = member.remaining.and_then(count);
        let reset = member
            .reset
            .and_then(|value| Delay::one(value, Unit::Seconds, now));
        if (window, quota, remaining, reset) == (None, None, None, None) {
            return;
        }
        let Some(row) = self.row(key) else { return };
        row.period = row.period.or(window);
        if let Some(quota) = quota {
            lower(&mut row.limit, quota, source);
        }
        if let Some(remaining) = remaining {
            lower(&mut row.remaining, remaining, source);
        }
        if let Some(reset) = reset {
            row.reset.add(reset, source);
        }
    }

    /// `20:1,100:120`: counts by period in seconds.
    fn read_app(
        &mut self,
        source: Source,
        value: &[u8],
        slot: impl for<'r> Fn(&'r mut Row<'a>) -> &'r mut Option<(u64, Source)>,
    ) {
        for pair in value.split(|&byte| byte == b',') {
            let mut halves = pair.splitn(2, |&byte| byte == b':');
            let (Some(count), Some(period)) = (
                halves.next().and_then(count),
                halves.next().and_then(period),
            ) else {
                continue;
            };
            if let Some(row) = self.row(Key::App(period)) {
                row.period = Some(period);
                *slot(row) = Some((count, source));
            }
        }
    }

    /// Fills in the binding limit. `now` is the server's time.
    pub(super) fn fill(&mut self, hint: &mut Hint, status: u16, now: Option<WallTime>) {
        self.share_policies();
        let rows = self.rows.iter().flatten();
        let rows = rows.filter(|row| row.says_something(now));
        let Some(row) = rows.clone().min_by_key(|row| row.rank(now)) else {
            return;
        };
        let quota = |of_tokens: bool| {
            let rows = rows.clone().filter(|row| row.counts_tokens() == of_tokens);
            rows.min_by_key(|row| row.rank(now))?.quota(now)
        };
        hint.quotas = quota(true).map(|tokens| {
            Box::new(Quotas {
                tokens,
                requests: quota(false),
            })
        });
        let reset = row.reset.from(now);
        let remaining = row.remaining();
        hint.remaining = remaining.map(|(count, _)| count);
        hint.limit = row.limit.map(|(count, _)| count);
        hint.period = row.period.map(Duration::from_millis);
        hint.reset = reset.map(|(reset, _)| reset);
        hint.scope = row.key.scope();
        let sources = [reset.map(|(_, by)| by), by(remaining), by(row.limit)];
        hint.source = sources.into_iter().flatten().next();
        // By the rank, no other row has a remaining count if this one has none.
        let unnamed = remaining.is_none() && matches!(status, 429 | 503);
        if hint.remaining == Some(0) || unnamed {
            hint.wait = hint.reset;
        }
    }

    /// `RateLimit-Policy: 100;w=60` describes the limit that `RateLimit-Limit: 100` counts.
    fn share_policies(&mut self) {
        let nameless = Key::Headers(Family::Ratelimit);
        let Some(at) = self.position(nameless) else {
            return;
        };
        let Some(Some(ietf)) = self.rows.get(at) else {
            return;
        };
        let limit = ietf.limit;
        let policies = self.rows.iter().flatten().filter(|row| {
            matches!(row.key, Key::Policy(..))
                && limit.is_none_or(|(limit, _)| row.limit.is_some_and(|(count, _)| count == limit))
        });
        let policy = policies.min_by_key(|row| row.rate_rank()).copied();
        if let (Some(policy), Some(Some(ietf))) = (policy, self.rows.get_mut(at)) {
            ietf.limit = ietf.limit.or(policy.limit);
            ietf.period = ietf.period.or(policy.period);
        }
    }

    /// The row of `key`, added if it does not exist and the table has room.
    fn row(&mut self, key: Key<'a>) -> Option<&mut Row<'a>> {
        let at = self
            .position(key)
            .or_else(|| self.rows.iter().position(Option::is_none))?;
        let slot = self.rows.get_mut(at)?;
        Some(slot.get_or_insert(Row::new(key)))
    }

    fn position(&self, key: Key<'_>) -> Option<usize> {
        self.rows
            .iter()
            .position(|row| row.is_some_and(|row| row.key == key))
    }
}

/// The parameters of one member of a structured field. If a name repeats, the last one counts (RFC
/// 9651, section 4.2.3.2).
#[derive(Debug, Default)]
struct Member<'a> {
    name: Option<&'a [u8]>,
    quota: Option<&'a [u8]>,
    remaining: Option<&'a [u8]>,
    reset: Option<&'a [u8]>,
    window: Option<&'a [u8]>,
}

impl<'a> Member<'a> {
    fn set(&mut self, piece: &Piece<'a>, value: &'a [u8]) {
        let slots = [
            (&mut self.quota, ["q", "limit"]),
            (&mut self.remaining, ["r", "remaining"]),
            (&mut self.reset, ["t", "reset"]),
            (&mut self.window, ["w", "window"]),
        ];
        for (slot, spellings) in slots {
            if names(piece, &spellings) {
                *slot = Some(value);
            }
        }
    }
}

/// Which limit a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key<'a> {
    /// A family of headers. The older form of `RateLimit` is that of `RateLimit-Limit`.
    Headers(Family),
    /// An unnamed `RateLimit-Policy`: quota and period in milliseconds.
    Policy(u64, u64),
    /// `RateLimit` and `RateLimit-Policy` by name.
    Named(&'a [u8]),
    /// `App-Rate-Limit` by its period in milliseconds.
    App(u64),
}

impl Key<'_> {
    fn scope(self) -> Option<Scope> {
        match self {
            Self::Headers(family) => family.scope(),
            Self::Named(name) => Some(Scope::named(name)),
            Self::Policy(..) | Self::App(_) => None,
        }
    }

    fn period(self) -> Option<u64> {
        match self {
            Self::Headers(family) => family.period(),
            Self::Policy(..) | Self::Named(_) | Self::App(_) => None,
        }
    }
}

/// One limit.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    key: Key<'a>,
    limit: Option<(u64, Source)>,
    remaining: Option<(u64, Source)>,
    used: Option<(u64, Source)>,
    reset: Longest,
    /// In milliseconds.
    period: Option<u64>,
}

impl<'a> Row<'a> {
    fn new(key: Key<'a>) -> Self {
        Self {
            key,
            limit: None,
            remaining: None,
            used: None,
            reset: Longest::default(),
            period: key.period(),
        }
    }

    fn says_something(&self, now: Option<WallTime>) -> bool {
        self.limit.is_some() || self.remaining.is_some() || self.reset.from(now).is_some()
    }

    fn remaining(&self) -> Option<(u64, Source)> {
        let Some((used, by)) = self.used else {
            return self.remaining;
        };
        let (limit, _) = self.limit?;
        Some((limit.saturating_sub(used), by))
    }

    fn counts_tokens(&self) -> bool {
        self.key.scope() == Some(Scope::Tokens)
    }

    fn quota(&self, now: Option<WallTime>) -> Option<Quota> {
        let (remaining, _) = self.remaining()?;
        Some(Quota {
            limit: self.limit.map(|(limit, _)| limit),
            remaining,
            reset: self.reset.from(now).map(|(reset, _)| reset),
        })
    }

    /// Orders rows; the smallest binds. See the module documentation.
    fn rank(&self, now: Option<WallTime>) -> (u8, u64, u64) {
        let reset = self.reset.from(now).map_or(u64::MAX, |(reset, _)| {
            let millis = u64::try_from(reset.as_millis()).unwrap_or(u64::MAX);
            (u64::MAX - 1).saturating_sub(millis)
        });
        match self.remaining() {
            Some((0, _)) => (0, reset, 0),
            Some((remaining, _)) => (1, self.share(remaining), remaining),
            None => (2, reset, self.rate_rank()),
        }
    }

    /// The remaining share of the limit, in millionths; the maximum if no limit is known.
    fn share(&self, remaining: u64) -> u64 {
        let Some((limit, _)) = self.limit else {
            return u64::MAX;
        };
        ratio(remaining, limit)
    }

    /// The average rate that the limit allows; the maximum if unknown.
    fn rate_rank(&self) -> u64 {
        match (self.limit, self.period) {
            (Some((limit, _)), Some(period)) => ratio(limit, period),
            _ => u64::MAX,
        }
    }
}

/// `part` / `whole` in millionths; the maximum if `whole` is zero.
fn ratio(part: u64, whole: u64) -> u64 {
    let millionths = u128::from(part) * 1_000_000;
    let ratio = millionths.checked_div(u128::from(whole));
    ratio.map_or(u64::MAX, |ratio| u64::try_from(ratio).unwrap_or(u64::MAX))
}

fn by(count: Option<(u64, Source)>) -> Option<Source> {
    count.map(|(_, source)| source)
}

/// Names are truncated to this length, because they are shown to people.
const MAX_NAME: usize = 64;

fn names(piece: &Piece<'_>, names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| piece.name.eq_ignore_ascii_case(name.as_bytes()))
}

/// A count, rounded down so that the remaining count is never overstated.
fn count(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    Decimal::exact(text).map(Decimal::floor)
}

/// A duration in seconds or with a unit, as milliseconds.
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
