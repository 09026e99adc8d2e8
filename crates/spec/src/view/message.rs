//! `LLMMessage`: one message in a conversation, with camelCase member names.
//!
//! A message has one text, a list of Thoughts and a list of calls. It cannot express the order
//! among them; only the Items contain this order. A message has no members for media, hosted steps,
//! tool outcomes or the issuers of signatures. Unknown members are kept and written again.

use std::sync::Arc;

use throughline_json::{
    self as json, Definitions, DocumentRecord, Fields, InvalidDocument, Json, Name, Node, Object,
    Opaque, SchemaBuilder, array_schema, words, write_extras,
};

words! {
    /// The role under which a message is sent.
    MessageRole {
        /// System instructions.
        System = "system",
        /// Input from the user.
        User = "user",
        /// Output from the model.
        Assistant = "assistant",
        /// The result of a tool call.
        Tool = "tool",
    }

    /// Whether a thinking block is readable.
    ThinkingKind {
        /// The block contains readable text.
        Thinking = "thinking",
        /// The provider redacted the block: the content is empty, and the signature contains the
        /// sealed data.
        RedactedThinking = "redacted_thinking",
    }
}

/// One message in a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The role under which the message is sent.
    pub role: MessageRole,
    /// The text; empty if the message has only Thoughts or calls.
    pub content: Arc<str>,
    /// Whether the message is ephemeral: sent to the model and logged, but not stored in the
    /// Thread. The flag does not affect visibility.
    pub ephemeral: bool,
    /// The Thoughts in an assistant message; usually empty. Signed blocks are sent back byte for
    /// byte.
    pub thinking_blocks: Vec<ThinkingBlock>,
    /// The tool calls in an assistant message. An assistant message without calls is written with
    /// `[]`; other messages omit this member.
    pub tool_calls: Vec<MessageCall>,
    /// The id of the call that a tool message answers.
    pub tool_call_id: Option<Name>,
    /// The name of the called tool, in a tool message.
    pub tool_name: Option<Name>,
    /// Members that the document does not define, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// One Thought in an assistant message.
#[derive(Clone, Debug, PartialEq)]
pub struct ThinkingBlock {
    /// Whether the block is readable.
    pub kind: ThinkingKind,
    /// The readable text; empty for a redacted block.
    pub content: Arc<str>,
    /// The provider's signature, or the sealed data of a redacted block, exactly as issued.
    pub signature: Option<Opaque>,
    /// Whether the block contains a part of the provider's summary instead of the reasoning itself.
    pub summary: Option<bool>,
    /// The provider's opaque extras, verbatim.
    pub provider_meta: Option<Json>,
    /// Members that the document does not define, verbatim.
    pub extras: Vec<(Name, Json)>,
}

/// One tool call in an assistant message.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageCall {
    /// The call's id, to which the tool message refers.
    pub id: Name,
    /// The name of the tool.
    pub name: Name,
    /// The arguments, verbatim.
    pub args: Json,
    /// The provider's opaque extras, verbatim, such as the `thoughtSignature` of a Gemini call.
    pub provider_meta: Option<Json>,
    /// Members that the document does not define, verbatim.
    pub extras: Vec<(Name, Json)>,
}

const MESSAGE: [&str; 7] =
    ["role", "content", "ephemeral", "thinkingBlocks", "toolCalls", "toolCallId", "toolName"];
const BLOCK: [&str; 5] = ["type", "content", "signature", "summary", "providerMeta"];
const CALL: [&str; 4] = ["id", "name", "args", "providerMeta"];

impl Message {
    /// Creates a message that contains only text.
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

    /// Parses a message. JSON `null` means absent.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        Self::read(&Fields::from_node(tree.root(), "LLMMessage")?)
    }

    /// Returns the message as JSON, without absent members; assistant messages always have
    /// `toolCalls`.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }
}

impl DocumentRecord for Message {
    const NAME: &'static str = "LLMMessage";

