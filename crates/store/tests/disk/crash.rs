//! What was acknowledged outlives a process that is killed at any moment.
//!
//! The test runs itself as a child that writes without end and prints what the store acknowledged.
//! After some of these lines, another number each time, it is killed; then the file is read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::GateRecord;
use policy::random::Random;
use policy::time::WallTime;
use store::operations::{ClaimResult, Counters, Inserted, Lease, Settlement, wait};
use store::{AddedEndpoint, Change, OpenError, Store, StoredGate, StoredState};

use super::support::{FOLDER, child, lane, operation};

/// Where a child's numbers begin, so that no two children use one twice.
const FIRST: &str = "STORE_TEST_FIRST";

const ROUNDS: u64 = 25;
const THREADS: u64 = 4;
const GATES: usize = 3;

#[test]
fn acknowledged_changes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::from_seed(30);
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let mut child = spawn(folder.path(), round * 1_000_000);
        // From the first moments, while the file is prepared, to the middle of many commits.
        let lines = random.below(60);
        read(&mut child, lines, folder.path(), &mut acknowledged);
        let store = Store::open(folder.path()).unwrap();
        acknowledged.check(&store.load().unwrap());
        acknowledged.check_operations(&store);
    }
    assert!(acknowledged.endpoints.len() > 10);
    assert!(acknowledged.operations.len() > 10);
}

#[test]
fn a_kill_during_the_first_start_leaves_a_folder_that_can_be_used() {
    // One after the other while a new folder is prepared.
    for file in ["tidegate.lock", "tidegate.db", "tidegate.db-wal"].repeat(5) {
        let folder = tempfile::tempdir().unwrap();
        let mut child = spawn(folder.path(), 0);
        while !folder.path().join(file).exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.save(Change::Gate(gate("a", 1))).wait().unwrap();
        assert!(store.load().unwrap().gates.contains(&gate("a", 1)));
    }
}

/// Not a test of its own: what the child does. Without a folder there is nothing to do.
#[test]
fn a_child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = Store::open(Path::new(&folder)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || write(store, thread, first));
            scope.spawn(move || accept(store, thread, first));
        }
        scope.spawn(|| deliver(&store));
    });
}

/// Writes gates that change together, and endpoints of its own.
fn write(store: &Store, thread: u64, first: u64) {
    for number in first.. {
        let gates =
            (0..GATES).map(|index| Change::Gate(gate(&format!("{thread}/{index}"), number)));
        store.save_all(gates).wait().unwrap();
        acknowledge(&format!("gates {thread} {number}"));
        let name = format!("{thread}-{number}");
        let endpoint = AddedEndpoint {
            pool: "llm".to_owned(),
            name: name.clone(),
            url: "https://a.example.com".to_owned(),
            headers: Vec::new(),
        };
        store.save(Change::EndpointAdded(endpoint)).wait().unwrap();
        acknowledge(&format!("endpoint {name} 0"));
    }
}

/// Inserts operations without end.
fn accept(store: &Store, thread: u64, first: u64) {
    for number in first.. {
        let id = format!("op-{thread}-{number}");
        let inserted = wait(store.operations().insert(operation(&id, body(&id)))).unwrap();
        assert!(matches!(inserted, Inserted::New(_)));
        acknowledge(&format!("operation {id} 0"));
    }
}

/// Claims operations without end, completes some, and leaves some running.
fn deliver(store: &Store) {
    let queue = store.operations();
    loop {
        let lease = Lease {
            now: WallTime::from_unix_millis(0),
            until: WallTime::from_unix_millis(60_000),
        };
        let claims = wait(queue.claim(&lane(), lease, 4)).unwrap();
        for claimed in claims.claimed.iter().skip(1) {
            let settlement = Settlement {
                now: lease.now,
                result: ClaimResult::Completed(None),
                counters: Counters::default(),
                attempts: Vec::new(),
            };
            wait(queue.settle(claimed.claim, settlement))
                .unwrap()
                .unwrap();
            acknowledge(&format!("completed {} 0", claimed.operation.id));
        }
        if claims.claimed.is_empty() {
            std::thread::yield_now();
        }
    }
}

