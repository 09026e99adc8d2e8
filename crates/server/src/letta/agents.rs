//! Agents: made, listed, shown, changed, deleted; their tools and their memory.

use throughline_agent::ToolSpec;
use throughline_core::{Json, LogId, Name, Node, Tree, json};

use crate::gateway::Answered;
use crate::letta::declared;
use crate::letta::denied::Denied;
use crate::letta::kept::{Kept, Members};
use crate::letta::listing::Paging;
use crate::letta::messages::{may_be, stop_all};
use crate::letta::{Asked, Told, shapes};

/// Makes an agent. What it is declared with is checked now, and not when somebody first speaks to it.
pub(crate) async fn create(asked: &Asked<'_>) -> Told {
    let root = asked.body.root();
    if !root.is_object() {
        return Err(Denied::new(422, "the body must be an object"));
    }
    let mut members = Members::of(root);
    let id = asked.api.fresh("agent");
    if members.text("name").is_none_or(|name| name.is_empty()) {
        members.set("name", json::string(&id));
    }
    number_blocks(asked, &mut members);
    check(asked, &id, &members).await?;
    asked.house().create_agent(&id, &members).await?;
    let kept = asked.agent(&id).await?;
    shapes::agent(asked, &kept).await
}

/// Whether an agent can be declared so.
async fn check(asked: &Asked<'_>, id: &Name, members: &Members) -> Result<(), Denied> {
    let now = asked.api.runner.clock.now();
    let kept = Kept::draft(id.clone(), members.clone(), now);
    let config = declared::config(&kept, None, &declared::Overrides::default())?;
    if config.model.is_empty() {
        return Err(Denied::new(422, "model: is missing: name one of GET /v1/models/"));
    }
    may_be(asked, &config).await?;
    asked
        .api
        .runner
        .models
        .model(&config.model)
        .map_err(|error| Denied::new(422, format!("model: {error}")))?;
    declared::equipped(&asked.api.runner, members)?;
    config.resolved_reasoning().map_err(|error| Denied::new(422, error.to_string()))?;
    Ok(())
}

