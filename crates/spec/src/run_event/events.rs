//! The run events, one record per event type.
//!
//! The specification defines `PlanEvent`, `ReflectionEvent` and `UserQuestionEvent`, and only names
//! the other events. Their members follow the system that the specification is based on.
//! "Throughline extension" marks members and events that Throughline added.

use throughline_core::ReasoningSource;
use throughline_json::{Json, Name, Number, record, words};

use crate::reasoning::Cadence;
use crate::state::{
    PlanStepRecord, ReflectionUsage, SummaryIntegrityCheck, SummaryRecord, UserQuestionAnswerSet,
    UserQuestionItem,
};

words! {
    /// The phase of a tool call.
    ToolCallPhase {
        /// The tool starts.
        Start = "start",
        /// The tool is running and reports progress. Throughline extension.
        Progress = "progress",
        /// The tool returned a result.
        Success = "success",
        /// The tool failed.
        Error = "error",
        /// The tool was skipped because a limit was reached.
        Skipped = "skipped",
    }

    /// The status of an approval.
    ToolApprovalEventStatus {
        /// The approval waits for a decision.
        Pending = "pending",
        /// The tool may run.
        Approved = "approved",
        /// The tool may not run.
        Rejected = "rejected",
    }

    /// The status of a question.
    UserQuestionEventStatus {
        /// The question waits for an answer.
        Pending = "pending",
        /// The question was answered.
        Answered = "answered",
        /// The question was cancelled without an answer.
        Cancelled = "cancelled",
    }

    /// The component that read or changed the plan.
    PlanSource {
        /// The model's plan tool.
        ManageTodoList = "manage_todo_list",
        /// The agent runtime.
        System = "system",
    }

    /// An operation on the plan.
    PlanOperation {
        /// The plan was read.
        Read = "read",
        /// The plan was replaced.
        Write = "write",
        /// Some steps of the plan were changed.
        Update = "update",
    }

    /// The direction of the content that a guardrail checks.
    GuardrailPhase {
        /// Content sent to the model.
        Request = "request",
        /// Content returned by the model.
        Response = "response",
    }

    /// The decision of a guardrail.
    GuardrailDisposition {
        /// The content is blocked.
        Block = "block",
        /// The content passes with a warning.
        Warn = "warn",
        /// The content passes.
        Allow = "allow",
    }

    /// The phase of a subagent.
    SubagentPhase {
        /// The subagent starts.
        Start = "start",
        /// The subagent returned a result.
        Result = "result",
        /// The subagent failed.
        Error = "error",
        /// The subagent waits for a person.
        Paused = "paused",
    }

    /// The source of a subagent's definition.
    SubagentMode {
        /// The subagent is declared in the configuration.
        Registry = "registry",
        /// The model defined the subagent at run time.
        Adhoc = "adhoc",
    }

    /// The phase of a model call.
    TurnPhase {
        /// The model is called.
        Start = "start",
        /// The answer was accepted.
        End = "end",
        /// The answer was discarded.
        Discarded = "discarded",
    }

    /// Whether an event contains a piece of a Thought or reports that the Thought is complete.
    ThoughtPhase {
        /// A piece of the Thought.
        Delta = "delta",
        /// The Thought is complete.
        End = "end",
    }

    /// The outcome of a gate check.
    GatePhase {
        /// The attempt failed, and a retry or the fallback follows.
        Retried = "retried",
        /// A retry produced a valid answer.
        Recovered = "recovered",
        /// The attempt failed, and the run ends.
        Failed = "failed",
    }
}

record! {
    /// The error of a tool call or subagent.
    EventError {
        /// The error message.
        "message" => message: Name,
    }

    /// A tool started, returned, failed or was skipped.
    ToolCallEvent is "tool_call" {
        /// The phase of the call.
        "phase" => phase: ToolCallPhase,
        /// The name of the tool.
        "name" => name: Name,
        /// The id of the tool call.
        "id" => id?: Name,
        /// The arguments, verbatim.
        "args" => args?: Json,
        /// The result, verbatim.
        "result" => result?: Json,
        /// Why the call failed.
        "error" => error?: EventError,
        /// The duration in milliseconds.
        "durationMs" => duration_ms?: Number,
    }

