//! The global waiting queue: waiters in order of size, searchable by age.
//!
//! Two questions are asked of it, and each is one descent: *who is the shortest?* (the policy's
//! favourite, and if it does not fit then nobody does) and *who is the oldest of those that fit
//! this room?* (bounded waiting). It is a treap: a search tree by (size, place) that is also a heap
//! by a hash of the place, so its depth is logarithmic for any sequence of sizes, and the same
//! sequence always builds the same tree. Every node knows the oldest waiter below it.

use slab::Slab;

use crate::ids::Tokens;
use crate::program::ProgramKey;

/// A place in line: smaller came earlier. A request keeps the one it got on arrival.
pub(crate) type Place = u64;

/// A program that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiter {
    /// What it will add to a seat.
    pub(crate) size: Tokens,
    /// Since when: the place of its earliest waiting request.
    pub(crate) place: Place,
    pub(crate) program: ProgramKey,
}

impl Waiter {
    const fn key(&self) -> (Tokens, Place) {
        (self.size, self.place)
    }
}

type Link = Option<usize>;

#[derive(Debug)]
struct Node {
    waiter: Waiter,
    left: Link,
    right: Link,
    /// The node with the least place in this subtree.
    oldest: usize,
}

/// Waiters, ordered by size and then by place.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    nodes: Slab<Node>,
    root: Link,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) {
        let at = self.nodes.vacant_key();
        self.nodes.insert(Node {
            waiter,
            left: None,
            right: None,
            oldest: at,
        });
        let (below, above) = self.split(self.root, waiter.key());
        let below = self.merge(below, Some(at));
        self.root = self.merge(below, above);
    }

    /// Takes the waiter out. True if it was there.
    pub(crate) fn remove(&mut self, waiter: &Waiter) -> bool {
        let before = self.nodes.len();
        self.root = self.remove_below(self.root, waiter.key());
        self.nodes.len() < before
    }

    /// The smallest one.
    pub(crate) fn shortest(&self) -> Option<Waiter> {
        let mut at = self.root?;
        while let Some(left) = self.nodes[at].left {
            at = left;
        }
        Some(self.nodes[at].waiter)
    }

    /// The one that came first.
    pub(crate) fn oldest(&self) -> Option<Waiter> {
        self.root
            .map(|root| self.nodes[self.nodes[root].oldest].waiter)
    }

    /// The one that came first of those no larger than `room`.
    pub(crate) fn oldest_that_fits(&self, room: Tokens) -> Option<Waiter> {
        let mut best: Link = None;
        let mut at = self.root;
        while let Some(here) = at {
            let node = &self.nodes[here];
            if node.waiter.size > room {
                at = node.left;
                continue;
            }
            best = self.older(best, Some(here));
            best = self.older(best, node.left.map(|left| self.nodes[left].oldest));
            at = node.right;
        }
        best.map(|best| self.nodes[best].waiter)
    }

    /// Everyone, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.nodes.iter().map(|(_, node)| node.waiter)
    }

    fn older(&self, one: Link, other: Link) -> Link {
        match (one, other) {
            (Some(a), Some(b)) if self.nodes[b].waiter.place < self.nodes[a].waiter.place => other,
            (None, _) => other,
            _ => one,
        }
    }

    /// Splits a subtree into what is below `key` and what is not.
    fn split(&mut self, at: Link, key: (Tokens, Place)) -> (Link, Link) {
        let Some(here) = at else { return (None, None) };
        if self.nodes[here].waiter.key() < key {
            let (below, above) = self.split(self.nodes[here].right, key);
            self.nodes[here].right = below;
            self.refresh(here);
            (at, above)
        } else {
            let (below, above) = self.split(self.nodes[here].left, key);
            self.nodes[here].left = above;
            self.refresh(here);
            (below, at)
        }
    }

    /// Joins two subtrees, everything in `below` being smaller than everything in `above`.
    fn merge(&mut self, below: Link, above: Link) -> Link {
        let (Some(low), Some(high)) = (below, above) else {
            return below.or(above);
        };
        if priority(self.nodes[low].waiter.place) > priority(self.nodes[high].waiter.place) {
            self.nodes[low].right = self.merge(self.nodes[low].right, above);
            self.refresh(low);
            below
        } else {
            self.nodes[high].left = self.merge(below, self.nodes[high].left);
            self.refresh(high);
            above
        }
    }

    fn remove_below(&mut self, at: Link, key: (Tokens, Place)) -> Link {
        let here = at?;
        let found = self.nodes[here].waiter.key();
        if key == found {
            let node = self.nodes.remove(here);
            return self.merge(node.left, node.right);
        }
        if key < found {
            self.nodes[here].left = self.remove_below(self.nodes[here].left, key);
        } else {
            self.nodes[here].right = self.remove_below(self.nodes[here].right, key);
        }
        self.refresh(here);
        at
    }

    fn refresh(&mut self, here: usize) {
        let node = &self.nodes[here];
        let mut oldest = Some(here);
        for child in [node.left, node.right].into_iter().flatten() {
            oldest = self.older(oldest, Some(self.nodes[child].oldest));
        }
        self.nodes[here].oldest = oldest.unwrap_or(here);
    }
}

/// A heap order that no client can steer: one round of `SplitMix64` over the place.
///
/// Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
const fn priority(place: Place) -> u64 {
    let mut z = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiter(size: Tokens, place: Place) -> Waiter {
        Waiter {
            size,
            place,
            program: ProgramKey(usize::try_from(place).unwrap()),
        }
    }

    proptest! {
        #[test]
        fn a_list_answers_the_same(
            moves in prop::collection::vec((0..6_u8, 0..40_u64, 0..60_u64), 1..200),
        ) {
            let mut queue = Waiting::default();
            let mut list: Vec<Waiter> = Vec::new();
            for (next, (kind, size, room)) in moves.into_iter().enumerate() {
                if kind < 4 {
                    let new = waiter(size, (next as u64).wrapping_mul(7919) % 1009);
                    if list.iter().all(|known| known.place != new.place) {
                        queue.insert(new);
                        list.push(new);
                    }
                } else if !list.is_empty() {
                    let gone = list.swap_remove(usize::try_from(size).unwrap() % list.len());
                    prop_assert!(queue.remove(&gone));
                    prop_assert!(!queue.remove(&gone));
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.shortest(), list.iter().min().copied());
                prop_assert_eq!(queue.oldest(), list.iter().min_by_key(|w| w.place).copied());
                let fits = list.iter().filter(|w| w.size <= room).min_by_key(|w| w.place);
                prop_assert_eq!(queue.oldest_that_fits(room), fits.copied());
                let mut all: Vec<Waiter> = queue.iter().collect();
                all.sort_unstable();
                list.sort_unstable();
                prop_assert_eq!(all, list.clone());
            }
        }
    }

    #[test]
    fn a_sorted_stream_of_a_million_stays_shallow() {
        let mut queue = Waiting::default();
        for place in 0..1_000_000 {
            queue.insert(waiter(place, place));
        }
        let mut deepest = 0;
        let mut open = vec![(queue.root, 0)];
        while let Some((link, depth)) = open.pop() {
            if let Some(here) = link {
                deepest = deepest.max(depth);
                open.push((queue.nodes[here].left, depth + 1));
                open.push((queue.nodes[here].right, depth + 1));
            }
        }
        assert!(deepest < 64, "depth {deepest}");
    }
}
