//! Claude's seals: what each one vouches for, and what is made of it when it comes back.
//!
//! A signature is checked for being one at all, then for its text and its place among its reply's thoughts. What is whole may
//! still be unreadable: another account's, or a model's that the one asked does not read. Such a thought is left out
//! without an error. What is bound to its prefix is checked for that last.

use std::collections::HashSet;

use jiff::civil::{Date, date};
use serde_json::{Value, json};
use throughline_core::{Mode, Profile};

use crate::digest::Mark;
use crate::keys::{Claims, Form, Prefix};
use crate::ledger::{Record, Verdict};
use crate::turn::{Asking, Part, Refusal, Telling, Turn};
use crate::wires::claude::settings::{Asks, Mismatch, Settings};
use crate::wires::claude::{Block, Dialogue, Message, Role, Said};
use crate::world::World;

/// Who signs for every Claude: signatures are the same on Anthropic's own endpoint and on those that serve it.
pub(crate) const SIGNER: &str = "claude";

/// Accounts from this day on have their prefixes checked.
const BINDING_SINCE: Date = date(2026, 8, 31);

/// What came of checking all seals of a request.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// What the next answer stands behind.
    pub(crate) behind: Prefix,
    /// What was left out or let pass, as the beta reports it.
    pub(crate) notices: Vec<Value>,
}

/// Checks every seal of a conversation.
pub(crate) fn check(
    dialogue: &Dialogue,
    settings: &Settings<'_>,
    profile: &Profile,
    asking: &Asking,
    world: &World,
    record: &mut Record,
) -> Result<Checked, Refusal> {
    let mut checker = Checker {
        dialogue,
        profile,
        asking,
        world,
        latest: dialogue.latest(),
        is_whole_demanded: settings.asks() == Asks::For(Mode::Enabled) && dialogue.is_in_loop(),
        mismatch: match settings.mismatch() {
            Mismatch::Unsaid if asking.account_created >= BINDING_SINCE => Some(Mismatch::Error),
            Mismatch::Unsaid => None,
            said @ (Mismatch::Error | Mismatch::Drop) => Some(said),
        },
        said: Said::default(),
        kept: Vec::new(),
        seen: HashSet::new(),
        notices: Vec::new(),
    };
    for (number, message) in dialogue.messages.iter().enumerate() {
        checker.message(number, message, record)?;
    }
    let behind = Prefix {
        system: dialogue.system,
        tools: dialogue.tools,
        messages: checker.said.mark(),
        previous: checker.kept.last().copied(),
    };
    Ok(Checked { behind, notices: checker.notices })
}

struct Checker<'c> {
    dialogue: &'c Dialogue,
    profile: &'c Profile,
    asking: &'c Asking,
    world: &'c World,
    latest: Option<usize>,
    /// Whether the latest message must have all the thoughts of its reply.
    is_whole_demanded: bool,
    /// What becomes of a thought that is bound to another conversation; nothing where it is let pass.
    mismatch: Option<Mismatch>,
    said: Said,
    /// The seals that were taken.
    kept: Vec<Mark>,
    /// The thoughts that were seen: reply and number.
    seen: HashSet<(Mark, u32)>,
    notices: Vec<Value>,
}

