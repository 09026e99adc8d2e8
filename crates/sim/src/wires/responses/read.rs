//! Reads requests: the settings, the conversation, and the pairing of its elements.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use throughline_json::{Json, Node};

use crate::cache;
use crate::digest::Digest;
use crate::ledger::ReplyKey;
use crate::state::SimState;
use crate::turn::{Operation, Refusal, SimRequest, Turn};
use crate::wires::Exchange;
use crate::wires::openai;
use crate::wires::responses::StorageMode;
use crate::wires::responses::input::{InputChecker, InputItem, ItemKind, elements};

/// Reads a request or returns the provider's error.
pub(super) fn read(exchange: Exchange<'_>) -> Result<Turn, Refusal> {
    let Exchange { asking, world, record } = exchange;
    let root = asking.body.root();
    if !root.is_object() {
        return Err(Refusal::invalid("Invalid type for the request: expected an object."));
    }
    if asking.model.is_empty() {
        return Err(missing("model"));
    }
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let mut turn = Turn::new(target);
    let house = StorageMode::from_provider(&asking.row);
    settings(&mut turn, asking, root, house)?;
    let owner = owner(asking);
    let before = earlier(root, owner, house, world)?;
    let mut said: Vec<InputItem> = before
        .iter()
        .flat_map(|items| items.iter())
        .map(|json| InputItem::new(json.clone(), None))
        .collect();
    said.extend(elements(root.present("input")));
    let inspector = InputChecker { asking, world, turn: &turn, house, owner, stores: stores(root) };
    inspector.check(&mut said, record)?;
    if house == StorageMode::Pairs && stores(root) {
        pairs(&said, owner, world)?;
    }
    // A stored conversation may contain the other half.
    if root.present("conversation").is_none() {
        answered(&said)?;
    }
    if house == StorageMode::Forgets {
        uninterrupted(&said)?;
    }
    listen(&mut turn, root, &said);
    Ok(turn)
}

/// Returns the whole conversation to store: the previous response and the new input.
pub(super) fn conversation(asking: &SimRequest, world: &SimState) -> Vec<Json> {
    let (root, owner) = (asking.body.root(), owner(asking));
    let resumed = root.text_of("previous_response_id");
    let before = resumed.and_then(|id| world.stored.conversation(owner, &id));
    let added = elements(root.present("input")).into_iter().map(|element| {
        let is_reference = element.kind == ItemKind::Reference;
        let id = element.id.as_deref().filter(|_| is_reference);
        let kept = id.and_then(|id| world.stored.item(owner, id));
        kept.map_or(element.json, |kept| kept.json.clone())
    });
    before.iter().flat_map(|items| items.iter().cloned()).chain(added).collect()
}

/// Returns whether the response is to be stored.
pub(super) fn stores(root: Node<'_>) -> bool {
    root.get("store").and_then(Node::bool).unwrap_or(true)
}

/// Returns the owner of the stored responses: account and endpoint.
pub(super) fn owner(asking: &SimRequest) -> Digest {
    asking.account.and(asking.row.name.as_bytes())
}

fn missing(param: &str) -> Refusal {
    let message = format!("Missing required parameter: '{param}'.");
    Refusal::invalid(message).param(param).code("missing_required_parameter")
}

fn settings(
    turn: &mut Turn,
    asking: &SimRequest,
    root: Node<'_>,
    house: StorageMode,
) -> Result<(), Refusal> {
    let profile = Arc::clone(&turn.target.profile);
    let effort = root.at("/reasoning/effort").and_then(Node::text);
    let effort = effort.as_deref();
    if let Some(effort) = effort
        && !profile.efforts.iter().any(|known| known == effort)
    {
        let param = "reasoning.effort";
        return Err(openai::unsupported_effort(&profile, &asking.model, effort, param));
    }
    turn.thinks = openai::thinks(&profile, effort);
    let is_fixed = profile.fixed_sampling || (profile.unsampled_while_reasoning && turn.thinks);
    if let Some(param) = openai::sampling(root).filter(|_| is_fixed) {
        let message = format!("Unsupported parameter: '{param}' is not supported with this model.");
        return Err(Refusal::invalid(message).param(param));
    }
    turn.choice = openai::choice(root);
    turn.stream = asking.verb == Operation::Stream
        || root.get("stream").and_then(Node::bool).unwrap_or(false);
    turn.tools = openai::tools(root, false);
    turn.parallel = root.present("parallel_tool_calls").and_then(Node::bool);
    // Endpoints without Seals always show thoughts.
    let summary = ["/reasoning/summary", "/reasoning/generate_summary"];
    let is_asked = summary.iter().any(|at| root.at(at).is_some_and(Node::is_string));
    turn.shows = house == StorageMode::Forgets || is_asked;
    turn.schema = match root.at("/text/format/type").and_then(Node::text).as_deref() {
        Some("json_schema") => root.at("/text/format/schema").map(openai::value),
        Some("json_object") => Some(Value::Bool(true)),
        Some(_) | None => None,
    };
    turn.max_tokens = root.get("max_output_tokens").and_then(Node::u64);
    Ok(())
}

