//! Tests of agent commands: runs with tools, pending requests, answers, resuming, cancelling and
//! narration.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::{CommandOutput, throughline_with, without_keys};

const MODEL: [&str; 2] = ["--model", "sim/claude-sonnet-4-5"];

/// Creates a directory that contains the declaration of a minimal agent, but no store.
fn agent_store(name: &str) -> TestStore {
    let store = TestStore::without_database(&format!("agents-{name}"));
    std::fs::write(
        store.file("agent.toml"),
        "kind = \"minimal\"\ninstructions = \"Be brief.\"\nreasoning = { level = \"high\" }\n",
    )
    .unwrap();
    store
}

fn run_command(store: &TestStore, arguments: &[&str], input: &str) -> CommandOutput {
    let url = store.url();
    let arguments_with_store = [arguments, &["--store", &url]].concat();
    throughline_with(&[("NO_COLOR", "1")], &store.folder, &arguments_with_store, input.as_bytes())
}

/// Starts a run of the declared agent with a shell tool.
fn start_run(store: &TestStore, options: &[&str], input: &str) -> CommandOutput {
    let agent = ["--agent", "agent.toml", "--tool", "now=echo noon"];
    run_command(
        store,
        &[&["run", "What is the time?"][..], &MODEL, &agent, options].concat(),
        input,
    )
}

/// Returns the first identifier in a text that starts with `prefix`.
fn find_id(text: &str, prefix: &str) -> String {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let start = text.find(prefix).unwrap_or_else(|| panic!("no {prefix} in {text}"));
    text[start..].split(is_end).next().unwrap().to_owned()
}

