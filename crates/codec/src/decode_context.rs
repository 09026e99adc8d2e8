//! The request context needed to decode a response.

use std::sync::Arc;

use throughline_core::{Digest, Origin, Seal, SealBinding, Target};
use throughline_json::{Label, Name};

use bytes::Bytes;

use crate::KnownBeginning;

/// The target and prefix of a request, which determine the Origin and the binding of the response's
/// Seals.
#[derive(Clone, Debug)]
pub struct DecodeContext {
    /// The endpoint and model that received the request.
    pub target: Target,
    /// The [`EncodedRequest::prefix`](throughline_core::EncodedRequest::prefix) of the request, if
    /// the model binds its Seals to the prefix.
    pub prefix: Option<Digest>,
    /// For a request: what an earlier request of the conversation has in common with it, if known.
    pub known: Option<KnownBeginning>,
}

impl DecodeContext {
    /// Creates a context for `target` without a known prefix.
    pub fn of(target: Target) -> Self {
        Self { target, prefix: None, known: None }
    }

    /// Returns the Origin of the response, given the model and route that the response reports.
    pub(crate) fn origin(&self, answered: Option<&str>, routed: Option<Name>) -> Arc<Origin> {
        self.target.answered_by(answered, routed)
    }

    /// Creates a Seal issued by `origin` in this response, bound as the target's profile specifies.
    pub(crate) fn seal(
        &self,
        bytes: Bytes,
        format: impl Into<Label>,
        origin: &Arc<Origin>,
        at: impl Into<Label>,
    ) -> Seal {
        let binding = self.target.profile.bound;
        let prefix = self.prefix.filter(|_| binding.prefix);
        let bound = SealBinding { model: binding.model, account: binding.account, prefix };
        Seal::new(bytes, format, Arc::clone(origin), at).bound_to(bound)
    }
}
