//! Tests that repeated, late, malformed, foreign and expired decisions are refused with a clear
//! error, and that no tool runs. A retried decision gets the same response as the original.

use serde_json::{Value, json};
use throughline_core::{PendingStatus, Store as _, Tenant};

use crate::letta::scene::{AgentGateway, kinds};

/// A run that waits for an approval or for an answer to a question.
struct WaitingRun {
    gateway: AgentGateway,
    agent: String,
    run: String,
    call: Value,
    /// The path for answering the pending question; `None` if the run waits for an approval.
    question: Option<String>,
}

impl WaitingRun {
    async fn for_approval(more: &Value) -> Self {
        Self::open("Send a mail.", more).await
    }

    async fn for_answer(more: &Value) -> Self {
        let mut waiting = Self::open("Ask me a question.", more).await;
        let pending = waiting.gateway.journal.pending(&Tenant::from("us"), None).await.unwrap();
        let id = &pending[0].id;
        waiting.question = Some(format!("/v1/throughline/questions/{id}"));
        waiting
    }

    async fn open(text: &str, more: &Value) -> Self {
        let gateway = AgentGateway::open().await;
        let mut people = json!({"askUser": {"allowFreeText": false}});
        for (key, value) in more.as_object().unwrap() {
            people[key] = value.clone();
        }
        let agent = gateway.agent(&json!({"throughline": {"humanInTheLoop": people}})).await;
        let response = gateway.send_message(&agent, text).await;
        assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval", "{response}");
        let request = &response["messages"][2];
        let (run, call) =
            (request["run_id"].as_str().unwrap(), &request["tool_call"]["tool_call_id"]);
        let (run, call) = (run.to_owned(), call.clone());
        Self { gateway, agent, run, call, question: None }
    }

    fn path(&self) -> String {
        self.question.clone().unwrap_or_else(|| format!("/v1/agents/{}/messages", self.agent))
    }

    /// Returns a valid decision about the pending call, or a valid answer to the pending question.
    fn right(&self) -> Value {
        if self.question.is_some() {
            return json!({"answers": {"Which?": {"values": ["Two"]}}});
        }
        let approval = json!({"type": "approval", "tool_call_id": self.call, "approve": true});
        json!({"messages": [{"type": "approval", "approvals": [approval]}]})
    }

    /// Returns a valid decision with this `otid`, which lets the gateway recognise retries.
    fn named(&self, otid: &str) -> Value {
        let mut right = self.right();
        match &self.question {
            Some(_) => right["otid"] = json!(otid),
            None => right["messages"][0]["otid"] = json!(otid),
        }
        right
    }

    fn ran(&self) -> usize {
        self.gateway.ran.lock().unwrap().len()
    }

    /// Returns the number of tools that should run after the decision.
    fn runs(&self) -> usize {
        usize::from(self.question.is_none())
    }

