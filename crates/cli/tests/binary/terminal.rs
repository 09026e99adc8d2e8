//! Tests of output at a terminal: tables at several widths, status lines, and the pace of the demo.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::support::kept::TestStore;
use crate::support::{throughline_with, without_keys};

const OWN: &str = env!("CARGO_BIN_EXE_throughline");

/// Interval between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(50);

/// A command in a pseudo-terminal of `script`, which writes the terminal's output to a file.
struct TerminalCommand {
    child: Child,
    output: PathBuf,
}

impl TerminalCommand {
    /// Starts a command; `None` if this machine has no `script` of util-linux.
    fn start(store: &TestStore, columns: u32, command: &str) -> Option<Self> {
        let version = Command::new("script").arg("--version").output();
        if !version.is_ok_and(|version| version.stdout.starts_with(b"script from util-linux")) {
            throughline_testkit::skip("`script` of util-linux is not installed");
            return None;
        }
        let output = store.file("terminal");
        let command = format!("stty cols {columns} rows 40; exec {OWN} {command}");
        let mut script = Command::new("script");
        let child = without_keys(&mut script)
            .args(["-qefc", &command, "/dev/null"])
            .env("THROUGHLINE_STORE", store.url())
            .env("TZ", "UTC")
            .env("NO_COLOR", "1")
            .current_dir(&store.folder)
            .stdin(Stdio::piped())
            .stdout(File::create(&output).unwrap())
            .spawn()
            .unwrap();
        Some(Self { child, output })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }

    /// Waits until the output contains a text after the byte `start`, and returns the end of the
    /// text.
    fn wait_for(&mut self, text: &str, start: usize) -> usize {
        loop {
            let is_running = self.child.try_wait().unwrap().is_none();
            let output = self.text();
            if let Some(at) = output.get(start..).and_then(|output| output.find(text)) {
                return start + at + text.len();
            }
            assert!(is_running, "{text} is not in {output}");
            std::thread::sleep(INTERVAL);
        }
    }

    /// Waits until the command has ended and returns its output and its exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let code = self.child.wait().unwrap().code();
        (self.text().replace('\r', ""), code)
    }
}

fn run_without_terminal(store: &TestStore, arguments: &[&str]) -> String {
    let url = store.url();
    let variables = [("THROUGHLINE_STORE", url.as_str())];
    let output = throughline_with(&variables, &store.folder, arguments, b"");
    assert_eq!(output.code, 0, "{arguments:?}: {}", output.err);
    output.out
}

fn runs(store: &TestStore) -> Vec<Value> {
    let listed: Value =
        serde_json::from_str(&run_without_terminal(store, &["runs", "--json"])).unwrap();
    listed["runs"].as_array().unwrap().clone()
}

#[test]
fn tables_fit_the_terminal() {
    let store = TestStore::without_database("terminal-tables");
    let model = ["--model", "sim/claude-sonnet-5-5", "--tool", "now=date"];
    for question in ["What is the time?", "Which of the many long questions is the longest one?"] {
        run_without_terminal(&store, &[&["run", question][..], &model].concat());
    }
    run_without_terminal(&store, &["keys", "create", "--label", "app", "--budget-usd", "20"]);
    let listed = runs(&store);
    let ids: Vec<&str> = listed.iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(listed[1]["title"], "What is the time?");
    assert_eq!(listed[1]["models"][0], "sim/claude-sonnet-5-5");
    assert!(listed[1]["cost_usd"].is_number() && listed[1]["duration_ms"].is_number());
    for columns in [60, 80, 100, 200] {
        for command in ["runs", "threads", "rules", "keys list", "--help"] {
            let Some(terminal) = TerminalCommand::start(&store, columns, command) else { return };
            let (output, code) = terminal.finish();
            assert_eq!(code, Some(0), "{command} at {columns}: {output}");
            for line in output.lines() {
                let is_wide = line.width() > usize::try_from(columns).unwrap();
                assert!(!is_wide, "{command} at {columns}: {line}\n{output}");
            }
            if command == "runs" {
                assert!(ids.iter().all(|id| output.contains(id)), "{columns}: {output}");
                assert!(output.contains("What is the time?"), "{columns}: {output}");
                assert!(output.contains("completed"), "{columns}: {output}");
                let is_model_shown = output.contains("sim/claude-sonnet");
                assert_eq!(is_model_shown, columns >= 80, "{columns}: {output}");
            }
        }
    }
}

