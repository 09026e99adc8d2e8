//! Checks whether one turn's reasoning can be replayed: the specification's `ReplayAudit`, and the
//! codec for `reasoning_details`.
//!
//! Every element is checked separately: an empty signature counts as absent, and a signed element
//! does not make up for an unsigned one. The requirements depend on the format, because each
//! provider attaches its Seals to a different part. This audit covers a stored turn; the codec
//! crate audits outgoing requests.

use std::collections::HashSet;

use throughline_core::{Contract, Origin, ReasoningFormat, Target, Vendor};
use throughline_json::{self as json, Json, Name, Object};

use crate::view::details::{ReasoningItem, parse_details, print_details};

const DETAILS: &str = "reasoning_details";

/// Specifies when a turn's reasoning must be sent back. Model profiles use the same type under the
/// name [`Contract`].
pub use throughline_core::Contract as ReplayContract;

/// A stateless translator between a provider's native reasoning and typed elements.
///
/// The codec crate implements this trait for every wire. A codec writes only elements whose format
/// its provider reads, and leaves out all other elements.
pub trait ReasoningCodec: Send + Sync {
    /// Returns the reasoning elements in a response, in order. The document may also be an
    /// assistant message or a single native part. Unknown kinds are kept verbatim.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem>;

    /// Returns the assistant message for the next request. The given elements replace any reasoning
    /// elements in the message. If no elements are given, the message is unchanged.
    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json;

    /// Returns the strictest replay contract among the formats of these elements.
    fn replay_contract(&self, items: &[ReasoningItem]) -> ReplayContract {
        items.iter().map(|item| item.format().replay_contract()).max().unwrap_or_default()
    }

    /// Checks whether these elements satisfy the strictest replay contract among their formats.
    fn audit(&self, items: &[ReasoningItem], next_turn_carries_tools: bool) -> ReplayAudit {
        ReplayTurn::new(items).audit(self.replay_contract(items), next_turn_carries_tools)
    }
}

/// The default codec. It reads and writes `reasoning_details` for every provider that OpenRouter
/// routes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRouterReasoningCodec;

impl ReasoningCodec for OpenRouterReasoningCodec {
    /// Reads the elements from a message, from a whole response whose first choice contains the
    /// message, or from one element.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        let tree = response.tree();
        let is_element = |kind: &str| kind.starts_with("reasoning.");
        if tree.root().text_of("type").as_deref().is_some_and(is_element) {
            return vec![ReasoningItem::read(tree.root())];
        }
        let message = tree.root().at("/choices/0/message").unwrap_or(tree.root());
        let details = message.get(DETAILS).map(throughline_json::Node::json);
        details.and_then(|details| parse_details(&details)).unwrap_or_default()
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        if items.is_empty() {
            return message.clone();
        }
        let tree = message.tree();
        if let Some(inner) = tree.root().at("/choices/0/message") {
            let written = self.write_assistant(&inner.json(), items);
            return message.with_value_at(inner.range(), &written);
        }
        json::object(|out| {
            out.nodes(tree.root().members().filter(|(key, _)| !key.is(DETAILS)));
            out.raw(DETAILS, &print_details(items));
        })
    }
}

/// Checks whether a turn's reasoning elements satisfy the replay contract of their codec.
///
/// This function considers only the elements. [`ReplayTurn`] also considers the turn's tool calls,
/// the model that produced the turn, and the target of the next request.
pub fn audit_replay(
    codec: &dyn ReasoningCodec,
    items: &[ReasoningItem],
    next_turn_carries_tools: bool,
) -> ReplayAudit {
    codec.audit(items, next_turn_carries_tools)
}

/// The reasoning of one assistant turn and, where known, the turn's tool calls, its issuer and the
/// target of the next request.
#[derive(Clone, Copy, Debug)]
pub struct ReplayTurn<'t> {
    items: &'t [ReasoningItem],
    calls: &'t [Name],
    issuer: Option<&'t Origin>,
    target: Option<&'t Target>,
}

