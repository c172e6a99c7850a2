//! What the core refuses, as Python's exceptions.

use std::any::Any;

use pyo3::prelude::*;
use thunder_core::Error;

pub(crate) mod raised {
    //! The classes of `thunder_router.errors`, imported when first raised.
    pyo3::import_exception!(thunder_router.errors, ConfigError);
    pyo3::import_exception!(thunder_router.errors, DuplicateRequestError);
    pyo3::import_exception!(thunder_router.errors, InvariantError);
    pyo3::import_exception!(thunder_router.errors, TransitionError);
    pyo3::import_exception!(thunder_router.errors, UnknownProgramError);
    pyo3::import_exception!(thunder_router.errors, UnknownRequestError);
    pyo3::import_exception!(thunder_router.errors, UnknownWorkerError);
}

/// The one table from the core's errors to Python's. No catch-all: a new error needs a name here.
pub(crate) fn raise(error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::UnknownProgram(_) => raised::UnknownProgramError::new_err(message),
        Error::UnknownWorker(_) => raised::UnknownWorkerError::new_err(message),
        Error::UnknownRequest(_) => raised::UnknownRequestError::new_err(message),
        Error::DuplicateRequest(_) => raised::DuplicateRequestError::new_err(message),
        Error::BadTransition { .. } => raised::TransitionError::new_err(message),
        Error::BadConfig(_) => raised::ConfigError::new_err(message),
        Error::Invariant(_) => raised::InvariantError::new_err(message),
    }
}

/// What is raised where the core panicked.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    raised::InvariantError::new_err(format!("the scheduler panicked: {said}"))
}
