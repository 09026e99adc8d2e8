//! Lists the gateway's calls, and shows one with secrets redacted.

use jiff::Timestamp;
use throughline_codec::{CODECS, put_evidence};
use throughline_core::{LogHead, LogId, LogKind, Record, Tenant, TurnId};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::console::{archive, parse_stored, redact};
use crate::response::GatewayResponse;
use throughline_replay::CALL_RECORD;
use throughline_replay::TURN;

/// How many of a thread's last records are read.
const RECORDS_PER_THREAD: u64 = 2000;
/// How many threads are read at a time, and at most for one page of the list.
const THREADS: u32 = 64;
const MOST_LOOKED: usize = 2000;
/// The most calls of one thread in the list, and about how many are on a page.
const MAX_CALLS_PER_THREAD: usize = 200;
const MOST: usize = 200;

/// Prefix of the name of a conversation's thread, before the id of its first call.
const CONVERSATION: &str = "conversation-";
/// Prefix of the name of the log of a call without a reply.
const UNANSWERED_PREFIX: &str = "call-";

/// Whether a log of that name is a client's conversation.
pub(crate) fn is_conversation(log: &str) -> bool {
    log.starts_with(CONVERSATION) || log.starts_with(UNANSWERED_PREFIX)
}

/// A recorded call without its bodies.
pub(crate) struct RecordedCall {
    pub(crate) id: TurnId,
    pub(crate) thread: LogId,
    pub(crate) at: Timestamp,
    /// The record that contains the call.
    pub(crate) seq: u64,
    account: Json,
}

impl RecordedCall {
    /// Reads the call in a record.
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

    /// The model of the call, and its provider.
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
        json::object(|o| {
            o.string("id", &self.id.0).string("thread", &self.thread.0);
            o.string("at", &self.at.to_string());
            for key in ["dialect", "model", "status", "error", "audit", "usage", "cost", "answer"] {
                if let Some(value) = root.get(key) {
                    o.node(key, value);
                }
            }
            if let Some(target) = root.get("target") {
                o.object("target", |o| {
                    for key in ["provider", "endpoint", "wire", "model"] {
                        o.maybe_string(key, target.text_of(key).as_deref());
                    }
                });
            }
            let end = root.get("microseconds").and_then(|times| times.get("end"));
            if let Some(end) = end {
                o.node("microseconds", end);
            }
        })
    }
}

/// The newest calls of a thread, newest first.
pub(crate) async fn calls_of_thread(
    asked: &ApiRequest<'_>,
    thread: &LogHead,
    most: usize,
) -> Result<Vec<RecordedCall>, ApiError> {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let (mut after, mut calls) = (thread.last.saturating_sub(RECORDS_PER_THREAD), Vec::new());
    if is_conversation(&thread.log.0) {
        loop {
            let records = store.read(tenant, &thread.log, after, 512).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            calls.extend(
                records
                    .iter()
                    .filter_map(|one| RecordedCall::from_record(one, &thread.log, &thread.log)),
            );
        }
        // Calls without a reply have a log each.
        for head in store.runs_of(tenant, &thread.log, None, 128).await? {
            if head.log.0.starts_with(UNANSWERED_PREFIX) {
                let records = store.read(tenant, &head.log, 0, 1).await?;
                calls.extend(
                    records
                        .iter()
                        .filter_map(|one| RecordedCall::from_record(one, &head.log, &thread.log)),
                );
            }
        }
    }
    calls.sort_by_key(|call| std::cmp::Reverse((call.at, call.seq)));
    calls.truncate(most);
    Ok(calls)
}

