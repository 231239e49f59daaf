//! Claims, leases and fencing, checked exhaustively: every order in which a few nodes can claim, send,
//! settle, be frozen, be killed, miss heartbeats and lose answers, for as long as a few leases last.
//!
//! The queue is the real one in memory, whose calls mean the same as those of the databases: each is a
//! transaction. The nodes are modelled. All states that can be reached are visited, each once, and the
//! shortest way to one that breaks a promise is printed.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::*;
use crate::conformance::operations::{at, lane, operation, settlement};

/// A queue, and the nodes that use it.
#[derive(Clone, Debug)]
struct World {
    content: Content,
    /// Seconds.
    now: i64,
    nodes: Vec<Node>,
    /// Faults that may still happen.
    faults: u32,
    /// The highest fence of each operation so far.
    fences: BTreeMap<u64, u64>,
    /// Operations whose completion was applied.
    completed: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    work: Work,
    is_frozen: bool,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Nothing,
    /// It has claimed an operation, and sends it.
    Sending(ClaimId),
    /// The upstream has answered, and the result is not stored yet.
    Answered(ClaimId),
    /// It was killed.
    Dead,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A second passes.
    Tick,
    /// Any node takes back what is lost.
    Sweep,
    Claim(usize),
    /// The claim is stored, but the answer never reaches the node.
    ClaimUnanswered(usize),
    Heartbeat(usize),
    /// The upstream answers.
    Answer(usize),
    /// The result is stored: it was delivered.
    Complete(usize),
    /// The result is stored, but the answer never reaches the node, which will store it again.
    CompleteUnanswered(usize),
    /// The result is stored: it is sent again.
    Retry(usize),
    Freeze(usize),
    Thaw(usize),
    Kill(usize),
    /// A person cancels the first operation.
    Cancel,
}

/// In seconds; a lease that is lost adds one.
const LEASE: i64 = 2;

/// Enough for an operation to be lost, claimed again, and lost once more.
const LAST: i64 = 5;

impl World {
    fn new(nodes: usize, operations: Vec<NewOperation>, faults: u32) -> Self {
        let mut content = Content::default();
        for operation in operations {
            content.insert(operation).unwrap();
        }
        let node = Node {
            work: Work::Nothing,
            is_frozen: false,
        };
        Self {
            content,
            now: 0,
            nodes: vec![node; nodes],
            faults,
            fences: BTreeMap::new(),
            completed: BTreeSet::new(),
        }
    }

