//! Whether one turn's reasoning can be replayed: the documents' `ReplayAudit`, and the codec that reads and writes
//! `reasoning_details`.
//!
//! Every element is judged for itself. A signature of `""` is none, and one that is signed does not excuse the others;
//! what is demanded depends on whose shape an element has, because each provider attaches its handle elsewhere. This is the
//! verdict on a turn that is held; a request that is about to be sent is audited by the codec crate, rule by rule.

use std::collections::HashSet;

use crate::format::ReasoningFormat;
use crate::json::{self, Array, Json, Object};
use crate::name::Name;
use crate::origin::{Origin, Target};
use crate::profile::{Contract, Vendor};
use crate::view::details::{ReasoningItem, parse_details, print_details};

const DETAILS: &str = "reasoning_details";

/// Whether a turn's reasoning must be sent back. It is what a model's profile calls its [`Contract`].
pub use crate::profile::Contract as ReplayContract;

/// A translator between a provider's native reasoning and typed items: pure, and without state.
pub trait ReasoningCodec {
    /// The reasoning of an answer, in its order. What is of no kind we know is kept as it is.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem>;

    /// The assistant message with these items on it, for the next request. Without items it stays as it came.
    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json;

    /// When the provider that these items came from wants them back: the strictest of what their formats demand.
    fn replay_contract(&self, items: &[ReasoningItem]) -> ReplayContract {
        let contracts = items.iter().map(|item| item.format().replay_contract());
        contracts.fold(Contract::Stateless, |strictest, contract| match (strictest, contract) {
            (Contract::AlwaysRequired, _) | (_, Contract::AlwaysRequired) => {
                Contract::AlwaysRequired
            }
            (Contract::RequiredWithTools, _) | (_, Contract::RequiredWithTools) => {
                Contract::RequiredWithTools
            }
            (Contract::Stateless, Contract::Stateless) => Contract::Stateless,
        })
    }

    /// Whether these items satisfy that contract.
    fn audit(&self, items: &[ReasoningItem], next_turn_carries_tools: bool) -> ReplayAudit {
        audit_replay(items, self.replay_contract(items), next_turn_carries_tools)
    }
}

/// The default codec: `reasoning_details` on the message that came and on the message that goes back, for every provider
/// that `OpenRouter` routes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRouterReasoningCodec;

impl ReasoningCodec for OpenRouterReasoningCodec {
    /// Reads a message, or a whole response whose first choice holds one.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        let tree = response.tree();
        let message = tree.root().at("/choices/0/message").unwrap_or(tree.root());
        let details = message.get(DETAILS).map(crate::json::Node::json);
        details.and_then(|details| parse_details(&details)).unwrap_or_default()
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        if items.is_empty() {
            return message.clone();
        }
        let tree = message.tree();
        json::object(|out| {
            for (key, value) in tree.root().members().filter(|(key, _)| !key.is(DETAILS)) {
                out.node(&key.text().unwrap_or_default(), value);
            }
            out.raw(DETAILS, &print_details(items));
        })
    }
}

/// Whether a turn's items satisfy the contract of the provider that they came from.
///
/// Items are all that is looked at. Where the turn's tool calls, its author or the model that is asked next are known as
/// well, [`ReplayTurn`] judges by them too.
pub fn audit_replay(
    items: &[ReasoningItem],
    contract: ReplayContract,
    next_turn_carries_tools: bool,
) -> ReplayAudit {
    ReplayTurn::of(items).audit(contract, next_turn_carries_tools)
}

/// One assistant turn, with whatever is known of it.
#[derive(Clone, Copy, Debug)]
pub struct ReplayTurn<'t> {
    items: &'t [ReasoningItem],
    calls: &'t [Name],
    issuer: Option<&'t Origin>,
    target: Option<&'t Target>,
}

impl<'t> ReplayTurn<'t> {
    /// A turn of which only the reasoning is known.
    pub fn of(items: &'t [ReasoningItem]) -> Self {
        Self { items, calls: &[], issuer: None, target: None }
    }

    /// The same turn, which called tools: the ids of its calls, in order.
    #[must_use]
    pub fn calling(self, calls: &'t [Name]) -> Self {
        Self { calls, ..self }
    }

