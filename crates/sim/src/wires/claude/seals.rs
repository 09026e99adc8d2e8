//! Creates and verifies Claude's Seals.
//!
//! Verification first authenticates a signature, then checks the thought's text and its position
//! among the thoughts of its reply. A valid thought may still be unreadable, because it was issued
//! to another account or by a model family that the requested model cannot read. Unreadable
//! thoughts are dropped without an error. The prefix binding is checked last.

use std::collections::HashSet;

use jiff::civil::{Date, date};
use serde_json::{Value, json};
use throughline_core::{Mode, Profile};

use crate::digest::Digest;
use crate::keys::{PrefixBinding, SealClaims, SealFormat};
use crate::ledger::Verdict;
use crate::turn::{Refusal, ReplyPart, ThoughtDisplay, Turn};
use crate::wires::Exchange;
use crate::wires::claude::settings::{MismatchPolicy, Settings};
use crate::wires::claude::{Block, ContentDigest, Dialogue, Message, Role};

/// Signer for all Claude models. Signatures are interchangeable between Anthropic and other
/// providers that serve Claude.
pub(crate) const SIGNER: &str = "claude";

/// Prefix binding applies to accounts created on or after this date. For the newest models it
/// applies to all accounts.
const BINDING_SINCE: Date = date(2026, 8, 31);

/// Checks every Seal in a conversation. Returns the prefix that the next reply is bound to. Also
/// returns notices about dropped or tolerated thoughts, in the format of Anthropic's binding beta.
pub(crate) fn check(
    exchange: &mut Exchange<'_>,
    dialogue: &Dialogue,
    settings: &Settings<'_>,
    profile: &Profile,
) -> Result<(PrefixBinding, Vec<Value>), Refusal> {
    let enforced = profile.notes.get("prefix-enforced").map(String::as_str);
    let is_bound = enforced == Some("always") || exchange.request.account_created >= BINDING_SINCE;
    let mut checker = SealChecker {
        exchange,
        dialogue,
        profile,
        latest: dialogue.latest(),
        is_whole_demanded: settings.mode() == Some(Mode::Enabled) && dialogue.is_in_loop(),
        mismatch: settings.mismatch().or(is_bound.then_some(MismatchPolicy::Error)),
        content: ContentDigest::default(),
        accepted: Vec::new(),
        seen: HashSet::new(),
        notices: Vec::new(),
    };
    for (number, message) in dialogue.messages.iter().enumerate() {
        checker.message(number, message)?;
    }
    let prefix = PrefixBinding {
        system: dialogue.system,
        tools: dialogue.tools,
        messages: checker.content.digest(),
        previous: checker.accepted.last().copied(),
    };
    Ok((prefix, checker.notices))
}

struct SealChecker<'c, 'e> {
    exchange: &'c mut Exchange<'e>,
    dialogue: &'c Dialogue,
    profile: &'c Profile,
    latest: Option<usize>,
    /// Whether the last assistant message must contain all thoughts of its reply.
    is_whole_demanded: bool,
    /// Policy for thoughts that are bound to another prefix; `None` accepts such thoughts.
    mismatch: Option<MismatchPolicy>,
    /// Digest of the message content before the current block.
    content: ContentDigest,
    /// Digests of the accepted Seals.
    accepted: Vec<Digest>,
    /// Reply and ordinal of each thought that was already checked.
    seen: HashSet<(Digest, u32)>,
    notices: Vec<Value>,
}

impl SealChecker<'_, '_> {
    fn message(&mut self, number: usize, message: &Message) -> Result<(), Refusal> {
        let mut is_begun = false;
        let mut last: Option<SealClaims> = None;
        let mut has_fallback = false;
        for (index, block) in message.blocks.iter().enumerate() {
            has_fallback |= block.is_fallback();
            if let Some(content) = block.bound_content() {
                self.content.add(message.role, !is_begun, content);
                is_begun = true;
                continue;
            }
            let (seal, text) = match block {
                Block::Thinking { text, signature } => (signature.as_deref(), text.as_str()),
                Block::Redacted { data } => (data.as_deref(), ""),
                Block::Text(_)
                | Block::Call { .. }
                | Block::Answer { .. }
                | Block::Other { .. } => continue,
            };
            let path = format!("messages.{number}.content.{index}");
            let seal = seal.unwrap_or_default();
            let thought = ReturnedThought { path, number, index, block, seal, text };
            let claims = self.block(&thought, message, last.as_ref())?;
            if let Some(before) = last.filter(|before| before.reply == claims.reply) {
                // A fallback block must stay between the thoughts that it separated.
                if has_fallback != (before.fallbacks != claims.fallbacks) {
                    let refusal = modified_message(&thought.path);
                    return Err(self.refuse(&thought, "modified", refusal));
                }
            }
            has_fallback = false;
            last = Some(claims);
        }
        self.check_whole(number, message, last.as_ref())
    }

