//! What becomes of a request, and when: the simulator's upstreams and the script, one after the other.
//!
//! The limits are the models that `tidegate simulate` plays, asked with a real clock. With several,
//! a request has to be within all of them: the first that has nothing left refuses it, and the
//! others are not touched. Outages, failures by chance and steps belong to the first.
//!
//! A script answers what the limits let through. Its n-th answer is for the n-th request that gets
//! that far, so that a script and a limit can be written together.

use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;
use sim::upstream::{Kind, LimitStatus, Reply, Upstream, UpstreamResponse, UpstreamSettings};

use super::MockSettings;
use super::script::{Cue, Script};

/// A limit that nobody reaches, for upstreams that only fail or take their time.
pub const UNLIMITED: Kind = Kind::Bucket {
    rate: 1e9,
    burst: 1e9,
};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is answered.
    Answered(Planned),
    /// The connection is reset.
    Reset,
    /// Nothing ever comes.
    Silent,
}

/// An answer before it has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// When it leaves.
    pub(super) at: Timestamp,
    pub(super) status: u16,
    pub(super) why: Why,
    /// `Retry-After`, in whole seconds.
    pub(super) retry_after: Option<u64>,
    /// The limit that refuses or, of those that let it through, has the least left.
    pub(super) limit: Option<LimitStatus>,
    /// The quota for a window, or else the first limit.
    pub(super) quota: Option<LimitStatus>,
    /// Does it break off in its middle?
    pub(super) is_cut: bool,
}

/// Why an answer is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is within every limit.
    Served,
    /// It fails by chance.
    Chance,
    /// It is one too many for a rate.
    Rate,
    /// It is one too many for a window.
    Quota,
    /// The client was refused too often.
    Banned,
    /// All slots are taken, and so is the queue.
    QueueFull,
    /// The server is away, and something in front of it says so.
    Away,
    /// The script has it so.
    Scripted,
}

