//! The seam between the world and whoever decides.

use thunder_core::{Millis, Tokens};

use crate::engine::Finish;
use crate::span::Span;

/// A turn that asks to be served.
pub(super) struct Ask<'a> {
    pub(super) request: u64,
    pub(super) program: &'a str,
    pub(super) prompt: &'a [Span],
    /// Identity of the prefix that all programs share, if there is one.
    pub(super) prefix: Option<u64>,
}

impl Ask<'_> {
    pub(super) fn prompt_tokens(&self) -> Tokens {
        self.prompt.iter().map(|span| span.tokens).sum()
    }
}

/// What the world is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Send this request to this engine.
    Send { request: u64, worker: usize },
    /// Refuse it; None: for good.
    Refuse {
        request: u64,
        retry_after: Option<Millis>,
    },
    /// The program lost its place: its KV on this engine may go first.
    Yield { program: String, worker: usize },
}

/// What a gateway without a worker, or a client whose request failed, waits before the next try.
pub(super) const RETRY_MS: Millis = 1_000;

impl Order {
    pub(super) fn send(request: u64, worker: usize) -> Self {
        Self::Send { request, worker }
    }

    /// Nobody is up: come back soon.
    pub(super) fn no_worker(request: u64) -> Self {
        Self::Refuse {
            request,
            retry_after: Some(RETRY_MS),
        }
    }
}

/// Told what happens, it says what to do. Times are virtual milliseconds.
pub(super) trait Router {
    /// A turn asks.
    fn ask(&mut self, ask: &Ask<'_>, now: Millis);
    /// Whether `progress` is wanted.
    fn listens(&self) -> bool {
        false
    }
    /// A running request has so many tokens out.
    fn progress(&mut self, _request: u64, _decoded: Tokens, _now: Millis) {}
    /// A request was answered.
    fn finished(&mut self, request: u64, finish: &Finish, tool: Option<&str>, now: Millis);
    /// A request ended without an answer; its turn will ask again, as another request.
    fn failed(&mut self, request: u64, now: Millis);
    /// A program is over.
    fn released(&mut self, program: &str, now: Millis);
    /// An engine came back, empty.
    fn worker_up(&mut self, worker: usize, now: Millis);
    /// An engine is gone; `failed` follows for each request that it had.
    fn worker_down(&mut self, worker: usize, now: Millis);
    /// What to do now.
    fn orders(&mut self, now: Millis) -> Vec<Order>;
    /// Milliseconds until `orders` must be asked though nothing happened.
    fn due(&self, now: Millis) -> Option<Millis>;
}
