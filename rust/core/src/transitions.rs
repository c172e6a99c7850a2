//! The one table of what may follow what. An event without a row here is refused.
//!
//! A request: arrives, is held or admitted, ends exactly once.
//!
//! ```text
//!             admit              finished, failed, cancelled
//!  Arrived ─────────► InFlight ────────────────────────────► (gone)
//!     │ ▲                │  ▲ │ worker down      ▲
//!     │ └──── bounced ───┘  │ ▼                  │
//!     │ hold          admit │ Orphaned ──────────┘
//!     ▼                     │    │ bounced: Arrived
//!    Held ──────────────────┘
//!     └── failed, cancelled, rejected ──► (gone)
//! ```

use crate::error::Error;
use crate::ids::{RequestId, Seat, WorkerId};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// The next tick decides.
    Arrived,
    /// Told to wait.
    Held,
    /// With the worker.
    InFlight(Seat),
    /// Its worker is down; the caller has yet to notice.
    Orphaned,
}

/// What may happen to a request from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEvent {
    Bounced,
    Progress,
    Finished,
    Failed,
    Cancelled,
}

/// What becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestStep {
    /// It stays where it is.
    Stays,
    /// It waits again, at its old place.
    Returns,
    /// It is over.
    Ends,
}

/// The table for requests.
pub(crate) fn request_step(
    request: RequestId,
    state: RequestState,
    event: RequestEvent,
) -> Result<RequestStep, Error> {
    use RequestEvent::{Bounced, Cancelled, Failed, Finished, Progress};
    use RequestState::{Arrived, Held, InFlight, Orphaned};
    match (state, event) {
        (InFlight(_) | Orphaned, Progress) => Ok(RequestStep::Stays),
        (InFlight(_) | Orphaned, Bounced) => Ok(RequestStep::Returns),
        (InFlight(_) | Orphaned, Finished) | (_, Failed | Cancelled) => Ok(RequestStep::Ends),
        (Arrived | Held, Progress | Bounced | Finished) => Err(Error::BadTransition {
            what: format!("request {request}"),
            state: match state {
                Arrived => "undecided",
                _ => "held",
            },
            event: match event {
                Progress => "progress",
                Bounced => "a bounce",
                _ => "an answer",
            },
        }),
    }
}

/// Where a seat stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It serves.
    Ready,
    /// It takes no new work for now; its programs keep their seats.
    Unready,
    /// Its programs leave as they turn; nothing new comes.
    Draining,
    /// It is gone.
    Down,
}

impl WorkerState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unready => "unready",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

/// The table for workers: from any state up, and down from any; a worker that is down must come up
/// before anything else, and one that drains keeps draining however its health flaps.
pub(crate) fn worker_step(
    worker: WorkerId,
    state: WorkerState,
    to: WorkerState,
) -> Result<WorkerState, Error> {
    use WorkerState::{Down, Draining, Ready, Unready};
    match (state, to) {
        (_, Ready | Down) => Ok(to),
        (Draining, Unready | Draining) | (_, Draining) if state != Down => Ok(Draining),
        (Ready | Unready, Unready) => Ok(Unready),
        (_, Unready | Draining) => Err(Error::BadTransition {
            what: format!("worker {worker}"),
            state: state.as_str(),
            event: match to {
                Unready => "unready",
                _ => "draining",
            },
        }),
    }
}

/// Where a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It never had a seat.
    New,
    /// It has a seat.
    Active,
    /// It had one, and waits for its next.
    Paused,
}

impl Status {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Active => "active",
            Self::Paused => "paused",
        }
    }

    /// The table for programs. The only ways: New → Active (admitted), Active → Paused, Paused →
    /// Active (restored), Active → New where the only request of a newcomer bounced, and New →
    /// Paused for one that an earlier run knew.
    pub(crate) const fn may_become(self, to: Self) -> bool {
        matches!(
            (self, to),
            (Self::New | Self::Paused, Self::Active)
                | (Self::Active, Self::Paused | Self::New)
                | (Self::New, Self::Paused)
        )
    }
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Some request of it is held or in flight.
    Reasoning,
    /// Its tools run, or it is silent.
    Acting,
}

impl Phase {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::Acting => "acting",
        }
    }
}
