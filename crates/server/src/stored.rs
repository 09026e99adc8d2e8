//! Responses that are kept for their callers: `store`, `previous_response_id`, and what is asked of them later, whoever
//! answered.
//!
//! A kept response is a run of its conversation's thread with one record: the response as its caller was shown it, and who
//! has it besides us. What it was asked with is in its call's story, so nothing that was said before is kept again.
//!
//! With `previous_response_id` the conversation is put together as if the caller had sent all of it, and goes on like any other. To
//! the endpoint that gave that response and keeps it itself, the bytes go as they came.

use bytes::Bytes;
use throughline_core::{
    Content, Json, LogId, Name, Node, NodeId, Origin, StoreError, Target, Tenant, Tree, VaultKey,
    VaultTurn, json,
};

use crate::replay::{Parent, Replay};

mod items;

pub(crate) use crate::stored::items::{Listing, list, listed_position};

/// The log of a kept response.
pub(crate) fn log_of(node: &NodeId) -> LogId {
    LogId::from(format!("response-{node}"))
}

/// What is kept of a response: the response, whom its caller asked for, and who gave it.
pub(crate) fn record(response: &Json, user: Option<&str>, origin: &Origin) -> Json {
    json::object(|o| {
        o.number("v", 1).maybe_string("user", user);
        o.string("provider", &origin.provider).string("endpoint", &origin.endpoint);
        o.string("account", &origin.account).string("wire", origin.wire.as_str());
        o.raw("response", response);
    })
}

/// What a request wishes of what is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// Whether its response is to be kept: unsaid, it is.
    pub(crate) keeps: bool,
    /// The response that it goes on from.
    pub(crate) previous: Option<Name>,
}

impl Wish {
    pub(crate) fn of(body: &Tree) -> Self {
        let root = body.root();
        let keeps = root.get("store").and_then(Node::bool).unwrap_or(true);
        Self { keeps, previous: root.present(PREVIOUS).and_then(Node::name) }
    }
}

