//! Converts agents, tools, conversations and models to Letta's JSON format.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::ToolSpec;
use throughline_json::{self as json, Json, Name, Node};

use crate::api::{AnyObject, ApiRequest, ApiResult, json_response};
use crate::letta::agent_config;
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::message::format_date;
use crate::object::{object, put_members, to_json};
use crate::response::GatewayResponse;

/// The context window to report if the model's window is unknown.
const WINDOW: u64 = 200_000;

/// The state of the API.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    version: &'static str,
    status: &'static str,
}

/// A model that agents can use.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(crate) struct ModelEntry<'m> {
    handle: &'m str,
    name: &'m str,
    display_name: &'m str,
    model: &'m str,
    model_type: &'static str,
    provider_name: &'static str,
    provider_type: &'static str,
    model_endpoint_type: &'static str,
    context_window: u64,
    max_context_window: u64,
}

/// An agent. Members that the client sent and the API does not know are returned as they were sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub(crate) struct AgentState {
    id: Name,
    name: Name,
    agent_type: Name,
    system: Name,
    model: Name,
    #[schemars(with = "LlmConfig<'static>")]
    llm_config: Json,
    #[schemars(with = "Vec<MemoryBlock>")]
    blocks: Json,
    memory: AgentMemory,
    tools: Vec<ToolEntry>,
    #[schemars(with = "Vec<AnyObject>")]
    tool_rules: Json,
    #[schemars(with = "Vec<String>")]
    tags: Json,
    sources: [Name; 0],
    message_ids: [Name; 0],
    identity_ids: [Name; 0],
    #[schemars(with = "AnyObject")]
    metadata: Json,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_run_completion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_stop_reason: Option<&'static str>,
}

/// The model of an agent and its settings.
#[derive(Serialize, JsonSchema)]
struct LlmConfig<'m> {
    model: &'m str,
    model_endpoint_type: &'static str,
    context_window: u64,
    handle: &'m str,
}

/// The memory of an agent.
#[derive(Serialize, JsonSchema)]
struct AgentMemory {
    #[schemars(with = "Vec<MemoryBlock>")]
    blocks: Json,
    file_blocks: [Name; 0],
    agent_type: Name,
    prompt_template: &'static str,
}

/// A labelled text that is sent with the system prompt.
#[derive(JsonSchema)]
#[schemars(rename = "Block")]
#[expect(dead_code, reason = "blocks are stored and returned as JSON")]
pub(crate) struct MemoryBlock {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Name>,
    label: Name,
    value: Name,
}

/// A tool that agents can use.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub(crate) struct ToolEntry {
    id: String,
    name: Name,
    description: Name,
    tool_type: &'static str,
    source_type: &'static str,
    #[schemars(with = "AnyObject")]
    args_json_schema: Json,
    json_schema: ToolFunction,
    default_requires_approval: bool,
    tags: [Name; 0],
}

/// A tool as models see it.
#[derive(Serialize, JsonSchema)]
struct ToolFunction {
    name: Name,
    description: Name,
    #[schemars(with = "AnyObject")]
    parameters: Json,
}

/// A conversation with an agent. Members that the client sent are returned as they were sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub(crate) struct ConversationState<'c> {
    id: &'c str,
    agent_id: &'c str,
    created_at: String,
    updated_at: String,
    in_context_message_ids: [Name; 0],
}

pub(crate) fn health() -> GatewayResponse {
    json_response(&Health { version: env!("CARGO_PKG_VERSION"), status: "ok" })
}

/// Lists the models that agents can use and the caller's key allows.
pub(crate) fn models(request: &ApiRequest<'_>) -> GatewayResponse {
    let names = request.gateway.directory.models();
    let entry = |name| ModelEntry {
        handle: name,
        name,
        display_name: name,
        model: name,
        model_type: "llm",
        provider_name: provider(name),
        provider_type: provider(name),
        model_endpoint_type: provider(name),
        context_window: WINDOW,
        max_context_window: WINDOW,
    };
    let names = names.iter().filter(|name| request.caller.admission.allows(name));
    json_response(&names.map(|name| entry(&**name)).collect::<Vec<_>>())
}

/// Guesses the provider from the model's name.
fn provider(model: &str) -> &'static str {
    let bare = model.rsplit('/').next().unwrap_or(model);
    let makers = [
        ("claude", "anthropic"),
        ("gemini", "google_ai"),
        ("deepseek", "deepseek"),
        ("grok", "xai"),
        ("gpt", "openai"),
    ];
    let found = makers.iter().find(|(begins, _)| bare.starts_with(begins));
    found.map_or("openai", |(_, maker)| maker)
}

