//! The server of a fleet, with real ones.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use super::*;
use crate::private_redis::{PASSWORD, PrivateRedis};
use tokio::sync::mpsc::channel;

pub(super) fn member(namespace: &str, node: u64) -> FleetMember {
    FleetMember {
        namespace: namespace.to_owned(),
        settings: "strategy=adaptive".to_owned(),
        node: NodeId(node),
        about: "a test".to_owned(),
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn server(url: &str, member: FleetMember) -> FleetServer {
    FleetServer::new(url.parse().unwrap(), member, channel(16).0).unwrap()
}

fn open(url: &str, member: FleetMember) -> Result<Membership, String> {
    let mut server = server(url, member);
    let opened = runtime().block_on(server.open());
    opened.map_err(|error| error.to_string())
}

#[test]
fn nodes_of_a_namespace_are_one_fleet() {
    let redis = PrivateRedis::start();
    let first = open(&redis.url(), member("a", 1)).unwrap();
    let second = open(&redis.url(), member("a", 2)).unwrap();
    let other = open(&redis.url(), member("b", 3)).unwrap();
    assert_eq!((first.others, second.others, other.others), (0, 1, 0));
    assert_eq!(first.generation, second.generation);
    assert_ne!(first.generation, other.generation);
}

#[test]
fn shares_of_all_nodes_are_seen_until_they_run_out() {
    let redis = PrivateRedis::start();
    let gate = policy::gate::GateOptions::default().build().unwrap();
    let (interval, lease) = (Duration::from_millis(100), Duration::from_millis(500));
    let settings = policy::fleet::SharedSettings::new(&gate, interval, lease).fleet;
    let call = |demand| KeyCall {
        key: "up/a".to_owned(),
        settings,
        call: Call {
            demand,
            ..Call::default()
        },
    };
    runtime().block_on(async {
        let mut servers = [1, 2].map(|node| {
            let mut member = member("a", node);
            member.about = format!("tidegate/1.0 10.0.0.{node}:7070");
            server(&redis.url(), member)
        });
        for (server, demand) in servers.iter_mut().zip([1.0, 3.0]) {
            server.open().await.unwrap();
            server.sync(&[call(demand)], None).await.unwrap();
        }
        let mut other = server(&redis.url(), member("a", 3));
        let shares = other.shares("up/a").await.unwrap();
        let seen = shares.iter().map(|it| (it.node, &*it.about, it.demand));
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                (NodeId(1), "tidegate/1.0 10.0.0.1:7070", 1.0),
                (NodeId(2), "tidegate/1.0 10.0.0.2:7070", 3.0),
            ]
        );
        let issued: f64 = shares.iter().map(|it| it.share).sum();
        assert!(issued > 0.0 && issued <= 1.0, "{shares:?}");
        assert_eq!(other.shares("up/b").await, Ok(Vec::new()));
        tokio::time::sleep(lease).await;
        assert_eq!(other.shares("up/a").await, Ok(Vec::new()));
    });
}

#[test]
fn refuses_a_wrong_password_and_says_so() {
    let redis = PrivateRedis::start();
    for url in [
        redis.url().replace(PASSWORD, "wrong"),
        format!("redis://127.0.0.1:{}", redis.port()),
    ] {
        let error = open(&url, member("a", 1)).unwrap_err();
        assert!(error.contains("check the user and the password"), "{error}");
        assert!(!error.contains(PASSWORD), "{error}");
    }
}

#[test]
fn refuses_a_server_that_is_not_there_or_does_not_answer() {
    let mut redis = PrivateRedis::start();
    let url = redis.url();
    redis.crash();
    let error = open(&url, member("a", 1)).unwrap_err();
    assert!(error.contains("whether the server is running"), "{error}");
}

#[test]
fn refuses_a_layout_of_a_later_version_and_leaves_it() {
    let redis = PrivateRedis::start();
    redis.command(&[
        "HSET",
        "tg:a:meta",
        "schema",
        "99",
        "settings",
        "x",
        "generation",
        "y",
    ]);
    let error = open(&redis.url(), member("a", 1)).unwrap_err();
    assert!(error.contains("version 99, expected at most 1"), "{error}");
    assert_eq!(redis.command(&["EXISTS", "tg:a:nodes"]), "0");
}

#[test]
fn refuses_a_fleet_with_other_settings_while_its_nodes_are_present() {
    let redis = PrivateRedis::start();
    let mut other = member("a", 2);
    other.settings = "strategy=aimd".to_owned();
    open(&redis.url(), member("a", 1)).unwrap();
    let error = open(&redis.url(), other.clone()).unwrap_err();
    assert!(
        error.contains("1 nodes in the namespace `a` have other settings"),
        "{error}"
    );
    assert!(error.contains("storage.namespace"), "{error}");
    redis.command(&["DEL", "tg:a:nodes"]);
    open(&redis.url(), other).unwrap();
}

