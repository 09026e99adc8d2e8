//! Tests of `throughline connect --run`, and of the checks before it and before `--write`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::support::home::{NO_GATEWAY, SECRET, TestHome, mode};
use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

/// A key that is not in the format of the gateway's own keys, which an open gateway accepts.
const OTHER_KEY: &str = "key-0123456789abcdef";

#[test]
fn run_passes_settings_and_returns_the_exit_code() {
    let home = TestHome::new("run");
    let gateway = GatewayProcess::start(&home.folder, &[], &[]);
    let url = format!("http://{}", gateway.address);
    let path = home.program("claude");
    let environment = [("PATH", &*path), ("ANTHROPIC_API_KEY", "sk-other")];
    let arguments =
        ["claude-code", "--url", &url, "--model", "fast", "--run", "--", "-p", "two words"];
    let output = home.run_with(&environment, &arguments);
    assert_eq!(output.code, 7, "{}", output.err);
    let arguments: Vec<&str> =
        output.out.lines().filter_map(|line| line.strip_prefix("argument: ")).collect();
    let [option, copy, rest @ ..] = &arguments[..] else { panic!("{}", output.out) };
    assert_eq!((*option, rest), ("--settings", &["-p", "two words"][..]));
    for line in [&*format!("ANTHROPIC_BASE_URL={url}"), "ANTHROPIC_MODEL=fast"] {
        assert!(output.out.lines().any(|other| other == line), "{line}: {}", output.out);
    }
    assert!(!output.out.contains("sk-other"), "the vendor's key is removed");
    let copy = Path::new(copy);
    assert_eq!(mode(copy), 0o600);
    let settings: Value = serde_json::from_slice(&std::fs::read(copy).unwrap()).unwrap();
    let expected = json!({
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "any",
        "ANTHROPIC_MODEL": "fast",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "fast",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "ANTHROPIC_API_KEY": "",
        "CLAUDE_CODE_USE_BEDROCK": "",
        "CLAUDE_CODE_USE_VERTEX": "",
        "CLAUDE_CODE_USE_FOUNDRY": "",
    });
    assert_eq!(settings, json!({ "env": expected }));

    let path = home.program("codex");
    let arguments = ["codex", "--url", &url, "--key", OTHER_KEY, "--run", "--", "exec", "hi"];
    let output = home.run_with(&[("PATH", &*path)], &arguments);
    assert_eq!(output.code, 7, "{}", output.err);
    let base = format!("argument: model_providers.throughline.base_url=\"{url}/v1\"\n");
    assert!(output.out.contains(&base), "{}", output.out);
    let key = "argument: model_providers.throughline.env_key=\"THROUGHLINE_KEY\"\n";
    assert!(output.out.contains(key), "{}", output.out);
    assert!(output.out.contains("argument: exec\nargument: hi\n"), "{}", output.out);
    assert_eq!(output.out.matches(OTHER_KEY).count(), 1, "the key is only in the environment");
    assert!(output.out.contains(&format!("THROUGHLINE_KEY={OTHER_KEY}\n")));

    let path = home.program("opencode");
    let output = home.run_with(&[("PATH", &*path)], &["opencode", "--url", &url, "--run"]);
    assert_eq!(output.code, 7, "{}", output.err);
    assert!(output.out.contains("OPENCODE_CONFIG_CONTENT={"), "{}", output.out);

    let path = home.program("gemini");
    let data = home.path("data");
    let environment = [("PATH", &*path), ("XDG_DATA_HOME", data.to_str().unwrap())];
    let output = home.run_with(&environment, &["gemini-cli", "--url", &url, "--run"]);
    assert_eq!(output.code, 7, "{}", output.err);
    let folder = home.path("data/throughline/connect/gemini-cli");
    assert!(output.out.contains(&format!("GEMINI_CLI_HOME={}\n", folder.display())));
    assert!(output.err.contains("lacks settings"), "{}", output.err);
    let settings = std::fs::read_to_string(folder.join(".gemini/settings.json")).unwrap();
    assert!(settings.contains("gemini-api-key"), "{settings}");
    home.write(".gemini/settings.json", settings.as_bytes());
    let arguments = ["gemini-cli", "--url", &url, "--model", "fast", "--run"];
    let output = home.run_with(&environment, &arguments);
    assert_eq!((output.code, output.err.as_str()), (7, ""));
    assert!(!output.out.contains("data/throughline"), "the client's own folder is used");

    let path = home.program("app");
    let arguments = ["openai-python", "--url", &url, "--run", "--", "app", "x"];
    let output = home.run_with(&[("PATH", &*path)], &arguments);
    assert_eq!(output.code, 7, "{}", output.err);
    assert!(output.out.contains(&format!("OPENAI_BASE_URL={url}/v1\n")), "{}", output.out);
}

