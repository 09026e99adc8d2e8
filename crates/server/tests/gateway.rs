//! The gateway as its callers meet it: over HTTP, with the simulators behind it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses some of the harness")]

mod harness;

use harness::{Gate, Say};
use throughline_server::ReplayMode;

/// Every dialect reaches every family, whole and streamed, with tools and reasoning, and nothing is refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_dialect_reaches_every_family() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for dialect in Say::ALL {
        for model in harness::MODELS {
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
        for model in harness::MODELS {
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
