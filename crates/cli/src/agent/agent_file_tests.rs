//! Tests that errors in an agent file name the line and column of the key.

use throughline_agent::AgentConfig;

use super::{AgentFile, InvalidKey, from_toml};

/// Returns the error message for an invalid agent file.
fn error_of(text: &str) -> String {
    let file = match AgentFile::parse("agent.toml".to_owned(), text.to_owned()) {
        Ok(file) => file,
        Err(failure) => return failure.to_string(),
    };
    let InvalidKey { path, problem } = from_toml::<AgentConfig>(&file.table).unwrap_err();
    file.invalid(&path, &problem).to_string()
}

#[test]
fn error_names_the_position_of_the_key() {
    for (text, expected) in [
        ("model = \"a\"\nkindness = 1\n", "agent.toml:2:1: unknown field `kindness`"),
        ("model = 1\n", "agent.toml:1:1: `model` must be a string, not integer `1`"),
        (
            "model = \"a\"\n[limits]\nmaxToolCalls = \"many\"\n",
            "agent.toml:3:1: `limits.maxToolCalls` must be ",
        ),
        (
            "model = \"a\"\n[humanInTheLoop]\naskUser = true\n",
            "agent.toml:3:1: `humanInTheLoop.askUser` must be a table, not boolean `true`",
        ),
        (
            "model = \"a\"\n[humanInTheLoop]\napprove = [1]\n",
            "agent.toml:3:1: an element of `humanInTheLoop.approve` must be a string, not ",
        ),
        (
            "model = \"a\"\nlimits = { maxCostUsd = nan }\n",
            "agent.toml:2:12: limits.maxCostUsd is not a finite number",
        ),
        (
            "model = \"a\"\n[[handoffs]]\nto = 1\n",
            "agent.toml:2:3: a value in `handoffs` must be a string, not integer `1`",
        ),
        ("\nmodel = a\n", "agent.toml:2:"),
    ] {
        let message = error_of(text);
        assert!(message.starts_with(expected), "{text:?}: {message}");
    }
}

#[test]
fn missing_key_is_reported_without_a_position() {
    let message = error_of("kind = \"minimal\"\n");
    assert!(message.starts_with("agent.toml: missing field `model`"), "{message}");
}
