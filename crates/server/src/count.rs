//! How many tokens a request has, in the caller's dialect, whoever counts them.
//!
//! The request is made ready as if it were to be answered, with what its caller had lost, and its provider counts it. A wire that
//! cannot count is estimated, and the answer says so in `x-throughline-count`: `counted` or `estimated`.

use bytes::Bytes;
use throughline_core::{Answer, Json, Name, Node, Outgoing as Sent, Request, Tree, Wire, json};

use crate::answer::{passes_back, whole};
use crate::dialect;
use crate::exchange::{Exchange, Problem, speaker};
use crate::gateway::{Answered, Outgoing};
use crate::prepare::Read;
use crate::replay::Claims;
use crate::story::Story;

/// How many bytes of a request are about one token, where nobody counts.
const BYTES_OF_A_TOKEN: u64 = 4;

/// The member in which Gemini's callers may wrap what is to be counted.
const WRAPPED: &str = "generateContentRequest";

/// The members that Anthropic and OpenAI count; others of a request they refuse there.
const COUNTED_MESSAGES: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "cache_control",
    "context_management",
    "mcp_servers",
];
const COUNTED_RESPONSES: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "truncation",
    "previous_response_id",
    "conversation",
];

impl Exchange<'_> {
    /// Counts the tokens of a request.
    pub(crate) async fn count(&self, request: Request) -> Result<Answered, Problem> {
        let body = self.body.as_ref();
        let (asked, end_user) = self.named(&request, body)?;
        let all = self.reach(&asked)?;
        let nobody = || Problem::new(404, format!("nobody answers to {asked}"));
        let reached = all.into_iter().next().ok_or_else(nobody)?;
        let node = Claims::fresh_node().map_err(|error| Problem::new(500, error.to_string()))?;
        let mut story = Story::begin(node, &self.caller.tenant, &self.wire, &request);
        let resumed = self.resumed(&request, body, end_user.as_deref(), &mut story).await?;
        let unfolded = resumed.at(&reached.provider.wire)?.map(|(_, whole)| whole.clone());
        let request = Request { body: unfolded.unwrap_or_else(|| request.body.clone()), ..request };
        let renamed = dialect::renamed(&self.wire, request, &asked, &reached.model);
        let references = self.resolve_references(&renamed, body, &reached, end_user.as_deref());
        let renamed = references.await?.map_or(renamed, |references| references.for_target);
        let (inner, is_wrapped) = unwrapped(&renamed);
        let preparing = async {
            let Read { call, target, tenant } = self.read(&inner, body, &reached)?;
            let to = speaker(&target.origin.wire)?;
            let found = self.restored(to, call, end_user.as_deref(), &tenant).await?;
            let (mut encoded, found) = (found.encoded, found.replayed);
            let issued = found.as_ref().map(|found| &found.issued);
            self.mended(to, &mut encoded, body, &target, issued)?;
            Ok::<_, Problem>((target, to, encoded.request))
        };
        let heavy = &self.gateway.operations.heavy;
        let prepared = heavy.run(&self.caller, inner.body.len(), Box::pin(preparing)).await?;
        let (target, to, ready) = prepared?;
        self.ticket.request_is_ready();
        let wire = &target.origin.wire;
        let estimate = u64::try_from(ready.body.len()).unwrap_or(u64::MAX) / BYTES_OF_A_TOKEN;
        let Some(path) = counting(wire, &to.path(&target, false)) else {
            return Ok(told(&self.wire, estimate.max(1), "estimated"));
        };
        let is_same = *wire == self.wire;
        let body = match (is_same, is_wrapped) {
            (true, _) if ready.body == inner.body => renamed.body.clone(),
            (true, true) => wrapped(&ready.body, None),
            (true, false) | (false, _) => counted(wire, &ready.body, target.model()),
        };
        self.check_body(&target.origin, &body, None).await?;
        self.ticket.note(|facts| facts.provider = Some(reached.account.clone()));
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: "POST".into(),
            path: path.into(),
            headers: ready.headers,
            body,
            credential: self.caller.credential.clone(),
        };
        let answer = self.gateway.upstream.send(sent).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
        self.ticket.note_first_byte();
        match answer.status {
            // Not every provider of a wire counts.
            404 | 405 | 501 => Ok(told(&self.wire, estimate.max(1), "estimated")),
            _ if is_same => passed(answer).await,
            status => {
                let body = whole(answer).await?;
                let unnamed = || format!("{} answered {status}", reached.endpoint);
                if status >= 400 {
                    let message = dialect::message_of(&body).unwrap_or_else(unnamed);
                    return Err(Problem::new(status, message));
                }
                let tokens = tokens_in(&body).ok_or_else(|| Problem::new(502, unnamed()))?;
                Ok(told(&self.wire, tokens, "counted"))
            }
        }
    }
}

