//! One request before the rules of its wire: what they are called there, and what was found so far.

use std::collections::{BTreeSet, HashMap, HashSet};

use throughline_core::{ForcedTools, Json, Node, Profile, ReasoningFormat};

use crate::audit::{Case, Change, Finding, Findings, Rule, Severity};
use crate::claude;
use crate::claude::view::{Block, View};

/// What a wire calls the rules of the Claudes, and how it words what they share.
pub(crate) struct Book {
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
    /// What is said of a seal that is not a thought's and that came back changed; nothing where the wire has no rule.
    pub(crate) sealed_content_changed: Option<&'static Rule>,
    /// The provider's answer around the model's own words.
    pub(crate) wraps: fn(&str) -> String,
    /// The answer where these calls of a message have no results.
    pub(crate) unanswered: fn(usize, &str) -> String,
    /// The answer where a result has no call.
    pub(crate) unasked: fn(&Block<'_>, &str) -> String,
    /// Under which circumstances a forced tool choice is refused.
    pub(crate) forced_tools: fn(&Profile) -> ForcedTools,
    /// A tool choice that leaves the model free.
    pub(crate) free_choice: fn(Node<'_>) -> Json,
    /// A block of a response as a request says it.
    pub(crate) project: fn(&Json) -> Json,
}

/// One request, and what was found in it so far.
pub(crate) struct Inspection<'a, 'c, 'f> {
    pub(crate) view: &'a View<'c>,
    pub(crate) book: &'a Book,
    pub(crate) case: &'a Case<'c>,
    findings: &'a mut Findings<'f>,
    /// Where the blocks begin of which something was said already.
    judged: HashSet<usize>,
    /// Those of them that are refused.
    refused: BTreeSet<usize>,
    /// What became of the parts of the request that were issued, by where they begin.
    changes: HashMap<usize, &'c Change<'c>>,
}

impl<'a, 'c, 'f> Inspection<'a, 'c, 'f> {
    pub(crate) fn new(
        view: &'a View<'c>,
        book: &'a Book,
        case: &'a Case<'c>,
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

    /// Looks at the request with every rule of the Claudes.
    pub(crate) fn run(&mut self) {
        self.count();
        self.look_at_pairs();
        if claude::is_claude(self.case.target()) {
            self.look_at_blocks();
            self.look_at_knobs();
            self.look_at_what_was_issued();
            self.look_at_ends();
        }
    }

    fn count(&mut self) {
        let is_claude = claude::is_claude(self.case.target());
        let format =
            if is_claude { ReasoningFormat::AnthropicClaudeV1 } else { ReasoningFormat::unknown() };
        for block in self.view.models_blocks().filter(|block| block.kind.is_thinking()) {
            self.findings.count(block.node, &format, block.is_sealed());
        }
    }

    /// Reports what is wrong with a block.
    pub(crate) fn report(&mut self, block: &Block<'c>, finding: Finding) {
        let start = block.node.range().start;
        self.judged.insert(start);
        if finding.severity == Severity::Refuse {
            self.refused.insert(start);
        }
        self.findings.add(finding.under(block.place()));
    }

    /// Reports what is wrong with anything else.
    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.add(finding);
    }

    /// Whether something was said of the block that begins there.
    pub(crate) fn is_judged(&self, start: usize) -> bool {
        self.judged.contains(&start)
    }

    /// Whether a block in that place is refused.
    pub(crate) fn refused_within(&self, place: &std::ops::Range<usize>) -> bool {
        self.refused.range(place.clone()).next().is_some()
    }

    /// What became of the block, where it was issued and that is known.
    pub(crate) fn change_of(&self, block: &Block<'c>) -> Option<&'c Change<'c>> {
        self.changes.get(&block.node.range().start).copied()
    }

    /// The model's words as the provider passes them on.
    pub(crate) fn says(&self, words: impl AsRef<str>) -> String {
        (self.book.wraps)(words.as_ref())
    }
}
