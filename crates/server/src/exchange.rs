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
use throughline_codec::{
    Asked, Codec, CodecError, Reach, Transcript, Verdict, audit, codec, repair,
};
use throughline_core::{
    Answer, Call, Credential, Did, Encoded, Fate, Name, NodeId, Outgoing as Sent, Request, Stop,
    Target, Tenant, UpstreamError, Why, Wire,
};

use crate::access::Admission;
use crate::claimed::Dresser;
use crate::compression;
use crate::dialect::{self, Names};
use crate::gateway::{Answered, Gateway, Outgoing, Reached, ReplayMode};
use crate::replay::{Claims, Conversation, Replay, Turn};
use crate::stream::{Relay, relay};

/// The largest whole answer that is read.
const LARGEST_ANSWER: usize = 256 << 20;

/// Who asks.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// Whom it says that it asks for, in a header of ours.
    pub(crate) end_user: Option<Name>,
    pub(crate) credential: Option<Credential>,
    pub(crate) admission: Admission,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Problem {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
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
    gateway: &'g Gateway,
    caller: Caller,
    /// The caller's dialect.
    wire: Wire,
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

    /// Asks a model.
    pub(crate) async fn call(&self, request: Request) -> Result<Answered, Problem> {
        let Names { model, end_user } = dialect::names(&self.wire, &request);
        let asked = model.ok_or_else(|| unnamed(&request))?;
        let end_user = self.caller.end_user.clone().or(end_user);
        if !self.caller.admission.allows(&asked) {
            return Err(Problem::new(403, format!("this key may not ask for {asked}")));
        }
        let all =
            self.gateway.directory.reach(&asked).map_err(|message| Problem::new(404, message))?;
        let mut last = Problem::new(404, format!("nobody answers to {asked}"));
        for (place, reached) in all.iter().enumerate() {
            let renamed = dialect::renamed(&self.wire, request.clone(), &asked, &reached.model);
            let ready = self.prepare(renamed, reached, end_user.as_deref()).await?;
            let answer = self.send(&ready, reached, &request).await;
            let is_last = place + 1 == all.len();
            match answer {
                Ok(answer) if is_last || !is_failure(answer.status) => {
                    return self.answer(ready, reached, answer, &request).await;
                }
                Ok(answer) => {
                    last = Problem::new(
                        answer.status,
                        format!("{} could not answer", reached.endpoint),
                    );
                }
                Err(error) => last = Problem::of_upstream(&error),
            }
        }
        Err(last)
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
        let named = dialect::names(&self.wire, &request).model;
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
        reached: &Reached,
        end_user: Option<&str>,
    ) -> Result<Ready, Problem> {
        let catalog = &self.gateway.catalog;
        let callers = self.caller.credential.as_ref().filter(|_| reached.is_callers);
        let callers = callers.map(|key| self.gateway.replay.claims().name_of_caller(key.reveal()));
        let account = callers.as_ref().unwrap_or(&reached.account);
        let tenant = callers.clone().map_or_else(|| self.caller.tenant.clone(), Tenant);
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
        let mut call = from
            .decode_request(&request, &Asked::of(source))
            .map_err(|error| Problem::of_codec(&error))?;
        call.target = target.clone();
        let stream = call.stream;
        let (mut encoded, conversation) = self.restored(to, call, end_user, &tenant).await?;
        let verdict = self.mended(to, &mut encoded, &target)?;
        Ok(Ready { encoded, verdict, conversation, tenant, target, stream })
    }

    /// The request with what its caller had lost.
    async fn restored(
        &self,
        to: &dyn Codec,
        call: Call,
        end_user: Option<&str>,
        tenant: &Tenant,
    ) -> Result<(Encoded, Option<Conversation>), Problem> {
        let encode = |call: &Call| to.encode(call).map_err(|error| Problem::of_codec(&error));
        if self.gateway.mode == ReplayMode::Off {
            // What is ours goes to no provider, whatever the mode.
            let mut call = call;
            Claims::remove(&mut call, Why::ByPolicy);
            return Ok((encode(&call)?, None));
        }
        let restored = self.gateway.replay.restore(tenant, end_user, call).await;
        let restored = restored
            .map_err(|error| Problem::new(503, format!("the store cannot be read: {error}")))?;
        let mut encoded = encode(&restored.call)?;
        restored.account(&mut encoded);
        Ok((encoded, Some(restored.conversation)))
    }

    /// Looks at what would be refused, and mends it where that is wanted.
    fn mended(
        &self,
        to: &dyn Codec,
        encoded: &mut Encoded,
        target: &Target,
    ) -> Result<Verdict, Problem> {
        let mode = self.gateway.mode;
        if mode == ReplayMode::Off {
            return Ok(Verdict::Accept);
        }
        let transcript = Transcript { knows_headers: true, ..Transcript::of(to, &encoded.request) };
        let failed = |error: CodecError| Problem::of_codec(&error);
        if mode == ReplayMode::Repair {
            let mended = repair(&transcript, target, Reach::Refused).map_err(failed)?;
            let verdict = mended.audit.verdict();
            encoded.request = mended.request;
            return Ok(verdict);
        }
        let looked = audit(&transcript, target).map_err(failed)?;
        match looked.findings.first() {
            Some(finding) if mode == ReplayMode::Enforce && looked.verdict() == Verdict::Refuse => {
                let mend = finding.mend.as_ref().map(|mend| format!(" ({})", mend.what));
                let message = format!(
                    "[{}] {}{}",
                    finding.rule.id,
                    finding.message,
                    mend.unwrap_or_default()
                );
                Err(Problem::new(400, message))
            }
            Some(_) | None => Ok(looked.verdict()),
        }
    }

    async fn send(
        &self,
        ready: &Ready,
        reached: &Reached,
        asked: &Request,
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
        self.gateway.upstream.send(sent).await
    }

    async fn answer(
        &self,
        ready: Ready,
        reached: &Reached,
        answer: Answer,
        asked: &Request,
    ) -> Result<Answered, Problem> {
        let is_same = ready.target.origin.wire == self.wire;
        let node = Claims::fresh_node().map_err(|error| Problem::new(500, error.to_string()))?;
        let mut headers = told(&node, &ready.encoded.fates, ready.verdict);
        let status = answer.status;
        let passed = answer.headers.iter().filter(|(name, _)| passes_back(name, is_same));
        headers.extend(passed.cloned());
        let encoding = answer.header("content-encoding").map(Name::from);
        if status >= 400 {
            let body = whole(answer).await?;
            let body = if is_same {
                body
            } else {
                let unnamed = || format!("{} answered {status}", reached.endpoint);
                let said = compression::inflated(encoding.as_deref(), &body).unwrap_or_default();
                let message = dialect::message_of(&said).unwrap_or_else(unnamed);
                dialect::error(&self.wire, status, &message).bytes().clone()
            };
            headers.extend((!is_same).then(json_type));
            return Ok(Answered { status, headers, body: Outgoing::Whole(body) });
        }
        let keeper = Keeper {
            replay: Arc::clone(&self.gateway.replay),
            tenant: ready.tenant.clone(),
            node: node.clone(),
            conversation: ready.conversation,
            prefix: ready.encoded.prefix,
        };
        let dresser = (!is_same).then(|| {
            let claims = self.gateway.replay.claims().clone();
            Dresser::new(self.wire.clone(), claims, ready.tenant.clone(), node)
        });
        let said = Asked { target: ready.target.clone(), prefix: keeper.prefix };
        if ready.stream {
            let framing = dialect::framing(&self.wire, asked);
            let from = speaker(&ready.target.origin.wire)?;
            let to = speaker(&self.wire)?;
            let relayed = relay(Relay { answer, from, to, said, framing, dresser, keeper });
            if !is_same {
                headers.push((Name::from("content-type"), Name::from(content_type(framing))));
            }
            return Ok(Answered { status, headers, body: Outgoing::Stream(relayed) });
        }
        let body = whole(answer).await?;
        let readable = compression::inflated(encoding.as_deref(), &body)
            .map_err(|error| Problem::new(502, error.to_string()));
        let reply = match readable {
            Ok(readable) => {
                let decoded = speaker(&ready.target.origin.wire)?.decode_reply(&readable, &said);
                decoded.map_err(|error| Problem::new(502, error.to_string()))
            }
            Err(problem) => Err(problem),
        };
        let body = match (reply, dresser) {
            (Ok(reply), None) => {
                keeper.keep(&reply).await;
                body
            }
            (Ok(reply), Some(mut dresser)) => {
                keeper.keep(&reply).await;
                headers.push(json_type());
                let reply = dresser.reply(reply);
                let said = speaker(&self.wire)?.encode_reply(&reply);
                said.map_err(|error| Problem::new(502, error.to_string()))?
            }
            // What cannot be read passes all the same: the caller may know better.
            (Err(_), None) => body,
            (Err(problem), Some(_)) => return Err(problem),
        };
        Ok(Answered { status, headers, body: Outgoing::Whole(body) })
    }
}

/// Keeps an answer.
pub(crate) struct Keeper {
    replay: Arc<Replay>,
    tenant: Tenant,
    node: NodeId,
    conversation: Option<Conversation>,
    prefix: Option<throughline_core::Digest>,
}

impl Keeper {
    /// Keeps the answer, if answers are kept. One that cannot be kept reaches its caller all the same.
    pub(crate) async fn keep(&self, reply: &throughline_core::Reply) {
        let Some(conversation) = self.conversation.as_ref().filter(|_| reply.stop != Stop::Cut)
        else {
            return;
        };
        let turn =
            Turn { node: self.node.clone(), conversation, reply, prefix: self.prefix, ids: &[] };
        drop(self.replay.capture(&self.tenant, &turn).await);
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
