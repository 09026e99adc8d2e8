//! Handlers for agents, their tools and their memory blocks.

use throughline_agent::{AgentConfig, ToolSpec};
use throughline_json::{self as json, Json, Name, Node};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::message_list::Paging;
use crate::letta::messages::{cancel_active_run, check_models_allowed};
use crate::letta::resource_json;
use crate::object::{object, put_members};
use crate::response::GatewayResponse;

/// Creates an agent. The fields are validated immediately rather than on the first message.
pub(crate) async fn create(request: &ApiRequest<'_>) -> ApiResult {
    let root = request.body.root();
    if !root.is_object() {
        return Err(ApiError::new(422, "the body must be an object"));
    }
    let mut members = Members::new(root);
    let id = request.api.fresh("agent");
    if members.text("name").is_none_or(|name| name.is_empty()) {
        members.set("name", json::string(&id));
    }
    assign_block_ids(request, &mut members);
    validate(request, &id, &members).await?;
    request.agent_store().create_agent(&id, &members).await?;
    resource_json::agent(request, &request.agent(&id).await?).await
}

/// Checks that these fields form a valid agent whose tools exist and whose models the caller may
/// use.
async fn validate(request: &ApiRequest<'_>, id: &Name, members: &Members) -> ApiResult<()> {
    let now = request.api.runner.clock.now();
    let agent = AgentRecord::draft(id.clone(), members.clone(), now);
    let config = agent_config::to_agent_config(&agent, None, &Overrides::default())?;
    if config.model.is_empty() {
        return Err(ApiError::new(422, "model: is missing; use a name from GET /v1/models/"));
    }
    check_models(request, &config).await?;
    agent_config::runner_with_tools(&request.api.runner, members)?;
    config.resolved_reasoning()?;
    Ok(())
}

/// Checks that the configured model exists and that the caller may use all configured models.
pub(crate) async fn check_models(request: &ApiRequest<'_>, config: &AgentConfig) -> ApiResult<()> {
    check_models_allowed(request, config).await?;
    let model = request.api.runner.models.model(&config.model);
    model.map_err(|error| ApiError::new(422, format!("model: {error}"))).map(drop)
}

fn assign_block_ids(request: &ApiRequest<'_>, members: &mut Members) {
    let Some(blocks) = members.get("memory_blocks").map(Json::tree) else { return };
    let numbered = json::array(|list| {
        for block in blocks.root().elements() {
            let id = block.name_of("id").unwrap_or_else(|| request.api.fresh("block"));
            list.object(|o| {
                o.string("id", &id);
                put_members(o, block.members().filter(|(name, _)| !name.is("id")));
            });
        }
    });
    members.set("memory_blocks", numbered);
}

/// Lists the agents that match the query, page by page.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&request.query, 50)?;
    let mut agents = Vec::new();
    for id in request.agent_store().agents().await? {
        agents.extend(request.agent_store().agent(&id).await?);
    }
    let is_it = |agent: &AgentRecord, id: &str| *agent.id == *id;
    let page = paging.cut_page(agents, is_it, |agent| matches_query(request, agent))?;
    let mut rows = Vec::with_capacity(page.len());
    for agent in &page {
        rows.push(resource_json::agent_json(request, agent).await?);
    }
    Ok(json_response(&rows))
}

fn matches_query(request: &ApiRequest<'_>, agent: &AgentRecord) -> bool {
    let name = agent_config::name(agent);
    let is_named = request.query.get("name").is_none_or(|text| *text == name);
    let text = request.query.get("query_text");
    let has_text = text.is_none_or(|text| name.to_lowercase().contains(&text.to_lowercase()));
    let tags = agent.members.texts("tags");
    let requested = request.query.all("tags");
    let has = |tag: &Name| tags.contains(tag);
    let is_tagged = if request.query.bool("match_all_tags") == Some(true) {
        requested.iter().all(has)
    } else {
        requested.is_empty() || requested.iter().any(has)
    };
    is_named && has_text && is_tagged
}

pub(crate) async fn count(request: &ApiRequest<'_>) -> ApiResult {
    Ok(json_response(&request.agent_store().agents().await?.len()))
}

pub(crate) async fn retrieve(request: &ApiRequest<'_>) -> ApiResult {
    resource_json::agent(request, &request.agent(&request.id(0)).await?).await
}

/// Updates an agent. The change takes effect in the agent's next run.
pub(crate) async fn update(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    let mut members = agent.members.clone();
    members.merge(request.body.root().members());
    assign_block_ids(request, &mut members);
    save(request, &agent, &members).await
}