    /// The same turn, which that model said.
    #[must_use]
    pub fn issued_by(self, issuer: &'t Origin) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// The same turn, which is about to be sent there.
    #[must_use]
    pub fn sent_to(self, target: &'t Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Judges it. Where the contract does not apply nothing is owed: what cannot be replayed can be left out.
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
            Contract::RequiredWithTools => next_turn_carries_tools || self.calls_bind(),
            Contract::AlwaysRequired => true,
        };
        if applies {
            self.judge_items(&mut audit.violations);
            self.judge_order(&mut audit.violations);
            self.judge_calls(&mut audit.violations);
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

    /// Whether the turn's own calls make its reasoning due, whatever comes next. Anthropic asks only when the next turn
    /// brings a result; Gemini and `OpenAI` as soon as there is a call.
    fn calls_bind(self) -> bool {
        let counts = |item: &ReasoningItem| {
            matches!(item.format().vendor(), Some(Vendor::Google | Vendor::OpenAi))
        };
        !self.calls.is_empty() && self.items.iter().any(counts)
    }

    /// Whether each element has the handle that its own shape needs, from somebody whom the target reads.
    fn judge_items(self, violations: &mut Vec<ReplayViolation>) {
        let mut signed = self.items.iter().filter(|item| item.sealed().is_some());
        let owner = signed.find_map(|item| item.format().vendor());
        for (item, element) in self.items.iter().enumerate() {
            let format = element.format();
            if element.sealed().is_none() && must_be_sealed(element) {
                violations.push(ReplayViolation::Unsigned { item, format });
            } else if element.sealed().is_some() && self.is_foreign(&format, owner) {
                violations.push(ReplayViolation::Foreign { item, format });
            }
        }
    }

    /// Whether somebody else sealed it than the turn's own author, or it goes to one who does not read it.
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

    /// Whether the elements stand as they were issued: each once, whole, and in their order.
    fn judge_order(self, violations: &mut Vec<ReplayViolation>) {
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

    /// Whether the turn's first call has its signature, where signatures sit on calls: of calls made together only the
    /// first is signed.
    fn judge_calls(self, violations: &mut Vec<ReplayViolation>) {
        let is_googles = |item: &&ReasoningItem| item.format().vendor() == Some(Vendor::Google);
        let Some(first) =
            self.calls.first().filter(|_| self.items.iter().any(|item| is_googles(&item)))
        else {
            return;
        };
        let attaches = |item: &ReasoningItem| match item.meta().and_then(|meta| meta.id.as_ref()) {
            Some(id) => id == first || !self.calls.contains(id),
            None => true,
        };
        let mut handles = self.items.iter().filter(is_googles);
        if !handles.any(|item| item.sealed().is_some() && attaches(item)) {
            violations.push(ReplayViolation::UnsignedCall { call: first.clone() });
        }
    }
}

/// Whether an element of its format is refused without its handle: Anthropic signs every block it shows, and a blob without
/// its data is nothing.
fn must_be_sealed(element: &ReasoningItem) -> bool {
    match element {
        ReasoningItem::Text { meta, .. } => {
            meta.format.as_ref().and_then(ReasoningFormat::vendor) == Some(Vendor::Anthropic)
        }
        ReasoningItem::Encrypted { .. } => true,
        ReasoningItem::Summary { .. } | ReasoningItem::Unknown(_) => false,
    }
}

/// Whether two elements are pieces of one text that a stream cut: the same place, and the first without its signature.
fn is_fragment(before: &ReasoningItem, element: &ReasoningItem) -> bool {
    let index = |item: &ReasoningItem| item.meta().and_then(|meta| meta.index);
    let are_texts =
        matches!((before, element), (ReasoningItem::Text { .. }, ReasoningItem::Text { .. }));
    are_texts
        && index(before) == index(element)
        && before.sealed().is_none()
        && must_be_sealed(element)
}

impl ReasoningFormat {
    /// Whose models read what has this shape; nothing where it names nobody we know.
    pub fn vendor(&self) -> Option<Vendor> {
        match self {
            Self::AnthropicClaudeV1 => Some(Vendor::Anthropic),
            Self::GoogleGeminiV1 => Some(Vendor::Google),
            Self::OpenAiResponsesV1 | Self::AzureOpenAiResponsesV1 => Some(Vendor::OpenAi),
            Self::XaiResponsesV1 => Some(Vendor::Xai),
            Self::Other(name) if name.ends_with("openai-responses-v1") => Some(Vendor::OpenAi),
            Self::Other(name) if name.ends_with("xai-responses-v1") => Some(Vendor::Xai),
            Self::Other(_) => None,
        }
    }

    /// When a provider of this format wants its reasoning back.
    pub fn replay_contract(&self) -> ReplayContract {
        match self.vendor() {
            Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi) => {
                Contract::RequiredWithTools
            }
            Some(Vendor::Xai) | None => Contract::Stateless,
        }
    }
}

/// What was found of a turn's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayAudit {
    /// How many reasoning elements the turn has.
    pub item_count: usize,
    /// How many of them carry a seal that is not empty.
    pub signed_count: usize,
    /// Whose shapes they have, sorted by name, each once.
    pub formats: Vec<ReasoningFormat>,
    /// Every way in which replaying them would fail.
    pub violations: Vec<ReplayViolation>,
}

impl ReplayAudit {
    /// Whether the turn can be replayed as it is.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The first way in which it would fail.
    pub fn violation(&self) -> Option<&ReplayViolation> {
        self.violations.first()
    }

