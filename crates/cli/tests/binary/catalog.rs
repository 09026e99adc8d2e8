//! Tests of installed catalogs: signing, checking and installing files, and their effect on the
//! gateway, the simulators and the doctor commands.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use throughline_codec::Catalog;

use crate::support::serving::{GatewayProcess, send_request};
use crate::support::{CommandOutput, scratch, throughline_with, without_keys};

/// The built-in row of this model does not accept `adaptive`.
const REQUEST: &str = r#"{"model":"sim/claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"Hello"}]}"#;

/// A row for the same models that accepts only `adaptive`.
const ADAPTIVE: &str = r#"[[profile]]
name = "claude-4.5"
models = ["*claude-sonnet-4-5*"]
vendor = "anthropic"
modes = ["adaptive", "disabled"]
efforts = ["low", "medium", "high"]
contract = "required_with_tools"
reads = ["claude*"]
bound = { model = true }
"#;

/// A directory with a configuration that trusts one key, and catalog files.
struct CatalogFolder {
    folder: PathBuf,
    public_key: String,
}

impl CatalogFolder {
    fn new(name: &str) -> Self {
        let folder = scratch(&format!("catalog-{name}"));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        let mut folder = Self { folder, public_key: String::new() };
        folder.write("own.key", &"3c".repeat(32));
        folder.write("other.key", &"a5".repeat(32));
        folder.write("draft.toml", "[catalog]\nversion = \"2027-01-01\"\n");
        let signed = folder.json(&["catalog", "sign", "draft.toml", "--key", "own.key"]);
        signed["public_key"].as_str().unwrap().clone_into(&mut folder.public_key);
        folder.write_config("");
        folder
    }

