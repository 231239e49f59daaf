//! Decides what happens to a request, and when: first the limits, then the script.
//!
//! The limits are the upstream models of `tidegate simulate`, with a real clock. With several, a
//! request has to be within all of them: the first that is exhausted refuses it, and the others are
//! not charged. Outages, random failures and steps belong to the first.
//!
//! The n-th response of a script is for the n-th request within the limits.

use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;
use sim::upstream::{Kind, LimitStatus, Reply, Upstream, UpstreamResponse, UpstreamSettings};

use super::MockSettings;
use super::script::{Script, ScriptStep};

/// A limit that is never reached, for upstreams that only fail or have latency.
pub const UNLIMITED: Kind = Kind::Bucket {
    rate: 1e9,
    burst: 1e9,
};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It gets this response.
    Respond(PlannedResponse),
    /// Its connection is reset.
    Reset,
    /// It never gets a response.
    Silent,
}

/// A response without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedResponse {
    /// When it is sent.
    pub(super) at: Timestamp,
    pub(super) status: u16,
    pub(super) reason: ResponseReason,
    /// `Retry-After` in seconds.
    pub(super) retry_after: Option<u64>,
    /// The limit that refuses or, if none does, the one with the least remaining.
    pub(super) limit: Option<LimitStatus>,
    /// The first window, else the first limit.
    pub(super) quota: Option<LimitStatus>,
    /// The limit on cost.
    pub(super) tokens: Option<LimitStatus>,
    /// What the request costs.
    pub(super) cost: u32,
    /// Whether its body is cut off in the middle.
    pub(super) is_cut: bool,
}

/// ResponseReason a response has its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseReason {
    /// The request is within every limit.
    Success,
    /// A random failure.
    RandomFailure,
    /// The request exceeds a rate.
    Rate,
    /// The request exceeds the quota of a window.
    Quota,
    /// The request exceeds the limit on cost; there is enough after this long.
    Cost(Duration),
    /// The client is banned.
    Banned,
    /// All slots and the queue are full.
    QueueFull,
    /// An outage with a status.
    Outage,
    /// The script says so.
    Script,
}

/// Limits and script.
#[derive(Clone, Debug)]
pub(super) struct Model {
    limits: Vec<Limit>,
    script: Option<Script>,
    /// How many requests the script has decided.
    scripted: u64,
}

#[derive(Clone, Debug)]
struct Limit {
    settings: UpstreamSettings,
    upstream: Upstream,
    random: Random,
}

impl Model {
    pub(super) fn new(settings: &MockSettings) -> Self {
        let first = settings.upstream.clone();
        let further = settings
            .further
            .iter()
            .map(|kind| further(first.as_ref(), *kind));
        let limits = first.iter().cloned().chain(further).zip(settings.seed..);
        let limits = limits.map(|(mut upstream, seed)| {
            upstream.headers |= settings.style.always_sends_limit();
            upstream.headers &=
                upstream.kind != UNLIMITED || !upstream.steps.is_empty() || upstream.cost.is_some();
            Limit::new(upstream, seed)
        });
        Self {
            limits: limits.collect(),
            script: settings.script.clone(),
            scripted: 0,
        }
    }

    /// Decides about a request of `client` with this cost that arrives at `now`, which never
    /// decreases.
    pub(super) fn receive(&mut self, client: usize, cost: u32, now: Timestamp) -> Decision {
        match self.check_limits(client, cost, now) {
            Decision::Respond(planned) if planned.status == 200 => self.apply_script(planned, now),
            decision => decision,
        }
    }

    /// The number of bans so far.
    pub(super) fn bans(&self) -> u64 {
        self.limits.iter().map(|limit| limit.upstream.bans()).sum()
    }

    /// The longest queue for slots so far.
    pub(super) fn max_queue(&self) -> Option<u64> {
        let queues = self.limits.iter();
        queues.filter_map(|limit| limit.upstream.max_queue()).max()
    }

    /// The state of the quota, if responses carry it.
    pub(super) fn quota(&mut self, now: Timestamp) -> Option<LimitStatus> {
        let index = self.quota_index()?;
        let limit = &mut self.limits[index];
        limit
            .settings
            .headers
            .then(|| limit.upstream.limit_status(now))
    }

    fn check_limits(&mut self, client: usize, cost: u32, now: Timestamp) -> Decision {
        let decision = match self.limits.as_mut_slice() {
            [] => Decision::Respond(PlannedResponse::success(cost, now)),
            [only] => only.receive(client, cost, now),
            [first, ..] if first.settings.outage_at(now).is_some() => {
                first.receive(client, cost, now)
            }
            several => check_several(several, client, cost, now),
        };
        match decision {
            Decision::Respond(planned) if self.limits.len() > 1 => {
                Decision::Respond(PlannedResponse {
                    quota: self.quota(now),
                    ..planned
                })
            }
            decision => decision,
        }
    }