/// Lists the calls of the tenant's threads. Threads that were written to last come first, and a
/// page ends with a thread.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let (tenant, query) = (&asked.caller.tenant, &asked.query);
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(100).min(MOST);
    let sought = query.get("search").map(|sought| sought.to_lowercase());
    let is_sought = |row: &Json| {
        sought.as_ref().is_none_or(|sought| row.as_str().to_lowercase().contains(sought))
    };
    let mut after = query.get("after").cloned().map(LogId);
    let (mut found, mut looked) = (Vec::new(), 0);
    let next = 'pages: loop {
        let page = archive(asked)?.logs(tenant, LogKind::Thread, after.as_ref(), THREADS).await?;
        if page.is_empty() {
            break None;
        }
        for thread in &page {
            for call in calls_of_thread(asked, thread, MAX_CALLS_PER_THREAD).await? {
                let row = call.row();
                if is_sought(&row) {
                    found.push(((call.at, call.seq), row));
                }
            }
            after = Some(thread.log.clone());
            looked += 1;
            if found.len() >= limit || looked >= MOST_LOOKED {
                break 'pages after;
            }
        }
    };
    found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    let rows: Vec<Json> = found.into_iter().map(|(_, row)| row).collect();
    let told = json::object(|o| {
        o.raw("calls", &json::array_of(&rows));
        o.maybe_string("next", next.as_ref().map(|next| &*next.0));
    });
    Ok(GatewayResponse::json(200, &told))
}

/// The tenants whose calls the caller may see: its key's, and that of its own provider key.
fn tenants(asked: &ApiRequest<'_>) -> Vec<Tenant> {
    let claims = asked.gateway.replay.claims();
    let own = asked.caller.credential.as_ref();
    let own = own.map(|key| Tenant(claims.caller_tenant(key.reveal())));
    std::iter::once(asked.caller.tenant.clone()).chain(own).collect()
}

/// Shows a call with secrets redacted, and with the rules it met.
pub(crate) async fn show(asked: &ApiRequest<'_>) -> ApiResult {
    let node = TurnId(asked.id(0));
    let policy = asked.policy();
    for tenant in tenants(asked) {
        if let Some(found) = asked.gateway.replay.calls().find(&tenant, &node).await? {
            let told = redact(&policy, &throughline_replay::call_json(&node, &found));
            return Ok(GatewayResponse::json(200, &with_rules(&told)));
        }
    }
    Err(ApiError::not_found("call", &node.0))
}

/// Adds each rule that a call record names.
fn with_rules(told: &Json) -> Json {
    let tree = told.tree();
    let root = tree.root();
    let named = |list: &str, id: &str| {
        let mut met = root.get(list).into_iter().flat_map(Node::elements);
        met.any(|one| one.get("rule").is_some_and(|rule| rule.is(id)))
    };
    json::object(|o| {
        for (name, value) in root.members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
        o.object("rules", |o| {
            let rules = CODECS.iter().flat_map(|codec| codec.rules());
            for rule in
                rules.filter(|rule| named("findings", rule.id) || named("repaired", rule.id))
            {
                o.object(rule.id, |o| {
                    o.string("title", rule.title).string("why", rule.why).string("fix", rule.fix);
                    o.maybe_string("provider_error", rule.provider_error);
                    o.array("evidence", |a| put_evidence(a, rule));
                });
            }
        });
    })
}

/// The first question of a conversation.
pub(crate) async fn first_question(
    asked: &ApiRequest<'_>,
    log: &LogId,
) -> Result<Option<String>, ApiError> {
    let name = log.0.strip_prefix(CONVERSATION).or_else(|| log.0.strip_prefix(UNANSWERED_PREFIX));
    let Some(name) = name else { return Ok(None) };
    let node = TurnId(Name::from(name));
    let found = asked.gateway.replay.calls().find(&asked.caller.tenant, &node).await?;
    let texts = found.and_then(|found| found.texts.ok());
    Ok(texts
        .and_then(|texts| Tree::parse(texts.came).ok())
        .and_then(|tree| first_user_text(tree.root())))
}

/// The first user message of a request on any wire.
fn first_user_text(request: Node<'_>) -> Option<String> {
    let said = ["messages", "input", "contents"].iter().find_map(|key| request.get(key))?;
    if let Some(text) = said.text() {
        return Some(text.into_owned());
    }
    let is_user = |message: &Node<'_>| message.get("role").is_none_or(|role| role.is("user"));
    let message = said.elements().find(is_user)?;
    let parts = message.get("content").or_else(|| message.get("parts"))?;
    match parts.text() {
        Some(text) => Some(text.into_owned()),
        None => parts.elements().find_map(|part| Some(part.text_of("text")?.into_owned())),
    }
}
