//! Predicts whether a provider will reject or degrade a request, before the request is sent.
//!
//! Each wire declares its rules in `contract/rules.rs` (see `rule_book.rs`), and its codec's
//! [`inspect`](crate::Codec::inspect) reports each violation as a [`Finding`]. This module builds
//! the codec's input: an index over the bytes of the request, which avoids a copy, and the target's
//! catalog entries. If earlier exchanges are known, it adds a [`Comparison`] of the replayed
//! content with the issued content.
//!
//! A rule is never stricter than its evidence. Verdicts depend on catalog entries and recorded
//! traffic, never on a model's name.

mod compare;
mod context;
mod fix;
mod match_criteria;
mod match_issued;
pub(crate) mod prefix_change;
mod prior_content;
mod rule;
pub(crate) mod rule_book;
mod summary;
mod transcript;

use throughline_core::{Request, Target, Wire};
use throughline_json::{Tree, words};
use throughline_spec::ReplayAudit;

pub(crate) use crate::audit::compare::opens_all;
pub use crate::audit::compare::{
    Change, ChangeKind, Comparison, IssuedItem, PrefixChange, ReorderedElement,
};
pub use crate::audit::context::{AuditContext, Findings, PathStyle};
pub use crate::audit::fix::{Edit, Fix};
pub(crate) use crate::audit::fix::{apply, select_compatible};
pub use crate::audit::rule::{Example, Finding, Rule, Severity, Source, SourceKind, ViolationKind};
pub use crate::audit::transcript::{Exchange, IssuedSeals, PriorExchanges};
use crate::{Codec, CodecError};

/// A request to audit, with everything known about its conversation.
#[derive(Clone, Copy)]
pub struct Transcript<'a> {
    /// The codec of the request's wire.
    pub codec: &'a dyn Codec,
    /// The request, with the headers that are already known.
    pub request: &'a Request,
    /// The parsed body of `request`, if available. A tree that was parsed from another body is
    /// ignored.
    pub parsed: Option<&'a Tree>,
    /// Whether `request` contains all headers that will be sent. If not, rules about headers
    /// produce only notes.
    pub knows_headers: bool,
    /// The creation time of the account, if known. Some rules apply only to newer accounts.
    pub account_created: Option<jiff::Timestamp>,
    /// The earlier exchanges of the conversation; empty if none are known.
    pub prior: &'a PriorExchanges,
    /// Seals that the target issued in exchanges that are not in `prior`.
    pub issued: Option<&'a dyn IssuedSeals>,
}

impl<'a> Transcript<'a> {
    /// Creates a transcript without earlier exchanges and without known issued Seals.
    pub fn new(codec: &'a dyn Codec, request: &'a Request) -> Self {
        static NOTHING: PriorExchanges = PriorExchanges::new();
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

    /// Adds the earlier exchanges, against which replayed content is compared.
    #[must_use]
    pub fn with_prior(self, prior: &'a PriorExchanges) -> Self {
        Self { prior, ..self }
    }
}

/// The predicted reaction of a provider to a request, with the reasons.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The wire format of the request.
    pub wire: Wire,
    /// The model named in the request.
    pub model: String,
    /// Statistics on replayed reasoning as defined by document 003: the number of elements, their
    /// formats, and their violations.
    pub summary: ReplayAudit,
    /// The findings, most severe first, then in request order.
    pub findings: Vec<Finding>,
}

words! {
    /// The overall outcome of an audit.
    #[derive(PartialOrd, Ord)]
    Verdict {
        /// The provider accepts the request.
        Accept = "accept",
        /// The provider accepts the request, but reasoning is lost, the model refuses to answer, or
        /// the cache misses.
        Degrade = "degrade",
        /// The provider rejects the request with an error.
        Refuse = "refuse",
    }
}

impl Audit {
    /// Returns the verdict for the most severe finding.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Refuse) => Verdict::Refuse,
            Some(Severity::Degrade) => Verdict::Degrade,
            Some(Severity::Note) | None => Verdict::Accept,
        }
    }
}

/// Audits a request before it is sent to `target`.
pub fn audit(transcript: &Transcript<'_>, target: &Target) -> Result<Audit, CodecError> {
    let codec = transcript.codec;
    let body = &transcript.request.body;
    let parsed;
    let tree = match transcript.parsed.filter(|tree| tree.indexes(body)) {
        Some(tree) => tree,
        None => {
            parsed = Tree::parse(body.clone())?;
            &parsed
        }
    };
    let has_prior = !transcript.prior.is_empty();
    let comparison = has_prior.then(|| Comparison::of(transcript, target, tree)).transpose()?;
    let case = AuditContext::new(transcript, target, tree, comparison.as_ref());
    let mut findings = Findings::new(&case);
    codec.inspect(&case, &mut findings);
    let (summary, findings) = findings.finish();
    Ok(Audit { wire: codec.wire(), model: target.model().to_owned(), summary, findings })
}
