//! The table of wires and operators: how often each was tried, how often it should have been refused, and how often it was.

use std::collections::{BTreeMap, BTreeSet};

use throughline_testkit::{Shape, figure};

use crate::contract::Says;
use crate::reasons::{Kind, REASONS, Reason};
use crate::sent::Sent;
use crate::spoiled::{Spoiled, operators};

const WIRES: [Shape; 5] =
    [Shape::Anthropic, Shape::Converse, Shape::Responses, Shape::Chat, Shape::Gemini];

#[derive(Clone, Copy, Default)]
struct Cell {
    applied: usize,
    expected: usize,
    detected: usize,
}

#[derive(Default)]
pub(crate) struct Table {
    cells: BTreeMap<(Shape, &'static str), Cell>,
    /// What should have been refused and was not.
    missed: BTreeSet<String>,
    /// What should not have been refused and was.
    wrong: BTreeSet<String>,
}

impl Table {
    /// Lets the audit judge a spoiled request, and notes whether it was right.
    pub(crate) fn judge(&mut self, sent: &Sent<'_>, spoiled: &Spoiled) {
        let cell = self.cells.entry((sent.shape, spoiled.operator)).or_default();
        cell.applied += 1;
        let found = sent.refused_by(&spoiled.body.to_string(), &spoiled.target);
        let label = || {
            let (provider, was) = (&sent.target.provider.name, sent.target.model());
            let (operator, place) = (spoiled.operator, &spoiled.place.parent);
            let is = spoiled.target.model();
            format!("{provider} {was}: {operator} {place} for {is}: {found:?}")
        };
        match sent.says(spoiled) {
            Says::Refused(rules) => {
                cell.expected += 1;
                if found.iter().any(|rule| rules.contains(rule)) {
                    cell.detected += 1;
                } else {
                    self.missed.insert(label());
                }
            }
            Says::Accepted if !found.is_empty() => {
                self.wrong.insert(label());
            }
            Says::Accepted | Says::Nothing => {}
        }
    }

    /// Prints one line for each operator, with the wires beside each other, and the reasons below.
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
        for Reason { wire, operators, kind, why, .. } in REASONS {
            let kind = match kind {
                Kind::Absent => "nothing to spoil",
                Kind::Taken => "nothing refused",
            };
            figure(&format!("{wire:?}, {kind} by {}", operators.join(", ")), why);
        }
        let (expected, detected) = self.sums();
        figure("spoiled, expected to be refused", expected);
        figure("spoiled, detected", detected);
    }

    /// Fails where too much was missed, where anything harmless was refused, and where a cell is empty without a reason that
    /// the recordings bear out.
    pub(crate) fn check(&self, sent: &[Sent<'_>]) {
        let lines = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("\n");
        assert!(self.wrong.is_empty(), "harmless, and refused:\n{}", lines(&self.wrong));
        let (expected, detected) = self.sums();
        let missed = lines(&self.missed);
        assert!(detected * 100 >= expected * 99, "{detected} of {expected}; missed:\n{missed}");
        let mut problems = self.unexplained();
        let untrue = REASONS.iter().filter(|reason| !reason.holds(sent));
        problems
            .extend(untrue.map(|Reason { wire, why, .. }| format!("{wire:?}: not true: {why}")));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// The cells that say nothing and have no reason, and the reasons that are no longer true.
    fn unexplained(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (wire, operator) in
            operators().iter().flat_map(|operator| WIRES.map(|wire| (wire, *operator)))
        {
            let Cell { applied, expected, .. } = self.cell(wire, operator);
            let is_it =
                |reason: &&Reason| reason.wire == wire && reason.operators.contains(&operator);
            let mut reasons = REASONS.iter().filter(is_it);
            let is_true = match reasons.next().map(|reason| reason.kind) {
                Some(Kind::Absent) => applied == 0,
                Some(Kind::Taken) => applied > 0 && expected == 0,
                None => expected > 0,
            };
            if !is_true || reasons.next().is_some() {
                problems.push(format!(
                    "{wire:?}, {operator}: applied {applied}, expected {expected}; say why in REASONS, once, or no longer"
                ));
            }
        }
        let mut explained = REASONS.iter().flat_map(|reason| reason.operators);
        let strange = explained.find(|name| !operators().contains(name));
        problems.extend(strange.map(|name| format!("no operator is called `{name}`")));
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
