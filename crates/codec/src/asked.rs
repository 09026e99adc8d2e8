//! What was asked, as far as reading the answer needs it.

use std::sync::Arc;

use throughline_core::{Bound, Digest, Label, Name, Origin, Seal, Target};

use bytes::Bytes;

/// What was asked: by whom an answer is, and behind which prefix it stands.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Who was asked.
    pub target: Target,
    /// [`Encoded::prefix`](throughline_core::Encoded::prefix) of the request, where the model binds its seals to it.
    pub prefix: Option<Digest>,
}

impl Asked {
    /// A request to `target`, of which nothing else is known.
    pub fn of(target: Target) -> Self {
        Self { target, prefix: None }
    }

    /// Who answered, given what the response says of itself.
    pub(crate) fn origin(&self, answered: Option<&str>, routed: Option<Name>) -> Arc<Origin> {
        self.target.answered_by(answered, routed)
    }

    /// A Seal that `origin` issued in answer to this, bound as its family binds them.
    pub(crate) fn seal(
        &self,
        bytes: Bytes,
        format: impl Into<Label>,
        origin: &Arc<Origin>,
        at: impl Into<Label>,
    ) -> Seal {
        let binding = self.target.profile.bound;
        let prefix = self.prefix.filter(|_| binding.prefix);
        let bound = Bound { model: binding.model, account: binding.account, prefix };
        Seal::new(bytes, format, Arc::clone(origin), at).bound_to(bound)
    }
}
