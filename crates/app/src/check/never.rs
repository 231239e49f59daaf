//! Warnings about valid settings that are probably mistakes: those without effect, those that can
//! never be reached, and dangerous ones.
//!
//! There are no warnings about default values, because the default file has every setting.

use std::collections::BTreeSet;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::classify::Rule;
use policy::duration::Exact;
use policy::gate::GateSettings;
use policy::ladder::{LadderOptions, LadderSettings};
use policy::limits::Limit;
use policy::preset::Preset;
use policy::rate::Strategy;
use policy::text::same_name;

use url::{Host, Url};

use super::{Warning, backoff, max_wait};
use crate::host_check::is_localhost;
use crate::settings::{self, PoolSettings, Settings, WEBHOOK_OPERATION};

pub(super) fn warnings(settings: &Settings) -> Vec<Warning> {
    let mut warnings = Warnings::default();
    warnings.gates(settings);
    for pool in settings.pools.values() {
        warnings.pool(pool, settings);
    }
    warnings.operations(settings);
    warnings.unused(settings);
    warnings.exposure(settings);
    warnings.retries(settings);
    warnings.found
}

#[derive(Default)]
struct Warnings {
    found: Vec<Warning>,
}

impl Warnings {
    fn add(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.found.push(Warning {
            key: key.into(),
            what: what.into(),
        });
    }

    fn gates(&mut self, settings: &Settings) {
        let default = &settings.gates.default_value().gate;
        let everywhere = gate_warnings(default);
        for (name, what) in &everywhere {
            self.add(join("gate", name), what);
        }
        for (pattern, host) in settings.gates.iter() {
            let key = format!("gate.\"{pattern}\"");
            // A warning about `[gate]` is not repeated for hosts that inherit it.
            let own = gate_warnings(&host.gate).into_iter();
            for (name, what) in own.filter(|warning| !everywhere.contains(warning)) {
                self.add(join(&key, name), what);
            }
            for (name, differs) in [
                ("max_gates", host.gate.max_gates() != default.max_gates()),
                ("shards", host.gate.shards() != default.shards()),
            ] {
                if differs {
                    let what = format!(
                        "has no effect for one host; set it in `[gate]` ({name} counts all gates)"
                    );
                    self.add(format!("{key}.{name}"), what);
                }
            }
            self.rules(&key, &host.rules);
        }
    }

    fn pool(&mut self, pool: &PoolSettings, settings: &Settings) {
        let key = format!("pool.{}", pool.name);
        self.rules(&key, &pool.rules);
        self.protection(&format!("{key}.protection"), pool);
        let backoff = backoff(settings, &pool.backoff);
        let max_wait = max_wait(settings, pool);
        self.late_attempts(&format!("{key}.backoff"), &backoff, max_wait, "max_wait");
        if pool.retry_unsafe {
            let what =
                "sends POST and PATCH again even if the server has acted: they may happen twice";
            self.add(format!("{key}.retry_unsafe"), what);
        }
    }

    fn protection(&mut self, key: &str, pool: &PoolSettings) {
        let protection = &pool.protection;
        if !pool.is_protected() {
            if pool.endpoints.len() == 1 && protection.enabled().is_none() {
                self.add(key, "is off: a single endpoint is left to its gate, because no other could do its work");
            }
            if !is_default(protection) {
                self.add(key, "has settings that have no effect while it is off");
            }
            return;
        }
        let climbs = !protection.statuses().is_empty()
            || !protection.texts().is_empty()
            || protection.unreachable();
        if !climbs {
            let what = "never pauses or disables an endpoint: no status, text or failure counts";
            self.add(key, what);
        }
        let used = protection.disable_after() as usize;
        if protection.pauses().len() > used {
            let what = format!(
                "from the {} on are never reached: `disable_after` is {used}",
                ordinal(used + 1)
            );
            self.add(format!("{key}.pauses"), what);
        }
    }

    /// Attempts that come after the time in which they could be made, however jitter falls.
    fn late_attempts(&mut self, key: &str, backoff: &BackoffSettings, time: Duration, name: &str) {
        let mut waited = Duration::ZERO;
        for attempt in 1..backoff.max_attempts() {
            waited = waited.saturating_add(backoff.bounds(attempt).0);
            if waited > time {
                let what = format!(
                    "allows {} attempts, but the {} comes after `{name}` ({}) at the earliest",
                    backoff.max_attempts(),
                    ordinal(attempt as usize + 1),
                    Exact(time)
                );
                self.add(key, what);
                return;
            }
        }
    }

