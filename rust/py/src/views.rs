//! Programs and workers as they stand, as Python reads them: fields are converted when asked for.

use pyo3::prelude::*;
use thunder_core as core;

/// One program as it stands.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct ProgramView(pub(crate) core::ProgramView);

#[pymethods]
impl ProgramView {
    #[getter]
    fn program(&self) -> &str {
        &self.0.program
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation
    }

    #[getter]
    fn group(&self) -> Option<&str> {
        self.0.group.as_deref()
    }

    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    #[getter]
    fn operator(&self) -> bool {
        self.0.operator
    }

    #[getter]
    fn phase(&self) -> &'static str {
        self.0.phase.as_str()
    }

    #[getter]
    fn status(&self) -> &'static str {
        self.0.status.as_str()
    }

    #[getter]
    fn worker(&self) -> Option<u32> {
        self.0.seat.map(|seat| seat.worker.0)
    }

    #[getter]
    fn rank(&self) -> Option<u16> {
        self.0.seat.map(|seat| seat.rank.0)
    }

    #[getter]
    fn origin(&self) -> Option<(u32, u16)> {
        self.0.origin.map(|seat| (seat.worker.0, seat.rank.0))
    }

    #[getter]
    fn context_tokens(&self) -> u64 {
        self.0.context_tokens
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.0.in_flight
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.0.waiting
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.0.steps
    }

    #[getter]
    fn idle_ms(&self) -> u64 {
        self.0.idle_ms
    }

    #[getter]
    fn held_ms(&self) -> u64 {
        self.0.held_ms
    }
}

/// One tenant as it stands.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct TenantView(pub(crate) core::TenantView);

#[pymethods]
impl TenantView {
    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.0.weight
    }

    #[getter]
    fn charged_tokens(&self) -> u64 {
        self.0.charged_tokens
    }

    #[getter]
    fn programs(&self) -> usize {
        self.0.programs
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.0.waiting
    }
}

/// One (worker, DP rank) budget as it stands.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct WorkerView(pub(crate) core::WorkerView);

#[pymethods]
impl WorkerView {
    #[getter]
    fn worker(&self) -> u32 {
        self.0.seat.worker.0
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.0.seat.rank.0
    }

    #[getter]
    fn state(&self) -> &'static str {
        self.0.state.as_str()
    }

    #[getter]
    fn device_tokens(&self) -> Option<u64> {
        self.0.device_tokens
    }

    #[getter]
    fn host_tokens(&self) -> u64 {
        self.0.host_tokens
    }

    #[getter]
    fn charged_tokens(&self) -> u64 {
        self.0.charged_tokens
    }

    #[getter]
    fn shared_tokens(&self) -> u64 {
        self.0.shared_tokens
    }

    #[getter]
    fn free_tokens(&self) -> Option<u64> {
        self.0.free_tokens
    }

    #[getter]
    fn margin_tokens(&self) -> u64 {
        self.0.margin_tokens
    }

    #[getter]
    fn programs(&self) -> usize {
        self.0.programs
    }

    #[getter]
    fn reasoning(&self) -> usize {
        self.0.reasoning
    }

    #[getter]
    fn acting(&self) -> usize {
        self.0.acting
    }

    #[getter]
    fn in_flight(&self) -> u32 {
        self.0.in_flight
    }
}