pub(crate) async fn agent(request: &ApiRequest<'_>, record: &AgentRecord) -> ApiResult {
    Ok(GatewayResponse::json(200, &agent_json(request, record).await?))
}

/// Converts an agent to Letta's format. Fields that the API does not know are returned as they were
/// sent.
pub(crate) async fn agent_json(request: &ApiRequest<'_>, record: &AgentRecord) -> ApiResult<Json> {
    let members = &record.members;
    let overrides = agent_config::Overrides::default();
    let config = agent_config::to_agent_config(record, None, &overrides)?;
    let newest = request.newest_run(&record.thread()).await?;
    let last_stop_reason = match &newest {
        Some(head) => crate::letta::runs::stop_reason(request, head).await?,
        None => None,
    };
    let stopped = newest.filter(|_| last_stop_reason.is_some());
    let tools = agent_config::tool_specs(&request.api.runner, members);
    let list = |name: &str| members.get(name).cloned().unwrap_or_else(|| json::array(|_| {}));
    let agent_type = members.text("agent_type").unwrap_or_else(|| "letta_v1_agent".into());
    let state = AgentState {
        id: record.id.clone(),
        name: agent_config::name(record),
        agent_type: agent_type.clone(),
        system: members.text("system").unwrap_or_default(),
        llm_config: llm_config_json(&config.model, members),
        model: config.model,
        blocks: list("memory_blocks"),
        memory: AgentMemory {
            blocks: list("memory_blocks"),
            file_blocks: [],
            agent_type,
            prompt_template: "",
        },
        tools: tools.iter().map(tool).collect(),
        tool_rules: list("tool_rules"),
        tags: list("tags"),
        sources: [],
        message_ids: [],
        identity_ids: [],
        metadata: members.get("metadata").cloned().unwrap_or_else(|| json::object(|_| {})),
        created_at: format_date(record.created),
        updated_at: format_date(record.updated),
        last_run_completion: stopped.map(|head| format_date(head.updated)),
        last_stop_reason,
    };
    Ok(with_other_members(&state, members, &HIDDEN))
}

/// Client fields that the response shows in another form or must not contain.
const HIDDEN: [&str; 6] =
    ["tools", "tool_ids", "memory_blocks", "secrets", "tool_exec_environment_variables", "id"];

/// Appends the client's remaining fields to the known fields, except for the fields in `hidden`.
fn with_other_members(known: &impl Serialize, members: &Members, hidden: &[&str]) -> Json {
    let known = to_json(known).tree();
    json::object(|o| {
        put_members(o, known.root().members());
        for (name, value) in members.iter() {
            if known.root().get(name).is_none() && !hidden.contains(&name) {
                o.raw(name, value);
            }
        }
    })
}

fn llm_config_json(model: &str, members: &Members) -> Json {
    let own = members.get("llm_config").map(Json::tree);
    let own = own.as_ref().map(throughline_json::Tree::root);
    let window = members.number("context_window_limit");
    let window =
        window.or_else(|| own.and_then(|own| own.present("context_window")).and_then(Node::u64));
    let config = LlmConfig {
        model: model.split_once('/').map_or(model, |(_, bare)| bare),
        model_endpoint_type: provider(model),
        context_window: window.unwrap_or(WINDOW),
        handle: model,
    };
    with_other_members(&config, &own.map(Members::new).unwrap_or_default(), &[])
}

/// Converts a tool specification to Letta's format.
pub(crate) fn tool(spec: &ToolSpec) -> ToolEntry {
    let no_parameters = || object! { "type": "object", "properties": json::object(|_| {}) };
    let parameters = spec.schema.clone().unwrap_or_else(no_parameters);
    let (name, description) = (spec.name.clone(), spec.description.clone().unwrap_or_default());
    ToolEntry {
        id: format!("tool-{name}"),
        name: name.clone(),
        description: description.clone(),
        tool_type: "custom",
        source_type: "json",
        args_json_schema: parameters.clone(),
        json_schema: ToolFunction { name, description, parameters },
        default_requires_approval: spec.needs_approval,
        tags: [],
    }
}

/// Converts a conversation to Letta's format.
pub(crate) fn conversation(record: &AgentRecord, agent: &str) -> Json {
    let known = ConversationState {
        id: &record.id,
        agent_id: agent,
        created_at: format_date(record.created),
        updated_at: format_date(record.updated),
        in_context_message_ids: [],
    };
    with_other_members(&known, &record.members, &HIDDEN)
}
