//! Tests for parsing tool declarations and reporting errors in them.

use std::time::Duration;

use crate::http::{HttpBody, HttpConfig};
use crate::mcp::{Approval, Transport};

use super::ToolDeclarations;

fn variable(name: &str) -> Option<String> {
    match name {
        "KEY" => Some("sk-secret-value".to_owned()),
        "PATH" => Some("/usr/bin".to_owned()),
        _ => None,
    }
}

fn toml(text: &str) -> ToolDeclarations {
    ToolDeclarations::toml(text, &["model"], &variable).unwrap()
}

fn toml_error(text: &str) -> String {
    ToolDeclarations::toml(text, &["model"], &variable).unwrap_err().to_string()
}

const BOTH: &str = r#"
model = "sim/claude-sonnet-4-5"

[mcp.files]
command = "npx"
args = ["-y", "some-server", "${PATH}"]
env = { API_KEY = "${KEY}" }
directory = "/srv"
tools = ["read"]
approval = "destructive"
timeout = "2m"
start_timeout = 5
largest_answer = "64KiB"

[mcp.search]
url = "https://example.com/mcp"
headers = { Authorization = "Bearer ${KEY}" }

[http.weather]
description = "The weather of a city."
url = "https://api.example.com/weather/{city}"
query = ["days"]
headers = { X-Key = "${KEY}" }
errors = [404, "5xx"]

[http.note]
method = "POST"
url = "https://api.example.com/notes"
body = "{text}"
approval = "always"
schema = { type = "object", properties = { text = { type = "string", maxLength = 99 } }, required = ["text"] }
"#;

#[test]
fn both_kinds_of_tools_are_parsed() {
    let declared = toml(BOTH);
    let [files, search] = declared.mcp.as_slice() else { panic!("{declared:?}") };
    assert_eq!((&*files.name, &*search.name), ("files", "search"));
    let Transport::Process { command, args, env, usual, directory } = &files.reach else {
        panic!()
    };
    assert_eq!((command.as_str(), args[2].as_str()), ("npx", "/usr/bin"));
    assert_eq!((&*env[0].0, env[0].1.reveal()), ("API_KEY", "sk-secret-value"));
    assert_eq!((&*usual[0].0, &*usual[0].1, usual.len()), ("PATH", "/usr/bin", 1));
    assert_eq!(directory.as_deref(), Some(std::path::Path::new("/srv")));
    assert_eq!(files.only.as_deref(), Some(&["read".into()][..]));
    assert_eq!(files.approval, Approval::Destructive);
    assert_eq!(files.timeout, Duration::from_mins(2));
    assert_eq!(files.start_timeout, Duration::from_secs(5));
    assert_eq!(files.largest_answer, 65536);
    let Transport::Http { headers, .. } = &search.reach else { panic!() };
    assert_eq!(headers[0].1.reveal(), "Bearer sk-secret-value");
    let [weather, note] = declared.http.as_slice() else { panic!("{declared:?}") };
    assert_eq!((&*weather.method, weather.spec.idempotent), ("GET", true));
    assert_eq!(weather.errors, [404..=404, 500..=599]);
    assert_eq!((&*note.method, note.spec.idempotent), ("POST", false));
    assert_eq!(note.body, HttpBody::Argument("text".into()));
    assert!(note.spec.needs_approval);
    let schema = note.spec.schema.as_ref().unwrap().canonical();
    let expected = r#"{"properties":{"text":{"maxLength":99,"type":"string"}},"required":["text"],"type":"object"}"#;
    assert_eq!(schema, expected);
    assert!(!format!("{declared:?}").contains("sk-secret-value"));
}

#[test]
fn json_and_toml_are_equivalent() {
    let text = r#"{"http":{"weather":{"url":"https://example.com/{city}","timeout":"500ms"}},
        "mcp":{"files":{"command":"npx"}}}"#;
    let declared = ToolDeclarations::json(text, &[], &variable).unwrap();
    assert_eq!(declared.http[0].timeout, Duration::from_millis(500));
    assert_eq!(declared.mcp.len(), 1);
    let error =
        ToolDeclarations::json("{\"http\":\n {\"a\":{\"url\":7}}}", &[], &variable).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2:14: `url` must be a string: write url = \"https://example.com/{argument}\""
    );
    let error = ToolDeclarations::json("{\"http\":\n [}", &[], &variable).unwrap_err().to_string();
    assert!(error.starts_with("2:3: invalid JSON"), "{error}");
}

