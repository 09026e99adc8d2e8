//! The events of a run, one record each. `PlanEvent`, `ReflectionEvent` and `UserQuestionEvent` are the document's; the others
//! it only names, and their members are those of the system that wrote it.

use crate::document::{record, words};
use crate::json::Json;
use crate::name::Name;
use crate::number::Number;
use crate::reasoning::Cadence;
use crate::state::{
    PlanStepRecord, ReflectionUsage, SummaryIntegrityCheck, SummaryRecord, UserQuestionAnswerSet,
    UserQuestionItem,
};

words! {
    /// How far a tool call is.
    ToolCallPhase {
        /// The tool begins.
        Start = "start",
        /// It is at work, and tells how far it is. Ours.
        Progress = "progress",
        /// It answered.
        Success = "success",
        /// It failed.
        Error = "error",
        /// It was left out, because a limit was reached.
        Skipped = "skipped",
    }
}

record! {
    /// What went wrong.
    EventError {
        /// In words.
        "message" => message: Name,
    }
}

record! {
    /// A tool began, answered, failed or was left out.
    ToolCallEvent is "tool_call" {
        /// How far the call is.
        "phase" => phase: ToolCallPhase,
        /// The tool.
        "name" => name: Name,
        /// The call.
        "id" => id?: Name,
        /// The arguments, verbatim.
        "args" => args?: Json,
        /// The answer, verbatim.
        "result" => result?: Json,
        /// What went wrong.
        "error" => error?: EventError,
        /// How long it took, in milliseconds.
        "durationMs" => duration_ms?: Number,
    }
}

words! {
    /// How far an approval is.
    ToolApprovalEventStatus {
        /// It waits for a decision.
        Pending = "pending",
        /// The tool may run.
        Approved = "approved",
        /// The tool may not run.
        Rejected = "rejected",
    }
}

record! {
    /// A tool call waits for a person, or the person decided.
    ToolApprovalEvent is "tool_approval" {
        /// How far the approval is.
        "status" => status: ToolApprovalEventStatus,
        /// The approval.
        "id" => id: Name,
        /// The tool.
        "toolName" => tool_name: Name,
        /// The call.
        "toolCallId" => tool_call_id?: Name,
        /// The arguments, verbatim.
        "args" => args?: Json,
        /// Who decided.
        "decidedBy" => decided_by?: Name,
        /// What the person said.
        "comment" => comment?: Name,
    }
}

words! {
    /// How far a question is.
    UserQuestionEventStatus {
        /// It waits for an answer.
        Pending = "pending",
        /// It was answered.
        Answered = "answered",
        /// Nobody will answer it.
        Cancelled = "cancelled",
    }
}

record! {
    /// The model asked a person, or the person answered.
    UserQuestionEvent is "user_question" {
        /// How far the question is.
        "status" => status: UserQuestionEventStatus,
        /// The question.
        "id" => id: Name,
        /// The tool call by which the model asked.
        "toolCallId" => tool_call_id: Name,
        /// What is asked.
        "questions" => questions?: Vec<UserQuestionItem>,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// Who answered.
        "answeredBy" => answered_by?: Name,
        /// Whether free text is allowed.
        "allowFreeText" => allow_free_text?: bool,
    }
}

words! {
    /// Who touched the plan.
    PlanSource {
        /// The model, by its tool.
        ManageTodoList = "manage_todo_list",
        /// The runtime.
        System = "system",
    }
}

words! {
    /// What was done with the plan.
    PlanOperation {
        /// It was looked at.
        Read = "read",
        /// It was replaced.
        Write = "write",
        /// Some of its steps changed.
        Update = "update",
    }
}

record! {
    /// The plan was read or changed. What it says is an account of that moment; the plan itself is in the state.
    PlanEvent is "plan" {
        /// Who did it.
        "source" => source: PlanSource,
        /// What was done.
        "operation" => operation?: PlanOperation,
        /// The steps of the plan.
        "todoList" => todo_list?: Vec<PlanStepRecord>,
        /// The version of the plan.
        "version" => version?: u64,
        /// How much of it is done, from 0 to 1.
        "adherenceScore" => adherence_score?: Number,
    }
}

record! {
    /// Older messages were summarised.
    SummarizationEvent is "summarization" {
        /// The summary.
        "summary" => summary: Name,
        /// How many messages it stands for.
        "messagesCompressed" => messages_compressed?: u64,
        /// Tokens that the model read for it.
        "inputTokens" => input_tokens?: u64,
        /// Tokens that it wrote.
        "outputTokens" => output_tokens?: u64,
        /// Tokens that it found in its cache.
        "cachedInputTokens" => cached_input_tokens?: u64,
        /// All of them.
        "totalTokens" => total_tokens?: u64,
        /// How long it took, in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// The summary before this one.
        "previousSummary" => previous_summary?: Name,
        /// How many tokens the conversation had before.
        "tokenCountBefore" => token_count_before?: u64,
        /// How many it has now.
        "tokenCountAfter" => token_count_after?: u64,
        /// How many tool answers were archived.
        "archivedCount" => archived_count?: u64,
        /// The summary, taken apart.
        "structuredSummary" => structured_summary?: SummaryRecord,
        /// Whether it kept what it had to keep.
        "integrity" => integrity?: SummaryIntegrityCheck,
    }
}

