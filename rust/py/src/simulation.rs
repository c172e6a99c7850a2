//! `simulate` for Python: a whole day in virtual time, in one call; and the programs of such a day,
//! for those who play them against workers over HTTP.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::import_exception;
use pyo3::prelude::*;
use thunder_sim::cache::WritePolicy;
use thunder_sim::cluster::{self, BASELINES, Outage, Report, RouterSpec, Spec};
use thunder_sim::workload::{Program, Recorded, Source, Turn, WORKLOADS, Workload};

use crate::model::EngineModel;
use crate::scheduler::SchedulerConfig;

import_exception!(thunder_router.errors, ConfigError);

/// Figures of the measured part of a simulated day.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct SimulationReport {
    steps: u64,
    programs: u64,
    steps_per_min: f64,
    programs_per_hour: f64,
    prompt_tokens: u64,
    cached_device_tokens: u64,
    cached_host_tokens: u64,
    reusable_tokens: u64,
    recomputed_tokens: u64,
    generated_tokens: u64,
    hit_rate: f64,
    ideal_hit_rate: f64,
    retractions: u64,
    refused: u64,
    failed: u64,
    pauses: u64,
    hold_p50_ms: u64,
    hold_p99_ms: u64,
    hold_max_ms: u64,
    first_token_p50_ms: u64,
    first_token_p99_ms: u64,
    turn_p50_ms: u64,
    turn_p90_ms: u64,
    turn_p99_ms: u64,
}

impl From<Report> for SimulationReport {
    fn from(report: Report) -> Self {
        Self {
            steps: report.steps,
            programs: report.programs,
            steps_per_min: report.steps_per_min,
            programs_per_hour: report.programs_per_hour,
            prompt_tokens: report.prompt_tokens,
            cached_device_tokens: report.cached_device_tokens,
            cached_host_tokens: report.cached_host_tokens,
            reusable_tokens: report.reusable_tokens,
            recomputed_tokens: report.recomputed_tokens,
            generated_tokens: report.generated_tokens,
            hit_rate: report.hit_rate(),
            ideal_hit_rate: report.ideal_hit_rate(),
            retractions: report.retractions,
            refused: report.refused,
            failed: report.failed,
            pauses: report.pauses,
            hold_p50_ms: report.hold_p50_ms,
            hold_p99_ms: report.hold_p99_ms,
            hold_max_ms: report.hold_max_ms,
            first_token_p50_ms: report.first_token_p50_ms,
            first_token_p99_ms: report.first_token_p99_ms,
            turn_p50_ms: report.turn_p50_ms,
            turn_p90_ms: report.turn_p90_ms,
            turn_p99_ms: report.turn_p99_ms,
        }
    }
}

/// One turn of a program.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct AgentTurn {
    prompt: Vec<(u64, u64)>,
    answer: (u64, u64),
    reusable_tokens: u64,
    tool: Option<&'static str>,
    tool_us: u64,
}

/// One agent program, turn by turn.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct AgentProgram(Mutex<Program>);

/// What `simulate` plays: the name of a kind of program, or recorded sessions.
#[derive(FromPyObject)]
pub(crate) enum WorkloadOrSessions {
    Kind(String),
    Sessions(Vec<Vec<(u64, u64, u64, f64)>>),
}

impl WorkloadOrSessions {
    fn source(self) -> PyResult<Source> {
        match self {
            Self::Kind(name) => named(&name).map(|workload| Source::Kind(*workload)),
            Self::Sessions(sessions) => {
                let turn = |(prompt, output, reuse, gap_s)| Recorded {
                    prompt,
                    output,
                    reuse,
                    gap_s,
                };
                let sessions = sessions.into_iter();
                let sessions: Vec<Vec<Recorded>> = sessions
                    .map(|turns| turns.into_iter().map(turn).collect())
                    .collect();
                Ok(Source::Sessions(Arc::from(sessions)))
            }
        }
    }
}

fn named(name: &str) -> PyResult<&'static Workload> {
    Workload::named(name).ok_or_else(|| unknown("workload", name, &workloads()))
}

