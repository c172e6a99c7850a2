//! Facts from bytes: scans a request body once and a response as it streams. No I/O.
//!
//! # Theory of operation
//!
//! A router that parses a request into a tree and writes the tree out again is slow, and it
//! changes what it passes on. This crate never builds a tree. It reads bytes, remembers the few
//! facts that a scheduler needs and where they stand, and edits by cutting and splicing spans.
//!
//! Two readers of bodies, because the two directions differ:
//!
//! * [`request::scan`] has the whole body at hand. It pulls: one recursive descent over the bytes
//!   that validates as strictly as `serde_json`, since a body that the worker would read
//!   differently than the router must not pass.
//! * [`response::Scanner`] gets an answer in pieces of any size. It is pushed: a state machine that
//!   remembers its path in the document and a few bytes of what it is reading, so that memory does
//!   not grow with the answer. It validates nothing: the worker's bytes go to the client whatever
//!   they are.
//!
//! And [`head`] for what stands before a body.

mod dialect;
mod error;
pub mod head;
mod json;
pub mod request;
pub mod response;

pub use dialect::Dialect;
pub use error::BodyError;
