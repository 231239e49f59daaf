//! Several servers on one database: nodes that are killed and frozen, and a database that fails.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use policy::random::Random;
use serde_json::json;
use store::private_postgres::{PASSWORD, PrivatePostgres};

use super::operations::{Received, count, post, settings, upstream};
use super::support::{Admin, Home, Running, endpoint, mock, now_ms, wait, wait_for};

/// A home whose operations are in the database.
fn home(database: &PrivatePostgres, upstream: &str) -> Home {
    let home = Home::new("");
    home.write(&shared(&home, database, upstream));
    home
}

fn shared(home: &Home, database: &PrivatePostgres, upstream: &str) -> String {
    let address = home.data().with_file_name("address");
    fs::write(&address, database.url()).unwrap();
    let own = settings(upstream);
    format!(
        "{own}\n[storage]\noperations = \"file:{}\"\n",
        address.display()
    )
}

/// The value of a metric without labels.
fn metric(admin: &Admin, name: &str) -> u64 {
    let metrics = admin.call("GET", "/metrics", None).unwrap().body;
    let sample = format!("{name} ");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(&sample)).unwrap();
    value.parse().unwrap()
}

/// What a node is sending, as the database knows it.
fn running(database: &PrivatePostgres, home: &Home) -> u64 {
    let node = fs::read_to_string(home.data().join("node")).unwrap();
    let node = u64::from_str_radix(node.trim(), 16).unwrap() >> 1;
    let sql = format!(
        "SELECT count(*) FROM tidegate.operations WHERE state = 'running' AND node = {node}"
    );
    database.query(&sql).parse().unwrap()
}

fn lost(accepted: &[String], received: &Received) -> Vec<String> {
    let received = received.lock().unwrap();
    let is_lost = |key: &&String| !received.contains_key(*key);
    accepted.iter().filter(is_lost).cloned().collect()
}

/// `FLEET_TEST_OPERATIONS` sets how many are accepted, and `FLEET_TEST_LOG` names a file that gets a line
/// with the figures: `scripts/run-crashes --fleet` runs a hundred thousand.
#[test]
fn nodes_that_are_killed_and_frozen_at_random_lose_nothing() {
    let wanted = std::env::var("FLEET_TEST_OPERATIONS").ok();
    let wanted = wanted.map_or(OPERATIONS, |wanted| wanted.parse().unwrap());
    let seed = u64::try_from(now_ms()).unwrap();
    let mut random = Random::from_seed(seed);
    let received = Received::default();
    let mut fleet = Fleet::start(3, &upstream(Arc::clone(&received)));
    let begin = SystemTime::now();
    let mut accepted = Vec::new();
    while accepted.len() < wanted {
        let producers = fleet.produce(accepted.len(), 1 + wanted / 10_000);
        wait(Duration::from_millis(20 + random.below(300)));
        let node = usize::try_from(random.below(3)).unwrap();
        match random.below(3) {
            0 => fleet.freeze(node),
            // Most that are frozen must live until they are late.
            _ if fleet.frozen[node].is_some() && random.below(20) > 0 => {}
            _ => fleet.kill(node),
        }
        fleet.thaw();
        for producer in producers {
            accepted.extend(producer.join().unwrap());
        }
    }
    wait_for_all("the end of all freezes", || {
        fleet.thaw();
        fleet
            .frozen
            .iter()
            .filter(|frozen| frozen.is_some())
            .count()
    });
    wait_for_all("the end of all deliveries", || pending(&fleet.database));
    let lost = lost(&accepted, &received);
    assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
    let (cut_off, thaws) = (fleet.cut_off, fleet.thaws);
    assert!(
        2 * cut_off <= thaws + 1,
        "seed {seed}: {cut_off} of {thaws} nodes were cut off, which proves nothing"
    );
    let repeated = received
        .lock()
        .unwrap()
        .values()
        .filter(|times| **times > 1)
        .count();
    let figures = json!({
        "seed": seed,
        "accepted": accepted.len(),
        "lost": lost.len(),
        "kills": fleet.kills,
        "freezes": fleet.freezes,
        "late_claims": fleet.late,
        "late_claims_noticed": fleet.noticed,
        "cut_off": fleet.cut_off,
        "received_more_than_once": repeated,
        "seconds": begin.elapsed().unwrap_or_default().as_secs(),
    });
    println!("{figures}");
    if let Ok(path) = std::env::var("FLEET_TEST_LOG") {
        fs::write(path, format!("{figures}\n")).unwrap();
    }
}

