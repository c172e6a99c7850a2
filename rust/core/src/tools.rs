//! Whether and when a silent program will be back, from what its kind of tool did lately.
//!
//! Kinds differ a thousandfold (an edit 0.02 s, a sub-agent 100 s), so each has a ring of its last
//! durations; the pool of all serves kinds that are new or too many. Given that a call has already
//! taken e, the expected remainder is the mean excess over e of the durations longer than e. Beyond
//! all of them it is e itself: what has lasted long will last as long again, which is what a heavy
//! tail of unknown weight says.
//!
//! Programs that end without a word never come back. That too is remembered of a kind: the longer a
//! silence among many short ones, the likelier it is the last. Answers that name no tool are a kind of
//! their own, since a program's last answer mostly is one.

use std::collections::HashMap;

use crate::decay::as_float;
use crate::ids::Millis;

/// Durations remembered of one kind, and of the pool.
const REMEMBERED: usize = 32;
const POOLED: usize = 128;

/// Kinds remembered; later ones use the pool.
const KINDS: usize = 256;

/// Durations below which a kind is told by the pool.
const ENOUGH: usize = 8;

/// A kind of tool, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToolKind(usize);

impl ToolKind {
    /// The answer named no tool.
    pub(crate) const UNNAMED: Self = Self(0);
    /// It named one too many to remember: the pool.
    const POOLED: Self = Self(usize::MAX);
}

/// What to expect of a silent program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outlook {
    /// Probability that it comes back within its lease.
    pub(crate) returns: f64,
    /// If it does, after so much longer.
    pub(crate) remaining: Millis,
}

/// Recent durations of every kind.
#[derive(Debug)]
pub(crate) struct Tools {
    kinds: HashMap<Box<str>, ToolKind>,
    recent: Vec<Ring>,
    pool: Ring,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self {
            kinds: HashMap::new(),
            recent: vec![Ring::new(REMEMBERED)],
            pool: Ring::new(POOLED),
        }
    }

    /// The kind of this name, remembered from now on if there is room.
    pub(crate) fn kind(&mut self, name: &str) -> ToolKind {
        if let Some(kind) = self.kinds.get(name) {
            return *kind;
        }
        if self.kinds.len() == KINDS {
            return ToolKind::POOLED;
        }
        let kind = ToolKind(self.recent.len());
        self.recent.push(Ring::new(REMEMBERED));
        self.kinds.insert(name.into(), kind);
        kind
    }

    /// A silence after a call of this kind lasted this long.
    pub(crate) fn took(&mut self, kind: ToolKind, duration: Millis) {
        self.remember(kind, Some(duration));
    }

    /// A silence after a call of this kind outlasted its lease.
    pub(crate) fn lapsed(&mut self, kind: ToolKind) {
        self.remember(kind, None);
    }

    fn remember(&mut self, kind: ToolKind, silence: Option<Millis>) {
        if let Some(ring) = self.recent.get_mut(kind.0) {
            ring.push(silence);
        }
        self.pool.push(silence);
    }

    /// What to expect of a program that called this kind and has been silent for `elapsed`.
    pub(crate) fn outlook(&self, kind: ToolKind, elapsed: Millis) -> Outlook {
        match self.recent.get(kind.0) {
            Some(ring) if ring.silences.len() >= ENOUGH => ring.outlook(elapsed),
            _ => self.pool.outlook(elapsed),
        }
    }
}

#[derive(Debug)]
struct Ring {
    /// How long each lasted; None: beyond its lease.
    silences: Vec<Option<Millis>>,
    size: usize,
    next: usize,
}

impl Ring {
    fn new(size: usize) -> Self {
        Self {
            silences: Vec::new(),
            size,
            next: 0,
        }
    }

    fn push(&mut self, silence: Option<Millis>) {
        if self.silences.len() < self.size {
            self.silences.push(silence);
        } else {
            self.silences[self.next] = silence;
        }
        self.next = (self.next + 1) % self.size;
    }

