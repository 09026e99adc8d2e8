//! The route table of the agent API, and the routes of the dialects.
//!
//! All routes exist under `/v1/` and under `/letta/v1/`. The agent API shares a few paths under
//! `/v1/` with another dialect. On a shared path, a list belongs to Letta only if the path has a
//! trailing slash. A conversation belongs to Letta if its id has Letta's form. `docs/agent-api.md`
//! lists the shared paths.

mod parameters;

use std::collections::BTreeSet;

use axum::Router;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use throughline_json::Name;

use crate::access::Permission;
use crate::api::{
    AnyObject, AnyValue, ApiRequest, ApiResult, ReflectionRef, RunEventRef, SchemaDocument,
    SmartStateRef, SnapshotDocument,
};
use crate::console::thought_map::ThoughtMap;
use crate::gateway::object_routes;
use crate::letta::conversations::Compaction;
use crate::letta::extensions::{
    ForkedThread, JournalEntry, Narrative, Question, RewoundThread, RunPlan,
};
use crate::letta::message::LettaMessage;
use crate::letta::messages::{CancelledRuns, ResponseMode};
use crate::letta::resource_json::{
    AgentState, ConversationState, Health, MemoryBlock, ModelEntry, ToolEntry,
};
use crate::letta::run_stream::WholeAnswer;
use crate::letta::runs::{RunState, RunUsage, StepState};
use crate::routes::parameters::{
    AGENT, AGENT_FILTER, ANSWER, BLOCK_VALUE, CANCEL, CONVERSATION, CONVERSATION_FILTER, DECISION,
    DOCTOR, EVENT_PAGE, FOLLOW, FORK, FORK_RECORD, KEY_LIMITS, LEDGER, MESSAGE_TYPES, NEW_KEY,
    PAGE, ParameterSpec, RANGE, REQUIRES_APPROVAL, REWIND_RECORD, ROUTE_TARGETS, RUN, RUN_FILTER,
    RUN_ID, RUN_IDS, SAID, SHOW_CALLS, SHOW_RUNS, SHOW_THREADS, STREAM_MEMBERS, TAG, THREAD_ITEMS,
    THREADS, TOOL_FILTER,
};
use crate::url::{Query, decode_segment};
use crate::{console, letta};

/// An HTTP route of the agent API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The HTTP method in upper case.
    pub method: &'static str,
    /// The path; names in braces are ids.
    pub path: &'static str,
    /// A one-sentence summary for the `OpenAPI` document.
    pub summary: &'static str,
    pub(crate) op: Op,
    /// What a key needs to use the route.
    pub(crate) permission: Permission,
    pub(crate) query: &'static [&'static [ParameterSpec]],
    pub(crate) body: &'static [&'static [ParameterSpec]],
    /// The schema of the JSON response, if the route has one.
    pub(crate) response: &'static [SchemaOf],
    /// The schema of an event, if the route can stream.
    pub(crate) event: &'static [SchemaOf],
}

/// Adds a type's schema to a document and returns a reference to the schema.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Declares the operations, the route table and the dispatch. Each row contains the operation, the
/// permission that it needs, its method, path and summary. The optional `[query parameters]`,
/// `{body members}`, `-> response` and `| stream event` follow, and then the handler.
macro_rules! routes {
    ($request:ident; $(
        $op:ident $permission:ident $method:literal $path:literal $summary:literal
        $([$($query:expr),*])? $({$($body:expr),*})? $(-> $response:ty)? $(| $event:ty)?
        => $handler:expr;
    )*) => {
        /// The operation of a route.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op { $($op,)* }

        const ROUTES: &[Route] = &[$(Route {
            method: $method,
            path: $path,
            summary: $summary,
            op: Op::$op,
            permission: Permission::$permission,
            query: &[$($($query),*)?],
            body: &[$($($body),*)?],
            response: &[$(schema_of::<$response>)?],
            event: &[$(schema_of::<$event>)?],
        },)*];

        /// Runs the handler of an operation.
        pub(crate) async fn perform($request: &ApiRequest<'_>, op: Op) -> ApiResult {
            match op { $(Op::$op => $handler,)* }
        }
    };
}