#[test]
fn run_thinks_calls_its_tool_and_answers() {
    let store = agent_store("answers");
    let output = start_run(&store, &[], "");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("noon") && output.out.ends_with('\n'), "{}", output.out);
    for expected in ["▸ run_", "of thread_", "∴ ", "→ now {", "← now \"noon"] {
        assert!(output.err.contains(expected), "{expected} is not in {}", output.err);
    }
    let run = find_id(&output.err, "run_");
    let narrated = run_command(&store, &["narrate", &run], "");
    assert_eq!(narrated.code, 0, "{}", narrated.err);
    for expected in [
        "The user said: “What is the time?”",
        "Turn 1: the agent asked sim/claude-sonnet-4-5.",
        "The model thought",
        "The tool now succeeded",
        "The assistant said: “",
        " completed: answered.",
    ] {
        assert!(narrated.out.contains(expected), "{expected} is not in {}", narrated.out);
    }
    assert!(
        !narrated.out.contains("The agent answered: “"),
        "the answer is printed once: {}",
        narrated.out
    );
    let narrated_json = run_command(&store, &["narrate", &run, "--json"], "").out;
    let narrated_json: Vec<Value> =
        narrated_json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(narrated_json.len(), narrated.out.lines().count());
    for (event, line) in narrated_json.iter().zip(narrated.out.lines()) {
        assert!(line.ends_with(event["sentence"].as_str().unwrap()), "{event}: {line}");
        assert!(event["at"].is_string() && event["type"].is_string(), "{event}");
    }
    let first = narrated.out.split_once("  ").unwrap().0;
    assert!(first.ends_with('Z') && first.len() == "2026-01-01 00:00:00Z".len(), "{first}");
    // Another model continues the thread and sees its earlier messages.
    let thread = find_id(&output.err, "thread_");
    let arguments = ["run", "And then?", "--thread", &thread, "--model", "sim/gpt-5.2"];
    let continued = run_command(&store, &arguments, "");
    assert_eq!(continued.code, 0, "{}", continued.err);
    let runs = run_command(&store, &["runs", "--thread", &thread, "--format", "json"], "");
    let runs: Value = serde_json::from_str(&runs.out).unwrap();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn json_format_prints_one_event_per_line() {
    let store = agent_store("json");
    let output = start_run(&store, &["--format", "json"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    let events: Vec<Value> =
        output.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in ["run", "message", "turn", "thought", "tool_call", "usage", "finalAnswer"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
}

#[test]
fn pending_approval_is_listed_decided_once_and_resumed() {
    let store = agent_store("waits");
    let output = start_run(&store, &["--approve", "now"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.out, "", "there is no answer yet");
    let (run, id) = (find_id(&output.err, "run_"), find_id(&output.err, "throughline approve "));
    assert_eq!(id, "throughline");
    let inbox = run_command(&store, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let waits = &inbox["waiting"][0];
    let id = waits["id"].as_str().unwrap();
    assert_eq!(waits["kind"], "approval");
    assert_eq!((&waits["run"], &waits["tool"]), (&Value::from(run.clone()), &Value::from("now")));
    assert!(output.err.contains(&format!("throughline approve {id}")), "{}", output.err);
    assert!(output.err.contains(&format!("throughline resume {run} --agent agent.toml")));
    let printed = run_command(&store, &["inbox"], "");
    assert!(printed.out.contains(id) && printed.out.contains("now {"), "{}", printed.out);
    // Wrong id, wrong kind of request, invalid arguments, and another tenant.
    for (arguments, problem) in [
        (vec!["approve", "nothing"], "there is no pending request nothing"),
        (vec!["answer", id, "yes"], "is an approval; it needs `throughline approve`"),
        (vec!["approve", id, "--args", "{"], "--args is not valid JSON"),
        (vec!["approve", id, "--args", "[]"], "do not match the schema"),
        (vec!["approve", id, "--tenant", "other"], "there is no pending request"),
    ] {
        let refused = run_command(&store, &arguments, "");
        assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(problem), "{problem} is not in {}", refused.err);
    }
    let approved = run_command(&store, &["approve", id, "--by", "ann"], "");
    assert_eq!(approved.code, 0, "{}", approved.err);
    // The printed command names the tools, which must be passed again.
    let hint = format!("`throughline resume {run} --agent FILE --store ");
    assert!(approved.out.contains(&hint), "{}", approved.out);
    assert!(approved.out.contains("that declare now"), "{}", approved.out);
    let twice = run_command(&store, &["reject", id], "");
    assert_eq!(twice.code, 2, "{}", twice.out);
    assert!(twice.err.contains("is already decided: ann approved the tool now"), "{}", twice.err);
    let without = run_command(&store, &["resume", &run], "");
    assert_eq!(without.code, 2);
    assert!(without.err.contains("tools that were not passed: now"), "{}", without.err);
    let resumed = run_command(&store, &["resume", &run, "--tool", "now=echo noon"], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.out.contains("noon"), "{} {}", resumed.out, resumed.err);
    let empty = run_command(&store, &["inbox"], "");
    assert_eq!(empty.out, "there are no pending requests\n");
    let narrated = run_command(&store, &["narrate", &run], "");
    assert!(narrated.out.contains("ann approved the tool now"), "{}", narrated.out);
    assert!(!narrated.out.contains("was discarded"), "{}", narrated.out);
    // Resuming a finished run prints its answer again.
    let finished = run_command(&store, &["resume", &run], "");
    assert_eq!((finished.code, &finished.out), (0, &resumed.out), "{}", finished.err);
    assert!(
        finished.err.contains(&format!("{run} has ended with status completed")),
        "{}",
        finished.err
    );
    let finished = run_command(&store, &["resume", &run, "--format", "json"], "");
    let event: Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!((&event["type"], &event["status"]), (&"run".into(), &"completed".into()));
}

#[test]
fn erased_run_leaves_the_inbox_and_is_reported_as_erased() {
    let store = agent_store("erased");
    let output = start_run(&store, &["--approve", "now"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    let (run, thread) = (find_id(&output.err, "run_"), find_id(&output.err, "thread_"));
    let inbox = run_command(&store, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let id = inbox["waiting"][0]["id"].as_str().unwrap();
    let forgotten = run_command(&store, &["forget", "--thread", &thread, "--yes"], "");
    assert_eq!(forgotten.code, 0, "{}", forgotten.err);
    let empty = run_command(&store, &["inbox"], "");
    assert_eq!(empty.out, "there are no pending requests\n", "{}", empty.err);
    let message = format!("run {run} was erased (forgotten) and can no longer be used");
    for arguments in [
        vec!["approve", id],
        vec!["inbox", "--run", run.as_str()],
        vec!["resume", run.as_str(), "--tool", "now=echo noon"],
        vec!["cancel", run.as_str()],
        vec!["narrate", run.as_str()],
        vec!["traces", "export", run.as_str()],
    ] {
        let refused = run_command(&store, &arguments, "");
        assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(&message), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn only_runs_are_counted_and_listed() {
    let store = agent_store("counted");
    let runs: Vec<String> =
        (0..3).map(|_| find_id(&start_run(&store, &[], "").err, "run_")).collect();
    let json = |arguments: &[&str]| -> Value {
        let output = run_command(&store, &[arguments, &["--format", "json"]].concat(), "");
        serde_json::from_str(&output.out).unwrap()
    };
    assert_eq!(json(&["stats"])["runs"], 3);
    assert_eq!(json(&["threads"])["threads"][0]["runs"], 1);
    assert_eq!(json(&["export", "--full", "--output", "all.jsonl"])["runs"], 3);
    assert_eq!(json(&["import", "all.jsonl", "--tenant", "copy"])["runs"], 3);
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
    let resumed = run_command(&store, &["resume", &inbox], "");
    assert_eq!(resumed.code, 2, "{}", resumed.err);
    assert!(resumed.err.contains(&format!("there is no run {inbox}")), "{}", resumed.err);
}

#[test]
fn ask_option_prompts_for_approvals() {
    let store = agent_store("asks");
    let output = start_run(&store, &["--approve", "*", "--ask"], "perhaps\nn too early\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.matches("Approve this call?").count() == 2, "{}", output.err);
    let narrated = run_command(&store, &["narrate", &find_id(&output.err, "run_")], "");
    assert!(narrated.out.contains("The tool now was rejected"), "{}", narrated.out);
    assert!(narrated.out.contains("too early"), "{}", narrated.out);
}

#[test]
fn question_is_answered_by_another_command() {
    let store = agent_store("questions");
    std::fs::write(
        store.file("agent.toml"),
        "kind = \"minimal\"\n[humanInTheLoop]\naskUser = { allowFreeText = true }\n",
    )
    .unwrap();
    let output = run_command(
        &store,
        &[&["run", "Ask me.", "--agent", "agent.toml"][..], &MODEL].concat(),
        "",
    );
    assert_eq!(output.code, 0, "{}", output.err);
    let inbox = run_command(&store, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let waits = &inbox["waiting"][0];
    assert_eq!(waits["kind"], "question", "{inbox} {}", output.err);
    assert_eq!(waits["allowFreeText"], true, "{inbox}");
    let (id, questions) = (waits["id"].as_str().unwrap(), waits["questions"].as_array().unwrap());
    // The inbox and the note of the run contain the questions.
    let printed = run_command(&store, &["inbox"], "").out;
    for question in questions {
        let question = question["question"].as_str().unwrap();
        assert!(printed.contains(question), "{question}: {printed}");
        assert!(output.err.contains(question), "{question}: {}", output.err);
    }
    let wrong_count = run_command(&store, &["answer", id, "1", "2", "3", "4", "5", "6", "7"], "");
    assert_eq!(wrong_count.code, 2);
    assert!(wrong_count.err.contains("give one answer per question"), "{}", wrong_count.err);
    let empty = vec![""; questions.len()];
    let empty = run_command(&store, &[&["answer", id][..], &empty].concat(), "");
    assert_eq!(empty.code, 2, "{}", empty.out);
    assert!(empty.err.contains("needs an answer"), "{}", empty.err);
    let ones = vec!["1"; questions.len()];
    let answered = run_command(&store, &[&["answer", id][..], &ones].concat(), "");
    assert_eq!(answered.code, 0, "{}", answered.err);
    assert!(answered.out.contains("` continues the run\n"), "{}", answered.out);
    let run = find_id(&output.err, "run_");
    let resumed = run_command(&store, &["resume", &run], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(!resumed.out.is_empty());
    // `answer` starts the turn, and `resume` starts it again.
    let narrated = run_command(&store, &["narrate", &run], "").out;
    assert_eq!(narrated.matches("Turn 2: the agent asked").count(), 1, "{narrated}");
}

#[test]
fn interrupted_run_is_resumed_and_cancelled() {
    let store = agent_store("left");
    // The tool blocks, so that the interrupt arrives while the tool is running.
    let (began, url) = (store.file("began"), store.url());
    let tool = format!("slow=touch {}; cat; exec sleep 60", began.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let mut child = without_keys(&mut command)
        .args(["run", "Slowly", "--agent", "agent.toml", "--tool", &tool, "--store", &url])
        .args(MODEL)
        .env("NO_COLOR", "1")
        .current_dir(&store.folder)
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
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("stopped: ") && !err.contains("error:"), "{err}");
    let run = find_id(&err, "run_");
    assert!(err.contains(&format!("`throughline resume {run} --agent")), "{err}");
    // The outcome of the tool is unknown, so the run asks for a decision and does not repeat the
    // call.
    std::fs::remove_file(&began).unwrap();
    let resumed =
        run_command(&store, &["resume", &run, "--agent", "agent.toml", "--tool", &tool], "");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.err.contains("throughline approve "), "{}", resumed.err);
    assert!(!began.exists(), "the tool was run again");
    assert!(
        resumed.err.contains("slow: this call was started, but no result was recorded"),
        "{}",
        resumed.err
    );
    let inbox = run_command(&store, &["inbox"], "");
    assert!(inbox.out.contains("no result was recorded: if you approve"), "{}", inbox.out);
    let inbox = run_command(&store, &["inbox", "--format", "json"], "");
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    assert_eq!(inbox["waiting"][0]["outcome"], "unknown");
    let arguments = ["resume", &run, "--agent", "agent.toml", "--tool", &tool, "--ask"];
    let prompted = run_command(&store, &arguments, "");
    assert!(prompted.err.contains("Run the call AGAIN?"), "{}", prompted.err);
    let narrated = run_command(&store, &["narrate", &run], "");
    assert!(narrated.out.contains("It was started before, and its end was not recorded."));
    let cancelled = run_command(&store, &["cancel", &run, "--reason", "enough"], "");
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    let again = run_command(&store, &["cancel", &run], "");
    assert_eq!(again.code, 2);
    assert!(again.err.contains("has already been cancelled"), "{}", again.err);
    let narrated = run_command(&store, &["narrate", &run], "");
    assert!(narrated.out.contains("The run was asked to stop: enough."), "{}", narrated.out);
    assert!(!narrated.out.contains("failed after"), "the outcome is unknown: {}", narrated.out);
    assert!(narrated.out.contains("The outcome of the tool"), "{}", narrated.out);
}

#[test]
fn detached_run_completes_in_the_background() {
    let store = agent_store("detached");
    let output = start_run(&store, &["--detach"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    let run = output.out.trim().to_owned();
    assert!(run.starts_with("run_") && output.err.contains(&format!("throughline resume {run}")));
    // A follower sees the end of the run, whichever process drives it.
    let watched = run_command(&store, &["resume", &run, "--tool", "now=echo noon"], "");
    assert_eq!(watched.code, 0, "{}", watched.err);
    let narrated = run_command(&store, &["narrate", &run], "");
    assert!(narrated.out.contains(" completed: answered."), "{}", narrated.out);
}

#[test]
fn invalid_arguments_are_rejected_before_any_model_call() {
    let store = agent_store("wrong");
    std::fs::write(store.file("bad.toml"), "model = \"sim/gpt-5.2\"\nkindness = 1\n").unwrap();
    std::fs::write(store.file("broken.toml"), "model = ").unwrap();
    std::fs::write(store.file("tools.toml"), "[[tools]]\nname = \"a\"\n").unwrap();
    let file = |name: &str, text: &str| std::fs::write(store.file(name), text).unwrap();
    file("debt.toml", "model = \"sim/gpt-5.2\"\nlimits = { maxCostUsd = -1.0 }\n");
    file("team.toml", "[agents.ada]\nmodel = \"sim/gpt-5.2\"\nkindness = 1\n");
    file("ask.toml", "model = \"sim/gpt-5.2\"\nhumanInTheLoop = { askUser = true }\n");
    file("nan.toml", "model = \"sim/gpt-5.2\"\nlimits = { maxCostUsd = nan }\n");
    let twice = "[[tools]]\nname = \"a\"\ncommand = \"true\"\n".repeat(2);
    file("twice.toml", &format!("model = \"sim/gpt-5.2\"\n{twice}"));
    for (arguments, code, problem) in [
        (
            vec!["run", "Hi", "--agent", "debt.toml"],
            65,
            "limits.maxCostUsd: -1 is not a valid amount",
        ),
        (
            vec!["run", "Hi", "--agent", "nan.toml"],
            65,
            "nan.toml:2:12: limits.maxCostUsd is not a finite number",
        ),
        (vec!["run", "Hi", "--agent", "twice.toml"], 65, "twice.toml:6:1: two tools are named a"),
        (
            vec!["run", "Hi", "--model", "sim/gpt-5.2", "--tool", "a=true", "--tool", "a=false"],
            2,
            "two tools are named a",
        ),
        (vec!["run", "  ", "--model", "sim/gpt-5.2"], 2, "the message for the agent is empty"),
        (vec!["run", "Hi"], 2, "no model is set; use --model"),
        (vec!["run", "Hi", "--model", "sin/claude-x"], 2, "did you mean `sim/claude-x`?"),
        (vec!["run", "Hi", "--model", "sim/llama-4"], 2, "use sim/MODEL, where MODEL matches"),
        (vec!["run", "Hi", "--model", "claude-sonnet-5"], 2, "set ANTHROPIC_API_KEY"),
        (vec!["run", "Hi", "--model", "sim/gpt-5.2", "--tool", "now"], 2, "use NAME=COMMAND"),
        (
            vec!["run", "-", "--model", "sim/gpt-5.2"],
            2,
            "standard input is empty; expected a message",
        ),
        (vec!["run", "Hi", "--agent", "bad.toml"], 65, "bad.toml:2:1: unknown field `kindness`"),
        (vec!["run", "Hi", "--agent", "team.toml"], 65, "team.toml:3:1: agents.ada: unknown field"),
        (vec!["run", "Hi", "--agent", "broken.toml"], 65, "broken.toml:1:"),
        (
            vec!["run", "Hi", "--agent", "ask.toml"],
            65,
            "ask.toml:2:20: `humanInTheLoop.askUser` must be a table, not boolean `true`",
        ),
        (vec!["run", "Hi", "--agent", "absent.toml"], 2, "cannot read absent.toml"),
        (
            vec!["run", "Hi", "--agent", "tools.toml", "--model", "sim/gpt-5.2"],
            65,
            "tools.toml:1:1: tools: the tool a has no `command`",
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
        let output = run_command(&store, &arguments, "");
        assert_eq!(output.code, code, "{arguments:?}: {} {}", output.out, output.err);
        assert!(output.err.contains(problem), "{arguments:?}: {problem} is not in {}", output.err);
        assert!(
            !output.err.contains("at line 1 column"),
            "the position refers to generated JSON: {}",
            output.err
        );
    }
}

#[test]
fn secrets_are_redacted_in_output_and_narration() {
    let store = agent_store("secret");
    let secret = crate::support::kept::SECRET;
    std::fs::write(store.file("keys"), secret).unwrap();
    let tool = ["--agent", "agent.toml", "--tool", "keys=cat keys"];
    let prompt = format!("My key is {secret}");
    let output = run_command(&store, &[&["run", "-"][..], &tool, &MODEL].concat(), &prompt);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        !output.err.contains(secret) && !output.out.contains(secret),
        "{} {}",
        output.err,
        output.out
    );
    let narrated = run_command(&store, &["narrate", &find_id(&output.err, "run_")], "");
    assert!(!narrated.out.contains(secret), "{}", narrated.out);
    assert!(narrated.out.contains("[REDACTED]"), "{}", narrated.out);
}

#[test]
fn snapshot_resumes_in_another_store() {
    let store = TestStore::without_database("agent-snapshot");
    let started = store.run(&[
        "run",
        "What is the time?",
        "--model",
        "sim/claude-sonnet-5-5",
        "--tool",
        "now=echo noon",
        "--approve",
        "now",
        "--no-ask",
    ]);
    assert_eq!(started.code, 0, "{}", started.err);
    let run = find_id(&started.err, "run_");
    let taken = store.run(&["snapshot", &run, "--output", "run.json", "--tag", "before lunch"]);
    assert_eq!(taken.code, 0, "{}", taken.err);
    let mode = std::fs::metadata(store.file("run.json")).unwrap().permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777;
    assert_eq!(mode, 0o600, "only the owner can read a snapshot: {mode:o}");
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(store.file("run.json")).unwrap()).unwrap();
    assert_eq!(document["metadata"]["tag"], "before lunch");
    assert_eq!(document["metadata"]["paused"], true);
    let printed = store.run(&["snapshot", &run]);
    assert!(printed.out.contains(&format!("\"run\":\"{run}\"")), "{}", printed.out);

    // The other store reviews the open call again, and then continues the run.
    let other = ["--store", "sqlite://other.db", "--tool", "now=echo noon", "--no-ask"];
    let resume = |what: &[&str]| store.run(&[&["resume"], what, &other[..]].concat());
    let restored = resume(&["--snapshot", "run.json"]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert!(restored.err.contains(&format!("restored {run} of")), "{}", restored.err);
    assert!(restored.err.contains("now needs approval"), "{}", restored.err);
    let inbox = store.run(&["inbox", "--store", "sqlite://other.db", "--format", "json"]);
    let inbox: Value = serde_json::from_str(&inbox.out).unwrap();
    let id = inbox["waiting"][0]["id"].as_str().unwrap();
    let approved = store.run(&["approve", id, "--store", "sqlite://other.db"]);
    assert_eq!(approved.code, 0, "{}", approved.err);
    let ended = resume(&[&run]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("noon"), "{}", ended.out);

    for (arguments, code, problem) in [
        (vec!["snapshot", "run_nowhere"], 2, "run_nowhere"),
        (vec!["resume", "--snapshot", "absent.json"], 2, "absent.json"),
        (vec!["resume", "--snapshot", "throughline.toml"], 65, "invalid snapshot"),
        (vec!["resume", "--snapshot", "run.json", &run], 2, "cannot be used with"),
        (
            vec!["resume", "--snapshot", "run.json", "--store", "sqlite://third.db"],
            2,
            "not passed: now; pass them again with --tool NAME=COMMAND or --agent",
        ),
        (
            vec!["resume", "--snapshot", "absent.json", "--store", "sqlite://fourth.db"],
            2,
            "absent.json",
        ),
    ] {
        std::fs::write(store.file("throughline.toml"), "").unwrap();
        let output = store.run(&arguments);
        assert_eq!(output.code, code, "{arguments:?}: {}", output.err);
        assert!(output.err.contains(problem), "{arguments:?}: {}", output.err);
    }
    assert!(!store.file("fourth.db").exists(), "the snapshot is read before a store is created");
}

#[test]
fn shell_tools_read_the_ctx_of_the_run() {
    let store = TestStore::without_database("agent-ctx");
    let tool = r#"probe=printf %s "$THROUGHLINE_CTX" | tr -d '{}"'"#;
    let output = store.run(&[
        "run",
        "Probe it.",
        "--model",
        "sim/claude-sonnet-5-5",
        "--tool",
        tool,
        "--ctx",
        "customer=4711",
        "--ctx",
        "city=Basel",
        "--no-ask",
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains("city:Basel,customer:4711"), "{}", output.err);
    for (ctx, code, problem) in
        [("customer", 2, "write KEY=VALUE"), ("__run=x", 65, "ctx.__run: is not a valid key")]
    {
        let model = ["--model", "sim/claude-sonnet-5-5", "--no-ask"];
        let output = store.run(&[&["run", "Hello", "--ctx", ctx], &model[..]].concat());
        assert_eq!(output.code, code, "{}", output.err);
        assert!(output.err.contains(problem), "{}", output.err);
    }
}
