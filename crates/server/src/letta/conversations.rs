//! Conversations: further Threads of one agent.

use throughline_agent::{Casting, Start};
use throughline_core::{Body, ForkPoint, Json, LogId, Name, Node, json};

use crate::gateway::Answered;
use crate::letta::declared::{self, Overrides};
use crate::letta::denied::Denied;
use crate::letta::kept::{Kept, Members};
use crate::letta::listing::{Listing, Paging};
use crate::letta::messages::{Place, known, may_be, stop_all};
use crate::letta::request::RunNote;
use crate::letta::stream::{Follower, From, Next};
use crate::letta::{Asked, Told, runs, shapes};

/// Begins a conversation with an agent.
pub(crate) async fn create(asked: &Asked<'_>) -> Told {
    let mut members = Members::of(asked.body.root());
    let agent = members.text("agent_id").or_else(|| asked.query.get("agent_id").cloned());
    let agent = agent.ok_or_else(|| Denied::new(422, "agent_id: is missing"))?;
    let agent = asked.agent(&agent).await?;
    members.set("agent_id", json::string(&agent.id));
    let id = asked.api.fresh("conv");
    check(asked, &agent, &members).await?;
    asked.house().create_conversation(&agent.id, &id, &members, None).await?;
    shown(asked, &id).await
}

/// Whether a conversation can be declared so.
async fn check(asked: &Asked<'_>, agent: &Kept, members: &Members) -> Result<(), Denied> {
    let now = asked.api.runner.clock.now();
    let draft = Kept::draft(Name::from(""), members.clone(), now);
    let config = declared::config(agent, Some(&draft), &Overrides::default())?;
    may_be(asked, &config).await?;
    let model = asked.api.runner.models.model(&config.model);
    model.map_err(|error| Denied::new(422, format!("model: {error}"))).map(drop)
}

async fn shown(asked: &Asked<'_>, id: &str) -> Told {
    let place = asked.conversation(id).await?;
    Ok(Answered::json(200, &told(&place)))
}

fn told(place: &Place) -> Json {
    match &place.conversation {
        Some(kept) => shapes::conversation(kept, &place.agent.id),
        None => {
            let draft =
                Kept::draft(place.agent.id.clone(), Members::default(), place.agent.created);
            shapes::conversation(&draft, &place.agent.id)
        }
    }
}

/// The conversations of an agent, or of all.
pub(crate) async fn list(asked: &Asked<'_>) -> Told {
    let paging = Paging::of(&asked.query, 50)?;
    let agents = match asked.query.get("agent_id") {
        Some(agent) => vec![asked.agent(agent).await?.id],
        None => asked.house().agents().await?,
    };
    let mut all = Vec::new();
    for agent in &agents {
        let Some(agent) = asked.house().agent(agent).await? else { continue };
        for id in &agent.conversations {
            let kept = asked.house().conversation(id).await?;
            all.extend(kept.map(|kept| {
                let told = shapes::conversation(&kept, &agent.id);
                (kept, told)
            }));
        }
    }
    all.sort_by_key(|(kept, _)| kept.created);
    let fits = |(kept, _): &(Kept, Json)| is_wanted(asked, kept);
    let page = paging.cut(all, |(kept, _), id| *kept.id == *id, fits)?;
    Ok(shapes::list(200, &page.into_iter().map(|(_, told)| told).collect::<Vec<_>>()))
}

fn is_wanted(asked: &Asked<'_>, kept: &Kept) -> bool {
    let is_archived = kept.members.bool("archived") == Some(true);
    let is_status = match asked.query.get("archive_status").map(|status| &**status) {
        Some("all") => true,
        Some("archived") => is_archived,
        _ => !is_archived,
    };
    let summary = kept.members.text("summary").unwrap_or_default().to_lowercase();
    let search = asked.query.get("summary_search");
    let has_text = search.is_none_or(|text| summary.contains(&text.to_lowercase()));
    is_status && has_text && kept.members.bool("hidden") != Some(true)
}

pub(crate) async fn retrieve(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    Ok(Answered::json(200, &told(&place)))
}

/// Changes what a conversation is declared with.
pub(crate) async fn update(asked: &Asked<'_>) -> Told {
    let place = asked.conversation(&asked.id(0)).await?;
    let Some(kept) = &place.conversation else {
        return Err(Denied::missing("conversation", &asked.id(0)));
    };
    let mut members = kept.members.clone();
    let is_changed = |name: Node<'_>| !name.is("agent_id") && !name.is("id");
    members.merge(asked.body.root().members().filter(|(name, _)| is_changed(*name)));
    check(asked, &place.agent, &members).await?;
    asked.house().change(kept, &members).await?;
    shown(asked, &kept.id).await
}

