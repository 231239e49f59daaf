//! The text forms of limits, steps, outages and bans.
//!
//! A number per bare unit is the rate of a token bucket (`50/s`), a number per duration the quota of
//! a fixed window (`600/1m`). `bucket` or `window` in front makes it explicit.
//!
//! The default burst is the tokens of one second, at least 1.
//!
//! The error of every function is what was expected instead.

use std::borrow::Cow;
use std::time::Duration;

use policy::duration::{self, Exact};
use policy::setting;
use policy::time::Timestamp;
use sim::upstream::{Ban, Kind, Outage, Step};

use super::UNLIMITED;
use crate::settings::Size;

/// Parses a limit: `50/s burst 10`, `600/1m` or `slots 20 100ms queue 200`.
///
/// ```
/// use app::mock::spec;
/// use sim::upstream::Kind;
///
/// let kind = spec::limit("50/s burst 10").unwrap().kind();
/// assert_eq!(kind, Kind::Bucket { rate: 50.0, burst: 10.0 });
/// ```
pub fn limit(text: &str) -> Result<Limit, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["slots", rest @ ..] => slots(rest),
        ["bucket", amount, rest @ ..] => bucket(amount, rest),
        ["window", amount, rest @ ..] => window(amount, rest),
        [amount, rest @ ..] => match amount.split_once('/') {
            Some((_, per)) if is_bare_unit(per) => bucket(amount, rest),
            Some(_) => window(amount, rest),
            None => Err(A_LIMIT.to_owned()),
        },
        [] => Err(A_LIMIT.to_owned()),
    }
}

/// Parses a limit on cost: a bucket or a window.
pub fn cost(text: &str) -> Result<Kind, String> {
    const EXPECTED: &str = "a token bucket such as `1500/s burst 90000`, or a fixed window such as \
                            `90000/1m`";
    match limit(text).map(Limit::kind) {
        Ok(Kind::Slots { .. }) => Err(EXPECTED.to_owned()),
        Err(expected) if expected == A_LIMIT => Err(EXPECTED.to_owned()),
        other => other,
    }
}

const A_LIMIT: &str = "a token bucket such as `50/s burst 10`, a fixed window such as `600/1m`, \
                       or slots such as `slots 20 100ms queue 200`";

/// A limit as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    kind: Kind,
    /// Whether its burst, phase or queue was left out: `kind` has the default, and a step keeps
    /// that of the limit before.
    is_partial: bool,
}

impl Limit {
    /// The limit, with defaults for what is left out.
    pub fn kind(self) -> Kind {
        self.kind
    }

    /// `before` changed to this; `None` if the kind, the period or the phase differs.
    fn after(self, before: Kind) -> Option<Kind> {
        let mut kind = self.kind;
        match (&mut kind, before) {
            // There is no burst to keep.
            (Kind::Bucket { .. }, UNLIMITED) => {}
            (Kind::Bucket { burst, .. }, Kind::Bucket { burst: before, .. }) => {
                *burst = if self.is_partial { before } else { *burst };
            }
            (
                Kind::Window { period, phase, .. },
                Kind::Window {
                    period: same,
                    phase: before,
                    ..
                },
            ) if *period == same && self.is_partial => {
                *phase = before;
            }
            (Kind::Slots { queue, .. }, Kind::Slots { queue: before, .. }) => {
                *queue = if self.is_partial { before } else { *queue };
            }
            _ => return None,
        }
        Some(kind)
    }
}

/// As in a scenario.
const DEFAULT_QUEUE: u32 = 100;

fn bucket(amount: &str, rest: &[&str]) -> Result<Limit, String> {
    let (count, per) = amount.split_once('/').ok_or(A_LIMIT)?;
    let expected = "a rate above 0 and up to 1000000 per second, such as `50/s` or `30/m`";
    let per = duration::parse(&with_number(per)).map_err(|_| expected)?;
    let rate = number(count).ok_or(expected)? / per.as_secs_f64();
    if !(rate > 0.0 && rate <= 1e6) {
        return Err(expected.to_owned());
    }
    let burst = match rest {
        [] => None,
        ["burst", burst] => Some(burst_of(burst)?),
        _ => return Err("nothing after the rate but `burst N`, as in `50/s burst 10`".to_owned()),
    };
    Ok(Limit {
        kind: Kind::Bucket {
            rate,
            burst: burst.unwrap_or_else(|| rate.max(1.0)),
        },
        is_partial: burst.is_none(),
    })
}

