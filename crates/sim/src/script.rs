//! Scripted replies, which take precedence over generated replies.
//!
//! A script is a TOML or JSON list of turns. Each turn answers one request, in the order of the
//! list:
//!
//! ```toml
//! [[turn]]
//! thoughts = ["I should look that up. 🤔"]
//! calls = [{ name = "weather", arguments = { city = "Zürich" } }]
//!
//! [[turn]]
//! refuse = { status = 529, message = "Overloaded" }
//!
//! [[turn]]
//! model = "claude-*"          # only for matching models
//! step = 1                    # only after one earlier reply
//! times = 2                   # answer two such requests
//! parts = [                   # in any order
//!     { thought = "…", telling = "redacted" },
//!     { text = "Sunny." },
//!     { call = "news" },      # with generated arguments
//! ]
//! stop = "length"
//! usage = { input = 100, cached = 80, output = 20, thought = 10 }
//! ```
//!
//! If no turn matches a request, the simulator generates a reply.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use throughline_core::{Profile, StopReason, Usage};

use crate::digest::Digest;
use crate::schema;
use crate::turn::{Refusal, ReplyPart, ReplyPlan, ThoughtDisplay, Turn};

#[cfg(test)]
#[path = "script_tests.rs"]
mod script_tests;

/// Scripted replies, in order. Create a script with [`str::parse`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    turns: Vec<ScriptedTurn>,
}

/// Error for a script that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid script, line {line}: {message}")]
pub struct ScriptError {
    /// Line number, starting at 1.
    pub line: usize,
    /// Description of the problem.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    turn: Vec<ScriptedTurn>,
}

/// A turn as written in the script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct ScriptedTurn {
    /// Pattern that the requested model name must match.
    model: Option<String>,
    /// Number of earlier model replies that the conversation must contain.
    step: Option<usize>,
    /// Number of requests that this turn answers; 1 by default.
    times: Option<u32>,
    thoughts: Vec<String>,
    /// How `thoughts` appear in the reply.
    telling: ThoughtDisplay,
    texts: Vec<String>,
    calls: Vec<ScriptedCall>,
    /// All parts of the reply in order. Replaces `thoughts`, `texts` and `calls`.
    parts: Vec<ScriptedPart>,
    stop: Option<ScriptedStop>,
    usage: Option<ScriptedUsage>,
    refuse: Option<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    name: String,
    arguments: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedPart {
    thought: Option<String>,
    telling: ThoughtDisplay,
    text: Option<String>,
    call: Option<String>,
    arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScriptedStop {
    Done,
    Tools,
    Length,
    Sequence,
    Paused,
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedUsage {
    input: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
    thought: Option<u64>,
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let start = text.trim_start();
        let is_list =
            start.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
        let turns = if is_list {
            serde_json::from_str(text).map_err(json_error)?
        } else if start.starts_with('{') {
            serde_json::from_str::<ScriptFile>(text).map_err(json_error)?.turn
        } else {
            toml::from_str::<ScriptFile>(text).map_err(|error| toml_error(text, &error))?.turn
        };
        Ok(Self { turns })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "signature required by map_err")]
fn json_error(error: serde_json::Error) -> ScriptError {
    let message = error.to_string();
    let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(start, _)| start);
    ScriptError { line: error.line(), message: with_suggestion(problem) }
}

fn toml_error(text: &str, error: &toml::de::Error) -> ScriptError {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ScriptError { line, message: with_suggestion(error.message()) }
}

