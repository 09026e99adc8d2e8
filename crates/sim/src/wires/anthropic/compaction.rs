//! Anthropic's compaction: a request with `compaction: {type: "summarize"}` returns one signed
//! block. Later requests start with this block, unchanged.
//!
//! The edit `compact_20260112` in `context_management` compacts before the reply, if the
//! conversation reaches the edit's threshold. Its block has no signature.

use serde_json::{Value, json};
use throughline_json::Node;

use crate::cache::{PromptCache, PromptElement};
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::Verdict;
use crate::turn::{Refusal, ReplyPart, ReplyPlan, SimRequest, Turn, ensure};
use crate::wires::claude::seals::{SIGNER, signed_text};
use crate::wires::claude::settings::Settings;
use crate::wires::{Exchange, is_true, list, member_is};

/// Beta that a request for a compaction requires.
const COMPACTION_BETA: &str = "compact-2026-09-04";

/// The edit that compacts before a reply, and the beta that it requires.
const EDIT: &str = "compact_20260112";
const EDIT_BETA: &str = "compact-2026-01-12";

/// Number of input tokens that starts a compaction if the edit sets no other number.
const USUAL_THRESHOLD: u64 = 150_000;

/// Returns whether the conversation since its last compaction reaches the threshold of a compacting
/// edit. `elements` are the elements of the prompt; the last ones are the messages.
pub(super) fn reaches_threshold(
    body: Node<'_>,
    settings: &Settings<'_>,
    elements: &[PromptElement],
) -> Result<bool, Refusal> {
    let Some(management) = body.present("context_management") else { return Ok(false) };
    let Some(edit) = list(management, "edits").find(|edit| member_is(*edit, "type", EDIT)) else {
        return Ok(false);
    };
    ensure!(
        settings.has_beta(EDIT_BETA),
        "context_management.edits: the edit '{EDIT}' requires the beta '{EDIT_BETA}'"
    );
    let threshold = edit.at("/trigger/value").and_then(Node::u64).unwrap_or(USUAL_THRESHOLD);
    let messages: Vec<Node<'_>> = list(body, "messages").collect();
    let is_compacted = |message: &Node<'_>| {
        list(*message, "content").any(|block| member_is(block, "type", "compaction"))
    };
    let replaced = messages.iter().rposition(is_compacted).unwrap_or(0);
    let before = elements.len().saturating_sub(messages.len());
    let rendered = elements.iter().enumerate();
    let rendered = rendered.filter(|(at, _)| *at < before || *at >= before + replaced);
    let rendered: Vec<PromptElement> = rendered.map(|(_, element)| element.clone()).collect();
    Ok(PromptCache::count(&rendered) >= threshold)
}

/// Returns whether a compacting edit ends the reply after the compaction.
pub(super) fn pauses(body: Node<'_>) -> bool {
    let edits = body.present("context_management").into_iter();
    let mut edits = edits.flat_map(|management| list(management, "edits"));
    edits.any(|edit| member_is(edit, "type", EDIT) && is_true(edit, "pause_after_compaction"))
}

/// Writes the block of a compacting edit.
pub(super) fn edit_block(turn: &Turn) -> Value {
    let question: String = turn.user_text.chars().take(60).collect();
    json!({"type": "compaction", "content": format!("<summary>Goal: “{question}”.</summary>")})
}

/// Checks a request for a compaction.
pub(super) fn check_request(
    request: &SimRequest,
    body: Node<'_>,
    settings: &Settings<'_>,
) -> Result<(), Refusal> {
    let Some(compaction) = body.present("compaction") else { return Ok(()) };
    let is_allowed = request.row.dialect.compacts && settings.has_beta(COMPACTION_BETA);
    ensure!(is_allowed, "compaction: Extra inputs are not permitted");
    ensure!(
        member_is(compaction, "type", "summarize"),
        "compaction.type: Input should be 'summarize'"
    );
    Ok(())
}

/// Checks the signed compaction blocks in a request. Blocks without a signature come from another
/// feature and are not checked.
pub(super) fn check_blocks(exchange: &mut Exchange<'_>, body: Node<'_>) -> Result<(), Refusal> {
    let mut has_block = false;
    for (number, message) in list(body, "messages").enumerate() {
        for (place, block) in list(message, "content").enumerate() {
            let Some(seal) = block.present("signature").and_then(Node::text) else { continue };
            if !member_is(block, "type", "compaction") {
                continue;
            }
            let path = format!("messages.{number}.content.{place}");
            let text = block.text_of("content").unwrap_or_default();
            let opened = exchange.state.keys.open(SIGNER, SealFormat::Claude, &seal).ok();
            let claims = opened.filter(|claims| claims.kind == "compaction");
            let problem = match claims {
                None => Some("compaction_signature_invalid"),
                Some(claims) if claims.text != signed_text(&text) => {
                    Some("compaction_content_mismatch")
                }
                Some(_) if has_block => Some("compaction_block_ambiguous"),
                Some(_) if number > 0 || place > 0 => Some("compaction_block_misplaced"),
                Some(_) => None,
            };
            has_block = true;
            let verdict = problem.map_or(Verdict::Accepted, Verdict::refused);
            exchange.record.record_returned(&seal, &*path, verdict);
            if let Some(problem) = problem {
                return Err(Refusal::invalid(format!("{path}: {problem}")));
            }
        }
    }
    Ok(())
}

/// Writes the block of a compaction.
pub(super) fn block(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    let text = plan.parts.iter().find_map(ReplyPart::text).unwrap_or_default();
    let claims = SealClaims { text: signed_text(text), ..exchange.claims(turn, "compaction") };
    let signature = exchange.seal(SIGNER, SealFormat::Claude, &claims);
    json!({"type": "compaction", "content": text, "signature": signature})
}
