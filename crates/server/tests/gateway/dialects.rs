//! The gateway as its callers meet it: over HTTP, with the simulators behind it.

use crate::harness::{Gate, Say};
use throughline_server::{Claims, ReplayMode};
use throughline_sim::{Returned, Verdict};
use throughline_testkit::figure;

/// Every dialect reaches every family, whole and streamed, with tools and reasoning, and nothing is refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_dialect_reaches_every_family() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for dialect in Say::ALL {
        for model in crate::harness::MODELS {
            for stream in [false, true] {
                let turns = gate.converse(dialect, model, stream, false).await;
                assert!(turns >= 3, "{dialect:?} → {model}, streamed {stream}: {turns} turns");
            }
        }
    }
    gate.assert_nothing_refused();
}

/// A client that drops all reasoning loses nothing by it; without the gateway's care it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_drops_is_restored() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for dialect in Say::ALL {
        for model in crate::harness::MODELS {
            for stream in [false, true] {
                gate.converse(dialect, model, stream, true).await;
            }
        }
    }
    gate.assert_nothing_refused();
    let careless = Gate::open(ReplayMode::Off).await;
    let refused = careless.try_converse(Say::Messages, "sim/claude-sonnet-4-5", false, true).await;
    assert!(refused.unwrap_err().contains("thinking"), "the simulator refuses what was dropped");
}

/// A caller of another dialect sees calls under ids of ours, which say which turn they are of; one of the same dialect sees
/// the provider's own.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_shown_under_ids_that_name_their_turn() {
    let gate = Gate::open(ReplayMode::Repair).await;
    let same = [Say::Messages, Say::Responses, Say::Gemini, Say::Chat];
    for dialect in Say::ALL {
        for (model, own) in crate::harness::MODELS.into_iter().zip(same) {
            for stream in [false, true] {
                let ids = gate.call_ids(dialect, model, stream).await;
                let what = format!("{dialect:?} → {model}, streamed {stream}: {ids:?}");
                assert!(!ids.is_empty(), "{what}");
                let is_ours = |id: &String| Claims::is_ours(id.as_bytes());
                assert_eq!(ids.iter().all(is_ours), dialect != own, "{what}");
            }
        }
    }
}

/// A conversation that changes its model within tool loops, and comes back to the first: nothing is refused, and the first
/// model's own seals are there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_changes_its_model_and_comes_back() {
    let [claude, gpt, gemini, deepseek] = crate::harness::MODELS;
    let models = [claude, gpt, gemini, deepseek, claude];
    let mut returned = 0;
    for dialect in Say::ALL {
        for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
            let gate = Gate::open(ReplayMode::Repair).await;
            gate.switch(dialect, &models, stream, drops).await;
            gate.assert_nothing_refused();
            let ledger = gate.ledger();
            let what = format!("{dialect:?}, streamed {stream}, drops {drops}: {ledger:#?}");
            let [first, middle @ .., last] = ledger.entries.as_slice() else { panic!("{what}") };
            assert_eq!(first.stop.as_deref(), Some("tools"), "a tool loop is open: {what}");
            let is_taken = |back: &Returned| back.verdict == Verdict::Accepted;
            assert!(last.returned.iter().all(is_taken), "{what}");
            // To Gemini another model's calls go with the value that Google has for them.
            let stand_in = Verdict::Dropped("stand_in".to_owned());
            for entry in middle {
                let is_meant = |back: &Returned| entry.wire == "gemini" && back.verdict == stand_in;
                assert!(entry.returned.iter().all(is_meant), "another's seal: {what}");
            }
            assert!(!first.issued.is_empty(), "{what}");
            for issued in &first.issued {
                let is_back = last.returned.iter().any(|back| back.seal == issued.seal);
                assert!(is_back, "a seal of the first answer is missing: {what}");
            }
            let is_foreign =
                |back: &&Returned| first.issued.iter().all(|issued| issued.seal != back.seal);
            assert_eq!(last.returned.iter().find(is_foreign), None, "another's seal: {what}");
            returned += last.returned.len();
        }
    }
    figure("seals that came back to the first of five models", returned);
}

/// Where the first target of a route cannot be reached, the second goes on with the same conversation; and when the first one is
/// back, its own seals are.
#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_keeps_the_thread_whole() {
    let [claude, ..] = crate::harness::MODELS;
    let models = [claude, crate::harness::FALLBACK, claude];
    for dialect in Say::ALL {
        for (stream, drops) in [(false, false), (true, true)] {
            let gate = Gate::open(ReplayMode::Repair).await;
            gate.switch(dialect, &models, stream, drops).await;
            gate.assert_nothing_refused();
            let ledger = gate.ledger();
            let what = format!("{dialect:?}, streamed {stream}, drops {drops}: {ledger:#?}");
            let [first, second, last] = ledger.entries.as_slice() else { panic!("{what}") };
            assert_eq!(second.wire, "openai-responses", "{what}");
            assert!(second.returned.is_empty(), "another's seal: {what}");
            for issued in &first.issued {
                let is_back = last.returned.iter().any(|back| back.seal == issued.seal);
                assert!(is_back, "a seal of the first answer is missing: {what}");
            }
        }
    }
}