impl<'t> ReplayTurn<'t> {
    /// Creates a turn without calls, issuer or target.
    pub fn new(items: &'t [ReasoningItem]) -> Self {
        Self { items, calls: &[], issuer: None, target: None }
    }

    /// Sets the ids of the turn's tool calls, in order.
    #[must_use]
    pub fn with_calls(self, calls: &'t [Name]) -> Self {
        Self { calls, ..self }
    }

    /// Sets the model that produced the turn.
    #[must_use]
    pub fn with_issuer(self, issuer: &'t Origin) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// Sets the target of the next request.
    #[must_use]
    pub fn with_target(self, target: &'t Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Audits the turn. If the contract does not require a replay there are no violations, because
    /// the reasoning can be omitted.
    pub fn audit(self, contract: ReplayContract, next_turn_carries_tools: bool) -> ReplayAudit {
        let is_signed = |item: &&ReasoningItem| item.sealed().is_some();
        let mut formats: Vec<_> = self.items.iter().map(ReasoningItem::format).collect();
        formats.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        formats.dedup();
        let mut audit = ReplayAudit {
            item_count: self.items.len(),
            signed_count: self.items.iter().filter(is_signed).count(),
            formats,
            violations: Vec::new(),
        };
        let applies = match contract {
            Contract::Stateless => false,
            Contract::RequiredWithTools => next_turn_carries_tools || self.calls_require_replay(),
            Contract::AlwaysRequired => true,
        };
        if applies {
            self.check_items(&mut audit.violations);
            self.check_order(&mut audit.violations);
            self.check_calls(&mut audit.violations);
            let is_unsigned = audit.item_count > 0 && audit.signed_count == 0;
            if is_unsigned && audit.violations.is_empty() {
                let formats = audit.formats.clone();
                audit.violations.push(ReplayViolation::MissingSignaturesForStrictProvider {
                    contract,
                    formats,
                });
            }
        }
        audit
    }

    /// Returns whether the turn's own calls require that its reasoning is sent back, regardless of
    /// the next turn. Gemini and OpenAI require the reasoning of every turn that contains a call.
    /// Anthropic requires the reasoning only if the next turn contains a tool result.
    fn calls_require_replay(self) -> bool {
        let counts = |item: &ReasoningItem| {
            matches!(item.format().vendor(), Some(Vendor::Google | Vendor::OpenAi))
        };
        !self.calls.is_empty() && self.items.iter().any(counts)
    }

    /// Checks that each element has the Seal that its format requires, and that the target can read
    /// each Seal.
    fn check_items(self, violations: &mut Vec<ReplayViolation>) {
        let signed = self.items.iter().filter(|item| item.sealed().is_some());
        let vendors: Vec<Vendor> = signed.filter_map(|item| item.format().vendor()).collect();
        let target = self.target.and_then(|target| target.profile.vendor);
        let owner = target.filter(|vendor| vendors.contains(vendor));
        let owner = owner.or_else(|| vendors.first().copied());
        for (item, element) in self.items.iter().enumerate() {
            let format = element.format();
            if element.sealed().is_none() && must_be_sealed(element) {
                violations.push(ReplayViolation::Unsigned { item, format });
            } else if element.sealed().is_some() && self.is_foreign(&format, owner) {
                violations.push(ReplayViolation::Foreign { item, format });
            }
        }
    }

    /// Returns whether the element's Seal comes from another vendor than `owner`, or the target
    /// cannot read it.
    fn is_foreign(self, format: &ReasoningFormat, owner: Option<Vendor>) -> bool {
        let is_strangers = format.vendor().is_some() && format.vendor() != owner;
        let is_misdirected = self.issuer.zip(self.target).is_some_and(|(issuer, target)| {
            let to = &target.origin;
            let is_elsewhere = issuer.provider != to.provider || issuer.endpoint != to.endpoint;
            let bound = target.profile.bound;
            is_elsewhere
                || bound.account && issuer.account != to.account
                || bound.model && !target.profile.reads_seals_of(&issuer.family)
        });
        is_strangers || is_misdirected
    }

    /// Checks that the elements are in the order in which they were issued, without duplicates or
    /// stream fragments.
    fn check_order(self, violations: &mut Vec<ReplayViolation>) {
        let mut seen = HashSet::new();
        let mut highest: Option<u64> = None;
        for (item, element) in self.items.iter().enumerate() {
            let index = element.meta().and_then(|meta| meta.index);
            if element.sealed().is_some_and(|(seal, _)| !seen.insert(seal.reveal_to_tenant())) {
                violations.push(ReplayViolation::Duplicated { item });
            }
            if index < highest && index.is_some() {
                violations.push(ReplayViolation::OutOfOrder { item });
            }
            let before = item.checked_sub(1).and_then(|before| self.items.get(before));
            if index.is_some() && before.is_some_and(|before| is_fragment(before, element)) {
                violations.push(ReplayViolation::Fragmented { item });
            }
            highest = highest.max(index);
        }
    }

    /// For formats that sign calls, checks that the turn's first call is signed. If a turn contains
    /// parallel calls, only the first one is signed.
    fn check_calls(self, violations: &mut Vec<ReplayViolation>) {
        let is_googles = |item: &&ReasoningItem| item.format().vendor() == Some(Vendor::Google);
        let mut handles = self.items.iter().filter(is_googles).peekable();
        let (Some(first), Some(_)) = (self.calls.first(), handles.peek()) else { return };
        let attaches = |item: &ReasoningItem| match item.meta().and_then(|meta| meta.id.as_ref()) {
            Some(id) => id == first || !self.calls.contains(id),
            None => true,
        };
        if !handles.any(|item| item.sealed().is_some() && attaches(item)) {
            violations.push(ReplayViolation::UnsignedCall { call: first.clone() });
        }
    }
}

/// Returns whether the provider rejects this element if it has no Seal. Anthropic signs every
/// readable block, and an encrypted element without data has no content.
fn must_be_sealed(element: &ReasoningItem) -> bool {
    match element {
        ReasoningItem::Text { meta, .. } => {
            meta.format.as_ref().and_then(ReasoningFormat::vendor) == Some(Vendor::Anthropic)
        }
        ReasoningItem::Encrypted { .. } => true,
        ReasoningItem::Summary { .. } | ReasoningItem::Unknown(_) => false,
    }
}

/// Returns whether two elements are stream fragments of one text: they have the same index, and the
/// first one is unsigned.
fn is_fragment(before: &ReasoningItem, element: &ReasoningItem) -> bool {
    let index = |item: &ReasoningItem| item.meta().and_then(|meta| meta.index);
    let are_texts =
        matches!((before, element), (ReasoningItem::Text { .. }, ReasoningItem::Text { .. }));
    are_texts
        && index(before) == index(element)
        && before.sealed().is_none()
        && must_be_sealed(element)
}

/// The result of auditing a turn's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayAudit {
    /// The number of reasoning elements.
    pub item_count: usize,
    /// The number of elements with a non-empty Seal.
    pub signed_count: usize,
    /// The formats, sorted by name, without duplicates.
    pub formats: Vec<ReasoningFormat>,
    /// All reasons why a replay of the turn would fail; empty if the replay would succeed.
    pub violations: Vec<ReplayViolation>,
}

impl ReplayAudit {
    /// Returns whether the turn can be replayed unchanged.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns the first violation, if any.
    pub fn violation(&self) -> Option<&ReplayViolation> {
        self.violations.first()
    }

