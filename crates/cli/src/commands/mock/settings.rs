//! The flags of `mock` as settings; every problem is reported in one run.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use app::mock::{MockSettings, Script, UNLIMITED, spec};
use config::{Location, Problem};
use policy::{duration, setting};
use sim::scenario::Scenario;
use sim::upstream::UpstreamSettings;

use super::MockArgs;
use crate::commands::Failure;
use crate::commands::problems;
use crate::commands::simulate::input;
use crate::output::Output;

/// What to run, and for how long.
pub(super) struct Plan {
    pub(super) mock: MockSettings,
    pub(super) listen: SocketAddr,
    pub(super) threads: NonZeroUsize,
    pub(super) length: Option<Duration>,
}

pub(super) fn read(args: &MockArgs, output: &Output) -> Result<Plan, Failure> {
    let file = args.scenario.as_deref().map(input::text).transpose()?;
    let scenario = file
        .map(|(name, text)| Scenario::read(&name, &text))
        .transpose();
    let mut reader = Reader::default();
    let scenario = scenario.unwrap_or_else(|found| {
        reader.problems.extend(found);
        None
    });
    let plan = reader.plan(args, scenario.map(|scenario| scenario.upstream));
    if reader.problems.is_empty() {
        return Ok(plan);
    }
    let file = args.scenario.as_deref();
    Err(problems::failure(file, reader.problems, HINT, output))
}

const HINT: &str = "`tidegate mock --help` shows how limits, scripts and outages are written";

/// Reads on after a problem, so that all are reported.
#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn plan(&mut self, args: &MockArgs, scenario: Option<UpstreamSettings>) -> Plan {
        let defaults = MockSettings::default();
        let (upstream, further) = self.upstream(args, scenario);
        let threads = |text: &str| setting::whole(text, 1, MAX_THREADS);
        let threads = self.optional("--threads", Some(&args.threads), threads);
        Plan {
            listen: self
                .optional("--listen", Some(&args.listen), address)
                .unwrap_or_else(|| PLACEHOLDER.into()),
            threads: threads
                .and_then(NonZeroUsize::new)
                .unwrap_or(NonZeroUsize::MIN),
            length: self.optional("--for", args.length.as_deref(), setting::positive),
            mock: MockSettings {
                upstream,
                further,
                script: self.optional("--script", args.script.as_deref(), Script::parse),
                style: args.style,
                seed: args.seed,
                body_size: self.optional("--body-size", args.body_size.as_deref(), spec::size),
                stream_every: self
                    .optional(
                        "--stream-every",
                        args.stream_every.as_deref(),
                        duration::parse,
                    )
                    .unwrap_or(defaults.stream_every),
                ..defaults
            },
        }
    }

    /// The upstream with all that the flags say about it, and further limits; no upstream if they
    /// say nothing, so that requests take the short path.
    fn upstream(
        &mut self,
        args: &MockArgs,
        scenario: Option<UpstreamSettings>,
    ) -> (Option<UpstreamSettings>, Vec<sim::upstream::Kind>) {
        let is_named = scenario.is_some();
        let limits = self.each("--limit", &args.limits, spec::limit);
        let mut kinds = limits.into_iter().map(spec::Limit::kind);
        let mut upstream = scenario.unwrap_or_else(|| UpstreamSettings {
            latency: Duration::ZERO,
            refuse_latency: Duration::ZERO,
            network: Duration::ZERO,
            ..UpstreamSettings::of(kinds.next().unwrap_or(UNLIMITED))
        });
        let untouched = upstream.clone();
        let further = kinds.collect();
        self.change(args, &mut upstream);
        let is_needed = is_named || !args.limits.is_empty() || upstream != untouched;
        (is_needed.then_some(upstream), further)
    }

    fn change(&mut self, args: &MockArgs, upstream: &mut UpstreamSettings) {
        upstream.retry_after |= args.retry_after;
        upstream.headers |= args.headers;
        let times = [
            ("--latency", &args.latency, &mut upstream.latency),
            (
                "--refuse-latency",
                &args.refuse_latency,
                &mut upstream.refuse_latency,
            ),
        ];
        for (flag, text, time) in times {
            if let Some(read) = self.optional(flag, text.as_deref(), duration::parse) {
                *time = read;
            }
        }
        let spread = self.optional(
            "--latency-spread",
            args.latency_spread.as_deref(),
            spec::spread,
        );
        upstream.latency_spread = spread.unwrap_or(upstream.latency_spread);
        let failing = self.optional("--failure-rate", args.failure_rate.as_deref(), spec::share);
        upstream.failure_rate = failing.unwrap_or(upstream.failure_rate);
        let ban = self.optional("--ban", args.ban.as_deref(), spec::ban);
        upstream.ban = ban.or(upstream.ban);
        let cost = self.optional("--cost", args.cost.as_deref(), spec::cost);
        upstream.cost = cost.or(upstream.cost);
        self.change_outages(args, upstream);
        self.change_steps(args, upstream);
        self.reject_unused(args, upstream);
    }

    /// Reports flags that say how requests over the limit are refused, where there is no limit.
    fn reject_unused(&mut self, args: &MockArgs, upstream: &UpstreamSettings) {
        let has_limits = !args.limits.is_empty() || !args.steps.is_empty();
        if has_limits || upstream.kind != UNLIMITED || upstream.cost.is_some() {
            return;
        }
        let unused = [
            ("--ban", &args.ban),
            ("--refuse-latency", &args.refuse_latency),
        ];
        for (flag, text) in unused {
            if let Some(text) = text {
                self.wrong(
                    flag,
                    text,
                    "a `--limit` with it: nothing is refused without one",
                );
            }
        }
    }

    fn change_outages(&mut self, args: &MockArgs, upstream: &mut UpstreamSettings) {
        let share = self.optional(
            "--timeout-share",
            args.timeout_share.as_deref(),
            spec::share,
        );
        let written = self.each("--outage", &args.outages, |text| spec::outage(text, share));
        if written.is_empty() {
            return;
        }
        match spec::outages(written) {
            Ok(outages) => upstream.outages = outages,
            Err((index, expected)) => self.wrong("--outage", &args.outages[index], expected),
        }
    }

    fn change_steps(&mut self, args: &MockArgs, upstream: &mut UpstreamSettings) {
        let written = self.each("--step", &args.steps, spec::step);
        if written.len() < args.steps.len() || written.is_empty() {
            return;
        }
        match spec::steps(upstream.kind, &written) {
            Ok(steps) => upstream.steps = steps,
            Err((index, expected)) => self.wrong("--step", &args.steps[index], expected),
        }
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        text: Option<&str>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = text?;
        match read(text) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.wrong(flag, text, expected);
                None
            }
        }
    }

    fn each<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let values = texts.iter();
        values
            .filter_map(|text| self.optional(flag, Some(text), &read))
            .collect()
    }

    fn wrong(&mut self, flag: &str, text: &str, expected: impl fmt::Display) {
        let location = Location::Flag(flag.to_owned());
        self.problems
            .push(Problem::expected(&location, "", text, expected));
    }
}

/// An address with its port; `localhost` is allowed.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let known = match text.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .ok()
            .map(|port| (Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().ok(),
    };
    known.ok_or("an IP address and a port such as `127.0.0.1:7080` or `[::1]:7080`")
}

/// Stands in for an address that cannot be read, so that the other flags are still checked.
const PLACEHOLDER: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// More than a mock can use on any machine.
const MAX_THREADS: usize = 256;
