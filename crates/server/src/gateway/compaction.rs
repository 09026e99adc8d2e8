//! Requests to compact a conversation: an input item `compaction_trigger`, or
//! `POST /v1/responses/compact`.
//!
//! | target | method |
//! |---|---|
//! | OpenAI | the request is forwarded; the client gets OpenAI's own compaction item |
//! | Anthropic | the request asks for Anthropic's compaction block |
//! | any other | the model writes a summary, in an ordinary call that offers no choice of tools |
//!
//! Only OpenAI can read its own compaction item. For any other target, the gateway replaces the
//! last such item with the captured conversation that the item stands for.
//!
//! If a target refuses its own method, the gateway requests a summary instead. A reply that the
//! client's dialect cannot show becomes one compaction item that contains a Claim. When the client
//! sends the item back, `replay` replaces it with the captured summary.

use std::collections::HashSet;

use bytes::Bytes;
use throughline_codec::COMPACTION_TYPES;
use throughline_core::{
    Body, Disposition, ElisionReason, Extra, Fate, ItemId, Origin, Reply, Request, StopReason, Wire,
};
use throughline_json::{self as json, Json, Name, Node, Tree};
use throughline_replay::Claims;
use tokio::time::timeout;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::ReplayMode;
use crate::gateway::exchange::Exchange;
use crate::gateway::headers::{COMPACTION_HEADER, without_query};
use crate::gateway::prepare::RESTORE_TIMEOUT;
use crate::routing::RouteTarget;
use crate::telemetry::store_timeout;

/// The path of OpenAI's compaction endpoint.
pub(crate) const COMPACT_PATH: &str = "/v1/responses/compact";

/// The type of the input item that requests a compaction.
const TRIGGER: &str = "compaction_trigger";

/// The beta feature of Anthropic's `compaction` member.
pub(crate) const COMPACTION_BETA: &str = "compact-2026-09-04";

/// The user message that requests a summary.
const INSTRUCTION: &str = "The context window is nearly full. Write a summary that will replace \
    the conversation so far, so that you can continue the work from the summary alone. Include \
    the user's goals and constraints in their own words, the decisions and their reasons, the \
    results of tool calls that still matter (with exact names, paths, ids and values), the current \
    state, and the next steps. Do not call tools and do not answer the user. Reply with the \
    summary only.";

/// Request members that apply to the reply of an ordinary call, not to a summary.
const DROPPED: [&str; 6] =
    ["input", "tool_choice", "text", "max_output_tokens", "background", "context_management"];

/// Maximum number of compactions that are expanded if each one compacts the one before.
const MAX_NESTED_COMPACTIONS: usize = 8;

/// How a client requests a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionForm {
    /// The last input item is a `compaction_trigger`.
    Trigger,
    /// The request goes to `/v1/responses/compact`.
    Endpoint,
}

/// How a target compacts a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionMethod {
    /// The provider compacts the conversation.
    Native,
    /// The model writes a summary.
    Summary,
}

impl CompactionForm {
    /// Returns how a request asks for a compaction; `None` for any other request.
    pub(crate) fn of(wire: &Wire, path: &str, body: Option<&Tree>) -> Option<Self> {
        if *wire != Wire::OPENAI_RESPONSES {
            return None;
        }
        if without_query(path) == COMPACT_PATH {
            return Some(Self::Endpoint);
        }
        items(body?.root()).any(is_trigger).then_some(Self::Trigger)
    }
}

impl CompactionMethod {
    /// Returns whether a response with this status means that the target does not support the
    /// method.
    pub(crate) fn is_unsupported(self, status: u16) -> bool {
        self == Self::Native && matches!(status, 400 | 404 | 405 | 422)
    }
}

