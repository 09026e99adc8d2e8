//! Counts mutations per wire and operator: how many were applied, how many should be refused, and
//! how many were refused.

use std::collections::{BTreeMap, BTreeSet};

use throughline_testkit::{Shape, figure};

use crate::contract::ExpectedVerdict;
use crate::reasons::{EXEMPTIONS, Exemption, ExemptionKind};
use crate::sent::RecordedRequest;
use crate::spoiled::{MutatedRequest, operators};

const WIRES: [Shape; 5] =
    [Shape::Anthropic, Shape::Converse, Shape::Responses, Shape::Chat, Shape::Gemini];

#[derive(Clone, Copy, Default)]
struct Cell {
    applied: usize,
    expected: usize,
    detected: usize,
}

#[derive(Default)]
pub(crate) struct MutationTable {
    cells: BTreeMap<(Shape, &'static str), Cell>,
    /// Mutations that should be refused but were not.
    missed: BTreeSet<String>,
    /// Mutations that should not be refused but were.
    wrong: BTreeSet<String>,
}

impl MutationTable {
    /// Audits a mutated request and records whether the verdict was correct.
    pub(crate) fn judge(&mut self, sent: &RecordedRequest<'_>, spoiled: &MutatedRequest) {
        let cell = self.cells.entry((sent.shape, spoiled.operator)).or_default();
        cell.applied += 1;
        let found = sent.refused_by(&spoiled.body.to_string(), &spoiled.target);
        let label = || {
            let (provider, was) = (&sent.target.provider.name, sent.target.model());
            let (operator, place) = (spoiled.operator, &spoiled.place.parent);
            let is = spoiled.target.model();
            format!("{provider} {was}: {operator} {place} for {is}: {found:?}")
        };
        match sent.expected_verdict(spoiled) {
            ExpectedVerdict::Refused(rules) => {
                cell.expected += 1;
                if found.iter().any(|rule| rules.contains(rule)) {
                    cell.detected += 1;
                } else {
                    self.missed.insert(label());
                }
            }
            ExpectedVerdict::Accepted if !found.is_empty() => {
                self.wrong.insert(label());
            }
            ExpectedVerdict::Accepted | ExpectedVerdict::Nothing => {}
        }
    }

    /// Prints one line per operator and one column per wire, followed by the explanations.
    pub(crate) fn print(&self) {
        let wires = WIRES.map(|wire| format!("{:>13}", format!("{wire:?}"))).join(" |");
        figure(&format!("{:<22}", "applied/expected/found"), wires);
        for operator in operators() {
            let cells = WIRES.map(|wire| {
                let Cell { applied, expected, detected } = self.cell(wire, operator);
                format!("{:>13}", format!("{applied}/{expected}/{detected}"))
            });
            figure(&format!("{operator:<22}"), cells.join(" |"));
        }
        for Exemption { wire, operators, kind, why, .. } in EXEMPTIONS {
            let kind = match kind {
                ExemptionKind::Absent => "nothing to change",
                ExemptionKind::Taken => "nothing refused",
            };
            figure(&format!("{wire:?}, {kind} by {}", operators.join(", ")), why);
        }
        let (expected, detected) = self.sums();
        figure("mutations expected to be refused", expected);
        figure("spoiled, detected", detected);
    }

    /// Fails if too many refusals were missed, if a harmless change was refused, or if an empty
    /// cell has no valid explanation.
    pub(crate) fn check(&self, sent: &[RecordedRequest<'_>]) {
        let lines = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("\n");
        assert!(self.wrong.is_empty(), "harmless but refused:\n{}", lines(&self.wrong));
        let (expected, detected) = self.sums();
        let missed = lines(&self.missed);
        assert!(detected * 100 >= expected * 99, "{detected} of {expected}; missed:\n{missed}");
        let mut problems = self.unexplained();
        let untrue = EXEMPTIONS.iter().filter(|reason| !reason.holds(sent));
        problems
            .extend(untrue.map(|Exemption { wire, why, .. }| format!("{wire:?}: not true: {why}")));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// Returns the empty cells without an explanation, and the explanations that no longer hold.
    fn unexplained(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (wire, operator) in
            operators().iter().flat_map(|operator| WIRES.map(|wire| (wire, *operator)))
        {
            let Cell { applied, expected, .. } = self.cell(wire, operator);
            let is_it =
                |reason: &&Exemption| reason.wire == wire && reason.operators.contains(&operator);
            let mut reasons = EXEMPTIONS.iter().filter(is_it);
            let is_true = match reasons.next().map(|reason| reason.kind) {
                Some(ExemptionKind::Absent) => applied == 0,
                Some(ExemptionKind::Taken) => applied > 0 && expected == 0,
                None => expected > 0,
            };
            if !is_true || reasons.next().is_some() {
                problems.push(format!(
                    "{wire:?}, {operator}: applied {applied}, expected {expected}; add, merge or remove its entry in REASONS"
                ));
            }
        }
        let mut explained = EXEMPTIONS.iter().flat_map(|reason| reason.operators);
        let unknown = explained.find(|name| !operators().contains(name));
        problems.extend(unknown.map(|name| format!("unknown operator `{name}`")));
        problems
    }

    fn cell(&self, wire: Shape, operator: &'static str) -> Cell {
        self.cells.get(&(wire, operator)).copied().unwrap_or_default()
    }

    fn sums(&self) -> (usize, usize) {
        let sum = |count: fn(&Cell) -> usize| self.cells.values().map(count).sum();
        (sum(|cell| cell.expected), sum(|cell| cell.detected))
    }
}
