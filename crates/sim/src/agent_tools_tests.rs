//! Tests that each role maps to a tool of each coding agent, with valid arguments.

use serde_json::json;

use super::ToolRole::{Edit, Read, Run, Search, Write};
use super::*;

fn strings(required: &[&str], optional: &[&str]) -> Value {
    let names = required.iter().chain(optional);
    let properties: Map<String, Value> =
        names.map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "object", "properties": properties, "required": required,
           "additionalProperties": false})
}

fn tool(name: &str, schema: Value) -> OfferedTool {
    OfferedTool::new(name.to_owned(), schema)
}

fn free_form(name: &str) -> OfferedTool {
    OfferedTool { custom: true, ..tool(name, json!({"type": "object"})) }
}

/// Adds properties of other types to a schema.
fn with(mut schema: Value, properties: Value) -> Value {
    let Value::Object(added) = properties else { panic!("an object") };
    schema["properties"].as_object_mut().unwrap().extend(added);
    schema
}

fn claude_code() -> Vec<OfferedTool> {
    let flag = json!({"type": "boolean"});
    let count =
        json!({"type": "integer", "exclusiveMinimum": 0, "maximum": 9_007_199_254_740_991_u64});
    vec![
        tool("Agent", strings(&["description", "prompt"], &["subagent_type"])),
        tool(
            "Bash",
            with(
                strings(&["command"], &["description"]),
                json!({"timeout": {"type": "number"}, "run_in_background": flag}),
            ),
        ),
        tool(
            "Edit",
            with(
                strings(&["file_path", "old_string", "new_string"], &[]),
                json!({"replace_all": {"default": false, "type": "boolean"}}),
            ),
        ),
        tool("Read", with(strings(&["file_path"], &["pages"]), json!({"limit": count}))),
        tool("Write", strings(&["file_path", "content"], &[])),
    ]
}

fn codex() -> Vec<OfferedTool> {
    vec![
        tool(
            "exec_command",
            with(
                strings(&["cmd"], &["justification", "shell", "workdir"]),
                json!({"yield_time_ms": {"type": "number"}, "tty": {"type": "boolean"}}),
            ),
        ),
        tool(
            "write_stdin",
            json!({"type": "object", "required": ["session_id"], "additionalProperties": false,
            "properties": {"session_id": {"type": "number"}, "chars": {"type": "string"}}}),
        ),
        tool("view_image", strings(&["path"], &[])),
        free_form("apply_patch"),
    ]
}

fn codex_with_shell() -> Vec<OfferedTool> {
    let command = json!({"command": {"type": "array", "items": {"type": "string"}}});
    let mut schema = with(strings(&[], &["workdir"]), command);
    schema["required"] = json!(["command"]);
    vec![tool("shell", schema)]
}

fn codex_code_mode() -> Vec<OfferedTool> {
    vec![free_form("exec"), tool("wait", strings(&["cell_id"], &[]))]
}

fn gemini_cli() -> Vec<OfferedTool> {
    let waits = json!({"wait_for_previous": {"type": "boolean"}});
    let line = json!({"start_line": {"type": "integer", "minimum": 1}});
    vec![
        tool("list_directory", strings(&["dir_path"], &[])),
        tool("read_file", with(strings(&["file_path"], &[]), line)),
        tool("grep_search", strings(&["pattern"], &["dir_path", "include_pattern"])),
        tool("glob", strings(&["pattern"], &["dir_path"])),
        tool(
            "replace",
            with(strings(&["file_path", "instruction", "old_string", "new_string"], &[]), waits),
        ),
        tool("write_file", strings(&["file_path", "content"], &[])),
        tool(
            "run_shell_command",
            with(
                strings(&["command"], &["description", "dir_path"]),
                json!({"delay_ms": {"type": "integer"}}),
            ),
        ),
        tool("invoke_agent", strings(&["agent_name", "prompt"], &[])),
    ]
}

fn opencode() -> Vec<OfferedTool> {
    vec![
        tool(
            "bash",
            with(
                strings(&["command"], &["workdir"]),
                json!({"timeout": {"type": "integer", "exclusiveMinimum": 0}}),
            ),
        ),
        tool("edit", strings(&["filePath", "oldString", "newString"], &[])),
        tool("glob", strings(&["pattern"], &["path"])),
        tool("grep", strings(&["pattern"], &["path", "include"])),
        tool("read", strings(&["filePath"], &[])),
        tool("task", strings(&["description", "prompt", "subagent_type"], &[])),
        tool("write", strings(&["content", "filePath"], &[])),
    ]
}

