//! Several servers that share their gates through a real Redis: as one client to an upstream, and while
//! Redis or a server fails.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use store::private_redis::{PASSWORD, PrivateRedis};

use super::support::{Home, Running, patient_get, wait, wait_for};

pub(super) const KEY: &str = "up/a";

/// An upstream with a limit, which records when requests arrive.
#[derive(Clone)]
pub(super) struct Upstream {
    address: String,
    pub(super) state: Arc<Mutex<UpstreamState>>,
}

pub(super) struct UpstreamState {
    /// Requests per second; it also accepts a tenth of this at once.
    limit: f64,
    /// With a window: it accepts this time's worth of requests in each, and tells how many are left.
    window: Option<Duration>,
    tokens: f64,
    at: Instant,
    pub(super) arrivals: Vec<Instant>,
    pub(super) refusals: Vec<Instant>,
    /// Seconds of Retry-After for the next request.
    retry_after: Option<u32>,
    /// When it was told.
    told_at: Option<Instant>,
}

impl Upstream {
    pub(super) fn start(limit: f64) -> Self {
        Self::with_window(limit, None)
    }

    pub(super) fn with_window(limit: f64, window: Option<Duration>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = Self {
            address: listener.local_addr().unwrap().to_string(),
            state: Arc::new(Mutex::new(UpstreamState {
                limit,
                window,
                tokens: window.map_or(limit / 10.0, |it| limit * it.as_secs_f64()),
                at: Instant::now(),
                arrivals: Vec::new(),
                refusals: Vec::new(),
                retry_after: None,
                told_at: None,
            })),
        };
        let served = upstream.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, served) = (stream.unwrap(), served.clone());
                thread::spawn(move || while served.respond(&stream).is_some() {});
            }
        });
        upstream
    }

    fn respond(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
        }
        let (status, more) = self.decide();
        if status == 200 {
            wait(Duration::from_millis(20));
        }
        let response = format!("HTTP/1.1 {status} X\r\n{more}content-length: 0\r\n\r\n");
        stream.write_all(response.as_bytes()).ok()
    }

    fn decide(&self) -> (u16, String) {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        state.arrivals.push(now);
        if let Some(seconds) = state.retry_after.take() {
            state.told_at = Some(now);
            return (429, format!("retry-after: {seconds}\r\n"));
        }
        let headers = state.renew(now);
        if state.tokens < 1.0 {
            state.refusals.push(now);
            return (429, headers);
        }
        state.tokens -= 1.0;
        (200, state.renew(now))
    }

    pub(super) fn arrivals(&self) -> Vec<Instant> {
        self.state.lock().unwrap().arrivals.clone()
    }

    /// The most requests within one of its windows since `from`.
    pub(super) fn worst_window(&self, window: Duration, from: Instant) -> usize {
        let state = self.state.lock().unwrap();
        let start = state.at;
        let mut counts = BTreeMap::new();
        for at in state.arrivals.iter().filter(|at| **at >= from) {
            // Windows are counted backwards from the present one.
            let before = start.saturating_duration_since(*at).as_nanos();
            *counts
                .entry(before.div_ceil(window.as_nanos()))
                .or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    /// The most requests within any ten seconds since `from`.
    pub(super) fn worst_ten_seconds(&self, from: Instant) -> usize {
        let arrivals = self.arrivals();
        let late: Vec<Instant> = arrivals.into_iter().filter(|at| *at >= from).collect();
        let end = |start: &Instant| *start + Duration::from_secs(10);
        let within = |start: &Instant| late.partition_point(|at| *at < end(start));
        let counts = late.iter().enumerate();
        let counts = counts.map(|(index, start)| within(start) - index);
        counts.max().unwrap_or(0)
    }
}

impl UpstreamState {
    /// Lets time pass. Returns what it tells of it.
    fn renew(&mut self, now: Instant) -> String {
        let elapsed = now.duration_since(self.at);
        let Some(window) = self.window else {
            let more = elapsed.as_secs_f64() * self.limit;
            self.tokens = (self.tokens + more).min(self.limit / 10.0);
            self.at = now;
            return String::new();
        };
        if elapsed >= window {
            self.tokens = self.limit * window.as_secs_f64();
            self.at += window.mul_f64(elapsed.div_duration_f64(window).floor());
        }
        let reset = (self.at + window).duration_since(now);
        format!(
            "x-ratelimit-remaining: {}\r\nx-ratelimit-reset: {}\r\n",
            self.tokens,
            reset.as_secs_f64().ceil()
        )
    }
}

/// Servers that share their gates.
pub(super) struct Fleet {
    redis: PrivateRedis,
    homes: Vec<Home>,
    nodes: Vec<Running>,
}

impl Fleet {
    fn start(nodes: usize, upstream: &Upstream) -> Self {
        let redis = PrivateRedis::start();
        let homes: Vec<Home> = (0..nodes)
            .map(|_| home(&redis.url(), upstream, ""))
            .collect();
        let nodes = homes.iter().map(Home::start).collect();
        Self {
            redis,
            homes,
            nodes,
        }
    }

    /// Whether every server says this of its gate.
    fn all(&self, check: impl Fn(&serde_json::Value) -> bool) -> bool {
        self.nodes.iter().all(|node| check(&gate(node)))
    }

    fn wait_until(&self, what: &str, check: impl Fn(&serde_json::Value) -> bool) {
        wait_for(what, || self.all(&check).then_some(()));
    }
}

pub(super) fn home(redis: &str, upstream: &Upstream, gate: &str) -> Home {
    let home = Home::new("");
    let address = home.data().with_file_name("address");
    fs::write(&address, redis).unwrap();
    home.write(&format!(
        "[pool.up]\n\
         endpoints = [{{ name = \"a\", url = \"http://{}\" }}]\n\
         [gate]\ninitial_rate = 20\n{gate}\n\
         [storage]\ngates = \"file:{}\"\n",
        upstream.address,
        address.display()
    ));
    home
}

/// Clients that send one request after the other.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<Vec<AtomicU64>>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    pub(super) fn start(nodes: &[Running], clients: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answered: Arc<Vec<AtomicU64>> =
            Arc::new(nodes.iter().map(|_| AtomicU64::new(0)).collect());
        let mut started = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            for _ in 0..clients {
                let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
                let address = node.listen.clone();
                started.push(thread::spawn(move || {
                    let mut failures = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        match patient_get(&address, "/up/x") {
                            Some(answer) if answer.status == 200 => {
                                answered[number].fetch_add(1, Ordering::Relaxed);
                            }
                            answer => {
                                failures.push(format!("{answer:?}"));
                                wait(Duration::from_millis(50));
                            }
                        }
                    }
                    failures
                }));
            }
        }
        Self {
            is_over,
            answered,
            clients: started,
        }
    }

    /// How many requests of each node succeeded so far.
    fn answered(&self) -> Vec<u64> {
        let counts = self.answered.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Stops, and returns what was not answered with 200.
    pub(super) fn stop(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.clients.into_iter().map(|it| it.join().unwrap());
        ended.flatten().collect()
    }
}

