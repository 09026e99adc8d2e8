//! What may go to an endpoint as it is, and in which slot.

use std::borrow::Cow;

use throughline_core::{
    Body, Channel, Digest, Item, Json, Media, Native, Role, Side, Thought, Why,
};

use crate::chat::encode::{WIRE, Writer, is_own};
use crate::chat::{contract, slot};
use crate::gate;

impl Writer<'_> {
    /// Whether an Item of an unchanged message may go to this target in the words in which it came. What another
    /// endpoint's model said is written anew: its message may hold members that only that endpoint takes.
    pub(super) fn goes_as_it_is(&self, item: &Item, prefix: Option<&Digest>) -> bool {
        gate::refusal(&gate::seals(item, &self.call.target, prefix)).is_none()
            && (item.origin.is_none() || is_own(self.call, item))
            && (self.is_home || self.fits(item) && !self.is_misaddressed(item.role))
    }

    /// Whether the endpoint does not know the speaker: only `OpenAI`, and who imitates all of it, has developers.
    pub(super) fn is_misaddressed(&self, role: Role) -> bool {
        let knows_developers = matches!(
            self.call.target.provider.dialect.channel,
            Channel::None | Channel::AsEmitted | Channel::Details
        );
        role == Role::Developer && !knows_developers
    }

    /// Whether a part has the shape that the endpoint reads: Ollama's native API has its own, and a file is known to
    /// its owner only.
    pub(super) fn fits(&self, item: &Item) -> bool {
        let Some(native) = item.native_on(&WIRE) else { return true };
        match &item.body {
            Body::Call(call) if !call.custom => {
                let tree = native.json.tree();
                let arguments = tree.root().at("/function/arguments");
                arguments.is_none_or(|arguments| arguments.is_string() != self.is_native)
            }
            Body::Result(_) => has_member(&native.json, "tool_name") == self.is_native,
            Body::Media(Media::Remote { owner: Some(owner), .. }) => {
                let to = &self.call.target.origin;
                owner.provider == to.provider && owner.endpoint == to.endpoint
            }
            Body::Media(_) => native.slot.starts_with("images/") == self.is_native,
            // Ollama's native content is a string.
            Body::Text(_) | Body::Unknown => {
                !(self.is_native && native.slot.starts_with("content/"))
            }
            Body::Call(_)
            | Body::Thought(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. } => true,
        }
    }

    /// Why a thought that some endpoint of this wire issued stays behind, its seals aside.
    pub(super) fn why_not(&self, item: &Item, native: &Native, thought: &Thought) -> Option<Why> {
        if !thought.whole {
            return Some(Why::Cut);
        }
        if !is_own(self.call, item) {
            return Some(Why::Foreign);
        }
        let member = slot::member(&native.slot);
        if member == slot::DETAILS && contract::lacks_signature(item, &thought.format) {
            return Some(Why::Unsigned);
        }
        match self.call.target.provider.dialect.channel {
            Channel::None if member != slot::EXTRA_CONTENT => Some(Why::NotOnThisWire),
            Channel::Chunks if member != slot::CONTENT => Some(Why::NotOnThisWire),
            Channel::None
            | Channel::Chunks
            | Channel::AsEmitted
            | Channel::Details
            | Channel::ReasoningContent
            | Channel::Reasoning
            | Channel::Thinking
            | Channel::Tags => None,
        }
    }

    /// Of several slots that say the same, those that the endpoint reads: its own channel's where that is among them,
    /// and all of them where nothing is known. What a client wrote stays as it wrote it.
    pub(super) fn taken<'s>(&self, slot: &'s str, side: Side) -> Cow<'s, str> {
        let (Some((first, _)), Side::Response) = (slot.split_once('+'), side) else {
            return Cow::Borrowed(slot);
        };
        let channel = self.call.target.provider.dialect.channel;
        match (channel, self.field()) {
            (Channel::Details, _) if first.starts_with(slot::DETAILS) => Cow::Borrowed(first),
            (_, Some(field)) if slot.split('+').any(|member| member == field) => {
                Cow::Borrowed(field)
            }
            (_, _) => Cow::Borrowed(slot),
        }
    }

    /// The member in which the endpoint wants reasoning, where that is one string.
    pub(super) fn field(&self) -> Option<&'static str> {
        match self.call.target.provider.dialect.channel {
            Channel::ReasoningContent => Some("reasoning_content"),
            Channel::Reasoning => Some("reasoning"),
            Channel::Thinking => Some("thinking"),
            Channel::AsEmitted
            | Channel::None
            | Channel::Details
            | Channel::Chunks
            | Channel::Tags => None,
        }
    }
}

/// Whether an object has that member. Most that lack it do not even hold the word, and answers may be long.
fn has_member(object: &Json, key: &str) -> bool {
    memchr::memmem::find(object.bytes(), key.as_bytes()).is_some()
        && object.tree().root().get(key).is_some()
}
