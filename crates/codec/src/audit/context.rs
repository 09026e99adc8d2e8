//! The input of a codec's inspection, and the collector of the findings.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{Profile, ReasoningFormat, Target};
use throughline_json::{Node, Tree};
use throughline_spec::ReplayAudit;

use crate::audit::rule::{Finding, Rule};
use crate::audit::summary::ReasoningSummary;
use crate::audit::{Comparison, PriorExchanges, Transcript};

/// The notation that a provider uses for paths in its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStyle {
    /// `messages.2.content.0`
    Dots,
    /// `input[2].content[0]`
    Brackets,
}

/// The input of [`Codec::inspect`](crate::Codec::inspect): one parsed request and its context.
pub struct AuditContext<'c> {
    transcript: &'c Transcript<'c>,
    target: &'c Target,
    tree: &'c Tree,
    comparison: Option<&'c Comparison<'c>>,
    /// Caches the children of each searched node. The keys are the node numbers of the parents.
    children: RefCell<HashMap<u32, Box<[Child]>>>,
}

/// The node numbers of an object member's name and value. An array element has no name.
type Child = (Option<u32>, u32);

impl<'c> AuditContext<'c> {
    pub(super) fn new(
        transcript: &'c Transcript<'c>,
        target: &'c Target,
        tree: &'c Tree,
        comparison: Option<&'c Comparison<'c>>,
    ) -> Self {
        Self { transcript, target, tree, comparison, children: RefCell::default() }
    }

    /// Returns whether the target issued exactly this Seal. Rules skip format checks for issued
    /// Seals.
    pub fn is_issued(&self, seal: Node<'_>) -> bool {
        let Some(text) = seal.text() else { return false };
        let seal = text.as_bytes();
        self.transcript.issued.is_some_and(|issued| issued.contains(seal))
            || self.transcript.prior.has_issued(seal, self.target)
    }

    /// Returns the root of the parsed request body.
    pub fn body(&self) -> Node<'c> {
        self.tree.root()
    }

    /// Returns the endpoint and model that the request is addressed to.
    pub fn target(&self) -> &'c Target {
        self.target
    }

    /// Returns the profile that the catalog assigns to the target's model.
    pub fn profile(&self) -> &'c Profile {
        &self.target.profile
    }

    /// Returns the value of a header; `None` if it is absent or the headers are unknown.
    pub fn header(&self, name: &str) -> Option<&'c str> {
        self.transcript.request.header(name)
    }

    /// Returns whether the headers are complete. If not, a missing header may still be added.
    pub fn has_all_headers(&self) -> bool {
        self.transcript.knows_headers
    }

    /// Returns when the account was created, if known.
    pub fn account_created(&self) -> Option<jiff::Timestamp> {
        self.transcript.account_created
    }

    /// Returns the earlier exchanges; empty if none are known.
    pub fn prior(&self) -> &'c PriorExchanges {
        self.transcript.prior
    }

    /// Returns the comparison of replayed and issued content, if earlier exchanges are known.
    pub fn comparison(&self) -> Option<&'c Comparison<'c>> {
        self.comparison
    }

    /// Returns the innermost value that contains `range`.
    pub fn node_at(&self, range: &Range<usize>) -> Node<'c> {
        let mut node = self.body();
        while let Some((_, _, inner)) = self.child_around(node, range) {
            node = inner;
            if node.range() == *range {
                break;
            }
        }
        node
    }

    /// Returns the path of the value at `range` in the provider's notation.
    pub fn path(&self, range: &Range<usize>) -> String {
        let style = self.transcript.codec.path_style();
        let mut path = String::new();
        let mut node = self.body();
        while node.range() != *range
            && let Some((name, index, inner)) = self.child_around(node, range)
        {
            let is_bracketed = name.is_none() && style == PathStyle::Brackets;
            if !path.is_empty() && !is_bracketed {
                path.push('.');
            }
            match name {
                Some(name) => path.push_str(&name.text().unwrap_or_default()),
                None if is_bracketed => path.extend(["[", &index.to_string(), "]"]),
                None => path.push_str(&index.to_string()),
            }
            node = inner;
        }
        path
    }

    /// Returns the child of `node` that contains `range`, with its name and index. The children of
    /// a node are listed once and found by binary search, so computing all paths takes linear time.
    fn child_around(
        &self,
        node: Node<'c>,
        range: &Range<usize>,
    ) -> Option<(Option<Node<'c>>, usize, Node<'c>)> {
        let number = Node::number_in_tree;
        let list = || {
            let elements = node.elements().map(|value| (None, number(value)));
            let members = node.members().map(|(name, value)| (Some(number(name)), number(value)));
            elements.chain(members).collect()
        };
        let mut known = self.children.borrow_mut();
        let children = known.entry(number(node)).or_insert_with(list);
        let at = |child: &Child| self.tree.node(child.1);
        let behind = children.partition_point(|child| at(child).range().start <= range.start);
        let index = behind.checked_sub(1)?;
        let child = children.get(index)?;
        let value = at(child);
        let name = child.0.map(|name| self.tree.node(name));
        (range.end <= value.range().end).then_some((name, index, value))
    }
}

/// Collects the findings that a codec reports.
pub struct Findings<'c> {
    case: &'c AuditContext<'c>,
    found: Vec<Finding>,
    /// Byte ranges that earlier checks reported or marked, so that later checks can skip these
    /// ranges.
    covered: HashSet<Range<usize>>,
    tally: ReasoningSummary,
}

impl<'c> Findings<'c> {
    pub(super) fn new(case: &'c AuditContext<'c>) -> Self {
        let (covered, tally) = (HashSet::new(), ReasoningSummary::default());
        Self { case, found: Vec::new(), covered, tally }
    }

    pub(crate) fn applies(&self, rule: &Rule) -> bool {
        (rule.applies)(self.case.target)
    }

    /// Adds a finding if its rule applies to the target.
    pub fn add(&mut self, finding: Finding) {
        self.add_at(None, finding);
    }

    /// Adds a finding that is reported at the node `sign`, such as a member's key or a message's
    /// role. The whole original range of the finding is marked as covered.
    pub(crate) fn add_at(&mut self, sign: Option<Node<'_>>, mut finding: Finding) {
        if self.applies(finding.rule) {
            self.cover(finding.range.clone());
            finding.range = sign.map_or(finding.range, Node::range);
            if finding.path.is_empty() {
                finding.path = self.case.path(&finding.range);
            }
            self.found.push(finding);
        }
    }

    /// Marks a byte range as covered, so that later checks can skip the range.
    pub(crate) fn cover(&mut self, place: Range<usize>) {
        self.covered.insert(place);
    }

    pub(crate) fn is_covered(&self, place: &Range<usize>) -> bool {
        self.covered.contains(place)
    }

    /// Adds the findings whose rules apply to the target.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// Counts one reasoning element for the summary: a thought, or a signature on another part.
    pub fn count(&mut self, element: Node<'_>, format: &ReasoningFormat, is_signed: bool) {
        self.tally.add(element.range(), format.clone(), is_signed);
    }

    pub(super) fn finish(mut self) -> (ReplayAudit, Vec<Finding>) {
        self.found
            .sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.range.start));
        (self.tally.into_audit(self.case, &self.found), self.found)
    }
}
