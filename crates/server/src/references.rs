//! Replaces references to stored items with the items themselves, before a request is decoded.
//!
//! A client of the Responses API may send `{"type":"item_reference","id":…}` instead of an item that the
//! provider stores. Only the provider that stores an item can resolve its id, and no provider knows the ids
//! that the gateway mints. So each reference is looked up among the responses kept for this tenant:
//!
//! | the item | is sent |
//! |---|---|
//! | kept by the target itself, under an id of its own | as the reference, unchanged |
//! | kept here | as the item, without the id that the gateway minted |
//! | not found, and the target may store it | as the reference, unchanged |
//! | not found otherwise, deleted, or of another end user | not at all: the request is refused |

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use throughline_core::{Json, Name, Node, Request, Target, Tree, VaultKey, Wire, json};

use crate::exchange::{Exchange, Problem};
use crate::gateway::{Reached, ReplayMode};
use crate::replay::Claims;
use crate::stored::{self, Named, Stored};
use crate::telling::unreadable;

/// A request whose references are resolved.
pub(crate) struct References {
    /// The request with every known item in place of its reference, and with its own id.
    pub(crate) whole: Bytes,
    /// The same without ids that the gateway minted. It is what the gateway decodes.
    pub(crate) expanded: Request,
    /// The request for the target: references to items that the target keeps are left as they came.
    pub(crate) for_target: Request,
    /// Whether `for_target` has such references.
    pub(crate) has_kept_items: bool,
}

/// What a reference resolves to.
enum Resolved {
    /// An item that is kept here. `is_at_target` says whether the target keeps it, too.
    Item { json: Json, is_at_target: bool },
    /// No item is known here; the target may know one.
    AtTarget,
}

/// An element of `input` that has to change.
enum Element<'t> {
    Reference(Node<'t>, Name),
    /// An item whose id the gateway minted.
    MintedId(Node<'t>),
}

impl Exchange<'_> {
    /// Resolves the references of a request for that target; `None` if no part of the request has to change.
    pub(crate) async fn resolve_references(
        &self,
        request: &Request,
        body: Option<&Tree>,
        reached: &Reached,
        end_user: Option<&str>,
    ) -> Result<Option<References>, Problem> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return Ok(None);
        }
        let parsed;
        let tree = match body.filter(|body| body.is_of(&request.body)) {
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
        let elements: Vec<Element<'_>> = elements(tree).collect();
        if elements.is_empty() {
            return Ok(None);
        }
        let (target, _) = self.target(reached);
        let ids = elements.iter().filter_map(|element| match element {
            Element::Reference(_, id) => Some(id.clone()),
            Element::MintedId(_) => None,
        });
        let resolved = self.look_up(ids.collect(), &target, end_user).await?;
        Ok(Some(References::new(request, &elements, &resolved)))
    }

    /// Whether a body that is not parsed may have references or minted ids. It was made from the request that
    /// came, and from kept conversations, which have no references.
    fn may_have_references(&self, body: &Bytes) -> bool {
        let has = |word: &str| memchr::memmem::find(body, word.as_bytes()).is_some();
        has("item_reference")
            || has("resp_tl1")
            || self.body.as_ref().is_some_and(|came| elements(came).next().is_some())
    }

    /// Looks up items by their ids. An id that neither the store nor the target can know is refused.
    async fn look_up(
        &self,
        ids: Vec<Name>,
        target: &Target,
        end_user: Option<&str>,
    ) -> Result<HashMap<Name, Resolved>, Problem> {
        let mut resolved = HashMap::with_capacity(ids.len());
        let mut responses = HashMap::new();
        for id in ids {
            if resolved.contains_key(&id) {
                continue;
            }
            let found = match self.gateway.mode {
                ReplayMode::Off => None,
                ReplayMode::Observe | ReplayMode::Repair | ReplayMode::Enforce => {
                    self.find_item(&id, end_user, target, &mut responses).await?
                }
            };
            let is_minted = Claims::response_in_item(&id).is_some();
            let may_be_there = !is_minted
                && target.origin.wire == Wire::OPENAI_RESPONSES
                && target.provider.dialect.stores;
            let item = found.or_else(|| may_be_there.then_some(Resolved::AtTarget));
            let item = item.ok_or_else(|| item_not_found(&id))?;
            resolved.insert(id, item);
        }
        Ok(resolved)
    }

    /// Finds an item among the responses that are kept for this caller and end user. `responses` holds those
    /// that were read before.
    async fn find_item(
        &self,
        id: &Name,
        end_user: Option<&str>,
        target: &Target,
        responses: &mut HashMap<Name, Named>,
    ) -> Result<Option<Resolved>, Problem> {
        let replay = &self.gateway.replay;
        for tenant in self.tenants() {
            let minted = Claims::response_in_item(id);
            let listed = stored::listed_position(id);
            let key = match (minted, &listed) {
                (Some(response), _) => match replay.claims().read_response(&tenant, response) {
                    Some(node) => VaultKey::Claim(node.0),
                    None => continue,
                },
                (None, Some((node, _))) => VaultKey::Claim(node.0.clone()),
                (None, None) => VaultKey::Id(id.clone()),
            };
            let sight = replay.find(&tenant, std::slice::from_ref(&key)).await;
            let sight = sight.map_err(|error| unreadable(&error))?;
            let Some(turn) = sight.found.into_iter().flatten().next().map(|found| found.turn)
            else {
                continue;
            };
            let node = turn.id.0.clone();
            if !responses.contains_key(&node) {
                let named = stored::read(replay, &tenant, turn).await;
                responses.insert(node.clone(), named.map_err(|error| unreadable(&error))?);
            }
            let stored = match responses.get(&node) {
                Some(Named::Here(stored)) if stored.is_of(end_user) => stored,
                Some(Named::Here(_) | Named::Gone) => return Err(item_not_found(id)),
                Some(Named::Unknown) | None => continue,
            };
            let json = match listed.filter(|_| minted.is_none()) {
                Some((_, at)) => stored
                    .input(replay)
                    .await
                    .and_then(|mut input| (at < input.len()).then(|| input.swap_remove(at))),
                None => stored.output_item(id),
            };
            let Some(json) = json else { continue };
            let is_at_target = minted.is_none() && is_kept_by(stored, target);
            return Ok(Some(Resolved::Item { json, is_at_target }));
        }
        Ok(None)
    }
}