#[pymethods]
impl AgentProgram {
    #[new]
    #[pyo3(signature = (*, workload, seed, slot, ordinal, tool_scale, midway))]
    fn new(
        workload: &str,
        seed: u64,
        slot: u64,
        ordinal: u64,
        tool_scale: f64,
        midway: bool,
    ) -> PyResult<Self> {
        let source = Source::Kind(*named(workload)?);
        let mut program = source.program(seed, &[slot, ordinal], tool_scale);
        if midway {
            program.begin_midway();
        }
        Ok(Self(Mutex::new(program)))
    }

    fn turn(&self) -> Option<AgentTurn> {
        let mut program = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Turn {
            prompt,
            conversation,
            reusable_tokens,
            tool,
            tool_us,
            ..
        } = program.turn()?;
        let answer = conversation.last()?;
        Some(AgentTurn {
            prompt: prompt.iter().map(|span| (span.id, span.tokens)).collect(),
            answer: (answer.id, answer.tokens),
            reusable_tokens,
            tool,
            tool_us,
        })
    }
}

/// Names of the workloads whose distributions are known.
#[pyfunction]
pub(crate) fn workloads() -> Vec<&'static str> {
    WORKLOADS.iter().map(|workload| workload.name).collect()
}

/// Names of what the scheduler is compared with.
#[pyfunction]
pub(crate) fn baselines() -> Vec<&'static str> {
    BASELINES.iter().map(|(name, _)| *name).collect()
}

/// Plays one day in virtual time.
#[pyfunction]
#[pyo3(signature = (*, workload, model, router, workers, capacities, outages, programs, seed,
    warmup_s, measured_s, hicache_ratio, write_policy, page_tokens, sessions, releases, tool_scale,
    max_tokens))]
#[expect(
    clippy::too_many_arguments,
    reason = "keyword-only in Python, each with its name"
)]
pub(crate) fn simulate(
    py: Python<'_>,
    workload: WorkloadOrSessions,
    model: &Bound<'_, EngineModel>,
    router: &Bound<'_, PyAny>,
    workers: usize,
    capacities: Vec<u64>,
    outages: Vec<(usize, u64, u64)>,
    programs: usize,
    seed: u64,
    warmup_s: u64,
    measured_s: u64,
    hicache_ratio: f64,
    write_policy: &str,
    page_tokens: u64,
    sessions: bool,
    releases: bool,
    tool_scale: f64,
    max_tokens: u64,
) -> PyResult<SimulationReport> {
    let outage = |(worker, from_s, until_s)| Outage {
        worker,
        from_s,
        until_s,
    };
    let spec = Spec {
        source: workload.source()?,
        model: model.get().0.clone(),
        workers,
        capacities,
        outages: outages.into_iter().map(outage).collect(),
        programs,
        router: router_spec(router)?,
        seed,
        warmup_s,
        measured_s,
        hicache_ratio,
        write_policy: match write_policy {
            "write_through" => WritePolicy::Through,
            "write_back" => WritePolicy::Back,
            other => {
                return Err(unknown(
                    "write policy",
                    other,
                    &["write_through", "write_back"],
                ));
            }
        },
        page_tokens,
        sessions,
        releases,
        tool_scale,
        max_tokens,
    };
    let report = py.detach(|| cluster::simulate(&spec));
    report
        .map(SimulationReport::from)
        .map_err(|error| ConfigError::new_err(error.to_string()))
}

fn router_spec(router: &Bound<'_, PyAny>) -> PyResult<RouterSpec> {
    if let Ok(config) = router.cast::<SchedulerConfig>() {
        return Ok(RouterSpec::Core(config.get().0.clone()));
    }
    let name: &str = router.extract().map_err(|_| {
        PyTypeError::new_err("router must be a SchedulerConfig or the name of a baseline")
    })?;
    RouterSpec::baseline(name).ok_or_else(|| unknown("baseline", name, &baselines()))
}

pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> PyErr {
    ConfigError::new_err(format!("no {what} {name:?}; known: {}", known.join(", ")))
}
