//! What a run has others do: models that are asked, and tools at work.
//!
//! Each is a task of its own. One that panics takes nobody with it: what it was about is known, and ends with that.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use throughline_core::{
    Call, EventWriter, LogId, ModelError, Name, Outcome, RunEvent, Store, Tenant, ToolCallEvent,
    ToolCallPhase, Trouble, json,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use crate::action::ToolRun;
use crate::input::{Ended, What};
use crate::progress::Purpose;
use crate::run::ask::Question;
use crate::run::{Listener, load, tell_listener};
use crate::tool::{Tool, ToolAnswer, ToolContext};
use crate::window::readable;

/// What a run has others do.
#[derive(Default)]
pub(crate) struct Work {
    tasks: JoinSet<What>,
    /// What each task is about.
    about: HashMap<Id, About>,
}

/// What a task is about.
enum About {
    Question(Purpose),
    Tool {
        call: Name,
        /// Whether running it twice does no more than running it once.
        idempotent: bool,
    },
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// A model is asked.
    pub(crate) fn ask(&mut self, question: Question, call: Call) {
        let purpose = question.purpose;
        self.spawn(About::Question(purpose), question.ask(call));
    }

    /// A tool runs.
    pub(crate) fn run(&mut self, tool: Arc<dyn Tool>, run: ToolRun, telling: Telling) {
        let about = About::Tool { call: run.call.clone(), idempotent: tool.spec().idempotent };
        self.spawn(about, at_work(tool, run, telling));
    }

    /// An archived answer is brought back.
    pub(crate) fn bring_back(&mut self, call: Name, archived: Archived) {
        let about = About::Tool { call: call.clone(), idempotent: true };
        self.spawn(
            about,
            async move { What::ToolEnded(Ended { call, answer: archived.read().await }) },
        );
    }

    /// A call is answered with this.
    pub(crate) fn answer(&mut self, call: Name, answer: ToolAnswer) {
        let about = About::Tool { call: call.clone(), idempotent: true };
        self.spawn(about, async move { What::ToolEnded(Ended { call, answer }) });
    }

    fn spawn(&mut self, about: About, task: impl Future<Output = What> + Send + 'static) {
        let task = self.tasks.spawn(task);
        self.about.insert(task.id(), about);
    }

    /// What came of the next that ends; nothing where nobody is at work.
    pub(crate) async fn next(&mut self) -> Option<What> {
        loop {
            match self.tasks.join_next_with_id().await? {
                Ok((id, what)) => {
                    self.about.remove(&id);
                    return Some(what);
                }
                Err(error) => {
                    if let Some(about) = self.about.remove(&error.id()) {
                        return Some(about.broke_down());
                    }
                }
            }
        }
    }

    /// Stops all of them.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.about.clear();
    }
}

impl About {
    /// What it comes to when its task panics.
    fn broke_down(self) -> What {
        match self {
            About::Question(purpose) => {
                let error = ModelError::new(
                    Trouble::Other,
                    "the task that asked the model stopped unexpectedly",
                );
                What::Failed { purpose, error, streamed: false }
            }
            About::Tool { call, idempotent } => {
                let answer = if idempotent {
                    ToolAnswer::error("The tool stopped unexpectedly.")
                } else {
                    let words = "The tool stopped unexpectedly. Whether it took effect is unknown.";
                    ToolAnswer { outcome: Outcome::Unknown, ..ToolAnswer::error(words) }
                };
                What::ToolEnded(Ended { call, answer })
            }
        }
    }
}

/// Where the pieces are told that a tool tells while it is at work.
pub(crate) struct Telling {
    pub(crate) run: Name,
    pub(crate) events: Arc<dyn EventWriter>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

async fn at_work(tool: Arc<dyn Tool>, run: ToolRun, telling: Telling) -> What {
    let (words, told) = unbounded_channel();
    let about = ToolContext {
        run: telling.run.clone(),
        call: run.call.clone(),
        agent: run.agent.clone(),
        progress: Arc::new(move |text: &str| drop(words.send(text.to_owned()))),
    };
    let work = async {
        let work = tool.run(&run.args, &about);
        let Some(limit) = run.timeout else { return work.await };
        // One that takes too long is stopped in its tracks, and may have done its work or not.
        timeout(limit, work).await.unwrap_or_else(|_| {
            let words = format!(
                "The tool took more than {} ms and was stopped. Whether it took effect is unknown.",
                limit.as_millis()
            );
            ToolAnswer { outcome: Outcome::Unknown, ..ToolAnswer::error(words) }
        })
    };
    let answer = telling.beside(work, &run, told).await;
    What::ToolEnded(Ended { call: run.call, answer })
}

impl Telling {
    /// Tells what a tool tells while it is at work: all of it before its answer.
    async fn beside(
        self,
        work: impl Future<Output = ToolAnswer>,
        run: &ToolRun,
        mut told: UnboundedReceiver<String>,
    ) -> ToolAnswer {
        let mut work = pin!(work);
        let answer = loop {
            tokio::select! {
                biased;
                Some(text) = told.recv() => self.tell(run, &text).await,
                answer = &mut work => break answer,
            }
        };
        while let Ok(text) = told.try_recv() {
            self.tell(run, &text).await;
        }
        answer
    }

    async fn tell(&self, run: &ToolRun, text: &str) {
        let mut event = ToolCallEvent::new(ToolCallPhase::Progress, run.tool.clone());
        event.id = Some(run.call.clone());
        event.result = Some(json::string(text));
        let event = RunEvent::ToolCall(event);
        tell_listener(self.listener.as_ref(), &self.run, &event);
        self.events.push(event.json().bytes(), None).await;
    }
}

/// An answer that a summary covers.
pub(crate) struct Archived {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tenant: Tenant,
    pub(crate) thread: LogId,
    /// Its number in the Thread.
    pub(crate) number: Name,
}

impl Archived {
    async fn read(&self) -> ToolAnswer {
        match load::item_at(&*self.store, &self.tenant, &self.thread, &self.number).await {
            Ok(Some(item)) => ToolAnswer::text(readable(&item)),
            Ok(None) => ToolAnswer::error("The answer is no more: it was forgotten."),
            Err(error) => ToolAnswer::error(error.to_string()),
        }
    }
}
