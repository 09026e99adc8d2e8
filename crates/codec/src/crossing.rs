//! What crosses from one wire to another, and is carried over alike by all of them. How a part is worded is each wire's
//! own; whether it goes, and what is noted where it does not, is decided here.

use throughline_core::{Call, Fate, How, Item, Json, Thought, Tool, Why, Wire, json};

use crate::draft::{self, Draft};
use crate::gate::{self, CallersThought};

/// The Fate of an Item that is said in this wire's words. What the caller made had no words before.
pub(crate) fn said(item: &Item, seals: Why) -> Fate {
    match &item.native {
        Some(_) => draft::reshaped(item, How::OtherWire, seals),
        None => draft::kept(item),
    }
}

/// A thought that the caller made: as a part of the wire, as a text, or nowhere in the messages.
pub(crate) fn thought(
    draft: &mut Draft<'_>,
    call: &Call,
    (item, thought): (&Item, &Thought),
    wire: &Wire,
    text: impl FnOnce(&str) -> Json,
) -> (Option<Json>, Fate) {
    let (way, fate) = gate::callers_thought(draft, call, item, thought, wire);
    let part = match way {
        CallersThought::Typed(payload) => Some(payload),
        CallersThought::Text(said) => Some(text(&said)),
        CallersThought::Apart => None,
    };
    (part, fate)
}

/// The arguments of a call, for a wire that takes objects only: free text is none.
pub(crate) fn arguments(args: &Json) -> Json {
    if args.tree().root().is_object() {
        return args.clone();
    }
    json::object(|o| {
        o.raw("input", args);
    })
}

/// A medium as the wire words it, if it can.
pub(crate) fn media(draft: &mut Draft<'_>, worded: Option<Json>) -> Option<Json> {
    if worded.is_none() {
        draft.warn("media", "a kind of media that this wire cannot carry was left out");
    }
    worded
}

/// A part of a tool's answer that only one wire knows, if that is the one being written.
pub(crate) fn unknown(draft: &mut Draft<'_>, wire: &Wire, part: &Json) -> Option<Json> {
    let is_own = draft.wire() == wire;
    if !is_own {
        draft.warn("tool result", format!("a part that only {wire} knows was left out"));
    }
    is_own.then(|| part.clone())
}

/// A tool that this wire did not declare, unless another provider runs it.
pub(crate) fn tool(
    draft: &mut Draft<'_>,
    tool: &Tool,
    word: impl FnOnce(&mut Draft<'_>) -> Json,
) -> Option<Json> {
    if tool.hosted {
        let name = &tool.name;
        draft.warn("tools", format!("`{name}` is run by another provider; it was left out"));
        return None;
    }
    draft.warn_of_markers(tool.native.as_ref());
    Some(word(draft))
}