    fn apply_script(&mut self, planned: PlannedResponse, now: Timestamp) -> Decision {
        let Some(script) = &self.script else {
            return Decision::Respond(planned);
        };
        let step = script.step(self.scripted);
        self.scripted += 1;
        match step {
            ScriptStep::Reset => Decision::Reset,
            ScriptStep::Silent => Decision::Silent,
            ScriptStep::Cut => Decision::Respond(PlannedResponse {
                is_cut: true,
                ..planned
            }),
            ScriptStep::Respond {
                status,
                retry_after,
                latency,
            } => Decision::Respond(PlannedResponse {
                status,
                reason: ResponseReason::Script,
                retry_after,
                at: latency.map_or(planned.at, |latency| now + latency),
                ..planned
            }),
        }
    }

    fn quota_index(&self) -> Option<usize> {
        let is_window = |limit: &Limit| matches!(limit.settings.kind, Kind::Window { .. });
        let window = self.limits.iter().position(is_window);
        window.or_else(|| (!self.limits.is_empty()).then_some(0))
    }
}

/// A further limit: it refuses like the first, and adds no latency, failures, outages or limit on
/// cost.
fn further(first: Option<&UpstreamSettings>, kind: Kind) -> UpstreamSettings {
    let alone = UpstreamSettings::of(kind);
    UpstreamSettings {
        kind,
        latency: Duration::ZERO,
        failure_rate: 0.0,
        steps: Vec::new(),
        outages: Vec::new(),
        cost: None,
        ..first.cloned().unwrap_or(alone)
    }
}

/// The first exhausted limit refuses; if there is none, the request is charged to all.
fn check_several(limits: &mut [Limit], client: usize, cost: u32, now: Timestamp) -> Decision {
    let is_exhausted = |limit: &mut Limit| {
        let upstream = &mut limit.upstream;
        upstream.limit_status(now).remaining == 0 || upstream.cost_wait(cost, now).is_some()
    };
    if let Some(exhausted) = limits
        .iter_mut()
        .find_map(|limit| is_exhausted(limit).then_some(limit))
    {
        return exhausted.receive(client, cost, now);
    }
    let mut combined: Option<PlannedResponse> = None;
    for limit in limits {
        match (limit.receive(client, cost, now), combined) {
            (Decision::Respond(planned), None) => combined = Some(planned),
            (Decision::Respond(planned), Some(before)) => combined = Some(before.and(planned)),
            (decision, _) => return decision,
        }
    }
    Decision::Respond(combined.unwrap_or_else(|| PlannedResponse::success(cost, now)))
}

impl Limit {
    fn new(settings: UpstreamSettings, seed: u64) -> Self {
        Self {
            upstream: Upstream::new(&settings),
            settings,
            random: Random::from_seed(seed),
        }
    }

    fn receive(&mut self, client: usize, cost: u32, now: Timestamp) -> Decision {
        let cost_wait = self.upstream.cost_wait(cost, now);
        let reply = self
            .upstream
            .receive_cost(client, cost, now, &mut self.random);
        match reply {
            Reply::Unreachable => Decision::Reset,
            Reply::Silent { .. } => Decision::Silent,
            Reply::Response { at, response } => Decision::Respond(PlannedResponse {
                // The client cannot tell the two ways apart.
                at: at + self.settings.network * 2,
                status: response.status,
                reason: match (cost_wait, response.status) {
                    (Some(wait), 429) => ResponseReason::Cost(wait),
                    _ => self.reason(&response, now),
                },
                retry_after: response.retry_after,
                limit: response.limit.filter(|_| self.has_limit()),
                quota: response.limit,
                tokens: response.tokens,
                cost,
                is_cut: false,
            }),
        }
    }

    /// Whether it limits requests, and not only their cost.
    fn has_limit(&self) -> bool {
        self.settings.kind != UNLIMITED || !self.settings.steps.is_empty()
    }

    fn reason(&self, response: &UpstreamResponse, now: Timestamp) -> ResponseReason {
        let is_window = matches!(self.settings.kind, Kind::Window { .. });
        match response.status {
            _ if self.settings.outage_at(now).is_some() => ResponseReason::Outage,
            500 => ResponseReason::RandomFailure,
            403 => ResponseReason::Banned,
            429 if is_window => ResponseReason::Quota,
            429 => ResponseReason::Rate,
            503 => ResponseReason::QueueFull,
            _ => ResponseReason::Success,
        }
    }
}

