//! Audit against simulator: two judges who share the rows of the catalog and nothing else hear the same conversations,
//! whole and spoiled, and must agree on all three verdicts.
//!
//! | | audit | simulator, by its own books |
//! |---|---|---|
//! | refuse | the gravest finding refuses | a status of 400 or more |
//! | degrade | the gravest finding degrades | an answer, and a seal was left out unread, edited, moved or repeated (`Dropped`); or a seal did not come back with its call, or with Gemini with anything that it signed (`lost`); or the model refused to answer because it was shown its thoughts as text; or a tool loop went on under another configuration of thinking (`reconfigured`); or what was cached is written in another order (`missed`) |
//! | accept | notes at most | an answer, and none of that |
//!
//! A cache that misses because the request says something else, or asks for something else, is nobody's fault: neither judge
//! counts it. Each conversation has an account of its own, so that no other one fills its cache.
//!
//! The audit hears half of the conversations with everything that came before them; the others with the last exchange, all but
//! the last, the answers only, or nothing; and some without the age of the account. Told everything it must agree. Told less it
//! may say less, and more only in the cases that `kinds.rs` names; it names all in which the two differ, and says who is right.
//! What is not among them fails the test.

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

use doctor::{Conversation, Setup, Told};
use judges::{Kind, Knows, Made, rules_of};
use setups::SETUPS;
use throughline_codec::{Reach, Verdict};
use throughline_sim::{Options, Simulator, start};
use throughline_testkit::{Dice, OPERATORS, On, Place, cases, figure, seals};

/// What was heard with one set-up, or with one operator.
#[derive(Clone, Debug, Default)]
struct Row {
    heard: usize,
    /// How often both accept, degrade, refuse.
    agreed: [usize; 3],
    /// How often they differ in a way that is known.
    kinds: BTreeMap<Kind, usize>,
    /// How often they differ otherwise.
    others: usize,
}

/// How the two judges stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Agreed(Verdict),
    Known(Kind),
    Unforeseen,
}

impl Row {
    fn add(&mut self, stand: Stand) {
        self.heard += 1;
        match stand {
            Stand::Agreed(verdict) => self.agreed[verdict as usize] += 1,
            Stand::Known(kind) => *self.kinds.entry(kind).or_default() += 1,
            Stand::Unforeseen => self.others += 1,
        }
    }

    fn figure(&self, label: &str) {
        let [accept, degrade, refuse] = self.agreed;
        let kinds = self.kinds.iter().map(|(kind, count)| format!("{} {count}; ", kind.name()));
        let text = format!(
            "{} heard; agreed: accept {accept}, degrade {degrade}, refuse {refuse}; {}unforeseen {}",
            self.heard,
            kinds.collect::<String>(),
            self.others
        );
        figure(label, text);
    }
}

/// Each disagreement that nobody foresaw: how often it was met, and the first case of it.
type Others = BTreeMap<String, (usize, String)>;

#[tokio::test]
async fn audit_and_simulator_agree() {
    let simulator = start(Options::default()).await.unwrap();
    let mut by_setup: BTreeMap<usize, Row> = BTreeMap::new();
    let mut by_operator: BTreeMap<&str, Row> = BTreeMap::new();
    let (mut all, mut others) = (Row::default(), Others::new());
    let wanted = cases(600) as usize;
    let mut seed = 0;
    while all.heard < wanted {
        for (number, (label, setup)) in SETUPS.iter().enumerate() {
            seed += 1;
            let mut dice = Dice::new(seed);
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
    figure("conversations heard by audit and simulator", all.heard);
    figure("kinds of disagreement", all.kinds.len());
    let others =
        others.iter().map(|(kind, (count, said))| format!("{count} × {kind}\n      {said}"));
    let others: Vec<String> = others.collect();
    assert!(others.is_empty(), "{} unforeseen:\n{}", others.len(), others.join("\n"));
    assert!(all.kinds.len() <= 10, "{:?}", all.kinds);
}

/// The text with which Anthropic's models redact what they think.
const REDACTS: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING_46C9A13E193C177646C7398A98432ECCCE4C1253D5E2D82641AC0E52CC2876CB";

/// A conversation of some turns: within a tool loop, behind an answer, or in the loop of a later turn; now and then with all
/// tools called at once, and each step whole or streamed.
async fn conversation<'s>(
    simulator: &'s Simulator,
    setup: Setup,
    dice: &mut Dice,
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

/// Spoils the next request, and now and then lets somebody else send it: what was done to it and by whom. Nothing where there
/// was nothing to spoil.
fn spoil(
    talk: &mut Conversation<'_>,
    setup: &Setup,
    dice: &mut Dice,
) -> Option<(&'static str, &'static str)> {
    let operator = dice.pick(OPERATORS).unwrap();
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
        On::Seal => dice.pick(&places).cloned()?,
        On::Request => Place { parent: String::new(), key: String::new() },
    };
    talk.is_swapped = operator.name == "swap two seals";
    let is_spoiled = operator.apply(talk.shape(), &mut talk.next, &place, dice);
    is_spoiled.then_some((operator.name, who))
}

/// How much the audit is told.
fn told(dice: &mut Dice) -> Knows {
    let less = [Told::TheLast, Told::TheEarlier, Told::Answers, Told::Nothing];
    let past = if dice.below(2) == 0 { Told::Everything } else { *dice.pick(&less).unwrap() };
    Knows { past, age: dice.below(8) != 0 }
}

/// Puts one request to both judges, and what was mended in it to the simulator again.
async fn hear(talk: &Conversation<'_>, name: &str, knows: Knows, others: &mut Others) -> Stand {
    let mut differ = |what: String, said: String| {
        others.entry(format!("{name} | {what}")).or_insert((0, said)).0 += 1;
    };
    let body = talk.body();
    talk.send(body.clone()).await;
    let made = Made::of_the_last(talk.simulator);
    let audit = talk.audit_told(&body, knows.past, knows.age);
    let heard = audit.verdict();
    let kind = || Kind::of(talk, &body, &made, &audit, knows);
    let stand = if heard == made.verdict {
        Stand::Agreed(heard)
    } else {
        kind().map_or(Stand::Unforeseen, Stand::Known)
    };
    if stand == Stand::Unforeseen {
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
        // What was mended is taken, or the doctor said that it cannot be mended.
        let mended = talk.repair(&body, Reach::Refused);
        if mended.audit.verdict() != Verdict::Refuse {
            let again = talk.send(mended.request.body.clone()).await;
            if again.status >= 400 {
                differ("refused after repair".to_owned(), again.text());
            }
        }
    }
    stand
}
