//! The route table of the agent API.
//!
//! All routes exist under `/v1/` and under `/letta/v1/`. A few paths under `/v1/` also belong to
//! another dialect: there a list is Letta's only with a trailing slash, and a conversation is
//! Letta's by the form of its id. `docs/agent-api.md` lists them.

use throughline_core::Name;

use crate::url::{Query, decode_segment};

/// An HTTP route of the agent API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The HTTP method.
    pub method: &'static str,
    /// The path; names in braces are ids.
    pub path: &'static str,
    /// A one-sentence summary for the `OpenAPI` document.
    pub says: &'static str,
    pub(crate) op: Op,
}

macro_rules! ops {
    ($($op:ident $method:literal $path:literal $says:literal;)*) => {
        /// The operation of a route.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op { $($op,)* }

        const ROUTES: &[Route] = &[
            $(Route { method: $method, path: $path, says: $says, op: Op::$op },)*
        ];
    };
}

ops! {
    Health "GET" "/v1/health/" "Report that the API is available.";
    Models "GET" "/v1/models/" "List the models that agents can use.";
    Tools "GET" "/v1/tools/" "List the tools that agents can use.";
    CreateAgent "POST" "/v1/agents/" "Create an agent.";
    ListAgents "GET" "/v1/agents/" "List agents, page by page.";
    CountAgents "GET" "/v1/agents/count" "Count the agents.";
    Agent "GET" "/v1/agents/{agent}" "Return an agent.";
    UpdateAgent "PATCH" "/v1/agents/{agent}" "Update an agent.";
    DeleteAgent "DELETE" "/v1/agents/{agent}" "Delete an agent.";
    AgentTools "GET" "/v1/agents/{agent}/tools" "List the tools of an agent.";
    ToolApproval "PATCH" "/v1/agents/{agent}/tools/approval/{tool}" "Set whether a tool of an agent requires approval.";
    AgentBlocks "GET" "/v1/agents/{agent}/core-memory/blocks" "List the memory blocks of an agent.";
    AgentBlock "GET" "/v1/agents/{agent}/core-memory/blocks/{block}" "Return a memory block of an agent by its label.";
    UpdateBlock "PATCH" "/v1/agents/{agent}/core-memory/blocks/{block}" "Update a memory block of an agent.";
    ClientDialect "POST" "/v1/agents/{agent}/messages" "Send messages to an agent, or decide its pending requests.";
    SayStream "POST" "/v1/agents/{agent}/messages/stream" "Send messages to an agent and stream the answer.";
    SayAsync "POST" "/v1/agents/{agent}/messages/async" "Send messages to an agent and return the run at once.";
    Messages "GET" "/v1/agents/{agent}/messages" "List the messages of an agent, page by page.";
    Cancel "POST" "/v1/agents/{agent}/messages/cancel" "Cancel the runs of an agent.";
    Reset "PATCH" "/v1/agents/{agent}/reset-messages" "Reset an agent's messages. The history keeps them.";
    Summarize "POST" "/v1/agents/{agent}/summarize" "Summarise the older messages of an agent.";
    Runs "GET" "/v1/runs/" "List runs, page by page.";
    Run "GET" "/v1/runs/{run}" "Return a run.";
    RunMessages "GET" "/v1/runs/{run}/messages" "List the messages of a run.";
    RunSteps "GET" "/v1/runs/{run}/steps" "List the steps of a run.";
    RunUsage "GET" "/v1/runs/{run}/usage" "Return the token usage of a run.";
    RunStream "POST" "/v1/runs/{run}/stream" "Stream a run, starting after any message.";
    CreateConversation "POST" "/v1/conversations/" "Create a conversation with an agent.";
    ListConversations "GET" "/v1/conversations/" "List the conversations of an agent.";
    Conversation "GET" "/v1/conversations/{conversation}" "Return a conversation.";
    UpdateConversation "PATCH" "/v1/conversations/{conversation}" "Update a conversation.";
    DeleteConversation "DELETE" "/v1/conversations/{conversation}" "Delete a conversation.";
    SayInConversation "POST" "/v1/conversations/{conversation}/messages" "Send messages in a conversation.";
    ConversationMessages "GET" "/v1/conversations/{conversation}/messages" "List the messages of a conversation, page by page.";
    ConversationStream "POST" "/v1/conversations/{conversation}/stream" "Stream the active run of a conversation.";
    Fork "POST" "/v1/conversations/{conversation}/fork" "Create a conversation that shares another one's history.";
    Compact "POST" "/v1/conversations/{conversation}/compact" "Summarise the older messages of a conversation.";
    CancelConversation "POST" "/v1/conversations/{conversation}/cancel" "Cancel the runs of a conversation.";
    State "GET" "/v1/throughline/runs/{run}/state" "Return the documented state of a run.";
    Snapshot "GET" "/v1/throughline/runs/{run}/snapshot" "Return a run as one document that can be restored elsewhere.";
    Restore "POST" "/v1/throughline/snapshots" "Restore a snapshot as a new run.";
    Resume "POST" "/v1/throughline/runs/{run}/resume" "Resume a run.";
    Plan "GET" "/v1/throughline/runs/{run}/plan" "Return the plan of a run.";
    Reflections "GET" "/v1/throughline/runs/{run}/reflections" "List the agent's reflections in a run.";
    Journal "GET" "/v1/throughline/runs/{run}/journal" "List the events of a run, page by page.";
    FateCounts "GET" "/v1/throughline/runs/{run}/fates" "List the fates of thoughts and seals in each call of a run.";
    Narrative "GET" "/v1/throughline/runs/{run}/narrative" "Describe in sentences what happened in a run and why.";
    Questions "GET" "/v1/throughline/questions" "List the open questions for people.";
    AnswerQuestion "POST" "/v1/throughline/questions/{question}" "Answer a question.";
    Schema "GET" "/v1/throughline/schemas/{schema}" "Return the JSON Schema of a document: run-event or smart-state.";
    ForkThread "POST" "/v1/throughline/threads/{thread}/fork" "Create a thread that shares another one's history up to a record.";
    Rewind "POST" "/v1/throughline/threads/{thread}/rewind" "Rewind a thread to an earlier record.";
    ShowRuns "GET" "/v1/throughline/runs" "Summarise the runs, newest first.";
    ShowRun "GET" "/v1/throughline/runs/{run}" "Return the status of a run and its distance to its limits.";
    FollowRun "GET" "/v1/throughline/runs/{run}/events/stream" "Stream the events of a run, starting after any event.";
    ShowTrace "GET" "/v1/throughline/runs/{run}/trace" "Return the trace of a run as one document.";
    ShowThreads "GET" "/v1/throughline/threads" "List the threads, newest first.";
    ShowThread "GET" "/v1/throughline/threads/{thread}" "Return a thread with its runs and calls.";
    ThoughtMap "GET" "/v1/throughline/threads/{thread}/map" "Return the thoughts of a thread by model, with their replays.";
    ShowCalls "GET" "/v1/throughline/calls" "List the gateway's calls, page by page; the most recently written threads come first.";
    ShowCall "GET" "/v1/throughline/calls/{call}/view" "Return the record of a call, with common secrets redacted.";
    Inbox "GET" "/v1/throughline/inbox" "List everything that waits for a person.";
    Decide "POST" "/v1/throughline/approvals/{approval}" "Approve or reject a tool call.";
    ShowJournal "GET" "/v1/throughline/journal" "Return the journal's signer and the signed heads of its chains.";
    VerifyJournal "POST" "/v1/throughline/journal/verify" "Verify the chains of the caller's tenant; on a gateway without keys, the whole journal.";
    ExportJournal "GET" "/v1/throughline/journal/export" "Export threads as JSON lines, with common secrets redacted.";
    ShowKeys "GET" "/v1/throughline/keys" "List the keys and their permissions.";
    UsedByHour "GET" "/v1/throughline/usage/hours" "Return the usage by hour.";
    DoctorRows "GET" "/v1/throughline/doctor" "List the wires and providers that the doctor supports.";
    Doctor "POST" "/v1/throughline/doctor" "Audit, repair and translate a request.";
}

