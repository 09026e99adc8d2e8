//! Counts the reasoning elements of a request, and maps findings to violations. Document 003
//! defines both the elements and the violations.

use std::ops::Range;

use throughline_core::{Contract, Profile, ReasoningFormat};
use throughline_json::{Name, Node};
use throughline_spec::{ReplayAudit, ReplayViolation};

use crate::audit::context::AuditContext;
use crate::audit::rule::{Finding, Severity, ViolationKind};

/// The reasoning elements counted in a request.
#[derive(Default)]
pub(super) struct ReasoningSummary {
    elements: Vec<ReasoningElement>,
}

struct ReasoningElement {
    /// The index of this element among the counted elements.
    number: usize,
    place: Range<usize>,
    format: ReasoningFormat,
    is_signed: bool,
}

impl ReasoningSummary {
    pub(super) fn add(&mut self, place: Range<usize>, format: ReasoningFormat, is_signed: bool) {
        let number = self.elements.len();
        self.elements.push(ReasoningElement { number, place, format, is_signed });
    }

    /// Builds the [`ReplayAudit`] of document 003 from the counted elements and the findings.
    pub(super) fn into_audit(
        mut self,
        case: &AuditContext<'_>,
        findings: &[Finding],
    ) -> ReplayAudit {
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
        breach: ViolationKind,
        finding: &Finding,
        case: &AuditContext<'_>,
        audit: &ReplayAudit,
    ) -> Vec<ReplayViolation> {
        let mut here = self.at(&finding.range);
        let first = match breach {
            ViolationKind::Missing => Some(missing(case.profile(), audit)),
            ViolationKind::UnsignedCall => {
                let call = call_of(case.node_at(&finding.range));
                Some(ReplayViolation::UnsignedCall { call })
            }
            ViolationKind::Fragmented => {
                let rest = here.skip(1);
                return rest.map(|e| ReplayViolation::Fragmented { item: e.number }).collect();
            }
            ViolationKind::Foreign | ViolationKind::Invalid | ViolationKind::Unsigned => {
                here.next().map(|element| {
                    let (item, format) = (element.number, element.format.clone());
                    if breach == ViolationKind::Foreign {
                        ReplayViolation::Foreign { item, format }
                    } else if breach == ViolationKind::Invalid && element.is_signed {
                        ReplayViolation::Invalid { item, format }
                    } else {
                        // An empty Seal counts as missing.
                        ReplayViolation::Unsigned { item, format }
                    }
                })
            }
        };
        first.into_iter().collect()
    }

    /// Returns the elements that overlap a byte range.
    fn at<'s>(&'s self, place: &'s Range<usize>) -> impl Iterator<Item = &'s ReasoningElement> {
        let before = self.elements.partition_point(|each| each.place.end <= place.start);
        let behind = self.elements.get(before..).unwrap_or_default();
        behind.iter().take_while(|each| each.place.start < place.end)
    }
}

/// Returns the violation for missing reasoning. For strict providers, document 003 defines a
/// separate violation if the request has no signature at all.
fn missing(profile: &Profile, audit: &ReplayAudit) -> ReplayViolation {
    let contract = profile.contract;
    if audit.signed_count == 0 && profile.bound.model && contract != Contract::Stateless {
        let formats = audit.formats.clone();
        return ReplayViolation::MissingSignaturesForStrictProvider { contract, formats };
    }
    ReplayViolation::Missing
}

/// Returns the id of a call, or the function name on wires without call ids.
fn call_of(call: Node<'_>) -> Name {
    let places = ["/id", "/functionCall/id", "/functionCall/name", "/function_call/name"];
    places.iter().find_map(|place| call.at(place)?.name()).unwrap_or_default()
}
