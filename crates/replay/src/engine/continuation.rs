//! Requests that continue an interrupted reply with the provider's token.
//!
//! The token is a Seal of the interrupted turn. The reply to such a request belongs to the same
//! turn, so the captured turn contains the Items of all its replies. A client later sends all these
//! Items as one message.

use throughline_core::{Call, StoreError, Tenant, VaultKey};

use crate::engine::vault::{LoadedTurn, VaultSearch};
use crate::engine::{Chain, Conversation, Replay, capture};

/// Sets the turn that the reply continues. Returns whether the token was issued to this caller.
pub(super) async fn resume_turn(
    replay: &Replay,
    (tenant, end_user): (&Tenant, Option<&str>),
    call: &Call,
    token: &[u8],
    conversation: &mut Conversation,
) -> Result<bool, StoreError> {
    let mut vault = VaultSearch::new(replay, tenant, end_user);
    let key = VaultKey::Id(capture::seal_id(token));
    vault.look_up(vec![key.clone()]).await?;
    let Some(found) = vault.result(&key) else { return Ok(false) };
    let captured = match vault.load(&found.turn).await? {
        LoadedTurn::Here(captured) => captured,
        // The caller received the token, but the start of the turn was erased.
        LoadedTurn::Gone(_) => return Ok(true),
        LoadedTurn::Anothers => return Ok(false),
    };
    let mut continued = call.clone();
    continued.extend(captured.items.iter().cloned());
    conversation.chain = Chain::of(&continued, tenant, end_user);
    conversation.open.clone_from(&captured.items);
    Ok(true)
}
