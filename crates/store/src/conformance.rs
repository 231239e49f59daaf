//! One suite of behaviours for every kind of store, and any sequence of changes compared with what
//! it means.

pub(crate) mod jobs;
pub(crate) mod operations;
mod random_operations;

#[cfg(feature = "postgres")]
use std::rc::Rc;
use std::time::Duration;

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::{CostRecord, GateRecord};
use policy::hint::Source;
use policy::ladder::{Disabled, LadderRecord};
use policy::time::WallTime;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tempfile::TempDir;

#[cfg(feature = "postgres")]
use crate::Keys;
#[cfg(feature = "postgres")]
use crate::private_postgres::PrivatePostgres;
use crate::{
    AddedEndpoint, Backend, Change, Protection, RemovedEndpoint, RotatedToken, Store,
    StoredEndpoint, StoredGate, StoredState,
};

/// Every behaviour is a test of its own for every kind of store.
macro_rules! suite {
    ($($behaviour:ident,)*) => {
        mod memory {
            use super::Subject;
            $(#[test]
            fn $behaviour() {
                super::$behaviour(&mut Subject::memory());
            })*
        }
        mod sqlite {
            use super::Subject;
            $(#[test]
            fn $behaviour() {
                super::$behaviour(&mut Subject::sqlite());
            })*
        }
    };
}
use suite;

/// The same for what Postgres has, too.
macro_rules! shared_suite {
    ($($behaviour:ident,)*) => {
        super::suite! {
            $($behaviour,)*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            use super::Subject;
            $(#[test]
            fn $behaviour() {
                super::$behaviour(&mut Subject::postgres());
            })*
        }
    };
}
use shared_suite;

suite! {
    a_new_store_is_empty,
    saved_records_survive_a_restart,
    the_newest_record_counts,
    deleted_records_are_gone,
    old_gates_are_forgotten_by_the_time_they_were_written,
    a_protection_is_replaced_whole,
    a_protection_without_values_is_not_none,
    endpoints_stay_in_the_order_in_which_they_were_added,
    an_endpoint_is_added_or_removed_or_neither,
    every_word_comes_back,
    extremes_come_back,
    a_rate_that_is_no_number_leaves_other_rows_intact,
    a_rotated_token_is_replaced_and_forgotten,
    several_changes_go_together,
    clones_are_one_store,
    a_store_counts_what_it_writes,
}

fn a_new_store_is_empty(subject: &mut Subject) {
    assert_eq!(subject.load(), StoredState::default());
    subject.restart();
    assert_eq!(subject.load(), StoredState::default());
    assert_eq!(subject.store().flush().wait(), Ok(()));
    assert_eq!(subject.store().save_all([]).wait(), Ok(()));
}

fn saved_records_survive_a_restart(subject: &mut Subject) {
    let protection = Protection {
        values: [("disable_after".to_owned(), "3".to_owned())].into(),
    };
    let added = endpoint("llm", "new", "https://new.example.com");
    for change in [
        Change::Gate(gate("a", 1.5, 10)),
        Change::Endpoint(state("llm", "a", 2, 20)),
        Change::Protection {
            pool: "llm".to_owned(),
            protection: Some(protection.clone()),
        },
        Change::EndpointAdded(added.clone()),
        removed("llm", "b"),
        Change::Rotated(rotated("crm", "r-1")),
    ] {
        assert_eq!(subject.store().save(change).wait(), Ok(()));
    }
    let expected = StoredState {
        gates: vec![gate("a", 1.5, 10)],
        endpoints: vec![state("llm", "a", 2, 20)],
        protections: [("llm".to_owned(), protection)].into(),
        added: vec![added],
        removed: vec![RemovedEndpoint {
            pool: "llm".to_owned(),
            name: "b".to_owned(),
        }],
        rotated: vec![rotated("crm", "r-1")],
        unreadable: Vec::new(),
    };
    assert_eq!(subject.load(), expected);
    subject.restart();
    assert_eq!(subject.load(), expected);
}

