//! Decisions that all wires share for Items from another wire: whether an Item is sent, and which
//! Fate or warning is recorded. Each wire's encoder chooses how to represent the Item.

use std::borrow::Cow;

use throughline_core::{
    Call, ElisionReason, Fate, Item, NativeReasoning, OutputFormat, ReshapeKind, Thought, Tool,
    Wire,
};
use throughline_json::{Json, Node};

use crate::draft::{self, Draft};
use crate::seal_policy::{self, CallerThought};

/// Returns the Fate of an Item that the encoder rebuilt in the target wire's format. Items created
/// by the caller count as kept, because they were never in another format.
pub(crate) fn sent_fate(item: &Item, seals: ElisionReason) -> Fate {
    match &item.native {
        Some(_) => draft::reshaped_fate(item, ReshapeKind::OtherWire, seals),
        None => draft::kept_fate(item),
    }
}

/// The type of a Responses input element that changes settings for the rest of the conversation.
pub(crate) const CONFIGURATION_UPDATE: &str = "configuration_update";

/// The type of a Responses input element that defines further tools. Codex sends its tools in such
/// an element.
pub(crate) const ADDITIONAL_TOOLS: &str = "additional_tools";

/// The type of a Responses tool that groups other tools. Decoding adds these tools to the Call.
pub(crate) const NAMESPACE: &str = "namespace";

/// Returns the Fate of an Item that the wire being encoded cannot express. A configuration update
/// and additional tools count as sent in another form, because decoding applied them to the Call's
/// settings and tools.
pub(crate) fn unsupported_fate(item: &Item, why: ElisionReason) -> Fate {
    let is_applied = item.native_on(&Wire::OPENAI_RESPONSES).is_some_and(|native| {
        let tree = native.json.tree();
        let kind = tree.root().get("type");
        kind.is_some_and(|kind| kind.is(CONFIGURATION_UPDATE) || kind.is(ADDITIONAL_TOOLS))
    });
    if is_applied {
        return draft::reshaped_fate(item, ReshapeKind::OtherWire, why);
    }
    draft::elided_fate(item, why)
}

/// Returns the reasoning settings to encode on `wire`. Dialects differ in what a client must
/// request to receive readable thoughts. If the Call was decoded from another wire, the settings
/// therefore also state what the client's dialect implies.
pub(crate) fn requested_reasoning<'c>(
    call: &'c Call,
    wire: &Wire,
) -> Option<Cow<'c, NativeReasoning>> {
    let reasoning = call.settings.reasoning.as_ref()?;
    let source = call.source.as_deref().filter(|source| source.wire != *wire);
    let Some(source) = source.filter(|_| !reasoning.is_off()) else {
        return Some(Cow::Borrowed(reasoning));
    };
    let mut implied = reasoning.clone();
    match reasoning.include_thoughts {
        // A client that requests thoughts without an effort relies on a model that thinks by
        // default.
        Some(true) if !is_sized(reasoning) && reasoning.enabled.is_none() => {
            implied.enabled = Some(true);
        }
        None if shows_thoughts(&source.wire, reasoning) => implied.include_thoughts = Some(true),
        Some(_) | None => return Some(Cow::Borrowed(reasoning)),
    }
    Some(Cow::Owned(implied))
}

/// Returns whether a client of `wire` that sends these settings receives readable thoughts without
/// a further setting.
fn shows_thoughts(wire: &Wire, reasoning: &NativeReasoning) -> bool {
    match wire.as_str() {
        // Models that use these wires return thoughts if the request enables thinking.
        "anthropic-messages" | "bedrock-converse" => reasoning.enabled == Some(true),
        "openai-chat" => is_sized(reasoning) || reasoning.enabled == Some(true),
        // The other wires have a separate setting for thoughts.
        _ => false,
    }
}

fn is_sized(reasoning: &NativeReasoning) -> bool {
    reasoning.effort.is_some() || reasoning.budget_tokens.is_some()
}

/// Encodes a thought created by the caller as a typed part or as text, or omits it from the
/// messages. `typed` rebuilds a payload as a reasoning part of the wire, or returns `None`: any
/// other part could refer to an object that the provider stores for another tenant.
pub(crate) fn thought(
    draft: &mut Draft<'_>,
    call: &Call,
    (item, thought): (&Item, &Thought),
    wire: &Wire,
    typed: impl FnOnce(&Json) -> Option<Json>,
    text: impl FnOnce(&str) -> Json,
) -> (Option<Json>, Fate) {
    let (way, fate) = seal_policy::apply_replay_policy(draft, call, item, thought, wire);
    let part = match way {
        CallerThought::Typed(payload) => match typed(&payload) {
            Some(part) => Some(part),
            None => return (None, draft::elided_fate(item, ElisionReason::NotOnThisWire)),
        },
        CallerThought::Text(envelope) => Some(text(&envelope)),
        CallerThought::Apart => None,
    };
    (part, fate)
}

