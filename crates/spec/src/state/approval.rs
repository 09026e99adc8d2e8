//! Tool calls that need a person's approval. The specification only names the record; its members
//! follow the system that the specification is based on.

use throughline_json::{Json, Name, record, words};

words! {
    /// The status of an approval.
    ToolApprovalStatus {
        /// The approval waits for a decision.
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
    /// A tool call that waits for a person's decision or has received it.
    PendingToolApproval {
        /// The id of the approval.
        "id" => id: Name,
        /// The id of the tool call.
        "toolCallId" => tool_call_id: Name,
        /// The name of the tool.
        "toolName" => tool_name: Name,
        /// The model's arguments, verbatim.
        "args" => args: Json,
        /// The status of the approval.
        "status" => status: ToolApprovalStatus,
        /// When the approval was requested.
        "requestedAt" => requested_at: Name,
        /// When the decision was made.
        "decidedAt" => decided_at?: Name,
        /// The person who decided.
        "decidedBy" => decided_by?: Name,
        /// The person's comment.
        "comment" => comment?: Name,
        /// The arguments that the person approved instead of the model's arguments, verbatim.
        "approvedArgs" => approved_args?: Json,
        /// When the decision was carried out.
        "resolvedAt" => resolved_at?: Name,
        /// The id of the tool execution that followed the decision.
        "executionId" => execution_id?: Name,
        /// Additional data, verbatim.
        "metadata" => metadata?: Vec<(Name, Json)>,
    }

    /// A person's decision on a tool call.
    ToolApprovalResolution {
        /// The id of the approval, or of its tool call.
        "id" => id: Name,
        /// Whether the tool may run.
        "approved" => approved: bool,
        /// The approved arguments, if they differ from the model's.
        "approvedArgs" => approved_args?: Json,
        /// The person who decides.
        "decidedBy" => decided_by?: Name,
        /// The person's comment.
        "comment" => comment?: Name,
    }
}

impl ToolApprovalResolution {
    /// Returns whether the decision is for this approval: its id is the id of the approval or of
    /// the approval's tool call.
    pub fn is_for(&self, approval: &PendingToolApproval) -> bool {
        self.id == approval.id || self.id == approval.tool_call_id
    }
}
