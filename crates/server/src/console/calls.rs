//! Lists the gateway's calls, and shows a single call with secrets redacted.

use jiff::Timestamp;
use throughline_codec::{CODECS, put_evidence};
use throughline_core::{LogHead, LogId, LogKind, Record, Tenant, TurnId};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::console::{LogList, matches_search, parse_stored, row_limit};
use crate::object::{join_objects, object};
use crate::records::RecordPages;
use crate::redact::redact_json;
use crate::response::GatewayResponse;
use throughline_replay::{
    CALL_RECORD, CONVERSATION_PREFIX, TURN, UNANSWERED_PREFIX, is_conversation,
};

/// Number of most recent records to read per Thread.
const RECORDS_PER_THREAD: u64 = 2000;
/// Maximum number of Threads to read for one page of the list.
const MOST_LOOKED: usize = 2000;
const MAX_CALLS_PER_THREAD: usize = 200;

/// A recorded call without its bodies.
pub(crate) struct RecordedCall {
    pub(crate) id: TurnId,
    pub(crate) thread: LogId,
    pub(crate) at: Timestamp,
    /// Sequence number of the record that contains the call.
    pub(crate) seq: u64,
    account: Json,
}

impl RecordedCall {
    /// Parses a call record; `None` if the record contains no call.
    fn from_record(record: &Record, log: &LogId, thread: &LogId) -> Option<Self> {
        let tree = parse_stored(record.content.bytes()?)?;
        let root = tree.root();
        let (id, account) = match &*record.kind {
            TURN => (root.name_of("call")?, root.get(CALL_RECORD)?.json()),
            CALL_RECORD => (Name::from(log.0.strip_prefix(UNANSWERED_PREFIX)?), root.json()),
            _ => return None,
        };
        let (id, at, seq) = (TurnId(id), record.at, record.seq);
        Some(Self { id, thread: thread.clone(), at, seq, account })
    }

    /// Returns the names of the call's model and provider.
    pub(crate) fn model(&self) -> (Name, Name) {
        let tree = self.account.tree();
        let root = tree.root();
        let target = root.get("target");
        let model = target.and_then(|target| target.name_of("model"));
        let model = model.or_else(|| root.name_of("model")).unwrap_or_default();
        (model, target.and_then(|target| target.name_of("provider")).unwrap_or_default())
    }

    pub(crate) fn row(&self) -> Json {
        let tree = self.account.tree();
        let root = tree.root();
        let head = object! {
            "id": self.id.0, "thread": self.thread.0, "at": self.at.to_string(),
        };
        let target = root.get("target").map(|target| {
            let text = |key| target.name_of(key);
            object! {
                "provider"? text("provider"), "endpoint"? text("endpoint"), "wire"? text("wire"),
                "model"? text("model"),
            }
        });
        let rest = json::object(|o| {
            for key in ["dialect", "model", "status", "error", "audit", "usage", "cost", "answer"] {
                root.get(key).map(|value| o.node(key, value));
            }
            target.as_ref().map(|target| o.raw("target", target));
            root.at("/microseconds/end").map(|end| o.node("microseconds", end));
        });
        join_objects(&head, &rest)
    }
}

/// Returns the newest calls of a Thread, newest first.
pub(crate) async fn calls_of_thread(
    request: &ApiRequest<'_>,
    thread: &LogHead,
    most: usize,
) -> ApiResult<Vec<RecordedCall>> {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let (after, mut calls) = (thread.last.saturating_sub(RECORDS_PER_THREAD), Vec::new());
    if is_conversation(&thread.log.0) {
        let call_in =
            |record: &Record, log: &LogId| RecordedCall::from_record(record, log, &thread.log);
        let mut pages = RecordPages::new(store, tenant, &thread.log, after);
        while let Some(records) = pages.next().await? {
            calls.extend(records.iter().filter_map(|record| call_in(record, &thread.log)));
        }
        // Each call without a reply has its own log.
        for head in store.runs_of(tenant, &thread.log, None, 128).await? {
            if head.log.0.starts_with(UNANSWERED_PREFIX) {
                let records = store.read(tenant, &head.log, 0, 1).await?;
                calls.extend(records.iter().filter_map(|record| call_in(record, &head.log)));
            }
        }
    }
    calls.sort_by_key(|call| std::cmp::Reverse((call.at, call.seq)));
    calls.truncate(most);
    Ok(calls)
}

