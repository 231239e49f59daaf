//! A server that is killed under load, at moments that are drawn by lot, again and again.
//!
//! What the API acknowledged is always back. What could be seen there is back if it had a moment to
//! reach the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use policy::random::Random;
use serde_json::{Value, json};

use crate::support::{Admin, Home, SLACK_MS, endpoint, get, mock, now_ms, wait};

const ROUNDS: u64 = 16;

/// What could be seen for so long before the end has to be back.
const TIME_TO_WRITE: Duration = Duration::from_millis(300);

/// As many changes have to be acknowledged, thus durable, in that time: on a machine that gets
/// nowhere a length of time says nothing.
const CHANGES_TO_WRITE: usize = 3;

/// What was acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    /// By pool and name.
    added: BTreeSet<(String, String)>,
    isolated: BTreeSet<String>,
    is_enabled: Option<bool>,
    disable_after: Option<u64>,
}

/// What was seen: ends by key of a gate or endpoint.
#[derive(Clone, Debug, Default)]
struct Seen {
    holds: BTreeMap<String, i64>,
    pauses: BTreeMap<String, (i64, u64)>,
}

impl Seen {
    /// `None` if there is no response any more.
    fn now(admin: &Admin) -> Option<Self> {
        let mut seen = Self::default();
        for gate in admin.gates()? {
            let key = gate["key"].as_str()?.to_owned();
            let until = gate["hold"]["until_ms"].as_i64();
            seen.holds.extend(until.map(|until| (key, until)));
        }
        for pool in admin.pools()? {
            for endpoint in pool["endpoints"].as_array()? {
                let key = format!("{}/{}", pool["name"], endpoint["name"]);
                let errors = endpoint["consecutive_errors"].as_u64()?;
                let until = endpoint["paused_until_ms"].as_i64();
                seen.pauses
                    .extend(until.map(|until| (key, (until, errors))));
            }
        }
        Some(seen)
    }

    fn assert_is_back(&self, admin: &Admin, context: &str) {
        let now = Self::now(admin).unwrap();
        for (key, before) in &self.holds {
            let after = now.holds.get(key);
            let is_back = after.is_some_and(|after| *after >= before - SLACK_MS);
            assert!(
                is_back,
                "{context}: hold of {key} until {before} is {after:?}"
            );
        }
        for (key, before) in &self.pauses {
            let after = now.pauses.get(key);
            let is_back =
                after.is_some_and(|after| after.0 >= before.0 - SLACK_MS && after.1 >= before.1);
            assert!(is_back, "{context}: pause of {key} {before:?} is {after:?}");
        }
    }
}

impl Acknowledged {
    fn assert_is_back(&self, admin: &Admin, context: &str) {
        for (pool, name) in &self.added {
            assert!(
                admin.endpoint(pool, name).is_object(),
                "{context}: {pool}/{name} is not added"
            );
        }
        for key in &self.isolated {
            let state = &admin.gate(key)["breaker"]["state"];
            assert_eq!(state, "isolated", "{context}: {key}");
        }
        if let Some(is_enabled) = self.is_enabled {
            assert_eq!(
                admin.endpoint("calm", "b")["enabled"],
                is_enabled,
                "{context}"
            );
        }
        if let Some(count) = self.disable_after {
            let protection = &admin.pool("calm")["protection"];
            assert_eq!(protection["disable_after"], count, "{context}");
        }
    }

    /// Changes one thing. `false` if there is no response any more.
    fn change(
        &mut self,
        admin: &Admin,
        random: &mut Random,
        number: u64,
        urls: &[String; 3],
    ) -> bool {
        let (method, path, body) = match number % 5 {
            0 => added("failing", number, &urls[0]),
            1 => added("held", number, &urls[1]),
            2 => {
                let path = "/api/v1/pools/calm/endpoints/b".to_owned();
                ("PATCH", path, json!({ "enabled": random.below(2) == 0 }))
            }
            3 => {
                let path = "/api/v1/pools/calm/protection".to_owned();
                (
                    "PUT",
                    path,
                    json!({ "disable_after": 1 + random.below(10) }),
                )
            }
            _ => {
                let path = format!("/api/v1/gates/h{number}.example.com/isolate");
                ("POST", path, Value::Null)
            }
        };
        // One that is under way at the end may or may not have been made.
        match number % 5 {
            2 => self.is_enabled = None,
            3 => self.disable_after = None,
            _ => {}
        }
        let body = Some(&body).filter(|body| !body.is_null());
        let Some(answer) = admin.call(method, &path, body) else {
            return false;
        };
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        let name = format!("n{number}");
        match number % 5 {
            0 => _ = self.added.insert(("failing".to_owned(), name)),
            1 => _ = self.added.insert(("held".to_owned(), name)),
            2 => self.is_enabled = answer.json()["enabled"].as_bool(),
            3 => self.disable_after = answer.json()["disable_after"].as_u64(),
            _ => _ = self.isolated.insert(format!("h{number}.example.com")),
        }
        true
    }
}

