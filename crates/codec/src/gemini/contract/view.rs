//! Parses a request once for all rules: one pass over the `contents` and their parts, without
//! copying.

use std::borrow::Cow;
use std::ops::Range;

use throughline_json::Node;

use crate::AuditContext;
use crate::gemini::wire::{self, GeminiPartKind};

pub(super) struct GeminiRequest<'c> {
    pub(super) case: &'c AuditContext<'c>,
    pub(super) root: Node<'c>,
    pub(super) contents: Vec<GeminiContent<'c>>,
    /// The index of the first `content` object of the current turn. The turn starts after the last
    /// user message that contains anything besides function responses.
    pub(super) current: usize,
}

pub(super) struct GeminiContent<'c> {
    pub(super) index: usize,
    pub(super) node: Node<'c>,
    /// Whether the role is `model`.
    pub(super) is_models: bool,
    pub(super) parts: Vec<GeminiPart<'c>>,
}

#[derive(Clone, Copy)]
pub(super) struct GeminiPart<'c> {
    pub(super) content: usize,
    pub(super) index: usize,
    pub(super) node: Node<'c>,
    pub(super) kind: GeminiPartKind,
    /// The value of the member that determines the part's kind.
    pub(super) value: Node<'c>,
    /// The signature, which may be an empty string.
    pub(super) signature: Option<Node<'c>>,
}

impl<'c> GeminiRequest<'c> {
    pub(super) fn new(case: &'c AuditContext<'c>) -> Self {
        let root = case.body();
        let list = root.get("contents").into_iter().flat_map(Node::elements);
        let contents: Vec<_> = list.enumerate().map(GeminiContent::new).collect();
        let begins = |content: &GeminiContent<'c>| {
            !content.is_models
                && content.parts.iter().any(|part| part.kind != GeminiPartKind::Answer)
        };
        let current = contents.iter().rposition(begins).map_or(0, |last| last + 1);
        Self { case, root, contents, current }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &GeminiPart<'c>> {
        self.contents.iter().flat_map(|content| &content.parts)
    }

    /// Returns the part that contains a byte range.
    pub(super) fn part_at(&self, place: &Range<usize>) -> Option<&GeminiPart<'c>> {
        let behind = self.contents.partition_point(|c| c.node.range().start <= place.start);
        let content = self.contents.get(behind.checked_sub(1)?)?;
        let behind = content.parts.partition_point(|p| p.node.range().start <= place.start);
        let part = content.parts.get(behind.checked_sub(1)?)?;
        (place.end <= part.node.range().end).then_some(part)
    }
}

impl<'c> GeminiContent<'c> {
    fn new((index, node): (usize, Node<'c>)) -> Self {
        let is_models = node.get("role").is_some_and(|role| role.is("model"));
        let list = node.get("parts").into_iter().flat_map(Node::elements).enumerate();
        let parts = list.map(|(number, part)| GeminiPart::new(index, number, part)).collect();
        Self { index, node, is_models, parts }
    }

    pub(super) fn parts_of_kind(
        &self,
        kind: GeminiPartKind,
    ) -> impl Iterator<Item = &GeminiPart<'c>> {
        self.parts.iter().filter(move |part| part.kind == kind)
    }
}

impl<'c> GeminiPart<'c> {
    fn new(content: usize, index: usize, node: Node<'c>) -> Self {
        let (kind, value) = GeminiPartKind::from_part(node);
        let signature = wire::present(node, "thoughtSignature");
        Self { content, index, node, kind, value, signature }
    }

    /// Returns the part's path in the provider's notation.
    pub(super) fn path(&self) -> String {
        format!("contents[{}].parts[{}]", self.content, self.index)
    }

    /// Returns whether the part has a non-empty signature, which may be a stand-in.
    pub(super) fn is_signed(&self) -> bool {
        self.signature.is_some_and(|signature| signature.raw().len() > 2)
    }

    /// Returns the name of the part's kind for use in messages.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            GeminiPartKind::Text => "text part",
            GeminiPartKind::Thought => "thought",
            GeminiPartKind::Call => "function call",
            GeminiPartKind::Answer => "function response",
            GeminiPartKind::Inline | GeminiPartKind::File => "media part",
            GeminiPartKind::Code => "code part",
            GeminiPartKind::CodeResult => "code result",
            GeminiPartKind::HostedCall => "tool call",
            GeminiPartKind::HostedResult => "tool response",
            GeminiPartKind::Unknown => "part",
        }
    }

    /// Returns the name of the function that the part calls or responds to.
    pub(super) fn function(&self) -> Cow<'c, str> {
        self.value.text_of("name").unwrap_or_default()
    }
}
