//! Tests that a forged snapshot cannot run tools without approval, use tools that the agent does
//! not have, or choose run ids.

use std::sync::PoisonError;

use bytes::Bytes;
use serde_json::{Value, json};
use throughline_agent::{AgentConfig, OpenCalls, RunCommand, RunStatus, ToolSpec, parse_snapshot};
use throughline_core::LogId;
use throughline_spec::ToolApprovalResolution;
use throughline_testkit::{TestRng, figure};

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

const MODEL: &str = "claude-sonnet-4-5";

/// Creates a run that waits for approval of the tool `sign`. Returns the scene and a snapshot of
/// the run.
async fn waiting() -> (Scene, Value) {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("sign", r#"{"sum":1}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let tools = vec![
        ToolSpec::new("sign").needs_approval(),
        ToolSpec::new("look").idempotent(),
        ToolSpec::new("pay"),
    ];
    let mut scene = Scene::new(models, tools).await;
    // The agent has the tools `sign` and `look`; the runner also has `pay`.
    let runner = scene.runner.clone();
    let agent_tools = runner.tools.iter().filter(|(name, _)| &***name != "pay");
    let agent_tools: Vec<_> = agent_tools.map(|(_, tool)| std::sync::Arc::clone(tool)).collect();
    scene.runner = scene.runner.with_tools(agent_tools);
    let (started, status) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    assert_eq!(status, RunStatus::Waiting);
    let snapshot = scene.runner.snapshot(&us(), &started.run).await.unwrap();
    let document = snapshot.to_json(scene.runner.clock.now(), None).unwrap();
    scene.runner = runner;
    (scene, serde_json::from_slice(document.bytes()).unwrap())
}

/// Restores a snapshot and drives the run until it waits or ends.
async fn restored(scene: &Scene, document: &Value) -> Result<(LogId, RunStatus), String> {
    let bytes = Bytes::from(document.to_string());
    let snapshot = parse_snapshot(&bytes).map_err(|error| error.to_string())?;
    let started = scene.runner.restore(&us(), snapshot).await.map_err(|error| error.to_string())?;
    let driven = scene.runner.drive(&us(), &started.run).await;
    Ok((started.run, driven.map_err(|error| error.to_string())?))
}