fn opencode_with_gpt() -> Vec<OfferedTool> {
    let mut tools = opencode();
    tools.retain(|tool| !matches!(tool.name.as_str(), "edit" | "write"));
    tools.push(tool("apply_patch", strings(&["patchText"], &[])));
    tools
}

/// Tools that a program could declare with the AI SDK.
fn ai_sdk() -> Vec<OfferedTool> {
    vec![
        tool("readFile", strings(&["path"], &[])),
        tool("edit-file", strings(&["path", "search", "replace"], &[])),
        tool("writeFile", strings(&["path", "contents"], &[])),
        tool("runCommand", strings(&["command"], &["cwd"])),
        tool("searchFiles", strings(&["query"], &[])),
    ]
}

fn call(role: ToolRole, tools: &[OfferedTool]) -> Option<(String, Value)> {
    let values = match role {
        ToolRole::Read => vec![("path", "a b.txt")],
        ToolRole::Edit => vec![("path", "a b.txt"), ("old", "one\ntwo"), ("new", "it's")],
        ToolRole::Write => vec![("path", "a b.txt"), ("content", "it's\n")],
        ToolRole::Run => vec![("command", "cat 'a b.txt'")],
        ToolRole::Search => vec![("pattern", "o.e"), ("path", ".")],
    };
    let values = values.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mapped = map_call(role, &values.collect(), tools, Digest::default())?;
    let tool = tools.iter().find(|tool| tool.name == mapped.name).expect("an offered tool");
    if tool.custom {
        assert!(mapped.arguments.is_string(), "{mapped:?}");
    } else {
        let validator = jsonschema::validator_for(&tool.schema).unwrap();
        assert!(validator.is_valid(&mapped.arguments), "{mapped:?} does not fit {}", tool.schema);
    }
    Some((mapped.name, mapped.arguments))
}

fn assert_calls(agent: &str, tools: &[OfferedTool], expected: [(&str, Value); 5]) {
    for (role, (name, arguments)) in [Read, Edit, Write, Run, Search].into_iter().zip(expected) {
        assert_eq!(call(role, tools), Some((name.to_owned(), arguments)), "{agent}: {role:?}");
    }
}

const UPDATE: &str =
    "*** Begin Patch\n*** Update File: a b.txt\n@@\n-one\n-two\n+it's\n*** End Patch\n";
const ADD: &str = "*** Begin Patch\n*** Add File: a b.txt\n+it's\n*** End Patch\n";

#[test]
fn table_is_valid() {
    let table: ToolTable = toml::from_str(include_str!("agent_tools.toml")).unwrap();
    for role in [Read, Edit, Write, Run, Search] {
        for row in &table.role[&role] {
            let names = row.values.keys().chain(row.optional.keys());
            let unknown: Vec<&String> =
                names.filter(|name| !table.property.contains_key(*name)).collect();
            assert!(unknown.is_empty(), "{role:?}: {unknown:?}");
            assert!(!row.names.is_empty() && (!row.values.is_empty() || row.input.is_some()));
        }
        assert_eq!(table.shell.contains_key(&role), role != Run);
    }
}

#[test]
fn roles_map_to_the_tools_of_claude_code() {
    let run = "cat 'a b.txt'";
    assert_calls(
        "Claude Code",
        &claude_code(),
        [
            ("Read", json!({"file_path": "a b.txt"})),
            (
                "Edit",
                json!({"file_path": "a b.txt", "old_string": "one\ntwo", "new_string": "it's"}),
            ),
            ("Write", json!({"file_path": "a b.txt", "content": "it's\n"})),
            ("Bash", json!({"command": run})),
            ("Bash", json!({"command": "grep -rn -e 'o.e' -- '.'"})),
        ],
    );
}

#[test]
fn roles_map_to_the_tools_of_codex() {
    let run = "cat 'a b.txt'";
    assert_calls(
        "Codex",
        &codex(),
        [
            ("exec_command", json!({"cmd": "cat -- 'a b.txt'"})),
            ("apply_patch", json!(UPDATE)),
            ("apply_patch", json!(ADD)),
            ("exec_command", json!({"cmd": run})),
            ("exec_command", json!({"cmd": "grep -rn -e 'o.e' -- '.'"})),
        ],
    );
    let shell = |command: &str| ("shell", json!({"command": ["bash", "-lc", command]}));
    let edit = "perl -0777 -i -pe 'BEGIN { ($old, $new) = splice @ARGV, 0, 2 }\n\
                $found += s/\\Q$old\\E/$new/; END { exit !$found }' -- \
                'one\ntwo' 'it'\\''s' 'a b.txt'";
    assert_calls(
        "Codex with a shell",
        &codex_with_shell(),
        [
            shell("cat -- 'a b.txt'"),
            shell(edit),
            shell("printf %s 'it'\\''s\n' > 'a b.txt'"),
            shell(run),
            shell("grep -rn -e 'o.e' -- '.'"),
        ],
    );
    let program = |command: &str| {
        let command = Value::from(command);
        let text = format!(
            "const result = await tools.exec_command({{cmd: {command}}}); text(result.output);"
        );
        ("exec", json!(text))
    };
    let patch =
        |text: &str| ("exec", json!(format!("text(await tools.apply_patch({}));", json!(text))));
    assert_calls(
        "Codex in code mode",
        &codex_code_mode(),
        [
            program("cat -- 'a b.txt'"),
            patch(UPDATE),
            patch(ADD),
            program(run),
            program("grep -rn -e 'o.e' -- '.'"),
        ],
    );
}

