//! Query parameters and body fields of the routes. The tables only document the parameters in the
//! `OpenAPI` document. Handlers parse parameters themselves, because most handlers ignore values of
//! the wrong type.

/// The name, JSON type and description of a parameter or field.
pub(crate) type ParameterSpec = (&'static str, &'static str, &'static str);

pub(super) const PAGE: &[ParameterSpec] = &[
    ("limit", "integer", "The largest number of entries to return."),
    ("after", "string", "An id. The list starts after it."),
    ("before", "string", "An id. The list ends before it."),
    ("order", "string", "asc or desc."),
];

pub(super) const AGENT_FILTER: &[ParameterSpec] = &[
    ("name", "string", "The name."),
    ("query_text", "string", "A part of the name."),
    ("tags", "array", "Tags."),
    ("match_all_tags", "boolean", "Whether an agent must have all of the tags."),
];

pub(super) const MESSAGE_TYPES: &[ParameterSpec] =
    &[("include_return_message_types", "array", "The types of messages that are wanted.")];

pub(super) const RUN_FILTER: &[ParameterSpec] = &[
    ("agent_id", "string", "The agent."),
    ("conversation_id", "string", "The conversation."),
    ("statuses", "array", "The status of the runs."),
    ("stop_reason", "string", "Why the runs stopped."),
    ("background", "boolean", "Whether they are background runs."),
    ("active", "boolean", "Whether they are active."),
];

pub(super) const TOOL_FILTER: &[ParameterSpec] =
    &[("name", "string", "The name."), ("search", "string", "A part of the name.")];

pub(super) const CONVERSATION_FILTER: &[ParameterSpec] = &[
    ("agent_id", "string", "The agent."),
    ("archive_status", "string", "unarchived, archived or all."),
    ("summary_search", "string", "A part of the summary."),
];

pub(super) const FORK: &[ParameterSpec] = &[
    ("agent_id", "string", "The agent whose default conversation is forked."),
    ("message_id", "string", "The last message that is shared."),
    ("hidden", "boolean", "Whether lists leave it out."),
];

pub(super) const EVENT_PAGE: &[ParameterSpec] = &[
    ("after", "integer", "The number of an event. The list starts after it."),
    ("limit", "integer", "The largest number of entries to return."),
];

pub(super) const LEDGER: &[ParameterSpec] =
    &[("after", "integer", "The number of a request. The list starts after it.")];

pub(super) const SHOW_RUNS: &[ParameterSpec] = &[
    ("search", "string", "Text in the title, an id or a model."),
    ("status", "string", "The status of the runs, or `interrupted`."),
    ("model", "string", "A model that the run called."),
    ("after", "string", "The `next` of the page before."),
    ("limit", "integer", "The largest number of entries to return."),
];

pub(super) const SHOW_THREADS: &[ParameterSpec] = &[
    ("search", "string", "Text in the title, or an id."),
    ("after", "string", "The `next` of the page before."),
    ("limit", "integer", "The largest number of entries to return."),
];

pub(super) const THREAD_ITEMS: &[ParameterSpec] = &[
    ("before", "integer", "The `before` of the page before, for older items."),
    ("limit", "integer", "The largest number of records to read."),
];

pub(super) const SHOW_CALLS: &[ParameterSpec] = &[
    ("search", "string", "Text to search for in calls."),
    ("status", "string", "`ok`, `failed`, or an HTTP status."),
    ("model", "string", "The requested model, or the model that received the request."),
    ("audit", "string", "The verdict of the audit: `accept`, `degrade` or `refuse`."),
    ("restored", "boolean", "Whether to list only calls with restored thoughts."),
    ("after", "string", "The `next` of the page before."),
    ("limit", "integer", "About how many to return; a page ends at the end of a thread."),
];

pub(super) const RANGE: &[ParameterSpec] = &[
    ("since", "string", "The start of the range of time, such as `2026-01-31T00:00:00Z`."),
    ("until", "string", "The end of the range of time, which is not part of the range."),
];

pub(super) const FOLLOW: &[ParameterSpec] = &[
    ("after", "integer", "The number of the last event received."),
    ("limit", "integer", "About how many events to send before `event: more`."),
];

pub(super) const RUN: &[ParameterSpec] = &[("run", "string", "The run.")];

pub(super) const RUN_ID: &[ParameterSpec] = &[("run_id", "string", "The run.")];

pub(super) const THREADS: &[ParameterSpec] = &[("thread", "array", "The threads; all if absent.")];

pub(super) const TAG: &[ParameterSpec] = &[("tag", "string", "A tag to store in the snapshot.")];

pub(super) const AGENT: &[ParameterSpec] = &[
    ("name", "string", "The name of the agent."),
    ("model", "string", "The model, as one of GET /v1/models/."),
    ("system", "string", "The system prompt."),
    ("memory_blocks", "array", "Labelled texts that are sent with the system prompt."),
    ("tools", "array", "Names of tools, as in GET /v1/tools/."),
    ("tool_rules", "array", "Rules; only those of type requires_approval have an effect."),
    ("tags", "array", "Tags by which lists can be filtered."),
    ("metadata", "object", "Values to store with the agent."),
    ("description", "string", "The purpose of the agent."),
    ("model_settings", "object", "Temperature, token limits and reasoning settings."),
    ("llm_config", "object", "The older form of model_settings."),
    ("reasoning", "boolean", "Whether the model reasons."),
    (
        "context_window_limit",
        "integer",
        "The number of tokens at which older messages are summarised.",
    ),
    ("response_format", "object", "The required format of the final answer."),
    ("throughline", "object", "Further settings of a Throughline agent."),
];

pub(super) const SAID: &[ParameterSpec] = &[
    ("messages", "array", "User messages, approvals, or results of the client's tools."),
    ("input", "string", "A user message, instead of messages."),
    ("streaming", "boolean", "Whether to stream the answer."),
    ("stream_tokens", "boolean", "Whether to stream deltas as the model writes them."),
    ("background", "boolean", "Whether the run is marked as a background run."),
    ("include_pings", "boolean", "Whether an idle stream sends pings."),
    ("include_return_message_types", "array", "The types of messages that are wanted."),
    ("client_tools", "array", "Tools that the client runs."),
    (
        "history",
        "object",
        "Earlier conversation in a documented format: `format`, `messages` or `thoughts`, and `owner`, the model that issued its reasoning.",
    ),
    ("max_steps", "integer", "Maximum number of tool calls."),
    ("override_model", "string", "The model of this run."),
    ("override_system", "string", "The system prompt of this run."),
    ("throughline", "object", "`ctx`, values that tools can read, and `tracing` of this run."),
];

pub(super) const CONVERSATION: &[ParameterSpec] = &[
    ("agent_id", "string", "The agent."),
    ("summary", "string", "A short summary of the conversation."),
    ("description", "string", "A longer description of the conversation."),
    ("model", "string", "The model, if it differs from the agent's."),
    ("model_settings", "object", "Settings of the model."),
];

pub(super) const STREAM_MEMBERS: &[ParameterSpec] = &[
    ("starting_after", "integer", "The seq_id of the last message received."),
    ("include_pings", "boolean", "Whether an idle stream sends pings."),
    ("run_id", "string", "The run."),
    ("otid", "string", "The otid of a message that started the run."),
];

pub(super) const CANCEL: &[ParameterSpec] =
    &[("reason", "string", "The reason, which the history of the run contains.")];

pub(super) const RUN_IDS: &[ParameterSpec] =
    &[("run_ids", "array", "The runs; all active runs if absent.")];

pub(super) const REQUIRES_APPROVAL: &[ParameterSpec] =
    &[("requires_approval", "boolean", "Whether the tool requires approval.")];

pub(super) const BLOCK_VALUE: &[ParameterSpec] = &[("value", "string", "The text of the block.")];

pub(super) const ANSWER: &[ParameterSpec] = &[
    ("answers", "object", "The chosen values or free text for each question."),
    ("cancelled", "boolean", "Whether the question is left unanswered."),
    ("answeredBy", "string", "Who answers."),
    ("notes", "string", "Further notes."),
];

pub(super) const DECISION: &[ParameterSpec] = &[
    ("approved", "boolean", "Whether the tool may run."),
    ("args", "object", "Arguments to use instead of the model's."),
    ("comment", "string", "The text for the model if the tool is rejected."),
    ("decided_by", "string", "Who decides."),
];

pub(super) const DOCTOR: &[ParameterSpec] = &[
    ("request", "string", "The request, as a string or as JSON."),
    ("wire", "string", "The wire; guessed if absent."),
    ("provider", "string", "The provider that receives it; guessed if absent."),
    ("model", "string", "The model, if the request does not name it."),
    ("to_provider", "string", "The provider to translate the request to."),
    ("to_model", "string", "The model at that provider."),
];

pub(super) const FORK_RECORD: &[ParameterSpec] =
    &[("at", "integer", "The last record that is shared.")];

pub(super) const REWIND_RECORD: &[ParameterSpec] =
    &[("to", "integer", "The last record that stays valid.")];

pub(super) const NEW_KEY: &[ParameterSpec] = &[("label", "string", "A label for display.")];

pub(super) const ROUTE_TARGETS: &[ParameterSpec] = &[(
    "targets",
    "array",
    "The models, as `PROVIDER/model`, in the order in which they are tried.",
)];

pub(super) const KEY_LIMITS: &[ParameterSpec] = &[
    (
        "role",
        "string",
        "operator, app or viewer. In a change, null in this or any other member removes it.",
    ),
    ("models", "array", "Patterns of the models that the key may use."),
    ("budget_micro_usd", "integer", "The budget in millionths of a US dollar."),
    ("budget_tokens", "integer", "The budget in tokens."),
    ("budget_period", "string", "day, week, month or total."),
    ("soft_limit_percent", "integer", "The share of a budget at which a message is sent."),
    ("requests_per_minute", "integer", "The largest number of requests per minute."),
    ("tokens_per_minute", "integer", "The largest number of tokens per minute."),
];
