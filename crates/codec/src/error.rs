//! What can go wrong in a codec.

use throughline_core::{Failure, SyntaxError, Wire};

use crate::frame::FrameError;

/// Why a codec could not read or write something. Never holds a Seal's bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The text is not JSON.
    #[error("the body is not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The JSON is not of the wire's shape.
    #[error("this is no {wire} {what}: `{path}` {problem}")]
    Shape {
        /// The wire.
        wire: Wire,
        /// What it should have been, as `request`.
        what: &'static str,
        /// The place, as the provider writes it.
        path: String,
        /// What is wrong there, as the end of a sentence.
        problem: &'static str,
    },
    /// The stream is not framed as it should be.
    #[error("the stream is broken: {0}")]
    Frame(#[from] FrameError),
    /// The response is the provider's own account of a failure.
    #[error("the provider answered with an error: {}", .0.message)]
    Provider(Box<Failure>),
}

impl CodecError {
    pub(crate) fn shape(
        wire: Wire,
        what: &'static str,
        path: impl Into<String>,
        problem: &'static str,
    ) -> Self {
        Self::Shape { wire, what, path: path.into(), problem }
    }
}
