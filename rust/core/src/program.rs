//! One agent run: its size, its seat, and the requests that it has.
//!
//! A request without a program is a nameless program of its own, gone with its request; so is what
//! is left of a program that was released while requests of it were under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{Millis, RequestId, Seat, Tokens};
use crate::ledger::Entry;
use crate::queue::{Place, Waiter};
use crate::tenant::TenantKey;
use crate::tools::ToolKind;
use crate::transitions::{Phase, Status};

/// A program's number inside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProgramKey(pub(crate) usize);

/// Which line a waiter stands in: who had a seat before comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Returning,
    New,
}

/// Which queue holds a waiter, and under which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The global queue.
    Global(Class, Waiter),
    /// It waits for its origin, for as long as recomputing elsewhere would take.
    Origin(Seat, Waiter),
    /// The next room on this seat is kept for it.
    Claim(Seat, Waiter),
}

impl Line {
    /// The same line with this waiter in it.
    pub(crate) const fn of(self, waiter: Waiter) -> Self {
        match self {
            Self::Global(class, _) => Self::Global(class, waiter),
            Self::Origin(seat, _) => Self::Origin(seat, waiter),
            Self::Claim(seat, _) => Self::Claim(seat, waiter),
        }
    }
}

/// What a paused program left behind on a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) seat: Seat,
    /// The seat's flush count then: KV does not outlive a flush.
    pub(crate) epoch: u64,
    /// Tokens that had flowed into the seat's cache by then.
    pub(crate) inflow: Tokens,
    /// Tokens that may flow in before the device has evicted it, least recently used first.
    pub(crate) device_slack: Tokens,
    /// The same for any tier.
    pub(crate) reach_slack: Tokens,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks, not a state in disguise"
)]
pub(crate) struct Program {
    /// None: nameless.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) tenant: TenantKey,
    /// Grows with every program that ever came: a name that returns gets a new one.
    pub(crate) generation: u64,
    pub(crate) status: Status,
    /// Some exactly while Active.
    pub(crate) seat: Option<Seat>,
    pub(crate) trace: Option<Trace>,
    /// Tokens of its last whole turn: what it keeps while acting.
    pub(crate) context: Tokens,
    /// Largest turn that ended since something is in flight.
    pub(crate) peak: Tokens,
    /// Requests at its seat, in order of admission.
    pub(crate) flying: Vec<RequestId>,
    /// What these occupy: prompt and decoded so far.
    pub(crate) footprint: Tokens,
    /// Requests at workers that are down.
    pub(crate) orphans: u32,
    /// Requests not admitted yet.
    pub(crate) waiting: BTreeMap<Place, RequestId>,
    pub(crate) prefix: Option<u64>,
    /// Turns that ended whole.
    pub(crate) steps: u64,
    /// Those of them since it has its seat.
    pub(crate) steps_here: u64,
    /// Its last sign of life.
    pub(crate) seen: Millis,
    /// When it got its seat.
    pub(crate) seated: Millis,
    /// It is silent beyond its lease, and that was written down.
    pub(crate) lapsed: bool,
    /// The tool that its last turn called.
    pub(crate) tool: ToolKind,
    /// Its seat's flush count at the end of its last turn: later flushes lost its KV.
    pub(crate) epoch: Option<u64>,
    /// What its seat's book says of it; Some exactly while it has a seat.
    pub(crate) entry: Option<Entry>,
    pub(crate) line: Option<Line>,
    /// To be paused at the end of its turn.
    pub(crate) marked: bool,
    /// Among its seat's displaceable programs.
    pub(crate) displaceable: bool,
    /// An operator's pause.
    pub(crate) operator: bool,
    /// Told to get ready, this wait.
    pub(crate) prepared: bool,
    /// When it is to be looked at again without an event.
    pub(crate) alarm: Option<Millis>,
}

impl Program {
    pub(crate) fn new(name: Option<Arc<str>>, generation: u64, now: Millis) -> Self {
        Self {
            name,
            group: None,
            tenant: TenantKey::NOBODY,
            generation,
            status: Status::New,
            seat: None,
            trace: None,
            context: 0,
            peak: 0,
            flying: Vec::new(),
            footprint: 0,
            orphans: 0,
            waiting: BTreeMap::new(),
            prefix: None,
            steps: 0,
            steps_here: 0,
            seen: now,
            seated: now,
            lapsed: false,
            tool: ToolKind::UNNAMED,
            epoch: None,
            entry: None,
            line: None,
            marked: false,
            displaceable: false,
            operator: false,
            prepared: false,
            alarm: None,
        }
    }

    /// What it occupies on its seat: never less than the context it keeps, nor than its requests.
    ///
    /// A turn that continues the context contains it, so the larger of the two counts; a small
    /// request beside the main one does not hide the context that waits for the next turn.
    pub(crate) fn occupies(&self) -> Tokens {
        self.occupies_with(0)
    }

    /// The same with one more request of this prompt.
    pub(crate) fn occupies_with(&self, prompt: Tokens) -> Tokens {
        let kept = if self.is_over() { 0 } else { self.context };
        kept.max(self.footprint + prompt)
    }

    /// Nobody will send another request of it.
    pub(crate) const fn is_over(&self) -> bool {
        self.name.is_none()
    }

    /// Nothing of it is under way anywhere.
    pub(crate) fn is_silent(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty() && self.orphans == 0
    }

    /// Reasoning until its last request ends.
    pub(crate) fn phase(&self) -> Phase {
        if self.is_silent() {
            Phase::Acting
        } else {
            Phase::Reasoning
        }
    }

    /// The line it belongs in: a newcomer stays one until a turn of it has ended whole.
    pub(crate) const fn class(&self) -> Class {
        if self.steps == 0 {
            Class::New
        } else {
            Class::Returning
        }
    }

    /// Whether it may be paused now: between turns, and not before it made a step on its seat.
    pub(crate) fn is_pausable(&self) -> bool {
        self.is_silent() && self.steps_here > 0
    }
}