fn a_rotated_token_is_replaced_and_forgotten(subject: &mut Subject) {
    subject.save([
        Change::Rotated(rotated("crm", "r-1")),
        Change::Rotated(rotated("mail", "r-1")),
        Change::Rotated(rotated("crm", "r-2")),
    ]);
    subject.restart();
    let expected = [rotated("crm", "r-2"), rotated("mail", "r-1")];
    assert_eq!(subject.load().rotated, expected);
    assert!(!format!("{expected:?}").contains("r-2"));
    let credential = "crm".to_owned();
    subject.save([Change::ForgetRotated { credential }]);
    assert_eq!(subject.load().rotated, [rotated("mail", "r-1")]);
}

fn the_newest_record_counts(subject: &mut Subject) {
    subject.save([
        Change::Gate(gate("b", 1.0, 1)),
        Change::Gate(gate("a", 2.0, 2)),
        Change::Gate(gate("b", 3.0, 3)),
        Change::Endpoint(state("llm", "a", 1, 1)),
        Change::Endpoint(state("llm", "a", 2, 2)),
        Change::Endpoint(state("other", "a", 3, 3)),
    ]);
    // By key, whenever they were written; an older time does not win, whatever it says.
    subject.save([Change::Gate(gate("b", 4.0, 0))]);
    subject.restart();
    let stored = subject.load();
    assert_eq!(stored.gates, [gate("a", 2.0, 2), gate("b", 4.0, 0)]);
    assert_eq!(
        stored.endpoints,
        [state("llm", "a", 2, 2), state("other", "a", 3, 3)]
    );
}

fn deleted_records_are_gone(subject: &mut Subject) {
    subject.save([
        Change::Gate(gate("a", 1.0, 1)),
        Change::Gate(gate("b", 1.0, 1)),
        Change::Endpoint(state("llm", "a", 1, 1)),
    ]);
    subject.restart();
    subject.save([
        forget_gate("a"),
        forget_gate("never there"),
        Change::ForgetEndpoint {
            pool: "llm".to_owned(),
            name: "a".to_owned(),
        },
    ]);
    subject.restart();
    let stored = subject.load();
    assert_eq!(stored.gates, [gate("b", 1.0, 1)]);
    assert_eq!(stored.endpoints, []);
}

fn old_gates_are_forgotten_by_the_time_they_were_written(subject: &mut Subject) {
    let before = Change::ForgetGatesBefore(WallTime::from_unix_millis(100));
    // One that is saved afterwards stays, even if its time is earlier.
    subject.save([
        Change::Gate(gate("old", 1.0, 99)),
        Change::Gate(gate("edge", 1.0, 100)),
        Change::Gate(gate("again", 1.0, 99)),
        before,
        Change::Gate(gate("again", 1.0, 99)),
    ]);
    subject.restart();
    assert_eq!(
        subject.load().gates,
        [gate("again", 1.0, 99), gate("edge", 1.0, 100)]
    );
}

fn a_protection_is_replaced_whole(subject: &mut Subject) {
    let values = |pairs: &[(&str, &str)]| Protection {
        values: pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    };
    let set = |protection| Change::Protection {
        pool: "llm".to_owned(),
        protection,
    };
    subject.save([set(Some(values(&[("pauses", "1s,2s"), ("texts", "")])))]);
    subject.save([set(Some(values(&[("enabled", "false")])))]);
    subject.restart();
    let expected = values(&[("enabled", "false")]);
    assert_eq!(
        subject.load().protections,
        [("llm".to_owned(), expected)].into()
    );
    subject.save([set(None)]);
    subject.restart();
    assert!(subject.load().protections.is_empty());
}

fn a_protection_without_values_is_not_none(subject: &mut Subject) {
    subject.save([Change::Protection {
        pool: "llm".to_owned(),
        protection: Some(Protection::default()),
    }]);
    subject.restart();
    let expected = [("llm".to_owned(), Protection::default())].into();
    assert_eq!(subject.load().protections, expected);
}

