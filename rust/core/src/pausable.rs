//! The programs of one seat that could give up their room, in order of what that frees.
//!
//! Restoring costs more the larger a program is, so order of size is order of cost.

use std::collections::BTreeSet;

use crate::ids::Tokens;
use crate::program::ProgramKey;

/// Programs by the tokens that pausing each would free.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pausable {
    by_size: BTreeSet<(Tokens, ProgramKey)>,
    tokens: Tokens,
}

impl Pausable {
    pub(crate) fn insert(&mut self, tokens: Tokens, program: ProgramKey) {
        if self.by_size.insert((tokens, program)) {
            self.tokens += tokens;
        }
    }

    pub(crate) fn remove(&mut self, tokens: Tokens, program: ProgramKey) {
        if self.by_size.remove(&(tokens, program)) {
            self.tokens -= tokens;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_size.len()
    }

    /// What all of them would free.
    pub(crate) const fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Smallest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tokens, ProgramKey)> + '_ {
        self.by_size.iter().copied()
    }

    /// The smallest ones, until they free `amount`; all of them where even that is not enough.
    ///
    /// Source: arXiv 2602.13692, equation 10: shortest first.
    pub(crate) fn shortest_first(
        &self,
        amount: Tokens,
        may: impl Fn(ProgramKey) -> bool,
    ) -> Vec<(Tokens, ProgramKey)> {
        let mut freed = 0;
        let mut picks = Vec::new();
        for (tokens, program) in self.iter() {
            if freed >= amount {
                break;
            }
            if may(program) {
                freed += tokens;
                picks.push((tokens, program));
            }
        }
        picks
    }

    /// A cheap set that frees `amount`: the smallest ones without those that turn out redundant,
    /// or the one program that is enough alone where that costs less.
    pub(crate) fn cheapest(
        &self,
        amount: Tokens,
        cost: impl Fn(Tokens) -> f64,
        may: impl Fn(ProgramKey) -> bool,
    ) -> Vec<(Tokens, ProgramKey)> {
        let mut picks = self.shortest_first(amount, &may);
        let mut freed: Tokens = picks.iter().map(|(tokens, _)| tokens).sum();
        for at in (0..picks.len()).rev() {
            let tokens = picks[at].0;
            if freed - tokens >= amount {
                freed -= tokens;
                picks.remove(at);
            }
        }
        let alone = self
            .by_size
            .range((amount, ProgramKey(0))..)
            .find(|(_, program)| may(*program));
        if let Some(alone) = alone
            && cost(alone.0) < picks.iter().map(|(tokens, _)| cost(*tokens)).sum()
        {
            return vec![*alone];
        }
        picks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(sizes: &[Tokens]) -> Pausable {
        let mut seat = Pausable::default();
        for (at, size) in sizes.iter().enumerate() {
            seat.insert(*size, ProgramKey(at));
        }
        seat
    }

    fn sizes(picks: &[(Tokens, ProgramKey)]) -> Vec<Tokens> {
        picks.iter().map(|(tokens, _)| *tokens).collect()
    }

    fn square(tokens: Tokens) -> f64 {
        crate::decay::as_float(tokens * tokens)
    }

    #[test]
    fn three_threes_and_a_ten_free_ten_for_a_hundred() {
        let seat = seat(&[3, 3, 3, 10]);
        assert_eq!(sizes(&seat.shortest_first(10, |_| true)), [3, 3, 3, 10]);
        assert_eq!(sizes(&seat.cheapest(10, square, |_| true)), [10]);
    }

    #[test]
    fn one_that_is_enough_is_taken_only_where_it_is_cheaper() {
        let seat = seat(&[3, 4, 5, 20]);
        assert_eq!(sizes(&seat.cheapest(7, square, |_| true)), [3, 4]);
        assert_eq!(sizes(&seat.cheapest(12, square, |_| true)), [3, 4, 5]);
        assert_eq!(sizes(&seat.cheapest(13, square, |_| true)), [20]);
        assert_eq!(sizes(&seat.cheapest(2, square, |_| true)), [3]);
    }

    #[test]
    fn whoever_is_just_not_needed_stays() {
        let seat = seat(&[2, 3, 4]);
        assert_eq!(sizes(&seat.cheapest(7, square, |_| true)), [3, 4]);
    }

    #[test]
    fn at_equal_cost_the_smaller_ones_go() {
        let seat = seat(&[3, 4, 7]);
        let linear = crate::decay::as_float;
        assert_eq!(sizes(&seat.cheapest(7, linear, |_| true)), [3, 4]);
    }

    #[test]
    fn who_may_not_be_paused_is_passed_over() {
        let seat = seat(&[3, 4, 5, 20]);
        let may = |program| program != ProgramKey(0) && program != ProgramKey(3);
        assert_eq!(sizes(&seat.cheapest(7, square, may)), [4, 5]);
        assert_eq!(sizes(&seat.cheapest(100, square, may)), [4, 5]);
    }

    #[test]
    fn the_sum_follows_who_is_there() {
        let mut seat = seat(&[3, 4]);
        seat.insert(3, ProgramKey(0));
        assert_eq!((seat.tokens(), seat.len()), (7, 2));
        seat.remove(3, ProgramKey(0));
        seat.remove(3, ProgramKey(0));
        assert_eq!((seat.tokens(), seat.len()), (4, 1));
    }
}