    /// A tool call is waiting for a person's approval, or a person has decided.
    ToolApprovalEvent is "tool_approval" {
        /// The status of the approval.
        "status" => status: ToolApprovalEventStatus,
        /// The id of the approval.
        "id" => id: Name,
        /// The name of the tool.
        "toolName" => tool_name: Name,
        /// The id of the tool call.
        "toolCallId" => tool_call_id?: Name,
        /// The arguments, verbatim.
        "args" => args?: Json,
        /// The person who decided.
        "decidedBy" => decided_by?: Name,
        /// The person's comment.
        "comment" => comment?: Name,
    }

    /// The model asked the user a question, or the user answered.
    UserQuestionEvent is "user_question" {
        /// The status of the question.
        "status" => status: UserQuestionEventStatus,
        /// The id of the question.
        "id" => id: Name,
        /// The id of the tool call that asked the question.
        "toolCallId" => tool_call_id: Name,
        /// The questions.
        "questions" => questions?: Vec<UserQuestionItem>,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// The person who answered the questions.
        "answeredBy" => answered_by?: Name,
        /// Whether free text is allowed.
        "allowFreeText" => allow_free_text?: bool,
    }

    /// The plan was read or changed. The event contains a snapshot of the plan; the current plan is
    /// in the run's state.
    PlanEvent is "plan" {
        /// The component that read or changed the plan.
        "source" => source: PlanSource,
        /// The operation on the plan.
        "operation" => operation?: PlanOperation,
        /// The steps of the plan.
        "todoList" => todo_list?: Vec<PlanStepRecord>,
        /// The version of the plan.
        "version" => version?: u64,
        /// The completed share of the plan, from 0 to 1.
        "adherenceScore" => adherence_score?: Number,
    }

    /// Older messages were summarised.
    SummarizationEvent is "summarization" {
        /// The summary.
        "summary" => summary: Name,
        /// The number of messages that the summary replaces.
        "messagesCompressed" => messages_compressed?: u64,
        /// Input tokens of the summarization.
        "inputTokens" => input_tokens?: u64,
        /// Output tokens of the summarization.
        "outputTokens" => output_tokens?: u64,
        /// Input tokens read from the cache.
        "cachedInputTokens" => cached_input_tokens?: u64,
        /// Total tokens.
        "totalTokens" => total_tokens?: u64,
        /// The duration in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// The previous summary.
        "previousSummary" => previous_summary?: Name,
        /// The token count of the conversation before the summarization.
        "tokenCountBefore" => token_count_before?: u64,
        /// The token count of the conversation after the summarization.
        "tokenCountAfter" => token_count_after?: u64,
        /// The number of archived tool results.
        "archivedCount" => archived_count?: u64,
        /// The summary in structured form.
        "structuredSummary" => structured_summary?: SummaryRecord,
        /// The result of the integrity check.
        "integrity" => integrity?: SummaryIntegrityCheck,
    }

    /// The agent gave its final answer.
    FinalAnswerEvent is "finalAnswer" {
        /// The text of the answer.
        "content" => content: Name,
    }

    /// The usage and limits of the run. All other members are kept as unknown members.
    #[derive(Default)]
    MetadataEvent is "metadata" {
        /// The provider's usage, verbatim.
        "usage" => usage?: Json,
        /// The name of the model.
        "modelName" => model_name?: Name,
        /// The limits of the run, verbatim.
        "limits" => limits?: Json,
    }

    /// Another agent takes over the conversation.
    HandoffEvent is "handoff" {
        /// The agent that hands over.
        "from" => from?: Name,
        /// The agent that takes over.
        "to" => to?: Name,
        /// The tool that triggered the handoff.
        "toolName" => tool_name: Name,
    }