    /// What can happen next.
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Sweep];
        if self.now < LAST {
            steps.push(Step::Tick);
        }
        if self.faults > 0 {
            steps.push(Step::Cancel);
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if node.is_frozen {
                steps.push(Step::Thaw(number));
                continue;
            }
            match node.work {
                Work::Nothing => steps.push(Step::Claim(number)),
                Work::Sending(_) => steps.extend([Step::Heartbeat(number), Step::Answer(number)]),
                Work::Answered(_) => steps.extend([Step::Complete(number), Step::Retry(number)]),
                Work::Dead => continue,
            }
            if self.faults == 0 {
                continue;
            }
            match node.work {
                Work::Nothing => steps.push(Step::ClaimUnanswered(number)),
                Work::Answered(_) => steps.push(Step::CompleteUnanswered(number)),
                Work::Sending(_) | Work::Dead => {}
            }
            steps.extend([Step::Freeze(number), Step::Kill(number)]);
        }
        steps
    }

    fn lease(&self) -> Lease {
        Lease {
            now: at(self.now),
            until: at(self.now + LEASE),
        }
    }

    /// Does it, and checks what it promises.
    fn take(&mut self, step: Step, met: &mut Met) -> Result<(), String> {
        if let Step::ClaimUnanswered(_)
        | Step::CompleteUnanswered(_)
        | Step::Freeze(_)
        | Step::Kill(_)
        | Step::Cancel = step
        {
            self.faults -= 1;
        }
        match step {
            Step::Tick => self.now += 1,
            Step::Sweep => {
                self.content.sweep(at(self.now), 10);
            }
            Step::Claim(node) => {
                if let Some(claim) = self.claim()? {
                    self.nodes[node].work = Work::Sending(claim);
                }
            }
            Step::ClaimUnanswered(_) => met.lost_claim |= self.claim()?.is_some(),
            Step::Heartbeat(node) => {
                if let Work::Sending(claim) = self.nodes[node].work {
                    self.content.heartbeat(&[claim], self.lease());
                }
            }
            Step::Answer(node) => {
                if let Work::Sending(claim) = self.nodes[node].work {
                    self.nodes[node].work = Work::Answered(claim);
                }
            }
            Step::Complete(node) => {
                self.settle(node, ClaimResult::Completed(None), met)?;
                self.nodes[node].work = Work::Nothing;
            }
            Step::CompleteUnanswered(node) => {
                self.settle(node, ClaimResult::Completed(None), met)?;
            }
            Step::Retry(node) => {
                self.settle(node, ClaimResult::Retry(at(self.now + 1)), met)?;
                self.nodes[node].work = Work::Nothing;
            }
            Step::Freeze(node) => self.nodes[node].is_frozen = true,
            Step::Thaw(node) => self.nodes[node].is_frozen = false,
            Step::Kill(node) => self.nodes[node].work = Work::Dead,
            Step::Cancel => {
                let decision = Decision {
                    id: "a".to_owned(),
                    now: at(self.now),
                    event: policy::operation::OperationEvent::Cancel,
                    request: None,
                };
                // One that has ended cannot be cancelled.
                met.cancelled |= self.content.decide(decision).is_ok();
            }
        }
        self.check()
    }

    fn claim(&mut self) -> Result<Option<ClaimId>, String> {
        let claims = self
            .content
            .claim(&lane("api.example.com"), self.lease(), 1);
        let Some(claim) = claims.claimed.first().map(|claimed| claimed.claim) else {
            return Ok(None);
        };
        let last = self.fences.insert(claim.number, claim.fence);
        match last.is_none_or(|last| claim.fence > last) {
            true => Ok(Some(claim)),
            false => Err(format!(
                "{claim:?} does not have a higher fence than {last:?}"
            )),
        }
    }

    fn settle(&mut self, node: usize, result: ClaimResult, met: &mut Met) -> Result<(), String> {
        let Work::Answered(claim) = self.nodes[node].work else {
            return Ok(());
        };
        let before = self.content.entries[&claim.number].clone();
        let is_present = before.is_claimed_by(claim);
        let is_completed = matches!(result, ClaimResult::Completed(_));
        let settled = self.content.settle(claim, settlement(self.now, result));
        if settled.is_some() != is_present {
            return Err(format!(
                "{claim:?} is present: {is_present}, settled: {settled:?}"
            ));
        }
        if !is_present {
            met.fenced = true;
            if self.content.entries[&claim.number] != before {
                return Err(format!("{claim:?} is late and has changed the operation"));
            }
        } else if is_completed && !self.completed.insert(claim.number) {
            return Err(format!("{claim:?} completes what was completed before"));
        }
        Ok(())
    }

    /// What holds at every moment.
    fn check(&self) -> Result<(), String> {
        for (number, entry) in &self.content.entries {
            let holders = self.nodes.iter().filter(|node| match node.work {
                Work::Sending(claim) | Work::Answered(claim) => {
                    claim.number == *number && entry.is_claimed_by(claim)
                }
                Work::Nothing | Work::Dead => false,
            });
            if holders.count() > 1 {
                return Err(format!("operation {number} is claimed by two nodes"));
            }
            if entry.is_running() && entry.lease.is_none() {
                return Err(format!("operation {number} runs without a lease"));
            }
            let state = entry.operation.state;
            if self.completed.contains(number) && state != OperationState::Completed {
                return Err(format!("operation {number} was completed and is {state}"));
            }
        }
        let ordered = |entry: &&Entry| entry.operation.order_key.is_some() && entry.is_running();
        if self.content.entries.values().filter(ordered).count() > 1 {
            return Err("two operations with one order key run at once".to_owned());
        }
        Ok(())
    }

    /// What makes a difference from now on.
    fn key(&self) -> String {
        let entries = self.content.entries.values();
        let entries = entries.map(|entry| {
            let lease = entry.lease.map(|lease| lease.until.as_unix_millis());
            let due = entry.due_at.as_unix_millis();
            let operation = &entry.operation;
            (
                operation.state.as_str(),
                entry.fence,
                lease,
                due,
                operation.is_blocked,
            )
        });
        let entries: Vec<_> = entries.collect();
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.work, node.is_frozen))
            .collect();
        format!("{} {} {entries:?} {nodes:?}", self.now, self.faults)
    }

    /// Nothing is lost: if no node of now does anything more, another one delivers all that is left.
    fn is_delivered_at_last(&self) -> Result<(), String> {
        let mut content = self.content.clone();
        let later = self.now + 100;
        content.sweep(at(later), 10);
        let lease = Lease {
            now: at(later + 1),
            until: at(later + 60),
        };
        for _ in 0..content.entries.len() {
            let claims = content.claim(&lane("api.example.com"), lease, 1);
            for claimed in claims.claimed {
                let done = settlement(later + 1, ClaimResult::Completed(None));
                content.settle(claimed.claim, done);
            }
        }
        let left = content.entries.values().find(|entry| entry.is_unfinished());
        match left {
            None => Ok(()),
            Some(entry) => Err(format!("{:?} is never delivered", entry.operation)),
        }
    }
}

