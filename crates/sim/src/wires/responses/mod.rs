//! Simulates the Responses API of OpenAI, Azure, Bedrock Mantle, xAI and DeepSeek.
//!
//! - Endpoints store responses to requests with `store: true` and resolve their ids later. OpenAI,
//!   Azure and Mantle check pairs: a reasoning item requires the item that followed it, and vice
//!   versa. xAI checks no pairs. DeepSeek stores nothing and ignores reasoning that it did not
//!   return as text.
//! - `encrypted_content` is bound to the endpoint and, for some families, to the account. In a
//!   stream, `output_item.added` and `output_item.done` contain different ciphertexts; only the
//!   ciphertext in `output_item.done` is valid.
//! - A call requires an output, and an output requires a call.
//! - OpenAI compacts a conversation whose last item is a `compaction_trigger`, at
//!   `/v1/responses/compact`, and before a reply if the conversation reaches the threshold in
//!   `context_management`. The other endpoints do not know the item and the path.

mod input;
mod read;
mod respond;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Value, json};
use throughline_codec::{Framing, OpenAiResponses};
use throughline_core::Provider;

use crate::wires::{Endpoint, edit_frame, openai, set};

pub(crate) static ENDPOINT: Endpoint = Endpoint {
    codec: &OpenAiResponses,
    read: read::read,
    respond: respond::respond,
    count: |tokens| json!({"object": "response.input_tokens", "input_tokens": tokens}),
    refuse: openai::refuse,
    models: |_, model| openai::models(model),
    request_id: |nonce| ("x-request-id", nonce.id("req_", 32)),
    framing: |_| Framing::Sse,
    error_header: |_| None,
    decorate: |frames, body| {
        let frames = frames.into_iter();
        frames.map(|frame| edit_frame(frame, |event| complete(event, body))).collect()
    },
};

/// How a provider stores responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageMode {
    /// Stores items. Clients must return a reasoning item and the item after it together.
    Paired,
    /// Stores items. Clients may return stored items in any combination.
    Unpaired,
    /// Stores nothing and issues no Seals.
    Stateless,
}

impl StorageMode {
    fn from_provider(row: &Provider) -> Self {
        match (row.dialect.stores, row.dialect.pairs) {
            (true, true) => Self::Paired,
            (true, false) => Self::Unpaired,
            (false, _) => Self::Stateless,
        }
    }
}

/// Adds to a stream event the members that the codec does not write. Early events get the response
/// so far, a new message gets its phase, and a new reasoning item gets an invalid ciphertext.
/// Returns `None` for other events.
fn complete(event: &mut Value, body: &Value) -> Option<()> {
    match event.get("type")?.as_str()? {
        "response.created" | "response.in_progress" => {
            let mut response = body.clone();
            set(&mut response, "status", "in_progress");
            set(&mut response, "output", json!([]));
            set(&mut response, "usage", Value::Null);
            set(event, "response", response);
        }
        "response.output_item.added" => {
            let started = event.get_mut("item")?;
            let mut items = body.get("output")?.as_array()?.iter();
            let item = items.find(|item| item.get("id") == started.get("id"))?;
            if let Some(phase) = item.get("phase") {
                set(started, "phase", phase.clone());
            }
            if let Some(sealed) = item.get("encrypted_content").and_then(Value::as_str) {
                set(started, "encrypted_content", early(sealed));
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns the ciphertext for the `output_item.added` event of a reasoning item. This ciphertext
/// has the same format as the final one, but is invalid.
fn early(sealed: &str) -> String {
    let mut bytes = vec![0x80, 0, 0, 0, 0, 0x69];
    let mut noise = vec![0; sealed.len() / 3 + 32];
    blake3::Hasher::new_derive_key("throughline-sim early ciphertext")
        .update(sealed.as_bytes())
        .finalize_xof()
        .fill(&mut noise);
    bytes.append(&mut noise);
    URL_SAFE.encode(bytes)
}
