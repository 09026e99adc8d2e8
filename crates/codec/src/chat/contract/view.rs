//! Preprocesses a request for the rules, in one pass over the messages and without copies.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{ReasoningChannel, ReasoningFormat, Reply, Vendor};
use throughline_json::Node;

use crate::audit::{AuditContext, Finding, Severity};
use crate::chat::slot::{self, FIELDS};
use crate::chat::{contract, decode};

/// A parsed request with the properties that the rules check.
pub(super) struct ChatRequest<'c> {
    pub(super) case: &'c AuditContext<'c>,
    pub(super) root: Node<'c>,
    pub(super) messages: Vec<ChatMessage<'c>>,
    /// The known reply that each message replays, by message index. The list is empty if no earlier
    /// exchanges are known.
    pub(super) replies: Vec<Option<&'c Reply>>,
    /// Index of the first message after the last user message.
    pub(super) current: usize,
    pub(super) thinks: bool,
    pub(super) channel: ReasoningChannel,
    /// The vendor whose Seals the model reads.
    pub(super) vendor: Option<Vendor>,
}

pub(super) struct ChatMessage<'c> {
    pub(super) node: Node<'c>,
    pub(super) role: ChatRole,
    pub(super) content: Option<Node<'c>>,
    /// The members that hold reasoning as one string, with their names. Empty strings are included.
    pub(super) fields: Vec<(&'static str, Node<'c>)>,
    /// The `reasoning_details` member; `details` are its entries.
    pub(super) list: Option<Node<'c>>,
    pub(super) details: Vec<ChatDetail<'c>>,
    pub(super) calls: Vec<Node<'c>>,
    /// The id of the call whose result this message contains.
    pub(super) answers: Option<Node<'c>>,
}

/// The roles that the rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatRole {
    Assistant,
    Tool,
    User,
    Other,
}

/// An entry of `reasoning_details`.
pub(super) struct ChatDetail<'c> {
    pub(super) node: Node<'c>,
    pub(super) kind: ChatDetailKind,
    pub(super) format: ReasoningFormat,
    pub(super) vendor: Option<Vendor>,
    /// The signature or data; `None` if absent, `null` or empty.
    pub(super) seal: Option<Node<'c>>,
    pub(super) id: Option<Node<'c>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatDetailKind {
    Text,
    Summary,
    Encrypted,
    Other,
}

impl<'c> ChatRequest<'c> {
    pub(super) fn new(case: &'c AuditContext<'c>) -> Self {
        let (root, target) = (case.body(), case.target());
        let list = root.get("messages").into_iter().flat_map(Node::elements);
        let messages: Vec<_> = list.map(ChatMessage::new).collect();
        let is_users = |msg: &ChatMessage<'_>| msg.role == ChatRole::User;
        let current = messages.iter().rposition(is_users).map_or(0, |last| last + 1);
        let thinks = contract::will_reason(target, decode::reasoning_of(root).as_ref());
        let (channel, vendor) = (target.provider.dialect.channel, target.profile.seal_vendor());
        let replies = Vec::new();
        let view = Self { case, root, messages, replies, current, thinks, channel, vendor };
        Self { replies: view.find_replies(), ..view }
    }

