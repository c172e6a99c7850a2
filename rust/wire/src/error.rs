//! Why a request body is refused.

/// What is wrong with a request body, and at which byte (from 0).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not JSON.
    #[error("the body is not valid JSON: {problem} at byte {at}")]
    Syntax {
        /// What was found wrong.
        problem: &'static str,
        /// Where.
        at: usize,
    },
    /// JSON, but not an object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// A field that the router needs has the wrong type.
    #[error("'{field}' must be {expected} (byte {at})")]
    WrongType {
        /// Dotted path of the field.
        field: &'static str,
        /// The type it should have.
        expected: &'static str,
        /// Where its value begins.
        at: usize,
    },
    /// A field that the router reads stands twice: worker and router might take different ones.
    #[error("'{field}' is given twice (byte {at})")]
    Duplicate {
        /// The key.
        field: String,
        /// Where the second one begins.
        at: usize,
    },
    /// The facts were read from another body.
    #[error("these facts were read from another body: it had {expected} bytes, this one has {got}")]
    AnotherBody {
        /// Length of the body that was scanned.
        expected: usize,
        /// Length of this one.
        got: usize,
    },
}
