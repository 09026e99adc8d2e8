//! Types shared by all wires, such as the decoded request and the planned reply.

use std::sync::Arc;

use axum::http::HeaderMap;
use jiff::civil::Date;
use serde_json::Value;
use throughline_core::{Provider, StopReason, Target, Usage, Wire};
use throughline_json::Tree;

use crate::cache::{PromptElement, tokens};
use crate::digest::Digest;
use crate::keys::PrefixBinding;
use crate::ledger::ReplyKey;

/// A request as the server passes it to the wire. The wire parses the body strictly, without a
/// codec.
pub(crate) struct SimRequest {
    /// The provider's entry in `providers.toml`.
    pub(crate) row: Arc<Provider>,
    /// Model named in the path or the body; empty if neither names a model.
    pub(crate) model: String,
    pub(crate) verb: Operation,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Tree,
    /// Digest of the API key, which identifies the account.
    pub(crate) account: Digest,
    pub(crate) account_created: Date,
    /// Seed for all generated values in the reply, such as ids.
    pub(crate) nonce: Digest,
}

impl SimRequest {
    /// Returns the value of a header; `None` if the header is missing or not valid text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns whether another model continues the reply after the first thought, which only
    /// Anthropic's own wire reports.
    pub(crate) fn has_fallback(&self) -> bool {
        let is_asked = self.header("x-sim-fallback").is_some_and(|value| value.trim() == "true");
        is_asked && self.row.wire == Wire::ANTHROPIC_MESSAGES
    }

    /// Derives an id that is unique to this reply, as in `self.id("msg_", "reply", 24)`.
    pub(crate) fn id(&self, prefix: &str, label: &str, length: usize) -> String {
        self.nonce.and(label).id(prefix, length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Request for a reply. The reply is complete, or streamed if the request body enables
    /// streaming.
    Answer,
    /// Request for a streamed reply, on wires whose path selects streaming.
    Stream,
    /// Request for a compaction of the conversation.
    Compact,
    /// Request for the number of input tokens. The request is checked like a request for a reply.
    Count,
}

/// The contents of a request, independent of its wire.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent options of a request")]
pub(crate) struct Turn {
    pub(crate) target: Target,
    pub(crate) stream: bool,
    /// Tools that the client runs. Tools that the provider runs itself are omitted.
    pub(crate) tools: Vec<OfferedTool>,
    pub(crate) choice: ToolChoice,
    /// Whether the model may call several tools at once; `None` if the request does not specify
    /// this.
    pub(crate) parallel: Option<bool>,
    pub(crate) thinks: bool,
    /// Whether the reply contains the text of thoughts. Otherwise the reply contains only the
    /// thoughts' Seals.
    pub(crate) shows: bool,
    /// Names of the tools called since the last user message, in order.
    pub(crate) called: Vec<String>,
    /// Keys of the replies whose Seals the request must contain: the replies with the calls in
    /// `called`. Some providers also require the Seals of other replies.
    pub(crate) expected_replies: Vec<ReplyKey>,
    /// Digest of the thinking configuration, for providers that require the configuration to stay
    /// constant within a turn.
    pub(crate) config: Option<Digest>,
    /// Results of the tools in `called` as text, in order.
    pub(crate) results: Vec<String>,
    /// Number of earlier model replies in the conversation.
    pub(crate) step: usize,
    /// Value of `step` at the last user message.
    user_step: usize,
    pub(crate) user_text: String,
    /// JSON Schema for a structured reply; `true` allows any object, `None` means plain text.
    pub(crate) schema: Option<Value>,
    /// The text of the interrupted reply that this request continues, if any.
    pub(crate) continues: Option<String>,
    /// Whether the reply is a compaction of the conversation.
    pub(crate) compacts: bool,
    /// Whether the reply starts with a compaction of the conversation, because the conversation
    /// reached the threshold in the request.
    pub(crate) compacts_first: bool,
    /// Whether a compaction replaced the start of the current turn.
    pub(crate) compacted: bool,
    /// Whether the request contains the model's thoughts as plain text.
    pub(crate) demoted: bool,
    pub(crate) max_tokens: Option<u64>,
    /// Digests of the conversation so far, for model families that bind Seals to the conversation.
    pub(crate) prefix: PrefixBinding,
    /// Notices about the request to include in the response.
    pub(crate) notices: Vec<Value>,
    /// Elements of the prompt in rendering order, for the cache and the token counts.
    pub(crate) elements: Vec<PromptElement>,
}

impl Turn {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            stream: false,
            tools: Vec::new(),
            choice: ToolChoice::Auto,
            parallel: None,
            thinks: false,
            shows: true,
            called: Vec::new(),
            expected_replies: Vec::new(),
            config: None,
            results: Vec::new(),
            step: 0,
            user_step: 0,
            user_text: String::new(),
            schema: None,
            continues: None,
            compacts: false,
            compacts_first: false,
            compacted: false,
            demoted: false,
            max_tokens: None,
            prefix: PrefixBinding::default(),
            notices: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// Starts a new turn with a user message. Discards the tool calls and results of the previous
    /// turn.
    pub(crate) fn start_user_turn(&mut self, text: impl Into<String>) {
        self.user_text = text.into();
        self.user_step = self.step;
        self.compacted = false;
        self.called.clear();
        self.expected_replies.clear();
        self.results.clear();
    }

    /// Returns the number of model replies since the last user message.
    pub(crate) fn round(&self) -> usize {
        self.step.saturating_sub(self.user_step)
    }
}

/// A tool that the client runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    /// JSON Schema of the arguments.
    pub(crate) schema: Value,
    /// Whether the tool takes free-form text instead of JSON arguments.
    pub(crate) custom: bool,
    /// The namespace that a call must name, if the tool belongs to one.
    pub(crate) namespace: Option<String>,
}

impl OfferedTool {
    /// Creates a tool that takes JSON arguments.
    pub(crate) fn new(name: String, schema: Value) -> Self {
        Self { name, schema, custom: false, namespace: None }
    }
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model may not call a tool.
    Never,
    /// The model must call at least one tool.
    Any,
    /// The model must call this tool.
    Tool(String),
}

impl ToolChoice {
    /// Returns whether the model must call a tool.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::Any | Self::Tool(_))
    }
}

