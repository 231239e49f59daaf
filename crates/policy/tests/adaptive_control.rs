//! The default strategy against upstreams with an unknown limit, in virtual time: it must find the
//! limit, stay there, and be refused rarely. The bounds leave some room above what it reaches
//! today, so that regressions are noticed.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tidegate_policy::breaker::BreakerState;
use tidegate_policy::gate::{Ask, Decision, Gate, GateOptions, GateSettings, Permit};
use tidegate_policy::hint::{Hint, Source};
use tidegate_policy::line::Tickets;
use tidegate_policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate_policy::random::Random;
use tidegate_policy::time::Timestamp;

/// The upstream refuses what exceeds a token bucket, with a 429 without a hint.
#[test]
fn finds_the_rate_of_a_token_bucket() {
    let run = run(Upstream::Bucket {
        steps: vec![(0.0, 50.0)],
        burst: 10.0,
        tokens: 10.0,
        at: 0.0,
    });
    run.expect("bucket", 0.97, 0.005);
    assert!(run.accepted_between(0.0, 10.0) > 350.0, "and fast");
}

/// A limit of 300 per ten seconds, shown in the headers of every response.
#[test]
fn paces_by_headers_without_being_refused() {
    let run = run(Upstream::Window {
        quota: 300,
        period: 10.0,
        used: 0,
        index: 0,
        headers: true,
    });
    run.expect("window with headers", 0.97, 0.005);
}

/// A limit of 600 per minute, shown only by the Retry-After of a 429.
#[test]
fn uses_up_a_window_and_waits_for_the_next() {
    let run = run(Upstream::Window {
        quota: 600,
        period: 60.0,
        used: 0,
        index: 0,
        headers: false,
    });
    run.expect("window with Retry-After", 0.97, 0.02);
}

/// Twenty slots: latency rises long before anything is refused.
#[test]
fn does_not_build_a_queue() {
    let run = run(Upstream::slots(20, 0.1, 0.0));
    run.expect("slots", 0.93, 0.0);
    assert!(run.mean_latency < 0.160, "{}", run.mean_latency);
}

/// Three percent fail at random, which says nothing about the rate.
#[test]
fn random_failures_do_not_slow_it_down() {
    let run = run(Upstream::slots(40, 0.08, 0.03));
    run.expect("random failures", 0.90, 0.0);
    assert_eq!(run.opened, 0);
}

#[test]
fn follows_a_changing_limit() {
    let steps = vec![(0.0, 100.0), (60.0, 20.0), (120.0, 200.0)];
    let run = run(Upstream::Bucket {
        steps,
        burst: 10.0,
        tokens: 10.0,
        at: 0.0,
    });
    assert!(run.accepted_between(65.0, 115.0) > 0.9 * 20.0 * 50.0);
    assert!(run.accepted_between(140.0, 300.0) > 0.9 * 200.0 * 160.0);
    assert!(run.refused as f64 <= 0.01 * run.sent as f64, "{run:?}");
}

#[test]
fn sends_little_during_an_outage_and_recovers() {
    let run = run(Upstream::Outage {
        from: 60.0,
        to: 90.0,
        rate: 100.0,
        tokens: 10.0,
        at: 0.0,
    });
    let into = run.sent_between(61.5, 90.0);
    assert!(into <= 40.0, "{into} sent into the outage");
    assert!(run.opened > 0);
    assert!(run.accepted_between(95.0, 300.0) > 0.9 * 100.0 * 205.0);
}

/// One request per two seconds: every excess is expensive.
#[test]
fn is_rarely_refused_at_a_low_limit() {
    let run = run(Upstream::Bucket {
        steps: vec![(0.0, 0.5)],
        burst: 1.0,
        tokens: 1.0,
        at: 0.0,
    });
    run.expect("half a request per second", 0.7, 0.12);
}

const SECONDS: f64 = 300.0;
const NETWORK: f64 = 0.01;

#[derive(Debug)]
enum Upstream {
    Bucket {
        steps: Vec<(f64, f64)>,
        burst: f64,
        tokens: f64,
        at: f64,
    },
    Window {
        quota: u32,
        period: f64,
        used: u32,
        index: u64,
        headers: bool,
    },
    Slots {
        free_at: BinaryHeap<Reverse<u64>>,
        service: f64,
        failures: f64,
        capacity: f64,
    },
    Outage {
        from: f64,
        to: f64,
        rate: f64,
        tokens: f64,
        at: f64,
    },
}

enum Reply {
    Accept {
        server_time: Option<f64>,
        hint: Hint,
    },
    Refuse {
        status: u16,
        hint: Hint,
    },
    Fail500,
    Dead {
        timeout: bool,
    },
}