fn endpoints_stay_in_the_order_in_which_they_were_added(subject: &mut Subject) {
    let add = |name, url| Change::EndpointAdded(endpoint("llm", name, url));
    subject.save([add("c", "1"), add("a", "1"), add("b", "1")]);
    let mut changed = endpoint("llm", "c", "2");
    changed.headers = vec![("x-key".to_owned(), "file:/run/key".parse().unwrap())];
    subject.save([Change::EndpointAdded(changed.clone())]);
    subject.save([removed("llm", "a"), add("a", "2")]);
    subject.restart();
    let added = subject.load().added;
    assert_eq!(added[0], changed);
    let order: Vec<(&str, &str)> = added
        .iter()
        .map(|endpoint| (endpoint.name.as_str(), endpoint.url.as_str()))
        .collect();
    assert_eq!(order, [("c", "2"), ("b", "1"), ("a", "2")]);
}

fn an_endpoint_is_added_or_removed_or_neither(subject: &mut Subject) {
    let names = |subject: &mut Subject| {
        subject.restart();
        let stored = subject.load();
        (stored.added.len(), stored.removed.len())
    };
    let add = || Change::EndpointAdded(endpoint("llm", "a", "1"));
    let as_configured = || Change::EndpointAsConfigured {
        pool: "llm".to_owned(),
        name: "a".to_owned(),
    };
    subject.save([removed("llm", "a")]);
    subject.save([removed("llm", "a")]);
    assert_eq!(names(subject), (0, 1));
    subject.save([add()]);
    assert_eq!(names(subject), (1, 0));
    subject.save([removed("llm", "a")]);
    assert_eq!(names(subject), (0, 1));
    subject.save([as_configured()]);
    assert_eq!(names(subject), (0, 0));
    subject.save([add()]);
    subject.save([as_configured()]);
    assert_eq!(names(subject), (0, 0));
}

fn every_word_comes_back(subject: &mut Subject) {
    let states = [
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
        BreakerState::Isolated,
    ];
    let mut sources: Vec<Option<Source>> = Source::HEADERS.iter().copied().map(Some).collect();
    let others = [Source::Body, Source::Assumed, Source::Counted];
    sources.extend(others.into_iter().map(Some).chain([None]));
    let gates = sources.into_iter().zip(states.into_iter().cycle());
    let gates = gates.enumerate().map(|(number, (source, state))| {
        let mut gate = gate(&format!("{number:03}"), 1.0, 1);
        gate.record.hold_source = source;
        gate.record.breaker.state = state;
        gate
    });
    let gates: Vec<StoredGate> = gates.collect();
    let reasons = [
        None,
        Some(Disabled::Errors(5)),
        Some(Disabled::QuotaExhausted),
        Some(Disabled::CredentialRejected),
        Some(Disabled::Person),
    ];
    let endpoints = reasons.into_iter().enumerate().map(|(number, disabled)| {
        let mut endpoint = state("llm", &number.to_string(), 1, 1);
        endpoint.record.disabled = disabled;
        endpoint
    });
    let endpoints: Vec<StoredEndpoint> = endpoints.collect();
    subject.save(gates.iter().cloned().map(Change::Gate));
    subject.save(endpoints.iter().cloned().map(Change::Endpoint));
    subject.restart();
    assert_eq!(subject.load().gates, gates);
    assert_eq!(subject.load().endpoints, endpoints);
}

