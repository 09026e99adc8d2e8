//! Codec for Anthropic's Messages API.
//!
//! - Thinking arrives as `thinking` blocks with a `signature`, or as `redacted_thinking` blocks
//!   with `data`. Both are replayed unmodified, in their message and at their position among texts
//!   and tool calls. The text of a `thinking` block may be empty while its signature is not.
//! - Other blocks contain opaque values too: search results have `encrypted_content`, citations
//!   have `encrypted_index`, and `compaction` blocks have opaque content.
//! - In a stream, `thinking_delta`s are concatenated, and the `signature_delta` sets the signature.
//!   A block without a signature was truncated and is never replayed.
//! - The API rejects blocks that this endpoint did not sign, so foreign and unsigned thoughts are
//!   omitted. They are never sent as text, because the model treats such text as an attempt to
//!   extract its reasoning.
//! - Newer families bind a signature to the whole prefix: see [`crate::prefix`]. A changed system
//!   prompt or tool list can be sent in `system` messages inside the conversation instead, which
//!   leaves the prefix unchanged: see `prefix_append.rs`.

mod contract;
mod decode;
mod encode;
mod prefix_append;
mod reasoning_items;
mod stream;
#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
mod wire;

use crate::codec_methods::prelude::*;
use crate::prefix_append::{AppendPlan, SignedPrefix};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// The codec of Anthropic's Messages API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnthropicMessages;

impl Codec for AnthropicMessages {
    fn path(&self, target: &Target, stream: bool) -> String {
        encode::path(target, stream)
    }

    codec_methods!(WIRE, stream::AnthropicDecoder, stream::AnthropicEncoder);

    fn decode_reply_summary(
        &self,
        body: &Bytes,
        context: &DecodeContext,
    ) -> Result<Reply, CodecError> {
        decode::decode_reply_summary(body, context)
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "system", "messages"]
    }

    fn append_changes(
        &self,
        call: &Call,
        encoded: &EncodedRequest,
        signed: &SignedPrefix<'_>,
    ) -> Option<AppendPlan> {
        prefix_append::append_changes(call, encoded, signed)
    }
}
