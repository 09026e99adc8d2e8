//! Models that bind what they seal to all that stands before it: what is done where a caller changed that.
//!
//! Such a seal is read only behind the very system prompt, tools and messages that it was issued behind. Clients change these without
//! meaning to: another order of keys, other white space. `freeze` sends them again as they were sent before, wherever
//! they are equal as JSON. What means something else cannot be put back: then the seals are dropped, or the call is refused,
//! and either says what changed first.

use throughline_codec::{Codec, first_change, frozen};
use throughline_core::{Did, Encoded, Request, Tenant, Why};

use crate::exchange::{Exchange, Problem};
use crate::gateway::{Gateway, Reached};
use crate::prepare::{Found, Read};
use crate::replay::Conversation;

/// What is done where what stands before bound seals changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixPolicy {
    /// The first bytes are sent again where they are equal as JSON; else the seals are dropped.
    #[default]
    Freeze,
    /// The first bytes are sent again where they are equal as JSON; else the call is refused.
    FreezeOrError,
    /// The seals are dropped.
    DropBlock,
    /// The call is refused.
    Error,
}

impl PrefixPolicy {
    /// Whether the first bytes are sent again.
    pub(crate) fn freezes(self) -> bool {
        match self {
            PrefixPolicy::Freeze | PrefixPolicy::FreezeOrError => true,
            PrefixPolicy::DropBlock | PrefixPolicy::Error => false,
        }
    }

    /// Refuses a call that would lose seals, where that is wanted.
    pub(crate) fn refuse(self, changed: &str) -> Result<(), Problem> {
        match self {
            PrefixPolicy::Freeze | PrefixPolicy::DropBlock => Ok(()),
            PrefixPolicy::FreezeOrError | PrefixPolicy::Error => Err(Problem::new(
                400,
                format!(
                    "what this model thought is bound to all that stood before it, and `{changed}` is not what \
                     it was: send it as before, or begin a new conversation (`prefix` in the gateway's configuration \
                     says what is done about this)"
                ),
            )),
        }
    }
}

/// Whether seals stay behind because of what stands before them.
pub(crate) fn has_changed(encoded: &Encoded) -> bool {
    let mut seals = encoded.fates.iter().flat_map(|fate| &fate.seals);
    seals.any(|did| matches!(did, Did::Elided(Why::PrefixChanged)))
}

impl Exchange<'_> {
    /// The request with its bound seals, if what they stand behind can be put back; else what changed first.
    pub(crate) async fn bound(
        &self,
        to: &dyn Codec,
        found: Found,
        (request, end_user): (&Request, Option<&str>),
        reached: &Reached,
        tenant: &Tenant,
    ) -> Result<(Found, Option<String>), Problem> {
        let Gateway { replay, prefix, .. } = self.gateway;
        let conversation = found.replayed.as_ref().map(|replayed| &replayed.conversation);
        let before = match conversation {
            Some(Conversation { parent: Some(parent), era, .. }) => {
                replay.stories().tail(tenant, parent, Some(*era)).await
            }
            Some(_) | None => None,
        };
        let before = before.map(|tail| tail.texts.sent.clone()).unwrap_or_default();
        let mut found = found;
        // In another dialect the system prompt and the tools are in our words, which are always the same.
        if prefix.freezes()
            && to.wire() == self.wire
            && let Some(body) = frozen(to, &before, &request.body)
        {
            let frozen = Request { body, ..request.clone() };
            let Read { call, .. } = self.read(&frozen, None, reached)?;
            found = self.restored(to, call, end_user, tenant).await?;
        }
        if !has_changed(&found.encoded) {
            return Ok((found, None));
        }
        let changed = first_change(to, &before, &found.encoded.request.body);
        let changed = changed.unwrap_or_else(|| "messages".to_owned());
        prefix.refuse(&changed)?;
        Ok((found, Some(changed)))
    }
}
