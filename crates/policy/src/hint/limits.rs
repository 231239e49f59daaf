//! Limits as headers tell them: how many, how many are left, until when.
//!
//! An answer may tell of several limits at once: requests and tokens, a second and a day. Each
//! becomes a row, and the row that *binds* is reported:
//! 1. one with nothing remaining, of these the one with the longest reset, for until then every
//!    request is refused;
//! 2. else the one with the smallest share of its limit remaining, then the fewest;
//! 3. else, where no header says what remains, the one with the longest reset, then the one that
//!    allows the lowest rate.
//!
//! Rows are gathered in a fixed table without allocation; limits beyond its size are not read.

mod header;

use std::time::Duration;

use self::header::Header;
use super::delay::Longest;
use super::{Hint, Scope, Source};
use crate::time::WallTime;

/// Every limit that one answer tells of.
#[derive(Debug, Default)]
pub(super) struct Limits<'a> {
    /// Sixteen, because the wordiest dialect known has four limits and few send two dialects.
    rows: [Option<Row<'a>>; 16],
}

impl<'a> Limits<'a> {
    /// Takes in one header.
    pub(super) fn read(&mut self, source: Source, value: &'a [u8], now: Option<WallTime>) {
        let header = Header {
            limits: self,
            source,
            value,
            now,
        };
        header.read();
    }

    /// Fills in what the binding limit says. `now` is the server's.
    pub(super) fn fill(&mut self, hint: &mut Hint, status: u16, now: Option<WallTime>) {
        self.share_policies();
        let rows = self.rows.iter().flatten();
        let rows = rows.filter(|row| row.says_something(now));
        let Some(row) = rows.min_by_key(|row| row.rank(now)) else {
            return;
        };
        let reset = row.reset.from(now);
        let remaining = row.remaining();
        hint.remaining = remaining.map(|(count, _)| count);
        hint.limit = row.limit.map(|(count, _)| count);
        hint.period = row.period.map(Duration::from_millis);
        hint.reset = reset.map(|(reset, _)| reset);
        hint.scope = row.family.scope();
        let sources = [reset.map(|(_, by)| by), by(remaining), by(row.limit)];
        hint.source = sources.into_iter().flatten().next();
        // The rank makes sure that no other row names a remaining when this one does not.
        let unnamed = remaining.is_none() && matches!(status, 429 | 503);
        if hint.remaining == Some(0) || unnamed {
            hint.wait = hint.reset;
        }
    }

    /// `RateLimit-Policy: 100;w=60` describes the limit that `RateLimit-Limit: 100` counts.
    fn share_policies(&mut self) {
        let Some(at) = self.position(Family::Ietf) else {
            return;
        };
        let Some(Some(ietf)) = self.rows.get(at) else {
            return;
        };
        let limit = ietf.limit;
        let policies = self.rows.iter().flatten().filter(|row| {
            matches!(row.family, Family::Policy(..))
                && limit.is_none_or(|(limit, _)| row.limit.is_some_and(|(count, _)| count == limit))
        });
        let policy = policies.min_by_key(|row| row.rate_rank()).copied();
        if let (Some(policy), Some(Some(ietf))) = (policy, self.rows.get_mut(at)) {
            ietf.limit = ietf.limit.or(policy.limit);
            ietf.period = ietf.period.or(policy.period);
        }
    }

    /// The row of `family`, a new one if there is none and the table has room.
    fn row(&mut self, family: Family<'a>) -> Option<&mut Row<'a>> {
        let at = self
            .position(family)
            .or_else(|| self.rows.iter().position(Option::is_none))?;
        let slot = self.rows.get_mut(at)?;
        Some(slot.get_or_insert(Row::new(family)))
    }

    fn position(&self, family: Family<'_>) -> Option<usize> {
        self.rows
            .iter()
            .position(|row| row.is_some_and(|row| row.family == family))
    }
}

/// Which limit a header is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family<'a> {
    XRatelimit,
    XRatelimitRequests,
    XRatelimitTokens,
    XRateLimit,
    AnthropicRequests,
    AnthropicTokens,
    AnthropicInputTokens,
    AnthropicOutputTokens,
    /// `RateLimit-Limit` and its like, and the older form of `RateLimit`.
    Ietf,
    /// A nameless `RateLimit-Policy`: quota and period in milliseconds.
    Policy(u64, u64),
    /// `RateLimit` and `RateLimit-Policy` by name.
    Named(&'a [u8]),
    /// `App-Rate-Limit` by its period in milliseconds.
    App(u64),
}

impl Family<'_> {
    fn scope(self) -> Option<Scope> {
        match self {
            Self::XRatelimitRequests | Self::AnthropicRequests => Some(Scope::Requests),
            Self::XRatelimitTokens
            | Self::AnthropicTokens
            | Self::AnthropicInputTokens
            | Self::AnthropicOutputTokens => Some(Scope::Tokens),
            Self::Named(name) => Some(Scope::named(name)),
            Self::XRatelimit | Self::XRateLimit | Self::Ietf | Self::Policy(..) | Self::App(_) => {
                None
            }
        }
    }
}

/// One limit.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    family: Family<'a>,
    limit: Option<(u64, Source)>,
    remaining: Option<(u64, Source)>,
    used: Option<(u64, Source)>,
    reset: Longest,
    /// In milliseconds.
    period: Option<u64>,
}

impl<'a> Row<'a> {
    fn new(family: Family<'a>) -> Self {
        Self {
            family,
            limit: None,
            remaining: None,
            used: None,
            reset: Longest::default(),
            period: None,
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

    /// Orders rows: the smallest binds. See the module for the meaning.
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

    /// What share of the limit remains, in millionths; the most if no limit is known.
    fn share(&self, remaining: u64) -> u64 {
        let Some((limit, _)) = self.limit else {
            return u64::MAX;
        };
        ratio(remaining, limit)
    }

    /// The rate that the limit allows on average; the most if that is not known.
    fn rate_rank(&self) -> u64 {
        match (self.limit, self.period) {
            (Some((limit, _)), Some(period)) => ratio(limit, period),
            _ => u64::MAX,
        }
    }
}

/// `part` / `whole` in millionths, as large as can be for a `whole` of zero.
fn ratio(part: u64, whole: u64) -> u64 {
    let millionths = u128::from(part) * 1_000_000;
    let ratio = millionths.checked_div(u128::from(whole));
    ratio.map_or(u64::MAX, |ratio| u64::try_from(ratio).unwrap_or(u64::MAX))
}

fn by(count: Option<(u64, Source)>) -> Option<Source> {
    count.map(|(_, source)| source)
}
