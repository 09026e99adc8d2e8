//! Tests two nodes that share one PostgreSQL database. The node that drives a run is killed, the
//! other node resumes the run, and a follower receives every event exactly once.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{
    AgentConfig, Ports, RunError, RunRequest, RunSpec, RunStatus, Runner, Tool, ToolSpec,
};
use throughline_core::{
    Body, Clock, IdGenerator, LogFollower, LogId, ModelRegistry, Store, StoreError, unpack_events,
};
use throughline_json::{Name, Node, Tree};
use throughline_store::{Journal, Options, open};
use throughline_testkit::{Child, TestRng, cases, child_task, figure, postgres_database};

use crate::harness::{FakeClock, RecordingTool, ScriptedAnswer, ScriptedModels, results, us};

struct NodeIds(String);

impl IdGenerator for NodeIds {
    fn generate(&self, prefix: &str) -> Name {
        if prefix == "node" { self.0.as_str().into() } else { prefix.into() }
    }
}

const TURNS: usize = 40;

/// Creates a runner with this name on the shared database.
async fn node(url: &str, name: &str) -> (Runner, Journal) {
    let journal = open(url, &Options::default()).await.unwrap();
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        done if done < TURNS => ScriptedAnswer::Calls(&[("look", "{}")]),
        _ => ScriptedAnswer::Text("That was all."),
    });
    let tool =
        RecordingTool { spec: ToolSpec::new("look").idempotent(), tool_calls: Arc::default() };
    let ports = Ports {
        clock: Arc::new(FakeClock::default()) as Arc<dyn Clock>,
        ids: Arc::new(NodeIds(name.to_owned())),
        secret: [7; 32],
    };
    let store = Arc::new(journal.clone()) as Arc<dyn Store>;
    let models = Arc::new(models) as Arc<dyn ModelRegistry>;
    let mut runner =
        Runner::new(store, models, ports).with_tools([Arc::new(tool) as Arc<dyn Tool>]);
    runner.lease = Duration::from_secs(3);
    (runner, journal)
}

/// Entry point of the child process that is killed.
#[tokio::test]
async fn a_node() {
    let Some(url) = child_task() else { return };
    let (runner, _) = node(&url, "first").await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.limits.max_tool_calls = Some(1000);
    let start = RunRequest {
        tenant: us(),
        thread: None,
        casting: RunSpec::single_agent(agent, Vec::new()),
        said: vec![Body::Text("Look around.".into())],
        once: Vec::new(),
    };
    let started = runner.start(start).await.unwrap();
    println!("begun");
    runner.drive(&us(), &started.run).await.unwrap();
}

/// Follows a run to its end and returns the sequence numbers of its events. Each number is also
/// sent to `latest`.
async fn follow_run(
    journal: Journal,
    run: LogId,
    latest: tokio::sync::watch::Sender<u64>,
) -> Vec<u64> {
    let mut follower = LogFollower::events(&journal, us(), run, 0).await.unwrap();
    let mut numbers = Vec::new();
    loop {
        for record in follower.next().await.unwrap() {
            for (number, event) in unpack_events(&record).unwrap() {
                numbers.push(number);
                latest.send_replace(number);
                let tree = Tree::parse(event).unwrap();
                let root = tree.root();
                let has = |key: &str, text: &str| {
                    root.get(key).is_some_and(|node: Node<'_>| node.is(text))
                };
                if has("type", "run") && has("status", "completed") {
                    return numbers;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_continue_when_their_node_is_killed_and_followers_miss_nothing() {
    let kills = (cases(30) / 500).max(3);
    let mut rng = TestRng::new(6);
    let mut events = 0;
    for _ in 0..kills {
        let url = postgres_database();
        let (second, journal) = node(&url, "second").await;
        let mut child = Child::start("nodes::a_node", &url);
        while child.line().is_some_and(|line| !line.ends_with("begun")) {}
        let (sender, mut receiver) = tokio::sync::watch::channel(0);
        let run = LogId::from("run");
        let follower = tokio::spawn(follow_run(journal.clone(), run.clone(), sender));
        let threshold = 5 + rng.below(120) as u64;
        let reached = receiver.wait_for(|number| *number >= threshold);
        tokio::time::timeout(Duration::from_mins(1), reached)
            .await
            .expect("the first node works")
            .unwrap();
        child.kill();
        // On a busy machine, the second node may renew its own lease too late and start again.
        let status = loop {
            match second.take_over(&us(), &run).await {
                Err(RunError::Store(StoreError::Fenced { .. })) => {}
                result => break result.unwrap(),
            }
        };
        assert_eq!(status, RunStatus::Completed);
        let numbers = follower.await.unwrap();
        let all: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, all, "no gap and no duplicate");
        events += numbers.len();
    }
    figure("owners killed", format!("{kills}, {events} events followed without a gap"));
}