record! {
    /// The agent answered.
    FinalAnswerEvent is "finalAnswer" {
        /// The answer.
        "content" => content: Name,
    }
}

record! {
    /// What the run cost, and which limits it has. Anything else that it says is among the unknown members.
    #[derive(Default)]
    MetadataEvent is "metadata" {
        /// What the provider counted, verbatim.
        "usage" => usage?: Json,
        /// The model.
        "modelName" => model_name?: Name,
        /// The limits of the run, verbatim.
        "limits" => limits?: Json,
    }
}

record! {
    /// Another agent goes on.
    HandoffEvent is "handoff" {
        /// The agent that hands over.
        "from" => from?: Name,
        /// The agent that goes on.
        "to" => to?: Name,
        /// The tool by which that happened.
        "toolName" => tool_name: Name,
    }
}

words! {
    /// What a guardrail looked at.
    GuardrailPhase {
        /// What goes to the model.
        Request = "request",
        /// What comes from it.
        Response = "response",
    }
}

words! {
    /// What a guardrail decided.
    GuardrailDisposition {
        /// It stops here.
        Block = "block",
        /// It goes on, and somebody should look.
        Warn = "warn",
        /// It goes on.
        Allow = "allow",
    }
}

record! {
    /// A guardrail objected.
    GuardrailEvent is "guardrail" {
        /// What it looked at.
        "phase" => phase: GuardrailPhase,
        /// The guardrail.
        "guardrailId" => guardrail_id?: Name,
        /// Its name for people.
        "guardrailTitle" => guardrail_title?: Name,
        /// The rule of it.
        "ruleId" => rule_id?: Name,
        /// The rule's name for people.
        "ruleTitle" => rule_title?: Name,
        /// What it decided.
        "disposition" => disposition: GuardrailDisposition,
        /// Why.
        "reason" => reason?: Name,
        /// More about that, verbatim.
        "details" => details?: Vec<(Name, Json)>,
    }
}

record! {
    /// How far the run is.
    #[derive(Default)]
    ProgressEvent is "progress" {
        /// What it is at.
        "stage" => stage?: Name,
        /// The same for people.
        "message" => message?: Name,
        /// How much of it is done, in percent.
        "percent" => percent?: Number,
        /// More about that, verbatim.
        "detail" => detail?: Json,
    }
}

record! {
    /// A piece of text that the model is writing.
    StreamEvent is "stream" {
        /// The piece.
        "text" => text: Name,
        /// Whether it is the last.
        "isFinal" => is_final?: bool,
        /// The Item that it is a piece of. Ours.
        "id" => id?: Name,
    }
}

record! {
    /// The run was stopped.
    #[derive(Default)]
    CancelledEvent is "cancelled" {
        /// What it was at.
        "stage" => stage?: Name,
        /// Why.
        "reason" => reason?: Name,
    }
}

words! {
    /// How far an agent is that works for another.
    SubagentPhase {
        /// It begins.
        Start = "start",
        /// It answered.
        Result = "result",
        /// It failed.
        Error = "error",
        /// It waits for a person.
        Paused = "paused",
    }
}

words! {
    /// Where an agent that works for another comes from.
    SubagentMode {
        /// It was declared.
        Registry = "registry",
        /// The model made it up.
        Adhoc = "adhoc",
    }
}

record! {
    /// An agent that works for this one began, answered, failed or paused.
    SubagentEvent is "subagent" {
        /// How far it is.
        "phase" => phase: SubagentPhase,
        /// Its name or its role.
        "name" => name: Name,
        /// Its id, new each time.
        "id" => id: Name,
        /// Where it comes from.
        "mode" => mode: SubagentMode,
        /// The tool call that it works for.
        "parentToolCallId" => parent_tool_call_id?: Name,
        /// Whether others work beside it.
        "parallel" => parallel?: bool,
        /// What it is to do.
        "input" => input?: Name,
        /// What it answered.
        "content" => content?: Name,
        /// What went wrong.
        "error" => error?: EventError,
        /// How long it took, in milliseconds.
        "durationMs" => duration_ms?: Number,
    }
}

record! {
    /// The agent noted something.
    ReflectionEvent is "reflection" {
        /// The reflection.
        "id" => id: Name,
        /// The turn after which it was made.
        "turn" => turn: u64,
        /// What the agent noted.
        "text" => text: Name,
        /// Which cadence called for it.
        "trigger" => trigger?: Cadence,
        /// How long it took, in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// What it cost.
        "usage" => usage?: ReflectionUsage,
        /// The tool calls that it is about.
        "toolCallIds" => tool_call_ids?: Vec<Name>,
    }
}

record! {
    /// A run began, waits, goes on or ended. Ours.
    RunStatusEvent is "run" {
        /// How it stands: `running`, `waiting`, `completed`, `failed` or `cancelled`.
        "status" => status: Name,
        /// The run.
        "runId" => run_id?: Name,
        /// The agent that runs.
        "agent" => agent?: Name,
        /// Why it stands so.
        "reason" => reason?: Name,
    }
}