/// Enough to meet most moments of a delivery now and then.
const OPERATIONS: usize = 500;

/// No claim ends earlier: claims of 15 s are extended every 5 s.
const SHORTER_THAN_A_LEASE: Duration = Duration::from_secs(9);

/// Others have taken over by then.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(17);

/// Several nodes on one database.
struct Fleet {
    database: PrivatePostgres,
    homes: Vec<Home>,
    nodes: Vec<Running>,
    frozen: Vec<Option<Frozen>>,
    kills: u64,
    freezes: u64,
    /// Claims of nodes that were frozen for longer than a lease.
    late: u64,
    /// How many late results these nodes have noticed.
    noticed: u64,
    /// How many of these nodes lost their connection to the database.
    cut_off: u64,
    /// How many have gone on.
    thaws: u64,
}

/// A node that is frozen.
struct Frozen {
    since: SystemTime,
    /// How many operations it was sending.
    claims: u64,
    /// How many late results it had noticed before.
    noticed: u64,
    /// How much it had logged before.
    logged: usize,
}

impl Fleet {
    fn start(nodes: usize, upstream: &str) -> Self {
        let database = PrivatePostgres::start();
        let homes: Vec<Home> = (0..nodes).map(|_| home(&database, upstream)).collect();
        Self {
            nodes: homes.iter().map(Home::start).collect(),
            frozen: (0..nodes).map(|_| None).collect(),
            database,
            homes,
            kills: 0,
            freezes: 0,
            late: 0,
            noticed: 0,
            cut_off: 0,
            thaws: 0,
        }
    }

    /// So many producers post to every node that is not frozen, until a post fails or some have been posted.
    fn produce(&self, round: usize, producers: usize) -> Vec<thread::JoinHandle<Vec<String>>> {
        let awake = self.nodes.iter().zip(&self.frozen).enumerate();
        let awake = awake.filter(|(_, (_, frozen))| frozen.is_none());
        let awake = awake.flat_map(|(node, (running, _))| {
            (0..producers).map(move |number| (running.listen.clone(), node, number))
        });
        awake
            .map(|(listen, node, number)| {
                let name = format!("{round}-{node}-{number}");
                thread::spawn(move || produce_some(&listen, &name))
            })
            .collect()
    }

    /// Kills a node and starts it again.
    fn kill(&mut self, node: usize) {
        self.kills += 1;
        self.frozen[node] = None;
        self.nodes.remove(node).kill();
        self.nodes.insert(node, self.homes[node].start());
    }

    /// Freezes a node, but never the last one.
    fn freeze(&mut self, node: usize) {
        let awake = self.frozen.iter().filter(|frozen| frozen.is_none());
        if awake.count() == 1 || self.frozen[node].is_some() {
            return;
        }
        self.freezes += 1;
        let noticed = metric(&self.nodes[node].admin, LOST);
        let logged = self.homes[node].stderr().len();
        self.nodes[node].signal("STOP");
        self.frozen[node] = Some(Frozen {
            since: SystemTime::now(),
            claims: 0,
            noticed,
            logged,
        });
    }

