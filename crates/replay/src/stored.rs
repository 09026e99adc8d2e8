//! Stored responses for the Responses API (`store`, `previous_response_id` and later retrieval),
//! with any provider.
//!
//! A stored response is a Run with one record, in the Thread of its conversation. The record
//! contains the response as sent to the caller, the end user, and the provider, which may store the
//! response too. The request is part of the call record, so earlier messages are not stored twice.
//!
//! A request with `previous_response_id` is expanded to the whole conversation and then handled
//! like any other request. If the target itself stores the previous response, the request is
//! forwarded unchanged.

use bytes::Bytes;
use throughline_core::{Content, Origin, StoreError, Target, Tenant, TurnId, VaultKey, VaultTurn};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::engine::Replay;
use crate::turn::{ParentTurn, response_log};

mod items;

pub use crate::stored::items::{InputItemsQuery, list, listed_position};

/// Returns the record that stores a response: the response, its end user and its origin.
pub fn record(response: &Json, user: Option<&str>, origin: &Origin) -> Json {
    json::object(|o| {
        o.number("v", 1).maybe_string("user", user);
        o.string("provider", &origin.provider).string("endpoint", &origin.endpoint);
        o.string("account", &origin.account).string("wire", origin.wire.as_str());
        o.raw("response", response);
    })
}

/// The storage options in a Responses API request.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Whether to store the response; the default is true.
    pub keeps: bool,
    /// The id of the response that the request continues, if any.
    pub previous: Option<Name>,
}

impl StoreOptions {
    /// Reads `store` and `previous_response_id` from a request body.
    pub fn from_body(body: &Tree) -> Self {
        let root = body.root();
        let keeps = root.get("store").and_then(Node::bool).unwrap_or(true);
        Self { keeps, previous: root.present(PREVIOUS_RESPONSE_ID).and_then(Node::name) }
    }
}

/// Returns another provider's response with the request fields added that OpenAI echoes in its
/// responses.
pub fn echoed(response: &Bytes, request: &Bytes) -> Option<Json> {
    const ECHOED: [&str; 13] = [
        "instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        PREVIOUS_RESPONSE_ID,
        "reasoning",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
    ];
    let (response, request) = (Tree::parse(response.clone()), Tree::parse(request.clone()));
    let (response, request) = (response.ok()?, request.ok()?);
    let requested = |key: &str| request.root().present(key).filter(|_| ECHOED.contains(&key));
    Some(json::object(|o| {
        for (key, value) in response.root().members() {
            let key = key.text().unwrap_or_default();
            o.node(&key, requested(&key).unwrap_or(value));
        }
        for key in ECHOED.iter().filter(|key| response.root().get(key).is_none()) {
            match requested(key) {
                Some(value) => o.node(key, value),
                None if *key == "store" => o.bool(key, true),
                None => continue,
            };
        }
    }))
}

/// A response that the gateway stored, read from its record.
pub struct StoredResponse {
    /// The tenant that owns the response.
    pub tenant: Tenant,
    /// The id of the turn that contains the reply.
    pub node: TurnId,
    /// The stored turn, for use as the parent of a continuation.
    parent: ParentTurn,
    record: Tree,
}

/// The result of looking up a response id.
pub enum Lookup {
    /// The response is stored and was read.
    Here(Box<StoredResponse>),
    /// The response was stored and has been erased.
    Gone,
    /// No stored response has this id.
    Unknown,
}

/// Finds a stored response by id among the responses of these tenants.
pub async fn find(replay: &Replay, tenants: &[Tenant], id: &str) -> Result<Lookup, StoreError> {
    for tenant in tenants {
        let key = match replay.claims().read_response(tenant, id) {
            Some(node) => VaultKey::Claim(node.0),
            None => VaultKey::Id(Name::from(id)),
        };
        let found = replay.find(tenant, &[key]).await?.found.into_iter().next().flatten();
        let Some(turn) = found.map(|found| found.turn) else { continue };
        match read(replay, tenant, turn).await? {
            Lookup::Unknown => {}
            named => return Ok(named),
        }
    }
    Ok(Lookup::Unknown)
}

