//! Parses a request once for all rules: one pass over the elements and their pairs, without
//! copying.

use std::borrow::Cow;
use std::collections::HashSet;

use throughline_core::Role;
use throughline_json::Node;

use crate::AuditContext;
use crate::responses::contract::replay_history::ResponsesReplayHistory;
use crate::responses::decode;
use crate::responses::wire::ResponsesElementKind;

/// The maximum number of elements that one reasoning item is assumed to lead to.
const MAX_LED: usize = 64;

/// A parsed request, and the outputs of its earlier exchanges.
pub(super) struct ResponsesRequest<'c> {
    pub(super) case: &'c AuditContext<'c>,
    pub(super) root: Node<'c>,
    pub(super) elements: Vec<ResponsesElement<'c>>,
    pub(super) past: ResponsesReplayHistory<'c>,
    /// Whether the endpoint stores this conversation and can therefore resolve its ids.
    pub(super) is_kept: bool,
    /// Whether the endpoint pairs reasoning with the following item by id.
    pub(super) is_paired: bool,
    /// Whether the request continues a stored response or conversation. If so, the earlier elements
    /// are stored at the endpoint and are not in the request.
    pub(super) is_resumed: bool,
}

/// An element of `input`.
#[derive(Clone, Copy)]
pub(super) struct ResponsesElement<'c> {
    pub(super) index: usize,
    pub(super) node: Node<'c>,
    pub(super) kind: ResponsesElementKind,
    pub(super) id: Option<Node<'c>>,
    /// The `encrypted_content` of a reasoning or compaction item.
    pub(super) seal: Option<Node<'c>>,
    pub(super) is_models: bool,
    /// The index of the next non-reasoning element.
    pub(super) next: Option<usize>,
}

impl<'c> ResponsesRequest<'c> {
    pub(super) fn new(case: &'c AuditContext<'c>) -> Self {
        let root = case.body();
        let dialect = &case.target().provider.dialect;
        let is_declined = root.present("store").and_then(Node::bool) == Some(false);
        let continuations = ["previous_response_id", "conversation"];
        let input = root.present("input").into_iter().flat_map(Node::elements);
        let mut elements: Vec<_> = input.enumerate().map(ResponsesElement::new).collect();
        let mut next = None;
        for element in elements.iter_mut().rev() {
            element.next = next;
            if !element.is_reasoning() {
                next = Some(element.index);
            }
        }
        Self {
            case,
            root,
            elements,
            past: ResponsesReplayHistory::new(case),
            is_kept: dialect.stores && !is_declined,
            is_paired: dialect.pairs && !is_declined,
            is_resumed: continuations.iter().any(|member| root.present(member).is_some()),
        }
    }

    /// Returns the element that contains a byte offset.
    pub(super) fn at(&self, place: usize) -> Option<&ResponsesElement<'c>> {
        let behind = self.elements.partition_point(|element| element.node.range().start <= place);
        let element = self.elements.get(behind.checked_sub(1)?)?;
        (place < element.node.range().end).then_some(element)
    }

    pub(super) fn reasoning(&self) -> impl Iterator<Item = &ResponsesElement<'c>> {
        self.elements.iter().filter(|element| element.is_reasoning())
    }

    pub(super) fn ids(&self) -> HashSet<Cow<'c, str>> {
        self.elements.iter().filter_map(|element| element.id?.text()).collect()
    }

    /// Iterates over the elements that a reasoning item led to: the following model output, up to
    /// the next reasoning item or another role. At most [`MAX_LED`] elements are returned, because
    /// several reasoning items may lead to the same elements. Real responses stay below the limit.
    pub(super) fn led_by(
        &self,
        reasoning: &ResponsesElement<'c>,
    ) -> impl Iterator<Item = &ResponsesElement<'c>> {
        let from = reasoning.next.unwrap_or(self.elements.len());
        let later = self.elements.iter().skip(from).take(MAX_LED);
        later.take_while(|element| element.is_models && !element.is_reasoning())
    }
}

impl<'c> ResponsesElement<'c> {
    fn new((index, node): (usize, Node<'c>)) -> Self {
        let kind = ResponsesElementKind::from_element(node);
        let (id, seal) = (node.present("id"), node.present("encrypted_content"));
        let is_models = decode::role(kind, node) == Role::Assistant;
        Self { index, node, kind, id, seal, is_models, next: None }
    }

    /// Returns the provider's name for the element's type.
    pub(super) fn name(&self) -> Cow<'c, str> {
        self.node.text_of("type").unwrap_or("message".into())
    }

    /// Returns the id as text, or an empty string.
    pub(super) fn id_text(&self) -> Cow<'c, str> {
        self.id.and_then(Node::text).unwrap_or_default()
    }

    /// Returns the id that links a call and its output.
    pub(super) fn call_id(&self) -> Option<Cow<'c, str>> {
        self.node.text_of("call_id")
    }

    pub(super) fn is_reasoning(&self) -> bool {
        self.kind == ResponsesElementKind::Reasoning
    }

    /// Returns whether the element is a call that the client executes.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, ResponsesElementKind::Call | ResponsesElementKind::CustomCall)
    }

    /// Returns whether the element is the output of a call that the client executed.
    pub(super) fn is_output(&self) -> bool {
        matches!(self.kind, ResponsesElementKind::Result | ResponsesElementKind::CustomResult)
    }

    /// Returns whether the element refers to a stored item only by id.
    pub(super) fn is_reference(&self) -> bool {
        self.node.get("type").is_some_and(|kind| kind.is("item_reference"))
    }
}