    /// Mean excess of those that lasted longer and ended; and how many of all that lasted longer did,
    /// one more than were seen, since one always may.
    fn outlook(&self, elapsed: Millis) -> Outlook {
        let (mut sum, mut ended, mut lapsed) = (0_u64, 0_u64, 0_u64);
        for silence in &self.silences {
            match silence {
                Some(duration) if *duration > elapsed => {
                    sum = sum.saturating_add(duration - elapsed);
                    ended += 1;
                }
                Some(_) => {}
                None => lapsed += 1,
            }
        }
        Outlook {
            returns: as_float(ended + 1) / as_float(ended + 1 + lapsed),
            remaining: sum.checked_div(ended).unwrap_or(elapsed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_by_its_own_durations() {
        let mut tools = Tools::new();
        let (edit, agent) = (tools.kind("edit"), tools.kind("agent"));
        for _ in 0..ENOUGH {
            tools.took(edit, 20);
            tools.took(agent, 100_000);
        }
        assert_eq!(tools.outlook(edit, 0).remaining, 20);
        assert_eq!(tools.outlook(agent, 30_000).remaining, 70_000);
    }

    #[test]
    fn what_outlasted_all_others_lasts_as_long_again() {
        let mut tools = Tools::new();
        let bash = tools.kind("bash");
        for duration in 1..=ENOUGH as u64 {
            tools.took(bash, duration * 1000);
        }
        assert_eq!(tools.outlook(bash, 0).remaining, 4_500);
        assert_eq!(tools.outlook(bash, 6_000).remaining, 1_500);
        assert_eq!(tools.outlook(bash, 50_000).remaining, 50_000);
    }

    #[test]
    fn an_unknown_kind_is_told_by_the_pool() {
        let mut tools = Tools::new();
        assert_eq!(tools.outlook(ToolKind::UNNAMED, 0).remaining, 0);
        tools.took(ToolKind::UNNAMED, 400);
        let rare = tools.kind("rare");
        tools.took(rare, 600);
        assert_eq!(tools.outlook(rare, 0).remaining, 500);
        assert_eq!(tools.outlook(ToolKind::UNNAMED, 500).remaining, 100);
    }

    #[test]
    fn the_longer_a_silence_lasts_the_likelier_it_is_the_last() {
        let mut tools = Tools::new();
        for _ in 0..6 {
            tools.took(ToolKind::UNNAMED, 100);
        }
        tools.took(ToolKind::UNNAMED, 5_000);
        tools.lapsed(ToolKind::UNNAMED);
        for (elapsed, expected) in [(0, 8.0 / 9.0), (1_000, 2.0 / 3.0), (10_000, 0.5)] {
            let returns = tools.outlook(ToolKind::UNNAMED, elapsed).returns;
            assert!((returns - expected).abs() < 1e-9, "{elapsed}: {returns}");
        }
        assert_eq!(tools.outlook(ToolKind::UNNAMED, 1_000).remaining, 4_000);
    }

    #[test]
    fn kinds_and_durations_are_bounded() {
        let mut tools = Tools::new();
        for kind in 0..2 * KINDS {
            let kind = tools.kind(&format!("tool-{kind}"));
            for duration in 0..3 * REMEMBERED as u64 {
                tools.took(kind, duration);
            }
        }
        assert_eq!(tools.recent.len(), 1 + KINDS);
        assert_eq!(tools.kinds.len(), KINDS);
        let full = |ring: &Ring| ring.silences.len() == REMEMBERED;
        assert!(tools.recent[1..].iter().all(full));
        assert_eq!(tools.pool.silences.len(), POOLED);
    }

    #[test]
    fn the_oldest_duration_is_forgotten_first() {
        let mut tools = Tools::new();
        let kind = tools.kind("bash");
        for _ in 0..REMEMBERED {
            tools.took(kind, 1_000);
        }
        for _ in 0..REMEMBERED {
            tools.took(kind, 3_000);
        }
        assert_eq!(tools.outlook(kind, 0).remaining, 3_000);
    }
}
