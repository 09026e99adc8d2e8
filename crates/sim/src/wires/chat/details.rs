//! Verifies `reasoning_details` as a router does before it calls the upstream model. Failures
//! return the error of the model's vendor.

use std::collections::HashSet;

use throughline_core::{Contract, Profile};
use throughline_json::Node;

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::{ReplyKey, Verdict};
use crate::turn::{Refusal, SimRequest, Turn};
use crate::wires::chat::read::{calls, is_on_another_reply};
use crate::wires::claude::{Block, seals};
use crate::wires::gemini::read::{
    is_placeholder_signature, standard_base64, unsigned_call_message,
};
use crate::wires::{Exchange, list, member_is, openai, string};

/// The router's names for upstream providers whose errors have their own format.
pub(super) const ANTHROPIC: &str = "Anthropic";
pub(super) const GOOGLE: &str = "Google AI Studio";

/// Vendor of the model that the router calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Claude,
    Gemini,
    OpenAi,
    Xai,
    /// Any other vendor; its models issue no Seals.
    Other,
}

impl Vendor {
    pub(super) fn from_profile(profile: &Profile) -> Self {
        let name = profile.name.as_str();
        let begins = |start: &str| name.starts_with(start);
        match name {
            "gpt-oss" => Self::Other,
            _ if begins("claude") => Self::Claude,
            _ if begins("gemini") => Self::Gemini,
            _ if begins("gpt") || begins("openai") => Self::OpenAi,
            _ if begins("grok") => Self::Xai,
            _ => Self::Other,
        }
    }

    /// Returns the vendor identified by the `format` value of a detail, if any.
    fn from_format(format: &str) -> Option<Self> {
        match format {
            "anthropic-claude-v1" => Some(Self::Claude),
            "google-gemini-v1" => Some(Self::Gemini),
            "xai-responses-v1" | "bedrock-xai-responses-v1" => Some(Self::Xai),
            format if format.ends_with("openai-responses-v1") => Some(Self::OpenAi),
            _ => None,
        }
    }

    /// Returns the router's name for the vendor, and the `format` value in the vendor's reasoning
    /// details.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Claude => (ANTHROPIC, "anthropic-claude-v1"),
            Self::Gemini => (GOOGLE, "google-gemini-v1"),
            Self::OpenAi => ("OpenAI", "openai-responses-v1"),
            Self::Xai => ("xAI", "xai-responses-v1"),
            Self::Other => ("Novita", "unknown"),
        }
    }

    /// Returns the signer and format of the vendor's Seals. Claude's signatures are valid at every
    /// provider that serves Claude.
    pub(super) fn signer(self, request: &SimRequest) -> (&str, SealFormat) {
        match self {
            Self::Claude => (seals::SIGNER, SealFormat::Claude),
            Self::Gemini => (&request.row.name, SealFormat::Gemini),
            Self::OpenAi | Self::Xai | Self::Other => (&request.row.name, SealFormat::Fernet),
        }
    }

    fn refuse(self, message: impl Into<String>) -> Refusal {
        let refusal = Refusal::invalid(message).kind(self.names().0);
        if self == Self::OpenAi { refusal.code("invalid_encrypted_content") } else { refusal }
    }
}

/// Returns the digests of a message's text and calls. Claude binds each thought to one of these
/// digests.
fn content_digests(message: Node<'_>) -> Vec<Digest> {
    let text = Block::Text(openai::text(message.get("content")));
    let calls = calls(message).map(|call| Block::Call {
        id: string(call, "id").unwrap_or_default(),
        name: String::new(),
        content: Vec::new(),
    });
    [text].into_iter().chain(calls).filter_map(|block| block.content_digest()).collect()
}

