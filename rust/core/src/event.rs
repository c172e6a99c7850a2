//! What events carry, where a few numbers belong together.

use crate::error::Error;
use crate::ids::{Millis, Rank, Tokens, WorkerId};

/// What is known of one seat's engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeatFacts {
    /// KV capacity on the device. None (or 0): unknown, so requests pass through unscheduled.
    pub device_tokens: Option<Tokens>,
    /// `HiCache`'s host tier; 0 without one.
    pub host_tokens: Tokens,
    /// The host tier takes what the device evicts, instead of mirroring it.
    pub write_back: bool,
    /// a, where a prefill of c tokens at context x takes c·(a + b·x).
    pub prefill_us_per_token: f64,
    /// b, of the same.
    pub prefill_ns_per_token2: f64,
    /// Time to load a token of KV back from the host tier.
    pub load_back_us_per_token: f64,
    /// The engine can be told which program's KV to drop first.
    pub sessions: bool,
}

impl SeatFacts {
    /// Refuses rates that are negative or not finite.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        for (name, rate) in [
            ("prefill_us_per_token", self.prefill_us_per_token),
            ("prefill_ns_per_token2", self.prefill_ns_per_token2),
            ("load_back_us_per_token", self.load_back_us_per_token),
        ] {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(Error::BadConfig(format!(
                    "{name} = {rate} must be at least 0 and finite"
                )));
            }
        }
        Ok(())
    }
}

/// Whom programs are accounted to where tenants compete for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its share against others'; 0 counts as 1.
    pub weight: u32,
}

/// A request that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its program; None: it is accounted for alone.
    pub program: Option<&'a str>,
    /// What the program belongs to: a parent, an RL group.
    pub group: Option<&'a str>,
    /// Whom the program is accounted to from now on; None: nobody. Only the adaptive policy asks.
    pub tenant: Option<Tenant<'a>>,
    /// Estimated prompt tokens.
    pub prompt_tokens: Tokens,
    /// Identity of its leading system prompt and tools.
    pub prefix: Option<u64>,
}

/// What an answer said of itself; None where it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage<'a> {
    /// Exact prompt tokens.
    pub prompt_tokens: Option<Tokens>,
    /// Exact generated tokens.
    pub completion_tokens: Option<Tokens>,
    /// Prompt tokens found in any cache.
    pub cached_tokens: Option<Tokens>,
    /// Those of them found in the host tier.
    pub cached_host_tokens: Option<Tokens>,
    /// The kind of tool that the answer called.
    pub tool: Option<&'a str>,
}

/// A program as an earlier run remembered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory<'a> {
    /// What the program belongs to.
    pub group: Option<&'a str>,
    /// Its size.
    pub context_tokens: Tokens,
    /// Where it was, if anywhere.
    pub seat: Option<(WorkerId, Rank)>,
    /// How long it had been silent.
    pub idle_ms: Millis,
    /// An operator had paused it.
    pub operator: bool,
}