/// Reads the stored response of a captured turn.
pub async fn read(replay: &Replay, tenant: &Tenant, turn: VaultTurn) -> Result<Lookup, StoreError> {
    let records = match replay.store().read(tenant, &response_log(&turn.id), 0, 1).await {
        Err(StoreError::NotFound { .. }) => return Ok(Lookup::Unknown),
        records => records?,
    };
    let Some(Content::Here(content)) = records.first().map(|record| &record.content) else {
        return Ok(Lookup::Gone);
    };
    let damaged = |_| {
        StoreError::Corrupt(format!("the stored response of turn {} is invalid", turn.id).into())
    };
    let record = Tree::parse(content.clone()).map_err(damaged)?;
    let parent = ParentTurn { node: turn.id.clone(), log: turn.log, last: turn.last };
    let stored = StoredResponse { tenant: tenant.clone(), node: turn.id, parent, record };
    Ok(Lookup::Here(Box::new(stored)))
}

impl StoredResponse {
    /// Returns the response as sent to the caller.
    pub fn response(&self) -> Option<Json> {
        self.record.root().get("response").map(Node::json)
    }

    /// Returns the output item with this id, as sent to the caller.
    pub fn output_item(&self, id: &str) -> Option<Json> {
        let mut output = self.record.root().at("/response/output")?.elements();
        output.find(|item| item.get("id").is_some_and(|own| own.is(id))).map(Node::json)
    }

    /// Whether a request from this end user may continue the response.
    pub fn belongs_to(&self, user: Option<&str>) -> bool {
        self.record.root().text_of("user").as_deref() == user
    }

    /// Returns the account that produced the response, if the target's endpoint produced it.
    pub fn account_at(&self, target: &Target) -> Option<Name> {
        let root = self.record.root();
        let is = |key: &str, value: &str| root.get(key).is_some_and(|node| node.is(value));
        let origin = &target.origin;
        let is_there = is("provider", &origin.provider) && is("endpoint", &origin.endpoint);
        root.name_of("account").filter(|_| is_there)
    }

    /// Whether the target produced this response and stores it itself.
    pub fn is_stored_at(&self, target: &Target) -> bool {
        let root = self.record.root();
        let origin = &target.origin;
        let is = |key: &str, value: &str| root.get(key).is_some_and(|node| node.is(value));
        target.provider.dialect.stores
            && is("provider", &origin.provider)
            && is("endpoint", &origin.endpoint)
            && is("account", &origin.account)
            && is("wire", origin.wire.as_str())
    }

    /// Returns the response's input, including the earlier conversation; `None` if the conversation
    /// was erased.
    pub async fn input(&self, replay: &Replay) -> Option<Vec<Json>> {
        let tail = replay.calls().tail(&self.tenant, &self.parent, None).await?;
        let tree = Tree::parse(tail.texts.expanded.clone()).ok()?;
        Some(elements(tree.root().get("input")))
    }

    /// Returns the conversation up to and including the response; `None` if the conversation was
    /// erased.
    async fn conversation(&self, replay: &Replay) -> Option<Vec<Json>> {
        let mut items = self.input(replay).await?;
        let response = self.response()?;
        let tree = response.tree();
        items.extend(tree.root().get("output")?.elements().map(Node::json));
        Some(items)
    }

    /// Expands a request that continues this response to the whole conversation; `None` if the
    /// conversation was erased.
    pub async fn unfolded(&self, replay: &Replay, body: &Bytes) -> Option<Bytes> {
        let mut items = after_compaction(self.conversation(replay).await?);
        let tree = Tree::parse(body.clone()).ok()?;
        items.extend(elements(tree.root().present("input")));
        let members = tree.root().members();
        let members = members.filter(|(key, _)| !key.is("input") && !key.is(PREVIOUS_RESPONSE_ID));
        let expanded = json::object(|out| {
            out.nodes(members).list("input", &items);
        });
        Some(expanded.bytes().clone())
    }
}

/// The request field with the id of the response to continue.
pub const PREVIOUS_RESPONSE_ID: &str = "previous_response_id";

/// Returns the items that still count after the last compaction: the compaction itself, the items
/// after it, and all instructions.
fn after_compaction(mut items: Vec<Json>) -> Vec<Json> {
    let is = |item: &Json, key: &str, values: &[&str]| {
        let tree = item.tree();
        tree.root().get(key).is_some_and(|member| values.iter().any(|value| member.is(value)))
    };
    let Some(at) = items.iter().rposition(|item| is(item, "type", &["compaction_trigger"])) else {
        return items;
    };
    let rest = items.split_off(at + 1);
    items.retain(|item| is(item, "role", &["system", "developer"]));
    items.extend(rest);
    items
}

/// Returns the items of an `input`. A plain string becomes a user message.
fn elements(input: Option<Node<'_>>) -> Vec<Json> {
    let Some(input) = input else { return Vec::new() };
    if input.is_string() {
        return vec![json::object!("role": "user", "content": input)];
    }
    input.elements().map(Node::json).collect()
}
