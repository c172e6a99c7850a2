//! Engine model, workloads and a cluster in virtual time. No I/O, no clock.
//!
//! * [`model`]: what an iteration costs, and the table of known models.
//! * [`span`]: identity of prompts, as chains.
//! * [`cache`]: the radix cache over device and host.
//! * [`engine`]: queue, admission, batch, retraction. Told the time, it says what happened.
//! * [`workload`] and [`random`]: agent programs, seeded.
//! * [`cluster`]: engines, a router and programs in one virtual day, and what came of it.

pub mod cache;
pub mod cluster;
pub mod engine;
pub mod model;
pub mod random;
pub mod span;
pub mod workload;
