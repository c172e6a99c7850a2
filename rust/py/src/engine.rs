//! `Engine` and its events for Python: the emulated worker's clockwork.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::import_exception;
use pyo3::prelude::*;
use thunder_sim::cache::WritePolicy;
use thunder_sim::engine::{
    self as sim, EngineConfig, EventKind, Finish, PauseMode, Refusal, Submission,
};
use thunder_sim::model::{Model, PRESETS};
use thunder_sim::span;

import_exception!(thunder_router.errors, ConfigError);
import_exception!(thunder_router.errors, DuplicateRequestError);

/// Prefill is done and the first token is out.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct FirstToken {
    request: u64,
    at_us: u64,
    cached_device: u64,
    cached_host: u64,
}

/// So many tokens are out, in total.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct Progress {
    request: u64,
    at_us: u64,
    decoded: u64,
}

/// It lost its KV to others and queues again.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct Retracted {
    request: u64,
    at_us: u64,
}

/// A request of higher priority took its place in the full queue.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct Displaced {
    request: u64,
    at_us: u64,
}

/// It is over.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct Finished {
    request: u64,
    at_us: u64,
    aborted: bool,
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_device: u64,
    cached_host: u64,
    retractions: u32,
    queue_us: u64,
}

/// An engine at one instant.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct EngineLoads {
    running: u64,
    waiting: u64,
    retracted: u64,
    waiting_tokens: u64,
    waiting_uncached_tokens: u64,
    used_tokens: u64,
    evictable_tokens: u64,
    free_tokens: u64,
    host_tokens: u64,
    decoding_tokens: u64,
    new_token_ratio: f64,
}

/// Sums since an engine was made.
#[pyclass(frozen, get_all, module = "thunder_router._core")]
pub(crate) struct EngineCounts {
    submitted: u64,
    finished: u64,
    aborted: u64,
    retractions: u64,
    prompt_tokens: u64,
    cached_device_tokens: u64,
    cached_host_tokens: u64,
    prefilled_tokens: u64,
    recomputed_tokens: u64,
    generated_tokens: u64,
    prefill_busy_us: u64,
    evicted_tokens: u64,
    loaded_back_tokens: u64,
    backed_up_tokens: u64,
    host_evicted_tokens: u64,
}

