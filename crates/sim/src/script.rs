//! What to answer, turn by turn, instead of what the simulator would think of.
//!
//! A script is TOML or JSON, a list of turns. Each answers one request, in order:
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
//! model = "claude-*"          # only for these models
//! step = 1                    # only when the model spoke once before
//! times = 2                   # for two such requests
//! parts = [                   # in any order
//!     { thought = "…", telling = "redacted" },
//!     { text = "Sunny." },
//!     { call = "news" },      # with arguments that fit
//! ]
//! stop = "length"
//! usage = { input = 100, cached = 80, output = 20, thought = 10 }
//! ```
//!
//! When no turn is left for a request, the simulator thinks for itself.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use throughline_core::{Profile, Stop, Usage};

use crate::digest::Mark;
use crate::schema;
use crate::turn::{Part, Plan, Refusal, Telling, Turn};

#[cfg(test)]
#[path = "script_tests.rs"]
mod script_tests;

/// What to answer, turn by turn. Read one with [`str::parse`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    turns: Vec<Scripted>,
}

/// Why a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the script is wrong: {message}")]
pub struct ScriptError {
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    turn: Vec<Scripted>,
}

/// One turn as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Scripted {
    /// A pattern of model names.
    model: Option<String>,
    /// How many times the model spoke before.
    step: Option<usize>,
    /// How many requests it answers; one where nothing is said.
    times: Option<u32>,
    thoughts: Vec<String>,
    /// How those thoughts are told.
    telling: Telling,
    texts: Vec<String>,
    calls: Vec<ScriptedCall>,
    /// Everything in its order, instead of thoughts, texts and calls.
    parts: Vec<ScriptedPart>,
    stop: Option<ScriptedStop>,
    usage: Option<ScriptedUsage>,
    refuse: Option<ScriptedRefusal>,
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
    telling: Telling,
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

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ScriptedRefusal {
    status: u16,
    message: String,
    #[serde(default)]
    kind: String,
    code: Option<String>,
    param: Option<String>,
    retry_after: Option<u64>,
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
            serde_json::from_str::<File>(text).map_err(json_error)?.turn
        } else {
            toml::from_str::<File>(text).map_err(|error| toml_error(text, &error))?.turn
        };
        Ok(Self { turns })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn json_error(error: serde_json::Error) -> ScriptError {
    let message = error.to_string();
    let told = message.rsplit_once(" at line ").map_or(message.as_str(), |(told, _)| told);
    ScriptError { line: error.line(), message: with_suggestion(told) }
}

fn toml_error(text: &str, error: &toml::de::Error) -> ScriptError {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ScriptError { line, message: with_suggestion(error.message()) }
}

/// The message, with the likeliest of the words that it lists put first.
fn with_suggestion(message: &str) -> String {
    let Some((unknown, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let word = unknown.split('`').nth(1).unwrap_or_default();
    let known = expected.split('`').skip(1).step_by(2);
    let closest = known.map(|known| (distance(word, known), known)).min();
    match closest {
        Some((edits, known)) if edits <= 1 + word.len() / 3 => {
            format!("{unknown}; did you mean `{known}`?")
        }
        Some(_) | None => message.to_owned(),
    }
}

/// How many letters have to be added, dropped or replaced to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        let mut next = vec![left];
        for (candidate, above) in other.chars().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(letter != candidate)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// A script that is being played.
#[derive(Debug)]
pub(crate) struct Playing {
    /// The turns, with how many requests each still answers.
    left: Mutex<Vec<(u32, Scripted)>>,
}

impl Playing {
    pub(crate) fn new(script: Script) -> Self {
        let turns = script.turns.into_iter().map(|turn| (turn.times.unwrap_or(1), turn));
        Self { left: Mutex::new(turns.collect()) }
    }

    /// What the script says to a request, if it says anything. What it leaves open about tokens is filled in from `cost`.
    pub(crate) fn next(
        &self,
        turn: &Turn,
        cost: Usage,
        nonce: Mark,
    ) -> Option<Result<Plan, Refusal>> {
        let scripted = {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let found = left.iter_mut().find(|(times, scripted)| *times > 0 && scripted.fits(turn));
            let (times, scripted) = found?;
            *times -= 1;
            scripted.clone()
        };
        Some(scripted.plan(turn, cost, nonce))
    }
}

impl Scripted {
    fn fits(&self, turn: &Turn) -> bool {
        let fits_model = |pattern: &String| {
            let row = Profile { models: vec![pattern.clone()], ..Profile::default() };
            row.fit(turn.target.model()).is_some()
        };
        self.model.as_ref().is_none_or(fits_model) && self.step.is_none_or(|step| step == turn.step)
    }

    fn plan(self, turn: &Turn, cost: Usage, nonce: Mark) -> Result<Plan, Refusal> {
        if let Some(refused) = self.refuse {
            return Err(Refusal {
                status: refused.status,
                kind: refused.kind,
                message: refused.message,
                param: refused.param,
                code: refused.code,
                retry_after: refused.retry_after,
            });
        }
        let call = |name: String, arguments: Option<Value>| {
            let offered = turn.tools.iter().find(|tool| tool.name == name);
            let fitting = || offered.map(|tool| schema::fitting(&tool.schema, nonce.and(&name)));
            let arguments =
                arguments.or_else(fitting).unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            Part::Call { name, arguments }
        };
        let telling = self.telling;
        let thoughts = self.thoughts.into_iter().map(|text| Part::Thought { text, telling });
        let texts = self.texts.into_iter().map(Part::Text);
        let calls = self.calls.into_iter().map(|asked| call(asked.name, asked.arguments));
        let mut parts: Vec<Part> = thoughts.chain(texts).chain(calls).collect();
        for part in self.parts {
            let ScriptedPart { thought, telling, text, call: name, arguments } = part;
            parts.extend(thought.map(|text| Part::Thought { text, telling }));
            parts.extend(text.map(Part::Text));
            parts.extend(name.map(|name| call(name, arguments)));
        }
        let calls_tools = parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let stop = match self.stop {
            Some(ScriptedStop::Length) => Stop::Length,
            Some(ScriptedStop::Sequence) => Stop::Sequence(None),
            Some(ScriptedStop::Paused) => Stop::Paused,
            Some(ScriptedStop::Refused) => Stop::Refused("refusal".into()),
            Some(ScriptedStop::Tools) => Stop::Tools,
            None if calls_tools => Stop::Tools,
            Some(ScriptedStop::Done) | None => Stop::Done,
        };
        let spent = crate::mind::output(&parts);
        let usage = self.usage.unwrap_or_default();
        let usage = Usage {
            input: usage.input.unwrap_or(cost.input),
            cached: usage.cached.unwrap_or(if usage.input.is_some() { 0 } else { cost.cached }),
            written: usage.written.unwrap_or(if usage.input.is_some() { 0 } else { cost.written }),
            output: usage.output.unwrap_or(spent.output),
            thought: usage.thought.unwrap_or(spent.thought),
        };
        Ok(Plan { parts, stop, usage })
    }
}
