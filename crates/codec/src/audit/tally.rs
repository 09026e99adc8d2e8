//! The reasoning that a request carries, as document 003 counts it, and which of what was found is a violation there.

use std::ops::Range;

use throughline_core::{
    Contract, Name, Node, Profile, ReasoningFormat, ReplayAudit, ReplayViolation,
};

use crate::audit::case::Case;
use crate::audit::rule::{Breach, Finding, Severity};

/// The reasoning elements of a request.
#[derive(Default)]
pub(super) struct Tally {
    elements: Vec<Element>,
}

struct Element {
    /// Which of them it is, as they were counted.
    number: usize,
    place: Range<usize>,
    format: ReasoningFormat,
    is_signed: bool,
}

impl Tally {
    pub(super) fn add(&mut self, place: Range<usize>, format: ReasoningFormat, is_signed: bool) {
        let number = self.elements.len();
        self.elements.push(Element { number, place, format, is_signed });
    }

    /// What the documents say of a request in which these were found.
    pub(super) fn audit(mut self, case: &Case<'_>, findings: &[Finding]) -> ReplayAudit {
        let mut formats: Vec<_> = self.elements.iter().map(|each| each.format.clone()).collect();
        formats.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        formats.dedup();
        let mut audit = ReplayAudit {
            item_count: self.elements.len(),
            signed_count: self.elements.iter().filter(|each| each.is_signed).count(),
            formats,
            violations: Vec::new(),
        };
        self.elements.sort_by_key(|each| each.place.start);
        for finding in findings.iter().filter(|finding| finding.severity == Severity::Refuse) {
            let Some(breach) = finding.rule.breach else { continue };
            let violations = self.violations(breach, finding, case, &audit);
            audit.violations.extend(violations);
        }
        audit
    }

    fn violations(
        &self,
        breach: Breach,
        finding: &Finding,
        case: &Case<'_>,
        audit: &ReplayAudit,
    ) -> Vec<ReplayViolation> {
        let here = self.at(&finding.range);
        match breach {
            Breach::Missing => vec![missing(case.profile(), audit)],
            Breach::UnsignedCall => {
                let call = call_of(case.node_at(&finding.range));
                vec![ReplayViolation::UnsignedCall { call }]
            }
            Breach::Fragmented => {
                here.skip(1).map(|each| ReplayViolation::Fragmented { item: each.number }).collect()
            }
            Breach::Foreign => {
                first(here, |item, format, _| ReplayViolation::Foreign { item, format })
            }
            Breach::Invalid => first(here, |item, format, is_signed| {
                // An empty seal is none.
                if is_signed {
                    ReplayViolation::Invalid { item, format }
                } else {
                    ReplayViolation::Unsigned { item, format }
                }
            }),
            Breach::Unsigned => {
                first(here, |item, format, _| ReplayViolation::Unsigned { item, format })
            }
        }
    }

    /// The elements that a place holds, or that hold it.
    fn at<'s>(&'s self, place: &'s Range<usize>) -> impl Iterator<Item = &'s Element> {
        let before = self.elements.partition_point(|each| each.place.end <= place.start);
        let behind = self.elements.get(before..).unwrap_or_default();
        behind.iter().take_while(|each| each.place.start < place.end)
    }
}

/// What the first of these elements violates.
fn first<'e>(
    mut elements: impl Iterator<Item = &'e Element>,
    violation: fn(usize, ReasoningFormat, bool) -> ReplayViolation,
) -> Vec<ReplayViolation> {
    let first = elements.next();
    let violated = first.map(|it| violation(it.number, it.format.clone(), it.is_signed));
    violated.into_iter().collect()
}

/// What it is called that reasoning is not there: the documents have a word of their own where nothing at all is signed.
fn missing(profile: &Profile, audit: &ReplayAudit) -> ReplayViolation {
    let contract = profile.contract;
    if audit.signed_count == 0 && profile.bound.model && contract != Contract::Stateless {
        let formats = audit.formats.clone();
        return ReplayViolation::MissingSignaturesForStrictProvider { contract, formats };
    }
    ReplayViolation::Missing
}

/// A call's id, or the name of what it calls where the wire has no ids.
fn call_of(call: Node<'_>) -> Name {
    let places = ["/id", "/functionCall/id", "/functionCall/name", "/function_call/name"];
    places.iter().find_map(|place| call.at(place)?.name()).unwrap_or_default()
}
