//! Python's view of thunder-core: conversions, and nothing that decides.
//!
//! `Scheduler` is frozen around a mutex. Every event is too short to be worth releasing the
//! interpreter; a tick with much to look at is not. Nothing here formats a string unless a reason
//! is asked for. A panic inside the core becomes an `InvariantError`: its books cannot be trusted
//! any more, but its process can.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use thunder_core as core;
use thunder_core::{Error, PolicyName, Rank, RequestId, Seat, WorkerId};

use crate::decisions::to_python;
use crate::errors::{panicked, raise, raised};
use crate::views::{ProgramView, TenantView, WorkerView};

/// The scheduler's constants.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct SchedulerConfig(pub(crate) core::SchedulerConfig);

#[pymethods]
impl SchedulerConfig {
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "switches, each with its name"
    )]
    #[pyo3(signature = (*, policy, tick_ms, queue_limit, hold_limit_ms, no_worker_limit_ms, paper_tick_ms,
        paper_half_life_ms, paper_lambda_max, paper_lambda_min, event_driven, shared_prefix,
        origin_affinity, growth_steps_paused, growth_steps_new, margin_min, margin_max,
        displacement_eta, lease_ms, lease_min_ms, idle_timeout_ms, aimd, aimd_raise_above,
        aimd_lower_below, aimd_cap, reservation_ms, time_slice_ms, time_slice_restore_factor,
        mark_running_above, host_tier, weight_sync_timeout_ms))]
    fn new(
        policy: &str,
        tick_ms: u64,
        queue_limit: usize,
        hold_limit_ms: u64,
        no_worker_limit_ms: u64,
        paper_tick_ms: u64,
        paper_half_life_ms: u64,
        paper_lambda_max: f64,
        paper_lambda_min: f64,
        event_driven: bool,
        shared_prefix: bool,
        origin_affinity: bool,
        growth_steps_paused: f64,
        growth_steps_new: f64,
        margin_min: f64,
        margin_max: f64,
        displacement_eta: f64,
        lease_ms: u64,
        lease_min_ms: u64,
        idle_timeout_ms: u64,
        aimd: bool,
        aimd_raise_above: f64,
        aimd_lower_below: f64,
        aimd_cap: f64,
        reservation_ms: Option<u64>,
        time_slice_ms: Option<u64>,
        time_slice_restore_factor: f64,
        mark_running_above: f64,
        host_tier: bool,
        weight_sync_timeout_ms: u64,
    ) -> PyResult<Self> {
        let policy = match policy {
            "off" => PolicyName::Off,
            "paper" => PolicyName::Paper,
            "adaptive" => PolicyName::Adaptive,
            other => {
                let message = format!("policy = {other:?} must be off, paper or adaptive");
                return Err(raised::ConfigError::new_err(message));
            }
        };
        let config = core::SchedulerConfig {
            policy,
            tick_ms,
            queue_limit,
            hold_limit_ms,
            no_worker_limit_ms,
            paper_tick_ms,
            paper_half_life_ms,
            paper_lambda_max,
            paper_lambda_min,
            event_driven,
            shared_prefix,
            origin_affinity,
            growth_steps_paused,
            growth_steps_new,
            margin_min,
            margin_max,
            displacement_eta,
            lease_ms,
            lease_min_ms,
            idle_timeout_ms,
            aimd,
            aimd_raise_above,
            aimd_lower_below,
            aimd_cap,
            reservation_ms,
            time_slice_ms,
            time_slice_restore_factor,
            mark_running_above,
            host_tier,
            weight_sync_timeout_ms,
        };
        config.validate().map_err(|error| raise(&error))?;
        Ok(Self(config))
    }
}

/// Waiting requests above which a tick lets other Python threads run: it takes tens of
/// microseconds then, where giving up the interpreter and taking it back costs a fraction of one.
const WORTH_DETACHING: usize = 64;

/// Programs, workers and the global waiting queue.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Scheduler(Mutex<core::Scheduler>);

impl Scheduler {
    /// A poisoned lock is taken all the same: the panic that poisoned it was reported by then.
    fn lock(&self) -> MutexGuard<'_, core::Scheduler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut core::Scheduler) -> T) -> PyResult<T> {
        let mut core = self.lock();
        catch_unwind(AssertUnwindSafe(|| act(&mut core))).map_err(|panic| panicked(&*panic))
    }

    fn event<T>(&self, act: impl FnOnce(&mut core::Scheduler) -> Result<T, Error>) -> PyResult<T> {
        self.with(act)?.map_err(|error| raise(&error))
    }
}

#[pymethods]
impl Scheduler {
    #[new]
    fn new(config: &SchedulerConfig) -> PyResult<Self> {
        let core = core::Scheduler::new(config.0.clone()).map_err(|error| raise(&error))?;
        Ok(Self(Mutex::new(core)))
    }