fn body(id: &str) -> Vec<u8> {
    id.repeat(100).into_bytes()
}

fn acknowledge(what: &str) {
    writeln!(std::io::stdout().lock(), "\n{what} .").unwrap();
}

fn gate(key: &str, number: u64) -> StoredGate {
    StoredGate {
        key: key.to_owned(),
        record: GateRecord {
            rate: number as f64,
            ceiling: None,
            banned_above: None,
            hold: None,
            hold_source: None,
            breaker: BreakerRecord {
                state: BreakerState::Closed,
                open_for: Duration::ZERO,
                openings: 0,
            },
            cost: None,
        },
        at: WallTime::from_unix_millis(0),
    }
}

fn spawn(folder: &Path, first: u64) -> Child {
    child("crash::a_child_writes_until_it_is_killed", folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads until the child has acknowledged so much, kills it, and reads what it said before that.
fn read(child: &mut Child, lines: u64, folder: &Path, acknowledged: &mut Acknowledged) {
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    while count < lines {
        let line = output
            .next()
            .expect("only this test kills the child")
            .unwrap();
        if acknowledged.note(&line) {
            count += 1;
        }
    }
    if count > 0 {
        // No other process can open the folder meanwhile, and the error names the owner.
        let error = Store::open(folder).unwrap_err();
        let process = Some(child.id());
        assert!(
            matches!(error, OpenError::InUse { process: p, .. } if p == process),
            "{error}"
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in output.map_while(Result::ok) {
        acknowledged.note(&line);
    }
}

/// What children were told is durable.
#[derive(Default)]
struct Acknowledged {
    /// The last number, by thread.
    gates: BTreeMap<String, f64>,
    endpoints: Vec<String>,
    operations: BTreeSet<String>,
    completed: BTreeSet<String>,
}

impl Acknowledged {
    /// Is it an acknowledgement? A line that was cut off is none.
    fn note(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["gates", thread, number, "."] => {
                self.gates
                    .insert(thread.to_owned(), number.parse().unwrap());
            }
            ["endpoint", name, "0", "."] => self.endpoints.push(name.to_owned()),
            ["operation", id, "0", "."] => {
                self.operations.insert(id.to_owned());
            }
            ["completed", id, "0", "."] => {
                self.completed.insert(id.to_owned());
            }
            _ => return false,
        }
        true
    }

    /// Every operation is there with its request, and none is running any more.
    fn check_operations(&self, store: &Store) {
        let queue = store.operations();
        let recovered = wait(queue.recover(WallTime::from_unix_millis(0))).unwrap();
        assert_eq!(queue.counts().running, 0);
        for operation in recovered {
            assert_eq!(operation.state.as_str(), "retryable");
        }
        for id in &self.operations {
            let stored = wait(queue.get(id)).unwrap();
            let stored = stored.unwrap_or_else(|| panic!("lost: {id}"));
            let request = wait(queue.request(stored.number)).unwrap();
            assert_eq!(request, Some(operation(id, body(id)).request));
            if self.completed.contains(id) {
                assert_eq!(stored.state.as_str(), "completed", "{id}");
            }
        }
    }

    fn check(&self, stored: &StoredState) {
        for name in &self.endpoints {
            let mut added = stored.added.iter();
            assert!(added.any(|endpoint| endpoint.name == *name), "lost: {name}");
        }
        for (thread, &number) in &self.gates {
            let prefix = format!("{thread}/");
            let gates = stored
                .gates
                .iter()
                .filter(|gate| gate.key.starts_with(&prefix));
            let rates: Vec<f64> = gates.map(|gate| gate.record.rate).collect();
            assert_eq!(rates.len(), GATES);
            // A later write may have got through before the kill, but only whole.
            assert!(
                rates.iter().all(|&rate| rate >= number),
                "{thread}: {rates:?} < {number}"
            );
            assert!(
                rates
                    .iter()
                    .all(|rate| rate.to_bits() == rates[0].to_bits()),
                "{thread}: {rates:?}"
            );
        }
    }
}
