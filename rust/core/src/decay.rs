//! Sums that fade: Σ c · 2^(-(now - t) / half-life), for any number of terms at once.
//!
//! [`Fading`] is the usual float: good for rates. [`Decayed`] must give back exactly what was put
//! in when a term leaves, or the error of a million removals would stay for ever; so it adds
//! integers. Terms are kept by the whole half-life in which they began, each as c · 2^fraction in
//! fixed point; reading multiplies each of the last 64 slots by a power of two. A term older than
//! 64 half-lives weighs less than one token in 10^19, so its slot is used again.

use crate::ids::{Millis, Tokens};

/// A float that halves every half-life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fading {
    value: f64,
    at: Millis,
    half_life: Millis,
}

impl Fading {
    pub(crate) const fn new(half_life: Millis) -> Self {
        Self {
            value: 0.0,
            at: 0,
            half_life,
        }
    }

    pub(crate) fn add(&mut self, amount: f64, now: Millis) {
        self.value = self.value(now) + amount;
        self.at = now;
    }

    pub(crate) fn value(&self, now: Millis) -> f64 {
        self.value * weight(now.saturating_sub(self.at), self.half_life)
    }

    /// Amount per millisecond, were it steady: a steady rate r sums to r · half-life / ln 2.
    pub(crate) fn rate(&self, now: Millis) -> f64 {
        self.value(now) * std::f64::consts::LN_2 / as_float(self.half_life)
    }
}

/// f(t) = 2^(-t / half-life). Source: arXiv 2602.13692, equation 7, with a half-life of 1 s.
pub(crate) fn weight(age: Millis, half_life: Millis) -> f64 {
    (-as_float(age) / as_float(half_life)).exp2()
}

const SLOTS: usize = 64;
/// Parts of a token.
const FIXED_POINT: f64 = 65_536.0;

/// An exact decayed sum of terms that may leave again.
#[derive(Debug)]
pub(crate) struct Decayed {
    half_life: Millis,
    /// Slot of half-life h: at h mod 64, for the last 64 of them.
    slots: [u128; SLOTS],
    newest: u64,
}

impl Decayed {
    pub(crate) const fn new(half_life: Millis) -> Self {
        Self {
            half_life,
            slots: [0; SLOTS],
            newest: 0,
        }
    }

    /// A term of `tokens` that began at `since`.
    pub(crate) fn add(&mut self, tokens: Tokens, since: Millis) {
        self.advance(since);
        if let Some((slot, term)) = self.term(tokens, since) {
            self.slots[slot] += term;
        }
    }

    /// Takes that very term out again.
    pub(crate) fn remove(&mut self, tokens: Tokens, since: Millis) {
        if let Some((slot, term)) = self.term(tokens, since) {
            self.slots[slot] -= term;
        }
    }

    /// The sum as of now.
    pub(crate) fn value(&self, now: Millis) -> f64 {
        let mut sum = 0.0;
        for age in 0..SLOTS as u64 {
            let Some(half_life) = self.newest.checked_sub(age) else {
                break;
            };
            let slot = self.slots[slot_of(half_life)];
            if slot > 0 {
                let began = half_life.saturating_mul(self.half_life);
                sum += widened(slot) * weight(now.saturating_sub(began), self.half_life);
            }
        }
        sum / FIXED_POINT
    }

    fn term(&self, tokens: Tokens, since: Millis) -> Option<(usize, u128)> {
        let half_life = since / self.half_life;
        if half_life + SLOTS as u64 <= self.newest {
            return None;
        }
        let fraction = as_float(since % self.half_life) / as_float(self.half_life);
        let term = as_float(tokens) * fraction.exp2() * FIXED_POINT;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounds down"
        )]
        Some((slot_of(half_life), term as u128))
    }

    fn advance(&mut self, to: Millis) {
        let newest = to / self.half_life;
        let steps = newest.saturating_sub(self.newest).min(SLOTS as u64);
        for step in 0..steps {
            self.slots[slot_of(newest - step)] = 0;
        }
        self.newest = self.newest.max(newest);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below 64")]
const fn slot_of(half_life: u64) -> usize {
    (half_life % SLOTS as u64) as usize
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times and tokens stay below 2^53"
)]
pub(crate) const fn as_float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum that is read as a float anyway"
)]
const fn widened(number: u128) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sum_is_that_of_its_terms(
            half_life in 1..3_000_u64,
            terms in prop::collection::vec((1..1_000_000_u64, 0..20_000_u64, any::<bool>()), 1..60),
            later in 0..20_000_u64,
        ) {
            let mut sum = Decayed::new(half_life);
            let mut now = 0;
            let mut kept = Vec::new();
            for (tokens, gap, _) in &terms {
                now += gap / 10;
                sum.add(*tokens, now);
                kept.push((*tokens, now));
            }
            for (at, (tokens, _, leaves)) in terms.iter().enumerate().rev() {
                if *leaves {
                    sum.remove(*tokens, kept[at].1);
                    kept.remove(at);
                }
            }
            now += later;
            let naive = kept.iter().map(|(tokens, since)| {
                as_float(*tokens) * weight(now - since, half_life)
            });
            let naive: f64 = naive.sum();
            let error = (sum.value(now) - naive).abs();
            prop_assert!(error <= 0.01 + naive * 1e-9, "{} is not {naive}", sum.value(now));
        }

        #[test]
        fn what_was_put_in_comes_out_exactly(
            terms in prop::collection::vec((1..1_000_000_u64, 0..90_000_u64), 1..200),
        ) {
            let mut sum = Decayed::new(1_000);
            for (tokens, since) in &terms {
                sum.add(*tokens, *since);
            }
            for (tokens, since) in &terms {
                sum.remove(*tokens, *since);
            }
            prop_assert_eq!(sum.slots, [0; SLOTS]);
        }
    }

    #[test]
    fn half_is_left_after_a_half_life() {
        let mut sum = Decayed::new(1_000);
        sum.add(800, 500);
        assert!((sum.value(500) - 800.0).abs() < 1e-3);
        assert!((sum.value(1_500) - 400.0).abs() < 1e-3);
        assert!((sum.value(4_500) - 50.0).abs() < 1e-3);
    }

    #[test]
    fn a_steady_flow_is_read_as_its_rate() {
        let mut flow = Fading::new(30_000);
        for second in 0..600 {
            flow.add(500.0, second * 1_000);
        }
        let rate = flow.rate(600_000);
        assert!((rate - 0.5).abs() < 0.01, "{rate} tokens per ms");
    }
}
