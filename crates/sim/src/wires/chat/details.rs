//! Verifies `reasoning_details` as a router passes them to the upstream model, with the vendor's
//! errors.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{Contract, Profile};
use throughline_json::Node;

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::{EntryBuilder, ReplyKey, Verdict};
use crate::state::SimState;
use crate::turn::{Refusal, SimRequest, Turn};
use crate::wires::chat::read::{calls, is_on_another_reply};
use crate::wires::claude::{Block, seals};
use crate::wires::gemini::read::is_placeholder_signature;
use crate::wires::openai;

/// The upstreams, as the router names them.
pub(super) const ANTHROPIC: &str = "Anthropic";
pub(super) const GOOGLE: &str = "Google AI Studio";
pub(super) const OPENAI: &str = "OpenAI";

const FUNCTION_CALL_UNSIGNED: &str = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance.";

/// Vendor of the model that a router calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Claude,
    Gemini,
    OpenAi,
    Xai,
    /// A vendor that issues no Seals.
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

    /// Returns the vendor of a detail's format, if the format identifies one.
    fn from_format(format: &str) -> Option<Self> {
        match format {
            "anthropic-claude-v1" => Some(Self::Claude),
            "google-gemini-v1" => Some(Self::Gemini),
            "xai-responses-v1" | "bedrock-xai-responses-v1" => Some(Self::Xai),
            format if format.ends_with("openai-responses-v1") => Some(Self::OpenAi),
            _ => None,
        }
    }

    /// Returns the format of the vendor's details.
    pub(super) fn format(self) -> &'static str {
        match self {
            Self::Claude => "anthropic-claude-v1",
            Self::Gemini => "google-gemini-v1",
            Self::OpenAi => "openai-responses-v1",
            Self::Xai => "xai-responses-v1",
            Self::Other => "unknown",
        }
    }

    /// Returns the router's name for the vendor.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Claude => ANTHROPIC,
            Self::Gemini => GOOGLE,
            Self::OpenAi => OPENAI,
            Self::Xai => "xAI",
            Self::Other => "Novita",
        }
    }

    /// Returns the signer. Claude's signatures are valid on every endpoint that serves Claude.
    pub(super) fn signer(self, asking: &SimRequest) -> &str {
        match self {
            Self::Claude => seals::SIGNER,
            Self::Gemini | Self::OpenAi | Self::Xai | Self::Other => &asking.row.name,
        }
    }

    pub(super) fn form(self) -> SealFormat {
        match self {
            Self::Claude => SealFormat::Claude,
            Self::Gemini => SealFormat::Gemini,
            Self::OpenAi | Self::Xai | Self::Other => SealFormat::Fernet,
        }
    }

    fn refuse(self, message: impl Into<String>) -> Refusal {
        let refusal = Refusal::invalid(message).kind(self.name());
        match self {
            Self::OpenAi => refusal.code("invalid_encrypted_content"),
            Self::Claude | Self::Gemini | Self::Xai | Self::Other => refusal,
        }
    }
}

/// Digests of a message's text and calls; a thought of Claude is bound to one of them.
fn landmarks(message: Node<'_>) -> Vec<Digest> {
    let text = Block::Text(openai::text(message.get("content")));
    let calls = calls(message).map(|call| {
        let id = call.text_of("id").unwrap_or_default().into_owned();
        Block::Call { id, name: String::new(), said: Vec::new() }
    });
    [text].into_iter().chain(calls).filter_map(|block| block.landmark()).collect()
}