#[test]
fn run_explains_what_is_missing() {
    let home = TestHome::new("missing");
    let gateway = GatewayProcess::start(&home.folder, &[], &[]);
    let url = format!("http://{}", gateway.address);
    let path = home.folder.to_str().unwrap();
    let output = home.run_with(&[("PATH", path)], &["codex", "--url", &url, "--run"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("npm install -g @openai/codex"), "{}", output.err);
    let output = home.run(&["zed", "--url", &url, "--run"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("run `throughline connect zed --write` first"), "{}", output.err);
    let output = home.run(&["ai-sdk", "--url", &url, "--run"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("name the program that uses it"), "{}", output.err);
    let twice = ["claude-code", "--url", &url, "--run", "--", "--settings=mine.json"];
    let output = home.run(&twice);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("remove --settings from the arguments"), "{}", output.err);
    let output = home.run(&["ai-sdk", "--write"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("--print"), "{}", output.err);
    drop(gateway);
    let output = home.run(&["codex", "--url", &url, "--run"]);
    assert_eq!(output.code, 1);
    assert!(output.err.contains("`throughline serve`"), "{}", output.err);
}

#[test]
fn refused_key_fails_before_a_file_or_a_client_is_touched() {
    let home = TestHome::new("refused");
    let store = TestStore::without_database("connect-refused");
    let created = store.json(&["keys", "create"]);
    let key = created["key"].as_str().unwrap();
    let gateway = GatewayProcess::start(&store.folder, &[], &[]);
    let url = format!("http://{}", gateway.address);
    let path = home.program("codex");
    for (environment, options, expected) in [
        (&[][..], &[][..], "requires an API key: create one with `throughline keys create`"),
        (&[("THROUGHLINE_KEY", SECRET)], &[], "refuses the key in THROUGHLINE_KEY"),
        (&[], &["--key", SECRET], "refuses the key in --key"),
    ] {
        for action in ["--run", "--write"] {
            let environment = [&[("PATH", &*path)], environment].concat();
            let arguments = [&["codex", "--url", &url, action], options].concat();
            let output = home.run_with(&environment, &arguments);
            assert_eq!((output.code, output.out.as_str()), (1, ""), "{action}: {}", output.err);
            assert!(output.err.contains(expected), "{action}: {}", output.err);
            assert!(!output.err.contains(SECRET), "{action}: {}", output.err);
        }
    }
    assert_eq!(home.files(), ["bin/codex"], "nothing was written");
    let environment = [("PATH", &*path), ("THROUGHLINE_KEY", key)];
    let output = home.run_with(&environment, &["codex", "--url", &url, "--run"]);
    assert_eq!(output.code, 7, "{}", output.err);
    let output = home.run_with(&environment, &["codex", "--url", &url, "--write"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(!output.err.contains("warning"), "{}", output.err);
}

/// Answers every request with status 404.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut buffer = [0; 4096];
            // The request has no body and fits into the buffer.
            drop(connection.read(&mut buffer));
            let response =
                "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            drop(connection.write_all(response.as_bytes()));
        }
    });
    format!("http://{address}")
}

#[test]
fn missing_gateway_fails_a_run_and_warns_after_a_write() {
    let home = TestHome::new("unavailable");
    let path = home.program("codex");
    let web_server = web_server();
    for (url, expected) in [
        (NO_GATEWAY, "no gateway answers at http://127.0.0.1:1 "),
        (&*web_server, "/v1/models returned status 404"),
    ] {
        let output = home.run_with(&[("PATH", &*path)], &["codex", "--url", url, "--run"]);
        assert_eq!((output.code, output.out.as_str()), (1, ""), "{}", output.err);
        assert!(output.err.contains(expected), "{}", output.err);
        let output = home.run(&["codex", "--url", url, "--write"]);
        assert_eq!(output.code, 0, "{}", output.err);
        assert!(
            output.err.contains("warning: ") && output.err.contains(expected),
            "{}",
            output.err
        );
        assert!(home.read(".codex/config.toml").contains(url));
    }
}

#[test]
fn write_warns_about_variables_that_defeat_it() {
    let home = TestHome::new("variables");
    for (client, variable, value, effect) in [
        ("claude-code", "CLAUDE_CODE_USE_BEDROCK", "1", "uses Amazon Bedrock, not the gateway"),
        ("claude-code", "CLAUDE_CODE_USE_VERTEX", "true", "uses Vertex AI, not the gateway"),
        ("claude-code", "ANTHROPIC_API_KEY", SECRET, "sends this key to the gateway too"),
        ("gemini-cli", "GEMINI_API_KEY", SECRET, "takes precedence over ~/.gemini/.env"),
        ("gemini-cli", "GOOGLE_GENAI_USE_VERTEXAI", "true", "uses Vertex AI, not the gateway"),
        ("opencode", "OPENCODE_CONFIG", "other.json", "overrides the settings"),
    ] {
        let output = home.run_with(&[(variable, value)], &[client, "--write"]);
        assert_eq!(output.code, 0, "{}", output.err);
        let is_named = |line: &&str| line.contains(variable) && line.contains(effect);
        let warning = output.err.lines().find(is_named);
        let warning = warning.unwrap_or_else(|| panic!("{variable}: {}", output.err));
        let advice = format!("`throughline connect {client} --run`");
        assert!(warning.contains("unset it") && warning.contains(&advice), "{warning}");
        assert!(!output.err.contains(SECRET), "{}", output.err);
    }
    // The settings file of Claude Code takes precedence over these variables.
    let harmless = [
        ("CLAUDE_CODE_USE_BEDROCK", "0"),
        ("ANTHROPIC_MODEL", "other"),
        ("ANTHROPIC_AUTH_TOKEN", "other"),
    ];
    let output = home.run_with(&harmless, &["claude-code", "--write"]);
    assert_eq!(output.err.matches("warning:").count(), 1, "{}", output.err);
    assert!(output.err.contains("no gateway answers"), "{}", output.err);
}

#[test]
fn write_warns_about_settings_that_defeat_it() {
    let home = TestHome::new("settings");
    home.write(".claude/settings.json", br#"{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}"#);
    home.write("project/.claude/settings.json", br#"{"env": {"CLAUDE_CODE_USE_VERTEX": "1"}}"#);
    let local = b"{\n  // mine\n  \"env\": {\"ANTHROPIC_MODEL\": \"mine\",},\n}";
    home.write("project/.claude/settings.local.json", local);
    home.write("project/.codex/config.toml", b"model = \"mine\"\n");
    home.write("project/.env", b"PORT=1\n");
    home.write("project/opencode.json", br#"{"theme": "x"}"#);
    for (client, expected) in [
        (
            "claude-code",
            &[
                "~/.claude/settings.json sets `env.CLAUDE_CODE_USE_BEDROCK`, so Claude Code uses \
                 Amazon Bedrock, not the gateway: remove it",
                ".claude/settings.local.json in the current folder sets `env.ANTHROPIC_MODEL`, \
                 which takes precedence over ~/.claude/settings.json",
                ".claude/settings.json in the current folder sets `env.CLAUDE_CODE_USE_VERTEX`, so",
            ][..],
        ),
        ("codex", &[".codex/config.toml in the current folder sets `model`, which"]),
        ("gemini-cli", &[".env in the current folder makes Gemini CLI ignore ~/.gemini/.env"]),
        ("opencode", &[]),
    ] {
        let output = home.run_in("project", &[], &[client, "--write"]);
        assert_eq!(output.code, 0, "{}", output.err);
        for warning in expected {
            assert!(output.err.contains(warning), "{warning:?} is not in\n{}", output.err);
        }
        let count = output.err.matches("warning:").count();
        assert_eq!(count, expected.len() + 1, "{}", output.err);
    }
}