    /// Lets nodes go on that were frozen for longer than a lease. They must notice that each of their
    /// claims has passed to another node.
    fn thaw(&mut self) {
        let nodes = self.nodes.iter().zip(&self.homes);
        for ((node, home), place) in nodes.zip(&mut self.frozen) {
            let Some(frozen) = place else { continue };
            let time = frozen.since.elapsed().unwrap_or_default();
            if time < SHORTER_THAN_A_LEASE {
                // The last count is the one: the database may still do what it had received before.
                frozen.claims = running(&self.database, home);
            }
            if time < LONGER_THAN_A_LEASE {
                continue;
            }
            node.signal("CONT");
            let noticed = wait_for("a notice of every late result", || {
                let noticed = metric(&node.admin, LOST) - frozen.noticed;
                // A claim whose commit was not answered before the connection broke is none that it has.
                let is_cut_off = home.stderr()[frozen.logged..].contains("store_degraded");
                (noticed >= frozen.claims || is_cut_off).then_some(noticed)
            });
            self.late += frozen.claims;
            self.thaws += 1;
            self.noticed += noticed;
            self.cut_off += u64::from(noticed < frozen.claims);
            *place = None;
        }
    }
}

/// Posts until a post fails, or some have been posted. A frozen node answers when it goes on.
fn produce_some(listen: &str, name: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0..100 {
        let key = format!("{name}-{number}");
        match post(listen, &key) {
            Some(202) => acknowledged.push(key),
            _ => break,
        }
    }
    acknowledged
}

#[test]
fn a_frozen_node_is_replaced_and_cannot_finish_late() {
    let database = PrivatePostgres::start();
    let received = Received::default();
    let url = upstream(Arc::clone(&received));
    let (frozen_home, other_home) = (home(&database, &url), home(&database, &url));
    let frozen = frozen_home.start();
    let producers: Vec<_> = (0..4)
        .map(|number| {
            let listen = frozen.listen.clone();
            thread::spawn(move || produce_for(&listen, &number.to_string(), STEADY))
        })
        .collect();
    let mut accepted = Vec::new();
    // A moment at which it sends something.
    let claimed = wait_for("a node that is frozen while it sends", || {
        frozen.signal("STOP");
        // What the server had received before is done.
        wait(Duration::from_millis(200));
        let claimed = running(&database, &frozen_home);
        if claimed == 0 {
            frozen.signal("CONT");
            wait(Duration::from_millis(7));
        }
        (claimed > 0).then_some(claimed)
    });
    let other = other_home.start();
    // What the frozen node has claimed is delivered when its leases have ended.
    wait_until_done(&database);
    assert_eq!(metric(&other.admin, LOST), 0);
    frozen.signal("CONT");
    // A result that was stored just before, without an answer, is stored once more and counts, too.
    wait_for("a notice of every late result", || {
        (metric(&frozen.admin, LOST) >= claimed).then_some(())
    });
    for producer in producers {
        accepted.extend(producer.join().unwrap());
    }
    wait_until_done(&database);
    let lost = lost(&accepted, &received);
    assert!(lost.is_empty(), "lost {lost:?}");
    let stderr = frozen_home.stderr();
    assert!(stderr.contains("claim_lost"), "{stderr}");
    wait_for("the counts of the database on both nodes", || {
        let sql = "SELECT count(*) FROM tidegate.operations WHERE state = 'completed'";
        let completed: u64 = database.query(sql).parse().unwrap();
        let shown = [&other, &frozen].map(|node| count(&node.admin, "completed"));
        (shown == [completed; 2]).then_some(())
    });
}

const LOST: &str = "tidegate_operation_claims_lost_total";

/// How long a producer posts.
const STEADY: Duration = Duration::from_secs(3);

/// Posts for a while. A node that is frozen meanwhile does not answer, so the last post may take long.
fn produce_for(listen: &str, name: &str, time: Duration) -> Vec<String> {
    let begin = SystemTime::now();
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if begin.elapsed().unwrap_or_default() > time {
            break;
        }
        let key = format!("{name}-{number}");
        if post(listen, &key) == Some(202) {
            acknowledged.push(key);
        }
        wait(Duration::from_millis(5));
    }
    acknowledged
}

