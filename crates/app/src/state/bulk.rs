//! A person's decision about every operation that a filter matches.

use policy::operation::OperationEvent;
use store::StoreError;
use store::operations::{Decision, OperationFilter};

use super::State;

/// What was done to operations that match a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkDecision {
    /// How many match.
    pub matched: u64,
    /// How many of them were changed. Others have left the state meanwhile.
    pub changed: u64,
    /// The number below which there may be more; `None`: there are none.
    pub before: Option<u64>,
}

/// So many are read at a time. Their decisions share a commit.
const PAGE: usize = 500;

impl State {
    /// Applies `event` to operations that match `filter`, newest first, with numbers below `before`;
    /// at most `limit` of them. Only counts them if `is_dry_run`.
    ///
    /// # Errors
    ///
    /// If the queue cannot be read or changed. What was changed before stays changed.
    pub async fn decide_operations(
        &self,
        filter: &OperationFilter,
        event: OperationEvent,
        before: Option<u64>,
        limit: usize,
        is_dry_run: bool,
    ) -> Result<BulkDecision, StoreError> {
        let queue = self.operations();
        let mut done = BulkDecision {
            before,
            ..BulkDecision::default()
        };
        let mut left = limit;
        while left > 0 {
            let size = left.min(PAGE);
            let page = queue.page(filter.clone(), done.before, size).await?;
            done.matched += page.len() as u64;
            done.before = page.last().map(|operation| operation.number);
            left -= size;
            let is_last = page.len() < size;
            if !is_dry_run {
                let now = self.clock().wall();
                let decisions = page.into_iter().map(|operation| {
                    queue.decide(Decision {
                        id: operation.id,
                        now,
                        event,
                        request: None,
                    })
                });
                // All calls are made before the first result is awaited, so that they share commits.
                for decided in decisions.collect::<Vec<_>>() {
                    if let Ok(operation) = decided.await? {
                        self.announce(&operation);
                        done.changed += 1;
                    }
                }
            }
            if is_last {
                done.before = None;
                break;
            }
        }
        Ok(done)
    }
}
