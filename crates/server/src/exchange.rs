//! One call, from the request that came in to the answer that goes out.
//!
//! ```text
//! request → the model's name → whom it reaches → Call → restored → encoded → audited, mended → sent
//! answer  ← in the caller's dialect ← captured ← decoded ← what came back
//! ```
//!
//! On one and the same wire the bytes pass as they are, both ways, unless something must be mended.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::join;
use throughline_codec::{
    Asked, Codec, CodecError, Reach, Transcript, Verdict, audit, codec, repair,
};
use throughline_core::{
    Answer, Call, Credential, Did, Encoded, Fate, Name, NodeId, Outgoing as Sent, Request, Target,
    Tenant, UpstreamError, Why, Wire,
};

use crate::access::Admission;
use crate::claimed::Dresser;
use crate::dialect;
use crate::gateway::{Answered, Gateway, Outgoing, Reached, ReplayMode};
use crate::keeper::Keeper;
use crate::replay::{Claims, Conversation, Finding};
use crate::stored::Stored;
use crate::story::{self, Looked, Story, Tail};
use crate::stream::{Relay, relay};

/// The largest whole answer that is read.
const LARGEST_ANSWER: usize = 256 << 20;

/// Who asks.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    pub(crate) credential: Option<Credential>,
    pub(crate) admission: Admission,
    /// For whom it asks, as a header says.
    pub(crate) user: Option<Name>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The member that is to blame and the word for it, where the dialect has one.
    pub(crate) code: Option<(&'static str, &'static str)>,
}

impl Problem {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None }
    }

    /// It as an answer in the caller's dialect, with the name under which the call is told.
    fn told(&self, wire: &Wire, node: &NodeId) -> Answered {
        let said = dialect::coded_error(wire, self.status, &self.message, self.code);
        let call = (Name::from("x-throughline-call"), node.0.clone());
        let mut answered = Answered::json(self.status, &said);
        answered.headers.push(call);
        answered
    }

    fn of_codec(error: &CodecError) -> Self {
        Self::new(400, error.to_string())
    }

    fn of_upstream(error: &UpstreamError) -> Self {
        let status = match error {
            UpstreamError::NoCredential { .. } => 401,
            UpstreamError::TimedOut { .. } => 504,
            _ => 502,
        };
        Self::new(status, error.to_string())
    }
}

/// One call of one caller.
pub(crate) struct Exchange<'g> {
    pub(crate) gateway: &'g Gateway,
    pub(crate) caller: Caller,
    /// The caller's dialect.
    pub(crate) wire: Wire,
}

/// A request that is ready to be sent.
struct Ready {
    encoded: Encoded,
    /// What a provider would say to it.
    verdict: Verdict,
    conversation: Option<Conversation>,
    /// Whose conversation it is.
    tenant: Tenant,
    target: Target,
    stream: bool,
}

impl<'g> Exchange<'g> {
    pub(crate) fn of(gateway: &'g Gateway, caller: Caller, wire: Wire) -> Self {
        Self { gateway, caller, wire }
    }

    /// Whom the caller says that it asks for.
    pub(crate) fn end_user(&self, request: &Request) -> Option<Name> {
        self.caller.user.clone().or_else(|| dialect::end_user(request))
    }

    /// Asks a model. Whatever comes of it, there is a story to tell.
    pub(crate) async fn call(&self, request: Request) -> Result<Answered, Problem> {
        let node = Claims::fresh_node().map_err(|error| Problem::new(500, error.to_string()))?;
        let mut story = Story::begin(node.clone(), &self.caller.tenant, &self.wire, &request);
        let problem = match self.ask(&request, &mut story).await {
            Ok((ready, reached, answer)) => {
                self.answer(ready, &reached, answer, &request, story).await
            }
            Err(problem) => {
                story.fails(problem.status, &*problem.message);
                if self.gateway.mode != ReplayMode::Off {
                    drop(self.gateway.replay.stories().keep(&story).await);
                }
                Err(problem)
            }
        };
        problem.or_else(|problem| Ok(problem.told(&self.wire, &node)))
    }