pub(super) const LIMIT: f64 = 50.0;

/// 105 % of what the upstream accepts in ten seconds.
const MAX_IN_TEN_SECONDS: usize = 525;

/// Waits until the limit is found, after which no more should be sent.
fn settle(fleet: &Fleet) -> Instant {
    settle_all(&fleet.nodes)
}

pub(super) fn settle_all(nodes: &[Running]) -> Instant {
    wait_for("a rate near the limit", || {
        let is_near = |node: &Running| {
            let rate = gate(node)["fleet"]["rate_per_second"].as_f64();
            rate.is_some_and(|rate| rate > 0.7 * LIMIT && rate < 1.05 * LIMIT)
        };
        nodes.iter().all(is_near).then_some(())
    });
    wait(Duration::from_secs(3));
    Instant::now()
}

#[test]
fn three_servers_are_one_client_while_redis_fails_in_every_way() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = Fleet::start(3, &upstream);
    let load = Load::start(&fleet.nodes, 6);
    let settled = settle(&fleet);
    fleet.wait_until("three servers", |gate| gate["fleet"]["servers"] == 3);
    let before = load.answered();
    wait(Duration::from_secs(6));
    let answered: Vec<u64> = load
        .answered()
        .iter()
        .zip(before)
        .map(|(a, b)| a - b)
        .collect();
    let (least, most) = (
        answered.iter().min().unwrap(),
        answered.iter().max().unwrap(),
    );
    assert!(2 * least > *most, "each server has its part: {answered:?}");
    assert_shows_the_share_of_each(&fleet);

    let is_degraded = |gate: &serde_json::Value| gate["fleet"]["is_degraded"] == true;
    fleet.redis.freeze();
    fleet.wait_until("degraded gates", is_degraded);
    wait(Duration::from_secs(4));
    assert_eq!(health(&fleet.nodes[0]), "degraded");
    assert!(metric(&fleet.nodes[0], "tidegate_store_silence_seconds") > 1.0);
    assert!(metric(&fleet.nodes[0], "tidegate_store_degraded") > 0.5);
    let overview = summary(&fleet.nodes[0]);
    assert_eq!(overview["stores"][0]["name"], "SQLite");
    assert_eq!(overview["stores"][0]["status"], "ok");
    assert_eq!(overview["stores"][1]["name"], "Redis");
    assert_eq!(overview["stores"][1]["status"], "degraded");
    assert_eq!(overview["attention"][0]["kind"], "store", "{overview}");
    fleet.redis.thaw();
    fleet.wait_until("shared gates", |gate| !is_degraded(gate));

    fleet.redis.crash();
    fleet.wait_until("degraded gates", is_degraded);
    wait(Duration::from_secs(4));
    fleet.redis.resume_service();
    fleet.wait_until("shared gates", |gate| !is_degraded(gate));
    wait(Duration::from_secs(3));

    fleet.redis.command(&["FLUSHALL"]);
    wait(Duration::from_secs(5));
    fleet.wait_until("three servers", |gate| gate["fleet"]["servers"] == 3);
    wait_for("health", || (health(&fleet.nodes[0]) == "ok").then_some(()));

    let worst = upstream.worst_ten_seconds(settled);
    let failures = load.stop();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(worst <= MAX_IN_TEN_SECONDS, "{worst} in ten seconds");
    let log = fleet.homes[0].stderr();
    assert!(
        log.contains("fleet_degraded") && log.contains("fleet_recovered"),
        "{log}"
    );
    let state = upstream.state.lock().unwrap();
    println!(
        "{} requests, {} refused",
        state.arrivals.len(),
        state.refusals.len()
    );
}

