//! Errors that codecs return.

use bytes::Bytes;
use throughline_core::{Failure, Wire};
use throughline_json::{SyntaxError, Tree};

use crate::frame::FrameError;

/// An error while decoding or encoding. It never contains the bytes of a Seal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The body is not valid JSON.
    #[error("the body is not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The JSON does not have the structure that the wire requires.
    #[error("not a valid {wire} {what}: `{path}` {problem}")]
    Shape {
        /// The wire format that the document violates.
        wire: Wire,
        /// The expected document kind, for example `request`.
        what: &'static str,
        /// The path of the value, in the provider's notation.
        path: String,
        /// The problem at `path`, worded so that it can follow the path in a sentence.
        problem: &'static str,
    },
    /// The framing of the stream is invalid.
    #[error("the stream framing is invalid: {0}")]
    Frame(#[from] FrameError),
    /// The response is an error reported by the provider.
    #[error("the provider returned an error: {}", .0.message)]
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

/// Returns the message of a provider's error response on any wire.
pub fn error_message(body: &Bytes) -> Option<String> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    // Gemini may return an array whose first element contains the error.
    let root = root.elements().next().unwrap_or(root);
    let error = root.get("error").unwrap_or(root);
    let text = error.name_of("message").or_else(|| root.name_of("message"));
    text.or_else(|| root.name_of("error")).map(|text| text.to_string())
}
