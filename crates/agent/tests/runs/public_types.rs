//! Tests of document 004 of the specification: reflection notes in requests, question status and
//! metadata, plan events, `ctx`, archived tool results, summaries, and the ids of attempts.

use std::sync::{Arc, Mutex};

use throughline_agent::{
    AgentConfig, AskUser, OpenCalls, OutputContract, RunCommand, RunRequest, RunStatus, Tool,
    ToolAnswer, ToolContext, ToolFuture, ToolSpec, parse_snapshot,
};
use throughline_core::{Body, Call, Clock as _, Item, Part, TokenCounter, ToolChoice};
use throughline_json::Json;
use throughline_spec::{
    ReasoningConfig, RunEvent, SummaryRecord, ToolExecution, UserQuestionResolution,
    UserQuestionStatus,
};

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

const MODEL: &str = "claude-sonnet-4-5";
/// A model whose Seals are bound to the whole prefix before them.
const BOUND: &str = "claude-sonnet-5-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn with_reasoning(agent: AgentConfig, reasoning: &str) -> AgentConfig {
    agent.reasoning(&ReasoningConfig::parse(&json(reasoning)).unwrap())
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

/// Model that looks four times and writes a note after each look.
fn looking(call: &Call) -> ScriptedAnswer {
    let is_note = call.items.last().is_some_and(is_question);
    match (results(call), is_note) {
        (1, true) => ScriptedAnswer::Text("one: dark"),
        (2, true) => ScriptedAnswer::Text("two: empty room"),
        (3, true) => ScriptedAnswer::Text("three: a door"),
        (_, true) => ScriptedAnswer::Text("four: locked again"),
        (0..4, false) => ScriptedAnswer::Calls(&[("look", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    }
}

/// Runs an agent that reflects. Returns, for each turn, the index of each tool result that has
/// notes and the notes.
async fn notes_per_turn(model: &str, reflection: &str) -> Vec<Vec<(usize, String)>> {
    let models = ScriptedModels::default().with(model, looking);
    let scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
    let reasoning = format!(r#"{{"level":"low","reflection":{reflection}}}"#);
    let (started, status) =
        scene.run(with_reasoning(AgentConfig::minimal(model), &reasoning), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let state = scene.state(&started.run).await.smart_state().json();
    assert!(!state.as_str().contains(TITLE), "the Thread contains no notes");
    let requests = scene.models.requests(model);
    let turns = requests.iter().filter(|call| !call.items.last().is_some_and(is_question));
    let notes = |call: &Call| {
        let results = call.items.iter().enumerate().filter_map(|(index, item)| match &item.body {
            Body::Result(result) => Some((index, result)),
            _ => None,
        });
        let notes = results.filter_map(|(index, result)| match &result.parts[..] {
            [Part::Text(text)] => {
                let notes =
                    text.strip_prefix("did {}\n\n").and_then(|text| text.strip_prefix(TITLE));
                assert!(notes.is_some() || &**text == "did {}", "{text}");
                Some((index, notes?.to_owned()))
            }
            parts => panic!("{parts:?}"),
        });
        notes.collect()
    };
    turns.map(notes).collect()
}

const TITLE: &str = "[Not from the tool] Notes that you wrote during this work, the latest last:";

#[tokio::test]
async fn last_reflections_reach_the_model_each_turn() {
    let turns = notes_per_turn(MODEL, r#"{"cadence":"after_tool","keepLast":2}"#).await;
    let note = |index: usize, notes: &str| vec![(index, notes.to_owned())];
    let expected = [
        Vec::new(),
        note(2, "\n- one: dark"),
        note(4, "\n- one: dark\n- two: empty room"),
        note(6, "\n- two: empty room\n- three: a door"),
        note(8, "\n- three: a door\n- four: locked again"),
    ];
    assert_eq!(turns, expected, "the notes follow the last tool result");
    let turns = notes_per_turn(MODEL, r#"{"cadence":"after_tool","keepLast":0}"#).await;
    assert!(turns.iter().all(Vec::is_empty), "{turns:?}");
}

#[tokio::test]
async fn notes_keep_the_prefix_of_prefix_bound_models() {
    let turns = notes_per_turn(BOUND, r#"{"cadence":"after_tool","keepLast":1}"#).await;
    let last = turns.last().unwrap();
    let indices: Vec<usize> = last.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [2, 4, 6, 8], "each note follows the result that it is about");
    // Each request starts with the notes of the previous request, at the same positions.
    for (before, after) in turns.iter().zip(turns.iter().skip(1)) {
        assert_eq!(&after[..before.len()], &before[..]);
    }
}

/// A summary that contains the text of a later note by chance does not cover the note.
#[tokio::test]
async fn summary_covers_notes_by_position() {
    let is_summary =
        |call: &Call| call.system.iter().any(|item| text_of(item).contains("You summarise"));
    let models = ScriptedModels::default().with(BOUND, move |call| {
        let is_first = call.items.iter().any(|item| text_of(item) == "hello");
        if is_summary(call) {
            ScriptedAnswer::Text(r#"{"summary":"one: dark, four: locked again"}"#)
        } else if is_first {
            ScriptedAnswer::Text("hello")
        } else {
            looking(call)
        }
    });
    let scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
    let reasoning = r#"{"level":"low","reflection":{"cadence":"after_tool","keepLast":1}}"#;
    let mut agent = with_reasoning(AgentConfig::minimal(BOUND), reasoning);
    agent.context.summarise = Some(true);
    agent.context.keep_turns = Some(0);
    let (started, _) = scene.run(agent.clone(), "hello").await;
    agent.context.trigger_tokens = Some(1);
    let start = RunRequest { thread: Some(started.thread), ..Scene::start(agent, "go") };
    let started = scene.runner.start(start).await.unwrap();
    let status = scene.runner.drive(&us(), &started.run).await.unwrap();
    assert_eq!(status, RunStatus::Completed);
    let requests = scene.models.requests(BOUND);
    assert!(requests.iter().any(is_summary), "the first exchange is summarised");
    let last = requests.last().unwrap();
    let with_notes = last.items.iter().filter(|item| match &item.body {
        Body::Result(result) => {
            matches!(&result.parts[..], [Part::Text(text)] if text.contains(TITLE))
        }
        _ => false,
    });
    assert_eq!(with_notes.count(), 4, "each result keeps its note");
}

struct OneTokenPerWord;

impl TokenCounter for OneTokenPerWord {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.split_whitespace().count()).unwrap()
    }
}

#[tokio::test]
async fn reflection_max_tokens_limits_the_note_in_both_modes() {
    for (mode, max_tokens) in [("piggyback", 2003), ("separate", 3)] {
        let models = ScriptedModels::default().with(MODEL, |call| {
            let is_separate = call.items.first().is_some_and(|item| &*item.id.0 == "reflection");
            match (results(call), is_separate || call.items.last().is_some_and(is_question)) {
                (_, true) => ScriptedAnswer::Text("this note has far too many words"),
                (0, false) => ScriptedAnswer::Calls(&[("look", "{}")]),
                _ => ScriptedAnswer::Text("done"),
            }
        });
        let mut scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
        scene.runner.counter = Arc::new(OneTokenPerWord);
        let reasoning = format!(
            r#"{{"native":{{"budgetTokens":2000}},"reflection":{{"cadence":"after_tool","mode":"{mode}","maxTokens":3}}}}"#
        );
        let agent = with_reasoning(AgentConfig::minimal(MODEL), &reasoning);
        let (started, _) = scene.run(agent, "go").await;
        // Native reasoning counts as output, so the request allows its budget on top of the note.
        let requests = scene.models.requests(MODEL);
        assert_eq!(requests[1].settings.max_tokens, Some(max_tokens), "{mode}");
        let notes = scene.state(&started.run).await.smart.reflections.unwrap();
        assert_eq!(&*notes[0].text, "this note has…", "{mode}");
    }
}

#[tokio::test]
async fn both_builders_apply_the_same_reasoning() {
    let reasoning = r#"{"level":"high","native":{"budgetTokens":2000},"reflection":{"cadence":"after_tool","maxTokens":50}}"#;
    let mut seen = Vec::new();
    for agent in [AgentConfig::minimal(MODEL), AgentConfig::smart(MODEL)] {
        let models = ScriptedModels::default().with(MODEL, looking);
        let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
        let (started, _) = scene.run(with_reasoning(agent, reasoning), "go").await;
        let requests = scene.models.requests(MODEL);
        let settings: Vec<_> = requests
            .iter()
            .map(|call| (call.settings.reasoning.clone(), call.settings.max_tokens))
            .collect();
        assert_eq!(requests[0].settings.reasoning.as_ref().unwrap().budget_tokens, Some(2000));
        let choice = &requests[1].settings.choice;
        assert_eq!(*choice, Some(ToolChoice::None), "the second request is a reflection");
        let notes = scene.state(&started.run).await.smart.reflections.unwrap();
        let notes: Vec<String> = notes.iter().map(|note| note.text.to_string()).collect();
        seen.push((settings, notes));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].1.len(), 4);
}

#[tokio::test]
async fn system_prompt_names_only_enabled_features() {
    let mut prompts = Vec::new();
    for (planning, summarise) in [(true, true), (false, true), (true, false), (false, false)] {
        let models = ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Text("done"));
        let scene = Scene::new(models, Vec::new()).await;
        let mut agent = AgentConfig::smart(MODEL);
        agent.planning = Some(planning);
        agent.context.summarise = Some(summarise);
        scene.run(agent, "go").await;
        let call = scene.models.requests(MODEL).remove(0);
        let prompt = text_of(&call.system[0]).to_owned();
        for (tool, is_on) in [("manage_todo_list", planning), ("get_tool_response", summarise)] {
            assert_eq!(prompt.contains(tool), is_on, "{prompt}");
            assert_eq!(call.tools.iter().any(|offered| &*offered.name == tool), is_on);
        }
        prompts.push(prompt);
    }
    assert!(prompts.iter().all(|prompt| prompt.starts_with("Work step by step.")));
}

#[tokio::test]
async fn attempts_of_a_gate_stream_under_distinct_item_ids() {
    let models = ScriptedModels::default().with(MODEL, |call| {
        let has_feedback = call.items.iter().any(|item| item.ephemeral);
        let answer = if has_feedback { r#"{"n":1}"# } else { "no" };
        ScriptedAnswer::Thinks("a thought", answer)
    });
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    let (started, status) = scene.run(agent, "count").await;
    assert_eq!(status, RunStatus::Completed);
    let events = scene.events(&started.run).await;
    let thoughts = events.iter().filter_map(|event| match event {
        RunEvent::Thought(event) => Some((event.phase.to_string(), event.id.clone().unwrap())),
        _ => None,
    });
    let thoughts: Vec<(String, String)> =
        thoughts.map(|(phase, id)| (phase, id.to_string())).collect();
    let pair = |phase: &str, id: &str| (phase.to_owned(), id.to_owned());
    let expected =
        [pair("delta", "run_1.i2"), pair("delta", "run_1.i2-1"), pair("end", "run_1.i2-1")];
    assert_eq!(thoughts, expected);
    let state = scene.state(&started.run).await;
    let ids: Vec<&str> = state.window.items.iter().map(|entry| &*entry.item.id.0).collect();
    assert_eq!(ids, ["run_1.i1", "run_1.i2-1", "run_1.i3-1"]);
    assert_eq!(state.progress.discarded, 0, "the next answer starts without discarded attempts");
}

const ASK: &str = r#"{"questions":[{"question":"Which?"}]}"#;

fn asking(calls: &'static [(&'static str, &'static str)]) -> ScriptedModels {
    ScriptedModels::default().with(MODEL, move |call| match results(call) {
        0 => ScriptedAnswer::Calls(calls),
        _ => ScriptedAnswer::Text("done"),
    })
}

#[tokio::test]
async fn question_is_answered_until_the_model_has_the_answer() {
    let calls: &[(&str, &str)] = &[("ask_user_question", ASK), ("mail", "{}")];
    let scene = Scene::new(asking(calls), vec![ToolSpec::new("mail").needs_approval()]).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.human_in_the_loop.ask_user = Some(AskUser::default());
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Waiting);
    let question_status = async || {
        let state = scene.state(&started.run).await;
        state.smart.pending_user_questions.unwrap()[0].status
    };
    assert_eq!(question_status().await, UserQuestionStatus::Pending);
    let resolution = r#"{"id":"call_0_0","answers":{"Which?":{"values":[],"freeText":"two"}}}"#;
    let resolution = UserQuestionResolution::parse(&json(resolution)).unwrap();
    let again = RunCommand::Answer(resolution.clone());
    scene.runner.send_command(&us(), &started.run, RunCommand::Answer(resolution)).await.unwrap();
    // The run still waits for the approval, so no model has received the answer.
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Waiting);
    assert_eq!(question_status().await, UserQuestionStatus::Answered);
    let error = scene.runner.send_command(&us(), &started.run, again).await.unwrap_err();
    assert!(error.to_string().contains("already resolved (status: answered)"), "{error}");
    let approval = json(r#"{"id":"call_0_1","approved":true}"#);
    let approval = throughline_spec::ToolApprovalResolution::parse(&approval).unwrap();
    let approve = RunCommand::Decide(approval);
    let snapshot = scene.runner.snapshot(&us(), &started.run).await.unwrap();
    scene.runner.send_command(&us(), &started.run, approve.clone()).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Completed);
    assert_eq!(question_status().await, UserQuestionStatus::Executed);

    // In a restored run with a new id, the question keeps the id of the original run.
    let restored = scene.runner.restore_as_new(&us(), snapshot, OpenCalls::ByRules).await.unwrap();
    let question_status = async || {
        let state = scene.state(&restored.run).await;
        state.smart.pending_user_questions.unwrap()[0].status
    };
    assert_eq!(scene.runner.drive(&us(), &restored.run).await.unwrap(), RunStatus::Waiting);
    assert_eq!(question_status().await, UserQuestionStatus::Answered);
    scene.runner.send_command(&us(), &restored.run, approve).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &restored.run).await.unwrap(), RunStatus::Completed);
    assert_eq!(question_status().await, UserQuestionStatus::Executed);
}

#[tokio::test]
async fn questions_have_the_configured_metadata_and_their_expiry() {
    let scene = Scene::new(asking(&[("ask_user_question", ASK)]), Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    let ask = r#"{"expiresMs":60000,"metadata":{"team":"billing","level":2,"expiresAt":"never"}}"#;
    agent.human_in_the_loop.ask_user = Some(serde_json::from_str(ask).unwrap());
    let (started, _) = scene.run(agent, "go").await;
    let state = scene.state(&started.run).await;
    let question = state.smart.pending_user_questions.unwrap()[0].json();
    let metadata = question.tree().root().get("metadata").unwrap().json();
    assert_eq!(
        metadata.as_str(),
        r#"{"level":2,"team":"billing","expiresAt":"2027-01-15T08:01:00Z"}"#
    );
}

#[tokio::test]
async fn plan_updates_and_continued_plans_are_reported() {
    const WRITE: &str = r#"{"operation":"write","todoList":[{"id":1,"step":"look"}]}"#;
    const UPDATE: &str = r#"{"operation":"update","expectedVersion":1,"todoList":[{"id":1,"status":"completed","evidence":"a photo"}]}"#;
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("manage_todo_list", WRITE)]),
        1 => ScriptedAnswer::Calls(&[("manage_todo_list", UPDATE)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, Vec::new()).await;
    let plan_events = async |run| {
        let events = scene.events(run).await;
        let plans = events.iter().filter(|event| matches!(event, RunEvent::Plan(_)));
        plans.map(|event| event.json().as_str().to_owned()).collect::<Vec<_>>()
    };
    let (started, _) = scene.run(AgentConfig::smart(MODEL), "plan").await;
    let step = r#"[{"id":1,"step":"look","owner":"agent","exitCriteria":"look","evidence":"a photo","status":"completed"}]"#;
    let event = |source: &str, operation: &str| {
        format!(
            r#"{{"type":"plan","source":"{source}","operation":"{operation}","todoList":{step},"version":2,"adherenceScore":1}}"#
        )
    };
    let events = plan_events(&started.run).await;
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[1], event("manage_todo_list", "update"));
    // The next run on the Thread, and a restored run, continue the plan.
    let start = Scene::start(AgentConfig::smart(MODEL), "go on");
    let start = RunRequest { thread: Some(started.thread.clone()), ..start };
    let next = scene.runner.start(start).await.unwrap();
    assert_eq!(plan_events(&next.run).await, [event("system", "read")]);
    let snapshot = scene.runner.snapshot(&us(), &next.run).await.unwrap();
    let restored = scene.runner.restore(&us(), snapshot).await.unwrap();
    assert_eq!(plan_events(&restored.run).await, [event("system", "read")]);
}

