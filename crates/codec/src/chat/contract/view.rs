//! A request in the form that the rules need: built in one pass over the messages, without copies.

use std::collections::HashSet;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{ReasoningFormat, Target, Vendor};
use throughline_json::Node;

use crate::audit::{AuditContext, Finding, Findings, Rule, Severity};
use crate::chat::contract::rules::{FOREIGN_DETAILS, SIGNATURE_INVALID};
use crate::chat::slot::{self, FIELDS};
use crate::chat::{contract, decode};

/// A parsed request and the facts that the rules use.
pub(super) struct ChatRequest<'c> {
    pub(super) case: &'c AuditContext<'c>,
    pub(super) root: Node<'c>,
    pub(super) messages: Vec<ChatMessage<'c>>,
    /// Index of the first message after the last user message.
    pub(super) current: usize,
    pub(super) thinks: bool,
    /// The vendor whose Seals the model reads.
    pub(super) vendor: Option<Vendor>,
}

pub(super) struct ChatMessage<'c> {
    pub(super) node: Node<'c>,
    pub(super) role: ChatRole,
    pub(super) content: Option<Node<'c>>,
    /// Members that hold reasoning as one string, including empty ones.
    pub(super) fields: Vec<(&'static str, Node<'c>)>,
    /// The `reasoning_details` member; `details` are its entries.
    pub(super) list: Option<Node<'c>>,
    pub(super) details: Vec<ChatDetail<'c>>,
    pub(super) calls: Vec<Node<'c>>,
    /// The id of the call that this message answers.
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
    pub(super) text: Option<Node<'c>>,
    /// The signature or data; `None` if absent, `null` or empty.
    pub(super) seal: Option<Node<'c>>,
    pub(super) index: Option<u64>,
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
        let messages: Vec<_> = list.map(ChatMessage::from_node).collect();
        let is_users = |said: &ChatMessage<'_>| said.role == ChatRole::User;
        let current = messages.iter().rposition(is_users).map_or(0, |last| last + 1);
        let reasoning = decode::reasoning_of(root);
        let thinks = contract::will_reason(target, reasoning.as_ref());
        Self { case, root, messages, current, thinks, vendor: target.profile.seal_vendor() }
    }

    /// Iterates over the assistant messages with their indexes.
    pub(super) fn assistant_messages(&self) -> impl Iterator<Item = (usize, &ChatMessage<'c>)> {
        let is_models = |(_, said): &(usize, &ChatMessage<'c>)| said.role == ChatRole::Assistant;
        self.messages.iter().enumerate().filter(is_models)
    }

    /// Returns whether a Seal is the stand-in that the vendor documents for unknown signatures,
    /// plain or in base64.
    pub(super) fn is_stand_in(&self, seal: Node<'_>) -> bool {
        let stand_in = self.case.profile().stand_in.as_deref();
        stand_in.is_some_and(|known| seal.is(known) || seal.is(&STANDARD.encode(known)))
    }

    /// Returns the index of the message that contains a source range.
    pub(super) fn message_at(&self, place: &Range<usize>) -> Option<usize> {
        let behind = self.messages.partition_point(|said| said.node.range().start <= place.start);
        let found = behind.checked_sub(1)?;
        let said = self.messages.get(found)?;
        (place.end <= said.node.range().end).then_some(found)
    }
}

/// Returns the key node of an object's member.
pub(super) fn member_key<'c>(object: Node<'c>, name: &str) -> Option<Node<'c>> {
    object.members().map(|(key, _)| key).filter(|key| key.is(name)).last()
}

impl<'c> ChatMessage<'c> {
    fn from_node(node: Node<'c>) -> Self {
        let mut said = Self {
            node,
            role: ChatRole::Other,
            content: None,
            fields: Vec::new(),
            list: None,
            details: Vec::new(),
            calls: Vec::new(),
            answers: None,
        };
        for (key, value) in node.members() {
            let Some(name) = key.text() else { continue };
            match &*name {
                "role" => said.role = ChatRole::from_node(value),
                slot::CONTENT => said.content = Some(value).filter(|value| !value.is_null()),
                slot::CALLS => said.calls = value.elements().collect(),
                slot::DETAILS => {
                    said.list = Some(value);
                    said.details = value.elements().map(ChatDetail::from_node).collect();
                }
                "tool_call_id" => said.answers = Some(value).filter(|value| value.is_string()),
                other => {
                    let field = FIELDS.into_iter().find(|field| *field == other);
                    said.fields.extend(field.map(|field| (field, value)));
                }
            }
        }
        said
    }