    /// Checks one thought. Returns the claims of its Seal, even if the thought is dropped.
    fn block(
        &mut self,
        thought: &ReturnedThought<'_>,
        message: &Message,
        before: Option<&SealClaims>,
    ) -> Result<SealClaims, Refusal> {
        let opened = self.exchange.state.keys.open(SIGNER, SealFormat::Claude, thought.seal);
        let Some(claims) = opened.ok().filter(|claims| claims.kind == thought.block.kind()) else {
            return Err(self.refuse(thought, "forged", thought.invalid_message()));
        };
        let is_latest = self.latest == Some(thought.number);
        let refusal =
            if is_latest { modified_message(&thought.path) } else { thought.invalid_message() };
        if claims.text != signed_text(thought.text) {
            return Err(self.refuse(thought, "modified", refusal));
        }
        // An unreadable thought is dropped, whatever its position.
        let unreadable = self.unreadable(&claims);
        let is_repeated = !self.seen.insert((claims.reply, claims.ordinal));
        let is_disordered =
            before.is_some_and(|b| b.reply == claims.reply && b.ordinal > claims.ordinal);
        let is_moved =
            self.is_moved(&claims, message) || is_on_other_side(&claims, message, thought.index);
        if unreadable.is_none() && (is_repeated || is_disordered || is_moved) {
            return Err(self.refuse(thought, "modified", refusal));
        }
        let verdict = if let Some(reason) = unreadable {
            self.notices.push(thought.notice("thinking_dropped", reason));
            Verdict::dropped(reason)
        } else if let Some(difference) = self.difference(&claims) {
            let reason = "prefix_binding_mismatch";
            match self.mismatch {
                Some(MismatchPolicy::Error) => {
                    return Err(self.refuse(thought, reason, thought.unbound_message(difference)));
                }
                Some(MismatchPolicy::Drop) => {
                    self.notices.push(thought.notice("thinking_dropped", reason));
                    Verdict::dropped(reason)
                }
                None => {
                    self.notices.push(thought.notice("thinking_mismatch_allowed", reason));
                    Verdict::Accepted
                }
            }
        } else {
            Verdict::Accepted
        };
        if verdict == Verdict::Accepted {
            self.accepted.push(seal_digest(thought.seal));
        }
        self.exchange.record.record_returned(thought.seal, &*thought.path, verdict);
        Ok(claims)
    }

    /// Records a Seal as rejected and returns the error.
    fn refuse(&mut self, thought: &ReturnedThought<'_>, reason: &str, message: String) -> Refusal {
        let verdict = Verdict::refused(reason);
        self.exchange.record.record_returned(thought.seal, &*thought.path, verdict);
        Refusal::invalid(message)
    }

    /// Returns whether the block that the thought was issued next to is now in a different message.
    fn is_moved(&self, claims: &SealClaims, message: &Message) -> bool {
        let Some(beside) = claims.beside else { return false };
        let is_here = |message: &Message| {
            message.blocks.iter().filter_map(Block::content_digest).any(|digest| digest == beside)
        };
        let mut replies = self.dialogue.messages.iter().filter(|m| m.role == Role::Assistant);
        !is_here(message) && replies.any(is_here)
    }

    /// Returns why the requested model cannot read a thought; `None` if the model can read it.
    fn unreadable(&self, claims: &SealClaims) -> Option<&'static str> {
        let catalog = self.exchange.state.catalog.current();
        let mut families = catalog.profiles().iter();
        let issuer = families.find(|row| row.name == claims.family);
        let is_account_bound = issuer.is_some_and(|issuer| issuer.bound.account);
        if is_account_bound && claims.account != self.exchange.request.account {
            return Some("organization_binding_mismatch");
        }
        (!self.profile.reads_seals_of(&claims.family)).then_some("model_binding_mismatch")
    }

    /// Returns how this conversation differs from the prefix that the thought is bound to, as the
    /// last sentence of Anthropic's error message.
    fn difference(&self, claims: &SealClaims) -> Option<&'static str> {
        let prefix = claims.prefix.as_ref().filter(|_| self.profile.bound.prefix)?;
        if prefix.system != self.dialogue.system {
            Some("The `system` prompt differs from the one this block was created with.")
        } else if prefix.tools != self.dialogue.tools {
            Some("The `tools` differ from the ones this block was created with.")
        } else if prefix.messages != self.content.digest() {
            Some("An earlier message differs from the one this block was created with.")
        } else if prefix.previous.is_some_and(|previous| !self.accepted.contains(&previous)) {
            Some(
                "The thinking block that preceded this one when it was created is missing from \
                 this request.",
            )
        } else {
            None
        }
    }

    /// Checks that the last assistant message in a tool loop contains either all thoughts of its
    /// reply or none. This applies only if thinking has a token budget.
    fn check_whole(
        &self,
        number: usize,
        message: &Message,
        last: Option<&SealClaims>,
    ) -> Result<(), Refusal> {
        let Some(last) = last.filter(|_| self.is_whole_demanded && self.latest == Some(number))
        else {
            return Ok(());
        };
        let count = (0..last.count).filter(|n| self.seen.contains(&(last.reply, *n))).count();
        if u32::try_from(count).is_ok_and(|count| count == last.count) {
            return Ok(());
        }
        let index = message.blocks.iter().position(Block::is_thought).unwrap_or_default();
        Err(Refusal::invalid(modified_message(&format!("messages.{number}.content.{index}"))))
    }
}

