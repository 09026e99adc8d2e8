//! Handles changes in the content before prefix-bound Seals.
//!
//! Some models bind a Seal to the exact system prompt, tools and messages before it, and reject the
//! Seal if any of these change. Clients may change them unintentionally, for example by reordering
//! keys or changing white space. If the content is still equal as JSON, `freeze` sends the earlier
//! bytes again. If the meaning changed, the Seals are dropped or the call is refused. Either way
//! the first change is reported.

use throughline_codec::{Codec, first_prefix_change, restore_prefix_bytes};
use throughline_core::{Disposition, ElisionReason, EncodedRequest, Request, Tenant};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::prepare::{DecodedRequest, RestoredRequest};
use crate::routing::RouteTarget;
use throughline_replay::Conversation;

/// How the gateway handles a change in the content before prefix-bound Seals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixPolicy {
    /// If the content is still equal as JSON, send the earlier bytes again; otherwise drop the
    /// Seals.
    #[default]
    Freeze,
    /// If the content is still equal as JSON, send the earlier bytes again; otherwise refuse the
    /// call.
    FreezeOrError,
    /// Drop the Seals after any change.
    DropBlock,
    /// Refuse the call after any change.
    Error,
}

impl PrefixPolicy {
    /// Refuses a call that would lose Seals, if the policy requires it.
    pub(crate) fn refuse(self, changed: &str) -> GatewayResult<()> {
        match self {
            PrefixPolicy::Freeze | PrefixPolicy::DropBlock => Ok(()),
            PrefixPolicy::FreezeOrError | PrefixPolicy::Error => Err(GatewayError::new(
                400,
                format!(
                    "`{changed}` changed after this reasoning was signed; send it unchanged, or \
                     start a new conversation (the `prefix` setting of the gateway controls how \
                     such changes are handled)"
                ),
            )),
        }
    }
}

/// Returns whether Seals were elided because the content before them changed.
pub(crate) fn has_prefix_change(encoded: &EncodedRequest) -> bool {
    let mut seals = encoded.fates.iter().flat_map(|fate| &fate.seals);
    seals.any(|did| matches!(did, Disposition::Elided(ElisionReason::PrefixChanged)))
}

impl Exchange<'_> {
    /// Keeps the bound Seals if the content before them can be restored; otherwise returns the
    /// first change.
    pub(crate) async fn restore_prefix(
        &self,
        to: &dyn Codec,
        mut found: RestoredRequest,
        request: &Request,
        reached: &RouteTarget,
        tenant: &Tenant,
    ) -> GatewayResult<(RestoredRequest, Option<String>)> {
        let Gateway { replay, prefix, .. } = self.gateway;
        let conversation = found.replayed.as_ref().map(|replayed| &replayed.conversation);
        let before = match conversation {
            Some(Conversation { parent: Some(parent), era, .. }) => {
                replay.calls().tail(tenant, parent, Some(*era)).await
            }
            Some(_) | None => None,
        };
        let before = before.map(|tail| tail.texts.sent.clone()).unwrap_or_default();
        // In another dialect the gateway writes the system prompt and the tools, always in the same
        // way.
        if matches!(prefix, PrefixPolicy::Freeze | PrefixPolicy::FreezeOrError)
            && to.wire() == self.wire
            && let Some(body) = restore_prefix_bytes(to, &before, &request.body)
        {
            let frozen = Request { body, ..request.clone() };
            let DecodedRequest { call, .. } = self.decode(&frozen, reached)?;
            found = self.restore_and_encode(to, call, tenant).await?;
        }
        if !has_prefix_change(&found.encoded) {
            return Ok((found, None));
        }
        let changed = first_prefix_change(to, &before, &found.encoded.request.body);
        let changed = changed.unwrap_or_else(|| "messages".to_owned());
        prefix.refuse(&changed)?;
        Ok((found, Some(changed)))
    }
}
