//! Recorded requests with their history, and the Seal locations in them that can be mutated.

use std::collections::HashSet;

use serde_json::Value;
use throughline_codec::{PriorExchanges, Severity, Transcript, audit};
use throughline_core::{Body, Contract, Target};
use throughline_testkit::{Exchange, Recording, SealLocation, Shape, is_result, seals};

use crate::common::recorded::{prior_of, recorded_request};
use crate::common::{codec_of, request, target};

pub(crate) struct RecordedRequest<'r> {
    pub(crate) exchange: &'r Exchange,
    pub(crate) shape: Shape,
    pub(crate) body: Value,
    pub(crate) prior: PriorExchanges,
    pub(crate) target: Target,
}

/// Returns the accepted requests that follow another exchange in their recording. Only recordings
/// of conversations with a single provider are used.
pub(crate) fn sent_requests(recordings: &[Recording]) -> Vec<RecordedRequest<'_>> {
    let mut sent = Vec::new();
    for recording in recordings.iter().filter(|recording| recording.folder == ".") {
        for (index, exchange) in recording.exchanges.iter().enumerate().skip(1) {
            if exchange.status != 200 {
                continue;
            }
            sent.push(RecordedRequest {
                exchange,
                shape: Shape::from_wire(&exchange.wire),
                body: serde_json::from_str(&recorded_request(recording, index)).unwrap(),
                prior: prior_of(recording, index),
                target: target(&exchange.provider, &exchange.wire, &exchange.model),
            });
        }
    }
    sent
}

/// Changes the model of Claude recordings to a model that binds its blocks to the prefix, because
/// no recordings of prefix-bound models exist.
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

impl RecordedRequest<'_> {
    /// Returns the locations of reasoning values that an earlier reply issued.
    pub(crate) fn places(&self) -> Vec<SealLocation> {
        let issued: HashSet<Vec<u8>> = self.issued().into_iter().map(normal).collect();
        let is_reasoning = |place: &SealLocation| {
            let parent = self.body.pointer(&place.parent).unwrap();
            match self.shape {
                Shape::Anthropic => {
                    matches!(parent["type"].as_str(), Some("thinking" | "redacted_thinking"))
                }
                Shape::Responses => parent["type"] == "reasoning",
                Shape::Converse | Shape::Chat | Shape::Gemini => true,
            }
        };
        let is_issued = |place: &SealLocation| issued.contains(&normal(self.seal(place)));
        let list = format!("/{}/", self.shape.list());
        let mut places = seals(&self.body);
        places.retain(|place| place.parent.starts_with(&list));
        places.retain(|place| is_reasoning(place) && is_issued(place));
        places
    }

    /// Returns whether a value has exactly the issued bytes, including the base64 alphabet.
    pub(crate) fn is_as_issued(&self, place: &SealLocation) -> bool {
        self.issued().contains(self.seal(place))
    }

    /// Returns the Seals and readable thoughts in the earlier replies.
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

    fn seal(&self, place: &SealLocation) -> &[u8] {
        self.body.pointer(&place.pointer()).unwrap().as_str().unwrap().as_bytes()
    }

    /// Returns the index of the message that contains a location.
    pub(crate) fn message(place: &SealLocation) -> usize {
        place.parent.split('/').nth(2).unwrap().parse().unwrap()
    }

    pub(crate) fn messages(&self) -> &Vec<Value> {
        self.messages_of(&self.body)
    }

    pub(crate) fn messages_of<'b>(&self, body: &'b Value) -> &'b Vec<Value> {
        body[self.shape.list()].as_array().unwrap()
    }

    /// Returns the messages of the current turn, which starts after the last user message.
    pub(crate) fn current_of<'b>(&self, body: &'b Value) -> &'b [Value] {
        let messages = self.messages_of(body);
        let is_users = |message: &Value| message["role"] == "user" && !is_result(message);
        let first = messages.iter().rposition(is_users).map_or(0, |last| last + 1);
        &messages[first..]
    }

    /// Returns whether a location belongs to the current turn.
    pub(crate) fn is_current(&self, place: &SealLocation) -> bool {
        Self::message(place) >= self.messages().len() - self.current_of(&self.body).len()
    }

    /// Returns whether the message at a location is followed by tool results only, which means that
    /// its tool loop is still open.
    pub(crate) fn is_in_loop(&self, place: &SealLocation) -> bool {
        let behind = &self.messages()[Self::message(place) + 1..];
        !behind.is_empty() && behind.iter().all(is_result)
    }

    pub(crate) fn part(&self, place: &SealLocation) -> &Value {
        let depth = if self.shape.parts().is_some() { 5 } else { 3 };
        let part: Vec<&str> = place.parent.split('/').take(depth).collect();
        self.body.pointer(&part.join("/")).unwrap()
    }

    /// Returns whether the endpoint stores its responses and checks ids.
    pub(crate) fn is_stored(&self) -> bool {
        self.body["store"] != false && self.target.provider.dialect.pairs
    }

    /// Returns the thinking mode of a Claude request.
    pub(crate) fn thinking(&self) -> Option<&Value> {
        let places = ["/thinking/type", "/additionalModelRequestFields/thinking/type"];
        places.iter().find_map(|place| self.body.pointer(place))
    }

    /// Returns whether the endpoint requires that the chat message at a location is sent back with
    /// its reasoning.
    pub(crate) fn demands(&self, place: &SealLocation) -> bool {
        let thinks =
            self.body.pointer("/thinking/type").is_none_or(|thinking| thinking != "disabled");
        self.target.provider.dialect.demanded_with_tools
            && self.target.profile.contract != Contract::Stateless
            && thinks
            && (self.target.profile.thinks_by_default || self.body.get("thinking").is_some())
            && self.messages()[Self::message(place)].get("tool_calls").is_some()
    }

    /// Returns the ids of the rules that refuse this request if its body is replaced with `body`
    /// and its target with `target`.
    pub(crate) fn refused_by(&self, body: &str, target: &Target) -> Vec<&'static str> {
        let sent = request(&self.exchange.path, body);
        let codec = codec_of(&self.exchange.wire);
        let transcript = Transcript {
            account_created: Some("2026-10-01T00:00:00Z".parse().unwrap()),
            ..Transcript::new(codec, &sent).with_prior(&self.prior)
        };
        let audit = audit(&transcript, target).unwrap();
        let found = audit.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
        found.map(|finding| finding.rule.id).collect()
    }
}

/// Normalises base64 to one alphabet without padding.
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
