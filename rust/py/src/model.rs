//! The constants of a model on its GPUs, as Python states them.

use pyo3::import_exception;
use pyo3::prelude::*;
use thunder_sim::model::{Model, PRESETS};

use crate::simulation::unknown;

import_exception!(thunder_router.errors, ConfigError);

/// What one iteration of an engine costs.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct EngineModel(pub(crate) Model);

const PICOS_PER_NANO: f64 = 1e3;
const PICOS_PER_MICRO: f64 = 1e6;
const PICOS_PER_MILLI: f64 = 1e9;

#[pymethods]
impl EngineModel {
    #[new]
    #[pyo3(signature = (*, capacity_tokens, prefill_us_per_token, prefill_ns_per_token2, base_ms,
        experts_ms, expert_share, kv_read_ns_per_token, load_back_us_per_token, chunk_tokens))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only in Python, each with its name"
    )]
    fn new(
        capacity_tokens: u64,
        prefill_us_per_token: f64,
        prefill_ns_per_token2: f64,
        base_ms: f64,
        experts_ms: f64,
        expert_share: f64,
        kv_read_ns_per_token: f64,
        load_back_us_per_token: f64,
        chunk_tokens: u64,
    ) -> PyResult<Self> {
        if !(0.0..=1.0).contains(&expert_share) {
            return Err(ConfigError::new_err(format!(
                "expert_share = {expert_share} must be in 0 to 1"
            )));
        }
        Ok(Self(Model {
            name: "custom",
            capacity_tokens,
            prefill_ps: picos(
                "prefill_us_per_token",
                prefill_us_per_token,
                PICOS_PER_MICRO,
            )?,
            prefill_context_ps: picos(
                "prefill_ns_per_token2",
                prefill_ns_per_token2,
                PICOS_PER_NANO,
            )?,
            base_ps: picos("base_ms", base_ms, PICOS_PER_MILLI)?,
            experts_ps: picos("experts_ms", experts_ms, PICOS_PER_MILLI)?,
            expert_share,
            kv_read_ps: picos("kv_read_ns_per_token", kv_read_ns_per_token, PICOS_PER_NANO)?,
            load_back_ps: picos(
                "load_back_us_per_token",
                load_back_us_per_token,
                PICOS_PER_MICRO,
            )?,
            chunk_tokens,
        }))
    }

    /// The known model of this name.
    #[staticmethod]
    fn preset(name: &str) -> PyResult<Self> {
        let known: Vec<&str> = PRESETS.iter().map(|model| model.name).collect();
        let found = Model::preset(name).cloned().map(Self);
        found.ok_or_else(|| unknown("model", name, &known))
    }

    #[getter]
    fn capacity_tokens(&self) -> u64 {
        self.0.capacity_tokens
    }

    #[getter]
    fn prefill_us_per_token(&self) -> f64 {
        units(self.0.prefill_ps, PICOS_PER_MICRO)
    }

    #[getter]
    fn prefill_ns_per_token2(&self) -> f64 {
        units(self.0.prefill_context_ps, PICOS_PER_NANO)
    }

    #[getter]
    fn base_ms(&self) -> f64 {
        units(self.0.base_ps, PICOS_PER_MILLI)
    }

    #[getter]
    fn experts_ms(&self) -> f64 {
        units(self.0.experts_ps, PICOS_PER_MILLI)
    }

    #[getter]
    fn expert_share(&self) -> f64 {
        self.0.expert_share
    }

    #[getter]
    fn kv_read_ns_per_token(&self) -> f64 {
        units(self.0.kv_read_ps, PICOS_PER_NANO)
    }

    #[getter]
    fn load_back_us_per_token(&self) -> f64 {
        units(self.0.load_back_ps, PICOS_PER_MICRO)
    }

    #[getter]
    fn chunk_tokens(&self) -> u64 {
        self.0.chunk_tokens
    }
}

/// A constant in whole picoseconds. None takes longer than a minute.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Checked to be in range.
fn picos(name: &str, value: f64, scale: f64) -> PyResult<u64> {
    let picos = (value * scale).round();
    if (0.0..=60_000.0 * PICOS_PER_MILLI).contains(&picos) {
        Ok(picos as u64)
    } else {
        Err(ConfigError::new_err(format!(
            "{name} = {value} must be at least 0 and below a minute"
        )))
    }
}

#[allow(clippy::cast_precision_loss)] // Below 2^53.
fn units(picos: u64, scale: f64) -> f64 {
    picos as f64 / scale
}
