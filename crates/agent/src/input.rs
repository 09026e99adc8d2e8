//! The inputs of a run: the only events that change its state.

use std::collections::HashSet;

use jiff::Timestamp;
use throughline_core::{Body, Disposition, Fate, Item, ItemId, ModelError, Reply};
use throughline_json::Name;
use throughline_spec::{ToolApprovalResolution, UserQuestionResolution};

use crate::permit::CallDenial;
use crate::progress::Purpose;
use crate::tool::ToolAnswer;

/// An event that happened to a run, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Time of the event, as read from the runner's clock.
    pub at: Timestamp,
    /// The event itself.
    pub what: RunInput,
}

/// An event that changes the state of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunInput {
    /// The run starts with a user message. Each body is one part of that message.
    Said(Vec<Body>),
    /// The run starts only to summarise the older conversation, and ends with the summary.
    Compact,
    /// A model returned a complete answer.
    Answered(Box<ModelAnswer>),
    /// A model call failed.
    Failed {
        /// Purpose of the failed call.
        purpose: Purpose,
        /// Reason of the failure.
        error: ModelError,
        /// Whether listeners already received a part of the answer.
        streamed: bool,
    },
    /// The call permit denied the next model call.
    Denied {
        /// Purpose of the denied call.
        purpose: Purpose,
        /// Limit that denied the call.
        denial: CallDenial,
    },
    /// These tool calls start now.
    ToolsBegan(Vec<Name>),
    /// A tool finished.
    ToolEnded(ToolCompletion),
    /// A person decided on a tool approval.
    Decided(ToolApprovalResolution),
    /// A person answered or declined a question.
    Answer(UserQuestionResolution),
    /// The caller returned the results of its client-side tools.
    Returned(Vec<ToolCompletion>),
    /// A pending request expired before a decision arrived.
    Expired(Name),
    /// The process that ran the run stopped, and another one resumes it.
    Interrupted,
    /// The run was restored from a snapshot. Snapshots are untrusted, so every open call is decided
    /// again.
    Restored(OpenCalls),
    /// The wall-clock limit may be reached while calls are still running.
    TimeUp,
    /// Later calls use another model.
    Switched {
        /// Name of the new model.
        model: Name,
        /// Whether the new model's Seals are bound to the whole prefix that was sent before them.
        is_prefix_bound: bool,
    },
    /// The caller cancels the run, optionally with a reason.
    Cancelled(Option<Name>),
}

/// Selects the open calls of a restored run that need an approval before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCalls {
    /// Calls whose tool requires approval, by its own specification or by a rule of the agent.
    ByRules,
    /// All open calls: for documents whose agent, and therefore whose rules, cannot be verified.
    NeedApproval,
}

/// A complete answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Purpose of the call.
    pub purpose: Purpose,
    /// Reply of the model.
    pub reply: Reply,
    /// Counts of the Fates of the Items that were sent.
    pub fates: ReplayCounts,
    /// Whether listeners received parts before the answer was complete.
    pub streamed: bool,
    /// Cost in US dollars; `None` if no price is known.
    pub cost: Option<f64>,
    /// Duration of the call in milliseconds.
    pub took_ms: u64,
}

/// Result of a finished tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCompletion {
    /// Id of the tool call.
    pub call: Name,
    /// Result that the tool returned.
    pub answer: ToolAnswer,
}

/// Counts of the Fates of the Thoughts and Seals in one Call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Thoughts by Fate.
    pub thoughts: FateCounts,
    /// Seals by Fate.
    pub seals: FateCounts,
    /// Reasons for elisions, each with its count.
    pub why: Vec<(Name, u64)>,
    /// Fates of Thoughts and sealed Items in conversation order, run-length encoded.
    pub spans: Vec<FateSpan>,
}

/// Consecutive Items with the same Fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FateSpan {
    /// Id of the first Item.
    pub first: Name,
    /// Fate that the Items share.
    pub did: Name,
    /// Number of Items.
    pub count: u64,
}

/// Number of values per Fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FateCounts {
    /// Sent unchanged.
    pub kept: u64,
    /// Restored from storage.
    pub restored: u64,
    /// Sent in another form.
    pub reshaped: u64,
    /// Left out of the request.
    pub elided: u64,
}

impl FateCounts {
    fn count(&mut self, did: &Disposition) {
        match did {
            Disposition::Kept => self.kept += 1,
            Disposition::Restored(_) => self.restored += 1,
            Disposition::Reshaped(_) => self.reshaped += 1,
            Disposition::Elided(_) => self.elided += 1,
        }
    }
}

impl ReplayCounts {
    /// Collects the ids of the Items that are Thoughts.
    pub fn thought_ids(items: &[Item]) -> HashSet<ItemId> {
        let thoughts = items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        thoughts.map(|item| item.id.clone()).collect()
    }

    /// Counts the Fates of one Call; `thoughts` lists the Items that are Thoughts.
    pub fn from_fates(fates: &[Fate], thoughts: &HashSet<ItemId>) -> Self {
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
                let Disposition::Elided(why) = did else { continue };
                let why = Name::from(why.to_string());
                match replayed.why.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, count)) => *count += 1,
                    None => replayed.why.push((why, 1)),
                }
            }
            // The Fate of a sealed Item is the Fate of its first Seal.
            if let Some(did) = fate.seals.first().or(visible) {
                replayed.push_span(&fate.item, did);
            }
        }
        replayed
    }

    fn push_span(&mut self, item: &ItemId, did: &Disposition) {
        let did = Name::from(did.to_string());
        match self.spans.last_mut() {
            Some(span) if span.did == did => span.count += 1,
            _ => self.spans.push(FateSpan { first: item.0.clone(), did, count: 1 }),
        }
    }
}
