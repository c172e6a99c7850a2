//! One request inside the engine, and what the engine says of it.

use crate::cache::NodeId;
use crate::model::Picos;
use crate::span::Span;

/// A request as it is handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The caller's name for it; unique among those in flight.
    pub request: u64,
    /// The prompt. Its tokens are the sum.
    pub prompt: Vec<Span>,
    /// Prompt and answer as one chain: what the cache holds once it is answered.
    pub conversation: Vec<Span>,
    /// Tokens that it will generate, at least 1.
    pub output_tokens: u64,
    /// Tokens that it declared it may generate: what admission reserves for.
    pub max_tokens: u64,
    /// Higher goes first, where priorities are scheduled.
    pub priority: i64,
    /// The conversation it belongs to, where sessions are kept.
    pub session: Option<u64>,
    /// Whether [`EventKind::Progress`] is wanted.
    pub progress: bool,
}

/// Why a submission was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Longer than the KV pool.
    #[error("the prompt of {prompt_tokens} tokens is longer than the {limit} that fit")]
    TooLong {
        /// Its tokens.
        prompt_tokens: u64,
        /// The most that fit.
        limit: u64,
    },
    /// `max_queued` requests wait already, none of lower priority.
    #[error("the request queue is full")]
    QueueFull,
    /// The id is in flight.
    #[error("request {0} is in flight already")]
    Duplicate(u64),
}

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, µs of virtual time, rounded up.
    pub at_us: u64,
    /// To which request.
    pub request: u64,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Prefill is done and the first token is out.
    FirstToken {
        /// Prompt tokens found on the device.
        cached_device: u64,
        /// Prompt tokens brought back from the host.
        cached_host: u64,
    },
    /// So many tokens are out, in total.
    Progress {
        /// Tokens generated so far.
        decoded: u64,
    },
    /// Its KV was taken away for others' sake; it queues again and recomputes.
    Retracted,
    /// A request of higher priority took its place in the full queue.
    Displaced,
    /// It is over.
    Finished(Finish),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// True where it was cut short.
    pub aborted: bool,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Prompt tokens found on the device at its first admission.
    pub cached_device: u64,
    /// Prompt tokens brought back from the host at its first admission.
    pub cached_host: u64,
    /// How often it was retracted.
    pub retractions: u32,
    /// From submission to first admission, µs.
    pub queue_us: u64,
}

/// A request in the engine's books.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) spec: Submission,
    pub(super) prompt_tokens: u64,
    pub(super) generation: u64,
    pub(super) submitted: Picos,
    pub(super) admitted: Option<Picos>,
    pub(super) cached_device: u64,
    pub(super) cached_host: u64,
    pub(super) decoded: u64,
    /// Tokens to compute before it can decode: the prompt, and after a retraction its output too.
    pub(super) fill_tokens: u64,
    /// Of those, computed or found in the cache.
    pub(super) filled: u64,
    /// Copying from the host that its first chunk waits for.
    pub(super) load: Picos,
    /// The deepest node it locks.
    pub(super) node: NodeId,
    /// Tokens of its KV that the cache holds on the path to `node`.
    pub(super) in_cache: u64,
    /// Tokens of KV it holds in all, `in_cache` among them.
    pub(super) kv_tokens: u64,
    pub(super) retractions: u32,
    pub(super) aborted: bool,
}

impl Request {
    pub(super) fn new(spec: Submission, generation: u64, now: Picos) -> Self {
        let prompt_tokens = spec.prompt.iter().map(|span| span.tokens).sum();
        Self {
            spec,
            prompt_tokens,
            generation,
            submitted: now,
            admitted: None,
            cached_device: 0,
            cached_host: 0,
            decoded: 0,
            fill_tokens: prompt_tokens,
            filled: 0,
            load: 0,
            node: crate::cache::ROOT,
            in_cache: 0,
            kv_tokens: 0,
            retractions: 0,
            aborted: false,
        }
    }

    /// Tokens it has yet to generate.
    pub(super) fn remaining(&self) -> u64 {
        self.spec.output_tokens.saturating_sub(self.decoded)
    }

    pub(super) fn done(&self) -> bool {
        self.decoded >= self.spec.output_tokens
    }
}