async fn save(request: &ApiRequest<'_>, agent: &AgentRecord, members: &Members) -> ApiResult {
    validate(request, &agent.id, members).await?;
    request.agent_store().change(agent, members).await?;
    resource_json::agent(request, &request.agent(&agent.id).await?).await
}

pub(crate) async fn delete(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    for thread in agent.threads() {
        cancel_active_run(request, &thread).await?;
    }
    request.agent_store().delete(&agent).await?;
    Ok(json_response(&()))
}

/// Lists the tools that agents can use, page by page, sorted by name.
pub(crate) fn all_tools(request: &ApiRequest<'_>) -> ApiResult {
    tools_page(request, request.api.runner.tools.values().map(|tool| tool.spec()).collect())
}

fn tools_page(request: &ApiRequest<'_>, specs: Vec<ToolSpec>) -> ApiResult {
    let paging = Paging::parse_fixed_order(&request.query, 50)?;
    let (name, search) = (request.query.get("name"), request.query.get("search"));
    let fits = |spec: &ToolSpec| {
        name.is_none_or(|name| spec.name == *name)
            && search.is_none_or(|text| spec.name.to_lowercase().contains(&text.to_lowercase()))
    };
    let is_it = |spec: &ToolSpec, id: &str| id.strip_prefix("tool-") == Some(&*spec.name);
    let page = paging.cut_page(specs, is_it, fits)?;
    Ok(json_response(&page.iter().map(resource_json::tool).collect::<Vec<_>>()))
}

pub(crate) async fn tools(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    tools_page(request, agent_config::tool_specs(&request.api.runner, &agent.members))
}

/// Sets whether a tool requires approval, and stores the setting as one of the agent's tool rules.
pub(crate) async fn tool_approval(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    let tool = request.id(1);
    let requires_approval = request.body.root().get("requires_approval").and_then(Node::bool);
    let requires_approval = requires_approval.or_else(|| request.query.bool("requires_approval"));
    let requires_approval = requires_approval
        .ok_or_else(|| ApiError::new(422, "requires_approval: must be true or false"))?;
    let specs = agent_config::tool_specs(&request.api.runner, &agent.members);
    if !specs.iter().any(|spec| spec.name == tool) {
        return Err(ApiError::not_found("tool", &tool));
    }
    let is_it = |rule: &Node<'_>| {
        rule.get("type").is_some_and(|kind| kind.is("requires_approval"))
            && rule.get("tool_name").is_some_and(|name| name.is(&tool))
    };
    let rules = agent.members.list("tool_rules");
    let rules = rules.root().elements().filter(|rule| !is_it(rule)).map(Node::json);
    let own = requires_approval.then(|| object! { "type": "requires_approval", "tool_name": tool });
    let rules: Vec<Json> = rules.chain(own).collect();
    let mut members = agent.members.clone();
    members.set("tool_rules", json::array_of(&rules));
    save(request, &agent, &members).await
}

pub(crate) async fn blocks(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    let paging = Paging::parse_fixed_order(&request.query, 50)?;
    let blocks = agent.members.list("memory_blocks");
    let blocks: Vec<Json> = blocks.root().elements().map(Node::json).collect();
    let is_it =
        |block: &Json, id: &str| block.tree().root().get("id").is_some_and(|one| one.is(id));
    Ok(json_response(&paging.cut_page(blocks, is_it, |_| true)?))
}

pub(crate) async fn block(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    let (blocks, label) = (agent.members.list("memory_blocks"), request.id(1));
    let found = blocks.root().elements().find(|block| is_labelled(*block, &label));
    let found = found.ok_or_else(|| ApiError::not_found("block", &label))?;
    Ok(GatewayResponse::json(200, &found.json()))
}

pub(crate) async fn update_block(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    let (blocks, label) = (agent.members.list("memory_blocks"), request.id(1));
    let mut changed: Option<Json> = None;
    let all = json::array(|list| {
        for block in blocks.root().elements() {
            if !is_labelled(block, &label) {
                list.node(block);
                continue;
            }
            let mut members = Members::new(block);
            members.merge(request.body.root().members().filter(|(name, _)| !name.is("id")));
            let block = json::object_of(members.iter());
            list.raw(&block);
            changed = Some(block);
        }
    });
    let changed = changed.ok_or_else(|| ApiError::not_found("block", &label))?;
    let mut members = agent.members.clone();
    members.set("memory_blocks", all);
    request.agent_store().change(&agent, &members).await?;
    Ok(GatewayResponse::json(200, &changed))
}

fn is_labelled(block: Node<'_>, label: &str) -> bool {
    block.get("label").is_some_and(|known| known.is(label))
}
