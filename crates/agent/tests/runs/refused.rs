//! Tests that duplicate, late, malformed, foreign or expired decisions are rejected with a clear
//! error, without running a tool.

use std::sync::atomic::Ordering;

use throughline_agent::{AgentConfig, AskUser, RunCommand, RunStatus, ToolSpec};
use throughline_core::{LogId, PendingStatus, Store as _, Tenant};
use throughline_json::{Json, Name};
use throughline_spec::{
    ToolApprovalResolution, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionResolution,
};

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

const MODEL: &str = "claude-sonnet-4-5";
const ASK: &str =
    r#"{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]}"#;

#[derive(Clone, Copy, Debug, PartialEq)]
enum PendingKind {
    Approval,
    Question,
}

const BOTH: [PendingKind; 2] = [PendingKind::Approval, PendingKind::Question];

/// A run that waits for a decision.
struct WaitingRun {
    scene: Scene,
    run: LogId,
    id: Name,
    kind: PendingKind,
}

impl WaitingRun {
    async fn open(kind: PendingKind, expires_ms: Option<u64>) -> Self {
        let models =
            ScriptedModels::default().with(MODEL, move |call| match (results(call), kind) {
                (0, PendingKind::Approval) => {
                    ScriptedAnswer::Calls(&[("deploy", r#"{"to":"moon"}"#)])
                }
                (0, PendingKind::Question) => ScriptedAnswer::Calls(&[("ask_user_question", ASK)]),
                _ => ScriptedAnswer::Text("done"),
            });
        let schema = r#"{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}"#;
        let deploy = ToolSpec::new("deploy").schema(Json::parse(schema.to_owned()).unwrap());
        let scene = Scene::new(models, vec![deploy.needs_approval()]).await;
        let mut agent = AgentConfig::minimal(MODEL);
        agent.human_in_the_loop.ask_user =
            Some(AskUser { allow_free_text: false, expires_ms, ..AskUser::default() });
        agent.human_in_the_loop.approval_expires_ms = expires_ms;
        let (started, status) = scene.run(agent, "go").await;
        assert_eq!(status, RunStatus::Waiting);
        let id = scene.journal.pending(&us(), Some(&started.run)).await.unwrap()[0].id.clone();
        Self { scene, run: started.run, id, kind }
    }

    /// Returns a valid decision on the pending request.
    fn valid_decision(&self) -> RunCommand {
        match self.kind {
            PendingKind::Approval => {
                RunCommand::Decide(ToolApprovalResolution::new(self.id.clone(), true))
            }
            PendingKind::Question => self.answer("Which?", &["Red"]),
        }
    }

    fn answer(&self, question: &str, values: &[&str]) -> RunCommand {
        let values = values.iter().map(|value| Name::from(*value)).collect();
        let mut resolution = UserQuestionResolution::new(self.id.clone());
        let answer = UserQuestionAnswer::new(values);
        resolution.answers = Some(UserQuestionAnswerSet(vec![(question.into(), answer)]));
        RunCommand::Answer(resolution)
    }

    /// Returns invalid decisions, each with its expected error.
    fn malformed(&self) -> Vec<(RunCommand, String)> {
        let of_unknown = |problem: &str| problem.to_owned() + " not found for id: unknown";
        match self.kind {
            PendingKind::Approval => {
                let id = &self.id;
                let mut edited = ToolApprovalResolution::new(id.clone(), true);
                edited.approved_args = Some(Json::parse(r#"{"to":7}"#.to_owned()).unwrap());
                let mut other = ToolApprovalResolution::new(id.clone(), true);
                other.extras.push(("argsHash".into(), throughline_json::string("beef")));
                let unknown = ToolApprovalResolution::new("unknown".into(), true);
                vec![
                    (RunCommand::Decide(unknown), of_unknown("Pending approval")),
                    (RunCommand::Decide(edited), "approvedArgs do not match the schema".to_owned()),
                    (
                        RunCommand::Decide(other),
                        format!("Tool approval {id} is for other arguments"),
                    ),
                    (self.answer("Which?", &["Red"]), "Pending user question".to_owned()),
                ]
            }
            PendingKind::Question => {
                let mut unknown = UserQuestionResolution::new("unknown".into());
                unknown.cancelled = Some(true);
                let decision = ToolApprovalResolution::new(self.id.clone(), true);
                vec![
                    (RunCommand::Answer(unknown), of_unknown("Pending user question")),
                    (self.answer("Which?", &[]), "Missing answer".to_owned()),
                    (self.answer("Which?", &["Green"]), "is not an option of".to_owned()),
                    (self.answer("Which?", &["Red", "Blue"]), "only one option".to_owned()),
                    (self.answer("When?", &["Red"]), "is not one of the questions".to_owned()),
                    (RunCommand::Decide(decision), "Pending approval not found".to_owned()),
                ]
            }
        }
    }

    async fn send(&self, tenant: &Tenant, command: RunCommand) -> Result<(), String> {
        let result = self.scene.runner.send_command(tenant, &self.run, command).await;
        result.map_err(|error| error.to_string())
    }

    async fn rejection(&self, command: RunCommand) -> String {
        self.send(&us(), command).await.unwrap_err()
    }

    fn tool_calls(&self) -> usize {
        self.scene.tool_calls.lock().unwrap().len()
    }

    /// Asserts that no tool ran and that the request is still pending.
    async fn assert_waiting(&self) {
        assert_eq!(self.tool_calls(), 0);
        let status = self.scene.runner.drive(&us(), &self.run).await.unwrap();
        assert_eq!(status, RunStatus::Waiting, "{:?}", self.kind);
        assert_eq!(self.tool_calls(), 0);
        assert_eq!(self.scene.models.requests(MODEL).len(), 1, "the model was not called again");
    }

    /// Asserts that a valid decision is still accepted and completes the run.
    async fn assert_completes(&self) {
        self.send(&us(), self.valid_decision()).await.unwrap();
        let status = self.scene.runner.drive(&us(), &self.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert_eq!(self.tool_calls(), usize::from(self.kind == PendingKind::Approval));
    }
}

#[tokio::test]
async fn malformed_decisions_are_refused_and_nothing_is_lost() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, None).await;
        for (command, problem) in waiting.malformed() {
            let error = waiting.rejection(command).await;
            assert!(error.contains(&problem), "{error}");
        }
        waiting.assert_waiting().await;
        waiting.assert_completes().await;
    }
}

#[tokio::test]
async fn decisions_are_made_only_once() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, None).await;
        waiting.send(&us(), waiting.valid_decision()).await.unwrap();
        let again = waiting.rejection(waiting.valid_decision()).await;
        let problem = match kind {
            PendingKind::Approval => "was already decided",
            PendingKind::Question => "already resolved",
        };
        assert!(again.contains(problem), "{again}");
        let status = waiting.scene.runner.drive(&us(), &waiting.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert_eq!(waiting.tool_calls(), usize::from(kind == PendingKind::Approval), "it ran once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_decisions_apply_once() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, None).await;
        let other = {
            let mut other = waiting.scene.runner.clone();
            other.owner = "other".into();
            other
        };
        let us = us();
        let (one, two) = tokio::join!(
            waiting.send(&us, waiting.valid_decision()),
            other.send_command(&us, &waiting.run, waiting.valid_decision())
        );
        // The next owner handles a command that is left in the inbox, and rejects it.
        let status = waiting.scene.runner.take_over(&us, &waiting.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
        assert_eq!(waiting.tool_calls(), usize::from(kind == PendingKind::Approval), "it ran once");
        let answers = waiting.scene.models.requests(MODEL).len();
        assert_eq!(answers, 2, "the run went on once");
    }
}

#[tokio::test]
async fn decisions_after_the_end_are_refused() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, None).await;
        waiting.send(&us(), RunCommand::Cancel(None)).await.unwrap();
        let late = waiting.rejection(waiting.valid_decision()).await;
        assert!(late.contains("has already been cancelled"), "{late}");
        assert_eq!(waiting.tool_calls(), 0);
        let status = waiting.scene.runner.drive(&us(), &waiting.run).await.unwrap();
        assert_eq!((status, waiting.tool_calls()), (RunStatus::Cancelled, 0));
    }
}

