//! Operations over kills: every request that was acknowledged with 202 is delivered, and none stays
//! running.
//!
//! `CRASH_TEST_KILLS` sets the number of kills, and `CRASH_TEST_LOG` names a file that gets a line
//! for each: `scripts/run-crashes` runs a thousand.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use policy::random::Random;
use serde_json::json;

use super::support::{Admin, Home, now_ms, wait, wait_for};

/// Enough to meet every moment of a delivery now and then.
const ROUNDS: u64 = 8;

/// Programs that post at the same time.
const PRODUCERS: u64 = 4;

/// Long enough for deliveries to keep up, so that a kill meets operations in every state.
const BETWEEN_POSTS: Duration = Duration::from_millis(5);

/// How often each idempotency key was received.
pub(crate) type Received = Arc<Mutex<BTreeMap<String, u64>>>;

#[test]
fn every_accepted_operation_is_delivered_whenever_the_server_is_killed() {
    let rounds = std::env::var("CRASH_TEST_KILLS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let seed = u64::try_from(now_ms()).unwrap();
    let mut random = Random::from_seed(seed);
    let received = Received::default();
    let home = Home::new(&settings(&upstream(Arc::clone(&received))));
    let mut accepted = Vec::new();
    for round in 0..rounds {
        let server = home.start();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let listen = server.listen.clone();
                thread::spawn(move || produce(&listen, &format!("{round}-{producer}")))
            })
            .collect();
        let after_ms = 20 + random.below(300);
        wait(Duration::from_millis(after_ms));
        server.kill();
        let before = accepted.len();
        for producer in producers {
            accepted.extend(producer.join().unwrap());
        }
        let delivered = received.lock().unwrap().len();
        log_kill(round, seed, after_ms, accepted.len() - before, delivered);
    }
    let server = home.start();
    wait_until_delivered(&server.admin);
    let received = received.lock().unwrap();
    let lost: Vec<_> = accepted
        .iter()
        .filter(|key| !received.contains_key(*key))
        .collect();
    assert!(
        lost.is_empty(),
        "seed {seed}: lost {lost:?} of {}",
        accepted.len()
    );
    for state in ["failed", "conflict", "cancelled"] {
        assert_eq!(count(&server.admin, state), 0, "seed {seed}: {state}");
    }
    // Else it has shown nothing.
    assert!(
        accepted.len() as u64 > rounds * 5,
        "only {} accepted",
        accepted.len()
    );
    let repeated = received.values().filter(|times| **times > 1).count();
    println!(
        "{rounds} kills, {} accepted, {} lost, {repeated} received more than once",
        accepted.len(),
        lost.len()
    );
}

/// Waits until nothing is pending. After many kills much is, so the time is bounded for each delivery.
fn wait_until_delivered(admin: &Admin) {
    let pending = || -> u64 {
        let states = ["available", "running", "retryable"];
        states.iter().map(|state| count(admin, state)).sum()
    };
    let mut left = pending();
    while left > 0 {
        left = wait_for("further delivery", || {
            let now = pending();
            (now < left).then_some(now)
        });
    }
}

