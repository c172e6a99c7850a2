//! What to simulate.

use thunder_core::{Millis, SchedulerConfig};

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
    /// The public code of `ThunderAgent`.
    ThunderAgent,
    /// KV stays for so long after a turn, whoever waits. Engines keep sessions, so that what is
    /// pinned goes last.
    TtlPinning {
        /// How long, ms.
        ttl_ms: Millis,
    },
    /// No router but a bound: restores are free, so that nothing is held, nothing is recomputed, and
    /// only what runs needs room on the device. No schedule on the same engines does better, though
    /// none need come near.
    Bound,
}

/// What the scheduler is compared with, by name.
pub const BASELINES: [(&str, RouterSpec); 5] = [
    ("pinned", RouterSpec::Pinned),
    ("cache_aware", RouterSpec::CacheAware),
    ("thunder_agent", RouterSpec::ThunderAgent),
    ("ttl", RouterSpec::TtlPinning { ttl_ms: TTL_MS }),
    ("bound", RouterSpec::Bound),
];

/// The time to live of `ttl`, ms. Of 0.5 to 10 s it comes nearest to what arXiv 2602.13692 reports of
/// Continuum: mini-SWE 303, 282, 214 steps/min at 48, 72, 96 programs (here 317, 267, 267), `OpenHands`
/// 83, 62, 56 (95, 100, 97). A longer one serves better here: 10 s gives `OpenHands` 140.
const TTL_MS: Millis = 1_000;

impl RouterSpec {
    /// The baseline of this name, if there is one.
    pub fn baseline(name: &str) -> Option<RouterSpec> {
        let mut known = BASELINES.iter();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, spec)| spec.clone())
    }
}

/// An engine that is gone for a while, with all its KV and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Which engine.
    pub worker: usize,
    /// When it goes, virtual seconds from the beginning of the day.
    pub from_s: u64,
    /// When it is back, empty.
    pub until_s: u64,
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
    /// KV tokens of each engine; empty: the model's own for all.
    pub capacities: Vec<u64>,
    /// Engines that go and come back.
    pub outages: Vec<Outage>,
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
    pub tool_scale: f64,
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
            capacities: Vec::new(),
            outages: Vec::new(),
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
            tool_scale: 1.0,
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
            ("tool_scale", self.tool_scale),
            ("hicache_ratio", self.hicache_ratio),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(SpecError(format!(
                    "{name} = {value} must be at least 0 and finite"
                )));
            }
        }
        if !self.capacities.is_empty() && self.capacities.len() != self.workers {
            return Err(SpecError(format!(
                "capacities: {} given for {} workers",
                self.capacities.len(),
                self.workers
            )));
        }
        for outage in &self.outages {
            if outage.worker >= self.workers || outage.from_s >= outage.until_s {
                return Err(SpecError(format!(
                    "no outage of worker {} from {} s until {} s",
                    outage.worker, outage.from_s, outage.until_s
                )));
            }
        }
        Ok(())
    }

    /// Engines keep sessions: they were asked to, or the router pins by them.
    pub(super) fn keeps_sessions(&self) -> bool {
        self.sessions || matches!(self.router, RouterSpec::TtlPinning { .. })
    }

    /// KV tokens of one engine, whole pages.
    pub(super) fn capacity(&self, worker: usize) -> u64 {
        let tokens = self.capacities.get(worker).copied();
        let tokens = tokens.unwrap_or(self.model.capacity_tokens);
        tokens - tokens.checked_rem(self.page_tokens).unwrap_or(0)
    }

    /// Tokens of the host tier of one engine.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )] // Token counts are far below 2^52.
    pub(super) fn host_tokens(&self, worker: usize) -> u64 {
        if self.router == RouterSpec::Bound {
            return ENDLESS_TOKENS;
        }
        (self.capacity(worker) as f64 * self.hicache_ratio) as u64
    }

    pub(super) fn engine(&self, worker: usize) -> EngineConfig {
        let mut model = self.model.clone();
        model.capacity_tokens = self.capacity(worker);
        let mut write_policy = self.write_policy;
        if self.router == RouterSpec::Bound {
            model.load_back_ps = 0;
            write_policy = WritePolicy::Through;
        }
        EngineConfig {
            model,
            page_tokens: self.page_tokens,
            host_tokens: self.host_tokens(worker),
            write_policy,
            max_running: 2_048,
            max_queued: None,
            session_radix: self.keeps_sessions(),
            priority_scheduling: false,
            progress_us: PROGRESS_US,
        }
    }
}

/// A host tier that no day fills.
const ENDLESS_TOKENS: u64 = 1 << 50;
/// How often the scheduler hears of a running request's progress.
const PROGRESS_US: u64 = 1_000_000;