/// Returns whether a thought is on the other side of the block that it was issued next to.
fn is_on_other_side(claims: &SealClaims, message: &Message, index: usize) -> bool {
    let is_beside =
        |block: &Block| claims.beside.is_some() && block.content_digest() == claims.beside;
    let beside = message.blocks.iter().position(is_beside);
    beside.is_some_and(|beside| (beside < index) != claims.is_behind)
}

/// A returned thought, with its position in the request.
struct ReturnedThought<'f> {
    path: String,
    number: usize,
    index: usize,
    block: &'f Block,
    seal: &'f str,
    text: &'f str,
}

impl ReturnedThought<'_> {
    fn notice(&self, kind: &str, reason: &str) -> Value {
        json!({"type": kind, "path": self.path, "reason": reason})
    }

    fn invalid_message(&self) -> String {
        let kind = self.block.kind();
        let member = if kind == "thinking" { "signature" } else { "data" };
        format!("{}: Invalid `{member}` in `{kind}` block", self.path)
    }

    fn unbound_message(&self, difference: &str) -> String {
        format!(
            "{}. The block is bound to a different conversation. Remove the block, or set \
             `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting \
             requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` \
             header. {difference}",
            self.invalid_message()
        )
    }
}

/// Returns Anthropic's error message for changed thoughts in the latest reply.
pub(crate) fn modified_message(path: &str) -> String {
    format!(
        "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot \
         be modified. These blocks must remain as they were in the original response."
    )
}

pub(crate) fn signed_text(text: &str) -> Digest {
    Digest::new("throughline-sim signed text", text)
}

fn seal_digest(seal: &str) -> Digest {
    Digest::new("throughline-sim chained seal", seal)
}

/// A sealed thought in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealedThought {
    /// A thought with its signature. The text may be empty.
    Thinking {
        text: String,
        signature: String,
    },
    Redacted {
        data: String,
    },
}

/// Seals the thoughts of a reply, in order. `blocks` contains the other parts of the reply at their
/// positions, and `None` at the position of each thought.
pub(crate) fn seal(
    exchange: &mut Exchange<'_>,
    turn: &Turn,
    parts: &[ReplyPart],
    blocks: &[Option<Block>],
) -> Vec<SealedThought> {
    let is_thought = |part: &&ReplyPart| matches!(part, ReplyPart::Thought { .. });
    let count = u32::try_from(parts.iter().filter(is_thought).count()).unwrap_or(u32::MAX);
    let beside = blocks.iter().flatten().find_map(Block::content_digest);
    let mut prefix = turn.prefix.clone();
    let mut content = ContentDigest(prefix.messages);
    let mut is_begun = false;
    let mut sealed = Vec::new();
    for (part, block) in parts.iter().zip(blocks) {
        if let Some(text) = block.as_ref().and_then(Block::bound_content) {
            content.add(Role::Assistant, !is_begun, text);
            is_begun = true;
        }
        let ReplyPart::Thought { text, display } = part else { continue };
        let (kind, visible) = match display {
            ThoughtDisplay::Redacted => ("redacted_thinking", ""),
            ThoughtDisplay::AsAsked if turn.shows => ("thinking", text.as_str()),
            ThoughtDisplay::AsAsked | ThoughtDisplay::SealOnly => ("thinking", ""),
        };
        prefix.messages = content.digest();
        let claims = SealClaims {
            ordinal: u32::try_from(sealed.len()).unwrap_or(u32::MAX),
            count,
            text: signed_text(visible),
            hidden: visible.is_empty(),
            beside,
            is_behind: is_begun,
            fallbacks: u32::from(exchange.request.has_fallback() && !sealed.is_empty()),
            prefix: turn.target.profile.bound.prefix.then(|| prefix.clone()),
            ..exchange.claims(turn, kind)
        };
        let seal = exchange.seal(SIGNER, SealFormat::Claude, &claims);
        prefix.previous = Some(seal_digest(&seal));
        exchange.record.record_thought(visible);
        sealed.push(match display {
            ThoughtDisplay::Redacted => SealedThought::Redacted { data: seal },
            ThoughtDisplay::AsAsked | ThoughtDisplay::SealOnly => {
                SealedThought::Thinking { text: visible.to_owned(), signature: seal }
            }
        });
    }
    sealed
}
