//! The request as the rules look at it: its elements in one pass, borrowed, with what each of them pairs with.

use std::borrow::Cow;
use std::collections::HashSet;

use throughline_core::{Node, Role};

use crate::Case;
use crate::responses::decode;
use crate::responses::wire::Kind;

/// The most elements that one reasoning item leads to.
const MOST_LED: usize = 64;

/// A request, looked at once.
pub(super) struct View<'c> {
    /// The body.
    pub(super) root: Node<'c>,
    /// The elements of `input`, in order.
    pub(super) elements: Vec<Element<'c>>,
    /// Whether the endpoint keeps this conversation, so that ids resolve.
    pub(super) is_kept: bool,
    /// Whether ids pair reasoning with what it led to.
    pub(super) is_paired: bool,
    /// Whether the endpoint has earlier elements of its own: an answer or a conversation is gone on with.
    pub(super) is_resumed: bool,
}

/// One element of `input`.
#[derive(Clone, Copy)]
pub(super) struct Element<'c> {
    /// Its number.
    pub(super) index: usize,
    /// The element.
    pub(super) node: Node<'c>,
    /// What it is.
    pub(super) kind: Kind,
    /// Its own id.
    pub(super) id: Option<Node<'c>>,
    /// The id that joins a call and its output.
    pub(super) call_id: Option<Node<'c>>,
    /// The opaque value of reasoning or of a compaction.
    pub(super) seal: Option<Node<'c>>,
    /// Whether the model said it.
    pub(super) is_models: bool,
    /// The number of the first element behind it that is no reasoning.
    pub(super) next: Option<usize>,
}

impl<'c> View<'c> {
    /// Looks at a request.
    pub(super) fn of(case: &Case<'c>) -> Self {
        let root = case.body();
        let dialect = &case.target().provider.dialect;
        let is_declined = root.present("store").and_then(Node::bool) == Some(false);
        let is_resumed = ["previous_response_id", "conversation"]
            .iter()
            .any(|member| root.present(member).is_some());
        let input = root.present("input").into_iter().flat_map(Node::elements);
        let mut elements: Vec<Element<'c>> =
            input.enumerate().map(|(index, node)| Element::of(index, node)).collect();
        let mut next = None;
        for element in elements.iter_mut().rev() {
            element.next = next;
            if element.kind != Kind::Reasoning {
                next = Some(element.index);
            }
        }
        Self {
            root,
            elements,
            is_kept: dialect.stores && !is_declined,
            is_paired: dialect.pairs && !is_declined,
            is_resumed,
        }
    }

    /// The element that stands at this place of the body, or around it.
    pub(super) fn at(&self, place: usize) -> Option<&Element<'c>> {
        let behind = self.elements.partition_point(|element| element.node.range().start <= place);
        let element = self.elements.get(behind.checked_sub(1)?)?;
        (place < element.node.range().end).then_some(element)
    }

    /// The elements of that kind.
    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Element<'c>> {
        self.elements.iter().filter(move |element| element.kind == kind)
    }

    /// The ids that stand in the request.
    pub(super) fn ids(&self) -> HashSet<String> {
        let ids = self.elements.iter().filter_map(|element| element.id?.text());
        ids.map(Cow::into_owned).collect()
    }

    /// The elements that the model said after this one, up to its next reasoning or the next message of another role. Several
    /// reasoning items may lead to the same elements, so their number is bounded: no answer holds that many.
    pub(super) fn led_by(&self, reasoning: &Element<'c>) -> impl Iterator<Item = &Element<'c>> {
        let from = reasoning.next.unwrap_or(self.elements.len());
        self.elements
            .iter()
            .skip(from)
            .take(MOST_LED)
            .take_while(|element| element.is_models && element.kind != Kind::Reasoning)
    }
}

impl<'c> Element<'c> {
    fn of(index: usize, node: Node<'c>) -> Self {
        let kind = Kind::of(node);
        let (mut id, mut call_id, mut seal) = (None, None, None);
        for (name, value) in node.members() {
            if value.is_null() {
                continue;
            }
            if name.is("id") {
                id = Some(value);
            } else if name.is("call_id") {
                call_id = Some(value);
            } else if name.is("encrypted_content") {
                seal = Some(value);
            }
        }
        let is_models = decode::role(kind, node) == Role::Assistant;
        Self { index, node, kind, id, call_id, seal, is_models, next: None }
    }

    /// Its place as the provider writes it.
    pub(super) fn path(&self) -> String {
        format!("input[{}]", self.index)
    }

    /// What the provider calls it.
    pub(super) fn name(&self) -> String {
        self.node.text_of("type").map_or_else(|| "message".to_owned(), Cow::into_owned)
    }

    /// Its id, as text.
    pub(super) fn id_text(&self) -> String {
        self.id.and_then(Node::text).unwrap_or_default().into_owned()
    }

    /// Whether it calls a tool of the client's.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call | Kind::CustomCall)
    }

    /// Whether it answers a call.
    pub(super) fn is_output(&self) -> bool {
        matches!(self.kind, Kind::Result | Kind::CustomResult)
    }
}
