//! Replaces references to stored items with the items, before a request is decoded.
//!
//! A client of the Responses API may send `{"type":"item_reference","id":…}` instead of an item
//! that the provider stores. Only the provider that stores an item can resolve its id, and no
//! provider can resolve the ids that the gateway mints. So each reference is looked up among the
//! responses stored for this tenant:
//!
//! | item | sent as |
//! |---|---|
//! | stored by the target, under the target's id | the reference, unchanged |
//! | stored here | the item, without the id that the gateway minted |
//! | not found, and the target may store it | the reference, unchanged |
//! | not found otherwise, deleted, or of another end user | nothing: the request is refused |

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use throughline_core::{Request, Target, VaultKey, Wire};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::ReplayMode;
use crate::gateway::exchange::Exchange;
use crate::object::put_members;
use crate::routing::RouteTarget;
use throughline_replay::{Claims, Lookup};

/// A request with its references resolved.
pub(crate) struct ResolvedReferences {
    /// The request in which stored items, with their ids, replace all references.
    pub(crate) with_ids: Bytes,
    /// Like `with_ids`, but without ids that the gateway minted. The gateway decodes this version.
    pub(crate) expanded: Request,
    /// The request for the target. References to items that the target stores are unchanged.
    pub(crate) for_target: Request,
    /// Whether `for_target` still contains references.
    pub(crate) has_kept_items: bool,
}

/// The result of resolving a reference.
enum ReferenceTarget {
    /// The gateway stores the item. `is_at_target` is set if the target stores the item as well.
    Item { json: Json, is_at_target: bool },
    /// The gateway does not store the item, but the target may store it.
    AtTarget,
}

/// An element of `input` that must change.
enum InputElement<'t> {
    Reference(Node<'t>, Name),
    /// An item whose id the gateway minted.
    MintedId(Node<'t>),
}

impl Exchange<'_> {
    /// Resolves the references in a request for this target; `None` if the request needs no change.
    pub(crate) async fn resolve_references(
        &self,
        request: &Request,
        reached: &RouteTarget,
    ) -> GatewayResult<Option<ResolvedReferences>> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return Ok(None);
        }
        let parsed;
        let tree = match self.body.as_ref().filter(|body| body.indexes(&request.body)) {
            Some(body) => body,
            None => {
                if !self.may_have_references(&request.body) {
                    return Ok(None);
                }
                let Ok(tree) = Tree::parse(request.body.clone()) else { return Ok(None) };
                parsed = tree;
                &parsed
            }
        };
        let elements: Vec<InputElement<'_>> = elements(tree).collect();
        if elements.is_empty() {
            return Ok(None);
        }
        let (target, _) = self.target(reached);
        let ids = elements.iter().filter_map(|element| match element {
            InputElement::Reference(_, id) => Some(id.clone()),
            InputElement::MintedId(_) => None,
        });
        let resolved = self.look_up(ids.collect(), &target).await?;
        Ok(Some(ResolvedReferences::new(request, &elements, &resolved)))
    }

    /// Returns whether an unparsed body may contain references or minted ids. The body combines the
    /// received request with stored conversations. Stored conversations contain no references.
    fn may_have_references(&self, body: &Bytes) -> bool {
        let has = |key: &str| memchr::memmem::find(body, key.as_bytes()).is_some();
        has("item_reference") || has("resp_tl1") || self.received_references()
    }

    /// Returns whether the received request contains references or minted ids.
    pub(crate) fn received_references(&self) -> bool {
        self.wire == Wire::OPENAI_RESPONSES
            && self.body.as_ref().is_some_and(|body| elements(body).next().is_some())
    }

    /// Looks up items by their ids. An id that neither the store nor the target can resolve is
    /// refused.
    async fn look_up(
        &self,
        ids: Vec<Name>,
        target: &Target,
    ) -> GatewayResult<HashMap<Name, ReferenceTarget>> {
        let mut resolved = HashMap::with_capacity(ids.len());
        let mut responses = HashMap::new();
        for id in ids {
            if resolved.contains_key(&id) {
                continue;
            }
            let found = match self.gateway.mode {
                ReplayMode::Off => None,
                ReplayMode::Observe | ReplayMode::Repair | ReplayMode::Enforce => {
                    self.find_item(&id, target, &mut responses).await?
                }
            };
            let is_minted = Claims::response_in_item(&id).is_some();
            let may_be_there = !is_minted
                && target.origin.wire == Wire::OPENAI_RESPONSES
                && target.provider.dialect.stores;
            let item = found.or_else(|| may_be_there.then_some(ReferenceTarget::AtTarget));
            let item = item.ok_or_else(|| item_not_found(&id))?;
            resolved.insert(id, item);
        }
        Ok(resolved)
    }

    /// Finds an item among the responses stored for this caller and end user. `responses` caches
    /// the responses that were read before.
    async fn find_item(
        &self,
        id: &Name,
        target: &Target,
        responses: &mut HashMap<Name, Lookup>,
    ) -> GatewayResult<Option<ReferenceTarget>> {
        let (replay, end_user) = (&self.gateway.replay, self.end_user.as_deref());
        for tenant in self.readable_tenants() {
            let minted = Claims::response_in_item(id);
            let listed = throughline_replay::listed_position(id);
            let key = match (minted, &listed) {
                (Some(response), _) => match replay.claims().read_response(&tenant, response) {
                    Some(node) => VaultKey::Claim(node.0),
                    None => continue,
                },
                (None, Some((node, _))) => VaultKey::Claim(node.0.clone()),
                (None, None) => VaultKey::Id(id.clone()),
            };
            let found = replay.find(&tenant, std::slice::from_ref(&key)).await?.found;
            let Some(turn) = found.into_iter().flatten().next().map(|found| found.turn) else {
                continue;
            };
            let node = turn.id.0.clone();
            if !responses.contains_key(&node) {
                let response = throughline_replay::read_response(replay, &tenant, turn).await?;
                responses.insert(node.clone(), response);
            }
            let stored = match responses.get(&node) {
                Some(Lookup::Here(stored)) if stored.belongs_to(end_user) => stored,
                Some(Lookup::Here(_) | Lookup::Gone) => return Err(item_not_found(id)),
                Some(Lookup::Unknown) | None => continue,
            };
            let json = match listed.filter(|_| minted.is_none()) {
                Some((_, at)) => stored
                    .input(replay)
                    .await
                    .and_then(|mut input| (at < input.len()).then(|| input.swap_remove(at))),
                None => stored.output_item(id),
            };
            let Some(json) = json else { continue };
            let is_at_target = minted.is_none()
                && target.origin.wire == Wire::OPENAI_RESPONSES
                && stored.is_stored_at(target);
            return Ok(Some(ReferenceTarget::Item { json, is_at_target }));
        }
        Ok(None)
    }
}

