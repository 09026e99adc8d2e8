//! `LLMMessage`: one message of a conversation, in camelCase.
//!
//! A message has one text, a list of thoughts and a list of calls, so it cannot say in which order they came:
//! the order stands in the Items. It has no place either for media, for hosted steps, for how a tool call went
//! and for who issued a signature. Members that the document does not know are kept and printed again.

use std::sync::Arc;

use crate::document::{
    Definitions, Fields, InvalidDocument, Opaque, Record, Shape, list_of, words, write_extras,
};
use crate::json::{self, Json, Node, Object};
use crate::name::Name;

words! {
    /// Who speaks in a message.
    MessageRole {
        /// The system prompt.
        System = "system",
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool's answer.
        Tool = "tool",
    }
}

words! {
    /// Whether a thinking block can be read.
    ThinkingKind {
        /// It can.
        Thinking = "thinking",
        /// The provider redacted it: its content is empty and its signature is the sealed data.
        RedactedThinking = "redacted_thinking",
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// The text; empty where the message only thinks or calls.
    pub content: Arc<str>,
    /// Seen by the model and by every log, never kept in the Thread. Not a flag of visibility.
    pub ephemeral: bool,
    /// What the model thought, on assistant messages; empty on most. Signed blocks go back byte for byte.
    pub thinking_blocks: Vec<ThinkingBlock>,
    /// What the model asked for, on assistant messages. Printed as `[]` there when empty, and nowhere else.
    pub tool_calls: Vec<MessageCall>,
    /// On tool messages: the call that is answered.
    pub tool_call_id: Option<Name>,
    /// On tool messages: the tool that answers.
    pub tool_name: Option<Name>,
    /// Members that the document does not know, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// One thought of an assistant message.
#[derive(Clone, Debug, PartialEq)]
pub struct ThinkingBlock {
    /// Whether it can be read.
    pub kind: ThinkingKind,
    /// What can be read; empty when redacted.
    pub content: Arc<str>,
    /// The provider's signature, or the sealed data of a redacted block, exactly as issued.
    pub signature: Option<Opaque>,
    /// Whether it is a step of the provider's summary instead of the thinking itself.
    pub summary: Option<bool>,
    /// The provider's opaque extras, verbatim.
    pub provider_meta: Option<Json>,
    /// Members that the document does not know, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// One tool call of an assistant message.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageCall {
    /// Its id.
    pub id: Name,
    /// The tool.
    pub name: Name,
    /// The arguments, verbatim.
    pub args: Json,
    /// The provider's opaque extras, verbatim: a Gemini call's `thoughtSignature` stays here.
    pub provider_meta: Option<Json>,
    /// Members that the document does not know, verbatim.
    pub extras: Vec<(Name, Json)>,
}

const MESSAGE: [&str; 7] =
    ["role", "content", "ephemeral", "thinkingBlocks", "toolCalls", "toolCallId", "toolName"];
const BLOCK: [&str; 5] = ["type", "content", "signature", "summary", "providerMeta"];
const CALL: [&str; 4] = ["id", "name", "args", "providerMeta"];

impl Message {
    /// A message of plain text.
    pub fn new(role: MessageRole, content: impl Into<Arc<str>>) -> Self {
        Self {
            role,
            content: content.into(),
            ephemeral: false,
            thinking_blocks: Vec::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            tool_name: None,
            extras: Vec::new(),
        }
    }

    /// Reads the document. JSON `null` means absent.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        Self::read(&Fields::of(tree.root(), "LLMMessage")?)
    }

    /// The document, in camelCase. What is absent is left out, except `toolCalls` on assistant messages.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }
}

impl Record for Message {
    const NAME: &'static str = "LLMMessage";

    fn schema(definitions: &mut Definitions) -> Json {
        let block = {
            let mut shape = Shape::new(definitions);
            shape.needs::<ThinkingKind>("type", "Whether it can be read.");
            shape.needs::<Name>("content", "What can be read; empty when redacted.");
            shape.takes::<Name>("signature", "The provider's signature or sealed data, as issued.");
            shape.takes::<bool>("summary", "Whether it is a step of the provider's summary.");
            shape.takes::<Json>("providerMeta", "The provider's opaque extras, verbatim.");
            shape.end()
        };
        let call = {
            let mut shape = Shape::new(definitions);
            shape.needs::<Name>("id", "Its id.");
            shape.needs::<Name>("name", "The tool.");
            shape.needs::<Json>("args", "The arguments, verbatim.");
            shape.takes::<Json>("providerMeta", "The provider's opaque extras, verbatim.");
            shape.end()
        };
        let mut shape = Shape::new(definitions);
        shape.needs::<MessageRole>("role", "Who speaks.");
        shape.needs::<Name>("content", "The text; empty where the message only thinks or calls.");
        shape.takes::<bool>(
            "ephemeral",
            "Seen by the model and by every log, never kept in the thread.",
        );
        shape.says(
            "thinkingBlocks",
            "What the model thought, on assistant messages.",
            &list_of(&block),
        );
        shape.says(
            "toolCalls",
            "What the model asked for, on assistant messages.",
            &list_of(&call),
        );
        shape.takes::<Name>("toolCallId", "On tool messages: the call that is answered.");
        shape.takes::<Name>("toolName", "On tool messages: the tool that answers.");
        shape.end()
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let role = fields.word("role")?.ok_or_else(|| {
            fields.error("role", "is missing: it must be one of system, user, assistant, tool")
        })?;
        let blocks = fields.list("thinkingBlocks")?;
        let calls = fields.list("toolCalls")?;
        let only_of = |key, owner, is_given: bool| {
            let is_right = !is_given || role == owner;
            let problem = || format!("belongs on {owner} messages only");
            if is_right { Ok(()) } else { Err(fields.error(key, problem())) }
        };
        only_of("thinkingBlocks", MessageRole::Assistant, !blocks.is_empty())?;
        only_of("toolCalls", MessageRole::Assistant, !calls.is_empty())?;
        only_of("toolCallId", MessageRole::Tool, fields.present("toolCallId").is_some())?;
        only_of("toolName", MessageRole::Tool, fields.present("toolName").is_some())?;
        Ok(Self {
            role,
            content: fields.required_text("content")?,
            ephemeral: fields.bool("ephemeral")?.unwrap_or(false),
            thinking_blocks: blocks.iter().map(ThinkingBlock::read).collect::<Result<_, _>>()?,
            tool_calls: calls.iter().map(MessageCall::read).collect::<Result<_, _>>()?,
            tool_call_id: fields.text("toolCallId")?,
            tool_name: fields.text("toolName")?,
            extras: fields.extras(&MESSAGE),
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        out.string("role", self.role.as_str()).string("content", &self.content);
        if self.ephemeral {
            out.bool("ephemeral", true);
        }
        if !self.thinking_blocks.is_empty() {
            out.array("thinkingBlocks", |list| {
                for block in &self.thinking_blocks {
                    list.object(|out| block.write(out));
                }
            });
        }
        if self.role == MessageRole::Assistant {
            out.array("toolCalls", |list| {
                for call in &self.tool_calls {
                    list.object(|out| call.write(out));
                }
            });
        }
        out.maybe_string("toolCallId", self.tool_call_id.as_deref());
        out.maybe_string("toolName", self.tool_name.as_deref());
        write_extras(out, &self.extras, &MESSAGE);
    }
}

impl ThinkingBlock {
    /// A block that can be read.
    pub fn thinking(content: impl Into<Arc<str>>, signature: Option<Opaque>) -> Self {
        Self {
            kind: ThinkingKind::Thinking,
            content: content.into(),
            signature,
            summary: None,
            provider_meta: None,
            extras: Vec::new(),
        }
    }

    /// A block of which only sealed data is left.
    pub fn redacted(data: Option<Opaque>) -> Self {
        Self { kind: ThinkingKind::RedactedThinking, ..Self::thinking("", data) }
    }

    pub(super) fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let kind = fields.word("type")?.ok_or_else(|| {
            fields.error("type", "is missing: it must be one of thinking, redacted_thinking")
        })?;
        let content = match kind {
            ThinkingKind::Thinking => fields.required_text("content")?,
            ThinkingKind::RedactedThinking => fields.text("content")?.unwrap_or_default(),
        };
        Ok(Self {
            kind,
            content,
            signature: fields.text("signature")?.map(Opaque::from),
            summary: fields.bool("summary")?,
            provider_meta: fields.present("providerMeta").map(Node::json),
            extras: fields.extras(&BLOCK),
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        out.string("type", self.kind.as_str()).string("content", &self.content);
        out.maybe_string("signature", self.signature.as_ref().map(Opaque::reveal_to_tenant));
        if let Some(summary) = self.summary {
            out.bool("summary", summary);
        }
        if let Some(meta) = &self.provider_meta {
            out.raw("providerMeta", meta);
        }
        write_extras(out, &self.extras, &BLOCK);
    }
}

impl MessageCall {
    pub(super) fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let args = fields.present("args").map(Node::json);
        Ok(Self {
            id: fields.required_text("id")?,
            name: fields.required_text("name")?,
            args: args.ok_or_else(|| {
                fields.error("args", "is missing: give {} where there are no arguments")
            })?,
            provider_meta: fields.present("providerMeta").map(Node::json),
            extras: fields.extras(&CALL),
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        out.string("id", &self.id).string("name", &self.name).raw("args", &self.args);
        if let Some(meta) = &self.provider_meta {
            out.raw("providerMeta", meta);
        }
        write_extras(out, &self.extras, &CALL);
    }
}
