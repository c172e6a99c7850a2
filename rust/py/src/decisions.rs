//! The seven decisions as frozen Python classes. A reason becomes a sentence only when it is read.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use thunder_core::{Decision, Millis, Reason, Rejection, RequestId, Seat};

/// Send this request to this seat now.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Admit {
    request: RequestId,
    seat: Seat,
    reason: Reason,
}

#[pymethods]
impl Admit {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("request", "worker", "rank")
    }

    #[getter]
    fn request(&self) -> u64 {
        self.request.0
    }

    #[getter]
    fn worker(&self) -> u32 {
        self.seat.worker.0
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.seat.rank.0
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// Keep this request waiting.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Hold {
    request: RequestId,
    reason: Reason,
}

#[pymethods]
impl Hold {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("request",)
    }

    #[getter]
    fn request(&self) -> u64 {
        self.request.0
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// Answer this request with an error.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Reject {
    request: RequestId,
    kind: Rejection,
    retry_after: Millis,
    reason: Reason,
}

#[pymethods]
impl Reject {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("request", "kind", "retry_after_ms")
    }

    #[getter]
    fn request(&self) -> u64 {
        self.request.0
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.kind.as_str()
    }

    #[getter]
    fn retry_after_ms(&self) -> Millis {
        self.retry_after
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// The program gave up its seat.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Pause {
    program: Arc<str>,
    seat: Seat,
    reason: Reason,
}

#[pymethods]
impl Pause {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("program", "worker", "rank")
    }

    #[getter]
    fn program(&self) -> &str {
        &self.program
    }

    #[getter]
    fn worker(&self) -> u32 {
        self.seat.worker.0
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.seat.rank.0
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// The paused program has a seat again.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Restore {
    program: Arc<str>,
    seat: Seat,
    reason: Reason,
}

#[pymethods]
impl Restore {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("program", "worker", "rank")
    }

    #[getter]
    fn program(&self) -> &str {
        &self.program
    }

    #[getter]
    fn worker(&self) -> u32 {
        self.seat.worker.0
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.seat.rank.0
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// This waiting program's turn comes soon.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Prepare {
    program: Arc<str>,
    expected_wait: Millis,
    reason: Reason,
}

#[pymethods]
impl Prepare {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("program", "expected_wait_ms")
    }

    #[getter]
    fn program(&self) -> &str {
        &self.program
    }

    #[getter]
    fn expected_wait_ms(&self) -> Millis {
        self.expected_wait
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// The program is forgotten.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Expire {
    program: Arc<str>,
    reason: Reason,
}

#[pymethods]
impl Expire {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("program",)
    }

    #[getter]
    fn program(&self) -> &str {
        &self.program
    }

    #[getter]
    fn reason(&self) -> String {
        self.reason.to_string()
    }
}

/// The decision as its Python class.
pub(crate) fn to_python(py: Python<'_>, decision: Decision) -> PyResult<Py<PyAny>> {
    match decision {
        Decision::Admit {
            request,
            seat,
            reason,
        } => Admit {
            request,
            seat,
            reason,
        }
        .into_py_any(py),
        Decision::Hold { request, reason } => Hold { request, reason }.into_py_any(py),
        Decision::Reject {
            request,
            kind,
            retry_after,
            reason,
        } => Reject {
            request,
            kind,
            retry_after,
            reason,
        }
        .into_py_any(py),
        Decision::Pause {
            program,
            seat,
            reason,
        } => Pause {
            program,
            seat,
            reason,
        }
        .into_py_any(py),
        Decision::Restore {
            program,
            seat,
            reason,
        } => Restore {
            program,
            seat,
            reason,
        }
        .into_py_any(py),
        Decision::Prepare {
            program,
            expected_wait,
            reason,
        } => Prepare {
            program,
            expected_wait,
            reason,
        }
        .into_py_any(py),
        Decision::Expire { program, reason } => Expire { program, reason }.into_py_any(py),
    }
}
