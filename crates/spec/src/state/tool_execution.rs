//! Tool executions. The specification only names the record; its members follow the system that the
//! specification is based on, with some additions.
//!
//! The added members are `toolCallId`, `startedAt`, `endedAt`, `durationMs` and `error`. The
//! original system writes `tool_call_id`, which is kept as an unknown member. The added statuses
//! are `running`, `skipped` and `unknown`. A running execution has no output yet.

use throughline_json::{Json, Name, Nullable, Number, record, words};

words! {
    /// The status of a tool execution.
    ToolExecutionStatus {
        /// The tool returned a result.
        Success = "success",
        /// The tool failed.
        Error = "error",
        /// A person rejected the call.
        Rejected = "rejected",
        /// The tool handed the conversation to another agent.
        Handoff = "handoff",
        /// The tool started and has not returned. Throughline extension.
        Running = "running",
        /// The tool was not started because a limit was reached. Throughline extension.
        Skipped = "skipped",
        /// The outcome is unknown, because the process stopped before the tool returned.
        /// Throughline extension.
        Unknown = "unknown",
    }

    /// The importance of a tool result.
    ToolResponseClassification {
        /// The result is required to continue.
        Critical = "critical",
        /// The result is useful but not required.
        Informative = "informative",
        /// The result is too long for the information that it contains.
        Verbose = "verbose",
        /// The conversation already contains the information in the result.
        Redundant = "redundant",
    }

    /// How a tool result is shortened when the context is full.
    ToolResponseRetentionPolicy {
        /// The result is kept in full.
        KeepFull = "keep_full",
        /// The result is reduced to its structure.
        KeepStructured = "keep_structured",
        /// The result is archived and replaced by a summary.
        SummarizeArchive = "summarize_archive",
        /// The result is removed.
        Drop = "drop",
    }
}

record! {
    /// One execution of one tool.
    ToolExecution {
        /// The id of the execution.
        "executionId" => execution_id: Name,
        /// The name of the tool.
        "toolName" => tool_name: Name,
        /// The arguments, verbatim.
        "args" => args: Json,
        /// The result as shown to the model, verbatim.
        "output" => output?: Json,
        /// The full result if the model sees only a shortened result, verbatim.
        "rawOutput" => raw_output?: Json,
        /// When the execution was recorded.
        "timestamp" => timestamp?: Name,
        /// Whether the output is a summary.
        "summarized" => summarized?: bool,
        /// The token count of the result before summarization.
        "originalTokenCount" => original_token_count?: Nullable<u64>,
        /// The id of the message that carries the result.
        "messageId" => message_id?: Name,
        /// The id of the tool call. Throughline extension.
        "toolCallId" => tool_call_id?: Name,
        /// Whether the result came from a cache, without running the tool.
        "fromCache" => from_cache?: bool,
        /// The importance of the result.
        "classification" => classification?: ToolResponseClassification,
        /// How the result is shortened when the context is full.
        "retentionPolicy" => retention_policy?: ToolResponseRetentionPolicy,
        /// The id of the archived result.
        "archiveId" => archive_id?: Name,
        /// A summary of the result.
        "summary" => summary?: Name,
        /// The status of the execution.
        "status" => status?: ToolExecutionStatus,
        /// When the execution started. Throughline extension.
        "startedAt" => started_at?: Name,
        /// When the execution ended. Throughline extension.
        "endedAt" => ended_at?: Name,
        /// The duration in milliseconds. Throughline extension.
        "durationMs" => duration_ms?: Number,
        /// The error message. Throughline extension.
        "error" => error?: Name,
    }
}
