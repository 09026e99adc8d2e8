//! Which paths there are.
//!
//! Everything stands under `/v1/`, and once more under `/letta/v1/`. Two dialects share a few paths under `/v1/`: there, a list
//! is Letta's with its last slash and the other dialect's without it, and a conversation is Letta's by its id. `docs/agent-api.md`
//! lists them.

use throughline_core::Name;

use crate::letta::query::{Query, decode_segment};

/// A path, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path; what stands in braces is an id.
    pub path: &'static str,
    /// What it does, in a few words.
    pub says: &'static str,
    pub(crate) op: Op,
}

macro_rules! ops {
    ($($op:ident $method:literal $path:literal $says:literal;)*) => {
        /// What a route does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op { $($op,)* }

        const ROUTES: &[Route] = &[
            $(Route { method: $method, path: $path, says: $says, op: Op::$op },)*
        ];
    };
}

ops! {
    Health "GET" "/v1/health/" "Whether the API is there.";
    Models "GET" "/v1/models/" "The models that agents can have.";
    Tools "GET" "/v1/tools/" "The tools that agents can have.";
    CreateAgent "POST" "/v1/agents/" "Makes an agent.";
    ListAgents "GET" "/v1/agents/" "The agents, page by page.";
    CountAgents "GET" "/v1/agents/count" "How many agents there are.";
    Agent "GET" "/v1/agents/{agent}" "An agent.";
    UpdateAgent "PATCH" "/v1/agents/{agent}" "Changes what an agent is declared with.";
    DeleteAgent "DELETE" "/v1/agents/{agent}" "Deletes an agent.";
    AgentTools "GET" "/v1/agents/{agent}/tools" "The tools of an agent.";
    ToolApproval "PATCH" "/v1/agents/{agent}/tools/approval/{tool}" "Whether a person must allow a tool of an agent.";
    AgentBlocks "GET" "/v1/agents/{agent}/core-memory/blocks" "The memory of an agent, block by block.";
    AgentBlock "GET" "/v1/agents/{agent}/core-memory/blocks/{block}" "A block of an agent's memory, by its label.";
    UpdateBlock "PATCH" "/v1/agents/{agent}/core-memory/blocks/{block}" "Changes a block of an agent's memory.";
    Say "POST" "/v1/agents/{agent}/messages" "Says something to an agent, or decides what it waits for.";
    SayStream "POST" "/v1/agents/{agent}/messages/stream" "The same, and its answer as a stream.";
    SayAsync "POST" "/v1/agents/{agent}/messages/async" "The same, and nobody waits for the answer.";
    Messages "GET" "/v1/agents/{agent}/messages" "The messages of an agent, page by page.";
    Cancel "POST" "/v1/agents/{agent}/messages/cancel" "Stops the runs of an agent.";
    Reset "PATCH" "/v1/agents/{agent}/reset-messages" "Lets an agent begin again. What was said stays in the history.";
    Summarize "POST" "/v1/agents/{agent}/summarize" "Summarises the older messages of an agent.";
    Runs "GET" "/v1/runs/" "The runs, page by page.";
    Run "GET" "/v1/runs/{run}" "A run.";
    RunMessages "GET" "/v1/runs/{run}/messages" "The messages of a run.";
    RunSteps "GET" "/v1/runs/{run}/steps" "The steps of a run.";
    RunUsage "GET" "/v1/runs/{run}/usage" "What a run used.";
    RunStream "POST" "/v1/runs/{run}/stream" "Follows a run from any message on.";
    CreateConversation "POST" "/v1/conversations/" "Begins a conversation with an agent.";
    ListConversations "GET" "/v1/conversations/" "The conversations of an agent.";
    Conversation "GET" "/v1/conversations/{conversation}" "A conversation.";
    UpdateConversation "PATCH" "/v1/conversations/{conversation}" "Changes what a conversation is declared with.";
    DeleteConversation "DELETE" "/v1/conversations/{conversation}" "Deletes a conversation.";
    SayInConversation "POST" "/v1/conversations/{conversation}/messages" "Says something in a conversation.";
    ConversationMessages "GET" "/v1/conversations/{conversation}/messages" "The messages of a conversation, page by page.";
    ConversationStream "POST" "/v1/conversations/{conversation}/stream" "Follows the run that is on in a conversation.";
    Fork "POST" "/v1/conversations/{conversation}/fork" "A conversation that shares another one's history.";
    Compact "POST" "/v1/conversations/{conversation}/compact" "Summarises the older messages of a conversation.";
    CancelConversation "POST" "/v1/conversations/{conversation}/cancel" "Stops the runs of a conversation.";
    State "GET" "/v1/throughline/runs/{run}/state" "All that a run knows: the documented state.";
    Snapshot "GET" "/v1/throughline/runs/{run}/snapshot" "A run as one document, to go on from elsewhere.";
    Restore "POST" "/v1/throughline/snapshots" "Goes on from a snapshot, as a new run.";
    Resume "POST" "/v1/throughline/runs/{run}/resume" "Sees to it that a run goes on.";
    Plan "GET" "/v1/throughline/runs/{run}/plan" "The plan of a run.";
    Reflections "GET" "/v1/throughline/runs/{run}/reflections" "What the agent noted in a run.";
    Journal "GET" "/v1/throughline/runs/{run}/journal" "The events of a run, page by page.";
    Fates "GET" "/v1/throughline/runs/{run}/fates" "What became of the thoughts and seals in each call of a run.";
    Narrative "GET" "/v1/throughline/runs/{run}/narrative" "What happened in a run and why, in sentences.";
    Questions "GET" "/v1/throughline/questions" "The questions that wait for a person.";
    AnswerQuestion "POST" "/v1/throughline/questions/{question}" "Answers a question.";
    Schema "GET" "/v1/throughline/schemas/{schema}" "The JSON Schema of a document: run-event or smart-state.";
    ForkThread "POST" "/v1/throughline/threads/{thread}/fork" "A thread that shares another one's history up to a record.";
    Rewind "POST" "/v1/throughline/threads/{thread}/rewind" "Lets a thread go on from an earlier record.";
    ShowRuns "GET" "/v1/throughline/runs" "The runs in a few numbers each, the newest first.";
    ShowRun "GET" "/v1/throughline/runs/{run}" "How a run stands, and how near it is to its limits.";
    FollowRun "GET" "/v1/throughline/runs/{run}/events/stream" "Follows the events of a run from any event on.";
    ShowTrace "GET" "/v1/throughline/runs/{run}/trace" "The trace of a run, as one document.";
    ShowThreads "GET" "/v1/throughline/threads" "The threads, the newest first.";
    ShowThread "GET" "/v1/throughline/threads/{thread}" "A thread with its runs and calls.";
    ThoughtMap "GET" "/v1/throughline/threads/{thread}/map" "Which model thought what on a thread, and where it went back.";
    ShowCalls "GET" "/v1/throughline/calls" "Calls through the gateway, page by page: first those of the threads that were written to last.";
    ShowCall "GET" "/v1/throughline/calls/{call}/view" "The story of a call, for people: without the usual secrets.";
    Inbox "GET" "/v1/throughline/inbox" "All that waits for a person.";
    Decide "POST" "/v1/throughline/approvals/{approval}" "Allows a call of a tool, or does not.";
    ShowJournal "GET" "/v1/throughline/journal" "Who signs the journal, and the signed heads of its chains.";
    VerifyJournal "POST" "/v1/throughline/journal/verify" "Proves the chains of the caller's tenant; on a gateway without keys, all of the journal.";
    ExportJournal "GET" "/v1/throughline/journal/export" "Threads as lines of JSON, without the usual secrets.";
    ShowKeys "GET" "/v1/throughline/keys" "The keys, by what they may do.";
    UsedByHour "GET" "/v1/throughline/usage/hours" "What was used, hour by hour.";
    DoctorRows "GET" "/v1/throughline/doctor" "The wires and providers that the doctor knows.";
    Doctor "POST" "/v1/throughline/doctor" "The audit, the repair and the translation of a request.";
}

