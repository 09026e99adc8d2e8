//! The in-memory state of a run, and the documented state (`SmartState`) that is derived from it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use throughline_core::{Body, Role};
use throughline_json::{self as json, Json, Name, Nullable};
use throughline_spec::{Message, Plan, Reflection, SmartState, StateChange};

use crate::config::InvalidConfig;
use crate::progress::{Progress, RunStatus, Stage};
use crate::roster::{ResolvedAgent, ResolvedRun, is_reserved_key};
use crate::window::{Window, WindowItem};

/// Maximum size of the callers' values in `ctx`, in bytes of JSON. Programs receive the values in
/// one environment variable, and Linux limits a variable to 128 KiB.
const MAX_CONTEXT: usize = 64 << 10;

/// Complete in-memory state of a run.
#[derive(Clone, Debug)]
pub struct State {
    /// Validated agents and tools of the run.
    pub cast: Arc<ResolvedRun>,
    /// The documented state without its messages, which are in `window`.
    pub smart: SmartState,
    /// The part of the conversation that the model sees.
    pub window: Window,
    /// Progress of the run outside the Thread.
    pub progress: Progress,
    /// Ids of all tool calls in the conversation and in the tool history.
    pub(crate) calls: HashSet<Name>,
}

/// State that all runs on a Thread share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadContext {
    pub(crate) smart: SmartState,
    pub(crate) window: Window,
    pub(crate) calls: HashSet<Name>,
}

impl ThreadContext {
    pub(crate) fn new(smart: SmartState, window: Window) -> Self {
        let executed = smart.tool_history.iter().chain(&smart.tool_history_archived).flatten();
        let executed = executed.filter_map(|execution| execution.tool_call_id.clone());
        let calls = window.calls().map(|call| call.0.clone()).chain(executed).collect();
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
    /// Rebuilds a run's state from its stored progress. If the run has not started, the progress
    /// contains only the run's id, first agent and start time.
    pub fn resume(
        cast: Arc<ResolvedRun>,
        smart: SmartState,
        window: Window,
        progress: Progress,
    ) -> Self {
        Self::from_parts(cast, ThreadContext::new(smart, window), progress)
    }

    pub(crate) fn from_parts(
        cast: Arc<ResolvedRun>,
        context: ThreadContext,
        progress: Progress,
    ) -> Self {
        let ThreadContext { smart, window, calls } = context;
        Self { cast, smart, window, progress, calls }
    }

    /// Extracts the state that all runs on the Thread share.
    pub(crate) fn into_thread_context(self) -> ThreadContext {
        let Self { smart, window, calls, .. } = self;
        ThreadContext { smart, window, calls }
    }

    /// Returns a copy with only the agents and the progress, as a placeholder while a step owns the
    /// real state.
    pub(crate) fn placeholder(&self) -> Self {
        let (cast, progress) = (Arc::clone(&self.cast), self.progress.clone());
        Self::from_parts(cast, ThreadContext::default(), progress)
    }

    /// Returns the documented state, including the conversation as the model sees it.
    pub fn smart_state(&self) -> SmartState {
        let items: Vec<_> = self.window.visible_items().cloned().collect();
        SmartState { messages: Message::from_items(&items), ..self.smart.clone() }
    }

    /// Returns the text of the last message, if the agent wrote that message.
    pub fn answer(&self) -> Option<String> {
        let last = self.window.items.last()?.item.place.message;
        let is_last = |entry: &&WindowItem| entry.item.place.message == last;
        let items = self.window.items.iter().filter(is_last).map(|entry| &entry.item);
        let texts = items.filter_map(|item| match (&item.body, item.role) {
            (Body::Text(text), Role::Assistant) => Some(&**text),
            _ => None,
        });
        Some(texts.collect::<String>()).filter(|text| !text.is_empty())
    }

    /// Deserializes the answer of an agent with an output schema. The error is `None` if there is
    /// no answer.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, Option<serde_json::Error>> {
        let answer = self.answer().ok_or(None)?;
        serde_json::from_str(strip_code_fence(&answer)).map_err(Some)
    }

