//! Slots for requests in flight, shared fairly by hosts.
//!
//! A host may have its share: all slots divided by the hosts that are fetched from, and one more. So
//! a host that answers slowly leaves slots for the others, and one for the next that is found. Slots
//! are given in the order in which hosts ask for them, past those that have their share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use tokio::sync::oneshot;

/// The slots of a fetch.
#[derive(Debug)]
pub(super) struct Slots {
    total: u32,
    free: Cell<u32>,
    /// Hosts that are fetched from.
    hosts: Cell<u32>,
    waiting: RefCell<VecDeque<(Rc<HostSlots>, oneshot::Sender<Slot>)>>,
}

/// The slots of one host.
#[derive(Debug, Default)]
pub(super) struct HostSlots {
    used: Cell<u32>,
}

/// A slot, which is free again when this is dropped.
pub(super) struct Slot {
    slots: Rc<Slots>,
    host: Rc<HostSlots>,
}

impl Slots {
    pub(super) fn new(total: u32) -> Rc<Self> {
        Rc::new(Self {
            total: total.max(1),
            free: Cell::new(total.max(1)),
            hosts: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// How many are in use.
    pub(super) fn used(&self) -> u32 {
        self.total - self.free.get()
    }

    /// A further host is fetched from.
    pub(super) fn begin_host(&self) {
        self.hosts.set(self.hosts.get() + 1);
    }

    /// A host is not fetched from any more.
    pub(super) fn end_host(self: &Rc<Self>) {
        self.hosts.set(self.hosts.get() - 1);
        self.hand_out();
    }

    /// A slot, if there is one for this host and no other waits.
    pub(super) fn try_take(self: &Rc<Self>, host: &Rc<HostSlots>) -> Option<Slot> {
        let is_next = self.waiting.borrow().is_empty();
        (is_next && self.has_room(host)).then(|| self.give(host))
    }

    /// A slot, as soon as there is one for this host.
    pub(super) async fn take(self: &Rc<Self>, host: &Rc<HostSlots>) -> Slot {
        loop {
            if let Some(slot) = self.try_take(host) {
                return slot;
            }
            let (sender, receiver) = oneshot::channel();
            self.waiting
                .borrow_mut()
                .push_back((Rc::clone(host), sender));
            // Those who wait may all have their share.
            self.hand_out();
            // The sender is not dropped while `self` lives.
            if let Ok(slot) = receiver.await {
                return slot;
            }
        }
    }

    fn has_room(&self, host: &HostSlots) -> bool {
        let share = self.total / (self.hosts.get() + 1);
        self.free.get() > 0 && host.used.get() < share.max(1)
    }

    fn give(self: &Rc<Self>, host: &Rc<HostSlots>) -> Slot {
        self.free.set(self.free.get() - 1);
        host.used.set(host.used.get() + 1);
        Slot {
            slots: Rc::clone(self),
            host: Rc::clone(host),
        }
    }

    /// Gives free slots to those who wait.
    fn hand_out(self: &Rc<Self>) {
        while self.free.get() > 0 {
            let next = {
                let mut waiting = self.waiting.borrow_mut();
                let next = waiting.iter().position(|(host, _)| self.has_room(host));
                next.and_then(|next| waiting.remove(next))
            };
            let Some((host, sender)) = next else {
                return;
            };
            // A slot that is not taken any more is dropped, and free.
            drop(sender.send(self.give(&host)));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.free.set(self.slots.free.get() + 1);
        self.host.used.set(self.host.used.get() - 1);
        self.slots.hand_out();
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn hosts(slots: &Slots, count: usize) -> Vec<Rc<HostSlots>> {
        (0..count)
            .map(|_| {
                slots.begin_host();
                Rc::default()
            })
            .collect()
    }

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_slow_host_leaves_slots_for_others() {
        let slots = Slots::new(10);
        let hosts = hosts(&slots, 1);
        let taken: Vec<_> = std::iter::from_fn(|| slots.try_take(&hosts[0])).collect();
        assert_eq!((taken.len(), slots.used()), (5, 5));
        slots.begin_host();
        let other = Rc::default();
        let taken: Vec<_> = std::iter::from_fn(|| slots.try_take(&other)).collect();
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn gives_slots_in_order_past_hosts_that_have_their_share() {
        let slots = Slots::new(2);
        let hosts = hosts(&slots, 2);
        let (first, second) = (slots.try_take(&hosts[0]), slots.try_take(&hosts[1]));
        let mut again = pin!(slots.take(&hosts[0]));
        let mut later = pin!(slots.take(&hosts[1]));
        assert!(poll(again.as_mut()).is_pending() && poll(later.as_mut()).is_pending());
        drop(second);
        assert!(poll(again.as_mut()).is_pending());
        assert!(poll(later.as_mut()).is_ready());
        drop(first);
        assert!(poll(again.as_mut()).is_ready());
    }

    #[test]
    fn one_slot_serves_all() {
        let slots = Slots::new(1);
        let hosts = hosts(&slots, 3);
        let held = slots.try_take(&hosts[0]).unwrap();
        let mut waiting = pin!(slots.take(&hosts[1]));
        {
            let mut dropped = pin!(slots.take(&hosts[2]));
            assert!(poll(dropped.as_mut()).is_pending());
        }
        assert!(poll(waiting.as_mut()).is_pending());
        drop(held);
        assert!(poll(waiting.as_mut()).is_ready());
        assert_eq!(slots.used(), 0);
    }
}
