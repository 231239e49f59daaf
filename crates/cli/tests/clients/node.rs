//! Node's fetch.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::client::{program, run, script, start};
use crate::servers::{Servers, TIMEOUT, wait};

const FAST: &str = "[gate]\ninitial_rate = 1000.0\n";

#[test]
fn fetch_works_through_the_gateway() {
    let servers = Servers::start(&[], FAST);
    run(program("node")
        .arg(script("fetch_calls.mjs"))
        .arg(servers.base()));
    servers.end();
}

#[test]
fn aborted_fetch_leaves_nothing_in_flight() {
    let servers = Servers::start(&[], FAST);
    let mut command = program("node");
    command
        .arg(script("fetch_abort.mjs"))
        .arg(servers.base())
        .stdin(Stdio::piped());
    let mut child = start(&mut command);
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "under way");
    servers.await_stats("both under way", |stats| stats["in_flight"] == 2);
    stdin.write_all(b"abort\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "aborted");
    // The process and its connections may still exist.
    servers.await_stats("both ended", |stats| stats["in_flight"] == 0);
    drop(stdin);
    assert!(wait(&mut child, TIMEOUT).success());
    servers.end();
}