/// A response that another provider gave, with what OpenAI's say of their request.
pub(crate) fn echoed(response: &Bytes, request: &Bytes) -> Option<Json> {
    const ECHOED: [&str; 13] = [
        "instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        PREVIOUS,
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
    let own = |key: &str| request.root().present(key).filter(|_| ECHOED.contains(&key));
    Some(json::object(|o| {
        for (key, value) in response.root().members() {
            let key = key.text().unwrap_or_default();
            o.node(&key, own(&key).unwrap_or(value));
        }
        for key in ECHOED.iter().filter(|key| response.root().get(key).is_none()) {
            match own(key) {
                Some(value) => o.node(key, value),
                None if *key == "store" => o.bool(key, true),
                None => continue,
            };
        }
    }))
}

/// A response that was kept.
pub(crate) struct Stored {
    pub(crate) tenant: Tenant,
    pub(crate) node: NodeId,
    /// Where its conversation is.
    parent: Parent,
    record: Tree,
}

/// What a response's id names.
pub(crate) enum Named {
    Here(Box<Stored>),
    /// It was kept, and is no more.
    Gone,
    /// Nothing that was kept here.
    Unknown,
}

/// The response of that id, for any of these tenants.
pub(crate) async fn find(
    replay: &Replay,
    tenants: &[Tenant],
    id: &str,
) -> Result<Named, StoreError> {
    for tenant in tenants {
        let key = match replay.claims().read_response(tenant, id) {
            Some(node) => VaultKey::Claim(node.0),
            None => VaultKey::Id(Name::from(id)),
        };
        let found = replay.find(tenant, &[key]).await?.found.into_iter().next().flatten();
        let Some(turn) = found.map(|found| found.turn) else { continue };
        match read(replay, tenant, turn).await? {
            Named::Unknown => {}
            named => return Ok(named),
        }
    }
    Ok(Named::Unknown)
}

/// Reads the response that was kept for a captured turn.
pub(crate) async fn read(
    replay: &Replay,
    tenant: &Tenant,
    turn: VaultTurn,
) -> Result<Named, StoreError> {
    let records = match replay.store().read(tenant, &log_of(&turn.id), 0, 1).await {
        Err(StoreError::NotFound { .. }) => return Ok(Named::Unknown),
        records => records?,
    };
    let Some(Content::Here(content)) = records.first().map(|record| &record.content) else {
        return Ok(Named::Gone);
    };
    let damaged = |_| StoreError::Corrupt(Name::from("a kept response cannot be read"));
    let record = Tree::parse(content.clone()).map_err(damaged)?;
    let parent = Parent { node: turn.id.clone(), log: turn.log, last: turn.last };
    let stored = Stored { tenant: tenant.clone(), node: turn.id, parent, record };
    Ok(Named::Here(Box::new(stored)))
}

impl Stored {
    /// The response, as its caller was shown it.
    pub(crate) fn response(&self) -> Option<Json> {
        self.record.root().get("response").map(Node::json)
    }

    /// The output item of that id, as its caller was shown it.
    pub(crate) fn output_item(&self, id: &str) -> Option<Json> {
        let mut output = self.record.root().at("/response/output")?.elements();
        output.find(|item| item.get("id").is_some_and(|own| own.is(id))).map(Node::json)
    }

    /// Whether that end-user's conversation may go on from it.
    pub(crate) fn is_of(&self, user: Option<&str>) -> bool {
        self.record.root().text_of("user").as_deref() == user
    }

    /// Whether the target gave that response, and keeps it itself.
    pub(crate) fn is_at(&self, target: &Target) -> bool {
        let root = self.record.root();
        let origin = &target.origin;
        let is = |key: &str, value: &str| root.get(key).is_some_and(|node| node.is(value));
        target.provider.dialect.stores
            && is("provider", &origin.provider)
            && is("endpoint", &origin.endpoint)
            && is("account", &origin.account)
            && is("wire", origin.wire.as_str())
    }

    /// What the response was asked with, all of the conversation before it included; nothing where that is no more.
    pub(crate) async fn input(&self, replay: &Replay) -> Option<Vec<Json>> {
        let tail = replay.stories().tail(&self.tenant, &self.parent, None).await?;
        let tree = Tree::parse(tail.texts.whole.clone()).ok()?;
        Some(elements(tree.root().get("input")))
    }

    /// What was said up to the end of the response.
    async fn conversation(&self, replay: &Replay) -> Option<Vec<Json>> {
        let mut said = self.input(replay).await?;
        let response = self.response()?;
        let tree = response.tree();
        said.extend(tree.root().get("output")?.elements().map(Node::json));
        Some(said)
    }

    /// The request as if its caller had sent all of the conversation itself; nothing where that is no more.
    pub(crate) async fn unfolded(&self, replay: &Replay, body: &Bytes) -> Option<Bytes> {
        let mut said = self.conversation(replay).await?;
        let tree = Tree::parse(body.clone()).ok()?;
        said.extend(elements(tree.root().present("input")));
        let whole = json::object(|o| {
            for (key, value) in tree.root().members() {
                if !key.is("input") && !key.is(PREVIOUS) {
                    o.node(&key.text().unwrap_or_default(), value);
                }
            }
            o.raw("input", &json::array_of(&said));
        });
        Some(whole.bytes().clone())
    }
}

/// The member that names the response to go on from.
pub(crate) const PREVIOUS: &str = "previous_response_id";

/// The elements of an `input`, which may be a text only.
fn elements(input: Option<Node<'_>>) -> Vec<Json> {
    let Some(input) = input else { return Vec::new() };
    if input.is_string() {
        return vec![json::object(|o| {
            o.string("role", "user").node("content", input);
        })];
    }
    input.elements().map(Node::json).collect()
}
