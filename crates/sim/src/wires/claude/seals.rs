//! Creates and verifies Claude's Seals.
//!
//! Verification first authenticates a signature, then checks its text and its position among the
//! thoughts of its reply. An intact thought may still be unreadable: issued to another account, or
//! by a model that the requested one does not read. Such thoughts are dropped without an error. The
//! prefix binding is checked last.

use std::collections::HashSet;

use jiff::civil::{Date, date};
use serde_json::{Value, json};
use throughline_core::{Mode, Profile};

use crate::digest::Digest;
use crate::keys::{PrefixBinding, SealClaims, SealFormat};
use crate::ledger::{EntryBuilder, Verdict};
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPart, SimRequest, ThoughtDisplay, Turn};
use crate::wires::claude::settings::{MismatchPolicy, RequestedThinking, Settings};
use crate::wires::claude::{Block, ContentDigest, Dialogue, Message, Role};

/// Signer of every Claude model: signatures are interchangeable between Anthropic's endpoint and
/// others that serve Claude.
pub(crate) const SIGNER: &str = "claude";

/// Prefix binding applies to accounts created on or after this date.
const BINDING_SINCE: Date = date(2026, 8, 31);

/// Result of checking all Seals of a request.
#[derive(Debug, Default)]
pub(crate) struct SealCheck {
    /// The prefix of the next reply.
    pub(crate) behind: PrefixBinding,
    /// Dropped and tolerated thoughts, as the beta reports them.
    pub(crate) notices: Vec<Value>,
}

/// Checks every Seal of a conversation.
pub(crate) fn check(
    dialogue: &Dialogue,
    settings: &Settings<'_>,
    profile: &Profile,
    asking: &SimRequest,
    world: &SimState,
    record: &mut EntryBuilder,
) -> Result<SealCheck, Refusal> {
    let mut checker = SealChecker {
        dialogue,
        profile,
        asking,
        world,
        latest: dialogue.latest(),
        is_whole_demanded: settings.requested_thinking() == RequestedThinking::For(Mode::Enabled)
            && dialogue.is_in_loop(),
        mismatch: match settings.mismatch() {
            MismatchPolicy::Unsaid if asking.account_created >= BINDING_SINCE => {
                Some(MismatchPolicy::Error)
            }
            MismatchPolicy::Unsaid => None,
            said @ (MismatchPolicy::Error | MismatchPolicy::Drop) => Some(said),
        },
        said: ContentDigest::default(),
        kept: Vec::new(),
        seen: HashSet::new(),
        notices: Vec::new(),
    };
    for (number, message) in dialogue.messages.iter().enumerate() {
        checker.message(number, message, record)?;
    }
    let behind = PrefixBinding {
        system: dialogue.system,
        tools: dialogue.tools,
        messages: checker.said.mark(),
        previous: checker.kept.last().copied(),
    };
    Ok(SealCheck { behind, notices: checker.notices })
}

struct SealChecker<'c> {
    dialogue: &'c Dialogue,
    profile: &'c Profile,
    asking: &'c SimRequest,
    world: &'c SimState,
    latest: Option<usize>,
    /// Whether the last assistant message must contain all thoughts of its reply.
    is_whole_demanded: bool,
    /// How to treat a thought bound to another conversation; `None` accepts it.
    mismatch: Option<MismatchPolicy>,
    said: ContentDigest,
    /// The accepted Seals.
    kept: Vec<Digest>,
    /// Reply and ordinal of the thoughts seen so far.
    seen: HashSet<(Digest, u32)>,
    notices: Vec<Value>,
}

