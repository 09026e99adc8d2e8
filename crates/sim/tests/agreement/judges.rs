//! The verdicts of the audit and the simulator on a request, and the known kinds of disagreement
//! between them.

use throughline_codec::{Audit, Severity, Verdict};
use throughline_sim::{LedgerEntry, Simulator, Verdict as Seal};

use crate::doctor::{Conversation, PriorScope, Setup};

/// The simulator's verdict on a request, according to its ledger.
#[derive(Clone, Debug)]
pub(crate) struct SimOutcome {
    pub(crate) verdict: Verdict,
    /// Losses, if the request succeeded.
    pub(crate) losses: Vec<Loss>,
    /// Error message, if the request was rejected.
    pub(crate) refusal: String,
}

/// A loss that the ledger shows for a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The simulator dropped a Seal, for this reason.
    Dropped(String),
    /// A Seal is missing although the request contains the sealed content.
    Lost,
    /// The model refused, because the request contained its thoughts as text.
    Answer,
    /// The tool loop continued with another thinking configuration.
    Thinking,
    /// The request repeated cached content with reordered JSON members.
    Cache,
}

impl SimOutcome {
    /// Reads the simulator's verdict on the last request from the ledger.
    pub(crate) fn from_last_entry(simulator: &Simulator) -> Self {
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

fn losses(entry: &LedgerEntry) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for returned in &entry.returned {
        match &returned.verdict {
            Seal::Dropped(reason) => losses.push(Loss::Dropped(reason.clone())),
            Seal::Accepted | Seal::Refused(_) => {}
        }
    }
    losses.dedup();
    let other_losses = [
        (entry.lost > 0, Loss::Lost),
        (entry.stop.as_deref() == Some("refused"), Loss::Answer),
        (entry.reconfigured, Loss::Thinking),
        (entry.missed > 0, Loss::Cache),
    ];
    losses.extend(other_losses.into_iter().filter(|(is_lost, _)| *is_lost).map(|(_, loss)| loss));
    losses
}

/// Returns the rules of the most severe findings, which decide the verdict of an audit.
pub(crate) fn rules_of(audit: &Audit) -> Vec<&'static str> {
    let gravest = match audit.verdict() {
        Verdict::Refuse => Severity::Refuse,
        Verdict::Degrade => Severity::Degrade,
        Verdict::Accept => return Vec::new(),
    };
    let decisive = audit.findings.iter().filter(|finding| finding.severity == gravest);
    let mut rules: Vec<&str> = decisive.map(|finding| finding.rule.id).collect();
    rules.dedup();
    rules
}

/// The information that the audit receives: the scope of the earlier conversation, and whether the
/// account's age is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditKnowledge {
    pub(crate) past: PriorScope,
    pub(crate) age: bool,
}

impl AuditKnowledge {
    pub(crate) const ALL: Self = Self { past: PriorScope::Everything, age: true };
}

/// The known kinds of disagreement between audit and simulator. Each kind has a test in `kinds.rs`,
/// which states whether the audit or the simulator is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DisagreementKind {
    MissingInformation,
    AgeUnknown,
    OriginUnknown,
    SealUnknown,
    BedrockThinking,
    BedrockCache,
    OrphanedReasoning,
}

impl DisagreementKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MissingInformation => "audit_accepts_what_it_cannot_verify",
            Self::AgeUnknown => "unknown_account_age_only_warns",
            Self::OriginUnknown => "unknown_ids_are_assumed_to_be_stored",
            Self::SealUnknown => "unknown_seals_are_assumed_to_be_altered",
            Self::BedrockThinking => "bedrock_config_change_within_a_turn_is_not_flagged",
            Self::BedrockCache => "bedrock_caches_only_marked_prefixes",
            Self::OrphanedReasoning => "orphaned_reasoning_is_not_flagged",
        }
    }

    /// Classifies a disagreement; `None` if the kind is unknown. `knowledge` describes the
    /// information that the audit received.
    pub(crate) fn of(
        conversation: &Conversation<'_>,
        body: &bytes::Bytes,
        outcome: &SimOutcome,
        audit: &Audit,
        knowledge: AuditKnowledge,
    ) -> Option<Self> {
        let verdict = audit.verdict();
        let full_audit = conversation.audit_with(body, PriorScope::Everything, true);
        let full_verdict = full_audit.verdict();
        if verdict == full_verdict {
            return Self::classify_undocumented(&conversation.setup, outcome, audit);
        }
        // With full information, the audit must agree; with less, it may only report less.
        let agrees = full_verdict == outcome.verdict
            || Self::classify_undocumented(&conversation.setup, outcome, &full_audit).is_some();
        let with_age = conversation.audit_with(body, knowledge.past, true).verdict();
        if !agrees {
            return None;
        }
        if !knowledge.age && with_age != verdict {
            let is_warning = verdict == Verdict::Degrade;
            return (is_warning && with_age <= outcome.verdict).then_some(Self::AgeUnknown);
        }
        if verdict < outcome.verdict {
            return Some(Self::MissingInformation);
        }
        let id_rules = [
            "openai/reasoning-without-following-item",
            "openai/item-without-its-reasoning",
            "openai/item-not-found",
        ];
        if rules_of(audit).iter().all(|rule| id_rules.contains(rule)) {
            return Some(Self::OriginUnknown);
        }
        conversation.is_swapped.then_some(Self::SealUnknown)
    }

    /// Classifies disagreements about behaviour that providers do not document. Such disagreements
    /// remain even if the audit has full information.
    fn classify_undocumented(setup: &Setup, outcome: &SimOutcome, audit: &Audit) -> Option<Self> {
        let is_bedrock = setup.provider == "bedrock";
        match (audit.verdict(), outcome.verdict, &outcome.losses[..]) {
            (Verdict::Accept, _, [Loss::Thinking]) if is_bedrock => Some(Self::BedrockThinking),
            (Verdict::Accept, _, [Loss::Cache]) if is_bedrock => Some(Self::BedrockCache),
            (Verdict::Accept, Verdict::Degrade, [Loss::Dropped(reason)]) if reason == "moved" => {
                Some(Self::OrphanedReasoning)
            }
            _ => None,
        }
    }
}
