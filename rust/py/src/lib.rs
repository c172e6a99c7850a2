//! Python bindings: the module `thunder_router._core`.
//!
//! The only crate that knows Python. Each room of the Rust side has one file here; nothing
//! decides anything.

mod decisions;
mod engine;
mod errors;
mod head;
mod model;
mod scheduler;
mod simulation;
mod views;
mod wire;

use pyo3::prelude::*;

/// The native core of thunder-router. `_core.pyi` is its manual.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::decisions::{Admit, Expire, Hold, Pause, Prepare, Reject, Restore};
    #[pymodule_export]
    use crate::engine::{
        Displaced, Engine, EngineCounts, EngineLoads, Finished, FirstToken, Progress, Retracted,
    };
    #[pymodule_export]
    use crate::head::{Headers, answer_head, read_plain_answer, read_plain_request, request_head};
    #[pymodule_export]
    use crate::model::EngineModel;
    #[pymodule_export]
    use crate::scheduler::{Scheduler, SchedulerConfig};
    #[pymodule_export]
    use crate::simulation::{
        AgentProgram, AgentTurn, SimulationReport, baselines, simulate, workloads,
    };
    #[pymodule_export]
    use crate::views::{ProgramView, TenantView, WorkerView};
    #[pymodule_export]
    use crate::wire::{RequestFacts, ResponseScanner, scan_request};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // What is public is what the stub names, nothing else to be kept in step.
        module.delattr("__all__")
    }
}
