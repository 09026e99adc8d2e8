//! The examples run with no key and show what they say they show; and the README's is one of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use throughline_testkit::workspace_root;

/// What an example says. It is built beside the tests.
fn said(example: &str, arguments: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let built: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(example);
    let ran = Command::new(built).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{example}: {out}{err}");
    out.into_owned()
}

#[test]
fn one_tool_loop_brings_its_seals_back() {
    let said = said("tool_loop", &[]);
    assert!(said.contains("\ncompleted: You asked “What is the weather in Paris?”."), "{said}");
    assert!(said.ends_with("every seal came back in its place: true\n"), "{said}");
}

#[test]
fn a_model_is_switched_in_mid_run() {
    let said = said("switch_model", &[]);
    assert!(said.starts_with("waiting\ncompleted\n"), "{said}");
    for wanted in ["anthropic/claude-sonnet-4-5", "openai/gpt-5.2", "answered: gpt-5.2"] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(said.ends_with("nothing was refused: true\n"), "{said}");
}

#[test]
fn an_approval_waits_for_a_restart() {
    let said = said("approval", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"waiting"), "{said}");
    assert_eq!(lines.last(), Some(&"completed"), "{said}");
    assert!(said.contains("and once more: Tool approval"), "{said}");
    assert_eq!(said.matches("a mail goes out").count(), 1, "{said}");
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again() {
    let said = said("output_schema", &[]);
    assert_eq!(said.matches("retried: ").count(), 2, "{said}");
    assert!(said.contains("completed: {\"degrees\": 21}\nthe thread has 2 messages\n"), "{said}");
}

#[test]
fn a_provider_of_ones_own_is_a_row() {
    let said = said("own_provider", &[]);
    assert!(said.starts_with("basement speaks openai-chat at https://"), "{said}");
    assert!(said.contains("\ncompleted: Here is my answer to “Are you there?”"), "{said}");
}

#[test]
fn a_codec_of_ones_own_keeps_its_seals_to_its_owner() {
    let said = said("own_codec", &[]);
    assert!(said.starts_with("ledger: ") && said.contains("c3RhbXA="), "{said}");
    assert_eq!(said.matches("the seal goes along: false").count(), throughline::CODECS.len());
}

#[test]
fn tools_of_ones_own_tell_their_schema() {
    assert!(said("own_tool", &[]).contains("sum {"));
}

#[test]
fn the_tools_of_an_mcp_server_are_listed() {
    let server = workspace_root().join("crates/tools/tests/outside/server.py");
    let line = format!("mcp:world=python3 {} stdio", server.display());
    assert!(said("mcp", &[&line]).contains("world__echo: Does echo."));
    let called = said("mcp", &[&line, "world__echo", r#"{"text":"hello"}"#]);
    assert!(called.contains("Ok: ") && called.contains("hello"), "{called}");
}

#[test]
fn the_readmes_example_is_the_one_that_is_compiled() {
    let read = |path: &str| std::fs::read_to_string(workspace_root().join(path)).unwrap();
    let example = read("crates/throughline/examples/agent.rs");
    let example = &example[example.find("use std::error").unwrap()..];
    assert!(read("README.md").contains(example), "README.md: repeat examples/agent.rs");
    assert!(example.lines().count() <= 30, "about twenty lines");
}
