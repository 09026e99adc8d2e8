//! One call, from the request that came in to the answer that goes out.
//!
//! ```text
//! request → the model's name → whom it reaches → Call → restored → encoded → audited, mended → sent
//! answer  ← in the caller's dialect ← captured ← decoded ← what came back
//! ```
//!
//! On one and the same wire the bytes pass as they are, both ways, unless something must be mended. `prepare.rs` makes the
//! request ready, `answer.rs` gives the answer back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use throughline_codec::{Codec, CodecError, codec};
use throughline_core::{
    Answer, Credential, Name, NodeId, Outgoing as Sent, Request, Tenant, Tree, UpstreamError, Wire,
};
use tokio::time::timeout;

use crate::access::Admission;
use crate::dialect;
use crate::gateway::{Answered, Gateway, Reached, ReplayMode};
use crate::operations::{Fates, Ticket};
use crate::prepare::Ready;
use crate::replay::{Claims, Conversation};
use crate::story::{Story, Tail, Texts};

/// Who asks.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// Whom it says that it asks for, in a header of ours.
    pub(crate) end_user: Option<Name>,
    pub(crate) credential: Option<Credential>,
    pub(crate) admission: Admission,
    /// The scheme and host under which the caller reaches the gateway, as `http://localhost:4400`.
    pub(crate) address: Option<Name>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The member that is to blame and the word for it, where the dialect has one.
    pub(crate) code: Option<(&'static str, &'static str)>,
    /// After what time it is worth to ask again.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the store could not be read.
    pub(crate) is_of_store: bool,
}

impl Problem {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, code: None, retry_after: None, is_of_store: false }
    }

    /// The same, which is over after that time.
    #[must_use]
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// It as an answer in the caller's dialect.
    pub(crate) fn told(&self, wire: &Wire) -> Answered {
        let said = dialect::coded_error(wire, self.status, &self.message, self.code);
        let mut answered = Answered::json(self.status, &said);
        if let Some(wait) = self.retry_after {
            // Whole seconds, and never too few.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answered.headers.push((Name::from("retry-after"), seconds.to_string().into()));
        }
        answered
    }

    pub(crate) fn of_codec(error: &CodecError) -> Self {
        Self::new(400, error.to_string())
    }

    pub(crate) fn of_upstream(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::NoCredential { .. } => Self::new(401, error.to_string()),
            UpstreamError::TimedOut { .. } => Self::new(504, error.to_string()),
            UpstreamError::Resting { left, .. } => Self::new(503, error.to_string()).after(*left),
            _ => Self::new(502, error.to_string()),
        }
    }
}

/// A stream that ended early. The caller's connection breaks, as the provider's did.
#[derive(Clone, Debug)]
pub(crate) struct Cut(pub(crate) String);

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cut {}

/// One call of one caller.
pub(crate) struct Exchange<'g> {
    pub(crate) gateway: &'g Gateway,
    pub(crate) caller: Caller,
    /// The caller's dialect.
    pub(crate) wire: Wire,
    pub(crate) ticket: Arc<Ticket>,
    /// The body of the request, if it is JSON.
    pub(crate) body: Option<Tree>,
}

impl<'g> Exchange<'g> {
    pub(crate) fn of(
        gateway: &'g Gateway,
        caller: Caller,
        wire: Wire,
        ticket: Arc<Ticket>,
        body: Option<Tree>,
    ) -> Self {
        Self { gateway, caller, wire, ticket, body }
    }

    /// Asks a model. Whatever comes of it, there is a story to tell.
    pub(crate) async fn call(&self, request: Request) -> Result<Answered, Problem> {
        let node = Claims::fresh_node().map_err(|error| Problem::new(500, error.to_string()))?;
        self.ticket.note(|facts| facts.call = Some(node.0.clone()));
        let mut story = Story::begin(node.clone(), &self.caller.tenant, &self.wire, &request);
        let answered = match self.ask(&request, &mut story).await {
            Ok((ready, reached, answer)) => {
                Box::pin(self.answer(ready, &reached, answer, &request, story)).await
            }
            Err(problem) => {
                self.ticket.note_problem(&problem);
                story.fails(problem.status, &*problem.message);
                // What was not even read is not worth its place.
                if story.is_unread() {
                    story.texts = Texts::default();
                }
                if self.gateway.mode != ReplayMode::Off {
                    let longest = self.gateway.operations.limits.capture;
                    let keeping = self.gateway.replay.stories().keep(&story);
                    drop(timeout(longest, keeping).await);
                }
                Err(problem)
            }
        };
        Ok(answered.unwrap_or_else(|problem| named(problem.told(&self.wire), &node)))
    }

