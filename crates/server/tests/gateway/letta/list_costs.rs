//! A test that the lists of the console cost no more in a long store than in a short one.
//! `THROUGHLINE_CASES` sets the number of calls.

use std::future::pending;

use serde_json::{Value, json};
use throughline_core::{
    Append, Batch, LogOpening, NewRecord, NewVaultTurn, Store as _, Tenant, TurnId, pack_events,
};
use throughline_testkit::{cases, figure};

use crate::letta::scene::AgentGateway;

/// Number of calls in the short store.
const FEW: usize = 1_000;
/// Number of calls per batch. Each call is followed by a run.
const BATCH: usize = 20;
/// Every call with a number divisible by this one fails.
const FAILING: usize = 5;

/// The first rows of each list, filters that match some rows, and filters that match none.
const REQUESTS: &[&str] = &[
    "calls?limit=100",
    "calls?limit=20&status=failed",
    "calls?model=claude-sonnet-5-5&limit=50",
    "calls?status=529",
    "calls?search=nothing",
    "runs?limit=20",
    "runs?status=failed&limit=10",
    "runs?search=nothing",
    "threads?limit=50",
    "threads?search=nothing",
];

/// Writes calls and runs as the gateway and the runner do.
async fn seed(gateway: &AgentGateway, numbers: std::ops::Range<usize>) {
    for first in numbers.step_by(BATCH) {
        let mut batch = Batch::new(Tenant::from("us"));
        for number in first..first + BATCH {
            let (thread, run) = (format!("thread_{number}"), format!("run_{number}"));
            let status = ["completed", "failed"][number % 2];
            let events = [
                json!({"type": "message", "role": "user", "content": format!("Task {number}")}),
                json!({"type": "run", "status": status, "reason": "the model is not available"}),
            ];
            let events = events.map(|event| event.to_string());
            let record = pack_events(events.iter().map(String::as_bytes));
            let opening = LogOpening::run(&*thread);
            batch = batch
                .append(Append::new(&*thread).opening(LogOpening::thread()))
                .append(Append::new(run).opening(opening).record(record).status(status));
            let id = format!("t{number:010}");
            let target = json!({"provider": "anthropic", "wire": "anthropic-messages", "model": "claude-sonnet-5-5"});
            let account = json!({"dialect": "anthropic-messages", "model": "claude-sonnet-5-5", "target": target, "status": 200, "usage": {"input": 20, "output": 9}});
            if number.is_multiple_of(FAILING) {
                let mut failed = account;
                failed["status"] = json!(400);
                failed["error"] = json!("the request is not valid");
                let log = Append::new(format!("call-{id}")).opening(LogOpening::thread());
                batch = batch.append(log.record(NewRecord::new("story", failed.to_string())));
                continue;
            }
            let name = format!("conversation-{id}");
            let log = Append::new(&*name).opening(LogOpening::thread());
            let header = json!({"v": 1, "turn": 0, "call": id, "story": account});
            let item = json!({"id": "i1", "role": "assistant", "text": format!("Answer {number}")});
            let log = log.record(NewRecord::new("turn", header.to_string()));
            batch = batch.append(log.record(NewRecord::new("item", item.to_string())));
            batch.vault.push(NewVaultTurn {
                id: TurnId::from(id),
                parent: None,
                keys: Vec::new(),
                log: name.into(),
                prefix: None,
            });
        }
        gateway.journal.commit(batch).await.unwrap();
    }
}

/// Returns the database steps and the response bytes of each request, in a process that has not
/// answered it before.
async fn costs(gateway: &AgentGateway) -> Vec<[u64; 2]> {
    let process = gateway.beside(pending()).await;
    let mut costs = Vec::new();
    for path in REQUESTS {
        let before = gateway.journal.read_steps().unwrap();
        let path = format!("/v1/throughline/{path}");
        let (status, body) = process.send("us", "GET", &path, &Value::Null).await;
        assert_eq!(status, 200, "{path}");
        let steps = gateway.journal.read_steps().unwrap() - before;
        costs.push([steps, body.len() as u64]);
    }
    costs
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_many_calls_cost_no_more_than_short_lists() {
    let all = usize::try_from(cases(2_000)).unwrap().max(FEW + BATCH);
    let gateway = AgentGateway::open().await;
    seed(&gateway, 0..FEW).await;
    let short = costs(&gateway).await;
    seed(&gateway, FEW..all).await;
    let long = costs(&gateway).await;
    for ((path, short), long) in REQUESTS.iter().zip(&short).zip(&long) {
        figure(
            &format!("{path}: steps and bytes with {FEW} and {all} calls"),
            format!("{short:?} {long:?}"),
        );
        for (short, long) in short.iter().zip(long) {
            assert!(
                *short > 0 && 2 * long <= 3 * short,
                "{path}: {short} with {FEW} calls, {long} with {all}"
            );
        }
    }
}
