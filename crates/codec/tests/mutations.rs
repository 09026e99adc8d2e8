//! Recorded requests, spoiled one thing at a time: what the contract says is refused is found by the right rule, and what is
//! harmless is never refused.
//!
//! The recordings are not part of the project; where they are absent the tests say so and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use common::recorded::{prior_of, recorded_request};
use common::{codec_of, request, target};
use serde_json::{Value, json};
use throughline_codec::{Catalog, Prior, Severity, Transcript, Verdict, audit};
use throughline_core::{Body, Target};
use throughline_testkit::{
    Dice, Exchange, OPERATORS, On, Place, Shape, figure, is_result, recordings, seals, skip,
};

/// One recorded request with everything that came before it.
struct Sent<'r> {
    exchange: &'r Exchange,
    shape: Shape,
    body: Value,
    prior: Prior,
    target: Target,
}

/// What the contract says of a spoiled request.
enum Says {
    /// It is refused, by one of these rules.
    Refused(&'static [&'static str]),
    /// It is accepted.
    Accepted,
    /// Nothing is known.
    Nothing,
}

impl Sent<'_> {
    /// The message that a place is in.
    fn message(place: &Place) -> usize {
        place.parent.split('/').nth(2).unwrap().parse().unwrap()
    }

    fn messages(&self) -> &Vec<Value> {
        self.body[self.shape.list()].as_array().unwrap()
    }

    /// Whether a place belongs to the turn that is not finished.
    fn is_current(&self, place: &Place) -> bool {
        let is_users = |message: &Value| message["role"] == "user" && !is_result(message);
        let last = self.messages().iter().rposition(is_users);
        last.is_none_or(|last| Self::message(place) > last)
    }

    /// Whether a place belongs to the model's last message, with a tool's answer behind it.
    fn is_in_loop(&self, place: &Place) -> bool {
        Self::message(place) + 2 == self.messages().len()
            && self.messages().last().is_some_and(is_result)
    }

    fn part(&self, place: &Place) -> &Value {
        let depth = if self.shape.parts().is_some() { 5 } else { 3 };
        let part: Vec<&str> = place.parent.split('/').take(depth).collect();
        self.body.pointer(&part.join("/")).unwrap()
    }

    /// Whether a place is on the first call of its step.
    fn is_first_call(&self, place: &Place) -> bool {
        let parts = self.messages()[Self::message(place)]["parts"].as_array().unwrap();
        let is_call =
            |part: &Value| part.get("functionCall").or(part.get("function_call")).is_some();
        let part = self.part(place);
        is_call(part) && parts.iter().find(|part| is_call(part)) == Some(part)
    }

    fn is_stored(&self) -> bool {
        self.body["store"] != false
            && matches!(&*self.target.provider.name, "openai" | "azure" | "bedrock-mantle")
    }

    /// What the contract says when `operator` has spoiled `place`.
    fn says(&self, operator: &str, place: &Place) -> Says {
        match self.shape {
            Shape::Anthropic => self.says_claude(
                operator,
                place,
                &["anthropic/signature-missing"],
                &["anthropic/signature-invalid", "anthropic/signature-missing"],
                &[
                    "anthropic/thinking-modified",
                    "anthropic/signature-invalid",
                    "anthropic/tool-loop-needs-thinking",
                ],
                &[
                    "anthropic/tool-loop-needs-thinking",
                    "anthropic/thinking-dropped",
                    "anthropic/thinking-modified",
                ],
            ),
            Shape::Converse => self.says_claude(
                operator,
                place,
                &["bedrock/signature-missing"],
                &["bedrock/signature-invalid", "bedrock/signature-missing"],
                &[
                    "bedrock/thinking-modified",
                    "bedrock/signature-invalid",
                    "bedrock/tool-loop-needs-thinking",
                ],
                &[
                    "bedrock/tool-loop-needs-thinking",
                    "bedrock/thinking-dropped",
                    "bedrock/thinking-modified",
                ],
            ),
            Shape::Responses => self.says_responses(operator, place),
            Shape::Chat => self.says_chat(operator, place),
            Shape::Gemini => self.says_gemini(operator, place),
        }
    }

    fn says_claude(
        &self,
        operator: &str,
        place: &Place,
        missing: &'static [&'static str],
        invalid: &'static [&'static str],
        modified: &'static [&'static str],
        dropped: &'static [&'static str],
    ) -> Says {
        let thinking = self
            .body
            .pointer("/thinking/type")
            .or_else(|| self.body.pointer("/additionalModelRequestFields/thinking/type"));
        match operator {
            "drop seal" | "move seal" => Says::Refused(missing),
            "blank seal" | "truncate seal" | "flip seal" | "re-encode seal" => {
                Says::Refused(invalid)
            }
            "edit sealed text"
            | "merge sealed parts"
            | "swap two seals"
            | "duplicate sealed part"
            | "reorder sealed part" => Says::Refused(modified),
            "drop sealed part"
                if self.is_in_loop(place)
                    && thinking.is_some_and(|thinking| thinking == "enabled") =>
            {
                Says::Refused(dropped)
            }
            "drop sealed part" if !self.is_current(place) => Says::Accepted,
            _ => Says::Nothing,
        }
    }

    fn says_responses(&self, operator: &str, place: &Place) -> Says {
        const INVALID: Says = Says::Refused(&["openai/encrypted-content-invalid"]);
        const UNPAIRED: Says = Says::Refused(&[
            "openai/reasoning-without-following-item",
            "openai/item-without-its-reasoning",
        ]);
        // What DeepSeek writes there is no seal.
        if self.target.provider.name.starts_with("deepseek") {
            return Says::Nothing;
        }
        let has_id = self.part(place).get("id").is_some();
        let at = Self::message(place);
        let follower = self.messages().get(at + 1);
        let is_paired = has_id
            && self.is_stored()
            && follower.is_some_and(|item| item.get("id").is_some() && item["type"] != "reasoning");
        match operator {
            "blank seal" | "truncate seal" | "flip seal" | "re-encode seal" => INVALID,
            "drop sealed part"
                if is_paired && follower.is_some_and(|item| item["type"] != "reasoning") =>
            {
                Says::Refused(&["openai/item-without-its-reasoning"])
            }
            "reorder sealed part" if is_paired => UNPAIRED,
            "drop seal" if self.is_stored() && has_id => Says::Accepted,
            "edit sealed text" => Says::Accepted,
            _ => Says::Nothing,
        }
    }

    fn says_chat(&self, operator: &str, place: &Place) -> Says {
        const INVALID: Says = Says::Refused(&[
            "openrouter/signature-invalid",
            "openrouter/signature-missing",
            "openrouter/first-call-needs-signature",
        ]);
        let detail = self.body.pointer(&place.parent).unwrap();
        let is_claude = detail["format"] == "anthropic-claude-v1";
        let is_detail = place.parent.contains("/reasoning_details/");
        let provider = &*self.target.provider.name;
        match operator {
            "drop seal" if matches!(provider, "deepseek" | "moonshot") && self.demands(place) => {
                Says::Refused(&[
                    "deepseek/reasoning-content-missing",
                    "kimi/reasoning-content-missing",
                ])
            }
            "truncate seal" | "flip seal" if is_detail && provider == "openrouter" => INVALID,
            "edit sealed text" if is_claude && provider == "openrouter" => INVALID,
            "blank seal" | "drop seal"
                if is_claude && self.is_in_loop(place) && provider == "openrouter" =>
            {
                INVALID
            }
            "edit sealed text" if !is_detail => Says::Accepted,
            _ => Says::Nothing,
        }
    }

    /// Whether a message's reasoning is demanded.
    fn demands(&self, place: &Place) -> bool {
        let dialect = &self.target.provider.dialect;
        let thinks =
            self.body.pointer("/thinking/type").is_none_or(|thinking| thinking != "disabled");
        dialect.demanded_with_tools
            && self.target.profile.contract != throughline_core::Contract::Stateless
            && thinks
            && (self.target.profile.thinks_by_default || self.body.get("thinking").is_some())
            && self.messages()[Self::message(place)].get("tool_calls").is_some()
    }

    fn says_gemini(&self, operator: &str, place: &Place) -> Says {
        const MISSING: Says = Says::Refused(&["gemini/first-call-needs-signature"]);
        let demands = self.target.profile.contract != throughline_core::Contract::Stateless;
        match operator {
            "drop seal" | "blank seal" | "move seal"
                if demands && self.is_current(place) && self.is_first_call(place) =>
            {
                MISSING
            }
            "truncate seal" | "flip seal" => Says::Refused(&["gemini/signature-corrupted"]),
            "drop seal" | "move seal" | "re-encode seal" | "edit sealed text"
            | "swap two seals" => Says::Accepted,
            "duplicate sealed part" if self.part(place).get("text").is_some() => Says::Accepted,
            _ => Says::Nothing,
        }
    }

    /// The rules that a body would be refused by.
    fn refused_by(&self, body: &Value, target: &Target, prior: &Prior) -> Vec<&'static str> {
        self.refused_text(&body.to_string(), target, prior)
    }

    fn refused_text(&self, body: &str, target: &Target, prior: &Prior) -> Vec<&'static str> {
        let sent = request(&self.exchange.path, body);
        let codec = codec_of(&self.exchange.wire);
        let transcript = Transcript {
            account_created: Some("2026-10-01T00:00:00Z".parse().unwrap()),
            ..Transcript::of(codec, &sent).after(prior)
        };
        let audit = audit(&transcript, target).unwrap();
        let found = audit.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
        found.map(|finding| finding.rule.id).collect()
    }

    /// The places that hold what an earlier reply issued.
    fn places(&self) -> Vec<Place> {
        let mut issued: HashSet<Vec<u8>> = HashSet::new();
        for item in self
            .prior
            .exchanges()
            .iter()
            .filter_map(|exchange| exchange.reply.as_ref())
            .flat_map(|reply| &reply.items)
        {
            issued.extend(item.seals.iter().map(|seal| normal(seal.reveal_to_tenant())));
            if let Body::Thought(thought) = &item.body {
                issued.insert(normal(thought.content.as_bytes()));
            }
        }
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
        let list = format!("/{}/", self.shape.list());
        seals(&self.body)
            .into_iter()
            .filter(|place| place.parent.starts_with(&list) && is_reasoning(place))
            .filter(|place| {
                issued.contains(&normal(
                    self.body.pointer(&place.pointer()).unwrap().as_str().unwrap().as_bytes(),
                ))
            })
            .collect()
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

fn sent_requests(recordings: &[throughline_testkit::Recording]) -> Vec<Sent<'_>> {
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

/// Why no recording has anything for an operator on a wire.
const EMPTY: &[(Shape, &str, &str)] = &[
    (Shape::Chat, "drop sealed part", "reasoning is a member of its message and no part"),
    (Shape::Chat, "duplicate sealed part", "reasoning is a member of its message and no part"),
    (Shape::Chat, "reorder sealed part", "reasoning is a member of its message and no part"),
    (Shape::Chat, "say thought aloud", "reasoning is a member of its message and no part"),
];

#[test]
fn recordings_spoiled_requests_are_found_out() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut table: BTreeMap<(Shape, &str), [usize; 3]> = BTreeMap::new();
    let mut missed: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = BTreeSet::new();
    let mut dice = Dice::new(1);
    for sent in &sent_requests(&recordings) {
        for operator in OPERATORS.iter().filter(|operator| operator.on == On::Seal) {
            for place in sent.places() {
                let mut body = sent.body.clone();
                if !operator.apply(sent.shape, &mut body, &place, &mut dice) || body == sent.body {
                    continue;
                }
                let row = table.entry((sent.shape, operator.name)).or_default();
                row[0] += 1;
                let found = sent.refused_by(&body, &sent.target, &sent.prior);
                let name = format!(
                    "{:?} {} {}: {} at {}",
                    sent.shape,
                    sent.target.provider.name,
                    sent.target.model(),
                    operator.name,
                    place.pointer()
                );
                match sent.says(operator.name, &place) {
                    Says::Refused(rules) => {
                        row[1] += 1;
                        if found.iter().any(|rule| rules.contains(rule)) {
                            row[2] += 1;
                        } else {
                            *missed.entry(format!("{name}: {found:?}")).or_default() += 1;
                        }
                    }
                    Says::Accepted if !found.is_empty() => {
                        wrong.insert(format!("{name}: {found:?}"));
                    }
                    Says::Accepted | Says::Nothing => {}
                }
            }
        }
    }
    let (mut expected, mut detected) = (0, 0);
    for operator in OPERATORS.iter().filter(|operator| operator.on == On::Seal) {
        for shape in
            [Shape::Anthropic, Shape::Converse, Shape::Responses, Shape::Chat, Shape::Gemini]
        {
            let label = format!("{shape:?}: {}", operator.name);
            match table.get(&(shape, operator.name)) {
                Some([applied, refused, found]) => {
                    (expected, detected) = (expected + refused, detected + found);
                    figure(
                        &label,
                        format!("applied {applied}, expected {refused}, detected {found}"),
                    );
                }
                None => {
                    let reason =
                        EMPTY.iter().find(|(of, name, _)| *of == shape && *name == operator.name);
                    figure(
                        &label,
                        reason.map_or("no recording has what it spoils", |(_, _, reason)| reason),
                    );
                }
            }
        }
    }
    figure("spoiled, expected to be refused", expected);
    figure("spoiled, detected", detected);
    assert!(
        wrong.is_empty(),
        "harmless, and refused:\n{}",
        wrong.into_iter().collect::<Vec<_>>().join("\n")
    );
    assert!(
        detected * 100 >= expected * 99,
        "{detected} of {expected}; missed:\n{}",
        missed.keys().cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn recordings_of_another_owner_are_found_out() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let catalog = Catalog::builtin();
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for sent in &sent_requests(&recordings) {
        let target_at = |row: &str, account: &str| {
            let row = catalog.provider(row).unwrap();
            catalog.target(&row, sent.target.model(), account)
        };
        let name = &*sent.target.provider.name;
        let has_seals = !sent.places().is_empty();
        let cases = [
            (
                "another account at OpenAI",
                matches!(name, "openai"),
                "openai",
                "other",
                "openai/encrypted-content-invalid",
            ),
            (
                "another account at Gemini",
                name == "gemini",
                "gemini",
                "other",
                "gemini/signature-corrupted",
            ),
            (
                "another endpoint of Gemini",
                name == "gemini",
                "vertex",
                "test",
                "gemini/signature-corrupted",
            ),
        ];
        for (label, _, row, account, rule) in cases.into_iter().filter(|case| case.1 && has_seals) {
            let found = sent.refused_by(&sent.body, &target_at(row, account), &sent.prior);
            let count = counts.entry(label).or_default();
            count[0] += 1;
            count[1] += usize::from(found.contains(&rule));
        }
    }
    for (label, [expected, detected]) in &counts {
        figure(label, format!("expected {expected}, detected {detected}"));
        assert!(detected * 100 >= expected * 99, "{label}: {detected} of {expected}");
    }
}

#[test]
fn recordings_behind_another_prefix_are_found_out() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for recording in recordings
        .iter()
        .filter(|recording| recording.folder == "." && recording.wire == "anthropic-messages")
    {
        // No recording is of a model that binds its blocks, so they are taken as if one had answered.
        let mut bound = recording.clone();
        for exchange in &mut bound.exchanges {
            exchange.model = "claude-opus-5-5".to_owned();
        }
        for sent in &sent_requests(std::slice::from_ref(&bound)) {
            if sent.places().is_empty() {
                continue;
            }
            let whole = sent.refused_by(&sent.body, &sent.target, &sent.prior);
            assert!(!whole.contains(&"anthropic/prefix-changed"), "{}", recording.name);
            for operator in OPERATORS.iter().filter(|operator| {
                matches!(operator.name, "edit system" | "edit a tool" | "edit first question")
            }) {
                let mut body = sent.body.clone();
                let nowhere = Place { parent: String::new(), key: String::new() };
                if operator.apply(sent.shape, &mut body, &nowhere, &mut Dice::new(1))
                    && body != sent.body
                {
                    let found = sent.refused_by(&body, &sent.target, &sent.prior);
                    let count = counts.entry(operator.name).or_default();
                    count[0] += 1;
                    count[1] += usize::from(found.contains(&"anthropic/prefix-changed"));
                }
            }
        }
    }
    for (label, [expected, detected]) in &counts {
        figure(
            &format!("prefix-bound: {label}"),
            format!("expected {expected}, detected {detected}"),
        );
        assert_eq!(expected, detected, "{label}");
    }
}