impl PlannedResponse {
    fn success(cost: u32, at: Timestamp) -> Self {
        Self {
            at,
            status: 200,
            reason: ResponseReason::Success,
            retry_after: None,
            limit: None,
            quota: None,
            tokens: None,
            cost,
            is_cut: false,
        }
    }

    /// Combines two: the higher status, the later time, and the limit with less remaining.
    fn and(self, other: Self) -> Self {
        let at = self.at.max(other.at);
        let worse = if other.status > self.status {
            other
        } else {
            self
        };
        let remaining = |planned: &Self| planned.limit.map_or(u64::MAX, |limit| limit.remaining);
        let limit = if remaining(&other) < remaining(&self) {
            other.limit
        } else {
            self.limit
        };
        Self {
            at,
            limit,
            tokens: self.tokens.or(other.tokens),
            ..worse
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sim::scenario::SHIPPED;

    use super::*;
    use crate::mock::spec;

    fn model(limits: &[&str]) -> Model {
        let mut kinds = limits.iter().map(|text| spec::limit(text).unwrap().kind());
        Model::new(&MockSettings {
            upstream: kinds.next().map(|kind| UpstreamSettings {
                latency_spread: 0.0,
                ..UpstreamSettings::of(kind)
            }),
            further: kinds.collect(),
            ..MockSettings::default()
        })
    }

    fn status(decision: Decision) -> u16 {
        match decision {
            Decision::Respond(planned) => planned.status,
            Decision::Reset => 0,
            Decision::Silent => 1,
        }
    }

    #[test]
    fn decides_like_the_simulated_upstream() {
        for shipped in SHIPPED {
            let upstream = shipped.scenario().upstream;
            let mut simulated = Upstream::new(&upstream);
            let mut random = Random::from_seed(7);
            let mut model = Model::new(&MockSettings {
                upstream: Some(upstream.clone()),
                seed: 7,
                ..MockSettings::default()
            });
            for number in 0..2000 {
                let now = Timestamp::from_millis(number * 60);
                let reply = simulated.receive(0, now, &mut random);
                let expected = match reply {
                    Reply::Response { at, response } => {
                        let at = at + upstream.network * 2;
                        Some((at, response.status, response.retry_after))
                    }
                    Reply::Unreachable | Reply::Silent { .. } => None,
                };
                let decided = match model.receive(0, 1, now) {
                    Decision::Respond(planned) => {
                        Some((planned.at, planned.status, planned.retry_after))
                    }
                    Decision::Reset | Decision::Silent => None,
                };
                assert_eq!(decided, expected, "{} at {now:?}", shipped.name);
            }
        }
    }

    #[test]
    fn names_the_limit_that_refuses_and_the_remaining_quota() {
        let mut model = Model::new(&MockSettings {
            style: crate::mock::Style::Github,
            upstream: Some(UpstreamSettings::of(spec::limit("1/s").unwrap().kind())),
            further: vec![spec::limit("2/1h").unwrap().kind()],
            ..MockSettings::default()
        });
        let mut receive = |seconds| match model.receive(0, 1, Timestamp::from_secs(seconds)) {
            Decision::Respond(planned) => {
                (planned.reason, planned.quota.map(|quota| quota.remaining))
            }
            decision => panic!("{decision:?}"),
        };
        assert_eq!(receive(0), (ResponseReason::Success, Some(1)));
        assert_eq!(receive(0), (ResponseReason::Rate, Some(1)));
        assert_eq!(receive(1), (ResponseReason::Success, Some(0)));
        assert_eq!(receive(2), (ResponseReason::Quota, Some(0)));
    }

    proptest! {
        /// A request is accepted if each limit alone accepts it; a refused one is charged to none.
        #[test]
        fn charges_all_limits_or_none(
            gaps in prop::collection::vec(0_u64..400, 1..200),
        ) {
            let limits = ["5/s burst 3", "10/3s", "slots 2 300ms queue 1"];
            let mut together = model(&limits);
            let mut alone = limits.map(|limit| model(&[limit]));
            let mut now = 0;
            for gap in gaps {
                now += gap;
                let at = Timestamp::from_millis(now);
                let has_room = alone.iter_mut().all(|model| {
                    model.limits[0].upstream.limit_status(at).remaining > 0
                });
                let status = status(together.receive(0, 1, at));
                prop_assert_eq!(status == 200, has_room);
                if has_room {
                    for model in &mut alone {
                        model.receive(0, 1, at);
                    }
                }
            }
        }
    }
}
