//! Calls of models are counted and permitted: the cap on reflections, and the port that decides before every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline_agent::{
    AgentConfig, CallDenial, CallPermit, Permitting, Purpose, RunStatus, ToolSpec, Word,
};
use throughline_core::{Json, RunEvent, Store as _, Trouble};

use crate::harness::{Cast, Says, Scene, results, us};

const MODEL: &str = "claude-sonnet-4-5";

fn reflecting(most: u64) -> AgentConfig {
    let mut agent = AgentConfig::minimal(MODEL);
    let reasoning = format!(
        r#"{{"level":"high","reflection":{{"cadence":"after_tool","mode":"separate","maxPerRun":{most}}}}}"#
    );
    agent.reasoning = Some(Json::parse(reasoning).unwrap());
    agent
}

#[tokio::test]
async fn reflection_cap_counts_calls_that_fail_repeat_or_are_empty() {
    for note in [Says::Text("the same note"), Says::Text(""), Says::Fails(Trouble::Other)] {
        let said = note.clone();
        let models = Cast::default().with(MODEL, move |call| {
            let is_reflection = call.tools.is_empty();
            match results(call) {
                _ if is_reflection => said.clone(),
                0..6 => Says::Calls(&[("look", "{}")]),
                _ => Says::Text("done"),
            }
        });
        let scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
        let (begun, status) = scene.run(reflecting(2), "go").await;
        assert_eq!(status, RunStatus::Completed);
        let asked = scene.models.asked(MODEL);
        let reflections = asked.iter().filter(|call| call.tools.is_empty()).count();
        assert_eq!(reflections, 2, "{note:?}");
        assert_eq!(scene.state(&begun.run).await.progress.reflected.count, 2);
    }
}

/// Permits a number of calls.
struct Permits(AtomicU64);

impl CallPermit for Permits {
    fn permit<'a>(&'a self, _: &'a str, _: Purpose) -> Permitting<'a> {
        let left =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let denial = CallDenial {
            limit: "keyBudget".into(),
            allowed: 0.1,
            actual: 0.11,
            message: "the key has used up its budget: use another one".into(),
        };
        Box::pin(async move { left.map(drop).map_err(|_| denial) })
    }
}

#[tokio::test]
async fn denied_call_ends_the_run_as_a_limit_does() {
    // Turns, reflections and retries of a gate all ask for permission.
    for permits in 0..7 {
        let models = Cast::default().with(MODEL, |call| match results(call) {
            _ if call.tools.is_empty() => Says::Text("a note"),
            2 => Says::Fails(Trouble::Transient),
            _ => Says::Calls(&[("look", "{}")]),
        });
        let mut scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
        scene.runner.permit = Some(Arc::new(Permits(AtomicU64::new(permits))));
        let mut agent = reflecting(9);
        let again = r#"{"rules":[{"attemptsBelow":9,"then":"retry"}]}"#;
        agent.gate = serde_json::from_str(again).unwrap();
        let (begun, status) = scene.run(agent, "go").await;
        assert_eq!(status, RunStatus::Failed);
        assert_eq!(scene.models.asked(MODEL).len() as u64, permits, "no call without permission");
        let events = scene.events(&begun.run).await;
        let limits = events.iter().filter_map(|event| match event {
            RunEvent::Limit(event) => Some(event.json().as_str().to_owned()),
            _ => None,
        });
        let limits: Vec<String> = limits.collect();
        assert_eq!(limits.len(), 1, "{limits:?}");
        assert!(limits[0].contains("keyBudget") && limits[0].contains("0.11"), "{limits:?}");
        let state = scene.state(&begun.run).await;
        let phase = format!("{:?}", state.progress.phase);
        assert!(phase.contains("limit reached: keyBudget: the key has used up"), "{phase}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the wait is measured by a monotonic clock")]
#[tokio::test]
async fn cancelling_does_not_wait_out_the_lease_of_a_holder_that_is_gone() {
    let models = Cast::default().with(MODEL, |_| Says::Text("done"));
    let scene = Scene::new(models, Vec::new()).await;
    let start = Scene::start(AgentConfig::minimal(MODEL), "go");
    let run = scene.runner.begin(start).await.unwrap().run;
    let minute = Duration::from_mins(1);
    let lease = scene.journal.lease(&us(), &run, "gone", minute).await.unwrap();
    let (began, patience) = (Instant::now(), Duration::from_millis(200));
    scene.runner.tell_within(&us(), &run, Word::Cancel(None), patience).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The next holder of the run reads it and calls no model.
    scene.journal.release(&us(), &run, lease.fence).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Cancelled);
    assert!(scene.models.asked(MODEL).is_empty());
}