fn burst_of(text: &str) -> Result<f64, String> {
    let burst = number(text).filter(|burst| (1.0..=1e9).contains(burst));
    burst.ok_or_else(|| "a burst from 1 to 1000000000, as in `50/s burst 10`".to_owned())
}

fn window(amount: &str, rest: &[&str]) -> Result<Limit, String> {
    let (quota, period) = amount.split_once('/').ok_or(A_LIMIT)?;
    let quota = setting::whole(quota, 1, 1_000_000_000)
        .map_err(|expected| format!("{expected} per window, as in `600/1m`"))?;
    let period = setting::positive(&with_number(period))
        .map_err(|_| "a window with a length, as in `600/1m` or `300/10s`")?;
    let no_burst =
        "a window without a burst; a token bucket has a bare unit, as in `50/s burst 10`";
    let only_phase = "nothing after the window but `phase DURATION`, as in `600/1m phase 20s`";
    let after = |expected| format!("{expected} after `phase`, as in `600/1m phase 20s`");
    let phase = match rest {
        [] => None,
        ["phase", phase] => Some(duration::parse(phase).map_err(after)?),
        ["burst", ..] => return Err(no_burst.to_owned()),
        _ => return Err(only_phase.to_owned()),
    };
    Ok(Limit {
        kind: Kind::Window {
            quota,
            period,
            phase: phase.unwrap_or_default(),
        },
        is_partial: phase.is_none(),
    })
}

fn slots(words: &[&str]) -> Result<Limit, String> {
    const EXPECTED: &str = "a number of slots and how long each serves a request, as in \
                            `slots 20 100ms` or `slots 20 100ms queue 200`";
    let (count, service, queue) = match words {
        [count, service] => (count, service, None),
        [count, service, "queue", queue] => (count, service, Some(queue)),
        _ => return Err(EXPECTED.to_owned()),
    };
    let slots = setting::whole(count, 1, 100_000)
        .map_err(|expected| format!("{expected} of slots, as in `slots 20 100ms`"))?;
    let service = setting::positive(service)
        .map_err(|expected| format!("{expected} as the time to serve, as in `slots 20 100ms`"))?;
    let queue = queue.map(|queue| {
        setting::whole(queue, 0, 10_000_000).map_err(|expected| {
            format!("{expected} after `queue`, as in `slots 20 100ms queue 200`")
        })
    });
    let queue = queue.transpose()?;
    Ok(Limit {
        kind: Kind::Slots {
            slots,
            service,
            queue: queue.unwrap_or(DEFAULT_QUEUE),
        },
        is_partial: queue.is_none(),
    })
}

/// A duration of which the number may be left out: `s` is `1s`.
fn with_number(duration: &str) -> Cow<'_, str> {
    match is_bare_unit(duration) {
        true => format!("1{duration}").into(),
        false => duration.into(),
    }
}

/// `s` and not `1s`.
fn is_bare_unit(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic())
}

