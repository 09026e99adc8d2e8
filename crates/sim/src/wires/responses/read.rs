//! Requests, read: the settings, the conversation, and whether its elements belong together.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use throughline_core::{Json, Node};

use crate::cache;
use crate::digest::Mark;
use crate::ledger::{Landmark, Record};
use crate::turn::{Asking, Refusal, Turn, Verb};
use crate::wires::openai;
use crate::wires::responses::House;
use crate::wires::responses::input::{Element, Inspector, Kind, elements};
use crate::world::World;

/// Reads a request.
pub(super) fn read(asking: &Asking, world: &World, record: &mut Record) -> Result<Turn, Refusal> {
    let root = asking.body.root();
    if !root.is_object() {
        return Err(Refusal::invalid("Invalid type for the request: expected an object."));
    }
    if asking.model.is_empty() {
        return Err(missing("model"));
    }
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let mut turn = Turn::new(target);
    let house = House::of(&asking.row);
    settings(&mut turn, asking, root, house)?;
    let owner = owner(asking);
    let before = earlier(root, owner, house, world)?;
    let mut said: Vec<Element> = before
        .iter()
        .flat_map(|items| items.iter())
        .map(|json| Element::new(json.clone(), None))
        .collect();
    said.extend(elements(root.present("input")));
    let inspector = Inspector { asking, world, turn: &turn, house, owner, stores: stores(root) };
    inspector.check(&mut said, record)?;
    if house == House::Pairs && stores(root) {
        pairs(&said, owner, world)?;
    }
    // A conversation that is kept elsewhere may hold the other half.
    if root.present("conversation").is_none() {
        answered(&said)?;
    }
    if house == House::Forgets {
        uninterrupted(&said)?;
    }
    listen(&mut turn, root, &said);
    Ok(turn)
}

/// Everything that was said, for keeping it: what the response goes on from, and what the request adds.
pub(super) fn conversation(asking: &Asking, world: &World) -> Vec<Json> {
    let (root, owner) = (asking.body.root(), owner(asking));
    let resumed = root.text_of("previous_response_id");
    let before = resumed.and_then(|id| world.stored.conversation(owner, &id));
    let added = elements(root.present("input")).into_iter().map(|element| {
        let is_reference = element.kind == Kind::Reference;
        let id = element.id.as_deref().filter(|_| is_reference);
        let kept = id.and_then(|id| world.stored.item(owner, id));
        kept.map_or(element.json, |kept| kept.json.clone())
    });
    before.iter().flat_map(|items| items.iter().cloned()).chain(added).collect()
}

/// Whether the response is kept.
pub(super) fn stores(root: Node<'_>) -> bool {
    root.get("store").and_then(Node::bool).unwrap_or(true)
}

/// Whose shelf a request looks on.
pub(super) fn owner(asking: &Asking) -> Mark {
    asking.account.and(asking.row.name.as_bytes())
}

fn missing(param: &str) -> Refusal {
    let message = format!("Missing required parameter: '{param}'.");
    Refusal::invalid(message).param(param).code("missing_required_parameter")
}

fn settings(turn: &mut Turn, asking: &Asking, root: Node<'_>, house: House) -> Result<(), Refusal> {
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
    turn.stream =
        asking.verb == Verb::Stream || root.get("stream").and_then(Node::bool).unwrap_or(false);
    turn.tools = openai::tools(root, false);
    turn.parallel = root.present("parallel_tool_calls").and_then(Node::bool);
    // An endpoint that seals nothing shows what was thought.
    let summary = ["/reasoning/summary", "/reasoning/generate_summary"];
    let is_asked = summary.iter().any(|at| root.at(at).is_some_and(Node::is_string));
    turn.shows = house == House::Forgets || is_asked;
    turn.schema = match root.at("/text/format/type").and_then(Node::text).as_deref() {
        Some("json_schema") => root.at("/text/format/schema").map(openai::value),
        Some("json_object") => Some(Value::Bool(true)),
        Some(_) | None => None,
    };
    turn.max_tokens = root.get("max_output_tokens").and_then(Node::u64);
    Ok(())
}

