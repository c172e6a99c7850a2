//! How an engine is set up.

use crate::cache::WritePolicy;
use crate::model::Model;

/// A prompt must leave this much room. Source: `max_req_input_len` as `SGLang` 0.5.23 reports it.
const INPUT_MARGIN: u64 = 6;

/// How an engine is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// Constants of the model; `capacity_tokens` is the KV pool.
    pub model: Model,
    /// Tokens of a page, a divisor of the pool.
    pub page_tokens: u64,
    /// Tokens of the host tier; 0 for none.
    pub host_tokens: u64,
    /// When KV is copied to the host.
    pub write_policy: WritePolicy,
    /// Most requests running at once.
    pub max_running: usize,
    /// Most requests waiting, if bounded.
    pub max_queued: Option<usize>,
    /// Evict what no open session refers to first.
    pub session_radix: bool,
    /// Admit by priority, then by arrival.
    pub priority_scheduling: bool,
    /// Virtual µs between progress events of those who want them; 0: after every token.
    pub progress_us: u64,
}

/// A setting that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// What pausing does to requests in flight. Source: `/pause_generation` of `SGLang`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    /// They end at once, cut short.
    Abort,
    /// They lose their KV and queue again.
    Retract,
    /// They keep everything and stand still.
    InPlace,
}

impl EngineConfig {
    /// The longest prompt that is taken, tokens.
    pub fn max_prompt_tokens(&self) -> u64 {
        self.model.capacity_tokens - INPUT_MARGIN
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let (pool, page) = (self.model.capacity_tokens, self.page_tokens);
        if page == 0 || pool % page != 0 || pool <= 2 * page + INPUT_MARGIN {
            return Err(ConfigError(format!(
                "capacity_tokens = {pool} must be a multiple of page_tokens = {page} and hold several pages"
            )));
        }
        if self.max_running == 0 || self.model.chunk_tokens == 0 {
            return Err(ConfigError(
                "max_running and chunk_tokens must be at least 1".into(),
            ));
        }
        Ok(())
    }
}
