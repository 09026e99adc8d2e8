//! Tests of agent commands: runs with tools, pending requests, answers, resuming, cancelling and
//! narration.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::{CommandOutput, throughline_with, without_keys};

const MODEL: [&str; 2] = ["--model", "sim/claude-sonnet-4-5"];

/// Creates a directory without a store, and an agent declaration whose agent does not plan.
fn place(name: &str) -> TestStore {
    let kept = TestStore::nothing(&format!("agents-{name}"));
    std::fs::write(
        kept.file("agent.toml"),
        "kind = \"minimal\"\ninstructions = \"Be brief.\"\nreasoning = { level = \"high\" }\n",
    )
    .unwrap();
    kept
}

fn said(kept: &TestStore, arguments: &[&str], input: &str) -> CommandOutput {
    let store = kept.url();
    let with = [arguments, &["--store", &store]].concat();
    throughline_with(&[("NO_COLOR", "1")], &kept.folder, &with, input.as_bytes())
}

/// Starts a run of the declared agent with a shell tool.
fn begun(kept: &TestStore, more: &[&str], input: &str) -> CommandOutput {
    let agent = ["--agent", "agent.toml", "--tool", "now=echo noon"];
    said(kept, &[&["run", "What is the time?"][..], &MODEL, &agent, more].concat(), input)
}

/// Returns the first identifier in a text that starts with `prefix`.
fn named(text: &str, prefix: &str) -> String {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let found = text.find(prefix).unwrap_or_else(|| panic!("no {prefix} in {text}"));
    text[found..].split(is_end).next().unwrap().to_owned()
}

