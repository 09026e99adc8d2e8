//! Runs that start with an earlier conversation, and tags that an agent declares.

use std::sync::Arc;

use throughline_agent::{AgentConfig, RunStatus, narrate};
use throughline_codec::{HistoryFormat, read_history};
use throughline_core::{
    Body, Disposition, Identity, Item, Role, SIDE_CHANNEL, Store as _, TokenCounter,
};
use throughline_json::Json;
use throughline_spec::{RawThought, RedactionPolicy, RunEvent};

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, us};

const CLAUDE: &str = "claude-sonnet-4-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn messages(text: &str) -> Vec<Item> {
    read_history(&json(text), HistoryFormat::LlmMessage, None).unwrap().items
}

async fn scene() -> Scene {
    Scene::new(ScriptedModels::default().with(CLAUDE, |_| ScriptedAnswer::Text("Yes.")), Vec::new())
        .await
}

fn texts(items: &[Item]) -> Vec<(Role, String)> {
    let shown = items.iter().filter_map(|item| Some((item.role, item.visible()?.to_owned())));
    shown.collect()
}

#[tokio::test]
async fn history_precedes_the_message_and_is_stored() {
    let scene = scene().await;
    let history = messages(
        r#"[{"role":"user","content":"One?"},{"role":"assistant","content":"One.","toolCalls":[]}]"#,
    );
    let start = Scene::start(AgentConfig::minimal(CLAUDE), "Two?");
    let started = scene.runner.start_with_history(start, history).await.unwrap();
    let status = scene.runner.drive(&us(), &started.run).await.unwrap();
    assert_eq!(status, RunStatus::Completed);
    let sent = scene.models.requests(CLAUDE);
    let expected = [
        (Role::User, "One?".to_owned()),
        (Role::Assistant, "One.".to_owned()),
        (Role::User, "Two?".to_owned()),
    ];
    assert_eq!(texts(&sent[0].items), expected);
    let state = scene.state(&started.run).await.smart_state();
    assert_eq!(state.messages.len(), 4);
    // The next run of the Thread sees the same conversation.
    let mut start = Scene::start(AgentConfig::minimal(CLAUDE), "Three?");
    start.thread = Some(started.thread);
    let next = scene.runner.start(start).await.unwrap();
    scene.runner.drive(&us(), &next.run).await.unwrap();
    assert_eq!(texts(&scene.models.requests(CLAUDE)[1].items)[..3], expected);
}

/// 001: `ephemeral` as a flag that a caller sets.
#[tokio::test]
async fn callers_ephemeral_message_reaches_the_model_and_all_logs_but_not_the_thread() {
    const HINT: &str = "Answer in MANDARIN.";
    let scene = scene().await;
    let history = messages(&format!(
        r#"[{{"role":"user","content":"One?"}},{{"role":"assistant","content":"One.","toolCalls":[]}},
            {{"role":"user","content":"{HINT}","ephemeral":true}}]"#
    ));
    let start = Scene::start(AgentConfig::minimal(CLAUDE), "Two?");
    let started = scene.runner.start_with_history(start, history).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let sent = scene.models.requests(CLAUDE);
    let expected = ["One?", "One.", HINT, "Two?"];
    let shown: Vec<String> = texts(&sent[0].items).into_iter().map(|(_, text)| text).collect();
    assert_eq!(shown, expected);
    let events = scene.events(&started.run).await;
    let is_hint = |event: &RunEvent| {
        matches!(event, RunEvent::Message(message)
            if message.ephemeral == Some(true) && &*message.content == HINT)
    };
    assert!(events.iter().any(is_hint), "the Journal contains it, marked as ephemeral");
    assert!(narrate(&events, &RedactionPolicy::default()).contains("MANDARIN"));
    let thread = scene.journal.read(&us(), &started.thread, 0, 500).await.unwrap();
    let stored = thread.iter().filter_map(|record| record.content.bytes());
    let mut stored = stored.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(!stored.any(|text| text.contains("MANDARIN")), "the Thread does not contain it");
    let state = scene.state(&started.run).await.smart_state().json();
    assert!(!state.as_str().contains("MANDARIN"), "nor does the state");
}

