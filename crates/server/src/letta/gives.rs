//! What the routes give. For the document that says so; what is written is written elsewhere, and the tests hold each answer
//! against this.

use throughline_core::{Json, Node, RunEvent, SmartState, json};

use crate::letta::routes::Op;

/// What a route gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// One of these.
    One(&'static str),
    /// A list of these.
    List(&'static str),
    /// Messages, as server-sent events.
    Frames,
    /// Those, or all of them as one answer, as the request says.
    Either,
    /// A run's events, as server-sent events.
    Events,
    /// A number.
    Number,
    /// `null`
    Nothing,
}

/// What a route gives when it goes well.
pub(crate) fn response(op: Op) -> Gives {
    match op {
        Op::Health => Gives::One("Health"),
        Op::Models => Gives::List("Model"),
        Op::Tools | Op::AgentTools => Gives::List("Tool"),
        Op::CreateAgent | Op::Agent | Op::UpdateAgent | Op::ToolApproval | Op::Reset => {
            Gives::One("Agent")
        }
        Op::ListAgents => Gives::List("Agent"),
        Op::CountAgents => Gives::Number,
        Op::DeleteAgent | Op::DeleteConversation => Gives::Nothing,
        Op::AgentBlocks => Gives::List("Block"),
        Op::AgentBlock | Op::UpdateBlock => Gives::One("Block"),
        Op::Say | Op::SayInConversation => Gives::Either,
        Op::SayStream | Op::RunStream | Op::ConversationStream => Gives::Frames,
        Op::SayAsync | Op::Run | Op::Restore | Op::Resume => Gives::One("Run"),
        Op::Messages | Op::ConversationMessages | Op::RunMessages => Gives::List("Message"),
        Op::Cancel | Op::CancelConversation => Gives::One("Cancelled"),
        Op::Summarize | Op::Compact => Gives::One("Summary"),
        Op::Runs => Gives::List("Run"),
        Op::RunSteps => Gives::List("Step"),
        Op::RunUsage => Gives::One("RunUsage"),
        Op::CreateConversation | Op::Conversation | Op::UpdateConversation | Op::Fork => {
            Gives::One("Conversation")
        }
        Op::ListConversations => Gives::List("Conversation"),
        Op::State => Gives::One("SmartState"),
        Op::Snapshot => Gives::One("Snapshot"),
        Op::Plan => Gives::One("RunPlan"),
        Op::Reflections => Gives::List("ReflectionRecord"),
        Op::Journal | Op::Fates => Gives::List("JournalEntry"),
        Op::Narrative => Gives::One("Narrative"),
        Op::Questions => Gives::List("Question"),
        Op::AnswerQuestion => Gives::One("Question"),
        Op::ForkThread => Gives::One("Forked"),
        Op::Rewind => Gives::One("Rewound"),
        Op::Schema => Gives::One("Schema"),
        Op::FollowRun => Gives::Events,
        // What the console asks, it knows.
        Op::ShowRuns
        | Op::ShowRun
        | Op::ShowTrace
        | Op::ShowThreads
        | Op::ShowThread
        | Op::ThoughtMap
        | Op::ShowCalls
        | Op::ShowCall
        | Op::Inbox
        | Op::Decide
        | Op::ShowJournal
        | Op::VerifyJournal
        | Op::ExportJournal
        | Op::ShowKeys
        | Op::UsedByHour
        | Op::DoctorRows
        | Op::Doctor => Gives::One("any"),
    }
}

/// An object: its name, and its members.
type Shape = (&'static str, &'static [Member]);
/// A member: its name, with a question mark where it may be absent, and its type.
type Member = (&'static str, &'static str);

const SHAPES: &[Shape] = &[
    ("Health", &[("version", "string"), ("status", "string")]),
    (
        "Model",
        &[
            ("handle", "string"),
            ("name", "string"),
            ("model", "string"),
            ("model_type", "string"),
            ("provider_name", "string"),
            ("provider_type", "string"),
            ("context_window", "integer"),
        ],
    ),
    (
        "Tool",
        &[
            ("id", "string"),
            ("name", "string"),
            ("description", "string"),
            ("tool_type", "string"),
            ("args_json_schema", "object"),
            ("json_schema", "object"),
            ("default_requires_approval", "boolean"),
            ("tags", "[string]"),
        ],
    ),
    (
        "Agent",
        &[
            ("id", "string"),
            ("name", "string"),
            ("agent_type", "string"),
            ("system", "string"),
            ("model", "string"),
            ("llm_config", "object"),
            ("blocks", "[Block]"),
            ("memory", "object"),
            ("tools", "[Tool]"),
            ("tool_rules", "[object]"),
            ("tags", "[string]"),
            ("metadata", "object"),
            ("created_at", "string"),
            ("updated_at", "string"),
            ("last_run_completion?", "string"),
            ("last_stop_reason?", "string"),
        ],
    ),
    ("Block", &[("id?", "string"), ("label", "string"), ("value", "string")]),
    (
        "Conversation",
        &[
            ("id", "string"),
            ("agent_id", "string"),
            ("created_at", "string"),
            ("updated_at", "string"),
            ("in_context_message_ids", "[string]"),
        ],
    ),
    (
        "Run",
        &[
            ("id", "string"),
            ("agent_id", "string"),
            ("status", "string"),
            ("background", "boolean"),
            ("created_at", "string"),
            ("completed_at?", "string"),
            ("conversation_id?", "string"),
            ("stop_reason?", "string"),
            ("metadata", "object"),
        ],
    ),
    (
        "Step",
        &[
            ("id", "string"),
            ("agent_id", "string"),
            ("run_id", "string"),
            ("model?", "string"),
            ("status", "string"),
            ("prompt_tokens", "integer"),
            ("completion_tokens", "integer"),
            ("total_tokens", "integer"),
            ("reasoning_tokens?", "integer"),
            ("stop_reason?", "string"),
        ],
    ),
    (
        "RunUsage",
        &[
            ("completion_tokens", "integer"),
            ("prompt_tokens", "integer"),
            ("total_tokens", "integer"),
            ("prompt_tokens_details", "object"),
            ("completion_tokens_details", "object"),
        ],
    ),
    (
        "Answer",
        &[("messages", "[Message]"), ("stop_reason", "stop_reason"), ("usage", "usage_statistics")],
    ),
    (
        "Summary",
        &[
            ("summary", "string"),
            ("num_messages_before", "integer"),
            ("num_messages_after", "integer"),
        ],
    ),
    ("RunPlan", &[("plan", "any"), ("planVersion", "any")]),
    ("JournalEntry", &[("event", "integer"), ("said", "RunEvent")]),
    ("Narrative", &[("runId", "string"), ("narrative", "string")]),
    ("Question", &[("id", "string"), ("status", "string"), ("runId?", "string")]),
    ("Forked", &[("id", "string"), ("forked_from", "object")]),
    ("Rewound", &[("id", "string"), ("rewound", "object")]),
    ("Snapshot", &[("version", "any"), ("state", "SmartState"), ("metadata?", "object")]),
    ("Schema", &[("$schema", "string"), ("title", "string")]),
    ("ToolCall", &[("name", "string"), ("arguments", "string"), ("tool_call_id", "string")]),
];

/// What most messages have.
const MESSAGE: &[Member] = &[
    ("id", "string"),
    ("date", "string"),
    ("name?", "string"),
    ("otid?", "string"),
    ("step_id?", "string"),
    ("seq_id?", "integer"),
    ("run_id?", "string"),
];
/// What the last frames of a stream have.
const FRAME: &[Member] = &[("run_id?", "string"), ("seq_id?", "integer")];

/// The messages: each with what it has besides.
const MESSAGES: &[(&str, &[Member], &[Member])] = &[
    ("user_message", MESSAGE, &[("content", "any")]),
    ("system_message", MESSAGE, &[("content", "string")]),
    ("assistant_message", MESSAGE, &[("content", "any")]),
    (
        "reasoning_message",
        MESSAGE,
        &[("source", "string"), ("reasoning", "string"), ("signature?", "string")],
    ),
    ("hidden_reasoning_message", MESSAGE, &[("state", "string"), ("hidden_reasoning?", "string")]),
    ("tool_call_message", MESSAGE, &[("tool_call", "ToolCall"), ("tool_calls", "[ToolCall]")]),
    (
        "approval_request_message",
        MESSAGE,
        &[("tool_call", "ToolCall"), ("tool_calls", "[ToolCall]")],
    ),
    (
        "approval_response_message",
        MESSAGE,
        &[("approvals", "[object]"), ("approve", "boolean"), ("reason?", "string")],
    ),
    (
        "tool_return_message",
        MESSAGE,
        &[
            ("tool_return", "string"),
            ("status", "string"),
            ("tool_call_id", "string"),
            ("tool_returns", "[object]"),
        ],
    ),
    ("summary_message", MESSAGE, &[("summary", "string")]),
    ("ping", MESSAGE, &[]),
    ("error_message", FRAME, &[("error_type", "string"), ("message", "string")]),
    ("stop_reason", FRAME, &[("stop_reason", "string")]),
    (
        "usage_statistics",
        FRAME,
        &[
            ("completion_tokens", "integer"),
            ("prompt_tokens", "integer"),
            ("total_tokens", "integer"),
            ("step_count?", "integer"),
            ("run_ids?", "[string]"),
            ("cached_input_tokens?", "integer"),
            ("reasoning_tokens?", "integer"),
        ],
    ),
];

/// Writes the schemas that the routes refer to: ours, each message, and those of the documents.
pub(crate) fn schemas(o: &mut json::Object<'_>) {
    for (name, members) in SHAPES {
        o.raw(name, &shape(None, &[members]));
    }
    let cancelled = json::object(|o| {
        o.string("type", "object").string("description", "What came of each run, by its id.");
        o.object("additionalProperties", |o| {
            o.string("type", "string");
        });
    });
    o.raw("Cancelled", &cancelled);
    o.object("Message", |o| {
        o.array("oneOf", |list| {
            for (kind, ..) in MESSAGES {
                list.raw(&of(kind));
            }
        });
        o.object("discriminator", |o| {
            o.string("propertyName", "message_type");
        });
    });
    for (kind, common, own) in MESSAGES {
        o.raw(kind, &shape(Some(kind), &[common, own]));
    }
    documents(o);
}

/// The schemas of the documents, under the names that they have there.
fn documents(o: &mut json::Object<'_>) {
    let mut written: Vec<String> = Vec::new();
    for (name, schema) in [("RunEvent", RunEvent::schema()), ("SmartState", SmartState::schema())] {
        let text = schema.as_str().replace("#/$defs/", "#/components/schemas/");
        let Ok(schema) = Json::parse(text) else { continue };
        let tree = schema.tree();
        if let Some(any) = tree.root().get("oneOf") {
            o.object(name, |o| {
                o.node("oneOf", any);
            });
        }
        for (name, value) in tree.root().get("$defs").into_iter().flat_map(Node::members) {
            let name = name.text().unwrap_or_default().into_owned();
            if !written.contains(&name) {
                o.node(&name, value);
                written.push(name);
            }
        }
    }
}

/// An object of these members; a message of that type, if it is one.
fn shape(kind: Option<&str>, members: &[&[Member]]) -> Json {
    let all = || members.iter().flat_map(|members| members.iter());
    json::object(|o| {
        o.string("type", "object").object("properties", |o| {
            if let Some(kind) = kind {
                o.object("message_type", |o| {
                    o.string("const", kind);
                });
            }
            for (name, of_type) in all() {
                o.raw(name.trim_end_matches('?'), &of(of_type));
            }
        });
        o.array("required", |list| {
            if kind.is_some() {
                list.string("message_type");
            }
            for (name, _) in all().filter(|(name, _)| !name.ends_with('?')) {
                list.string(name);
            }
        });
    })
}

/// The schema that a type stands for.
pub(crate) fn of(of_type: &str) -> Json {
    if let Some(items) = of_type.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let items = of(items);
        return json::object(|o| {
            o.string("type", "array").raw("items", &items);
        });
    }
    json::object(|o| match of_type {
        "any" => {}
        "string" | "integer" | "boolean" | "object" => {
            o.string("type", of_type);
        }
        name => {
            o.string("$ref", &format!("#/components/schemas/{name}"));
        }
    })
}