#[tokio::test]
async fn other_tenants_cannot_decide() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, None).await;
        let error =
            waiting.send(&Tenant::from("them"), waiting.valid_decision()).await.unwrap_err();
        assert!(error.contains("there is no run"), "{error}");
        waiting.assert_waiting().await;
        waiting.assert_completes().await;
    }
}

#[tokio::test]
async fn expired_request_counts_as_rejected() {
    for kind in BOTH {
        let waiting = WaitingRun::open(kind, Some(1)).await;
        waiting.scene.clock.0.fetch_add(60, Ordering::SeqCst);
        let error = waiting.rejection(waiting.valid_decision()).await;
        assert!(error.contains("has expired"), "{error}");
        assert_eq!(waiting.tool_calls(), 0);
        // The store expires requests by its own clock.
        let (journal, run) = (&waiting.scene.journal, &waiting.run);
        while journal.pending(&us(), Some(run)).await.unwrap()[0].status != PendingStatus::Expired {
        }
        let status = waiting.scene.runner.drive(&us(), run).await.unwrap();
        assert_eq!(
            (status, waiting.tool_calls()),
            (RunStatus::Completed, 0),
            "the model gets the expiry"
        );
        let late = waiting.rejection(waiting.valid_decision()).await;
        assert!(late.contains("has already completed"), "{late}");
    }
}