    /// A guardrail reported a violation.
    GuardrailEvent is "guardrail" {
        /// The checked direction.
        "phase" => phase: GuardrailPhase,
        /// The id of the guardrail.
        "guardrailId" => guardrail_id?: Name,
        /// The display name of the guardrail.
        "guardrailTitle" => guardrail_title?: Name,
        /// The id of the violated rule.
        "ruleId" => rule_id?: Name,
        /// The display name of the rule.
        "ruleTitle" => rule_title?: Name,
        /// The decision.
        "disposition" => disposition: GuardrailDisposition,
        /// The reason for the decision.
        "reason" => reason?: Name,
        /// Additional details, verbatim.
        "details" => details?: Vec<(Name, Json)>,
    }

    /// The run reports progress.
    #[derive(Default)]
    ProgressEvent is "progress" {
        /// The current stage.
        "stage" => stage?: Name,
        /// A description of the stage for people.
        "message" => message?: Name,
        /// The completed share in percent.
        "percent" => percent?: Number,
        /// Additional details, verbatim.
        "detail" => detail?: Json,
    }

    /// A piece of the answer's text was streamed.
    StreamEvent is "stream" {
        /// The text of the piece.
        "text" => text: Name,
        /// Whether this is the last piece.
        "isFinal" => is_final?: bool,
        /// The id of the Item that the piece belongs to. Throughline extension.
        "id" => id?: Name,
    }

    /// The run was cancelled.
    #[derive(Default)]
    CancelledEvent is "cancelled" {
        /// The stage at which the run was cancelled.
        "stage" => stage?: Name,
        /// The reason for the cancellation.
        "reason" => reason?: Name,
    }

    /// A subagent started, returned, failed or paused.
    SubagentEvent is "subagent" {
        /// The phase of the subagent.
        "phase" => phase: SubagentPhase,
        /// The name or role of the subagent.
        "name" => name: Name,
        /// The id of this execution of the subagent.
        "id" => id: Name,
        /// The source of the subagent's definition.
        "mode" => mode: SubagentMode,
        /// The id of the tool call that started the subagent.
        "parentToolCallId" => parent_tool_call_id?: Name,
        /// Whether other subagents run in parallel with this one.
        "parallel" => parallel?: bool,
        /// The task of the subagent.
        "input" => input?: Name,
        /// The result of the subagent.
        "content" => content?: Name,
        /// The error.
        "error" => error?: EventError,
        /// The duration in milliseconds.
        "durationMs" => duration_ms?: Number,
    }

    /// The agent recorded a reflection.
    ReflectionEvent is "reflection" {
        /// The id of the reflection.
        "id" => id: Name,
        /// The turn after which the reflection was made.
        "turn" => turn: u64,
        /// The text of the reflection.
        "text" => text: Name,
        /// The cadence that triggered the reflection.
        "trigger" => trigger?: Cadence,
        /// The duration in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// The token usage.
        "usage" => usage?: ReflectionUsage,
        /// The tool calls that the reflection covers.
        "toolCallIds" => tool_call_ids?: Vec<Name>,
    }

    /// A run started, paused, resumed or ended. Throughline extension.
    RunStatusEvent is "run" {
        /// The status: `running`, `waiting`, `completed`, `failed` or `cancelled`.
        "status" => status: Name,
        /// The id of the run.
        "runId" => run_id?: Name,
        /// The name of the running agent.
        "agent" => agent?: Name,
        /// The reason for the status.
        "reason" => reason?: Name,
    }

    /// A model call started or ended. Throughline extension.
    TurnEvent is "turn" {
        /// The phase of the turn.
        "phase" => phase: TurnPhase,
        /// The turn, counted from 1.
        "turn" => turn: u64,
        /// The called model.
        "model" => model?: Name,
        /// The purpose of the call: `reflection`, `summary` or `final`. Absent for a regular step
        /// of the run.
        "purpose" => purpose?: Name,
        /// Why the answer ended or was discarded.
        "reason" => reason?: Name,
        /// The ids of the answer's Items.
        "items" => items?: Vec<Name>,
    }