impl Upstream {
    fn slots(slots: u32, service: f64, failures: f64) -> Self {
        let free_at = (0..slots).map(|_| Reverse(0)).collect();
        Self::Slots {
            free_at,
            service,
            failures,
            capacity: f64::from(slots) / service * (1.0 - failures),
        }
    }

    /// The capacity per second from 60 s on.
    fn capacity(&self) -> f64 {
        match self {
            Self::Bucket { steps, .. } => steps[0].1,
            Self::Window { quota, period, .. } => f64::from(*quota) / period,
            Self::Slots { capacity, .. } => *capacity,
            Self::Outage { rate, .. } => *rate,
        }
    }

    fn reply(&mut self, now: f64, random: &mut Random) -> Reply {
        let plain = || Reply::Accept {
            server_time: None,
            hint: Hint::default(),
        };
        let refuse = |status| Reply::Refuse {
            status,
            hint: Hint::default(),
        };
        match self {
            Self::Bucket {
                steps,
                burst,
                tokens,
                at,
            } => {
                let rate = steps.iter().rev().find(|(from, _)| *from <= now).unwrap().1;
                if take(tokens, at, rate, *burst, now) {
                    plain()
                } else {
                    refuse(429)
                }
            }
            Self::Outage {
                from,
                to,
                rate,
                tokens,
                at,
            } => {
                if (*from..*to).contains(&now) {
                    return Reply::Dead {
                        timeout: random.below(2) == 0,
                    };
                }
                if take(tokens, at, *rate, 10.0, now) {
                    plain()
                } else {
                    refuse(429)
                }
            }
            Self::Window {
                quota,
                period,
                used,
                index,
                headers,
            } => {
                let present = (now / *period) as u64;
                if present != *index {
                    (*index, *used) = (present, 0);
                }
                let left = (present + 1) as f64 * *period - now;
                let accepted = *used < *quota;
                *used += u32::from(accepted);
                let reset = Some(Duration::from_secs(left.ceil() as u64));
                let hint = if *headers {
                    Hint {
                        remaining: Some(u64::from(*quota - *used)),
                        reset,
                        ..Hint::default()
                    }
                } else if accepted {
                    Hint::default()
                } else {
                    Hint {
                        wait: reset,
                        source: Some(Source::RetryAfter),
                        ..Hint::default()
                    }
                };
                let wait = hint.wait.or_else(|| hint.reset.filter(|_| !accepted));
                match accepted {
                    true => Reply::Accept {
                        server_time: None,
                        hint,
                    },
                    false => Reply::Refuse {
                        status: 429,
                        hint: Hint { wait, ..hint },
                    },
                }
            }
            Self::Slots {
                free_at,
                service,
                failures,
                ..
            } => {
                let arrived = (now * 1e9) as u64;
                let queued = free_at
                    .iter()
                    .filter(|slot| slot.0 > arrived + (*service * 1e9) as u64 * 10)
                    .count();
                if queued == free_at.len() {
                    return refuse(503);
                }
                let Reverse(free) = free_at.pop().unwrap();
                let done = free.max(arrived) + (lognormal(*service, random) * 1e9) as u64;
                free_at.push(Reverse(done));
                if random.unit() < *failures {
                    return Reply::Fail500;
                }
                Reply::Accept {
                    server_time: Some((done - arrived) as f64 / 1e9),
                    hint: Hint::default(),
                }
            }
        }
    }
}

fn take(tokens: &mut f64, at: &mut f64, rate: f64, burst: f64, now: f64) -> bool {
    *tokens = (*tokens + (now - *at) * rate).min(burst);
    *at = now;
    let taken = *tokens >= 1.0;
    *tokens -= f64::from(u8::from(taken));
    taken
}

fn lognormal(mean: f64, random: &mut Random) -> f64 {
    let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    mean * (0.25 * normal - 0.25 * 0.25 / 2.0).exp()
}

#[derive(Debug, Default)]
struct Run {
    capacity: f64,
    sent: u64,
    refused: u64,
    opened: u32,
    mean_latency: f64,
    accepted_at: Vec<f64>,
    sent_at: Vec<f64>,
}

impl Run {
    fn accepted_between(&self, from: f64, to: f64) -> f64 {
        self.accepted_at
            .iter()
            .filter(|at| (from..to).contains(*at))
            .count() as f64
    }

    fn sent_between(&self, from: f64, to: f64) -> f64 {
        self.sent_at
            .iter()
            .filter(|at| (from..to).contains(*at))
            .count() as f64
    }

    fn expect(&self, name: &str, goodput: f64, refused: f64) {
        let ratio = self.accepted_between(60.0, SECONDS) / (self.capacity * (SECONDS - 60.0));
        let share = self.refused as f64 / self.sent as f64;
        assert!(ratio >= goodput, "{name}: goodput {ratio}");
        assert!(share <= refused, "{name}: refused {share}");
    }
}

