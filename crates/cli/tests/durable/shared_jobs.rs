//! Jobs of several servers on one database: any of them shows and cancels a job, and goes on with it when
//! the one that ran it fails.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use store::private_postgres::PrivatePostgres;

use super::jobs::{Received, SETTINGS, show, start_job, upstream, wait_until_done};
use super::support::{Admin, Home, Running, wait, wait_for};

/// Servers with settings of their own and one database.
struct Fleet {
    database: PrivatePostgres,
    homes: Vec<Home>,
}

impl Fleet {
    fn new(servers: usize) -> Self {
        let database = PrivatePostgres::start();
        let homes = (0..servers).map(|_| home(&database)).collect();
        Self { database, homes }
    }

    fn start(&self) -> Vec<Running> {
        self.homes.iter().map(Home::start).collect()
    }

    /// Which server runs a job, once there is one.
    fn owner(&self, job: &Value) -> usize {
        let id = job["id"].as_str().unwrap();
        let sql =
            format!("SELECT node FROM tidegate.jobs WHERE id = '{id}' AND status = 'running'");
        wait_for("a server that runs the job", || {
            let node: u64 = self.database.query(&sql).parse().ok()?;
            self.homes.iter().position(|home| number(home) == node)
        })
    }

    fn states(&self) -> u64 {
        let sql = "SELECT count(*) FROM tidegate.job_states";
        self.database.query(sql).parse().unwrap()
    }
}

fn home(database: &PrivatePostgres) -> Home {
    let home = Home::new("");
    let address = home.data().with_file_name("address");
    fs::write(&address, database.url()).unwrap();
    let address = address.display();
    home.write(&format!(
        "{SETTINGS}\n[storage]\noperations = \"file:{address}\"\n"
    ));
    home
}

/// The number of a server, as the database has it.
fn number(home: &Home) -> u64 {
    let node = fs::read_to_string(home.data().join("node")).unwrap();
    u64::from_str_radix(node.trim(), 16).unwrap() >> 1
}

fn listed(admin: &Admin) -> Vec<Value> {
    let page = admin.must("GET", "/api/v1/jobs", None);
    page["jobs"].as_array().unwrap().clone()
}

/// Waits until a job has finished some URLs.
fn wait_for_urls(admin: &Admin, job: &Value, done: u64) -> u64 {
    wait_for("further URL", || {
        let now = show(admin, job)["counts"]["done"].as_u64().unwrap();
        (now > done).then_some(now)
    })
}

fn report(admin: &Admin, job: &Value) -> Value {
    let slug = job["slug"].as_str().unwrap();
    let page = admin.call("GET", &format!("/r/{slug}"), None).unwrap();
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.head.contains("content-security-policy"), "{page:?}");
    admin.must("GET", &format!("/r/{slug}.json"), None)
}

#[test]
fn any_server_shows_and_cancels_a_job() {
    let fleet = Fleet::new(2);
    let servers = fleet.start();
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    // Each server runs one at a time, so both run one, and both see both.
    let jobs = ["a", "b"].map(|name| start_job(&servers[0].admin, &upstream, name, 4000));
    for job in &jobs {
        wait_for_urls(&servers[0].admin, job, 0);
    }
    assert_ne!(fleet.owner(&jobs[0]), fleet.owner(&jobs[1]));
    for server in &servers {
        assert_eq!(listed(&server.admin).len(), 2);
        for job in &jobs {
            assert_eq!(show(&server.admin, job)["status"], "running");
        }
    }
    // Each is cancelled by the server that does not run it.
    for job in &jobs {
        let other = &servers[1 - fleet.owner(job)].admin;
        let id = job["id"].as_str().unwrap();
        let path = format!("/api/v1/jobs/{id}/cancel");
        assert_eq!(other.must("POST", &path, None)["status"], "cancelled");
    }
    let sent = || received.lock().unwrap().values().sum::<u64>();
    wait_for("the end of all requests", || {
        let before = sent();
        wait(Duration::from_millis(300));
        (sent() == before).then_some(())
    });
    assert!(sent() < 8000, "they were not stopped");
    for server in &servers {
        for job in &jobs {
            assert_eq!(show(&server.admin, job)["status"], "cancelled");
        }
    }
    assert_eq!(fleet.states(), 0);
}

