//! Inspects one request with the Claude rules of its wire.

use std::collections::{BTreeSet, HashMap, HashSet};

use throughline_core::{ForcedTools, Profile, ReasoningFormat};
use throughline_json::{Json, Node};

use crate::audit::{AuditContext, Change, Finding, Findings, Rule, Severity};
use crate::claude;
use crate::claude::view::{ClaudeBlock, ClaudeRequest};

/// The Claude rules as a wire names them, and the wire's error formats.
pub(crate) struct ClaudeRules {
    pub(crate) tool_loop_needs_thinking: &'static Rule,
    pub(crate) signature_missing: &'static Rule,
    pub(crate) signature_invalid: &'static Rule,
    pub(crate) thinking_modified: &'static Rule,
    pub(crate) thinking_dropped: &'static Rule,
    pub(crate) prefix_changed: &'static Rule,
    pub(crate) mode_not_supported: &'static Rule,
    pub(crate) budget_too_small: &'static Rule,
    pub(crate) budget_not_below_max_tokens: &'static Rule,
    pub(crate) forced_tool_choice: &'static Rule,
    pub(crate) effort_not_supported: &'static Rule,
    pub(crate) sampling_fixed: &'static Rule,
    pub(crate) prefill_refused: &'static Rule,
    pub(crate) ends_in_thinking: &'static Rule,
    pub(crate) block_unreadable: &'static Rule,
    pub(crate) thought_as_text: &'static Rule,
    pub(crate) tool_call_unanswered: &'static Rule,
    /// Reports a changed Seal on a block other than a thought; `None` if the wire has no rule for
    /// it.
    pub(crate) sealed_content_changed: Option<&'static Rule>,
    /// Wraps the model's error text as the provider returns it.
    pub(crate) wraps: fn(&str) -> String,
    /// Returns the error for calls of a message without results.
    pub(crate) unanswered: fn(usize, &str) -> String,
    /// Returns the error for a result without a call.
    pub(crate) unasked: fn(&ClaudeBlock<'_>, &str) -> String,
    /// Returns when the model rejects a forced tool choice.
    pub(crate) forced_tools: fn(&Profile) -> ForcedTools,
    /// Returns an unforced tool choice.
    pub(crate) free_choice: fn(Node<'_>) -> Json,
    /// Converts a block of a response to its form in a request.
    pub(crate) project: fn(&Json) -> Json,
}

/// One request and the findings so far.
pub(crate) struct Inspection<'a, 'c, 'f> {
    pub(crate) view: &'a ClaudeRequest<'c>,
    pub(crate) book: &'a ClaudeRules,
    pub(crate) case: &'a AuditContext<'c>,
    findings: &'a mut Findings<'f>,
    /// Start offsets of the blocks that already have a finding.
    judged: HashSet<usize>,
    /// Start offsets of the blocks that are rejected.
    refused: BTreeSet<usize>,
    /// Changes of issued parts, by the start offset of the part.
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
        Self {
            view,
            book,
            case,
            findings,
            judged: HashSet::new(),
            refused: BTreeSet::new(),
            changes,
        }
    }

    /// Applies all Claude rules to the request.
    pub(crate) fn run(&mut self) {
        self.count();
        self.check_tool_pairs();
        if claude::is_claude(self.case.target()) {
            self.check_blocks();
            self.check_settings();
            self.check_replay();
            self.check_message_ends();
        }
    }

    fn count(&mut self) {
        let is_claude = claude::is_claude(self.case.target());
        let format =
            if is_claude { ReasoningFormat::AnthropicClaudeV1 } else { ReasoningFormat::unknown() };
        for block in self.view.assistant_blocks().filter(|block| block.kind.is_thinking()) {
            self.findings.count(block.node, &format, block.is_sealed());
        }
    }

    /// Reports a finding for a block.
    pub(crate) fn report(&mut self, block: &ClaudeBlock<'c>, finding: Finding) {
        let start = block.node.range().start;
        self.judged.insert(start);
        if finding.severity == Severity::Refuse {
            self.refused.insert(start);
        }
        self.findings.add(finding.with_path(block.path()));
    }

    /// Reports a finding that does not concern a block.
    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.add(finding);
    }

    /// Returns whether the block at this offset already has a finding.
    pub(crate) fn has_finding(&self, start: usize) -> bool {
        self.judged.contains(&start)
    }

    /// Returns whether a block in this range is rejected.
    pub(crate) fn has_rejection_in(&self, place: &std::ops::Range<usize>) -> bool {
        self.refused.range(place.clone()).next().is_some()
    }

    /// Returns the change of an issued block, if known.
    pub(crate) fn change_of(&self, block: &ClaudeBlock<'c>) -> Option<&'c Change<'c>> {
        self.changes.get(&block.node.range().start).copied()
    }

    /// Returns the model's error text as the provider returns it.
    pub(crate) fn provider_error(&self, words: impl AsRef<str>) -> String {
        (self.book.wraps)(words.as_ref())
    }
}
