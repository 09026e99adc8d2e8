//! Handles changes in the content before prefix-bound Seals.
//!
//! Some models bind a Seal to the exact system prompt, tools and messages before it, and reject the
//! Seal if any of these change. Clients may change them unintentionally, for example by reordering
//! keys or changing white space. If the content is still equal as JSON, the gateway sends the
//! earlier bytes again.
//!
//! If the meaning changed, the policy `append` keeps the earlier system prompt and tools, and sends
//! the change in system messages inside the conversation. The earlier request and the positions of
//! its appended messages are read from the record of the target's last turn, so that any node can
//! continue the conversation and renders earlier changes in the same way. If the change cannot be
//! appended, or with another policy, the Seals are dropped or the call is refused. Either way the
//! first change is reported.

use bytes::Bytes;
use throughline_codec::{
    AppendPlan, Codec, SignedPrefix, first_prefix_change, restore_prefix_bytes,
};
use throughline_core::{Disposition, ElisionReason, EncodedRequest, Request, Tenant};
use tokio::time::timeout;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::exchange::Exchange;
use crate::gateway::headers::PREFIX_HEADER;
use crate::gateway::prepare::{DecodedRequest, RestoredRequest};
use crate::routing::RouteTarget;
use throughline_replay::{Bodies, Conversation, RestoredCall, appended_messages};

/// How the gateway handles a change in the content before prefix-bound Seals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixPolicy {
    /// Keep the earlier system prompt and tools, and append the change as a system message. If the
    /// model does not support this, act like `Freeze`.
    #[default]
    Append,
    /// If the content is still equal as JSON, send the earlier bytes again; otherwise drop the
    /// Seals.
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
    /// The policies with their names in the configuration and in the header
    /// `x-throughline-prefix`. `drop` and `refuse` are short for `drop_block` and `error`.
    pub const NAMES: &'static [(&'static str, PrefixPolicy)] = &[
        ("append", PrefixPolicy::Append),
        ("freeze", PrefixPolicy::Freeze),
        ("freeze_or_error", PrefixPolicy::FreezeOrError),
        ("drop_block", PrefixPolicy::DropBlock),
        ("error", PrefixPolicy::Error),
        ("drop", PrefixPolicy::DropBlock),
        ("refuse", PrefixPolicy::Error),
    ];

    /// Refuses a call that would lose Seals, if the policy requires it.
    pub(crate) fn refuse(self, changed: &str) -> GatewayResult<()> {
        match self {
            PrefixPolicy::Append | PrefixPolicy::Freeze | PrefixPolicy::DropBlock => Ok(()),
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

    /// Whether content that is still equal as JSON is sent in its earlier bytes.
    fn freezes(self) -> bool {
        match self {
            PrefixPolicy::Append | PrefixPolicy::Freeze | PrefixPolicy::FreezeOrError => true,
            PrefixPolicy::DropBlock | PrefixPolicy::Error => false,
        }
    }
}

/// Returns whether Seals were elided because the content before them changed.
pub(crate) fn has_prefix_change(encoded: &EncodedRequest) -> bool {
    lost_seals(encoded) > 0
}

/// Returns the number of Seals that were elided because the content before them changed.
fn lost_seals(encoded: &EncodedRequest) -> usize {
    let seals = encoded.fates.iter().flat_map(|fate| &fate.seals);
    seals.filter(|did| matches!(did, Disposition::Elided(ElisionReason::PrefixChanged))).count()
}

impl Exchange<'_> {
    /// Returns the policy of this request: the caller's, or else the gateway's.
    fn prefix_policy(&self) -> GatewayResult<PrefixPolicy> {
        let Some(wanted) = &self.caller.prefix else { return Ok(self.gateway.prefix) };
        let mut names = PrefixPolicy::NAMES.iter();
        let found = names.find(|(name, _)| **name == **wanted).map(|(_, policy)| *policy);
        found.ok_or_else(|| {
            let names: Vec<&str> = PrefixPolicy::NAMES.iter().map(|(name, _)| *name).collect();
            let message = format!(
                "the header {PREFIX_HEADER} must be one of {}; it was `{wanted}`",
                names.join(", ")
            );
            GatewayError::new(400, message)
        })
    }

    /// Returns the bodies of the last call with the prefix that the target's Seals are bound to.
    async fn previous_bodies(
        &self,
        tenant: &Tenant,
        conversation: &Conversation,
    ) -> Option<Bodies> {
        let Conversation { signed: Some(signed), era, .. } = conversation else { return None };
        let tail = self.gateway.replay.calls().tail(tenant, signed, Some(*era));
        // A hanging store must not delay the request.
        let tail = timeout(self.gateway.operations.limits.capture, tail).await.ok()??;
        Some(tail.texts.clone())
    }

    /// Keeps the system prompt and tools of the last call and appends the caller's changes, if the
    /// policy and the model allow it. Returns `None` if this would not keep more Seals.
    pub(crate) async fn append_changes(
        &self,
        to: &dyn Codec,
        restored: &RestoredCall,
        encoded: &EncodedRequest,
        tenant: &Tenant,
    ) -> GatewayResult<Option<(EncodedRequest, AppendPlan)>> {
        let profile = &restored.call.target.profile;
        if self.prefix_policy()? != PrefixPolicy::Append
            || !profile.bound.prefix
            || !profile.appends
        {
            return Ok(None);
        }
        let Some(bodies) = self.previous_bodies(tenant, &restored.conversation).await else {
            return Ok(None);
        };
        let appended = appended_messages(&bodies.account);
        let lost = lost_seals(encoded);
        if lost == 0 && appended.is_empty() {
            return Ok(None);
        }
        let signed = SignedPrefix { body: &bodies.sent, appended: &appended };
        let Some(plan) = to.append_changes(&restored.call, encoded, &signed) else {
            return Ok(None);
        };
        let kept = plan.encode(to)?;
        let still_lost = lost_seals(&kept);
        // Without a lost Seal, the earlier messages still belong to the cached prompt.
        Ok((still_lost < lost || still_lost == 0).then_some((kept, plan)))
    }

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
        let policy = self.prefix_policy()?;
        let before = match &found.replayed {
            Some(replayed) => self.previous_bodies(tenant, &replayed.conversation).await,
            None => None,
        };
        let before = before.map_or_else(Bytes::new, |bodies| bodies.sent);
        // In another dialect the gateway writes the system prompt and the tools, always in the same
        // way.
        if policy.freezes()
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
        policy.refuse(&changed)?;
        Ok((found, Some(changed)))
    }
}