/// Waits until nothing is pending.
fn wait_until_done(database: &PrivatePostgres) {
    wait_for("the end of all deliveries", || {
        (pending(database) == 0).then_some(())
    });
}

/// How many operations have not ended.
fn pending(database: &PrivatePostgres) -> usize {
    let sql = "SELECT count(*) FROM tidegate.operations
               WHERE state IN ('available', 'running', 'retryable')";
    database.query(sql).parse().unwrap()
}

/// Waits until nothing is left of what `left` counts. There may be much, so the time is bounded for each.
fn wait_for_all(what: &str, mut left: impl FnMut() -> usize) {
    let mut before = left();
    while before > 0 {
        before = wait_for(what, || {
            let now = left();
            (now < before).then_some(now)
        });
    }
}

#[test]
fn an_outage_of_the_database_delays_operations_and_fails_no_other_request() {
    let mut database = PrivatePostgres::start();
    let received = Received::default();
    let url = upstream(Arc::clone(&received));
    let home = home(&database, &url);
    let node = home.start();
    assert_eq!(post(&node.listen, "before"), Some(202));
    database.crash();
    let health = wait_for("health to be degraded", || {
        // It is noticed by the next call, such as the sweep of every second.
        let health = node.admin.call("GET", "/readyz", None)?;
        health.body.contains("degraded").then_some(health)
    });
    assert_eq!(health.status, 200, "other requests are served");
    assert!(health.body.contains("cannot be reached"), "{}", health.body);
    assert!(!health.body.contains(PASSWORD), "{}", health.body);
    // It cannot be stored, so it is not accepted; what needs no database is served.
    assert_eq!(post(&node.listen, "during"), Some(503));
    let answers: Vec<u16> = (0..5)
        .filter_map(|_| Some(node.get("/api/x")?.status))
        .collect();
    assert_eq!(answers.len(), 5);
    assert!(answers.contains(&200), "{answers:?}");
    let logged = |event: &str| {
        wait_for(event, || home.stderr().contains(event).then_some(()));
    };
    logged("store_degraded");
    database.resume_service();
    wait_for("health to be ok", || {
        let health = node.admin.call("GET", "/readyz", None)?;
        (!health.body.contains("degraded")).then_some(())
    });
    wait_for("an operation to be accepted", || {
        (post(&node.listen, "after") == Some(202)).then_some(())
    });
    wait_until_done(&database);
    let accepted = ["before", "after"].map(str::to_owned);
    assert_eq!(lost(&accepted, &received), Vec::<String>::new());
    logged("store_recovered");
    assert!(!home.stderr().contains(PASSWORD));
}

#[test]
fn a_lease_that_is_not_extended_is_logged() {
    let mut database = PrivatePostgres::start();
    // It never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let home = home(&database, &url);
    let node = home.start();
    assert_eq!(post(&node.listen, "slow"), Some(202));
    wait_for("an operation that is sent", || {
        (running(&database, &home) == 1).then_some(())
    });
    database.crash();
    wait_for("a heartbeat that fails", || {
        home.stderr().contains("heartbeat_failed").then_some(())
    });
    let overview = node.admin.must("GET", "/api/v1/summary", None);
    let stores = overview["stores"].as_array().unwrap().iter();
    let stores: Vec<_> = stores.map(|it| (&it["name"], &it["status"])).collect();
    let expected = [("SQLite", "ok"), ("PostgreSQL", "degraded")];
    assert_eq!(json!(stores), json!(expected));
}

