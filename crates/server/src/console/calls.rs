//! Lists the gateway's calls, and shows a single call with secrets redacted.

use jiff::Timestamp;
use throughline_codec::{CODECS, put_evidence};
use throughline_core::{LogHead, LogId, LogKind, Record, Tenant, TurnId};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::api::{
    ApiError, ApiRequest, ApiResult, first_words, is_failed, json_response, restored_items,
};
use crate::console::reply::reply_items;
use crate::console::time_range::TimeRange;
use crate::console::{LogList, MOST_LOOKED, matches_search, parse_stored, row_limit};
use crate::object::{join_objects, object};
use crate::records::RecordPages;
use crate::redact::redact_json;
use crate::response::GatewayResponse;
use throughline_replay::{
    CALL_RECORD, CONVERSATION_PREFIX, TURN, UNANSWERED_PREFIX, is_conversation,
};

/// Number of most recent records to read per Thread.
const RECORDS_PER_THREAD: u64 = 2000;
const MAX_CALLS_PER_THREAD: usize = 200;
/// Maximum number of agents' Threads to skip for one page of the list of calls. They contain no
/// calls, and no record of them is read.
const MOST_SKIPPED: usize = 20 * MOST_LOOKED;

/// Returns whether a log with this name contains a call without a reply.
pub(crate) fn is_unanswered(log: &str) -> bool {
    log.starts_with(UNANSWERED_PREFIX)
}

/// Members of a call record that a list entry contains unchanged.
const COPIED: [&str; 9] =
    ["dialect", "model", "status", "error", "audit", "usage", "cost", "answer", "fate_counts"];
/// Maximum length of a call's title in characters.
const MAX_TITLE: usize = 140;

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
            for key in COPIED {
                root.get(key).map(|value| o.node(key, value));
            }
            target.as_ref().map(|target| o.raw("target", target));
            root.at("/microseconds/end").map(|end| o.node("microseconds", end));
            root.at("/microseconds/first_byte").map(|time| o.node("first_byte", time));
        });
        join_objects(&head, &rest)
    }
}

/// Returns the newest calls of a Thread, newest first. The calls of a fork start with those that it
/// shares with its origin.
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
            if is_unanswered(&head.log.0) {
                let records = store.read(tenant, &head.log, 0, 1).await?;
                calls.extend(records.iter().filter_map(|record| call_in(record, &head.log)));
            }
        }
    }
    calls.sort_by_key(|call| std::cmp::Reverse((call.at, call.seq)));
    calls.truncate(most);
    Ok(calls)
}

/// The filters in a query for calls.
struct CallFilter<'r> {
    request: &'r ApiRequest<'r>,
    range: TimeRange,
    only_restored: bool,
}

impl<'r> CallFilter<'r> {
    fn new(request: &'r ApiRequest<'r>) -> ApiResult<Self> {
        let range = TimeRange::from_query(request)?;
        let only_restored = request.query.bool("restored").unwrap_or(false);
        Ok(Self { request, range, only_restored })
    }

    fn matches(&self, call: &RecordedCall) -> bool {
        let query = |name: &str| self.request.query.get(name);
        let tree = call.account.tree();
        let root = tree.root();
        let is = |node: Option<Node<'_>>, value: &str| node.is_some_and(|node| node.is(value));
        let has_status = |status: &Name| match &**status {
            "ok" => !is_failed(root),
            "failed" => is_failed(root),
            status => root.get("status").and_then(Node::u64) == status.parse().ok(),
        };
        let has_model =
            |model: &Name| is(root.get("model"), model) || is(root.at("/target/model"), model);
        self.range.contains(call.at)
            && query("status").is_none_or(has_status)
            && query("model").is_none_or(has_model)
            && query("audit").is_none_or(|verdict| is(root.get("audit"), verdict))
            && (!self.only_restored || restored_items(root) > 0)
    }
}

/// Lists the calls of the tenant's Threads, starting with the most recently written Threads. A page
/// never splits a Thread. The title of a call is the start of its conversation.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let (limit, filter) = (row_limit(request, 100), CallFilter::new(request)?);
    let mut threads = LogList::new(request, LogKind::Thread);
    let (mut found, mut looked, mut skipped) = (Vec::new(), 0, 0);
    while let Some(thread) = threads.next().await? {
        // The Threads are sorted by their last write, so all further calls are older, too.
        if filter.range.is_before(thread.updated) {
            threads.next = None;
            break;
        }
        if !is_conversation(&thread.log.0) {
            threads.enlarge_pages();
            skipped += 1;
            if skipped >= MOST_SKIPPED {
                break;
            }
            continue;
        }
        let mut rows = Vec::new();
        // The origin of a fork lists the calls that they share.
        let shared = thread.fork.as_ref().map_or(0, |fork| fork.at);
        let calls = calls_of_thread(request, &thread, MAX_CALLS_PER_THREAD).await?;
        for call in calls.into_iter().filter(|call| call.thread != thread.log || call.seq > shared)
        {
            let row = call.row();
            if filter.matches(&call) && matches_search(request, [row.as_str()]) {
                rows.push(((call.at, call.seq), row));
            }
        }
        if !rows.is_empty() {
            let title = title(request, &thread.log).await?;
            let title = object! { "title"? title };
            found.extend(rows.into_iter().map(|(at, row)| (at, join_objects(&row, &title))));
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
            let reply = match &found.turn {
                Some(turn) => Some(reply_items(request, &tenant, turn).await?),
                None => None,
            };
            let more = object! { "rules": rules_of(&record), "reply"? reply };
            return Ok(GatewayResponse::json(200, &join_objects(&record, &more)));
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

/// Returns the start of a client's conversation, redacted; `None` if it contains no text or was
/// erased.
pub(crate) async fn title(request: &ApiRequest<'_>, log: &LogId) -> ApiResult<Option<String>> {
    let question = first_question(request, log).await?;
    Ok(question.map(|text| first_words(&request.policy().redact_text(&text), MAX_TITLE)))
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
