//! Tests for parsing scripts, and for the error messages of invalid scripts.

use super::*;

fn error(text: &str) -> ScriptError {
    text.parse::<Script>().expect_err("the script is wrong")
}

#[test]
fn toml_and_json_scripts_are_equivalent() {
    let toml = "[[turn]]\nthoughts = [\"Hm.\"]\ncalls = [{ name = \"weather\" }]\n";
    let object = r#"{"turn": [{"thoughts": ["Hm."], "calls": [{"name": "weather"}]}]}"#;
    let list = r#"[{"thoughts": ["Hm."], "calls": [{"name": "weather"}]}]"#;
    let read: Script = toml.parse().unwrap();
    assert_eq!(read.turns.len(), 1);
    assert_eq!(object.parse(), Ok(read.clone()));
    assert_eq!(list.parse(), Ok(read));
}

#[test]
fn documented_example_parses() {
    let lines = include_str!("script.rs").lines();
    let lines = lines.skip_while(|line| *line != "//! ```toml").skip(1);
    let example: Vec<&str> = lines
        .take_while(|line| *line != "//! ```")
        .map(|line| line.strip_prefix("//!").unwrap_or(line))
        .collect();
    let script: Script = example.join("\n").parse().unwrap();
    assert_eq!(script.turns.len(), 3);
}

#[test]
fn unknown_key_error_has_line_and_suggestion() {
    assert_eq!(
        error("[[turn]]\ntexts = [\"a\"]\nthougths = []\n"),
        ScriptError {
            line: 3,
            message: "unknown field `thougths`; did you mean `thoughts`?".to_owned()
        }
    );
    assert_eq!(
        error("[\n  {\"txets\": []}\n]"),
        ScriptError { line: 2, message: "unknown field `txets`; did you mean `texts`?".to_owned() }
    );
    assert_eq!(
        error("[[turn]]\nstop = \"tool\"\n").message,
        "unknown variant `tool`; did you mean `tools`?"
    );
}
