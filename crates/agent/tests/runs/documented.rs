//! Tests for document 004 of the specification: the exact documents and events that a run produces,
//! and the effect of each setting.

use std::sync::{Arc, Mutex};

use throughline_agent::{
    AgentConfig, AskUser, Listener, RunCommand, RunRequest, RunStatus, ToolSpec,
};
use throughline_core::{
    Body, Call, CostEstimator, Item, Model, ModelError, ModelFuture, ModelRegistry, Target,
    TokenCounter, Usage,
};
use throughline_json::{Json, Name};
use throughline_spec::{
    ReasoningConfig, ReflectionRecord, RunEvent, UserQuestionEvent, UserQuestionResolution,
};

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, USED, results, us};

const MODEL: &str = "claude-sonnet-4-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn reflecting(reflection: &str) -> AgentConfig {
    let config = format!(r#"{{"level":"low","reflection":{reflection}}}"#);
    AgentConfig::minimal(MODEL).reasoning(&ReasoningConfig::parse(&json(&config)).unwrap())
}

/// Listener that records all events and, separately, all questions.
#[derive(Default)]
struct EventRecorder {
    events: Mutex<Vec<RunEvent>>,
    questions: Mutex<Vec<String>>,
}

impl Listener for EventRecorder {
    fn on_event(&self, _: &Name, event: &RunEvent) {
        self.events.lock().unwrap().push(event.clone());
    }

    fn on_question(&self, _: &Name, event: &UserQuestionEvent) {
        self.questions.lock().unwrap().push(event.json().as_str().to_owned());
    }
}

impl EventRecorder {
    /// Returns all events of one type as JSON.
    fn of(&self, name: &str) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let events = events.iter().filter(|event| event.name() == name);
        events.map(|event| event.json().as_str().to_owned()).collect()
    }
}

/// Cost estimator with a price for every kind of token. It records the arguments of each call.
#[derive(Default)]
struct RecordingPrices(Mutex<Vec<(String, Usage)>>);

impl CostEstimator for RecordingPrices {
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        self.0.lock().unwrap().push((model.to_owned(), *usage));
        let Usage { input, cached, output, thought, .. } = *usage;
        Some(f64::from(u32::try_from(input - cached + 10 * output + 100 * thought).unwrap()))
    }
}

struct WordCounter;

impl TokenCounter for WordCounter {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.split_whitespace().count()).unwrap()
    }
}

#[tokio::test]
async fn agent_uses_configured_token_counter_and_cost_estimator() {
    let models =
        || ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Text("four words of answer"));
    let mut scene = Scene::new(models(), Vec::new()).await;
    let prices = Arc::new(RecordingPrices::default());
    scene.runner.costs = Some(Arc::clone(&prices) as Arc<dyn CostEstimator>);
    scene.runner.counter = Arc::new(WordCounter);
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_cost_usd = Some(1000.0);
    let (started, status) = scene.run(agent, "and three asked").await;
    assert_eq!(status, RunStatus::Completed);
    // The first call checks that the model has a price; the second prices the whole answer.
    let expected = [(MODEL.to_owned(), Usage::default()), (MODEL.to_owned(), USED)];
    assert_eq!(*prices.0.lock().unwrap(), expected);
    let state = scene.state(&started.run).await;
    assert_eq!(state.window.tokens(), 3 + 4);
    assert!((state.progress.spent.cost_usd - 560.0).abs() < 1e-9, "{:?}", state.progress.spent);
    // By default, tokens are estimated from the text length, and no model has a price.
    let scene = Scene::new(models(), Vec::new()).await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "and three asked").await;
    let state = scene.state(&started.run).await;
    assert_eq!(state.window.tokens(), 4 + 5);
    assert!(state.progress.spent.cost_usd.abs() < 1e-9, "there are no default prices");
}

/// A model name that maps to two models. The second model answers.
#[derive(Clone)]
struct FallbackRoute(Arc<dyn Model>, Arc<dyn Model>);

impl Model for FallbackRoute {
    fn target(&self) -> &Target {
        self.0.target()
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        self.1.send(call)
    }
}

