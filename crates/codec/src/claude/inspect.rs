//! Inspects one request under the Claude rules of its wire.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use throughline_core::{ForcedTools, Profile, ReasoningFormat, Wire};
use throughline_json::{Json, Node};

use crate::audit::{AuditContext, Change, Finding, Findings, Rule, Severity};
use crate::claude;
use crate::claude::view::{ClaudeBlock, ClaudeRequest};

/// The Claude rules of one wire, and the wire's error formats.
pub(crate) struct ClaudeRules {
    pub(crate) wire: Wire,
    /// All rules of the wire. The id of a Claude rule has the same suffix after the `/` on every
    /// wire.
    pub(crate) rules: &'static LazyLock<Vec<&'static Rule>>,
    /// The text that the provider prepends to the model's error.
    pub(crate) error_prefix: &'static str,
    /// Returns the error for a message whose tool calls have no results.
    pub(crate) unanswered: fn(usize, &str) -> String,
    /// Returns the error for a result without a call.
    pub(crate) unasked: fn(&ClaudeBlock<'_>, &str) -> String,
    /// Returns the error for a second result of a call.
    pub(crate) repeated: fn(&ClaudeBlock<'_>, &str) -> String,
    /// Returns the condition under which the model rejects a forced tool choice.
    pub(crate) forced_tools: fn(&Profile) -> ForcedTools,
    /// Returns the unforced tool choice that a fix writes instead of a forced choice.
    pub(crate) free_choice: fn(Node<'_>) -> Json,
    /// Converts a response block to its form in a request.
    pub(crate) project: fn(&Json) -> Json,
}

/// The inspection of one request, with the findings so far.
pub(crate) struct Inspection<'a, 'c, 'f> {
    pub(crate) view: &'a ClaudeRequest<'c>,
    pub(crate) book: &'a ClaudeRules,
    pub(crate) case: &'a AuditContext<'c>,
    findings: &'a mut Findings<'f>,
    /// Start offsets of the blocks that already have a finding.
    judged: HashSet<usize>,
    /// Start offsets of the blocks that the provider rejects.
    refused: BTreeSet<usize>,
    /// The changes of replayed parts. The keys are the start offsets of the parts.
    changes: HashMap<usize, &'c Change<'c>>,
}

impl<'a, 'c, 'f> Inspection<'a, 'c, 'f> {
    pub(crate) fn new(
        view: &'a ClaudeRequest<'c>,
        book: &'a ClaudeRules,
        case: &'a AuditContext<'c>,
        findings: &'a mut Findings<'f>,
    ) -> Self {
        let mut changes = HashMap::new();
        for change in case.comparison().into_iter().flat_map(|comparison| &comparison.changes) {
            if let (Some(part), Some(_)) = (&change.part, &change.issued) {
                changes.entry(part.start).or_insert(change);
            }
        }
        let (judged, refused) = (HashSet::new(), BTreeSet::new());
        Self { view, book, case, findings, judged, refused, changes }
    }

    /// Applies all Claude rules to the request.
    pub(crate) fn run(&mut self) {
        let is_claude = claude::is_claude(self.case.target());
        let format =
            if is_claude { ReasoningFormat::AnthropicClaudeV1 } else { ReasoningFormat::unknown() };
        for block in self.view.assistant_blocks().filter(|block| block.kind.is_thinking()) {
            self.findings.count(block.node, &format, block.is_sealed());
        }
        self.check_tool_pairs();
        if is_claude {
            self.check_blocks();
            self.check_settings();
            self.check_replay();
            self.check_message_ends();
        }
    }

    /// Creates a finding under the Claude rule with this name; `None` if the wire has no such rule.
    pub(super) fn finding(
        &self,
        rule: &str,
        place: Range<usize>,
        message: impl Into<String>,
    ) -> Option<Finding> {
        let is_named = |id: &str| id.split_once('/').is_some_and(|(_, name)| name == rule);
        let rule = self.book.rules.iter().copied().find(|rule| is_named(rule.id))?;
        Some(Finding::in_range(rule, place, message))
    }

    /// Creates a finding with the expected provider error.
    pub(super) fn rejection(
        &self,
        rule: &str,
        node: Node<'_>,
        message: impl Into<String>,
        error: impl AsRef<str>,
    ) -> Option<Finding> {
        let finding = self.finding(rule, node.range(), message)?;
        Some(finding.with_provider_error(self.provider_error(error)))
    }

    /// Reports a finding for a block and marks the block as checked. Does nothing for `None`.
    pub(crate) fn report(&mut self, block: &ClaudeBlock<'c>, finding: impl Into<Option<Finding>>) {
        let Some(finding) = finding.into() else { return };
        let start = block.node.range().start;
        self.judged.insert(start);
        if finding.severity == Severity::Refuse {
            self.refused.insert(start);
        }
        self.findings.add(finding.with_path(block.path()));
    }

    /// Reports findings that do not concern a block.
    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    pub(super) fn has_finding(&self, block: &ClaudeBlock<'_>) -> bool {
        self.judged.contains(&block.node.range().start)
    }

    /// Returns whether the provider rejects a block in this byte range.
    pub(super) fn has_rejection_in(&self, place: &Range<usize>) -> bool {
        self.refused.range(place.clone()).next().is_some()
    }

    /// Returns how a replayed block differs from the issued block, if it does.
    pub(crate) fn change_of(&self, block: &ClaudeBlock<'c>) -> Option<&'c Change<'c>> {
        self.changes.get(&block.node.range().start).copied()
    }

    /// Prepends the wire's error prefix to the model's error text.
    pub(super) fn provider_error(&self, words: impl AsRef<str>) -> String {
        format!("{}{}", self.book.error_prefix, words.as_ref())
    }
}
