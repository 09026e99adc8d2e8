//! Describes the differences between replayed and issued content, which `match_issued.rs` finds.

use std::borrow::Cow;
use std::ops::Range;

use throughline_core::{Call, Direction, ElisionReason, Item, Reply, Target, Wire};
use throughline_json::{Json, Node};

use crate::audit::fix::Edit;
use crate::audit::rule::{Finding, Rule};
use crate::draft::is_same_endpoint;

/// The current request compared with the earlier exchanges.
pub struct Comparison<'p> {
    /// The current request, decoded from the audited bytes.
    pub call: Call,
    /// The differences, in request order.
    pub changes: Vec<Change<'p>>,
    /// The first request element before a replayed, prefix-bound thought that changed after the
    /// thought was issued.
    pub prefix: Option<PrefixChange<'p>>,
    /// The first request element whose JSON member order differs from the previous request.
    pub reordered: Option<ReorderedElement>,
}

/// A request element that differs from the previous request only in the order of its JSON members.
/// The reordering causes a cache miss.
#[derive(Clone, Debug)]
pub struct ReorderedElement {
    /// The element's byte range in the current request.
    pub place: Range<usize>,
    /// The element with the member order of the previous request.
    pub before: Json,
}

impl Comparison<'_> {
    /// Reports the reordered element, if any, under `rule`.
    pub fn cache_finding(&self, rule: &'static Rule) -> Option<Finding> {
        let ReorderedElement { place, before } = self.reordered.clone()?;
        let message =
            "the content is unchanged since the previous request, but the member order differs";
        let edit = Edit::Replace(place.clone(), before);
        let finding = Finding::in_range(rule, place, message);
        Some(finding.fixed_by("restores the element as it was sent before", [edit]))
    }
}

/// A difference between an issued part and the request, or a part of the request that was never
/// issued.
#[derive(Clone, Debug)]
pub struct Change<'p> {
    /// How the request differs from the issued value.
    pub kind: ChangeKind,
    /// The byte range in the request of the part that has the Seal, or that lost the Seal. `None`
    /// if the request does not contain the part.
    pub part: Option<Range<usize>>,
    /// The byte range of the Seal in the request; `None` if the request does not contain the Seal.
    pub seal: Option<Range<usize>>,
    /// The issued Item; `None` if no known response issued the value.
    pub issued: Option<IssuedItem<'p>>,
    /// Whether the part belongs to the unfinished turn, after the last user message.
    pub is_current: bool,
    /// Whether the part belongs to the last assistant message.
    pub is_latest: bool,
    /// Whether the part, or the model output that follows it, occurs in the earlier exchanges. If
    /// not, an unissued value may come from an exchange outside the transcript.
    pub is_placed: bool,
}

/// An Item that a model issued, and optionally one of its Seals.
#[derive(Clone, Copy, Debug)]
pub struct IssuedItem<'p> {
    /// The index of the exchange in [`PriorExchanges`](super::PriorExchanges).
    pub exchange: usize,
    /// The index of the Item in the Reply.
    pub index: usize,
    /// The Reply that contains the Item.
    pub reply: &'p Reply,
    /// The Item as the response contained it.
    pub item: &'p Item,
    /// The index of the Seal in the Item; `None` for an unsealed thought.
    pub seal: Option<usize>,
}

impl IssuedItem<'_> {
    /// Returns the Seal's value as it appears in the response, if the response was on this wire.
    pub fn seal_json(&self, wire: &Wire) -> Option<Json> {
        let seal = self.item.seals.get(self.seal.unwrap_or_default())?;
        let native = self.item.native_on(wire)?;
        let tree = native.json.tree();
        let value = tree.root().at(&seal.attached.at).map(Node::json);
        value.filter(|_| native.side == Direction::Response)
    }

    /// Returns whether the target's endpoint issued the Item and the target accepts all Seals of
    /// the Item.
    pub fn is_readable_by(&self, target: &Target) -> bool {
        is_same_endpoint(&self.reply.origin, &target.origin) && opens_all(self.item, target)
    }
}

/// Returns whether the target accepts all Seals of an Item.
pub(crate) fn opens_all(item: &Item, target: &Target) -> bool {
    item.seals.iter().all(|seal| seal.open_for(target, None).is_ok())
}

/// The kind of difference between issued and replayed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The Seal differs from the issued Seal.
    SealAltered {
        /// The index of the first differing byte of the Seal.
        first: usize,
    },
    /// The Seal has the same bytes in another base64 alphabet or padding.
    SealReencoded,
    /// The part is present without its Seal.
    SealDropped,
    /// The part and its Seal are missing, although other parts of the Reply are present.
    PartDropped,
    /// The Seal was moved to another part.
    SealMoved,
    /// The part is not in the same message as the rest of its Reply.
    PartMoved,
    /// The visible text that the Seal covers differs.
    TextEdited {
        /// The index of the first differing character of the text.
        first: usize,
    },
    /// The part joins the texts of several issued parts.
    Merged,
    /// The order of the part relative to other parts differs from the issued order.
    Reordered,
    /// The same Seal occurs more than once.
    Duplicated,
    /// No response in the conversation issued the Seal.
    Unissued,
    /// The Seal was issued by a provider, account or model whose Seals the target rejects.
    Foreign(ElisionReason),
    /// A thought was sent as plain text.
    SentAsText,
}

impl ChangeKind {
    /// Describes the difference, worded to follow "the Seal" or "the thought" in a sentence.
    pub fn describe(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::SealAltered { first } => {
                return format!("differs from the issued one, starting at byte {first}").into();
            }
            Self::TextEdited { first } => {
                return format!("differs from the issued one, starting at character {first}")
                    .into();
            }
            Self::SealReencoded => "was re-encoded in another base64 alphabet or padding",
            Self::SealDropped => "was issued but is missing here",
            Self::PartDropped => "was issued but is missing",
            Self::SealMoved => "was issued on another part",
            Self::PartMoved => "is in another message than the rest of its response",
            Self::Merged => "combines several issued parts",
            Self::Reordered => "is not in the order in which it was issued",
            Self::Duplicated => "is a duplicate",
            Self::Unissued => "was not issued in this conversation",
            Self::Foreign(ElisionReason::OtherAccount) => "was issued to another account",
            Self::Foreign(ElisionReason::OtherModel) => {
                "was issued by a model whose Seals this model cannot read"
            }
            Self::Foreign(_) => "was issued by another provider or endpoint",
            Self::SentAsText => "was a thought but is sent here as plain text",
        })
    }
}

/// A request element that changed after a prefix-bound thought was issued.
#[derive(Clone, Debug)]
pub struct PrefixChange<'p> {
    /// The path of the element, for example `system`, `tools.1` or `messages.4`.
    pub element: String,
    /// The element's byte range in the current request; `None` if the element is missing.
    pub place: Option<Range<usize>>,
    /// The byte range of the first part whose Seal the change invalidates.
    pub part: Range<usize>,
    /// The Item that was issued with the original prefix.
    pub issued: IssuedItem<'p>,
}
