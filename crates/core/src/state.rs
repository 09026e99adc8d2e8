//! `SmartState`: all that an agent's run knows, as one document that can be kept, shown and handed back.
//!
//! Every record prints its members in the order of the document, leaves out what is absent, and keeps what it does not know.
//! An empty list is told from an absent one, so a document that is read and printed says what it said. Dates are kept as
//! they were written; [`crate::RawInstant`] reads them.

mod approval;
mod memory;
mod plan;
mod question;
mod reflection;
mod thread_state;
mod tool_execution;

pub use crate::state::approval::{PendingToolApproval, ToolApprovalResolution, ToolApprovalStatus};
pub use crate::state::memory::{
    MemoryFact, MemoryScope, SummaryFactItem, SummaryIntegrityCheck, SummaryRecord,
};
pub use crate::state::plan::{Plan, PlanStepRecord, PlanStepStatus};
pub use crate::state::question::{
    PendingUserQuestion, QuestionTool, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionOption, UserQuestionResolution, UserQuestionStatus,
};
pub use crate::state::reflection::{ReflectionRecord, ReflectionUsage};
pub use crate::state::thread_state::{StateChange, ThreadState};
pub use crate::state::tool_execution::{
    ToolExecution, ToolExecutionStatus, ToolResponseClassification, ToolResponseRetentionPolicy,
};

use crate::document::{Definitions, Nullable, record};
use crate::json::Json;
use crate::name::Name;
use crate::view::Message;

record! {
    /// The state of an agent's run.
    #[derive(Default)]
    SmartState {
        /// The conversation.
        "messages" => messages: Vec<Message>,
        /// What the tools did.
        "toolHistory" => tool_history?: Vec<ToolExecution>,
        /// What tools did whose answers the model no longer sees in full.
        "toolHistoryArchived" => tool_history_archived?: Vec<ToolExecution>,
        /// What stands for older messages, as text.
        "summaries" => summaries?: Vec<Name>,
        /// The same, taken apart.
        "summaryRecords" => summary_records?: Vec<SummaryRecord>,
        /// What is worth remembering.
        "memoryFacts" => memory_facts?: Vec<MemoryFact>,
        /// The current plan. `null` says that there is none; see [`SmartState::current_plan`].
        "plan" => plan?: Nullable<Plan>,
        /// The version of the latest plan.
        "planVersion" => plan_version?: u64,
        /// The notes between tool calls, for timelines and review.
        "reflections" => reflections?: Vec<ReflectionRecord>,
        /// The tool calls that wait for a person's decision, or had one.
        "pendingApprovals" => pending_approvals?: Vec<PendingToolApproval>,
        /// The questions that wait for a person's answer, or had one.
        "pendingUserQuestions" => pending_user_questions?: Vec<PendingUserQuestion>,
        /// Whatever the run keeps for itself and its caller, verbatim.
        "ctx" => ctx?: Vec<(Name, Json)>,
    }
}

impl SmartState {
    /// The JSON Schema of the state and of its records.
    pub fn schema() -> Json {
        let mut definitions = Definitions::default();
        let state = definitions.refer::<Self>();
        // Nothing in the state holds these two: people send them.
        definitions.refer::<ToolApprovalResolution>();
        definitions.refer::<UserQuestionResolution>();
        let about = "All that an agent's run knows. Members that are not declared are kept.";
        definitions.document("SmartState", about, |out| {
            for (name, value) in state.tree().root().members() {
                out.node(&name.text().unwrap_or_default(), value);
            }
        })
    }

    /// The plan, where there is one.
    pub fn current_plan(&self) -> Option<&Plan> {
        self.plan.as_ref()?.value()
    }
}
