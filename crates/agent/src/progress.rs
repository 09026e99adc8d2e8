//! How far a run is: everything that is neither in the Thread nor declared before the run.
//!
//! It is kept with every step, so it is small: it refers to what the Thread has, and repeats none of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_core::{Json, Name, Origin, Usage};

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The run.
    pub run: Name,
    /// The agent that is at it.
    pub agent: Name,
    /// The model that it asks, where that is not its own: after a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Name>,
    /// That model, if its seals are bound to all that was sent before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_bound: Option<Name>,
    /// What it does now.
    pub phase: Phase,
    /// How often a model was asked for the next step.
    #[serde(default)]
    pub turn: u64,
    /// How many tools were called.
    #[serde(default)]
    pub tool_calls: u64,
    /// The calls of the last answer, in their order, until all are answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<OpenCall>,
    /// The message that their answers make up.
    #[serde(default)]
    pub answers_at: u32,
    /// What it used.
    #[serde(default)]
    pub spent: Spent,
    /// The same, for each model that answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_model: Vec<ModelSpent>,
    /// Since when it is at work, without the time in which it waited for a person.
    pub since: Name,
    /// Since when it waits for a person, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<Name>,
    /// The gate that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Trial>,
    /// How often the models failed lately.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub breakers: BTreeMap<Name, BreakerState>,
    /// What is known of its reflections.
    #[serde(default)]
    pub reflected: Reflected,
    /// The limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breach: Option<Name>,
    /// How many ids it has made up.
    #[serde(default)]
    pub ids: u64,
    /// Whether older parts of the conversation could not be summarised, so that this is not tried again in this run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_summary: bool,
    /// Whether it is there for a summary alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacts: bool,
    /// How often an archived answer was brought back.
    #[serde(default)]
    pub brought_back: u64,
    /// The last record of the Thread before it began.
    #[serde(default)]
    pub from: u64,
    /// The last word in its inbox that was heard.
    #[serde(default)]
    pub heard: u64,
}

impl Progress {
    /// How the run stands.
    pub fn status(&self) -> RunStatus {
        match &self.phase {
            Phase::Asking { .. } | Phase::Working => RunStatus::Running,
            Phase::Waiting => RunStatus::Waiting,
            Phase::Ended { status, .. } => *status,
        }
    }
}

/// What a run does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Phase {
    /// A model is asked.
    Asking {
        /// For what.
        purpose: Purpose,
    },
    /// Tools are at work.
    Working,
    /// It waits for a person, or for the caller's tools.
    Waiting,
    /// It is over.
    Ended {
        /// How it ended.
        status: RunStatus,
        /// Why.
        reason: Name,
    },
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// The next step.
    Turn,
    /// One last answer, without tools.
    Final,
    /// A note on what just happened. It is no turn of the conversation.
    Reflection,
    /// A summary of what is old.
    Summary,
}

impl Purpose {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Final => "final",
            Self::Reflection => "reflection",
            Self::Summary => "summary",
        }
    }

    /// Whether the answer is part of the conversation.
    pub fn is_turn(self) -> bool {
        matches!(self, Self::Turn | Self::Final)
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It is at work.
    Running,
    /// It waits for a person, or for the caller's tools.
    Waiting,
    /// It answered.
    Completed,
    /// It could not.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl RunStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A call of a tool that is not answered yet, or is while others are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenCall {
    /// The call.
    pub id: Name,
    /// The tool.
    pub tool: Name,
    /// How far it is.
    pub stage: Stage,
    /// The arguments that it may run with, where they are not the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Name>,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Stage {
    /// It is next.
    Queued,
    /// A person must allow it, or say what became of it.
    Approval {
        /// What waits.
        id: Name,
        /// Whether it was begun, and nobody knows how it ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lost: bool,
    },
    /// A person must answer.
    Question {
        /// What waits.
        id: Name,
    },
    /// The caller runs it.
    Client {
        /// What waits.
        id: Name,
    },
    /// It was begun.
    Begun,
    /// It is answered.
    Done,
}

impl Stage {
    /// What waits for somebody.
    pub fn pending(&self) -> Option<&Name> {
        match self {
            Self::Approval { id, .. } | Self::Question { id } | Self::Client { id } => Some(id),
            Self::Queued | Self::Begun | Self::Done => None,
        }
    }
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spent {
    /// Tokens that models read.
    pub input: u64,
    /// Of those, found in a cache.
    pub cached: u64,
    /// Tokens that models wrote.
    pub output: u64,
    /// Of those, thought.
    pub thought: u64,
    /// What it cost, in US dollars.
    pub cost_usd: f64,
}

/// What the answers of one model used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpent {
    /// The account that was asked, by its configured label.
    pub account: Name,
    /// The model that was asked for, as its provider calls it.
    pub model: Name,
    /// How many answers there were.
    pub answers: u64,
    /// What they used.
    pub spent: Spent,
}

impl Progress {
    /// Counts one more answer in.
    pub(crate) fn spend(&mut self, by: &Origin, usage: &Usage, cost: Option<f64>) {
        self.spent.add(usage, cost);
        let is_it = |one: &ModelSpent| one.account == by.account && one.model == by.asked;
        let place = self.by_model.iter().position(is_it).unwrap_or_else(|| {
            let (account, model) = (by.account.clone(), by.asked.clone());
            self.by_model.push(ModelSpent { account, model, answers: 0, spent: Spent::default() });
            self.by_model.len() - 1
        });
        if let Some(one) = self.by_model.get_mut(place) {
            one.answers += 1;
            one.spent.add(usage, cost);
        }
    }
}

impl Spent {
    /// Counts one more answer in.
    fn add(&mut self, usage: &Usage, cost: Option<f64>) {
        self.input = self.input.saturating_add(usage.input);
        self.cached = self.cached.saturating_add(usage.cached);
        self.output = self.output.saturating_add(usage.output);
        self.thought = self.thought.saturating_add(usage.thought);
        self.cost_usd += cost.unwrap_or(0.0);
    }
}

/// A gate that is not passed yet: what the model was told between its answers. None of it is kept in the Thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trial {
    /// How often the model was asked, and did not answer as it had to.
    pub attempts: u64,
    /// What was wrong each time.
    pub errors: Vec<Name>,
    /// What it answered and was told, in order: texts of the model and of us in turns.
    pub exchange: Vec<Ephemeral>,
    /// How many of the other models were tried.
    pub others: usize,
}

/// Something that a model said or was told in a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ephemeral {
    /// Whether the model said it.
    pub by_model: bool,
    /// What was said.
    pub text: Name,
}

/// How often a model failed lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BreakerState {
    /// How often in a row.
    pub failures: u64,
    /// How often it answered since it was tried again.
    pub successes: u64,
    /// Until when it is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Name>,
}

/// What is known of a run's reflections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reflected {
    /// How many calls asked for one.
    pub count: u64,
    /// After which turn of tools the last one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// How many turns with tools there were.
    pub tool_turns: u64,
    /// The tools of the last turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Name>,
    /// The tools of the one before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Name>,
    /// The calls of the last turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Name>,
    /// Whether the last turn was looked at already.
    pub seen: bool,
}
