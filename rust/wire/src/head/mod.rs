//! Heads of HTTP messages: what a proxy reads of them, and what it passes on.
//!
//! End-to-end headers go through with their case, order and repeats. What concerns one connection
//! only (RFC 9110, 7.6.1) stops here, in both directions: it is ours to say towards each side.
//!
//! [`PlainRequest`] and [`PlainAnswer`] read the heads that leave no room for opinion; all others are llhttp's to judge.

mod answer;
mod headers;
mod plain;
mod request;

pub use answer::{Framing, answer_head};
pub use headers::{Headers, Line};
pub use plain::{PlainAnswer, PlainRequest};
pub use request::{Towards, request_head};

/// Headers that concern one connection only.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header's name is among these, which are in lower case.
fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Adds a header.
fn push(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}