impl Exchange<'_> {
    /// Checks that a compaction request has a conversation, and that its trigger is the last input
    /// item.
    pub(crate) fn check_compaction(&self) -> GatewayResult<()> {
        let (Some(form), Some(body)) = (self.compaction, &self.body) else { return Ok(()) };
        let root = body.root();
        let input = root.present("input");
        let count = items(root).filter(|item| is_trigger(*item)).count();
        let last = items(root).count().saturating_sub(1);
        let at = items(root).position(is_trigger).unwrap_or_default();
        let problem = match form {
            CompactionForm::Endpoint if count > 0 => format!(
                "`input[{at}]` is a `{TRIGGER}`, which this endpoint does not need: remove the item"
            ),
            CompactionForm::Trigger if count > 1 => format!(
                "`input` contains {count} items of type `{TRIGGER}`: send one, as the last item"
            ),
            CompactionForm::Trigger if at != last => format!(
                "`input[{at}]` is a `{TRIGGER}`, which must be the final input item: move it to \
                 the end"
            ),
            CompactionForm::Trigger | CompactionForm::Endpoint => {
                let has_text = input.and_then(Node::text).is_some_and(|text| !text.is_empty());
                let has_items = items(root).count() > count;
                let is_stored = ["previous_response_id", "conversation"]
                    .iter()
                    .any(|key| root.present(key).is_some());
                if has_text || has_items || is_stored {
                    return Ok(());
                }
                "`input` contains no conversation to compact: send the conversation in `input`, \
                 or name its last response in `previous_response_id`"
                    .to_owned()
            }
        };
        let code = Some(("input", "invalid_value"));
        Err(GatewayError { code, ..GatewayError::new(400, problem) })
    }

    /// Pairs each target with the methods to try, in order. The method is `None` for a request that
    /// is no compaction.
    pub(crate) fn with_methods(
        &self,
        targets: Vec<RouteTarget>,
    ) -> GatewayResult<Vec<(RouteTarget, Option<CompactionMethod>)>> {
        let Some(_) = self.compaction else {
            return Ok(targets.into_iter().map(|target| (target, None)).collect());
        };
        let mut attempts = Vec::with_capacity(2 * targets.len());
        for target in targets {
            let wire = &target.provider.wire;
            // Without capture, the gateway could not replace its own compaction items later.
            let is_captured = self.gateway.mode != ReplayMode::Off;
            let is_native = target.provider.dialect.compacts
                && (*wire == self.wire || *wire == Wire::ANTHROPIC_MESSAGES && is_captured);
            if is_native {
                attempts.push((target.clone(), Some(CompactionMethod::Native)));
            }
            if is_captured {
                attempts.push((target, Some(CompactionMethod::Summary)));
            }
        }
        if attempts.is_empty() {
            let message = "this provider does not compact conversations, and the gateway can \
                           summarise them only if `replay` is not `off`";
            return Err(GatewayError::new(400, message));
        }
        Ok(attempts)
    }

    /// Replaces the last compaction item, if only another provider can read it, with the
    /// conversation that it stands for. The item also stands for all earlier compaction items, so
    /// these are left out; their Fates are returned. Compaction items inside the conversation are
    /// replaced in the same way. An item that was not captured for this caller stays unchanged.
    pub(crate) async fn without_foreign_compactions(
        &self,
        mut request: Request,
        reached: &RouteTarget,
    ) -> GatewayResult<(Request, Vec<Fate>)> {
        let mut left_out = Vec::new();
        if self.wire != Wire::OPENAI_RESPONSES || self.gateway.mode == ReplayMode::Off {
            return Ok((request, left_out));
        }
        let has = |body: &Bytes, text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
        let has_compaction = |body: &Bytes| {
            let mut types = COMPACTION_TYPES.iter();
            // The first search rules out most requests.
            has(body, "compaction") && types.any(|kind| has(body, &format!("\"{kind}\"")))
        };
        for _ in 0..MAX_NESTED_COMPACTIONS {
            if !has_compaction(&request.body) {
                break;
            }
            let Ok(tree) = Tree::parse(request.body.clone()) else { break };
            let compactions =
                items(tree.root()).enumerate().filter(|(_, item)| is_compaction(*item));
            let Some((last, item)) = compactions.last() else { break };
            let Some(seal) = compaction_seal(item) else { break };
            let Some(found) = self.foreign_input(&seal, reached).await? else { break };
            let compacted = conversation(&found);
            // Clients keep copies of some messages before the item.
            let known: HashSet<String> = compacted.iter().map(Json::canonical).collect();
            let mut input = Vec::with_capacity(compacted.len());
            for (index, item) in items(tree.root()).enumerate().take(last) {
                let json = item.json();
                if known.contains(&json.canonical()) {
                    continue;
                }
                if is_compaction(item) {
                    left_out.push(covered_fate(item, index));
                } else {
                    input.push(json);
                }
            }
            input.extend(compacted);
            input.extend(items(tree.root()).skip(last + 1).map(Node::json));
            let body = json::object(|out| {
                let members = tree.root().members().filter(|(key, _)| !key.is("input"));
                out.nodes(members).list("input", &input);
            });
            let (length, limit) = (body.bytes().len(), self.gateway.body_limit);
            if length > limit {
                let message = format!(
                    "`input[{last}]` is a compaction item that {} cannot read, and the request is \
                     {length} bytes long with the conversation that the item stands for; the limit \
                     is {limit} bytes: compact the conversation again, or use a model of the \
                     provider that compacted it",
                    reached.endpoint
                );
                return Err(GatewayError::new(413, message));
            }
            request.body = body.bytes().clone();
        }
        Ok((request, left_out))
    }

    /// Returns the request that another provider's compaction item stands for; `None` if the target
    /// issued the item, or if the item was not captured for this caller. While the store fails,
    /// [`Exchange::encode_unrestored`] checks an item for a target of the caller's wire.
    async fn foreign_input(
        &self,
        seal: &[u8],
        reached: &RouteTarget,
    ) -> GatewayResult<Option<Bytes>> {
        let operations = &self.gateway.operations;
        let may_pass = reached.provider.wire == self.wire && operations.passes_without_store();
        if may_pass && operations.is_read_failing() {
            return Ok(None);
        }
        let (target, tenant) = self.target(reached);
        let finding = self.gateway.replay.compacted_input(&tenant, self.end_user.as_deref(), seal);
        let found = timeout(RESTORE_TIMEOUT, finding).await;
        let found = found.unwrap_or_else(|_| Err(store_timeout()));
        operations.record_cached_read(found.as_ref().err());
        let found = match found {
            Err(_) if may_pass => None,
            found => found?,
        };
        let is_foreign = |origin: &Origin| {
            origin.provider != target.origin.provider
                || origin.endpoint != target.origin.endpoint
                || target.profile.bound.account && origin.account != target.origin.account
        };
        Ok(found.filter(|found| is_foreign(&found.origin)).map(|found| found.request))
    }

    /// Returns the request with which a target compacts the conversation.
    pub(crate) fn compaction_request(
        &self,
        mut request: Request,
        reached: &RouteTarget,
        method: Option<CompactionMethod>,
    ) -> GatewayResult<Request> {
        let is_same = reached.provider.wire == self.wire;
        match method {
            None => {}
            Some(CompactionMethod::Native) if is_same => {}
            Some(CompactionMethod::Native) => {
                request.body = rewritten(&request.body, None, self.compaction)?;
                request.headers.push((Name::from(COMPACTION_HEADER), Name::from("native")));
            }
            Some(CompactionMethod::Summary) => {
                request.body = rewritten(&request.body, Some(INSTRUCTION), self.compaction)?;
            }
        }
        Ok(request)
    }
}

