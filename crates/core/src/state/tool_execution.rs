//! What a tool did. The document names the record only; its members are those of the system that wrote it, and some of ours.
//!
//! Ours are `toolCallId` (that system writes `tool_call_id`, which is kept as an unknown member), `startedAt`, `endedAt`,
//! `durationMs` and `error`, and of the statuses `running`, `skipped` and `unknown`. An execution that runs has no output yet.

use crate::document::{Nullable, record, words};
use crate::json::Json;
use crate::name::Name;
use crate::number::Number;

words! {
    /// How a tool fared.
    ToolExecutionStatus {
        /// It answered.
        Success = "success",
        /// It failed.
        Error = "error",
        /// A person did not allow it.
        Rejected = "rejected",
        /// It handed the conversation to another agent.
        Handoff = "handoff",
        /// It was begun and has not answered. Ours.
        Running = "running",
        /// It was not begun, because a limit was reached. Ours.
        Skipped = "skipped",
        /// Nobody knows: whoever ran it stopped before it answered. Ours.
        Unknown = "unknown",
    }
}

words! {
    /// How much a tool's answer matters.
    ToolResponseClassification {
        /// Nothing can go on without it.
        Critical = "critical",
        /// It is good to know.
        Informative = "informative",
        /// It is longer than it is useful.
        Verbose = "verbose",
        /// It says what is known.
        Redundant = "redundant",
    }
}

words! {
    /// What becomes of a tool's answer when room is short.
    ToolResponseRetentionPolicy {
        /// It stays as it is.
        KeepFull = "keep_full",
        /// Its structure stays.
        KeepStructured = "keep_structured",
        /// A summary stays, and the answer is archived.
        SummarizeArchive = "summarize_archive",
        /// Nothing stays.
        Drop = "drop",
    }
}

record! {
    /// One execution of one tool.
    ToolExecution {
        /// Its id.
        "executionId" => execution_id: Name,
        /// The tool.
        "toolName" => tool_name: Name,
        /// The arguments, verbatim.
        "args" => args: Json,
        /// What the model is shown of the answer, verbatim.
        "output" => output?: Json,
        /// The answer itself where that is more, verbatim.
        "rawOutput" => raw_output?: Json,
        /// When it was recorded.
        "timestamp" => timestamp?: Name,
        /// Whether the output is a summary.
        "summarized" => summarized?: bool,
        /// How many tokens the answer had before that.
        "originalTokenCount" => original_token_count?: Nullable<u64>,
        /// The message that carries the answer.
        "messageId" => message_id?: Name,
        /// The call that it answers. Ours.
        "toolCallId" => tool_call_id?: Name,
        /// Whether the answer was at hand, so that the tool did not run.
        "fromCache" => from_cache?: bool,
        /// How much the answer matters.
        "classification" => classification?: ToolResponseClassification,
        /// What becomes of the answer when room is short.
        "retentionPolicy" => retention_policy?: ToolResponseRetentionPolicy,
        /// Where the answer is archived.
        "archiveId" => archive_id?: Name,
        /// A summary of the answer.
        "summary" => summary?: Name,
        /// How the tool fared.
        "status" => status?: ToolExecutionStatus,
        /// When it was begun. Ours.
        "startedAt" => started_at?: Name,
        /// When it ended. Ours.
        "endedAt" => ended_at?: Name,
        /// How long it took, in milliseconds. Ours.
        "durationMs" => duration_ms?: Number,
        /// What went wrong, in words. Ours.
        "error" => error?: Name,
    }
}