/// Limits and script.
#[derive(Clone, Debug)]
pub(super) struct Model {
    limits: Vec<Limit>,
    script: Option<Script>,
    /// How many requests the script has answered.
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
            upstream.headers |= settings.style.always_tells();
            upstream.headers &= upstream.kind != UNLIMITED || !upstream.steps.is_empty();
            Limit::new(upstream, seed)
        });
        Self {
            limits: limits.collect(),
            script: settings.script.clone(),
            scripted: 0,
        }
    }

    /// Takes a request of `client` that arrives at `now`, which is never before an earlier one.
    pub(super) fn receive(&mut self, client: usize, now: Timestamp) -> Fate {
        match self.ask_limits(client, now) {
            Fate::Answered(planned) if planned.status == 200 => self.ask_script(planned, now),
            fate => fate,
        }
    }

    /// How often a client was banned.
    pub(super) fn bans(&self) -> u64 {
        self.limits.iter().map(|limit| limit.upstream.bans()).sum()
    }

    /// The most that ever waited for a slot.
    pub(super) fn max_queue(&self) -> Option<u64> {
        let queues = self.limits.iter();
        queues.filter_map(|limit| limit.upstream.max_queue()).max()
    }

    /// What is left of the quota, if there is a limit to tell of.
    pub(super) fn quota(&mut self, now: Timestamp) -> Option<LimitStatus> {
        let index = self.quota_index()?;
        let limit = &mut self.limits[index];
        limit
            .settings
            .headers
            .then(|| limit.upstream.limit_status(now))
    }

    fn ask_limits(&mut self, client: usize, now: Timestamp) -> Fate {
        let fate = match self.limits.as_mut_slice() {
            [] => Fate::Answered(Planned::served(now)),
            [only] => only.receive(client, now),
            [first, ..] if first.settings.outage_at(now).is_some() => first.receive(client, now),
            several => ask_several(several, client, now),
        };
        match fate {
            Fate::Answered(planned) if self.limits.len() > 1 => Fate::Answered(Planned {
                quota: self.quota(now),
                ..planned
            }),
            fate => fate,
        }
    }

    fn ask_script(&mut self, planned: Planned, now: Timestamp) -> Fate {
        let Some(script) = &self.script else {
            return Fate::Answered(planned);
        };
        let cue = script.cue(self.scripted);
        self.scripted += 1;
        match cue {
            Cue::Reset => Fate::Reset,
            Cue::Silent => Fate::Silent,
            Cue::Cut => Fate::Answered(Planned {
                is_cut: true,
                ..planned
            }),
            Cue::Answer {
                status,
                retry_after,
                latency,
            } => Fate::Answered(Planned {
                status,
                why: Why::Scripted,
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

/// A further limit: it refuses as the first does, and adds nothing to what is served.
fn further(first: Option<&UpstreamSettings>, kind: Kind) -> UpstreamSettings {
    let alone = UpstreamSettings::of(kind);
    UpstreamSettings {
        kind,
        latency: Duration::ZERO,
        failure_rate: 0.0,
        steps: Vec::new(),
        outages: Vec::new(),
        ..first.cloned().unwrap_or(alone)
    }
}

/// The first that has nothing left refuses; else all of them take the request.
fn ask_several(limits: &mut [Limit], client: usize, now: Timestamp) -> Fate {
    let is_spent = |limit: &mut Limit| limit.upstream.limit_status(now).remaining == 0;
    if let Some(spent) = limits
        .iter_mut()
        .find_map(|limit| is_spent(limit).then_some(limit))
    {
        return spent.receive(client, now);
    }
    let mut all: Option<Planned> = None;
    for limit in limits {
        match (limit.receive(client, now), all) {
            (Fate::Answered(planned), None) => all = Some(planned),
            (Fate::Answered(planned), Some(before)) => all = Some(before.and(planned)),
            (fate, _) => return fate,
        }
    }
    Fate::Answered(all.unwrap_or_else(|| Planned::served(now)))
}

impl Limit {
    fn new(settings: UpstreamSettings, seed: u64) -> Self {
        Self {
            upstream: Upstream::new(&settings),
            settings,
            random: Random::from_seed(seed),
        }
    }

    fn receive(&mut self, client: usize, now: Timestamp) -> Fate {
        match self.upstream.receive(client, now, &mut self.random) {
            Reply::Unreachable => Fate::Reset,
            Reply::Silent { .. } => Fate::Silent,
            Reply::Response { at, response } => Fate::Answered(Planned {
                // Both ways at once: only the client could tell them apart.
                at: at + self.settings.network * 2,
                status: response.status,
                why: self.why(&response, now),
                retry_after: response.retry_after,
                limit: response.limit,
                quota: response.limit,
                is_cut: false,
            }),
        }
    }

    fn why(&self, response: &UpstreamResponse, now: Timestamp) -> Why {
        let is_window = matches!(self.settings.kind, Kind::Window { .. });
        match response.status {
            _ if self.settings.outage_at(now).is_some() => Why::Away,
            500 => Why::Chance,
            403 => Why::Banned,
            429 if is_window => Why::Quota,
            429 => Why::Rate,
            503 => Why::QueueFull,
            _ => Why::Served,
        }
    }
}

impl Planned {
    fn served(at: Timestamp) -> Self {
        Self {
            at,
            status: 200,
            why: Why::Served,
            retry_after: None,
            limit: None,
            quota: None,
            is_cut: false,
        }
    }

    /// Both at once: the worse status, the later time, and what has less left.
    fn and(self, other: Self) -> Self {
        let at = self.at.max(other.at);
        let worse = if other.status > self.status {
            other
        } else {
            self
        };
        let left = |planned: &Self| planned.limit.map_or(u64::MAX, |limit| limit.remaining);
        let limit = if left(&other) < left(&self) {
            other.limit
        } else {
            self.limit
        };
        Self { at, limit, ..worse }
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

    fn status(fate: Fate) -> u16 {
        match fate {
            Fate::Answered(planned) => planned.status,
            Fate::Reset => 0,
            Fate::Silent => 1,
        }
    }

    #[test]
    fn what_happens_is_what_the_simulator_plays() {
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
                let met = match model.receive(0, now) {
                    Fate::Answered(met) => Some((met.at, met.status, met.retry_after)),
                    Fate::Reset | Fate::Silent => None,
                };
                assert_eq!(met, expected, "{} at {now:?}", shipped.name);
            }
        }
    }

    #[test]
    fn it_says_which_limit_refuses_and_what_is_left_of_the_quota() {
        let mut model = Model::new(&MockSettings {
            style: crate::mock::Style::Github,
            upstream: Some(UpstreamSettings::of(spec::limit("1/s").unwrap().kind())),
            further: vec![spec::limit("2/1h").unwrap().kind()],
            ..MockSettings::default()
        });
        let mut met = |seconds| match model.receive(0, Timestamp::from_secs(seconds)) {
            Fate::Answered(met) => (met.why, met.quota.map(|quota| quota.remaining)),
            fate => panic!("{fate:?}"),
        };
        assert_eq!(met(0), (Why::Served, Some(1)));
        assert_eq!(met(0), (Why::Rate, Some(1)));
        assert_eq!(met(1), (Why::Served, Some(0)));
        assert_eq!(met(2), (Why::Quota, Some(0)));
    }

    proptest! {
        /// Whoever is accepted is accepted by each limit alone, and who is refused takes nothing.
        #[test]
        fn several_limits_are_all_or_nothing(
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
                let status = status(together.receive(0, at));
                prop_assert_eq!(status == 200, has_room);
                if has_room {
                    for model in &mut alone {
                        model.receive(0, at);
                    }
                }
            }
        }
    }
}
