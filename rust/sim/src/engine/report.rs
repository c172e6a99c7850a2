//! What an engine says of its load: the numbers behind `/v1/loads` and `/metrics`.

use super::Engine;
use crate::cache::CacheCounts;
use crate::model::{PICOS_PER_MICRO, Picos};

/// The engine at one instant, in requests and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Requests running.
    pub running: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// Of those waiting, retracted ones.
    pub retracted: u64,
    /// Tokens that those waiting will occupy.
    pub waiting_tokens: u64,
    /// Of those, what no cache holds.
    pub waiting_uncached_tokens: u64,
    /// Tokens in use: locked cache and private KV. Cache nobody runs on is not in use.
    pub used_tokens: u64,
    /// Cache that goes when room is needed.
    pub evictable_tokens: u64,
    /// Neither.
    pub free_tokens: u64,
    /// Tokens in the host tier.
    pub host_tokens: u64,
    /// Share kept free for running requests, parts per million.
    pub new_token_ratio_ppm: u64,
    /// Sum of the contexts that decode.
    pub decoding_tokens: u64,
}

/// Sums since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests taken.
    pub submitted: u64,
    /// Requests ended, whichever way.
    pub finished: u64,
    /// Of those, cut short.
    pub aborted: u64,
    /// Pushed out of a full queue by a higher priority.
    pub displaced: u64,
    /// Retractions.
    pub retractions: u64,
    /// Prompt tokens of requests admitted for the first time.
    pub prompt: u64,
    /// Of those, found on the device.
    pub cached_device: u64,
    /// Of those, brought back from the host.
    pub cached_host: u64,
    /// Prefill computed, recomputation after retractions included.
    pub prefilled: u64,
    /// Prefill that retractions made necessary.
    pub recomputed: u64,
    /// Tokens generated.
    pub generated: u64,
    pub(super) prefill_busy: Picos,
}

impl Counts {
    /// Time of iterations with prefill in them, µs.
    pub fn prefill_busy_us(&self) -> u64 {
        u64::try_from(self.prefill_busy / PICOS_PER_MICRO).unwrap_or(u64::MAX)
    }
}

impl Engine {
    /// How things stand at `now_us`, at least the time of the last `advance`.
    pub fn loads(&self, now_us: u64) -> Loads {
        let now = Picos::from(now_us) * PICOS_PER_MICRO;
        let done = self
            .segment
            .as_ref()
            .map_or(0, |segment| segment.done_by(now));
        let grown = self.growth(done);
        let (cached, evictable) = (self.cache.device_tokens(), self.cache.evictable_tokens());
        // Growth that no free page holds will have evicted.
        let evictable = evictable - evictable.min(grown.saturating_sub(self.free_tokens()));
        let used = cached - self.cache.evictable_tokens() + self.private_tokens + grown;
        let uncached = |one: &super::Request| {
            let found = self
                .cache
                .find(&one.spec.prompt, one.prompt_tokens.saturating_sub(1));
            one.fill_tokens - found.device_tokens - found.host_tokens
        };
        Loads {
            running: (self.prefilling.len() + self.decoding.len()) as u64,
            waiting: self.waiting.len() as u64,
            retracted: self
                .waiting
                .iter()
                .filter(|one| one.retractions > 0)
                .count() as u64,
            waiting_tokens: self.waiting.iter().map(|one| one.fill_tokens).sum(),
            waiting_uncached_tokens: self.waiting.iter().map(uncached).sum(),
            used_tokens: used,
            evictable_tokens: evictable,
            free_tokens: self.config.model.capacity_tokens - used - evictable,
            host_tokens: self.cache.host_tokens(),
            new_token_ratio_ppm: self.new_token_ratio,
            decoding_tokens: self.decoding.iter().map(|one| one.kv_tokens + done).sum(),
        }
    }

    /// Sums since the engine was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What its cache did since it was made.
    pub fn cache_counts(&self) -> CacheCounts {
        self.cache.counts()
    }

    /// Tokens that `request` has generated at `now_us`, where it is in flight.
    pub fn decoded(&self, request: u64, now_us: u64) -> Option<u64> {
        let now = Picos::from(now_us) * PICOS_PER_MICRO;
        let done = self
            .segment
            .as_ref()
            .map_or(0, |segment| segment.done_by(now));
        let named = |one: &&super::Request| one.spec.request == request;
        if let Some(one) = self.decoding.iter().find(named) {
            return Some(one.decoded + done);
        }
        self.waiting
            .iter()
            .chain(&self.prefilling)
            .find(named)
            .map(|one| one.decoded)
    }
}