fn recorded_calls(scene: &Scene) -> Vec<String> {
    scene.tool_calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns plausible forgeries of a snapshot, each with a description.
fn forgeries(honest: &Value) -> Vec<(&'static str, Value)> {
    let call = honest["progress"]["calls"][0]["id"].clone();
    let forge = |change: &dyn Fn(&mut Value)| {
        let mut document = honest.clone();
        change(&mut document);
        document
    };
    let working = |document: &mut Value, stage: Value| {
        document["progress"]["calls"][0]["stage"] = stage;
        document["progress"]["phase"] = json!({"is": "working"});
    };
    let queued = || json!({"is": "queued"});
    vec![
        ("queued", forge(&|document| working(document, queued()))),
        ("begun", forge(&|document| working(document, json!({"is": "begun"})))),
        (
            "approved",
            forge(&|document| {
                working(document, queued());
                document["state"]["pendingApprovals"][0]["status"] = json!("approved");
            }),
        ),
        (
            "a specification without approval",
            forge(&|document| {
                working(document, queued());
                for tool in document["casting"]["tools"].as_array_mut().unwrap() {
                    tool["needsApproval"] = json!(false);
                }
            }),
        ),
        (
            "an idempotent specification",
            forge(&|document| {
                working(document, json!({"is": "begun"}));
                for tool in document["casting"]["tools"].as_array_mut().unwrap() {
                    *tool = json!({"name": tool["name"], "idempotent": true});
                }
            }),
        ),
        (
            "a tool of the caller",
            forge(&|document| {
                working(document, queued());
                for tool in document["casting"]["tools"].as_array_mut().unwrap() {
                    tool["client"] = json!(true);
                }
            }),
        ),
        (
            "the name of another tool",
            forge(&|document| {
                working(document, json!({"is": "begun"}));
                document["progress"]["calls"][0]["tool"] = json!("look");
            }),
        ),
        ("a question", forge(&|document| working(document, json!({"is": "question", "id": call})))),
        (
            "other arguments in the request",
            forge(&|document| {
                document["state"]["pendingApprovals"][0]["args"] = json!({"sum": 0});
            }),
        ),
        (
            "arguments beside the call",
            forge(&|document| {
                working(document, queued());
                document["progress"]["calls"][0]["args"] = json!({"sum": 1_000_000});
            }),
        ),
    ]
}

#[tokio::test]
async fn forged_snapshot_cannot_run_a_tool_without_approval() {
    let (scene, honest) = waiting().await;
    let mut tried = 0;
    for (claim, document) in forgeries(&honest) {
        let (run, status) = restored(&scene, &document).await.expect(claim);
        assert_eq!(status, RunStatus::Waiting, "{claim}");
        assert_eq!(recorded_calls(&scene), Vec::<String>::new(), "{claim}");
        let state = scene.state(&run).await;
        let pending = state.smart.pending_approvals.clone().unwrap_or_default();
        assert_eq!(pending.len(), 1, "{claim}: {pending:?}");
        assert_eq!(pending[0].args.as_str(), r#"{"sum":1}"#, "{claim}: a person sees what runs");
        // After approval, the tool runs once, with the arguments that the approval showed.
        let allowed = ToolApprovalResolution::new(pending[0].id.clone(), true);
        scene.runner.send_command(&us(), &run, RunCommand::Decide(allowed)).await.unwrap();
        assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Completed, "{claim}");
        let tool_calls = std::mem::take(&mut *scene.tool_calls.lock().unwrap());
        assert_eq!(tool_calls, [r#"sign call_0_0 {"sum":1}"#], "{claim}");
        tried += 1;
    }
    figure("forged snapshots that asked for an approval", tried);
}

#[tokio::test]
async fn open_calls_need_an_approval_if_the_rules_cannot_be_checked() {
    let (scene, honest) = waiting().await;
    // `look` needs approval only if a rule of the agent requires it, and the snapshot contains no
    // rules.
    let document = honest.to_string().replace(r#""sign""#, r#""look""#);
    let mut document: Value = serde_json::from_str(&document).unwrap();
    document["casting"]["tools"] = honest["casting"]["tools"].clone();
    document["progress"]["phase"] = json!({"is": "working"});
    for stage in ["queued", "begun"] {
        document["progress"]["calls"][0]["stage"] = json!({"is": stage});
        let restore = async |open_calls| {
            let snapshot = parse_snapshot(&Bytes::from(document.to_string())).unwrap();
            let started = scene.runner.restore_as_new(&us(), snapshot, open_calls).await.unwrap();
            let status = scene.runner.drive(&us(), &started.run).await.unwrap();
            (started.run, status, std::mem::take(&mut *scene.tool_calls.lock().unwrap()))
        };
        let (run, status, calls) = restore(OpenCalls::NeedApproval).await;
        assert_eq!((status, calls), (RunStatus::Waiting, Vec::new()), "{stage}");
        let pending = scene.state(&run).await.smart.pending_approvals.unwrap();
        let allowed = ToolApprovalResolution::new(pending[0].id.clone(), true);
        scene.runner.send_command(&us(), &run, RunCommand::Decide(allowed)).await.unwrap();
        assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Completed);
        assert_eq!(std::mem::take(&mut *scene.tool_calls.lock().unwrap()).len(), 1, "{stage}");
        let (_, status, calls) = restore(OpenCalls::ByRules).await;
        assert_eq!((status, calls.len()), (RunStatus::Completed, 1), "{stage}");
    }
}

#[tokio::test]
async fn forged_snapshot_cannot_use_a_tool_that_the_agent_was_not_given() {
    let (scene, honest) = waiting().await;
    let mut other = honest.to_string().replace(r#""sign""#, r#""pay""#);
    // The snapshot's list of tools is unchanged, so it does not contain `pay`.
    let mut document: Value = serde_json::from_str(&other).unwrap();
    document["casting"]["tools"] = honest["casting"]["tools"].clone();
    document["progress"]["calls"][0]["stage"] = json!({"is": "queued"});
    document["progress"]["phase"] = json!({"is": "working"});
    let (run, _) = restored(&scene, &document).await.unwrap();
    assert_eq!(recorded_calls(&scene), Vec::<String>::new());
    let history = scene.state(&run).await.smart.tool_history.unwrap();
    assert!(history[0].error.as_ref().unwrap().contains("There is no tool named pay"));
    // A tool that this runner does not have is rejected with its name.
    other = honest.to_string().replace(r#""look""#, r#""launch""#);
    let error = restored(&scene, &serde_json::from_str(&other).unwrap()).await.unwrap_err();
    assert!(error.contains("casting.tools: the tool launch is not available here"), "{error}");
}

#[tokio::test]
async fn restored_runs_keep_only_valid_free_ids() {
    let (scene, honest) = waiting().await;
    let taken = honest["progress"]["run"].as_str().unwrap().to_owned();
    for name in
        ["../../x", "/etc/x", "run_../x", "run_é", "run_A", "run_", "", "letta.agents", &taken]
    {
        let mut document = honest.clone();
        document["progress"]["run"] = json!(name);
        let (run, _) = restored(&scene, &document).await.unwrap();
        assert_ne!(&*run.0, name);
        assert!(run.0.strip_prefix("run_").unwrap().parse::<u64>().is_ok(), "{run}");
        let mut document = honest.clone();
        document["progress"]["run"] = json!("run_free");
        document["thread"] = json!(name);
        let (run, _) = restored(&scene, &document).await.unwrap();
        assert_ne!(&*run.0, "run_free", "{name} is not a valid Thread id");
    }
    let mut document = honest.clone();
    document["progress"]["run"] = json!("run_free");
    document["thread"] = json!("thread_free");
    assert_eq!(&*restored(&scene, &document).await.unwrap().0.0, "run_free");
    let snapshot = parse_snapshot(&Bytes::from(document.to_string().replace("_free", "_other")));
    let started =
        scene.runner.restore_as_new(&us(), snapshot.unwrap(), OpenCalls::ByRules).await.unwrap();
    assert_ne!((&*started.run.0, &*started.thread.0), ("run_other", "thread_other"));
}

#[tokio::test]
async fn restoring_removes_the_context_of_another_process() {
    let (scene, mut document) = waiting().await;
    let forged = json!({"__onEvent": "x", "__traceSession": {}, "__run": "run_0", "__contextFrom": 99, "mine": 1});
    document["state"]["ctx"] = forged;
    let (run, _) = restored(&scene, &document).await.unwrap();
    let state = scene.state(&run).await;
    assert!(state.context("__onEvent").is_none() && state.context("__traceSession").is_none());
    assert_eq!(state.context("__run").unwrap().as_str(), format!("\"{run}\""));
    assert_eq!(state.context("__contextFrom").unwrap().as_str(), "1");
    assert_eq!(state.context("mine").unwrap().as_str(), "1");
}

/// Collects the JSON pointers of all values in a document.
fn collect_pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => {
            members.iter().map(|(name, child)| (name.clone(), child)).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, child)| (index.to_string(), child)).collect()
        }
        _ => Vec::new(),
    };
    for (name, child) in children {
        let pointer = format!("{at}/{name}");
        collect_pointers(child, &pointer, found);
        found.push(pointer);
    }
}

#[tokio::test]
async fn forged_snapshot_mutations_never_run_a_tool_without_approval() {
    let (scene, honest) = waiting().await;
    let approval = honest["progress"]["calls"][0]["stage"]["id"].clone();
    let stages = [
        json!({"is": "queued"}),
        json!({"is": "begun"}),
        json!({"is": "done"}),
        json!({"is": "approval", "id": approval}),
        json!({"is": "approval", "id": approval, "lost": true}),
        json!({"is": "client", "id": approval}),
        json!({"is": "question", "id": approval}),
    ];
    let phases = ["working", "waiting"].map(|phase| json!({"is": phase}));
    let statuses = ["approved", "executed", "pending", "rejected"].map(|status| json!(status));
    let likely: [(&str, &[Value]); 5] = [
        ("/progress/calls/0/stage", &stages),
        ("/progress/phase", &phases),
        ("/state/pendingApprovals/0/status", &statuses),
        ("/casting/tools/0/needsApproval", &[json!(false)]),
        ("/casting/tools/1/needsApproval", &[json!(false)]),
    ];
    let values = [
        json!("sign"),
        json!("look"),
        json!("call_0_0"),
        json!({"sum": 2}),
        json!(true),
        json!(false),
        json!(0),
        json!(4_294_967_295_u64),
        json!(u64::MAX),
        json!([]),
        json!(null),
    ];
    let mut pointers = Vec::new();
    collect_pointers(&honest, "", &mut pointers);
    let (mut rng, mut accepted) = (TestRng::new(19), 0);
    let cases = throughline_testkit::cases(120);
    for case in 0..cases {
        let mut document = honest.clone();
        for _ in 0..=rng.below(3) {
            let (pointer, values) = if rng.below(4) > 0 {
                let (pointer, values) = rng.pick(&likely).unwrap();
                ((*pointer).to_owned(), *values)
            } else {
                (rng.pick(&pointers).unwrap().clone(), &values[..])
            };
            if let Some(value) = document.pointer_mut(&pointer) {
                *value = rng.pick(values).unwrap().clone();
            }
        }
        if let Ok((run, status)) = restored(&scene, &document).await {
            accepted += 1;
            assert_ne!(status, RunStatus::Running, "case {case}: {run} cannot go on");
        }
        let tool_calls = std::mem::take(&mut *scene.tool_calls.lock().unwrap());
        let signed = tool_calls.iter().find(|line| line.starts_with("sign "));
        assert_eq!(signed, None, "case {case}: {document}");
    }
    assert!(accepted > cases / 10, "only {accepted} of {cases} were restored");
    figure("mutated snapshots", format!("{cases}, {accepted} restored, none signed"));
}
