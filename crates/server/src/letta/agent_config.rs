//! Converts a Letta agent definition to an [`AgentConfig`].
//!
//! | Letta member | config |
//! |---|---|
//! | `name`, the id | `name`, `identifier` |
//! | `system`, `memory_blocks` | `instructions`: the prompt, then each block under its label |
//! | `model`, else `llm_config.handle` or `.model` | `model` |
//! | `temperature` | `temperature` |
//! | `max_output_tokens`, `max_tokens` | `maxTokens` |
//! | `reasoning`, `enable_reasoner`, `thinking` | `reasoning.native` |
//! | `reasoning_effort`, `effort`, `max_reasoning_tokens` | `reasoning.native` |
//! | `context_window_limit` | `limits.maxContextTokens` |
//! | `response_format` of type `json_schema` | `output` |
//! | `tools`, `tool_ids` | the tools of these names, and no others |
//! | `tool_rules` of type `requires_approval` | `humanInTheLoop.approve` |
//! | `max_steps` of a request | `limits.maxToolCalls` |
//!
//! Model and reasoning settings are read from `llm_config` and `model_settings`. Some settings can
//! also be top-level fields.
//!
//! The field `throughline` may contain any `AgentConfig` field. Its values override the values from
//! the other fields. Fields without a counterpart in `AgentConfig` are stored and returned
//! unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_agent::{AgentConfig, AgentKind, OutputContract, Runner, Tool, ToolSpec};
use throughline_json::{Json, Name, Node, Tree};
use throughline_spec::TracingConfig;

use crate::api::{ApiError, ApiResult};
use crate::letta::agent_store::{AgentRecord, Members};
use crate::object::object;

/// Default step limit of a run, the same as Letta's.
const STEPS: u64 = 50;

/// Settings in a request that apply only to the run that the request starts.
#[derive(Default)]
pub(crate) struct Overrides {
    pub(crate) model: Option<Name>,
    pub(crate) system: Option<Name>,
    pub(crate) steps: Option<u64>,
}

/// Builds an agent's configuration. A conversation may override the model and the model settings.
pub(crate) fn to_agent_config(
    agent: &AgentRecord,
    conversation: Option<&AgentRecord>,
    overrides: &Overrides,
) -> ApiResult<AgentConfig> {
    let members = &agent.members;
    let own = conversation.map(|record| &record.members);
    let model = overrides.model.clone().or_else(|| own.and_then(model));
    let model = model.or_else(|| agent_model(agent));
    let mut config = AgentConfig::minimal(model.unwrap_or_default());
    config.kind = AgentKind::Minimal;
    config.name = name(agent);
    config.identifier = Some(agent.id.clone());
    let instructions = overrides.system.clone().unwrap_or_else(|| instructions(members));
    config.instructions = Some(instructions).filter(|text| !text.is_empty());
    config.context.summarise = Some(true);
    config.limits.max_tool_calls = Some(overrides.steps.unwrap_or(STEPS));
    let window = own.and_then(|own| own.number("context_window_limit"));
    config.limits.max_context_tokens = window.or_else(|| members.number("context_window_limit"));
    for members in [Some(members), own].into_iter().flatten() {
        apply_model_settings(&mut config, members);
    }
    config.human_in_the_loop.approve = tools_requiring_approval(members);
    let config = apply_throughline_members(config, members.get("throughline"))?;
    check_tracing(config.tracing.as_ref())?;
    Ok(config)
}

