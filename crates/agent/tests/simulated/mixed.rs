//! Runs with pauses, kills, model switches, summaries and parallel tools in random order. Providers
//! must accept every request, and every Seal must be sent back to a model that may receive it.

use throughline_agent::{AgentConfig, AskUser, RunCommand, RunStatus, State};
use throughline_core::LogId;
use throughline_json::{Json, Name};
use throughline_testkit::{TestRng, cases, figure};

use crate::world::{MODELS, TestEnvironment, decisions, drive, send_command, us};

/// Maximum number of Threads, even in soak tests. The usual multiplier of soak tests would make
/// this test run for days.
const MOST: u32 = 200;

/// Number of resumptions after which a run is considered stuck.
const PATIENCE: usize = 200;

#[derive(Default)]
struct Figures {
    runs: u64,
    requests: u64,
    replayed: u64,
    withheld: u64,
    pauses: u64,
    kills: u64,
    switches: u64,
    summaries: u64,
    together: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_runs_are_never_refused_and_return_every_permitted_seal() {
    let count = cases(16).min(MOST);
    let mut figures = Figures::default();
    for seed in 0..u64::from(count) {
        converse(seed, &mut figures).await;
    }
    let Figures {
        runs,
        requests,
        replayed,
        withheld,
        pauses,
        kills,
        switches,
        summaries,
        together,
    } = figures;
    for (name, number) in [
        ("threads", u64::from(count)),
        ("runs", runs),
        ("answers of models", requests),
        ("seals that went back", replayed),
        ("seals that may not", withheld),
        ("pauses for people", pauses),
        ("holders that were gone", kills),
        ("switches of the model", switches),
        ("summaries", summaries),
        ("answers with several calls", together),
        ("requests that were refused", 0),
    ] {
        figure(&format!("mixed runs over the simulators, {name}"), number);
    }
    // Every feature must have occurred at least once.
    for happened in [replayed, pauses, kills, switches, summaries, together] {
        assert!(happened > 0, "a feature never occurred");
    }
}

/// Performs a few runs on one Thread.
async fn converse(seed: u64, figures: &mut Figures) {
    let mut rng = TestRng::new(seed);
    let env = TestEnvironment::new(seed, rng.below(2) == 0).await;
    let agent = agent(&mut rng);
    let mut thread: Option<LogId> = None;
    for turn in 0..2 + rng.below(3) {
        let mut agent = agent.clone();
        agent.model = pick(&mut rng);
        let message = format!("Question {turn} of thread {seed}: {}", "so much to say ".repeat(20));
        let started = env.start_run(agent, thread.take(), &message).await;
        run_to_end(&env, &started.run, &mut rng, figures).await;
        thread = Some(started.thread);
        figures.runs += 1;
    }
    let rejected: Vec<_> =
        env.simulator.ledger().entries.into_iter().filter(|entry| entry.status >= 400).collect();
    assert!(rejected.is_empty(), "thread {seed}: {rejected:#?}");
    let observations = env.witness.observations();
    assert!(observations.objections.is_empty(), "thread {seed}: {:#?}", observations.objections);
    figures.requests += observations.requests;
    figures.replayed += observations.replayed;
    figures.withheld += observations.withheld;
    figures.summaries += u64::try_from(observations.summaries.len()).unwrap();
}

/// Drives a run to its end, with random kills and model switches.
async fn run_to_end(env: &TestEnvironment, run: &LogId, rng: &mut TestRng, figures: &mut Figures) {
    for number in 0..PATIENCE {
        // Some resuming processes have the name of the lease owner. Others have a different name
        // and must wait for the lease.
        let node = env.node(["first", "second"][rng.below(2)]);
        if number > 0 && rng.below(3) == 0 {
            let state = node.state(&us(), run).await.unwrap();
            if state.status() == RunStatus::Running || state.status() == RunStatus::Waiting {
                send_command(&node, run, RunCommand::Switch(pick(rng))).await;
                figures.switches += 1;
            }
        }
        let polls = if rng.below(2) == 0 { 1 + rng.below(60) } else { usize::MAX };
        let Some(status) = drive(&node, run, polls).await else {
            figures.kills += 1;
            continue;
        };
        let state = node.state(&us(), run).await.unwrap();
        match status {
            RunStatus::Completed => {
                figures.together += together(&state);
                return;
            }
            RunStatus::Waiting => {
                figures.pauses += 1;
                for command in decisions(&state, rng) {
                    send_command(&node, run, command).await;
                }
            }
            RunStatus::Running | RunStatus::Failed | RunStatus::Cancelled => {
                panic!("{run} is {status}: {:?}", state.progress.phase)
            }
        }
    }
    panic!("{run} never ends");
}

/// Returns the number of answers that contain several tool calls.
fn together(state: &State) -> u64 {
    let mut calls: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
    for item in state.window.visible_items().filter(|item| item.call().is_some()) {
        *calls.entry(item.place.message).or_default() += 1;
    }
    calls.values().filter(|count| **count > 1).count().try_into().unwrap()
}

fn pick(rng: &mut TestRng) -> Name {
    Name::from(rng.pick(&MODELS).unwrap().0)
}

/// Creates an agent with summaries, and with random settings for questions, reasoning and
/// reflection.
fn agent(rng: &mut TestRng) -> AgentConfig {
    let mut agent = AgentConfig::smart("").instructions("You are thorough, and never naïve.");
    agent.human_in_the_loop.ask_user = (rng.below(2) == 0).then_some(AskUser::default());
    agent.context.trigger_tokens = Some([500, 900, 4000][rng.below(3)]);
    agent.context.keep_turns = Some(1);
    agent.max_tokens = Some(16_000);
    let reflection = [
        "false",
        r#"{"cadence":"after_tool","mode":"separate"}"#,
        r#"{"cadence":"after_tool","mode":"piggyback"}"#,
    ][rng.below(3)];
    let reasoning = format!(
        r#"{{"level":"high","native":{{"effort":"high","includeThoughts":true}},"reflection":{reflection}}}"#
    );
    agent.reasoning = Some(Json::parse(reasoning).unwrap());
    agent
}