/// Tool that records the `ctx` of its calls.
struct ContextProbe(Arc<Mutex<Vec<String>>>);

impl Tool for ContextProbe {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("probe").idempotent()
    }

    fn run<'a>(&'a self, _: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        let values = context.ctx.iter().map(|(key, value)| format!("{key}={}", value.as_str()));
        self.0.lock().unwrap().push(values.collect::<Vec<_>>().join(" "));
        Box::pin(async { ToolAnswer::text("probed") })
    }
}

#[tokio::test]
async fn tools_read_the_ctx_of_the_run() {
    let models = ScriptedModels::default().with(MODEL, |call| {
        let is_last = call.items.last().is_some_and(|item| matches!(item.body, Body::Result(_)));
        if is_last {
            ScriptedAnswer::Text("done")
        } else {
            ScriptedAnswer::Calls(&[("probe", "{}")])
        }
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    scene.runner = scene.runner.with_tool(ContextProbe(Arc::clone(&seen)));
    let start = |ctx: &str| {
        let mut start = Scene::start(AgentConfig::minimal(MODEL), "go");
        start.casting.ctx = serde_json::from_str(ctx).unwrap();
        start
    };
    let started = scene.runner.start(start(r#"{"customer":4711,"vip":true}"#)).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    // A later run replaces single values.
    let next = RunRequest { thread: Some(started.thread.clone()), ..start(r#"{"vip":false}"#) };
    let next = scene.runner.start(next).await.unwrap();
    scene.runner.drive(&us(), &next.run).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["customer=4711 vip=true", "customer=4711 vip=false"]);
    let state = scene.state(&next.run).await;
    assert_eq!(state.context("customer").unwrap().as_str(), "4711");
    assert!(state.cast.casting.ctx.is_empty(), "the declaration does not repeat the values");
    for ctx in [r#"{"__run":"x"}"#, r#"{"":1}"#] {
        let error = scene.runner.start(start(ctx)).await.unwrap_err().to_string();
        assert!(error.starts_with("ctx.") && error.contains("is not a valid key"), "{error}");
    }
    // Programs receive all values in one environment variable, whose size is limited.
    let large = |key: &str| format!(r#"{{"{key}":"{}"}}"#, "x".repeat(40 << 10));
    let first = scene.runner.start(start(&large("a"))).await.unwrap();
    scene.runner.drive(&us(), &first.run).await.unwrap();
    let second = RunRequest { thread: Some(first.thread.clone()), ..start(&large("b")) };
    let error = scene.runner.start(second).await.unwrap_err().to_string();
    assert!(error.starts_with("ctx") && error.contains("the maximum is 65536"), "{error}");
    let second = RunRequest { thread: Some(first.thread), ..start(&large("a")) };
    scene.runner.start(second).await.unwrap();
}

#[tokio::test]
async fn callback_keys_are_stripped_from_snapshots_and_on_restore() {
    let scene = Scene::new(asking(&[("ask_user_question", ASK)]), Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.human_in_the_loop.ask_user = Some(AskUser::default());
    let mut start = Scene::start(agent, "go");
    start.casting.ctx = serde_json::from_str(r#"{"customer":1}"#).unwrap();
    let started = scene.runner.start(start).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let snapshot = scene.runner.snapshot(&us(), &started.run).await.unwrap();
    let keys = |ctx: &Option<Vec<(throughline_json::Name, Json)>>| {
        let mut keys: Vec<String> = ctx.iter().flatten().map(|(key, _)| key.to_string()).collect();
        keys.sort();
        keys
    };
    let kept = ["__awaitingUserQuestion", "customer"];
    assert_eq!(keys(&snapshot.smart.ctx), kept);
    let document = snapshot.to_json(scene.clock.now(), None).unwrap();
    let forged = document.as_str().replace(
        r#""customer":1"#,
        r#""customer":1,"__onEvent":"f","__onStream":"f","__abortSignal":{},"__traceSession":1,"__onOther":2"#,
    );
    assert_ne!(forged, document.as_str());
    let forged = parse_snapshot(&forged.into()).unwrap();
    let restored = scene.runner.restore(&us(), forged).await.unwrap();
    let ctx = scene.state(&restored.run).await.smart.ctx;
    assert_eq!(
        keys(&ctx),
        ["__awaitingUserQuestion", "__contextFrom", "__run", "customer"],
        "only the restored run's own marks are added"
    );
}

#[tokio::test]
async fn summarised_tool_results_are_archived_and_summaries_are_recorded() {
    let is_summary =
        |call: &Call| call.system.iter().any(|item| text_of(item).contains("You summarise"));
    let models = ScriptedModels::default().with(MODEL, move |call| {
        if is_summary(call) {
            return ScriptedAnswer::Text(
                r#"{"summary":"they looked","stable_facts":[{"key":"door","value":"red"}],"active_goals":["leave"],"open_questions":["where?"]}"#,
            );
        }
        match results(call) {
            0 => ScriptedAnswer::Calls(&[("look", r#"{"at":"door"}"#)]),
            _ => ScriptedAnswer::Text("done"),
        }
    });
    let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let (first, _) = scene.run(AgentConfig::minimal(MODEL), "look").await;
    let before = scene.state(&first.run).await.smart;
    assert_eq!(before.tool_history.as_ref().map(Vec::len), Some(1));
    assert_eq!(before.tool_history_archived, None);
    let start = Scene::start(AgentConfig::minimal(MODEL), "");
    let start = RunRequest { thread: Some(first.thread.clone()), said: Vec::new(), ..start };
    let compaction = scene.runner.start_compaction(start).await.unwrap();
    scene.runner.drive(&us(), &compaction.run).await.unwrap();
    let state = scene.state(&compaction.run).await;
    let documented = &state.smart;
    assert_eq!(documented.tool_history, Some(Vec::new()));
    let archived: Vec<ToolExecution> = documented.tool_history_archived.clone().unwrap();
    let [archived] = &archived[..] else { panic!("{archived:?}") };
    let mut expected = before.tool_history.unwrap().remove(0);
    expected.archive_id.clone_from(&archived.archive_id);
    assert_eq!(*archived, expected, "the record moves unchanged, with its archive id");
    assert!(archived.archive_id.is_some());
    assert_eq!(documented.summaries, Some(vec!["they looked".into()]));
    let records: Vec<SummaryRecord> = documented.summary_records.clone().unwrap();
    let [record] = &records[..] else { panic!("{records:?}") };
    let mut expected = SummaryRecord::parse(&json(
        r#"{"stable_facts":[{"key":"door","value":"red"}],"active_goals":["leave"],"open_questions":["where?"],"rawSummary":"they looked","integrity":{"passed":true,"criticalFactLoss":false,"obsoleteFactRevived":false},"createdAt":"2027-01-15T08:00:00Z"}"#,
    ))
    .unwrap();
    // The record also contains the range of Items that the summary covers.
    expected.extras.clone_from(&record.extras);
    assert_eq!(*record, expected);
    let covers = record.json().tree().root().get("covers").unwrap().json();
    assert!(covers.as_str().ends_with(r#""messages":4}"#), "{}", covers.as_str());
}

#[tokio::test]
async fn answers_deserialize_to_the_callers_type() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Weather {
        degrees: i64,
    }
    let models = ScriptedModels::default()
        .with(MODEL, |_| ScriptedAnswer::Text("```json\n{\"degrees\": 21}\n```"));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    let (started, _) = scene.run(agent, "How warm is it?").await;
    let state = scene.state(&started.run).await;
    assert_eq!(state.output::<Weather>().unwrap(), Weather { degrees: 21 });
    assert!(state.output::<Vec<u8>>().unwrap_err().is_some());
}
