//! `scan_request`, `RequestFacts` and `ResponseScanner`: thunder-wire for Python.

use pyo3::exceptions::PyValueError;
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyTuple};
use thunder_wire::request::{self, Optional, Piece, Rewrite, Splice};
use thunder_wire::response::{Passed, Scanner};
use thunder_wire::{BodyError, Dialect};

import_exception!(thunder_router.errors, InvalidBodyError);

/// Bytes of a body up to which copying them costs less than one more part to write.
const MOST_COPIED: usize = 16 * 1024;

/// Every way a body can be wrong is the same to a client: a 400 whose message says what and where.
fn refused(error: &BodyError) -> PyErr {
    InvalidBodyError::new_err(error.to_string())
}

fn named(name: &str) -> PyResult<Dialect> {
    Dialect::named(name).ok_or_else(|| PyValueError::new_err(format!("no such dialect: {name:?}")))
}

/// What one pass over a request body found. `_core.pyi` says what each field means.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct RequestFacts(request::RequestFacts);

#[pymethods]
impl RequestFacts {
    #[getter]
    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    #[getter]
    fn stream(&self) -> bool {
        self.0.stream
    }

    #[getter]
    fn include_usage(&self) -> bool {
        self.0.include_usage
    }

    #[getter]
    fn identity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            py,
            self.0
                .identity
                .iter()
                .map(|(path, value)| (*path, value.as_str())),
        )
    }

    #[getter]
    fn r#final(&self) -> bool {
        self.0.is_final
    }

    #[getter]
    fn final_only(&self) -> bool {
        self.0.is_final && self.0.is_empty
    }

    #[getter]
    fn docker_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.docker_ids)
    }

    #[getter]
    fn priority(&self) -> Option<i64> {
        self.0.priority
    }

    #[getter]
    fn rid(&self) -> Option<&str> {
        self.0.rid.as_deref()
    }

    #[getter]
    fn n(&self) -> u64 {
        self.0.n
    }

    #[getter]
    fn max_new_tokens(&self) -> Option<u64> {
        self.0.max_new_tokens
    }

    #[getter]
    fn text_bytes(&self) -> u64 {
        self.0.text_bytes
    }

    #[getter]
    fn text_chars(&self) -> u64 {
        self.0.text_chars
    }

    #[getter]
    fn wide_chars(&self) -> u64 {
        self.0.wide_chars
    }

    #[getter]
    fn media_items(&self) -> u64 {
        self.0.media_items
    }

    #[getter]
    fn media_bytes(&self) -> u64 {
        self.0.media_bytes
    }

    #[getter]
    fn token_ids(&self) -> u64 {
        self.0.token_ids
    }

    #[getter]
    fn messages(&self) -> u64 {
        self.0.messages
    }

    #[getter]
    fn prefix(&self) -> Option<u64> {
        self.0.prefix
    }

    #[pyo3(signature = (body, *, include_usage, drop = Vec::new(), session_id = None, rid = None, priority = None, dp_rank = None))]
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "arguments of Python"
    )]
    fn forward<'py>(
        &self,
        body: &Bound<'py, PyBytes>,
        include_usage: bool,
        drop: Vec<PyBackedStr>,
        session_id: Option<&str>,
        rid: Option<&str>,
        priority: Option<i64>,
        dp_rank: Option<u32>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = |name: &PyBackedStr| {
            Optional::named(name)
                .ok_or_else(|| PyValueError::new_err(format!("cannot drop {name:?}")))
        };
        let drop = drop.iter().map(field).collect::<PyResult<Vec<_>>>()?;
        let splice = Splice {
            include_usage,
            drop: &drop,
            session_id,
            rid,
            priority,
            dp_rank,
        };
        let Some(rewrite) = self
            .0
            .rewrite(body.as_bytes(), &splice)
            .map_err(|error| refused(&error))?
        else {
            return PyTuple::new(body.py(), [body]);
        };
        parts(body, &rewrite)
    }
}

