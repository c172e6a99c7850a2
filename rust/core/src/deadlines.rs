//! What must be looked at without an event, ordered by when.

use std::collections::BTreeSet;

use crate::ids::{Millis, RequestId};
use crate::program::ProgramKey;

/// Whom an alarm wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A weight sync that did not end.
    WeightSync,
    /// No worker has been up for too long.
    Deserted,
    /// A held request's limit.
    HoldLimit(RequestId),
    /// A refused request may try the same worker again.
    Forgive(RequestId),
    /// A program's lease, idle time-out, or other moment of its own.
    Program(ProgramKey),
}

/// All alarms that are set.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    alarms: BTreeSet<(Millis, Alarm)>,
}

impl Deadlines {
    pub(crate) fn set(&mut self, at: Millis, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    pub(crate) fn clear(&mut self, at: Millis, alarm: Alarm) {
        self.alarms.remove(&(at, alarm));
    }

    /// When the first one rings.
    pub(crate) fn first(&self) -> Option<Millis> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Takes the first one that is due.
    pub(crate) fn ring(&mut self, now: Millis) -> Option<Alarm> {
        let (at, _) = *self.alarms.first()?;
        if at > now {
            return None;
        }
        self.alarms.pop_first().map(|(_, alarm)| alarm)
    }
}