/// Shortens the parser's error: replaces the list of expected names with the most similar name, if
/// there is one.
fn with_suggestion(message: &str) -> String {
    let Some((unknown, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let typed = unknown.split('`').nth(1).unwrap_or_default();
    let known = expected.split('`').skip(1).step_by(2);
    let closest = known.map(|known| (strsim::osa_distance(typed, known), known)).min();
    match closest {
        Some((edits, known)) if edits <= 1 + typed.len() / 3 => {
            format!("{unknown}; did you mean `{known}`?")
        }
        Some(_) | None => message.to_owned(),
    }
}

/// Plays a script and tracks its remaining turns.
#[derive(Debug)]
pub(crate) struct ScriptPlayer {
    /// The turns, each with the number of requests that it still answers.
    remaining: Mutex<Vec<(u32, ScriptedTurn)>>,
}

impl ScriptPlayer {
    pub(crate) fn new(script: Script) -> Self {
        let turns = script.turns.into_iter().map(|turn| (turn.times.unwrap_or(1), turn));
        Self { remaining: Mutex::new(turns.collect()) }
    }

    /// Returns the next scripted reply that matches the request, if any. `cost` supplies the token
    /// counts that the script does not set.
    pub(crate) fn next(
        &self,
        turn: &Turn,
        cost: Usage,
        nonce: Digest,
    ) -> Option<Result<ReplyPlan, Refusal>> {
        let scripted = {
            let mut remaining = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
            let matching =
                remaining.iter_mut().find(|(times, scripted)| *times > 0 && scripted.fits(turn));
            let (times, scripted) = matching?;
            *times -= 1;
            scripted.clone()
        };
        Some(scripted.plan(turn, cost, nonce))
    }
}

impl ScriptedTurn {
    fn fits(&self, turn: &Turn) -> bool {
        let fits_model = |pattern: &String| {
            let row = Profile { models: vec![pattern.clone()], ..Profile::default() };
            row.longest_match(turn.target.model()).is_some()
        };
        self.model.as_ref().is_none_or(fits_model) && self.step.is_none_or(|step| step == turn.step)
    }

    fn plan(self, turn: &Turn, cost: Usage, nonce: Digest) -> Result<ReplyPlan, Refusal> {
        if let Some(refusal) = self.refuse {
            return Err(refusal);
        }
        let call = |name: String, arguments: Option<Value>| {
            let tool = turn.tools.iter().find(|tool| tool.name == name);
            let generate = || tool.map(|tool| schema::generate(&tool.schema, nonce.and(&name)));
            let arguments = arguments.or_else(generate).unwrap_or_else(|| json!({}));
            ReplyPart::Call { name, arguments }
        };
        let telling = self.telling;
        let thoughts =
            self.thoughts.into_iter().map(|text| ReplyPart::Thought { text, display: telling });
        let texts = self.texts.into_iter().map(ReplyPart::Text);
        let calls = self.calls.into_iter().map(|scripted| call(scripted.name, scripted.arguments));
        let mut parts: Vec<ReplyPart> = thoughts.chain(texts).chain(calls).collect();
        for part in self.parts {
            let ScriptedPart { thought, telling, text, call: name, arguments } = part;
            parts.extend(thought.map(|text| ReplyPart::Thought { text, display: telling }));
            parts.extend(text.map(ReplyPart::Text));
            parts.extend(name.map(|name| call(name, arguments)));
        }
        let calls_tools = parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
        let stop = match self.stop {
            Some(ScriptedStop::Length) => StopReason::Length,
            Some(ScriptedStop::Sequence) => StopReason::Sequence(None),
            Some(ScriptedStop::Paused) => StopReason::Paused,
            Some(ScriptedStop::Refused) => StopReason::Refused("refusal".into()),
            Some(ScriptedStop::Tools) => StopReason::Tools,
            None if calls_tools => StopReason::Tools,
            Some(ScriptedStop::Done) | None => StopReason::Done,
        };
        let spent = crate::turn::output(&parts);
        let usage = self.usage.unwrap_or_default();
        let usage = Usage {
            input: usage.input.unwrap_or(cost.input),
            cached: usage.cached.unwrap_or(if usage.input.is_some() { 0 } else { cost.cached }),
            written: usage.written.unwrap_or(if usage.input.is_some() { 0 } else { cost.written }),
            output: usage.output.unwrap_or(spent.output),
            thought: usage.thought.unwrap_or(spent.thought),
        };
        Ok(ReplyPlan { parts, stop, usage })
    }
}