    /// Asks whomever the model's name reaches, in turn.
    async fn ask(
        &self,
        request: &Request,
        story: &mut Story,
    ) -> Result<(Ready, Reached, Answer), Problem> {
        let asked = dialect::model(&self.wire, request).ok_or_else(|| unnamed(request))?;
        story.asks_for(&asked);
        if !self.caller.admission.allows(&asked) {
            return Err(Problem::new(403, format!("this key may not ask for {asked}")));
        }
        let all =
            self.gateway.directory.reach(&asked).map_err(|message| Problem::new(404, message))?;
        let resumed = self.resumed(request, story).await?;
        let mut last = Problem::new(404, format!("nobody answers to {asked}"));
        let mut left = all.len();
        for reached in all {
            left -= 1;
            let rename = |body: &Bytes| {
                let request = Request { body: body.clone(), ..request.clone() };
                dialect::renamed(&self.wire, request, &asked, &reached.model)
            };
            let whole = resumed.at(&reached.provider.wire)?;
            let whole = whole.map(|(stored, whole)| (stored, rename(whole)));
            let ready = self.prepare(rename(&request.body), whole, &reached, story).await?;
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
                    last = Problem::of_upstream(&error);
                }
            }
        }
        Err(last)
    }

    /// The texts of the call that this one goes on from: they are looked for while the provider answers.
    async fn base(&self, ready: &Ready) -> Option<Arc<Tail>> {
        let parent = ready.conversation.as_ref()?.parent.as_ref()?;
        self.gateway.replay.stories().tail(&ready.tenant, parent).await
    }

    /// Passes on what no dialect of ours reads.
    pub(crate) async fn other(&self, method: &str, request: Request) -> Result<Answered, Problem> {
        if self.caller.admission.is_limited() {
            let message = "this key may ask for some models only, and for nothing else";
            return Err(Problem::new(403, message));
        }
        let nobody = format!("no provider answers {method} {}", bare(&request.path));
        let nobody = || Problem::new(404, nobody);
        // Where a model is named, its own provider answers.
        let directory = &self.gateway.directory;
        let named = dialect::model(&self.wire, &request);
        let named = named.and_then(|name| Some((directory.reach(&name).ok()?, name)));
        let (reached, request) = match named {
            Some((all, name)) => {
                let same = all.into_iter().find(|reached| reached.provider.wire == self.wire);
                let reached = same.ok_or_else(nobody)?;
                let renamed = dialect::renamed(&self.wire, request, &name, &reached.model);
                (reached, renamed)
            }
            None => (directory.of_wire(&self.wire).ok_or_else(nobody)?, request),
        };
        // Bases of OpenAI's kind hold the version already.
        let path = match self.wire.as_str() {
            "openai-chat" | "openai-responses" => {
                request.path.strip_prefix("/v1").unwrap_or(&request.path)
            }
            _ => &request.path,
        };
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            method: method.into(),
            path: path.into(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            credential: self.caller.credential.clone(),
        };
        let answer = self.gateway.upstream.send(sent).await;
        let answer = answer.map_err(|error| Problem::of_upstream(&error))?;
        Ok(Answered {
            status: answer.status,
            headers: answer.headers,
            body: Outgoing::Stream(Box::pin(answer.body.filter_map(async |chunk| chunk.ok()))),
        })
    }

    async fn prepare(
        &self,
        request: Request,
        resumed: Option<(&Stored, Request)>,
        reached: &Reached,
        story: &mut Story,
    ) -> Result<Ready, Problem> {
        let catalog = &self.gateway.catalog;
        let callers = self.caller.credential.as_ref().filter(|_| reached.is_callers);
        let callers = callers.map(|key| self.gateway.replay.claims().name_of_caller(key.reveal()));
        let account = callers.as_ref().unwrap_or(&reached.account);
        let tenant = callers.clone().map_or_else(|| self.caller.tenant.clone(), Tenant);
        story.tenant = tenant.clone();
        let target = catalog.target(&reached.provider, &reached.model, account);
        let is_same = target.origin.wire == self.wire;
        // What a caller of another dialect sends back was never this target's own.
        let source = if is_same {
            target.clone()
        } else {
            let row = catalog.default_provider(&self.wire);
            let row = row.ok_or_else(|| Problem::new(404, "nobody speaks this dialect"))?;
            catalog.target(&row, &reached.model, "caller")
        };
        let (from, to) = (speaker(&self.wire)?, speaker(&target.origin.wire)?);
        let failed = |error: CodecError| Problem::of_codec(&error);
        let decode = |request: &Request| {
            let call = from.decode_request(request, &Asked::of(source.clone()));
            call.map(|call| Call { target: target.clone(), ..call }).map_err(failed)
        };
        let is_home = resumed.as_ref().is_some_and(|(stored, _)| stored.is_at(&target));
        let call = decode(resumed.as_ref().map_or(&request, |(_, whole)| whole))?;
        let stream = call.stream;
        let (mut encoded, restored) = self.restored(to, call, &request, &tenant).await?;
        if is_home {
            // It has the conversation itself, and needs to be told only what is new.
            let mut call = decode(&request)?;
            Claims::remove(&mut call, Why::Foreign);
            encoded = to.encode(&call).map_err(failed)?;
        }
        let (conversation, findings) = restored.unzip();
        story.parent = conversation.as_ref().and_then(|conversation| conversation.parent.clone());
        let looked = self.mended(to, &mut encoded, &target)?;
        let verdict = looked.verdict;
        if self.gateway.mode != ReplayMode::Off {
            let account = story::account(&encoded, &findings.unwrap_or_default(), &looked);
            story.accounts(verdict.as_str(), &account);
        }
        self.refuse(&looked)?;
        Ok(Ready { encoded, verdict, conversation, tenant, target, stream })
    }

    /// The request with what its caller had lost.
    async fn restored(
        &self,
        to: &dyn Codec,
        call: Call,
        request: &Request,
        tenant: &Tenant,
    ) -> Result<(Encoded, Option<(Conversation, Vec<Finding>)>), Problem> {
        let encode = |call: &Call| to.encode(call).map_err(|error| Problem::of_codec(&error));
        if self.gateway.mode == ReplayMode::Off {
            // What is ours goes to no provider, whatever the mode.
            let mut call = call;
            Claims::remove(&mut call, Why::ByPolicy);
            return Ok((encode(&call)?, None));
        }
        let user = self.end_user(request);
        let restored = self.gateway.replay.restore(tenant, user.as_deref(), call).await;
        let restored = restored
            .map_err(|error| Problem::new(503, format!("the store cannot be read: {error}")))?;
        let mut encoded = encode(&restored.call)?;
        restored.account(&mut encoded);
        Ok((encoded, Some((restored.conversation, restored.findings))))
    }

    /// Looks at what would be refused, and mends it where that is wanted.
    fn mended(
        &self,
        to: &dyn Codec,
        encoded: &mut Encoded,
        target: &Target,
    ) -> Result<Looked, Problem> {
        let transcript = Transcript { knows_headers: true, ..Transcript::of(to, &encoded.request) };
        let failed = |error: CodecError| Problem::of_codec(&error);
        match self.gateway.mode {
            ReplayMode::Off => Ok(Looked::at_nothing()),
            ReplayMode::Repair => {
                let repair = repair(&transcript, target, Reach::Refused).map_err(failed)?;
                encoded.request = repair.request;
                let (verdict, mended) = (repair.audit.verdict(), repair.mended);
                Ok(Looked { verdict, findings: repair.audit.findings, mended })
            }
            ReplayMode::Observe | ReplayMode::Enforce => {
                let looked = audit(&transcript, target).map_err(failed)?;
                let verdict = looked.verdict();
                Ok(Looked { verdict, findings: looked.findings, mended: Vec::new() })
            }
        }
    }

    /// Refuses what the provider would refuse, where that is wanted: with the rule, and how to mend it.
    fn refuse(&self, looked: &Looked) -> Result<(), Problem> {
        let is_enforced = self.gateway.mode == ReplayMode::Enforce;
        let gravest = looked.findings.first().filter(|_| looked.verdict == Verdict::Refuse);
        let Some(finding) = gravest.filter(|_| is_enforced) else { return Ok(()) };
        let mend = finding.mend.as_ref().map(|mend| format!(" ({})", mend.what));
        let mend = mend.unwrap_or_default();
        Err(Problem::new(400, format!("[{}] {}{mend}", finding.rule.id, finding.message)))
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
            method: "POST".into(),
            path: path.into(),
            headers: ready.encoded.request.headers.clone(),
            body: ready.encoded.request.body.clone(),
            credential: self.caller.credential.clone(),
        };
        story.sends(&sent, &ready.target.origin);
        self.gateway.upstream.send(sent).await
    }

    async fn answer(
        &self,
        ready: Ready,
        reached: &Reached,
        answer: Answer,
        asked: &Request,
        story: Story,
    ) -> Result<Answered, Problem> {
        let is_same = ready.target.origin.wire == self.wire;
        let mut headers = told(&story.node, &ready.encoded.fates, ready.verdict);
        let status = answer.status;
        let passed = answer.headers.iter().filter(|(name, _)| passes_back(name, is_same));
        headers.extend(passed.cloned());
        let dresser = (!is_same).then(|| {
            let claims = self.gateway.replay.claims().clone();
            Dresser::new(self.wire.clone(), claims, ready.tenant.clone(), story.node.clone())
        });
        let mut keeper = Keeper {
            replay: Arc::clone(&self.gateway.replay),
            conversation: ready.conversation,
            prefix: ready.encoded.prefix,
            story,
        };
        let said = Asked { target: ready.target, prefix: keeper.prefix };
        if status < 400 && ready.stream {
            let framing = dialect::framing(&self.wire, asked);
            let from = speaker(&said.target.origin.wire)?;
            let to = speaker(&self.wire)?;
            let relayed = relay(Relay { answer, from, to, said, framing, dresser, keeper });
            if !is_same {
                headers.push((Name::from("content-type"), Name::from(content_type(framing))));
            }
            return Ok(Answered { status, headers, body: Outgoing::Stream(relayed) });
        }
        headers.extend((!is_same).then(json_type));
        let body = if status >= 400 {
            self.refusal(reached, answer, is_same, &mut keeper).await
        } else {
            self.whole_answer(answer, &said, dresser, asked, &mut keeper).await
        };
        match body {
            Ok(body) => Ok(Answered { status, headers, body: Outgoing::Whole(body) }),
            Err(problem) => {
                keeper.fail(problem.status, &problem.message).await;
                Err(problem)
            }
        }
    }

    /// What the provider says to a request that it does not answer.
    async fn refusal(
        &self,
        reached: &Reached,
        answer: Answer,
        is_same: bool,
        keeper: &mut Keeper,
    ) -> Result<Bytes, Problem> {
        let status = answer.status;
        let body = whole(answer).await?;
        let unnamed = || format!("{} answered {status}", reached.endpoint);
        let message = dialect::message_of(&body).unwrap_or_else(unnamed);
        keeper.fail(status, &message).await;
        if is_same {
            return Ok(body);
        }
        Ok(dialect::error(&self.wire, status, &message).bytes().clone())
    }

    /// An answer that comes in one piece.
    async fn whole_answer(
        &self,
        answer: Answer,
        said: &Asked,
        dresser: Option<Dresser>,
        asked: &Request,
        keeper: &mut Keeper,
    ) -> Result<Bytes, Problem> {
        let body = whole(answer).await?;
        let reply = speaker(&said.target.origin.wire)?.decode_reply(&body, said);
        match (reply, dresser) {
            (Ok(reply), None) => {
                keeper.keep(&reply, Some(body.clone())).await;
                Ok(body)
            }
            (Ok(reply), Some(mut dresser)) => {
                let shown = speaker(&self.wire)?.encode_reply(&dresser.reply(reply.clone()));
                let shown = shown.map_err(|error| Problem::new(502, error.to_string()))?;
                let shown = self.echoed(shown, asked);
                keeper.keep(&reply, Some(shown.clone())).await;
                Ok(shown)
            }
            // What cannot be read passes all the same: the caller may know better.
            (Err(error), None) => {
                keeper.fail(200, &error.to_string()).await;
                Ok(body)
            }
            (Err(error), Some(_)) => Err(Problem::new(502, error.to_string())),
        }
    }
}