/// A changed body: spans of the client's own as views of it, what is short copied together.
fn parts<'py>(body: &Bound<'py, PyBytes>, rewrite: &Rewrite<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let py = body.py();
    let mut parts: Vec<Bound<'py, PyAny>> = Vec::new();
    let mut copied = Vec::new();
    for piece in rewrite.pieces() {
        match piece {
            Piece::Kept(span) if span.len() > MOST_COPIED => {
                if !copied.is_empty() {
                    parts.push(PyBytes::new(py, &std::mem::take(&mut copied)).into_any());
                }
                let slice = PySlice::new(py, span.start.cast_signed(), span.end.cast_signed(), 1);
                parts.push(PyMemoryView::from(body)?.get_item(slice)?);
            }
            _ => copied.extend_from_slice(rewrite.bytes(&piece)),
        }
    }
    if !copied.is_empty() {
        parts.push(PyBytes::new(py, &copied).into_any());
    }
    PyTuple::new(py, parts)
}

/// One pass over a request body. `_core.pyi` is its manual.
#[pyfunction]
#[pyo3(name = "scan_request")]
pub(crate) fn scan_request(body: &[u8], dialect: &str) -> PyResult<RequestFacts> {
    let dialect = named(dialect)?;
    request::scan(body, dialect)
        .map(RequestFacts)
        .map_err(|error| refused(&error))
}

/// Reads an answer as it streams. `_core.pyi` says what each field means.
#[pyclass(module = "thunder_router._core")]
pub(crate) struct ResponseScanner(Scanner);

#[pymethods]
impl ResponseScanner {
    #[new]
    #[pyo3(signature = (dialect, *, stream, strip_usage))]
    fn new(dialect: &str, stream: bool, strip_usage: bool) -> PyResult<Self> {
        Ok(Self(Scanner::new(named(dialect)?, stream, strip_usage)))
    }

    fn feed<'py>(&mut self, chunk: &Bound<'py, PyBytes>) -> Bound<'py, PyBytes> {
        match self.0.feed(chunk.as_bytes()) {
            Passed::Same => chunk.clone(),
            Passed::Changed(bytes) => PyBytes::new(chunk.py(), &bytes),
        }
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.finish())
    }

    #[getter]
    fn events(&self) -> u64 {
        self.0.facts().events
    }

    #[getter]
    fn first_event_error(&self) -> Option<&str> {
        self.0.facts().first_event_error.as_deref()
    }

    #[getter]
    fn first_event_error_code(&self) -> Option<i64> {
        self.0.facts().first_event_error_code
    }

    #[getter]
    fn error(&self) -> Option<&str> {
        self.0.facts().error.as_deref()
    }

    #[getter]
    fn done(&self) -> bool {
        self.0.facts().done
    }

    #[getter]
    fn prompt_tokens(&self) -> Option<u64> {
        self.0.facts().prompt_tokens
    }

    #[getter]
    fn completion_tokens(&self) -> Option<u64> {
        self.0.facts().completion_tokens
    }

    #[getter]
    fn cached_tokens(&self) -> Option<u64> {
        self.0.facts().cached_tokens
    }

    #[getter]
    fn cached_host_tokens(&self) -> Option<u64> {
        self.0.facts().cached_host_tokens
    }

    #[getter]
    fn cached_storage_tokens(&self) -> Option<u64> {
        self.0.facts().cached_storage_tokens
    }

    #[getter]
    fn decoded_events(&self) -> u64 {
        self.0.facts().decoded_events
    }

    #[getter]
    fn finish_reason(&self) -> Option<&str> {
        self.0.facts().finish_reason.as_deref()
    }

    #[getter]
    fn tools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.facts().tools)
    }

    #[getter]
    fn response_id(&self) -> Option<&str> {
        self.0.facts().response_id.as_deref()
    }

    #[getter]
    fn weight_version(&self) -> Option<&str> {
        self.0.facts().weight_version.as_deref()
    }
}
