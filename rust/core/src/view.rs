//! Looking at the scheduler from outside: for people and the API, never for deciding.

use std::sync::Arc;

use crate::ids::{Millis, Seat, Tokens};
use crate::transitions::{Phase, Status, WorkerState};

/// One program as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramView {
    /// Its name.
    pub program: Arc<str>,
    /// Larger than that of any program that came before it, of this name or another.
    pub generation: u64,
    /// What it belongs to.
    pub group: Option<Arc<str>>,
    /// Whom it is accounted to, where tenants compete for room.
    pub tenant: Option<Arc<str>>,
    /// An operator paused it.
    pub operator: bool,
    /// Reasoning while any request of it is held or in flight.
    pub phase: Phase,
    /// Whether it has a seat.
    pub status: Status,
    /// Its seat.
    pub seat: Option<Seat>,
    /// The seat where its KV may still be, while it has none.
    pub origin: Option<Seat>,
    /// What it keeps between turns.
    pub context_tokens: Tokens,
    /// Requests at a worker.
    pub in_flight: usize,
    /// Requests held.
    pub waiting: usize,
    /// Turns that ended whole.
    pub steps: u64,
    /// Time since its last sign of life; 0 while it reasons.
    pub idle_ms: Millis,
    /// How long its earliest held request has waited; 0 without one.
    pub held_ms: Millis,
}

/// One seat as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Which.
    pub seat: Seat,
    /// Whether it serves.
    pub state: WorkerState,
    /// KV capacity on the device, where known.
    pub device_tokens: Option<Tokens>,
    /// The host tier's.
    pub host_tokens: Tokens,
    /// What its programs occupy.
    pub charged_tokens: Tokens,
    /// Of that, prefixes that programs share, each once.
    pub shared_tokens: Tokens,
    /// Capacity that nobody is charged for.
    pub free_tokens: Option<Tokens>,
    /// Kept free beside a program that returns.
    pub margin_tokens: Tokens,
    /// Programs that have their seat here.
    pub programs: usize,
    /// Those with something under way.
    pub reasoning: usize,
    /// Those without.
    pub acting: usize,
    /// Requests in flight.
    pub in_flight: u32,
}

/// One tenant as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView {
    /// Its name; None: everybody who names none.
    pub tenant: Option<Arc<str>>,
    /// Its share against others'.
    pub weight: u32,
    /// What its programs occupy, but for prefixes that they share.
    pub charged_tokens: Tokens,
    /// Its programs.
    pub programs: usize,
    /// Those of them in the global queue.
    pub waiting: usize,
}

/// How many there are of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Named programs.
    pub programs: usize,
    /// Programs with a seat, nameless ones included.
    pub active: usize,
    /// Programs that had one.
    pub paused: usize,
    /// Requests not admitted yet.
    pub waiting: usize,
    /// Requests at a worker.
    pub in_flight: usize,
    /// Seats that are not down.
    pub workers: usize,
}