    /// The document's JSON: `item_count`, `signed_count`, `formats`, the first `violation` if there is one, and all of
    /// them as `violations`.
    pub fn json(&self) -> Json {
        json::object(|out| self.write(out))
    }

    /// Writes the document's members into an object that is being written.
    pub fn write(&self, out: &mut Object<'_>) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        out.number("item_count", number(self.item_count));
        out.number("signed_count", number(self.signed_count));
        out.array("formats", |list| write_formats(list, &self.formats));
        if let Some(first) = self.violation() {
            out.raw("violation", &first.json());
        }
        out.array("violations", |list| {
            for violation in &self.violations {
                list.raw(&violation.json());
            }
        });
    }
}

fn write_formats(list: &mut Array<'_>, formats: &[ReasoningFormat]) {
    for format in formats {
        list.string(format.as_str());
    }
}

/// One way in which replaying a turn would fail. What is [missing](Self::Missing) or [invalid](Self::Invalid) is not seen
/// in the turn alone: it takes the request that it goes in, or the answer that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayViolation {
    /// The provider demands its reasoning back, and nothing in the turn is signed.
    MissingSignaturesForStrictProvider {
        /// The demand.
        contract: ReplayContract,
        /// Whose shapes the turn has.
        formats: Vec<ReasoningFormat>,
    },
    /// An element lacks the signature or the data that its provider issued, or has an empty one.
    Unsigned {
        /// The number of the element.
        item: usize,
        /// Whose shape it has.
        format: ReasoningFormat,
    },
    /// A tool call lacks the signature that sits on it.
    UnsignedCall {
        /// The call's id.
        call: Name,
    },
    /// Reasoning that the provider demands back is not there at all.
    Missing,
    /// An element is sealed, and what it is sealed to differs: its own words, its seal's bytes, or what stood before it.
    Invalid {
        /// The number of the element.
        item: usize,
        /// Whose shape it has.
        format: ReasoningFormat,
    },
    /// An element was sealed by another than the turn's author, or goes to one who cannot read it.
    Foreign {
        /// The number of the element.
        item: usize,
        /// Whose shape it has.
        format: ReasoningFormat,
    },
    /// An element is a further piece of the one before it, as a stream cut them.
    Fragmented {
        /// The number of the element.
        item: usize,
    },
    /// An element stands behind one that was issued later.
    OutOfOrder {
        /// The number of the element.
        item: usize,
    },
    /// An element repeats a seal that stands in the turn already.
    Duplicated {
        /// The number of the element.
        item: usize,
    },
}

impl ReplayViolation {
    /// The word for it.
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

    /// Its JSON: the `kind`, what it is about, and a `message` for people.
    pub fn json(&self) -> Json {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        json::object(|out| {
            out.string("kind", self.as_str());
            match self {
                Self::MissingSignaturesForStrictProvider { contract, formats } => {
                    out.string("contract", contract.as_str());
                    out.array("formats", |list| write_formats(list, formats));
                }
                Self::Missing => {}
                Self::Unsigned { item, format }
                | Self::Invalid { item, format }
                | Self::Foreign { item, format } => {
                    out.number("item", number(*item)).string("format", format.as_str());
                }
                Self::UnsignedCall { call } => {
                    out.string("call", call);
                }
                Self::Fragmented { item }
                | Self::OutOfOrder { item }
                | Self::Duplicated { item } => {
                    out.number("item", number(*item));
                }
            }
            out.string("message", &self.to_string());
        })
    }
}

impl std::fmt::Display for ReplayViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MissingSignaturesForStrictProvider { contract, .. } => {
                write!(f, "the contract is {contract}, and nothing in this turn is signed")
            }
            Self::Unsigned { item, format } => {
                write!(f, "element {item} has the format {format} and no signature")
            }
            Self::UnsignedCall { call } => {
                write!(f, "the first tool call, {call}, has no signature")
            }
            Self::Missing => f.write_str("reasoning that must come back is missing"),
            Self::Invalid { item, format } => write!(
                f,
                "element {item} has the format {format} and a seal that does not fit it here"
            ),
            Self::Foreign { item, format } => write!(
                f,
                "element {item} has the format {format} and was sealed by another than the model that gets it"
            ),
            Self::Fragmented { item } => {
                write!(
                    f,
                    "element {item} is a further piece of the one before it, not an element of its own"
                )
            }
            Self::OutOfOrder { item } => {
                write!(f, "element {item} stands behind one that was issued later")
            }
            Self::Duplicated { item } => {
                write!(f, "element {item} repeats a seal that stands in this turn already")
            }
        }
    }
}
