//! Tests of the gateway configuration: where it is found, which problems are reported, and that
//! secrets are never printed.

use std::path::{Path, PathBuf};

use serde_json::Value;
use throughline_testkit::workspace_root;

use crate::support::{CommandOutput, scratch, throughline_with};

/// A secret that must not appear in any output, not even in part.
const CANARY: &str = "c4n4ryKey0123456789";

const FILE: &str = r#"[server]
listen = "127.0.0.1:4500"
[store]
url = "postgres://me:c4n4ryKey0123456789@db/threads?password=c4n4ryKey0123456789"
master_key_env = "WORK_MASTER"
[providers.work-claude]
kind = "anthropic"
api_key = "sk-c4n4ryKey0123456789"
models = ["claude-*"]
[providers.proxy]
kind = "openai"
base_url = "https://proxy.example/v1"
api_key_env = "WORK_KEY"
[[routes]]
model = "fast"
targets = ["proxy/gpt-5", "work-claude/claude-sonnet-5", "sim/gpt-5"]
[prices."gpt-5*"]
input = 1.25
output = 10
"#;

/// A home and working directory without any configuration.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = scratch(&format!("config-{name}"));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(folder.join("here")).unwrap();
        Self(folder)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let file = self.0.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    fn run_with(&self, environment: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
        let home = self.0.display().to_string();
        let data = self.0.join("data").display().to_string();
        let usual = [("HOME", home.as_str()), ("XDG_DATA_HOME", &data), ("XDG_CONFIG_HOME", "")];
        let all = [&usual[..], environment].concat();
        throughline_with(&all, &self.0.join("here"), arguments, b"")
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(&[], arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{arguments:?}");
        serde_json::from_str(&output.out).unwrap()
    }
}

/// Returns the value and the source that `config show` prints for a key.
fn value(shown: &Value, key: &str) -> (String, String) {
    let all = shown["values"].as_array().unwrap();
    let entry = all.iter().find(|entry| entry["key"] == key).unwrap();
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    (text("value"), text("from"))
}

/// Returns the path of a file in the user's configuration directory on this operating system.
fn user_config_path(name: &str) -> String {
    let folder = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
    format!("{folder}/throughline/{name}")
}

