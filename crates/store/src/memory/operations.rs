//! The queue of operations in memory: what every call means, in the plainest form.
//!
//! It reads every operation in every call. It is for tests, and what the file is compared with.

#[cfg(test)]
mod model;

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::operation::OperationState;
use policy::time::WallTime;

use super::Memory;
use crate::error::StoreError;
use crate::operations::entry::{Entry, front};
use crate::operations::{
    AttemptRecord, ClaimId, ClaimResult, Claimed, Claims, Decision, DecisionError,
    ExportedOperation, Inserted, Lane, Lease, MAX_ATTEMPT_RECORDS, NewOperation, OperationCounts,
    OperationFilter, OperationQueue, QueueFuture, RuleDecision, Settlement, StoredConflict,
    StoredOperation, StoredRequest, StoredResponse, Swept,
};

#[derive(Debug, Default)]
pub(super) struct Operations {
    content: Mutex<Content>,
}

/// What is stored, by number.
#[derive(Clone, Debug, Default)]
struct Content {
    last_number: u64,
    /// Rises with every restart.
    session: u64,
    entries: BTreeMap<u64, Entry>,
    requests: BTreeMap<u64, StoredRequest>,
    attempts: BTreeMap<u64, Vec<AttemptRecord>>,
    conflicts: BTreeMap<u64, StoredConflict>,
    responses: BTreeMap<u64, StoredResponse>,
}

impl Operations {
    /// As after a restart: the leases so far belong to a process that has ended.
    #[cfg(test)]
    pub(super) fn restart(&self) {
        self.lock().session += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn call<T: Send + 'static>(&self, work: impl FnOnce(&mut Content) -> T) -> QueueFuture<T> {
        self.try_call(|content| Ok(work(content)))
    }

    fn try_call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Content) -> Result<T, StoreError>,
    ) -> QueueFuture<T> {
        let mut content = self.operations.lock();
        let result = self.faults.next_call().and_then(|()| work(&mut content));
        Box::pin(ready(result))
    }
}

impl OperationQueue for Memory {
    fn insert(&self, operation: NewOperation) -> QueueFuture<Inserted> {
        self.try_call(|content| content.insert(operation))
    }

    fn claim(&self, lane: &Lane, lease: Lease, limit: usize) -> QueueFuture<Claims> {
        self.call(|content| content.claim(lane, lease, limit))
    }

    fn settle(
        &self,
        claim: ClaimId,
        settlement: Settlement,
    ) -> QueueFuture<Option<StoredOperation>> {
        self.call(|content| content.settle(claim, settlement))
    }

    fn heartbeat(&self, claims: Vec<ClaimId>, lease: Lease) -> QueueFuture<()> {
        self.call(|content| content.heartbeat(&claims, lease))
    }

    fn decide(&self, decision: Decision) -> QueueFuture<Result<StoredOperation, DecisionError>> {
        self.call(|content| content.decide(decision))
    }

    fn sweep(&self, now: WallTime, limit: usize) -> QueueFuture<Swept> {
        self.call(|content| content.sweep(now, limit))
    }

    fn recover(&self, now: WallTime) -> QueueFuture<Vec<StoredOperation>> {
        self.call(|content| content.recover(now))
    }

    fn lanes(&self, after: Option<&Lane>, limit: usize) -> QueueFuture<Vec<(Lane, WallTime)>> {
        self.call(|content| {
            let mut lanes = BTreeMap::new();
            for entry in content.claimable() {
                let first = lanes.entry(entry.operation.lane()).or_insert(entry.due_at);
                *first = (*first).min(entry.due_at);
            }
            let later = |(lane, _): &(Lane, WallTime)| after.is_none_or(|after| lane > after);
            lanes.into_iter().filter(later).take(limit).collect()
        })
    }

    fn unreported(&self, limit: usize) -> QueueFuture<Vec<StoredOperation>> {
        self.call(|content| {
            let mut entries: Vec<&Entry> = content
                .entries
                .values()
                .filter(|entry| entry.is_unreported)
                .collect();
            entries.sort_by_key(|entry| (entry.operation.ended_at, entry.operation.number));
            let entries = entries.into_iter().take(limit);
            entries.map(|entry| entry.operation.clone()).collect()
        })
    }