impl SealChecker<'_> {
    fn message(
        &mut self,
        number: usize,
        message: &Message,
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let mut is_begun = false;
        let mut last: Option<SealClaims> = None;
        for (place, block) in message.blocks.iter().enumerate() {
            if let Some(said) = block.bound_content() {
                self.said.block(message.role, !is_begun, said);
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
            let found =
                ReturnedThought { number, place, block, seal: seal.unwrap_or_default(), text };
            let claims = self.block(&found, message, last.as_ref(), record)?;
            last = Some(claims);
        }
        self.check_whole(number, message, last.as_ref())
    }

    /// Checks one thought and returns its claims.
    fn block(
        &mut self,
        found: &ReturnedThought<'_>,
        message: &Message,
        before: Option<&SealClaims>,
        record: &mut EntryBuilder,
    ) -> Result<SealClaims, Refusal> {
        let path = found.path();
        let mut refuse = |why: &str, refusal: Refusal| {
            record.record_returned(found.seal, &path, Verdict::Refused(why.to_owned()));
            refusal
        };
        let opened = self.world.keys.open(SIGNER, SealFormat::Claude, found.seal);
        let claims = match opened {
            Ok(claims) if claims.kind == found.block.kind() => claims,
            Ok(_) | Err(_) => return Err(refuse("forged", found.invalid())),
        };
        let refusal =
            if self.latest == Some(found.number) { found.modified() } else { found.invalid() };
        if claims.text != signed_text(found.text) {
            return Err(refuse("modified", refusal));
        }
        // Unreadable thoughts are dropped at any position.
        let unreadable = self.unreadable(&claims);
        let is_repeated = !self.seen.insert((claims.reply, claims.ordinal));
        let is_disordered =
            before.is_some_and(|b| b.reply == claims.reply && b.ordinal > claims.ordinal);
        let is_moved =
            self.is_moved(&claims, message) || is_on_other_side(&claims, message, found.place);
        if unreadable.is_none() && (is_repeated || is_disordered || is_moved) {
            return Err(refuse("modified", refusal));
        }
        let verdict = if let Some(reason) = unreadable {
            self.notices.push(found.notice("thinking_dropped", reason));
            Verdict::Dropped(reason.to_owned())
        } else if let Some(difference) = self.difference(&claims) {
            match self.mismatch {
                Some(MismatchPolicy::Error | MismatchPolicy::Unsaid) => {
                    return Err(refuse("prefix_binding_mismatch", found.unbound(difference)));
                }
                Some(MismatchPolicy::Drop) => {
                    let reason = "prefix_binding_mismatch";
                    self.notices.push(found.notice("thinking_dropped", reason));
                    Verdict::Dropped(reason.to_owned())
                }
                None => {
                    let reason = "prefix_binding_mismatch";
                    self.notices.push(found.notice("thinking_mismatch_allowed", reason));
                    Verdict::Accepted
                }
            }
        } else {
            Verdict::Accepted
        };
        if verdict == Verdict::Accepted {
            self.kept.push(seal_digest(found.seal));
        }
        record.record_returned(found.seal, path, verdict);
        Ok(claims)
    }

    /// Returns whether the neighbour of the thought is now in another message.
    fn is_moved(&self, claims: &SealClaims, message: &Message) -> bool {
        let Some(beside) = claims.beside else { return false };
        let is_here = |message: &Message| {
            message.blocks.iter().filter_map(Block::landmark).any(|mark| mark == beside)
        };
        let spoken = self.dialogue.messages.iter().filter(|m| m.role == Role::Assistant);
        !is_here(message) && spoken.into_iter().any(is_here)
    }

    /// Returns the reason why the requested model cannot read a thought.
    fn unreadable(&self, claims: &SealClaims) -> Option<&'static str> {
        let issuer = self.world.catalog.profiles().iter().find(|row| row.name == claims.family);
        let is_account_bound = issuer.is_some_and(|issuer| issuer.bound.account);
        if is_account_bound && claims.account != self.asking.account {
            return Some("organization_binding_mismatch");
        }
        (!self.profile.reads_seals_of(&claims.family)).then_some("model_binding_mismatch")
    }

    /// Returns the difference to the prefix of the thought, as the end of Anthropic's message.
    fn difference(&self, claims: &SealClaims) -> Option<&'static str> {
        let behind = claims.prefix.as_ref().filter(|_| self.profile.bound.prefix)?;
        if behind.system != self.dialogue.system {
            Some("The `system` prompt differs from the one this block was created with.")
        } else if behind.tools != self.dialogue.tools {
            Some("The `tools` differ from the ones this block was created with.")
        } else if behind.messages != self.said.mark() {
            Some("An earlier message differs from the one this block was created with.")
        } else if behind.previous.is_some_and(|previous| !self.kept.contains(&previous)) {
            Some(
                "The thinking block that preceded this one when it was created is missing from \
                 this request.",
            )
        } else {
            None
        }
    }

    /// With a budget, the last message of a tool loop must contain all thoughts of its reply or
    /// none.
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
        let found = (0..last.count).filter(|n| self.seen.contains(&(last.reply, *n))).count();
        if u32::try_from(found).is_ok_and(|found| found == last.count) {
            return Ok(());
        }
        let place = message.blocks.iter().position(Block::is_thought).unwrap_or_default();
        Err(modified(number, place))
    }
}