/// Any server knows the shares of all.
fn assert_shows_the_share_of_each(fleet: &Fleet) {
    let path = format!("/api/v1/gates/{KEY}/servers");
    for node in &fleet.nodes {
        let body = node.admin.must("GET", &path, None);
        let servers = body["servers"].as_array().unwrap();
        assert_eq!(servers.len(), fleet.nodes.len(), "{body}");
        let is_named = |it: &serde_json::Value| {
            it["server"]
                .as_str()
                .is_some_and(|it| it.starts_with("tidegate/"))
        };
        assert!(servers.iter().all(is_named), "{body}");
        let shares = servers.iter().map(|it| it["share"].as_f64().unwrap());
        let issued: f64 = shares.clone().sum();
        assert!((0.9..1.01).contains(&issued), "{body}");
        assert!(shares.clone().all(|share| share > 0.2), "{body}");
    }
    let shown = printed(fleet, 0, &["servers", KEY]);
    assert_eq!(shown.lines().count(), 1 + fleet.nodes.len(), "{shown}");
    assert!(shown.ends_with("/s\n"), "{shown}");
    assert!(
        shown.contains(" %") && shown.contains("asks for"),
        "{shown}"
    );
}

#[test]
fn a_replica_that_takes_over_continues_the_fleet() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = Fleet::start(2, &upstream);
    let port = fleet.redis.port().to_string();
    let replica = PrivateRedis::start_with(&["--replicaof", "127.0.0.1", &port], |_| {});
    wait_for("a replica in step", || {
        let replication = replica.command(&["INFO", "replication"]);
        replication.contains("master_link_status:up").then_some(())
    });
    let load = Load::start(&fleet.nodes, 6);
    let settled = settle(&fleet);
    fleet.redis.crash();
    wait(Duration::from_secs(1));
    // As an address that follows the primary server does.
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    replica.command(&["CONFIG", "SET", "port", &port]);
    fleet.wait_until("shared gates", |gate| {
        gate["fleet"]["is_degraded"] == false && gate["fleet"]["servers"] == 2
    });
    wait(Duration::from_secs(10));
    let worst = upstream.worst_ten_seconds(settled);
    let answered = load.answered();
    let failures = load.stop();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(worst <= MAX_IN_TEN_SECONDS, "{worst} in ten seconds");
    println!("{worst} in the worst ten seconds, answered {answered:?}");
}

