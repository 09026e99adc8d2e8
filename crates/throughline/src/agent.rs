//! Durable agents: configuration, tools, and the runner that stores each step.
//!
//! A [`Listener`] receives the events of a run while the run is driven. [`events`] returns all past
//! events, and [`Runner::progress`] returns the phase, the open tool calls and the usage.

use std::sync::Arc;

use throughline_core::{
    LogId, ModelRegistry, Store as _, StoreError, Tenant, ToolCall, unpack_events,
};
use throughline_json::Json;
use throughline_spec::RunEvent;
use throughline_store::Journal;

pub use throughline_agent::{
    ASK_USER_QUESTION, Action, AgentConfig, AgentKind, AgentLimits, Agents, AskUser, BreakerConfig,
    BreakerState, CallDenial, CallGrant, CallPermit, ContextPolicy, Decision, EphemeralMessage,
    FunctionTool, GET_TOOL_RESPONSE, Gate, GateAttempts, GateRule, Handoff, HumanInTheLoop,
    HumanRequest, HumanRequestKind, Input, InvalidConfig, InvalidSnapshot, LengthTokenCounter,
    Listener, MANAGE_TODO_LIST, ModelAnswer, ModelUsage, Narrator, OpenCall, OpenCalls,
    OutputContract, PermitFuture, Phase, PlacedMessage, Ports, Progress, Purpose, ReflectionState,
    Refusal, RefusalKind, ResolvedRun, RunCommand, RunError, RunInput, RunRequest, RunSpec,
    RunStatus, Runner, RuntimeProfile, Snapshot, Stage, StartedRun, State, Tool, ToolAnswer,
    ToolCompletion, ToolContext, ToolFuture, ToolRun, ToolSpec, UnknownOutcome, UsageTotals,
    Watcher, Window, WindowItem, function_tool, narrate, parse_snapshot, schema_of, sentence, step,
};
pub use throughline_core::{Clock, CostEstimator, IdGenerator};

/// Creates a runner that uses the system clock. Any process that opens the same store can resume
/// the runs of this runner.
pub fn runner(store: &Journal, models: impl ModelRegistry + 'static) -> Runner {
    let ports = Ports::with_system_clock(store.derived_key("agent threads"));
    Runner::new(Arc::new(store.clone()), Arc::new(models), ports)
}

/// Returns all events of a run so far, oldest first.
pub async fn events(
    store: &Journal,
    tenant: &Tenant,
    run: &LogId,
) -> Result<Vec<RunEvent>, StoreError> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let records = store.read(tenant, run, after, 256).await?;
        let Some(last) = records.last() else { return Ok(events) };
        after = last.seq;
        let packed = records.iter().flat_map(|record| unpack_events(record).unwrap_or_default());
        let read = packed.filter_map(|(_, event)| Json::parse(event).ok());
        events.extend(read.filter_map(|event| RunEvent::parse(&event).ok()));
    }
}

/// Returns the calls to [client-side tools](ToolSpec::client) that a run is waiting for, with the
/// approved arguments. Send the results with [`RunCommand::Return`].
pub fn client_calls(state: &State) -> Vec<ToolCall> {
    let open = state.progress.calls.iter();
    let waiting = open.filter(|open| matches!(open.stage, Stage::Client { .. }));
    let calls = waiting.filter_map(|open| {
        let call = state.window.call(&open.id)?.clone();
        Some(ToolCall { args: open.args.clone().unwrap_or(call.args), ..call })
    });
    calls.collect()
}