/// Returns the member that requests Anthropic's own compaction, if the gateway decided to use it.
pub(crate) fn anthropic_extra(request: &Request, wire: &Wire) -> Option<Extra> {
    let is_marked =
        *wire == Wire::ANTHROPIC_MESSAGES && request.header(COMPACTION_HEADER).is_some();
    is_marked.then(|| Extra {
        wire: Some(wire.clone()),
        key: Name::from("compaction"),
        value: json::object!("type": "summarize"),
    })
}

/// Returns why a reply contains no usable summary; `None` if it contains one.
pub(crate) fn problem(reply: &Reply) -> Option<String> {
    let has_summary = reply.items.iter().any(|item| match &item.body {
        Body::Compaction => true,
        Body::Text(text) => !text.trim().is_empty(),
        _ => false,
    });
    match &reply.stop {
        StopReason::Length => Some(
            "the summary exceeds the model's output limit: compact a shorter conversation"
                .to_owned(),
        ),
        StopReason::Refused(reason) => {
            Some(format!("the model refused to summarise the conversation: {reason}"))
        }
        _ if has_summary => None,
        _ => Some("the model returned no summary: try again".to_owned()),
    }
}

/// Converts a response to the format of `/v1/responses/compact`.
pub(crate) fn endpoint_response(response: &Bytes) -> Option<Bytes> {
    let tree = Tree::parse(response.clone()).ok()?;
    let root = tree.root();
    let compacted = json::object(|out| {
        for key in ["id", "object", "created_at", "output", "usage"] {
            match root.get(key) {
                Some(_) if key == "object" => out.string(key, "response.compaction"),
                Some(value) => out.node(key, value),
                None => out,
            };
        }
    });
    Some(compacted.bytes().clone())
}

