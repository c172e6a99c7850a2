//! `Headers` and the heads of messages: thunder-wire for Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use thunder_wire::head::{self, Framing, Towards};

/// The headers of one message. `_core.pyi` is its manual.
#[pyclass(frozen, module = "thunder_router._core")]
pub(crate) struct Headers(head::Headers);

impl Headers {
    fn listed<'py>(
        &self,
        py: Python<'py>,
        name: impl Fn(&[u8]) -> Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyList>> {
        let lines = self.0.iter();
        let pairs = lines.map(|(other, value)| (name(other), PyBytes::new(py, value)));
        PyList::new(py, pairs.collect::<Vec<_>>())
    }
}

#[pymethods]
impl Headers {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "arguments of Python")]
    fn new(lines: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>) -> Self {
        let lines = lines.iter();
        Self(
            lines
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                .collect(),
        )
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn get<'py>(&self, py: Python<'py>, name: &[u8]) -> Option<Bound<'py, PyBytes>> {
        self.0.get(name).map(|value| PyBytes::new(py, value))
    }

    #[getter]
    fn lines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |name| PyBytes::new(py, name))
    }

    #[getter]
    fn lowered<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |name| PyBytes::new(py, &name.to_ascii_lowercase()))
    }
}

/// A plain request's target, headers, bytes of head and bytes of body.
type Request<'py> = (Bound<'py, PyBytes>, Headers, usize, usize);

/// Reads the head of a plain request. `_core.pyi` is its manual.
#[pyfunction]
pub(crate) fn read_plain_request<'py>(py: Python<'py>, data: &[u8]) -> Option<Request<'py>> {
    let found = head::PlainRequest::read(data)?;
    let target = PyBytes::new(py, found.target);
    Some((target, Headers(found.headers), found.size, found.length))
}

/// A plain answer's status, reason, headers and body.
type Answer<'py> = (u16, Bound<'py, PyBytes>, Headers, Bound<'py, PyBytes>);

/// Reads a whole plain answer. `_core.pyi` is its manual.
#[pyfunction]
pub(crate) fn read_plain_answer<'py>(py: Python<'py>, data: &[u8]) -> Option<Answer<'py>> {
    let found = head::PlainAnswer::read(data)?;
    let [reason, body] = [found.reason, found.body].map(|bytes| PyBytes::new(py, bytes));
    Some((found.status, reason, Headers(found.headers), body))
}

/// The head of a request for a worker. `_core.pyi` is its manual.
#[pyfunction]
#[pyo3(signature = (method, target, headers, /, *, prefix, host, authorization, own_credentials, rank, length, request_id))]
#[expect(clippy::too_many_arguments, reason = "arguments of Python")]
pub(crate) fn request_head<'py>(
    py: Python<'py>,
    method: &[u8],
    target: &[u8],
    headers: &Headers,
    prefix: &[u8],
    host: &[u8],
    authorization: Option<&[u8]>,
    own_credentials: bool,
    rank: Option<u32>,
    length: usize,
    request_id: Option<&[u8]>,
) -> Bound<'py, PyBytes> {
    let to = Towards {
        prefix,
        host,
        authorization,
        own_credentials,
        rank,
        length,
        request_id,
    };
    PyBytes::new(py, &head::request_head(method, target, &headers.0, &to))
}

/// The head of an answer for a client. `_core.pyi` is its manual.
#[pyfunction]
#[pyo3(signature = (status, reason, headers, /, *, measured, chunked, closes, request_id))]
#[expect(clippy::too_many_arguments, reason = "arguments of Python")]
pub(crate) fn answer_head<'py>(
    py: Python<'py>,
    status: u16,
    reason: &[u8],
    headers: &Headers,
    measured: bool,
    chunked: bool,
    closes: bool,
    request_id: &[u8],
) -> Bound<'py, PyBytes> {
    let framing = Framing {
        measured,
        chunked,
        closes,
    };
    PyBytes::new(
        py,
        &head::answer_head(status, reason, &headers.0, framing, request_id),
    )
}
