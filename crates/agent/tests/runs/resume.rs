//! Tests that a run that is stopped at any point ends as if it had never been stopped.
//!
//! A child process plays a conversation and exits at a given commit, before or right after the
//! write. This process resumes the run with only the data in the store. Thread, state and effects
//! must equal those of an uninterrupted run. The only exception is an interrupted tool that is not
//! idempotent: a person decides the outcome, and the tool never runs twice.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throughline_agent::{
    Ports, RunRequest, RunStatus, Runner, State, Tool, ToolAnswer, ToolContext, ToolFuture,
    ToolSpec, Window, parse_snapshot,
};
use throughline_core::{Body, Clock, IdGenerator, LogId, ModelRegistry, Store};
use throughline_json::{Json, Name};
use throughline_store::{Durability, Journal, Options, open};
use throughline_testkit::{Child, Folder, cases, child_task, figure};

use crate::harness::{FakeClock, us};
use crate::mortal::{CrashPoint, CrashingStore};
use crate::plays::{SCENARIOS, Scenario, reaction};

/// Derives ids from the turn number, so that a resuming process generates the same ids.
#[derive(Default)]
struct TurnIds(AtomicU64);

impl IdGenerator for TurnIds {
    fn generate(&self, prefix: &str) -> Name {
        let turn = self.0.load(Ordering::SeqCst);
        if prefix == "thread" { "thread_0".into() } else { format!("{prefix}_{turn}").into() }
    }
}

/// Tool that appends a line to a file. This effect survives the exit of the process.
struct FileTool {
    spec: ToolSpec,
    file: std::path::PathBuf,
}

impl Tool for FileTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(&self.file).unwrap();
            let line = format!("{} {} {}\n", self.spec.name, context.call, args.as_str());
            file.write_all(line.as_bytes()).unwrap();
            ToolAnswer::text(format!("did {}", args.as_str()))
        })
    }
}

async fn journal(folder: &Path) -> Journal {
    let options = Options { durability: Durability::Relaxed, ..Options::default() };
    open(&format!("sqlite://{}", folder.join("store.db").display()), &options).await.unwrap()
}

/// Creates a runner with the models and tools of a scenario.
fn runner(scenario: &Scenario, folder: &Path, store: Arc<dyn Store>, ids: &Arc<TurnIds>) -> Runner {
    let clock = Arc::new(FakeClock::default()) as Arc<dyn Clock>;
    let ports = Ports { clock, ids: Arc::clone(ids) as Arc<dyn IdGenerator>, secret: [7; 32] };
    let casting = (scenario.casting)();
    let tools = casting
        .tools
        .iter()
        .filter(|spec| !spec.client)
        .cloned()
        .map(|spec| Arc::new(FileTool { spec, file: folder.join("effects") }) as Arc<dyn Tool>);
    let models = Arc::new((scenario.models)()) as Arc<dyn ModelRegistry>;
    let mut runner = Runner::new(store, models, ports).with_tools(tools);
    runner.lease = Duration::from_mins(1);
    runner
}

/// Drives a run to its end and answers its pending requests. Returns whether a person had to decide
/// the outcome of a tool.
async fn run_to_end(runner: &Runner, run: &LogId) -> bool {
    let mut lost = false;
    while runner.drive(&us(), run).await.unwrap() == RunStatus::Waiting {
        let state = runner.state(&us(), run).await.unwrap();
        let (command, is_lost) = reaction(&state).unwrap();
        lost |= is_lost;
        if let Err(error) = runner.send_command(&us(), run, command).await {
            panic!("{error}: {:?}", state.progress.calls);
        }
    }
    lost
}

/// Plays a scenario to its end, starting from the stored state. Returns whether a person had to
/// decide the outcome of a tool.
async fn run_scenario(scenario: &Scenario, folder: &Path, store: Arc<dyn Store>) -> bool {
    let ids = Arc::new(TurnIds::default());
    let runner = runner(scenario, folder, store, &ids);
    let mut lost = false;
    for (turn, message) in (0..).zip(scenario.messages) {
        ids.0.store(turn, Ordering::SeqCst);
        let start = RunRequest {
            tenant: us(),
            thread: (turn > 0).then(|| LogId::from("thread_0")),
            casting: (scenario.casting)(),
            said: vec![Body::Text((*message).into())],
            once: vec![format!("turn {turn}").into()],
        };
        let started = runner.start(start).await.unwrap();
        lost |= run_to_end(&runner, &started.run).await;
    }
    lost
}

