//! An agent as Letta declares it, as ours.
//!
//! | Letta's | ours |
//! |---|---|
//! | `name`, the id | `name`, `identifier` |
//! | `system`, `memory_blocks` | `instructions`: the system prompt, and behind it each block under its label |
//! | `model`, else `llm_config.handle` or `.model` | `model` |
//! | `model_settings`, `llm_config`: `temperature`, `max_output_tokens` or `max_tokens` | `temperature`, `maxTokens` |
//! | `reasoning`, `enable_reasoner`, `thinking`, `reasoning_effort`, `effort`, `max_reasoning_tokens` | `reasoning.native` |
//! | `context_window_limit` | `limits.maxContextTokens` |
//! | `response_format` of type `json_schema` | `output` |
//! | `tools`, `tool_ids` | the tools of that name, and no others |
//! | `tool_rules` of type `requires_approval` | `humanInTheLoop.approve` |
//! | `max_steps` of a request | `limits.maxToolCalls` |
//!
//! What else an agent of ours can be declared with stands in the member `throughline`, under its own names, and wins. What has no
//! counterpart is kept, and shown again.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_agent::{AgentConfig, AgentKind, OutputContract, Runner, Tool, ToolSpec};
use throughline_core::{Json, Name, Node, Tree, json};

use crate::letta::denied::Denied;
use crate::letta::kept::{Kept, Members};

/// How many steps a run has where nobody says: as in Letta.
const STEPS: u64 = 50;

/// What a request says about its run alone.
#[derive(Default)]
pub(crate) struct Overrides {
    pub(crate) model: Option<Name>,
    pub(crate) system: Option<Name>,
    pub(crate) steps: Option<u64>,
}

/// The agent that a declaration describes. A conversation may have a model of its own.
pub(crate) fn config(
    agent: &Kept,
    conversation: Option<&Kept>,
    overrides: &Overrides,
) -> Result<AgentConfig, Denied> {
    let members = &agent.members;
    let own = conversation.map(|kept| &kept.members);
    let model = overrides.model.clone().or_else(|| own.and_then(model)).or_else(|| model_of(agent));
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
        settings(&mut config, members);
    }
    config.human_in_the_loop.approve = approvals(members);
    with_own(config, members.get("throughline"))
}

fn model_of(agent: &Kept) -> Option<Name> {
    let members = &agent.members;
    let config = members.get("llm_config").map(Json::tree);
    let of = |key: &str| config.as_ref().and_then(|config| config.root().name_of(key));
    model(members).or_else(|| of("handle")).or_else(|| of("model"))
}

fn model(members: &Members) -> Option<Name> {
    members.text("model").filter(|model| !model.is_empty())
}

/// The name that models and other agents know an agent by.
pub(crate) fn name(agent: &Kept) -> Name {
    agent.members.text("name").unwrap_or_else(|| agent.id.clone())
}

/// The system prompt, and behind it the memory.
fn instructions(members: &Members) -> Name {
    let system = members.text("system").unwrap_or_default();
    let blocks = members.get("memory_blocks").map(Json::tree);
    let blocks = blocks.iter().flat_map(|blocks| blocks.root().elements());
    let told: Vec<String> = blocks
        .filter_map(|block| {
            let (label, value) = (block.text_of("label")?, block.text_of("value")?);
            Some(format!("<{label}>\n{value}\n</{label}>"))
        })
        .collect();
    if told.is_empty() {
        return system;
    }
    let memory = format!("<memory_blocks>\n{}\n</memory_blocks>", told.join("\n"));
    let parts: Vec<&str> =
        [&*system, &memory].into_iter().filter(|text| !text.is_empty()).collect();
    Name::from(parts.join("\n\n"))
}

