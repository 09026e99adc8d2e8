//! What can happen to a run: the only things that change its state.

use std::collections::HashSet;

use jiff::Timestamp;
use throughline_core::{
    Body, Did, Fate, Item, ItemId, ModelError, Name, Reply, ToolApprovalResolution,
    UserQuestionResolution,
};

use crate::permit::CallDenial;
use crate::progress::Purpose;
use crate::tool::ToolAnswer;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Somebody spoke: the run begins. Each body is one part of one message.
    Said(Vec<Body>),
    /// Somebody wants what is old summarised, and nothing else: the run begins, and ends with the summary.
    Compact,
    /// A model answered.
    Answered(Box<Heard>),
    /// A model did not answer.
    Failed {
        /// What it was asked for.
        purpose: Purpose,
        /// Why it did not.
        error: ModelError,
        /// Whether a piece of the answer was shown already.
        streamed: bool,
    },
    /// The run may not make its next model call.
    Denied {
        /// What the model was to be asked for.
        purpose: Purpose,
        /// Why it may not.
        denial: CallDenial,
    },
    /// These calls are begun now.
    ToolsBegan(Vec<Name>),
    /// A tool answered.
    ToolEnded(Ended),
    /// A person decided on a tool call.
    Decided(ToolApprovalResolution),
    /// A person answered a question, or refuses to.
    Answer(UserQuestionResolution),
    /// The caller's own tools answered.
    Returned(Vec<Ended>),
    /// Nobody decided in time.
    Expired(Name),
    /// Whoever was at it is gone, and somebody else goes on.
    Interrupted,
    /// The run was restored from a document, which is untrusted: every open call is decided again.
    Restored(OpenCalls),
    /// The time of the run may be up, and somebody is still at work.
    TimeUp,
    /// From now on another model is asked.
    Switched {
        /// The model.
        model: Name,
        /// Whether its seals are bound to all that was sent before them.
        is_prefix_bound: bool,
    },
    /// Somebody stops it.
    Cancelled(Option<Name>),
}

/// Which open calls of a restored run need an approval before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCalls {
    /// Those whose tool demands one, or for which a rule of the run's agent does.
    ByRules,
    /// All of them: for documents whose agent, and so whose rules, cannot be checked.
    NeedApproval,
}

/// An answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it was asked for.
    pub purpose: Purpose,
    /// The answer.
    pub reply: Reply,
    /// What became of what was sent.
    pub fates: Replayed,
    /// Whether a piece of it was shown before it was whole.
    pub streamed: bool,
    /// What it cost, in US dollars.
    pub cost: Option<f64>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// An answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The call.
    pub call: Name,
    /// The answer.
    pub answer: ToolAnswer,
}

/// What a Call did with the thoughts and seals that it had, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Thoughts, by what was done with them.
    pub thoughts: Counted,
    /// Seals, by what was done with them.
    pub seals: Counted,
    /// Why something was left out, with how often.
    pub why: Vec<(Name, u64)>,
    /// What happened to thoughts and sealed Items, in their order.
    pub spans: Vec<Span>,
}

/// Items that stand behind one another, and to which the same happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first of them.
    pub first: Name,
    /// What happened.
    pub did: Name,
    /// How many they are.
    pub count: u64,
}

/// How often each was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Sent as it was.
    pub kept: u64,
    /// Put back.
    pub restored: u64,
    /// Said in another way.
    pub reshaped: u64,
    /// Left out.
    pub elided: u64,
}

impl Counted {
    fn count(&mut self, did: &Did) {
        match did {
            Did::Kept => self.kept += 1,
            Did::Restored(_) => self.restored += 1,
            Did::Reshaped(_) => self.reshaped += 1,
            Did::Elided(_) => self.elided += 1,
        }
    }
}

impl Replayed {
    /// The Items that are thoughts.
    pub fn thoughts(items: &[Item]) -> HashSet<ItemId> {
        let thoughts = items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        thoughts.map(|item| item.id.clone()).collect()
    }

    /// Counts what became of what was sent, of which these are the thoughts.
    pub fn of(fates: &[Fate], thoughts: &HashSet<ItemId>) -> Self {
        let mut replayed = Self::default();
        for fate in fates {
            let visible = thoughts.contains(&fate.item).then_some(&fate.visible);
            if let Some(did) = visible {
                replayed.thoughts.count(did);
            }
            for did in &fate.seals {
                replayed.seals.count(did);
            }
            for did in visible.into_iter().chain(&fate.seals) {
                let Did::Elided(why) = did else { continue };
                let why = Name::from(why.to_string());
                match replayed.why.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, count)) => *count += 1,
                    None => replayed.why.push((why, 1)),
                }
            }
            // What happened to a sealed Item is what happened to its seal.
            if let Some(did) = fate.seals.first().or(visible) {
                replayed.span(&fate.item, did);
            }
        }
        replayed
    }

    fn span(&mut self, item: &ItemId, did: &Did) {
        let did = Name::from(did.to_string());
        match self.spans.last_mut() {
            Some(span) if span.did == did => span.count += 1,
            _ => self.spans.push(Span { first: item.0.clone(), did, count: 1 }),
        }
    }
}
