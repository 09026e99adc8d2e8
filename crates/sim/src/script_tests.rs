//! Tests for parsing scripts, and for the error messages of invalid scripts.

use serde_json::Value;

use super::*;
use crate::turn::{OfferedTool, ThoughtDisplay};

fn error(text: &str) -> ScriptError {
    text.parse::<Script>().expect_err("the script is wrong")
}

fn turn() -> Turn {
    let catalog = throughline_codec::Catalog::builtin();
    let row = catalog.provider("anthropic").expect("a built-in provider");
    Turn::new(catalog.target(&row, "claude-sonnet-5-5", "account"))
}

fn shell() -> OfferedTool {
    let properties = json!({"command": {"type": "string"}});
    let schema = json!({"type": "object", "properties": properties, "required": ["command"]});
    OfferedTool::new("Bash".to_owned(), schema)
}

/// Returns the parts of the next scripted reply; `None` if no turn fits.
fn play(player: &ScriptPlayer, turn: &Turn) -> Option<Vec<ReplyPart>> {
    let plan = player.next(turn, Usage::default(), Digest::default())?;
    Some(plan.expect("a reply").parts)
}

fn text(text: &str) -> ReplyPart {
    ReplyPart::Text(text.to_owned())
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
    assert_eq!(script.turns.len(), 4);
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
    let role = error("[[turn]]\n\n\ncalls = [{ role = \"reed\", path = \"a\" }]\n");
    assert_eq!((role.line, role.message.contains("did you mean `read`?")), (4, true), "{role}");
}

#[test]
fn wrong_types_and_contradictions_are_rejected_with_their_line() {
    let cases = [
        ("[[turn]]\ntexts = \"a\"\n", 2, "invalid type: string \"a\", expected a sequence"),
        ("[[turn]]\nstep = \"one\"\n", 2, "expected a number, or a list of the first and last"),
        ("[[turn]]\nround = [3, 1]\n", 2, "a range is a list of the first and last number"),
        ("[[turn]]\nround = -1\n", 2, "a count cannot be negative"),
        ("[[turn]]\ntimes = 0\n", 2, "expected a number of at least 1, or \"always\""),
        ("[[turn]]\ntimes = \"often\"\n", 2, "expected a number of at least 1, or \"always\""),
        ("\n[[turn]]\ntexts = [\"a\"]\nparts = [{ text = \"b\" }]\n", 2, "either `parts`, or"),
        ("[[turn]]\ntelling = \"redacted\"\n", 1, "`telling` applies to `thoughts`"),
        ("[[turn]]\nparts = [{ text = \"a\", call = \"b\" }]\n", 2, "exactly one of"),
        ("[[turn]]\nparts = [{ text = \"a\", path = \"b\" }]\n", 2, "with `call` or `role`"),
        ("[[turn]]\ncalls = [{}]\n", 2, "a call needs `name` or `role`"),
        ("[[turn]]\ncalls = [{ role = \"read\" }]\n", 2, "role `read` needs `path`"),
        (
            "[[turn]]\ncalls = [{ role = \"run\", command = \"ls\", path = \"a\" }]\n",
            2,
            "role `run` has no key `path`; it takes `command`",
        ),
        (
            "[[turn]]\ncalls = [{ name = \"Bash\", command = \"ls\" }]\n",
            2,
            "`command` belongs to a call by `role`; put it into `arguments`",
        ),
        ("[[turn]]\ncalls = [{ name = \"a\", arguments = 1 }]\n", 2, "`arguments` is a table"),
        ("[[turn]]\ntexts = [\"{{answer}}\"]\n", 1, "unknown placeholder `{{answer}}`"),
        ("[[turn]]\nrefuse = { status = 200, message = \"\" }\n", 1, "from 400 to 599"),
        ("\n[[turn]]\n", 2, "the turn has no content; add `texts`"),
        ("[[turn]]\nround = 1\ntexts = []\n", 1, "the turn has no content; add `texts`"),
        ("[[turn]]\ntexts = [\"a\"]\n\n[[turn]]\nstop = \"done\"\n", 4, "has no content"),
        ("[[turn]]\ntexts = [\"a\"]\nstop = \"tools\"\n", 1, "needs a tool call; add an entry"),
        ("[[turn]]\nstop = \"tools\"\n", 1, "needs a tool call; add an entry to `calls`"),
        (
            "[[turn]]\ntexts = [\"a\"]\nrefuse = { status = 500, message = \"\" }\n",
            1,
            "a turn with `refuse` has no content",
        ),
        (
            "[[turn]]\ncompaction = true\ncalls = [{ name = \"a\" }]\n",
            1,
            "a compaction contains no tool calls",
        ),
    ];
    for (script, line, message) in cases {
        let error = error(script);
        assert!(error.message.contains(message), "{script}: {error}");
        assert_eq!(error.line, line, "{script}: {error}");
    }
}

