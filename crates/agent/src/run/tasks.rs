//! Concurrent tasks of a run: model calls and tools.
//!
//! Each call runs as its own task. If a task panics, the run receives a failure for that call, and
//! the other tasks continue.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use throughline_core::{Call, LogId, ModelError, ModelErrorKind, Store, Tenant};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{RunEvent, ToolCallEvent, ToolCallPhase};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::action::ToolRun;
use crate::input::{RunInput, ToolCompletion};
use crate::run::model_call::ModelCall;
use crate::run::{EventEmitter, load};
use crate::tool::{Tool, ToolAnswer, ToolContext};
use crate::window::readable_text;

/// Running model calls and tool calls of a run.
#[derive(Default)]
pub(crate) struct RunTasks(JoinSet<RunInput>);

impl RunTasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn call_model(&mut self, model_call: ModelCall, call: Call) {
        let problem = "the task that called the model stopped unexpectedly";
        let error = ModelError::new(ModelErrorKind::Other, problem);
        let failure = RunInput::Failed { purpose: model_call.purpose, error, streamed: false };
        self.spawn(model_call.send(call), failure);
    }

    pub(crate) fn run(
        &mut self,
        tool: Arc<dyn Tool>,
        run: ToolRun,
        ctx: Arc<BTreeMap<Name, Json>>,
        emitter: EventEmitter,
    ) {
        let failure = tool_failure(run.call.clone(), tool.spec().idempotent);
        self.spawn(run_tool(tool, run, ctx, emitter), failure);
    }

    /// Spawns a task that computes a tool result without executing a tool.
    pub(crate) fn answer(
        &mut self,
        call: Name,
        answer: impl Future<Output = ToolAnswer> + Send + 'static,
    ) {
        let failure = tool_failure(call.clone(), true);
        let task = async { RunInput::ToolEnded(ToolCompletion { call, answer: answer.await }) };
        self.spawn(task, failure);
    }

    /// Spawns a task. If the task panics, its result is `failure`.
    fn spawn(&mut self, task: impl Future<Output = RunInput> + Send + 'static, failure: RunInput) {
        let task = AssertUnwindSafe(task).catch_unwind();
        self.0.spawn(async { task.await.unwrap_or(failure) });
    }

    /// Waits for the next task to finish and returns its result; `None` if no task is running.
    pub(crate) async fn next(&mut self) -> Option<RunInput> {
        self.0.join_next().await?.ok()
    }

    pub(crate) async fn stop(&mut self) {
        self.0.shutdown().await;
    }
}

/// Returns the input for a tool that panicked. The outcome is unknown unless the tool is
/// idempotent.
fn tool_failure(call: Name, idempotent: bool) -> RunInput {
    let problem = "The tool stopped unexpectedly.";
    let answer = if idempotent {
        ToolAnswer::error(problem)
    } else {
        ToolAnswer::unknown(format!("{problem} It is unknown whether the call took effect."))
    };
    RunInput::ToolEnded(ToolCompletion { call, answer })
}

/// Runs a tool. All progress events of the tool are emitted before the result is returned.
async fn run_tool(
    tool: Arc<dyn Tool>,
    run: ToolRun,
    ctx: Arc<BTreeMap<Name, Json>>,
    emitter: EventEmitter,
) -> RunInput {
    let (texts, mut progress) = unbounded_channel::<String>();
    let context = ToolContext {
        run: emitter.run.clone(),
        call: run.call.clone(),
        agent: run.agent.clone(),
        ctx,
        progress: Arc::new(move |text: &str| drop(texts.send(text.to_owned()))),
    };
    let execution = async {
        let execution = tool.run(&run.args, &context);
        let Some(limit) = run.timeout else { return execution.await };
        // A tool that exceeds its timeout is aborted, so its effect is unknown.
        timeout(limit, execution).await.unwrap_or_else(|_| {
            let limit = limit.as_millis();
            ToolAnswer::unknown(format!(
                "The tool took more than {limit} ms and was stopped. It is unknown whether the call took effect."
            ))
        })
    };
    let emit = async |text: String| {
        let mut event = ToolCallEvent::new(ToolCallPhase::Progress, run.tool.clone());
        event.id = Some(run.call.clone());
        event.result = Some(json::string(&text));
        emitter.emit(&RunEvent::ToolCall(event)).await;
    };
    let mut execution = pin!(execution);
    let answer = loop {
        tokio::select! {
            biased;
            Some(text) = progress.recv() => emit(text).await,
            answer = &mut execution => break answer,
        }
    };
    while let Ok(text) = progress.try_recv() {
        emit(text).await;
    }
    RunInput::ToolEnded(ToolCompletion { call: run.call.clone(), answer })
}

/// Reads a tool result that a summary covers. `number` is the result's sequence number in the
/// Thread.
pub(crate) async fn read_archived(
    store: Arc<dyn Store>,
    tenant: Tenant,
    thread: LogId,
    number: Name,
) -> ToolAnswer {
    match load::read_item(&*store, &tenant, &thread, &number).await {
        Ok(Some(item)) => ToolAnswer::text(readable_text(&item)),
        Ok(None) => ToolAnswer::error("The archived tool result was deleted."),
        Err(error) => ToolAnswer::error(error.to_string()),
    }
}