#[test]
fn a_database_that_cannot_be_used_is_an_error_at_the_start() {
    let database = PrivatePostgres::start();
    let home = home(&database, "http://127.0.0.1:1");
    let address = home.data().with_file_name("address");
    // Said by the server at its start, and by the command that moves operations.
    let refused = |url: &str, expected: &[&str]| {
        fs::write(&address, url).unwrap();
        let output = home.command().output().unwrap();
        // What is wrong with the settings is a result, as JSON.
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let migrated = migrate(&home, "postgres");
        for (code, said) in [(output.status.code(), said), migrated] {
            assert!(matches!(code, Some(1 | 2)), "{code:?}: {said}");
            for text in expected {
                assert!(said.contains(text), "{said}");
            }
            assert!(
                !said.contains(PASSWORD) && !said.contains("wrong-secret"),
                "{said}"
            );
        }
    };
    let url = database.url();
    refused(
        &url.replace(PASSWORD, "wrong-secret"),
        &[
            "password authentication failed for user",
            "hint: check the user and the password",
        ],
    );
    refused(
        &format!("postgres://tidegate:{PASSWORD}@127.0.0.1:1/work?sslmode=disable"),
        &["Connection refused", "hint: check host and port"],
    );
    refused("mysql://127.0.0.1/work", &["postgres://"]);
    database.query(
        "CREATE SCHEMA tidegate; CREATE TABLE tidegate.schema_version (version BIGINT);
         INSERT INTO tidegate.schema_version VALUES (99)",
    );
    refused(&url, &["has version 99, expected at most", "hint: "]);
}

#[test]
fn operations_move_to_the_database_and_back() {
    let database = PrivatePostgres::start();
    let received = Received::default();
    // Nothing listens there: they stay in the queue.
    let home = Home::new(&settings("http://127.0.0.1:1"));
    let server = home.start();
    let accepted = ["a", "b", "c"].map(str::to_owned);
    for key in &accepted {
        assert_eq!(post(&server.listen, key), Some(202));
    }
    assert!(server.stop().success());
    home.write(&shared(&home, &database, "http://127.0.0.1:1"));
    let server = home.start();
    let stderr = home.stderr();
    assert!(stderr.contains("3 operations in the folder"), "{stderr}");
    let (code, said) = migrate(&home, "postgres");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("hint: stop that server first"), "{said}");
    assert!(server.stop().success());

    assert_eq!(
        migrate(&home, "postgres"),
        (Some(0), "moved 3 operations to the database\n".to_owned())
    );
    assert_eq!(
        migrate(&home, "postgres"),
        (Some(0), "moved 0 operations to the database\n".to_owned())
    );
    assert_eq!(
        database.query("SELECT count(*) FROM tidegate.operations"),
        "3"
    );
    assert_eq!(
        migrate(&home, "sqlite"),
        (
            Some(0),
            format!(
                "moved 3 operations to the folder `{}`\n",
                home.data().display()
            )
        )
    );
    assert_eq!(
        database.query("SELECT count(*) FROM tidegate.operations"),
        "0"
    );
    migrate(&home, "postgres");

    home.write(&shared(&home, &database, &upstream(Arc::clone(&received))));
    let server = home.start();
    assert!(
        !home.stderr().contains("in the folder"),
        "{}",
        home.stderr()
    );
    wait_until_done(&database);
    assert_eq!(lost(&accepted, &received), Vec::<String>::new());
    let (code, said) = migrate_elsewhere(&database);
    assert_eq!(code, Some(0), "{said}");
    drop(server);
}