impl Checker<'_> {
    fn message(
        &mut self,
        number: usize,
        message: &Message,
        record: &mut Record,
    ) -> Result<(), Refusal> {
        let mut is_begun = false;
        let mut last: Option<Claims> = None;
        for (place, block) in message.blocks.iter().enumerate() {
            if let Some(said) = block.said() {
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
            let found = Found { number, place, block, seal: seal.unwrap_or_default(), text };
            let claims = self.block(&found, message, last.as_ref(), record)?;
            last = Some(claims);
        }
        self.check_whole(number, message, last.as_ref())
    }

    /// Checks one thought, and says what becomes of it.
    fn block(
        &mut self,
        found: &Found<'_>,
        message: &Message,
        before: Option<&Claims>,
        record: &mut Record,
    ) -> Result<Claims, Refusal> {
        let path = found.path();
        let mut refuse = |why: &str, refusal: Refusal| {
            record.give_back(found.seal, &path, Verdict::Refused(why.to_owned()));
            refusal
        };
        let opened = self.world.keys.open(SIGNER, Form::Claude, found.seal);
        let claims = match opened {
            Ok(claims) if claims.kind == found.block.kind() => claims,
            Ok(_) | Err(_) => return Err(refuse("forged", found.invalid())),
        };
        let refusal =
            if self.latest == Some(found.number) { found.modified() } else { found.invalid() };
        if claims.text != signed_text(found.text) {
            return Err(refuse("modified", refusal));
        }
        // What is not read is left out wherever it stands.
        let unreadable = self.unreadable(&claims);
        let is_repeated = !self.seen.insert((claims.reply, claims.ordinal));
        let is_disordered =
            before.is_some_and(|b| b.reply == claims.reply && b.ordinal > claims.ordinal);
        let is_moved = self.is_moved(&claims, message) || is_turned(&claims, message, found.place);
        if unreadable.is_none() && (is_repeated || is_disordered || is_moved) {
            return Err(refuse("modified", refusal));
        }
        let verdict = if let Some(reason) = unreadable {
            self.notices.push(found.notice("thinking_dropped", reason));
            Verdict::Dropped(reason.to_owned())
        } else if let Some(difference) = self.difference(&claims) {
            match self.mismatch {
                Some(Mismatch::Error | Mismatch::Unsaid) => {
                    return Err(refuse("prefix_binding_mismatch", found.unbound(difference)));
                }
                Some(Mismatch::Drop) => {
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
            self.kept.push(seal_mark(found.seal));
        }
        record.give_back(found.seal, path, verdict);
        Ok(claims)
    }

    /// Whether what the thought stood beside stands in another message now.
    fn is_moved(&self, claims: &Claims, message: &Message) -> bool {
        let Some(beside) = claims.beside else { return false };
        let is_here = |message: &Message| {
            message.blocks.iter().filter_map(Block::landmark).any(|mark| mark == beside)
        };
        let spoken = self.dialogue.messages.iter().filter(|m| m.role == Role::Assistant);
        !is_here(message) && spoken.into_iter().any(is_here)
    }

    /// Why the model asked may not read a thought.
    fn unreadable(&self, claims: &Claims) -> Option<&'static str> {
        let issuer = self.world.catalog.profiles().iter().find(|row| row.name == claims.family);
        let is_account_bound = issuer.is_some_and(|issuer| issuer.bound.account);
        if is_account_bound && claims.account != self.asking.account {
            return Some("organization_binding_mismatch");
        }
        (!self.profile.reads_seals_of(&claims.family)).then_some("model_binding_mismatch")
    }

    /// What differs from what the thought was created behind, as the end of Anthropic's sentence.
    fn difference(&self, claims: &Claims) -> Option<&'static str> {
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

    /// With a budget, the latest message of a tool loop has all the thoughts of its reply or none.
    fn check_whole(
        &self,
        number: usize,
        message: &Message,
        last: Option<&Claims>,
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

/// Whether a thought stands on the other side of what it stood beside.
fn is_turned(claims: &Claims, message: &Message, place: usize) -> bool {
    let is_beside = |block: &Block| claims.beside.is_some() && block.landmark() == claims.beside;
    let beside = message.blocks.iter().position(is_beside);
    beside.is_some_and(|beside| (beside < place) != claims.is_behind)
}

/// A thought that came back, and where it stands.
struct Found<'f> {
    number: usize,
    place: usize,
    block: &'f Block,
    seal: &'f str,
    text: &'f str,
}

impl Found<'_> {
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

pub(crate) fn signed_text(text: &str) -> Mark {
    Mark::of("throughline-sim signed text", text)
}

fn seal_mark(seal: &str) -> Mark {
    Mark::of("throughline-sim chained seal", seal)
}

/// A thought of an answer, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// With its text, which may be left out, and its signature.
    Thinking { text: String, signature: String },
    /// Only its data.
    Redacted { data: String },
}

/// Seals the thoughts of an answer, in order. `blocks` is what the answer says otherwise, as [`Block`]s in their places:
/// nothing where a thought stands.
pub(crate) fn seal(
    parts: &[Part],
    blocks: &[Option<Block>],
    asking: &Asking,
    turn: &Turn,
    world: &World,
    record: &mut Record,
) -> Vec<Sealed> {
    let profile = &turn.target.profile;
    let is_thought = |part: &&Part| matches!(part, Part::Thought { .. });
    let count = u32::try_from(parts.iter().filter(is_thought).count()).unwrap_or(u32::MAX);
    let beside = blocks.iter().flatten().find_map(Block::landmark);
    let mut behind = turn.behind.clone();
    let mut said = Said(behind.messages);
    let mut is_begun = false;
    let mut sealed = Vec::new();
    for (part, block) in parts.iter().zip(blocks) {
        if let Some(text) = block.as_ref().and_then(Block::said) {
            said.block(Role::Assistant, !is_begun, text);
            is_begun = true;
        }
        let Part::Thought { text, telling } = part else { continue };
        let (kind, shown) = match telling {
            Telling::Redacted => ("redacted_thinking", ""),
            Telling::AsAsked if turn.shows => ("thinking", text.as_str()),
            Telling::AsAsked | Telling::SealOnly => ("thinking", ""),
        };
        behind.messages = said.mark();
        let claims = Claims {
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
        let seal = world.keys.seal(SIGNER, Form::Claude, &claims);
        behind.previous = Some(seal_mark(&seal));
        record.issue(&seal, kind);
        record.think(shown);
        sealed.push(match telling {
            Telling::Redacted => Sealed::Redacted { data: seal },
            Telling::AsAsked | Telling::SealOnly => {
                Sealed::Thinking { text: shown.to_owned(), signature: seal }
            }
        });
    }
    sealed
}