#[test]
fn errors_contain_position_and_remedy() {
    for (text, expected) in [
        ("[mpc.files]\n", "1:2: unknown key `mpc` at the top level; did you mean `mcp`?"),
        (
            "[mcp.files]\ncomand = \"npx\"\nurl = \"http://localhost/\"",
            "2:1: unknown key `comand` in [mcp.files]; did you mean `command`?",
        ),
        (
            "[mcp.files]\ncommand = \"npx\"\nurl = \"http://localhost/\"",
            "3:1: `url` cannot be combined with `command`: a server is a process or an HTTP endpoint",
        ),
        (
            "[mcp.files]\nargs = []",
            "1:6: [mcp.files] needs a `command` or a `url`: write command = \"npx\" for a process, or url = \"https://…\" \
             for an HTTP endpoint",
        ),
        (
            "[mcp.files]\ncommand = \"npx\"\napproval = \"allways\"",
            "3:12: `approval` must be one of never, destructive, always; did you mean `always`?",
        ),
        (
            "[mcp.files]\ncommand = \"npx\"\nenv = { A = \"${NOT_THERE}\" }",
            "3:13: the variable `NOT_THERE` is not set: set it, or write the value itself",
        ),
        (
            "[mcp.a]\nurl = \"http://169.254.169.254/\"",
            "2:7: `url` points to a blocked address: 169.254.169.254 is a link-local or cloud \
             metadata address",
        ),
        (
            "[http.a]\nurl = \"http://{host}/\"",
            "2:7: `url` may have arguments only in its path and query, not in its host",
        ),
        (
            "[http.a]\nmethod = \"GET\"",
            "1:7: [http.a] needs a `url`: write url = \"https://example.com/{argument}\"",
        ),
        (
            "[http.a]\nurl = \"http://localhost/\"\nerrors = [9]",
            "3:10: `errors` must be a list of statuses: write errors = [404, \"5xx\"]",
        ),
        (
            "[http.a]\nurl = \"http://localhost/\"\ntimeout = \"soon\"",
            "3:11: `timeout` must be a duration of at most one day: write timeout = \"30s\", \"500ms\" or \"5m\", or a number of seconds",
        ),
        (
            "[http.a]\nurl = \"http://localhost/\"\nheaders = { \"a b\" = \"x\" }",
            "3:11: `headers` contains the header `a b`, whose name or value is invalid",
        ),
    ] {
        assert_eq!(toml_error(text), expected);
    }
    let name = toml_error("[mcp.\"a b\"]\ncommand = \"npx\"");
    assert!(name.starts_with("1:6: the server name `a b` is invalid"), "{name}");
    let name = toml_error("[http.\"a b\"]\nurl = \"http://localhost/\"");
    assert!(name.starts_with("1:7: the tool name `a b` is invalid"), "{name}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let errors = toml_error("[mcp.a]\ncommand = 1\nargs = 2\n[http.b]\nurl = 3\nidempotent = 4\n");
    assert_eq!(errors.lines().count(), 4, "{errors}");
}

fn line(text: &str) -> ToolDeclarations {
    ToolDeclarations::line(text, &variable).unwrap()
}

#[test]
fn one_line_declarations_are_parsed() {
    let declared = line("mcp:/opt/bin/some-server --root 'my files' \"a b\"");
    let server = &declared.mcp[0];
    let Transport::Process { command, args, .. } = &server.reach else { panic!() };
    assert_eq!((&*server.name, command.as_str()), ("some-server", "/opt/bin/some-server"));
    assert_eq!(args, &["--root", "my files", "a b"]);
    let declared = line("mcp:files=npx -y x=1");
    let Transport::Process { args, .. } = &declared.mcp[0].reach else { panic!() };
    assert_eq!(
        (&*declared.mcp[0].name, args.as_slice()),
        ("files", &["-y".to_owned(), "x=1".to_owned()][..])
    );
    let declared = line("mcp:https://tools.example.com/mcp?key=${KEY}");
    assert_eq!(&*declared.mcp[0].name, "tools_example_com");
    assert!(!format!("{declared:?}").contains("sk-secret-value"));
    let http = |text| -> HttpConfig { line(text).http.remove(0) };
    let weather = http("http:weather=https://example.com/{city}?days={days}");
    assert_eq!((&*weather.spec.name, &*weather.method), ("weather", "GET"));
    let note = http("http:note=POST https://example.com/notes");
    assert_eq!((&*note.method, note.body), ("POST", HttpBody::Json));
}

#[test]
fn invalid_line_is_rejected_with_advice() {
    for (text, expected) in [
        ("weather", "the tool kind is missing"),
        ("mpc:npx", "did you mean `mcp:`?"),
        ("mcp:", "the server's command or URL is missing"),
        ("mcp:npx 'a", "the quote ' is not closed"),
        ("mcp:http://[fe80::1]/mcp", "is a link-local or cloud metadata address"),
        ("http:https://example.com/", "write http:NAME=URL"),
        ("http:weather=example.com", "the tool's url must begin with http://"),
        ("http:weather=GET http://169.254.169.254/", "is a link-local or cloud metadata address"),
    ] {
        let error = ToolDeclarations::line(text, &variable).unwrap_err().to_string();
        assert!(error.starts_with("1:1: ") && error.contains(expected), "{text}: {error}");
    }
}
