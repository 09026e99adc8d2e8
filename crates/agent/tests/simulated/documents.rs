//! A persisted `SmartState` continues a conversation: the messages that the state documents become
//! the history of a new run, and the simulators verify every Seal that comes back.

use std::collections::HashSet;
use std::time::Duration;

use throughline_agent::{AgentConfig, RunRequest, RunStatus};
use throughline_codec::{Catalog, HistoryFormat, HistoryOwner, codec, read_history};
use throughline_core::Target;
use throughline_json::Json;
use throughline_testkit::figure;

use crate::world::{MODELS, TestEnvironment, drive, us};

const THOUGHT: &str = "the sky is probably blue";

fn agent(model: &str) -> AgentConfig {
    let mut agent = AgentConfig::minimal(model);
    agent.max_tokens = Some(16_000);
    let reasoning =
        r#"{"level":"high","native":{"effort":"high","includeThoughts":true},"reflection":false}"#;
    agent.reasoning = Some(Json::parse(reasoning.to_owned()).unwrap());
    agent
}

fn owner(model: &str, row: &str) -> Target {
    Catalog::builtin().target_for(row, model, "us").unwrap()
}

/// 001: "The framework persists blocks here so the provider's serializer can restore them on the
/// next request."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persisted_messages_continue_with_their_reasoning() {
    let mut restored = 0;
    for (model, row) in MODELS {
        let script = format!(
            r#"
            [[turn]]
            model = "{model}"
            thoughts = ["{THOUGHT}"]
            calls = [{{ name = "look", arguments = {{ what = "sky" }} }}]

            [[turn]]
            model = "{model}"
            thoughts = ["{THOUGHT}"]
            texts = ["It is blue."]

            [[turn]]
            model = "{model}"
            texts = ["Still blue."]
            "#
        );
        let env = TestEnvironment::scripted(&script).await;
        let mut node = env.node("node");
        node.lease = Duration::from_mins(1);
        let started = node.start(RunRequest::new(us(), agent(model), "Look up.")).await.unwrap();
        assert_eq!(drive(&node, &started.run, usize::MAX).await, Some(RunStatus::Completed));
        let state = node.state(&us(), &started.run).await.unwrap().smart_state().json();
        // Only the documented state survives: a new Thread starts from its messages.
        let owner = owner(model, row);
        let codec = codec(&owner.origin.wire).unwrap();
        let read = HistoryOwner::new(&owner, codec);
        let history = read_history(&state, HistoryFormat::LlmMessage, Some(read)).unwrap();
        let thoughts = history.items.iter().filter(|item| item.visible() == Some(THOUGHT)).count();
        let hides_text = model.starts_with("gpt");
        assert!(thoughts == 2 || hides_text, "{model}: {thoughts} readable thoughts");
        let request = RunRequest::new(us(), agent(model), "And now?");
        let next = node.start_with_history(request, history.items).await.unwrap();
        assert_ne!(next.thread, started.thread);
        let status = drive(&node, &next.run, usize::MAX).await;
        let state = node.state(&us(), &next.run).await.unwrap();
        assert_eq!(status, Some(RunStatus::Completed), "{model}: {:?}", state.progress.phase);
        let entries = env.simulator.ledger().entries;
        assert_eq!(entries.len(), 3, "{model}");
        let issued: HashSet<&str> =
            entries[..2].iter().flat_map(|entry| &entry.issued).map(|seal| &*seal.seal).collect();
        let returned: HashSet<&str> = entries[2].returned.iter().map(|seal| &*seal.seal).collect();
        assert_eq!(returned, issued, "{model}");
        restored += returned.len();
    }
    figure("Seals that came back from persisted messages", restored);
}
