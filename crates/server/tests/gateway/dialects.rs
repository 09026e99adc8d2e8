//! Tests every dialect against every simulated provider, over HTTP.

use crate::harness::{ClientDialect, SimGateway};
use throughline_replay::Claims;
use throughline_server::ReplayMode;
use throughline_sim::{ReturnedSeal, Verdict};
use throughline_testkit::figure;

/// Every dialect reaches every model family, in complete and streamed replies, with tools and
/// reasoning. No request is refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_dialect_reaches_every_family() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in ClientDialect::ALL {
        for model in crate::harness::MODELS {
            for stream in [false, true] {
                let turns = gateway.converse(dialect, model, stream, false).await;
                assert!(turns >= 3, "{dialect:?} → {model}, streamed {stream}: {turns} turns");
            }
        }
    }
    gateway.assert_nothing_refused();
}

/// The gateway restores the reasoning that a client drops. Without this reasoning, the provider
/// refuses the request.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_reasoning_is_restored() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in ClientDialect::ALL {
        for model in crate::harness::MODELS {
            for stream in [false, true] {
                gateway.converse(dialect, model, stream, true).await;
            }
        }
    }
    gateway.assert_nothing_refused();
    let careless = SimGateway::open(ReplayMode::Off).await;
    let refused =
        careless.try_converse(ClientDialect::Messages, "sim/claude-sonnet-4-5", false, true).await;
    assert!(refused.unwrap_err().contains("thinking"), "the simulator refuses what was dropped");
}

/// A caller in another dialect than the provider's receives gateway ids for tool calls. These ids
/// identify the turn. A caller in the provider's dialect receives the provider's ids.
#[tokio::test(flavor = "multi_thread")]
async fn call_ids_identify_their_turn_in_other_dialects() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let same = [
        ClientDialect::Messages,
        ClientDialect::Responses,
        ClientDialect::Gemini,
        ClientDialect::Chat,
    ];
    for dialect in ClientDialect::ALL {
        for (model, provider_dialect) in crate::harness::MODELS.into_iter().zip(same) {
            for stream in [false, true] {
                let ids = gateway.call_ids(dialect, model, stream).await;
                let label = format!("{dialect:?} → {model}, streamed {stream}: {ids:?}");
                assert!(!ids.is_empty(), "{label}");
                let is_ours = |id: &String| Claims::has_handle_format(id.as_bytes());
                assert_eq!(ids.iter().all(is_ours), dialect != provider_dialect, "{label}");
            }
        }
    }
}

/// A conversation switches models within tool loops and returns to the first model. No request is
/// refused, and the first model receives its own Seals again.
#[tokio::test(flavor = "multi_thread")]
async fn model_change_and_back_returns_the_first_models_seals() {
    let [claude, gpt, gemini, deepseek] = crate::harness::MODELS;
    let models = [claude, gpt, gemini, deepseek, claude];
    let mut returned = 0;
    for dialect in ClientDialect::ALL {
        for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
            let gateway = SimGateway::open(ReplayMode::Repair).await;
            gateway.switch(dialect, &models, stream, drops).await;
            gateway.assert_nothing_refused();
            let ledger = gateway.ledger();
            let label = format!("{dialect:?}, streamed {stream}, drops {drops}: {ledger:#?}");
            let [first, middle @ .., last] = ledger.entries.as_slice() else { panic!("{label}") };
            assert_eq!(first.stop.as_deref(), Some("tools"), "a tool loop is open: {label}");
            let is_taken = |back: &ReturnedSeal| back.verdict == Verdict::Accepted;
            assert!(last.returned.iter().all(is_taken), "{label}");
            // Gemini receives Google's documented placeholder signature for other models' calls.
            let stand_in = Verdict::Dropped("stand_in".to_owned());
            for entry in middle {
                let is_meant =
                    |back: &ReturnedSeal| entry.wire == "gemini" && back.verdict == stand_in;
                assert!(entry.returned.iter().all(is_meant), "another's seal: {label}");
            }
            assert!(!first.issued.is_empty(), "{label}");
            for issued in &first.issued {
                let is_back = last.returned.iter().any(|back| back.seal == issued.seal);
                assert!(is_back, "a seal of the first answer is missing: {label}");
            }
            let is_foreign =
                |back: &&ReturnedSeal| first.issued.iter().all(|issued| issued.seal != back.seal);
            assert_eq!(last.returned.iter().find(is_foreign), None, "another's seal: {label}");
            returned += last.returned.len();
        }
    }
    figure("seals returned to the first of five models", returned);
}

/// If the first target of a route is down, the second target continues the conversation. Once the
/// first target is back, it receives its own Seals again.
#[tokio::test(flavor = "multi_thread")]
async fn fallback_target_continues_the_conversation() {
    let [claude, ..] = crate::harness::MODELS;
    let models = [claude, crate::harness::FALLBACK, claude];
    for dialect in ClientDialect::ALL {
        for (stream, drops) in [(false, false), (true, true)] {
            let gateway = SimGateway::open(ReplayMode::Repair).await;
            gateway.switch(dialect, &models, stream, drops).await;
            gateway.assert_nothing_refused();
            let ledger = gateway.ledger();
            let label = format!("{dialect:?}, streamed {stream}, drops {drops}: {ledger:#?}");
            let [first, second, last] = ledger.entries.as_slice() else { panic!("{label}") };
            assert_eq!(second.wire, "openai-responses", "{label}");
            assert!(second.returned.is_empty(), "another's seal: {label}");
            for issued in &first.issued {
                let is_back = last.returned.iter().any(|back| back.seal == issued.seal);
                assert!(is_back, "a seal of the first answer is missing: {label}");
            }
        }
    }
}
