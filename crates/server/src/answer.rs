//! The answer to a call goes back: kept, and said in the caller's dialect.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use throughline_codec::{Asked, Framing, Verdict};
use throughline_core::{Answer, Fate, Name, Node, NodeId, Request};

use crate::claimed::Dresser;
use crate::compression;
use crate::dialect;
use crate::exchange::{Exchange, Problem, speaker};
use crate::gateway::{Answered, Outgoing, Reached};
use crate::keeper::{Keeper, Open, Owner};
use crate::model_name::ModelName;
use crate::operations::{Capture, Fates};
use crate::prepare::Ready;
use crate::story::Story;
use crate::stream::{Relay, relay};

/// Why an answer is not kept that nobody here can read.
pub(crate) const UNREADABLE: &str = "the answer cannot be read";
/// The largest whole answer that is read: 64 MiB, which is also the largest frame of a stream.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;

impl Exchange<'_> {
    /// Gives an answer back.
    pub(crate) async fn answer(
        &self,
        ready: Ready,
        reached: &Reached,
        answer: Answer,
        asked: &Request,
        story: Story,
    ) -> Result<Answered, Problem> {
        self.ticket.note_first_byte();
        let is_same = ready.target.origin.wire == self.wire;
        let mut headers = told(&story.node, &ready.encoded.fates, ready.verdict);
        let changed = story.prefix_changed.as_deref().map(Name::from);
        headers.extend(changed.map(|changed| (Name::from("x-throughline-prefix"), changed)));
        if ready.is_unrestored {
            headers.push((Name::from("x-throughline-restore"), Name::from("skipped")));
        }
        let status = answer.status;
        self.ticket.note(|facts| facts.status = status);
        let passed = answer.headers.iter().filter(|(name, _)| passes_back(name, is_same));
        headers.extend(passed.cloned());
        let asked_model = dialect::names(&self.wire, &asked.path, self.body.as_ref()).model;
        let model = asked_model.filter(|name| *name != reached.model);
        let dresser = (!is_same).then(|| {
            let claims = self.gateway.replay.claims().clone();
            let (tenant, node) = (ready.tenant.clone(), story.node.clone());
            Dresser::new(self.wire.clone(), claims, tenant, node, model.clone())
        });
        let can_rename = is_same && compression::can_inflate(answer.header("content-encoding"));
        let model = model.filter(|_| can_rename);
        let model = model.map(|name| ModelName::new(self.wire.clone(), name));
        let mut keeper = Keeper {
            replay: Arc::clone(&self.gateway.replay),
            open: ready.conversation.map(|conversation| Open { conversation, story }),
            prefix: ready.encoded.prefix,
            longest: self.gateway.operations.limits.capture,
            ticket: Arc::clone(&self.ticket),
            owner: self.owner(asked),
        };
        if let Err(problem) = refuse_redirect(&answer, reached) {
            keeper.fail(problem.status, &problem.message).await;
            return Err(problem);
        }
        let said = Asked { target: ready.target, prefix: keeper.prefix };
        if status < 400 && ready.stream {
            let framing = dialect::framing(&self.wire, asked);
            let from = speaker(&said.target.origin.wire)?;
            let to = speaker(&self.wire)?;
            self.ticket.note_stream();
            let slow_reader = self.gateway.operations.limits.slow_reader;
            if model.is_some() {
                headers.retain(|(name, _)| !is_content_encoding(name));
            }
            let relayed = relay(Relay {
                answer,
                from,
                to,
                said,
                framing,
                dresser,
                model,
                keeper,
                slow_reader,
            });
            if !is_same {
                headers.push((Name::from("content-type"), Name::from(content_type(framing))));
            }
            return Ok(Answered { status, headers, body: Outgoing::Stream(relayed) });
        }
        headers.extend((!is_same).then(json_type));
        let body = if status >= 400 {
            self.refusal(reached, answer, is_same, &mut keeper).await
        } else {
            let answered = self.whole_answer(answer, &said, dresser, model, asked, &mut keeper);
            answered.await.map(|(body, is_inflated)| {
                headers.retain(|(name, _)| !is_inflated || !is_content_encoding(name));
                body
            })
        };
        match body {
            Ok(body) => Ok(Answered { status, headers, body: Outgoing::Whole(body) }),
            Err(problem) => {
                keeper.fail(problem.status, &problem.message).await;
                Err(problem)
            }
        }
    }

    /// The tenant that owns the ids in the answer to a request.
    fn owner(&self, asked: &Request) -> Option<Owner> {
        self.caller.admission.is_key().then(|| Owner {
            tenant: self.caller.tenant.clone(),
            asked: asked.body.clone(),
            is_early: self.body.as_ref().is_some_and(|body| {
                body.root().get("background").and_then(Node::bool).unwrap_or(false)
            }),
        })
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
        let encoding = answer.header("content-encoding").map(Name::from);
        let body = whole(answer).await?;
        let unnamed = || format!("{} answered {status}", reached.endpoint);
        let said = compression::inflated(encoding.as_deref(), &body).unwrap_or_default();
        let message = dialect::message_of(&said).unwrap_or_else(unnamed);
        keeper.fail(status, &message).await;
        if is_same {
            return Ok(body);
        }
        Ok(dialect::error(&self.wire, status, &message).bytes().clone())
    }

    /// An answer that comes in one piece, and whether the gateway inflated it.
    async fn whole_answer(
        &self,
        answer: Answer,
        said: &Asked,
        dresser: Option<Dresser>,
        model: Option<ModelName>,
        asked: &Request,
        keeper: &mut Keeper,
    ) -> Result<(Bytes, bool), Problem> {
        let encoding = answer.header("content-encoding").map(Name::from);
        let body = whole(answer).await?;
        let from = speaker(&said.target.origin.wire)?;
        let readable = compression::inflated(encoding.as_deref(), &body);
        let readable = readable.map_err(|error| error.to_string());
        let reply = readable.and_then(|readable| {
            let reply = from.decode_reply(&readable, said).map_err(|error| error.to_string());
            reply.map(|reply| (reply, readable))
        });
        match (reply, dresser) {
            (Ok((reply, readable)), None) => match model {
                Some(model) => {
                    let shown = model.document(&readable);
                    keeper.keep(reply, Some(shown.clone())).await;
                    Ok((shown, true))
                }
                None => {
                    keeper.keep(reply, Some(readable)).await;
                    Ok((body, false))
                }
            },
            (Ok((reply, _)), Some(mut dresser)) => {
                let shown = speaker(&self.wire)?.encode_reply(&dresser.reply(reply.clone()));
                let shown = shown.map_err(|error| Problem::new(502, error.to_string()))?;
                let shown = self.echoed(shown, asked);
                keeper.keep(reply, Some(shown.clone())).await;
                Ok((shown, false))
            }
            // What cannot be read passes all the same: the caller may know better.
            (Err(error), None) => {
                self.ticket.note(|facts| {
                    facts.capture = Capture::Lost(UNREADABLE.to_owned());
                    facts.heard = body.len() as u64;
                });
                keeper.fail(200, &error).await;
                Ok((body, false))
            }
            (Err(error), Some(_)) => {
                self.ticket.note(|facts| facts.capture = Capture::Lost(UNREADABLE.to_owned()));
                Err(Problem::new(502, error))
            }
        }
    }
}