routes! { request;
    Health Read "GET" "/v1/health/" "Report that the API is available."
        -> Health => Ok(letta::resource_json::health());
    Models Read "GET" "/v1/models/" "List the models that agents can use."
        -> Vec<ModelEntry<'static>> => Ok(letta::resource_json::models(request));
    Tools Read "GET" "/v1/tools/" "List the tools that agents can use."
        [PAGE, TOOL_FILTER] -> Vec<ToolEntry> => letta::agents::all_tools(request);
    CreateAgent Use "POST" "/v1/agents/" "Create an agent."
        {AGENT} -> AgentState => letta::agents::create(request).await;
    ListAgents Read "GET" "/v1/agents/" "List agents, page by page."
        [PAGE, AGENT_FILTER] -> Vec<AgentState> => letta::agents::list(request).await;
    CountAgents Read "GET" "/v1/agents/count" "Count the agents."
        -> u64 => letta::agents::count(request).await;
    Agent Read "GET" "/v1/agents/{agent}" "Return an agent."
        -> AgentState => letta::agents::retrieve(request).await;
    UpdateAgent Use "PATCH" "/v1/agents/{agent}" "Update an agent."
        {AGENT} -> AgentState => letta::agents::update(request).await;
    DeleteAgent Use "DELETE" "/v1/agents/{agent}" "Delete an agent."
        -> () => letta::agents::delete(request).await;
    AgentTools Read "GET" "/v1/agents/{agent}/tools" "List the tools of an agent."
        [PAGE, TOOL_FILTER] -> Vec<ToolEntry> => letta::agents::tools(request).await;
    ToolApproval Use "PATCH" "/v1/agents/{agent}/tools/approval/{tool}" "Set whether a tool of an agent requires approval."
        {REQUIRES_APPROVAL} -> AgentState => letta::agents::tool_approval(request).await;
    AgentBlocks Read "GET" "/v1/agents/{agent}/core-memory/blocks" "List the memory blocks of an agent."
        [PAGE] -> Vec<MemoryBlock> => letta::agents::blocks(request).await;
    AgentBlock Read "GET" "/v1/agents/{agent}/core-memory/blocks/{block}" "Return a memory block of an agent by its label."
        -> MemoryBlock => letta::agents::block(request).await;
    UpdateBlock Use "PATCH" "/v1/agents/{agent}/core-memory/blocks/{block}" "Update a memory block of an agent."
        {BLOCK_VALUE} -> MemoryBlock => letta::agents::update_block(request).await;
    ClientDialect Use "POST" "/v1/agents/{agent}/messages" "Send messages to an agent, or decide its pending requests."
        {SAID} -> WholeAnswer | LettaMessage => letta::messages::send_messages(request, ResponseMode::Whole).await;
    SayStream Use "POST" "/v1/agents/{agent}/messages/stream" "Send messages to an agent and stream the answer."
        {SAID} | LettaMessage => letta::messages::send_messages(request, ResponseMode::Stream).await;
    SayAsync Use "POST" "/v1/agents/{agent}/messages/async" "Send messages to an agent and return the run at once."
        {SAID} -> RunState => letta::messages::send_messages(request, ResponseMode::Later).await;
    Messages Read "GET" "/v1/agents/{agent}/messages" "List the messages of an agent, page by page."
        [PAGE, MESSAGE_TYPES] -> Vec<LettaMessage> => letta::messages::list(request).await;
    Cancel Use "POST" "/v1/agents/{agent}/messages/cancel" "Cancel the runs of an agent."
        {RUN_IDS} -> CancelledRuns => letta::messages::cancel(request).await;
    Reset Use "PATCH" "/v1/agents/{agent}/reset-messages" "Reset an agent's messages. The history keeps them."
        -> AgentState => letta::messages::reset(request).await;
    Summarize Use "POST" "/v1/agents/{agent}/summarize" "Summarise the older messages of an agent."
        -> Compaction => letta::conversations::compact(request).await;
    Runs Read "GET" "/v1/runs/" "List runs, page by page."
        [PAGE, RUN_FILTER] -> Vec<RunState> => letta::runs::list(request).await;
    Run Read "GET" "/v1/runs/{run}" "Return a run."
        -> RunState => letta::runs::retrieve(request).await;
    RunMessages Read "GET" "/v1/runs/{run}/messages" "List the messages of a run."
        [PAGE] -> Vec<LettaMessage> => letta::runs::messages(request).await;
    RunSteps Read "GET" "/v1/runs/{run}/steps" "List the steps of a run."
        [PAGE] -> Vec<StepState> => letta::runs::steps(request).await;
    RunUsage Read "GET" "/v1/runs/{run}/usage" "Return the token usage of a run."
        -> RunUsage => letta::runs::usage(request).await;
    RunStream Read "POST" "/v1/runs/{run}/stream" "Stream a run, starting after any message."
        {STREAM_MEMBERS} | LettaMessage => letta::runs::stream(request).await;
    CreateConversation Use "POST" "/v1/conversations/" "Create a conversation with an agent."
        {CONVERSATION} -> ConversationState<'static> => letta::conversations::create(request).await;
    ListConversations Read "GET" "/v1/conversations/" "List the conversations of an agent."
        [PAGE, CONVERSATION_FILTER] -> Vec<ConversationState<'static>> => letta::conversations::list(request).await;
    Conversation Read "GET" "/v1/conversations/{conversation}" "Return a conversation."
        -> ConversationState<'static> => letta::conversations::retrieve(request).await;
    UpdateConversation Use "PATCH" "/v1/conversations/{conversation}" "Update a conversation."
        {CONVERSATION} -> ConversationState<'static> => letta::conversations::update(request).await;
    DeleteConversation Use "DELETE" "/v1/conversations/{conversation}" "Delete a conversation."
        -> () => letta::conversations::delete(request).await;
    SayInConversation Use "POST" "/v1/conversations/{conversation}/messages" "Send messages in a conversation."
        {SAID} -> WholeAnswer | LettaMessage => letta::messages::send_messages(request, ResponseMode::Conversation).await;
    ConversationMessages Read "GET" "/v1/conversations/{conversation}/messages" "List the messages of a conversation, page by page."
        [PAGE, MESSAGE_TYPES] -> Vec<LettaMessage> => letta::messages::list(request).await;
    ConversationStream Read "POST" "/v1/conversations/{conversation}/stream" "Stream the active run of a conversation."
        {STREAM_MEMBERS} | LettaMessage => letta::conversations::stream(request).await;
    Fork Use "POST" "/v1/conversations/{conversation}/fork" "Create a conversation that shares another one's history."
        [FORK] -> ConversationState<'static> => letta::conversations::fork(request).await;
    Compact Use "POST" "/v1/conversations/{conversation}/compact" "Summarise the older messages of a conversation."
        -> Compaction => letta::conversations::compact(request).await;
    CancelConversation Use "POST" "/v1/conversations/{conversation}/cancel" "Cancel the runs of a conversation."
        -> CancelledRuns => letta::messages::cancel(request).await;
    State Read "GET" "/v1/throughline/runs/{run}/state" "Return the documented state of a run."
        -> SmartStateRef => letta::extensions::state(request).await;
    Snapshot Export "GET" "/v1/throughline/runs/{run}/snapshot" "Return a run as one document that can be restored elsewhere."
        [TAG] -> SnapshotDocument => letta::extensions::snapshot(request).await;
    Restore Use "POST" "/v1/throughline/snapshots" "Restore a snapshot as a new run."
        -> RunState => letta::extensions::restore(request).await;
    Resume Use "POST" "/v1/throughline/runs/{run}/resume" "Resume a run."
        -> RunState => letta::extensions::resume(request).await;
    CancelRun Use "POST" "/v1/throughline/runs/{run}/cancel" "Cancel a run."
        {CANCEL} -> RunState => letta::extensions::cancel(request).await;
    Plan Read "GET" "/v1/throughline/runs/{run}/plan" "Return the plan of a run."
        -> RunPlan => letta::extensions::plan(request).await;
    Reflections Read "GET" "/v1/throughline/runs/{run}/reflections" "List the agent's reflections in a run."
        -> Vec<ReflectionRef> => letta::extensions::reflections(request).await;
    Journal Read "GET" "/v1/throughline/runs/{run}/journal" "List the events of a run, page by page."
        [EVENT_PAGE] -> Vec<JournalEntry> => letta::extensions::journal(request).await;
    FateCounts Read "GET" "/v1/throughline/runs/{run}/fates" "List the fates of thoughts and seals in each call of a run."
        [EVENT_PAGE] -> Vec<JournalEntry> => letta::extensions::fates(request).await;
    Narrative Read "GET" "/v1/throughline/runs/{run}/narrative" "Describe in sentences what happened in a run and why."
        -> Narrative => letta::extensions::narrative(request).await;
    Questions Read "GET" "/v1/throughline/questions" "List the open questions for people."
        [RUN_ID] -> Vec<Question> => letta::extensions::questions(request).await;
    AnswerQuestion Approve "POST" "/v1/throughline/questions/{question}" "Answer a question."
        {ANSWER} -> Question => letta::extensions::answer(request).await;
    Schema Read "GET" "/v1/throughline/schemas/{schema}" "Return the JSON Schema of a document: run-event or smart-state."
        -> SchemaDocument => letta::extensions::schema(request);
    ForkThread Use "POST" "/v1/throughline/threads/{thread}/fork" "Create a thread that shares another one's history up to a record."
        {FORK_RECORD} -> ForkedThread => letta::extensions::fork(request).await;
    Rewind Use "POST" "/v1/throughline/threads/{thread}/rewind" "Rewind a thread to an earlier record."
        {REWIND_RECORD} -> RewoundThread => letta::extensions::rewind(request).await;
    ShowRuns Inspect "GET" "/v1/throughline/runs" "Summarise the runs, newest first."
        [SHOW_RUNS, RANGE] -> AnyObject => console::runs::list(request).await;
    ShowRun Inspect "GET" "/v1/throughline/runs/{run}" "Return the status of a run and its distance to its limits."
        -> AnyObject => console::runs::show(request).await;
    FollowRun Read "GET" "/v1/throughline/runs/{run}/events/stream" "Stream the events of a run, starting after any event."
        [FOLLOW] | RunEventRef => console::events::follow(request).await;
    ShowTrace Inspect "GET" "/v1/throughline/runs/{run}/trace" "Return the trace of a run as one document."
        -> AnyValue => console::runs::trace(request).await;
    ShowThreads Inspect "GET" "/v1/throughline/threads" "List the threads, newest first."
        [SHOW_THREADS] -> AnyObject => console::threads::list(request).await;
    ShowThread Inspect "GET" "/v1/throughline/threads/{thread}" "Return a thread with its runs and calls."
        -> AnyObject => console::threads::show(request).await;
    ThreadItems Inspect "GET" "/v1/throughline/threads/{thread}/items" "List the messages, thoughts and tool calls of a thread, oldest first; the newest page comes first."
        [THREAD_ITEMS] -> AnyObject => console::items::list(request).await;
    ThoughtMap Inspect "GET" "/v1/throughline/threads/{thread}/map" "Return the thoughts of a thread by model, with their replays."
        -> ThoughtMap => console::thought_map::map(request).await;
    ShowCalls Inspect "GET" "/v1/throughline/calls" "List the gateway's calls, page by page; the most recently written threads come first."
        [SHOW_CALLS, RANGE] -> AnyObject => console::calls::list(request).await;
    ShowCall Inspect "GET" "/v1/throughline/calls/{call}/view" "Return the record of a call, with common secrets redacted."
        -> AnyObject => console::calls::show(request).await;
    Overview Inspect "GET" "/v1/throughline/overview" "Return calls, errors, latencies, tokens, cost and restored thoughts, in total and by day."
        [RANGE] -> AnyObject => console::overview::show(request).await;
    Inbox Inspect "GET" "/v1/throughline/inbox" "List everything that waits for a person."
        [RUN] -> AnyObject => console::inbox::list(request).await;
    Decide Approve "POST" "/v1/throughline/approvals/{approval}" "Approve or reject a tool call."
        {DECISION} -> AnyObject => console::inbox::decide(request).await;
    ShowJournal Inspect "GET" "/v1/throughline/journal" "Return the journal's signer and the signed heads of its chains."
        -> AnyObject => console::journal::manifest(request).await;
    VerifyJournal Verify "POST" "/v1/throughline/journal/verify" "Verify the chains of the caller's tenant; on a gateway without keys, the whole journal."
        -> AnyObject => console::journal::verify(request).await;
    ExportJournal Export "GET" "/v1/throughline/journal/export" "Export threads as JSON lines, with common secrets redacted."
        [THREADS] -> AnyValue => console::journal::export(request).await;
    ShowSettings Inspect "GET" "/v1/throughline/settings" "Return the configuration in effect without secrets, and the health of providers and of the store."
        -> AnyObject => console::settings::show(request).await;
    ShowBudgets Inspect "GET" "/v1/throughline/budgets" "List the budgets of the keys with their spent and reserved amounts."
        -> AnyObject => console::keys::budgets(request).await;
    ShowKeys Inspect "GET" "/v1/throughline/keys" "List the keys and their permissions."
        -> AnyObject => console::keys::list(request).await;
    CreateKey ManageKeys "POST" "/v1/throughline/keys" "Create a key. Only this response contains the key itself."
        {NEW_KEY, KEY_LIMITS} -> AnyObject => console::keys::create(request).await;
    UpdateKey ManageKeys "PATCH" "/v1/throughline/keys/{key}" "Change the role, the models, the budgets or the rates of a key."
        {KEY_LIMITS} -> AnyObject => console::keys::update(request).await;
    RevokeKey ManageKeys "DELETE" "/v1/throughline/keys/{key}" "Revoke a key."
        -> AnyObject => console::keys::revoke(request).await;
    ResetKey ManageKeys "POST" "/v1/throughline/keys/{key}/reset" "Let the budgets of a key count from zero."
        -> AnyObject => console::keys::reset(request).await;
    ShowRoutes Inspect "GET" "/v1/throughline/routes" "List the routes of the tenant."
        -> AnyObject => console::model_routes::list(request).await;
    SetRoute ManageRoutes "PUT" "/v1/throughline/routes/{route}" "Create or replace a route of the tenant."
        {ROUTE_TARGETS} -> AnyObject => console::model_routes::set(request).await;
    DeleteRoute ManageRoutes "DELETE" "/v1/throughline/routes/{route}" "Delete a route of the tenant."
        -> AnyObject => console::model_routes::delete(request).await;
    UsedByHour Inspect "GET" "/v1/throughline/usage/hours" "Return the usage by hour."
        -> AnyObject => console::journal::usage(request).await;
    SimulatorLedger Inspect "GET" "/v1/throughline/sim/ledger" "Return the ledger of the built-in simulators; on a gateway with keys, 403."
        [LEDGER] -> AnyObject => console::simulators::ledger(request);
    DoctorRows Read "GET" "/v1/throughline/doctor" "List the wires and providers that the doctor supports."
        -> AnyObject => Ok(console::doctor::list_targets(request));
    Doctor Use "POST" "/v1/throughline/doctor" "Audit, repair and translate a request."
        {DOCTOR} -> AnyObject => console::doctor::diagnose(request).await;
}

