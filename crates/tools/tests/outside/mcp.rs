//! Tests for MCP servers: tools, results, progress, timeouts and lost connections.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{Tool, ToolAnswer};
use throughline_core::{Media, Outcome, Part};
use throughline_tools::{Approval, McpConfig, McpErrorKind, McpServer};

use crate::world::{
    Endpoint, SECRET, json, named, process, python, run, spawned, texts, tool_context,
};

async fn tools_of(config: McpConfig) -> Vec<Arc<dyn Tool>> {
    McpServer::open(config).await.unwrap().tools().await.unwrap()
}

#[tokio::test]
async fn tools_of_all_pages_have_schemas_hints_and_valid_names() {
    let server = spawned().await;
    let tools = server.tools().await.unwrap();
    assert_eq!(tools.len(), 15);
    let echo = named(&tools, "outside__echo").spec();
    assert_eq!(echo.description.as_deref(), Some("Does echo."));
    assert!(echo.schema.unwrap().as_str().contains(r#""properties":{"text":{"type":"string"}}"#));
    assert!(echo.idempotent);
    assert!(named(&tools, "outside__add").spec().idempotent);
    assert!(!named(&tools, "outside__die").spec().idempotent);
    assert!(tools.iter().all(|tool| !tool.spec().needs_approval));
    let odd = tools.last().unwrap();
    let name = odd.spec().name;
    assert!(name.starts_with("outside__odd_name_of_a_tool_") && name.len() <= 64, "{name}");
    assert_eq!(odd.spec().schema.unwrap().as_str(), r#"{"type":"object"}"#);
    assert_eq!(run(&**odd, "{}").await, ToolAnswer::text("odd indeed"));
}

#[tokio::test]
async fn server_rejecting_the_old_handshake_gets_the_new_one() {
    let mut config = process();
    let throughline_tools::Transport::Process { args, .. } = &mut config.reach else { panic!() };
    args.push("modern".to_owned());
    let tools = tools_of(config).await;
    assert_eq!(tools.len(), 15);
    let echo = run(&*named(&tools, "outside__echo"), r#"{"text":"new"}"#).await;
    assert_eq!(echo, ToolAnswer::text("new"));
}

#[tokio::test]
async fn approval_and_tool_filters_apply() {
    let needing = |tools: &[Arc<dyn Tool>]| {
        let needing = tools.iter().map(|tool| tool.spec()).filter(|spec| spec.needs_approval);
        needing.map(|spec| spec.name.to_string()).collect::<Vec<_>>()
    };
    let names = ["echo", "add", "die", "fail"];
    let mut config = process();
    config.only = Some(names.into_iter().map(Into::into).collect());
    config.approval = Approval::Destructive;
    let tools = tools_of(config.clone()).await;
    assert_eq!(tools.len(), 4);
    assert_eq!(needing(&tools), ["outside__fail", "outside__die"]);
    config.approval = Approval::Always;
    assert_eq!(needing(&tools_of(config.clone()).await).len(), 4);
    config.only = Some(vec!["ecko".into()]);
    let error = McpServer::open(config).await.unwrap().tools().await.err().unwrap().to_string();
    assert!(error.contains("it has no tool `ecko`; its tools are echo, add"), "{error}");
}

#[tokio::test]
async fn every_result_type_becomes_parts() {
    let tools = spawned().await.tools().await.unwrap();
    let echo = named(&tools, "outside__echo");
    assert_eq!(run(&*echo, r#"{"text":"héllo"}"#).await, ToolAnswer::text("héllo"));
    // Structured content that repeats a text is not added again.
    let sum = run(&*named(&tools, "outside__add"), r#"{"a":1,"b":2}"#).await;
    assert_eq!(sum, ToolAnswer::text(r#"{"sum": 3}"#));
    let picture = run(&*named(&tools, "outside__picture"), "{}").await;
    let image = Media::Inline { mime: "image/png".into(), base64: "aGVsbG8=".into() };
    let expected = vec![
        Part::Media(image),
        Part::Text("notes <file:///notes.txt> (text/plain)".into()),
        Part::Text("embedded words".into()),
        Part::Text(r#"{"pictures":1}"#.into()),
    ];
    assert_eq!(picture, ToolAnswer { outcome: Outcome::Ok, parts: expected });
}

#[tokio::test]
async fn errors_are_reported_without_secrets() {
    let tools = spawned().await.tools().await.unwrap();
    let failed = run(&*named(&tools, "outside__fail"), "{}").await;
    assert_eq!(failed, ToolAnswer::error("the key … is not good"));
    let refused = run(&*named(&tools, "outside__refuse"), "{}").await;
    let expected = "The MCP server `outside` failed: not with … (code -32601)";
    assert_eq!(refused, ToolAnswer::error(expected));
    let invalid = run(&*named(&tools, "outside__echo"), "[]").await;
    assert!(invalid.to_text().contains("not an object"), "{invalid:?}");
}

#[tokio::test]
async fn progress_is_reported_during_a_call() {
    assert_progress(spawned().await).await;
}

#[tokio::test]
async fn progress_is_reported_over_http() {
    let endpoint = Endpoint::start(0);
    assert_progress(McpServer::open(endpoint.config()).await.unwrap()).await;
}

async fn assert_progress(server: McpServer) {
    let tools = server.tools().await.unwrap();
    let (wait, release) = (named(&tools, "outside__wait"), named(&tools, "outside__release"));
    let (tool_context, mut progress) = tool_context();
    let args = json("{}");
    let waiting = wait.run(&args, &tool_context);
    let releasing = async {
        assert_eq!(progress.recv().await.as_deref(), Some("half way (1/2)"));
        run(&*release, "{}").await
    };
    let (waited, released) = tokio::join!(waiting, releasing);
    assert_eq!((waited, released), (ToolAnswer::text("released"), ToolAnswer::text("done")));
}

#[tokio::test]
async fn dropping_a_call_cancels_it() {
    assert_cancelled(spawned().await).await;
}

#[tokio::test]
async fn dropping_a_call_over_http_cancels_it() {
    let endpoint = Endpoint::start(0);
    assert_cancelled(McpServer::open(endpoint.config()).await.unwrap()).await;
}

async fn assert_cancelled(server: McpServer) {
    let tools = server.tools().await.unwrap();
    let (tool_context, mut receiver) = tool_context();
    let (stall, args) = (named(&tools, "outside__stall"), json("{}"));
    tokio::select! {
        answer = stall.run(&args, &tool_context) => panic!("{answer:?}"),
        progress = receiver.recv() => assert_eq!(progress.as_deref(), Some("1")),
    }
    let cancelled = run(&*named(&tools, "outside__cancelled"), "{}").await;
    assert_eq!(cancelled, ToolAnswer::text("the caller stopped waiting"));
}

#[tokio::test]
async fn timed_out_call_has_unknown_outcome() {
    let mut config = process();
    config.timeout = Duration::from_secs(3);
    let tools = tools_of(config).await;
    let slow = run(&*named(&tools, "outside__stall"), "{}").await;
    assert_eq!(slow.outcome, Outcome::Unknown);
    let text = slow.to_text();
    assert!(text.contains("timed out: it did not respond within 3000 ms"), "{text}");
    assert!(text.contains("It is unknown whether the call took effect"), "{text}");
    let cancelled = run(&*named(&tools, "outside__cancelled"), "{}").await;
    assert_eq!(cancelled.outcome, Outcome::Ok);
}

#[tokio::test]
async fn next_call_restarts_a_crashed_server() {
    let tools = spawned().await.tools().await.unwrap();
    let process = named(&tools, "outside__process");
    let first = run(&*process, "{}").await.to_text();
    let died = run(&*named(&tools, "outside__die"), "{}").await;
    assert_eq!(died.outcome, Outcome::Unknown);
    let text = died.to_text();
    assert!(
        text.contains("`outside` disconnected: it closed the connection before it responded"),
        "{text}"
    );
    assert!(
        text.contains("its last error output was:") && text.contains("out of cheese, with …"),
        "{text}"
    );
    assert!(!text.contains(SECRET), "{text}");
    let again = run(&*process, "{}").await;
    assert_eq!(again.outcome, Outcome::Ok, "{again:?}");
    assert_ne!(again.to_text(), first);
    // An idempotent call can be repeated, so its failure is a plain error.
    let died = run(&*named(&tools, "outside__die_reading"), "{}").await;
    assert_eq!(died.outcome, Outcome::Error);
}

#[tokio::test]
async fn next_call_reconnects_to_a_restarted_endpoint() {
    let endpoint = Endpoint::start(0);
    let port = endpoint.port;
    let tools = tools_of(endpoint.config()).await;
    let (echo, args) = (named(&tools, "outside__echo"), r#"{"text":"hello"}"#);
    assert_eq!(run(&*echo, args).await, ToolAnswer::text("hello"));
    let mut slow = endpoint.config();
    slow.timeout = Duration::from_secs(20);
    let died = run(&*named(&tools_of(slow).await, "outside__die"), "{}").await;
    assert_eq!(died.outcome, Outcome::Unknown, "{died:?}");
    endpoint.wait_for_exit();
    let failed = run(&*echo, args).await;
    assert_eq!(failed.outcome, Outcome::Error, "{failed:?}");
    assert!(failed.to_text().contains("The MCP server `outside`"), "{failed:?}");
    let _restarted = Endpoint::start(port);
    assert_eq!(run(&*echo, args).await, ToolAnswer::text("hello"));
}

#[tokio::test]
async fn large_result_is_truncated_at_a_character_boundary() {
    let mut config = process();
    config.largest_answer = 1001;
    let tools = tools_of(config).await;
    let huge = run(&*named(&tools, "outside__huge"), r#"{"bytes":3000000}"#).await;
    assert_eq!(huge.outcome, Outcome::Ok);
    let note = "[The result is longer than 1001 bytes and was truncated here.]";
    assert_eq!(texts(&huge), ["é".repeat(500).as_str(), note]);
}

#[tokio::test]
async fn process_gets_only_its_declared_variables() {
    let tools = spawned().await.tools().await.unwrap();
    let variables = run(&*named(&tools, "outside__environment"), "{}").await.to_text();
    let ours: Vec<&str> = variables.split(' ').filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(ours, ["API_KEY"]);
}

#[tokio::test]
async fn failed_start_reports_the_reason() {
    let missing = McpServer::spawn("files", "no-such-program", [], []).await.unwrap_err();
    assert_eq!(missing.trouble, McpErrorKind::Unreachable);
    let message = missing.to_string();
    assert!(message.contains("is unavailable: cannot start `no-such-program`"), "{message}");
    let env = [("API_KEY", SECRET)];
    let script = "import os, sys; sys.exit('no: ' + os.environ['API_KEY'])";
    let exited = McpServer::spawn("files", python(), ["-c", script], env).await.unwrap_err();
    assert_eq!(
        exited.reason,
        "it closed the connection before it responded; its last error output was: no: …"
    );
    let mut silent = process();
    let throughline_tools::Transport::Process { args, .. } = &mut silent.reach else { panic!() };
    *args = vec!["-c".to_owned(), "import sys; sys.stdin.read()".to_owned()];
    silent.start_timeout = Duration::from_millis(300);
    let silent = McpServer::open(silent).await.unwrap_err();
    assert_eq!(silent.reason, "it did not respond within 300 ms");
}

#[tokio::test]
async fn failed_connection_reports_the_reason_without_keys() {
    let endpoint = Endpoint::start(0);
    let url = format!("http://127.0.0.1:{}/mcp?key={SECRET}", endpoint.port);
    let headers = [("Authorization", "Bearer sk-another-secret")];
    let error = McpServer::connect("search", url.as_str(), headers).await.unwrap_err();
    assert_eq!(error.trouble, McpErrorKind::Unreachable);
    let message = format!("{error} {error:?}");
    assert!(message.contains("401"), "{message}");
    drop(endpoint);
    let closed = McpServer::connect("search", url.as_str(), headers).await.unwrap_err();
    let all = format!("{message} {closed} {closed:?}");
    assert!(closed.reason.contains("refused"), "{all}");
    assert!(!all.contains(SECRET) && !all.contains("sk-another-secret"), "{all}");
    for url in
        ["http://169.254.169.254/mcp", "http://metadata.google.internal/mcp", "ftp://example.com/"]
    {
        let error = McpServer::connect("search", url, []).await.unwrap_err();
        assert_eq!(error.trouble, McpErrorKind::Unreachable, "{error}");
    }
}