/// What the response that the request goes on from had heard and said.
fn earlier(
    root: Node<'_>,
    owner: Mark,
    house: House,
    world: &World,
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
    let kept = world.stored.conversation(owner, &id).filter(|_| house != House::Forgets);
    kept.map(Some).ok_or_else(|| {
        let message = format!("Previous response with id '{id}' not found.");
        Refusal::invalid(message).param("previous_response_id").code("previous_response_not_found")
    })
}

/// Reasoning and what it led to come together or not at all.
fn pairs(said: &[Element], owner: Mark, world: &World) -> Result<(), Refusal> {
    for (at, element) in said.iter().enumerate() {
        let (Some(id), Some(_)) = (&element.id, element.at) else { continue };
        // What was never kept has no pair: its id resolves to nothing.
        let Some(kept) = world.stored.item(owner, id) else { continue };
        if element.kind == Kind::Reasoning {
            let mut rest = said.iter().skip(at + 1);
            let next = rest.find(|next| next.kind != Kind::Reasoning);
            let follows = kept.follows.as_ref();
            let is_paired = next.is_some_and(|next| {
                next.kind.is_models()
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
            earlier.kind == Kind::Reasoning
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

/// Every call has an output, and every output a call.
fn answered(said: &[Element]) -> Result<(), Refusal> {
    let ids = |kinds: &[Kind]| -> HashSet<String> {
        let of_kind = said.iter().filter(|element| kinds.contains(&element.kind));
        of_kind.map(|element| element.text_of("call_id")).collect()
    };
    let calls = ids(&[Kind::Call, Kind::CustomCall]);
    let outputs = ids(&[Kind::Output, Kind::CustomOutput]);
    for element in said {
        let id = element.text_of("call_id");
        let words = match element.kind {
            Kind::Call if !outputs.contains(&id) => "No tool output found for function call",
            Kind::CustomCall if !outputs.contains(&id) => {
                "No tool output found for custom tool call"
            }
            Kind::Output if !calls.contains(&id) => {
                "No tool call found for function call output with call_id"
            }
            Kind::CustomOutput if !calls.contains(&id) => {
                "No tool call found for custom tool call output with call_id"
            }
            _ => continue,
        };
        return Err(Refusal::invalid(format!("{words} {id}.")).param("input"));
    }
    Ok(())
}

/// DeepSeek: nothing is said between the calls of one batch and their outputs.
fn uninterrupted(said: &[Element]) -> Result<(), Refusal> {
    let mut waiting: Vec<String> = Vec::new();
    for element in said {
        match element.kind {
            Kind::Call | Kind::CustomCall => waiting.push(element.text_of("call_id")),
            Kind::Output | Kind::CustomOutput => {
                let id = element.text_of("call_id");
                waiting.retain(|call| *call != id);
            }
            Kind::Said | Kind::Answered => {
                if let Some(call) = waiting.first() {
                    let message = format!("No tool output found for tool call {call}.");
                    return Err(Refusal::invalid(message));
                }
            }
            Kind::Reasoning | Kind::Compaction | Kind::Reference | Kind::Other => {}
        }
    }
    Ok(())
}

/// Notes what was said, and how it was written.
fn listen(turn: &mut Turn, root: Node<'_>, said: &[Element]) {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    turn.elements.extend(tools.map(cache::Element::of));
    turn.elements.extend(root.present("instructions").map(cache::Element::of));
    let mut was_models = false;
    for element in said {
        let tree = element.json.tree();
        let node = tree.root();
        turn.elements.push(cache::Element::of(node));
        match element.kind {
            Kind::Said if node.get("role").is_some_and(|role| role.is("user")) => {
                turn.user_said(openai::text(node.get("content")));
            }
            Kind::Call | Kind::CustomCall => {
                turn.called.push(element.text_of("name"));
                turn.owed.push(Landmark::Call(element.text_of("call_id")));
            }
            Kind::Output | Kind::CustomOutput => {
                turn.results.push(openai::text(node.get("output")));
            }
            Kind::Said
            | Kind::Answered
            | Kind::Reasoning
            | Kind::Compaction
            | Kind::Reference
            | Kind::Other => {}
        }
        let is_models = element.kind.is_models();
        turn.step += usize::from(is_models && !was_models);
        was_models = is_models;
    }
}
