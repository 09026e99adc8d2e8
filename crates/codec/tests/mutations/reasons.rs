//! Explains empty cells in the mutation table: the recordings lack the data, or no provider refuses
//! the change.
//!
//! Each explanation has a check that must hold for the recorded requests of its wire.

use std::collections::HashSet;

use serde_json::Value;
use throughline_codec::Catalog;
use throughline_testkit::{SealLocation, Shape};

use crate::sent::RecordedRequest;
use crate::spoiled::families;

/// The reason why some operators cannot be applied on a wire, or are applied but cause no refusal.
pub(crate) struct Exemption {
    pub(crate) wire: Shape,
    pub(crate) operators: &'static [&'static str],
    pub(crate) kind: ExemptionKind,
    /// The explanation, in one sentence.
    pub(crate) why: &'static str,
    /// The condition that the wire's recorded requests must meet.
    pub(crate) check: Check,
}

pub(crate) enum Check {
    /// Every request meets the condition.
    Each(fn(&RecordedRequest<'_>) -> bool),
    /// At least one accepted request meets the condition.
    Some(fn(&RecordedRequest<'_>) -> bool),
}

impl Exemption {
    /// Returns whether the recorded requests meet the condition.
    pub(crate) fn holds(&self, sent: &[RecordedRequest<'_>]) -> bool {
        let mut sent = sent.iter().filter(|sent| sent.shape == self.wire);
        match self.check {
            Check::Each(is_so) => sent.all(is_so),
            Check::Some(is_so) => sent.any(is_so),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemptionKind {
    /// No recording contains the data that the operator changes.
    Absent,
    /// The operator was applied, but no provider is known to refuse the change.
    Taken,
}

macro_rules! reasons {
    ($($wire:ident $kind:ident [$($operator:literal),*] $why:literal, $check:ident $is_so:expr;)*) => {
        pub(crate) static EXEMPTIONS: &[Exemption] = &[$(Exemption {
            wire: Shape::$wire,
            operators: &[$($operator),*],
            kind: ExemptionKind::$kind,
            why: $why,
            check: Check::$check($is_so),
        }),*];
    };
}

reasons! {
    Anthropic Absent ["drop follower", "drop ids of followers"]
        "thinking blocks have no ids: paired content is in one message",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("id").is_none());
    Anthropic Taken ["change account"]
        "no recorded model binds its blocks to an account, and the models that do ignore foreign blocks",
        Each |sent| !sent.target.profile.bound.account;
    Anthropic Taken ["change endpoint"]
        "the endpoints that serve Claude are reported to accept each other's signatures",
        Each |sent| sent.target.profile.name.starts_with("claude");

    Anthropic Absent ["drop an earlier thought"]
        "no recorded request carries the thoughts of two messages",
        Each has_thoughts_of_one_message;
    Anthropic Absent ["change the effort"]
        "no recorded request thinks only between tools",
        Each |sent| sent.body["thinking"]["type"] != "between_tools";
    Anthropic Absent ["drop fallback blocks"]
        "no recorded response continues with another model",
        Each |sent| !sent.body.to_string().contains("\"type\":\"fallback\"");
    Anthropic Absent ["reason with tools"]
        "the limit exists only on OpenAI's chat wire",
        Each |sent| sent.body.get("reasoning_effort").is_none();

    Converse Absent ["drop an earlier thought"]
        "no recorded request carries more than one seal",
        Each |sent| sent.places().len() <= 1;
    Converse Absent ["empty a thought", "add a system message", "change the effort", "drop fallback blocks", "reason with tools"]
        "the rules concern members and roles of other wires",
        Each |sent| sent.messages().iter().all(|message| message["role"] != "system");
    Converse Absent ["swap two seals"]
        "no recorded request carries more than one seal",
        Each |sent| sent.places().len() <= 1;
    Converse Absent ["drop follower", "drop ids of followers"]
        "reasoning has no ids: paired content is in one message",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("id").is_none());
    Converse Taken ["change account"]
        "no recorded model binds its reasoning to an account, and the models that do ignore foreign blocks",
        Each |sent| !sent.target.profile.bound.account;
    Converse Taken ["change endpoint"]
        "the endpoints that serve Claude are reported to accept each other's signatures",
        Each |sent| sent.target.profile.name.starts_with("claude");

    Responses Absent ["empty a thought", "drop an earlier thought", "add a system message", "change the effort", "drop fallback blocks", "reason with tools"]
        "the rules concern Claude's blocks and OpenAI's chat wire",
        Each |sent| sent.target.provider.wire.as_str() == "openai-responses";
    Responses Taken ["edit sealed text"]
        "the text next to a seal is a summary for display; the reasoning is in the encrypted content",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("summary").is_some());
    Responses Taken ["swap two seals"]
        "both are complete and belong to this account, and content is not documented to be bound to an id",
        Each |sent| sent.places().iter().all(|place| place.key == "encrypted_content");
    Responses Absent ["merge sealed parts"]
        "no two sealed reasoning items are adjacent",
        Each |sent| sent.places().iter().all(|place| neighbours(sent, place).all(|item| item["type"] != "reasoning"));
    Responses Taken ["edit system", "edit a tool", "edit first question"]
        "no model of this wire binds its seals to the prefix",
        Each |sent| !sent.target.profile.bound.prefix;
    Responses Taken ["change model family"]
        "each recorded model's seals may be sent to the provider's other models: no refusal is known",
        Each is_read_by_siblings;

    Chat Absent ["empty a thought", "drop an earlier thought", "add a system message", "change the effort", "drop fallback blocks"]
        "the rules concern Claude's blocks on Anthropic's wire",
        Each |sent| sent.target.provider.wire.as_str() == "openai-chat";
    Chat Absent ["reason with tools"]
        "no recorded request disables reasoning; another model family covers the rule",
        Each |sent| sent.body["reasoning_effort"] != "none";
    Chat Taken ["re-encode seal"]
        "the seals that a router relays are Gemini's, whose alphabet does not matter; no other check is known",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail["format"] == "google-gemini-v1");
    Chat Taken ["edit sealed text"]
        "sealed parts with text are unsigned plain reasoning, or Claude blocks at a gateway not known to relay them",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail.get("text").is_none());
    Chat Taken ["swap two seals"]
        "if a request has two, both are `reasoning_content`: plain text, required by key and not by content",
        Each |sent| sent.places().len() < 2 || sent.places().iter().all(|place| place.key == "reasoning_content");
    Chat Absent ["move seal", "reorder sealed part"]
        "`reasoning_content` is a member of its message, and no sealed detail is followed by another",
        Each |sent| details(sent).all(|(list, detail)| list.last() == Some(detail));
    Chat Absent ["merge sealed parts"]
        "no sealed detail that has a text has a neighbour",
        Each |sent| details(sent).all(|(list, detail)| list.len() == 1 || detail.get("text").is_none());
    Chat Taken ["duplicate sealed part"]
        "only Claude is known to refuse repeated details, and no relayed detail is Claude's",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail["format"] != "anthropic-claude-v1");
    Chat Absent ["say thought aloud"]
        "the model's text is one string, so no part of it can be a thought",
        Each |sent| assistant_messages(sent).all(|message| !message["content"].is_array());
    Chat Absent ["drop follower"]
        "reasoning is a member of the message it led to, so both are removed together",
        Each |sent| sent.places().iter().all(|place| sent.part(place)["role"] == "assistant");
    Chat Absent ["drop ids of followers"]
        "messages have no ids",
        Each |sent| sent.messages().iter().all(|message| message.get("id").is_none());
    Chat Taken ["edit system", "edit a tool", "edit first question"]
        "no recorded model binds its reasoning to the prefix, and routers are documented not to enforce it",
        Each |sent| !sent.target.profile.bound.prefix;
    Chat Taken ["change account"]
        "the relayed seals were issued to the router, which is not known to separate its customers; the rest is plain text",
        Each |sent| sent.places().iter().all(|place| place.key == "reasoning_content" || place.parent.contains("/reasoning_details/"));

    Gemini Absent ["empty a thought", "drop an earlier thought", "add a system message", "change the effort", "drop fallback blocks", "reason with tools"]
        "the rules concern Claude's blocks and OpenAI's chat wire",
        Each |sent| sent.target.provider.wire.as_str() == "gemini";
    Gemini Taken ["re-encode seal"]
        "the field holds bytes: recorded clients returned standard base64 in the URL-safe alphabet and were accepted",
        Some |sent| sent.places().iter().any(|place| !sent.is_as_issued(place));
    Gemini Taken ["edit sealed text"]
        "sealed parts with text are not calls, and no refusal of changed signed text is documented or recorded",
        Each |sent| sealed(sent).all(|part| !is_call(part) || part.get("text").is_none());
    Gemini Taken ["swap two seals"]
        "all belong to the account, and a signature on another call was accepted",
        Some has_signature_twice;
    Gemini Taken ["merge sealed parts"]
        "merging parts is advised against, with no refusal documented",
        Each |sent| sealed(sent).all(|part| !is_call(part) || part.get("text").is_none());
    Gemini Taken ["drop sealed part", "say thought aloud"]
        "only calls need their signatures; these parts are texts, thoughts and provider-run steps",
        Each |sent| sealed(sent).all(|part| is_call(part) || is_text_or_hosted(part));
    Gemini Taken ["duplicate sealed part"]
        "a repeated signature was accepted",
        Some has_signature_twice;
    Gemini Absent ["drop follower", "drop ids of followers"]
        "a signature is on the part it belongs to, and parts have no ids",
        Each |sent| sealed(sent).all(|part| part.get("id").is_none());
    Gemini Taken ["edit system", "edit a tool", "edit first question"]
        "no Gemini model binds its signatures to the prefix",
        Each |sent| !sent.target.profile.bound.prefix;
}

/// Returns whether all Seals are in the same message.
fn has_thoughts_of_one_message(sent: &RecordedRequest<'_>) -> bool {
    let messages: HashSet<usize> = sent.places().iter().map(RecordedRequest::message).collect();
    messages.len() <= 1
}

/// Iterates over the parts that have a Seal.
fn sealed<'s>(sent: &'s RecordedRequest<'_>) -> impl Iterator<Item = &'s Value> {
    sent.places().into_iter().map(|place| sent.part(&place))
}

/// Iterates over the assistant messages.
fn assistant_messages<'s>(sent: &'s RecordedRequest<'_>) -> impl Iterator<Item = &'s Value> {
    sent.messages().iter().filter(|message| message["role"] == "assistant")
}

/// Iterates over the sealed reasoning details in a chat request. Each detail comes with the list
/// that contains it.
fn details<'s>(sent: &'s RecordedRequest<'_>) -> impl Iterator<Item = (&'s Vec<Value>, &'s Value)> {
    let lists =
        assistant_messages(sent).filter_map(|message| message["reasoning_details"].as_array());
    let is_sealed = |detail: &Value| {
        let seals = [&detail["data"], &detail["signature"]];
        seals.iter().any(|seal| seal.as_str().is_some_and(|seal| !seal.is_empty()))
    };
    lists.flat_map(move |list| {
        list.iter().filter(move |detail| is_sealed(detail)).map(move |detail| (list, detail))
    })
}

fn relays(sent: &RecordedRequest<'_>) -> bool {
    sent.target.provider.dialect.relays
}

/// Iterates over the input items directly before and after the item that contains a Seal location.
fn neighbours<'s>(
    sent: &'s RecordedRequest<'_>,
    place: &SealLocation,
) -> impl Iterator<Item = &'s Value> {
    let at = RecordedRequest::message(place);
    let places = [at.checked_sub(1), Some(at + 1)];
    places.into_iter().flatten().filter_map(|at| sent.messages().get(at))
}

/// Returns whether no other model of the provider is known to refuse this model's Seals.
fn is_read_by_siblings(sent: &RecordedRequest<'_>) -> bool {
    let catalog = Catalog::builtin();
    let mut siblings = families(&sent.target.provider.name).iter();
    sent.places().is_empty()
        || siblings.all(|model| catalog.profile(model).reads_seals_of(&sent.target.profile.name))
}

fn is_call(part: &Value) -> bool {
    part.get("functionCall").or_else(|| part.get("function_call")).is_some()
}

fn is_text_or_hosted(part: &Value) -> bool {
    ["text", "executableCode", "toolCall", "toolResponse"]
        .iter()
        .any(|member| part.get(member).is_some())
}

/// Returns whether two parts of one message have the same signature.
fn has_signature_twice(sent: &RecordedRequest<'_>) -> bool {
    sent.messages().iter().any(|message| {
        let parts = message["parts"].as_array().into_iter().flatten();
        let signatures: Vec<&str> =
            parts.filter_map(|part| part["thoughtSignature"].as_str()).collect();
        let distinct: HashSet<&str> = signatures.iter().copied().collect();
        distinct.len() < signatures.len()
    })
}
