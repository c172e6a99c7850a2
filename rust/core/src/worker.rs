//! One seat: what its engine is, what it is charged, and who is on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::decay::{Decayed, Fading, as_float};
use crate::event::SeatFacts;
use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::pausable::Pausable;
use crate::prefix::Shared;
use crate::program::ProgramKey;
use crate::queue::{Place, Waiting};
use crate::standing::Standing;
use crate::transitions::WorkerState;

/// How long a seat's rates look back.
const RATE_HALF_LIFE: Millis = 30_000;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) seat: Seat,
    pub(crate) state: WorkerState,
    pub(crate) facts: SeatFacts,
    /// Σ of its programs' own charges, shared prefixes taken off.
    pub(crate) own: Tokens,
    pub(crate) shared: Shared,
    /// Its programs with nothing under way.
    pub(crate) acting: Pausable,
    /// Its other programs.
    pub(crate) reasoning: Pausable,
    /// Those of `acting` whose tools outlast their restore.
    pub(crate) displaceable: Pausable,
    /// Those of `reasoning` to be paused at the end of their turn.
    pub(crate) marked: Pausable,
    /// The weight of `acting` programs as the paper decays it.
    pub(crate) fading: Decayed,
    pub(crate) in_flight: u32,
    /// Held requests of programs that are on it.
    pub(crate) deferred: BTreeMap<Place, RequestId>,
    /// Paused programs that wait for it, since their KV may still be there.
    pub(crate) returning: Waiting,
    /// The waiter for which its next room is kept.
    pub(crate) claim: Option<ProgramKey>,
    /// Mean tokens that a step adds to a program's context; None before the first step.
    pub(crate) growth: Option<f64>,
    /// Share of a paused program's context that was still here when it came back, lately.
    pub(crate) survival: f64,
    /// What misses add to its margin, as a fraction of capacity.
    pub(crate) extra_margin: f64,
    pub(crate) extra_margin_since: Millis,
    /// GPU milliseconds spent on recomputing what was meant to be kept.
    pub(crate) recomputed: Fading,
    /// Tokens freed by programs that left.
    pub(crate) freed: Fading,
    /// Tokens that ever flowed into its cache.
    pub(crate) inflow: Tokens,
    /// How often its cache was flushed.
    pub(crate) epoch: u64,
    /// Where it stands in the indexes.
    pub(crate) standing: Standing,
    /// Among those that the next tick looks at.
    pub(crate) dirty: bool,
}

impl Worker {
    pub(crate) fn new(seat: Seat, facts: SeatFacts, paper_half_life: Millis) -> Self {
        Self {
            seat,
            state: WorkerState::Ready,
            facts,
            own: 0,
            shared: Shared::default(),
            acting: Pausable::default(),
            reasoning: Pausable::default(),
            displaceable: Pausable::default(),
            marked: Pausable::default(),
            fading: Decayed::new(paper_half_life),
            in_flight: 0,
            deferred: BTreeMap::new(),
            returning: Waiting::default(),
            claim: None,
            growth: None,
            survival: 1.0,
            extra_margin: 0.0,
            extra_margin_since: 0,
            recomputed: Fading::new(RATE_HALF_LIFE),
            freed: Fading::new(RATE_HALF_LIFE),
            inflow: 0,
            epoch: 0,
            standing: Standing::Out,
            dirty: false,
        }
    }

    /// KV capacity on the device; None where it is unknown, or said to be 0.
    pub(crate) const fn capacity(&self) -> Option<Tokens> {
        match self.facts.device_tokens {
            None | Some(0) => None,
            known => known,
        }
    }

    /// What its programs occupy, every shared prefix once.
    pub(crate) const fn charged(&self) -> Tokens {
        self.own + self.shared.once()
    }

    /// Capacity that nobody is charged for.
    pub(crate) fn free(&self) -> Option<Tokens> {
        Some(self.capacity()?.saturating_sub(self.charged()))
    }

    /// Programs that have their seat here.
    pub(crate) fn programs(&self) -> usize {
        self.acting.len() + self.reasoning.len()
    }

    /// Everyone here, in the order of their numbers.
    pub(crate) fn members(&self) -> BTreeSet<ProgramKey> {
        let all = self.acting.iter().chain(self.reasoning.iter());
        all.map(|(_, program)| program).collect()
    }

    /// Tokens that survive here before the least recently used is dropped from every tier.
    ///
    /// Source: `SGLang` 0.5.23: a `write_through` host tier mirrors the device, so the larger of the two
    /// counts; `write_back` takes what the device evicts, so they add up.
    pub(crate) fn reach(&self) -> Option<Tokens> {
        let device = self.capacity()?;
        let host = self.facts.host_tokens;
        Some(if self.facts.write_back {
            device + host
        } else {
            device.max(host)
        })
    }

    /// Milliseconds to compute the KV of this many tokens from nothing: ∫ (a + b·x) dx.
    pub(crate) fn recompute_ms(&self, tokens: Tokens) -> f64 {
        let tokens = as_float(tokens);
        let linear = self.facts.prefill_us_per_token * tokens / 1e3;
        let quadratic = self.facts.prefill_ns_per_token2 * tokens * tokens / 2.0 / 1e6;
        linear + quadratic
    }

    /// Milliseconds to load this many tokens back from the host tier.
    pub(crate) fn load_back_ms(&self, tokens: Tokens) -> f64 {
        self.facts.load_back_us_per_token * as_float(tokens) / 1e3
    }
}
