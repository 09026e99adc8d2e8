//! Tests that the examples, including the README's, run without keys and print the expected output.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use throughline_testkit::workspace_root;

/// Runs an example and returns its standard output. The examples are built next to the tests.
fn said(example: &str, arguments: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let built: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(example);
    let ran = Command::new(built).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{example}: {out}{err}");
    out.into_owned()
}

#[test]
fn tool_loop_replays_every_seal() {
    let said = said("tool_loop", &[]);
    assert!(said.contains("\ncompleted: You asked “What is the weather in Paris?”."), "{said}");
    assert!(said.ends_with("every Seal was replayed unchanged: true\n"), "{said}");
}

#[test]
fn model_can_be_switched_during_a_run() {
    let said = said("switch_model", &[]);
    assert!(said.starts_with("waiting\ncompleted\n"), "{said}");
    for wanted in ["anthropic/claude-sonnet-5-5", "openai/gpt-5.6-sol", "answered: gpt-5.6-sol"] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(said.ends_with("no request was refused: true\n"), "{said}");
}

#[test]
fn approval_survives_a_restart() {
    let said = said("approval", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"waiting"), "{said}");
    assert_eq!(lines.last(), Some(&"completed"), "{said}");
    assert!(said.contains("second decision refused: Tool approval"), "{said}");
    assert_eq!(said.matches("sending the mail").count(), 1, "{said}");
}

#[test]
fn answer_that_violates_the_schema_is_retried() {
    let said = said("output_schema", &[]);
    assert_eq!(said.matches("retried: ").count(), 2, "{said}");
    assert!(said.contains("completed: {\"degrees\": 21}\nthe thread has 2 messages\n"), "{said}");
}

#[test]
fn custom_provider_is_a_catalog_entry() {
    let said = said("own_provider", &[]);
    assert!(said.starts_with("basement: wire openai-chat at https://"), "{said}");
    assert!(said.contains("\ncompleted: Here is my answer to “Are you there?”"), "{said}");
}

#[test]
fn custom_codec_sends_seals_only_to_their_owner() {
    let said = said("own_codec", &[]);
    assert!(said.starts_with("ledger: ") && said.contains("c3RhbXA="), "{said}");
    assert_eq!(said.matches("Seal included: false").count(), throughline::codec::CODECS.len());
}

#[test]
fn custom_tools_print_their_schema() {
    assert!(said("own_tool", &[]).contains("sum {"));
}

#[test]
fn lost_reasoning_is_restored_around_an_own_http_client() {
    let expected =
        "the thinking block was restored bit for bit: true\nthe provider verified it: true\n";
    assert_eq!(said("replay", &[]), expected);
}

#[test]
fn client_side_tool_is_answered_by_the_program() {
    let said = said("client_tool", &[]);
    assert!(said.starts_with("waiting\nthe client runs pick_seat for flight "), "{said}");
    assert!(said.contains("\ncompleted: ") && said.contains("12A"), "{said}");
    assert!(said.ends_with("every Seal was replayed unchanged: true\n"), "{said}");
}

#[test]
fn custom_sink_receives_spans_and_progress_is_readable() {
    let said = said("custom_sink", &[]);
    assert!(said.contains("turn 1: survey is running, "), "{said}");
    for span in ["chat anthropic/claude-sonnet-5-5 (ai_call)", "execute_tool survey (tool_call)"] {
        assert!(said.contains(&format!("span: {span}\n")), "{said}");
    }
    assert!(said.contains("\nrun: completed\n"), "{said}");
    assert!(said.ends_with(": Success, 0 spans lost\n"), "{said}");
}

#[test]
fn mcp_tools_are_listed_and_called() {
    let server = workspace_root().join("crates/tools/tests/outside/server.py");
    let line = format!("mcp:world=python3 {} stdio", server.display());
    assert!(said("mcp", &[&line]).contains("world__echo: Does echo."));
    let called = said("mcp", &[&line, "world__echo", r#"{"text":"hello"}"#]);
    assert!(called.contains("Ok: ") && called.contains("hello"), "{called}");
}

#[test]
fn readme_contains_the_compiled_example() {
    let read = |path: &str| std::fs::read_to_string(workspace_root().join(path)).unwrap();
    let example = read("crates/throughline/examples/agent.rs");
    let example = &example[example.find("use std::error").unwrap()..];
    assert!(read("README.md").contains(example), "README.md must contain examples/agent.rs");
    assert!(example.lines().count() <= 30, "about twenty lines");
}
