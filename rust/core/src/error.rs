//! Everything the core refuses, as one enum.
//!
//! A refused event changes nothing. Rejecting a *request* is not an error: it is a
//! [`Decision`](crate::Decision) with a reason.

use crate::ids::{RequestId, WorkerId};

/// Why an event was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such program is known.
    #[error("no program named {0:?}")]
    UnknownProgram(String),
    /// No rank of this worker was ever up.
    #[error("no worker {0}")]
    UnknownWorker(WorkerId),
    /// No such request is held or in flight.
    #[error("no request {0} is held or in flight")]
    UnknownRequest(RequestId),
    /// The request id is already held or in flight.
    #[error("request {0} is already held or in flight")]
    DuplicateRequest(RequestId),
    /// The table of transitions has no row for this event in this state.
    #[error("{what} is {state}, which {event} does not follow")]
    BadTransition {
        /// The thing, by kind and name: `request 7`.
        what: String,
        /// The state it is in.
        state: &'static str,
        /// The event that came.
        event: &'static str,
    },
    /// A constant is out of range or contradicts another.
    #[error("{0}")]
    BadConfig(String),
    /// [`Scheduler::check`](crate::Scheduler::check) found a count that does not add up.
    #[error("{0}")]
    Invariant(String),
}