#[test]
fn roles_map_to_the_tools_of_gemini_cli() {
    let tools = gemini_cli();
    assert_eq!(
        call(ToolRole::Read, &tools),
        Some(("read_file".to_owned(), json!({"file_path": "a b.txt"})))
    );
    let (name, arguments) = call(ToolRole::Edit, &tools).unwrap();
    assert_eq!((name.as_str(), &arguments["old_string"]), ("replace", &json!("one\ntwo")));
    assert!(arguments["instruction"].is_string(), "a required argument without a value");
    assert_eq!(
        call(ToolRole::Write, &tools),
        Some(("write_file".to_owned(), json!({"file_path": "a b.txt", "content": "it's\n"})))
    );
    assert_eq!(
        call(ToolRole::Run, &tools),
        Some(("run_shell_command".to_owned(), json!({"command": "cat 'a b.txt'"})))
    );
    assert_eq!(
        call(ToolRole::Search, &tools),
        Some(("grep_search".to_owned(), json!({"pattern": "o.e", "dir_path": "."})))
    );
}

#[test]
fn roles_map_to_the_tools_of_opencode() {
    let run = "cat 'a b.txt'";
    assert_calls(
        "opencode",
        &opencode(),
        [
            ("read", json!({"filePath": "a b.txt"})),
            ("edit", json!({"filePath": "a b.txt", "oldString": "one\ntwo", "newString": "it's"})),
            ("write", json!({"filePath": "a b.txt", "content": "it's\n"})),
            ("bash", json!({"command": run})),
            ("grep", json!({"pattern": "o.e", "path": "."})),
        ],
    );
    assert_calls(
        "opencode with a GPT model",
        &opencode_with_gpt(),
        [
            ("read", json!({"filePath": "a b.txt"})),
            ("apply_patch", json!({"patchText": UPDATE})),
            ("apply_patch", json!({"patchText": ADD})),
            ("bash", json!({"command": run})),
            ("grep", json!({"pattern": "o.e", "path": "."})),
        ],
    );
}

#[test]
fn roles_map_to_tools_that_a_program_declares() {
    assert_calls(
        "AI SDK",
        &ai_sdk(),
        [
            ("readFile", json!({"path": "a b.txt"})),
            ("edit-file", json!({"path": "a b.txt", "search": "one\ntwo", "replace": "it's"})),
            ("writeFile", json!({"path": "a b.txt", "contents": "it's\n"})),
            ("runCommand", json!({"command": "cat 'a b.txt'"})),
            ("searchFiles", json!({"query": "o.e"})),
        ],
    );
}

#[test]
fn role_without_a_tool_maps_to_nothing() {
    assert_eq!(call(ToolRole::Run, &[]), None);
    assert_eq!(call(ToolRole::Read, &[tool("weather", strings(&["city"], &[]))]), None);
    // The name fits, but no property takes the path.
    assert_eq!(call(ToolRole::Read, &[tool("read", strings(&["url"], &[]))]), None);
}

#[test]
fn only_tools_without_side_effects_on_the_session_are_callable() {
    let called = |tools: Vec<OfferedTool>| -> Vec<String> {
        tools.into_iter().filter(is_callable).map(|tool| tool.name).collect()
    };
    assert_eq!(called(claude_code()), ["Bash", "Edit", "Read", "Write"]);
    assert!(!called(opencode()).contains(&"task".to_owned()));
    assert!(!called(gemini_cli()).contains(&"invoke_agent".to_owned()));
    let others = ["spawn_agent", "request_user_input", "weather", "agents_v1__spawn_agent"];
    let others = others.into_iter().chain(["home__weather", "weather__"]);
    let others = others.map(|name| tool(name, strings(&[], &[]))).collect();
    assert_eq!(called(others), ["weather", "home__weather", "weather__"]);
}