/// Rejects tracing settings that belong to the operator. A caller of this API must not turn off or
/// relabel the operator's traces, or choose where the server writes or sends data. It can only
/// leave content out of the traces and choose when they are delivered.
pub(crate) fn check_tracing(tracing: Option<&Json>) -> ApiResult<()> {
    let Some(tracing) = tracing else { return Ok(()) };
    let wrong = |problem: String| ApiError::new(422, format!("throughline.tracing: {problem}"));
    let config = TracingConfig::parse(tracing).map_err(|error| wrong(error.to_string()))?;
    let member = if !config.enabled {
        "enabled"
    } else if config.sink.is_some() {
        "sink"
    } else if config.thread_id.is_some() {
        "threadId"
    } else {
        return Ok(());
    };
    Err(wrong(format!(
        "{member}: only the operator of this server can set this; set `enabled` to true, and only \
         `logData` or `mode`"
    )))
}

/// Removes the tracing settings of a snapshot that [`check_tracing`] rejects.
pub(crate) fn restrict_tracing(tracing: &mut Option<Json>) -> ApiResult<()> {
    let Some(document) = tracing else { return Ok(()) };
    let config = TracingConfig::parse(document)
        .map_err(|error| ApiError::new(422, format!("casting: {error}")))?;
    let TracingConfig { mode, log_data, .. } = config;
    *tracing = Some(TracingConfig { mode, log_data, ..TracingConfig::new(true) }.json());
    Ok(())
}

fn agent_model(agent: &AgentRecord) -> Option<Name> {
    let members = &agent.members;
    let config = members.get("llm_config").map(Json::tree);
    let of = |key: &str| config.as_ref().and_then(|config| config.root().name_of(key));
    model(members).or_else(|| of("handle")).or_else(|| of("model"))
}

fn model(members: &Members) -> Option<Name> {
    members.text("model").filter(|model| !model.is_empty())
}

/// Returns an agent's name, or its id if it has no name.
pub(crate) fn name(agent: &AgentRecord) -> Name {
    agent.members.text("name").unwrap_or_else(|| agent.id.clone())
}

/// Returns the system prompt followed by the memory blocks.
fn instructions(members: &Members) -> Name {
    let system = members.text("system").unwrap_or_default();
    let blocks = members.list("memory_blocks");
    let blocks = blocks.root().elements().filter_map(|block| {
        let (label, value) = (block.text_of("label")?, block.text_of("value")?);
        Some(format!("<{label}>\n{value}\n</{label}>"))
    });
    let blocks: Vec<String> = blocks.collect();
    if blocks.is_empty() {
        return system;
    }
    let separator = if system.is_empty() { "" } else { "\n\n" };
    let blocks = blocks.join("\n");
    format!("{system}{separator}<memory_blocks>\n{blocks}\n</memory_blocks>").into()
}

fn apply_model_settings(config: &mut AgentConfig, members: &Members) {
    let trees = ["llm_config", "model_settings"].map(|key| members.get(key).map(Json::tree));
    let trees: Vec<Tree> = trees.into_iter().flatten().collect();
    for root in trees.iter().map(Tree::root) {
        if let Some(temperature) = root.present("temperature") {
            config.temperature = Some(temperature.json());
        }
        let most = ["max_output_tokens", "max_tokens"].iter().find_map(|key| root.present(key));
        config.max_tokens = most.and_then(Node::u64).or(config.max_tokens);
        if let Some(format) = root.present("response_format") {
            config.output = output(format).or_else(|| config.output.take());
        }
    }
    config.max_tokens = members.number("max_tokens").or(config.max_tokens);
    if let Some(format) = members.get("response_format").map(Json::tree) {
        config.output = output(format.root()).or_else(|| config.output.take());
    }
    let reasons = members.bool("reasoning").or_else(|| members.bool("enable_reasoner"));
    let roots = || trees.iter().map(Tree::root);
    let effort = roots().find_map(effort);
    let budget = roots().find_map(|root| {
        let inner = root
            .at("/thinking/budget_tokens")
            .or_else(|| root.at("/thinking_config/thinking_budget"));
        inner.or_else(|| root.present("max_reasoning_tokens")).and_then(Node::u64)
    });
    let budget = members.number("max_reasoning_tokens").or(budget).filter(|budget| *budget > 0);
    let is_off = reasons == Some(false)
        || roots().any(|root| root.at("/thinking/type").is_some_and(|kind| kind.is("disabled")))
        || roots().any(|root| root.get("enable_reasoner").and_then(Node::bool) == Some(false))
        || effort == Some("none");
    config.reasoning = Some(if is_off {
        object! { "enabled": false }
    } else {
        let native = object! { "effort"? effort, "budgetTokens"? budget, "includeThoughts": true };
        object! { "enabled": true, "native": native, "reflection": false }
    });
}