    /// Returns whether `approval` is for a call that started earlier, but whose outcome was not
    /// recorded.
    pub fn is_lost(&self, approval: &str) -> bool {
        self.progress.calls.iter().any(|call| match &call.stage {
            Stage::Approval { id, lost } => *lost && **id == *approval,
            _ => false,
        })
    }

    /// Returns the status shown to clients.
    pub fn status(&self) -> RunStatus {
        self.progress.status()
    }

    /// Returns the name of the model for the next call: a fallback model of the gate, a switched
    /// model, or the agent's own model.
    pub fn model(&self) -> Name {
        let part = self.current_agent();
        let alternative = self.progress.gate.as_ref().and_then(|gate| {
            part?.config.gate.other_models.get(gate.others.checked_sub(1)?).cloned()
        });
        let default_model =
            || part.map_or_else(|| Name::from(""), |part| part.config.model.clone());
        alternative.or_else(|| self.progress.model.clone()).unwrap_or_else(default_model)
    }

    /// Returns whether Seals of the current model are bound to the whole prefix before them.
    pub(crate) fn is_prefix_bound(&self) -> bool {
        let model = self.model();
        self.cast.is_prefix_bound(&model) || self.progress.prefix_bound.as_ref() == Some(&model)
    }

    pub(crate) fn current_agent(&self) -> Option<&ResolvedAgent> {
        self.cast.agent(&self.progress.agent)
    }

    /// Returns the reflection settings of the current agent; `None` if reflection is off.
    pub(crate) fn reflection(&self) -> Option<&Reflection> {
        self.current_agent().and_then(|agent| agent.reasoning.reflection.as_ref())
    }

    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.smart.plan.as_ref().and_then(Nullable::value)
    }

    /// Returns the archive id of the tool result that a `get_tool_response` call requests.
    pub(crate) fn archive_id(&self, args: &Json) -> Option<Name> {
        let execution_id = args.tree().root().name_of("executionId")?;
        let mut archived = self.smart.tool_history_archived.iter().flatten();
        archived.find(|execution| execution.execution_id == execution_id)?.archive_id.clone()
    }

    /// Returns the value of a key in `ctx`. This field holds values that have no field of their own
    /// in the documented state.
    pub fn context(&self, key: &str) -> Option<&Json> {
        let mut ctx = self.smart.ctx.iter().flatten();
        ctx.find(|(name, _)| **name == *key).map(|(_, value)| value)
    }

    /// Returns the values that callers stored in `ctx`, without the marks of the runtime.
    pub fn caller_context(&self) -> BTreeMap<Name, Json> {
        let ctx = self.smart.ctx.iter().flatten();
        ctx.filter(|(key, _)| !is_reserved_key(key)).cloned().collect()
    }

    /// Checks the size of the values that callers stored in `ctx`.
    pub(crate) fn check_context_size(&self) -> Result<(), InvalidConfig> {
        let ctx = self.caller_context();
        let size = json::object_of(ctx.iter().map(|(key, value)| (&**key, value))).bytes().len();
        if size <= MAX_CONTEXT {
            return Ok(());
        }
        let problem = format!(
            "has {size} bytes as JSON, including values of earlier runs on the Thread, and the \
             maximum is {MAX_CONTEXT}; store large values elsewhere and pass a reference"
        );
        Err(InvalidConfig::new("ctx", problem))
    }

    /// Sets a key in `ctx`, or removes the key for `None`. Returns the state change; `None` if
    /// nothing changed.
    pub(crate) fn set_context(&mut self, key: &str, value: Option<Json>) -> Option<StateChange> {
        let ctx = self.smart.ctx.get_or_insert_default();
        let before = ctx.clone();
        ctx.retain(|(name, _)| **name != *key);
        ctx.extend(value.map(|value| (Name::from(key), value)));
        let members = ctx.iter().map(|(name, value)| (&**name, value));
        (*ctx != before).then(|| StateChange::new().set("ctx", json::object_of(members)))
    }
}

/// Strips the Markdown code fence that some models put around JSON.
pub(crate) fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).map_or(text, str::trim)
}