/// Gives each block of the memory an id.
fn number_blocks(asked: &Asked<'_>, members: &mut Members) {
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

/// The agents, page by page, with those that fit alone.
pub(crate) async fn list(asked: &Asked<'_>) -> Told {
    let paging = Paging::of(&asked.query, 50)?;
    let mut fitting = Vec::new();
    for id in asked.house().agents().await? {
        let kept = asked.house().agent(&id).await?;
        fitting.extend(kept);
    }
    let page = paging.cut(fitting, |kept, id| *kept.id == *id, |kept| fits(asked, kept))?;
    let mut told = Vec::with_capacity(page.len());
    for kept in &page {
        told.push(shapes::agent_json(asked, kept).await?);
    }
    Ok(shapes::list(200, &told))
}

fn fits(asked: &Asked<'_>, kept: &Kept) -> bool {
    let name = declared::name(kept);
    let is_named = asked.query.get("name").is_none_or(|wanted| *wanted == name);
    let has_text = asked
        .query
        .get("query_text")
        .is_none_or(|text| name.to_lowercase().contains(&text.to_lowercase()));
    let tags = kept.members.texts("tags");
    let wanted = asked.query.all("tags");
    let has = |tag: &Name| tags.contains(tag);
    let is_tagged = if asked.query.is("match_all_tags") == Some(true) {
        wanted.iter().all(has)
    } else {
        wanted.is_empty() || wanted.iter().any(has)
    };
    is_named && has_text && is_tagged
}

pub(crate) async fn count(asked: &Asked<'_>) -> Told {
    let count = asked.house().agents().await?.len();
    Ok(Answered::json(200, &Json::from(u64::try_from(count).unwrap_or(u64::MAX))))
}

pub(crate) async fn retrieve(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    shapes::agent(asked, &kept).await
}

/// Changes what an agent is declared with. Its next run heeds it.
pub(crate) async fn update(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    let mut members = kept.members.clone();
    members.merge(asked.body.root().members());
    number_blocks(asked, &mut members);
    change(asked, &kept, &members).await
}

async fn change(asked: &Asked<'_>, kept: &Kept, members: &Members) -> Told {
    check(asked, &kept.id, members).await?;
    asked.house().change(kept, members).await?;
    let kept = asked.agent(&kept.id).await?;
    shapes::agent(asked, &kept).await
}

pub(crate) async fn delete(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    for thread in
        std::iter::once(kept.thread()).chain(kept.conversations.iter().cloned().map(LogId))
    {
        stop_all(asked, &thread).await?;
    }
    asked.house().delete(&kept).await?;
    Ok(Answered::json(200, &Json::null()))
}

/// The tools that agents can have, page by page, in the order of their names.
pub(crate) fn all_tools(asked: &Asked<'_>) -> Told {
    tools_page(asked, asked.api.runner.tools.values().map(|tool| tool.spec()).collect())
}

fn tools_page(asked: &Asked<'_>, specs: Vec<ToolSpec>) -> Told {
    let paging = Paging::in_order(&asked.query, 50)?;
    let (name, search) = (asked.query.get("name"), asked.query.get("search"));
    let fits = |spec: &ToolSpec| {
        name.is_none_or(|name| spec.name == *name)
            && search.is_none_or(|text| spec.name.to_lowercase().contains(&text.to_lowercase()))
    };
    let is_it = |spec: &ToolSpec, id: &str| id.strip_prefix("tool-") == Some(&*spec.name);
    let page = paging.cut(specs, is_it, fits)?;
    Ok(shapes::list(200, &page.iter().map(shapes::tool).collect::<Vec<_>>()))
}

pub(crate) async fn tools(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    tools_page(asked, declared::specs(&asked.api.runner, &kept.members))
}

/// Whether a person must allow a tool: a rule of the agent's.
pub(crate) async fn tool_approval(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    let tool = asked.id(1);
    let wanted = asked.body.root().get("requires_approval").and_then(Node::bool);
    let wanted = wanted.or_else(|| asked.query.is("requires_approval"));
    let wanted =
        wanted.ok_or_else(|| Denied::new(422, "requires_approval: must be true or false"))?;
    let specs = declared::specs(&asked.api.runner, &kept.members);
    if !specs.iter().any(|spec| spec.name == tool) {
        return Err(Denied::missing("tool", &tool));
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
    change(asked, &kept, &members).await
}

fn blocks_of(kept: &Kept) -> Tree {
    let blocks = kept.members.get("memory_blocks").cloned();
    blocks.unwrap_or_else(|| json::array(|_| {})).tree()
}

pub(crate) async fn blocks(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    let paging = Paging::in_order(&asked.query, 50)?;
    let blocks: Vec<Json> = blocks_of(&kept).root().elements().map(Node::json).collect();
    let is_it =
        |block: &Json, id: &str| block.tree().root().get("id").is_some_and(|one| one.is(id));
    Ok(shapes::list(200, &paging.cut(blocks, is_it, |_| true)?))
}

pub(crate) async fn block(asked: &Asked<'_>) -> Told {
    let kept = asked.agent(&asked.id(0)).await?;
    let (blocks, label) = (blocks_of(&kept), asked.id(1));
    let found = blocks.root().elements().find(|block| is_labelled(*block, &label));
    let found = found.ok_or_else(|| Denied::missing("block", &label))?;
    Ok(Answered::json(200, &found.json()))
}

/// Changes a block of the memory.
pub(crate) async fn update_block(asked: &Asked<'_>) -> Told {
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
    let changed = changed.ok_or_else(|| Denied::missing("block", &label))?;
    let mut members = kept.members.clone();
    members.set("memory_blocks", all);
    asked.house().change(&kept, &members).await?;
    Ok(Answered::json(200, &changed))
}

fn is_labelled(block: Node<'_>, label: &str) -> bool {
    block.get("label").is_some_and(|known| known.is(label))
}