    fn report(&self, number: u64, report: Option<NewOperation>) -> QueueFuture<()> {
        self.try_call(|content| {
            let entry = content.entries.get_mut(&number);
            let Some(entry) = entry.filter(|entry| entry.is_unreported) else {
                return Ok(());
            };
            entry.is_unreported = false;
            match report.map(|report| content.insert(report)) {
                Some(Err(error)) => {
                    if let Some(entry) = content.entries.get_mut(&number) {
                        entry.is_unreported = true;
                    }
                    Err(error)
                }
                Some(Ok(_)) | None => Ok(()),
            }
        })
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredOperation>> {
        self.call(|content| {
            let number = content.number_of(id)?;
            Some(content.operation(number))
        })
    }

    fn attempts(&self, number: u64) -> QueueFuture<Vec<AttemptRecord>> {
        self.call(|content| content.attempts.get(&number).cloned().unwrap_or_default())
    }

    fn request(&self, number: u64) -> QueueFuture<Option<StoredRequest>> {
        self.call(|content| content.requests.get(&number).cloned())
    }

    fn conflict(&self, number: u64) -> QueueFuture<Option<StoredConflict>> {
        self.call(|content| content.conflicts.get(&number).cloned())
    }

    fn response(&self, number: u64) -> QueueFuture<Option<StoredResponse>> {
        self.call(|content| content.responses.get(&number).cloned())
    }

    fn page(
        &self,
        filter: OperationFilter,
        before: Option<u64>,
        limit: usize,
    ) -> QueueFuture<Vec<StoredOperation>> {
        self.call(|content| {
            let newest_first = content.entries.values().rev().map(|entry| &entry.operation);
            newest_first
                .filter(|operation| before.is_none_or(|before| operation.number < before))
                .filter(|operation| filter.matches(operation))
                .take(limit)
                .cloned()
                .collect()
        })
    }

    fn export(&self, after: u64, limit: usize) -> QueueFuture<Vec<ExportedOperation>> {
        self.call(|content| {
            let later = content.entries.range(after.saturating_add(1)..);
            let exported = later.take(limit).map(|(number, entry)| ExportedOperation {
                entry: entry.clone(),
                request: content.requests[number].clone(),
                conflict: content.conflicts.get(number).cloned(),
                response: content.responses.get(number).cloned(),
                attempts: content.attempts.get(number).cloned().unwrap_or_default(),
            });
            exported.collect()
        })
    }

    fn import(&self, operations: Vec<ExportedOperation>, now: WallTime) -> QueueFuture<usize> {
        self.call(|content| {
            let imported = operations
                .into_iter()
                .filter_map(|operation| content.import(operation, now));
            imported.count()
        })
    }

    fn forget(&self, numbers: Vec<u64>) -> QueueFuture<()> {
        self.call(|content| {
            for number in numbers {
                content.delete(number);
            }
        })
    }

    fn counts(&self) -> OperationCounts {
        let content = self.operations.lock();
        let mut counts = OperationCounts::default();
        for entry in content.entries.values() {
            *counts.of(entry.operation.state) += 1;
        }
        counts
    }
}

impl Content {
    fn insert(&mut self, operation: NewOperation) -> Result<Inserted, StoreError> {
        let known = self.entries.values().find(|entry| {
            entry.operation.client == operation.client
                && entry.accepted_key == operation.idempotency_key
        });
        if let Some(entry) = known {
            return Ok(match entry.fingerprint == operation.fingerprint {
                true => Inserted::Same(entry.operation.clone()),
                false => Inserted::OtherRequest,
            });
        }
        if self.number_of(&operation.id).is_some() {
            let id = operation.id;
            return Err(StoreError::SameId { id });
        }
        self.last_number += 1;
        let number = self.last_number;
        let order_key = operation.order_key.as_deref();
        let is_blocked = order_key.is_some_and(|key| self.unfinished(key).next().is_some());
        let entry = Entry::new(number, &operation, is_blocked);
        let inserted = Inserted::New(entry.operation.clone());
        self.entries.insert(number, entry);
        self.requests.insert(number, operation.request);
        Ok(inserted)
    }