/// The elements of `input` that have to change.
fn elements(tree: &Tree) -> impl Iterator<Item = Element<'_>> {
    let input = tree.root().get("input").filter(|input| input.is_array());
    input.into_iter().flat_map(Node::elements).filter_map(Element::new)
}

/// Whether the target gave that response and keeps it under ids of its own.
fn is_kept_by(stored: &Stored, target: &Target) -> bool {
    target.origin.wire == Wire::OPENAI_RESPONSES && stored.is_at(target)
}

impl<'t> Element<'t> {
    /// What has to change about an element of `input`, if anything.
    fn new(node: Node<'t>) -> Option<Self> {
        let id = node.present("id").and_then(Node::name)?;
        let is_reference = match node.present("type") {
            Some(kind) => kind.is("item_reference"),
            // The type of a reference is optional: it has an id and nothing else.
            None => node.members().count() == 1,
        };
        if is_reference {
            return Some(Self::Reference(node, id));
        }
        Claims::response_in_item(&id).map(|_| Self::MintedId(node))
    }
}

impl References {
    fn new(
        request: &Request,
        elements: &[Element<'_>],
        resolved: &HashMap<Name, Resolved>,
    ) -> Self {
        let (mut whole, mut expanded, mut for_target) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_kept_items = false;
        for element in elements {
            match element {
                Element::MintedId(node) => {
                    let bare = without_id(*node);
                    expanded.push((node.range(), bare.clone()));
                    for_target.push((node.range(), bare));
                }
                Element::Reference(node, id) => match resolved.get(id) {
                    Some(Resolved::Item { json, is_at_target }) => {
                        let is_minted = Claims::response_in_item(id).is_some();
                        let tree = json.tree();
                        let bare = if is_minted { without_id(tree.root()) } else { json.clone() };
                        whole.push((node.range(), json.clone()));
                        expanded.push((node.range(), bare.clone()));
                        has_kept_items |= is_at_target;
                        if !is_at_target {
                            for_target.push((node.range(), bare));
                        }
                    }
                    Some(Resolved::AtTarget) | None => has_kept_items = true,
                },
            }
        }
        let request_of = |edits: &[(Range<usize>, Json)]| Request {
            body: edited(&request.body, edits),
            ..request.clone()
        };
        Self {
            whole: edited(&request.body, &whole),
            expanded: request_of(&expanded),
            for_target: request_of(&for_target),
            has_kept_items,
        }
    }
}

/// The body with these parts replaced. The parts are in order; every other byte stays as it is.
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
    json::object(|o| {
        for (key, value) in node.members().filter(|(key, _)| !key.is("id")) {
            o.node(&key.text().unwrap_or_default(), value);
        }
    })
}

/// In OpenAI's words, with what to do about it.
fn item_not_found(id: &str) -> Problem {
    Problem::new(
        404,
        format!(
            "Item with id '{id}' not found. Items are kept for responses that were created here with `store` set to \
             true. Send the item itself instead of a reference, or create the response with `store` set to true."
        ),
    )
}
