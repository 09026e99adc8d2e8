//! A request as its rules look at it: one pass over the messages, nothing copied.

use std::collections::HashSet;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{Node, ReasoningFormat, Target, Vendor};

use crate::audit::{Case, Finding, Findings, Rule, Severity};
use crate::chat::contract::rules::{FOREIGN_DETAILS, SIGNATURE_INVALID};
use crate::chat::contract::{self, vendor_of};
use crate::chat::decode;
use crate::chat::slot::{self, FIELDS};

/// A request and what its rules want to know of it.
pub(super) struct View<'c> {
    pub(super) case: &'c Case<'c>,
    pub(super) root: Node<'c>,
    pub(super) messages: Vec<Said<'c>>,
    /// The first message behind the last thing that the user said.
    pub(super) current: usize,
    /// Whether the model will think.
    pub(super) thinks: bool,
    /// Whose seals the model reads.
    pub(super) vendor: Option<Vendor>,
}

/// One message.
pub(super) struct Said<'c> {
    pub(super) node: Node<'c>,
    pub(super) role: Role,
    pub(super) content: Option<Node<'c>>,
    /// The members that hold reasoning as one string, also where they say nothing.
    pub(super) fields: Vec<(&'static str, Node<'c>)>,
    /// The member that holds the details, and they themselves.
    pub(super) list: Option<Node<'c>>,
    pub(super) details: Vec<Detail<'c>>,
    pub(super) calls: Vec<Node<'c>>,
    /// The call that it answers.
    pub(super) answers: Option<Node<'c>>,
}

/// Who speaks, as far as the rules care.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Assistant,
    Tool,
    User,
    Other,
}

/// One entry of `reasoning_details`.
pub(super) struct Detail<'c> {
    pub(super) node: Node<'c>,
    pub(super) kind: Kind,
    pub(super) format: ReasoningFormat,
    pub(super) vendor: Option<Vendor>,
    pub(super) text: Option<Node<'c>>,
    /// The signature or the data; nothing where it is absent, `null` or empty.
    pub(super) seal: Option<Node<'c>>,
    pub(super) index: Option<u64>,
    pub(super) id: Option<Node<'c>>,
}

/// What kind of entry it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Summary,
    Encrypted,
    Other,
}

impl<'c> View<'c> {
    pub(super) fn of(case: &'c Case<'c>) -> Self {
        let (root, target) = (case.body(), case.target());
        let list = root.get("messages").into_iter().flat_map(Node::elements);
        let messages: Vec<_> = list.map(Said::of).collect();
        let is_users = |said: &Said<'_>| said.role == Role::User;
        let current = messages.iter().rposition(is_users).map_or(0, |last| last + 1);
        let reasoning = decode::reasoning_of(root);
        let thinks = contract::reasons(target, reasoning.as_ref());
        Self { case, root, messages, current, thinks, vendor: vendor_of(target) }
    }

    /// The model's messages with their numbers.
    pub(super) fn answers(&self) -> impl Iterator<Item = (usize, &Said<'c>)> {
        let is_models = |(_, said): &(usize, &Said<'c>)| said.role == Role::Assistant;
        self.messages.iter().enumerate().filter(is_models)
    }

    /// Whether a seal is the value that the model's vendor documents for one that is not known, plain or in base64.
    pub(super) fn is_stand_in(&self, seal: Node<'_>) -> bool {
        let stand_in = self.case.profile().stand_in.as_deref();
        stand_in.is_some_and(|known| seal.is(known) || seal.is(&STANDARD.encode(known)))
    }

    /// The number of the message that holds that place.
    pub(super) fn message_at(&self, place: &Range<usize>) -> Option<usize> {
        let behind = self.messages.partition_point(|said| said.node.range().start <= place.start);
        let found = behind.checked_sub(1)?;
        let said = self.messages.get(found)?;
        (place.end <= said.node.range().end).then_some(found)
    }
}

/// The name of an object's member, as it stands in the text.
pub(super) fn name_of<'c>(object: Node<'c>, name: &str) -> Option<Node<'c>> {
    object.members().map(|(key, _)| key).filter(|key| key.is(name)).last()
}

