//! Concurrent tasks of a run: model calls and tools.
//!
//! Each runs as its own task. A panic affects only that task: the run receives a failure for the
//! same call.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use throughline_core::{Call, EventWriter, LogId, ModelError, ModelErrorKind, Store, Tenant};
use throughline_json::{self as json, Name};
use throughline_spec::{RunEvent, ToolCallEvent, ToolCallPhase};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use crate::action::ToolRun;
use crate::input::{RunInput, ToolCompletion};
use crate::progress::Purpose;
use crate::run::model_call::ModelCall;
use crate::run::{Listener, load, notify_listener};
use crate::tool::{Tool, ToolAnswer, ToolContext};
use crate::window::readable_text;

/// Running tasks of a run.
#[derive(Default)]
pub(crate) struct RunTasks {
    tasks: JoinSet<RunInput>,
    /// Call that each task belongs to.
    about: HashMap<Id, TaskKind>,
}

/// Call that a task belongs to.
enum TaskKind {
    Question(Purpose),
    Tool {
        call: Name,
        /// Whether the tool can safely run twice.
        idempotent: bool,
    },
}

impl RunTasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Spawns a model call.
    pub(crate) fn ask(&mut self, question: ModelCall, call: Call) {
        let purpose = question.purpose;
        self.spawn(TaskKind::Question(purpose), question.ask(call));
    }

    /// Spawns a tool call.
    pub(crate) fn run(&mut self, tool: Arc<dyn Tool>, run: ToolRun, emitter: ProgressEmitter) {
        let about = TaskKind::Tool { call: run.call.clone(), idempotent: tool.spec().idempotent };
        self.spawn(about, run_tool(tool, run, emitter));
    }

    /// Spawns a task that answers a tool call without a tool.
    pub(crate) fn answer(
        &mut self,
        call: Name,
        answer: impl Future<Output = ToolAnswer> + Send + 'static,
    ) {
        let about = TaskKind::Tool { call: call.clone(), idempotent: true };
        self.spawn(about, async move {
            RunInput::ToolEnded(ToolCompletion { call, answer: answer.await })
        });
    }

    fn spawn(&mut self, about: TaskKind, task: impl Future<Output = RunInput> + Send + 'static) {
        let task = self.tasks.spawn(task);
        self.about.insert(task.id(), about);
    }

    /// Waits for the next task and returns its result; `None` if no task is running.
    pub(crate) async fn next(&mut self) -> Option<RunInput> {
        loop {
            match self.tasks.join_next_with_id().await? {
                Ok((id, what)) => {
                    self.about.remove(&id);
                    return Some(what);
                }
                Err(error) => {
                    if let Some(about) = self.about.remove(&error.id()) {
                        return Some(about.into_failure());
                    }
                }
            }
        }
    }

    /// Aborts all tasks.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.about.clear();
    }
}

impl TaskKind {
    /// Returns the input that represents a panicked task.
    fn into_failure(self) -> RunInput {
        match self {
            TaskKind::Question(purpose) => {
                let error = ModelError::new(
                    ModelErrorKind::Other,
                    "the task that called the model stopped unexpectedly",
                );
                RunInput::Failed { purpose, error, streamed: false }
            }
            TaskKind::Tool { call, idempotent } => {
                let answer = if idempotent {
                    ToolAnswer::error("The tool stopped unexpectedly.")
                } else {
                    let words = "The tool stopped unexpectedly. Whether it took effect is unknown.";
                    ToolAnswer::unknown(words)
                };
                RunInput::ToolEnded(ToolCompletion { call, answer })
            }
        }
    }
}

/// Destination of the progress events of a tool.
pub(crate) struct ProgressEmitter {
    pub(crate) run: Name,
    pub(crate) events: Arc<dyn EventWriter>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

async fn run_tool(tool: Arc<dyn Tool>, run: ToolRun, emitter: ProgressEmitter) -> RunInput {
    let (texts, received) = unbounded_channel();
    let about = ToolContext {
        run: emitter.run.clone(),
        call: run.call.clone(),
        agent: run.agent.clone(),
        progress: Arc::new(move |text: &str| drop(texts.send(text.to_owned()))),
    };
    let work = async {
        let work = tool.run(&run.args, &about);
        let Some(limit) = run.timeout else { return work.await };
        // A tool that exceeds its timeout is aborted, so its effect is unknown.
        timeout(limit, work).await.unwrap_or_else(|_| {
            let words = format!(
                "The tool took more than {} ms and was stopped. Whether it took effect is unknown.",
                limit.as_millis()
            );
            ToolAnswer::unknown(words)
        })
    };
    let answer = emitter.run_with_progress(work, &run, received).await;
    RunInput::ToolEnded(ToolCompletion { call: run.call, answer })
}

impl ProgressEmitter {
    /// Emits the progress of a tool while it runs, all of it before the result.
    async fn run_with_progress(
        self,
        work: impl Future<Output = ToolAnswer>,
        run: &ToolRun,
        mut received: UnboundedReceiver<String>,
    ) -> ToolAnswer {
        let mut work = pin!(work);
        let answer = loop {
            tokio::select! {
                biased;
                Some(text) = received.recv() => self.emit(run, &text).await,
                answer = &mut work => break answer,
            }
        };
        while let Ok(text) = received.try_recv() {
            self.emit(run, &text).await;
        }
        answer
    }

    async fn emit(&self, run: &ToolRun, text: &str) {
        let mut event = ToolCallEvent::new(ToolCallPhase::Progress, run.tool.clone());
        event.id = Some(run.call.clone());
        event.result = Some(json::string(text));
        let event = RunEvent::ToolCall(event);
        notify_listener(self.listener.as_ref(), &self.run, &event);
        self.events.push(event.json().bytes(), None).await;
    }
}

/// Reads a tool result that a summary covers; `number` is its sequence number in the Thread.
pub(crate) async fn read_archived(
    store: Arc<dyn Store>,
    tenant: Tenant,
    thread: LogId,
    number: Name,
) -> ToolAnswer {
    match load::read_item(&*store, &tenant, &thread, &number).await {
        Ok(Some(item)) => ToolAnswer::text(readable_text(&item)),
        Ok(None) => ToolAnswer::error("The archived answer was deleted."),
        Err(error) => ToolAnswer::error(error.to_string()),
    }
}