    /// Returns the audit as JSON: `item_count`, `signed_count`, `formats`, the first `violation` if
    /// there is one, and all `violations`.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    /// Writes the members of [`ReplayAudit::json`] into an object.
    pub fn write(&self, out: &mut Object<'_>) {
        out.put("item_count", self.item_count).put("signed_count", self.signed_count);
        out.list("formats", self.formats.iter().map(ReasoningFormat::as_str));
        if let Some(first) = self.violation() {
            out.object("violation", |out| first.write(out));
        }
        out.objects("violations", &self.violations, |out, violation| violation.write(out));
    }
}

/// One reason why the replay of a turn would fail. [`Missing`](Self::Missing) and
/// [`Invalid`](Self::Invalid) cannot be detected from the turn alone: the outgoing request or the
/// original response is needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayViolation {
    /// The provider requires its reasoning to be sent back, but no element in the turn is signed.
    #[error("the replay contract is {contract}, but no element of this turn is signed")]
    MissingSignaturesForStrictProvider {
        /// The replay contract that the turn violates.
        contract: ReplayContract,
        /// The formats in the turn.
        formats: Vec<ReasoningFormat>,
    },
    /// An element's signature or data is missing or empty.
    #[error("element {item} of format {format} has no signature")]
    Unsigned {
        /// The element's index in the turn, from 0.
        item: usize,
        /// The element's format.
        format: ReasoningFormat,
    },
    /// A tool call lacks its signature.
    #[error("the first tool call, {call}, has no signature")]
    UnsignedCall {
        /// The id of the unsigned call.
        call: Name,
    },
    /// Reasoning that the provider requires to be sent back is missing.
    #[error("reasoning that the provider requires is missing")]
    Missing,
    /// A sealed element's text or Seal was altered, or the content before the element was altered.
    #[error("element {item} of format {format} has a Seal that does not match its content")]
    Invalid {
        /// The element's index in the turn, from 0.
        item: usize,
        /// The element's format.
        format: ReasoningFormat,
    },
    /// The element's Seal comes from another vendor than the target's Seals in this turn, or the
    /// target cannot read it. Without Seals of the target, the turn's first Seal decides.
    #[error("element {item} of format {format} has a Seal that the target model did not issue")]
    Foreign {
        /// The element's index in the turn, from 0.
        item: usize,
        /// The element's format.
        format: ReasoningFormat,
    },
    /// An element is a stream fragment that continues the previous element.
    #[error("element {item} is a stream fragment of the previous element")]
    Fragmented {
        /// The element's index in the turn, from 0.
        item: usize,
    },
    /// An element appears after an element that was issued later.
    #[error("element {item} follows an element that was issued later")]
    OutOfOrder {
        /// The element's index in the turn, from 0.
        item: usize,
    },
    /// An element repeats a Seal that the same turn already contains.
    #[error("element {item} repeats a Seal of this turn")]
    Duplicated {
        /// The element's index in the turn, from 0.
        item: usize,
    },
}