#[test]
fn the_share_of_an_idle_or_killed_server_soon_goes_to_the_others() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = Fleet::start(2, &upstream);
    let (mut idle, mut killed) = (Vec::new(), Vec::new());
    let _busy = Load::start(&fleet.nodes[..1], 6);
    for _ in 0..3 {
        let load = Load::start(&fleet.nodes[1..], 6);
        fleet.wait_until("a share for each", has_about_half);
        load.stop();
        idle.push(time_until_all_is_its(&fleet.nodes[0]));

        let load = Load::start(&fleet.nodes[1..], 6);
        fleet.wait_until("a share for each", has_about_half);
        fleet.nodes.pop().unwrap().kill();
        killed.push(time_until_all_is_its(&fleet.nodes[0]));
        assert_eq!(gate(&fleet.nodes[0])["fleet"]["servers"], 1);
        load.stop();
        fleet.nodes.push(fleet.homes[1].start());
    }
    println!("idle {idle:?}, killed {killed:?}");
    assert!(median(idle) <= Duration::from_secs(2));
    assert!(median(killed) <= Duration::from_secs(3));
}

fn has_about_half(gate: &serde_json::Value) -> bool {
    let share = gate["fleet"]["share"].as_f64();
    share.is_some_and(|share| (0.4..0.6).contains(&share))
}

/// How long it takes until a server has the whole rate.
fn time_until_all_is_its(node: &Running) -> Duration {
    let begin = Instant::now();
    wait_for("the whole rate", || {
        let share = gate(node)["fleet"]["share"].as_f64();
        share.is_some_and(|share| share > 0.9).then_some(())
    });
    begin.elapsed()
}

/// Of three, because the machine may do something else.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn retry_after_seen_by_one_server_holds_all() {
    let upstream = Upstream::start(LIMIT);
    let fleet = Fleet::start(2, &upstream);
    for node in &fleet.nodes {
        assert_eq!(patient_get(&node.listen, "/up/x").unwrap().status, 200);
    }
    upstream.state.lock().unwrap().retry_after = Some(4);
    let other = fleet.nodes[1].listen.clone();
    let listen = fleet.nodes[0].listen.clone();
    let first = thread::spawn(move || patient_get(&listen, "/up/x"));
    fleet.wait_until("a hold on both", |gate| !gate["hold"].is_null());
    let held = upstream.arrivals();
    let second = patient_get(&other, "/up/x").unwrap();
    assert_eq!(second.status, 200);
    assert_eq!(first.join().unwrap().unwrap().status, 200);
    let (last, all) = (held.last().unwrap(), upstream.arrivals());
    assert_eq!(all.len(), held.len() + 2);
    let waited = all[held.len()].duration_since(*last);
    assert!(waited >= Duration::from_millis(3900), "{waited:?}");
    let log = fleet.homes[1].stderr();
    assert!(log.contains("hold_started"), "{log}");
}

