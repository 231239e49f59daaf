//! Hosts that do not answer delay no other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use crate::server;
use crate::support::{folder, tidegate_fetch};

/// Each host has more URLs than are in flight at once.
const URLS: usize = 400;

#[test]
fn hosts_that_refuse_or_hang_delay_no_other() {
    // Its responses take as long as the test, as those of a host that takes ten seconds do.
    let released = Arc::new((Mutex::new(false), Condvar::new()));
    let slow = server::start({
        let released = Arc::clone(&released);
        move |_| {
            let (is_released, changed) = &*released;
            let waiting = is_released.lock().unwrap();
            drop(
                changed
                    .wait_while(waiting, |is_released| !*is_released)
                    .unwrap(),
            );
            Some(("text/plain", "late".to_owned()))
        }
    });
    let healthy = [0; 2].map(|_| server::start(|_| Some(("text/plain", "ok".to_owned()))));
    // There is no listener on that address.
    let refused = format!("127.0.0.99:{}", healthy[0].port());
    let hosts = [refused, slow.to_string()]
        .into_iter()
        .chain(healthy.iter().map(ToString::to_string));
    let urls = hosts.flat_map(|host| (0..URLS).map(move |n| format!("http://{host}/{n}\n")));

    let settings = "[gate]\ninitial_rate = 1_000\n[fetch]\nrobots = false\n";
    let folder = folder(settings);
    fs::write(folder.path().join("list"), urls.collect::<String>()).unwrap();
    let mut child = tidegate_fetch(folder.path(), &["-i", "list", "--jsonl", "-"])
        .spawn()
        .unwrap();
    let mut fetched = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let url = line["url"].as_str().unwrap();
        assert!(!url.contains(&slow.to_string()), "after {fetched}: {line}");
        if healthy.iter().any(|host| url.contains(&host.to_string())) {
            assert_eq!(line["status"], 200, "{line}");
            fetched += 1;
        }
        if fetched == 2 * URLS {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (is_released, changed) = &*released;
    *is_released.lock().unwrap() = true;
    changed.notify_all();
    assert_eq!(fetched, 2 * URLS);
}