#[test]
fn recordings_without_one_of_a_pair_are_found_out() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let operator = OPERATORS.iter().find(|operator| operator.name == "drop a result").unwrap();
    let mut counts: BTreeMap<Shape, [usize; 2]> = BTreeMap::new();
    for sent in &sent_requests(&recordings) {
        let is_demanded = sent.shape != Shape::Chat || sent.target.provider.dialect.pairs_calls;
        let nowhere = Place { parent: String::new(), key: String::new() };
        let mut body = sent.body.clone();
        // What Gemini is asked last may be a call without an answer.
        let is_open = |body: &Value| {
            let messages = body[sent.shape.list()].as_array().unwrap();
            messages.last().is_some_and(|last| last["role"] == "model")
        };
        if is_demanded
            && operator.apply(sent.shape, &mut body, &nowhere, &mut Dice::new(1))
            && !is_open(&body)
        {
            let found = sent.refused_by(&body, &sent.target, &sent.prior);
            let rules = ["tool-call-unanswered", "answers-do-not-match", "calls-interrupted"];
            let is_found = found.iter().any(|id| rules.iter().any(|rule| id.ends_with(rule)));
            let count = counts.entry(sent.shape).or_default();
            count[0] += 1;
            count[1] += usize::from(is_found);
        }
    }
    for (shape, [expected, detected]) in &counts {
        figure(
            &format!("{shape:?}: drop a result"),
            format!("expected {expected}, detected {detected}"),
        );
        assert!(detected * 100 >= expected * 99, "{shape:?}: {detected} of {expected}");
    }
}