    fn operations(&mut self, settings: &Settings) {
        for (name, operation) in &settings.operations {
            let key = format!("operation.{name}");
            let backoff = backoff(settings, &operation.backoff);
            let (key_of, time) = (format!("{key}.backoff"), operation.expires_after);
            self.late_attempts(&key_of, &backoff, time, "expires_after");
            self.rules(&key, &operation.rules);
        }
    }

    /// Rules that an earlier one shadows.
    fn rules(&mut self, key: &str, rules: &[Rule]) {
        for (index, rule) in rules.iter().enumerate() {
            let earlier = rules[..index]
                .iter()
                .position(|earlier| shadows(earlier, rule));
            if let Some(earlier) = earlier {
                let what = format!(
                    "never matches: `rule[{earlier}]` matches the same responses and comes first"
                );
                self.add(format!("{key}.rule[{index}]"), what);
            }
        }
    }

    /// Names that no section refers to.
    fn unused(&mut self, settings: &Settings) {
        let pools = settings.pools.values().map(|pool| &*pool.backoff);
        let operations = settings.operations.values();
        let used: BTreeSet<&str> = pools
            .chain(operations.map(|operation| &*operation.backoff))
            .chain(Preset::ALL.iter().map(|preset| preset.as_str()))
            .chain([WEBHOOK_OPERATION])
            .collect();
        for name in settings
            .backoffs
            .keys()
            .filter(|name| !used.contains(&***name))
        {
            let what = "is used by no pool and no type of operation";
            self.add(format!("backoff.{name}"), what);
        }
        let credentials = settings.credentials.iter();
        for (name, _) in credentials.filter(|(_, credential)| credential.refresh.is_none()) {
            let what = "has no `refresh`: a 401 ends the request";
            self.add(format!("credential.{name}"), what);
        }
        if !settings.forward.is_on() && !settings.forward.deny.is_empty() {
            let what = "has no effect: forward mode is off while `forward.allow` is empty";
            self.add("forward.deny", what);
        }
    }

    /// Unencrypted secrets, and networks that are open to redirects.
    fn exposure(&mut self, settings: &Settings) {
        for pool in settings.pools.values() {
            let endpoints = pool.endpoints.iter();
            for endpoint in endpoints.filter(|endpoint| !endpoint.headers.is_empty()) {
                if is_in_the_open(&endpoint.url) {
                    let key = format!("pool.{}.endpoints.{}", pool.name, endpoint.name);
                    self.add(key, "sends its headers unencrypted; use `https`");
                }
            }
        }
        for (name, credential) in &settings.credentials {
            let refresh = credential.refresh.as_ref();
            let token_url = refresh.and_then(settings::Refresh::token_url);
            if token_url.is_some_and(is_in_the_open) {
                let key = format!("credential.{name}.refresh.token_url");
                self.add(key, "gets its secrets unencrypted; use `https`");
            }
        }
        let networks = settings.network.allow.iter();
        for network in networks.filter(|network| network.prefix_len() == 0) {
            let what =
                format!("`{network}` is every address: redirects can reach your own machines");
            self.add("network.allow", what);
        }
    }

    fn retries(&mut self, settings: &Settings) {
        let budget = &settings.retry_budget;
        if budget.ratio() <= 0.0 && budget.min_per_second() == 0 {
            let what = "allows no retry at all: every request is sent once";
            self.add("retry_budget", what);
        }
        if settings.http.replay_buffer() == 0 {
            let what = "buffers nothing: requests with a body are sent once";
            self.add("http.replay_buffer", what);
        }
    }
}

fn join(key: &str, name: &str) -> String {
    if name.is_empty() {
        key.to_owned()
    } else {
        format!("{key}.{name}")
    }
}