/// Why no model is named.
fn unnamed(request: &Request) -> Problem {
    match throughline_core::Tree::parse(request.body.clone()) {
        Err(error) => Problem::new(400, format!("the body is not JSON: {error}")),
        Ok(_) => Problem::new(400, "the request names no model: say which one to ask"),
    }
}

fn speaker(wire: &Wire) -> Result<&'static dyn Codec, Problem> {
    codec(wire).ok_or_else(|| Problem::new(500, format!("nobody here speaks {wire}")))
}

async fn whole(answer: Answer) -> Result<Bytes, Problem> {
    let mut chunks = answer.body;
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| Problem::of_upstream(&error))?);
        if body.len() > LARGEST_ANSWER {
            return Err(Problem::new(502, "the answer is larger than 256 MiB"));
        }
    }
    Ok(body.freeze())
}

fn told(node: &NodeId, fates: &[Fate], verdict: Verdict) -> Vec<(Name, Name)> {
    let all = || fates.iter().flat_map(|fate| fate.seals.iter().chain([&fate.visible]));
    let count = |is: fn(&Did) -> bool| all().filter(|did| is(did)).count();
    let kept = count(|did| matches!(did, Did::Kept));
    let restored = count(|did| matches!(did, Did::Restored(_)));
    let elided = count(|did| matches!(did, Did::Elided(_)));
    let told = format!("kept={kept} restored={restored} elided={elided}");
    vec![
        (Name::from("x-throughline-call"), node.0.clone()),
        (Name::from("x-throughline-fates"), told.into()),
        (Name::from("x-throughline-audit"), verdict.as_str().into()),
    ]
}

/// Whether a header of the provider is the caller's to see.
fn passes_back(name: &str, is_same: bool) -> bool {
    const OWN: &[&str] =
        &["connection", "content-length", "transfer-encoding", "keep-alive", "set-cookie"];
    const OF_BODY: &[&str] = &["content-type", "content-encoding"];
    let is = |names: &[&str]| names.iter().any(|own| name.eq_ignore_ascii_case(own));
    !is(OWN) && (is_same || !is(OF_BODY))
}

fn json_type() -> (Name, Name) {
    (Name::from("content-type"), Name::from("application/json"))
}

fn content_type(framing: throughline_codec::Framing) -> &'static str {
    match framing {
        throughline_codec::Framing::Sse => "text/event-stream; charset=utf-8",
        _ => "application/json",
    }
}

/// Whether another target may be tried.
fn is_failure(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

fn bare(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}
