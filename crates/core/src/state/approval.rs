//! Tool calls that a person has to allow. The document names the record only; its members are those of the system that wrote it.

use crate::document::{record, words};
use crate::json::Json;
use crate::name::Name;

words! {
    /// How far an approval is.
    ToolApprovalStatus {
        /// It waits for a decision.
        Pending = "pending",
        /// The tool may run.
        Approved = "approved",
        /// The tool may not run.
        Rejected = "rejected",
        /// The decision was carried out.
        Executed = "executed",
    }
}

record! {
    /// A tool call that waits for a person's decision, or had one.
    PendingToolApproval {
        /// Its id.
        "id" => id: Name,
        /// The call.
        "toolCallId" => tool_call_id: Name,
        /// The tool.
        "toolName" => tool_name: Name,
        /// The arguments that the model gave, verbatim.
        "args" => args: Json,
        /// How far it is.
        "status" => status: ToolApprovalStatus,
        /// When the decision was asked for.
        "requestedAt" => requested_at: Name,
        /// When it was made.
        "decidedAt" => decided_at?: Name,
        /// By whom.
        "decidedBy" => decided_by?: Name,
        /// What the person said.
        "comment" => comment?: Name,
        /// The arguments that the person allows instead, verbatim.
        "approvedArgs" => approved_args?: Json,
        /// When the decision was carried out.
        "resolvedAt" => resolved_at?: Name,
        /// The execution that came of it.
        "executionId" => execution_id?: Name,
        /// Whatever else is to be kept with it, verbatim.
        "metadata" => metadata?: Vec<(Name, Json)>,
    }
}

record! {
    /// A person's decision on a tool call.
    ToolApprovalResolution {
        /// The id of the approval, or of its tool call.
        "id" => id: Name,
        /// Whether the tool may run.
        "approved" => approved: bool,
        /// The arguments that it may run with, where they are not the model's.
        "approvedArgs" => approved_args?: Json,
        /// Who decides.
        "decidedBy" => decided_by?: Name,
        /// What the person says.
        "comment" => comment?: Name,
    }
}

impl ToolApprovalResolution {
    /// Whether it is meant for that approval: it names its id or its tool call.
    pub fn is_for(&self, approval: &PendingToolApproval) -> bool {
        self.id == approval.id || self.id == approval.tool_call_id
    }
}
