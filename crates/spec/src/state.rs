//! `SmartState`: the complete state of an agent's run as one document that can be stored, shown and
//! resumed.
//!
//! Every record writes its members in document order, omits absent members and keeps unknown
//! members. Empty and absent lists are distinct, so parsing and writing a document does not change
//! it. Dates are kept as text; [`crate::RawInstant`] parses them.

mod approval;
mod memory;
mod plan;
mod question;
mod reflection;
mod thread_state;
mod tool_execution;

use throughline_json::{Definitions, Json, Name, Nullable, record};

pub use crate::state::approval::*;
pub use crate::state::memory::*;
pub use crate::state::plan::*;
pub use crate::state::question::*;
pub use crate::state::reflection::*;
pub use crate::state::thread_state::*;
pub use crate::state::tool_execution::*;

use crate::view::Message;

record! {
    /// The state of an agent's run.
    #[derive(Default)]
    SmartState {
        /// The conversation.
        "messages" => messages: Vec<Message>,
        /// The tool executions.
        "toolHistory" => tool_history?: Vec<ToolExecution>,
        /// Tool executions whose full results are no longer sent to the model.
        "toolHistoryArchived" => tool_history_archived?: Vec<ToolExecution>,
        /// The summaries of older messages, as text.
        "summaries" => summaries?: Vec<Name>,
        /// The summaries of older messages in structured form.
        "summaryRecords" => summary_records?: Vec<SummaryRecord>,
        /// Facts that the agent remembers across turns.
        "memoryFacts" => memory_facts?: Vec<MemoryFact>,
        /// The current plan. `null` means that there is none; see [`SmartState::current_plan`].
        "plan" => plan?: Nullable<Plan>,
        /// The version of the latest plan.
        "planVersion" => plan_version?: u64,
        /// The agent's notes between tool calls, for timelines and review.
        "reflections" => reflections?: Vec<ReflectionRecord>,
        /// Tool calls that wait for a person's decision or have received it.
        "pendingApprovals" => pending_approvals?: Vec<PendingToolApproval>,
        /// Questions that wait for a person's answer or have received it.
        "pendingUserQuestions" => pending_user_questions?: Vec<PendingUserQuestion>,
        /// Arbitrary data that the run or its caller stored, verbatim.
        "ctx" => ctx?: Vec<(Name, Json)>,
    }
}

impl SmartState {
    /// Returns the JSON Schema for the state and its records.
    pub fn schema() -> Json {
        let mut definitions = Definitions::default();
        let state = definitions.reference::<Self>();
        // The state does not contain these two records; clients send them.
        definitions.reference::<ToolApprovalResolution>();
        definitions.reference::<UserQuestionResolution>();
        let about = "The state of an agent's run. Undeclared members are kept.";
        definitions.document("SmartState", about, |out| {
            out.nodes(state.tree().root().members());
        })
    }

    /// Returns the current plan; `None` if it is absent or `null`.
    pub fn current_plan(&self) -> Option<&Plan> {
        self.plan.as_ref()?.value()
    }
}
