//! The head that a worker is sent.

use super::{HOP, Headers, is_one_of, push};

/// A request's body is sent whole, with its length: no trailer and no wait for a 100 is left.
const ONLY_HERE: &[&str] = &[
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "trailer",
];
const CREDENTIALS: &[&str] = &["authorization", "x-api-key"];
const RANK: &[&str] = &["x-data-parallel-rank"];

/// How one worker wants to be spoken to, and what about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Towards<'a> {
    /// Put before the target.
    pub prefix: &'a [u8],
    /// What `Host` says.
    pub host: &'a [u8],
    /// The worker's own credentials, in place of the client's.
    pub authorization: Option<&'a [u8]>,
    /// The client's credentials were for the router, not for the worker.
    pub own_credentials: bool,
    /// The DP rank the request is for, where the worker has several.
    pub rank: Option<u32>,
    /// Bytes of the body.
    pub length: usize,
    /// Sent as `X-Request-Id`; none where the client sent its own.
    pub request_id: Option<&'a [u8]>,
}

/// The head of a request for a worker, with its empty line.
pub fn request_head(method: &[u8], target: &[u8], headers: &Headers, to: &Towards<'_>) -> Vec<u8> {
    let listed = headers.listed();
    let drops_credentials = to.own_credentials || to.authorization.is_some();
    let mut head = Vec::with_capacity(headers.size() + 4 * headers.len() + target.len() + 256);
    for part in [method, b" ", to.prefix, target, b" HTTP/1.1\r\n"] {
        head.extend_from_slice(part);
    }
    push(&mut head, b"Host", to.host);
    if let Some(authorization) = to.authorization {
        push(&mut head, b"Authorization", authorization);
    }
    if let Some(rank) = to.rank {
        push(
            &mut head,
            b"X-Data-Parallel-Rank",
            rank.to_string().as_bytes(),
        );
    }
    for (name, value) in headers.iter() {
        let stops = is_one_of(name, HOP)
            || is_one_of(name, ONLY_HERE)
            || (drops_credentials && is_one_of(name, CREDENTIALS))
            || (to.rank.is_some() && is_one_of(name, RANK))
            || listed.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !stops {
            push(&mut head, name, value);
        }
    }
    if let Some(id) = to.request_id {
        push(&mut head, b"X-Request-Id", id);
    }
    if to.length > 0 || method == b"POST" {
        push(
            &mut head,
            b"Content-Length",
            to.length.to_string().as_bytes(),
        );
    }
    head.extend_from_slice(b"\r\n");
    head
}
