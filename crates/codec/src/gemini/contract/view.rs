//! The request as the rules look at it: its contents and parts in one pass, borrowed.

use std::ops::Range;

use throughline_core::Node;

use crate::Case;
use crate::gemini::wire::{self, Kind};

/// A request, looked at once.
pub(super) struct View<'c> {
    /// The body.
    pub(super) root: Node<'c>,
    /// The contents, in order.
    pub(super) contents: Vec<Content<'c>>,
    /// The number of the first content of the current turn: behind the last that is more than answers of tools.
    pub(super) current: usize,
}

/// One content.
pub(super) struct Content<'c> {
    /// Its number.
    pub(super) index: usize,
    /// The content.
    pub(super) node: Node<'c>,
    /// Whether the model said it.
    pub(super) is_models: bool,
    /// Its parts, in order.
    pub(super) parts: Vec<Part<'c>>,
}

/// One part.
#[derive(Clone, Copy)]
pub(super) struct Part<'c> {
    /// The number of its content.
    pub(super) content: usize,
    /// Its number in its content.
    pub(super) index: usize,
    /// The part.
    pub(super) node: Node<'c>,
    /// What it is.
    pub(super) kind: Kind,
    /// The member that makes it so.
    pub(super) value: Node<'c>,
    /// Its signature, which may be empty.
    pub(super) signature: Option<Node<'c>>,
}

impl<'c> View<'c> {
    /// Looks at a request.
    pub(super) fn of(case: &Case<'c>) -> Self {
        let root = case.body();
        let list = root.get("contents").into_iter().flat_map(Node::elements);
        let contents: Vec<Content<'c>> =
            list.enumerate().map(|(index, node)| Content::of(index, node)).collect();
        let begins = |content: &Content<'c>| {
            !content.is_models && content.parts.iter().any(|part| part.kind != Kind::Answer)
        };
        let current = contents.iter().rposition(begins).map_or(0, |last| last + 1);
        Self { root, contents, current }
    }

    /// All parts, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part<'c>> {
        self.contents.iter().flat_map(|content| &content.parts)
    }

    /// The part that stands at this place of the body.
    pub(super) fn part_at(&self, place: &Range<usize>) -> Option<&Part<'c>> {
        let holds = |node: Node<'c>| {
            let range = node.range();
            range.start <= place.start && place.end <= range.end
        };
        let behind = self.contents.partition_point(|c| c.node.range().start <= place.start);
        let content = self.contents.get(behind.checked_sub(1)?)?;
        let behind = content.parts.partition_point(|p| p.node.range().start <= place.start);
        content.parts.get(behind.checked_sub(1)?).filter(|part| holds(part.node))
    }
}

impl<'c> Content<'c> {
    fn of(index: usize, node: Node<'c>) -> Self {
        let is_models = node.get("role").is_some_and(|role| role.is("model"));
        let list = node.get("parts").into_iter().flat_map(Node::elements);
        let parts = list.enumerate().map(|(number, part)| Part::of(index, number, part)).collect();
        Self { index, node, is_models, parts }
    }

    /// Its parts of that kind.
    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Part<'c>> {
        self.parts.iter().filter(move |part| part.kind == kind)
    }

    /// Its place as the provider writes it.
    pub(super) fn path(&self) -> String {
        format!("contents[{}]", self.index)
    }
}

impl<'c> Part<'c> {
    fn of(content: usize, index: usize, node: Node<'c>) -> Self {
        let (kind, value) = Kind::of(node);
        let signature = wire::present(node, "thoughtSignature");
        Self { content, index, node, kind, value, signature }
    }

    /// Its place as the provider writes it.
    pub(super) fn path(&self) -> String {
        format!("contents[{}].parts[{}]", self.content, self.index)
    }

    /// Whether it shows a signature, or what stands in for one.
    pub(super) fn is_signed(&self) -> bool {
        self.signature.is_some_and(|signature| signature.raw().len() > 2)
    }

    /// What it is, in words.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Text => "text part",
            Kind::Thought => "thought",
            Kind::Call => "function call",
            Kind::Answer => "function response",
            Kind::Inline | Kind::File => "media part",
            Kind::Code => "code part",
            Kind::CodeResult => "code result",
            Kind::HostedCall => "tool call",
            Kind::HostedResult => "tool response",
            Kind::Unknown => "part",
        }
    }

    /// The name of the function that it calls or answers.
    pub(super) fn function(&self) -> String {
        self.value.text_of("name").unwrap_or_default().into_owned()
    }
}