/// Returns call arguments for a wire that accepts only objects; free text is wrapped as `input`.
pub(crate) fn arguments(args: &Json) -> Json {
    if args.tree().root().is_object() {
        return args.clone();
    }
    object! { "input": args }
}

/// Returns the encoded media; warns if this wire cannot represent it.
pub(crate) fn media(draft: &mut Draft<'_>, encoded: Option<Json>) -> Option<Json> {
    if encoded.is_none() {
        draft.warn("media", "this wire cannot carry this kind of media; it was omitted");
    }
    encoded
}

/// Returns a part of a tool result if the part was defined by the wire being encoded; otherwise
/// warns and omits the part.
pub(crate) fn native_part_or_warn(draft: &mut Draft<'_>, wire: &Wire, part: &Json) -> Option<Json> {
    let is_own = draft.wire() == wire;
    if !is_own {
        draft.warn("tool result", format!("a part that exists only on {wire} was omitted"));
    }
    is_own.then(|| part.clone())
}

/// Returns the changed sampling settings (`temperature`, `top_p` and `top_k`) under the given wire
/// names. `refusal` returns a warning for each setting that the model rejects.
pub(crate) fn sampling_changes(
    draft: &mut Draft<'_>,
    call: &Call,
    names: &[&'static str],
    is_reconsidered: bool,
    refusal: impl Fn(&str) -> Option<&'static str>,
) -> Vec<(&'static str, Option<Json>)> {
    let settings = &call.settings;
    let all = [
        (&settings.temperature, draft.differs(|s| &s.temperature)),
        (&settings.top_p, draft.differs(|s| &s.top_p)),
        (&settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    let mut changes = Vec::new();
    for (name, (value, differs)) in names.iter().copied().zip(all) {
        match refusal(name).filter(|_| value.is_some() && (differs || is_reconsidered)) {
            Some(message) => {
                draft.warn(name, message);
                changes.push((name, None));
            }
            None if differs => changes.push((name, value.clone())),
            None => {}
        }
    }
    changes
}

/// Returns the name and schema of the requested output format. Warns if the Call requests JSON
/// output without a schema, because the wire being encoded requires a schema.
pub(crate) fn output_schema<'c>(
    draft: &mut Draft<'_>,
    call: &'c Call,
) -> Option<(Option<&'c str>, &'c Json)> {
    match call.settings.output.as_ref()? {
        OutputFormat::Schema { name, schema, .. } => Some((name.as_deref(), schema)),
        OutputFormat::Json => {
            let message = "this wire supports JSON output only with a schema; it was omitted";
            draft.warn("output", message);
            None
        }
    }
}

/// Encodes a tool that was declared on another wire. If another provider runs the tool, warns and
/// omits the tool. Omits namespaces, whose tools are encoded on their own.
pub(crate) fn tool(
    draft: &mut Draft<'_>,
    tool: &Tool,
    encode: impl FnOnce(&mut Draft<'_>) -> Json,
) -> Option<Json> {
    if is_namespace(tool) {
        return None;
    }
    if tool.hosted {
        let name = &tool.name;
        draft.warn("tools", format!("`{name}` runs at another provider; it was omitted"));
        return None;
    }
    draft.warn_about_cache_markers(tool.native.as_ref());
    Some(encode(draft))
}

/// Warns that the target cannot enforce the input format of a custom tool, which is sent as a
/// function. Only the wires of OpenAI have custom tools.
pub(crate) fn warn_about_input_format(draft: &mut Draft<'_>, tool: &Tool) {
    if has_input_format(tool) {
        let name = &tool.name;
        draft.warn("tools", format!("this endpoint cannot enforce the input format of `{name}`"));
    }
}

fn has_input_format(tool: &Tool) -> bool {
    let has_custom_tools =
        |wire: &Wire| *wire == Wire::OPENAI_RESPONSES || *wire == Wire::OPENAI_CHAT;
    let native = tool.native.as_ref().filter(|native| has_custom_tools(&native.wire));
    native.is_some_and(|native| {
        let tree = native.json.tree();
        let root = tree.root();
        let is_custom = root.get("type").is_some_and(|kind| kind.is("custom"));
        let format = root.at("/custom/format").or_else(|| root.present("format"));
        // Any text has the format `text`.
        let restricts = |format: Node<'_>| !format.get("type").is_some_and(|kind| kind.is("text"));
        is_custom && format.is_some_and(restricts)
    })
}

/// Returns whether a tool is a namespace of the Responses API, which contains other tools.
pub(crate) fn is_namespace(tool: &Tool) -> bool {
    tool.native_on(&Wire::OPENAI_RESPONSES).is_some_and(|native| {
        native.json.tree().root().get("type").is_some_and(|kind| kind.is(NAMESPACE))
    })
}

#[cfg(test)]
#[path = "cross_wire_tests.rs"]
mod cross_wire_tests;