/// Returns the route table of the agent API.
pub fn routes() -> &'static [Route] {
    ROUTES
}

/// A route of a provider's dialect: a model call, a token count, a model list, or a path that the
/// gateway forwards.
#[derive(Clone, Debug)]
pub struct DialectRoute {
    /// The dialect: `anthropic`, `openai`, `gemini`, `bedrock` or `vertex`.
    pub dialect: &'static str,
    /// The HTTP method in upper case.
    pub method: &'static str,
    /// The path; names in braces are ids or models.
    pub path: String,
    /// A one-sentence summary for the `OpenAPI` document.
    pub summary: &'static str,
}

/// Returns the path of a model on Vertex, with this suffix.
macro_rules! vertex_path {
    ($suffix:literal) => {
        concat!(
            "/v1/projects/{project}/locations/{location}/publishers/{publisher}/models/{model}",
            $suffix
        )
    };
}

/// The dialect, method, path and summary of each path that the gateway itself serves.
const DIALECT_ROUTES: &[(&str, &str, &str, &str)] = &[
    ("anthropic", "POST", "/v1/messages", "Send a request in Anthropic's Messages format."),
    ("anthropic", "POST", "/v1/messages/count_tokens", "Count the tokens of a Messages request."),
    ("openai", "POST", "/v1/responses", "Send a request in OpenAI's Responses format."),
    ("openai", "POST", "/v1/responses/input_tokens", "Count the tokens of a Responses request."),
    ("openai", "POST", "/v1/responses/compact", "Compact a conversation to one item."),
    ("openai", "GET", "/v1/responses/{response}", "Return a stored response."),
    ("openai", "DELETE", "/v1/responses/{response}", "Delete a stored response."),
    ("openai", "GET", "/v1/responses/{response}/input_items", "List the input of a response."),
    ("openai", "POST", "/v1/chat/completions", "Send a request in OpenAI's chat format."),
    ("openai", "GET", "/v1/models", "List the models; with `anthropic-version`, for Anthropic."),
    ("openai", "GET", "/v1/models/{model}", "Return a model, in the format of the list."),
    ("gemini", "POST", "/v1beta/models/{model}:generateContent", "Send a request to Gemini."),
    ("gemini", "POST", "/v1beta/models/{model}:streamGenerateContent", "Stream the response."),
    ("gemini", "POST", "/v1beta/models/{model}:countTokens", "Count the tokens of a request."),
    ("gemini", "GET", "/v1beta/models", "List the models in Gemini's format."),
    ("gemini", "GET", "/v1beta/models/{model}", "Return a model in Gemini's format."),
    ("bedrock", "POST", "/model/{model}/invoke", "Send a Messages request as to Bedrock."),
    ("bedrock", "POST", "/model/{model}/invoke-with-response-stream", "Stream the response."),
    ("bedrock", "POST", "/model/{model}/converse", "Send a request in Bedrock's Converse format."),
    ("bedrock", "POST", "/model/{model}/converse-stream", "Stream the response."),
    ("bedrock", "POST", "/model/{model}/count-tokens", "Count the tokens of a request."),
    ("bedrock", "GET", "/foundation-models", "List the models in Bedrock's format."),
    ("bedrock", "GET", "/foundation-models/{model}", "Return a model in Bedrock's format."),
    ("bedrock", "GET", "/inference-profiles", "List the models as inference profiles."),
    ("bedrock", "GET", "/inference-profiles/{model}", "Return a model as inference profile."),
    ("vertex", "POST", vertex_path!(":rawPredict"), "Send a Messages request as to Vertex."),
    ("vertex", "POST", vertex_path!(":streamRawPredict"), "Stream the response."),
    ("vertex", "POST", vertex_path!(":generateContent"), "Send a request to Gemini on Vertex."),
    ("vertex", "POST", vertex_path!(":streamGenerateContent"), "Stream the response."),
    ("vertex", "POST", vertex_path!(":countTokens"), "Count the tokens of a request."),
    ("vertex", "GET", vertex_path!(""), "Return a model in Vertex's format."),
    ("vertex", "GET", "/v1beta1/publishers/{publisher}/models", "List the models for Vertex."),
];