/// Gemini's finish reason for a reply that a further request continues.
pub(crate) const CONTINUATION: &str = "CONTINUATION";

/// A planned reply, before the wire adds Seals and encodes the reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyPlan {
    pub(crate) parts: Vec<ReplyPart>,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
}

/// One part of a planned reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReplyPart {
    /// A thought, and how the reply shows it.
    Thought { text: String, display: ThoughtDisplay },
    /// Visible text.
    Text(String),
    Call {
        name: String,
        /// A JSON object, or a string for a tool that takes free-form text.
        arguments: Value,
    },
}

impl ReplyPart {
    /// Returns the visible text; `None` for other parts.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// How a thought appears in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ThoughtDisplay {
    /// With or without the text, depending on the request's settings.
    #[default]
    AsAsked,
    /// Only as a Seal, without text.
    SealOnly,
    /// As a redacted block if the wire supports it, otherwise only as a Seal.
    Redacted,
}

/// An error response, with the provider's names for its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The provider's error type, such as `invalid_request_error`, `ValidationException` or
    /// `INVALID_ARGUMENT`. If empty, the wire uses its default for the status.
    #[serde(default)]
    pub(crate) kind: String,
    /// The provider's error code, for providers that send a code in addition to the error type.
    pub(crate) code: Option<String>,
    /// The name of the invalid parameter, for providers that report it.
    pub(crate) param: Option<String>,
    /// Value of the `retry-after` header in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl Refusal {
    /// Creates an error with status 400.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), ..Self::default() }
    }

    /// Returns the error type, or the wire's default for the status.
    pub(crate) fn kind_or<'k>(&'k self, default: &'k str) -> &'k str {
        if self.kind.is_empty() { default } else { &self.kind }
    }

    pub(crate) fn param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(crate) fn code(self, code: impl Into<String>) -> Self {
        Self { code: Some(code.into()), ..self }
    }

    pub(crate) fn kind(self, kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..self }
    }
}

/// Returns from the function with a status-400 error and the formatted message, unless the
/// condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::turn::Refusal::invalid(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// Estimates the number of output tokens in a reply, including thoughts.
pub(crate) fn output(parts: &[ReplyPart]) -> Usage {
    let mut usage = Usage::default();
    for part in parts {
        let spent = match part {
            ReplyPart::Thought { text, .. } | ReplyPart::Text(text) => tokens(text.len()),
            ReplyPart::Call { name, arguments } => {
                8 + tokens(name.len() + arguments.to_string().len())
            }
        };
        if let ReplyPart::Thought { .. } = part {
            usage.thought += spent;
        }
        usage.output += spent;
    }
    usage
}
