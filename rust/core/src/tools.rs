//! How long a tool will still take, from how long its kind took lately.
//!
//! Kinds differ a thousandfold (an edit 0.02 s, a sub-agent 100 s), so each has a ring of its last
//! durations; the pool of all serves kinds that are new or too many. Given that a call has already
//! taken e, the expected remainder is the mean excess over e of the durations longer than e. Beyond
//! all of them it is e itself: what has lasted long will last as long again, which is what a heavy
//! tail of unknown weight says.

use std::collections::HashMap;

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
    /// No tool was named, or one too many: the pool.
    pub(crate) const UNKNOWN: Self = Self(usize::MAX);
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
            recent: Vec::new(),
            pool: Ring::new(POOLED),
        }
    }

    /// The kind of this name, remembered from now on if there is room.
    pub(crate) fn kind(&mut self, name: &str) -> ToolKind {
        if let Some(kind) = self.kinds.get(name) {
            return *kind;
        }
        if self.recent.len() == KINDS {
            return ToolKind::UNKNOWN;
        }
        let kind = ToolKind(self.recent.len());
        self.recent.push(Ring::new(REMEMBERED));
        self.kinds.insert(name.into(), kind);
        kind
    }

    /// A call of this kind took this long.
    pub(crate) fn took(&mut self, kind: ToolKind, duration: Millis) {
        if let Some(ring) = self.recent.get_mut(kind.0) {
            ring.push(duration);
        }
        self.pool.push(duration);
    }

    /// How long a call that already took `elapsed` will still take.
    pub(crate) fn remaining(&self, kind: ToolKind, elapsed: Millis) -> Millis {
        match self.recent.get(kind.0) {
            Some(ring) if ring.durations.len() >= ENOUGH => ring.mean_excess(elapsed),
            _ => self.pool.mean_excess(elapsed),
        }
    }
}

#[derive(Debug)]
struct Ring {
    durations: Vec<Millis>,
    size: usize,
    next: usize,
}

impl Ring {
    fn new(size: usize) -> Self {
        Self {
            durations: Vec::new(),
            size,
            next: 0,
        }
    }

    fn push(&mut self, duration: Millis) {
        if self.durations.len() < self.size {
            self.durations.push(duration);
        } else {
            self.durations[self.next] = duration;
        }
        self.next = (self.next + 1) % self.size;
    }

    fn mean_excess(&self, elapsed: Millis) -> Millis {
        let (mut sum, mut count) = (0_u64, 0_u64);
        for duration in &self.durations {
            if *duration > elapsed {
                sum = sum.saturating_add(duration - elapsed);
                count += 1;
            }
        }
        sum.checked_div(count).unwrap_or(elapsed)
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
        assert_eq!(tools.remaining(edit, 0), 20);
        assert_eq!(tools.remaining(agent, 30_000), 70_000);
    }

    #[test]
    fn what_outlasted_all_others_lasts_as_long_again() {
        let mut tools = Tools::new();
        let bash = tools.kind("bash");
        for duration in 1..=ENOUGH as u64 {
            tools.took(bash, duration * 1000);
        }
        assert_eq!(tools.remaining(bash, 0), 4_500);
        assert_eq!(tools.remaining(bash, 6_000), 1_500);
        assert_eq!(tools.remaining(bash, 50_000), 50_000);
    }

    #[test]
    fn an_unknown_kind_is_told_by_the_pool() {
        let mut tools = Tools::new();
        assert_eq!(tools.remaining(ToolKind::UNKNOWN, 0), 0);
        tools.took(ToolKind::UNKNOWN, 400);
        let rare = tools.kind("rare");
        tools.took(rare, 600);
        assert_eq!(tools.remaining(rare, 0), 500);
        assert_eq!(tools.remaining(ToolKind::UNKNOWN, 500), 100);
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
        assert_eq!(tools.recent.len(), KINDS);
        assert_eq!(tools.kinds.len(), KINDS);
        assert!(
            tools
                .recent
                .iter()
                .all(|ring| ring.durations.len() == REMEMBERED)
        );
        assert_eq!(tools.pool.durations.len(), POOLED);
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
        assert_eq!(tools.remaining(kind, 0), 3_000);
    }
}
