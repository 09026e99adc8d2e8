//! Where the endpoint keeps what it answered, ids pair reasoning with what it led to.

use std::collections::HashSet;

use throughline_core::{Json, Node};

use crate::responses::contract::past::{Output, Past};
use crate::responses::contract::rules::{
    ITEM_DUPLICATED, ITEM_WITHOUT_ITS_REASONING, REASONING_WITHOUT_FOLLOWING_ITEM,
};
use crate::responses::contract::view::{Element, View};
use crate::responses::wire::{Ids, Kind};
use crate::{Edit, Finding, Findings, Mend};

/// Looks at every pair.
pub(super) fn look(view: &View<'_>, past: Option<&Past<'_>>, findings: &mut Findings<'_>) {
    if !view.is_paired {
        return;
    }
    for reasoning in view.of_kind(Kind::Reasoning).filter(|element| element.id.is_some()) {
        look_behind(view, past, reasoning, findings);
    }
    if let Some(past) = past.filter(|_| !view.is_resumed) {
        look_before(view, past, findings);
    }
    look_for_twins(view, findings);
}

/// Whether behind the reasoning stands what it led to.
fn look_behind(
    view: &View<'_>,
    past: Option<&Past<'_>>,
    reasoning: &Element<'_>,
    findings: &mut Findings<'_>,
) {
    let next = reasoning.next.and_then(|next| view.elements.get(next));
    let said = past.and_then(|past| Some((past, past.of_element(reasoning)?)));
    let wanted = said.and_then(|(past, said)| past.following(said));
    if let Some((_, said)) = said
        && (!said.is_kept || wanted.is_none())
    {
        // An id that nobody kept pairs nothing, and an answer that ended in thought has no other half.
        return;
    }
    let wanted_id = wanted.and_then(|wanted| wanted.id);
    let problem = match (next, wanted_id) {
        (None, _) => "nothing follows it".to_owned(),
        (Some(next), _) if !next.is_models => {
            format!("what follows it, `{}`, was not said by the model", next.name())
        }
        (Some(next), Some(wanted)) if next.id.is_none_or(|id| !id.is(wanted)) => {
            format!("it is followed by another item than `{wanted}`, which it led to")
        }
        (Some(next), None) if next.id.is_none() => {
            format!("the `{}` that follows it has no id", next.name())
        }
        (Some(_), _) => return,
    };
    let id = reasoning.id_text();
    let message = format!("this reasoning item stands without the item it led to: {problem}");
    findings.add(
        Finding::at(&REASONING_WITHOUT_FOLLOWING_ITEM, reasoning.node, message)
            .under(reasoning.path())
            .answered(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ))
            .mended(Some(rejoined(view, reasoning, next, wanted))),
    );
}

/// Joins a pair again if both halves are there, and else takes the reasoning away.
fn rejoined(
    view: &View<'_>,
    reasoning: &Element<'_>,
    next: Option<&Element<'_>>,
    wanted: Option<&Output<'_>>,
) -> Mend {
    if let (Some(next), Some(wanted)) = (next, wanted)
        && next.id.is_none()
        && says_the_same(next.node, wanted)
    {
        let edit = Edit::Replace(next.node.range(), wanted.said(Ids::Kept));
        return Mend::new("gives the item behind the reasoning its id back", [edit]);
    }
    let elsewhere = wanted.and_then(|wanted| {
        let is_it = |element: &&Element<'_>| {
            element.id.zip(wanted.id).is_some_and(|(id, wanted)| id.is(wanted))
        };
        view.elements.iter().find(is_it)
    });
    match elsewhere {
        Some(led) => moved(reasoning, led),
        None => Mend::new(
            "removes the reasoning item whose other half is gone",
            [Edit::Remove(reasoning.node.range())],
        ),
    }
}

/// Puts reasoning right before what it led to.
pub(super) fn moved(reasoning: &Element<'_>, led: &Element<'_>) -> Mend {
    let place = Edit::InsertBefore(led.node.range(), vec![reasoning.node.json()]);
    Mend::new(
        "moves the reasoning item to right before the item it led to",
        [Edit::Remove(reasoning.node.range()), place],
    )
}