/// Returns the final state of each run, and the lines that the tools wrote.
async fn outcome(scenario: &Scenario, folder: &Path) -> (Vec<State>, Vec<String>) {
    let journal = journal(folder).await;
    let runner = runner(scenario, folder, Arc::new(journal.clone()), &Arc::default());
    let mut states = Vec::new();
    for turn in 0..scenario.messages.len() {
        let state = runner.state(&us(), &LogId::from(format!("run_{turn}"))).await.unwrap();
        assert_eq!(state.status(), RunStatus::Completed, "{:?}", state.progress.phase);
        states.push(state);
    }
    let report = journal.verify(None, &|_| {}).await.unwrap();
    assert!(report.broken.is_none(), "the Journal is valid");
    let effects = std::fs::read_to_string(folder.join("effects")).unwrap_or_default();
    (states, effects.lines().map(str::to_owned).collect())
}

/// Entry point of the child process, which exits at a given commit.
#[tokio::test]
async fn a_player() {
    let Some(task) = child_task() else { return };
    let parts: Vec<&str> = task.split('\t').collect();
    let number: u64 = parts[2].parse().unwrap();
    let end =
        if parts[1] == "before" { CrashPoint::Before(number) } else { CrashPoint::After(number) };
    let folder = Path::new(parts[3]);
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == parts[0]).unwrap();
    run_scenario(scenario, folder, Arc::new(CrashingStore::new(journal(folder).await, end))).await;
}

/// Plays a scenario once per stop. Each time, stops the run before or after a different commit and
/// resumes it. Runs every stop with 1,000 or more property cases, otherwise one of nine.
async fn stop_at_every_commit(name: &str) {
    let stride: usize = if cases(1) >= 1_000 { 1 } else { 9 };
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let complete = Folder::new("play");
    let store = CrashingStore::new(journal(&complete).await, CrashPoint::Never);
    assert!(!run_scenario(scenario, &complete, Arc::new(store.clone())).await);
    let commits = store.commits.load(Ordering::SeqCst);
    let (states, mut effects) = outcome(scenario, &complete).await;
    effects.sort();
    let (mut stops, mut unknown) = (0, 0);
    let points = (1..=commits).flat_map(|commit| [("before", commit), ("after", commit)]);
    for (end, commit) in points.step_by(stride) {
        let folder = Folder::new("stopped");
        let task = format!("{name}\t{end}\t{commit}\t{}", folder.display());
        let mut child = Child::start("resume::a_player", &task);
        assert!(!child.wait_for_success(), "{task} should have ended it");
        let lost = run_scenario(scenario, &folder, Arc::new(journal(&folder).await)).await;
        let (after, actual) = outcome(scenario, &folder).await;
        assert_no_repeated_effects(&actual, &task);
        stops += 1;
        if lost {
            unknown += 1;
        } else {
            assert_same(&after, &states, &task);
            let mut actual = actual;
            actual.sort();
            actual.dedup();
            assert_eq!(actual, effects, "{task}: what the tools did");
        }
    }
    let counts = format!("{stops}, of which {unknown} left a tool with an unknown outcome");
    figure(&format!("stops of agents, {name}"), counts);
    assert!(stops * stride >= 100, "only {stops} stops");
    let is_sample = stride > 1;
    assert!(is_sample || unknown > 0, "no stop was between a tool and its answer");
}

fn assert_no_repeated_effects(effects: &[String], task: &str) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for line in effects.iter().filter(|line| !line.starts_with("look ")) {
        *times.entry(line).or_default() += 1;
    }
    let twice = times.into_iter().find(|(_, times)| *times > 1);
    assert_eq!(twice, None, "{task}: ran twice");
}

