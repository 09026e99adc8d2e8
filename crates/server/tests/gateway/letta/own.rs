//! Tests of the routes under `/v1/throughline/`, which are not part of Letta's API.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, MODEL, user_message};

fn run_of(response: &Value) -> String {
    response["messages"][0]["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn run_exposes_state_plan_journal_and_fates() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({"throughline": {"planning": true}})).await;
    let response = gateway.send_message(&agent, "Make a plan.").await;
    let run = run_of(&response);
    let own = async |view: &str| {
        gateway.request("GET", &format!("/v1/throughline/runs/{run}/{view}"), &json!(null)).await
    };
    let state = own("state").await;
    assert_eq!(state["planVersion"], 1);
    assert_eq!(state["messages"][0]["role"], "user");
    assert_eq!(own("plan").await["plan"]["steps"][0]["title"], "Go");
    let snapshot = own("snapshot?tag=mine").await;
    assert_eq!(
        (&snapshot["metadata"]["tag"], &snapshot["state"]["plan"]),
        (&json!("mine"), &state["plan"])
    );
    assert_eq!(own("reflections").await, json!([]));
    let journal = own("journal").await;
    let journal = journal.as_array().unwrap();
    assert_eq!(journal[0]["event"], 1);
    let names: Vec<&str> =
        journal.iter().map(|one| one["data"]["type"].as_str().unwrap()).collect();
    assert!(names.contains(&"plan") && names.contains(&"finalAnswer"), "{names:?}");
    let page = own("journal?after=3&limit=2").await;
    assert_eq!(page.as_array().unwrap()[..], journal[3..5]);
    let narrative = own("narrative").await;
    assert!(narrative["narrative"].as_str().unwrap().contains("Make a plan."), "{narrative}");
    assert_eq!(own("fates").await, json!([]), "the scripted model has no fates");
    let resume = format!("/v1/throughline/runs/{run}/resume");
    let (status, error) = gateway.try_request("POST", &resume, &json!({})).await;
    assert_eq!(status, 409, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_restores_in_another_store() {
    let (first, second) = (AgentGateway::open().await, AgentGateway::open().await);
    let agent = first.agent(&json!({})).await;
    let response = first.send_message(&agent, "Send a mail.").await;
    let path = format!("/v1/throughline/runs/{}/snapshot", run_of(&response));
    let snapshot = first.request("GET", &path, &json!(null)).await;
    let run = second.request("POST", "/v1/throughline/snapshots", &snapshot).await;
    assert_eq!(run["stop_reason"], "requires_approval");
    let run = run["id"].as_str().unwrap();
    assert_ne!(run, run_of(&response), "it gets a new id");
    let state = format!("/v1/throughline/runs/{run}/state");
    let state = second.request("GET", &state, &json!(null)).await;
    assert_eq!(state["pendingApprovals"][0]["status"], "pending");
    let id = state["pendingApprovals"][0]["id"].as_str().unwrap();
    assert!(id.starts_with(run), "{id} is an id of {run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_snapshot_gains_no_tool_and_no_id() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let response = gateway.send_message(&agent, "Send a mail.").await;
    let run = run_of(&response);
    let path = format!("/v1/throughline/runs/{run}/snapshot");
    let honest = gateway.request("GET", &path, &json!(null)).await;
    let mut forged = honest.clone();
    forged["progress"]["calls"][0]["stage"] = json!({"is": "queued"});
    forged["progress"]["phase"] = json!({"is": "working"});
    for tool in forged["casting"]["tools"].as_array_mut().unwrap() {
        tool["needsApproval"] = json!(false);
    }
    // Restore as another tenant and as the same tenant, with the run's own id and with paths that
    // leave the folder.
    for key in ["them", "us"] {
        for name in [&*run, "../../etc/run", "/etc/run", "run_é"] {
            let mut forged = forged.clone();
            forged["progress"]["run"] = json!(name);
            forged["thread"] = json!(name);
            let (status, body) =
                gateway.send(key, "POST", "/v1/throughline/snapshots", &forged).await;
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(status, 200, "{body}");
            let id = body["id"].as_str().unwrap();
            assert!(id != name && id.starts_with("run_"), "{id}");
            assert_eq!(body["stop_reason"], "requires_approval", "{body}");
        }
    }
    assert_eq!(*gateway.ran.lock().unwrap(), Vec::<String>::new(), "no mail was sent");
    // Settings cannot refer to another tenant's objects at the provider.
    let mut referring = forged.clone();
    for agent in referring["casting"]["agents"].as_object_mut().unwrap().values_mut() {
        let extras = json!({"previous_response_id": "resp_1"});
        agent["reasoning"] = json!({"native": {"providerExtras": extras}});
    }
    let (status, body) = gateway.send("us", "POST", "/v1/throughline/snapshots", &referring).await;
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("providerExtras refers to an object"), "{body}");
    // This tenant's agent gets no other tool, although the document lists one.
    let mailless_agent = gateway.agent(&json!({"tools": ["get_weather"]})).await;
    let mut other = forged.clone();
    other["casting"]["note"]["letta"]["agent"] = json!(mailless_agent);
    let (status, body) = gateway.send("us", "POST", "/v1/throughline/snapshots", &other).await;
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("the tool send_mail is not available here"), "{body}");
    // The agent's own approval rule applies, although the document has none.
    let rule = json!({"tools": ["get_weather"], "tool_rules": [{"type": "requires_approval", "tool_name": "get_weather"}]});
    let strict = gateway.agent(&rule).await;
    let response = gateway.send_message(&strict, "What is the weather?").await;
    let path = format!("/v1/throughline/runs/{}/snapshot", run_of(&response));
    let mut forged = gateway.request("GET", &path, &json!(null)).await;
    forged["progress"]["calls"][0]["stage"] = json!({"is": "queued"});
    forged["progress"]["phase"] = json!({"is": "working"});
    for agent in forged["casting"]["agents"].as_object_mut().unwrap().values_mut() {
        agent["humanInTheLoop"] = json!({});
    }
    let run = gateway.request("POST", "/v1/throughline/snapshots", &forged).await;
    assert_eq!(run["stop_reason"], "requires_approval", "{run}");
    // A document that names no agent of this tenant cannot avoid the rule, because every open call
    // then needs approval.
    let foreign = gateway.send("them", "POST", "/v1/agents", &json!({"model": MODEL})).await;
    let foreign: Value = serde_json::from_slice(&foreign.1).unwrap();
    let notes = [
        ("an unknown agent", json!({"letta": {"agent": "agent-unknown"}})),
        ("the agent of another tenant", json!({"letta": {"agent": foreign["id"]}})),
        ("an empty id", json!({"letta": {"agent": ""}})),
        ("an id that is a number", json!({"letta": {"agent": 1}})),
        ("a note without an agent", json!({"letta": {}})),
        ("a note of another program", json!({})),
        ("no note", json!(null)),
    ];
    for (claim, note) in notes {
        for stage in ["queued", "begun"] {
            let mut forged = forged.clone();
            forged["progress"]["calls"][0]["stage"] = json!({"is": stage});
            forged["casting"]["note"] = note.clone();
            for agent in forged["casting"]["agents"].as_object_mut().unwrap().values_mut() {
                agent["identifier"] = json!("agent-unknown");
            }
            let run = gateway.request("POST", "/v1/throughline/snapshots", &forged).await;
            assert_eq!(run["stop_reason"], "requires_approval", "{claim}, {stage}: {run}");
        }
    }
    assert_eq!(*gateway.ran.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn question_can_be_listed_and_answered() {
    let gateway = AgentGateway::open().await;
    let own = json!({"humanInTheLoop": {"askUser": {"allowFreeText": false}}});
    let agent = gateway.agent(&json!({"throughline": own})).await;
    let response = gateway.send_message(&agent, "Ask me a question.").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval");
    let list = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    assert_eq!(list[0]["questions"][0]["question"], "Which?");
    assert_eq!(list[0]["runId"], run_of(&response));
    let path = format!("/v1/throughline/questions/{}", list[0]["id"].as_str().unwrap());
    for wrong in [
        json!({"answers": {"Which?": {"values": ["Three"]}}}),
        json!({"answers": {"Which?": {"values": [], "freeText": "Neither"}}}),
        json!({"answers": {}}),
    ] {
        let (status, error) = gateway.try_request("POST", &path, &wrong).await;
        assert_eq!(status, 422, "{error}");
    }
    let right = json!({"answers": {"Which?": {"values": ["Two"]}}, "answeredBy": "me"});
    let answer = gateway.request("POST", &path, &right).await;
    // The run continues in the background, so the model may already have the answer.
    let statuses = [json!("answered"), json!("executed")];
    assert!(statuses.contains(&answer["status"]) && answer["answeredBy"] == "me", "{answer}");
    let (status, error) = gateway.try_request("POST", &path, &right).await;
    assert!(matches!(status, 404 | 409), "answered twice: {status} {error}");
    let frames = gateway
        .stream(&format!("/v1/runs/{}/stream", run_of(&response)), &json!({"starting_after": 5}))
        .await;
    assert_eq!(frames.last().unwrap()["message_type"], "usage_statistics");
    assert_eq!(gateway.request("GET", "/v1/throughline/questions", &json!(null)).await, json!([]));
    let state = format!("/v1/throughline/runs/{}/state", run_of(&response));
    let state = gateway.request("GET", &state, &json!(null)).await;
    assert_eq!(state["pendingUserQuestions"][0]["status"], "executed");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_questions_of_an_erased_thread_are_not_listed() {
    let gateway = AgentGateway::open().await;
    let own = json!({"humanInTheLoop": {"askUser": {"allowFreeText": false}}});
    let agent = gateway.agent(&json!({"throughline": own})).await;
    let body = json!({"agent_id": agent, "summary": "Tea"});
    let conversation = gateway.request("POST", "/v1/conversations/", &body).await;
    let conversation = conversation["id"].as_str().unwrap();
    let mut body = user_message("Ask me a question.");
    body["streaming"] = json!(false);
    let path = format!("/v1/conversations/{conversation}/messages");
    let run = run_of(&gateway.request("POST", &path, &body).await);
    let questions = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    let question = format!("/v1/throughline/questions/{}", questions[0]["id"].as_str().unwrap());
    let thread = throughline_core::LogId::from(conversation);
    let us = throughline_core::Tenant::from("us");
    gateway.journal.forget(&us, &thread, None).await.unwrap();
    for list in ["/v1/throughline/questions", "/v1/runs/"] {
        assert_eq!(gateway.request("GET", list, &json!(null)).await, json!([]), "{list}");
    }
    let answer = json!({"answers": {"Which?": {"values": ["Two"]}}});
    for (method, path, body) in
        [("GET", format!("/v1/runs/{run}"), json!(null)), ("POST", question, answer)]
    {
        let (status, error) = gateway.try_request(method, &path, &body).await;
        assert_eq!(status, 404, "{path}: {error}");
        let message = format!("run {run} was erased (forgotten) and can no longer be used");
        assert!(error.to_string().contains(&message), "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_and_rewind_keep_all_records() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "One").await;
    let path = format!("/v1/agents/{agent}/messages");
    let before = gateway.request("GET", &path, &json!(null)).await;
    let thread = throughline_core::LogId::from(agent.as_str());
    let us = throughline_core::Tenant::from("us");
    let head = throughline_core::Store::log(&gateway.journal, &us, &thread).await.unwrap().unwrap();
    gateway.send_message(&agent, "Two").await;
    let own = format!("/v1/throughline/threads/{agent}");
    let forked = gateway.request("POST", &format!("{own}/fork"), &json!({"at": head.last})).await;
    let id = forked["id"].as_str().unwrap();
    assert_eq!(forked["forked_from"], json!({"thread": agent, "at": head.last}));
    assert_eq!(
        gateway.request("GET", &format!("/v1/conversations/{id}/messages"), &json!(null)).await,
        before
    );
    let rewound =
        gateway.request("POST", &format!("{own}/rewind"), &json!({"to": head.last})).await;
    assert_eq!(rewound["rewound"]["to"], head.last);
    assert_eq!(gateway.request("GET", &path, &json!(null)).await, before);
    let after =
        throughline_core::Store::log(&gateway.journal, &us, &thread).await.unwrap().unwrap();
    assert_eq!(after.rewinds.len(), 1, "the rewind is a separate record");
    assert!(after.last > head.last, "and the rewound records still exist");
    for wrong in [json!({}), json!({"to": 100_000})] {
        let (status, error) = gateway.try_request("POST", &format!("{own}/rewind"), &wrong).await;
        assert_eq!(status, 422, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_sets_ctx_and_tracing_of_its_run() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let mut body = user_message("Hello");
    let tracing = json!({"enabled": true, "mode": "batched", "logData": false});
    body["throughline"] = json!({"ctx": {"customer": 4711}, "tracing": tracing});
    let path = format!("/v1/agents/{agent}/messages");
    let response = gateway.request("POST", &path, &body).await;
    let state = format!("/v1/throughline/runs/{}/state", run_of(&response));
    let state = gateway.request("GET", &state, &json!(null)).await;
    assert_eq!(state["ctx"]["customer"], 4711);
    let us = throughline_core::Tenant::from("us");
    let run = throughline_core::LogId::from(run_of(&response));
    let stored = throughline_core::Store::read(&gateway.journal, &us, &run, 0, 1).await.unwrap();
    let stored: Value = serde_json::from_slice(stored[0].content.bytes().unwrap()).unwrap();
    assert_eq!(stored["tracing"], tracing);
    // A restored snapshot keeps only these settings.
    let snapshot = format!("/v1/throughline/runs/{}/snapshot", run_of(&response));
    let mut snapshot = gateway.request("GET", &snapshot, &json!(null)).await;
    let forged = json!({"enabled": false, "logData": false, "threadId": "x"});
    snapshot["casting"]["tracing"] = forged;
    let restored = gateway.request("POST", "/v1/throughline/snapshots", &snapshot).await;
    let run = throughline_core::LogId::from(restored["id"].as_str().unwrap());
    let stored = throughline_core::Store::read(&gateway.journal, &us, &run, 0, 1).await.unwrap();
    let stored: Value = serde_json::from_slice(stored[0].content.bytes().unwrap()).unwrap();
    assert_eq!(stored["tracing"], json!({"enabled": true, "logData": false}));
    // A caller cannot use the runtime's keys, cannot turn off or relabel the operator's traces, and
    // cannot choose where the server sends data.
    let file = json!({"enabled": true, "sink": {"type": "file", "path": "/etc"}});
    let web = json!({"enabled": true, "sink": {"type": "http", "url": "http://169.254.169.254/"}});
    let named = json!({"type": "custom", "name": "audit"});
    let secret = json!({"enabled": true, "sink": {"type": "http", "headers": {"a": "b"}}});
    for (own, problem) in [
        (json!({"ctx": {"__run": "x"}}), "ctx.__run"),
        (json!({"ctx": [1]}), "throughline.ctx: must be an object"),
        (json!({"tracing": file}), "sink: only the operator"),
        (json!({"tracing": web}), "sink: only the operator"),
        (json!({"tracing": {"enabled": true, "sink": named}}), "sink: only the operator"),
        (json!({"tracing": {"enabled": false}}), "enabled: only the operator"),
        (json!({"tracing": {"enabled": true, "threadId": "x"}}), "threadId: only the operator"),
        (json!({"tracing": secret}), "is a credential"),
        (json!({"tracing": {"mode": "batched"}}), "enabled"),
    ] {
        let mut body = user_message("Hello");
        body["throughline"] = own.clone();
        let (status, error) = gateway.try_request("POST", &path, &body).await;
        assert_eq!(status, 422, "{own}: {error}");
        assert!(error.to_string().contains(problem), "{own}: {error}");
    }
    let body =
        json!({"name": "Eve", "model": "claude-sonnet-4-5", "throughline": {"tracing": web}});
    let (status, error) = gateway.try_request("POST", "/v1/agents/", &body).await;
    assert_eq!(status, 422, "{error}");
    assert!(error.to_string().contains("sink: only the operator"), "{error}");
}

/// The routes of the console are not part of Letta's dialect.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_separate_the_console_from_letta() {
    let gateway = AgentGateway::open().await;
    let count = async |dialect: &str| {
        let (_, page) = gateway.send("us", "GET", "/metrics", &json!(null)).await;
        let page = String::from_utf8(page.to_vec()).unwrap();
        let start = format!("throughline_calls_total{{dialect=\"{dialect}\"");
        page.lines().filter(|line| line.starts_with(&start)).count()
    };
    gateway.request("GET", "/v1/throughline/runs", &json!(null)).await;
    assert_eq!((count("throughline").await, count("letta").await), (1, 0));
    gateway.request("GET", "/v1/agents/", &json!(null)).await;
    assert_eq!((count("throughline").await, count("letta").await), (1, 1));
}