/// Returns whether a thought is on the other side of its neighbour.
fn is_on_other_side(claims: &SealClaims, message: &Message, place: usize) -> bool {
    let is_beside = |block: &Block| claims.beside.is_some() && block.landmark() == claims.beside;
    let beside = message.blocks.iter().position(is_beside);
    beside.is_some_and(|beside| (beside < place) != claims.is_behind)
}

/// A returned thought and its position.
struct ReturnedThought<'f> {
    number: usize,
    place: usize,
    block: &'f Block,
    seal: &'f str,
    text: &'f str,
}

impl ReturnedThought<'_> {
    fn path(&self) -> String {
        format!("messages.{}.content.{}", self.number, self.place)
    }

    fn notice(&self, kind: &str, reason: &str) -> Value {
        json!({"type": kind, "path": self.path(), "reason": reason})
    }

    fn invalid_message(&self) -> String {
        let member = if self.block.kind() == "thinking" { "signature" } else { "data" };
        format!("{}: Invalid `{member}` in `{}` block", self.path(), self.block.kind())
    }

    fn invalid(&self) -> Refusal {
        Refusal::invalid(self.invalid_message())
    }

    fn modified(&self) -> Refusal {
        modified(self.number, self.place)
    }

    fn unbound(&self, difference: &str) -> Refusal {
        Refusal::invalid(format!(
            "{}. The block is bound to a different conversation. Remove the block, or set \
             `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting \
             requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` \
             header. {difference}",
            self.invalid_message()
        ))
    }
}

fn modified(number: usize, place: usize) -> Refusal {
    Refusal::invalid(format!(
        "messages.{number}.content.{place}: `thinking` or `redacted_thinking` blocks in the latest \
         assistant message cannot be modified. These blocks must remain as they were in the \
         original response."
    ))
}

pub(crate) fn signed_text(text: &str) -> Digest {
    Digest::new("throughline-sim signed text", text)
}

fn seal_digest(seal: &str) -> Digest {
    Digest::new("throughline-sim chained seal", seal)
}

/// A sealed thought of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealedThought {
    /// The signature, and the text, which may be empty.
    Thinking {
        text: String,
        signature: String,
    },
    Redacted {
        data: String,
    },
}

/// Seals the thoughts of a reply, in order. `blocks` contains the other parts at their positions,
/// and `None` for each thought.
pub(crate) fn seal(
    parts: &[ReplyPart],
    blocks: &[Option<Block>],
    asking: &SimRequest,
    turn: &Turn,
    world: &SimState,
    record: &mut EntryBuilder,
) -> Vec<SealedThought> {
    let profile = &turn.target.profile;
    let is_thought = |part: &&ReplyPart| matches!(part, ReplyPart::Thought { .. });
    let count = u32::try_from(parts.iter().filter(is_thought).count()).unwrap_or(u32::MAX);
    let beside = blocks.iter().flatten().find_map(Block::landmark);
    let mut behind = turn.behind.clone();
    let mut said = ContentDigest(behind.messages);
    let mut is_begun = false;
    let mut sealed = Vec::new();
    for (part, block) in parts.iter().zip(blocks) {
        if let Some(text) = block.as_ref().and_then(Block::bound_content) {
            said.block(Role::Assistant, !is_begun, text);
            is_begun = true;
        }
        let ReplyPart::Thought { text, telling } = part else { continue };
        let (kind, shown) = match telling {
            ThoughtDisplay::Redacted => ("redacted_thinking", ""),
            ThoughtDisplay::AsAsked if turn.shows => ("thinking", text.as_str()),
            ThoughtDisplay::AsAsked | ThoughtDisplay::SealOnly => ("thinking", ""),
        };
        behind.messages = said.mark();
        let claims = SealClaims {
            kind: kind.to_owned(),
            row: asking.row.name.to_string(),
            family: profile.name.clone(),
            account: asking.account,
            reply: asking.nonce,
            ordinal: u32::try_from(sealed.len()).unwrap_or(u32::MAX),
            count,
            text: signed_text(shown),
            hidden: shown.is_empty(),
            beside,
            is_behind: is_begun,
            prefix: profile.bound.prefix.then(|| behind.clone()),
        };
        let seal = world.keys.seal(SIGNER, SealFormat::Claude, &claims);
        behind.previous = Some(seal_digest(&seal));
        record.issue(&seal, kind);
        record.think(shown);
        sealed.push(match telling {
            ThoughtDisplay::Redacted => SealedThought::Redacted { data: seal },
            ThoughtDisplay::AsAsked | ThoughtDisplay::SealOnly => {
                SealedThought::Thinking { text: shown.to_owned(), signature: seal }
            }
        });
    }
    sealed
}