#[test]
fn stored_requests_are_unreadable_without_the_key() {
    let received = Received::default();
    let home = Home::new("");
    let key = home.data().with_file_name("key");
    std::fs::write(&key, "0f".repeat(32)).unwrap();
    // Nothing listens there: it stays in the queue.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let with_key = |url: &str| {
        let key = key.display();
        format!("{}\n[storage]\nkey = \"file:{key}\"\n", settings(url))
    };
    home.write(&with_key(&format!("http://{closed}")));
    let server = home.start();
    assert_eq!(post(&server.listen, "canary-key"), Some(202));
    server.kill();
    for file in std::fs::read_dir(home.data()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let is_there = bytes
            .windows(b"canary-body".len())
            .any(|part| part == b"canary-body");
        assert!(!is_there, "{}", path.display());
    }
    home.write(&with_key(&upstream(Arc::clone(&received))));
    let server = home.start();
    wait_for("delivery", || {
        (count(&server.admin, "completed") == 1).then_some(())
    });
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[test]
fn logs_operations_that_were_encrypted_with_another_key() {
    let home = Home::new("");
    let key = home.data().with_file_name("key");
    let with_key = format!(
        "{}\n[storage]\nkey = \"file:{}\"\n",
        settings("http://127.0.0.1:1"),
        key.display()
    );
    std::fs::write(&key, "0f".repeat(32)).unwrap();
    home.write(&with_key);
    let server = home.start();
    assert_eq!(post(&server.listen, "a"), Some(202));
    server.kill();
    std::fs::write(&key, "1e".repeat(32)).unwrap();
    let server = home.start();
    let line = wait_for("a line about the key", || {
        let stderr = home.stderr();
        let mut lines = stderr.lines();
        lines
            .find(|line| line.contains("store_unreadable"))
            .map(str::to_owned)
    });
    assert!(line.contains("it was encrypted with another key"), "{line}");
    // Retryable if it was sent before the kill.
    let waiting = ["available", "retryable"].map(|state| count(&server.admin, state));
    assert_eq!(waiting.iter().sum::<u64>(), 1);
}

pub(crate) fn settings(upstream: &str) -> String {
    format!(
        r#"
        [gate]
        strategy = "fixed"
        initial_rate = 10000
        [backoff.standard]
        base = "10ms"
        max = "50ms"
        max_attempts = 100
        [retry_budget]
        ratio = 1.0
        min_per_second = 1000
        [pool.api]
        endpoints = [{{ name = "a", url = "{upstream}" }}]
        "#
    )
}

/// Posts until a post fails, and returns the keys that were acknowledged.
fn produce(listen: &str, name: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let key = format!("{name}-{number}");
        match post(listen, &key) {
            Some(202) => acknowledged.push(key),
            // It is about to be killed, or was.
            _ => return acknowledged,
        }
        wait(BETWEEN_POSTS);
    }
    acknowledged
}

pub(crate) fn post(listen: &str, key: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(listen).ok()?;
    // A server that is frozen does not answer.
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    write!(
        stream,
        "POST /api/x HTTP/1.1\r\nhost: {listen}\r\nconnection: close\r\nprefer: respond-async\r\n\
         idempotency-key: {key}\r\ncontent-length: 11\r\n\r\ncanary-body"
    )
    .ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split_whitespace().nth(1)?.parse().ok()
}

/// A server that fails every fifth request, and counts the keys of the others.
pub(crate) fn upstream(received: Received) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (received, requests) = (Arc::clone(&received), Arc::clone(&requests));
            thread::spawn(move || {
                let stream = stream.unwrap();
                while respond(&stream, &received, &requests).is_some() {}
            });
        }
    });
    url
}

fn respond(mut stream: &TcpStream, received: &Received, requests: &AtomicU64) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut key, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let fails = requests.fetch_add(1, Ordering::Relaxed) % 5 == 4;
    if let Some(key) = key.filter(|_| !fails) {
        *received.lock().unwrap().entry(key).or_default() += 1;
    }
    let status = if fails { 500 } else { 200 };
    // In one write: the second of two would wait for an acknowledgement of the first.
    let response = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(response.as_bytes()).ok()
}

/// How many operations are in a state.
pub(crate) fn count(admin: &Admin, state: &str) -> u64 {
    let metrics = admin.call("GET", "/metrics", None).unwrap().body;
    let sample = format!("tidegate_operations{{state=\"{state}\"}} ");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(&sample)).unwrap();
    value.parse().unwrap()
}

fn log_kill(round: u64, seed: u64, after_ms: u64, accepted: usize, delivered: usize) {
    let Ok(path) = std::env::var("CRASH_TEST_LOG") else {
        return;
    };
    let line = json!({
        "kill": round + 1,
        "seed": seed,
        "after_ms": after_ms,
        "accepted": accepted,
        "delivered_so_far": delivered,
    });
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    writeln!(file, "{line}").unwrap();
}