    /// Asks whomever the model's name reaches, in turn.
    async fn ask(
        &self,
        request: &Request,
        story: &mut Story,
    ) -> Result<(Ready, Reached, Answer), Problem> {
        let body = self.body.as_ref();
        let (asked, end_user) = self.named(request, body)?;
        story.asks_for(&asked);
        let all = self.reach(&asked)?;
        self.gateway.operations.check_writes().await?;
        self.gateway.operations.meter.allow(&self.caller.admission, &all).await?;
        let resumed = self.resumed(request, body, end_user.as_deref(), story).await?;
        let mut last = Problem::new(404, format!("nobody answers to {asked}"));
        let mut left = all.len();
        // A caller's own key is for the first of those who are asked with one, and goes to nobody else.
        let keyed = all.iter().find(|reached| reached.is_callers);
        let keyed = keyed.map(|reached| reached.endpoint.clone());
        for (place, reached) in all.into_iter().enumerate() {
            left -= 1;
            if reached.is_callers && Some(&reached.endpoint) != keyed.as_ref() {
                story.goes_on_from(&reached.endpoint, "there is no key for it");
                continue;
            }
            let rename = |body: &Bytes| {
                let request = Request { body: body.clone(), ..request.clone() };
                dialect::renamed(&self.wire, request, &asked, &reached.model)
            };
            let whole = resumed.at(&reached.provider.wire)?;
            let whole = whole.map(|(stored, whole)| (stored, rename(whole)));
            let end_user = end_user.as_deref();
            let renamed = rename(&request.body);
            let length = whole.as_ref().map_or(&renamed, |(_, whole)| whole).body.len();
            let ready = self.prepare(renamed, body, whole, &reached, end_user, story);
            let heavy = &self.gateway.operations.heavy;
            let ready = heavy.run(&self.caller, length, Box::pin(ready)).await??;
            let sent = &ready.encoded.request.body;
            self.check_body(&ready.target.origin, sent, body).await?;
            self.note(&ready, &reached, place);
            self.ticket.request_is_ready();
            let (answer, base) =
                join(self.send(&ready, &reached, request, story), self.base(&ready)).await;
            story.base = base;
            match answer {
                Ok(answer) if left == 0 || !is_failure(answer.status) => {
                    story.hears(answer.status);
                    return Ok((ready, reached, answer));
                }
                Ok(answer) => {
                    let message = format!("{} could not answer", reached.endpoint);
                    story.goes_on_from(&reached.endpoint, format!("status {}", answer.status));
                    last = Problem::new(answer.status, message);
                }
                Err(error) => {
                    story.goes_on_from(&reached.endpoint, error.to_string());
                    last = self.failed(&error);
                }
            }
        }
        Err(last)
    }

    /// Notes whom is asked, and for what.
    fn note(&self, ready: &Ready, reached: &Reached, place: usize) {
        self.ticket.note(|facts| {
            facts.tenant = Some(ready.tenant.clone());
            facts.provider = Some(reached.account.clone());
            facts.model = Some(reached.model.clone());
            facts.fates = Some(Fates::of(&ready.encoded.fates));
            facts.verdict = Some(ready.verdict);
            facts.sent = ready.encoded.request.body.len() as u64;
            facts.fallbacks = place as u64;
        });
    }

    pub(crate) fn failed(&self, error: &UpstreamError) -> Problem {
        self.ticket.note(|facts| facts.problem = Some(error.to_string()));
        Problem::of_upstream(error)
    }

    /// The texts of the call that this one goes on from: they are looked for while the provider answers.
    async fn base(&self, ready: &Ready) -> Option<Arc<Tail>> {
        let Conversation { parent, era, .. } = ready.conversation.as_ref()?;
        let stories = self.gateway.replay.stories();
        let tail = stories.tail(&ready.tenant, parent.as_ref()?, Some(*era));
        // An answer does not wait for a store that hangs.
        timeout(self.gateway.operations.limits.capture, tail).await.ok().flatten()
    }

    async fn send(
        &self,
        ready: &Ready,
        reached: &Reached,
        asked: &Request,
        story: &mut Story,
    ) -> Result<Answer, UpstreamError> {
        let wire = &ready.target.origin.wire;
        let path = speaker(wire).map(|codec| codec.path(&ready.target, ready.stream));
        let mut path = path.unwrap_or_default();
        // On the same wire the query is the caller's own; it may ask for another framing.
        if *wire == self.wire {
            path.truncate(bare(&path).len());
            if let Some((_, query)) = asked.path.split_once('?') {
                path = format!("{path}?{query}");
            }
        }
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: "POST".into(),
            path: path.into(),
            headers: ready.encoded.request.headers.clone(),
            body: ready.encoded.request.body.clone(),
            credential: self.caller.credential.clone(),
        };
        story.sends(&sent, &ready.target.origin);
        self.gateway.upstream.send(sent).await
    }
}

/// The answer with the name under which its call is told.
fn named(mut answered: Answered, node: &NodeId) -> Answered {
    answered.headers.push((Name::from("x-throughline-call"), node.0.clone()));
    answered
}

pub(crate) fn speaker(wire: &Wire) -> Result<&'static dyn Codec, Problem> {
    codec(wire).ok_or_else(|| Problem::new(500, format!("nobody here speaks {wire}")))
}

/// Whether another target may be tried.
fn is_failure(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

fn bare(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}
