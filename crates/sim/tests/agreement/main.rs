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
    heard: usize,
    /// Number of agreements for each verdict: accept, degrade, refuse.
    agreed: [usize; 3],
    /// Number of differences of each known kind.
    kinds: BTreeMap<DisagreementKind, usize>,
    /// Number of unexpected differences.
    others: usize,
}

/// Result of comparing the audit's verdict with the simulator's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Agreed(Verdict),
    Known(DisagreementKind),
    Unforeseen,
}

impl Tally {
    fn add(&mut self, stand: Comparison) {
        self.heard += 1;
        match stand {
            Comparison::Agreed(verdict) => self.agreed[verdict as usize] += 1,
            Comparison::Known(kind) => *self.kinds.entry(kind).or_default() += 1,
            Comparison::Unforeseen => self.others += 1,
        }
    }

    fn figure(&self, label: &str) {
        let [accept, degrade, refuse] = self.agreed;
        let kinds = self.kinds.iter().map(|(kind, count)| format!("{} {count}; ", kind.name()));
        let text = format!(
            "{} compared; agreed: accept {accept}, degrade {degrade}, refuse {refuse}; {}unexpected {}",
            self.heard,
            kinds.collect::<String>(),
            self.others
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
    let (mut all, mut others) = (Tally::default(), UnexpectedDifferences::new());
    let wanted = cases(600) as usize;
    let mut seed = 0;
    while all.heard < wanted {
        for (number, (label, setup)) in SETUPS.iter().enumerate() {
            seed += 1;
            let mut dice = TestRng::new(seed);
            let mut talk = conversation(&simulator, *setup, &mut dice, seed).await;
            let Some((operator, who)) = spoil(&mut talk, setup, &mut dice) else { continue };
            let knows = told(&mut dice);
            let name = format!("{label} | {operator}{who}");
            let stand = hear(&talk, &name, knows, &mut others).await;
            let own = by_setup.entry(number).or_default();
            for row in [own, by_operator.entry(operator).or_default(), &mut all] {
                row.add(stand);
            }
        }
    }
    simulator.stop().await;
    for (operator, row) in &by_operator {
        row.figure(&format!("agreement on \"{operator}\""));
    }
    for (number, row) in &by_setup {
        row.figure(&format!("agreement with {}", SETUPS[*number].0));
    }
    all.figure("agreement in all");
    figure("conversations compared by audit and simulator", all.heard);
    figure("kinds of disagreement", all.kinds.len());
    let others =
        others.iter().map(|(kind, (count, said))| format!("{count} × {kind}\n      {said}"));
    let others: Vec<String> = others.collect();
    assert!(others.is_empty(), "{} unexpected:\n{}", others.len(), others.join("\n"));
    assert!(all.kinds.len() <= 10, "{:?}", all.kinds);
}

/// Text that triggers redacted thinking in Anthropic's models.
const REDACTS: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING_46C9A13E193C177646C7398A98432ECCCE4C1253D5E2D82641AC0E52CC2876CB";

/// Builds a conversation that ends in a tool loop, after an answer, or in the tool loop of a later
/// turn. In some conversations the model calls all tools at once, and some responses are streamed.
async fn conversation<'s>(
    simulator: &'s Simulator,
    setup: Setup,
    dice: &mut TestRng,
    seed: u64,
) -> Conversation<'s> {
    let tools = dice.below(4);
    let redacts = if dice.below(6) == 0 { REDACTS } else { "" };
    let question = format!("Plan a weekend in Lisbon. {redacts}");
    let talk = Conversation::new(simulator, setup, tools, &question);
    let mut talk = talk.under(format!("key-{seed}"));
    talk.calls_all = dice.below(3) == 0;
    for when in ["for a week", "in August"].into_iter().take(dice.below(3)) {
        for _ in 0..6 {
            talk.streams = dice.below(3) == 0;
            if !talk.step().await {
                break;
            }
        }
        talk.say(&format!("And {when}, please?"));
    }
    for _ in 0..dice.below(tools + 1) {
        talk.streams = dice.below(3) == 0;
        if !talk.step().await {
            talk.say("And after that?");
            break;
        }
    }
    talk
}

/// Mutates the next request, and sometimes switches its account or model. Returns descriptions of
/// the mutation and the switch, or `None` if the mutation does not apply to the request.
fn spoil(
    talk: &mut Conversation<'_>,
    setup: &Setup,
    dice: &mut TestRng,
) -> Option<(&'static str, &'static str)> {
    let operator = dice.pick(MUTATIONS).unwrap();
    let is_other = |other: &&Setup| other.provider == setup.provider && other.model != setup.model;
    let others: Vec<&Setup> = SETUPS.iter().map(|(_, setup)| setup).filter(is_other).collect();
    let who = match dice.below(8) {
        0 => {
            talk.account.push_str("-of-theirs");
            " from another account"
        }
        1 if !others.is_empty() => {
            talk.switch(**dice.pick(&others).unwrap());
            " on another model"
        }
        _ => "",
    };
    let places = seals(&talk.next);
    let place = match operator.on {
        MutationTarget::Seal => dice.pick(&places).cloned()?,
        MutationTarget::Request => SealLocation { parent: String::new(), key: String::new() },
    };
    talk.is_swapped = operator.name == "swap two seals";
    let is_spoiled = operator.apply(talk.shape(), &mut talk.next, &place, dice);
    is_spoiled.then_some((operator.name, who))
}

/// Chooses at random which information the audit receives.
fn told(dice: &mut TestRng) -> AuditKnowledge {
    let less =
        [PriorScope::TheLast, PriorScope::TheEarlier, PriorScope::Answers, PriorScope::Nothing];
    let past = if dice.below(2) == 0 { PriorScope::Everything } else { *dice.pick(&less).unwrap() };
    AuditKnowledge { past, age: dice.below(8) != 0 }
}

/// Compares the verdicts of the audit and the simulator on a request, then sends the repaired
/// request to the simulator.
async fn hear(
    talk: &Conversation<'_>,
    name: &str,
    knows: AuditKnowledge,
    others: &mut UnexpectedDifferences,
) -> Comparison {
    let mut differ = |what: String, said: String| {
        others.entry(format!("{name} | {what}")).or_insert((0, said)).0 += 1;
    };
    let body = talk.body();
    talk.send(body.clone()).await;
    let made = SimOutcome::from_last_entry(talk.simulator);
    let audit = talk.audit_with(&body, knows.past, knows.age);
    let heard = audit.verdict();
    let kind = || DisagreementKind::of(talk, &body, &made, &audit, knows);
    let stand = if heard == made.verdict {
        Comparison::Agreed(heard)
    } else {
        kind().map_or(Comparison::Unforeseen, Comparison::Known)
    };
    if stand == Comparison::Unforeseen {
        let (verdict, losses) = (made.verdict.as_str(), &made.losses);
        let what = format!(
            "simulator {verdict} {losses:?}, audit {} {:?}, told {knows:?}",
            heard.as_str(),
            rules_of(&audit)
        );
        let found = audit.findings.first().map(|found| format!("{} {}", found.path, found.message));
        differ(what, format!("{} {}", made.refusal, found.unwrap_or_default()));
    }
    if made.verdict == Verdict::Refuse {
        // The simulator must accept the repaired request, unless the audit reported that the
        // request cannot be repaired.
        let repaired = talk.repair(&body, RepairLevel::Refused);
        if repaired.audit.verdict() != Verdict::Refuse {
            let again = talk.send(repaired.request.body.clone()).await;
            if again.status >= 400 {
                differ("refused after repair".to_owned(), again.text());
            }
        }
    }
    stand
}
