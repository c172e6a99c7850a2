//! A prefix that programs share occupies a seat once, so it is charged once.
//!
//! How long it is, only the engine knows: the cached tokens of a program's first turn on a seat are
//! what it found there of others. The least of the last few such observations is believed, so a
//! longer chance overlap (two programs of one task) is never taken off a third, and a first turn
//! that found nothing says nothing. Each member is let off what was believed when it was last
//! charged, and the largest of these is charged back, once: the sum is exact whatever the order.

use std::collections::BTreeMap;

use crate::ids::Tokens;

/// How many observations are remembered.
const OBSERVATIONS: usize = 8;

/// All shared prefixes of one seat.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    groups: BTreeMap<u64, Group>,
    once: Tokens,
}

#[derive(Debug, Default)]
struct Group {
    members: u32,
    /// How many members are let off how much.
    discounts: BTreeMap<Tokens, u32>,
    observed: [Tokens; OBSERVATIONS],
    observations: usize,
}

impl Group {
    fn once(&self) -> Tokens {
        self.discounts.last_key_value().map_or(0, |(most, _)| *most)
    }

    fn believed(&self) -> Tokens {
        let known = self.observations.min(OBSERVATIONS);
        self.observed[..known].iter().copied().min().unwrap_or(0)
    }
}

impl Shared {
    /// What all prefixes together are charged, each once.
    pub(crate) const fn once(&self) -> Tokens {
        self.once
    }

    /// How long this prefix is believed to be.
    pub(crate) fn believed(&self, prefix: u64) -> Tokens {
        self.groups.get(&prefix).map_or(0, Group::believed)
    }

    /// What a program of this size would add, prefix included.
    pub(crate) fn need(&self, prefix: Option<u64>, size: Tokens) -> Tokens {
        let Some(group) = prefix.and_then(|prefix| self.groups.get(&prefix)) else {
            return size;
        };
        let discount = group.believed().min(size);
        size - discount + discount.saturating_sub(group.once())
    }

    /// A program's first turn here found this many tokens that others had left.
    pub(crate) fn observe(&mut self, prefix: u64, tokens: Tokens) {
        if tokens == 0 {
            return;
        }
        if let Some(group) = self.groups.get_mut(&prefix) {
            group.observed[group.observations % OBSERVATIONS] = tokens;
            group.observations += 1;
        }
    }

    pub(crate) fn join(&mut self, prefix: u64, discount: Tokens) {
        let group = self.groups.entry(prefix).or_default();
        let before = group.once();
        group.members += 1;
        *group.discounts.entry(discount).or_default() += 1;
        self.once += group.once() - before;
    }

    pub(crate) fn leave(&mut self, prefix: u64, discount: Tokens) {
        let Some(group) = self.groups.get_mut(&prefix) else {
            return;
        };
        let before = group.once();
        group.members -= 1;
        if let Some(count) = group.discounts.get_mut(&discount) {
            *count -= 1;
            if *count == 0 {
                group.discounts.remove(&discount);
            }
        }
        self.once -= before - group.once();
        if group.members == 0 {
            self.groups.remove(&prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_programs_share_nine_hundred_tokens_once() {
        let mut shared = Shared::default();
        shared.join(7, 0);
        shared.observe(7, 0);
        assert_eq!(shared.need(Some(7), 1000), 1000, "nothing was observed yet");
        shared.observe(7, 900);
        assert_eq!(
            shared.need(Some(7), 1000),
            1000,
            "the prefix itself is charged once"
        );
        shared.join(7, 900);
        assert_eq!(shared.need(Some(7), 1000), 100);
        assert_eq!(shared.once(), 900);
    }

    #[test]
    fn never_more_is_taken_off_than_was_observed_or_than_there_is() {
        let mut shared = Shared::default();
        shared.join(7, 0);
        shared.observe(7, 5000);
        shared.observe(7, 900);
        assert_eq!(shared.believed(7), 900);
        shared.join(7, 900);
        assert_eq!(shared.need(Some(7), 300), 0);
        assert_eq!(shared.need(Some(8), 300), 300);
        assert_eq!(shared.need(None, 300), 300);
    }

    #[test]
    fn an_old_short_observation_is_outlived() {
        let mut shared = Shared::default();
        shared.join(7, 0);
        shared.observe(7, 10);
        for _ in 0..OBSERVATIONS {
            shared.observe(7, 900);
        }
        assert_eq!(shared.believed(7), 900);
    }

    #[test]
    fn the_last_to_leave_takes_the_prefix_along() {
        let mut shared = Shared::default();
        shared.join(7, 900);
        shared.join(7, 500);
        shared.leave(7, 900);
        assert_eq!(shared.once(), 500);
        shared.leave(7, 500);
        assert_eq!(shared.once(), 0);
        assert_eq!(shared.believed(7), 0);
    }
}
