//! Knowing before it is sent what a provider would refuse.
//!
//! Each wire states its rules in `contract.rs`: what they say is data ([`Rule`]), and its codec's
//! [`inspect`](crate::Codec::inspect) reports where a request breaks them ([`Finding`]). This module puts the case to the codec:
//! the request as an index over its own bytes, the target's rows, and, where earlier requests and responses are
//! known, a [`Comparison`] of what is sent back with what was issued. Nothing of the transcript is copied.
//!
//! A rule is never stricter than its evidence. Verdicts rest on the rows of the catalog and on what was recorded, never on
//! a model's name.

mod carried;
mod case;
mod compare;
mod exact;
mod likeness;
mod mend;
pub(crate) mod prefix_of;
mod prior;
mod rule;
mod tally;

use throughline_core::{ReplayAudit, Request, Target, Tree, Wire};

pub use crate::audit::case::{Case, Findings, PathStyle};
pub use crate::audit::compare::{Change, ChangeKind, Comparison, Issued, PrefixChange, Reordered};
pub use crate::audit::mend::{Edit, Mend};
pub(crate) use crate::audit::mend::{apply, compatible};
pub use crate::audit::prior::{Exchange, IssuedSeals, Prior};
pub use crate::audit::rule::{Breach, Example, Finding, Rule, Severity, Source, SourceKind};
use crate::{Codec, CodecError};

/// A conversation as it is about to be sent.
#[derive(Clone, Copy)]
pub struct Transcript<'a> {
    /// The wire's codec.
    pub codec: &'a dyn Codec,
    /// The request.
    pub request: &'a Request,
    /// A body that was parsed before: it is not parsed again where it is the request's.
    pub parsed: Option<&'a Tree>,
    /// Whether `request` has the headers that will be sent; otherwise rules that rest on them can only note.
    pub knows_headers: bool,
    /// When the account was made, where that is known: some rules began for new accounts.
    pub account_created: Option<jiff::Timestamp>,
    /// What was asked and answered before.
    pub prior: &'a Prior,
    /// Seals that the target is known to have issued, from elsewhere than `prior`.
    pub issued: Option<&'a dyn IssuedSeals>,
}

impl<'a> Transcript<'a> {
    /// A request of which nothing else is known.
    pub fn of(codec: &'a dyn Codec, request: &'a Request) -> Self {
        static NOTHING: Prior = Prior::new();
        Self {
            codec,
            request,
            parsed: None,
            knows_headers: false,
            account_created: None,
            prior: &NOTHING,
            issued: None,
        }
    }

    /// The same conversation with what came before.
    #[must_use]
    pub fn after(self, prior: &'a Prior) -> Self {
        Self { prior, ..self }
    }
}

/// What a provider would say to a request.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The wire.
    pub wire: Wire,
    /// The model that is asked.
    pub model: String,
    /// The reasoning that the request carries, as document 003 tells it: how many elements, whose, and which of the
    /// refusals below are about them.
    pub summary: ReplayAudit,
    /// What was found, the gravest first and each in the order of the text.
    pub findings: Vec<Finding>,
}

/// What a provider would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Take it as it is.
    Accept,
    /// Take it, and lose reasoning, refuse to answer, or miss its cache.
    Degrade,
    /// Answer with an error.
    Refuse,
}

impl Verdict {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Accept => "accept",
            Verdict::Degrade => "degrade",
            Verdict::Refuse => "refuse",
        }
    }
}

impl Audit {
    /// What the provider would do.
    pub fn verdict(&self) -> Verdict {
        let gravest = self.findings.iter().map(|finding| finding.severity).max();
        match gravest {
            Some(Severity::Refuse) => Verdict::Refuse,
            Some(Severity::Degrade) => Verdict::Degrade,
            Some(Severity::Note) | None => Verdict::Accept,
        }
    }
}

/// Looks at a request before it is sent to `target`.
pub fn audit(transcript: &Transcript<'_>, target: &Target) -> Result<Audit, CodecError> {
    let codec = transcript.codec;
    let body = &transcript.request.body;
    let parsed;
    let tree = match transcript.parsed.filter(|tree| tree.is_of(body)) {
        Some(tree) => tree,
        None => {
            parsed = Tree::parse(body.clone())?;
            &parsed
        }
    };
    let comparison = if transcript.prior.is_empty() {
        None
    } else {
        Some(Comparison::of(transcript, target, tree)?)
    };
    let case = Case::new(transcript, target, tree, comparison.as_ref());
    let mut findings = Findings::new(&case);
    codec.inspect(&case, &mut findings);
    let (summary, findings) = findings.finish();
    Ok(Audit { wire: codec.wire(), model: target.model().to_owned(), summary, findings })
}