/// Lists the calls of the tenant's Threads, starting with the most recently written Threads. A page
/// never splits a Thread.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let limit = row_limit(request, 100);
    let mut threads = LogList::new(request, LogKind::Thread);
    let (mut found, mut looked) = (Vec::new(), 0);
    while let Some(thread) = threads.next().await? {
        for call in calls_of_thread(request, &thread, MAX_CALLS_PER_THREAD).await? {
            let row = call.row();
            if matches_search(request, [row.as_str()]) {
                found.push(((call.at, call.seq), row));
            }
        }
        looked += 1;
        if found.len() >= limit || looked >= MOST_LOOKED {
            break;
        }
    }
    found.sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    let rows: Vec<Json> = found.into_iter().map(|(_, row)| row).collect();
    Ok(json_response(&object! { "calls": rows, "next"? threads.next.map(|next| next.0) }))
}

/// Returns the tenants whose calls the caller may see: the tenant of its gateway key, and the
/// tenant derived from its own provider key.
fn tenants(request: &ApiRequest<'_>) -> Vec<Tenant> {
    let claims = request.gateway.replay.claims();
    let own = request.caller.credential.as_ref();
    let own = own.map(|key| Tenant(claims.caller_tenant(key.reveal())));
    std::iter::once(request.caller.tenant.clone()).chain(own).collect()
}

/// Returns a call with secrets redacted, together with the rules that its record cites.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let node = TurnId(request.id(0));
    let policy = request.policy();
    for tenant in tenants(request) {
        if let Some(found) = request.gateway.replay.calls().find(&tenant, &node).await? {
            let record = redact_json(&policy, &throughline_replay::call_json(&node, &found));
            let rules = object! { "rules": rules_of(&record) };
            return Ok(GatewayResponse::json(200, &join_objects(&record, &rules)));
        }
    }
    Err(ApiError::not_found("call", &node.0))
}

/// Returns the rules that a call record cites, by id.
fn rules_of(record: &Json) -> Json {
    let tree = record.tree();
    let named = |list: &str, id: &str| {
        let mut met = tree.root().get(list).into_iter().flat_map(Node::elements);
        met.any(|one| one.get("rule").is_some_and(|rule| rule.is(id)))
    };
    let rules = CODECS.iter().flat_map(|codec| codec.rules());
    let rules = rules.filter(|rule| named("findings", rule.id) || named("repaired", rule.id));
    json::object(|o| {
        for rule in rules {
            let rule_json = object! {
                "title": rule.title, "why": rule.why, "fix": rule.fix,
                "provider_error"? rule.provider_error,
                "evidence": json::array(|a| put_evidence(a, rule)),
            };
            o.raw(rule.id, &rule_json);
        }
    })
}

/// Returns the first user message of a client's conversation.
pub(crate) async fn first_question(
    request: &ApiRequest<'_>,
    log: &LogId,
) -> ApiResult<Option<String>> {
    let name =
        log.0.strip_prefix(CONVERSATION_PREFIX).or_else(|| log.0.strip_prefix(UNANSWERED_PREFIX));
    let Some(name) = name else { return Ok(None) };
    let node = TurnId(Name::from(name));
    let found = request.gateway.replay.calls().find(&request.caller.tenant, &node).await?;
    let texts = found.and_then(|found| found.texts.ok());
    Ok(texts
        .and_then(|texts| Tree::parse(texts.received).ok())
        .and_then(|tree| first_user_text(tree.root())))
}

/// Returns the first user message of a request on any wire.
fn first_user_text(request: Node<'_>) -> Option<String> {
    let messages = ["messages", "input", "contents"].iter().find_map(|key| request.get(key))?;
    if let Some(text) = messages.text() {
        return Some(text.into_owned());
    }
    let is_user = |message: &Node<'_>| message.get("role").is_none_or(|role| role.is("user"));
    let message = messages.elements().find(is_user)?;
    let parts = message.get("content").or_else(|| message.get("parts"))?;
    match parts.text() {
        Some(text) => Some(text.into_owned()),
        None => parts.elements().find_map(|part| Some(part.text_of("text")?.into_owned())),
    }
}