#[test]
fn defaults_apply_without_a_file() {
    let folder = Folder::new("first");
    let output = folder.run(&["config", "check"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    assert_eq!(
        output.out,
        "✓ there is no throughline.toml here nor in your configuration directory; all values are \
         defaults\n"
    );
    let shown = folder.json(&["config", "show"]);
    assert_eq!(shown["file"], Value::Null);
    assert_eq!(value(&shown, "server.listen"), ("127.0.0.1:4400".into(), "default".into()));
    let file = folder.0.join("data/throughline/throughline.db");
    let url = format!("sqlite://{}", file.display());
    assert_eq!(value(&shown, "store.url"), (url, "default".into()));
    let output = folder.run(&["config", "show"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.out.starts_with("no throughline.toml: all values are defaults\n"),
        "{}",
        output.out
    );
    assert!(output.out.contains("sim       "), "{}", output.out);
    assert!(!file.exists(), "showing creates no store");
}

#[test]
fn config_file_is_found_by_option_then_cwd_then_home() {
    let folder = Folder::new("found");
    let listen = |port: &str| format!("[server]\nlisten = \"127.0.0.1:{port}\"\n");
    let port = |output: CommandOutput| {
        assert_eq!(output.code, 0, "{}", output.err);
        let shown: Value = serde_json::from_str(&output.out).unwrap();
        let (listen, from) = value(&shown, "server.listen");
        assert_eq!(from, "line 2");
        listen.rsplit(':').next().unwrap().to_owned()
    };
    let show = ["config", "show", "--format", "json"];
    folder.write(&user_config_path("throughline.toml"), &listen("1"));
    assert_eq!(port(folder.run(&show)), "1");
    folder.write("xdg/throughline/throughline.toml", &listen("2"));
    let xdg = folder.0.join("xdg").display().to_string();
    let environment = [("XDG_CONFIG_HOME", xdg.as_str())];
    assert_eq!(port(folder.run_with(&environment, &show)), "2");
    folder.write("here/throughline.toml", &listen("3"));
    assert_eq!(port(folder.run_with(&environment, &show)), "3");
    folder.write("here/other.toml", &listen("4"));
    let option = [&show[..], &["--config", "other.toml"]].concat();
    assert_eq!(port(folder.run_with(&environment, &option)), "4");
}

#[test]
fn errors_have_a_position_and_exit_code() {
    let folder = Folder::new("errors");
    folder.write("here/throughline.toml", "[server]\nlisen = 1\n[gateway]\nreplay = \"x\"\n");
    let output = folder.run(&["config", "check"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""));
    assert_eq!(
        output.out,
        "error: throughline.toml:2:1: unknown key `lisen` in [server]; did you mean `listen`?\n\
         error: throughline.toml:4:10: `replay` must be one of observe, repair, enforce, off\n\
         ✗ throughline.toml has 2 errors\n"
    );
    let output = folder.run(&["config", "check", "--format", "json"]);
    assert_eq!(output.code, 1);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["verdict"], "wrong");
    assert_eq!(report["errors"][1]["line"], 4);
    assert_eq!(report["errors"][1]["column"], 10);
    // Other commands report the same errors as `config check`.
    for arguments in [&["config", "show"][..], &["threads"], &["keys", "list"]] {
        let output = folder.run(arguments);
        assert_eq!((output.code, output.out.as_str()), (65, ""), "{arguments:?}");
        assert!(output.err.starts_with("error: throughline.toml:2:1: unknown key `lisen`"));
    }
}

#[test]
fn warnings_keep_exit_code_zero() {
    let folder = Folder::new("warnings");
    folder.write("here/throughline.toml", "[providers.xai]\napi_key_env = \"NO_KEY\"\n");
    let output = folder.run(&["config", "check"]);
    assert_eq!(output.code, 0);
    assert_eq!(
        output.out,
        "warning: throughline.toml:2:15: $NO_KEY is not set; this provider cannot be used without \
         it\n✓ throughline.toml is valid\n"
    );
}

#[test]
fn unreadable_files_are_named() {
    let folder = Folder::new("unreadable");
    for arguments in [["config", "check"], ["config", "show"], ["keys", "list"]] {
        let output = folder.run(&[&arguments[..], &["--config", "missing.toml"]].concat());
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{arguments:?}");
        let expected = "error: cannot read the configuration missing.toml: ";
        assert!(output.err.starts_with(expected), "{}", output.err);
        let remedy = "; create the file, or name another file with --config\n";
        assert!(output.err.ends_with(remedy), "{}", output.err);
    }
    // An unreadable file is an error, not a missing file.
    std::fs::create_dir(folder.0.join("here/throughline.toml")).unwrap();
    let output = folder.run(&["config", "check"]);
    assert_eq!(output.code, 2);
    let expected = "error: cannot read the configuration throughline.toml: ";
    assert!(output.err.starts_with(expected), "{}", output.err);
    assert!(output.err.contains("this is a folder: name a file"), "{}", output.err);
    let bytes = folder.0.join("here/bytes.toml");
    std::fs::write(&bytes, b"[server]\n\xff").unwrap();
    assert_eq!(folder.run(&["config", "check", "--config", "bytes.toml"]).code, 2);
}

#[test]
fn invalid_flags_are_usage_errors() {
    let folder = Folder::new("flags");
    for arguments in [
        &["config"][..],
        &["config", "check", "--confg", "x"],
        &["config", "show", "--model", ""],
        &["config", "chek"],
        &["keys"],
        &["keys", "create", "--rate", "60"],
        &["keys", "create", "--rate", "0/min"],
        &["keys", "create", "--budget-usd", "-1"],
        &["keys", "create", "--budget-usd", "nan"],
        &["keys", "create", "--budget-tokens", "many"],
        &["check", "--timeout", "abc"],
        &["keys", "revoke"],
    ] {
        let output = folder.run(arguments);
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{arguments:?}");
        assert!(!output.err.is_empty());
    }
}

#[test]
fn secrets_are_never_printed_even_in_part() {
    let folder = Folder::new("secrets");
    folder.write("here/throughline.toml", FILE);
    // A secret in the wrong setting is not printed either.
    let misplaced = [
        format!("[providers.a]\nkind = \"openai\"\napi_key_env = \"{CANARY}\"\n"),
        format!("[providers.a]\nkind = \"openai\"\napi_key_env = \"sk-{CANARY}\"\n"),
        format!("[providers.a]\nkind = \"openai\"\nbase_url = \"https://u:{CANARY}@h\"\n"),
        format!("[providers.a]\nkind = \"openai\"\napi_key = {CANARY}\n"),
        format!("[providers.a]\nkind = \"openai\"\napi_key = [\"{CANARY}\"]\n"),
        format!("[providers.a]\nkind = \"openai\"\napikey = \"{CANARY}\"\n"),
        format!("[store]\nurl = \"{CANARY}\"\n"),
        format!("[store]\nmaster_key_env = \"{CANARY}\"\n"),
    ];
    for (number, text) in misplaced.iter().enumerate() {
        folder.write(&format!("here/{number}.toml"), text);
    }
    let files = (0..misplaced.len()).map(|number| format!("{number}.toml"));
    let files: Vec<String> = files.chain(["throughline.toml".to_owned()]).collect();
    let environment = [
        ("WORK_KEY", CANARY),
        ("WORK_MASTER", CANARY),
        ("ANTHROPIC_API_KEY", CANARY),
        ("THROUGHLINE_MASTER_KEY", CANARY),
        ("AWS_ACCESS_KEY_ID", CANARY),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
        ("AWS_SESSION_TOKEN", CANARY),
        ("AZURE_OPENAI_ENDPOINT", "https://me:c4n4ryKey0123456789@h"),
        ("OLLAMA_HOST", "https://h/?key=c4n4ryKey0123456789"),
    ];
    let database_url = format!("postgres://me:{CANARY}@localhost:1/x?password={CANARY}");
    let with_store = [&environment[..], &[("THROUGHLINE_STORE", database_url.as_str())]].concat();
    let mut printed = 0;
    for environment in [&[][..], &environment, &with_store] {
        for file in &files {
            for arguments in [
                &["config", "check"][..],
                &["config", "check", "--format", "json"],
                &["config", "show"],
                &["config", "show", "--format", "json"],
                &["config", "show", "--model", "fast"],
                &["config", "show", "--model", "fast", "--format", "json"],
                &["keys", "list"],
            ] {
                let output =
                    folder.run_with(environment, &[arguments, &["--config", file]].concat());
                printed += output.out.len() + output.err.len();
                for part in [CANARY, "c4n4", "6789"] {
                    let text = [output.out.as_str(), &output.err].concat();
                    assert!(!text.contains(part), "{arguments:?} of {file} printed {text}");
                }
            }
        }
    }
    assert!(printed > 10_000, "the commands printed something");
}

#[test]
fn show_prints_values_with_their_sources() {
    let folder = Folder::new("shown");
    folder.write("here/throughline.toml", FILE);
    let environment = [("WORK_KEY", CANARY), ("GEMINI_API_KEY", CANARY)];
    let output = folder.run_with(&environment, &["config", "show"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("config", output.out.trim_end()));

    let shown = folder.json(&["config", "show"]);
    let url = ("postgres://me@db/threads?…".into(), "line 4".into());
    assert_eq!(value(&shown, "store.url"), url);
    let key = |name: &str| {
        let all = shown["providers"].as_array().unwrap();
        all.iter().find(|provider| provider["name"] == name).unwrap()["key"].clone()
    };
    assert_eq!(key("work-claude"), "…");
    assert_eq!(key("proxy"), "$WORK_KEY is not set");
    assert_eq!(key("openai"), "the caller's");
}

#[test]
fn plain_reasoning_setting_is_shown_and_checked() {
    let folder = Folder::new("plain");
    let text = "[providers.deepseek]\nreplay_plain = \"never\"\n";
    folder.write("here/throughline.toml", text);
    assert_eq!(folder.run(&["config", "check"]).code, 0);
    let shown = folder.json(&["config", "show"]);
    let setting = value(&shown, "providers.deepseek.replay_plain");
    assert_eq!(setting, ("never".into(), "line 2".into()));
    let all = shown["providers"].as_array().unwrap();
    let of = |name| all.iter().find(|row| row["name"] == name).unwrap()["replay_plain"].clone();
    assert_eq!((of("deepseek"), of("moonshot")), ("never".into(), "auto".into()));
    folder.write("here/throughline.toml", &text.replace("never", "sometimes"));
    let checked = folder.run(&["config", "check"]);
    assert_eq!(checked.code, 1);
    let problem = "2:16: `replay_plain` must be one of auto, always, never";
    assert!(checked.out.contains(problem), "{}", checked.out);
}

#[test]
fn accepted_tags_are_shown_and_checked() {
    let folder = Folder::new("tags");
    let text = "[providers.mine]\nkind = \"anthropic\"\naccepted_tags = [\"one\", \"two\"]\n";
    folder.write("here/throughline.toml", text);
    let shown = folder.json(&["config", "show"]);
    let setting = value(&shown, "providers.mine.accepted_tags");
    assert_eq!(setting, ("one, two".into(), "line 3".into()));
    let all = shown["providers"].as_array().unwrap();
    let mine = all.iter().find(|row| row["name"] == "mine").unwrap();
    assert_eq!(mine["accepted_tags"], serde_json::json!(["one", "two"]));
    folder.write("here/throughline.toml", &text.replace("\"one\"", "\"\""));
    let checked = folder.run(&["config", "check"]);
    assert_eq!(checked.code, 1);
    let problem = "3:18: `accepted_tags` must not contain an empty tag";
    assert!(checked.out.contains(problem), "{}", checked.out);
}

#[test]
fn pool_is_shown_without_keys() {
    let folder = Folder::new("pool");
    let text = format!(
        "[providers.openai]\nbalance = \"least-busy\"\npool = [\n\
         {{ name = \"a\", api_key_env = \"KEY_A\", weight = 2 }},\n\
         {{ name = \"b\", api_key = \"{CANARY}\" }},\n]\n"
    );
    folder.write("here/throughline.toml", &text);
    let environment = [("KEY_A", CANARY)];
    let output = folder.run_with(&environment, &["config", "show", "--format", "json"]);
    let shown: Value = serde_json::from_str(&output.out).unwrap();
    let balance = value(&shown, "providers.openai.balance");
    assert_eq!(balance, ("least-busy".into(), "line 2".into()));
    let all = shown["providers"].as_array().unwrap();
    let openai = all.iter().find(|provider| provider["name"] == "openai").unwrap();
    let accounts = serde_json::json!([
        { "name": "a", "key": "$KEY_A", "weight": 2 },
        { "name": "b", "key": "…", "weight": 1 },
    ]);
    assert_eq!(openai["pool"]["accounts"], accounts);
    let text = folder.run_with(&environment, &["config", "show"]);
    assert!(text.out.contains("a: $KEY_A, weight 2; b: …, weight 1"), "{}", text.out);
    for printed in [&output.out, &output.err, &text.out, &text.err] {
        assert!(!printed.contains(CANARY), "{printed}");
    }
    // Without the variable, the account is not used, and the file is still valid.
    let checked = folder.run(&["config", "check"]);
    assert_eq!(checked.code, 0);
    let warning = "4:29: $KEY_A is not set; this account cannot be used without it";
    assert!(checked.out.contains(warning), "{}", checked.out);
}

#[test]
fn usual_variables_are_shown_by_name() {
    let folder = Folder::new("usual");
    let environment = [
        ("AWS_ACCESS_KEY_ID", CANARY),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
        ("AWS_REGION", "eu-west-1"),
        ("OLLAMA_HOST", "box"),
        ("AZURE_OPENAI_ENDPOINT", "nonsense"),
    ];
    let output = folder.run_with(&environment, &["config", "show", "--format", "json"]);
    let shown: Value = serde_json::from_str(&output.out).unwrap();
    let provider_row = |name: &str| {
        let all = shown["providers"].as_array().unwrap();
        let provider = all.iter().find(|provider| provider["name"] == name).unwrap();
        ["address", "key", "from"].map(|field| provider[field].as_str().unwrap().to_owned())
    };
    let bedrock = "https://bedrock-runtime.eu-west-1.amazonaws.com";
    assert_eq!(
        provider_row("bedrock"),
        [bedrock, "$AWS_ACCESS_KEY_ID for eu-west-1", "$AWS_REGION"]
    );
    let ollama = ["http://box:11434/v1", "the caller's, or none", "$OLLAMA_HOST"];
    assert_eq!(provider_row("ollama"), ollama);
    assert_eq!(provider_row("vllm")[1..], ["the caller's, or none", "built in"]);
    let output = folder.run_with(&environment, &["config", "check"]);
    assert_eq!(output.code, 0);
    let expected = "warning: $AZURE_OPENAI_ENDPOINT is ignored: the base URL is malformed\n✓ ";
    assert!(output.out.starts_with(expected), "{}", output.out);
    let output = folder.run_with(&environment, &["config", "check", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["unheard"][0]["variable"], "AZURE_OPENAI_ENDPOINT");
}

#[test]
fn environment_overrides_the_file() {
    let folder = Folder::new("environment");
    folder.write("here/throughline.toml", "[store]\nurl = \"sqlite://file.db\"\n");
    let show = ["config", "show", "--format", "json"];
    let output = folder.run_with(&[("THROUGHLINE_STORE", "sqlite://other.db")], &show);
    let shown: Value = serde_json::from_str(&output.out).unwrap();
    let expected = ("sqlite://other.db".into(), "$THROUGHLINE_STORE".into());
    assert_eq!(value(&shown, "store.url"), expected);
}

#[test]
fn show_model_lists_its_targets() {
    let folder = Folder::new("model");
    folder.write("here/throughline.toml", FILE);
    let output = folder.run(&["config", "show", "--model", "fast"]);
    assert_eq!(
        output.out,
        "1. proxy/gpt-5  openai-responses at https://proxy.example/v1, key: $WORK_KEY is not set, \
         $1.25 in and $10.00 out\n\
         2. work-claude/claude-sonnet-5  anthropic-messages at https://api.anthropic.com, key: …, \
         $2.00 in and $10.00 out\n\
         3. sim/gpt-5  openai-responses at built in, key: none, $0.00 in and $0.00 out\n"
    );
    let report = folder.json(&["config", "show", "--model", "claude-x"]);
    assert_eq!(report["targets"][0]["provider"], "work-claude");
    let output = folder.run(&["config", "show", "--model", "fats"]);
    assert_eq!(output.code, 2);
    assert_eq!(output.err, "error: there is no model `fats`; did you mean `fast`?\n");
}

#[test]
fn documented_example_is_valid_and_every_key_documented() {
    let page = std::fs::read_to_string(workspace_root().join("docs/configuration.md")).unwrap();
    let (_, rest) = page.split_once("```toml,config\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let folder = Folder::new("documented");
    folder.write("here/throughline.toml", example);
    let output = folder.run_with(&[("WORK_KEY", CANARY)], &["config", "check"]);
    assert_eq!((output.code, output.out.as_str()), (0, "✓ throughline.toml is valid\n"));
    let shown = folder.json(&["config", "show"]);
    for entry in shown["values"].as_array().unwrap() {
        let key = entry["key"].as_str().unwrap().rsplit('.').next().unwrap();
        assert!(page.contains(&format!("| `{key}` |")), "{key} is not documented");
    }
    for provider in shown["providers"].as_array().unwrap() {
        for pattern in provider["models"].as_array().unwrap() {
            let pattern = pattern.as_str().unwrap();
            assert!(
                page.contains(&format!("`{pattern}`")) || example.contains(pattern),
                "{pattern}"
            );
        }
    }
}

#[test]
fn store_commands_use_the_config_file() {
    let folder = Folder::new("store");
    let master = "5f".repeat(32);
    folder.write(
        "here/throughline.toml",
        "[store]\nurl = \"sqlite://mine.db\"\nmaster_key_env = \"WORK_MASTER\"\n",
    );
    let output = folder.run(&["keys", "create"]);
    assert_eq!(output.code, 2);
    assert_eq!(
        output.err,
        "error: $WORK_MASTER is not set, but `master_key_env` in the configuration names this \
         variable: set the variable, or pass the key with --master-key-file\n"
    );
    let environment = [("WORK_MASTER", master.as_str())];
    assert_eq!(folder.run_with(&environment, &["keys", "create"]).code, 0);
    assert!(Path::new(&folder.0.join("here/mine.db")).exists());
    let output = folder.run_with(&environment, &["stats"]);
    assert!(output.out.starts_with("sqlite://mine.db"), "{}{}", output.out, output.err);
    // The configured master key applies only to the configured store.
    let output = folder.run_with(&environment, &["keys", "create", "--store", "sqlite://plain.db"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(folder.run(&["keys", "list", "--store", "sqlite://plain.db"]).code, 0);
    assert_eq!(folder.run(&["keys", "list", "--store", "sqlite://mine.db"]).code, 69);
}