fn number(text: &str) -> Option<f64> {
    let is_plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
    if !text.chars().all(is_plain) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Parses a step, a change of the limit: `60s=20/s`.
pub fn step(text: &str) -> Result<(Duration, Limit), String> {
    let expected = "a time and the limit from then on, as in `60s=20/s`";
    let (at, to) = text.split_once('=').ok_or(expected)?;
    let at = duration::parse(at).map_err(|_| expected)?;
    Ok((at, limit(to)?))
}

/// Applies steps to the first limit; each keeps what it does not name.
///
/// # Errors
///
/// The index of the first invalid step, and what was expected instead.
pub fn steps(first: Kind, written: &[(Duration, Limit)]) -> Result<Vec<Step>, (usize, String)> {
    let mut steps: Vec<Step> = Vec::new();
    let mut kind = first;
    for (index, (at, limit)) in written.iter().enumerate() {
        let at = Timestamp::ZERO + *at;
        if let Some(last) = steps.last().filter(|last| at <= last.at) {
            let last = Exact(last.at.since(Timestamp::ZERO));
            return Err((
                index,
                format!("a time later than that of the step before ({last})"),
            ));
        }
        kind = limit.after(kind).ok_or_else(|| {
            let expected = match kind {
                UNLIMITED => {
                    "a rate such as `60s=20/s`, or `--limit` with the limit that it changes"
                }
                _ => "a limit of the same kind as the first, windows of the same length",
            };
            (index, expected.to_owned())
        })?;
        steps.push(Step { at, kind });
    }
    Ok(steps)
}

/// Parses an outage: `60s..90s`, or `60s..90s=503` for responses with a status. `timeout_share` of
/// its requests get no response; the default is 0.5, with a status 0.
pub fn outage(text: &str, timeout_share: Option<f64>) -> Result<Outage, String> {
    const EXPECTED: &str = "two times, as in `60s..90s`, or with a status, as in `60s..90s=503`";
    let (times, status) = match text.split_once('=') {
        Some((times, status)) => (times, Some(status)),
        None => (text, None),
    };
    let (from, to) = times.split_once("..").ok_or(EXPECTED)?;
    let from = duration::parse(from).map_err(|_| EXPECTED)?;
    let to = duration::parse(to).map_err(|_| EXPECTED)?;
    if to <= from {
        return Err(format!("an end later than its beginning ({})", Exact(from)));
    }
    let status = status.map(|status| {
        setting::whole(status, 400, 599)
            .map_err(|_| "a status from 400 to 599 after `=`, as in `60s..90s=503`".to_owned())
    });
    let status = status.transpose()?;
    let default_share = if status.is_some() { 0.0 } else { 0.5 };
    Ok(Outage {
        from: Timestamp::ZERO + from,
        to: Timestamp::ZERO + to,
        timeout_share: timeout_share.unwrap_or(default_share),
        timeout: Duration::from_secs(5),
        status,
    })
}

/// Sorts outages.
///
/// # Errors
///
/// The index of the first that overlaps with one before it, and what was expected instead.
pub fn outages(written: Vec<Outage>) -> Result<Vec<Outage>, (usize, String)> {
    for (index, outage) in written.iter().enumerate() {
        let overlaps = |other: &&Outage| outage.from < other.to && other.from < outage.to;
        if let Some(other) = written[..index].iter().find(overlaps) {
            let shown = |at: Timestamp| Exact(at.since(Timestamp::ZERO));
            let (from, to) = (shown(other.from), shown(other.to));
            return Err((
                index,
                format!("an outage apart from that of {from} to {to}"),
            ));
        }
    }
    let mut outages = written;
    outages.sort_by_key(|outage| outage.from);
    Ok(outages)
}

/// Parses a ban: `5 in 30s for 60s`.
pub fn ban(text: &str) -> Result<Ban, String> {
    let expected = "how many refusals in what time ban for how long, as in `5 in 30s for 60s`";
    let words: Vec<&str> = text.split_whitespace().collect();
    let [excesses, "in", within, "for", length] = words.as_slice() else {
        return Err(expected.to_owned());
    };
    Ok(Ban {
        excesses: setting::whole(excesses, 1, 1_000_000).map_err(|_| expected)?,
        within: setting::positive(within).map_err(|_| expected)?,
        length: setting::positive(length).map_err(|_| expected)?,
    })
}

/// Parses a share from 0 to 1, such as `0.03` or `3%`.
pub fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent.trim_end()).map(|percent| percent / 100.0),
        None => number(text),
    };
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share from 0 to 1, such as `0.03` or `3%`".to_owned())
}

/// Parses a length in bytes, `128` or `64KiB`, of at most 64 MiB: the body is held in memory.
pub fn size(text: &str) -> Result<usize, String> {
    const MAX: usize = 64 << 20;
    let bytes = match text.parse() {
        Ok(Size::Bytes(bytes)) => usize::try_from(bytes).ok(),
        Ok(Size::None) => None,
        Err(_) => setting::whole(text, 0, MAX).ok(),
    };
    let bytes = bytes.filter(|bytes| *bytes <= MAX);
    bytes.ok_or_else(|| "a number of bytes such as `128` or `64KiB`, up to `64MiB`".to_owned())
}

/// Parses the spread of latencies, as in a scenario.
pub fn spread(text: &str) -> Result<f64, String> {
    let spread = number(text).filter(|spread| (0.0..=5.0).contains(spread));
    spread.ok_or_else(|| "a number from 0 to 5".to_owned())
}

#[cfg(test)]
mod tests;
