//! What each of the two judges says of a request, and the kinds of cases in which they may differ.

use throughline_codec::{Audit, Severity, Verdict};
use throughline_sim::{Entry, Simulator, Verdict as Seal};

use crate::doctor::{Conversation, Setup, Told};

/// What the simulator made of a request, by its own books.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) verdict: Verdict,
    /// What was lost, where it was answered.
    pub(crate) losses: Vec<Loss>,
    /// What was said, where it was refused.
    pub(crate) refusal: String,
}

/// What a request that is answered can lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A seal was left out, for that reason.
    Dropped(String),
    /// A seal did not come back with what it was issued with.
    Lost,
    /// The model refused to answer, because it was shown its thoughts as text.
    Answer,
    /// The tool loop goes on under another configuration of thinking than it began with.
    Thinking,
    /// What was cached is written in another order now.
    Cache,
}

impl Made {
    /// Reads in the books what became of the request that was just sent.
    pub(crate) fn of_the_last(simulator: &Simulator) -> Self {
        let entry = simulator.last_entry().unwrap();
        let losses = losses(&entry);
        let verdict = match (entry.status, losses.is_empty()) {
            (400.., _) => Verdict::Refuse,
            (_, false) => Verdict::Degrade,
            (_, true) => Verdict::Accept,
        };
        Self { verdict, losses, refusal: entry.refused.unwrap_or_default() }
    }
}

fn losses(entry: &Entry) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for returned in &entry.returned {
        match &returned.verdict {
            Seal::Dropped(reason) => losses.push(Loss::Dropped(reason.clone())),
            Seal::Accepted | Seal::Refused(_) => {}
        }
    }
    losses.dedup();
    let others = [
        (entry.lost > 0, Loss::Lost),
        (entry.stop.as_deref() == Some("refused"), Loss::Answer),
        (entry.reconfigured, Loss::Thinking),
        (entry.missed > 0, Loss::Cache),
    ];
    losses.extend(others.into_iter().filter(|(is_lost, _)| *is_lost).map(|(_, loss)| loss));
    losses
}

/// The rules that the verdict of an audit rests on.
pub(crate) fn rules_of(audit: &Audit) -> Vec<&'static str> {
    let gravest = match audit.verdict() {
        Verdict::Refuse => Severity::Refuse,
        Verdict::Degrade => Severity::Degrade,
        Verdict::Accept => return Vec::new(),
    };
    let found = audit.findings.iter().filter(|finding| finding.severity == gravest);
    let mut rules: Vec<&str> = found.map(|finding| finding.rule.id).collect();
    rules.dedup();
    rules
}

/// What the audit is told of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knows {
    pub(crate) past: Told,
    pub(crate) age: bool,
}

impl Knows {
    pub(crate) const ALL: Self = Self { past: Told::Everything, age: true };
}

/// The kinds of cases in which audit and simulator differ. `kinds.rs` has a test for each, and says who is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ToldLess,
    AgeUnknown,
    OriginUnknown,
    SealUnknown,
    BedrockThinking,
    BedrockCache,
    LeadsNowhere,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ToldLess => "what_the_audit_is_not_told_it_does_not_judge",
            Self::AgeUnknown => "an_account_of_unknown_age_is_warned",
            Self::OriginUnknown => "an_id_of_unknown_origin_is_taken_for_a_stored_one",
            Self::SealUnknown => "a_seal_of_unknown_origin_is_taken_for_an_altered_one",
            Self::BedrockThinking => "bedrock_is_not_known_to_want_one_configuration_for_a_turn",
            Self::BedrockCache => "bedrock_caches_only_what_is_marked",
            Self::LeadsNowhere => "reasoning_that_leads_nowhere_is_not_known_to_be_lost",
        }
    }

    /// The kind of a disagreement, if it is one that is known: `audit` was told what `knows` says.
    pub(crate) fn of(
        talk: &Conversation<'_>,
        body: &bytes::Bytes,
        made: &Made,
        audit: &Audit,
        knows: Knows,
    ) -> Option<Self> {
        let heard = audit.verdict();
        let told = talk.audit_told(body, Told::Everything, true);
        let full = told.verdict();
        if heard == full {
            return Self::of_unwritten(&talk.setup, made, audit);
        }
        // Told everything, the audit must agree; told less, it may only say less.
        let agrees = full == made.verdict || Self::of_unwritten(&talk.setup, made, &told).is_some();
        let of_age = talk.audit_told(body, knows.past, true).verdict();
        if !agrees {
            return None;
        }
        if !knows.age && of_age != heard {
            let is_warning = heard == Verdict::Degrade;
            return (is_warning && of_age <= made.verdict).then_some(Self::AgeUnknown);
        }
        if heard < made.verdict {
            return Some(Self::ToldLess);
        }
        let of_ids = [
            "openai/reasoning-without-following-item",
            "openai/item-without-its-reasoning",
            "openai/item-not-found",
        ];
        if rules_of(audit).iter().all(|rule| of_ids.contains(rule)) {
            return Some(Self::OriginUnknown);
        }
        talk.is_swapped.then_some(Self::SealUnknown)
    }

    /// What remains when the audit is told everything: what the providers did not write down.
    fn of_unwritten(setup: &Setup, made: &Made, audit: &Audit) -> Option<Self> {
        let is_bedrock = setup.provider == "bedrock";
        match (audit.verdict(), made.verdict, &made.losses[..]) {
            (Verdict::Accept, _, [Loss::Thinking]) if is_bedrock => Some(Self::BedrockThinking),
            (Verdict::Accept, _, [Loss::Cache]) if is_bedrock => Some(Self::BedrockCache),
            (Verdict::Accept, Verdict::Degrade, [Loss::Dropped(why)]) if why == "moved" => {
                Some(Self::LeadsNowhere)
            }
            _ => None,
        }
    }
}