/// Returns all routes.
pub fn routes() -> &'static [Route] {
    ROUTES
}

/// A route that matches a request, with the ids and query of the target.
#[derive(Debug)]
pub(crate) struct RouteMatch {
    pub(crate) op: Op,
    pub(crate) ids: Vec<Name>,
    pub(crate) query: Query,
}

/// Finds the route of a request.
pub(crate) fn find(method: &str, target: &str) -> Option<RouteMatch> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, is_alone) = match path.strip_prefix("/letta").filter(|rest| rest.starts_with('/')) {
        Some(rest) => (rest, true),
        None => (path, false),
    };
    let follows = ROUTES.iter().find_map(|route| {
        // A run's stream is also available with GET.
        let is_method = route.method == method || (route.op == Op::RunStream && method == "GET");
        let ids = if is_method { fits(route.path, path)? } else { return None };
        (is_alone || is_ours(route.op, path, &ids)).then_some((route.op, ids))
    });
    follows.map(|(op, ids)| RouteMatch { op, ids, query: Query::parse(query) })
}

/// The ids in a path that matches the route. A trailing slash is ignored.
fn fits(route: &str, path: &str) -> Option<Vec<Name>> {
    // Cheap check first: most routes differ before their first id or trailing slash.
    let literal = route.split('{').next().unwrap_or_default();
    if !path.starts_with(literal.strip_suffix('/').unwrap_or(literal)) {
        return None;
    }
    let mut ids = Vec::new();
    let mut steps = path.trim_end_matches('/').split('/');
    for wanted in route.trim_end_matches('/').split('/') {
        let step = steps.next()?;
        if wanted.starts_with('{') {
            if step.is_empty() {
                return None;
            }
            ids.push(decode_segment(step));
        } else if wanted != step {
            return None;
        }
    }
    steps.next().is_none().then_some(ids)
}