#[test]
fn under_load_a_retry_after_holds_all_within_100_ms() {
    let upstream = Upstream::start(LIMIT);
    let fleet = Fleet::start(3, &upstream);
    let load = Load::start(&fleet.nodes, 6);
    settle(&fleet);
    let mut late = Vec::new();
    for _ in 0..3 {
        upstream.state.lock().unwrap().retry_after = Some(3);
        wait(Duration::from_secs(2));
        let mut state = upstream.state.lock().unwrap();
        let told_at = state.told_at.take().unwrap();
        let last = *state.arrivals.last().unwrap();
        late.push(last.duration_since(told_at));
        drop(state);
        wait(Duration::from_secs(4));
    }
    let failures = load.stop();
    assert!(failures.is_empty(), "{failures:?}");
    let latency = fleet.redis.latency();
    println!("last request after a Retry-After {late:?}, Redis {latency:?} away");
    assert!(
        median(late.clone()) <= Duration::from_millis(100),
        "{late:?}"
    );
}

#[test]
fn a_release_at_one_server_ends_the_hold_of_all_and_so_do_isolate_and_reset() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = Fleet::start(2, &upstream);
    for node in &fleet.nodes {
        assert_eq!(patient_get(&node.listen, "/up/x").unwrap().status, 200);
    }
    upstream.state.lock().unwrap().retry_after = Some(3600);
    let refused = fleet.nodes[0].get("/up/x").unwrap();
    assert_ne!(refused.status, 200);
    fleet.wait_until("a hold on both", |gate| !gate["hold"].is_null());
    // A server that joins is held, too, though it has not used the gate and Redis has lost the hold
    // meanwhile.
    fleet.redis.command(&["FLUSHALL"]);
    wait(Duration::from_secs(3));
    let third = home(&fleet.redis.url(), &upstream, "");
    fleet.nodes.push(third.start());
    fleet.homes.push(third);
    assert_ne!(fleet.nodes[2].get("/up/x").unwrap().status, 200);
    wait_for("a hold on the third", || {
        (!gate(&fleet.nodes[2])["hold"].is_null()).then_some(())
    });

    // The command, at a server that did not see the refusal.
    let said = printed(&fleet, 1, &["release", KEY]);
    assert!(said.contains("on all servers"), "{said}");
    let begin = Instant::now();
    fleet.wait_until("no hold", |gate| gate["hold"].is_null());
    println!("released everywhere after {:?}", begin.elapsed());
    for node in &fleet.nodes {
        assert_eq!(patient_get(&node.listen, "/up/x").unwrap().status, 200);
    }

    let order = |node: usize, word: &str| {
        let path = format!("/api/v1/gates/{KEY}/{word}");
        fleet.nodes[node].admin.must("POST", &path, None);
    };
    order(0, "isolate");
    fleet.wait_until("isolation", |gate| gate["breaker"]["state"] == "isolated");
    for node in &fleet.nodes {
        assert_eq!(node.get("/up/x").unwrap().status, 503);
    }
    fleet.redis.command(&["FLUSHALL"]);
    wait(Duration::from_secs(5));
    fleet.wait_until("isolation", |gate| gate["breaker"]["state"] == "isolated");
    order(2, "reset");
    fleet.wait_until("no isolation", |gate| gate["breaker"]["state"] == "closed");
    for node in &fleet.nodes {
        assert_eq!(patient_get(&node.listen, "/up/x").unwrap().status, 200);
    }
}

