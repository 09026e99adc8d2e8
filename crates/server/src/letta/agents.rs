//! Handlers for agents, their tools and their memory blocks.

use throughline_agent::ToolSpec;
use throughline_core::LogId;
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::letta::agent_config;
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::message_list::Paging;
use crate::letta::messages::{cancel_active_run, check_models_allowed};
use crate::letta::resource_json;
use crate::response::GatewayResponse;

/// Creates an agent. Its members are validated now rather than on the first message.
pub(crate) async fn create(asked: &ApiRequest<'_>) -> ApiResult {
    let root = asked.body.root();
    if !root.is_object() {
        return Err(ApiError::new(422, "the body must be an object"));
    }
    let mut members = Members::of(root);
    let id = asked.api.fresh("agent");
    if members.text("name").is_none_or(|name| name.is_empty()) {
        members.set("name", json::string(&id));
    }
    assign_block_ids(asked, &mut members);
    validate(asked, &id, &members).await?;
    asked.agent_store().create_agent(&id, &members).await?;
    let kept = asked.agent(&id).await?;
    resource_json::agent(asked, &kept).await
}

/// Checks that an agent can have these members.
async fn validate(asked: &ApiRequest<'_>, id: &Name, members: &Members) -> Result<(), ApiError> {
    let now = asked.api.runner.clock.now();
    let kept = AgentRecord::draft(id.clone(), members.clone(), now);
    let config = agent_config::to_agent_config(&kept, None, &agent_config::Overrides::default())?;
    if config.model.is_empty() {
        return Err(ApiError::new(422, "model: is missing: use a name from GET /v1/models/"));
    }
    check_models_allowed(asked, &config).await?;
    asked
        .api
        .runner
        .models
        .model(&config.model)
        .map_err(|error| ApiError::new(422, format!("model: {error}")))?;
    agent_config::runner_with_tools(&asked.api.runner, members)?;
    config.resolved_reasoning().map_err(|error| ApiError::new(422, error.to_string()))?;
    Ok(())
}

/// Gives each memory block an id.
fn assign_block_ids(asked: &ApiRequest<'_>, members: &mut Members) {
    let Some(blocks) = members.get("memory_blocks").map(Json::tree) else { return };
    let numbered = json::array(|list| {
        for block in blocks.root().elements() {
            let id = block.name_of("id").unwrap_or_else(|| asked.api.fresh("block"));
            list.object(|o| {
                o.string("id", &id);
                for (name, value) in block.members().filter(|(name, _)| !name.is("id")) {
                    o.node(&name.text().unwrap_or_default(), value);
                }
            });
        }
    });
    members.set("memory_blocks", numbered);
}

/// Lists the agents that match the query, page by page.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&asked.query, 50)?;
    let mut fitting = Vec::new();
    for id in asked.agent_store().agents().await? {
        let kept = asked.agent_store().agent(&id).await?;
        fitting.extend(kept);
    }
    let page =
        paging.cut_page(fitting, |kept, id| *kept.id == *id, |kept| matches_query(asked, kept))?;
    let mut told = Vec::with_capacity(page.len());
    for kept in &page {
        told.push(resource_json::agent_json(asked, kept).await?);
    }
    Ok(json_response(&told))
}

fn matches_query(asked: &ApiRequest<'_>, kept: &AgentRecord) -> bool {
    let name = agent_config::name(kept);
    let is_named = asked.query.get("name").is_none_or(|wanted| *wanted == name);
    let has_text = asked
        .query
        .get("query_text")
        .is_none_or(|text| name.to_lowercase().contains(&text.to_lowercase()));
    let tags = kept.members.texts("tags");
    let wanted = asked.query.all("tags");
    let has = |tag: &Name| tags.contains(tag);
    let is_tagged = if asked.query.bool("match_all_tags") == Some(true) {
        wanted.iter().all(has)
    } else {
        wanted.is_empty() || wanted.iter().any(has)
    };
    is_named && has_text && is_tagged
}

pub(crate) async fn count(asked: &ApiRequest<'_>) -> ApiResult {
    let count = asked.agent_store().agents().await?.len();
    Ok(json_response(&count))
}

pub(crate) async fn retrieve(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    resource_json::agent(asked, &kept).await
}

/// Updates an agent. The change applies from its next run.
pub(crate) async fn update(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    let mut members = kept.members.clone();
    members.merge(asked.body.root().members());
    assign_block_ids(asked, &mut members);
    save_members(asked, &kept, &members).await
}

async fn save_members(asked: &ApiRequest<'_>, kept: &AgentRecord, members: &Members) -> ApiResult {
    validate(asked, &kept.id, members).await?;
    asked.agent_store().change(kept, members).await?;
    let kept = asked.agent(&kept.id).await?;
    resource_json::agent(asked, &kept).await
}