fn assert_same(after: &[State], expected: &[State], task: &str) {
    for (turn, (after, expected)) in after.iter().zip(expected).enumerate() {
        let to_json = |state: &State| state.smart_state().json().as_str().to_owned();
        assert_eq!(to_json(after), to_json(expected), "{task}: the state of turn {turn}");
        assert_eq!(after.progress, expected.progress, "{task}: the progress of turn {turn}");
        let (after, expected) = (without_attempts(after), without_attempts(expected));
        assert_eq!(after, expected, "{task}: the conversation of turn {turn}");
    }
}

/// Returns the conversation without the numbers of attempts in its Item ids. An answer that was
/// interrupted is requested again, and its Items have other ids than those that were streamed.
fn without_attempts(state: &State) -> Window {
    let mut window = state.window.clone();
    for entry in &mut window.items {
        let (id, attempt) = entry.item.id.0.rsplit_once('-').unwrap_or_default();
        if id.contains(".i") && attempt.parse::<u64>().is_ok() {
            entry.item.id = id.to_owned().into();
        }
    }
    window
}

#[tokio::test]
async fn agents_with_tools_resume_when_stopped_anywhere() {
    stop_at_every_commit("tools").await;
}

#[tokio::test]
async fn agents_waiting_for_people_resume_when_stopped_anywhere() {
    stop_at_every_commit("people").await;
}

#[tokio::test]
async fn agents_in_a_gate_resume_when_stopped_anywhere() {
    stop_at_every_commit("gate").await;
}

#[tokio::test]
async fn agents_with_summaries_resume_when_stopped_anywhere() {
    stop_at_every_commit("long").await;
}

#[tokio::test]
async fn agents_with_handoffs_and_limits_resume_when_stopped_anywhere() {
    stop_at_every_commit("company").await;
}

/// Stops a run halfway, exports it as a snapshot, and finishes it in another store.
async fn resume_in_another_store(name: &str) {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let complete = Folder::new("play");
    let store = CrashingStore::new(journal(&complete).await, CrashPoint::Never);
    run_scenario(scenario, &complete, Arc::new(store.clone())).await;
    let commits = store.commits.load(Ordering::SeqCst);
    let mut compared = 0;
    for commit in (1..commits).step_by(5) {
        let (here, there) = (Folder::new("here"), Folder::new("there"));
        let task = format!("{name}\tafter\t{commit}\t{}", here.display());
        assert!(
            !Child::start("resume::a_player", &task).wait_for_success(),
            "{task} should have ended it"
        );
        let source = runner(scenario, &here, Arc::new(journal(&here).await), &Arc::default());
        let mut turns =
            (0..scenario.messages.len()).rev().map(|turn| LogId::from(format!("run_{turn}")));
        let run = loop {
            let run = turns.next().unwrap();
            if source.store.log(&us(), &run).await.unwrap().is_some() {
                break run;
            }
        };
        let snapshot = source.snapshot(&us(), &run).await.unwrap();
        let document = snapshot.to_json(source.clock.now(), Some("moved")).unwrap();
        let snapshot = parse_snapshot(document.bytes()).unwrap();
        let target = runner(scenario, &there, Arc::new(journal(&there).await), &Arc::default());
        let started = target.restore(&us(), snapshot).await.unwrap();
        assert_eq!(started.run, run);
        if run_to_end(&target, &started.run).await {
            continue;
        }
        let turn: usize = run.0.trim_start_matches("run_").parse().unwrap();
        let (so_far, until) =
            (Folder::new("until"), Scenario { messages: &scenario.messages[..=turn], ..*scenario });
        run_scenario(&until, &so_far, Arc::new(journal(&so_far).await)).await;
        let (expected, _) = outcome(&until, &so_far).await;
        let state = target.state(&us(), &started.run).await.unwrap();
        let comparable = |state: &State| {
            let smart = state.smart_state();
            let messages = smart.messages.iter().map(|message| message.json().as_str().to_owned());
            let messages: Vec<String> = messages.collect();
            (messages, smart.plan, smart.reflections)
        };
        assert_eq!(
            comparable(&state),
            comparable(&expected[turn]),
            "{task}: the state of turn {turn}"
        );
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} were compared");
}

#[tokio::test]
async fn agents_continue_in_another_store_from_a_snapshot() {
    for scenario in SCENARIOS {
        resume_in_another_store(scenario.name).await;
    }
}