fn extremes_come_back(subject: &mut Subject) {
    let longest = Duration::from_nanos(i64::MAX.cast_unsigned());
    let strange = "a'b\"c\0d\u{1F300}\n; DROP TABLE gates --";
    let gate = StoredGate {
        key: strange.to_owned(),
        record: GateRecord {
            rate: f64::MAX,
            ceiling: Some(f64::INFINITY),
            banned_above: Some(f64::MAX),
            hold: Some(longest),
            hold_source: Some(Source::Body),
            breaker: BreakerRecord {
                state: BreakerState::Open,
                open_for: Duration::from_nanos(1),
                openings: u8::MAX,
            },
            cost: Some(CostRecord {
                rate: f64::MAX,
                ceiling: Some(f64::INFINITY),
                mean: f64::MIN_POSITIVE,
            }),
        },
        at: WallTime::from_unix_millis(i64::MAX),
    };
    let state = StoredEndpoint {
        pool: String::new(),
        name: strange.to_owned(),
        record: LadderRecord {
            consecutive_errors: u32::MAX,
            pause: Some(Duration::ZERO),
            paused_for: Some(longest),
            last_error: Some(strange.into()),
            disabled: Some(Disabled::Errors(u32::MAX)),
            disabled_for: Some(Duration::ZERO),
        },
        at: WallTime::from_unix_millis(i64::MIN),
    };
    let mut added = endpoint(strange, strange, strange);
    added.headers = vec![
        (strange.to_owned(), "env:KEY_A".parse().unwrap()),
        ("x".to_owned(), format!("file:{strange}").parse().unwrap()),
    ];
    subject.save([
        Change::Gate(gate.clone()),
        Change::Endpoint(state.clone()),
        Change::EndpointAdded(added.clone()),
    ]);
    subject.restart();
    let stored = subject.load();
    assert_eq!(stored.gates, [gate]);
    assert_eq!(stored.endpoints, [state]);
    assert_eq!(stored.added, [added]);
}

fn a_rate_that_is_no_number_leaves_other_rows_intact(subject: &mut Subject) {
    subject.save([
        Change::Gate(gate("a", 1.0, 1)),
        Change::Gate(gate("b", f64::NAN, 1)),
    ]);
    subject.restart();
    let gates = subject.load().gates;
    assert_eq!(gates[0], gate("a", 1.0, 1));
    assert!(gates[1].record.rate.is_nan());
}

fn several_changes_go_together(subject: &mut Subject) {
    let gates: Vec<StoredGate> = (0..1000)
        .map(|number| gate(&format!("{number:04}"), f64::from(number), 1))
        .collect();
    let saved = subject
        .store()
        .save_all(gates.iter().cloned().map(Change::Gate));
    assert_eq!(saved.wait(), Ok(()));
    subject.restart();
    assert_eq!(subject.load().gates, gates);
}

fn clones_are_one_store(subject: &Subject) {
    let other = subject.store().clone();
    other.save(Change::Gate(gate("a", 1.0, 1)));
    assert_eq!(subject.load().gates, [gate("a", 1.0, 1)]);
    assert_eq!(subject.store().flush().wait(), Ok(()));
}

fn a_store_counts_what_it_writes(subject: &Subject) {
    subject.save([
        Change::Gate(gate("a", 1.0, 1)),
        Change::Gate(gate("b", 1.0, 1)),
    ]);
    subject.save([forget_gate("a")]);
    let state = subject.store().state();
    assert_eq!((state.queued, state.written, state.lost), (0, 3, 0));
    assert!(!subject.store().is_degraded());
}

