//! All that is known of a run, and what it says in the documented words.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_core::{Body, Json, Message, Name, Nullable, Plan, Role, SmartState};

use crate::cast::{Cast, Part};
use crate::progress::{Phase, Progress, RunStatus, Stage};
use crate::window::{Kept, Window};

/// All that is known of a run.
#[derive(Clone, Debug)]
pub struct State {
    /// Who takes part.
    pub cast: Arc<Cast>,
    /// The documented state, without its messages: those are in the window.
    pub smart: SmartState,
    /// The conversation, as the model is shown it.
    pub window: Window,
    /// How far it is.
    pub progress: Progress,
    /// The ids of all calls so far.
    pub(crate) calls: HashSet<Name>,
}

/// What a Thread tells every run on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) smart: SmartState,
    pub(crate) window: Window,
    pub(crate) calls: HashSet<Name>,
}

impl Known {
    pub(crate) fn new(smart: SmartState, window: Window) -> Self {
        let ran = smart.tool_history.iter().chain(&smart.tool_history_archived).flatten();
        let ran = ran.filter_map(|execution| execution.tool_call_id.clone());
        let calls = window.calls().map(|call| call.0.clone()).chain(ran).collect();
        Self { smart, window, calls }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.cast.casting == other.cast.casting
            && self.smart == other.smart
            && self.window == other.window
            && self.progress == other.progress
    }
}

impl State {
    /// A run that has not begun, on a Thread of which that is known.
    pub fn new(run: Name, cast: Arc<Cast>, smart: SmartState, window: Window, now: &str) -> Self {
        Self::beginning(run, cast, Known::new(smart, window), now)
    }

    pub(crate) fn beginning(run: Name, cast: Arc<Cast>, known: Known, now: &str) -> Self {
        let progress = Progress {
            run,
            agent: cast.casting.first.clone(),
            model: None,
            prefix_bound: None,
            phase: Phase::Waiting,
            turn: 0,
            tool_calls: 0,
            calls: Vec::new(),
            answers_at: 0,
            spent: crate::progress::Spent::default(),
            by_model: Vec::new(),
            since: Name::from(now),
            waits_since: None,
            gate: None,
            breakers: std::collections::BTreeMap::new(),
            reflected: crate::progress::Reflected::default(),
            breach: None,
            ids: 0,
            no_summary: false,
            compacts: false,
            brought_back: 0,
            from: 0,
            heard: 0,
        };
        Self::of(cast, known, progress)
    }

    /// A run that goes on from there.
    pub fn resumed(cast: Arc<Cast>, smart: SmartState, window: Window, progress: Progress) -> Self {
        Self::of(cast, Known::new(smart, window), progress)
    }

    pub(crate) fn of(cast: Arc<Cast>, known: Known, progress: Progress) -> Self {
        let Known { smart, window, calls } = known;
        Self { cast, smart, window, progress, calls }
    }

    /// What of it the Thread tells every run on it.
    pub(crate) fn into_known(self) -> Known {
        let Self { smart, window, calls, .. } = self;
        Known { smart, window, calls }
    }

    /// Nothing but who takes part and how far it is: what stands here while a step is being made.
    pub(crate) fn hollow(&self) -> Self {
        let (cast, progress) = (Arc::clone(&self.cast), self.progress.clone());
        let (smart, window) = (SmartState::default(), Window::default());
        Self { cast, smart, window, progress, calls: HashSet::new() }
    }

    /// The documented state, with the conversation as the model is shown it.
    pub fn smart_state(&self) -> SmartState {
        let items: Vec<_> = self.window.shown().cloned().collect();
        SmartState { messages: Message::of(&items), ..self.smart.clone() }
    }

    /// What the agent answered: the text of the last message, if it is the agent's.
    pub fn answer(&self) -> Option<String> {
        let last = self.window.items.last()?.item.place.message;
        let is_last = |kept: &&Kept| kept.item.place.message == last;
        let texts = self.window.items.iter().filter(is_last).filter_map(|Kept { item, .. }| {
            let is_own = item.role == Role::Assistant;
            if let (Body::Text(text), true) = (&item.body, is_own) { Some(&**text) } else { None }
        });
        Some(texts.collect::<String>()).filter(|text| !text.is_empty())
    }

    /// Whether what waits there is a call that was begun before, and nobody saw its end.
    pub fn is_lost(&self, approval: &str) -> bool {
        self.progress.calls.iter().any(|call| match &call.stage {
            Stage::Approval { id, lost } => *lost && **id == *approval,
            _ => false,
        })
    }

    /// How the run stands.
    pub fn status(&self) -> RunStatus {
        self.progress.status()
    }

    /// The model that is asked for the next step.
    pub fn model(&self) -> Name {
        let part = self.part();
        let other = self.progress.gate.as_ref().filter(|gate| gate.others > 0).and_then(|gate| {
            part?.config.gate.other_models.get(gate.others.saturating_sub(1)).cloned()
        });
        let own = || part.map_or_else(|| Name::from(""), |part| part.config.model.clone());
        other.or_else(|| self.progress.model.clone()).unwrap_or_else(own)
    }

    /// Whether the seals of the model that is asked are bound to all that was sent before them.
    pub(crate) fn is_prefix_bound(&self) -> bool {
        let model = self.model();
        self.cast.is_prefix_bound(&model) || self.progress.prefix_bound.as_ref() == Some(&model)
    }

    /// The agent that is at it.
    pub(crate) fn part(&self) -> Option<&Part> {
        self.cast.part(&self.progress.agent)
    }

    /// The plan, if there is one.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.smart.plan.as_ref().and_then(Nullable::value)
    }

    /// Where the answer is archived that these arguments of `get_tool_response` ask for.
    pub(crate) fn archive_of(&self, args: &Json) -> Option<Name> {
        let wanted = args.tree().root().name_of("executionId")?;
        let mut archived = self.smart.tool_history_archived.iter().flatten();
        archived.find(|execution| execution.execution_id == wanted)?.archive_id.clone()
    }

    /// A member of `ctx`.
    pub fn context(&self, key: &str) -> Option<&Json> {
        let ctx = self.smart.ctx.as_ref()?;
        ctx.iter().find(|(name, _)| **name == *key).map(|(_, value)| value)
    }
}