    fn schema(definitions: &mut Definitions) -> Json {
        let mut shape = SchemaBuilder::new(definitions);
        shape.required::<ThinkingKind>("type", "Whether the block is readable.");
        shape.required::<Name>("content", "The readable content; empty if redacted.");
        shape.optional::<Name>("signature", "The provider's signature or sealed data, as issued.");
        shape.optional::<bool>("summary", "Whether the block is a step of the provider's summary.");
        shape.optional::<Json>("providerMeta", "The provider's opaque extras, verbatim.");
        let blocks = array_schema(&shape.finish());
        let mut shape = SchemaBuilder::new(definitions);
        shape.required::<Name>("id", "The id of the call.");
        shape.required::<Name>("name", "The name of the tool.");
        shape.required::<Json>("args", "The arguments, verbatim.");
        shape.optional::<Json>("providerMeta", "The provider's opaque extras, verbatim.");
        let calls = array_schema(&shape.finish());
        let mut shape = SchemaBuilder::new(definitions);
        shape.required::<MessageRole>("role", "The role of the speaker.");
        let about = "The text; empty if the message has only Thoughts or calls.";
        shape.required::<Name>("content", about);
        let about = "Seen by the model and all logs, never stored in the Thread.";
        shape.optional::<bool>("ephemeral", about);
        shape.member("thinkingBlocks", "The Thoughts of an assistant message.", &blocks);
        shape.member("toolCalls", "The tool calls of an assistant message.", &calls);
        shape.optional::<Name>("toolCallId", "The id of the call that a tool message answers.");
        shape.optional::<Name>("toolName", "The name of the tool, on tool messages.");
        shape.finish()
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let role: MessageRole = json::RecordMember::required(fields, "role")?;
        let blocks = fields.list("thinkingBlocks")?;
        let calls = fields.list("toolCalls")?;
        let only_of = |key, owner, is_given: bool| {
            let problem = || format!("is allowed only on {owner} messages");
            if is_given && role != owner { Err(fields.error(key, problem())) } else { Ok(()) }
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
        out.flag("ephemeral", self.ephemeral);
        if !self.thinking_blocks.is_empty() {
            out.objects("thinkingBlocks", &self.thinking_blocks, |out, block| block.write(out));
        }
        if self.role == MessageRole::Assistant {
            out.objects("toolCalls", &self.tool_calls, |out, call| call.write(out));
        }
        out.maybe("toolCallId", self.tool_call_id.as_ref());
        out.maybe("toolName", self.tool_name.as_ref());
        write_extras(out, &self.extras, &MESSAGE);
    }
}

impl ThinkingBlock {
    /// Creates a readable block, with its signature if it has one.
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

    /// Creates a redacted block, which contains only sealed data.
    pub fn redacted(data: Option<Opaque>) -> Self {
        Self { kind: ThinkingKind::RedactedThinking, ..Self::thinking("", data) }
    }

    pub(super) fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let kind = json::RecordMember::required(fields, "type")?;
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
        out.maybe("signature", self.signature.as_ref().map(Opaque::reveal_to_tenant));
        out.maybe("summary", self.summary).maybe("providerMeta", self.provider_meta.as_ref());
        write_extras(out, &self.extras, &BLOCK);
    }
}

impl MessageCall {
    pub(super) fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let no_args = || fields.error("args", "is missing; use {} if there are no arguments");
        Ok(Self {
            id: fields.required_text("id")?,
            name: fields.required_text("name")?,
            args: fields.present("args").map(Node::json).ok_or_else(no_args)?,
            provider_meta: fields.present("providerMeta").map(Node::json),
            extras: fields.extras(&CALL),
        })
    }

    fn write(&self, out: &mut Object<'_>) {
        out.string("id", &self.id).string("name", &self.name).raw("args", &self.args);
        out.maybe("providerMeta", self.provider_meta.as_ref());
        write_extras(out, &self.extras, &CALL);
    }
}
