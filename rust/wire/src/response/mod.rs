//! What an answer says, read as it streams by.

mod event;
mod facts;
mod node;
mod repeat;
mod scanner;
mod sse;
mod walk;

pub use facts::ResponseFacts;
pub use scanner::{Passed, Scanner};