impl ModelRegistry for FallbackRoute {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

#[tokio::test]
async fn cost_estimator_receives_the_answering_model() {
    let script = |_: &Call| ScriptedAnswer::Text("here");
    let models = ScriptedModels::default().with(MODEL, script).with("claude-opus-4-5", script);
    let mut scene = Scene::new(models, Vec::new()).await;
    let of = |name: &str| scene.models.model(name).unwrap();
    let prices = Arc::new(RecordingPrices::default());
    scene.runner.models = Arc::new(FallbackRoute(of(MODEL), of("claude-opus-4-5")));
    scene.runner.costs = Some(Arc::clone(&prices) as Arc<dyn CostEstimator>);
    let (_, status) = scene.run(AgentConfig::minimal("route"), "go").await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(*prices.0.lock().unwrap(), [("test/claude-opus-4-5".to_owned(), USED)]);
}

#[tokio::test]
async fn reflection_record_and_event_match_the_documents() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("look", "{}")]),
        _ if call.items.last().is_some_and(is_question) => ScriptedAnswer::Text("It is dark."),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let recorder = Arc::new(EventRecorder::default());
    scene.runner.listener = Some(Arc::clone(&recorder) as Arc<dyn Listener>);
    let (started, _) = scene.run(reflecting(r#"{"cadence":"every_turn"}"#), "go").await;
    let smart = scene.state(&started.run).await.smart_state();
    let records: Vec<Json> =
        smart.reflections.iter().flatten().map(ReflectionRecord::json).collect();
    let [record] = &records[..] else { panic!("{records:?}") };
    let usage = r#"{"inputTokens":100,"outputTokens":10,"cachedInputTokens":40,"totalTokens":110,"reasoningTokens":4}"#;
    assert_eq!(
        record.as_str(),
        format!(
            r#"{{"id":"run_1.r4","turn":1,"text":"It is dark.","createdAt":"2027-01-15T08:00:00Z","durationMs":0,"anchorMessageIndex":2,"trigger":"every_turn","usage":{usage},"toolCallIds":["call_0_0"]}}"#
        )
    );
    let expected = format!(
        r#"{{"type":"reflection","id":"run_1.r4","turn":1,"text":"It is dark.","trigger":"every_turn","durationMs":0,"usage":{usage},"toolCallIds":["call_0_0"]}}"#
    );
    assert_eq!(recorder.of("reflection"), [expected]);
}

fn is_question(item: &Item) -> bool {
    &*item.id.0 == "reflection-question"
}

fn text_of(item: &Item) -> &str {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => text,
        _ => "",
    }
}

