//! What the core answers with: seven kinds of decision, each with its reason.

use std::sync::Arc;

use crate::ids::{Millis, RequestId, Seat};
use crate::reason::Reason;

/// One thing to do, in the order in which [`Scheduler::tick`](crate::Scheduler::tick) gives them.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Send this request to this seat now.
    Admit {
        /// Which request.
        request: RequestId,
        /// Where to.
        seat: Seat,
        /// Why there.
        reason: Reason,
    },
    /// Keep this request waiting; a later tick admits or rejects it.
    Hold {
        /// Which request.
        request: RequestId,
        /// What it waits for.
        reason: Reason,
    },
    /// Answer this request with an error; it is forgotten.
    Reject {
        /// Which request.
        request: RequestId,
        /// Which kind of error.
        kind: Rejection,
        /// When a retry has a chance.
        retry_after: Millis,
        /// Why.
        reason: Reason,
    },
    /// The program gave up its seat: its next turn waits in the global queue.
    Pause {
        /// Which program.
        program: Arc<str>,
        /// The seat it had.
        seat: Seat,
        /// Why.
        reason: Reason,
    },
    /// The paused program has a seat again; the `Admit` of its request follows.
    Restore {
        /// Which program.
        program: Arc<str>,
        /// Its new seat.
        seat: Seat,
        /// Why there.
        reason: Reason,
    },
    /// This waiting program's turn comes soon: get its tool environment ready.
    Prepare {
        /// Which program.
        program: Arc<str>,
        /// How soon, by the rate at which its seat was freed lately.
        expected_wait: Millis,
        /// Why now.
        reason: Reason,
    },
    /// The program was silent beyond its idle time-out and is forgotten.
    Expire {
        /// Which program.
        program: Arc<str>,
        /// How long it was silent.
        reason: Reason,
    },
}

impl Decision {
    /// Why, with the numbers behind it; its `Display` is a sentence.
    pub const fn reason(&self) -> &Reason {
        match self {
            Self::Admit { reason, .. }
            | Self::Hold { reason, .. }
            | Self::Reject { reason, .. }
            | Self::Pause { reason, .. }
            | Self::Restore { reason, .. }
            | Self::Prepare { reason, .. }
            | Self::Expire { reason, .. } => reason,
        }
    }
}

/// Kinds of rejection, fit for a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Too many requests are held (429).
    QueueFull,
    /// Held for too long (429).
    HoldLimit,
    /// Larger than any worker's KV cache (413).
    Oversize,
    /// Held for too long while no worker was ready (503).
    NoWorker,
}

impl Rejection {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::HoldLimit => "hold_limit",
            Self::Oversize => "oversize",
            Self::NoWorker => "no_worker",
        }
    }
}