pub(crate) async fn delete(asked: &Asked<'_>) -> Told {
    let place = asked.conversation(&asked.id(0)).await?;
    if let Some(kept) = &place.conversation {
        stop_all(asked, &place.thread).await?;
        asked.house().delete(kept).await?;
    }
    Ok(Answered::json(200, &Json::null()))
}

/// Follows a run of the conversation: the one that is named, the one that a message began, or the one that is on.
pub(crate) async fn stream(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    let root = asked.body.root();
    if let Some(run) = root.name_of("run_id") {
        let known = known(asked, &LogId(run.clone())).await?;
        if known.thread != place.thread {
            return Err(Denied::missing("run", &run));
        }
        return runs::follow(asked, known.run).await;
    }
    if let Some(otid) = root.name_of("otid") {
        for head in runs::heads(asked, &place.thread, None, 64).await? {
            let known = known(asked, &head.log).await?;
            if known.note.otids.contains(&Some(otid.clone())) {
                return runs::follow(asked, head.log).await;
            }
        }
        return Err(Denied::new(404, format!("no run was begun with the otid {otid}")));
    }
    let newest = asked.newest_run(&place.thread).await?.filter(runs::is_open);
    let newest = newest.ok_or_else(|| {
        Denied::new(404, format!("no run is on in {}: name one by run_id", place.thread))
    })?;
    runs::follow(asked, newest.log).await
}

/// A conversation that shares another's history, to its end or up to a message.
pub(crate) async fn fork(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    let tenant = &asked.caller.tenant;
    let named = asked.query.get("message_id").cloned();
    let named = named.or_else(|| asked.body.root().name_of("message_id"));
    let at = match named {
        Some(message) => {
            let mut listing = Listing::new(&asked.api.runner, tenant, &place.thread);
            let found = listing.find(&message).await?;
            found.ok_or_else(|| Denied::missing("message", &message))?.seq
        }
        None => {
            let head = asked.api.store().log(tenant, &place.thread).await?;
            head.map_or(0, |head| head.last)
        }
    };
    let mut members = place.conversation.as_ref().map(|kept| kept.members.clone());
    let members = members.get_or_insert_default();
    let hidden = asked.query.is("hidden") == Some(true);
    members.set("hidden", Json::from(&serde_json::Value::Bool(hidden)));
    let id = asked.api.fresh("conv");
    let fork = ForkPoint { log: place.thread.clone(), at };
    asked.house().create_conversation(&place.agent.id, &id, members, Some(fork)).await?;
    shown(asked, &id).await
}

/// Summarises the older messages of a conversation now.
pub(crate) async fn compact(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    let mut config =
        declared::config(&place.agent, place.conversation.as_ref(), &Overrides::default())?;
    asked.api.caps.lower(&mut config);
    may_be(asked, &config).await?;
    let tenant = asked.caller.tenant.clone();
    let starting = asked.api.drives.start_run(&tenant)?;
    let before = in_context(asked, &place.thread).await?;
    let mut casting = Casting::solo(config, Vec::new());
    casting.note = Some(RunNote::begun(&place.agent.id, asked.caller.admission.key_id()));
    let start = Start {
        tenant: tenant.clone(),
        thread: Some(place.thread.clone()),
        casting,
        said: Vec::new(),
        once: Vec::new(),
    };
    let runner = declared::equipped(&asked.api.runner, &place.agent.members)?;
    let begun = runner.begin_compaction(start).await?;
    asked.api.drives.drive(&tenant, &begun.run);
    drop(starting);
    let known = known(asked, &begun.run).await?;
    let mut follower = Follower::new(asked.api.store(), known, From::default());
    loop {
        match follower.next(asked.api.ping).await? {
            Next::Letter(_) => {}
            Next::Quiet => asked.api.drives.drive(&tenant, &begun.run),
            Next::Rest(_) => break,
        }
    }
    let state = asked.api.runner.state(&tenant, &begun.run).await?;
    let summary = state.smart.summaries.iter().flatten().last().cloned().unwrap_or_default();
    let after = in_context(asked, &place.thread).await?;
    let told = json::object(|o| {
        o.string("summary", &summary);
        o.number("num_messages_before", before).number("num_messages_after", after);
    });
    Ok(Answered::json(200, &told))
}

/// How many messages the model is shown.
async fn in_context(asked: &Asked<'_>, thread: &LogId) -> Result<u64, Denied> {
    let Some(head) = asked.newest_run(thread).await? else { return Ok(0) };
    let state = asked.api.runner.state(&asked.caller.tenant, &head.log).await?;
    let shown = state.window.shown().filter(|item| !matches!(item.body, Body::Unknown));
    Ok(u64::try_from(shown.count()).unwrap_or(u64::MAX))
}