/// Reads the reasoning effort. Unknown values count as `high`.
fn effort(root: Node<'_>) -> Option<&'static str> {
    let effort = root.at("/reasoning/reasoning_effort");
    let effort = effort.or_else(|| root.present("reasoning_effort"));
    Some(match &*effort.or_else(|| root.present("effort"))?.text()? {
        "none" => "none",
        "minimal" => "minimal",
        "low" => "low",
        "medium" => "medium",
        _ => "high",
    })
}

fn output(format: Node<'_>) -> Option<OutputContract> {
    let is_schema = format.get("type").is_some_and(|kind| kind.is("json_schema"));
    let schema = format.present("json_schema").filter(|_| is_schema)?;
    let name = schema.name_of("name");
    let schema = schema.present("schema").unwrap_or(schema).json();
    Some(OutputContract { schema, name, native: false })
}

fn tools_requiring_approval(members: &Members) -> Vec<Name> {
    let is_it = |rule: &Node<'_>| rule.text_of("type").as_deref() == Some("requires_approval");
    let rules = members.list("tool_rules");
    rules.root().elements().filter(is_it).filter_map(|rule| rule.name_of("tool_name")).collect()
}

/// Applies the fields inside `throughline` to a configuration.
fn apply_throughline_members(config: AgentConfig, own: Option<&Json>) -> ApiResult<AgentConfig> {
    let Some(own) = own else { return Ok(config) };
    let wrong = |error: serde_json::Error| ApiError::new(422, format!("throughline: {error}"));
    let mut document = serde_json::to_value(&config).map_err(wrong)?;
    let own: serde_json::Value = serde_json::from_slice(own.bytes()).map_err(wrong)?;
    if let (Some(document), Some(own)) = (document.as_object_mut(), own.as_object()) {
        for (key, value) in own {
            // The identity of the agent cannot be overridden.
            if !matches!(key.as_str(), "name" | "identifier") {
                document.insert(key.clone(), value.clone());
            }
        }
    }
    serde_json::from_value(document).map_err(wrong)
}

/// Creates a runner that has only the agent's own tools.
pub(crate) fn runner_with_tools(runner: &Runner, members: &Members) -> ApiResult<Runner> {
    let mut tools: BTreeMap<Name, Arc<dyn Tool>> = BTreeMap::new();
    for name in tool_names(members) {
        let tool = runner.tools.get(&name).ok_or_else(|| {
            let known: Vec<&str> = runner.tools.keys().map(|name| &**name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            ApiError::new(404, format!("there is no tool {name}; available tools: {known}"))
        })?;
        tools.insert(name, Arc::clone(tool));
    }
    let mut equipped = runner.clone();
    equipped.tools = Arc::new(tools);
    Ok(equipped)
}

fn tool_names(members: &Members) -> Vec<Name> {
    let ids = members.texts("tool_ids").into_iter();
    let ids = ids.map(|id| Name::from(id.strip_prefix("tool-").unwrap_or(&id)));
    let mut names: Vec<Name> = members.texts("tools").into_iter().chain(ids).collect();
    names.sort();
    names.dedup();
    names
}

pub(crate) fn tool_specs(runner: &Runner, members: &Members) -> Vec<ToolSpec> {
    let names = tool_names(members);
    names.iter().filter_map(|name| runner.tools.get(name)).map(|tool| tool.spec()).collect()
}
