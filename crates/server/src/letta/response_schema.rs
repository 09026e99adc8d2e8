//! Response schemas of the routes, for the `OpenAPI` document. The handlers build the responses;
//! the tests check every response against these schemas.

use throughline_core::{Json, Node, RunEvent, SmartState, json};

use crate::api::Op;

/// The kind of a route's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// One object of this schema.
    One(&'static str),
    /// An array of objects of this schema.
    List(&'static str),
    /// Messages as server-sent events.
    Frames,
    /// Message events or one JSON response, as the request specifies.
    Either,
    /// The events of a run as server-sent events.
    Events,
    Number,
    /// `null`.
    Nothing,
}

/// The successful response of a route.
pub(crate) fn response(op: Op) -> ResponseKind {
    match op {
        Op::Health => ResponseKind::One("Health"),
        Op::Models => ResponseKind::List("Model"),
        Op::Tools | Op::AgentTools => ResponseKind::List("Tool"),
        Op::CreateAgent | Op::Agent | Op::UpdateAgent | Op::ToolApproval | Op::Reset => {
            ResponseKind::One("Agent")
        }
        Op::ListAgents => ResponseKind::List("Agent"),
        Op::CountAgents => ResponseKind::Number,
        Op::DeleteAgent | Op::DeleteConversation => ResponseKind::Nothing,
        Op::AgentBlocks => ResponseKind::List("Block"),
        Op::AgentBlock | Op::UpdateBlock => ResponseKind::One("Block"),
        Op::ClientDialect | Op::SayInConversation => ResponseKind::Either,
        Op::SayStream | Op::RunStream | Op::ConversationStream => ResponseKind::Frames,
        Op::SayAsync | Op::Run | Op::Restore | Op::Resume => ResponseKind::One("Run"),
        Op::Messages | Op::ConversationMessages | Op::RunMessages => ResponseKind::List("Message"),
        Op::Cancel | Op::CancelConversation => ResponseKind::One("Cancelled"),
        Op::Summarize | Op::Compact => ResponseKind::One("Summary"),
        Op::Runs => ResponseKind::List("Run"),
        Op::RunSteps => ResponseKind::List("Step"),
        Op::RunUsage => ResponseKind::One("RunUsage"),
        Op::CreateConversation | Op::Conversation | Op::UpdateConversation | Op::Fork => {
            ResponseKind::One("Conversation")
        }
        Op::ListConversations => ResponseKind::List("Conversation"),
        Op::State => ResponseKind::One("SmartState"),
        Op::Snapshot => ResponseKind::One("Snapshot"),
        Op::Plan => ResponseKind::One("RunPlan"),
        Op::Reflections => ResponseKind::List("ReflectionRecord"),
        Op::Journal | Op::FateCounts => ResponseKind::List("JournalEntry"),
        Op::Narrative => ResponseKind::One("Narrative"),
        Op::Questions => ResponseKind::List("Question"),
        Op::AnswerQuestion => ResponseKind::One("Question"),
        Op::ForkThread => ResponseKind::One("Forked"),
        Op::Rewind => ResponseKind::One("Rewound"),
        Op::Schema => ResponseKind::One("Schema"),
        Op::FollowRun => ResponseKind::Events,
        // The console's responses have no schema: only the bundled console reads them.
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
        | Op::Doctor => ResponseKind::One("any"),
    }
}

/// The name and members of an object schema.
type ObjectSchema = (&'static str, &'static [MemberSchema]);
/// The name of a member, ending in `?` if optional, and its type.
type MemberSchema = (&'static str, &'static str);

const OBJECTS: &[ObjectSchema] = &[
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

/// Members that most messages share.
const MESSAGE: &[MemberSchema] = &[
    ("id", "string"),
    ("date", "string"),
    ("name?", "string"),
    ("otid?", "string"),
    ("step_id?", "string"),
    ("seq_id?", "integer"),
    ("run_id?", "string"),
];
/// Members that the last frames of a stream share.
const FRAME: &[MemberSchema] = &[("run_id?", "string"), ("seq_id?", "integer")];

/// Each message type with its shared members and its own members.
const MESSAGES: &[(&str, &[MemberSchema], &[MemberSchema])] = &[
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

/// Writes the schemas that the routes refer to: resources, messages, and the documented types.
pub(crate) fn write_schemas(o: &mut json::Object<'_>) {
    for (name, members) in OBJECTS {
        o.raw(name, &object_schema(None, &[members]));
    }
    let cancelled = json::object(|o| {
        o.string("type", "object").string("description", "The outcome of each run, by run id.");
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
        o.raw(kind, &object_schema(Some(kind), &[common, own]));
    }
    write_documented_schemas(o);
}

/// Writes the schemas of the documented types under their own names.
fn write_documented_schemas(o: &mut json::Object<'_>) {
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

/// An object schema of these members; `kind` adds the `message_type` of a message.
fn object_schema(kind: Option<&str>, members: &[&[MemberSchema]]) -> Json {
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

/// The schema for a type name of the tables above.
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