/// Whether a request's element is the one that was said, ids aside.
pub(super) fn says_the_same(element: Node<'_>, said: &Output<'_>) -> bool {
    let tree = said.json.tree();
    let was = tree.root();
    if Kind::of(element) != said.kind {
        return false;
    }
    match said.kind {
        Kind::Call | Kind::CustomCall => {
            let call = element.text_of("call_id");
            call.is_some() && call == was.text_of("call_id")
        }
        Kind::Message => text_of(element) == text_of(was),
        Kind::Reasoning
        | Kind::Result
        | Kind::CustomResult
        | Kind::HostedCall
        | Kind::HostedResult
        | Kind::Compaction
        | Kind::Unknown => false,
    }
}

/// The text of a message, however it is written.
pub(super) fn text_of(message: Node<'_>) -> String {
    let Some(content) = message.get("content") else { return String::new() };
    if let Some(text) = content.text() {
        return text.into_owned();
    }
    let texts = content.elements().filter_map(|part| part.text_of("text"));
    texts.fold(String::new(), |all, text| all + &text)
}

/// Whether the reasoning is there that led to what the request names by its stored id.
fn look_before(view: &View<'_>, past: &Past<'_>, findings: &mut Findings<'_>) {
    let ids = view.ids();
    let seals: HashSet<Vec<u8>> = view
        .of_kind(Kind::Reasoning)
        .filter_map(|element| Some(element.seal?.text_bytes()?.to_vec()))
        .collect();
    let is_here = |output: &Output<'_>| {
        output.id.is_some_and(|id| ids.contains(id))
            || seals.iter().any(|seal| Past::has_seal(output, seal))
    };
    let mut missed = HashSet::new();
    for element in view.elements.iter().filter(|element| element.is_models) {
        if element.kind == Kind::Reasoning {
            continue;
        }
        let Some(said) = past.of_element(element).filter(|said| said.is_kept) else { continue };
        let run = past.reasoning_before(said);
        let Some(needed) = run.last().filter(|needed| !is_here(needed)) else { continue };
        if !missed.insert(needed.number) {
            continue;
        }
        let (id, name) = (element.id_text(), element.name());
        let needed_id = needed.id.unwrap_or("…");
        let leads_here = past.following(needed).is_some_and(|led| led.number == said.number);
        let mend = if leads_here {
            let gone: Vec<Json> =
                run.iter().filter(|o| !is_here(o)).map(|output| output.said(Ids::Kept)).collect();
            let what = format!("puts the reasoning item `{needed_id}` back before it");
            Mend::new(what, [Edit::InsertBefore(element.node.range(), gone)])
        } else {
            without_id(element)
        };
        let message = format!(
            "this `{name}` goes by its stored id, and the reasoning item that led to it, `{needed_id}`, is not in the request"
        );
        findings.add(
            Finding::at(&ITEM_WITHOUT_ITS_REASONING, element.node, message)
                .under(element.path())
                .answered(format!(
                    "Item '{id}' of type '{name}' was provided without its required 'reasoning' item: '{needed_id}'."
                ))
                .mended(Some(mend)),
        );
    }
}

/// Takes the id from an element that has lost what the id pairs it with.
fn without_id(element: &Element<'_>) -> Mend {
    Mend::new("removes the id whose other half is gone", ids_removed(element))
}

/// The edits that take an element's id away, and the status that is taken only beside it.
pub(super) fn ids_removed(element: &Element<'_>) -> Vec<Edit> {
    let status = element.node.get("status").filter(|_| element.kind == Kind::Message);
    element.id.into_iter().chain(status).map(|member| Edit::Remove(member.range())).collect()
}

/// Whether an id stands twice.
fn look_for_twins(view: &View<'_>, findings: &mut Findings<'_>) {
    let mut seen = HashSet::new();
    for element in &view.elements {
        let Some(id) = element.id.and_then(Node::text) else { continue };
        if seen.insert(id.clone()) {
            continue;
        }
        let message = format!("the item `{id}` stands in the request a second time");
        findings.add(
            Finding::at(&ITEM_DUPLICATED, element.node, message)
                .under(element.path())
                .answered(format!("Duplicate item found with id {id}."))
                .mended(Some(Mend::new(
                    "removes the second copy of the item",
                    [Edit::Remove(element.node.range())],
                ))),
        );
    }
}
