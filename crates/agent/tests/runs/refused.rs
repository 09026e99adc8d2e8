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
    what: PendingKind,
}

impl WaitingRun {
    async fn open(what: PendingKind, expires_ms: Option<u64>) -> Self {
        let models =
            ScriptedModels::default().with(MODEL, move |call| match (results(call), what) {
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
        agent.human_in_the_loop.ask_user = Some(AskUser { allow_free_text: false, expires_ms });
        agent.human_in_the_loop.approval_expires_ms = expires_ms;
        let (begun, status) = scene.run(agent, "go").await;
        assert_eq!(status, RunStatus::Waiting);
        let id = scene.journal.pending(&us(), Some(&begun.run)).await.unwrap()[0].id.clone();
        Self { scene, run: begun.run, id, what }
    }

    /// Returns a valid decision on the pending request.
    fn right(&self) -> RunCommand {
        match self.what {
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
        match self.what {
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

    async fn tell(&self, tenant: &Tenant, word: RunCommand) -> Result<(), String> {
        let told = self.scene.runner.send_command(tenant, &self.run, word).await;
        told.map_err(|error| error.to_string())
    }

    async fn refused(&self, word: RunCommand) -> String {
        self.tell(&us(), word).await.unwrap_err()
    }

    fn ran(&self) -> usize {
        self.scene.ran.lock().unwrap().len()
    }

    /// Asserts that no tool ran and that the request is still pending.
    async fn still_waits(&self) {
        assert_eq!(self.ran(), 0);
        let status = self.scene.runner.drive(&us(), &self.run).await.unwrap();
        assert_eq!(status, RunStatus::Waiting, "{:?}", self.what);
        assert_eq!(self.ran(), 0);
        assert_eq!(self.scene.models.asked(MODEL).len(), 1, "the model was not called again");
    }

    /// Asserts that a valid decision is still accepted and completes the run.
    async fn ends(&self) {
        self.tell(&us(), self.right()).await.unwrap();
        let status = self.scene.runner.drive(&us(), &self.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert_eq!(self.ran(), usize::from(self.what == PendingKind::Approval));
    }
}

#[tokio::test]
async fn malformed_decisions_are_refused_and_nothing_is_lost() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, None).await;
        for (word, problem) in waiting.malformed() {
            let refused = waiting.refused(word).await;
            assert!(refused.contains(&problem), "{refused}");
        }
        waiting.still_waits().await;
        waiting.ends().await;
    }
}

#[tokio::test]
async fn decisions_are_made_only_once() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, None).await;
        waiting.tell(&us(), waiting.right()).await.unwrap();
        let again = waiting.refused(waiting.right()).await;
        let problem = match what {
            PendingKind::Approval => "was already decided",
            PendingKind::Question => "already resolved",
        };
        assert!(again.contains(problem), "{again}");
        let status = waiting.scene.runner.drive(&us(), &waiting.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert_eq!(waiting.ran(), usize::from(what == PendingKind::Approval), "it ran once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_decisions_apply_once() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, None).await;
        let other = {
            let mut other = waiting.scene.runner.clone();
            other.owner = "other".into();
            other
        };
        let us = us();
        let (one, two) = tokio::join!(
            waiting.tell(&us, waiting.right()),
            other.send_command(&us, &waiting.run, waiting.right())
        );
        // The next owner handles a command that is left in the inbox, and rejects it.
        let status = waiting.scene.runner.take_over(&us, &waiting.run).await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
        assert_eq!(waiting.ran(), usize::from(what == PendingKind::Approval), "it ran once");
        let answers = waiting.scene.models.asked(MODEL).len();
        assert_eq!(answers, 2, "the run went on once");
    }
}

#[tokio::test]
async fn decisions_after_the_end_are_refused() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, None).await;
        waiting.tell(&us(), RunCommand::Cancel(None)).await.unwrap();
        let late = waiting.refused(waiting.right()).await;
        assert!(late.contains("has already been cancelled"), "{late}");
        assert_eq!(waiting.ran(), 0);
        let status = waiting.scene.runner.drive(&us(), &waiting.run).await.unwrap();
        assert_eq!((status, waiting.ran()), (RunStatus::Cancelled, 0));
    }
}

#[tokio::test]
async fn other_tenants_cannot_decide() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, None).await;
        let refused = waiting.tell(&Tenant::from("them"), waiting.right()).await.unwrap_err();
        assert!(refused.contains("there is no run"), "{refused}");
        waiting.still_waits().await;
        waiting.ends().await;
    }
}

#[tokio::test]
async fn expired_request_counts_as_rejected() {
    for what in BOTH {
        let waiting = WaitingRun::open(what, Some(1)).await;
        waiting.scene.clock.0.fetch_add(60, Ordering::SeqCst);
        let refused = waiting.refused(waiting.right()).await;
        assert!(refused.contains("has expired"), "{refused}");
        assert_eq!(waiting.ran(), 0);
        // The store expires requests by its own clock.
        let (journal, run) = (&waiting.scene.journal, &waiting.run);
        while journal.pending(&us(), Some(run)).await.unwrap()[0].status != PendingStatus::Expired {
        }
        let status = waiting.scene.runner.drive(&us(), run).await.unwrap();
        assert_eq!((status, waiting.ran()), (RunStatus::Completed, 0), "the model gets the expiry");
        let late = waiting.refused(waiting.right()).await;
        assert!(late.contains("is over"), "{late}");
    }
}
