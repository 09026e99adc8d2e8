//! What the routes take: in the query, and in the body. For the document that says so; what is read is read elsewhere.

use crate::letta::routes::Op;

/// A member or a parameter: its name, its JSON type, and what it is.
pub(crate) type Takes = (&'static str, &'static str, &'static str);

const PAGE: [Takes; 4] = [
    ("limit", "integer", "The largest number of entries to return."),
    ("after", "string", "An id. The list starts after it."),
    ("before", "string", "An id. The list ends before it."),
    ("order", "string", "asc or desc."),
];

/// What a route takes in its query.
pub(crate) fn query(op: Op) -> Vec<Takes> {
    let (is_paged, more): (bool, &[Takes]) = match op {
        Op::ListAgents => (
            true,
            &[
                ("name", "string", "The name."),
                ("query_text", "string", "A part of the name."),
                ("tags", "array", "Tags."),
                ("match_all_tags", "boolean", "Whether all of the tags are wanted."),
            ],
        ),
        Op::Messages | Op::ConversationMessages => (
            true,
            &[("include_return_message_types", "array", "The types of messages that are wanted.")],
        ),
        Op::Runs => (
            true,
            &[
                ("agent_id", "string", "The agent."),
                ("conversation_id", "string", "The conversation."),
                ("statuses", "array", "The status of the runs."),
                ("stop_reason", "string", "Why the runs stopped."),
                ("background", "boolean", "Whether they are background runs."),
                ("active", "boolean", "Whether they are active."),
            ],
        ),
        Op::RunMessages | Op::RunSteps | Op::AgentBlocks => (true, &[]),
        Op::Tools | Op::AgentTools => {
            (true, &[("name", "string", "The name."), ("search", "string", "A part of the name.")])
        }
        Op::ListConversations => (
            true,
            &[
                ("agent_id", "string", "The agent."),
                ("archive_status", "string", "unarchived, archived or all."),
                ("summary_search", "string", "A part of the summary."),
            ],
        ),
        Op::Fork => (
            false,
            &[
                ("agent_id", "string", "The agent whose default conversation is forked."),
                ("message_id", "string", "The last message that is shared."),
                ("hidden", "boolean", "Whether lists leave it out."),
            ],
        ),
        Op::Journal | Op::Fates => (
            false,
            &[
                ("after", "integer", "The number of an event. The list starts after it."),
                ("limit", "integer", "The largest number of entries to return."),
            ],
        ),
        Op::ShowRuns => (
            false,
            &[
                ("search", "string", "Words of the title, an id or a model."),
                ("status", "string", "The status of the runs."),
                ("model", "string", "A model that was asked."),
                ("after", "string", "The `next` of the page before."),
                ("limit", "integer", "The largest number of entries to return."),
            ],
        ),
        Op::ShowThreads => (
            false,
            &[
                ("search", "string", "Words of the title, or an id."),
                ("after", "string", "The `next` of the page before."),
                ("limit", "integer", "The largest number of entries to return."),
            ],
        ),
        Op::ShowCalls => (
            false,
            &[
                ("search", "string", "Words to search for in calls."),
                ("after", "string", "The `next` of the page before."),
                (
                    "limit",
                    "integer",
                    "About how many to return; a page ends at the end of a thread.",
                ),
            ],
        ),
        Op::FollowRun => (
            false,
            &[
                ("after", "integer", "The number of the last event that is known."),
                ("limit", "integer", "About how many events to send before `event: more`."),
            ],
        ),
        Op::Inbox => (false, &[("run", "string", "The run.")]),
        Op::ExportJournal => (false, &[("thread", "array", "The threads; all if absent.")]),
        Op::Questions => (false, &[("run_id", "string", "The run.")]),
        Op::Snapshot => (false, &[("tag", "string", "A tag to store in the snapshot.")]),
        _ => (false, &[]),
    };
    let page: &[Takes] = if is_paged { &PAGE } else { &[] };
    page.iter().chain(more).copied().collect()
}

const AGENT: [Takes; 15] = [
    ("name", "string", "Its name."),
    ("model", "string", "The model, as one of GET /v1/models/."),
    ("system", "string", "The system prompt."),
    ("memory_blocks", "array", "Labelled texts that are sent with the system prompt."),
    ("tools", "array", "Names of tools, as in GET /v1/tools/."),
    ("tool_rules", "array", "Rules: those of type requires_approval are heeded."),
    ("tags", "array", "Words by which lists can be filtered."),
    ("metadata", "object", "Values to store with the agent."),
    ("description", "string", "What it is for."),
    ("model_settings", "object", "Temperature, tokens, thinking."),
    ("llm_config", "object", "The older form of model_settings."),
    ("reasoning", "boolean", "Whether the model thinks."),
    (
        "context_window_limit",
        "integer",
        "The number of tokens at which older messages are summarised.",
    ),
    ("response_format", "object", "What the last answer must look like."),
    ("throughline", "object", "Further settings of a Throughline agent."),
];

const SAID: [Takes; 11] = [
    ("messages", "array", "A user's words, approvals, or returns of the caller's tools."),
    ("input", "string", "A user's words, instead of messages."),
    ("streaming", "boolean", "Whether the answer comes as a stream."),
    ("stream_tokens", "boolean", "Whether it comes piece by piece as the model writes it."),
    ("background", "boolean", "Whether the run is marked as a background run."),
    ("include_pings", "boolean", "Whether an idle stream sends pings."),
    ("include_return_message_types", "array", "The types of messages that are wanted."),
    ("client_tools", "array", "Tools that the caller runs."),
    ("max_steps", "integer", "The most tool calls."),
    ("override_model", "string", "The model of this run."),
    ("override_system", "string", "The system prompt of this run."),
];

const CONVERSATION: [Takes; 5] = [
    ("agent_id", "string", "The agent."),
    ("summary", "string", "What it is about."),
    ("description", "string", "The same at length."),
    ("model", "string", "The model, where it is not the agent's."),
    ("model_settings", "object", "Its settings."),
];

const FOLLOWED: [Takes; 4] = [
    ("starting_after", "integer", "The seq_id of the last message that is known."),
    ("include_pings", "boolean", "Whether an idle stream sends pings."),
    ("run_id", "string", "The run."),
    ("otid", "string", "A name of a message that began the run."),
];

/// What a route takes in its body.
pub(crate) fn body(op: Op) -> &'static [Takes] {
    match op {
        Op::CreateAgent | Op::UpdateAgent => &AGENT,
        Op::Say | Op::SayStream | Op::SayAsync | Op::SayInConversation => &SAID,
        Op::CreateConversation | Op::UpdateConversation => &CONVERSATION,
        Op::RunStream | Op::ConversationStream => &FOLLOWED,
        Op::Cancel => &[("run_ids", "array", "The runs; all active runs if absent.")],
        Op::ToolApproval => &[("requires_approval", "boolean", "Whether a person must allow it.")],
        Op::UpdateBlock => &[("value", "string", "The text of the block.")],
        Op::AnswerQuestion => &[
            ("answers", "object", "For each question its values, or free text."),
            ("cancelled", "boolean", "Whether the question is left unanswered."),
            ("answeredBy", "string", "Who answers."),
            ("notes", "string", "Further notes."),
        ],
        Op::Decide => &[
            ("approved", "boolean", "Whether the tool may run."),
            ("args", "object", "Arguments to use instead of the model's."),
            ("comment", "string", "What the model is told if the tool may not run."),
            ("decided_by", "string", "Who decides."),
        ],
        Op::Doctor => &[
            ("request", "string", "The request, as a text or as it is."),
            ("wire", "string", "The wire; guessed if absent."),
            ("provider", "string", "The provider that receives it; guessed if absent."),
            ("model", "string", "The model, where the request does not name it."),
            ("to_provider", "string", "The provider to translate the request to."),
            ("to_model", "string", "The model that is asked there."),
        ],
        Op::ForkThread => &[("at", "integer", "The last record that is shared.")],
        Op::Rewind => &[("to", "integer", "The last record that stays valid.")],
        _ => &[],
    }
}
