//! Days to start from.
#![allow(dead_code, missing_docs)] // Each test file uses its own part.

use thunder_core::{PolicyName, SchedulerConfig};
use thunder_sim::cluster::{Report, RouterSpec, Spec, simulate};
use thunder_sim::model::Model;
use thunder_sim::workload::{Source, Workload};

pub(crate) fn scheduler(policy: PolicyName) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        tick_ms: 1_000,
        queue_limit: 100_000,
        hold_limit_ms: 3_600_000,
        no_worker_limit_ms: 30_000,
        paper_tick_ms: 5_000,
        paper_half_life_ms: 1_000,
        paper_lambda_max: 1.0,
        paper_lambda_min: 1.0,
        event_driven: true,
        shared_prefix: true,
        origin_affinity: true,
        growth_steps_paused: 1.5,
        growth_steps_new: 2.5,
        margin_min: 0.03,
        margin_max: 0.10,
        displacement_eta: 0.5,
        lease_ms: 30_000,
        lease_min_ms: 60_000,
        idle_timeout_ms: 3_600_000,
        aimd: true,
        aimd_raise_above: 0.06,
        aimd_lower_below: 0.03,
        aimd_cap: 0.20,
        reservation_ms: Some(60_000),
        time_slice_ms: Some(600_000),
        time_slice_restore_factor: 100.0,
        mark_running_above: 0.97,
        host_tier: true,
        weight_sync_timeout_ms: 300_000,
    }
}

/// A short day of `programs` programs of `kind` on one GLM-4.6 engine.
pub(crate) fn spec(kind: &str, programs: usize, router: RouterSpec) -> Spec {
    let workload = Workload::named(kind).expect("known");
    let model = Model::preset("glm-4.6").expect("a preset");
    Spec {
        programs,
        warmup_s: 300,
        measured_s: 600,
        ..Spec::new(Source::Kind(*workload), model, router)
    }
}

pub(crate) fn day(kind: &str, programs: usize, router: RouterSpec) -> Report {
    simulate(&spec(kind, programs, router)).expect("a sound spec")
}
