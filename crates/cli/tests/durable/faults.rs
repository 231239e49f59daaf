//! What a fleet sends while its real Redis is killed, frozen, flushed, fails over, or is cut off from one
//! server: for each the most in ten seconds, what was accepted, what was refused and what failed.
//!
//! Servers reach Redis through a proxy each, which can be cut and directed to another server.
//! `FLEET_TEST_FAULT_SECONDS` sets how long each fault lasts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use store::private_redis::PrivateRedis;

use super::fleet::{LIMIT, Load, Upstream, gate, home, settle_all};
use super::support::{Home, Running, wait, wait_for};

const FAULTS: [&str; 5] = ["killed", "frozen", "flushed", "one cut off", "failed over"];

#[test]
fn no_fault_of_redis_makes_a_fleet_exceed_the_limit_or_stop() {
    let upstream = Upstream::start(LIMIT);
    let mut fleet = ProxiedFleet::start(3, &upstream);
    let load = Load::start(&fleet.nodes, 6);
    settle_all(&fleet.nodes);
    wait(AFTER);
    let mut figures = Vec::new();
    for fault in FAULTS {
        let begin = Instant::now();
        fleet.suffer(fault, fault_length());
        let end = Instant::now();
        wait_until_shared(&fleet.nodes);
        wait(AFTER);
        figures.push(Figures::new(fault, &upstream, begin, end));
    }
    let failures = load.stop();
    println!("{} requests failed", failures.len());
    for figure in &figures {
        println!("{figure:?}");
    }
    assert!(failures.is_empty(), "{failures:?}");
    for figure in figures {
        assert!(figure.worst_ten_seconds_percent <= 105.0, "{figure:?}");
        assert!(figure.goodput_during_percent >= 70.0, "{figure:?}");
    }
}

#[test]
fn no_fault_of_redis_makes_a_fleet_exceed_a_window() {
    let window = Duration::from_secs(4);
    let upstream = Upstream::with_window(LIMIT, Some(window));
    let mut fleet = ProxiedFleet::start(3, &upstream);
    let load = Load::start(&fleet.nodes, 6);
    settle_all(&fleet.nodes);
    wait(2 * window);
    let settled = Instant::now();
    for fault in FAULTS {
        fleet.suffer(fault, fault_length());
        wait_until_shared(&fleet.nodes);
        wait(window);
    }
    let failures = load.stop();
    let worst = upstream.worst_window(window, settled);
    let limit = LIMIT * window.as_secs_f64();
    println!("{worst} requests in the worst window, of {limit} that are accepted");
    assert!(failures.is_empty(), "{failures:?}");
    assert!(worst as f64 <= 1.05 * limit, "{worst}");
}

/// Waits until all servers use Redis, each of which knows of all.
pub(super) fn wait_until_shared(nodes: &[Running]) {
    let is_shared = |node: &Running| {
        let fleet = gate(node)["fleet"].clone();
        fleet["is_degraded"] == false && fleet["servers"] == nodes.len()
    };
    wait_for("shared gates", || nodes.iter().all(is_shared).then_some(()));
}

/// How long what comes after a fault is measured.
pub(super) const AFTER: Duration = Duration::from_secs(6);