words! {
    /// How far a turn is.
    TurnPhase {
        /// The model is asked.
        Start = "start",
        /// It answered, and the answer was taken.
        End = "end",
        /// What it had said was thrown away.
        Discarded = "discarded",
    }
}

record! {
    /// A model was asked, and answered. Ours.
    TurnEvent is "turn" {
        /// How far the turn is.
        "phase" => phase: TurnPhase,
        /// The turn, counted from 1.
        "turn" => turn: u64,
        /// The model that is asked.
        "model" => model?: Name,
        /// What it is asked for, where that is not the next step: `reflection`, `summary`, `final`.
        "purpose" => purpose?: Name,
        /// Why the answer ended, or why it was thrown away.
        "reason" => reason?: Name,
        /// The Items that it said.
        "items" => items?: Vec<Name>,
    }
}

record! {
    /// Something was said to the model. What is ephemeral is told here and kept in no Thread. Ours.
    MessageEvent is "message" {
        /// Who speaks.
        "role" => role: Name,
        /// What is said.
        "content" => content: Name,
        /// Whether the Thread does not keep it.
        "ephemeral" => ephemeral?: bool,
        /// The Item that it is.
        "id" => id?: Name,
    }
}

words! {
    /// How far a thought is.
    ThoughtPhase {
        /// A piece of it.
        Delta = "delta",
        /// It is whole.
        End = "end",
    }
}

record! {
    /// The model thinks, or has thought. Ours.
    ThoughtEvent is "thought" {
        /// How far the thought is.
        "phase" => phase: ThoughtPhase,
        /// The turn, counted from 1.
        "turn" => turn: u64,
        /// What can be read of it.
        "text" => text?: Name,
        /// The Item that it is.
        "id" => id?: Name,
        /// How many bytes of it are sealed.
        "sealedBytes" => sealed_bytes?: u64,
        /// Whether the text is the provider's summary, and not the thought itself.
        "summary" => summary?: bool,
        /// Which agent had it.
        "agent" => agent?: Name,
    }
}

record! {
    /// A limit of the run was reached. Ours.
    LimitEvent is "limit" {
        /// The limit, by the name that it is set with.
        "limit" => limit: Name,
        /// How much is allowed.
        "allowed" => allowed: Number,
        /// How much there is.
        "actual" => actual: Number,
    }
}

words! {
    /// What the gate did.
    GatePhase {
        /// The model is asked again.
        Retried = "retried",
        /// After that it answered as it had to.
        Recovered = "recovered",
        /// It never did.
        Failed = "failed",
    }
}

record! {
    /// An answer did not pass the gate, or passed after all. Ours.
    GateEvent is "gate" {
        /// What the gate did.
        "phase" => phase: GatePhase,
        /// How often the model was asked, counted from 1.
        "attempt" => attempt: u64,
        /// What is done: `retry`, `retry-other`, `fallback`, `fail-fast`.
        "action" => action?: Name,
        /// What kind of failure it was.
        "errorKind" => error_kind?: Name,
        /// What was wrong.
        "message" => message?: Name,
        /// The rule that decided, where it has a name.
        "rule" => rule?: Name,
        /// The model that was asked.
        "fromModel" => from_model?: Name,
        /// The model that is asked next.
        "toModel" => to_model?: Name,
    }
}

record! {
    /// What became of the Items and Seals of a request. Ours.
    #[derive(Default)]
    ReplayEvent is "replay" {
        /// The turn, counted from 1.
        "turn" => turn?: u64,
        /// How many thoughts were sent back as they were.
        "kept" => kept?: u64,
        /// How many were put back.
        "restored" => restored?: u64,
        /// How many were said in another way.
        "reshaped" => reshaped?: u64,
        /// How many were left out of this request.
        "elided" => elided?: u64,
        /// Why, with how many each time.
        "why" => why?: Vec<(Name, Json)>,
        /// The seals: the same, counted one by one.
        "seals" => seals?: Vec<(Name, Json)>,
        /// The same Item by Item, in their order: `[first Item, what happened, to how many from there on]`. Items that are
        /// neither thoughts nor sealed are not counted.
        "fates" => fates?: Json,
    }
}

record! {
    /// What a turn cost, and the run so far. Ours.
    #[derive(Default)]
    UsageEvent is "usage" {
        /// The model that answered.
        "model" => model?: Name,
        /// The model that was asked for, as its provider calls it.
        "asked" => asked?: Name,
        /// The account that was asked, by its configured label.
        "account" => account?: Name,
        /// What it was asked for, where that is not the next step.
        "purpose" => purpose?: Name,
        /// Tokens of this answer.
        "usage" => usage?: ReflectionUsage,
        /// Tokens of the run so far.
        "total" => total?: ReflectionUsage,
        /// What this answer cost, in US dollars.
        "costUsd" => cost_usd?: Number,
        /// What the run cost so far.
        "totalCostUsd" => total_cost_usd?: Number,
    }
}
