//! The case that is put to a codec, and the list that it reports to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{Node, Profile, ReasoningFormat, ReplayAudit, Target, Tree};

use crate::audit::rule::{Finding, Severity};
use crate::audit::tally::Tally;
use crate::audit::{Comparison, Prior, Transcript};

/// How a provider writes the place of a value in its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStyle {
    /// `messages.2.content.0`
    Dots,
    /// `input[2].content[0]`
    Brackets,
}

/// One request to judge.
pub struct Case<'c> {
    transcript: &'c Transcript<'c>,
    target: &'c Target,
    tree: &'c Tree,
    comparison: Option<&'c Comparison<'c>>,
    /// The children of the values that were searched, by the number of each value.
    children: RefCell<HashMap<u32, Box<[Child]>>>,
}

/// A member or an element of a value, by numbers in the tree.
#[derive(Clone, Copy)]
struct Child {
    /// The name of a member; nothing for an element.
    name: Option<u32>,
    value: u32,
}

impl<'c> Case<'c> {
    pub(super) fn new(
        transcript: &'c Transcript<'c>,
        target: &'c Target,
        tree: &'c Tree,
        comparison: Option<&'c Comparison<'c>>,
    ) -> Self {
        Self { transcript, target, tree, comparison, children: RefCell::default() }
    }

    /// Whether the target is known to have issued this seal, bit for bit. Then no rule judges its format.
    pub fn is_issued(&self, seal: Node<'_>) -> bool {
        let Some(text) = seal.text() else { return false };
        let seal = text.as_bytes();
        self.transcript.issued.is_some_and(|issued| issued.contains(seal))
            || self.transcript.prior.has_issued(seal, self.target)
    }

    /// The request's body.
    pub fn body(&self) -> Node<'c> {
        self.tree.root()
    }

    /// Whom the request goes to.
    pub fn target(&self) -> &'c Target {
        self.target
    }

    /// What the model demands.
    pub fn profile(&self) -> &'c Profile {
        &self.target.profile
    }

    /// The request's path and query.
    pub fn request_path(&self) -> &'c str {
        &self.transcript.request.path
    }

    /// A header's value; nothing where it is absent or the headers are not known.
    pub fn header(&self, name: &str) -> Option<&'c str> {
        self.transcript.request.header(name)
    }

    /// Whether an absent header is known to be absent.
    pub fn knows_headers(&self) -> bool {
        self.transcript.knows_headers
    }

    /// When the account was made, where that is known.
    pub fn account_created(&self) -> Option<jiff::Timestamp> {
        self.transcript.account_created
    }

    /// What was asked and answered before; empty where nothing is known.
    pub fn prior(&self) -> &'c Prior {
        self.transcript.prior
    }

    /// What differs between what is sent back and what was issued, where that is known.
    pub fn comparison(&self) -> Option<&'c Comparison<'c>> {
        self.comparison
    }

    /// The value that stands at `range`, or the smallest that holds it.
    pub fn node_at(&self, range: &Range<usize>) -> Node<'c> {
        let mut node = self.body();
        while let Some((_, inner)) = self.child_around(node, range) {
            node = inner;
            if node.range() == *range {
                break;
            }
        }
        node
    }

    /// The place of the value at `range`, as the provider writes it.
    pub fn path(&self, range: &Range<usize>) -> String {
        let style = self.transcript.codec.path_style();
        let mut path = String::new();
        let mut node = self.body();
        while node.range() != *range
            && let Some((step, inner)) = self.child_around(node, range)
        {
            match (step, style) {
                (Step::Member(name), _) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&name);
                }
                (Step::Element(index), PathStyle::Dots) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&index.to_string());
                }
                (Step::Element(index), PathStyle::Brackets) => {
                    path.push('[');
                    path.push_str(&index.to_string());
                    path.push(']');
                }
            }
            node = inner;
        }
        path
    }

    /// The child of `node` that holds `range`. The children are listed once and searched by bisection, so the paths of
    /// all findings together take linear time.
    fn child_around(&self, node: Node<'c>, range: &Range<usize>) -> Option<(Step, Node<'c>)> {
        let list = || {
            let elements = node.elements().map(|value| (None, value));
            let members = node.members().map(|(name, value)| (Some(name), value));
            let number = Node::number_in_tree;
            let child = |(name, value): (Option<Node<'c>>, Node<'c>)| Child {
                name: name.map(number),
                value: number(value),
            };
            elements.chain(members).map(child).collect()
        };
        let mut known = self.children.borrow_mut();
        let children = known.entry(node.number_in_tree()).or_insert_with(list);
        let at = |child: &Child| self.tree.node(child.value);
        let behind = children.partition_point(|child| at(child).range().start <= range.start);
        let index = behind.checked_sub(1)?;
        let child = children.get(index)?;
        let value = at(child);
        if range.end > value.range().end {
            return None;
        }
        let name = child.name.map(|name| self.tree.node(name));
        let step = name.map_or(Step::Element(index), |name| {
            Step::Member(name.text().unwrap_or_default().into_owned())
        });
        Some((step, value))
    }
}

enum Step {
    Member(String),
    Element(usize),
}

/// What a codec found.
pub struct Findings<'c> {
    case: &'c Case<'c>,
    found: Vec<Finding>,
    tally: Tally,
}

impl<'c> Findings<'c> {
    pub(super) fn new(case: &'c Case<'c>) -> Self {
        Self { case, found: Vec::new(), tally: Tally::default() }
    }

    /// Reports that a rule is broken, if it applies here at all.
    pub fn add(&mut self, mut finding: Finding) {
        if !(finding.rule.applies)(self.case.target) {
            return;
        }
        if finding.path.is_empty() {
            finding.path = self.case.path(&finding.range);
        }
        self.found.push(finding);
    }

    /// Counts one reasoning element of the request: a thought, or a signature on another part.
    pub fn count(&mut self, element: Node<'_>, format: &ReasoningFormat, is_signed: bool) {
        self.tally.add(element.range(), format.clone(), is_signed);
    }

    /// Whether anything was reported that will be refused.
    pub fn has_refusal(&self) -> bool {
        self.found.iter().any(|finding| finding.severity == Severity::Refuse)
    }

    pub(super) fn finish(mut self) -> (ReplayAudit, Vec<Finding>) {
        self.found
            .sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.range.start));
        (self.tally.audit(self.case, &self.found), self.found)
    }
}