/// All of them.
pub fn routes() -> &'static [Route] {
    ROUTES
}

/// A route that fits a request.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) op: Op,
    pub(crate) ids: Vec<Name>,
    pub(crate) query: Query,
}

/// The route of a request.
pub(crate) fn find(method: &str, target: &str) -> Option<Found> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, is_alone) = match path.strip_prefix("/letta").filter(|rest| rest.starts_with('/')) {
        Some(rest) => (rest, true),
        None => (path, false),
    };
    let follows = ROUTES.iter().find_map(|route| {
        // A stream can be followed by reading, too.
        let is_method = route.method == method || (route.op == Op::RunStream && method == "GET");
        let ids = if is_method { fits(route.path, path)? } else { return None };
        (is_alone || is_ours(route.op, path, &ids)).then_some((route.op, ids))
    });
    follows.map(|(op, ids)| Found { op, ids, query: Query::parse(query) })
}

/// The ids in a path, if it is the route's. The last slash is no matter here.
fn fits(route: &str, path: &str) -> Option<Vec<Name>> {
    // Most routes are told apart by what stands before their first id, or before their last slash.
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

/// Whether a path that another dialect has as well is meant as Letta's.
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
    fn a_path_is_found_with_its_ids() {
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
    fn what_two_dialects_share_is_told_apart() {
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