#[test]
fn another_server_goes_on_with_the_job_of_a_killed_one() {
    const URLS: usize = 3000;
    let fleet = Fleet::new(2);
    let mut servers = fleet.start();
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let job = start_job(&servers[0].admin, &upstream, "a", URLS);
    let owner = fleet.owner(&job);
    wait_for_urls(&servers[1 - owner].admin, &job, 300);
    wait_for("a copy of the state", || (fleet.states() > 0).then_some(()));
    let killed = SystemTime::now();
    servers.remove(owner).kill();
    let other = &servers[0].admin;
    let before = show(other, &job);
    wait_for("a server that takes over", || {
        (fleet.owner(&job) != owner).then_some(())
    });
    let taken_over = killed.elapsed().unwrap();
    let shown = wait_until_done(other, &job);
    assert!(shown["progress"].as_f64() >= before["progress"].as_f64());
    let urls = u64::try_from(URLS).unwrap();
    assert_eq!(shown["counts"]["total"], urls);
    assert_eq!(shown["counts"]["done"], urls);
    assert_eq!(shown["counts"]["failed"], 0);
    let totals = report(other, &job)["totals"].clone();
    assert_eq!(totals["urls"], urls);
    assert_eq!(totals["fetched"], urls);
    let received = received.lock().unwrap();
    assert_eq!(received.len(), URLS, "every URL was requested");
    let again: u64 = received.values().map(|times| times - 1).sum();
    // Not from the beginning: only what was not copied yet, a second or two of requests.
    assert!(again < urls / 2, "{again} of {urls} were requested again");
    assert_eq!(fleet.states(), 0);
    println!(
        "taken over after {} ms, {again} of {urls} URLs requested again",
        taken_over.as_millis()
    );
}

#[test]
fn a_stopped_server_hands_its_job_over_with_nothing_fetched_twice() {
    const URLS: usize = 1500;
    let fleet = Fleet::new(2);
    let mut servers = fleet.start();
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let job = start_job(&servers[0].admin, &upstream, "a", URLS);
    let owner = fleet.owner(&job);
    wait_for_urls(&servers[owner].admin, &job, 100);
    assert_eq!(servers.remove(owner).stop().code(), Some(0));
    wait_until_done(&servers[0].admin, &job);
    // The first one is back, and shows a job and a report that it has no files of.
    let back = fleet.homes[owner].start();
    assert_eq!(show(&back.admin, &job)["status"], "done");
    assert_eq!(report(&back.admin, &job)["totals"]["urls"], URLS);
    let received = received.lock().unwrap();
    assert_eq!(received.len(), URLS);
    assert!(received.values().all(|times| *times == 1), "{received:?}");
}

#[test]
fn a_frozen_server_does_not_end_the_job_that_another_has_taken_over() {
    const URLS: usize = 1500;
    let fleet = Fleet::new(2);
    let servers = fleet.start();
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let job = start_job(&servers[0].admin, &upstream, "a", URLS);
    let owner = fleet.owner(&job);
    let other = &servers[1 - owner].admin;
    wait_for_urls(other, &job, 100);
    servers[owner].signal("STOP");
    wait_for("a server that takes over", || {
        (fleet.owner(&job) != owner).then_some(())
    });
    servers[owner].signal("CONT");
    let shown = wait_until_done(other, &job);
    assert_eq!(shown["counts"]["done"], URLS);
    // The late one has stopped, and shows what the other has done.
    wait_for("the same on both", || {
        let shown = [&servers[0], &servers[1]].map(|server| show(&server.admin, &job));
        (shown[0] == shown[1]).then_some(())
    });
    assert_eq!(report(&servers[owner].admin, &job)["totals"]["urls"], URLS);
    assert_eq!(received.lock().unwrap().len(), URLS);
    let sql = "SELECT fence FROM tidegate.jobs";
    assert_eq!(fleet.database.query(sql), "2");
}
