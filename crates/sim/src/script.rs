//! Scripted replies, which take precedence over generated replies.
//!
//! A script is a TOML or JSON list of turns. The first turn that fits a request answers it, until
//! the turn has answered as many requests as it may:
//!
//! ```toml
//! [[turn]]
//! round = 0                   # the reply to a user message
//! thoughts = ["I should look that up. 🤔"]
//! calls = [{ name = "weather", arguments = { city = "Zürich" } }]
//!
//! [[turn]]
//! round = [1, 3]              # the next three replies
//! times = "always"            # in any number of conversations
//! calls = [{ role = "edit", path = "notes.txt", old = "one", new = "{{user}}" }]
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
//!     { text = "The tool returned {{result}}." },
//!     { call = "news" },      # with generated arguments
//!     { role = "run", command = "cargo test" },
//! ]
//! stop = "length"             # Gemini continues after "continuation" in the next turn
//! usage = { input = 100, cached = 80, output = 20, thought = 10 }
//! ```
//!
//! If no turn fits a request, the simulator generates a reply. `docs/simulators.md` describes all
//! keys.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use throughline_core::{StopReason, Usage, matches_pattern};

use crate::agent_tools::{
    MappedCall, RoleValues, ToolRole, map_call, requests_summary, sample_arguments,
};
use crate::digest::Digest;
use crate::placeholder::{expand, expand_value};
use crate::script_keys::{
    JsonScript, ScriptedPart, ScriptedStop, ScriptedTurn, TomlScript, TurnLimit,
};
use crate::turn::{CONTINUATION, Refusal, ReplyPart, ReplyPlan, Turn};

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

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let start = text.trim_start();
        let is_list =
            start.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
        let turns = if is_list {
            serde_json::from_str(text).map_err(json_error)?
        } else if start.starts_with('{') {
            serde_json::from_str::<JsonScript>(text).map_err(json_error)?.turn
        } else {
            let script: TomlScript =
                toml::from_str(text).map_err(|error| toml_error(text, &error))?;
            let turns = script.turn.into_iter().map(|keys| {
                let line = line_at(text, keys.span().start);
                let turn = ScriptedTurn::try_from(keys.into_inner());
                turn.map_err(|message| ScriptError { line, message })
            });
            turns.collect::<Result<_, ScriptError>>()?
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
    let line = line_at(text, error.span().map_or(0, |span| span.start));
    ScriptError { line, message: with_suggestion(error.message()) }
}

/// Returns the number of the line at a byte offset, starting at 1.
fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
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
    remaining: Mutex<Vec<(TurnLimit, ScriptedTurn)>>,
}

impl ScriptPlayer {
    pub(crate) fn new(script: Script) -> Self {
        let player = Self { remaining: Mutex::default() };
        player.replace(script);
        player
    }

    /// Replaces the script. The new script starts at its first turn.
    pub(crate) fn replace(&self, script: Script) {
        let turns = script.turns.into_iter().map(|turn| (turn.times, turn)).collect();
        *self.remaining.lock().unwrap_or_else(PoisonError::into_inner) = turns;
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
            let is_left = |limit: TurnLimit| limit != TurnLimit::Times(0);
            let matching = remaining
                .iter_mut()
                .find(|(limit, scripted)| is_left(*limit) && scripted.fits(turn));
            let (limit, scripted) = matching?;
            if let TurnLimit::Times(times) = limit {
                *times -= 1;
            }
            scripted.clone()
        };
        Some(scripted.plan(turn, cost, nonce))
    }
}

impl ScriptedTurn {
    /// Returns whether this turn can answer a request. A turn that calls tools answers no request
    /// for a compaction or summary. A turn that calls a tool by its role answers only requests that
    /// offer such a tool, so that it skips the side requests of agents, such as the request for a
    /// title.
    fn fits(&self, turn: &Turn) -> bool {
        let fits_model = |pattern: &String| matches_pattern(pattern, turn.target.model());
        let calls_tools = self.parts.iter().any(ScriptedPart::is_call);
        let compacts = turn.compacts || requests_summary(&turn.user_text);
        self.model.as_ref().is_none_or(fits_model)
            && self.step.is_none_or(|range| range.contains(turn.step))
            && self.round.is_none_or(|range| range.contains(turn.round()))
            && self.user.as_ref().is_none_or(|text| turn.user_text.contains(text))
            && self.tools.is_none_or(|has_tools| has_tools != turn.tools.is_empty())
            && self.compaction.is_none_or(|expected| expected == compacts)
            && !(compacts && calls_tools)
            && self.parts.iter().all(|part| part.fits(turn))
    }

    fn plan(self, turn: &Turn, cost: Usage, nonce: Digest) -> Result<ReplyPlan, Refusal> {
        if let Some(refusal) = self.refuse {
            return Err(refusal);
        }
        let parts: Vec<ReplyPart> =
            self.parts.into_iter().filter_map(|part| part.reply_part(turn, nonce)).collect();
        let calls_tools = parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
        let stop = match self.stop {
            Some(ScriptedStop::Length) => StopReason::Length,
            Some(ScriptedStop::Sequence) => StopReason::Sequence(None),
            Some(ScriptedStop::Paused) => StopReason::Paused,
            Some(ScriptedStop::Refused) => StopReason::Refused("refusal".into()),
            Some(ScriptedStop::Continuation) => StopReason::Other(CONTINUATION.into()),
            Some(ScriptedStop::Tools) => StopReason::Tools,
            None if calls_tools => StopReason::Tools,
            Some(ScriptedStop::Done) | None => StopReason::Done,
        };
        let spent = crate::turn::output(&parts);
        let usage = self.usage;
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

impl ScriptedPart {
    fn fits(&self, turn: &Turn) -> bool {
        match self {
            Self::Role { role, values } => {
                role_call(*role, values, turn, Digest::default()).is_some()
            }
            Self::Thought { .. } | Self::Text(_) | Self::Call { .. } => true,
        }
    }

    /// Returns the part of the reply to this request; `None` for a role that no tool can play,
    /// which [`ScriptedPart::fits`] excludes.
    fn reply_part(self, turn: &Turn, nonce: Digest) -> Option<ReplyPart> {
        Some(match self {
            Self::Thought { text, display } => {
                ReplyPart::Thought { text: expand(&text, turn), display }
            }
            Self::Text(text) => ReplyPart::Text(expand(&text, turn)),
            Self::Call { name, arguments: Some(mut arguments) } => {
                expand_value(&mut arguments, turn);
                ReplyPart::Call { name, arguments }
            }
            Self::Call { name, arguments: None } => {
                let tool = turn.tools.iter().find(|tool| tool.name == name);
                let arguments = tool.map_or_else(
                    || json!({}),
                    |tool| sample_arguments(tool, &turn.user_text, nonce),
                );
                ReplyPart::Call { name, arguments }
            }
            Self::Role { role, values } => {
                let MappedCall { name, arguments } = role_call(role, &values, turn, nonce)?;
                ReplyPart::Call { name, arguments }
            }
        })
    }
}

/// Maps a call by role to a tool of the request.
fn role_call(
    role: ToolRole,
    values: &RoleValues,
    turn: &Turn,
    nonce: Digest,
) -> Option<MappedCall> {
    let expanded = values.iter().map(|(name, text)| (name.clone(), expand(text, turn)));
    map_call(role, &expanded.collect(), &turn.tools, nonce)
}
