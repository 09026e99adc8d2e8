//! Codec for Google's `generateContent`, as used by the Gemini API and Vertex AI.
//!
//! - The path contains the model and the stream flag: `…/models/{model}:generateContent` or
//!   `:streamGenerateContent?alt=sse`.
//! - Any part may have a `thoughtSignature`: a call, a text, code, a provider-run tool step, or an
//!   empty text that ends a stream. The signature is sent back on the part that carried it. A
//!   signed part is never joined with another part.
//! - Only the first of several parallel calls is signed; the others stay unsigned.
//! - Gemini 3 rejects a model step whose first call is unsigned. Calls from other providers have no
//!   signature, so the first call of a step gets Google's documented stand-in. Which calls get the
//!   stand-in depends only on earlier content.
//! - Parts with `thought: true` are summaries for display. Unsigned summaries are not sent back,
//!   because they would cost input tokens and the model needs only the signatures.
//! - Names may be in camelCase or `snake_case` at every level. Both spellings are accepted and
//!   preserved.
//! - Calls often have no id. Responses to such calls are matched by name, in order.
//! - A stream uses server-sent events, or a JSON array if the request lacks `alt=sse`. The stream
//!   has no end marker; it is complete once a `finishReason` has arrived. Arguments may arrive in
//!   pieces, in `partialArgs`.
//! - A reply above the output limit ends with the finish reason `CONTINUATION`. Its
//!   `continuationToken` continues the reply in a further request.

mod arguments;
pub(crate) mod continuation;
mod contract;
#[cfg(test)]
mod contract_tests;
mod decode;
mod encode;
mod path;
mod reasoning_items;
mod stream;
#[cfg(test)]
#[path = "gemini_tests.rs"]
mod tests;
mod tools;
mod wire;

use crate::codec_methods::prelude::*;

const WIRE: Wire = Wire::GEMINI;

/// Codec for Google's `generateContent`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl Codec for Gemini {
    fn model_of(&self, request: &Request) -> Option<Name> {
        path::GeminiPath::parse(&request.path).map(|path| Name::from(path.model))
    }

    fn path(&self, target: &Target, stream: bool) -> String {
        path::default_path(target, stream)
    }

    codec_methods!(WIRE, stream::GeminiDecoder, stream::write::GeminiEncoder);

    fn path_style(&self) -> PathStyle {
        PathStyle::Brackets
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["systemInstruction", "system_instruction", "tools", "contents"]
    }
}
