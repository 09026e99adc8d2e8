//! JSON of agents, tools, conversations and models in Letta's format.

use throughline_agent::ToolSpec;
use throughline_core::{Json, Name, Node, json};

use crate::api::{ApiRequest, ApiResult};
use crate::letta::agent_config;
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::message::format_date;
use crate::response::GatewayResponse;

/// The context window to report if the real one is unknown.
const WINDOW: u64 = 200_000;

pub(crate) fn health() -> GatewayResponse {
    let said = json::object(|o| {
        o.string("version", env!("CARGO_PKG_VERSION")).string("status", "ok");
    });
    GatewayResponse::json(200, &said)
}

/// Lists the models that agents can use.
pub(crate) fn models(names: &[Name]) -> GatewayResponse {
    let list = json::array(|list| {
        for name in names {
            list.object(|o| {
                o.string("handle", name).string("name", name).string("display_name", name);
                o.string("model", name).string("model_type", "llm");
                o.string("provider_name", provider(name)).string("provider_type", provider(name));
                o.string("model_endpoint_type", provider(name));
                o.number("context_window", WINDOW).number("max_context_window", WINDOW);
            });
        }
    });
    GatewayResponse::json(200, &list)
}

/// The provider that a model's name suggests.
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

pub(crate) async fn agent(asked: &ApiRequest<'_>, kept: &AgentRecord) -> ApiResult {
    Ok(GatewayResponse::json(200, &agent_json(asked, kept).await?))
}

/// An agent in Letta's format. Unknown members are returned as they were sent.
pub(crate) async fn agent_json(
    asked: &ApiRequest<'_>,
    kept: &AgentRecord,
) -> Result<Json, crate::letta::ApiError> {
    let members = &kept.members;
    let overrides = agent_config::Overrides::default();
    let config = agent_config::to_agent_config(kept, None, &overrides)?;
    let newest = asked.newest_run(&kept.thread()).await?;
    let stopped = match &newest {
        Some(head) => crate::letta::runs::stop_reason(asked, head).await?,
        None => None,
    };
    let tools = agent_config::tool_specs(&asked.api.runner, members);
    let blocks = members.get("memory_blocks").cloned().unwrap_or_else(|| json::array(|_| {}));
    let empty = json::array(|_| {});
    let or_empty = |name: &str| members.get(name).cloned().unwrap_or_else(|| empty.clone());
    let agent_type = members.text("agent_type").unwrap_or_else(|| "letta_v1_agent".into());
    let known = json::object(|o| {
        o.string("id", &kept.id).string("name", &agent_config::name(kept));
        o.string("agent_type", &agent_type);
        o.string("system", &members.text("system").unwrap_or_default());
        o.string("model", &config.model);
        o.raw("llm_config", &llm_config_json(&config.model, members));
        o.raw("blocks", &blocks).object("memory", |o| {
            o.raw("blocks", &blocks).array("file_blocks", |_| {});
            o.string("agent_type", &agent_type).string("prompt_template", "");
        });
        o.array("tools", |list| {
            for spec in &tools {
                list.raw(&tool(spec));
            }
        });
        o.raw("tool_rules", &or_empty("tool_rules")).raw("tags", &or_empty("tags"));
        o.array("sources", |_| {}).array("message_ids", |_| {}).array("identity_ids", |_| {});
        let metadata = members.get("metadata").cloned().unwrap_or_else(|| json::object(|_| {}));
        o.raw("metadata", &metadata);
        o.string("created_at", &format_date(kept.created))
            .string("updated_at", &format_date(kept.updated));
        if let (Some(head), Some(reason)) = (&newest, stopped) {
            o.string("last_run_completion", &format_date(head.updated));
            o.string("last_stop_reason", reason);
        }
    });
    Ok(with_other_members(&known, members))
}

/// Members that appear in another form or must not be returned.
const TAKEN: [&str; 6] =
    ["tools", "tool_ids", "memory_blocks", "secrets", "tool_exec_environment_variables", "id"];

/// Appends the remaining declared members to the known ones.
fn with_other_members(known: &Json, members: &Members) -> Json {
    let tree = known.tree();
    json::object(|o| {
        for (name, value) in tree.root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
        for (name, value) in members.iter() {
            if tree.root().get(name).is_none() && !TAKEN.contains(&name) {
                o.raw(name, value);
            }
        }
    })
}

fn llm_config_json(model: &str, members: &Members) -> Json {
    let own = members.get("llm_config").map(Json::tree);
    let own = own.as_ref().map(throughline_core::Tree::root);
    let window = members.number("context_window_limit");
    let window =
        window.or_else(|| own.and_then(|own| own.present("context_window")).and_then(Node::u64));
    json::object(|o| {
        o.string("model", model.split_once('/').map_or(model, |(_, bare)| bare));
        o.string("model_endpoint_type", provider(model));
        o.number("context_window", window.unwrap_or(WINDOW)).string("handle", model);
        let is_known = |name: Node<'_>| {
            ["model", "model_endpoint_type", "context_window", "handle"]
                .iter()
                .any(|key| name.is(key))
        };
        for (name, value) in own.into_iter().flat_map(Node::members) {
            if !is_known(name) {
                o.node(&name.text().unwrap_or_default(), value);
            }
        }
    })
}

/// A tool in Letta's format.
pub(crate) fn tool(spec: &ToolSpec) -> Json {
    let description = spec.description.as_deref().unwrap_or_default();
    let schema = spec.schema.clone().unwrap_or_else(|| {
        json::object(|o| {
            o.string("type", "object").object("properties", |_| {});
        })
    });
    json::object(|o| {
        o.string("id", &format!("tool-{}", spec.name)).string("name", &spec.name);
        o.string("description", description).string("tool_type", "custom");
        o.string("source_type", "json").raw("args_json_schema", &schema);
        o.object("json_schema", |o| {
            o.string("name", &spec.name).string("description", description);
            o.raw("parameters", &schema);
        });
        o.bool("default_requires_approval", spec.needs_approval).array("tags", |_| {});
    })
}

/// A conversation in Letta's format.
pub(crate) fn conversation(kept: &AgentRecord, agent: &str) -> Json {
    let known = json::object(|o| {
        o.string("id", &kept.id).string("agent_id", agent);
        o.string("created_at", &format_date(kept.created))
            .string("updated_at", &format_date(kept.updated));
        o.array("in_context_message_ids", |_| {});
    });
    with_other_members(&known, &kept.members)
}

pub(crate) fn list(status: u16, all: &[Json]) -> GatewayResponse {
    GatewayResponse::json(status, &json::array_of(all))
}