    /// Returns the named reasoning member unless it is `null`.
    pub(super) fn field(&self, name: &str) -> Option<Node<'c>> {
        let found = self.fields.iter().find(|(field, _)| *field == name)?;
        Some(found.1).filter(|value| !value.is_null())
    }

    /// Returns the content if it is one string.
    pub(super) fn text(&self) -> Option<Node<'c>> {
        self.content.filter(|content| content.is_string())
    }

    /// Returns whether a call has the signature of Google's compatible endpoint.
    pub(super) fn is_signed_call(call: Node<'_>) -> bool {
        call.at("/extra_content/google/thought_signature").is_some_and(is_non_empty_string)
    }
}

impl ChatRole {
    fn from_node(node: Node<'_>) -> Self {
        match node.text().as_deref() {
            Some("assistant") => Self::Assistant,
            Some("tool") => Self::Tool,
            Some("user") => Self::User,
            Some(_) | None => Self::Other,
        }
    }
}

impl<'c> ChatDetail<'c> {
    fn from_node(node: Node<'c>) -> Self {
        let mut detail = Self {
            node,
            kind: ChatDetailKind::Other,
            format: ReasoningFormat::unknown(),
            vendor: None,
            text: None,
            seal: None,
            index: None,
            id: None,
        };
        for (key, value) in node.members() {
            let Some(name) = key.text() else { continue };
            match &*name {
                "type" => detail.kind = ChatDetailKind::from_node(value),
                "format" => {
                    detail.format = value
                        .text()
                        .map_or_else(ReasoningFormat::unknown, |name| ReasoningFormat::new(&name));
                }
                "text" => detail.text = Some(value).filter(|value| value.is_string()),
                "signature" | "data" => {
                    detail.seal = Some(value).filter(|value| is_non_empty_string(*value));
                }
                "index" => detail.index = value.u64(),
                "id" => detail.id = Some(value).filter(|value| value.is_string()),
                _ => {}
            }
        }
        detail.vendor = detail.format.vendor();
        detail
    }
}

impl ChatDetailKind {
    fn from_node(node: Node<'_>) -> Self {
        match node.text().as_deref() {
            Some("reasoning.text") => Self::Text,
            Some("reasoning.summary") => Self::Summary,
            Some("reasoning.encrypted") => Self::Encrypted,
            Some(_) | None => Self::Other,
        }
    }
}

/// Returns whether a value is a non-empty string.
pub(super) fn is_non_empty_string(node: Node<'_>) -> bool {
    node.is_string() && node.raw().len() > 2
}

/// Collects findings, at most one per source range.
pub(super) struct ChatFindings<'r, 'f> {
    target: &'r Target,
    findings: &'r mut Findings<'f>,
    covered: HashSet<(usize, usize)>,
}

impl<'r, 'f> ChatFindings<'r, 'f> {
    pub(super) fn new(target: &'r Target, findings: &'r mut Findings<'f>) -> Self {
        Self { target, findings, covered: HashSet::new() }
    }

    /// Returns whether a rule applies to the target. A check that covers more ranges than its
    /// finding calls this first.
    pub(super) fn applies(&self, rule: &Rule) -> bool {
        (rule.applies)(self.target)
    }

    /// Reports a finding and marks its range as covered, if its rule applies.
    pub(super) fn add(&mut self, finding: Finding) {
        self.add_at(None, finding);
    }

    /// Lowers the severity of Seal findings for routers that are not known to forward Seals: only
    /// the upstream checks them.
    fn with_router_severity(&self, finding: Finding) -> Finding {
        let is_of_seals = [SIGNATURE_INVALID.id, FOREIGN_DETAILS.id].contains(&finding.rule.id);
        if is_of_seals
            && finding.severity == Severity::Refuse
            && !self.target.provider.dialect.relays
        {
            return finding.with_severity(Severity::Degrade).without_provider_error();
        }
        finding
    }

    /// Reports a finding that covers its range but points at a smaller node: a member's key, or a
    /// message's role.
    pub(super) fn add_at(&mut self, sign: Option<Node<'_>>, mut finding: Finding) {
        if self.applies(finding.rule) {
            self.cover(&finding.range);
            finding.range = sign.map_or(finding.range, Node::range);
            self.findings.add(self.with_router_severity(finding));
        }
    }

    /// Marks a source range as covered by a finding.
    pub(super) fn cover(&mut self, place: &Range<usize>) {
        self.covered.insert((place.start, place.end));
    }

    pub(super) fn is_covered(&self, place: &Range<usize>) -> bool {
        self.covered.contains(&(place.start, place.end))
    }

    pub(super) fn count(&mut self, element: Node<'_>, format: &ReasoningFormat, is_signed: bool) {
        self.findings.count(element, format, is_signed);
    }
}