/// The request that is to be counted, and whether it was wrapped in another, as Gemini's callers may do.
fn unwrapped(request: &Request) -> (Request, bool) {
    let tree = Tree::parse(request.body.clone()).ok();
    let inner = tree.as_ref().and_then(|tree| tree.root().get(WRAPPED)).map(Node::json);
    match inner {
        Some(inner) => (Request { body: inner.bytes().clone(), ..request.clone() }, true),
        None => (request.clone(), false),
    }
}

/// A request of Gemini's as it is counted, with the model's name where it has none.
fn wrapped(body: &Bytes, model: Option<&str>) -> Bytes {
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let wrapped = json::object(|o| {
        o.object(WRAPPED, |o| {
            o.maybe_string("model", model.map(|model| format!("models/{model}")).as_deref());
            for (name, value) in tree.root().members() {
                o.raw(&name.text().unwrap_or_default(), &value.json());
            }
        });
    });
    wrapped.bytes().clone()
}

/// Where a wire counts, beside where it answers.
fn counting(wire: &Wire, path: &str) -> Option<String> {
    let bare = path.split('?').next().unwrap_or_default();
    match wire.as_str() {
        "anthropic-messages" => bare.ends_with("/messages").then(|| format!("{bare}/count_tokens")),
        "openai-responses" => bare.ends_with("/responses").then(|| format!("{bare}/input_tokens")),
        "gemini" => Some(format!("{}:countTokens", bare.strip_suffix(":generateContent")?)),
        _ => None,
    }
}

/// What of a request is counted, on another wire than the caller's.
fn counted(wire: &Wire, body: &Bytes, model: &str) -> Bytes {
    let known = match wire.as_str() {
        "anthropic-messages" => COUNTED_MESSAGES,
        "openai-responses" => COUNTED_RESPONSES,
        _ => return wrapped(body, Some(model)),
    };
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let kept = json::object(|o| {
        let members = tree.root().members();
        for (name, value) in members.filter(|(name, _)| known.iter().any(|known| name.is(known))) {
            o.raw(&name.text().unwrap_or_default(), &value.json());
        }
    });
    kept.bytes().clone()
}

/// The number in a provider's answer, whatever its shape.
fn tokens_in(body: &Bytes) -> Option<u64> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    root.get("input_tokens").or_else(|| root.get("totalTokens")).and_then(Node::u64)
}

/// The number in the caller's dialect.
fn told(wire: &Wire, tokens: u64, how: &str) -> Answered {
    let said: Json = json::object(|o| match wire.as_str() {
        "gemini" => {
            o.number("totalTokens", tokens);
        }
        "openai-responses" => {
            o.string("object", "response.input_tokens").number("input_tokens", tokens);
        }
        _ => {
            o.number("input_tokens", tokens);
        }
    });
    let mut answered = Answered::json(200, &said);
    answered.headers.push((Name::from("x-throughline-count"), Name::from(how)));
    answered
}

/// What the provider answered, as it is.
async fn passed(answer: Answer) -> Result<Answered, Problem> {
    let status = answer.status;
    let passed = answer.headers.iter().filter(|(name, _)| passes_back(name, true));
    let mut headers: Vec<(Name, Name)> = passed.cloned().collect();
    headers.push((Name::from("x-throughline-count"), Name::from("counted")));
    Ok(Answered { status, headers, body: Outgoing::Whole(whole(answer).await?) })
}