/// What happened somewhere: a model in which it cannot happen shows nothing about it.
#[derive(Debug, Default)]
struct Met {
    fenced: bool,
    lost_claim: bool,
    cancelled: bool,
}

/// Visits all states, those that are reached by fewest steps first; how many there are.
fn explore(world: World, met: &mut Met) -> usize {
    let mut reached: HashMap<String, Option<(String, Step)>> = HashMap::new();
    let mut left = VecDeque::from([world]);
    reached.insert(left[0].key(), None);
    while let Some(world) = left.pop_front() {
        let from = world.key();
        for step in world.steps() {
            let mut next = world.clone();
            let taken = next.take(step, met);
            let to = next.key();
            let is_new = !reached.contains_key(&to);
            let delivered = || match is_new {
                true => next.is_delivered_at_last(),
                false => Ok(()),
            };
            if let Err(problem) = taken.and_then(|()| delivered()) {
                let mut steps = vec![step];
                let mut place = &from;
                while let Some(Some((before, step))) = reached.get(place) {
                    steps.push(*step);
                    place = before;
                }
                steps.reverse();
                panic!("{problem}\nafter {steps:?}\n{next:#?}");
            }
            if is_new {
                reached.insert(to, Some((from.clone(), step)));
                left.push_back(next);
            }
        }
    }
    reached.len()
}

#[test]
fn two_nodes_and_three_faults_break_no_promise() {
    let mut met = Met::default();
    let states = explore(World::new(2, vec![operation("a")], 3), &mut met);
    assert!(met.fenced && met.lost_claim && met.cancelled, "{met:?}");
    assert!(states > 5000, "only {states} states");
}

#[test]
fn operations_in_order_run_one_at_a_time_on_two_nodes() {
    let ordered = |id| NewOperation {
        order_key: Some("one".to_owned()),
        ..operation(id)
    };
    let mut met = Met::default();
    let states = explore(World::new(2, vec![ordered("a"), ordered("b")], 1), &mut met);
    assert!(states > 5000, "only {states} states");
}
