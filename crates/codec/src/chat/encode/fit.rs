//! What may go to an endpoint as it is, and in which slot.

use std::borrow::Cow;

use throughline_core::{
    Body, Channel, Digest, Envelope, Item, Json, Media, Native, Node, Role, Side, Thought, Why,
};

use crate::chat::encode::{WIRE, Writer, is_own};
use crate::chat::{contract, slot};
use crate::draft::{self, Draft};
use crate::gate;

/// The member that marks what an upstream should keep in its cache.
const MARK: &str = "cache_control";

impl Writer<'_> {
    /// Whether an Item of an unchanged message may go to this target in the words in which it came. What another
    /// endpoint's model said is written anew: its message may hold members that only that endpoint takes.
    pub(super) fn goes_as_it_is(&self, item: &Item, prefix: Option<&Digest>) -> bool {
        gate::refusal(&gate::seals(item, &self.call.target, prefix)).is_none()
            && (item.origin.is_none() || is_own(self.call, item))
            && self.is_paired(item)
            && (self.is_home || self.fits(item) && !self.is_misaddressed(item.role))
    }

    /// Whether the id of a call, or of an answer to one, can stay what it was.
    fn is_paired(&self, item: &Item) -> bool {
        match &item.body {
            Body::Call(call) => {
                let id = call.wire_id.as_deref().unwrap_or_default();
                self.is_home || self.is_native || !id.is_empty()
            }
            Body::Result(result) if self.is_home => !self.renamed.contains(&result.call),
            Body::Result(result) => {
                let id = self.ids.result(&result.call);
                self.is_native || result.wire_id.as_deref() == Some(&*id)
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => true,
        }
    }

    /// Whether a message holds nothing but what a strict endpoint lists.
    pub(super) fn is_listed(&self, envelope: &Envelope) -> bool {
        self.lists(&envelope.json)
    }

    pub(super) fn lists(&self, message: &Json) -> bool {
        let is_known = |key: Node<'_>| {
            let key = key.text().unwrap_or_default();
            slot::is_known(&key) || matches!(&*key, "name" | "tool_call_id")
        };
        !self.is_strict()
            || !is_marked(message) && message.tree().root().members().all(|(key, _)| is_known(key))
    }

    /// A part or tool without the cache markers that a strict endpoint refuses.
    pub(super) fn unmarked(&self, draft: &mut Draft<'_>, part: &Json) -> Json {
        if !self.is_strict() || !is_marked(part) {
            return part.clone();
        }
        warn_of_marks(draft);
        let tree = part.tree();
        let function = tree.root().get("function").filter(|function| function.is_object());
        let mut changes = vec![(Cow::Borrowed(MARK), None)];
        if let Some(function) = function {
            let function = draft::edited(Some(&function.json()), &[(MARK.into(), None)]);
            changes.push((Cow::Borrowed("function"), Some(function)));
        }
        draft::edited(Some(part), &changes)
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
            // What there was before there were tools is OpenAI's own.
            Body::Call(_) if !self.is_home && native.slot == slot::FUNCTION_CALL => false,
            Body::Call(call) if call.custom => self.takes_custom(),
            // A glance is enough for what most writers write.
            Body::Call(_) if !self.is_native && holds(&native.json, "\"arguments\":\"") => true,
            Body::Call(_) => {
                let tree = native.json.tree();
                let arguments = tree.root().at("/function/arguments");
                arguments.is_none_or(|arguments| arguments.is_string() != self.is_native)
            }
            Body::Result(_) if !self.is_home && is_legacy(&native.json) => false,
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
            Body::Thought(_) | Body::Hosted(_) | Body::Compaction | Body::Summary { .. } => true,
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

/// Whether a cache marker may stand somewhere in a message.
pub(super) fn is_marked(message: &Json) -> bool {
    memchr::memmem::find(message.bytes(), b"\"cache_control\"").is_some()
}

pub(super) fn warn_of_marks(draft: &mut Draft<'_>) {
    draft.warn(MARK, "this endpoint does not know cache markers; they were left out");
}

fn is_legacy(answer: &Json) -> bool {
    holds(answer, "\"function\"")
        && answer.tree().root().get("role").is_some_and(|role| role.is("function"))
}

/// Whether an object has that member. Most that lack it do not even hold the word, and answers may be long.
fn has_member(object: &Json, key: &str) -> bool {
    holds(object, key) && object.tree().root().get(key).is_some()
}

fn holds(json: &Json, text: &str) -> bool {
    memchr::memmem::find(json.bytes(), text.as_bytes()).is_some()
}
