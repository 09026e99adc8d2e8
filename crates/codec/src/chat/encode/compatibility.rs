//! Decides which parts an endpoint accepts verbatim, and in which slot.

use throughline_core::{
    Body, Digest, Direction, ElisionReason, Item, Media, NativePart, ReasoningChannel as Channel,
    Role, Thought,
};
use throughline_json::{Json, Node};

use crate::chat::encode::{ChatWriter, is_own};
use crate::chat::{WIRE, contract, slot};
use crate::draft::{self, Draft};
use crate::seal_policy;

/// The member that marks a prompt-cache breakpoint.
const MARK: &str = "cache_control";

impl ChatWriter<'_> {
    /// Returns whether an Item of an unchanged message can be sent verbatim. Output from another
    /// endpoint is rewritten, because the message may have members that only the other endpoint
    /// accepts.
    pub(super) fn can_send_verbatim(&self, item: &Item, prefix: Option<&Digest>) -> bool {
        seal_policy::refusal(&seal_policy::seals(item, &self.call.target, prefix)).is_none()
            && (item.origin.is_none() || is_own(self.call, item))
            && self.is_paired(item)
            && (self.is_home || self.fits(item) && !self.lacks_role(item.role))
    }

    /// Returns whether a call or result can keep its id.
    fn is_paired(&self, item: &Item) -> bool {
        use Body::{Compaction, Hosted, Media, Summary, Text, Thought, Unknown};
        match &item.body {
            Body::Call(call) => {
                let id = call.wire_id.as_deref().unwrap_or_default();
                self.is_home || self.is_native || !id.is_empty()
            }
            Body::Result(result) if self.is_home => !self.renamed.contains(&result.call),
            Body::Result(result) => {
                let id = self.ids.result_id(&result.call);
                self.is_native || result.wire_id.as_deref() == Some(&*id)
            }
            Text(_) | Media(_) | Thought(_) | Hosted(_) | Compaction | Summary { .. } | Unknown => {
                true
            }
        }
    }

    /// Returns whether a message has only members that strict endpoints accept.
    pub(super) fn is_listed_message(&self, message: &Json) -> bool {
        let is_known = |key: Node<'_>| {
            let key = key.text().unwrap_or_default();
            slot::is_known_member(&key) || matches!(&*key, "name" | "tool_call_id")
        };
        !self.is_strict()
            || !may_have_cache_markers(message)
                && message.tree().root().members().all(|(key, _)| is_known(key))
    }

    /// Removes cache markers from a part or tool if the endpoint is strict and rejects them.
    pub(super) fn without_cache_markers(&self, draft: &mut Draft<'_>, part: &Json) -> Json {
        if !self.is_strict() || !may_have_cache_markers(part) {
            return part.clone();
        }
        warn_about_cache_markers(draft);
        let tree = part.tree();
        let function = tree.root().get("function").filter(|function| function.is_object());
        let mut changes = vec![(MARK, None)];
        if let Some(function) = function {
            let function = draft::edit_object(Some(&function.json()), &[(MARK, None)]);
            changes.push(("function", Some(function)));
        }
        draft::edit_object(Some(part), &changes)
    }

    /// Returns whether the endpoint does not support this role. Only OpenAI and endpoints with full
    /// compatibility support `developer`.
    pub(super) fn lacks_role(&self, role: Role) -> bool {
        let knows_developers = matches!(
            self.call.target.provider.dialect.channel,
            Channel::None | Channel::AsEmitted | Channel::Details
        );
        role == Role::Developer && !knows_developers
    }

    /// Returns whether the endpoint accepts the JSON of a part. Ollama's native API has its own
    /// JSON formats, and a file reference is valid only at the endpoint that owns the file.
    pub(super) fn fits(&self, item: &Item) -> bool {
        let Some(native) = item.native_on(&WIRE) else { return true };
        match &item.body {
            // Only OpenAI accepts the legacy `function_call`.
            Body::Call(_) if !self.is_home && native.slot == slot::FUNCTION_CALL => false,
            Body::Call(call) if call.custom => self.takes_custom(),
            // This text search avoids parsing in the common case.
            Body::Call(_) if !self.is_native && holds(&native.json, "\"arguments\":\"") => true,
            Body::Call(_) => {
                let tree = native.json.tree();
                let arguments = tree.root().at("/function/arguments");
                arguments.is_none_or(|arguments| arguments.is_string() != self.is_native)
            }
            Body::Result(_) if !self.is_home && is_legacy(&native.json) => false,
            Body::Result(_) => has_member(&native.json, "tool_name") == self.is_native,
            Body::Media(Media::Remote { owner: Some(owner), .. }) => {
                draft::is_same_endpoint(owner, &self.call.target.origin)
            }
            Body::Media(_) => native.slot.starts_with("images/") == self.is_native,
            // Content in Ollama's native API is always a string.
            Body::Text(_) | Body::Unknown => {
                !(self.is_native && native.slot.starts_with("content/"))
            }
            Body::Thought(_) | Body::Hosted(_) | Body::Compaction | Body::Summary { .. } => true,
        }
    }

    /// Returns the reason for omitting a Thought issued on this wire; Seals are checked separately.
    pub(super) fn elision_reason(
        &self,
        item: &Item,
        native: &NativePart,
        thought: &Thought,
    ) -> Option<ElisionReason> {
        use Channel::{AsEmitted, Details, Reasoning, ReasoningContent, Tags, Thinking};
        if !thought.whole {
            return Some(ElisionReason::Cut);
        }
        if !is_own(self.call, item) {
            return Some(ElisionReason::Foreign);
        }
        let member = slot::first_member(&native.slot);
        if member == slot::DETAILS && contract::lacks_signature(item, &thought.format) {
            return Some(ElisionReason::Unsigned);
        }
        let has_slot = match self.call.target.provider.dialect.channel {
            Channel::None => member == slot::EXTRA_CONTENT,
            Channel::Chunks => member == slot::CONTENT,
            AsEmitted | Details | ReasoningContent | Reasoning | Thinking | Tags => true,
        };
        (!has_slot).then_some(ElisionReason::NotOnThisWire)
    }

    /// Selects the slots to send if a response repeated a text in several slots: the endpoint's own
    /// slot if present, else all slots. Slots that a client wrote stay unchanged.
    pub(super) fn slot_to_send<'s>(&self, slot: &'s str, side: Direction) -> &'s str {
        let (Some((first, _)), Direction::Response) = (slot.split_once('+'), side) else {
            return slot;
        };
        let channel = self.call.target.provider.dialect.channel;
        match (channel, self.field()) {
            (Channel::Details, _) if first.starts_with(slot::DETAILS) => first,
            (_, Some(field)) if slot.split('+').any(|member| member == field) => field,
            (_, _) => slot,
        }
    }

    /// Returns the message field where the endpoint expects reasoning as one string.
    pub(super) fn field(&self) -> Option<&'static str> {
        contract::reasoning_field(self.call.target.provider.dialect.channel)
    }
}

/// Returns whether a message may contain a cache marker. This is a fast text search that does not
/// parse the message.
pub(super) fn may_have_cache_markers(message: &Json) -> bool {
    memchr::memmem::find(message.bytes(), b"\"cache_control\"").is_some()
}

pub(super) fn warn_about_cache_markers(draft: &mut Draft<'_>) {
    draft.warn(MARK, "this endpoint does not support cache markers; they were left out");
}

fn is_legacy(answer: &Json) -> bool {
    holds(answer, "\"function\"")
        && answer.tree().root().get("role").is_some_and(|role| role.is("function"))
}

/// Returns whether an object has a member. The text search comes first, because results may be long
/// and most lack the member.
fn has_member(object: &Json, key: &str) -> bool {
    holds(object, key) && object.tree().root().get(key).is_some()
}

fn holds(json: &Json, text: &str) -> bool {
    memchr::memmem::find(json.bytes(), text.as_bytes()).is_some()
}