pub(crate) async fn delete(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    for thread in
        std::iter::once(kept.thread()).chain(kept.conversations.iter().cloned().map(LogId))
    {
        cancel_active_run(asked, &thread).await?;
    }
    asked.agent_store().delete(&kept).await?;
    Ok(json_response(&()))
}

/// Lists the tools that agents can use, page by page, sorted by name.
pub(crate) fn all_tools(asked: &ApiRequest<'_>) -> ApiResult {
    tools_page(asked, asked.api.runner.tools.values().map(|tool| tool.spec()).collect())
}

fn tools_page(asked: &ApiRequest<'_>, specs: Vec<ToolSpec>) -> ApiResult {
    let paging = Paging::parse_fixed_order(&asked.query, 50)?;
    let (name, search) = (asked.query.get("name"), asked.query.get("search"));
    let fits = |spec: &ToolSpec| {
        name.is_none_or(|name| spec.name == *name)
            && search.is_none_or(|text| spec.name.to_lowercase().contains(&text.to_lowercase()))
    };
    let is_it = |spec: &ToolSpec, id: &str| id.strip_prefix("tool-") == Some(&*spec.name);
    let page = paging.cut_page(specs, is_it, fits)?;
    Ok(json_response(&page.iter().map(resource_json::tool).collect::<Vec<_>>()))
}

pub(crate) async fn tools(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    tools_page(asked, agent_config::tool_specs(&asked.api.runner, &kept.members))
}

/// Sets whether a tool requires approval, as a rule of the agent.
pub(crate) async fn tool_approval(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    let tool = asked.id(1);
    let wanted = asked.body.root().get("requires_approval").and_then(Node::bool);
    let wanted = wanted.or_else(|| asked.query.bool("requires_approval"));
    let wanted =
        wanted.ok_or_else(|| ApiError::new(422, "requires_approval: must be true or false"))?;
    let specs = agent_config::tool_specs(&asked.api.runner, &kept.members);
    if !specs.iter().any(|spec| spec.name == tool) {
        return Err(ApiError::not_found("tool", &tool));
    }
    let rules = kept.members.get("tool_rules").map(Json::tree);
    let rules = rules.iter().flat_map(|rules| rules.root().elements());
    let is_it = |rule: &Node<'_>| {
        rule.get("type").is_some_and(|kind| kind.is("requires_approval"))
            && rule.get("tool_name").is_some_and(|name| name.is(&tool))
    };
    let rules = json::array(|list| {
        for rule in rules.filter(|rule| !is_it(rule)) {
            list.node(rule);
        }
        if wanted {
            list.object(|o| {
                o.string("type", "requires_approval").string("tool_name", &tool);
            });
        }
    });
    let mut members = kept.members.clone();
    members.set("tool_rules", rules);
    save_members(asked, &kept, &members).await
}

fn blocks_of(kept: &AgentRecord) -> Tree {
    let blocks = kept.members.get("memory_blocks").cloned();
    blocks.unwrap_or_else(|| json::array(|_| {})).tree()
}

pub(crate) async fn blocks(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    let paging = Paging::parse_fixed_order(&asked.query, 50)?;
    let blocks: Vec<Json> = blocks_of(&kept).root().elements().map(Node::json).collect();
    let is_it =
        |block: &Json, id: &str| block.tree().root().get("id").is_some_and(|one| one.is(id));
    Ok(json_response(&paging.cut_page(blocks, is_it, |_| true)?))
}

pub(crate) async fn block(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    let (blocks, label) = (blocks_of(&kept), asked.id(1));
    let found = blocks.root().elements().find(|block| is_labelled(*block, &label));
    let found = found.ok_or_else(|| ApiError::not_found("block", &label))?;
    Ok(GatewayResponse::json(200, &found.json()))
}

/// Updates a memory block.
pub(crate) async fn update_block(asked: &ApiRequest<'_>) -> ApiResult {
    let kept = asked.agent(&asked.id(0)).await?;
    let (blocks, label) = (blocks_of(&kept), asked.id(1));
    let mut changed: Option<Json> = None;
    let all = json::array(|list| {
        for block in blocks.root().elements() {
            if !is_labelled(block, &label) {
                list.node(block);
                continue;
            }
            let mut members = Members::of(block);
            members.merge(asked.body.root().members().filter(|(name, _)| !name.is("id")));
            let block = json::object_of(members.iter());
            list.raw(&block);
            changed = Some(block);
        }
    });
    let changed = changed.ok_or_else(|| ApiError::not_found("block", &label))?;
    let mut members = kept.members.clone();
    members.set("memory_blocks", all);
    asked.agent_store().change(&kept, &members).await?;
    Ok(GatewayResponse::json(200, &changed))
}

fn is_labelled(block: Node<'_>, label: &str) -> bool {
    block.get("label").is_some_and(|known| known.is(label))
}