/// Starts a run whose tool waits until the file `go` exists.
fn start_slow_run(store: &TestStore, options: &str) -> Option<TerminalCommand> {
    std::fs::write(store.file("slow.sh"), "touch began; until [ -e go ]; do sleep 0.1; done\n")
        .unwrap();
    let agent = "--tool 'slow=sh slow.sh' --model sim/claude-sonnet-5-5";
    TerminalCommand::start(store, 100, &format!("run 'Be slow' {agent} {options}"))
}

fn wait_for_file(file: &Path, command: &mut TerminalCommand) {
    while !file.exists() {
        assert!(command.child.try_wait().unwrap().is_none(), "{}", command.text());
        std::thread::yield_now();
    }
}

#[test]
fn elapsed_time_of_a_tool_is_shown() {
    let store = TestStore::without_database("terminal-tool");
    let Some(mut terminal) = start_slow_run(&store, "") else { return };
    let at = terminal.wait_for("→ slow", 0);
    // The status line names the tool and the seconds.
    terminal.wait_for(" slow 1.", at);
    std::fs::write(store.file("go"), "").unwrap();
    let (output, code) = terminal.finish();
    assert_eq!(code, Some(0), "{output}");
    let result = output.lines().find(|line| line.contains("← slow")).unwrap();
    assert!(result.ends_with(" s"), "{result}");
}

#[test]
fn killed_run_is_interrupted_and_resume_shows_the_lease() {
    let store = TestStore::without_database("terminal-killed");
    let Some(mut terminal) = start_slow_run(&store, "--lease 6") else { return };
    wait_for_file(&store.file("began"), &mut terminal);
    let driven = runs(&store);
    let run = driven[0]["id"].as_str().unwrap();
    assert_eq!(
        (&driven[0]["status"], &driven[0]["interrupted"]),
        (&"running".into(), &false.into())
    );
    // `script` executes the command as its child, in a session of its own.
    let id = terminal.child.id().to_string();
    let children = Command::new("pgrep").args(["-P", &id]).output().unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    for child in children.lines() {
        assert!(Command::new("kill").args(["-KILL", child]).status().unwrap().success());
    }
    terminal.finish();
    // The lease has not expired, so the command waits and shows the remaining time.
    let tool = "--tool 'slow=sh slow.sh' --no-ask";
    let mut resumed = TerminalCommand::start(&store, 100, &format!("resume {run} {tool}")).unwrap();
    resumed.wait_for("another process owns this run; its lease expires in", 0);
    assert!(Command::new("kill").arg(resumed.child.id().to_string()).status().unwrap().success());
    resumed.finish();
    while runs(&store)[0]["interrupted"] != true {
        std::thread::sleep(INTERVAL);
    }
    let table = run_without_terminal(&store, &["runs"]);
    assert!(table.contains("interrupted") && !table.contains("running"), "{table}");
    std::fs::write(store.file("go"), "").unwrap();
}

#[test]
fn first_run_with_a_simulator_shows_no_error() {
    let store = TestStore::without_database("terminal-first");
    let url = store.url();
    let arguments = ["run", "What is the time?", "--model", "sim/claude-sonnet-5-5"];
    let arguments = [&arguments[..], &["--tool", "now=date", "--store", &url]].concat();
    let output = throughline_with(&[("NO_COLOR", "1")], &store.folder, &arguments, b"");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains(r#"→ now {"input":"What is the time?"}"#), "{}", output.err);
    assert!(!output.err.contains('✗'), "{}", output.err);
}

#[test]
fn demo_waits_for_enter_after_each_scene() {
    let store = TestStore::without_database("terminal-demo");
    let command = "demo --step --no-serve --home home";
    let Some(mut terminal) = TerminalCommand::start(&store, 100, command) else { return };
    let mut keyboard = terminal.child.stdin.take().unwrap();
    for scene in 1..=8 {
        let at = terminal.wait_for(&format!("{scene}/9 "), 0);
        terminal.wait_for("press Enter for the next scene", at);
        assert!(!terminal.text().contains(&format!("{}/9 ", scene + 1)), "{}", terminal.text());
        std::io::Write::write_all(&mut keyboard, b"\n").unwrap();
    }
    terminal.wait_for("9/9 ", 0);
    let (output, code) = terminal.finish();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("With Throughline, 0 of"), "{output}");
}
