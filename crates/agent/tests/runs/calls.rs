//! Tests for the reflection limit, and for the permit that every model call needs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use throughline_agent::{
    AgentConfig, CallDenial, CallGrant, CallPermit, PermitFuture, Purpose, RunCommand, RunStatus,
    ToolSpec,
};
use throughline_core::{Call, ModelErrorKind, Reply, Store as _};
use throughline_json::Json;
use throughline_spec::RunEvent;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

const MODEL: &str = "claude-sonnet-4-5";

fn reflecting(max_per_run: u64) -> AgentConfig {
    let mut agent = AgentConfig::minimal(MODEL);
    let reasoning = format!(
        r#"{{"level":"high","reflection":{{"cadence":"after_tool","mode":"separate","maxPerRun":{max_per_run}}}}}"#
    );
    agent.reasoning = Some(Json::parse(reasoning).unwrap());
    agent
}

#[tokio::test]
async fn reflection_cap_counts_calls_that_fail_repeat_or_are_empty() {
    for note in [
        ScriptedAnswer::Text("the same note"),
        ScriptedAnswer::Text(""),
        ScriptedAnswer::Fails(ModelErrorKind::Other),
    ] {
        let answer = note.clone();
        let models = ScriptedModels::default().with(MODEL, move |call| {
            let is_reflection = call.tools.is_empty();
            match results(call) {
                _ if is_reflection => answer.clone(),
                0..6 => ScriptedAnswer::Calls(&[("look", "{}")]),
                _ => ScriptedAnswer::Text("done"),
            }
        });
        let scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
        let (started, status) = scene.run(reflecting(2), "go").await;
        assert_eq!(status, RunStatus::Completed);
        let requests = scene.models.requests(MODEL);
        let reflections = requests.iter().filter(|call| call.tools.is_empty()).count();
        assert_eq!(reflections, 2, "{note:?}");
        assert_eq!(scene.state(&started.run).await.progress.reflected.count, 2);
    }
}

/// Permit that allows a fixed number of calls.
struct CountingPermit(AtomicU64);

impl CallPermit for CountingPermit {
    fn permit<'a>(&'a self, _: &'a str, _: Purpose, _: &'a Call) -> PermitFuture<'a> {
        let remaining = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1));
        let denial = CallDenial {
            limit: "keyBudget".into(),
            allowed: 0.1,
            actual: 0.11,
            message: "the key has used up its budget: use another one".into(),
        };
        Box::pin(async move {
            remaining.map(|_| Box::new(()) as Box<dyn CallGrant>).map_err(|_| denial)
        })
    }
}

#[tokio::test]
async fn denied_call_ends_the_run_like_a_limit() {
    // Turns, reflections and gate retries each need a permit.
    for permits in 0..7 {
        let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
            _ if call.tools.is_empty() => ScriptedAnswer::Text("a note"),
            2 => ScriptedAnswer::Fails(ModelErrorKind::Transient),
            _ => ScriptedAnswer::Calls(&[("look", "{}")]),
        });
        let mut scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
        scene.runner.permit = Some(Arc::new(CountingPermit(AtomicU64::new(permits))));
        let mut agent = reflecting(9);
        let again = r#"{"rules":[{"attemptsBelow":9,"then":"retry"}]}"#;
        agent.gate = serde_json::from_str(again).unwrap();
        let (started, status) = scene.run(agent, "go").await;
        assert_eq!(status, RunStatus::Failed);
        assert_eq!(
            scene.models.requests(MODEL).len() as u64,
            permits,
            "no call without permission"
        );
        let events = scene.events(&started.run).await;
        let limits = events.iter().filter_map(|event| match event {
            RunEvent::Limit(event) => Some(event.json().as_str().to_owned()),
            _ => None,
        });
        let limits: Vec<String> = limits.collect();
        assert_eq!(limits.len(), 1, "{limits:?}");
        assert!(limits[0].contains("keyBudget") && limits[0].contains("0.11"), "{limits:?}");
        let state = scene.state(&started.run).await;
        let phase = format!("{:?}", state.progress.phase);
        assert!(phase.contains("limit reached: keyBudget: the key has used up"), "{phase}");
    }
}

/// Permit that records how each call ended.
#[derive(Clone, Default)]
struct RecordingPermit(Arc<Mutex<Vec<&'static str>>>);

struct RecordingGrant {
    ends: RecordingPermit,
    has_received: bool,
    is_settled: bool,
}

impl CallPermit for RecordingPermit {
    fn permit<'a>(&'a self, _: &'a str, _: Purpose, _: &'a Call) -> PermitFuture<'a> {
        let grant = RecordingGrant { ends: self.clone(), has_received: false, is_settled: false };
        Box::pin(async move { Ok(Box::new(grant) as Box<dyn CallGrant>) })
    }
}

impl CallGrant for RecordingGrant {
    fn add_received(&mut self, bytes: usize) {
        self.has_received |= bytes > 0;
    }

    fn settle(mut self: Box<Self>, reply: Option<&Reply>) {
        self.is_settled = true;
        self.ends.0.lock().unwrap().push(match reply {
            Some(_) if self.has_received => "answered",
            Some(_) => "answered without deltas",
            None => "failed",
        });
    }
}

impl Drop for RecordingGrant {
    fn drop(&mut self) {
        if !self.is_settled {
            self.ends.0.lock().unwrap().push("interrupted");
        }
    }
}

/// Returns how the grants of a run ended that calls a tool and then gets `second`.
async fn grant_ends(second: ScriptedAnswer) -> Vec<&'static str> {
    let models = ScriptedModels::default().with(MODEL, move |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("look", "{}")]),
        _ => second.clone(),
    });
    let mut scene = Scene::new(models, vec![ToolSpec::new("look").idempotent()]).await;
    let ends = RecordingPermit::default();
    scene.runner.permit = Some(Arc::new(ends.clone()));
    scene.run(AgentConfig::minimal(MODEL), "go").await;
    let ends = ends.0.lock().unwrap();
    ends.clone()
}

#[tokio::test]
async fn grant_is_settled_when_its_call_ends() {
    let ends = grant_ends(ScriptedAnswer::Text("done")).await;
    assert_eq!(ends, ["answered without deltas", "answered"]);
    let ends = grant_ends(ScriptedAnswer::Fails(ModelErrorKind::Other)).await;
    assert_eq!(ends, ["answered without deltas", "failed"]);
    let ends = grant_ends(ScriptedAnswer::GetsLost).await;
    assert_eq!(ends, ["answered without deltas", "interrupted"]);
}

#[expect(clippy::disallowed_methods, reason = "the wait is measured by a monotonic clock")]
#[tokio::test]
async fn cancel_does_not_wait_for_lease_of_dead_owner() {
    let models = ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Text("done"));
    let scene = Scene::new(models, Vec::new()).await;
    let start = Scene::start(AgentConfig::minimal(MODEL), "go");
    let run = scene.runner.start(start).await.unwrap().run;
    let minute = Duration::from_mins(1);
    let lease = scene.journal.lease(&us(), &run, "gone", minute).await.unwrap();
    let (began, patience) = (Instant::now(), Duration::from_millis(200));
    scene
        .runner
        .send_command_within(&us(), &run, RunCommand::Cancel(None), patience)
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The next owner handles the command without calling a model.
    scene.journal.release(&us(), &run, lease.fence).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Cancelled);
    assert!(scene.models.requests(MODEL).is_empty());
}