    /// A message was sent to the model. Ephemeral messages are also reported, although no Thread
    /// stores them. Throughline extension.
    MessageEvent is "message" {
        /// The role of the message's sender.
        "role" => role: Name,
        /// The text of the message.
        "content" => content: Name,
        /// Whether the message is ephemeral, so that the Thread does not store it.
        "ephemeral" => ephemeral?: bool,
        /// The id of the message's Item.
        "id" => id?: Name,
    }

    /// A piece of a Thought was streamed, or the Thought is complete. Throughline extension.
    ThoughtEvent is "thought" {
        /// The phase of the Thought.
        "phase" => phase: ThoughtPhase,
        /// The turn, counted from 1.
        "turn" => turn: u64,
        /// The readable text of the Thought or of the streamed piece.
        "text" => text?: Name,
        /// The id of the Thought's Item.
        "id" => id?: Name,
        /// The size in bytes of the Seals on the Thought.
        "sealedBytes" => sealed_bytes?: u64,
        /// Whether the text is the provider's summary instead of the Thought itself.
        "summary" => summary?: bool,
        /// `non_reasoner_model` if a prompt requested the reasoning; absent for native reasoning.
        "source" => source?: ReasoningSource,
        /// The agent that produced the Thought.
        "agent" => agent?: Name,
    }

    /// A limit of the run was reached. Throughline extension.
    LimitEvent is "limit" {
        /// The configured name of the limit.
        "limit" => limit: Name,
        /// The maximum value that the limit allows.
        "allowed" => allowed: Number,
        /// The value that reached the limit.
        "actual" => actual: Number,
    }

    /// An answer failed a gate check, or passed after a retry. Throughline extension.
    GateEvent is "gate" {
        /// The outcome of the check.
        "phase" => phase: GatePhase,
        /// The number of model calls so far, counted from 1.
        "attempt" => attempt: u64,
        /// The action taken: `retry`, `retry-other`, `fallback`, `fail-fast`.
        "action" => action?: Name,
        /// The kind of failure.
        "errorKind" => error_kind?: Name,
        /// The error message.
        "message" => message?: Name,
        /// The name of the rule that determined the action, if the rule has a name.
        "rule" => rule?: Name,
        /// The model whose attempt failed.
        "fromModel" => from_model?: Name,
        /// The model that is called next.
        "toModel" => to_model?: Name,
    }

    /// What happened to a request's Items and Seals, as their Fates. Throughline extension.
    #[derive(Default)]
    ReplayEvent is "replay" {
        /// The turn, counted from 1.
        "turn" => turn?: u64,
        /// The number of Thoughts that were sent unchanged.
        "kept" => kept?: u64,
        /// The number of Thoughts that were restored.
        "restored" => restored?: u64,
        /// The number of Thoughts that were sent in another form.
        "reshaped" => reshaped?: u64,
        /// The number of Thoughts that were left out of this request.
        "elided" => elided?: u64,
        /// The reasons why Thoughts and Seals were left out, each with a count.
        "why" => why?: Vec<(Name, Json)>,
        /// The number of Seals with each Fate.
        "seals" => seals?: Vec<(Name, Json)>,
        /// The Fates in Item order, as runs of equal values: `[first Item, fate, count]`. Items
        /// that are neither Thoughts nor sealed are not counted.
        "fates" => fates?: Json,
    }

    /// The usage and cost of one model call and of the run so far. Throughline extension.
    #[derive(Default)]
    UsageEvent is "usage" {
        /// The model that answered.
        "model" => model?: Name,
        /// The requested model, under the name that its provider uses.
        "asked" => asked?: Name,
        /// The configured label of the called account.
        "account" => account?: Name,
        /// The purpose of the call, such as `reflection`. Absent for a regular step of the run.
        "purpose" => purpose?: Name,
        /// The token usage of this answer.
        "usage" => usage?: ReflectionUsage,
        /// The token usage of the run so far.
        "total" => total?: ReflectionUsage,
        /// The cost of this answer in US dollars.
        "costUsd" => cost_usd?: Number,
        /// The cost of the run so far in US dollars.
        "totalCostUsd" => total_cost_usd?: Number,
    }
}