#[test]
fn recordings_changed_harmlessly_are_not_refused() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for sent in &sent_requests(&recordings) {
        let may_drop = match sent.shape {
            Shape::Anthropic | Shape::Converse | Shape::Gemini => true,
            Shape::Responses => !sent.is_stored(),
            Shape::Chat => false,
        };
        let mut tried: Vec<(&str, String)> = vec![
            ("white space", serde_json::to_string_pretty(&sent.body).unwrap()),
            ("key order", turned(&sent.body).to_string()),
        ];
        for operator in OPERATORS {
            let is_harmless = match operator.name {
                "add cache markers" => true,
                "drop earlier turns' reasoning" => may_drop,
                "drop reasoning ids" => {
                    sent.shape == Shape::Responses && sent.body["store"] == json!(false)
                }
                _ => false,
            };
            let mut body = sent.body.clone();
            let nowhere = Place { parent: String::new(), key: String::new() };
            if is_harmless && operator.apply(sent.shape, &mut body, &nowhere, &mut Dice::new(1)) {
                tried.push((operator.name, body.to_string()));
            }
        }
        for (name, body) in tried {
            let found = sent.refused_text(&body, &sent.target, &sent.prior);
            *counts.entry(name).or_default() += 1;
            if !found.is_empty() {
                wrong.push(format!(
                    "{name}: {} {}: {found:?}",
                    sent.exchange.provider, sent.exchange.model
                ));
            }
        }
    }
    for (name, count) in counts {
        figure(&format!("harmless: {name}"), count);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same value with every object's members the other way round.
fn turned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().rev().map(|(key, value)| (key.clone(), turned(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(turned).collect(),
        other => other.clone(),
    }
}

#[test]
fn a_spoiled_request_is_refused_and_a_whole_one_is_not() {
    // The test above can only fail where recordings are; this one keeps its judge honest everywhere.
    let codec = codec_of("anthropic-messages");
    let to = target("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let body = |signature: &str| {
        Bytes::from(json!({"model": "claude-sonnet-4-5", "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}, "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "I look", "signature": signature}, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}]}
        ]}).to_string())
    };
    for (signature, verdict) in [("c2VhbC1vbmU=", Verdict::Accept), ("", Verdict::Refuse)] {
        let sent =
            throughline_core::Request { body: body(signature), ..request("/v1/messages", "") };
        assert_eq!(audit(&Transcript::of(codec, &sent), &to).unwrap().verdict(), verdict);
    }
}