#[test]
fn turns_fit_by_round_user_tools_and_compaction() {
    let script = r#"[
        {"compaction": true, "times": "always", "texts": ["summary"]},
        {"tools": false, "times": "always", "texts": ["title"]},
        {"user": "special", "times": "always", "texts": ["special"]},
        {"round": 0, "times": "always", "calls": [{"role": "run", "command": "ls"}]},
        {"round": [1, 2], "times": "always", "texts": ["round {{result}}"]},
        {"step": 3, "texts": ["once"]}
    ]"#;
    let player = ScriptPlayer::new(script.parse().unwrap());
    let mut turn = turn();
    turn.start_user_turn("Go.");
    assert_eq!(play(&player, &turn), Some(vec![text("title")]));
    turn.tools = vec![shell()];
    let run = ReplyPart::Call { name: "Bash".to_owned(), arguments: json!({"command": "ls"}) };
    for _ in 0..3 {
        assert_eq!(play(&player, &turn), Some(vec![run.clone()]), "an unlimited turn");
    }
    turn.step = 1;
    turn.results = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(play(&player, &turn), Some(vec![text("round b")]));
    turn.step = 3;
    assert_eq!(play(&player, &turn), Some(vec![text("once")]));
    assert_eq!(play(&player, &turn), None, "the turn answered its only request");
    turn.start_user_turn("Something special.");
    assert_eq!(play(&player, &turn), Some(vec![text("special")]));
    turn.start_user_turn("Go on.");
    assert_eq!(play(&player, &turn), Some(vec![run]), "a new user message starts at round 0");
    turn.compacts = true;
    assert_eq!(play(&player, &turn), Some(vec![text("summary")]));
    turn.compacts = false;
    turn.start_user_turn("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a summary.");
    assert_eq!(play(&player, &turn), Some(vec![text("summary")]), "an agent's own compaction");
}

#[test]
fn turn_by_role_skips_requests_without_such_a_tool() {
    let script = r#"[{"calls": [{"role": "run", "command": "ls"}]}, {"texts": ["other"]}]"#;
    let player = ScriptPlayer::new(script.parse().unwrap());
    let mut turn = turn();
    turn.start_user_turn("Go.");
    assert_eq!(play(&player, &turn), Some(vec![text("other")]));
    turn.tools = vec![shell()];
    assert!(matches!(play(&player, &turn).as_deref(), Some([ReplyPart::Call { .. }])));
}

#[test]
fn placeholders_are_replaced_in_texts_and_arguments() {
    let script = r#"[{"parts": [
        {"thought": "They said {{user}}."},
        {"text": "{{result.0}}, {{ result }} and {{result.9}}, but not {{}} or {{ a b }}."},
        {"call": "note", "arguments": {"lines": ["{{result}}", 1]}},
        {"role": "run", "command": "echo '{{user}}'"}
    ]}]"#;
    let player = ScriptPlayer::new(script.parse().unwrap());
    let mut turn = turn();
    turn.tools = vec![shell()];
    turn.start_user_turn("hi");
    turn.results = vec!["first".to_owned(), "last".to_owned()];
    let call = |name: &str, arguments: Value| ReplyPart::Call { name: name.to_owned(), arguments };
    let thought = "They said hi.".to_owned();
    assert_eq!(
        play(&player, &turn),
        Some(vec![
            ReplyPart::Thought { text: thought, display: ThoughtDisplay::AsAsked },
            text("first, last and , but not {{}} or {{ a b }}."),
            call("note", json!({"lines": ["last", 1]})),
            call("Bash", json!({"command": "echo 'hi'"})),
        ])
    );
}