    /// Sends an invalid decision, checks the status, and returns the error message.
    async fn refused(&self, status: u16, body: &Value) -> String {
        let (found_status, error) = self.gateway.try_request("POST", &self.path(), body).await;
        assert_eq!(found_status, status, "{body}: {error}");
        let detail = &error["detail"];
        let text = detail.as_str().map(str::to_owned);
        text.unwrap_or_else(|| detail["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn status(&self) -> Value {
        let run =
            self.gateway.request("GET", &format!("/v1/runs/{}", self.run), &json!(null)).await;
        run["metadata"]["throughline_status"].clone()
    }

    async fn still_waits(&self) {
        assert_eq!((self.ran(), self.status().await), (0, json!("waiting")));
    }

    async fn ended(&self) {
        while self.status().await == "running" {}
    }
}

async fn both(more: &Value) -> [WaitingRun; 2] {
    [WaitingRun::for_approval(more).await, WaitingRun::for_answer(more).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_decisions_are_refused_and_nothing_is_lost() {
    let approval = WaitingRun::for_approval(&json!({})).await;
    let message = |body: Value| json!({"messages": [body]});
    let of = |approvals: Value| message(json!({"type": "approval", "approvals": approvals}));
    let one = json!({"type": "approval", "tool_call_id": approval.call, "approve": true});
    for (status, body, problem) in [
        (422, message(json!({"type": "approval"})), "approvals: is missing"),
        (422, of(json!([])), "approvals: is empty"),
        (422, of(json!([{"type": "approval", "approve": true}])), "a tool_call_id is missing"),
        (422, of(json!([{"tool_call_id": approval.call}])), "approve is missing"),
        (422, of(json!([one, one])), "contains two decisions for call"),
        (
            409,
            of(json!([{"tool_call_id": "unknown", "approve": true}])),
            "call unknown is not waiting",
        ),
        (
            409,
            message(json!({"type": "tool_return", "tool_returns": [
                {"tool_call_id": approval.call, "tool_return": "x", "status": "success"}]})),
            "is not waiting for a result from the client",
        ),
    ] {
        let error = approval.refused(status, &body).await;
        assert!(error.contains(problem), "{body}: {error}");
    }
    approval.still_waits().await;
    let answer = WaitingRun::for_answer(&json!({})).await;
    for body in [
        json!({"answers": {"Which?": {"values": ["Three"]}}}),
        json!({"answers": {"Which?": {"values": ["One", "Two"]}}}),
        json!({"answers": {"When?": {"values": ["One"]}}}),
        json!({"answers": "One"}),
        json!({}),
    ] {
        assert!(!answer.refused(422, &body).await.is_empty());
    }
    answer.still_waits().await;
    for waiting in [approval, answer] {
        waiting.gateway.request("POST", &waiting.path(), &waiting.right()).await;
        waiting.ended().await;
        assert_eq!(waiting.ran(), waiting.runs());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_made_only_once() {
    for waiting in both(&json!({})).await {
        waiting.gateway.request("POST", &waiting.path(), &waiting.right()).await;
        waiting.ended().await;
        let error = waiting.refused(409, &waiting.right()).await;
        let reasons = ["is not waiting", "can no longer be answered"];
        assert!(reasons.iter().any(|reason| error.contains(reason)), "{error}");
        assert_eq!((waiting.ran(), waiting.status().await), (waiting.runs(), json!("completed")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_decision_gets_the_same_response() {
    for waiting in both(&json!({})).await {
        let (path, named) = (waiting.path(), waiting.named("otid-1"));
        let mut first = waiting.gateway.request("POST", &path, &named).await;
        waiting.ended().await;
        let mut again = waiting.gateway.request("POST", &path, &named).await;
        if waiting.question.is_some() {
            // The run uses the answer after the first response.
            let [_, status] = [&mut first, &mut again].map(|answer| answer["status"].take());
            assert_eq!(status, "executed");
        }
        assert_eq!(again, first);
        if waiting.question.is_none() {
            assert_eq!(kinds(&again["messages"])[0], "approval_response_message");
        }
        assert_eq!(waiting.ran(), waiting.runs(), "nothing ran again");
        // The same decision under another otid is a second decision.
        waiting.refused(409, &waiting.named("otid-2")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_decisions_wins() {
    for waiting in both(&json!({})).await {
        let path = waiting.path();
        let decide = || {
            let (path, right, gateway) = (&path, waiting.right(), &waiting.gateway);
            async move { gateway.try_request("POST", path, &right).await.0 }
        };
        let (one, two, three, four) = tokio::join!(decide(), decide(), decide(), decide());
        let mut statuses = [one, two, three, four];
        statuses.sort_unstable();
        assert!(statuses.contains(&200), "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
        waiting.ended().await;
        assert_eq!(waiting.ran(), waiting.runs(), "it ran once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_after_the_end_are_refused() {
    for waiting in both(&json!({})).await {
        let cancel = format!("/v1/agents/{}/messages/cancel", waiting.agent);
        waiting.gateway.request("POST", &cancel, &json!({})).await;
        waiting.refused(409, &waiting.right()).await;
        assert_eq!((waiting.ran(), waiting.status().await), (0, json!("cancelled")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tenants_cannot_decide() {
    for waiting in both(&json!({})).await {
        let (status, bytes) =
            waiting.gateway.send("them", "POST", &waiting.path(), &waiting.right()).await;
        assert_eq!(status, 404, "{bytes:?}");
        waiting.still_waits().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_after_expiry_is_refused() {
    // Long enough for a slow machine to reach the request before it expires.
    let soon = json!({"approvalExpiresMs": 2_000, "askUser": {"expiresMs": 2_000}});
    for waiting in both(&soon).await {
        let us = Tenant::from("us");
        let journal = &waiting.gateway.journal;
        let is_open = |status| matches!(status, PendingStatus::Open);
        while journal.pending(&us, None).await.unwrap().iter().any(|one| is_open(one.status)) {
            tokio::task::yield_now().await;
        }
        waiting.refused(409, &waiting.right()).await;
        assert_eq!(waiting.ran(), 0, "nothing ran");
        // Expiry needs no request: the model receives the outcome, and the run ends.
        while waiting.status().await != "completed" {}
        assert_eq!(waiting.ran(), 0, "nothing ran");
    }
}