    fn write_config(&self, more: &str) {
        let key = &self.public_key;
        let catalog = format!("[catalog]\nfile = \"installed.toml\"\ntrusted_keys = [\"{key}\"]\n");
        self.write("throughline.toml", &format!("{catalog}{more}"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes a signed catalog file.
    fn sign(&self, name: &str, version: &str, rows: &str, key: &str) {
        self.write(name, &format!("[catalog]\nversion = \"{version}\"\n\n{rows}"));
        let output = self.run(&["catalog", "sign", name, "--key", key]);
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let home = self.folder.display().to_string();
        let environment =
            [("HOME", home.as_str()), ("XDG_DATA_HOME", &home), ("XDG_CONFIG_HOME", &home)];
        throughline_with(&environment, &self.folder, arguments, b"")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{arguments:?}");
        serde_json::from_str(&output.out).unwrap()
    }

    /// Asserts that a file is refused with an error, and that the installed file does not change.
    fn assert_refused(&self, name: &str, error: &str) {
        let installed = || std::fs::read(self.path("installed.toml")).ok();
        let before = installed();
        let output = self.run(&["catalog", "update", name]);
        assert_eq!((output.code, output.out.as_str()), (65, ""), "{name}: {}", output.err);
        assert!(output.err.contains(error), "{name}: {}", output.err);
        assert_eq!(installed(), before, "{name}");
    }
}

/// Repeats a check for up to a minute until its result contains a text.
fn wait_for(expected: &str, check: impl Fn() -> String) {
    let mut last = String::new();
    for _ in 0..600 {
        last = check();
        if last.contains(expected) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no {expected} in: {last}");
}

#[test]
fn update_changes_a_profile_in_a_running_gateway() {
    let folder = CatalogFolder::new("gateway");
    folder.write_config("[gateway]\nreplay = \"enforce\"\n");
    let mut gateway = GatewayProcess::start(&folder.folder, &[], &[]);
    let send = || gateway.send("POST", "/v1/messages", "", REQUEST);
    let response = send();
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    assert!(response.contains("adaptive"), "{response}");

    // A forged file at the installed path changes nothing and is logged once.
    folder.sign("new.toml", "2027-01-02", ADAPTIVE, "own.key");
    let valid = std::fs::read_to_string(folder.path("new.toml")).unwrap();
    folder.write("forged.toml", &valid.replace("\"disabled\"", "\"enabled\""));
    std::fs::rename(folder.path("forged.toml"), folder.path("installed.toml")).unwrap();
    wait_for("catalog_refused", || gateway.errors());
    assert!(send().starts_with("HTTP/1.1 400"));

    let output = folder.run(&["catalog", "update", "new.toml"]);
    assert_eq!(output.code, 0, "{}", output.err);
    wait_for("HTTP/1.1 200", send);
    // The next version restores the old behaviour.
    let builtin = ADAPTIVE.replace("adaptive", "enabled");
    folder.sign("newer.toml", "2027-01-03", &builtin, "own.key");
    assert_eq!(folder.run(&["catalog", "update", "newer.toml"]).code, 0);
    wait_for("HTTP/1.1 400", send);
    assert_eq!(gateway.stop(), 0);
    let errors = gateway.errors();
    let lines: Vec<Value> =
        errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = |name: &str| lines.iter().filter(|line| line["event"] == name).count();
    assert_eq!((events("catalog_refused"), events("catalog_updated")), (1, 2), "{errors}");
}

#[test]
fn simulators_use_the_installed_rows() {
    let folder = CatalogFolder::new("sim");
    let (simulators, address) = start_simulators(&folder);
    let request = REQUEST.replace("sim/", "");
    let headers = "x-api-key: any\r\nanthropic-version: 2023-06-01\r\n";
    let send = || send_request(&address, "POST", "/v1/messages", headers, &request);
    let response = send();
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    folder.sign("new.toml", "2027-01-02", ADAPTIVE, "own.key");
    assert_eq!(folder.run(&["catalog", "update", "new.toml"]).code, 0);
    wait_for("HTTP/1.1 200", send);
    drop(simulators);
    // Simulators that start later also use the rows.
    let (_simulators, address) = start_simulators(&folder);
    let response = send_request(&address, "POST", "/v1/messages", headers, &request);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

/// Stops the simulators at the end of a test.
struct SimulatorProcess {
    child: Child,
    /// Kept open, because the simulators fail to print if their standard output is closed.
    _out: Lines<BufReader<ChildStdout>>,
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn start_simulators(folder: &CatalogFolder) -> (SimulatorProcess, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let mut child = without_keys(&mut command)
        .args(["sim", "--listen", "127.0.0.1:0", "--config"])
        .arg(folder.path("throughline.toml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let welcome = lines.next().unwrap().unwrap();
    let address = welcome.split_once("http://").unwrap().1;
    let address = address.split_whitespace().next().unwrap().to_owned();
    (SimulatorProcess { child, _out: lines }, address)
}

#[test]
fn doctor_commands_use_the_installed_rows() {
    let folder = CatalogFolder::new("doctor");
    folder.write("request.json", &REQUEST.replace("sim/", ""));
    let audit = |options: &[&str]| folder.run(&[&["audit", "request.json"], options].concat());
    assert_eq!(audit(&[]).code, 1);
    folder.sign("new.toml", "2027-01-02", ADAPTIVE, "own.key");
    assert_eq!(folder.run(&["catalog", "update", "new.toml"]).code, 0);
    let output = audit(&[]);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    // Another configuration does not use the installed file.
    folder.write("other.toml", "[catalog]\nfile = \"missing.toml\"\n");
    assert_eq!(audit(&["--config", "other.toml"]).code, 1);
    let repaired = folder.run(&["repair", "request.json"]);
    assert_eq!((repaired.code, repaired.out), (0, REQUEST.replace("sim/", "")));

    folder.write("other.json", r#"{"model":"gpt-5","input":"Hi","reasoning":{"effort":"low"}}"#);
    let translated = folder.run(&[
        "translate",
        "--from=openai-responses",
        "--to=anthropic-messages",
        "--model=claude-sonnet-4-5",
        "other.json",
    ]);
    assert!(translated.out.contains(r#""thinking":{"type":"adaptive"}"#), "{}", translated.out);

    // A new family shows up in the scope of rules, and a new provider can be named.
    let family = ADAPTIVE.replace("\"claude-4.5\"", "\"zeta-1\"").replace("claude-sonnet", "zeta");
    let provider = "[[provider]]\nname = \"zeta\"\nwire = \"anthropic-messages\"\n\
                    base-url = \"https://zeta.example\"\n";
    folder.sign("new.toml", "2027-01-03", &format!("{family}{provider}"), "own.key");
    let show = ["show", "request.json", "--provider", "zeta"];
    assert_eq!(folder.run(&show).code, 2);
    assert_eq!(folder.run(&["catalog", "update", "new.toml"]).code, 0);
    for (arguments, expected) in [
        (&show[..], "zeta"),
        (&["rules", "--format", "json"], "\"zeta-1\""),
        (&["explain", "anthropic/mode-not-supported"], "zeta-1"),
    ] {
        let output = folder.run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.err);
        assert!(output.out.contains(expected), "{arguments:?}: {}", output.out);
    }

    // A file that is no longer valid is reported, and the built-in rows are used.
    folder.write("installed.toml", "[catalog]\nversion = \"2027-01-03\"\n");
    let output = audit(&[]);
    assert_eq!(output.code, 1);
    assert!(output.err.contains("is not used") && output.err.contains("not signed"));
    let output = folder.run(&["config", "check"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("is not used"), "{}", output.out);
}

#[test]
fn invalid_files_are_refused() {
    let folder = CatalogFolder::new("refused");
    folder.write("unsigned.toml", "[catalog]\nversion = \"2027-01-02\"\n");
    folder.assert_refused("unsigned.toml", "get a signed file from its publisher");
    folder.sign("valid.toml", "2027-01-02", ADAPTIVE, "own.key");
    let valid = std::fs::read_to_string(folder.path("valid.toml")).unwrap();
    folder.write("forged.toml", &valid.replace("medium", "median"));
    folder.assert_refused("forged.toml", "the signature does not match the content");
    folder.write("truncated.toml", &valid[..valid.len() - 20]);
    folder.assert_refused("truncated.toml", "the signature does not match the content");
    folder.write("cut.toml", &valid[..60]);
    folder.assert_refused("cut.toml", "the signature in line 1 is malformed");
    folder.sign("untrusted.toml", "2027-01-02", ADAPTIVE, "other.key");
    folder.assert_refused("untrusted.toml", "is not trusted");
    let moved = "[[provider]]\nname = \"anthropic\"\nwire = \"anthropic-messages\"\n\
                 base-url = \"https://x.example\"\nkey-env = \"ANTHROPIC_API_KEY\"\n";
    folder.write("moved.toml", &format!("[catalog]\nversion = \"2027-01-02\"\n{moved}"));
    let output = folder.run(&["catalog", "check", "moved.toml"]);
    assert_eq!(output.code, 1);
    assert!(output.out.contains("in [providers.anthropic] instead"), "{}", output.out);
    folder.sign("ancient.toml", "2020-01-01", ADAPTIVE, "own.key");
    folder.assert_refused("ancient.toml", "older than the built-in catalog");

    let installed = folder.json(&["catalog", "update", "valid.toml"]);
    assert_eq!(installed["version"], "2027-01-02");
    assert_eq!(installed["replaced"], Value::Null);
    assert_eq!(installed["signed_by"], *folder.public_key);
    assert_eq!((&installed["profiles"], &installed["providers"]), (&1.into(), &0.into()));
    folder.sign("older.toml", "2027-01-01", ADAPTIVE, "own.key");
    folder.assert_refused("older.toml", "older than version 2027-01-02, which was installed");
    folder.sign("same.toml", "2027-01-02", &ADAPTIVE.replace("medium", "median"), "own.key");
    folder.assert_refused("same.toml", "same version 2027-01-02 but other content");
    folder.assert_refused("forged.toml", "the signature does not match the content");
    assert_eq!(folder.json(&["catalog", "update", "valid.toml"])["replaced"], "2027-01-02");

    // Without a trusted key, no file can be installed.
    folder.write("throughline.toml", "[catalog]\nfile = \"installed.toml\"\n");
    folder.assert_refused("valid.toml", "is not trusted");
    let output = folder.run(&["catalog", "update", "missing.toml"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("there is no such file"), "{}", output.err);
    folder.write("bad.key", "not a key\n");
    let output = folder.run(&["catalog", "sign", "valid.toml", "--key", "bad.key"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("64 hexadecimal digits"), "{}", output.err);
    assert!(!output.err.contains("not a key"), "the key is not printed: {}", output.err);
    folder.write("draft.toml", "[catalog]\nversion = 5\n[[profile]]\n");
    let output = folder.run(&["catalog", "sign", "draft.toml", "--key", "own.key"]);
    assert_eq!(output.code, 65);
    assert!(output.err.contains("draft.toml:2: "), "{}", output.err);
    assert!(output.err.contains("draft.toml:3: "), "{}", output.err);
    // Some editors write a byte order mark.
    folder.write("marked.toml", "\u{feff}[catalog]\nversion = \"2027-01-02\"\n");
    folder.json(&["catalog", "sign", "marked.toml", "--key", "own.key"]);
    let signed = std::fs::read_to_string(folder.path("marked.toml")).unwrap();
    assert!(signed.contains("\n[catalog]\n"), "{signed}");
}

#[test]
fn check_lists_all_errors_of_a_file() {
    let folder = CatalogFolder::new("check");
    let output = folder.run(&["catalog", "check"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    assert!(output.out.contains("no catalog is installed"), "{}", output.out);
    let rows = "[[provider]]\nname = \"a\"\nwire = \"telegraph\"\nbase-url = \"\"\n\
                [[profile]]\nname = \"b\"\ncolour = \"red\"\n";
    folder.write("draft.toml", &format!("[catalog]\nversion = \"2027-01-02\"\n{rows}"));
    let output = folder.run(&["catalog", "check", "draft.toml"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""));
    for expected in ["draft.toml:1: the file is not signed", "draft.toml:3: ", "draft.toml:9: "] {
        assert!(output.out.contains(expected), "{expected}: {}", output.out);
    }
    let output = folder.run(&["catalog", "check", "draft.toml", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &report["verdict"]), (1, &"wrong".into()));
    assert_eq!(report["errors"].as_array().unwrap().len(), 3, "{report}");

    folder.sign("valid.toml", "2027-01-02", ADAPTIVE, "own.key");
    let report = folder.json(&["catalog", "check", "valid.toml"]);
    assert_eq!((&report["verdict"], &report["version"]), (&"ok".into(), &"2027-01-02".into()));
    assert!(!folder.path("installed.toml").exists(), "a check installs nothing");
    assert_eq!(folder.run(&["catalog", "update", "valid.toml"]).code, 0);
    assert_eq!(folder.json(&["catalog", "check"])["verdict"], "ok");
}

#[test]
fn show_prints_the_source_of_each_row() {
    let folder = CatalogFolder::new("show");
    let builtin = Catalog::builtin().version().unwrap().to_string();
    let shown = folder.json(&["catalog", "show"]);
    assert_eq!((&shown["version"], &shown["file"]), (&builtin.as_str().into(), &Value::Null));
    let rows = shown["profiles"].as_array().unwrap();
    assert_eq!(rows.len(), Catalog::builtin().profiles().len());
    assert!(rows.iter().all(|row| row["from"] == "built in"));

    let provider = "[[provider]]\nname = \"example\"\nwire = \"openai-chat\"\n\
                    base-url = \"https://llm.example/v1\"\n";
    let provider = format!("{provider}key-env = \"DATABASE_URL\"\n");
    folder.sign("new.toml", "2027-01-02.2", &format!("{ADAPTIVE}{provider}"), "own.key");
    // The operator sees which key each new provider receives.
    let added = "new provider example (openai-chat): address https://llm.example/v1, \
                 key from DATABASE_URL";
    for verb in ["check", "update"] {
        let output = folder.run(&["catalog", verb, "new.toml"]);
        assert_eq!(output.code, 0, "{}", output.err);
        assert!(output.out.contains(added), "{}", output.out);
        let is_noted = output.out.contains("offers new providers after its next start");
        assert_eq!(is_noted, verb == "update", "{}", output.out);
        let report = folder.json(&["catalog", verb, "new.toml"]);
        assert_eq!(report["added_providers"][0]["key-env"], "DATABASE_URL");
    }
    let shown = folder.json(&["catalog", "show"]);
    assert_eq!((&shown["version"], &shown["builtin"]), (&"2027-01-02.2".into(), &builtin.into()));
    assert_eq!(shown["file"]["signed_by"], *folder.public_key);
    for list in ["profiles", "providers"] {
        let rows = shown[list].as_array().unwrap().iter();
        let installed: Vec<&Value> = rows.filter(|row| row["from"] == "installed").collect();
        assert_eq!(installed.len(), 1, "{list}");
    }
    let shown = folder.json(&["catalog", "show", "claude-sonnet-4-5"]);
    let profile = &shown["profile"];
    assert_eq!((&profile["name"], &profile["from"]), (&"claude-4.5".into(), &"installed".into()));
    assert_eq!(profile["row"]["modes"], serde_json::json!(["adaptive", "disabled"]));
    let output = folder.run(&["catalog", "show", "claude-sonnet-4-5"]);
    assert!(output.out.starts_with("claude-4.5  installed, 2027-01-02.2, "), "{}", output.out);
    assert!(output.out.contains("required_with_tools"), "{}", output.out);
    let output = folder.run(&["catalog", "show"]);
    assert!(output.out.contains("example"), "{}", output.out);
    assert!(output.out.lines().all(|line| line.trim_end() == line), "{}", output.out);
    let output = folder.run(&["catalog", "show", "gpt-97-nova"]);
    let note = "no row lists the version of gpt-97-nova; the newest row of its series applies";
    assert!(output.out.contains(note), "{}", output.out);
    assert!(!folder.run(&["catalog", "show", "gpt-6.1"]).out.contains("no row lists"));
    let output = folder.run(&["catalog", "show", "zzz"]);
    assert!(output.out.starts_with("no model family matches zzz"), "{}", output.out);
    let facts = folder.json(&["env"]);
    assert_eq!(facts["catalog"], "2027-01-02.2, installed");
    // A configured provider can use an installed row.
    folder.write_config("[providers.mine]\nkind = \"example\"\napi_key = \"k\"\n");
    let output = folder.run(&["config", "check"]);
    assert_eq!(output.code, 0, "{}", output.out);
}