/// A setting's name and what is the matter with it.
type Found = Vec<(&'static str, String)>;

fn gate_warnings(gate: &GateSettings) -> Found {
    let mut found = Found::new();
    if !gate.enabled() {
        let what = "is off: no pace, no breaker, nothing is learned";
        return vec![("enabled", what.to_owned())];
    }
    if gate.strategy() != Strategy::Aimd && gate.aimd() != GateSettings::default().aimd() {
        let what = "`burst`, `increase`, `decrease`, `latency_target`, `latency_degrade_factor` and \
                    `count_throttled` have no effect without `strategy = \"aimd\"`";
        found.push(("", what.to_owned()));
    }
    found.extend(samples(gate));
    found.extend(token_wait(gate));
    if gate.throttled_after() >= gate.max_wait() {
        let max_wait = Exact(gate.max_wait());
        let what =
            format!("is never exceeded: no caller waits longer than `max_wait` ({max_wait})");
        found.push(("throttled_after", what));
    }
    found.extend(limits(gate.known_limits()));
    found
}

/// Can the window ever hold enough outcomes for the share of failures to count?
fn samples(gate: &GateSettings) -> Option<(&'static str, String)> {
    let breaker = gate.breaker();
    let (_, max_rate) = gate.rate_bounds();
    // One more than the rate gives: the bucket may have been full when the window began.
    let by_rate = max_rate * breaker.window.as_secs_f64() + 1.0;
    let by_limits = gate.known_limits().iter();
    let by_limits = by_limits.map(|limit| most_within(limit, breaker.window));
    let most = by_limits.fold(by_rate, f64::min).floor();
    let what = || {
        format!(
            "is never reached: at most {most} outcomes fit into `window` ({}); \
             only `consecutive_failures` opens the breaker",
            Exact(breaker.window)
        )
    };
    (most < f64::from(breaker.min_samples)).then(|| ("min_samples", what()))
}

/// Is the time between two tokens longer than a caller may wait?
fn token_wait(gate: &GateSettings) -> Found {
    let mut found = Found::new();
    let gap = 1.0 / gate.initial_rate();
    if gap > gate.max_wait().as_secs_f64() {
        let what = format!(
            "is below the wait for one token at `initial_rate` ({gap:.1}s): \
             every caller but the first is refused"
        );
        found.push(("max_wait", what));
    }
    for limit in gate.known_limits() {
        let gap = limit.period() / limit.count();
        if gap > gate.max_wait() {
            let what = format!(
                "is below the time between two requests of the limit `{limit}` ({}): \
                 most waiting callers are refused",
                Exact(gap)
            );
            found.push(("max_wait", what));
        }
    }
    found
}

/// Limits that are never reached because of another one.
fn limits(limits: &[Limit]) -> Found {
    let mut found = Found::new();
    for (index, limit) in limits.iter().enumerate() {
        let mut tighter = limits.iter().enumerate().filter(|(other, tight)| {
            let is_other = *other != index && (*tight != limit || *other < index);
            is_other && covers(tight, limit)
        });
        if let Some((_, tight)) = tighter.next() {
            let what = format!("`{limit}` is never reached: `{tight}` is tighter");
            found.push(("limits", what));
        }
    }
    found
}

/// Plain HTTP to another machine.
fn is_in_the_open(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => is_localhost(name),
        None => false,
    };
    url.scheme() == "http" && !is_loopback
}

/// The most that a limit lets through in any stretch of `time`.
fn most_within(limit: &Limit, time: Duration) -> f64 {
    let periods = (time.as_secs_f64() / limit.period().as_secs_f64())
        .ceil()
        .max(1.0);
    periods * f64::from(limit.count())
}

/// Does `tight` keep everything that `loose` does?
fn covers(tight: &Limit, loose: &Limit) -> bool {
    most_within(tight, loose.period()) <= f64::from(loose.count())
}

fn is_default(protection: &LadderSettings) -> bool {
    let options = LadderOptions {
        enabled: protection.enabled(),
        ..LadderOptions::default()
    };
    options.build().is_ok_and(|default| default == *protection)
}

/// Does `earlier` hold wherever `later` does?
fn shadows(earlier: &Rule, later: &Rule) -> bool {
    /// A condition that is not written holds everywhere.
    fn covers<T>(earlier: &Option<T>, later: &Option<T>, is_same: impl Fn(&T, &T) -> bool) -> bool {
        let Some(earlier) = earlier else { return true };
        later.as_ref().is_some_and(|later| is_same(earlier, later))
    }
    let mut statuses = later.statuses.iter();
    let has_status = earlier.statuses.is_empty()
        || !later.statuses.is_empty() && statuses.all(|status| earlier.statuses.contains(status));
    has_status
        && covers(&earlier.header, &later.header, |earlier, later| {
            let matches = &earlier.matches;
            earlier.name.eq_ignore_ascii_case(&later.name)
                && (matches.is_empty() || matches.eq_ignore_ascii_case(&later.matches))
        })
        && covers(&earlier.code, &later.code, |a, b| {
            same_name(a.as_bytes(), b)
        })
        && covers(&earlier.text, &later.text, |a, b| a.eq_ignore_ascii_case(b))
}

fn ordinal(number: usize) -> String {
    match (number % 10, number % 100) {
        (1, tens) if tens != 11 => format!("{number}st"),
        (2, tens) if tens != 12 => format!("{number}nd"),
        (3, tens) if tens != 13 => format!("{number}rd"),
        _ => format!("{number}th"),
    }
}