    // === Workers ===

    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    #[pyo3(signature = (worker, rank, *, device_tokens, host_tokens = 0, write_back = false,
        prefill_us_per_token, prefill_ns_per_token2, load_back_us_per_token, sessions, now_ms))]
    fn worker_up(
        &self,
        worker: u32,
        rank: u16,
        device_tokens: Option<u64>,
        host_tokens: u64,
        write_back: bool,
        prefill_us_per_token: f64,
        prefill_ns_per_token2: f64,
        load_back_us_per_token: f64,
        sessions: bool,
        now_ms: u64,
    ) -> PyResult<()> {
        let facts = core::SeatFacts {
            device_tokens,
            host_tokens,
            write_back,
            prefill_us_per_token,
            prefill_ns_per_token2,
            load_back_us_per_token,
            sessions,
        };
        self.event(|core| core.worker_up(Seat::new(worker, rank), facts, now_ms))
    }

    fn worker_unready(&self, worker: u32, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.worker_unready(WorkerId(worker), now_ms))
    }

    fn worker_draining(&self, worker: u32, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.worker_draining(WorkerId(worker), now_ms))
    }

    fn worker_down(&self, worker: u32, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.worker_down(WorkerId(worker), now_ms))
    }

    fn kv_flushed(&self, worker: u32, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.kv_flushed(WorkerId(worker), now_ms))
    }

    fn weight_sync_begin(&self, now_ms: u64) -> PyResult<()> {
        self.with(|core| core.weight_sync_begin(now_ms))
    }

    fn weight_sync_end(&self, now_ms: u64) -> PyResult<()> {
        self.with(|core| core.weight_sync_end(now_ms))
    }

    // === Requests ===

    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    #[pyo3(signature = (request, *, program, group = None, tenant = None, weight = 1, prompt_tokens,
        prefix = None, now_ms))]
    fn arrive(
        &self,
        request: u64,
        program: Option<&str>,
        group: Option<&str>,
        tenant: Option<&str>,
        weight: u32,
        prompt_tokens: u64,
        prefix: Option<u64>,
        now_ms: u64,
    ) -> PyResult<()> {
        let arrival = core::Arrival {
            program,
            group,
            tenant: tenant.map(|name| core::Tenant { name, weight }),
            prompt_tokens,
            prefix,
        };
        self.event(|core| core.arrive(RequestId(request), arrival, now_ms))
    }

    fn bounced(&self, request: u64, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.bounced(RequestId(request), now_ms))
    }

    fn progress(&self, request: u64, decoded_tokens: u64, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.progress(RequestId(request), decoded_tokens, now_ms))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    #[pyo3(signature = (request, *, prompt_tokens, completion_tokens, cached_tokens = None,
        cached_host_tokens = None, tool = None, now_ms))]
    fn finished(
        &self,
        request: u64,
        prompt_tokens: Option<u64>,
        completion_tokens: Option<u64>,
        cached_tokens: Option<u64>,
        cached_host_tokens: Option<u64>,
        tool: Option<&str>,
        now_ms: u64,
    ) -> PyResult<()> {
        let usage = core::Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cached_host_tokens,
            tool,
        };
        self.event(|core| core.finished(RequestId(request), usage, now_ms))
    }

    fn failed(&self, request: u64, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.failed(RequestId(request), now_ms))
    }

    fn cancelled(&self, request: u64, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.cancelled(RequestId(request), now_ms))
    }

    // === Programs ===

    fn release(&self, program: &str, now_ms: u64) -> PyResult<bool> {
        self.with(|core| core.release(program, now_ms))
    }

    fn pause(&self, program: &str, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.pause(program, now_ms))
    }

    fn restore(&self, program: &str, now_ms: u64) -> PyResult<()> {
        self.event(|core| core.restore(program, now_ms))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    #[pyo3(signature = (program, *, group, context_tokens, worker, rank, idle_ms, operator = false,
        now_ms))]
    fn remember(
        &self,
        program: &str,
        group: Option<&str>,
        context_tokens: u64,
        worker: Option<u32>,
        rank: Option<u16>,
        idle_ms: u64,
        operator: bool,
        now_ms: u64,
    ) -> PyResult<()> {
        let memory = core::Memory {
            group,
            context_tokens,
            seat: worker.map(|worker| (WorkerId(worker), Rank(rank.unwrap_or(0)))),
            idle_ms,
            operator,
        };
        self.event(|core| core.remember(program, memory, now_ms))
    }

    // === Deciding ===

    fn tick<'py>(&self, py: Python<'py>, now_ms: u64) -> PyResult<Bound<'py, PyList>> {
        let much = self.lock().counts().waiting > WORTH_DETACHING;
        let decisions = if much {
            py.detach(|| self.with(|core| core.tick(now_ms)))?
        } else {
            self.with(|core| core.tick(now_ms))?
        };
        let list = PyList::empty(py);
        for decision in decisions {
            list.append(to_python(py, decision)?)?;
        }
        Ok(list)
    }

    fn next_tick_ms(&self, now_ms: u64) -> PyResult<Option<u64>> {
        self.with(|core| core.next_tick_ms(now_ms))
    }

    // === Looking ===

    fn program(&self, program: &str, now_ms: u64) -> PyResult<Option<ProgramView>> {
        self.with(|core| core.program(program, now_ms).map(ProgramView))
    }

    fn programs(&self, now_ms: u64) -> PyResult<Vec<ProgramView>> {
        self.with(|core| core.programs(now_ms).into_iter().map(ProgramView).collect())
    }

    fn workers(&self) -> PyResult<Vec<WorkerView>> {
        self.with(|core| core.workers().into_iter().map(WorkerView).collect())
    }

    fn tenants(&self) -> PyResult<Vec<TenantView>> {
        self.with(|core| core.tenants().into_iter().map(TenantView).collect())
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.with(|core| core.counts())?;
        let named = PyDict::new(py);
        named.set_item("programs", counts.programs)?;
        named.set_item("active", counts.active)?;
        named.set_item("paused", counts.paused)?;
        named.set_item("waiting", counts.waiting)?;
        named.set_item("in_flight", counts.in_flight)?;
        named.set_item("workers", counts.workers)?;
        Ok(named)
    }

    fn check(&self) -> PyResult<()> {
        self.event(|core| core.check())
    }
}
