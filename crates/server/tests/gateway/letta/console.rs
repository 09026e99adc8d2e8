//! Tests of the console's routes: lists, event streams, the inbox, thought maps, the Journal, and
//! the doctor.

use serde_json::{Value, json};
use throughline_core::{Append, Batch, LogId, LogKind, LogOpening, NewRecord, Store as _, Tenant};

use crate::harness::begin;
use crate::letta::scene::AgentGateway;

/// Returns the events of a run after this event number.
async fn events(gateway: &AgentGateway, run: &str, after: u64) -> Vec<Value> {
    let (events, more) = event_page(gateway, run, &format!("after={after}")).await;
    assert_eq!(more, None);
    events
}

/// Returns one page of a run's events, and the event number after which the next page starts. The
/// number is `None` on the last page.
async fn event_page(gateway: &AgentGateway, run: &str, query: &str) -> (Vec<Value>, Option<u64>) {
    let path = format!("/v1/throughline/runs/{run}/events/stream?{query}");
    let (status, text) = gateway.send("us", "GET", &path, &json!(null)).await;
    assert_eq!(status, 200);
    let text = String::from_utf8(text.to_vec()).unwrap();
    let (text, end) = text.rsplit_once("event: ").unwrap();
    let more = end.strip_prefix("more\ndata: ").map(|more| {
        let more: Value = serde_json::from_str(more).unwrap();
        more["n"].as_u64().unwrap()
    });
    assert!(more.is_some() || end == "end\ndata: {}\n\n", "{end}");
    let frames = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    (frames.map(|frame| serde_json::from_str(frame).unwrap()).collect(), more)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_summarised_and_searchable() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "What is the weather like?").await;
    gateway
        .send_message(&agent, "My key is sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2.")
        .await;
    let list = gateway.request("GET", "/v1/throughline/runs", &json!(null)).await;
    assert_eq!(list["runs"].as_array().unwrap().len(), 2);
    assert_eq!(list["runs"][0]["title"], "My key is [REDACTED].");
    let found = gateway.request("GET", "/v1/throughline/runs?search=WEATHER", &json!(null)).await;
    assert_eq!(found["runs"].as_array().unwrap().len(), 1);
    let run = &found["runs"][0];
    assert_eq!(
        (&run["status"], &run["turns"], &run["tools"], &run["thoughts"]["received"]),
        (&json!("completed"), &json!(2), &json!(1), &json!(4))
    );
    let none = gateway.request("GET", "/v1/throughline/runs?status=failed", &json!(null)).await;
    assert_eq!(none["runs"], json!([]));
    let page = gateway.request("GET", "/v1/throughline/runs?limit=1", &json!(null)).await;
    let next = page["next"].as_str().unwrap();
    let rest =
        gateway.request("GET", &format!("/v1/throughline/runs?after={next}"), &json!(null)).await;
    assert_eq!(rest["runs"][0]["id"], run["id"]);
    let id = run["id"].as_str().unwrap();
    let run_view =
        gateway.request("GET", &format!("/v1/throughline/runs/{id}"), &json!(null)).await;
    assert_eq!(
        (&run_view["limits"][0]["used"], &run_view["missing_tools"]),
        (&json!(1), &json!([]))
    );
    let threads = gateway.request("GET", "/v1/throughline/threads", &json!(null)).await;
    let thread = threads["threads"][0]["id"].as_str().unwrap();
    assert_eq!((thread, &threads["threads"][0]["kind"]), (&*agent, &json!("agent")));
    let thread_view =
        gateway.request("GET", &format!("/v1/throughline/threads/{thread}"), &json!(null)).await;
    assert_eq!(thread_view["runs"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_a_thread_are_listed_page_by_page() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "What is the weather like?").await;
    let path = format!("/v1/throughline/threads/{agent}/items");
    let page = gateway.request("GET", &path, &json!(null)).await;
    let items = page["items"].as_array().unwrap();
    let kinds: Vec<&str> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    let first = ["text", "thought", "thought", "tool_call", "tool_result"];
    assert!(kinds.starts_with(&first), "{page:#}");
    assert_eq!(
        (&items[0]["role"], &items[0]["text"]),
        (&json!("user"), &json!("What is the weather like?"))
    );
    assert_eq!((&items[4]["role"], &items[4]["outcome"]), (&json!("tool"), &json!("ok")));
    assert!(items[1]["sealed_bytes"].as_u64() > Some(0), "{page:#}");
    let (mut collected, mut before) = (Vec::new(), None);
    loop {
        let query = before.map_or_else(String::new, |before: u64| format!("&before={before}"));
        let page = gateway.request("GET", &format!("{path}?limit=2{query}"), &json!(null)).await;
        let mut items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2, "{page:#}");
        items.append(&mut collected);
        (collected, before) = (items, page["before"].as_u64());
        if before.is_none() {
            break;
        }
    }
    assert_eq!(&collected, items);
    // Another tenant has no such Thread, and a rewind hides the later Items.
    assert_eq!(gateway.send("them", "GET", &path, &json!(null)).await.0, 404);
    let seq = items[0]["seq"].as_u64().unwrap();
    let rewind = format!("/v1/throughline/threads/{agent}/rewind");
    gateway.request("POST", &rewind, &json!({"to": seq})).await;
    let page = gateway.request("GET", &path, &json!(null)).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_resume_without_gaps_or_secrets() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let key = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
    let response = gateway
        .send_message(&agent, &format!("Keep {key} for me, please, and keep it private."))
        .await;
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let all = events(&gateway, run, 0).await;
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains("a1B2") && text.contains("[REDACTED]"), "{text}");
    let numbers: Vec<u64> = all.iter().map(|event| event["n"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // Deltas that arrive together form one event; all other events are separate.
    let is_piece =
        |event: &&Value| event["event"]["phase"] != "delta" && event["event"]["type"] != "stream";
    let pieces: Vec<&Value> = all.iter().filter(is_piece).collect();
    for after in 0..=*numbers.last().unwrap() {
        let rest = events(&gateway, run, after).await;
        let rest: Vec<&Value> = rest.iter().filter(is_piece).collect();
        let expected: Vec<&Value> =
            pieces.iter().copied().filter(|event| event["n"].as_u64().unwrap() > after).collect();
        assert_eq!(rest, expected, "after {after}");
    }
    // Paging returns the same events, without repeats.
    let (mut collected, mut after, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(from) = after {
        let (some, more) = event_page(&gateway, run, &format!("after={from}&limit=3")).await;
        assert!(more.is_none_or(|more| more >= from + 3), "{more:?} behind {from}");
        collected.extend(some);
        (after, pages) = (more, pages + 1);
    }
    let collected: Vec<&Value> = collected.iter().filter(is_piece).collect();
    assert_eq!(collected, pieces);
    assert!(pages > 2, "{pages} pages of {}", all.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_lists_arguments_and_accepts_one_decision() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "Send a mail.").await;
    let inbox = gateway.request("GET", "/v1/throughline/inbox", &json!(null)).await;
    let waits = &inbox["waiting"][0];
    assert_eq!(
        (&waits["tool"], &waits["args"], &waits["redacted"]),
        (&json!("send_mail"), &json!({"to": "a@example.com"}), &json!(false))
    );
    // The model thinks twice before the call, and the tool is not idempotent.
    let thoughts = ["Let me see.", "That is it."];
    let thoughts = thoughts.map(|text| json!({"kind": "thought", "text": text, "cut": false}));
    assert_eq!((&waits["reply"], &waits["idempotent"]), (&json!(thoughts), &json!(false)));
    let path = format!("/v1/throughline/approvals/{}", waits["id"].as_str().unwrap());
    let (status, error) = gateway.try_request("POST", &path, &json!({})).await;
    assert_eq!((status, &error["detail"]), (422, &json!("approved: must be true or false")));
    let (status, _) =
        gateway.try_request("POST", &path, &json!({"approved": true, "args": []})).await;
    assert_eq!(status, 422);
    assert!(gateway.ran.lock().unwrap().is_empty());
    let edited = json!({"approved": true, "args": {"to": "c@example.com"}, "decided_by": "ann"});
    let response = gateway.request("POST", &path, &edited).await;
    assert_eq!(response["goes_on"], true);
    let run = waits["run"].as_str().unwrap();
    let events = events(&gateway, run, 0).await;
    assert_eq!(*gateway.ran.lock().unwrap(), [r#"send_mail {"to":"c@example.com"}"#]);
    let decided = events.iter().find(|event| event["event"]["status"] == "approved").unwrap();
    assert_eq!(decided["event"]["decidedBy"], "ann");
    // An approval that was decided is no longer pending.
    let (status, _) = gateway.try_request("POST", &path, &json!({"approved": false})).await;
    assert_eq!(status, 404);
    let inbox = gateway.request("GET", "/v1/throughline/inbox", &json!(null)).await;
    assert_eq!(inbox["waiting"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_redacts_and_shortens_the_reply_before_a_call() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let secret = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
    gateway.send_message(&agent, &format!("repeat {secret} {}", "and ".repeat(1000))).await;
    let inbox = gateway.request("GET", "/v1/throughline/inbox", &json!(null)).await;
    let text = &inbox["waiting"][0]["reply"][2];
    let shown = text["text"].as_str().unwrap();
    assert!(shown.starts_with("repeat [REDACTED]"), "{text}");
    assert_eq!((shown.chars().count(), &text["cut"]), (2000, &json!(true)));
}

/// Agents' Threads contain no calls, so a page of calls skips more of them than of other Threads.
#[tokio::test(flavor = "multi_thread")]
async fn calls_older_than_a_thousand_threads_of_agents_are_listed() {
    let gateway = AgentGateway::open().await;
    let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}]});
    let (status, _) = gateway.send("us", "POST", "/v1/messages", &body).await;
    assert_eq!(status, 502, "the provider of this gateway is not reachable");
    for part in 0..11 {
        let mut batch = Batch::new(Tenant::from("us"));
        for index in 0..100 {
            let thread = Append::new(format!("thread_{part}_{index}"));
            batch = batch.append(thread.opening(LogOpening::thread()));
        }
        gateway.journal.commit(batch).await.unwrap();
    }
    let list = gateway.request("GET", "/v1/throughline/calls?limit=5", &json!(null)).await;
    let calls = list["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{list}");
    assert_eq!((&calls[0]["status"], &list["next"]), (&json!(502), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_journal_and_thought_map_are_served() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "What is the weather like?").await;
    let map =
        gateway.request("GET", &format!("/v1/throughline/threads/{agent}/map"), &json!(null)).await;
    assert_eq!(map["calls"].as_array().unwrap().len(), 2);
    assert_eq!(map["items"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&map["calls"][0]["returned"], &map["calls"][1]["returned"]),
        (&json!([0, 1]), &json!([2, 3]))
    );
    let proof = gateway.request("POST", "/v1/throughline/journal/verify", &json!({})).await;
    assert_eq!(proof["verdict"], "intact");
    let request = json!({"model": "claude-sonnet-4-5", "max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024},
    "messages": [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "There."}]},
    ]});
    let body = json!({"request": request.to_string(), "to_provider": "gemini", "to_model": "gemini-3-pro-preview"});
    let report = gateway.request("POST", "/v1/throughline/doctor", &body).await;
    assert_eq!(
        (&report["wire"], &report["audit"]["verdict"]),
        (&json!("anthropic-messages"), &json!("refuse"))
    );
    assert_ne!(report["repair"]["verdict"], "refuse");
    assert_eq!(report["translation"]["wire"], "gemini");
    for (request, message) in [("{", "known provider"), (r#"{"id":"x"}"#, "known provider")] {
        let body = json!({"request": request});
        let (status, error) = gateway.try_request("POST", "/v1/throughline/doctor", &body).await;
        assert!(status == 422 && error["detail"].as_str().unwrap().contains(message), "{error}");
    }
}

/// Neither the console nor the agent API has a WebSocket.
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_requests_are_refused() {
    let gateway = AgentGateway::open().await;
    let headers = [
        ("authorization", "Bearer tl_us"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for path in ["/", "/docs", "/openapi.json", "/v1/agents/", "/v1/throughline/runs"] {
        let response = begin(&gateway.url, "GET", path, Vec::new(), &headers).await;
        assert_eq!(response.status().as_u16(), 426, "{path}");
        let response = begin(&gateway.url, "GET", path, Vec::new(), &headers[..1]).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_a_waiting_run_once() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "Send a mail.").await;
    let inbox = gateway.request("GET", "/v1/throughline/inbox", &json!(null)).await;
    let run = inbox["waiting"][0]["run"].as_str().unwrap();
    let path = format!("/v1/throughline/runs/{run}/cancel");
    let (status, _) = gateway.send("them", "POST", &path, &json!({})).await;
    assert_eq!(status, 404, "another tenant cannot cancel the run");
    let reason = json!({"reason": "no longer needed"});
    let cancelled = gateway.request("POST", &path, &reason).await;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let events = events(&gateway, run, 0).await;
    let has_reason = |event: &Value| event["event"].to_string().contains("no longer needed");
    assert!(events.iter().any(has_reason), "{events:#?}");
    assert!(gateway.ran.lock().unwrap().is_empty());
    let (status, error) = gateway.try_request("POST", &path, &json!({})).await;
    assert_eq!((status, &error["detail"]), (409, &json!(format!("run {run} has already ended"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_without_an_agent_can_be_forked() {
    let gateway = AgentGateway::open().await;
    let item = json!({"id": "i1", "role": "user", "text": "Hello"}).to_string();
    let thread = Append::new("thread_own").opening(LogOpening::thread());
    let thread = thread.record(NewRecord::new("item", item));
    let us = Tenant::from("us");
    gateway.journal.commit(Batch::new(us.clone()).append(thread)).await.unwrap();
    let path = "/v1/throughline/threads/thread_own/fork";
    let (status, _) = gateway.send("them", "POST", path, &json!({})).await;
    assert_eq!(status, 404, "another tenant cannot fork the thread");
    let (status, error) = gateway.try_request("POST", path, &json!({"at": 2})).await;
    assert_eq!(status, 422, "{error}");
    let forked = gateway.request("POST", path, &json!({})).await;
    assert_eq!(forked["forked_from"], json!({"thread": "thread_own", "at": 1}));
    let id = forked["id"].as_str().unwrap();
    assert!(id.starts_with("thread"), "{forked}");
    let head = gateway.journal.log(&us, &LogId::from(id)).await.unwrap().unwrap();
    assert_eq!((head.kind, head.last), (LogKind::Thread, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_names_the_permissions_of_the_key() {
    let gateway = AgentGateway::open().await;
    let all =
        ["use", "read", "inspect", "approve", "export", "verify", "manage_keys", "manage_routes"];
    for (key, role, granted) in [
        ("us.operator", json!("operator"), &all[..]),
        ("us.app", json!("app"), &all[..2]),
        ("us.viewer", json!("viewer"), &all[1..3]),
        ("us", json!(null), &all[..6]),
    ] {
        let (_, usage) = gateway.send(key, "GET", "/v1/throughline/usage", &json!(null)).await;
        let usage: Value = serde_json::from_slice(&usage).unwrap();
        assert_eq!((&usage["role"], &usage["permissions"]), (&role, &json!(granted)), "{key}");
    }
}
