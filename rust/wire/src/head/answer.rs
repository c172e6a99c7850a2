//! The head that a client is sent.

use super::{HOP, Headers, is_one_of, push};

/// How an answer is framed towards the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Framing {
    /// The worker's `Content-Length`, if any, holds.
    pub measured: bool,
    /// The body is sent in chunks.
    pub chunked: bool,
    /// The connection ends with this answer.
    pub closes: bool,
}

/// The head of an answer for a client, with its empty line: the worker's, with our framing.
///
/// `request_id` is told where the worker did not tell it itself.
pub fn answer_head(
    status: u16,
    reason: &[u8],
    headers: &Headers,
    framing: Framing,
    request_id: &[u8],
) -> Vec<u8> {
    let listed = headers.listed();
    let mut head = Vec::with_capacity(headers.size() + 4 * headers.len() + reason.len() + 128);
    let status = status.to_string();
    for part in [b"HTTP/1.1 ", status.as_bytes(), b" ", reason, b"\r\n"] {
        head.extend_from_slice(part);
    }
    let mut is_named = false;
    for (name, value) in headers.iter() {
        is_named |= name.eq_ignore_ascii_case(b"x-request-id");
        let stops = is_one_of(name, HOP)
            || (!framing.measured && is_one_of(name, &["content-length"]))
            || listed.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !stops {
            push(&mut head, name, value);
        }
    }
    if !is_named {
        push(&mut head, b"x-request-id", request_id);
    }
    if framing.chunked {
        push(&mut head, b"Transfer-Encoding", b"chunked");
    }
    if framing.closes {
        push(&mut head, b"Connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    head
}