#[tokio::test]
async fn incomplete_histories_are_refused() {
    let scene = scene().await;
    let start = || Scene::start(AgentConfig::minimal(CLAUDE), "Go on.");
    let call = r#"[{"role":"user","content":"One?"},{"role":"assistant","content":"","toolCalls":[{"id":"c1","name":"look","args":{}}]}]"#;
    let refused = scene.runner.start_with_history(start(), messages(call)).await.unwrap_err();
    let expected = "the history has no result for the tool call c1; add a tool message with its \
                    result";
    assert_eq!(refused.to_string(), expected);
    let result = r#"[{"role":"tool","content":"x","toolCallId":"c9","toolName":"look"}]"#;
    let refused = scene.runner.start_with_history(start(), messages(result)).await.unwrap_err();
    assert!(refused.to_string().contains("a result for an unknown call c9"), "{refused}");
    // A stored result would lose the call that is not stored.
    let ephemeral = r#"[{"role":"assistant","content":"","ephemeral":true,"toolCalls":[{"id":"c1","name":"look","args":{}}]},
        {"role":"tool","content":"x","toolCallId":"c1","toolName":"look"}]"#;
    let refused = scene.runner.start_with_history(start(), messages(ephemeral)).await.unwrap_err();
    let expected = "the history has an ephemeral message with content other than text; remove the \
                    content or the flag `ephemeral`";
    assert_eq!(refused.to_string(), expected);
    let mut empty = start();
    empty.said.clear();
    let refused = scene.runner.start_with_history(empty, Vec::new()).await.unwrap_err();
    assert!(refused.to_string().contains("the history are empty"), "{refused}");
}

/// 000: an agent declares the tags that its model accepts.
#[tokio::test]
async fn agent_declares_accepted_tags() {
    let scene = scene().await;
    let raw = r#"{"id":"t1","content":"For people.","payload":{"handle":7},"replayCompatibility":"own-handle-v1","createdAt":"2026-01-31","updatedAt":"2026-01-31"}"#;
    let thought = RawThought::parse(&json(raw)).unwrap();
    for (tags, expected) in [(&[][..], false), (&["own-handle-v1"][..], true)] {
        let agent = AgentConfig::minimal(CLAUDE).accepting_tags(tags.iter().copied());
        let stored = serde_json::to_string(&agent).unwrap();
        assert_eq!(stored.contains(r#""acceptedTags":["own-handle-v1"]"#), expected, "{stored}");
        let start = Scene::start(agent, "Go on.");
        let history = vec![thought.clone()];
        let started = scene.runner.start_with_history(start, history).await.unwrap();
        scene.runner.drive(&us(), &started.run).await.unwrap();
        let call = scene.models.requests(CLAUDE).pop().unwrap();
        let codec = throughline_codec::codec(&call.target.origin.wire).unwrap();
        let sent = codec.encode(&call).unwrap();
        let body = String::from_utf8(sent.request.body.to_vec()).unwrap();
        assert_eq!(body.contains(SIDE_CHANNEL), expected, "{body}");
        assert!(!body.contains("For people."), "{body}");
        let is_elided = matches!(sent.fates[0].visible, Disposition::Elided(_));
        assert_eq!(is_elided, !expected);
    }
}

/// 000: a thought without an identity is the agent's own; a named thought keeps its author.
#[tokio::test]
async fn imported_thoughts_belong_to_the_agent_unless_they_name_another() {
    let scene = scene().await;
    let thought = |id: &str| RawThought::new(id, format!("Note {id}."), "2026-01-31");
    let history = vec![
        thought("a").into_item().unwrap(),
        thought("b").with_identity("bob").into_item().unwrap(),
    ];
    let agent = AgentConfig::minimal(CLAUDE).with_name("ada");
    let start = Scene::start(agent, "Go on.");
    let started = scene.runner.start_with_history(start, history).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let call = scene.models.requests(CLAUDE).pop().unwrap();
    let identities: Vec<Identity> = call
        .items
        .iter()
        .filter_map(|item| match &item.body {
            Body::Thought(thought) => Some(thought.identity.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(identities, [Identity::named("ada"), Identity::named("bob")]);
}

/// 000: "The plain-text content is kept … for token-accounting".
#[tokio::test]
async fn thoughts_count_toward_the_context_window() {
    struct Words;
    impl TokenCounter for Words {
        fn count(&self, text: &str) -> u64 {
            text.split_whitespace().count() as u64
        }
    }
    let mut scene = scene().await;
    scene.runner.counter = Arc::new(Words);
    let raw = r#"{"id":"t1","content":"one two three four five","payload":1,"replayCompatibility":"own-handle-v1","createdAt":0,"updatedAt":0}"#;
    let history = vec![RawThought::parse(&json(raw)).unwrap()];
    let start = Scene::start(AgentConfig::minimal(CLAUDE), "Go on.");
    let started = scene.runner.start_with_history(start, history).await.unwrap();
    let state = scene.state(&started.run).await;
    assert_eq!(state.window.tokens(), 5 + 2, "the thought and the message");
}