    fn import(&mut self, operation: ExportedOperation, now: WallTime) -> Option<()> {
        let mut entry = operation.entry;
        let is_known = self.entries.values().any(|known| {
            let key = |entry: &Entry| (entry.operation.client.clone(), entry.accepted_key.clone());
            known.operation.id == entry.operation.id || key(known) == key(&entry)
        });
        if is_known {
            return None;
        }
        let order_key = entry.operation.order_key.clone();
        let is_blocked = order_key.is_some_and(|key| self.unfinished(&key).next().is_some());
        entry.import(is_blocked, now).ok()?;
        self.last_number += 1;
        let number = self.last_number;
        entry.operation.number = number;
        self.entries.insert(number, entry);
        self.requests.insert(number, operation.request);
        self.conflicts
            .extend(operation.conflict.map(|conflict| (number, conflict)));
        self.responses
            .extend(operation.response.map(|response| (number, response)));
        self.attempts.insert(number, operation.attempts);
        Some(())
    }

    fn claim(&mut self, lane: &Lane, lease: Lease, limit: usize) -> Claims {
        let mut due: Vec<&Entry> = self
            .claimable()
            .filter(|entry| entry.operation.lane() == *lane)
            .filter(|entry| entry.due_at <= lease.now)
            .collect();
        due.sort_by_key(|entry| {
            let operation = &entry.operation;
            (
                -i64::from(operation.priority),
                entry.due_at,
                operation.number,
            )
        });
        let numbers: Vec<u64> = due.iter().map(|entry| entry.operation.number).collect();
        let mut claims = Claims::default();
        for number in numbers.into_iter().take(limit) {
            if self.entries[&number].has_expired(lease.now) {
                self.change(number, |entry| entry.expire(lease.now));
                claims.expired.push(self.operation(number));
                continue;
            }
            let session = self.session;
            let claim = self.change(number, |entry| entry.claim(lease, session));
            claims.claimed.extend(claim.map(|claim| Claimed {
                claim,
                operation: self.operation(number),
                request: self.requests[&number].clone(),
            }));
        }
        let left = self
            .claimable()
            .filter(|entry| entry.operation.lane() == *lane);
        claims.next_at = left.map(|entry| entry.due_at.max(lease.now)).min();
        claims
    }

    fn settle(&mut self, claim: ClaimId, settlement: Settlement) -> Option<StoredOperation> {
        let entry = self.entries.get(&claim.number)?;
        let is_current = entry.is_claimed_by(claim);
        let attempts = self.attempts.entry(claim.number).or_default();
        attempts.extend(settlement.attempts.iter().cloned());
        let dropped = attempts.len().saturating_sub(MAX_ATTEMPT_RECORDS);
        attempts.drain(..dropped);
        if !is_current {
            return None;
        }
        self.change(claim.number, |entry| entry.settle(&settlement))?;
        let operation = self.operation(claim.number);
        match settlement.result {
            ClaimResult::Completed(Some(response)) => {
                self.responses.insert(claim.number, response);
            }
            ClaimResult::Conflict(conflict, rule) => match rule {
                _ if operation.state == OperationState::Conflict => {
                    self.conflicts.insert(claim.number, conflict);
                }
                Some(RuleDecision::Send(change)) => {
                    self.requests.insert(claim.number, change.request);
                }
                Some(RuleDecision::Complete) | None => {}
            },
            ClaimResult::Completed(None)
            | ClaimResult::Retry(_)
            | ClaimResult::Failed(_)
            | ClaimResult::Released => {}
        }
        Some(operation)
    }

    fn heartbeat(&mut self, claims: &[ClaimId], lease: Lease) {
        for claim in claims {
            let entry = self.entries.get_mut(&claim.number);
            let held = entry.filter(|entry| entry.is_claimed_by(*claim));
            if let Some(held) = held.and_then(|entry| entry.lease.as_mut()) {
                held.until = held.until.max(lease.until);
            }
        }
    }

    fn decide(&mut self, decision: Decision) -> Result<StoredOperation, DecisionError> {
        let number = self.number_of(&decision.id).ok_or(DecisionError::Unknown)?;
        let mut entry = self.entries[&number].clone();
        entry.decide(decision.event, decision.now)?;
        if let Some(change) = decision.request {
            entry.operation.idempotency_key = change.idempotency_key;
            self.requests.insert(number, change.request);
        }
        if entry.operation.state != OperationState::Conflict {
            self.conflicts.remove(&number);
        }
        self.entries.insert(number, entry);
        self.reorder(number);
        Ok(self.operation(number))
    }

