//! Memory that nothing protects, for tests of what does.

use std::cell::UnsafeCell;

use tidegate::{GateSettings, Limiter, Strategy};

/// A value that every thread may change at any time.
pub struct Unprotected<T>(UnsafeCell<T>);

// SAFETY: wrong on purpose. Two threads that use it without an order between them are a data race,
// which ThreadSanitizer reports.
unsafe impl<T: Send> Sync for Unprotected<T> {}

impl<T> Unprotected<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    // A call of its own, so that the access stays where it is written.
    #[inline(never)]
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above.
        change(unsafe { &mut *self.0.get() })
    }
}

/// A limiter whose gates admit `places` at once, and practically without a rate.
pub fn limiter_of(places: u32) -> Limiter {
    let settings = GateSettings::builder()
        .strategy(Strategy::Fixed)
        .initial_rate(1e6)
        .max_in_flight(places);
    Limiter::builder()
        .gate(settings.build().expect("settings fit together"))
        .build()
}