#[test]
fn run_thinks_calls_its_tool_and_answers() {
    let kept = place("answers");
    let ran = begun(&kept, &[], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("noon") && ran.out.ends_with('\n'), "{}", ran.out);
    for told in ["▸ run_", "of thread_", "∴ ", "→ now {", "← now \"noon"] {
        assert!(ran.err.contains(told), "{told} is not in {}", ran.err);
    }
    let run = named(&ran.err, "run_");
    let narrated = said(&kept, &["narrate", &run], "");
    assert_eq!(narrated.code, 0, "{}", narrated.err);
    for told in [
        "The user said: “What is the time?”",
        "Turn 1: the agent asked sim/claude-sonnet-4-5.",
        "The model thought",
        "The tool now succeeded",
        "The assistant said: “",
        " completed: answered.",
    ] {
        assert!(narrated.out.contains(told), "{told} is not in {}", narrated.out);
    }
    assert!(
        !narrated.out.contains("The agent answered: “"),
        "the answer is printed once: {}",
        narrated.out
    );
    let first = narrated.out.split_once("  ").unwrap().0;
    assert!(first.ends_with('Z') && first.len() == "2026-01-01 00:00:00Z".len(), "{first}");
    // Another model continues the thread and sees its earlier messages.
    let thread = named(&ran.err, "thread_");
    let more = ["run", "And then?", "--thread", &thread, "--model", "sim/gpt-5.2"];
    let again = said(&kept, &more, "");
    assert_eq!(again.code, 0, "{}", again.err);
    let runs = said(&kept, &["runs", "--thread", &thread, "--format", "json"], "");
    let runs: Value = serde_json::from_str(&runs.out).unwrap();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn json_format_prints_one_event_per_line() {
    let kept = place("json");
    let ran = begun(&kept, &["--format", "json"], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let events: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in ["run", "message", "turn", "thought", "tool_call", "usage", "finalAnswer"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
}

#[test]
fn pending_approval_is_listed_decided_once_and_resumed() {
    let kept = place("waits");
    let ran = begun(&kept, &["--approve", "now"], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out, "", "there is no answer yet");
    let (run, id) = (named(&ran.err, "run_"), named(&ran.err, "throughline approve "));
    assert_eq!(id, "throughline");
    let inbox = said(&kept, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let waits = &inbox["waiting"][0];
    let id = waits["id"].as_str().unwrap();
    assert_eq!(waits["kind"], "approval");
    assert_eq!((&waits["run"], &waits["tool"]), (&Value::from(run.clone()), &Value::from("now")));
    assert!(ran.err.contains(&format!("throughline approve {id}")), "{}", ran.err);
    assert!(ran.err.contains(&format!("throughline resume {run} --agent agent.toml")));
    let shown = said(&kept, &["inbox"], "");
    assert!(shown.out.contains(id) && shown.out.contains("now {"), "{}", shown.out);
    // Wrong id, wrong kind of request, invalid arguments, and another tenant.
    for (arguments, problem) in [
        (vec!["approve", "nothing"], "there is no pending request nothing"),
        (vec!["answer", id, "yes"], "is an approval; it needs `throughline approve`"),
        (vec!["approve", id, "--args", "{"], "--args is not valid JSON"),
        (vec!["approve", id, "--args", "[]"], "do not match the schema"),
        (vec!["approve", id, "--tenant", "other"], "there is no pending request"),
    ] {
        let refused = said(&kept, &arguments, "");
        assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(problem), "{problem} is not in {}", refused.err);
    }
    let approved = said(&kept, &["approve", id, "--by", "ann"], "");
    assert_eq!(approved.code, 0, "{}", approved.err);
    let twice = said(&kept, &["reject", id], "");
    assert_eq!(twice.code, 2, "{}", twice.out);
    assert!(twice.err.contains("is already decided: ann approved the tool now"), "{}", twice.err);
    let without = said(&kept, &["resume", &run], "");
    assert_eq!(without.code, 2);
    assert!(without.err.contains("tools that were not passed: now"), "{}", without.err);
    let resumed = said(&kept, &["resume", &run, "--tool", "now=echo noon"], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.out.contains("noon"), "{} {}", resumed.out, resumed.err);
    let empty = said(&kept, &["inbox"], "");
    assert_eq!(empty.out, "there are no pending requests\n");
    let narrated = said(&kept, &["narrate", &run], "");
    assert!(narrated.out.contains("ann approved the tool now"), "{}", narrated.out);
    assert!(!narrated.out.contains("was discarded"), "{}", narrated.out);
    // Resuming a finished run prints its answer again.
    let over = said(&kept, &["resume", &run], "");
    assert_eq!((over.code, &over.out), (0, &resumed.out), "{}", over.err);
    assert!(over.err.contains(&format!("{run} has ended with status completed")), "{}", over.err);
    let over = said(&kept, &["resume", &run, "--format", "json"], "");
    let event: Value = serde_json::from_str(&over.out).unwrap();
    assert_eq!((&event["type"], &event["status"]), (&"run".into(), &"completed".into()));
}

#[test]
fn only_runs_are_counted_and_listed() {
    let kept = place("counted");
    let runs: Vec<String> = (0..3).map(|_| named(&begun(&kept, &[], "").err, "run_")).collect();
    let json = |arguments: &[&str]| -> Value {
        let told = said(&kept, &[arguments, &["--format", "json"]].concat(), "");
        serde_json::from_str(&told.out).unwrap()
    };
    assert_eq!(json(&["stats"])["runs"], 3);
    assert_eq!(json(&["threads"])["threads"][0]["runs"], 1);
    let two = json(&["runs", "--limit", "2"]);
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["runs"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&two), [&*runs[2], &*runs[1]]);
    assert_eq!(two["next"], *runs[1]);
    let rest = json(&["runs", "--limit", "2", "--after", &runs[1]]);
    assert_eq!((ids(&rest), &rest["next"]), (vec![runs[0].clone()], &Value::Null));
    let inbox = format!("{}.inbox", runs[0]);
    let resumed = said(&kept, &["resume", &inbox], "");
    assert_eq!(resumed.code, 2, "{}", resumed.err);
    assert!(resumed.err.contains(&format!("there is no run {inbox}")), "{}", resumed.err);
}

#[test]
fn ask_option_prompts_for_approvals() {
    let kept = place("asks");
    let ran = begun(&kept, &["--approve", "*", "--ask"], "perhaps\nn too early\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.matches("Approve this call?").count() == 2, "{}", ran.err);
    let narrated = said(&kept, &["narrate", &named(&ran.err, "run_")], "");
    assert!(narrated.out.contains("The tool now was rejected"), "{}", narrated.out);
    assert!(narrated.out.contains("too early"), "{}", narrated.out);
}

#[test]
fn question_is_answered_by_another_command() {
    let kept = place("questions");
    std::fs::write(
        kept.file("agent.toml"),
        "kind = \"minimal\"\n[humanInTheLoop]\naskUser = { allowFreeText = true }\n",
    )
    .unwrap();
    let ran = said(&kept, &[&["run", "Ask me.", "--agent", "agent.toml"][..], &MODEL].concat(), "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let inbox = said(&kept, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let waits = &inbox["waiting"][0];
    assert_eq!(waits["kind"], "question", "{inbox} {}", ran.err);
    let (id, asked) = (waits["id"].as_str().unwrap(), waits["questions"].as_array().unwrap());
    let few = said(&kept, &["answer", id, "1", "2", "3", "4", "5", "6", "7"], "");
    assert_eq!(few.code, 2);
    assert!(few.err.contains("give one answer per question"), "{}", few.err);
    let ones = vec!["1"; asked.len()];
    let answered = said(&kept, &[&["answer", id][..], &ones].concat(), "");
    assert_eq!(answered.code, 0, "{}", answered.err);
    let resumed = said(&kept, &["resume", &named(&ran.err, "run_")], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(!resumed.out.is_empty());
}

#[test]
fn interrupted_run_is_resumed_and_cancelled() {
    let kept = place("left");
    // The tool blocks, so that the interrupt arrives while the tool is running.
    let (began, store) = (kept.file("began"), kept.url());
    let tool = format!("slow=touch {}; cat; exec sleep 60", began.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let mut child = without_keys(&mut command)
        .args(["run", "Slowly", "--agent", "agent.toml", "--tool", &tool, "--store", &store])
        .args(MODEL)
        .env("NO_COLOR", "1")
        .current_dir(&kept.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !began.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before its tool started");
        std::thread::yield_now();
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    let run = named(&err, "run_");
    assert!(err.contains(&format!("`throughline resume {run} --agent")), "{err}");
    // The outcome of the tool is unknown, so the run asks for a decision and does not repeat the
    // call.
    std::fs::remove_file(&began).unwrap();
    let resumed = said(&kept, &["resume", &run, "--agent", "agent.toml", "--tool", &tool], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.err.contains("throughline approve "), "{}", resumed.err);
    assert!(!began.exists(), "the tool was run again");
    assert!(
        resumed.err.contains("slow: this call was started, but no result was recorded"),
        "{}",
        resumed.err
    );
    let inbox = said(&kept, &["inbox"], "");
    assert!(inbox.out.contains("no result was recorded: approving runs it again"), "{}", inbox.out);
    let inbox = said(&kept, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    assert_eq!(inbox["waiting"][0]["outcome"], "unknown");
    let asked = ["resume", &run, "--agent", "agent.toml", "--tool", &tool, "--ask"];
    let asked = said(&kept, &asked, "");
    assert!(asked.err.contains("Run it AGAIN?"), "{}", asked.err);
    let narrated = said(&kept, &["narrate", &run], "");
    assert!(narrated.out.contains("It was started before, and its end was not recorded."));
    let cancelled = said(&kept, &["cancel", &run, "--reason", "enough"], "");
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    let again = said(&kept, &["cancel", &run], "");
    assert_eq!(again.code, 2);
    assert!(again.err.contains("has already been cancelled"), "{}", again.err);
    let narrated = said(&kept, &["narrate", &run], "");
    assert!(narrated.out.contains("The run was asked to stop: enough."), "{}", narrated.out);
    assert!(!narrated.out.contains("failed after"), "the outcome is unknown: {}", narrated.out);
    assert!(narrated.out.contains("The outcome of the tool"), "{}", narrated.out);
}

#[test]
fn detached_run_completes_in_the_background() {
    let kept = place("detached");
    let ran = begun(&kept, &["--detach"], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let run = ran.out.trim().to_owned();
    assert!(run.starts_with("run_") && ran.err.contains(&format!("throughline resume {run}")));
    // A follower sees the end of the run, whichever process drives it.
    let watched = said(&kept, &["resume", &run, "--tool", "now=echo noon"], "");
    assert_eq!(watched.code, 0, "{}", watched.err);
    let narrated = said(&kept, &["narrate", &run], "");
    assert!(narrated.out.contains(" completed: answered."), "{}", narrated.out);
}

#[test]
fn invalid_arguments_are_rejected_before_any_model_call() {
    let kept = place("wrong");
    std::fs::write(kept.file("bad.toml"), "model = \"sim/gpt-5.2\"\nkindness = 1\n").unwrap();
    std::fs::write(kept.file("broken.toml"), "model = ").unwrap();
    std::fs::write(kept.file("tools.toml"), "[[tools]]\nname = \"a\"\n").unwrap();
    let file = |name: &str, text: &str| std::fs::write(kept.file(name), text).unwrap();
    file("debt.toml", "model = \"sim/gpt-5.2\"\nlimits = { maxCostUsd = -1.0 }\n");
    file("nan.toml", "model = \"sim/gpt-5.2\"\nlimits = { maxCostUsd = nan }\n");
    let twice = "[[tools]]\nname = \"a\"\ncommand = \"true\"\n".repeat(2);
    file("twice.toml", &format!("model = \"sim/gpt-5.2\"\n{twice}"));
    for (arguments, code, problem) in [
        (
            vec!["run", "Hi", "--agent", "debt.toml"],
            65,
            "limits.maxCostUsd: -1 is not a valid amount",
        ),
        (vec!["run", "Hi", "--agent", "nan.toml"], 65, "limits.maxCostUsd is not a finite number"),
        (vec!["run", "Hi", "--agent", "twice.toml"], 65, "two tools are named a"),
        (
            vec!["run", "Hi", "--model", "sim/gpt-5.2", "--tool", "a=true", "--tool", "a=false"],
            2,
            "two tools are named a",
        ),
        (vec!["run", "  ", "--model", "sim/gpt-5.2"], 2, "the message for the agent is empty"),
        (vec!["run", "Hi"], 2, "no model is set; use --model"),
        (vec!["run", "Hi", "--model", "sin/claude-x"], 2, "did you mean `sim/claude-x`?"),
        (vec!["run", "Hi", "--model", "claude-sonnet-5"], 2, "set ANTHROPIC_API_KEY"),
        (vec!["run", "Hi", "--model", "sim/gpt-5.2", "--tool", "now"], 2, "use NAME=COMMAND"),
        (
            vec!["run", "-", "--model", "sim/gpt-5.2"],
            2,
            "standard input is empty; expected a message",
        ),
        (vec!["run", "Hi", "--agent", "bad.toml"], 65, "unknown field `kindness`"),
        (vec!["run", "Hi", "--agent", "broken.toml"], 65, "broken.toml"),
        (vec!["run", "Hi", "--agent", "absent.toml"], 1, "cannot read absent.toml"),
        (
            vec!["run", "Hi", "--agent", "tools.toml", "--model", "sim/gpt-5.2"],
            65,
            "the tool a has no `command`",
        ),
        (
            vec!["run", "Hi", "--model", "sim/gpt-5.2", "--thread", "nowhere"],
            2,
            "there is no thread nowhere",
        ),
        (vec!["resume", "run_nowhere"], 2, "there is no run run_nowhere"),
        (vec!["cancel", "run_nowhere"], 2, "there is no run run_nowhere"),
        (vec!["narrate", "run_nowhere"], 2, "there is no thread or run run_nowhere"),
        (vec!["inbox", "--run", "run_nowhere"], 2, "there is no run run_nowhere"),
        (vec!["run", "Hi", "--ask", "--no-ask"], 2, "cannot be used with"),
    ] {
        let ran = said(&kept, &arguments, "");
        assert_eq!(ran.code, code, "{arguments:?}: {} {}", ran.out, ran.err);
        assert!(ran.err.contains(problem), "{arguments:?}: {problem} is not in {}", ran.err);
        assert!(
            !ran.err.contains("at line 1 column"),
            "the position refers to generated JSON: {}",
            ran.err
        );
    }
}

#[test]
fn secrets_are_redacted_in_output_and_narration() {
    let kept = place("secret");
    let secret = crate::support::kept::SECRET;
    std::fs::write(kept.file("keys"), secret).unwrap();
    let tool = ["--agent", "agent.toml", "--tool", "keys=cat keys"];
    let words = format!("My key is {secret}");
    let ran = said(&kept, &[&["run", "-"][..], &tool, &MODEL].concat(), &words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.err.contains(secret) && !ran.out.contains(secret), "{} {}", ran.err, ran.out);
    let narrated = said(&kept, &["narrate", &named(&ran.err, "run_")], "");
    assert!(!narrated.out.contains(secret), "{}", narrated.out);
    assert!(narrated.out.contains("[REDACTED]"), "{}", narrated.out);
}