/// Returns all routes of the dialects: the routes that the gateway serves, then the routes that it
/// forwards.
pub fn dialect_routes() -> impl Iterator<Item = DialectRoute> {
    let served = DIALECT_ROUTES.iter().copied();
    let forwarded = object_routes().map(|(dialect, method, path)| {
        (dialect, method, path, "Forward to the provider; ids must belong to the caller.")
    });
    served.chain(forwarded).map(|(dialect, method, path, summary)| DialectRoute {
        dialect,
        method,
        path: path.replace("{**}", "{model}").replace("{*}", "{file}"),
        summary,
    })
}

/// The operation that matches a request, with the ids from the path and the parsed query.
#[derive(Debug)]
pub(crate) struct RouteMatch {
    pub(crate) op: Op,
    pub(crate) permission: Permission,
    pub(crate) ids: Vec<Name>,
    pub(crate) query: Query,
}

/// Adds the paths of the agent API to a router, under `/v1/` and `/letta/v1/`, with and without a
/// trailing slash. `handler` returns the handler of a path.
pub(crate) fn add_paths<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    handler: impl Fn(&'static str) -> MethodRouter<S>,
) -> Router<S> {
    let paths: BTreeSet<&str> = ROUTES.iter().map(|route| without_slash(route.path)).collect();
    paths.into_iter().fold(router, |router, path| {
        let spellings = [
            path.to_owned(),
            format!("{path}/"),
            format!("/letta{path}"),
            format!("/letta{path}/"),
        ];
        spellings.iter().fold(router, |router, spelling| router.route(spelling, handler(path)))
    })
}