    /// Iterates over the assistant messages with their indexes.
    pub(super) fn assistant_messages(&self) -> impl Iterator<Item = (usize, &ChatMessage<'c>)> {
        let is_models = |(_, msg): &(usize, &ChatMessage<'c>)| msg.role == ChatRole::Assistant;
        self.messages.iter().enumerate().filter(is_models)
    }

    /// Returns whether a Seal is the placeholder that the vendor documents for unknown signatures.
    /// The placeholder may be plain text or base64.
    pub(super) fn is_stand_in(&self, seal: Node<'_>) -> bool {
        let stand_in = self.case.profile().stand_in.as_deref();
        stand_in.is_some_and(|known| seal.is(known) || seal.is(&STANDARD.encode(known)))
    }

    /// Lowers the severity of a Seal finding for routers that are not known to forward Seals,
    /// because only the upstream checks Seals.
    pub(super) fn with_router_severity(&self, finding: Finding) -> Finding {
        let is_relayed = self.case.target().provider.dialect.relays;
        if finding.severity == Severity::Refuse && !is_relayed {
            return finding.with_severity(Severity::Degrade).without_provider_error();
        }
        finding
    }

    /// Returns the message that contains a byte range, with its index.
    pub(super) fn message_at(&self, place: &Range<usize>) -> Option<(usize, &ChatMessage<'c>)> {
        let behind = self.messages.partition_point(|msg| msg.node.range().start <= place.start);
        let found = behind.checked_sub(1)?;
        let msg = self.messages.get(found)?;
        (place.end <= msg.node.range().end).then_some((found, msg))
    }

    /// Returns the detail at a byte range, with the index of its message.
    pub(super) fn detail_at(&self, place: &Range<usize>) -> Option<(usize, &ChatDetail<'c>)> {
        let (number, msg) = self.message_at(place)?;
        let at = msg.details.binary_search_by_key(&place.start, |d| d.node.range().start).ok()?;
        let detail = msg.details.get(at).filter(|_| msg.role == ChatRole::Assistant)?;
        Some((number, detail))
    }
}

/// Returns the key node of a member, which findings point at.
pub(super) fn member_key<'c>(object: Node<'c>, name: &str) -> Option<Node<'c>> {
    object.members().map(|(key, _)| key).filter(|key| key.is(name)).last()
}

impl<'c> ChatMessage<'c> {
    fn new(node: Node<'c>) -> Self {
        let role = match node.text_of("role").as_deref() {
            Some("assistant") => ChatRole::Assistant,
            Some("tool") => ChatRole::Tool,
            Some("user") => ChatRole::User,
            Some(_) | None => ChatRole::Other,
        };
        let field = |(key, value): (Node<'c>, Node<'c>)| {
            Some((FIELDS.into_iter().find(|field| key.is(field))?, value))
        };
        let list = node.get(slot::DETAILS);
        Self {
            node,
            role,
            content: node.present(slot::CONTENT),
            fields: node.members().filter_map(field).collect(),
            list,
            details: list.into_iter().flat_map(Node::elements).map(ChatDetail::new).collect(),
            calls: node.get(slot::CALLS).into_iter().flat_map(Node::elements).collect(),
            answers: node.get("tool_call_id").filter(|id| id.is_string()),
        }
    }

    /// Returns the named reasoning member unless it is `null`.
    pub(super) fn field(&self, name: &str) -> Option<Node<'c>> {
        let found = self.fields.iter().find(|(field, _)| *field == name)?;
        Some(found.1).filter(|value| !value.is_null())
    }

    /// Returns the content if it is a single string.
    pub(super) fn text(&self) -> Option<Node<'c>> {
        self.content.filter(|content| content.is_string())
    }

    /// Returns whether a call has a signature in the form of Google's compatible endpoint.
    pub(super) fn is_signed_call(call: Node<'_>) -> bool {
        call.at("/extra_content/google/thought_signature").is_some_and(is_non_empty_string)
    }
}

impl<'c> ChatDetail<'c> {
    fn new(node: Node<'c>) -> Self {
        let kind = match node.text_of("type").as_deref() {
            Some("reasoning.text") => ChatDetailKind::Text,
            Some("reasoning.summary") => ChatDetailKind::Summary,
            Some("reasoning.encrypted") => ChatDetailKind::Encrypted,
            Some(_) | None => ChatDetailKind::Other,
        };
        let format = node.text_of("format");
        let format = format.map_or_else(ReasoningFormat::unknown, |f| ReasoningFormat::new(&f));
        let is_seal = |key: Node<'_>| key.is("signature") || key.is("data");
        let seal = node.members().filter(|(key, _)| is_seal(*key)).last().map(|(_, value)| value);
        Self {
            node,
            kind,
            vendor: format.vendor(),
            format,
            seal: seal.filter(|value| is_non_empty_string(*value)),
            id: node.get("id").filter(|id| id.is_string()),
        }
    }
}

pub(super) fn is_non_empty_string(node: Node<'_>) -> bool {
    node.is_string() && node.raw().len() > 2
}