/// One client with an endless backlog.
struct Client {
    settings: GateSettings,
    gate: Gate,
    tickets: Tickets,
    random: Random,
    upstream: Upstream,
    answers: BTreeMap<(Timestamp, u64), (Permit, Outcome, Verdict)>,
    run: Run,
}

fn run(upstream: Upstream) -> Run {
    let mut options = GateOptions::default();
    options.set("max_wait", "1h").unwrap();
    let settings = options.build().unwrap();
    let run = Run {
        capacity: upstream.capacity(),
        ..Run::default()
    };
    let gate = Gate::new(&settings, Timestamp::ZERO);
    let answers = BTreeMap::new();
    let random = Random::from_seed(7);
    let client = Client {
        settings,
        gate,
        tickets: Tickets::new(),
        random,
        upstream,
        answers,
        run,
    };
    client.run()
}

impl Client {
    fn run(mut self) -> Run {
        let mut now = Timestamp::ZERO;
        let mut was = BreakerState::Closed;
        while now < Timestamp::ZERO.after_seconds(SECONDS) {
            while self.gate.waiting(&self.tickets) == 0 && self.ask(now) {}
            let due = self.gate.next_wake(&self.settings, &self.tickets, now);
            let answer = self.answers.first_key_value().map(|(key, _)| key.0);
            now = [
                due,
                answer,
                self.gate
                    .snapshot(&self.settings, &self.tickets, now)
                    .breaker_until,
            ]
            .into_iter()
            .flatten()
            .min()
            .unwrap()
            .max(now);
            if answer == Some(now) {
                let (_, (permit, outcome, verdict)) = self.answers.pop_first().unwrap();
                self.gate
                    .settle(&self.settings, permit, &outcome, Some(verdict), now);
            }
            while let Some((_, permit)) =
                self.gate.admit_next(&self.settings, &mut self.tickets, now)
            {
                self.send(permit, now);
            }
            let state = self.gate.breaker_state(now);
            self.run.opened += u32::from(state == BreakerState::Open && was != state);
            was = state;
        }
        self.run.mean_latency /= self.run.accepted_at.len() as f64;
        self.run
    }

    /// `false` once the gate neither admits nor queues any more.
    fn ask(&mut self, now: Timestamp) -> bool {
        let ask = Ask {
            waits_for_breaker: true,
            ..Ask::until(now + Duration::from_secs(3600))
        };
        match self
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, now)
        {
            Decision::Admit(permit) => {
                self.send(permit, now);
                true
            }
            Decision::Wait { .. } => true,
            Decision::Refuse { .. } => false,
        }
    }

    fn send(&mut self, permit: Permit, now: Timestamp) {
        let seconds = now.seconds_since(Timestamp::ZERO);
        self.run.sent += 1;
        self.run.sent_at.push(seconds);
        let reply = self.upstream.reply(seconds + NETWORK, &mut self.random);
        let (took, outcome, verdict) = self.judge(reply);
        let latency = Duration::from_secs_f64(took);
        if verdict == Verdict::Success {
            self.run.accepted_at.push(seconds + took);
            self.run.mean_latency += took;
        }
        let key = (now + latency, self.run.sent);
        self.answers
            .insert(key, (permit, Outcome { latency, ..outcome }, verdict));
    }

    fn judge(&mut self, reply: Reply) -> (f64, Outcome, Verdict) {
        let answer = |status| Outcome::status(status, Duration::ZERO);
        match reply {
            Reply::Accept { server_time, hint } => {
                let server_time = server_time.unwrap_or_else(|| lognormal(0.07, &mut self.random));
                (
                    2.0 * NETWORK + server_time,
                    answer(200).with_hint(hint),
                    Verdict::Success,
                )
            }
            Reply::Refuse { status, hint } => {
                self.run.refused += 1;
                let verdict = if status == 503 {
                    Verdict::Overloaded
                } else {
                    Verdict::Throttled
                };
                (
                    2.0 * NETWORK + 0.015,
                    answer(status).with_hint(hint),
                    verdict,
                )
            }
            Reply::Fail500 => (2.0 * NETWORK + 0.03, answer(500), Verdict::Overloaded),
            Reply::Dead { timeout } => {
                let took = if timeout { 5.0 } else { 2.0 * NETWORK };
                let failure = if timeout {
                    Failure::Timeout
                } else {
                    Failure::Connect
                };
                let outcome = Outcome::failure(failure, Phase::Connecting, Duration::ZERO);
                (took, outcome, Verdict::Unreachable)
            }
        }
    }
}