proptest! {
    // Every case has several files to sync.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is saved, waited for or not, and however often the process restarts in between:
    /// the file has what the changes mean.
    #[test]
    fn any_sequence_of_changes_is_what_it_means(steps in vec(step(), 0..40)) {
        let model = Store::memory();
        let mut subject = Subject::sqlite();
        for step in steps {
            match step {
                Step::Restart => subject.restart(),
                Step::Save { changes, wait } => {
                    prop_assert_eq!(model.save_all(changes.clone()).wait(), Ok(()));
                    let saved = subject.store().save_all(changes);
                    if wait {
                        prop_assert_eq!(saved.wait(), Ok(()));
                    }
                }
            }
        }
        let expected = model.load().unwrap();
        prop_assert_eq!(&subject.load(), &expected);
        subject.restart();
        prop_assert_eq!(&subject.load(), &expected);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Restart,
    Save { changes: Vec<Change>, wait: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let save = (vec(any_change(), 0..8), any::<bool>());
    prop_oneof![
        1 => Just(Step::Restart),
        8 => save.prop_map(|(changes, wait)| Step::Save { changes, wait }),
    ]
}

/// Few names, so that changes meet.
fn name() -> impl Strategy<Value = String> {
    "[a-c]"
}

fn any_change() -> impl Strategy<Value = Change> {
    let place = || (name(), name());
    let protection = option::of(proptest::collection::btree_map(name(), ".*", 0..3));
    prop_oneof![
        6 => any_gate().prop_map(Change::Gate),
        1 => name().prop_map(|key| Change::ForgetGate { key }),
        1 => (0..10_i64).prop_map(|at| Change::ForgetGatesBefore(WallTime::from_unix_millis(at))),
        4 => any_state().prop_map(Change::Endpoint),
        1 => place().prop_map(|(pool, name)| Change::ForgetEndpoint { pool, name }),
        2 => (name(), protection).prop_map(|(pool, values)| Change::Protection {
            pool,
            protection: values.map(|values| Protection { values }),
        }),
        2 => (name(), ".*").prop_map(|(name, token)| Change::Rotated(rotated(&name, &token))),
        1 => name().prop_map(|credential| Change::ForgetRotated { credential }),
        2 => (name(), name(), ".*")
            .prop_map(|(pool, name, url)| Change::EndpointAdded(endpoint(&pool, &name, &url))),
        2 => place().prop_map(|(pool, name)| Change::EndpointRemoved { pool, name }),
        1 => place().prop_map(|(pool, name)| Change::EndpointAsConfigured { pool, name }),
    ]
}

fn any_gate() -> impl Strategy<Value = StoredGate> {
    let lengths = (option::of(any::<u32>()), any::<u32>());
    let rates = (any::<f64>(), option::of(any::<f64>()));
    let rates = rates.prop_filter("a number", |(rate, ceiling)| {
        !rate.is_nan() && !ceiling.is_some_and(f64::is_nan)
    });
    (name(), rates, lengths, any::<u8>(), 0..10_i64).prop_map(
        |(key, (rate, ceiling), (hold, open), openings, at)| StoredGate {
            key,
            record: GateRecord {
                rate,
                ceiling,
                banned_above: ceiling,
                hold: hold.map(|hold| Duration::from_nanos(hold.into())),
                hold_source: hold.map(|_| Source::RetryAfter),
                breaker: BreakerRecord {
                    state: BreakerState::Open,
                    open_for: Duration::from_micros(open.into()),
                    openings,
                },
                cost: ceiling.map(|mean| CostRecord {
                    rate,
                    ceiling,
                    mean,
                }),
            },
            at: WallTime::from_unix_millis(at),
        },
    )
}

fn any_state() -> impl Strategy<Value = StoredEndpoint> {
    let record = (any::<u32>(), option::of(any::<u32>()), option::of(".*"));
    (name(), name(), record, any::<i64>()).prop_map(
        |(pool, name, (consecutive_errors, pause, last_error), at)| StoredEndpoint {
            pool,
            name,
            record: LadderRecord {
                consecutive_errors,
                pause: pause.map(|pause| Duration::from_nanos(pause.into())),
                last_error: last_error.map(Into::into),
                ..LadderRecord::default()
            },
            at: WallTime::from_unix_millis(at),
        },
    )
}

/// A store under test, and how it restarts. What is in memory outlives no process, so there a
/// restart only ends leases.
struct Subject {
    folder: Option<TempDir>,
    store: Option<Store>,
    #[cfg(feature = "postgres")]
    server: Option<Rc<PrivatePostgres>>,
}

impl Subject {
    fn memory() -> Self {
        Self {
            folder: None,
            store: Some(Store::memory()),
            #[cfg(feature = "postgres")]
            server: None,
        }
    }

    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: Some(Store::open(folder.path()).unwrap()),
            folder: Some(folder),
            #[cfg(feature = "postgres")]
            server: None,
        }
    }

    #[cfg(feature = "postgres")]
    fn postgres() -> Self {
        Self::postgres_on(Rc::new(PrivatePostgres::start()))
    }

    /// On a server that is used for several subjects, one after the other.
    #[cfg(feature = "postgres")]
    fn postgres_on(server: Rc<PrivatePostgres>) -> Self {
        server.query("DROP SCHEMA IF EXISTS tidegate CASCADE");
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: Some(open_shared(&folder, &server)),
            folder: Some(folder),
            server: Some(server),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn save(&self, changes: impl IntoIterator<Item = Change>) {
        assert_eq!(self.store().save_all(changes).wait(), Ok(()));
    }

    fn load(&self) -> StoredState {
        self.store().load().unwrap()
    }

    fn restart(&mut self) {
        #[cfg(feature = "postgres")]
        if let (Some(folder), Some(server)) = (&self.folder, &self.server) {
            drop(self.store.take());
            self.store = Some(open_shared(folder, server));
            return;
        }
        if let Some(folder) = &self.folder {
            drop(self.store.take());
            self.store = Some(Store::open(folder.path()).unwrap());
        } else if let Backend::Memory(memory) = &self.store().backend {
            memory.restart();
        }
    }
}

#[cfg(feature = "postgres")]
pub(crate) fn open_shared(folder: &TempDir, server: &PrivatePostgres) -> Store {
    Store::open_shared(folder.path(), Keys::none(), server.address(), wall).unwrap()
}

/// The time of this machine.
#[cfg(feature = "postgres")]
pub(crate) fn wall() -> WallTime {
    let passed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    WallTime::from_unix_millis(i64::try_from(passed.as_millis()).unwrap())
}

/// A gate with a rate, written at a time.
pub(crate) fn gate(key: &str, rate: f64, at: i64) -> StoredGate {
    StoredGate {
        key: key.to_owned(),
        record: GateRecord {
            rate,
            ceiling: None,
            banned_above: None,
            hold: Some(Duration::from_secs(60)),
            hold_source: Some(Source::RetryAfter),
            breaker: BreakerRecord {
                state: BreakerState::Closed,
                open_for: Duration::ZERO,
                openings: 0,
            },
            cost: None,
        },
        at: WallTime::from_unix_millis(at),
    }
}

/// The state of an endpoint with so many errors, written at a time.
pub(crate) fn state(pool: &str, name: &str, errors: u32, at: i64) -> StoredEndpoint {
    StoredEndpoint {
        pool: pool.to_owned(),
        name: name.to_owned(),
        record: LadderRecord {
            consecutive_errors: errors,
            pause: Some(Duration::from_secs(30)),
            paused_for: Some(Duration::from_secs(1)),
            last_error: Some("HTTP 503".into()),
            disabled: None,
            disabled_for: None,
        },
        at: WallTime::from_unix_millis(at),
    }
}

/// An endpoint that was added, with a header.
pub(crate) fn endpoint(pool: &str, name: &str, url: &str) -> AddedEndpoint {
    AddedEndpoint {
        pool: pool.to_owned(),
        name: name.to_owned(),
        url: url.to_owned(),
        headers: vec![("authorization".to_owned(), "env:KEY_A".parse().unwrap())],
    }
}

pub(crate) fn rotated(credential: &str, token: &str) -> RotatedToken {
    RotatedToken {
        credential: credential.to_owned(),
        origin: "0123abcd".to_owned(),
        token: token.to_owned(),
    }
}

pub(crate) fn removed(pool: &str, name: &str) -> Change {
    Change::EndpointRemoved {
        pool: pool.to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn forget_gate(key: &str) -> Change {
    Change::ForgetGate {
        key: key.to_owned(),
    }
}
