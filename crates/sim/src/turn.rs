//! Wire-independent types: the decoded request and the planned reply.

use std::sync::Arc;

use axum::http::HeaderMap;
use jiff::civil::Date;
use serde_json::Value;
use throughline_core::{Provider, StopReason, Target, Usage};
use throughline_json::Tree;

use crate::cache::{PromptElement, tokens};
use crate::digest::Digest;
use crate::keys::PrefixBinding;
use crate::ledger::ReplyKey;

/// One request, as the server passes it to its wire. The wire reads it strictly, without a codec.
pub(crate) struct SimRequest {
    /// The provider endpoint: a row of `providers.toml`.
    pub(crate) row: Arc<Provider>,
    /// The model, from the path or the body; empty if neither names one.
    pub(crate) model: String,
    pub(crate) verb: Operation,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Tree,
    /// Digest of the API key.
    pub(crate) account: Digest,
    pub(crate) account_created: Date,
    /// Source of all generated values of this reply, such as ids.
    pub(crate) nonce: Digest,
}

impl SimRequest {
    /// Returns the value of a header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Derives an id that is unique to this reply: `self.id("msg_", "reply", 24)`.
    pub(crate) fn id(&self, prefix: &str, label: &str, length: usize) -> String {
        self.nonce.and(label).id(prefix, length)
    }
}

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A whole reply, or a streamed one if the body requests it.
    Answer,
    /// A streamed reply, requested by the path.
    Stream,
    /// The number of input tokens, with the same checks as for a reply.
    Count,
}

/// The content of a request, independent of its wire.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent options of a request")]
pub(crate) struct Turn {
    pub(crate) target: Target,
    pub(crate) stream: bool,
    /// The client's tools, without tools that the provider runs itself.
    pub(crate) tools: Vec<OfferedTool>,
    pub(crate) choice: ToolChoice,
    /// Whether the model may call several tools at once, if the request specifies it.
    pub(crate) parallel: Option<bool>,
    pub(crate) thinks: bool,
    /// Whether thoughts are readable. If not, the reply contains only their Seals.
    pub(crate) shows: bool,
    /// Names of the tools called since the last user message, in order.
    pub(crate) called: Vec<String>,
    /// Keys of the replies whose Seals must come back: those calls, and more for providers that
    /// require more.
    pub(crate) owed: Vec<ReplyKey>,
    /// The thinking configuration, where it must stay constant for a whole turn.
    pub(crate) config: Option<Digest>,
    /// Results of those tools as text, in order.
    pub(crate) results: Vec<String>,
    /// Number of model replies in the conversation.
    pub(crate) step: usize,
    /// Text of the last user message.
    pub(crate) user_text: String,
    /// JSON Schema of the reply, if a structured one is requested; `true` for any object.
    pub(crate) schema: Option<Value>,
    /// Whether the request contains the model's own thoughts as plain text.
    pub(crate) demoted: bool,
    /// Maximum number of output tokens.
    pub(crate) max_tokens: Option<u64>,
    /// The conversation so far, if the family binds Seals to it.
    pub(crate) prefix: PrefixBinding,
    /// Notices about the request that the provider includes in its response.
    pub(crate) notices: Vec<Value>,
    /// Elements in the order in which the provider renders them, for cache and usage.
    pub(crate) elements: Vec<PromptElement>,
}

impl Turn {
    /// Creates an empty turn.
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
            owed: Vec::new(),
            config: None,
            results: Vec::new(),
            step: 0,
            user_text: String::new(),
            schema: None,
            demoted: false,
            max_tokens: None,
            prefix: PrefixBinding::default(),
            notices: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// Starts a new turn at a user message and discards the tool calls of the previous one.
    pub(crate) fn start_user_turn(&mut self, text: impl Into<String>) {
        self.user_text = text.into();
        self.called.clear();
        self.owed.clear();
        self.results.clear();
    }
}

/// A tool that the client runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    /// JSON Schema of the arguments.
    pub(crate) schema: Value,
    /// Whether the input is free-form text.
    pub(crate) custom: bool,
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool.
    Never,
    /// At least one tool.
    Any,
    /// This tool.
    Tool(String),
}

impl ToolChoice {
    /// Returns whether the model must call a tool.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::Any | Self::Tool(_))
    }
}

/// A planned reply, before the wire encodes and seals it.
#[derive(Clone, Debug)]
pub(crate) struct ReplyPlan {
    pub(crate) parts: Vec<ReplyPart>,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
}

/// One part of a planned reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReplyPart {
    /// A thought. A hidden one consists only of a Seal, regardless of the request.
    Thought { text: String, display: ThoughtDisplay },
    /// Text for the user.
    Text(String),
    /// A tool call.
    Call {
        name: String,
        /// An object, or a string for a free-form tool.
        arguments: Value,
    },
}

impl ReplyPart {
    /// Returns the text for the user.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// How a thought appears in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ThoughtDisplay {
    /// As the request specifies.
    #[default]
    AsAsked,
    /// As a Seal without text.
    SealOnly,
    /// Redacted if the wire supports it, else as a Seal without text.
    Redacted,
}

/// A rejected request, in the provider's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The provider's error type: `invalid_request_error`, `ValidationException`,
    /// `INVALID_ARGUMENT`. Empty for the wire's default for the status.
    #[serde(default)]
    pub(crate) kind: String,
    /// The provider's error code, if it has one besides the type.
    pub(crate) code: Option<String>,
    /// The invalid parameter, if the provider names one.
    pub(crate) param: Option<String>,
    /// Value of `retry-after` in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl Refusal {
    /// Creates a rejection with status 400.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// Creates a rejection with the given status.
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), ..Self::default() }
    }

    /// Returns the error type, or the wire's default for the status.
    pub(crate) fn kind_or<'k>(&'k self, default: &'k str) -> &'k str {
        if self.kind.is_empty() { default } else { &self.kind }
    }

    /// Adds the name of the invalid parameter.
    pub(crate) fn param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// Adds an error code.
    pub(crate) fn code(self, code: impl Into<String>) -> Self {
        Self { code: Some(code.into()), ..self }
    }

    /// Adds an error type.
    pub(crate) fn kind(self, kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..self }
    }
}

/// Rejects the request with status 400 and the formatted message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::turn::Refusal::invalid(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// Computes the output tokens of a reply.
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
