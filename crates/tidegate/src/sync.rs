//! The mutexes and atomics of this crate, in one place so that `scripts/check-model` can replace
//! them with those of a model checker.
//!
//! The mutex is the standard library's: uncontended it is as fast as any, and it adds no
//! dependency. Poisoning is ignored. It would warn of state left inconsistent by a panic, but
//! nothing that can panic runs under these locks: policies do not panic, and wakers and listeners
//! are called after unlocking.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use std::sync::PoisonError;

/// Locks `mutex`, ignoring poisoning.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