/// One emulated engine (one DP rank) in virtual time.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Engine {
    inner: Mutex<sim::Engine>,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (*, model, capacity_tokens, page_tokens, host_tokens, write_policy, max_running, max_queued, session_radix, priority_scheduling, progress_us))]
    #[allow(clippy::too_many_arguments)] // Keyword-only in Python, one struct in Rust.
    fn new(
        model: &str,
        capacity_tokens: Option<u64>,
        page_tokens: u64,
        host_tokens: u64,
        write_policy: &str,
        max_running: usize,
        max_queued: Option<usize>,
        session_radix: bool,
        priority_scheduling: bool,
        progress_us: u64,
    ) -> PyResult<Self> {
        let mut model = Model::preset(model).cloned().ok_or_else(|| {
            ConfigError::new_err(format!(
                "no model {model:?}; known: {}",
                Self::models().join(", ")
            ))
        })?;
        if let Some(tokens) = capacity_tokens {
            model.capacity_tokens = tokens;
        }
        if page_tokens > 0 {
            model.capacity_tokens -= model.capacity_tokens % page_tokens;
        }
        let config = EngineConfig {
            model,
            page_tokens,
            host_tokens,
            write_policy: match write_policy {
                "write_through" => WritePolicy::Through,
                "write_back" => WritePolicy::Back,
                other => return Err(ConfigError::new_err(format!("no write policy {other:?}"))),
            },
            max_running,
            max_queued,
            session_radix,
            priority_scheduling,
            progress_us,
        };
        let inner = sim::Engine::new(config).map_err(|e| ConfigError::new_err(e.to_string()))?;
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    #[staticmethod]
    fn models() -> Vec<&'static str> {
        PRESETS.iter().map(|model| model.name).collect()
    }

    #[getter]
    fn capacity_tokens(&self) -> u64 {
        self.lock().config().model.capacity_tokens
    }

    #[getter]
    fn max_prompt_tokens(&self) -> u64 {
        self.lock().max_prompt_tokens()
    }

    #[getter]
    fn idle(&self) -> bool {
        self.lock().idle()
    }

    #[getter]
    fn paused(&self) -> bool {
        self.lock().paused()
    }

    #[pyo3(signature = (request, *, prompt, prompt_tokens, answer, output_tokens, max_tokens, bytes_per_token, priority, session, progress, now_us))]
    #[allow(clippy::too_many_arguments)]
    fn submit(
        &self,
        request: u64,
        prompt: &[u8],
        prompt_tokens: u64,
        answer: &[u8],
        output_tokens: u64,
        max_tokens: u64,
        bytes_per_token: f64,
        priority: i64,
        session: Option<&str>,
        progress: bool,
        now_us: u64,
    ) -> PyResult<Option<&'static str>> {
        if !(bytes_per_token > 0.0 && bytes_per_token <= 1024.0) {
            return Err(PyValueError::new_err(
                "bytes_per_token must be above 0 and at most 1024",
            ));
        }
        // A small positive number: 64 × 1024 at most.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let block = ((span::BLOCK_TOKENS as f64 * bytes_per_token).round() as usize).max(1);
        let spans = span::blocks(prompt, prompt_tokens.max(1), block);
        let spec = Submission {
            request,
            conversation: span::answered(&spans, prompt, answer, output_tokens, block),
            prompt: spans,
            output_tokens,
            max_tokens,
            priority,
            session: session.map(|name| span::digest(0, name.as_bytes())),
            progress,
        };
        match self.lock().submit(spec, now_us) {
            Ok(()) => Ok(None),
            Err(Refusal::TooLong { .. }) => Ok(Some("too_long")),
            Err(Refusal::QueueFull) => Ok(Some("queue_full")),
            Err(refusal @ Refusal::Duplicate(_)) => {
                Err(DuplicateRequestError::new_err(refusal.to_string()))
            }
        }
    }

    fn abort(&self, request: u64, now_us: u64) -> bool {
        self.lock().abort(request, now_us)
    }

    fn advance(&self, py: Python<'_>, now_us: u64) -> PyResult<Vec<Py<PyAny>>> {
        let events = self.lock().advance(now_us);
        events
            .into_iter()
            .map(|event| to_python(py, &event))
            .collect()
    }

    fn next_event_us(&self) -> Option<u64> {
        self.lock().next_event_us()
    }

    fn decoded(&self, request: u64, now_us: u64) -> Option<u64> {
        self.lock().decoded(request, now_us)
    }

    fn close_session(&self, session: &str, now_us: u64) {
        self.lock()
            .close_session(span::digest(0, session.as_bytes()), now_us);
    }

    fn flush(&self) -> bool {
        self.lock().flush()
    }

    fn pause(&self, mode: &str, now_us: u64) -> PyResult<()> {
        let mode = match mode {
            "abort" => PauseMode::Abort,
            "retract" => PauseMode::Retract,
            "in_place" => PauseMode::InPlace,
            other => return Err(PyValueError::new_err(format!("no pause mode {other:?}"))),
        };
        self.lock().pause(mode, now_us);
        Ok(())
    }

    fn resume(&self, now_us: u64) {
        self.lock().resume(now_us);
    }

    #[allow(clippy::cast_precision_loss)]
    fn loads(&self, now_us: u64) -> EngineLoads {
        let loads = self.lock().loads(now_us);
        EngineLoads {
            running: loads.running,
            waiting: loads.waiting,
            retracted: loads.retracted,
            waiting_tokens: loads.waiting_tokens,
            waiting_uncached_tokens: loads.waiting_uncached_tokens,
            used_tokens: loads.used_tokens,
            evictable_tokens: loads.evictable_tokens,
            free_tokens: loads.free_tokens,
            host_tokens: loads.host_tokens,
            decoding_tokens: loads.decoding_tokens,
            new_token_ratio: loads.new_token_ratio_ppm as f64 / 1e6,
        }
    }

    fn counts(&self) -> EngineCounts {
        let engine = self.lock();
        let (counts, cache) = (engine.counts(), engine.cache_counts());
        EngineCounts {
            submitted: counts.submitted,
            finished: counts.finished,
            aborted: counts.aborted,
            retractions: counts.retractions,
            prompt_tokens: counts.prompt,
            cached_device_tokens: counts.cached_device,
            cached_host_tokens: counts.cached_host,
            prefilled_tokens: counts.prefilled,
            recomputed_tokens: counts.recomputed,
            generated_tokens: counts.generated,
            prefill_busy_us: counts.prefill_busy_us(),
            evicted_tokens: cache.evicted,
            loaded_back_tokens: cache.loaded_back,
            backed_up_tokens: cache.backed_up,
            host_evicted_tokens: cache.host_evicted,
        }
    }
}

impl Engine {
    /// A panic inside leaves the engine as it was: its books are checked by tests, not by poison.
    fn lock(&self) -> MutexGuard<'_, sim::Engine> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_python(py: Python<'_>, event: &sim::Event) -> PyResult<Py<PyAny>> {
    let (request, at_us) = (event.request, event.at_us);
    Ok(match event.kind {
        EventKind::FirstToken {
            cached_device,
            cached_host,
        } => Py::new(
            py,
            FirstToken {
                request,
                at_us,
                cached_device,
                cached_host,
            },
        )?
        .into_any(),
        EventKind::Progress { decoded } => Py::new(
            py,
            Progress {
                request,
                at_us,
                decoded,
            },
        )?
        .into_any(),
        EventKind::Retracted => Py::new(py, Retracted { request, at_us })?.into_any(),
        EventKind::Displaced => Py::new(py, Displaced { request, at_us })?.into_any(),
        EventKind::Finished(finish) => Py::new(py, finished(request, at_us, &finish))?.into_any(),
    })
}

fn finished(request: u64, at_us: u64, finish: &Finish) -> Finished {
    Finished {
        request,
        at_us,
        aborted: finish.aborted,
        prompt_tokens: finish.prompt_tokens,
        completion_tokens: finish.completion_tokens,
        cached_device: finish.cached_device,
        cached_host: finish.cached_host,
        retractions: finish.retractions,
        queue_us: finish.queue_us,
    }
}
