//! What a fleet sends while the network separates some of its servers from Redis.
//!
//! Redis runs in a network namespace of its own, with a link to each server. A link that is down drops
//! packets and ends no connection. Links need root or `CAP_NET_ADMIN`; without, nothing is tested, and the
//! output says so. `FLEET_TEST_FAULT_SECONDS` sets how long each partition lasts.

use std::process::Command;
use std::time::Instant;

use store::private_redis::PrivateRedis;

use super::faults::{AFTER, Figures, fault_length, wait_until_shared};
use super::fleet::{LIMIT, Load, Upstream, gate, home, settle_all};
use super::support::{Home, Running, wait, wait_for};

const SERVERS: usize = 4;

/// The servers that are cut off.
const PARTITIONS: [(&str, &[usize]); 3] = [
    ("one of four", &[0]),
    ("two of four", &[1, 2]),
    ("all four", &[0, 1, 2, 3]),
];

#[test]
fn servers_that_the_network_cuts_off_keep_to_their_part_of_the_limit() {
    if let Err(problem) = run("unshare", &["--net", "true"]) {
        println!("skipped: there are no network namespaces here: {problem}");
        return;
    }
    let redis = PrivateRedis::start_isolated();
    let links: Result<Vec<Link>, String> = (0..SERVERS)
        .map(|number| Link::to(&redis, number))
        .collect();
    let links = match links {
        Ok(links) => links,
        Err(problem) => {
            println!("skipped: there are no links between network namespaces here: {problem}");
            return;
        }
    };
    let upstream = Upstream::start(LIMIT);
    let homes = links
        .iter()
        .map(|link| home(&redis.url_at(&link.address), &upstream, ""));
    let homes: Vec<Home> = homes.collect();
    let nodes: Vec<Running> = homes.iter().map(Home::start).collect();
    let load = Load::start(&nodes, 6);
    settle_all(&nodes);
    wait_until_shared(&nodes);
    wait(AFTER);
    let mut figures = Vec::new();
    for (name, cut_off) in PARTITIONS {
        let begin = Instant::now();
        cut_off.iter().for_each(|number| links[*number].set("down"));
        wait_for("degraded gates of those that are cut off", || {
            let is_right = |(number, node)| is_degraded(node) == cut_off.contains(&number);
            nodes.iter().enumerate().all(is_right).then_some(())
        });
        wait(fault_length());
        cut_off.iter().for_each(|number| links[*number].set("up"));
        let end = Instant::now();
        wait_until_shared(&nodes);
        wait(AFTER);
        figures.push(Figures::new(name, &upstream, begin, end));
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

fn is_degraded(node: &Running) -> bool {
    gate(node)["fleet"]["is_degraded"] == true
}

/// A link to the namespace of a Redis server, with which it ends.
struct Link {
    /// The address of Redis at its other end.
    address: String,
    name: String,
    namespace: String,
}

impl Link {
    /// Makes the link of this number; the problem, if that is not permitted.
    fn to(redis: &PrivateRedis, number: usize) -> Result<Self, String> {
        let test = std::process::id();
        // Of 198.18.0.0/15, which is for tests of networks, so that it is not the network of this machine.
        // Each link has four addresses, and each test 256.
        let network = format!("198.{}.{}", 18 + test / 256 % 2, test % 256);
        let last = 4 * number;
        let link = Self {
            address: format!("{network}.{}", last + 2),
            name: format!("redis{number}"),
            namespace: redis.pid().unwrap().to_string(),
        };
        let outer = format!("tg{test}-{number}");
        let own = format!("{network}.{}/30", last + 1);
        let other = format!("{}/30", link.address);
        let (namespace, name) = (&link.namespace, &link.name);
        ip(&[
            "link", "add", &outer, "type", "veth", "peer", "name", name, "netns", namespace,
        ])?;
        ip(&["address", "add", &own, "dev", &outer])?;
        ip(&["link", "set", &outer, "up"])?;
        link.ip(&["address", "add", &other, "dev", name])?;
        link.set("up");
        Ok(link)
    }

    /// Sets the end at Redis up or down.
    fn set(&self, state: &str) {
        self.ip(&["link", "set", &self.name, state]).unwrap();
    }

    fn ip(&self, words: &[&str]) -> Result<(), String> {
        let inside = ["--target", &self.namespace, "--net", "ip"];
        run("nsenter", &[&inside, words].concat())
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    run("ip", words)
}

/// Runs a program; what it prints, if it fails.
fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