impl<'c> Said<'c> {
    fn of(node: Node<'c>) -> Self {
        let mut said = Self {
            node,
            role: Role::Other,
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
                "role" => said.role = Role::of(value),
                slot::CONTENT => said.content = Some(value).filter(|value| !value.is_null()),
                slot::CALLS => said.calls = value.elements().collect(),
                slot::DETAILS => {
                    said.list = Some(value);
                    said.details = value.elements().map(Detail::of).collect();
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

    /// The reasoning member of that name, unless it is `null`.
    pub(super) fn field(&self, name: &str) -> Option<Node<'c>> {
        let found = self.fields.iter().find(|(field, _)| *field == name)?;
        Some(found.1).filter(|value| !value.is_null())
    }

    /// The text of its content, where that is one string.
    pub(super) fn text(&self) -> Option<Node<'c>> {
        self.content.filter(|content| content.is_string())
    }

    /// The signatures that Google's compatible endpoint puts on calls.
    pub(super) fn signs_call(call: Node<'_>) -> bool {
        call.at("/extra_content/google/thought_signature").is_some_and(says)
    }
}

impl Role {
    fn of(node: Node<'_>) -> Self {
        match node.text().as_deref() {
            Some("assistant") => Self::Assistant,
            Some("tool") => Self::Tool,
            Some("user") => Self::User,
            Some(_) | None => Self::Other,
        }
    }
}

impl<'c> Detail<'c> {
    fn of(node: Node<'c>) -> Self {
        let mut detail = Self {
            node,
            kind: Kind::Other,
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
                "type" => detail.kind = Kind::of(value),
                "format" => {
                    detail.format = value
                        .text()
                        .map_or_else(ReasoningFormat::unknown, |name| ReasoningFormat::new(&name));
                }
                "text" => detail.text = Some(value).filter(|value| value.is_string()),
                "signature" | "data" => detail.seal = Some(value).filter(|value| says(*value)),
                "index" => detail.index = value.u64(),
                "id" => detail.id = Some(value).filter(|value| value.is_string()),
                _ => {}
            }
        }
        detail.vendor = detail.format.vendor();
        detail
    }
}

impl Kind {
    fn of(node: Node<'_>) -> Self {
        match node.text().as_deref() {
            Some("reasoning.text") => Self::Text,
            Some("reasoning.summary") => Self::Summary,
            Some("reasoning.encrypted") => Self::Encrypted,
            Some(_) | None => Self::Other,
        }
    }
}

/// Whether a value is a string that says something.
pub(super) fn says(node: Node<'_>) -> bool {
    node.is_string() && node.raw().len() > 2
}

/// Where findings go. A place that one rule has spoken for is not spoken of again.
pub(super) struct Report<'r, 'f> {
    target: &'r Target,
    findings: &'r mut Findings<'f>,
    covered: HashSet<(usize, usize)>,
}

impl<'r, 'f> Report<'r, 'f> {
    pub(super) fn new(target: &'r Target, findings: &'r mut Findings<'f>) -> Self {
        Self { target, findings, covered: HashSet::new() }
    }

    /// Whether a rule applies here at all. Who covers more than the place of a finding asks first.
    pub(super) fn applies(&self, rule: &Rule) -> bool {
        (rule.applies)(self.target)
    }

    /// Reports a finding, and notes that its place was spoken for, if its rule applies here.
    pub(super) fn add(&mut self, finding: Finding) {
        if self.applies(finding.rule) {
            self.cover(&finding.range);
            self.findings.add(self.eased(finding));
        }
    }

    /// It is the upstream that refuses a seal: a router that is not known to hand them on is not known to refuse any.
    fn eased(&self, finding: Finding) -> Finding {
        let is_of_seals = [&SIGNATURE_INVALID, &FOREIGN_DETAILS]
            .into_iter()
            .any(|rule| std::ptr::eq(rule, finding.rule));
        if is_of_seals
            && finding.severity == Severity::Refuse
            && !self.target.provider.dialect.relays
        {
            return finding.as_grave_as(Severity::Degrade).unanswered();
        }
        finding
    }

    /// The same for a finding that is shown by a smaller thing than the place it speaks for: a member by its name, a message
    /// that lacks something by its role.
    pub(super) fn add_at(&mut self, sign: Option<Node<'_>>, mut finding: Finding) {
        if self.applies(finding.rule) {
            self.cover(&finding.range);
            finding.range = sign.map_or(finding.range, Node::range);
            self.findings.add(finding);
        }
    }

    /// Notes that a finding speaks for this place as well.
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
