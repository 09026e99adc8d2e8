//! Codec for Anthropic's Messages API.
//!
//! - Thinking arrives as `thinking` blocks with a `signature`, or as `redacted_thinking` blocks
//!   with `data`. Both are replayed unmodified, in their message and at their position among texts
//!   and tool calls. The text of a `thinking` block may be empty while its signature is not.
//! - Other blocks contain opaque values too: `encrypted_content` of search results,
//!   `encrypted_index` of citations, the content of `compaction` blocks.
//! - In a stream, `thinking_delta`s are concatenated and the `signature_delta` is assigned. A block
//!   without its signature was truncated and is never replayed.
//! - The API rejects blocks that this endpoint did not sign, so foreign and unsigned thoughts are
//!   omitted. They are never turned into text, because the model treats that as an attempt to
//!   extract its reasoning.
//! - Newer families bind a signature to the whole prefix: see [`crate::prefix`].

mod contract;
mod decode;
mod encode;
mod stream;
#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
mod wire;

use throughline_core::{Request, Target, Wire};
use throughline_json::{Name, Tree};

use crate::frame::Framing;
use crate::{AuditContext, Codec, Findings, Rule};

/// The codec of Anthropic's Messages API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnthropicMessages;

impl Codec for AnthropicMessages {
    fn wire(&self) -> Wire {
        Wire::ANTHROPIC_MESSAGES
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        Tree::parse(request.body.clone()).ok()?.root().name_of("model")
    }

    fn path(&self, _: &Target, _: bool) -> String {
        encode::PATH.to_owned()
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    codec_methods!(stream::AnthropicDecoder, stream::AnthropicEncoder);

    fn rules(&self) -> &'static [&'static Rule] {
        &contract::RULES
    }

    fn inspect(&self, case: &AuditContext<'_>, findings: &mut Findings<'_>) {
        contract::inspect(case, findings);
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "system", "messages"]
    }
}