/// Checks the details of all messages as the model's vendor does.
pub(super) fn check(
    asking: &SimRequest,
    turn: &Turn,
    messages: &[Node<'_>],
    world: &SimState,
    record: &mut EntryBuilder,
) -> Result<(), Refusal> {
    let vendor = Vendor::from_profile(&turn.target.profile);
    let is_models = |message: &&Node<'_>| message.get("role").is_some_and(|r| r.is("assistant"));
    let spoken = messages.iter().filter(is_models);
    let landmarks = spoken.flat_map(|message| landmarks(*message)).collect();
    let checker = DetailChecker { asking, turn, world, vendor, landmarks };
    let is_user = |message: &Node<'_>| message.get("role").is_some_and(|role| role.is("user"));
    let current = messages.iter().rposition(is_user).unwrap_or_default();
    let mut place = 0;
    for (at, message) in messages.iter().enumerate() {
        let role = message.text_of("role").unwrap_or_default();
        if role == "assistant" {
            let place = MessagePosition { at, upstream: place, is_current: at > current };
            checker.message(place, *message, record)?;
        }
        // The router sends the system prompt separately, and the tool results of one step as one
        // message.
        let next = messages.get(at + 1).and_then(|next| next.text_of("role"));
        let is_joined = role == "tool" && next.as_deref() == Some("tool");
        place += usize::from(!matches!(&*role, "system" | "developer") && !is_joined);
    }
    Ok(())
}

/// Position of a message.
#[derive(Clone, Copy)]
struct MessagePosition {
    /// Index in the request.
    at: usize,
    /// Index in the request to the vendor.
    upstream: usize,
    /// Whether the message belongs to the current turn.
    is_current: bool,
}

struct DetailChecker<'a> {
    asking: &'a SimRequest,
    turn: &'a Turn,
    world: &'a SimState,
    vendor: Vendor,
    /// Digests of the texts and calls of all assistant messages.
    landmarks: HashSet<Digest>,
}

impl DetailChecker<'_> {
    fn message(
        &self,
        place: MessagePosition,
        message: Node<'_>,
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let details: Vec<Node<'_>> =
            message.present("reasoning_details").into_iter().flat_map(Node::elements).collect();
        let beside = landmarks(message);
        for (number, detail) in details.iter().enumerate() {
            let is_fragment = |other: &&Node<'_>| {
                let index = |node: &Node<'_>| node.get("index").and_then(Node::u64);
                is_text(**other) && index(other).is_some() && index(other) == index(detail)
            };
            let fragments = details.iter().filter(is_fragment).count();
            let path = format!("messages[{}].reasoning_details[{number}]", place.at);
            let block = format!("messages.{}.content.{number}", place.upstream);
            let found = ReturnedDetail { place, message, detail: *detail, path, block };
            if self.vendor == Vendor::Claude && self.relays() && is_text(*detail) && fragments > 1 {
                found.note(record, Verdict::Refused("fragment".into()));
                return Err(self.invalid_signature(&found));
            }
            match found.sealed() {
                Some(sealed) => self.sealed(&found, &sealed, &beside, record)?,
                None => self.unsealed(&found)?,
            }
        }
        self.first_call(place, message, &details)
    }

    /// Returns whether the router passes details on unchanged. Other routers do not document how
    /// they treat missing or invalid details, and are not known to reject them.
    fn relays(&self) -> bool {
        self.asking.row.dialect.relays
    }

    fn invalid_signature(&self, found: &ReturnedDetail<'_>) -> Refusal {
        self.vendor.refuse(format!("{}: Invalid `signature` in `thinking` block", found.block))
    }

    /// Requires a signature on Claude's thinking blocks in the current turn.
    fn unsealed(&self, found: &ReturnedDetail<'_>) -> Result<(), Refusal> {
        let is_claudes = found.format() == Some(Vendor::Claude) && is_text(found.detail);
        let is_checked = self.vendor == Vendor::Claude && self.relays();
        if !is_checked || !is_claudes || !found.place.is_current {
            return Ok(());
        }
        if found.detail.present("signature").is_some() {
            return Err(self.invalid_signature(found));
        }
        let message = format!("{}.thinking.signature: Field required", found.block);
        Err(self.vendor.refuse(message))
    }

    fn sealed(
        &self,
        found: &ReturnedDetail<'_>,
        sealed: &str,
        beside: &[Digest],
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let leave = |why: &str, record: &mut EntryBuilder| {
            record.record_returned(sealed, &*found.path, Verdict::Dropped(why.to_owned()));
            Ok(())
        };
        let refuse = |why: &str, refusal: Refusal, record: &mut EntryBuilder| {
            if !self.relays() {
                return leave(why, record);
            }
            record.record_returned(sealed, &*found.path, Verdict::Refused(why.to_owned()));
            Err(refusal)
        };
        if matches!(self.vendor, Vendor::Xai | Vendor::Other) {
            return leave("not_read", record);
        }
        if self.vendor == Vendor::Gemini && is_placeholder_signature(sealed) {
            return leave("stand_in", record);
        }
        let unverified = || match self.vendor {
            Vendor::Gemini => self.vendor.refuse("Corrupted thought signature."),
            Vendor::OpenAi => {
                let id = found.detail.text_of("id").unwrap_or_default();
                self.vendor.refuse(format!("The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed."))
            }
            Vendor::Claude | Vendor::Xai | Vendor::Other => self.invalid_signature(found),
        };
        if found.format().is_some_and(|format| format != self.vendor) {
            return refuse("foreign", unverified(), record);
        }
        let signer = self.vendor.signer(self.asking);
        let Ok(claims) = self.world.keys.open(signer, self.vendor.form(), sealed) else {
            return refuse("unknown", unverified(), record);
        };
        if self.vendor == Vendor::Claude {
            if !signs(&claims, found.detail) {
                return refuse("edited", self.invalid_signature(found), record);
            }
            let is_elsewhere = |mark| self.landmarks.contains(mark) && !beside.contains(mark);
            if claims.beside.as_ref().is_some_and(is_elsewhere) {
                let message = format!(
                    "{}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
                    found.block
                );
                return refuse("moved", self.vendor.refuse(message), record);
            }
        }
        if !self.turn.target.profile.reads_seals_of(&claims.family) {
            return leave("model_binding_mismatch", record);
        }
        let seal = ReplyKey::Seal(sealed.to_owned());
        let is_elsewhere = || is_on_another_reply(found.message, &seal, self.world);
        // OpenAI accepts the ciphertext anywhere, but it belongs before the items it led to.
        if self.vendor == Vendor::OpenAi && is_elsewhere() {
            return leave("moved", record);
        }
        // Gemini accepts both base64 alphabets, so the ledger uses the standard one.
        let decoded = SealFormat::Gemini.decode(sealed).filter(|_| self.vendor == Vendor::Gemini);
        let standard = decoded.map(|bytes| STANDARD.encode(bytes));
        record.record_returned(
            standard.as_deref().unwrap_or(sealed),
            &*found.path,
            Verdict::Accepted,
        );
        Ok(())
    }

    /// Requires Gemini's signature on the first call of each step of the current turn.
    fn first_call(
        &self,
        place: MessagePosition,
        message: Node<'_>,
        details: &[Node<'_>],
    ) -> Result<(), Refusal> {
        let is_checked = self.vendor == Vendor::Gemini
            && self.relays()
            && self.turn.target.profile.contract != Contract::Stateless
            && place.is_current;
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
        let message = format!(
            "{FUNCTION_CALL_UNSIGNED} Additional data, function call `default_api:{name}` , position {}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
            place.upstream + 1
        );
        Err(self.vendor.refuse(message))
    }
}