    fn sweep(&mut self, now: WallTime, limit: usize) -> Swept {
        let mut swept = Swept::default();
        let expires_at = |entry: &Entry| entry.is_waiting().then_some(entry.operation.expires_at);
        for number in self.first_by(expires_at, now, limit) {
            self.change(number, |entry| entry.expire(now));
            swept.expired.push(self.operation(number));
        }
        let lease_ends = |entry: &Entry| entry.lease.map(|lease| lease.until);
        for number in self.first_by(lease_ends, now, limit) {
            self.change(number, |entry| entry.take_back(now));
            swept.reclaimed.push(self.operation(number));
        }
        for number in self.first_by(|entry| entry.retain_until, now, limit) {
            self.delete(number);
            swept.deleted += 1;
        }
        swept
    }

    fn recover(&mut self, now: WallTime) -> Vec<StoredOperation> {
        let session = self.session;
        let is_lost = |entry: &Entry| entry.lease.is_some_and(|lease| lease.session != session);
        for entry in self.entries.values_mut() {
            if entry.was_updated_after(now) {
                entry.move_back(now);
            }
        }
        let entries = self.entries.values().filter(|entry| is_lost(entry));
        let numbers: Vec<u64> = entries.map(|entry| entry.operation.number).collect();
        for &number in &numbers {
            self.change(number, |entry| entry.take_back(now));
        }
        numbers
            .into_iter()
            .map(|number| self.operation(number))
            .collect()
    }

    /// Operations that can be claimed now or later.
    fn claimable(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.values();
        entries.filter(|entry| entry.is_waiting() && !entry.operation.is_blocked)
    }

    /// The first `limit` whose time has come, in the order of that time.
    fn first_by(
        &self,
        time: impl Fn(&Entry) -> Option<WallTime>,
        now: WallTime,
        limit: usize,
    ) -> Vec<u64> {
        let times = self
            .entries
            .iter()
            .filter_map(|(&number, entry)| Some((time(entry)?, number)));
        let mut due: Vec<(WallTime, u64)> = times.filter(|&(at, _)| at <= now).collect();
        due.sort();
        due.into_iter()
            .take(limit)
            .map(|(_, number)| number)
            .collect()
    }

    /// Changes an entry, and unblocks the next one of its order key if it has ended.
    fn change<T, E>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Entry) -> Result<T, E>,
    ) -> Option<T> {
        let value = change(self.entries.get_mut(&number)?).ok()?;
        self.reorder(number);
        Some(value)
    }

    /// Blocks all unfinished operations with the order key of this one, but for the first.
    fn reorder(&mut self, number: u64) {
        let entry = self.entries.get_mut(&number);
        let Some(key) = entry.and_then(|entry| {
            entry.operation.is_blocked &= entry.is_unfinished();
            entry.operation.order_key.clone()
        }) else {
            return;
        };
        let unfinished = self.unfinished(&key);
        let members: Vec<(u64, bool)> = unfinished
            .map(|entry| (entry.operation.number, entry.is_running()))
            .collect();
        let front = front(members.iter().copied());
        let mut unblocked = None;
        for (member, _) in members {
            if let Some(entry) = self.entries.get_mut(&member) {
                let was_blocked = entry.operation.is_blocked;
                entry.operation.is_blocked = front != Some(member);
                let is_unblocked = was_blocked && !entry.operation.is_blocked;
                if is_unblocked && entry.is_waiting() && member != number {
                    unblocked = Some((entry.operation.lane(), entry.due_at));
                }
            }
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.operation.unblocked = unblocked;
        }
    }

    fn unfinished(&self, order_key: &str) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.values().filter(|entry| entry.is_unfinished());
        entries.filter(move |entry| entry.operation.order_key.as_deref() == Some(order_key))
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let entry = self
            .entries
            .values()
            .find(|entry| entry.operation.id == id)?;
        Some(entry.operation.number)
    }

    /// The operation as a call returns it: what it has unblocked is returned once.
    fn operation(&mut self, number: u64) -> StoredOperation {
        let entry = self.entries.get_mut(&number).expect("the number was found");
        let unblocked = entry.operation.unblocked.take();
        StoredOperation {
            unblocked,
            ..entry.operation.clone()
        }
    }

    fn delete(&mut self, number: u64) {
        self.entries.remove(&number);
        self.requests.remove(&number);
        self.attempts.remove(&number);
        self.conflicts.remove(&number);
        self.responses.remove(&number);
    }
}