impl ReplayViolation {
    /// Returns the violation's name in documents, such as `unsigned_call`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::MissingSignaturesForStrictProvider { .. } => {
                "missing_signatures_for_strict_provider"
            }
            Self::Unsigned { .. } => "unsigned",
            Self::UnsignedCall { .. } => "unsigned_call",
            Self::Missing => "missing",
            Self::Invalid { .. } => "invalid",
            Self::Foreign { .. } => "foreign",
            Self::Fragmented { .. } => "fragmented",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::Duplicated { .. } => "duplicated",
        }
    }

    /// Returns the violation as JSON: its name as `kind`, its details, and a readable `message`.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    fn write(&self, out: &mut Object<'_>) {
        out.string("kind", self.as_str());
        let out = match self {
            Self::MissingSignaturesForStrictProvider { contract, formats } => {
                out.string("contract", contract.as_str());
                out.list("formats", formats.iter().map(ReasoningFormat::as_str))
            }
            Self::Missing => out,
            Self::Unsigned { item, format }
            | Self::Invalid { item, format }
            | Self::Foreign { item, format } => {
                out.put("item", *item).string("format", format.as_str())
            }
            Self::UnsignedCall { call } => out.string("call", call),
            Self::Fragmented { item } | Self::OutOfOrder { item } | Self::Duplicated { item } => {
                out.put("item", *item)
            }
        };
        out.string("message", &self.to_string());
    }
}
