//! What to simulate.

use thunder_core::SchedulerConfig;

use crate::cache::WritePolicy;
use crate::engine::EngineConfig;
use crate::model::Model;
use crate::workload::Source;

/// Who decides where a turn goes, and when.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // There is one of them.
pub enum RouterSpec {
    /// The real scheduler.
    Core(SchedulerConfig),
    /// Every program stays on the engine with the fewest programs when it began; nothing is held.
    Pinned,
    /// What a gateway does that knows prompts but not programs: longest prefix, unless load is
    /// uneven. Nothing is held.
    CacheAware,
}

/// One simulated day.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What the programs do.
    pub source: Source,
    /// What the engines run, and on what.
    pub model: Model,
    /// Engines.
    pub workers: usize,
    /// Programs alive at any time, over all engines.
    pub programs: usize,
    /// Who decides.
    pub router: RouterSpec,
    /// Which day.
    pub seed: u64,
    /// Virtual seconds before anything counts.
    pub warmup_s: u64,
    /// Virtual seconds that count.
    pub measured_s: u64,
    /// Host tier as a multiple of the device's tokens; 0 for none.
    pub hicache_ratio: f64,
    /// When KV is copied to the host.
    pub write_policy: WritePolicy,
    /// Tokens of a page.
    pub page_tokens: u64,
    /// Engines keep sessions, and whoever pauses or ends a program closes its session there.
    pub sessions: bool,
    /// Programs say when they end.
    pub releases: bool,
    /// Tools take so many times as long.
    pub tool_factor: f64,
    /// Tokens that requests declare they may generate.
    pub max_tokens: u64,
}

/// A spec that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub(super) String);

impl Spec {
    /// One GLM-4.6 engine and 96 mini-SWE programs for 15 + 30 minutes: a day to start from.
    pub fn new(source: Source, model: &Model, router: RouterSpec) -> Self {
        Self {
            source,
            model: model.clone(),
            workers: 1,
            programs: 96,
            router,
            seed: 1,
            warmup_s: 900,
            measured_s: 1_800,
            hicache_ratio: 0.0,
            write_policy: WritePolicy::Through,
            page_tokens: 1,
            sessions: false,
            releases: true,
            tool_factor: 1.0,
            max_tokens: 4_096,
        }
    }

    pub(super) fn validate(&self) -> Result<(), SpecError> {
        if matches!(&self.source, Source::Sessions(sessions) if sessions.iter().any(Vec::is_empty) || sessions.is_empty())
        {
            return Err(SpecError(
                "no recorded sessions, or one without turns".into(),
            ));
        }
        for (name, value) in [
            ("workers", self.workers as u64),
            ("programs", self.programs as u64),
            ("measured_s", self.measured_s),
            ("max_tokens", self.max_tokens),
        ] {
            if value == 0 {
                return Err(SpecError(format!("{name} must be at least 1")));
            }
        }
        for (name, value) in [
            ("tool_factor", self.tool_factor),
            ("hicache_ratio", self.hicache_ratio),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(SpecError(format!(
                    "{name} = {value} must be at least 0 and finite"
                )));
            }
        }
        Ok(())
    }

    /// Tokens of the host tier of one engine.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )] // Token counts are far below 2^52.
    pub(super) fn host_tokens(&self) -> u64 {
        (self.model.capacity_tokens as f64 * self.hicache_ratio) as u64
    }

    pub(super) fn engine(&self) -> EngineConfig {
        let mut model = self.model.clone();
        if self.page_tokens > 0 {
            model.capacity_tokens -= model.capacity_tokens % self.page_tokens;
        }
        EngineConfig {
            model,
            page_tokens: self.page_tokens,
            host_tokens: self.host_tokens(),
            write_policy: self.write_policy,
            max_running: 2_048,
            max_queued: None,
            session_radix: self.sessions,
            priority_scheduling: false,
            progress_us: PROGRESS_US,
        }
    }
}

/// How often the scheduler hears of a running request's progress.
const PROGRESS_US: u64 = 1_000_000;