/// Whether a path that another dialect also has is meant for Letta.
fn is_ours(op: Op, path: &str, ids: &[Name]) -> bool {
    match op {
        Op::Models | Op::CreateConversation | Op::ListConversations => path.ends_with('/'),
        Op::Conversation | Op::UpdateConversation | Op::DeleteConversation => {
            let id = ids.first().map_or("", |id| &**id);
            id == "default" || id.starts_with("conv-") || id.starts_with("agent-")
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(method: &str, path: &str) -> Option<Op> {
        find(method, path).map(|found| found.op)
    }

    #[test]
    fn match_route_returns_operation_and_decoded_ids() {
        let found = find("PATCH", "/v1/agents/agent-1/tools/approval/a%20b?x=1")
            .map(|found| (found.op, found.ids, found.query.get("x").map(ToString::to_string)));
        let ids = ["agent-1", "a b"].map(Name::from).to_vec();
        assert_eq!(found, Some((Op::ToolApproval, ids, Some("1".to_owned()))));
        assert_eq!(op("GET", "/v1/agents"), Some(Op::ListAgents));
        assert_eq!(op("GET", "/v1/agents/"), Some(Op::ListAgents));
        assert_eq!(op("GET", "/v1/agents/count"), Some(Op::CountAgents));
        assert_eq!(op("PUT", "/v1/agents/"), None);
        assert_eq!(op("GET", "/v1/agents/a/b/c/d"), None);
        assert_eq!(op("GET", "/v1/runs/run_1/stream?starting_after=3"), Some(Op::RunStream));
    }

    #[test]
    fn shared_paths_are_matched_by_slash_and_id_form() {
        assert_eq!(op("GET", "/v1/models"), None);
        assert_eq!(op("GET", "/v1/models/"), Some(Op::Models));
        assert_eq!(op("GET", "/letta/v1/models"), Some(Op::Models));
        assert_eq!(op("POST", "/v1/conversations"), None);
        assert_eq!(op("POST", "/v1/conversations/"), Some(Op::CreateConversation));
        assert_eq!(op("GET", "/v1/conversations/conv_68"), None);
        assert_eq!(op("GET", "/v1/conversations/conv-68"), Some(Op::Conversation));
        assert_eq!(op("GET", "/letta/v1/conversations/conv_68"), Some(Op::Conversation));
    }
}