/// Checks the `reasoning_details` of all messages with the checks of the model's vendor.
pub(super) fn check(
    exchange: &mut Exchange<'_>,
    turn: &Turn,
    messages: &[Node<'_>],
) -> Result<(), Refusal> {
    let vendor = Vendor::from_profile(&turn.target.profile);
    let replies = messages.iter().filter(|message| member_is(**message, "role", "assistant"));
    let content_digests = replies.flat_map(|message| content_digests(*message)).collect();
    let mut checker = DetailChecker { exchange, turn, vendor, content_digests };
    let is_user = |message: &Node<'_>| member_is(*message, "role", "user");
    let current = messages.iter().rposition(is_user).unwrap_or_default();
    let mut upstream = 0;
    for (at, message) in messages.iter().enumerate() {
        let role = message.text_of("role").unwrap_or_default();
        if role == "assistant" {
            let position = MessagePosition { at, upstream, is_current: at > current };
            checker.message(position, *message)?;
        }
        // The router sends the system prompt separately, and merges the tool results of a step into
        // one message.
        let next = messages.get(at + 1).and_then(|next| next.text_of("role"));
        let is_joined = role == "tool" && next.as_deref() == Some("tool");
        upstream += usize::from(!matches!(&*role, "system" | "developer") && !is_joined);
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct MessagePosition {
    /// Index of the message in the request.
    at: usize,
    /// Index of the message in the router's request to the vendor.
    upstream: usize,
    /// Whether the message belongs to the current turn.
    is_current: bool,
}

/// A returned reasoning detail, with its message and its position.
struct ReturnedDetail<'t> {
    position: MessagePosition,
    message: Node<'t>,
    detail: Node<'t>,
    /// The opaque value; empty if the detail contains no opaque value.
    sealed: String,
    path: String,
    block: String,
}

impl ReturnedDetail<'_> {
    fn format(&self) -> Option<Vendor> {
        Vendor::from_format(&self.detail.text_of("format")?)
    }
}

struct DetailChecker<'a, 'e> {
    exchange: &'a mut Exchange<'e>,
    turn: &'a Turn,
    vendor: Vendor,
    /// Digests of the texts and calls in all assistant messages.
    content_digests: HashSet<Digest>,
}

impl DetailChecker<'_, '_> {
    fn message(&mut self, position: MessagePosition, message: Node<'_>) -> Result<(), Refusal> {
        let details: Vec<Node<'_>> = list(message, "reasoning_details").collect();
        let beside = content_digests(message);
        for (number, detail) in details.iter().enumerate() {
            let index = |node: &Node<'_>| node.get("index").and_then(Node::u64);
            let is_fragment = |other: &&Node<'_>| {
                is_text(**other) && index(other).is_some() && index(other) == index(detail)
            };
            let sealed = ["signature", "data"].iter().find_map(|key| string(*detail, key));
            let returned = ReturnedDetail {
                position,
                message,
                detail: *detail,
                sealed: sealed.unwrap_or_default(),
                path: format!("messages[{}].reasoning_details[{number}]", position.at),
                block: format!("messages.{}.content.{number}", position.upstream),
            };
            let is_relayed = self.vendor == Vendor::Claude && self.relays();
            let is_cut = || details.iter().filter(is_fragment).count() > 1;
            let (problem, refusal) = if is_relayed && is_text(*detail) && is_cut() {
                (Some("fragment"), Some(self.invalid_signature(&returned)))
            } else if returned.sealed.is_empty() {
                (None, self.missing_signature(&returned))
            } else {
                self.judge(&returned, &beside)
            };
            self.record(&returned, problem, refusal)?;
        }
        self.check_first_call(position, message, &details)
    }

    /// Returns whether the router forwards details to the vendor unchanged. No other router is
    /// known to reject missing or invalid details.
    fn relays(&self) -> bool {
        self.exchange.request.row.dialect.relays
    }

    fn invalid_signature(&self, returned: &ReturnedDetail<'_>) -> Refusal {
        self.vendor.refuse(format!("{}: Invalid `signature` in `thinking` block", returned.block))
    }

    /// Records the verdict on a detail. If the router relays the vendor's error, the detail is
    /// recorded as rejected and the error is returned. Otherwise an invalid detail is recorded as
    /// dropped.
    fn record(
        &mut self,
        returned: &ReturnedDetail<'_>,
        problem: Option<&str>,
        refusal: Option<Refusal>,
    ) -> Result<(), Refusal> {
        let refusal = refusal.filter(|_| self.relays());
        let (verdict, sealed) = match problem {
            Some(problem) if refusal.is_some() => (Verdict::refused(problem), None),
            Some(problem) => (Verdict::dropped(problem), None),
            None if self.vendor == Vendor::Gemini => {
                (Verdict::Accepted, Some(standard_base64(&returned.sealed)))
            }
            None => (Verdict::Accepted, None),
        };
        if !returned.sealed.is_empty() {
            let sealed = sealed.as_deref().unwrap_or(&returned.sealed);
            self.exchange.record.record_returned(sealed, &*returned.path, verdict);
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Returns the vendor's error if a Claude thinking block in the current turn has no signature.
    fn missing_signature(&self, returned: &ReturnedDetail<'_>) -> Option<Refusal> {
        let is_claudes = returned.format() == Some(Vendor::Claude) && is_text(returned.detail);
        if self.vendor != Vendor::Claude || !is_claudes || !returned.position.is_current {
            return None;
        }
        if returned.detail.present("signature").is_some() {
            return Some(self.invalid_signature(returned));
        }
        let message = format!("{}.thinking.signature: Field required", returned.block);
        Some(self.vendor.refuse(message))
    }

    /// Verifies the Seal of a detail. Returns the problem for the ledger, and the vendor's error.
    /// If there is a problem but no error, the vendor ignores the detail.
    fn judge(
        &self,
        returned: &ReturnedDetail<'_>,
        beside: &[Digest],
    ) -> (Option<&'static str>, Option<Refusal>) {
        let (vendor, sealed) = (self.vendor, returned.sealed.as_str());
        if matches!(vendor, Vendor::Xai | Vendor::Other) {
            return (Some("not_read"), None);
        }
        if vendor == Vendor::Gemini && is_placeholder_signature(sealed) {
            return (Some("stand_in"), None);
        }
        let unverified = match vendor {
            Vendor::Gemini => vendor.refuse("Corrupted thought signature."),
            Vendor::OpenAi => {
                let id = returned.detail.text_of("id").unwrap_or_default();
                vendor.refuse(format!("The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed."))
            }
            Vendor::Claude | Vendor::Xai | Vendor::Other => self.invalid_signature(returned),
        };
        if returned.format().is_some_and(|format| format != vendor) {
            return (Some("foreign"), Some(unverified));
        }
        let (signer, format) = vendor.signer(self.exchange.request);
        let Ok(claims) = self.exchange.state.keys.open(signer, format, sealed) else {
            return (Some("unknown"), Some(unverified));
        };
        if vendor == Vendor::Claude && !signs(&claims, returned.detail) {
            return (Some("edited"), Some(unverified));
        }
        let is_elsewhere =
            |digest| self.content_digests.contains(digest) && !beside.contains(digest);
        if vendor == Vendor::Claude && claims.beside.as_ref().is_some_and(is_elsewhere) {
            let refusal = vendor.refuse(seals::modified_message(&returned.block));
            return (Some("moved"), Some(refusal));
        }
        if !self.turn.target.profile.reads_seals_of(&claims.family) {
            return (Some("model_binding_mismatch"), None);
        }
        let seal = ReplyKey::Seal(sealed.to_owned());
        let is_elsewhere = || is_on_another_reply(returned.message, &seal, self.exchange.state);
        // OpenAI accepts the ciphertext at any position, but it belongs before the items that
        // followed it.
        if vendor == Vendor::OpenAi && is_elsewhere() {
            return (Some("moved"), None);
        }
        (None, None)
    }

    /// Checks that the first call of each step in the current turn has a Gemini signature.
    fn check_first_call(
        &self,
        position: MessagePosition,
        message: Node<'_>,
        details: &[Node<'_>],
    ) -> Result<(), Refusal> {
        let is_checked = self.vendor == Vendor::Gemini
            && self.relays()
            && self.turn.target.profile.contract != Contract::Stateless
            && position.is_current;
        let ids: Vec<_> = calls(message).filter_map(|call| call.text_of("id")).collect();
        let Some(first) = ids.first().filter(|_| is_checked) else { return Ok(()) };
        let is_its = |detail: &Node<'_>| {
            let id = detail.present("id").and_then(Node::text);
            let is_others = |id: &str| id != first && ids.iter().any(|other| other == id);
            detail.text_of("data").is_some_and(|data| !data.is_empty())
                && !id.is_some_and(|id| is_others(&id))
        };
        if details.iter().any(is_its) {
            return Ok(());
        }
        let name = calls(message).next().and_then(|call| call.at("/function/name"));
        let name = name.and_then(Node::text).unwrap_or_default();
        Err(self.vendor.refuse(unsigned_call_message(&name, position.upstream)))
    }
}

fn is_text(detail: Node<'_>) -> bool {
    detail.get("type").is_some_and(|kind| kind.is("reasoning.text"))
}

/// Returns whether the claims of a Claude Seal match the content of this detail.
fn signs(claims: &SealClaims, detail: Node<'_>) -> bool {
    if !is_text(detail) {
        return claims.kind == "redacted_thinking";
    }
    let text = detail.text_of("text").unwrap_or_default();
    claims.kind == "thinking" && claims.text == seals::signed_text(&text)
}
