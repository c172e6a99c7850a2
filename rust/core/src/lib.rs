//! The scheduler of thunder-router: programs, workers, queue, policy, decisions. No I/O, no clock.
//!
//! A [`Scheduler`] is told what happened and what time it is, and answers with decisions. It never
//! waits, logs or reads a clock; the same events give the same decisions. It is total: an event
//! that makes no sense is refused with an [`Error`] and changes nothing.

mod book;
mod check;
mod config;
mod consequences;
mod deadlines;
mod decay;
mod decision;
mod error;
mod event;
mod ids;
mod learn;
mod ledger;
mod look;
mod moves;
mod pausable;
mod policy;
mod prefix;
mod program;
mod queue;
mod reason;
mod request;
mod scheduler;
mod standing;
mod tenant;
mod tools;
mod transitions;
mod view;
mod worker;

pub use config::{PolicyName, SchedulerConfig};
pub use decision::{Decision, Rejection};
pub use error::Error;
pub use event::{Arrival, Memory, SeatFacts, Tenant, Usage};
pub use ids::{Millis, Rank, RequestId, Seat, Tokens, WorkerId};
pub use reason::{Reason, Room};
pub use scheduler::Scheduler;
pub use transitions::{Phase, Status, WorkerState};
pub use view::{Counts, ProgramView, TenantView, WorkerView};
