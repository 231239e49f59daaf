//! The earliest deadline in a line: a pairing heap threaded through the waiters.
//!
//! Insertion is O(1) and allocates nothing beyond the waiter's own entry; removing any waiter is
//! amortised O(log n). A sorted list would be O(n) for mixed deadlines, and a separate heap would
//! hold entries of tickets that have already left.

use crate::time::Timestamp;

/// No waiter.
pub(super) const NIL: u32 = u32::MAX;

/// The links of all heaps in one arena, indexed like its waiters. A heap is identified by its root.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Timestamp,
    /// First child.
    child: u32,
    /// Next sibling.
    next: u32,
    /// Previous sibling, or the parent of a first child.
    previous: u32,
}

impl Deadlines {
    /// Adds waiter `index` to the heap at `root`.
    pub(super) fn insert(&mut self, root: &mut u32, index: u32, at: Timestamp) {
        let node = Node {
            at,
            child: NIL,
            next: NIL,
            previous: NIL,
        };
        match self.nodes.get_mut(index as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        *root = self.merge(*root, index);
    }

    /// Removes waiter `index` from the heap at `root`, which contains it.
    pub(super) fn remove(&mut self, root: &mut u32, index: u32) {
        if *root == index {
            *root = self.merge_children(index);
            return;
        }
        self.unlink(index);
        let orphans = self.merge_children(index);
        *root = self.merge(*root, orphans);
    }

    /// The deadline of waiter `index`.
    pub(super) fn at(&self, index: u32) -> Timestamp {
        self.node(index).at
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    /// Merges two heaps; the later root becomes the first child of the earlier.
    fn merge(&mut self, a: u32, b: u32) -> u32 {
        let (parent, child) = match (a, b) {
            (NIL, only) | (only, NIL) => return only,
            _ if self.at(b) < self.at(a) => (b, a),
            _ => (a, b),
        };
        let sibling = self.node(parent).child;
        self.node_mut(child).next = sibling;
        self.node_mut(child).previous = parent;
        if sibling != NIL {
            self.node_mut(sibling).previous = child;
        }
        self.node_mut(parent).child = child;
        parent
    }

    fn unlink(&mut self, index: u32) {
        let Node { next, previous, .. } = *self.node(index);
        if self.node(previous).child == index {
            self.node_mut(previous).child = next;
        } else {
            self.node_mut(previous).next = next;
        }
        if next != NIL {
            self.node_mut(next).previous = previous;
        }
    }

    /// Merges the children of `index` into one heap: in pairs from the left, then the pairs from
    /// the right, which makes removal amortised O(log n).
    fn merge_children(&mut self, index: u32) -> u32 {
        let mut rest = self.node(index).child;
        let mut pairs = NIL;
        while rest != NIL {
            let first = rest;
            let second = self.detach(first);
            rest = if second == NIL {
                NIL
            } else {
                self.detach(second)
            };
            let pair = self.merge(first, second);
            self.node_mut(pair).next = pairs;
            pairs = pair;
        }
        let mut heap = NIL;
        while pairs != NIL {
            let pair = pairs;
            pairs = self.detach(pair);
            heap = self.merge(heap, pair);
        }
        heap
    }

    /// Makes `index` a root and returns its former next sibling.
    fn detach(&mut self, index: u32) -> u32 {
        let node = self.node_mut(index);
        node.previous = NIL;
        std::mem::replace(&mut node.next, NIL)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn root_is_always_the_earliest(steps in prop::collection::vec((0u32..60, 0u64..50), 1..600)) {
            let mut heap = Deadlines::default();
            for index in 0..60 {
                heap.insert(&mut NIL.clone(), index, Timestamp::ZERO);
            }
            let (mut root, mut model) = (NIL, BTreeSet::new());
            let mut present = [None; 60];
            for (index, at) in steps {
                match present[index as usize].take() {
                    Some(at) => {
                        heap.remove(&mut root, index);
                        model.remove(&(at, index));
                    }
                    None => {
                        let at = Timestamp::from_nanos(at);
                        heap.insert(&mut root, index, at);
                        model.insert((at, index));
                        present[index as usize] = Some(at);
                    }
                }
                let earliest = (root != NIL).then(|| heap.at(root));
                prop_assert_eq!(earliest, model.first().map(|&(at, _)| at));
            }
        }
    }
}