/// Returns the operation at a path that [`add_paths`] added, for a request with this method and
/// target. Returns `None` if the path has no operation for the method, or if the request belongs to
/// another dialect. A target is a path with a query.
pub(crate) fn find(path: &str, method: &str, target: &str) -> Option<RouteMatch> {
    let route = ROUTES.iter().find(|route| {
        // A run's stream is also available with GET.
        let is_method = route.method == method || (route.op == Op::RunStream && method == "GET");
        is_method && without_slash(route.path) == path
    })?;
    let (requested, query) = target.split_once('?').unwrap_or((target, ""));
    let own = requested.strip_prefix("/letta").unwrap_or(requested);
    let ids = path.split('/').zip(own.split('/')).filter(|(name, _)| name.starts_with('{'));
    let ids: Vec<Name> = ids.map(|(_, id)| decode_segment(id)).collect();
    let is_ours = own != requested || is_ours(route.op, requested, &ids);
    is_ours.then(|| RouteMatch {
        op: route.op,
        permission: route.permission,
        ids,
        query: Query::parse(query),
    })
}

fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns whether a request to a path that the agent API shares with another dialect is meant for
/// Letta.
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
    use std::sync::{Arc, Mutex};

    use axum::body::Body;
    use axum::http::Request as HttpRequest;
    use axum::routing::any;
    use throughline_core::Request;
    use tower_service::Service as _;

    use super::*;
    use crate::gateway::{CloudRequest, GatewayRoute, classify};
    use crate::sync::lock;

    /// Sends a request through a router and returns the route that was found.
    async fn route(method: &str, target: &str) -> Option<RouteMatch> {
        let found = Arc::new(Mutex::new(None));
        let mut router = add_paths(Router::new(), |path| {
            let found = Arc::clone(&found);
            any(async move |request: HttpRequest<Body>| {
                let target = request.uri().to_string();
                *lock(&found) = find(path, request.method().as_str(), &target);
            })
        });
        let request = HttpRequest::builder().method(method).uri(target).body(Body::empty());
        router.call(request.ok()?).await.ok()?;
        lock(&found).take()
    }

    async fn op(method: &str, path: &str) -> Option<Op> {
        route(method, path).await.map(|found| found.op)
    }

    #[tokio::test]
    async fn match_route_returns_operation_and_decoded_ids() {
        let found = route("PATCH", "/letta/v1/agents/agent-1/tools/approval/a%2520b%FF?x=1").await;
        let found =
            found.map(|found| (found.op, found.ids, found.query.get("x").map(ToString::to_string)));
        let ids = ["agent-1", "a%20b\u{fffd}"].map(Name::from).to_vec();
        assert_eq!(found, Some((Op::ToolApproval, ids, Some("1".to_owned()))));
        assert_eq!(op("GET", "/v1/agents").await, Some(Op::ListAgents));
        assert_eq!(op("GET", "/v1/agents/").await, Some(Op::ListAgents));
        assert_eq!(op("GET", "/v1/agents/count").await, Some(Op::CountAgents));
        assert_eq!(op("PUT", "/v1/agents/").await, None);
        assert_eq!(op("GET", "/v1/agents/a/b/c/d").await, None);
        let stream = op("GET", "/v1/runs/run_1/stream?starting_after=3").await;
        assert_eq!(stream, Some(Op::RunStream));
    }

    #[tokio::test]
    async fn dialect_routes_are_classified_as_gateway_routes() {
        for dialect in dialect_routes() {
            let path = Name::from(dialect.path.replace("{conversation}", "conv_68"));
            let target = path.replace(['{', '}'], "");
            let headers = Vec::new();
            let request = Request { path, headers, body: bytes::Bytes::new() };
            let cloud = CloudRequest::parse(dialect.method, &request.path);
            let cloud = cloud.as_ref().map(CloudRequest::classify);
            let (_, found) = cloud.unwrap_or_else(|| classify(dialect.method, &request));
            let is_unknown = matches!(found, GatewayRoute::Nowhere | GatewayRoute::NoAgentPath);
            let agents = op(dialect.method, &target).await;
            assert!(!is_unknown && agents.is_none(), "{dialect:?}");
        }
    }

    #[tokio::test]
    async fn shared_paths_are_matched_by_slash_and_id_form() {
        assert_eq!(op("GET", "/v1/models").await, None);
        assert_eq!(op("GET", "/v1/models/").await, Some(Op::Models));
        assert_eq!(op("GET", "/letta/v1/models").await, Some(Op::Models));
        assert_eq!(op("POST", "/v1/conversations").await, None);
        assert_eq!(op("POST", "/v1/conversations/").await, Some(Op::CreateConversation));
        assert_eq!(op("GET", "/v1/conversations/conv_68").await, None);
        assert_eq!(op("GET", "/v1/conversations/conv-68").await, Some(Op::Conversation));
        let own = op("GET", "/letta/v1/conversations/conv_68").await;
        assert_eq!(own, Some(Op::Conversation));
    }
}
