//! What every wire's request comes to, and what is decided to answer it: the words between a wire and the mind.

use std::sync::Arc;

use axum::http::HeaderMap;
use jiff::civil::Date;
use serde_json::Value;
use throughline_core::{Provider, Stop, Target, Tree, Usage};

use crate::cache::Element;
use crate::digest::Mark;
use crate::keys::Prefix;
use crate::ledger::Landmark;

/// One request, as the server hands it to its wire: read strictly from here, and never through a codec.
pub(crate) struct Asking {
    /// The endpoint that was asked: a row of `providers.toml`.
    pub(crate) row: Arc<Provider>,
    /// The model, from the path or from the body; empty where neither names one.
    pub(crate) model: String,
    /// What is wanted.
    pub(crate) verb: Verb,
    /// What follows the path's `?`.
    pub(crate) query: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Tree,
    /// A digest of the key that the request came with.
    pub(crate) account: Mark,
    /// When that account was created.
    pub(crate) account_created: Date,
    /// What is new in this answer follows from this: ids, and the numbers in seals.
    pub(crate) nonce: Mark,
}

impl Asking {
    /// The value of a header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// An id of that form that no other answer has: `self.id("msg_", "reply", 24)`.
    pub(crate) fn id(&self, prefix: &str, label: &str, length: usize) -> String {
        self.nonce.and(label).id(prefix, length)
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A whole answer, or a streamed one where the body says so.
    Answer,
    /// A streamed answer, because the path says so.
    Stream,
    /// The number of tokens. The same is checked as for an answer.
    Count,
}

/// What a request asks for, whatever wire it came on.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a request asks for, each asked for or not")]
pub(crate) struct Turn {
    /// Who is asked.
    pub(crate) target: Target,
    /// Whether the answer is streamed.
    pub(crate) stream: bool,
    /// The tools that the client runs. What the provider runs itself is not here.
    pub(crate) tools: Vec<Offered>,
    /// What the request says of them.
    pub(crate) choice: Choice,
    /// Whether several may be called at once: what the request says, if it says it.
    pub(crate) parallel: Option<bool>,
    /// Whether the model thinks before it speaks.
    pub(crate) thinks: bool,
    /// Whether thoughts are shown. Where they are not, only seals tell of them.
    pub(crate) shows: bool,
    /// The names of the tools that were called since the user last spoke, in order.
    pub(crate) called: Vec<String>,
    /// By what the answers are known whose seals belong back: those calls, and more with who wants more.
    pub(crate) owed: Vec<Landmark>,
    /// The configuration of thinking, where one must last for a whole turn.
    pub(crate) config: Option<Mark>,
    /// What those tools answered, as text, in order.
    pub(crate) results: Vec<String>,
    /// How many times the model spoke in the whole conversation.
    pub(crate) step: usize,
    /// What the user last said.
    pub(crate) asked: String,
    /// The JSON Schema of the answer, where a structured one is wanted; `true` for any object.
    pub(crate) schema: Option<Value>,
    /// Whether the request shows the model its own thoughts as text.
    pub(crate) demoted: bool,
    /// The most tokens that the answer may have.
    pub(crate) max_tokens: Option<u64>,
    /// What an answer stands behind, where the family binds its seals to that.
    pub(crate) behind: Prefix,
    /// What the provider reports that it did to the request.
    pub(crate) notices: Vec<Value>,
    /// The request's elements in the order in which the provider renders them, for cache and usage.
    pub(crate) elements: Vec<Element>,
}

impl Turn {
    /// A turn in which nothing was said yet.
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            stream: false,
            tools: Vec::new(),
            choice: Choice::Auto,
            parallel: None,
            thinks: false,
            shows: true,
            called: Vec::new(),
            owed: Vec::new(),
            config: None,
            results: Vec::new(),
            step: 0,
            asked: String::new(),
            schema: None,
            demoted: false,
            max_tokens: None,
            behind: Prefix::default(),
            notices: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// The user spoke: what was called before belongs to an earlier turn.
    pub(crate) fn user_said(&mut self, text: impl Into<String>) {
        self.asked = text.into();
        self.called.clear();
        self.owed.clear();
        self.results.clear();
    }
}

/// A tool that the client runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offered {
    /// Its name.
    pub(crate) name: String,
    /// The JSON Schema of its arguments.
    pub(crate) schema: Value,
    /// Whether its input is a text of any form.
    pub(crate) custom: bool,
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As it sees fit.
    #[default]
    Auto,
    /// None.
    Never,
    /// One, whichever.
    Any,
    /// This one.
    Tool(String),
}

impl Choice {
    /// Whether it forces a call.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::Any | Self::Tool(_))
    }
}

/// What is answered, before a wire puts it in its own words and seals it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What is said, in order.
    pub(crate) parts: Vec<Part>,
    /// Why it ends.
    pub(crate) stop: Stop,
    /// What it costs.
    pub(crate) usage: Usage,
}

/// One part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// A thought. A hidden one is only a seal, whatever the request asked to be shown.
    Thought {
        /// What is thought.
        text: String,
        /// How it is told.
        telling: Telling,
    },
    /// Text for the user.
    Text(String),
    /// A tool is called.
    Call {
        /// The tool.
        name: String,
        /// Its arguments: an object, or a string for a tool of any form.
        arguments: Value,
    },
}

/// How a thought is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Telling {
    /// As the request asks.
    #[default]
    AsAsked,
    /// Only by its seal.
    SealOnly,
    /// Redacted, where the wire has that; else only by its seal.
    Redacted,
}

/// A request that is not answered, in the provider's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The provider's word for the kind: `invalid_request_error`, `ValidationException`, `INVALID_ARGUMENT`. Empty for the
    /// wire's usual word for that status.
    pub(crate) kind: String,
    /// The sentence.
    pub(crate) message: String,
    /// The parameter that is wrong, where the provider names one.
    pub(crate) param: Option<String>,
    /// The provider's code, where it has one besides the kind.
    pub(crate) code: Option<String>,
    /// Seconds to wait, as `retry-after`.
    pub(crate) retry_after: Option<u64>,
}

impl Refusal {
    /// A request that is wrong: status 400.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// A refusal with another status.
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), ..Self::default() }
    }

    /// The same about a parameter.
    pub(crate) fn param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The same with a code.
    pub(crate) fn code(self, code: impl Into<String>) -> Self {
        Self { code: Some(code.into()), ..self }
    }

    /// The same with a word for its kind.
    pub(crate) fn kind(self, kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..self }
    }
}
