//! Why a cell of the table is empty: what the recordings do not have, and what the contracts do not refuse.
//!
//! Each reason has its check: a fact of the recorded requests of its wire without which it would not be true.

use std::collections::HashSet;

use serde_json::Value;
use throughline_codec::Catalog;
use throughline_testkit::{Place, Shape};

use crate::sent::Sent;
use crate::spoiled::families;

/// Why some operators find nothing on a wire, or nothing that is refused.
pub(crate) struct Reason {
    pub(crate) wire: Shape,
    pub(crate) operators: &'static [&'static str],
    pub(crate) kind: Kind,
    /// The fact, in a sentence.
    pub(crate) why: &'static str,
    /// What the recorded requests of the wire must bear out.
    pub(crate) check: Check,
}

pub(crate) enum Check {
    /// Every request is so.
    Each(fn(&Sent<'_>) -> bool),
    /// Some request is so, and was accepted.
    Some(fn(&Sent<'_>) -> bool),
}

impl Reason {
    /// Whether the recorded requests bear it out.
    pub(crate) fn holds(&self, sent: &[Sent<'_>]) -> bool {
        let mut sent = sent.iter().filter(|sent| sent.shape == self.wire);
        match self.check {
            Check::Each(is_so) => sent.all(is_so),
            Check::Some(is_so) => sent.any(is_so),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No recording has what the operator spoils.
    Absent,
    /// It was spoiled, and the contract does not say that this is refused.
    Taken,
}

macro_rules! reasons {
    ($($wire:ident $kind:ident [$($operator:literal),*] $why:literal, $check:ident $is_so:expr;)*) => {
        pub(crate) static REASONS: &[Reason] = &[$(Reason {
            wire: Shape::$wire,
            operators: &[$($operator),*],
            kind: Kind::$kind,
            why: $why,
            check: Check::$check($is_so),
        }),*];
    };
}

reasons! {
    Anthropic Absent ["drop follower", "drop ids of followers"]
        "thinking blocks have no ids: what belongs together stands in one message",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("id").is_none());
    Anthropic Taken ["change account"]
        "no recorded model binds its blocks to an account, and the models that do drop a stranger's unread",
        Each |sent| !sent.target.profile.bound.account;
    Anthropic Taken ["change endpoint"]
        "the endpoints that serve Claudes are said to read each other's signatures",
        Each |sent| sent.target.profile.name.starts_with("claude");

    Converse Absent ["swap two seals"]
        "no recorded request carries more than one seal",
        Each |sent| sent.places().len() <= 1;
    Converse Absent ["drop follower", "drop ids of followers"]
        "reasoning has no ids: what belongs together stands in one message",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("id").is_none());
    Converse Taken ["change account"]
        "no recorded model binds its reasoning to an account, and the models that do drop a stranger's unread",
        Each |sent| !sent.target.profile.bound.account;
    Converse Taken ["change endpoint"]
        "the endpoints that serve Claudes are said to read each other's signatures",
        Each |sent| sent.target.profile.name.starts_with("claude");

    Responses Taken ["edit sealed text"]
        "the text beside a seal is a summary for people; what was thought is in the encrypted content",
        Each |sent| sent.places().iter().all(|place| sent.part(place).get("summary").is_some());
    Responses Taken ["swap two seals"]
        "both are whole and this account's own, and nobody says that content is bound to its item's id",
        Each |sent| sent.places().iter().all(|place| place.key == "encrypted_content");
    Responses Absent ["merge sealed parts"]
        "no sealed reasoning item stands beside another",
        Each |sent| sent.places().iter().all(|place| neighbours(sent, place).all(|item| item["type"] != "reasoning"));
    Responses Taken ["edit system", "edit a tool", "edit first question"]
        "no model of this wire binds its seals to what stands before them",
        Each |sent| !sent.target.profile.bound.prefix;
    Responses Taken ["change model family"]
        "each recorded model's seals may go to the provider's other models: no refusal between them is known",
        Each is_read_by_siblings;

    Chat Taken ["re-encode seal"]
        "the seals that a router relays are Gemini's, whose bytes count and not their alphabet; nobody else is known to look",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail["format"] == "google-gemini-v1");
    Chat Taken ["edit sealed text"]
        "what has a text is plain reasoning that nobody signs, or a Claude's block at a gateway that is not known to relay it",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail.get("text").is_none());
    Chat Taken ["swap two seals"]
        "where a request has two, both are `reasoning_content`: plain text, demanded by its key and not by its words",
        Each |sent| sent.places().len() < 2 || sent.places().iter().all(|place| place.key == "reasoning_content");
    Chat Absent ["move seal", "reorder sealed part"]
        "`reasoning_content` is a member of its message, and no sealed detail has another behind it",
        Each |sent| details(sent).all(|(list, detail)| list.last() == Some(detail));
    Chat Absent ["merge sealed parts"]
        "no sealed detail that has a text has a neighbour",
        Each |sent| details(sent).all(|(list, detail)| list.len() == 1 || detail.get("text").is_none());
    Chat Taken ["duplicate sealed part"]
        "that a detail may not come twice is known of a Claude's only, and none that is relayed is a Claude's",
        Each |sent| details(sent).all(|(_, detail)| !relays(sent) || detail["format"] != "anthropic-claude-v1");
    Chat Absent ["say thought aloud"]
        "what the model said is one string, so that no part of it can be a thought",
        Each |sent| said(sent).all(|message| !message["content"].is_array());
    Chat Absent ["drop follower"]
        "reasoning is a member of the message that it led to, and goes with it",
        Each |sent| sent.places().iter().all(|place| sent.part(place)["role"] == "assistant");
    Chat Absent ["drop ids of followers"]
        "messages have no ids",
        Each |sent| sent.messages().iter().all(|message| message.get("id").is_none());
    Chat Taken ["edit system", "edit a tool", "edit first question"]
        "no recorded model binds its reasoning to what stands before it, and routers are documented not to enforce it",
        Each |sent| !sent.target.profile.bound.prefix;
    Chat Taken ["change account"]
        "the relayed seals were issued to the router, and nobody says that it keeps its customers' apart; the rest is plain text",
        Each |sent| sent.places().iter().all(|place| place.key == "reasoning_content" || place.parent.contains("/reasoning_details/"));

    Gemini Taken ["re-encode seal"]
        "the field is bytes: recorded clients answered standard base64 in the URL-safe alphabet, and were accepted",
        Some |sent| sent.places().iter().any(|place| !sent.is_as_issued(place));
    Gemini Taken ["edit sealed text"]
        "what has a text is no call, and no refusal of a text that is not the signed one is documented or recorded",
        Each |sent| sealed(sent).all(|part| !is_call(part) || part.get("text").is_none());
    Gemini Taken ["swap two seals"]
        "all are the account's own, and a signature that stood on another call than its own was accepted",
        Some has_signature_twice;
    Gemini Taken ["merge sealed parts"]
        "merging parts is advised against, with no refusal documented",
        Each |sent| sealed(sent).all(|part| !is_call(part) || part.get("text").is_none());
    Gemini Taken ["drop sealed part", "say thought aloud"]
        "only calls need their signatures; what goes here are texts, thoughts and the provider's own steps",
        Each |sent| sealed(sent).all(|part| is_call(part) || is_said_or_hosted(part));
    Gemini Taken ["duplicate sealed part"]
        "a signature that stood there twice was accepted",
        Some has_signature_twice;
    Gemini Absent ["drop follower", "drop ids of followers"]
        "a signature stands on the very part that it belongs to, and parts have no ids",
        Each |sent| sealed(sent).all(|part| part.get("id").is_none());
    Gemini Taken ["edit system", "edit a tool", "edit first question"]
        "no Gemini binds its signatures to what stands before them",
        Each |sent| !sent.target.profile.bound.prefix;
}

/// The parts that carry a seal.
fn sealed<'s>(sent: &'s Sent<'_>) -> impl Iterator<Item = &'s Value> {
    sent.places().into_iter().map(|place| sent.part(&place))
}

/// What the model said.
fn said<'s>(sent: &'s Sent<'_>) -> impl Iterator<Item = &'s Value> {
    sent.messages().iter().filter(|message| message["role"] == "assistant")
}

/// The details of a chat that carry a seal, each with the list that it is in.
fn details<'s>(sent: &'s Sent<'_>) -> impl Iterator<Item = (&'s Vec<Value>, &'s Value)> {
    let lists = said(sent).filter_map(|message| message["reasoning_details"].as_array());
    let is_sealed = |detail: &Value| {
        let seals = [&detail["data"], &detail["signature"]];
        seals.iter().any(|seal| seal.as_str().is_some_and(|seal| !seal.is_empty()))
    };
    lists.flat_map(move |list| {
        list.iter().filter(move |detail| is_sealed(detail)).map(move |detail| (list, detail))
    })
}

fn relays(sent: &Sent<'_>) -> bool {
    sent.target.provider.dialect.relays
}

/// The items before and behind the one that a place is in.
fn neighbours<'s>(sent: &'s Sent<'_>, place: &Place) -> impl Iterator<Item = &'s Value> {
    let at = Sent::message(place);
    let places = [at.checked_sub(1), Some(at + 1)];
    places.into_iter().flatten().filter_map(|at| sent.messages().get(at))
}

/// Whether the provider's other models are not known to refuse this one's seals.
fn is_read_by_siblings(sent: &Sent<'_>) -> bool {
    let catalog = Catalog::builtin();
    let mut siblings = families(&sent.target.provider.name).iter();
    sent.places().is_empty()
        || siblings.all(|model| catalog.profile(model).reads_seals_of(&sent.target.profile.name))
}

fn is_call(part: &Value) -> bool {
    part.get("functionCall").or_else(|| part.get("function_call")).is_some()
}

fn is_said_or_hosted(part: &Value) -> bool {
    ["text", "executableCode", "toolCall", "toolResponse"]
        .iter()
        .any(|member| part.get(member).is_some())
}

/// Whether two parts of one message carry the same signature.
fn has_signature_twice(sent: &Sent<'_>) -> bool {
    sent.messages().iter().any(|message| {
        let parts = message["parts"].as_array().into_iter().flatten();
        let signatures: Vec<&str> =
            parts.filter_map(|part| part["thoughtSignature"].as_str()).collect();
        let distinct: HashSet<&str> = signatures.iter().copied().collect();
        distinct.len() < signatures.len()
    })
}