/// Returns the elements of `input` that must change.
fn elements(tree: &Tree) -> impl Iterator<Item = InputElement<'_>> {
    let input = tree.root().get("input").filter(|input| input.is_array());
    input.into_iter().flat_map(Node::elements).filter_map(InputElement::new)
}

impl<'t> InputElement<'t> {
    /// Classifies an element of `input`; `None` if it needs no change.
    fn new(node: Node<'t>) -> Option<Self> {
        let id = node.present("id").and_then(Node::name)?;
        let is_reference = match node.present("type") {
            Some(kind) => kind.is("item_reference"),
            // The type of a reference is optional: an element with only an id is a reference.
            None => node.members().count() == 1,
        };
        if is_reference {
            return Some(Self::Reference(node, id));
        }
        Claims::response_in_item(&id).map(|_| Self::MintedId(node))
    }
}

impl ResolvedReferences {
    fn new(
        request: &Request,
        elements: &[InputElement<'_>],
        resolved: &HashMap<Name, ReferenceTarget>,
    ) -> Self {
        let (mut with_ids, mut expanded, mut for_target) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_kept_items = false;
        for element in elements {
            match element {
                InputElement::MintedId(node) => {
                    let item_without_id = without_id(*node);
                    expanded.push((node.range(), item_without_id.clone()));
                    for_target.push((node.range(), item_without_id));
                }
                InputElement::Reference(node, id) => match resolved.get(id) {
                    Some(ReferenceTarget::Item { json, is_at_target }) => {
                        let is_minted = Claims::response_in_item(id).is_some();
                        let tree = json.tree();
                        let item_without_id =
                            if is_minted { without_id(tree.root()) } else { json.clone() };
                        with_ids.push((node.range(), json.clone()));
                        expanded.push((node.range(), item_without_id.clone()));
                        has_kept_items |= is_at_target;
                        if !is_at_target {
                            for_target.push((node.range(), item_without_id));
                        }
                    }
                    Some(ReferenceTarget::AtTarget) | None => has_kept_items = true,
                },
            }
        }
        let request_of = |edits: &[(Range<usize>, Json)]| Request {
            body: edited(&request.body, edits),
            ..request.clone()
        };
        Self {
            with_ids: edited(&request.body, &with_ids),
            expanded: request_of(&expanded),
            for_target: request_of(&for_target),
            has_kept_items,
        }
    }
}

/// Replaces ranges of a body and leaves every other byte unchanged. `edits` must be in ascending
/// order.
fn edited(body: &Bytes, edits: &[(Range<usize>, Json)]) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    let mut out = Vec::with_capacity(body.len());
    let mut next = 0;
    for (range, json) in edits {
        out.extend_from_slice(body.get(next..range.start).unwrap_or_default());
        out.extend_from_slice(json.bytes());
        next = range.end;
    }
    out.extend_from_slice(body.get(next..).unwrap_or_default());
    Bytes::from(out)
}

fn without_id(node: Node<'_>) -> Json {
    json::object(|o| put_members(o, node.members().filter(|(key, _)| !key.is("id"))))
}

/// Returns the error for a missing item: OpenAI's message, and how to avoid the error.
fn item_not_found(id: &str) -> GatewayError {
    let message = format!(
        "Item with id '{id}' not found. Items are stored for responses that were created here with \
         `store` set to true. Send the item itself instead of a reference, or create the response \
         with `store` set to true."
    );
    GatewayError::new(404, message)
}