/// Returns a request without its trigger. With an `instruction`, the request asks for a summary.
/// The compaction endpoint returns a single object, so a request to it is never streamed.
fn rewritten(
    body: &Bytes,
    instruction: Option<&str>,
    form: Option<CompactionForm>,
) -> GatewayResult<Bytes> {
    let tree = Tree::parse(body.clone())
        .map_err(|error| GatewayError::new(400, format!("the body is not JSON: {error}")))?;
    let root = tree.root();
    let mut input = input_items(root);
    input.extend(instruction.map(|text| json::object!("role": "user", "content": text)));
    let has_tools = root.get("tools").is_some_and(|tools| tools.elements().next().is_some());
    let is_kept = |key: Node<'_>| {
        let is_stream = key.is("stream") || key.is("stream_options");
        !key.is("input")
            && (instruction.is_none() || !DROPPED.iter().any(|name| key.is(name)))
            && (form != Some(CompactionForm::Endpoint) || !is_stream)
    };
    let rewritten = json::object(|out| {
        out.nodes(root.members().filter(|(key, _)| is_kept(*key))).list("input", &input);
        if instruction.is_some() && has_tools {
            // The tools stay in the request: some providers require the tools of earlier calls, and
            // a change would lose the prompt cache and the Seals that are bound to the tools.
            out.string("tool_choice", "none");
        }
    });
    Ok(rewritten.bytes().clone())
}

/// Iterates over the items of an `input` that is a list.
fn items(root: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let input = root.get("input").filter(|input| input.is_array());
    input.into_iter().flat_map(Node::elements)
}

fn is_compaction(item: Node<'_>) -> bool {
    item.get("type").is_some_and(|kind| COMPACTION_TYPES.iter().any(|own| kind.is(own)))
}

/// Returns the encrypted content of a provider's own compaction item; `None` for an item that the
/// gateway issued.
fn compaction_seal(item: Node<'_>) -> Option<Bytes> {
    let seal = item.present("encrypted_content")?.text_bytes()?;
    (!Claims::has_handle_format(&seal)).then_some(seal)
}

/// Returns the Fate of a compaction item that a later compaction item stands for.
fn covered_fate(item: Node<'_>, index: usize) -> Fate {
    let covered = Disposition::Elided(ElisionReason::Covered);
    let id = item.name_of("id").unwrap_or_else(|| Name::from(format!("input.{index}")));
    Fate { item: ItemId(id), visible: covered.clone(), seals: vec![covered] }
}

/// Returns the items of a compacted request that are sent again. The new request has its own
/// instructions.
fn conversation(request: &Bytes) -> Vec<Json> {
    let Ok(tree) = Tree::parse(request.clone()) else { return Vec::new() };
    let mut input = input_items(tree.root());
    input.retain(|item| {
        let tree = item.tree();
        let is = |role: &str| tree.root().get("role").is_some_and(|own| own.is(role));
        !is("system") && !is("developer")
    });
    input
}

/// Returns the items of an `input` without the trigger. A plain string becomes a user message.
fn input_items(root: Node<'_>) -> Vec<Json> {
    let mut input: Vec<Json> =
        items(root).filter(|item| !is_trigger(*item)).map(Node::json).collect();
    if let Some(text) = root.get("input").filter(|input| input.is_string()) {
        input.push(json::object!("role": "user", "content": text));
    }
    input
}

fn is_trigger(item: Node<'_>) -> bool {
    item.get("type").is_some_and(|kind| kind.is(TRIGGER))
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod compaction_tests;