#[test]
fn a_server_with_a_share_starts_without_redis_and_one_without_does_not() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = Fleet::start(1, &upstream);
    assert_eq!(
        patient_get(&fleet.nodes[0].listen, "/up/x").unwrap().status,
        200
    );
    let stopped = fleet.nodes.pop().unwrap().stop();
    assert!(stopped.success());
    let leases = fleet.redis.command(&["EXISTS", "tg:default:{up/a}:l"]);
    assert_eq!(leases, "0", "it has released its share");
    fleet.redis.crash();

    let node = fleet.homes[0].start();
    wait_for("degraded health", || {
        (health(&node) == "degraded").then_some(())
    });
    assert_eq!(patient_get(&node.listen, "/up/x").unwrap().status, 200);
    let log = fleet.homes[0].stderr();
    assert!(log.contains("start with the shares"), "{log}");
    fleet.redis.resume_service();
    wait_for("health", || (health(&node) == "ok").then_some(()));

    fleet.redis.crash();
    let other = home(&fleet.redis.url(), &upstream, "");
    let message = refusal(&other);
    assert!(
        message.contains("whether the server is running"),
        "{message}"
    );
}

#[test]
fn says_what_is_wrong_with_redis_at_start() {
    let upstream = Upstream::start(LIMIT);
    let fleet = Fleet::start(1, &upstream);
    let url = fleet.redis.url();
    let message = refusal(&home(&url.replace(PASSWORD, "wrong"), &upstream, ""));
    assert!(
        message.contains("check the user and the password"),
        "{message}"
    );
    assert!(!message.contains("wrong@"), "{message}");
    let other = home(&url, &upstream, "max_rate = 77");
    let message = refusal(&other);
    assert!(message.contains("max_rate=77"), "{message}");
    assert!(message.contains("storage.namespace"), "{message}");
    let settings = other.data().with_file_name("tidegate.toml");
    fleet.homes[0].write(&fs::read_to_string(settings).unwrap());
    fleet.nodes[0].signal("HUP");
    wait_for("a reload that is refused", || {
        let log = fleet.homes[0].stderr();
        let mut lines = log.lines();
        let refused = lines.find(|line| line.contains("reload_failed"));
        refused.map(|line| assert!(line.contains("`gate` has changed"), "{line}"))
    });
    fleet
        .redis
        .command(&["HSET", "tg:default:meta", "schema", "99"]);
    let message = refusal(&home(&url, &upstream, ""));
    assert!(message.contains("version 99"), "{message}");
}

/// What `tidegate gates` prints of a server.
fn printed(fleet: &Fleet, number: usize, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("gates")
        .args(words)
        .args(["--server", &fleet.nodes[number].admin.url()])
        .arg("--token-file")
        .arg(fleet.homes[number].data().join("admin-token"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a server prints that does not start.
fn refusal(home: &Home) -> String {
    let output = home.command().output().unwrap();
    assert!(!output.status.success(), "it started");
    String::from_utf8(output.stderr).unwrap()
}

/// The gate of the upstream; null before its first request.
pub(super) fn gate(node: &Running) -> serde_json::Value {
    let path = format!("/api/v1/gates/{KEY}");
    let answer = node.admin.call("GET", &path, None).unwrap();
    match answer.status {
        200 => answer.json(),
        _ => serde_json::Value::Null,
    }
}

fn health(node: &Running) -> String {
    let answer = node.admin.call("GET", "/readyz", None).unwrap();
    assert_eq!(answer.status, 200, "it serves all the same");
    answer.json()["status"].as_str().unwrap().to_owned()
}

fn summary(node: &Running) -> serde_json::Value {
    node.admin.must("GET", "/api/v1/summary", None)
}

fn metric(node: &Running, name: &str) -> f64 {
    let metrics = node.admin.call("GET", "/metrics", None).unwrap().body;
    let sample = format!("{name} ");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(&sample)).unwrap();
    value.parse().unwrap()
}
