//! Compares the audit with the simulator. They share only the catalog, judge the same intact and
//! mutated conversations, and must agree on each verdict:
//!
//! - Refuse: the audit's most severe finding is a refusal, and the simulator returns status 400 or
//!   higher.
//! - Degrade: the audit's most severe finding is a degradation. The simulator answers, but the
//!   ledger shows a loss.
//! - Accept: the audit reports at most notes, and the simulator answers without a loss.
//!
//! A loss in the ledger is one of these:
//!
//! - A Seal was dropped because it was unreadable, edited, moved or repeated (`Dropped`).
//! - A Seal is missing although the request contains the sealed call (`lost`). For Gemini, this
//!   applies to any signed content.
//! - The model refused, because the request contained its thoughts as text.
//! - A tool loop continued with another thinking configuration (`reconfigured`).
//! - The request repeated cached content with reordered JSON members (`missed`).
//!
//! Neither audit nor simulator counts cache misses caused by changed content or settings. Each
//! conversation has its own account, so no two conversations share a cache.
//!
//! For half of the conversations, the audit receives all earlier exchanges. For the other half, the
//! audit receives the last exchange, all exchanges but the last, only the responses, or nothing.
//! For some conversations, the account's age is missing. With full information, the audit must
//! agree with the simulator. With less information, the audit may report fewer problems. The audit
//! may report more problems only in the cases listed in `kinds.rs`. That module covers every known
//! difference and states whether the audit or the simulator is right. Any other difference fails
//! the test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../doctor/mod.rs"]
mod doctor;
mod judges;
mod kinds;
mod models;
mod setups;

use std::collections::BTreeMap;

use doctor::{Conversation, PriorScope, Setup};
use judges::{AuditKnowledge, DisagreementKind, SimOutcome, rules_of};
use setups::SETUPS;
use throughline_codec::{RepairLevel, Verdict};
use throughline_sim::{Options, Simulator, start};
use throughline_testkit::{MUTATIONS, MutationTarget, SealLocation, TestRng, cases, figure, seals};

/// Counts for one setup or one mutation.
#[derive(Clone, Debug, Default)]
struct Tally {
    compared: usize,
    /// Number of agreements for each verdict: accept, degrade, refuse.
    agreed: [usize; 3],
    /// Number of differences of each known kind.
    kinds: BTreeMap<DisagreementKind, usize>,
    /// Number of unexpected differences.
    unexpected: usize,
}

/// Result of comparing the audit's verdict with the simulator's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Agreed(Verdict),
    Known(DisagreementKind),
    Unforeseen,
}

impl Tally {
    fn add(&mut self, comparison: Comparison) {
        self.compared += 1;
        match comparison {
            Comparison::Agreed(verdict) => self.agreed[verdict as usize] += 1,
            Comparison::Known(kind) => *self.kinds.entry(kind).or_default() += 1,
            Comparison::Unforeseen => self.unexpected += 1,
        }
    }

    fn figure(&self, label: &str) {
        let [accept, degrade, refuse] = self.agreed;
        let kinds = self.kinds.iter().map(|(kind, count)| format!("{} {count}; ", kind.name()));
        let text = format!(
            "{} compared; agreed: accept {accept}, degrade {degrade}, refuse {refuse}; {}unexpected {}",
            self.compared,
            kinds.collect::<String>(),
            self.unexpected
        );
        figure(label, text);
    }
}

/// Unexpected differences by description, each with its count and the first example.
type UnexpectedDifferences = BTreeMap<String, (usize, String)>;

#[tokio::test]
async fn audit_and_simulator_agree() {
    let simulator = start(Options::default()).await.unwrap();
    let mut by_setup: BTreeMap<usize, Tally> = BTreeMap::new();
    let mut by_operator: BTreeMap<&str, Tally> = BTreeMap::new();
    let (mut all, mut unexpected) = (Tally::default(), UnexpectedDifferences::new());
    let required = cases(600) as usize;
    let mut seed = 0;
    while all.compared < required {
        for (number, (label, setup)) in SETUPS.iter().enumerate() {
            seed += 1;
            let mut rng = TestRng::new(seed);
            let mut conversation = start_conversation(&simulator, *setup, &mut rng, seed).await;
            let Some((operator, switched)) = mutate(&mut conversation, setup, &mut rng) else {
                continue;
            };
            let knowledge = random_knowledge(&mut rng);
            let name = format!("{label} | {operator}{switched}");
            let comparison = compare(&conversation, &name, knowledge, &mut unexpected).await;
            let setup_tally = by_setup.entry(number).or_default();
            for tally in [setup_tally, by_operator.entry(operator).or_default(), &mut all] {
                tally.add(comparison);
            }
        }
    }
    simulator.stop().await;
    for (operator, tally) in &by_operator {
        tally.figure(&format!("agreement on \"{operator}\""));
    }
    for (number, tally) in &by_setup {
        tally.figure(&format!("agreement with {}", SETUPS[*number].0));
    }
    all.figure("agreement in all");
    figure("conversations compared by audit and simulator", all.compared);
    figure("kinds of disagreement", all.kinds.len());
    let unexpected = unexpected
        .iter()
        .map(|(kind, (count, example))| format!("{count} × {kind}\n      {example}"));
    let unexpected: Vec<String> = unexpected.collect();
    assert!(unexpected.is_empty(), "{} unexpected:\n{}", unexpected.len(), unexpected.join("\n"));
    assert!(all.kinds.len() <= 10, "{:?}", all.kinds);
}

