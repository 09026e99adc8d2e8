//! Tokens that continue an interrupted reply. A token is valid only for the account that received
//! it, and only with the contents of the interrupted request.

use std::sync::PoisonError;

use throughline_core::StopReason;
use throughline_json::Node;

use crate::digest::{Digest, canonical_bytes};
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::Verdict;
use crate::turn::{CONTINUATION, Refusal, ReplyPart, ReplyPlan, ToolChoice, Turn};
use crate::wires::Exchange;
use crate::wires::gemini::get;

/// The type of the token in its claims.
const KIND: &str = "continuation";

/// Checks the token of a request, if it has one. The reply then continues the interrupted reply.
pub(super) fn check(
    exchange: &mut Exchange<'_>,
    turn: &mut Turn,
    root: Node<'_>,
) -> Result<(), Refusal> {
    let Some(token) = get(root, "continuationToken").and_then(Node::text) else { return Ok(()) };
    let Exchange { request, state, record } = exchange;
    let opened = state.keys.open(&request.row.name, SealFormat::Gemini, &token).ok();
    let claims = opened.filter(|claims| claims.kind == KIND && claims.account == request.account);
    let is_valid = claims.is_some_and(|claims| claims.text == contents_digest(root));
    let verdict = if is_valid { Verdict::Accepted } else { Verdict::refused("continuation_token") };
    record.record_returned(&token, "continuationToken", verdict);
    if !is_valid {
        return Err(Refusal::invalid(
            "The continuation token is invalid or does not belong to these contents.",
        ));
    }
    let interrupted = state.interrupted.lock().unwrap_or_else(PoisonError::into_inner);
    turn.continues = Some(interrupted.get(&token_digest(&token)).cloned().unwrap_or_default());
    // Without a script, the continuation calls no tools.
    turn.choice = ToolChoice::Never;
    Ok(())
}

/// Returns the token of an interrupted reply; `None` for any other reply. Also records the text of
/// the whole reply so far, which clients return as one text.
pub(super) fn token(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Option<String> {
    let texts: String = plan.parts.iter().filter_map(ReplyPart::text).collect();
    let text = turn.continues.clone().unwrap_or_default() + &texts;
    if turn.continues.is_some() {
        exchange.record.record_text(&text);
    }
    if !matches!(&plan.stop, StopReason::Other(reason) if **reason == *CONTINUATION) {
        return None;
    }
    let root = exchange.request.body.root();
    let claims = SealClaims { text: contents_digest(root), ..exchange.claims(turn, KIND) };
    // The ledger does not expect the token in later turns, so it is not recorded as issued.
    let token = exchange.state.keys.seal(&exchange.request.row.name, SealFormat::Gemini, &claims);
    let interrupted = &exchange.state.interrupted;
    let mut interrupted = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
    interrupted.insert(token_digest(&token), text);
    Some(token)
}

fn token_digest(token: &str) -> Digest {
    Digest::new("throughline-sim continuation", token)
}

fn contents_digest(root: Node<'_>) -> Digest {
    let contents = get(root, "contents").map(canonical_bytes).unwrap_or_default();
    Digest::new("throughline-sim continued contents", contents)
}