fn added(pool: &str, number: u64, url: &str) -> (&'static str, String, Value) {
    let path = format!("/api/v1/pools/{pool}/endpoints");
    ("POST", path, endpoint(&format!("n{number}"), url))
}

fn settings([failing, held, fine]: &[String; 3]) -> String {
    format!(
        r#"
        [gate]
        initial_rate = 200
        max_hold = "2h"
        [backoff.once]
        base = "1s"
        max = "1s"
        max_attempts = 1
        [network]
        allow = ["127.0.0.0/8"]
        [pool.failing]
        backoff = "once"
        endpoints = [{{ name = "a", url = "{failing}" }}, {{ name = "b", url = "{failing}" }}]
        protection = {{ pauses = ["600s"] }}
        [pool.held]
        backoff = "once"
        endpoints = [{{ name = "a", url = "{held}" }}, {{ name = "b", url = "{held}" }}]
        protection = {{ enabled = false }}
        [pool.calm]
        endpoints = [{{ name = "a", url = "{fine}" }}, {{ name = "b", url = "{fine}" }}]
        "#
    )
}

/// Sends requests until there is no response.
fn load(listen: &str, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for path in ["/failing/x", "/held/x", "/calm/x", "/calm/x", "/calm/x"] {
            if get(listen, path).is_none() {
                return;
            }
        }
    }
}

#[test]
fn acknowledged_and_seen_state_survives_a_kill_at_any_time() {
    let seed = u64::try_from(now_ms()).unwrap();
    let mut random = Random::from_seed(seed);
    let mocks = ["503", "429:900", "200"].map(mock);
    let urls = mocks.each_ref().map(|mock| mock.url());
    let home = Home::new(&settings(&urls));
    let mut acknowledged = Acknowledged::default();
    let mut seen = Seen::default();
    let mut number = 0;
    for round in 0..ROUNDS {
        let server = home.start();
        let context = format!("seed {seed}, round {round}");
        acknowledged.assert_is_back(&server.admin, &context);
        seen.assert_is_back(&server.admin, &context);

        let is_over = Arc::new(AtomicBool::new(false));
        let (listen, flag) = (server.listen.clone(), Arc::clone(&is_over));
        let loading = thread::spawn(move || load(&listen, &flag));
        let admin = server.admin.clone();
        let length = Duration::from_millis(350 + random.below(450));
        let killing = thread::spawn(move || {
            wait(length);
            let at = SystemTime::now();
            server.kill();
            at
        });
        // What was seen, with the time before which it was.
        let mut looks = Vec::new();
        while acknowledged.change(&admin, &mut random, number, &urls) {
            number += 1;
            let Some(look) = Seen::now(&admin) else { break };
            looks.push((SystemTime::now(), look));
        }
        number += 1;
        let killed_at = killing.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        loading.join().unwrap();
        let had_time = |at: SystemTime| {
            let left = killed_at.duration_since(at);
            left.unwrap_or_default() >= TIME_TO_WRITE
        };
        let mut looks = looks.into_iter().rev().skip(CHANGES_TO_WRITE);
        let in_time = looks.find(|(at, _)| had_time(*at));
        seen = in_time.map(|(_, look)| look).unwrap_or_default();
    }
    let server = home.start();
    acknowledged.assert_is_back(&server.admin, &format!("seed {seed}, at last"));
    let last = Seen::now(&server.admin).unwrap();
    // Else it has shown nothing.
    assert!(number > ROUNDS * 5, "only {number} changes");
    assert!(last.holds.len() > 5 && last.pauses.len() > 5, "{last:?}");
}