#[tokio::test]
async fn reflection_mode_separate_uses_its_own_request_and_template() {
    let is_note = |call: &Call| call.items.first().is_some_and(|item| &*item.id.0 == "reflection");
    let models = ScriptedModels::default().with(MODEL, move |call| {
        let last_text = call.items.iter().rev().map(text_of).find(|text| !text.is_empty());
        match (is_note(call), results(call), last_text) {
            (true, ..) => ScriptedAnswer::Text("noted"),
            (_, _, Some("think")) => ScriptedAnswer::Thinks("a thought of its own", "yes"),
            (_, 0, _) => ScriptedAnswer::Calls(&[("look", r#"{"at":"b"}"#)]),
            _ => ScriptedAnswer::Text("done"),
        }
    });
    let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let agent = reflecting(
        r#"{"cadence":"after_tool","mode":"separate","promptTemplate":"What now?","maxTokens":77}"#,
    );
    let (started, _) = scene.run(agent.clone(), "think").await;
    let start = RunRequest { thread: Some(started.thread), ..Scene::start(agent, "go") };
    let started = scene.runner.start(start).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let requests = scene.models.requests(MODEL);
    let notes: Vec<&Call> = requests.iter().filter(|call| is_note(call)).collect();
    let [note] = notes[..] else { panic!("{}", notes.len()) };
    let text = text_of(&note.items[0]);
    assert!(text.ends_with("\n\nWhat now?") && text.contains(r#"did {"at":"b"}"#), "{text}");
    assert!(!text.contains("a thought of its own"), "a provider Thought is never text: {text}");
    assert_eq!((note.items.len(), note.tools.len(), note.settings.max_tokens), (1, 0, Some(77)));
    let state = scene.state(&started.run).await;
    assert_eq!(state.smart.reflections.unwrap()[0].text.to_string(), "noted");
}

/// Summarises the first run on a Thread. Returns the text that the model was given to summarise,
/// and the resulting summary.
async fn summarised(reflection: &str) -> (String, String) {
    let is_summary =
        |call: &Call| call.system.iter().any(|item| text_of(item).contains("You summarise"));
    let models = ScriptedModels::default().with(MODEL, move |call| {
        let is_note = call.items.last().is_some_and(is_question);
        match (results(call), is_note) {
            _ if is_summary(call) => ScriptedAnswer::Text(r#"{"summary":"they looked"}"#),
            (1, true) => ScriptedAnswer::Text("the first is dark"),
            (2, true) => ScriptedAnswer::Text("no one lives in the second house"),
            (_, true) => ScriptedAnswer::Text("so it must be number three"),
            (0..=2, false) => ScriptedAnswer::Calls(&[("look", "{}")]),
            _ => ScriptedAnswer::Thinks("a thought of its own", "it is the third"),
        }
    });
    let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let mut agent = reflecting(reflection);
    agent.context.summarise = Some(true);
    agent.context.keep_turns = Some(0);
    let (started, _) = scene.run(agent.clone(), "look for it").await;
    agent.context.trigger_tokens = Some(1);
    let start = RunRequest { thread: Some(started.thread), ..Scene::start(agent, "thanks") };
    let started = scene.runner.start(start).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let requests = scene.models.requests(MODEL);
    let from = requests.iter().find(|call| is_summary(call)).expect("it was summarised");
    let summary = scene.state(&started.run).await.window.summary.unwrap();
    (text_of(&from.items[0]).to_owned(), text_of(&summary.item).to_owned())
}

#[tokio::test]
async fn reflection_keep_last_survives_summaries_and_summarize_covers_older_notes() {
    let (from, summary) =
        summarised(r#"{"cadence":"after_tool","keepLast":1,"summarize":true}"#).await;
    assert!(from.contains("note to oneself: the first is dark\n"), "{from}");
    assert!(from.contains("no one lives") && !from.contains("must be number three"), "{from}");
    assert!(summary.contains("- so it must be number three"), "{summary}");
    assert!(!summary.contains("no one lives"), "{summary}");
    let (from, summary) = summarised(r#"{"cadence":"after_tool","keepLast":2}"#).await;
    assert!(!from.contains("note to oneself"), "summarize is off by itself: {from}");
    assert!(summary.contains("no one lives") && !summary.contains("is dark"), "{summary}");
}

#[tokio::test]
async fn provider_thoughts_are_never_inlined_into_summaries() {
    let (from, summary) = summarised("false").await;
    assert!(from.contains("assistant: it is the third"), "{from}");
    assert!(!from.contains("a thought of its own"), "{from}");
    assert!(!summary.contains("a thought of its own"), "{summary}");
}

#[tokio::test]
async fn plan_steps_and_plan_events_match_the_documents() {
    const STEPS: &str = r#"[{"id":1,"step":"look","owner":"agent","exitCriteria":"seen","evidence":"a photo","status":"completed","title":"Look","description":"closely"},{"id":2,"step":"ask","owner":"user","exitCriteria":"told","status":"in-progress"},{"id":3,"step":"pay","owner":"the bank","exitCriteria":"pay","status":"blocked"},{"id":4,"step":"go","owner":"agent","exitCriteria":"go","status":"not-started"}]"#;
    const WRITE: &str = r#"{"operation":"write","todoList":[{"id":1,"step":"look","owner":"agent","exitCriteria":"seen","evidence":"a photo","status":"completed","title":"Look","description":"closely"},{"id":2,"step":"ask","owner":"user","exitCriteria":"told","status":"in-progress"},{"id":3,"step":"pay","owner":"the bank","status":"blocked"},{"id":4,"step":"go"}]}"#;
    const TWO: &str = r#"{"operation":"update","todoList":[{"id":4,"status":"in-progress"}]}"#;
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("manage_todo_list", WRITE)]),
        1 => ScriptedAnswer::Calls(&[("manage_todo_list", TWO)]),
        2 => ScriptedAnswer::Calls(&[("manage_todo_list", r#"{"operation":"read"}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let recorder = Arc::new(EventRecorder::default());
    scene.runner.listener = Some(Arc::clone(&recorder) as Arc<dyn Listener>);
    let (started, _) = scene.run(AgentConfig::smart(MODEL), "plan").await;
    let plan = scene.state(&started.run).await.smart.current_plan().unwrap().json();
    let expected = format!(
        r#"{{"version":1,"steps":{STEPS},"lastUpdated":"2027-01-15T08:00:00Z","adherenceScore":0.25}}"#
    );
    assert_eq!(plan.as_str(), expected, "the second was refused: two steps would be in progress");
    let plan_event = |operation: &str| {
        format!(
            r#"{{"type":"plan","source":"manage_todo_list","operation":"{operation}","todoList":{STEPS},"version":1,"adherenceScore":0.25}}"#
        )
    };
    assert_eq!(recorder.of("plan"), [plan_event("write"), plan_event("read")]);
}

const QUESTIONS: &str = r#"[{"question":"Which cities?","header":"City","multiSelect":true,"placeholder":"any","options":[{"label":"Zürich","value":"zrh","description":"the big one","preview":"a map"},{"label":"Basel"}]},{"question":"Why?","required":false}]"#;
const ASK: &str = r#"{"questions":[{"question":"Which cities?","header":"City","multiSelect":true,"placeholder":"any","options":[{"label":"Zürich","value":"zrh","description":"the big one","preview":"a map"},{"label":"Basel"}]},{"question":"Why?","required":false}]}"#;

/// Runs an agent that asks a person a question and receives the given answer. Returns the question
/// and the recorded events.
async fn ask_question(resolution: &str) -> (String, Arc<EventRecorder>, Scene) {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("ask_user_question", ASK)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let recorder = Arc::new(EventRecorder::default());
    scene.runner.listener = Some(Arc::clone(&recorder) as Arc<dyn Listener>);
    let mut agent = AgentConfig::minimal(MODEL);
    agent.human_in_the_loop.ask_user = Some(AskUser::default());
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Waiting);
    let state = scene.state(&started.run).await;
    let pending = &state.smart.pending_user_questions.as_ref().unwrap()[0];
    assert_eq!(
        pending.json().as_str(),
        format!(
            r#"{{"id":"run_1.q3","toolCallId":"call_0_0","toolName":"ask_user_question","questions":{QUESTIONS},"status":"pending","requestedAt":"2027-01-15T08:00:00Z","allowFreeText":true}}"#
        )
    );
    assert_eq!(
        state.context("__awaitingUserQuestion").unwrap().as_str(),
        r#"{"questionId":"run_1.q3","toolCallId":"call_0_0","requestedAt":"2027-01-15T08:00:00Z"}"#
    );
    let resolution = UserQuestionResolution::parse(&json(resolution)).unwrap();
    scene.runner.send_command(&us(), &started.run, RunCommand::Answer(resolution)).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Completed);
    let state = scene.state(&started.run).await;
    assert!(state.context("__awaitingUserQuestion").is_none());
    let settled = state.smart.pending_user_questions.unwrap()[0].json();
    (settled.as_str().to_owned(), recorder, scene)
}

#[tokio::test]
async fn question_reaches_on_event_and_on_question_as_documented() {
    const ANSWERS: &str = r#"{"Which cities?":{"values":["zrh","Basel"],"notes":"soon"},"Why?":{"values":[],"freeText":"for work"}}"#;
    let (settled, recorder, _scene) = ask_question(&format!(
        r#"{{"id":"call_0_0","answers":{ANSWERS},"answeredBy":"Ada","notes":"both"}}"#
    ))
    .await;
    assert_eq!(
        settled,
        format!(
            r#"{{"id":"run_1.q3","toolCallId":"call_0_0","toolName":"ask_user_question","questions":{QUESTIONS},"status":"executed","requestedAt":"2027-01-15T08:00:00Z","answeredAt":"2027-01-15T08:00:00Z","answeredBy":"Ada","answers":{ANSWERS},"notes":"both","allowFreeText":true}}"#
        )
    );
    let expected = [
        format!(
            r#"{{"type":"user_question","status":"pending","id":"run_1.q3","toolCallId":"call_0_0","questions":{QUESTIONS},"allowFreeText":true}}"#
        ),
        format!(
            r#"{{"type":"user_question","status":"answered","id":"run_1.q3","toolCallId":"call_0_0","answers":{ANSWERS},"answeredBy":"Ada","allowFreeText":true}}"#
        ),
    ];
    assert_eq!(*recorder.questions.lock().unwrap(), expected, "onQuestion");
    assert_eq!(recorder.of("user_question"), expected, "onEvent");
}

#[tokio::test]
async fn required_question_can_be_cancelled() {
    let (settled, recorder, scene) = ask_question(
        r#"{"id":"run_1.q3","cancelled":true,"answeredBy":"Ada","notes":"not today"}"#,
    )
    .await;
    assert_eq!(
        settled,
        format!(
            r#"{{"id":"run_1.q3","toolCallId":"call_0_0","toolName":"ask_user_question","questions":{QUESTIONS},"status":"cancelled","requestedAt":"2027-01-15T08:00:00Z","answeredAt":"2027-01-15T08:00:00Z","answeredBy":"Ada","cancelled":true,"notes":"not today","allowFreeText":true}}"#
        )
    );
    assert_eq!(
        recorder.questions.lock().unwrap()[1],
        r#"{"type":"user_question","status":"cancelled","id":"run_1.q3","toolCallId":"call_0_0","answeredBy":"Ada","allowFreeText":true}"#
    );
    let texts = crate::harness::tool_result_texts(&scene.models.requests(MODEL)[1]);
    assert_eq!(texts, [r#"{"status":"cancelled","answeredBy":"Ada","notes":"not today"}"#]);
}

#[tokio::test]
async fn memory_facts_come_from_summaries() {
    let is_summary =
        |call: &Call| call.system.iter().any(|item| text_of(item).contains("You summarise"));
    let models = ScriptedModels::default().with(MODEL, move |call| {
        if !is_summary(call) {
            return ScriptedAnswer::Text("yes");
        }
        if text_of(&call.items[0]).contains("I moved") {
            return ScriptedAnswer::Text(
                r#"{"summary":"moved","stable_facts":[{"key":"city","value":"Bern"}],"discarded_obsolete":["street"]}"#,
            );
        }
        ScriptedAnswer::Text(
            r#"{"summary":"met","stable_facts":[{"key":"city","value":"Basel"},{"key":"street","value":"Rheingasse"}]}"#,
        )
    });
    let scene = Scene::new(models, Vec::new()).await;
    let (first, _) = scene.run(AgentConfig::minimal(MODEL), "I live in Basel.").await;
    let thread = first.thread;
    let summarised = async || {
        let start = Scene::start(AgentConfig::minimal(MODEL), "");
        let start = RunRequest { thread: Some(thread.clone()), said: Vec::new(), ..start };
        let started = scene.runner.start_compaction(start).await.unwrap();
        scene.runner.drive(&us(), &started.run).await.unwrap();
        let facts = scene.state(&started.run).await.smart.memory_facts.unwrap();
        facts.iter().map(|fact| fact.json().as_str().to_owned()).collect::<Vec<_>>()
    };
    let fact = |key: &str, value: &str, more: &str| {
        format!(
            r#"{{"key":"{key}","value":"{value}","sourceTurn":0{more},"lastUpdatedAt":"2027-01-15T08:00:00Z"}}"#
        )
    };
    let street = |more: &str| fact("street", "Rheingasse", more);
    assert_eq!(summarised().await, [fact("city", "Basel", ""), street("")]);
    let start = Scene::start(AgentConfig::minimal(MODEL), "I moved to Bern.");
    let started =
        scene.runner.start(RunRequest { thread: Some(thread.clone()), ..start }).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    assert_eq!(summarised().await, [fact("city", "Bern", ""), street(r#","obsolete":true"#)]);
}
