//! All ways to spoil a recorded request: what is done to it, and to whom it is sent instead.

use std::sync::Arc;

use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{Provider, Target};
use throughline_testkit::{Dice, OPERATORS, On, Operator, Place, Shape};

use crate::sent::Sent;

/// Where an operator on the whole request is put to work.
pub(crate) const NOWHERE: Place = Place { parent: String::new(), key: String::new() };

/// What takes one of two away that need each other.
const PAIRS: [&str; 3] = ["drop ids of followers", "drop a call", "drop a result"];

/// What changes what stands before a thought.
const PREFIX: [&str; 3] = ["edit system", "edit a tool", "edit first question"];

/// What sends the request to somebody else.
const OWNER: [&str; 3] = ["change account", "change endpoint", "change model family"];

/// The names of all operators, in the order of the table.
pub(crate) fn operators() -> Vec<&'static str> {
    let on_seals = OPERATORS.iter().filter(|operator| operator.on == On::Seal);
    on_seals.map(|operator| operator.name).chain(PAIRS).chain(PREFIX).chain(OWNER).collect()
}

/// One request, spoiled in one way.
pub(crate) struct Spoiled {
    pub(crate) operator: &'static str,
    /// The seal that was spoiled, or [`NOWHERE`].
    pub(crate) place: Place,
    pub(crate) body: Value,
    pub(crate) target: Target,
}

impl Sent<'_> {
    /// The request with each of its seals spoiled, with one of each pair gone, and as somebody else's.
    pub(crate) fn spoiled(&self, dice: &mut Dice) -> Vec<Spoiled> {
        let mut spoiled = Vec::new();
        for operator in OPERATORS.iter().filter(|operator| operator.on == On::Seal) {
            for place in self.places() {
                spoiled.extend(self.spoil(operator, place, dice));
            }
        }
        spoiled.extend(self.spoil_whole(&PAIRS, dice));
        if !matches!(self.shape, Shape::Anthropic | Shape::Converse) {
            spoiled.extend(self.behind_another_prefix(dice));
        }
        spoiled.extend(self.as_of_another_owner());
        spoiled
    }

    /// The request with something else before its thoughts.
    pub(crate) fn behind_another_prefix(&self, dice: &mut Dice) -> Vec<Spoiled> {
        if self.places().is_empty() { Vec::new() } else { self.spoil_whole(&PREFIX, dice) }
    }

    fn spoil_whole(&self, names: &[&str], dice: &mut Dice) -> Vec<Spoiled> {
        let operators = OPERATORS.iter().filter(|operator| names.contains(&operator.name));
        operators.filter_map(|operator| self.spoil(operator, NOWHERE, dice)).collect()
    }

    /// Nothing where there was nothing to spoil.
    fn spoil(&self, operator: &Operator, place: Place, dice: &mut Dice) -> Option<Spoiled> {
        let mut body = self.body.clone();
        let is_spoiled = operator.apply(self.shape, &mut body, &place, dice) && body != self.body;
        let target = self.target.clone();
        is_spoiled.then_some(Spoiled { operator: operator.name, place, body, target })
    }

    /// The same request, sent by somebody else or to somebody else.
    fn as_of_another_owner(&self) -> Vec<Spoiled> {
        let catalog = Catalog::builtin();
        let (provider, model) = (&self.target.provider, self.target.model());
        let mut spoiled = Vec::new();
        let mut send = |operator: &'static str, body: Value, target: Target| {
            spoiled.push(Spoiled { operator, place: NOWHERE, body, target });
        };
        if !self.places().is_empty() {
            let body = || self.body.clone();
            send("change account", body(), catalog.target(provider, model, "theirs"));
            send("change endpoint", body(), catalog.target(&elsewhere(provider), model, "test"));
        }
        for other in families(&provider.name) {
            let target = catalog.target(provider, other, "test");
            if target.profile.name == self.target.profile.name {
                continue;
            }
            let mut body = self.body.clone();
            if let Some(model) = body.get_mut("model") {
                *model = json!(other);
            }
            send("change model family", body, target);
        }
        spoiled
    }
}

/// Another endpoint that serves the same models on the same wire: one that has a row, or else the same one at another address.
fn elsewhere(provider: &Arc<Provider>) -> Arc<Provider> {
    let sibling = match &*provider.name {
        "gemini" => "vertex",
        "vertex" => "gemini",
        "openai" => "azure",
        "bedrock-mantle" => "openai",
        "openrouter" => "vercel",
        "vercel" => "openrouter",
        _ => {
            let base_url = "https://elsewhere.example/v1".into();
            return Arc::new(Provider { base_url, ..Provider::clone(provider) });
        }
    };
    Catalog::builtin().provider(sibling).unwrap()
}

/// Models of a provider, of different families.
pub(crate) fn families(provider: &str) -> &'static [&'static str] {
    match provider {
        "anthropic" => &["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-7"],
        "bedrock" => &[
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "us.anthropic.claude-opus-4-6-v1:0",
            "us.anthropic.claude-opus-4-7-v1:0",
        ],
        "openai" => &["gpt-5", "gpt-5.6", "o4-mini"],
        "bedrock-mantle" => &["openai.gpt-5.5"],
        "xai" => &["grok-4"],
        "deepseek" | "deepseek-responses" => &["deepseek-v4-flash", "deepseek-reasoner"],
        "gemini" | "vertex" => &["gemini-2.5-flash", "gemini-3-flash-preview"],
        "openrouter" | "vercel" => {
            &["anthropic/claude-sonnet-4.5", "google/gemini-3-pro-preview", "openai/gpt-5.2"]
        }
        "xai-chat" => &["grok-3-mini", "grok-code-fast-1"],
        "ollama" => &["qwen3", "gpt-oss:20b"],
        "zai" => &["glm-5.2"],
        _ => &[],
    }
}
