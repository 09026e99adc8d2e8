//! What differs between what a request sends back and what was issued: the words for it. `exact.rs` finds it.

use std::ops::Range;

use throughline_core::{Call, Item, Json, Reply, Why};

use crate::audit::mend::{Edit, Mend};
use crate::audit::rule::{Finding, Rule};

/// The present request beside what came before.
pub struct Comparison<'p> {
    /// The present request, read.
    pub call: Call,
    /// What differs, in the order of the request.
    pub changes: Vec<Change<'p>>,
    /// The first element that differs from what stood before a thought when it was issued.
    pub prefix: Option<PrefixChange<'p>>,
    /// The first element that says the same as in the request before, with its members in another order.
    pub reordered: Option<Reordered>,
}

/// An element that says the same as in the request before, with its members in another order: caches miss it.
#[derive(Clone, Debug)]
pub struct Reordered {
    /// Its place in the present request.
    pub place: Range<usize>,
    /// How it was written before.
    pub before: Json,
}

impl Comparison<'_> {
    /// What there is to say of an element whose members changed their order, by the wire's own rule.
    pub fn broken_cache(&self, rule: &'static Rule) -> Option<Finding> {
        let Reordered { place, before } = self.reordered.clone()?;
        let message = "the last request said the same, with its members in another order";
        let edit = Edit::Replace(place.clone(), before);
        let mend = Mend::new("writes it as it was sent before", [edit]);
        Some(Finding::in_range(rule, place, message).mended(Some(mend)))
    }
}

/// One thing that was issued and does not come back as it was, or comes back from nowhere.
#[derive(Clone, Debug)]
pub struct Change<'p> {
    /// What happened.
    pub kind: ChangeKind,
    /// The part of the request that it happened to: which carries the seal now, or has lost it. Nothing where the part is
    /// gone as well.
    pub part: Option<Range<usize>>,
    /// The seal's own value in the request, where there is one.
    pub seal: Option<Range<usize>>,
    /// What was issued, where that is known.
    pub issued: Option<Issued<'p>>,
    /// Whether it belongs to the turn that is not finished: behind the last thing that the user said.
    pub is_current: bool,
    /// Whether it belongs to the last message of the model.
    pub is_latest: bool,
    /// Whether what it stands on, or before, is known to have been said. What nobody issued may otherwise only come from an
    /// exchange that nobody told of.
    pub is_placed: bool,
}

/// One Item that a model said.
#[derive(Clone, Copy, Debug)]
pub struct Issued<'p> {
    /// The number of the exchange.
    pub exchange: usize,
    /// The number of the Item in its Reply.
    pub index: usize,
    /// The Reply.
    pub reply: &'p Reply,
    /// The Item.
    pub item: &'p Item,
    /// Which of its Seals; nothing for a thought without any.
    pub seal: Option<usize>,
}

/// What happened to something that was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The seal differs from the one issued, first at this byte.
    SealAltered {
        /// The first differing byte of the seal.
        first: usize,
    },
    /// The seal's bytes are the same in another base64 alphabet or padding.
    SealReencoded,
    /// The part is there without its seal.
    SealDropped,
    /// The part is gone with its seal; others of its Reply are there.
    PartDropped,
    /// The seal is on another part than the one it was issued with.
    SealMoved,
    /// The part stands in another message than the rest of its Reply.
    PartMoved,
    /// The text that the seal stands for differs, first at this character.
    TextEdited {
        /// The first differing character of the text.
        first: usize,
    },
    /// The part holds the text of several that were issued.
    Merged,
    /// The part stands before one that was issued earlier.
    Reordered,
    /// The same seal stands in two places.
    Duplicated,
    /// Nobody in the conversation issued it.
    Unissued,
    /// Somebody issued it whose seals the target does not take.
    Foreign(Why),
    /// What was thought is said as plain text.
    SaidAloud,
}

impl ChangeKind {
    /// What happened, as the end of a sentence that begins with the name of the seal or thought.
    pub fn phrase(self) -> String {
        match self {
            Self::SealAltered { first } => {
                format!("differs from the one that was issued, first at byte {first}")
            }
            Self::SealReencoded => "was written anew in another base64 alphabet".to_owned(),
            Self::SealDropped => "was issued and is missing here".to_owned(),
            Self::PartDropped => "was issued and is gone".to_owned(),
            Self::SealMoved => "was issued on another part".to_owned(),
            Self::PartMoved => "stands apart from the rest of its answer".to_owned(),
            Self::TextEdited { first } => {
                format!("differs from what was issued, first at character {first}")
            }
            Self::Merged => "holds what was issued as several".to_owned(),
            Self::Reordered => "stands in another order than it was issued in".to_owned(),
            Self::Duplicated => "stands here a second time".to_owned(),
            Self::Unissued => "was issued by nobody in this conversation".to_owned(),
            Self::Foreign(why) => match why {
                Why::OtherAccount => "was issued to another account".to_owned(),
                Why::OtherModel => {
                    "was issued by a model whose seals this one does not read".to_owned()
                }
                Why::Foreign
                | Why::PrefixChanged
                | Why::Unsigned
                | Why::Cut
                | Why::Altered
                | Why::Covered
                | Why::Forgotten
                | Why::Expired
                | Why::NotOnThisWire
                | Why::ByPolicy => "was issued by another provider or endpoint".to_owned(),
            },
            Self::SaidAloud => "was a thought, and is said here as plain text".to_owned(),
        }
    }
}

/// An element of the request that differs from what stood there when a bound thought was issued.
#[derive(Clone, Debug)]
pub struct PrefixChange<'p> {
    /// What changed, as `system`, `tools.1` or `messages.4`.
    pub element: String,
    /// Its place in the present request; nothing where it is gone.
    pub place: Option<Range<usize>>,
    /// The first part of the present request whose seal no longer fits.
    pub part: Range<usize>,
    /// What was issued there.
    pub issued: Issued<'p>,
}
