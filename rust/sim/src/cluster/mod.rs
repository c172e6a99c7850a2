//! A cluster in virtual time: engines, a router before them, and agent programs that go round
//! between their turns and their tools.
//!
//! Theory of operation. `programs` slots each hold one program at a time; when it ends, the next one
//! starts in its place (a closed loop, as a batch of rollouts or a pool of agents is). A turn asks the
//! router, which may send it to an engine at once, hold it, or refuse it; the engine answers when the
//! model says so; the tool then takes its time. The next instant anything is due is always known, so
//! the day jumps from one to the next. Which program a slot starts, and everything about it, depends
//! on the seed, the slot and how many it has had: every router meets the same programs.

mod baselines;
mod report;
mod router;
mod scheduler;
mod spec;
mod world;

pub use report::Report;
pub use spec::{BASELINES, Outage, RouterSpec, Spec, SpecError};

/// Plays one day and says what came of it.
pub fn simulate(spec: &Spec) -> Result<Report, SpecError> {
    Ok(world::World::new(spec)?.play())
}