/// A returned detail and its position.
struct ReturnedDetail<'t> {
    place: MessagePosition,
    message: Node<'t>,
    detail: Node<'t>,
    path: String,
    block: String,
}

impl ReturnedDetail<'_> {
    fn format(&self) -> Option<Vendor> {
        Vendor::from_format(&self.detail.text_of("format")?)
    }

    /// Returns the opaque value, if it is not empty.
    fn sealed(&self) -> Option<String> {
        let value = ["signature", "data"].iter().find_map(|key| self.detail.text_of(key));
        value.filter(|value| !value.is_empty()).map(std::borrow::Cow::into_owned)
    }

    fn note(&self, record: &mut EntryBuilder, verdict: Verdict) {
        if let Some(sealed) = self.sealed() {
            record.record_returned(&sealed, &*self.path, verdict);
        }
    }
}

fn is_text(detail: Node<'_>) -> bool {
    detail.get("type").is_some_and(|kind| kind.is("reasoning.text"))
}

/// Returns whether Claude's Seal matches the content of the detail.
fn signs(claims: &SealClaims, detail: Node<'_>) -> bool {
    if !is_text(detail) {
        return claims.kind == "redacted_thinking";
    }
    let text = detail.text_of("text").unwrap_or_default();
    claims.kind == "thinking" && claims.text == seals::signed_text(&text)
}