/// Text that triggers redacted thinking in Anthropic's models.
const REDACTS: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING_46C9A13E193C177646C7398A98432ECCCE4C1253D5E2D82641AC0E52CC2876CB";

/// Builds a conversation that ends in a tool loop, after an answer, or in the tool loop of a later
/// turn. In some conversations the model calls all tools at once, and some responses are streamed.
async fn start_conversation<'s>(
    simulator: &'s Simulator,
    setup: Setup,
    rng: &mut TestRng,
    seed: u64,
) -> Conversation<'s> {
    let tools = rng.below(4);
    let redacts = if rng.below(6) == 0 { REDACTS } else { "" };
    let question = format!("Plan a weekend in Lisbon. {redacts}");
    let conversation = Conversation::new(simulator, setup, tools, &question);
    let mut conversation = conversation.with_account(format!("key-{seed}"));
    conversation.calls_all = rng.below(3) == 0;
    for when in ["for a week", "in August"].into_iter().take(rng.below(3)) {
        for _ in 0..6 {
            conversation.streams = rng.below(3) == 0;
            if !conversation.step().await {
                break;
            }
        }
        conversation.add_user_message(&format!("And {when}, please?"));
    }
    for _ in 0..rng.below(tools + 1) {
        conversation.streams = rng.below(3) == 0;
        if !conversation.step().await {
            conversation.add_user_message("And after that?");
            break;
        }
    }
    conversation
}

/// Mutates the next request, and sometimes switches its account or model. Returns descriptions of
/// the mutation and the switch, or `None` if the mutation does not apply to the request.
fn mutate(
    conversation: &mut Conversation<'_>,
    setup: &Setup,
    rng: &mut TestRng,
) -> Option<(&'static str, &'static str)> {
    let operator = rng.pick(MUTATIONS).unwrap();
    let is_other = |other: &&Setup| other.provider == setup.provider && other.model != setup.model;
    let other_models: Vec<&Setup> =
        SETUPS.iter().map(|(_, setup)| setup).filter(is_other).collect();
    let switched = match rng.below(8) {
        0 => {
            conversation.account.push_str("-of-theirs");
            " from another account"
        }
        1 if !other_models.is_empty() => {
            conversation.switch(**rng.pick(&other_models).unwrap());
            " on another model"
        }
        _ => "",
    };
    let locations = seals(&conversation.next);
    let location = match operator.on {
        MutationTarget::Seal => rng.pick(&locations).cloned()?,
        MutationTarget::Request => SealLocation { parent: String::new(), key: String::new() },
    };
    conversation.is_swapped = operator.name == "swap two seals";
    let is_mutated = operator.apply(conversation.shape(), &mut conversation.next, &location, rng);
    is_mutated.then_some((operator.name, switched))
}

/// Chooses at random which information the audit receives.
fn random_knowledge(rng: &mut TestRng) -> AuditKnowledge {
    let partial =
        [PriorScope::TheLast, PriorScope::TheEarlier, PriorScope::Answers, PriorScope::Nothing];
    let past =
        if rng.below(2) == 0 { PriorScope::Everything } else { *rng.pick(&partial).unwrap() };
    AuditKnowledge { past, age: rng.below(8) != 0 }
}

/// Compares the verdicts of the audit and the simulator on a request, then sends the repaired
/// request to the simulator.
async fn compare(
    conversation: &Conversation<'_>,
    name: &str,
    knowledge: AuditKnowledge,
    unexpected: &mut UnexpectedDifferences,
) -> Comparison {
    let mut differ = |description: String, example: String| {
        unexpected.entry(format!("{name} | {description}")).or_insert((0, example)).0 += 1;
    };
    let body = conversation.body();
    conversation.send(body.clone()).await;
    let outcome = SimOutcome::from_last_entry(conversation.simulator);
    let audit = conversation.audit_with(&body, knowledge.past, knowledge.age);
    let audit_verdict = audit.verdict();
    let kind = || DisagreementKind::of(conversation, &body, &outcome, &audit, knowledge);
    let comparison = if audit_verdict == outcome.verdict {
        Comparison::Agreed(audit_verdict)
    } else {
        kind().map_or(Comparison::Unforeseen, Comparison::Known)
    };
    if comparison == Comparison::Unforeseen {
        let (verdict, losses) = (outcome.verdict.as_str(), &outcome.losses);
        let description = format!(
            "simulator {verdict} {losses:?}, audit {} {:?}, told {knowledge:?}",
            audit_verdict.as_str(),
            rules_of(&audit)
        );
        let finding =
            audit.findings.first().map(|finding| format!("{} {}", finding.path, finding.message));
        differ(description, format!("{} {}", outcome.refusal, finding.unwrap_or_default()));
    }
    if outcome.verdict == Verdict::Refuse {
        // The simulator must accept the repaired request, unless the audit reported that the
        // request cannot be repaired.
        let repaired = conversation.repair(&body, RepairLevel::Refused);
        if repaired.audit.verdict() != Verdict::Refuse {
            let response = conversation.send(repaired.request.body.clone()).await;
            if response.status >= 400 {
                differ("refused after repair".to_owned(), response.text());
            }
        }
    }
    comparison
}