#[test]
fn nodes_of_a_later_time_are_not_present() {
    let redis = PrivateRedis::start();
    open(&redis.url(), member("a", 1)).unwrap();
    let node = redis.command(&["HKEYS", "tg:a:nodes"]);
    let later = "99999999999 another server whose clock was ahead";
    redis.command(&["HSET", "tg:a:nodes", &node, later]);
    assert_eq!(open(&redis.url(), member("a", 2)).unwrap().others, 0);
}

#[test]
fn a_key_outlives_its_hold_and_leases_expire_from_the_first_on() {
    let redis = PrivateRedis::start();
    let gate = policy::gate::GateSettings::default();
    let (interval, lease) = (Duration::from_millis(100), Duration::from_secs(2));
    let settings = policy::fleet::SharedSettings::new(&gate, interval, lease).fleet;
    let expiry = |name: &str| -> u64 {
        let printed = redis.command(&["TTL", &format!("tg:a:{{k}}:{name}")]);
        printed.parse().unwrap()
    };
    let runtime = runtime();
    let mut server = server(&redis.url(), member("a", 1));
    for (hold_for, expected) in [(0, 599..=600), (3600, 4199..=4200)] {
        let call = Call {
            hold_for: Duration::from_secs(hold_for),
            ..Call::default()
        };
        let key = "k".to_owned();
        let call = KeyCall {
            key,
            settings,
            call,
        };
        runtime.block_on(server.sync(&[call], None)).unwrap();
        assert!(expected.contains(&expiry("h")), "{}", expiry("h"));
        assert!((599..=600).contains(&expiry("l")), "{}", expiry("l"));
    }
}

#[test]
fn refuses_a_server_that_is_too_old() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer_as_old(&stream.unwrap());
        }
    });
    let error = open(&url, member("a", 1)).unwrap_err();
    assert!(
        error.contains("version 6.2, expected 7.0 or later"),
        "{error}"
    );
    assert!(error.contains("use Redis 7.0 or later"), "{error}");
}

/// What a server of another version says until it is asked for it.
fn answer_as_old(mut stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    // Commands are arrays of texts with their lengths; none of ours has a line break in it.
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let word = line.trim().to_ascii_uppercase();
        line.clear();
        let answer = match word.as_str() {
            "HELLO" => "%1\r\n+server\r\n+redis\r\n",
            "CLIENT" => "+OK\r\n",
            "INFO" => "$22\r\nredis_version:6.2.14\r\n\r\n",
            _ => continue,
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn refuses_a_cluster() {
    let redis = PrivateRedis::start_with(&["--cluster-enabled", "yes"], |_| {});
    let error = open(&redis.url(), member("a", 1)).unwrap_err();
    assert!(error.contains("a node of a Redis Cluster"), "{error}");
}

#[test]
fn speaks_tls_to_a_server_whose_certificate_is_known() {
    let port = free_port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    certify(folder.path());
    let redis = PrivateRedis::start_with(
        &[
            "--tls-port",
            &port,
            "--tls-cert-file",
            &file("server.pem"),
            "--tls-key-file",
            &file("server.key"),
            "--tls-ca-cert-file",
            &file("ca.pem"),
            "--tls-auth-clients",
            "no",
        ],
        |_| {},
    );
    let url = |host: &str, ca: &str| {
        let query = format!("?cacert={}", file(ca));
        format!("rediss://:{PASSWORD}@{host}:{port}{query}")
    };
    let first = open(&url("127.0.0.1", "ca.pem"), member("a", 1)).unwrap();
    assert_eq!(first.others, 0);
    let second = open(&redis.url(), member("a", 2)).unwrap();
    assert_eq!(second.others, 1, "the same server without TLS");
    // Another authority, another name, no authority, a password that is wrong.
    let system = format!("rediss://:{PASSWORD}@127.0.0.1:{port}");
    for url in [
        url("127.0.0.1", "other.pem"),
        url("localhost", "ca.pem"),
        system,
    ] {
        let error = open(&url, member("a", 3)).unwrap_err();
        assert!(
            error.contains("has a certificate for that host"),
            "{url}: {error}"
        );
        assert!(!error.contains(PASSWORD), "{error}");
    }
    let wrong = url("127.0.0.1", "ca.pem").replace(PASSWORD, "wrong");
    let error = open(&wrong, member("a", 3)).unwrap_err();
    assert!(error.contains("check the user and the password"), "{error}");
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// An authority, another one, and a certificate of the first for 127.0.0.1.
fn certify(folder: &Path) {
    let run = |line: &str| {
        let words = line.split_whitespace();
        let output = Command::new("openssl")
            .current_dir(folder)
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for name in ["ca", "other"] {
        run(&format!(
            "{new} -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
    }
    run(&format!(
        "{new} -subj /CN=server -addext subjectAltName=IP:127.0.0.1 \
         -addext basicConstraints=critical,CA:FALSE -CA ca.pem -CAkey ca.key \
         -keyout server.key -out server.pem"
    ));
}
