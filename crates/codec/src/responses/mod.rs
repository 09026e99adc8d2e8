//! Codec for OpenAI's Responses API and its clones at Azure, xAI, DeepSeek and Bedrock.
//!
//! - A request's `input` is a string or a list of elements; a response's `output` is a list of the
//!   same elements. Each element is decoded as one message. A `message` element has parts; any
//!   other element is a single part.
//! - Reasoning is a `reasoning` element: summary, readable content and `encrypted_content` form one
//!   Thought with one Seal. `compaction` elements are sealed the same way, and a `program` carries
//!   a `fingerprint`.
//! - In a stream, the Seal comes from `response.output_item.done`. The `.added` event has a
//!   different ciphertext, and `response.completed` may have yet another.
//! - If the endpoint stores its responses, ids pair elements. A reasoning element must be directly
//!   before the element it led to, and that element requires the reasoning. If a pair is broken,
//!   the encoder drops the reasoning together with the ids of the elements after it. Without
//!   storage, ids pair nothing and are dropped.
//! - A reasoning element without a Seal is sent by id if the endpoint stores it, or as readable
//!   content if the endpoint emits plain reasoning. It is never sent to another endpoint.
//! - `status` is rejected or ignored on calls and reasoning in requests, so the encoder drops it.
//!   `phase`, `namespace` and `caller` are sent back. `summary` is required even when it is empty.

mod call_forms;
mod contract;
#[cfg(test)]
mod contract_tests;
mod decode;
mod encode;
#[cfg(test)]
mod move_tests;
mod reasoning_items;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
#[path = "responses_tests.rs"]
mod tests;
mod wire;

pub use self::call_forms::CallForms;
pub use self::wire::COMPACTION_TYPES;
pub(crate) use self::wire::reasoning_format;

use crate::codec_methods::prelude::*;

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Codec for OpenAI's Responses API.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl Codec for OpenAiResponses {
    fn path(&self, _: &Target, _: bool) -> String {
        encode::PATH.to_owned()
    }

    codec_methods!(WIRE, stream::ResponsesDecoder, stream::ResponsesEncoder);

    fn path_style(&self) -> PathStyle {
        PathStyle::Brackets
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["instructions", "tools", "input"]
    }
}
