//! Recorded requests with everything that came before them, and what there is in them to spoil.

use std::collections::HashSet;

use serde_json::Value;
use throughline_codec::{Prior, Severity, Transcript, audit};
use throughline_core::{Body, Contract, Target};
use throughline_testkit::{Exchange, Place, Recording, Shape, is_result, seals};

use crate::common::recorded::{prior_of, recorded_request};
use crate::common::{codec_of, request, target};

/// One recorded request with everything that came before it.
pub(crate) struct Sent<'r> {
    pub(crate) exchange: &'r Exchange,
    pub(crate) shape: Shape,
    pub(crate) body: Value,
    pub(crate) prior: Prior,
    pub(crate) target: Target,
}

/// The requests that have a past and were accepted, of the conversations with one provider.
pub(crate) fn sent_requests(recordings: &[Recording]) -> Vec<Sent<'_>> {
    let mut sent = Vec::new();
    for recording in recordings.iter().filter(|recording| recording.folder == ".") {
        for (index, exchange) in recording.exchanges.iter().enumerate().skip(1) {
            if exchange.status != 200 {
                continue;
            }
            sent.push(Sent {
                exchange,
                shape: Shape::of(&exchange.wire),
                body: serde_json::from_str(&recorded_request(recording, index)).unwrap(),
                prior: prior_of(recording, index),
                target: target(&exchange.provider, &exchange.wire, &exchange.model),
            });
        }
    }
    sent
}

/// The recordings of Claudes as if a model had answered that binds its blocks to what stood before them: of such models
/// nothing is recorded.
pub(crate) fn as_prefix_bound(recordings: &[Recording]) -> Vec<Recording> {
    let mut bound = Vec::new();
    for recording in recordings {
        let model = match recording.wire.as_str() {
            "anthropic-messages" => "claude-opus-5-5",
            "bedrock-converse" => "us.anthropic.claude-opus-5-5-v1:0",
            _ => continue,
        };
        let mut recording = recording.clone();
        for exchange in &mut recording.exchanges {
            model.clone_into(&mut exchange.model);
        }
        bound.push(recording);
    }
    bound
}

impl Sent<'_> {
    /// The places that hold what an earlier reply issued.
    pub(crate) fn places(&self) -> Vec<Place> {
        let issued: HashSet<Vec<u8>> = self.issued().into_iter().map(normal).collect();
        let is_reasoning = |place: &Place| {
            let parent = self.body.pointer(&place.parent).unwrap();
            match self.shape {
                Shape::Anthropic => {
                    matches!(parent["type"].as_str(), Some("thinking" | "redacted_thinking"))
                }
                Shape::Responses => parent["type"] == "reasoning",
                Shape::Converse | Shape::Chat | Shape::Gemini => true,
            }
        };
        let is_issued = |place: &Place| issued.contains(&normal(self.seal(place)));
        let list = format!("/{}/", self.shape.list());
        let mut places = seals(&self.body);
        places.retain(|place| place.parent.starts_with(&list));
        places.retain(|place| is_reasoning(place) && is_issued(place));
        places
    }

    /// Whether what stands in a place is what was issued to the byte, and not only in another alphabet.
    pub(crate) fn is_as_issued(&self, place: &Place) -> bool {
        self.issued().contains(self.seal(place))
    }

    /// The seals and the readable thoughts of the earlier replies.
    fn issued(&self) -> HashSet<&[u8]> {
        let mut issued: HashSet<&[u8]> = HashSet::new();
        let replies = self.prior.exchanges().iter().filter_map(|exchange| exchange.reply.as_ref());
        for item in replies.flat_map(|reply| &reply.items) {
            issued.extend(item.seals.iter().map(|seal| &seal.reveal_to_tenant()[..]));
            if let Body::Thought(thought) = &item.body {
                issued.insert(thought.content.as_bytes());
            }
        }
        issued
    }

    fn seal(&self, place: &Place) -> &[u8] {
        self.body.pointer(&place.pointer()).unwrap().as_str().unwrap().as_bytes()
    }

    /// The message that a place is in.
    pub(crate) fn message(place: &Place) -> usize {
        place.parent.split('/').nth(2).unwrap().parse().unwrap()
    }

    pub(crate) fn messages(&self) -> &Vec<Value> {
        self.messages_of(&self.body)
    }

    pub(crate) fn messages_of<'b>(&self, body: &'b Value) -> &'b Vec<Value> {
        body[self.shape.list()].as_array().unwrap()
    }

    /// The messages of a body since the user spoke last: the turn that is not finished.
    pub(crate) fn current_of<'b>(&self, body: &'b Value) -> &'b [Value] {
        let messages = self.messages_of(body);
        let is_users = |message: &Value| message["role"] == "user" && !is_result(message);
        let first = messages.iter().rposition(is_users).map_or(0, |last| last + 1);
        &messages[first..]
    }

    /// Whether a place belongs to the turn that is not finished.
    pub(crate) fn is_current(&self, place: &Place) -> bool {
        Self::message(place) >= self.messages().len() - self.current_of(&self.body).len()
    }

    /// Whether a place belongs to the model's last message, with nothing but the tools' answers behind it.
    pub(crate) fn is_in_loop(&self, place: &Place) -> bool {
        let behind = &self.messages()[Self::message(place) + 1..];
        !behind.is_empty() && behind.iter().all(is_result)
    }

    pub(crate) fn part(&self, place: &Place) -> &Value {
        let depth = if self.shape.parts().is_some() { 5 } else { 3 };
        let part: Vec<&str> = place.parent.split('/').take(depth).collect();
        self.body.pointer(&part.join("/")).unwrap()
    }

    /// Whether the endpoint keeps what it answers, and checks ids against it.
    pub(crate) fn is_stored(&self) -> bool {
        self.body["store"] != false && self.target.provider.dialect.pairs
    }

    /// How a Claude is asked to think.
    pub(crate) fn thinking(&self) -> Option<&Value> {
        let places = ["/thinking/type", "/additionalModelRequestFields/thinking/type"];
        places.iter().find_map(|place| self.body.pointer(place))
    }

    /// Whether the reasoning of a chat message must come back.
    pub(crate) fn demands(&self, place: &Place) -> bool {
        let thinks =
            self.body.pointer("/thinking/type").is_none_or(|thinking| thinking != "disabled");
        self.target.provider.dialect.demanded_with_tools
            && self.target.profile.contract != Contract::Stateless
            && thinks
            && (self.target.profile.thinks_by_default || self.body.get("thinking").is_some())
            && self.messages()[Self::message(place)].get("tool_calls").is_some()
    }

    /// The rules that a body would be refused by.
    pub(crate) fn refused_by(&self, body: &str, target: &Target) -> Vec<&'static str> {
        let sent = request(&self.exchange.path, body);
        let codec = codec_of(&self.exchange.wire);
        let transcript = Transcript {
            account_created: Some("2026-10-01T00:00:00Z".parse().unwrap()),
            ..Transcript::of(codec, &sent).after(&self.prior)
        };
        let audit = audit(&transcript, target).unwrap();
        let found = audit.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
        found.map(|finding| finding.rule.id).collect()
    }
}

/// Base64 in one alphabet, without its padding.
fn normal(text: &[u8]) -> Vec<u8> {
    text.iter()
        .filter(|byte| **byte != b'=')
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect()
}
