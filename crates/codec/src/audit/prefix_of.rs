//! Which element before a bound thought changed first, and which one was only written in another order.

use std::ops::Range;

use throughline_core::{Node, Seal, Target, Tree};

use crate::audit::Transcript;
use crate::audit::compare::{PrefixChange, Reordered};
use crate::audit::exact::Match;
use crate::prefix::Prefix;

/// The first element that differs from what stood there when a thought that is sent back was issued.
pub(super) fn changed<'p>(
    transcript: &Transcript<'p>,
    target: &Target,
    tree: &Tree,
    matches: &[Match<'p>],
) -> Option<PrefixChange<'p>> {
    if !target.profile.bound.prefix {
        return None;
    }
    // All thoughts of one answer stood behind the same request.
    let mut last = None;
    matches.iter().find_map(|found| {
        let exchange = Some(found.issued.exchange);
        let is_first = std::mem::replace(&mut last, exchange) != exchange;
        let exchange = transcript.prior.exchanges().get(found.issued.exchange)?;
        // A family that binds nothing recorded no prefix, and what the model does not read is not checked for one.
        let is_read = |seal: &Seal| seal.open_for(target, None).is_ok();
        if !exchange.asked.target.profile.bound.prefix
            || !found.issued.item.seals.iter().all(is_read)
        {
            return None;
        }
        if let Some(place) = &found.stranger {
            let member = transcript.codec.prefix_members().last().unwrap_or(&"messages");
            return Some(PrefixChange {
                element: format!("{member}.{}", found.message),
                place: Some(place.clone()),
                part: found.part.clone(),
                issued: found.issued,
            });
        }
        if !is_first {
            return None;
        }
        let before = exchange.call.as_ref()?.source_on(&transcript.codec.wire())?;
        let before = Tree::parse(before.request.body.clone()).ok()?;
        let names = transcript.codec.prefix_members();
        let (element, place) =
            names.iter().find_map(|name| differs(name, before.root(), tree.root()))?;
        // What comes behind the thought was not there when it was issued.
        let is_before = place.as_ref().is_none_or(|place| place.start < found.part.start)
            || !names.last().is_some_and(|last| element.starts_with(last));
        is_before.then(|| PrefixChange {
            element,
            place,
            part: found.part.clone(),
            issued: found.issued,
        })
    })
}

/// The first element of the last request that says the same now with its members in another order. A cache is one account's
/// and one model's: whoever else asks has none to miss.
pub(super) fn reordered(
    transcript: &Transcript<'_>,
    target: &Target,
    tree: &Tree,
) -> Option<Reordered> {
    let exchange = transcript.prior.exchanges().iter().rfind(|exchange| exchange.call.is_some())?;
    let (was, is) = (&exchange.asked.target.origin, &target.origin);
    let is_same = was.provider == is.provider
        && was.endpoint == is.endpoint
        && was.account == is.account
        && was.asked == is.asked;
    let last = exchange.call.as_ref().filter(|_| is_same)?;
    let before =
        Tree::parse(last.source_on(&transcript.codec.wire())?.request.body.clone()).ok()?;
    transcript.codec.prefix_members().iter().find_map(|name| {
        let (was, is) = (elements(before.root(), name), elements(tree.root(), name));
        let mut pairs = was.into_iter().zip(is);
        let (was, is) = pairs
            .find(|(was, is)| digest(*was) != digest(*is) && was.canonical() == is.canonical())?;
        Some(Reordered { place: is.range(), before: was.json() })
    })
}

/// The member of that name; one inside others is named with dots.
pub(crate) fn member<'t>(body: Node<'t>, name: &str) -> Option<Node<'t>> {
    name.split('.').try_fold(body, Node::present)
}

/// The elements of a member: those of a list, or the value itself.
fn elements<'t>(body: Node<'t>, name: &str) -> Vec<Node<'t>> {
    match member(body, name) {
        Some(list) if list.is_array() => list.elements().collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    }
}

/// The name and the present place of the first element that `before` has and `now` has not, or has differently. The
/// conversation may have grown since; system prompt and tools may not.
pub(crate) fn differs(
    name: &str,
    before: Node<'_>,
    now: Node<'_>,
) -> Option<(String, Option<Range<usize>>)> {
    if let (Some(was), Some(is)) = (member(before, name), member(now, name))
        && meaning(was) == meaning(is)
    {
        return None;
    }
    let is_list = member(before, name).or(member(now, name)).is_some_and(Node::is_array);
    let (was, is) = (elements(before, name), elements(now, name));
    let may_grow = matches!(name, "messages" | "contents" | "input");
    let element = |index: usize| if is_list { format!("{name}.{index}") } else { name.to_owned() };
    for (index, was) in was.iter().enumerate() {
        match is.get(index) {
            Some(is) if meaning(*was) == meaning(*is) => {}
            Some(is) => return Some((element(index), Some(is.range()))),
            None => return Some((element(index), None)),
        }
    }
    let added = is.get(was.len()).filter(|_| !may_grow)?;
    Some((element(was.len()), Some(added.range())))
}

fn meaning(node: Node<'_>) -> [u8; 32] {
    let mut prefix = Prefix::of_meaning();
    prefix.absorb("", &node.json());
    prefix.digest()
}

fn digest(node: Node<'_>) -> [u8; 32] {
    let mut prefix = Prefix::new();
    prefix.absorb("", &node.json());
    prefix.digest()
}
