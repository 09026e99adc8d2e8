//! A request that keeps the prefix of an earlier request, with the changes since then appended as
//! system messages.
//!
//! Models that bind Seals to the prefix reject them if a client edits its system prompt or its
//! tools. Some of these models also follow system messages inside the conversation. A change that
//! is sent in such a message leaves the prefix, and thereby every Seal and the prompt cache, valid.
//! The messages must stay in all later requests at the same positions, because later Seals are
//! bound to them too.

use bytes::Bytes;
use throughline_core::{Call, Disposition, EncodedRequest, Fate, ReshapeKind};
use throughline_json::{Json, Name, Tree};

use crate::{Codec, CodecError};

/// The header that lists the beta features of a request.
const BETA_HEADER: &str = "anthropic-beta";

/// The request that the target's last captured turn of a conversation answered.
#[derive(Clone, Copy, Debug)]
pub struct SignedPrefix<'b> {
    /// The body as sent to the provider.
    pub body: &'b Bytes,
    /// The indexes of the messages in `body` that were appended to express changes.
    pub appended: &'b [usize],
}

/// A system message that expresses a change of the system prompt or the tools.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendedMessage {
    /// The message as sent.
    pub json: Json,
    /// Whether the message contains a new system prompt.
    pub system: bool,
    /// The names of the tools that the message adds or redefines.
    pub added: Vec<Name>,
    /// The names of the tools that the message removes.
    pub removed: Vec<Name>,
}

/// A Call with an unchanged prefix, and the messages that express the changes.
#[derive(Clone, Debug)]
pub struct AppendPlan {
    /// The messages, oldest first: those of the earlier request, then the message for the current
    /// change, if any.
    pub messages: Vec<AppendedMessage>,
    /// The tools that the model was offered earlier in the conversation and that were removed.
    pub removed_tools: Vec<Name>,
    pub(crate) call: Call,
    /// The beta feature that the messages require.
    pub(crate) beta: Option<&'static str>,
    /// The Fates of the caller's system prompt.
    pub(crate) system: Vec<Fate>,
}

impl AppendPlan {
    /// Encodes the request and reports what happened to the caller's system prompt.
    pub fn encode(&self, codec: &dyn Codec) -> Result<EncodedRequest, CodecError> {
        let mut encoded = codec.encode(&self.call)?;
        // The first Fates describe the earlier system prompt, which the caller did not send.
        let kept = self.call.system.len().min(encoded.fates.len());
        encoded.fates.splice(..kept, self.system.iter().cloned());
        for fate in encoded.fates.iter_mut().filter(|fate| is_appended(fate)) {
            fate.visible = Disposition::Reshaped(ReshapeKind::Appended);
        }
        if let Some(beta) = self.beta {
            add_beta(&mut encoded.request.headers, beta);
        }
        Ok(encoded)
    }

    /// Returns the position of each message in a finished body, with the message. A message that a
    /// repair changed or removed is not included.
    pub fn locate(&self, body: &Bytes) -> Vec<(usize, &AppendedMessage)> {
        let Ok(tree) = Tree::parse(body.clone()) else { return Vec::new() };
        let Some(list) = tree.root().get("messages") else { return Vec::new() };
        let mut sent = list.elements().enumerate();
        let mut find = |message: &AppendedMessage| {
            let mut rest = sent.clone();
            let (index, _) = rest.find(|(_, sent)| sent.raw() == &**message.json.bytes())?;
            // The order is the same, so the next message comes later.
            sent = rest;
            Some(index)
        };
        self.messages.iter().filter_map(|message| Some((find(message)?, message))).collect()
    }
}

/// The start of the ids of Items in appended messages.
pub(crate) const APPENDED_ID: &str = "appended.";

fn is_appended(fate: &Fate) -> bool {
    fate.item.0.starts_with(APPENDED_ID)
}

/// Adds a beta feature to the header that lists them, unless a header already names it.
pub fn add_beta(headers: &mut Vec<(Name, Name)>, beta: &str) {
    let mut lists = headers.iter_mut().filter(|(name, _)| name.eq_ignore_ascii_case(BETA_HEADER));
    let Some((_, first)) = lists.next() else {
        headers.push((Name::from(BETA_HEADER), Name::from(beta)));
        return;
    };
    let names = |list: &str| list.split(',').any(|listed| listed.trim() == beta);
    if !names(first) && !lists.any(|(_, list)| names(list)) {
        *first = format!("{first},{beta}").into();
    }
}
