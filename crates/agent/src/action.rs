//! What is to be done about what happened.

use std::time::Duration;

use throughline_core::{Item, Json, Name, RunEvent, StateChange};

use crate::progress::{Purpose, RunStatus};

/// Something that is to be done. The first kinds are kept together with the state, in one commit; the others are done after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The Thread has these from now on.
    Keep(Vec<Item>),
    /// The documented state changes.
    Change(StateChange),
    /// Whoever listens is told.
    Tell(RunEvent),
    /// A person is asked, or the caller.
    Ask(Asking),
    /// What somebody was asked is decided. Nobody can decide it again.
    Take(Name),
    /// How the run stands is known to everybody.
    Stand(RunStatus),

    /// A model is asked; [`State::call`](crate::State::call) says what.
    Call(Purpose),
    /// These tools are about to begin: that is kept first.
    Begin(Vec<Name>),
    /// A tool runs.
    Run(ToolRun),
    /// Nothing more is to be done until somebody says something.
    Rest,

    /// What happened cannot have happened, and changed nothing.
    Refuse(Refusal),
}

/// What a person is asked, or the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Its id.
    pub id: Name,
    /// What it is.
    pub kind: AskingKind,
    /// How long it can be decided.
    pub expires_in: Option<Duration>,
}

/// What somebody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskingKind {
    /// Whether a tool may run.
    Approval,
    /// A question of the model.
    Question,
    /// What a tool of the caller returns.
    Client,
}

impl AskingKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Client => "client_tool",
        }
    }
}

/// A tool that is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    /// The call.
    pub call: Name,
    /// The tool.
    pub tool: Name,
    /// The agent that calls it.
    pub agent: Name,
    /// The arguments.
    pub args: Json,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// Why something cannot have happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal it is.
    pub kind: RefusalKind,
    /// What is wrong, and what to do.
    pub message: Name,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// There is nothing of that name.
    NotFound,
    /// It was decided before, or it is too late, or the run is not where it would have to be.
    Conflict,
    /// It is not what it has to be.
    Invalid,
}

impl RefusalKind {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
        }
    }

    /// The kind of that word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::NotFound, Self::Conflict, Self::Invalid]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

impl Refusal {
    pub(crate) fn not_found(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::NotFound, message: message.into() }
    }

    pub(crate) fn conflict(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::Conflict, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::Invalid, message: message.into() }
    }
}
