//! The server of a fleet, with real ones.

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
fn refuses_a_server_that_is_too_old() {
    let url: GatesAddress = "redis://h".parse().unwrap();
    let error = problem::too_old(&url, (6, 2)).to_string();
    assert!(
        error.contains("version 6.2, expected 7.0 or later"),
        "{error}"
    );
}
