//! Generates all mutations of a recorded request, including changes of its target.

use std::sync::Arc;

use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{Provider, Target};
use throughline_testkit::{MUTATIONS, Mutation, MutationTarget, SealLocation, Shape, TestRng};

use crate::sent::RecordedRequest;

/// The location for operators that apply to the whole request.
pub(crate) const WHOLE_REQUEST: SealLocation =
    SealLocation { parent: String::new(), key: String::new() };

/// Operators that break a pair by removing one side.
const PAIR_OPERATORS: [&str; 3] = ["drop ids of followers", "drop a call", "drop a result"];

/// Operators that change the content before a thought, which the thought may be bound to.
const PREFIX: [&str; 4] =
    ["edit system", "edit a tool", "edit first question", "drop an earlier thought"];

/// Operators that add, move or remove a part that only some models have.
const STRUCTURE: [&str; 4] =
    ["add a system message", "change the effort", "drop fallback blocks", "reason with tools"];

/// Operators that change the account, endpoint or model that receives the request.
const OWNER_OPERATORS: [&str; 3] = ["change account", "change endpoint", "change model family"];

/// Returns the names of all operators, in table order.
pub(crate) fn operators() -> Vec<&'static str> {
    let on_seals = MUTATIONS.iter().filter(|operator| operator.on == MutationTarget::Seal);
    on_seals
        .map(|operator| operator.name)
        .chain(PAIR_OPERATORS)
        .chain(PREFIX)
        .chain(STRUCTURE)
        .chain(OWNER_OPERATORS)
        .collect()
}

pub(crate) struct MutatedRequest {
    pub(crate) operator: &'static str,
    /// The location of the mutated Seal, or [`WHOLE_REQUEST`].
    pub(crate) place: SealLocation,
    pub(crate) body: Value,
    pub(crate) target: Target,
}

impl RecordedRequest<'_> {
    /// Returns all mutations of the request: mutated Seals, broken pairs, prefix changes and other
    /// targets. Prefix changes are omitted on the wires that serve Claude models.
    pub(crate) fn spoiled(&self, rng: &mut TestRng) -> Vec<MutatedRequest> {
        let mut spoiled = Vec::new();
        for operator in MUTATIONS.iter().filter(|operator| operator.on == MutationTarget::Seal) {
            for place in self.places() {
                spoiled.extend(self.spoil(operator, place, rng));
            }
        }
        spoiled.extend(self.mutate_whole_request(&PAIR_OPERATORS, rng));
        spoiled.extend(self.mutate_whole_request(&STRUCTURE, rng));
        if !matches!(self.shape, Shape::Anthropic | Shape::Converse) {
            spoiled.extend(self.with_prefix_changes(rng));
        }
        spoiled.extend(self.with_other_owners());
        spoiled
    }

    /// Returns the mutations that change the prefix of the request's thoughts.
    pub(crate) fn with_prefix_changes(&self, rng: &mut TestRng) -> Vec<MutatedRequest> {
        if self.places().is_empty() { Vec::new() } else { self.mutate_whole_request(&PREFIX, rng) }
    }

    fn mutate_whole_request(&self, names: &[&str], rng: &mut TestRng) -> Vec<MutatedRequest> {
        let operators = MUTATIONS.iter().filter(|operator| names.contains(&operator.name));
        operators.filter_map(|operator| self.spoil(operator, WHOLE_REQUEST, rng)).collect()
    }

    /// Applies an operator; `None` if the operator changes nothing.
    fn spoil(
        &self,
        operator: &Mutation,
        place: SealLocation,
        rng: &mut TestRng,
    ) -> Option<MutatedRequest> {
        let mut body = self.body.clone();
        let is_spoiled = operator.apply(self.shape, &mut body, &place, rng) && body != self.body;
        let target = self.target.clone();
        is_spoiled.then_some(MutatedRequest { operator: operator.name, place, body, target })
    }

    /// Returns the same request for another account, endpoint or model family.
    fn with_other_owners(&self) -> Vec<MutatedRequest> {
        let catalog = Catalog::builtin();
        let (provider, model) = (&self.target.provider, self.target.model());
        let mut spoiled = Vec::new();
        let mut send = |operator: &'static str, body: Value, target: Target| {
            spoiled.push(MutatedRequest { operator, place: WHOLE_REQUEST, body, target });
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

/// Returns another endpoint for the same models and wire: a provider from the catalog, or the same
/// provider with another address.
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

/// Returns models from different families that a provider serves.
pub(crate) fn families(provider: &str) -> &'static [&'static str] {
    match provider {
        "anthropic" => &["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-7"],
        "bedrock" => &[
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "us.anthropic.claude-opus-4-6-v1:0",
            "us.anthropic.claude-opus-4-7-v1:0",
        ],
        "openai" => &["gpt-5", "gpt-5.6", "o4-mini"],
        "openai-chat" => &["gpt-5.6"],
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
