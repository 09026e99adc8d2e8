//! Tests that the examples, including the README's, run without keys and print the expected output.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use throughline_testkit::workspace_root;

/// Runs an example and returns its standard output. The examples are built next to the tests.
fn run_example(example: &str, arguments: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let built: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(example);
    let output = Command::new(built).args(arguments).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example}: {out}{err}");
    out.into_owned()
}

#[test]
fn tool_loop_replays_every_seal() {
    let output = run_example("tool_loop", &[]);
    assert!(output.contains("\ncompleted: You asked “What is the weather in Paris?”."), "{output}");
    assert!(output.ends_with("every Seal was replayed unchanged: true\n"), "{output}");
}

#[test]
fn model_can_be_switched_during_a_run() {
    let output = run_example("switch_model", &[]);
    assert!(output.starts_with("waiting\ncompleted\n"), "{output}");
    for expected in ["anthropic/claude-sonnet-5-5", "openai/gpt-5.6-sol", "answered: gpt-5.6-sol"] {
        assert!(output.contains(expected), "{output}");
    }
    assert!(output.ends_with("no request was refused: true\n"), "{output}");
}

#[test]
fn approval_survives_a_restart() {
    let output = run_example("approval", &[]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.first(), Some(&"waiting"), "{output}");
    assert_eq!(lines.last(), Some(&"completed"), "{output}");
    assert!(output.contains("second decision refused: Tool approval"), "{output}");
    assert_eq!(output.matches("sending the mail").count(), 1, "{output}");
}

#[test]
fn answer_that_violates_the_schema_is_retried() {
    let output = run_example("output_schema", &[]);
    assert_eq!(output.matches("retried: ").count(), 2, "{output}");
    assert!(output.contains("completed: 21 degrees\nthe thread has 2 messages\n"), "{output}");
}

#[test]
fn custom_provider_is_a_catalog_entry() {
    let output = run_example("own_provider", &[]);
    assert!(output.starts_with("basement: wire openai-chat at https://"), "{output}");
    assert!(output.contains("\ncompleted: Here is my answer to “Are you there?”"), "{output}");
}

#[test]
fn custom_codec_sends_seals_only_to_their_owner() {
    let output = run_example("own_codec", &[]);
    assert!(output.starts_with("ledger: ") && output.contains("c3RhbXA="), "{output}");
    assert_eq!(output.matches("Seal included: false").count(), throughline::codec::CODECS.len());
}

#[test]
fn custom_tools_print_their_schema() {
    assert!(run_example("own_tool", &[]).contains("sum {"));
}

#[test]
fn lost_reasoning_is_restored_around_an_own_http_client() {
    let expected =
        "the thinking block was restored bit for bit: true\nthe provider verified it: true\n";
    assert_eq!(run_example("replay", &[]), expected);
}

#[test]
fn client_side_tool_is_answered_by_the_program() {
    let output = run_example("client_tool", &[]);
    assert!(output.starts_with("waiting\nthe client runs pick_seat for flight "), "{output}");
    assert!(output.contains("\ncompleted: ") && output.contains("12A"), "{output}");
    assert!(output.ends_with("every Seal was replayed unchanged: true\n"), "{output}");
}

#[test]
fn custom_sink_receives_spans_and_progress_is_readable() {
    let output = run_example("custom_sink", &[]);
    assert!(output.contains("turn 1: survey is running, "), "{output}");
    for span in ["chat anthropic/claude-sonnet-5-5 (ai_call)", "execute_tool survey (tool_call)"] {
        assert!(output.contains(&format!("span: {span}\n")), "{output}");
    }
    assert!(output.contains("\nrun: completed\n"), "{output}");
    assert!(output.ends_with(": Success, 0 spans lost\n"), "{output}");
}

#[test]
fn mcp_tools_are_listed_and_called() {
    let server = workspace_root().join("crates/tools/tests/outside/server.py");
    let line = format!("mcp:world=python3 {} stdio", server.display());
    assert!(run_example("mcp", &[&line]).contains("world__echo: Does echo."));
    let called = run_example("mcp", &[&line, "world__echo", r#"{"text":"hello"}"#]);
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
