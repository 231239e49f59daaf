//! The locks and shared numbers of this crate, in one place, so that a model checker can put its
//! own in their stead: `scripts/check-model`.
//!
//! The standard library's mutex: as fast as any when it is not contended, and it needs no
//! dependency. Poison is ignored. It exists to warn of state that a panic left half changed, and
//! nothing that can panic runs under these locks: policies do not, and wakers and listeners are
//! called after unlocking.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

use std::sync::PoisonError;

/// Locks `mutex`, whatever became of its last owner.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
