//! Finds the first changed element in the prefix of a prefix-bound thought, and the first element
//! with a changed member order.

use std::ops::Range;

use throughline_core::{Call, Digest, Target};
use throughline_json::{Node, Tree};

use crate::audit::Transcript;
use crate::audit::compare::{PrefixChange, ReorderedElement, opens_all};
use crate::audit::match_issued::ReplayedItem;
use crate::draft::is_same_endpoint;
use crate::prefix::PrefixHasher;

/// Returns the first request element that precedes a replayed thought and changed after the thought
/// was issued.
pub(super) fn changed<'p>(
    transcript: &Transcript<'p>,
    target: &Target,
    tree: &Tree,
    matches: &[ReplayedItem<'p>],
) -> Option<PrefixChange<'p>> {
    if !target.profile.bound.prefix {
        return None;
    }
    // All thoughts of one reply have the same prefix.
    let mut last = None;
    matches.iter().find_map(|found| {
        let exchange = Some(found.issued.exchange);
        let is_first = std::mem::replace(&mut last, exchange) != exchange;
        let exchange = transcript.prior.exchanges().get(found.issued.exchange)?;
        // Skip families without prefix binding. Also skip Seals that the model cannot read, because
        // it does not verify them.
        if !exchange.asked.target.profile.bound.prefix || !opens_all(found.issued.item, target) {
            return None;
        }
        let change = |element, place| {
            let (part, issued) = (found.part.clone(), found.issued);
            Some(PrefixChange { element, place, part, issued })
        };
        let names = transcript.codec.prefix_members();
        if let Some(place) = &found.foreign_part {
            let member = names.last().unwrap_or(&"messages");
            return change(format!("{member}.{}", found.message), Some(place.clone()));
        }
        if !is_first {
            return None;
        }
        let before = source_tree(transcript, exchange.call.as_ref()?)?;
        let (element, place) =
            names.iter().find_map(|name| differs(name, before.root(), tree.root()))?;
        // Ignore elements after the thought, which did not exist when it was issued.
        let is_before = place.as_ref().is_none_or(|place| place.start < found.part.start)
            || !names.last().is_some_and(|last| element.starts_with(last));
        if is_before { change(element, place) } else { None }
    })
}

/// Returns the parsed body of an earlier request; `None` if that request was on another wire.
fn source_tree(transcript: &Transcript<'_>, call: &Call) -> Option<Tree> {
    Tree::parse(call.source_on(&transcript.codec.wire())?.request.body.clone()).ok()
}

/// Returns the first request element that differs from the last request only in its JSON member
/// order. Earlier requests to another target are skipped, because a cache belongs to one account
/// and model.
pub(super) fn reordered(
    transcript: &Transcript<'_>,
    target: &Target,
    tree: &Tree,
) -> Option<ReorderedElement> {
    let exchange = transcript.prior.exchanges().iter().rfind(|exchange| exchange.call.is_some())?;
    let (was, is) = (&exchange.asked.target.origin, &target.origin);
    let is_same = is_same_endpoint(was, is) && was.account == is.account && was.asked == is.asked;
    let before = source_tree(transcript, exchange.call.as_ref().filter(|_| is_same)?)?;
    transcript.codec.prefix_members().iter().find_map(|name| {
        let mut pairs = elements(before.root(), name).into_iter().zip(elements(tree.root(), name));
        let (was, is) = pairs.find(|(was, is)| {
            let exact = PrefixHasher::new;
            digest(exact(), *was) != digest(exact(), *is) && was.canonical() == is.canonical()
        })?;
        Some(ReorderedElement { place: is.range(), before: was.json() })
    })
}

/// Returns a member by name; dots separate nested names.
pub(crate) fn member<'t>(body: Node<'t>, name: &str) -> Option<Node<'t>> {
    name.split('.').try_fold(body, Node::present)
}

/// Returns the elements of an array member, or the value of any other member as a single element.
fn elements<'t>(body: Node<'t>, name: &str) -> Vec<Node<'t>> {
    match member(body, name) {
        Some(list) if list.is_array() => list.elements().collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    }
}

/// Returns the path of the first element that is missing or different in `now`, and its range in
/// `now`. Messages may be appended, but elements of the system prompt or tools may not.
pub(crate) fn differs(
    name: &str,
    before: Node<'_>,
    now: Node<'_>,
) -> Option<(String, Option<Range<usize>>)> {
    if let (Some(was), Some(is)) = (member(before, name), member(now, name))
        && semantic_digest(was) == semantic_digest(is)
    {
        return None;
    }
    let is_list = member(before, name).or(member(now, name)).is_some_and(Node::is_array);
    let (was, is) = (elements(before, name), elements(now, name));
    let may_grow = matches!(name, "messages" | "contents" | "input");
    let element = |index: usize| if is_list { format!("{name}.{index}") } else { name.to_owned() };
    for (index, was) in was.iter().enumerate() {
        let is = is.get(index);
        if is.is_none_or(|is| semantic_digest(*was) != semantic_digest(*is)) {
            return Some((element(index), is.map(|is| is.range())));
        }
    }
    let added = is.get(was.len()).filter(|_| !may_grow)?;
    Some((element(was.len()), Some(added.range())))
}

fn semantic_digest(node: Node<'_>) -> Digest {
    digest(PrefixHasher::semantic(), node)
}

fn digest(mut hasher: PrefixHasher, node: Node<'_>) -> Digest {
    hasher.update("", &node.json());
    hasher.digest()
}