/// Moves operations; the exit code, and what was printed.
fn migrate(home: &Home, to: &str) -> (Option<i32>, String) {
    let output = home
        .tidegate(&["ops", "migrate", "--to", to])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Moves from a folder without operations, while another server uses the database but sends nothing.
fn migrate_elsewhere(database: &PrivatePostgres) -> (Option<i32>, String) {
    let home = home(database, "http://127.0.0.1:1");
    migrate(&home, "postgres")
}

#[test]
fn pool_states_and_run_time_changes_are_those_of_all_nodes() {
    let (failing, fine) = (mock("503"), mock("200"));
    let urls = [failing.url(), fine.url()];
    let database = PrivatePostgres::start();
    let homes: Vec<Home> = (0..2).map(|_| pool_home(&database, &urls)).collect();
    // Both make the tables at once.
    let nodes: Vec<Running> = thread::scope(|scope| {
        let starts: Vec<_> = homes
            .iter()
            .map(|home| scope.spawn(|| home.start()))
            .collect();
        starts.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let all = |what: &str, check: &dyn Fn(&Admin) -> bool| {
        let has_all = || nodes.iter().all(|node| check(&node.admin));
        wait_for(what, || has_all().then_some(()));
        // It stays so: nothing of what a node knew before comes back.
        wait(Duration::from_millis(300));
        assert!(has_all(), "{what}");
    };
    let [one, other] = &nodes[..] else {
        panic!("two nodes");
    };
    let switch = |node: &Running, name: &str, enabled: bool| {
        let path = format!("/api/v1/pools/llm/endpoints/{name}");
        let body = serde_json::json!({ "enabled": enabled });
        node.admin.must("PATCH", &path, Some(&body));
    };

    switch(one, "fine", false);
    all("disabled by a person", &|admin| {
        admin.endpoint("llm", "fine")["disabled_kind"] == "person"
    });
    switch(other, "fine", true);
    all("enabled", &|admin| {
        admin.endpoint("llm", "fine")["enabled"] == true
    });

    assert_eq!(one.get("/llm/x").unwrap().status, 200);
    let paused_until = |admin: &Admin| admin.endpoint("llm", "failing")["paused_until_ms"].as_i64();
    all("a pause after an error", &|admin| {
        paused_until(admin) > Some(now_ms())
    });
    let ends: Vec<Option<i64>> = nodes.iter().map(|node| paused_until(&node.admin)).collect();
    let difference = ends[0].unwrap() - ends[1].unwrap();
    assert!(difference.abs() < 1000, "{ends:?}");
    assert_eq!(failing.stats().received, 1, "the other node did not ask");
    switch(other, "failing", true);
    all("no pause", &|admin| paused_until(admin).is_none());

    let changed = serde_json::json!({ "disable_after": 3 });
    let path = "/api/v1/pools/llm/protection";
    other.admin.must("PUT", path, Some(&changed));
    all("the protection", &|admin| {
        admin.pool("llm")["protection"]["disable_after"] == 3
    });
    let added = endpoint("added", &urls[1]);
    let path = "/api/v1/pools/llm/endpoints";
    one.admin.must("POST", path, Some(&added));
    all("an endpoint more", &|admin| {
        !admin.endpoint("llm", "added").is_null()
    });
    let removed = other
        .admin
        .call("DELETE", "/api/v1/pools/llm/endpoints/failing", None);
    assert!(removed.unwrap().status < 300);
    all("an endpoint less", &|admin| {
        admin.endpoint("llm", "failing").is_null()
    });

    // A node that starts later has all of it, from the database alone.
    switch(one, "added", false);
    let late = pool_home(&database, &urls);
    let late = late.start();
    assert_eq!(late.admin.pool("llm")["protection"]["disable_after"], 3);
    assert!(late.admin.endpoint("llm", "failing").is_null());
    let added = late.admin.endpoint("llm", "added");
    assert_eq!(added["disabled_kind"], "person");
}

/// A home with a pool of two endpoints.
fn pool_home(database: &PrivatePostgres, [failing, fine]: &[String; 2]) -> Home {
    let home = Home::new("");
    let address = home.data().with_file_name("address");
    fs::write(&address, database.url()).unwrap();
    home.write(&format!(
        r#"
        [pool.llm]
        balance = "first"
        endpoints = [
          {{ name = "failing", url = "{failing}" }},
          {{ name = "fine", url = "{fine}" }},
        ]
        [network]
        allow = ["127.0.0.0/8"]
        [storage]
        operations = "file:{}"
        "#,
        address.display()
    ));
    home
}