/// Returns the conversation of the previous response.
fn earlier(
    root: Node<'_>,
    owner: Digest,
    house: StorageMode,
    world: &SimState,
) -> Result<Option<Arc<Vec<Json>>>, Refusal> {
    let resumed = root.present("previous_response_id").and_then(Node::text);
    if resumed.is_some() && root.present("conversation").is_some() {
        let message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.";
        return Err(Refusal::invalid(message).code("mutually_exclusive_parameters"));
    }
    let Some(id) = resumed else {
        let may_be_silent =
            ["conversation", "prompt"].iter().any(|key| root.present(key).is_some());
        let input = root.present("input").filter(|input| input.is_string() || input.is_array());
        return if input.is_some() || may_be_silent { Ok(None) } else { Err(missing("input")) };
    };
    let kept = world.stored.conversation(owner, &id).filter(|_| house != StorageMode::Forgets);
    kept.map(Some).ok_or_else(|| {
        let message = format!("Previous response with id '{id}' not found.");
        Refusal::invalid(message).param("previous_response_id").code("previous_response_not_found")
    })
}

/// Checks that reasoning and the item it led to come together or not at all.
fn pairs(said: &[InputItem], owner: Digest, world: &SimState) -> Result<(), Refusal> {
    for (at, element) in said.iter().enumerate() {
        let (Some(id), Some(_)) = (&element.id, element.at) else { continue };
        // An item that was never stored has no pair.
        let Some(kept) = world.stored.item(owner, id) else { continue };
        if element.kind == ItemKind::Reasoning {
            let mut rest = said.iter().skip(at + 1);
            let next = rest.find(|next| next.kind != ItemKind::Reasoning);
            let follows = kept.follows.as_ref();
            let is_paired = next.is_some_and(|next| {
                next.kind.is_model_output()
                    && next.id.is_some()
                    && follows.is_none_or(|follows| next.id.as_ref() == Some(follows))
            });
            if !is_paired {
                let message = format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                );
                return Err(Refusal::invalid(message).param("input"));
            }
            continue;
        }
        let Some(required) = &kept.requires else { continue };
        let reasoning = world.stored.item(owner, required).map(|kept| kept.json.clone());
        let sealed = |json: &Json| json.tree().root().name_of("encrypted_content");
        let sealed_as = reasoning.as_ref().and_then(sealed);
        let is_there = said.iter().take(at).any(|earlier| {
            earlier.kind == ItemKind::Reasoning
                && (earlier.id.as_ref() == Some(required)
                    || (sealed_as.is_some() && sealed(&earlier.json) == sealed_as))
        });
        if !is_there {
            let kind = element.text_of("type");
            let kind = if kind.is_empty() { "message" } else { kind.as_str() };
            let message = format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{required}'."
            );
            return Err(Refusal::invalid(message).param("input"));
        }
    }
    Ok(())
}

/// Checks that every call has an output, and every output a call.
fn answered(said: &[InputItem]) -> Result<(), Refusal> {
    let ids = |kinds: &[ItemKind]| -> HashSet<String> {
        let of_kind = said.iter().filter(|element| kinds.contains(&element.kind));
        of_kind.map(|element| element.text_of("call_id")).collect()
    };
    let calls = ids(&[ItemKind::Call, ItemKind::CustomCall]);
    let outputs = ids(&[ItemKind::Output, ItemKind::CustomOutput]);
    for element in said {
        let id = element.text_of("call_id");
        let words = match element.kind {
            ItemKind::Call if !outputs.contains(&id) => "No tool output found for function call",
            ItemKind::CustomCall if !outputs.contains(&id) => {
                "No tool output found for custom tool call"
            }
            ItemKind::Output if !calls.contains(&id) => {
                "No tool call found for function call output with call_id"
            }
            ItemKind::CustomOutput if !calls.contains(&id) => {
                "No tool call found for custom tool call output with call_id"
            }
            _ => continue,
        };
        return Err(Refusal::invalid(format!("{words} {id}.")).param("input"));
    }
    Ok(())
}

/// Checks that no message separates calls from their outputs (DeepSeek).
fn uninterrupted(said: &[InputItem]) -> Result<(), Refusal> {
    let mut waiting: Vec<String> = Vec::new();
    for element in said {
        match element.kind {
            ItemKind::Call | ItemKind::CustomCall => waiting.push(element.text_of("call_id")),
            ItemKind::Output | ItemKind::CustomOutput => {
                let id = element.text_of("call_id");
                waiting.retain(|call| *call != id);
            }
            ItemKind::Said | ItemKind::Answered => {
                if let Some(call) = waiting.first() {
                    let message = format!("No tool output found for tool call {call}.");
                    return Err(Refusal::invalid(message));
                }
            }
            ItemKind::Reasoning | ItemKind::Compaction | ItemKind::Reference | ItemKind::Other => {}
        }
    }
    Ok(())
}

/// Fills the turn from the conversation.
fn listen(turn: &mut Turn, root: Node<'_>, said: &[InputItem]) {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    turn.elements.extend(tools.map(cache::PromptElement::new));
    turn.elements.extend(root.present("instructions").map(cache::PromptElement::new));
    let mut was_models = false;
    for element in said {
        let tree = element.json.tree();
        let node = tree.root();
        turn.elements.push(cache::PromptElement::new(node));
        match element.kind {
            ItemKind::Said if node.get("role").is_some_and(|role| role.is("user")) => {
                turn.start_user_turn(openai::text(node.get("content")));
            }
            ItemKind::Call | ItemKind::CustomCall => {
                turn.called.push(element.text_of("name"));
                turn.owed.push(ReplyKey::Call(element.text_of("call_id")));
            }
            ItemKind::Output | ItemKind::CustomOutput => {
                turn.results.push(openai::text(node.get("output")));
            }
            ItemKind::Said
            | ItemKind::Answered
            | ItemKind::Reasoning
            | ItemKind::Compaction
            | ItemKind::Reference
            | ItemKind::Other => {}
        }
        let is_models = element.kind.is_model_output();
        turn.step += usize::from(is_models && !was_models);
        was_models = is_models;
    }
}