/// The whole body of an answer.
pub(crate) async fn whole(answer: Answer) -> Result<Bytes, Problem> {
    let mut chunks = answer.body;
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| Problem::of_upstream(&error))?);
        if body.len() > LARGEST_ANSWER {
            return Err(Problem::new(
                502,
                "the answer is larger than 64 MiB, the largest that is read",
            ));
        }
    }
    Ok(body.freeze())
}

fn told(node: &NodeId, fates: &[Fate], verdict: Verdict) -> Vec<(Name, Name)> {
    vec![
        (Name::from("x-throughline-call"), node.0.clone()),
        (Name::from("x-throughline-fates"), Fates::of(fates).to_string().into()),
        (Name::from("x-throughline-audit"), verdict.as_str().into()),
    ]
}

/// Whether a header of the provider is the caller's to see.
pub(crate) fn passes_back(name: &str, is_same: bool) -> bool {
    const OWN: &[&str] =
        &["connection", "content-length", "transfer-encoding", "keep-alive", "set-cookie"];
    const OF_BODY: &[&str] = &["content-type", "content-encoding"];
    let is = |names: &[&str]| names.iter().any(|own| name.eq_ignore_ascii_case(own));
    !is(OWN) && (is_same || !is(OF_BODY))
}

fn is_content_encoding(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-encoding")
}

fn json_type() -> (Name, Name) {
    (Name::from("content-type"), Name::from("application/json"))
}

fn content_type(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "text/event-stream; charset=utf-8",
        _ => "application/json",
    }
}

/// Where a provider points elsewhere, nobody goes: not we with its key, and not the caller with its own.
pub(crate) fn refuse_redirect(answer: &Answer, reached: &Reached) -> Result<(), Problem> {
    if !matches!(answer.status, 300..=303 | 305..=399) {
        return Ok(());
    }
    let (endpoint, status) = (&reached.endpoint, answer.status);
    Err(Problem::new(
        502,
        format!(
            "{endpoint} answered {status} and points elsewhere, which is not followed: mend its base_url"
        ),
    ))
}
