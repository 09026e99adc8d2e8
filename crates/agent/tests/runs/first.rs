//! Tests for the agent loop: tools, plans, approvals, questions, gates, limits, summaries and
//! handoffs.

use throughline_agent::{
    AgentConfig, AskUser, OutputContract, RunCommand, RunError, RunStatus, ToolSpec,
};
use throughline_core::ModelErrorKind;
use throughline_json::{Json, Name};
use throughline_spec::{
    PendingToolApproval, RunEvent, ToolApprovalResolution, ToolExecutionStatus, UserQuestionAnswer,
    UserQuestionAnswerSet, UserQuestionResolution,
};

use crate::harness::*;

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn add() -> ToolSpec {
    ToolSpec::new("add").schema(json(
        r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}"#,
    ))
}

#[tokio::test]
async fn agent_calls_tools_and_answers() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("add", r#"{"a":1}"#), ("add", r#"{"a":2}"#)]),
        _ => ScriptedAnswer::Text("three"),
    });
    let scene = Scene::new(models, vec![add()]).await;
    let (started, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "1 + 2?").await;
    assert_eq!(status, RunStatus::Completed);
    let mut tool_calls = scene.tool_calls.lock().unwrap().clone();
    tool_calls.sort();
    assert_eq!(tool_calls, [r#"add call_0_0 {"a":1}"#, r#"add call_0_1 {"a":2}"#]);
    let requests = scene.models.requests("claude-sonnet-4-5");
    assert_eq!(tool_result_texts(&requests[1]), [r#"did {"a":1}"#, r#"did {"a":2}"#]);
    let state = scene.state(&started.run).await;
    assert_eq!(state.smart.tool_history.as_ref().unwrap().len(), 2);
    let event_names = names(&scene.events(&started.run).await);
    let expected = [
        "run",
        "message",
        "turn",
        "usage",
        "turn",
        "tool_call",
        "turn",
        "stream",
        "usage",
        "message",
        "turn",
        "finalAnswer",
        "run",
    ];
    assert_eq!(event_names, expected);
}

#[tokio::test]
async fn invalid_arguments_never_reach_a_tool() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("add", r#"{"a":"x"}"#), ("subtract", "{}")]),
        _ => ScriptedAnswer::Text("sorry"),
    });
    let scene = Scene::new(models, vec![add()]).await;
    let (_, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "go").await;
    assert_eq!(status, RunStatus::Completed);
    assert!(scene.tool_calls.lock().unwrap().is_empty());
    let texts = tool_result_texts(&scene.models.requests("claude-sonnet-4-5")[1]);
    assert!(texts[0].contains("The arguments of add do not match its schema: /a:"), "{texts:?}");
    assert!(texts[1].contains("There is no tool named subtract: add."), "{texts:?}");
}

fn approve(id: &str, approved: bool) -> RunCommand {
    RunCommand::Decide(ToolApprovalResolution::new(id.into(), approved))
}

fn approvals(state: &throughline_agent::State) -> Vec<PendingToolApproval> {
    state.smart.pending_approvals.clone().unwrap_or_default()
}

#[tokio::test]
async fn approval_is_decided_once_and_can_edit_arguments() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("add", r#"{"a":1}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![add().needs_approval()]).await;
    let (started, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "go").await;
    assert_eq!(status, RunStatus::Waiting);
    let state = scene.state(&started.run).await;
    let id = approvals(&state)[0].id.clone();
    assert!(state.context("__awaitingApproval").is_some());
    let (runner, run) = (&scene.runner, &started.run);
    let error_text = |error: Result<(), RunError>| error.unwrap_err().to_string();
    let not_found = runner.send_command(&us(), run, approve("unknown", true)).await;
    assert_eq!(error_text(not_found), "Pending approval not found for id: unknown");
    let mut invalid = ToolApprovalResolution::new(id.clone(), true);
    invalid.approved_args = Some(json(r#"{"a":"x"}"#));
    let invalid = runner.send_command(&us(), run, RunCommand::Decide(invalid)).await;
    assert!(error_text(invalid).starts_with("approvedArgs do not match the schema of add: /a:"));
    let mut edited = ToolApprovalResolution::new(id.clone(), true);
    edited.approved_args = Some(json(r#"{"a":7}"#));
    edited.decided_by = Some("ann".into());
    runner.send_command(&us(), run, RunCommand::Decide(edited)).await.unwrap();
    let again = runner.send_command(&us(), run, approve(&id, false)).await;
    assert_eq!(
        error_text(again),
        format!("Tool approval {id} was already decided (status: approved).")
    );
    assert_eq!(runner.drive(&us(), run).await.unwrap(), RunStatus::Completed);
    assert_eq!(*scene.tool_calls.lock().unwrap(), [r#"add call_0_0 {"a":7}"#]);
    let after_end = runner.send_command(&us(), run, approve(&id, true)).await;
    assert!(error_text(after_end).contains("has already completed"));
}

#[tokio::test]
async fn rejected_call_does_not_run_and_the_model_is_notified() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("add", r#"{"a":1}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![add().needs_approval()]).await;
    let (started, _) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "go").await;
    let id = approvals(&scene.state(&started.run).await)[0].tool_call_id.clone();
    scene.runner.send_command(&us(), &started.run, approve(&id, false)).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    assert!(scene.tool_calls.lock().unwrap().is_empty());
    let texts = tool_result_texts(&scene.models.requests("claude-sonnet-4-5")[1]);
    assert_eq!(texts, ["Tool call rejected: Tool call rejected by reviewer."]);
    let history = scene.state(&started.run).await.smart.tool_history.unwrap();
    assert_eq!(history[0].status, Some(ToolExecutionStatus::Rejected));
}

#[tokio::test]
async fn question_pauses_the_run_until_a_valid_answer() {
    const ASK: &str = r#"{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue","value":"b"}]}]}"#;
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("ask_user_question", ASK)]),
        _ => ScriptedAnswer::Text("painted"),
    });
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.human_in_the_loop.ask_user =
        Some(AskUser { allow_free_text: false, ..AskUser::default() });
    let (started, status) = scene.run(agent, "paint it").await;
    assert_eq!(status, RunStatus::Waiting);
    let state = scene.state(&started.run).await;
    assert!(state.context("__awaitingUserQuestion").is_some());
    let question = state.smart.pending_user_questions.unwrap()[0].clone();
    assert_eq!(question.allow_free_text, Some(false));
    let answer = |values: &[&str], free: Option<&str>| {
        let values = values.iter().map(|value| Name::from(*value)).collect();
        let mut answer = UserQuestionAnswer::new(values);
        answer.free_text = free.map(Name::from);
        let mut resolution = UserQuestionResolution::new(question.id.clone());
        resolution.answers = Some(UserQuestionAnswerSet(vec![("Which?".into(), answer)]));
        RunCommand::Answer(resolution)
    };
    let (runner, run) = (&scene.runner, &started.run);
    for (command, problem) in [
        (answer(&[], None), "Missing answer for required question: \"Which?\""),
        (answer(&["Red", "b"], None), "only one option can be chosen for \"Which?\""),
        (
            answer(&["green"], None),
            "\"green\" is not an option of \"Which?\"; its options are Red, b",
        ),
        (answer(&["b"], Some("but dark")), "free text is not allowed for \"Which?\""),
    ] {
        assert_eq!(
            runner.send_command(&us(), run, command).await.unwrap_err().to_string(),
            problem
        );
    }
    runner.send_command(&us(), run, answer(&["b"], None)).await.unwrap();
    let again =
        runner.send_command(&us(), run, answer(&["Red"], None)).await.unwrap_err().to_string();
    assert!(again.contains("already resolved (status: answered)"), "{again}");
    assert_eq!(runner.drive(&us(), run).await.unwrap(), RunStatus::Completed);
    let texts = tool_result_texts(&scene.models.requests("claude-sonnet-4-5")[1]);
    assert_eq!(texts, [r#"{"status":"answered","answers":{"Which?":{"values":["b"]}}}"#]);
}

#[tokio::test]
async fn invalid_answer_is_retried_and_thread_keeps_only_the_valid_one() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| {
        let feedback = call.items.iter().filter(|item| item.ephemeral).count();
        if feedback == 0 {
            ScriptedAnswer::Text("not json")
        } else {
            ScriptedAnswer::Text(r#"{"n":3}"#)
        }
    });
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    let schema = json(r#"{"type":"object","required":["n"]}"#);
    agent.output = Some(OutputContract { schema, name: None, native: false });
    let (started, status) = scene.run(agent, "count").await;
    assert_eq!(status, RunStatus::Completed);
    let state = scene.state(&started.run).await;
    let messages: Vec<_> =
        state.smart_state().messages.iter().map(|m| m.content.to_string()).collect();
    assert_eq!(messages, ["count", r#"{"n":3}"#]);
    let events = scene.events(&started.run).await;
    let ephemeral = events.iter().filter(
        |event| matches!(event, RunEvent::Message(message) if message.ephemeral == Some(true)),
    );
    assert_eq!(ephemeral.count(), 2, "the invalid answer and the feedback");
    let gates: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Gate(gate) => Some(gate.phase.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(gates, ["retried", "recovered"]);
}

#[tokio::test]
async fn failing_model_is_retried_then_replaced() {
    let models = ScriptedModels::default()
        .with("claude-sonnet-4-5", |_| ScriptedAnswer::Fails(ModelErrorKind::Transient))
        .with("claude-opus-4-5", |_| ScriptedAnswer::Text("here"));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.gate.other_models = vec!["claude-opus-4-5".into()];
    agent.gate.rules.push(throughline_agent::GateRule {
        when: vec!["5xx-transient".into()],
        attempts_below: None,
        same_error_times: None,
        then: throughline_agent::Decision::RetryOther,
        label: Some("other".into()),
        feedback: None,
    });
    let (_, status) = scene.run(agent, "hello").await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(scene.models.requests("claude-sonnet-4-5").len(), 3);
    assert_eq!(scene.models.requests("claude-opus-4-5").len(), 1);
}

#[tokio::test]
async fn truncated_answer_is_discarded_and_time_limit_ends_the_run() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |_| ScriptedAnswer::Cut);
    let scene = Scene::new(models, Vec::new()).await;
    let (started, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "hello").await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(scene.state(&started.run).await.window.items.len(), 1, "only the user message");
    // Listeners already received part of the answer, so the call is not repeated.
    assert_eq!(scene.models.requests("claude-sonnet-4-5").len(), 1);
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.limits.max_wall_clock_ms = Some(5000);
    let started = scene.runner.start(Scene::start(agent, "hello")).await.unwrap();
    scene.clock.0.store(60, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Failed);
}

#[tokio::test]
async fn tool_limit_allows_one_final_answer() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| {
        let is_last = matches!(call.settings.choice, Some(throughline_core::ToolChoice::None));
        if is_last {
            ScriptedAnswer::Text("as far as I got")
        } else {
            ScriptedAnswer::Calls(&[("add", r#"{"a":1}"#)])
        }
    });
    let scene = Scene::new(models, vec![add()]).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.limits.max_tool_calls = Some(3);
    let (started, status) = scene.run(agent, "go on").await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(scene.tool_calls.lock().unwrap().len(), 3);
    let state = scene.state(&started.run).await;
    assert_eq!(state.progress.breach.as_deref(), Some("maxToolCalls"));
    let limits: Vec<_> =
        scene.events(&started.run).await.into_iter().filter(|e| e.name() == "limit").collect();
    assert_eq!(limits.len(), 1);
}

#[tokio::test]
async fn plan_is_stored_with_versions() {
    const WRITE: &str = r#"{"operation":"write","todoList":[{"id":1,"step":"look","status":"in-progress"},{"id":2,"step":"leap"}]}"#;
    const UPDATE: &str =
        r#"{"operation":"update","expectedVersion":1,"todoList":[{"id":1,"status":"completed"}]}"#;
    const STALE: &str =
        r#"{"operation":"update","expectedVersion":1,"todoList":[{"id":2,"status":"completed"}]}"#;
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("manage_todo_list", WRITE)]),
        1 => ScriptedAnswer::Calls(&[("manage_todo_list", UPDATE)]),
        2 => ScriptedAnswer::Calls(&[("manage_todo_list", STALE)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, Vec::new()).await;
    let (started, _) = scene.run(AgentConfig::smart("claude-sonnet-4-5"), "plan").await;
    let state = scene.state(&started.run).await;
    let plan = state.smart.current_plan().unwrap();
    assert_eq!((plan.version, state.smart.plan_version), (2, Some(2)));
    assert_eq!(plan.adherence_score.as_ref().unwrap().as_str(), "0.5");
    assert!(plan.last_updated.is_some());
    let texts = tool_result_texts(&scene.models.requests("claude-sonnet-4-5")[3]);
    assert!(texts[2].contains("Plan version mismatch"), "{texts:?}");
}

#[tokio::test]
async fn idempotent_start_creates_one_run_and_thread_has_one_active_run() {
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("add", r#"{"a":1}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![add().needs_approval()]).await;
    let mut start = Scene::start(AgentConfig::minimal("claude-sonnet-4-5"), "go");
    start.once = vec!["otid-1".into()];
    let first = scene.runner.start(start.clone()).await.unwrap();
    let second = scene.runner.start(start.clone()).await.unwrap();
    assert_eq!((&second.run, &second.thread, second.repeated), (&first.run, &first.thread, true));
    scene.runner.drive(&us(), &first.run).await.unwrap();
    let other = throughline_agent::RunRequest {
        once: Vec::new(),
        thread: Some(first.thread.clone()),
        ..start
    };
    let busy = scene.runner.start(other.clone()).await.unwrap_err().to_string();
    assert!(busy.contains(&*first.run.0) && busy.contains("waiting"), "{busy}");
    scene.runner.send_command(&us(), &first.run, RunCommand::Cancel(None)).await.unwrap();
    let next = scene.runner.start(other).await.unwrap();
    assert_eq!(next.thread, first.thread);
}
