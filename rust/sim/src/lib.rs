//! Engine model and workloads: an emulated `SGLang` worker in virtual time. No I/O, no clock.
//!
//! * [`model`]: what an iteration costs, and the table of known models.
//! * [`span`]: identity of prompts, as chains.
//! * [`cache`]: the radix cache over device and host.
//! * [`engine`]: queue, admission, batch, retraction. Told the time, it says what happened.

pub mod cache;
pub mod engine;
pub mod model;
pub mod span;
