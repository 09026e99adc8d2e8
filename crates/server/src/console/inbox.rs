//! What waits for a person: approvals and questions, and what the person says to an approval.

use std::collections::BTreeMap;

use throughline_agent::{State, Word};
use throughline_core::{
    Era, LogId, Name, Node, Pending, PendingStatus, PendingToolApproval, RedactionPolicy,
    ToolApprovalResolution, json,
};

use crate::console::{era, runs, shown};
use crate::gateway::Answered;
use crate::letta::{Asked, Denied, Told};

/// All that waits, the oldest first.
pub(crate) async fn list(asked: &Asked<'_>) -> Told {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let run = asked.query.get("run").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let mut pending: Vec<Pending> =
        pending.into_iter().filter(|one| one.status == PendingStatus::Open).collect();
    pending.sort_by_key(|one| one.opened);
    let policy = asked.policy();
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let (mut waiting, era) = (Vec::new(), era(asked).await?);
    for one in &pending {
        if !states.contains_key(&one.log) {
            // What waits in a log that is no run of an agent is told by its name alone.
            let state = asked.api.runner.state(tenant, &one.log).await.ok();
            states.insert(one.log.clone(), state);
        }
        let state = states.get(&one.log).and_then(Option::as_ref);
        let (casting, title) = about(asked, &one.log, era).await?;
        waiting.push(json::object(|o| {
            o.string("id", &one.id).string("kind", &one.kind).string("run", &one.log.0);
            o.maybe_string("title", title.as_deref()).string("opened", &one.opened.to_string());
            o.maybe_string("expires", one.expires.map(|at| at.to_string()).as_deref());
            o.array("missing_tools", |list| {
                for tool in &casting {
                    list.string(tool);
                }
            });
            if let Some(state) = state {
                put_what(o, one, state, &policy);
            }
        }));
    }
    let told = json::object(|o| {
        o.raw("waiting", &json::array_of(&waiting));
    });
    Ok(Answered::json(200, &told))
}

/// The tools of a run that are not here, and what the run is about.
async fn about(
    asked: &Asked<'_>,
    run: &LogId,
    era: Era,
) -> Result<(Vec<String>, Option<Name>), Denied> {
    let tenant = &asked.caller.tenant;
    let Some(head) = asked.api.store().log(tenant, run).await? else {
        return Ok((Vec::new(), None));
    };
    let summary = runs::summary(asked, &head, era).await?;
    let missing = match asked.api.runner.progress(tenant, run).await {
        Ok((casting, _)) => {
            runs::missing_tools(asked, &casting).into_iter().map(str::to_owned).collect()
        }
        Err(_) => Vec::new(),
    };
    Ok((missing, summary.title.clone()))
}

/// The call that wants to be allowed, or what is asked.
fn put_what(o: &mut json::Object<'_>, one: &Pending, state: &State, policy: &RedactionPolicy) {
    let approval = state.smart.pending_approvals.iter().flatten().find(|known| known.id == one.id);
    if let Some(PendingToolApproval { tool_name, args, .. }) = approval {
        let told = shown(policy, args);
        // What was left out cannot be edited: it would be lost.
        o.string("tool", tool_name).raw("args", &told).bool("redacted", told != *args);
        if state.is_lost(&one.id) {
            o.string("outcome", "unknown");
        }
    }
    let questions = state.smart.pending_user_questions.iter().flatten();
    for question in questions.filter(|known| known.id == one.id) {
        let document = shown(policy, &question.json());
        let tree = document.tree();
        for key in ["questions", "allowFreeText", "message"] {
            if let Some(value) = tree.root().get(key) {
                o.node(key, value);
            }
        }
    }
}

/// Allows a call of a tool, as it is or with other arguments, or does not; and lets its run go on, if its tools are here.
pub(crate) async fn decide(asked: &Asked<'_>) -> Told {
    let (id, tenant) = (asked.id(0), &asked.caller.tenant);
    let pending = asked.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "approval");
    let pending = found.ok_or_else(|| Denied::missing("approval", &id))?;
    let body = asked.body.root();
    let approved = body.present("approved").and_then(Node::bool);
    let approved = approved.ok_or_else(|| Denied::new(422, "approved: say true or false"))?;
    let mut resolution = ToolApprovalResolution::new(id.clone(), approved);
    resolution.approved_args = body.present("args").map(Node::json);
    resolution.comment = body.name_of("comment").filter(|comment| !comment.is_empty());
    resolution.decided_by = body.name_of("decided_by").filter(|name| !name.is_empty());
    let word = Word::Decide(resolution);
    asked.api.drives.hand().tell(tenant, &pending.log, word).await?;
    let goes_on = drive(asked, &pending.log).await?;
    let told = json::object(|o| {
        o.string("id", &id).string("run", &pending.log.0).bool("approved", approved);
        o.bool("goes_on", goes_on);
    });
    Ok(Answered::json(200, &told))
}

/// Lets a run go on here, unless it needs tools that are elsewhere.
pub(crate) async fn drive(asked: &Asked<'_>, run: &LogId) -> Result<bool, Denied> {
    let tenant = &asked.caller.tenant;
    let (casting, _) = asked.api.runner.progress(tenant, run).await?;
    let goes_on = runs::missing_tools(asked, &casting).is_empty();
    if goes_on {
        asked.api.drives.drive(tenant, run);
    }
    Ok(goes_on)
}