pub(super) fn fault_length() -> Duration {
    let seconds = std::env::var("FLEET_TEST_FAULT_SECONDS").ok();
    Duration::from_secs(seconds.map_or(4, |seconds| seconds.parse().unwrap()))
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are printed")]
pub(super) struct Figures {
    fault: &'static str,
    /// From ten seconds before it.
    pub(super) worst_ten_seconds_percent: f64,
    pub(super) goodput_during_percent: f64,
    goodput_after_percent: f64,
    refused_during: usize,
    refused_after: usize,
}

impl Figures {
    pub(super) fn new(
        fault: &'static str,
        upstream: &Upstream,
        begin: Instant,
        end: Instant,
    ) -> Self {
        let now = Instant::now();
        let before = begin.checked_sub(Duration::from_secs(10)).unwrap_or(begin);
        let worst = upstream.worst_ten_seconds(before) as f64;
        let state = upstream.state.lock().unwrap();
        let within = |times: &[Instant], from: Instant, to: Instant| {
            times.iter().filter(|at| (from..to).contains(at)).count()
        };
        let goodput = |from: Instant, to: Instant| {
            let refused = within(&state.refusals, from, to);
            let accepted = within(&state.arrivals, from, to) - refused;
            let percent = accepted as f64 / (LIMIT * to.duration_since(from).as_secs_f64());
            ((1000.0 * percent).round() / 10.0, refused)
        };
        let (during, refused_during) = goodput(begin, end);
        let (after, refused_after) = goodput(end, now);
        Self {
            fault,
            worst_ten_seconds_percent: (1000.0 * worst / (10.0 * LIMIT)).round() / 10.0,
            goodput_during_percent: during,
            goodput_after_percent: after,
            refused_during,
            refused_after,
        }
    }
}

/// Servers that reach Redis through a proxy each.
struct ProxiedFleet {
    redis: PrivateRedis,
    proxies: Vec<Proxy>,
    _homes: Vec<Home>,
    nodes: Vec<Running>,
}

impl ProxiedFleet {
    fn start(nodes: usize, upstream: &Upstream) -> Self {
        let redis = PrivateRedis::start();
        let proxies: Vec<Proxy> = (0..nodes).map(|_| Proxy::start(redis.port())).collect();
        let port = redis.port().to_string();
        let url = |proxy: &Proxy| redis.url().replace(&port, &proxy.port.to_string());
        let homes = proxies.iter().map(|proxy| home(&url(proxy), upstream, ""));
        let homes: Vec<Home> = homes.collect();
        Self {
            nodes: homes.iter().map(Home::start).collect(),
            _homes: homes,
            redis,
            proxies,
        }
    }

    /// Ready when the fault is over.
    fn suffer(&mut self, fault: &str, length: Duration) {
        match fault {
            "killed" => {
                self.redis.crash();
                wait(length);
                self.redis.resume_service();
            }
            "frozen" => {
                self.redis.freeze();
                wait(length);
                self.redis.thaw();
            }
            "flushed" => {
                self.redis.command(&["FLUSHALL"]);
                wait(length);
            }
            "one cut off" => {
                self.proxies[0].cut(true);
                wait(length);
                self.proxies[0].cut(false);
            }
            _ => self.fail_over(length),
        }
    }

    /// To a replica that has heard nothing for some seconds before its primary server failed.
    fn fail_over(&mut self, length: Duration) {
        let port = self.redis.port().to_string();
        let replica = PrivateRedis::start_with(&["--replicaof", "127.0.0.1", &port], |_| {});
        wait_for("a replica in step", || {
            let replication = replica.command(&["INFO", "replication"]);
            replication.contains("master_link_status:up").then_some(())
        });
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        wait(Duration::from_secs(3));
        self.redis.crash();
        wait(length);
        for proxy in &self.proxies {
            proxy.direct_to(replica.port());
        }
        self.redis = replica;
    }
}

/// Passes connections on, unless it is cut: then nothing passes, and no connection ends.
struct Proxy {
    port: u16,
    state: Arc<Mutex<ProxyState>>,
}

struct ProxyState {
    target: u16,
    is_cut: bool,
    connections: Vec<TcpStream>,
}

impl Proxy {
    fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(ProxyState {
            target,
            is_cut: false,
            connections: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, shared) = (client.unwrap(), Arc::clone(&shared));
                thread::spawn(move || pass(&client, &shared));
            }
        });
        Self { port, state }
    }

    fn cut(&self, is_cut: bool) {
        self.state.lock().unwrap().is_cut = is_cut;
    }

    /// Ends the connections to the server before.
    fn direct_to(&self, target: u16) {
        let mut state = self.state.lock().unwrap();
        state.target = target;
        for connection in state.connections.drain(..) {
            // It may have ended.
            _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Both directions of a connection.
fn pass(client: &TcpStream, state: &Arc<Mutex<ProxyState>>) -> Option<()> {
    wait_while_cut(state);
    let target = state.lock().unwrap().target;
    let server = TcpStream::connect(("127.0.0.1", target)).ok()?;
    let copies = [client, &server].map(|stream| stream.try_clone().unwrap());
    state.lock().unwrap().connections.extend(copies);
    let (mut reads, mut writes) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let shared = Arc::clone(state);
    thread::spawn(move || copy(&mut reads, &mut writes, &shared));
    let (mut reads, mut writes) = (client.try_clone().ok()?, server);
    copy(&mut reads, &mut writes, state);
    Some(())
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, state: &Mutex<ProxyState>) {
    let mut buffer = [0; 16_384];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        wait_while_cut(state);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The other direction may have done it.
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}

fn wait_while_cut(state: &Mutex<ProxyState>) {
    while state.lock().unwrap().is_cut {
        wait(Duration::from_millis(5));
    }
}