fn settings(config: &mut AgentConfig, members: &Members) {
    let trees: Vec<Tree> = ["llm_config", "model_settings"]
        .iter()
        .filter_map(|key| members.get(key).map(Json::tree))
        .collect();
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
    let told = members.bool("reasoning").or_else(|| members.bool("enable_reasoner"));
    let roots = || trees.iter().map(Tree::root);
    let effort = roots().find_map(effort);
    let budget = roots().find_map(|root| {
        let inner = root
            .at("/thinking/budget_tokens")
            .or_else(|| root.at("/thinking_config/thinking_budget"));
        inner.or_else(|| root.present("max_reasoning_tokens")).and_then(Node::u64)
    });
    let budget = members.number("max_reasoning_tokens").or(budget).filter(|budget| *budget > 0);
    let is_off = told == Some(false)
        || roots().any(|root| root.at("/thinking/type").is_some_and(|kind| kind.is("disabled")))
        || roots().any(|root| root.get("enable_reasoner").and_then(Node::bool) == Some(false))
        || effort == Some("none");
    config.reasoning = if is_off {
        Some(json::object(|o| {
            o.bool("enabled", false);
        }))
    } else {
        Some(json::object(|o| {
            o.bool("enabled", true).object("native", |native| {
                native.maybe_string("effort", effort);
                if let Some(budget) = budget {
                    native.number("budgetTokens", budget);
                }
                native.bool("includeThoughts", true);
            });
            o.bool("reflection", false);
        }))
    };
}

/// How hard to think, in one of our words.
fn effort(root: Node<'_>) -> Option<&'static str> {
    let nested = root.at("/reasoning/reasoning_effort");
    let word =
        nested.or_else(|| root.present("reasoning_effort")).or_else(|| root.present("effort"));
    Some(match &*word?.text()? {
        "none" => "none",
        "minimal" => "minimal",
        "low" => "low",
        "medium" => "medium",
        _ => "high",
    })
}

fn output(format: Node<'_>) -> Option<OutputContract> {
    let schema = format
        .present("json_schema")
        .filter(|_| format.get("type").is_some_and(|kind| kind.is("json_schema")))?;
    let name = schema.name_of("name");
    let schema = schema.present("schema").unwrap_or(schema).json();
    Some(OutputContract { schema, name, native: false })
}

/// The tools that a person must allow.
fn approvals(members: &Members) -> Vec<Name> {
    let rules = members.get("tool_rules").map(Json::tree);
    let rules = rules.iter().flat_map(|rules| rules.root().elements());
    let rules =
        rules.filter(|rule| rule.get("type").is_some_and(|kind| kind.is("requires_approval")));
    rules.filter_map(|rule| rule.name_of("tool_name")).collect()
}

/// The declaration with what is said in our own words on top.
fn with_own(config: AgentConfig, own: Option<&Json>) -> Result<AgentConfig, Denied> {
    let Some(own) = own else { return Ok(config) };
    let wrong = |error: serde_json::Error| Denied::new(422, format!("throughline: {error}"));
    let mut whole = serde_json::to_value(&config).map_err(wrong)?;
    let own: serde_json::Value = serde_json::from_slice(own.bytes()).map_err(wrong)?;
    if let (Some(whole), Some(own)) = (whole.as_object_mut(), own.as_object()) {
        for (key, value) in own {
            // Whose agent it is does not change.
            if !matches!(key.as_str(), "name" | "identifier") {
                whole.insert(key.clone(), value.clone());
            }
        }
    }
    serde_json::from_value(whole).map_err(wrong)
}

/// A runner that has an agent's own tools and no others.
pub(crate) fn equipped(runner: &Runner, members: &Members) -> Result<Runner, Denied> {
    let mut tools: BTreeMap<Name, Arc<dyn Tool>> = BTreeMap::new();
    for name in names_of_tools(members) {
        let tool = runner.tools.get(&name).ok_or_else(|| {
            let known: Vec<&str> = runner.tools.keys().map(|name| &**name).collect();
            let known =
                if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            Denied::new(404, format!("there is no tool {name}: {known}"))
        })?;
        tools.insert(name, Arc::clone(tool));
    }
    let mut equipped = runner.clone();
    equipped.tools = Arc::new(tools);
    Ok(equipped)
}

fn names_of_tools(members: &Members) -> Vec<Name> {
    let ids = members.texts("tool_ids").into_iter();
    let ids = ids.map(|id| Name::from(id.strip_prefix("tool-").unwrap_or(&id)));
    let mut names: Vec<Name> = members.texts("tools").into_iter().chain(ids).collect();
    names.sort();
    names.dedup();
    names
}

/// The tools of an agent.
pub(crate) fn specs(runner: &Runner, members: &Members) -> Vec<ToolSpec> {
    let names = names_of_tools(members);
    names.iter().filter_map(|name| runner.tools.get(name)).map(|tool| tool.spec()).collect()
}
