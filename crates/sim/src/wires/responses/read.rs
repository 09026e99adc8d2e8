//! Reads Responses API requests: the settings, the conversation, and pairs of items that belong
//! together.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_json::{Json, Node};

use crate::cache::{PromptCache, PromptElement};
use crate::digest::Digest;
use crate::ledger::ReplyKey;
use crate::state::SimState;
use crate::turn::{Operation, Refusal, SimRequest, Turn, ensure};
use crate::wires::openai::{self, SettingPaths};
use crate::wires::responses::StorageMode;
use crate::wires::responses::input::{InputChecker, InputItem, ItemKind, elements};
use crate::wires::{Exchange, list, member_is};

const PATHS: SettingPaths = SettingPaths {
    nests_tools: false,
    format_type: "/text/format/type",
    format_schema: "/text/format/schema",
};

pub(super) fn read(exchange: &mut Exchange<'_>) -> Result<Turn, Refusal> {
    let (request, state) = (exchange.request, exchange.state);
    let root = request.body.root();
    ensure!(root.is_object(), "Invalid type for the request: expected an object.");
    if request.model.is_empty() {
        return Err(openai::missing("model"));
    }
    let mut turn = exchange.new_turn();
    let storage = StorageMode::from_provider(&request.row);
    read_settings(&mut turn, request, root, storage)?;
    let owner = owner(request);
    let before = earlier(root, owner, storage, state)?;
    let before = before.iter().flat_map(|items| items.iter());
    let mut items: Vec<InputItem> = before.map(|json| InputItem::new(json.clone(), None)).collect();
    items.extend(elements(root.present("input")));
    turn.compacts = check_compaction(request, &items)?;
    let checks_pairs = storage == StorageMode::Paired && stores(root);
    let mut checker =
        InputChecker { exchange, turn: &turn, storage, owner, checks_pairs, seen: Vec::new() };
    checker.check(&mut items)?;
    if checks_pairs {
        check_pairs(&items, owner, state)?;
    }
    // A stored conversation may contain the missing calls or outputs.
    if root.present("conversation").is_none() {
        check_outputs(&items)?;
    }
    if storage == StorageMode::Stateless {
        check_uninterrupted(&items)?;
    }
    apply_updates(&mut turn, &request.model, &items)?;
    add_tools(&mut turn, &items);
    fill_turn(&mut turn, root, &items);
    turn.compacts_first = request.row.dialect.compacts && reaches_threshold(&turn, root, &items)?;
    Ok(turn)
}

/// Returns whether the conversation since its last compaction reaches the threshold in
/// `context_management`.
fn reaches_threshold(turn: &Turn, root: Node<'_>, items: &[InputItem]) -> Result<bool, Refusal> {
    let mut threshold = None;
    for (at, entry) in list(root, "context_management").enumerate() {
        let param = format!("context_management[{at}].type");
        if !member_is(entry, "type", "compaction") {
            let message = format!("Invalid value for '{param}': expected 'compaction'.");
            return Err(Refusal::invalid(message).param(param).code("invalid_value"));
        }
        threshold = entry.present("compact_threshold").and_then(Node::u64);
    }
    let Some(threshold) = threshold else { return Ok(false) };
    let last = items.iter().rposition(|item| item.kind == ItemKind::Compaction);
    // The elements of the items come after those of the tools and the instructions.
    let replaced = last.map_or(0, |last| last + 1);
    let kept_before = turn.elements.len().saturating_sub(items.len());
    let elements = turn.elements.iter().enumerate();
    let rendered = elements.filter(|(at, _)| *at < kept_before || *at >= kept_before + replaced);
    let rendered: Vec<PromptElement> = rendered.map(|(_, element)| element.clone()).collect();
    Ok(PromptCache::count(&rendered) >= threshold && !turn.compacts)
}

/// Applies the settings of the configuration updates, in order.
fn apply_updates(turn: &mut Turn, model: &str, items: &[InputItem]) -> Result<(), Refusal> {
    for item in items.iter().filter(|item| item.kind == ItemKind::Configuration) {
        let tree = item.json.tree();
        let root = tree.root();
        if let Some(effort) = root.at("/reasoning/effort").and_then(Node::text) {
            let param = format!("input[{}].reasoning.effort", item.at.unwrap_or_default());
            openai::check_effort(&turn.target.profile, model, Some(&effort), &param)?;
            turn.thinks = openai::thinks(&turn.target.profile, Some(&effort));
        }
        if root.at(PATHS.format_type).is_some() {
            turn.schema = openai::schema(root, &PATHS);
        }
    }
    Ok(())
}

/// Adds the tools that input items offer. Codex sends its tools this way for recent models.
fn add_tools(turn: &mut Turn, items: &[InputItem]) {
    for item in items.iter().filter(|item| item.kind == ItemKind::Tools) {
        let tree = item.json.tree();
        let tools = list(tree.root(), "tools");
        turn.tools.extend(tools.flat_map(|tool| openai::parse_tools(tool, &PATHS)));
    }
}

/// Returns whether the request asks for a compaction. The trigger must be the last item.
fn check_compaction(request: &SimRequest, items: &[InputItem]) -> Result<bool, Refusal> {
    let is_endpoint = request.verb == Operation::Compact;
    if is_endpoint && !request.row.dialect.compacts {
        return Err(Refusal::new(404, "Not found"));
    }
    let is_trigger = |item: &InputItem| item.kind == ItemKind::Trigger;
    let Some(first) = items.iter().position(is_trigger) else { return Ok(is_endpoint) };
    let path = format!("input[{}]", items.get(first).and_then(|item| item.at).unwrap_or_default());
    if !request.row.dialect.compacts {
        let message = format!("Invalid value: 'compaction_trigger' at '{path}.type'.");
        return Err(Refusal::invalid(message).param(path).code("invalid_value"));
    }
    if is_endpoint || first + 1 != items.len() {
        let message = "The 'compaction_trigger' item must be the final input item.";
        return Err(Refusal::invalid(message).param(path).code("invalid_value"));
    }
    if first == 0 {
        let message = "The input contains nothing to compact.";
        return Err(Refusal::invalid(message).param("input").code("invalid_value"));
    }
    Ok(true)
}

/// Returns the conversation to store: the previous response's conversation, followed by the new
/// input.
pub(super) fn conversation(request: &SimRequest, state: &SimState) -> Vec<Json> {
    let (root, owner) = (request.body.root(), owner(request));
    let resumed = root.text_of("previous_response_id");
    let before = resumed.and_then(|id| state.stored.conversation(owner, &id));
    let added = elements(root.present("input")).into_iter().map(|element| {
        let is_reference = element.kind == ItemKind::Reference;
        let id = element.id.as_deref().filter(|_| is_reference);
        let stored = id.and_then(|id| state.stored.item(owner, id));
        stored.map_or(element.json, |stored| stored.json.clone())
    });
    before.iter().flat_map(|items| items.iter().cloned()).chain(added).collect()
}

/// Returns whether the response will be stored. Storage is on by default.
pub(super) fn stores(root: Node<'_>) -> bool {
    root.get("store").and_then(Node::bool).unwrap_or(true)
}

/// Returns the owner of stored responses: a digest of the account and the provider.
pub(super) fn owner(request: &SimRequest) -> Digest {
    request.account.and(request.row.name.as_bytes())
}

fn read_settings(
    turn: &mut Turn,
    request: &SimRequest,
    root: Node<'_>,
    storage: StorageMode,
) -> Result<(), Refusal> {
    openai::read_settings(turn, request, &PATHS);
    let profile = &turn.target.profile;
    let effort = root.at("/reasoning/effort").and_then(Node::text);
    openai::check_effort(profile, &request.model, effort.as_deref(), "reasoning.effort")?;
    turn.thinks = openai::thinks(profile, effort.as_deref());
    if let Some(param) = openai::fixed_sampling(turn, root) {
        let message = format!("Unsupported parameter: '{param}' is not supported with this model.");
        return Err(Refusal::invalid(message).param(param));
    }
    // Providers that issue no Seals always return readable thoughts.
    let summary = ["/reasoning/summary", "/reasoning/generate_summary"];
    let is_requested = summary.iter().any(|at| root.at(at).is_some_and(Node::is_string));
    turn.shows = storage == StorageMode::Stateless || is_requested;
    turn.max_tokens = root.get("max_output_tokens").and_then(Node::u64);
    Ok(())
}

/// Returns the stored conversation of the previous response.
fn earlier(
    root: Node<'_>,
    owner: Digest,
    storage: StorageMode,
    state: &SimState,
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
        let is_complete = input.is_some() || may_be_silent;
        return if is_complete { Ok(None) } else { Err(openai::missing("input")) };
    };
    let stored =
        state.stored.conversation(owner, &id).filter(|_| storage != StorageMode::Stateless);
    stored.map(Some).ok_or_else(|| {
        let message = format!("Previous response with id '{id}' not found.");
        Refusal::invalid(message).param("previous_response_id").code("previous_response_not_found")
    })
}

/// Checks pairs: a stored reasoning item and the item that followed it must both be present or both
/// be missing.
fn check_pairs(items: &[InputItem], owner: Digest, state: &SimState) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::invalid(message).param("input"));
    for (at, item) in items.iter().enumerate() {
        let (Some(id), Some(_)) = (&item.id, item.at) else { continue };
        // An item that was never stored is not checked.
        let Some(stored) = state.stored.item(owner, id) else { continue };
        if item.kind == ItemKind::Reasoning {
            let mut rest = items.iter().skip(at + 1);
            let next = rest.find(|next| next.kind != ItemKind::Reasoning);
            let is_following =
                |next: &String| stored.follows.as_ref().is_none_or(|following| following == next);
            let is_paired = next.is_some_and(|next| {
                next.kind.is_model_output() && next.id.as_ref().is_some_and(is_following)
            });
            if !is_paired {
                return refuse(format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                ));
            }
            continue;
        }
        let Some(required) = &stored.requires else { continue };
        let reasoning = state.stored.item(owner, required);
        let sealed = |json: &Json| json.tree().root().name_of("encrypted_content");
        let required_seal = reasoning.and_then(|reasoning| sealed(&reasoning.json));
        let is_there = items.iter().take(at).any(|earlier| {
            earlier.kind == ItemKind::Reasoning
                && (earlier.id.as_ref() == Some(required)
                    || (required_seal.is_some() && sealed(&earlier.json) == required_seal))
        });
        if !is_there {
            let kind = item.text_of("type");
            let kind = if kind.is_empty() { "message" } else { kind.as_str() };
            return refuse(format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{required}'."
            ));
        }
    }
    Ok(())
}

/// Checks that each call has an output, and that each output has a call.
fn check_outputs(items: &[InputItem]) -> Result<(), Refusal> {
    let ids = |is_included: fn(ItemKind) -> bool| -> HashSet<String> {
        let matching = items.iter().filter(|item| is_included(item.kind));
        matching.map(|item| item.text_of("call_id")).collect()
    };
    let (calls, outputs) = (ids(ItemKind::is_call), ids(ItemKind::is_output));
    for item in items {
        let id = item.text_of("call_id");
        let kind = if item.kind.is_custom() { "custom tool call" } else { "function call" };
        let problem = if item.kind.is_call() && !outputs.contains(&id) {
            format!("No tool output found for {kind} {id}.")
        } else if item.kind.is_output() && !calls.contains(&id) && !item.is_notification() {
            format!("No tool call found for {kind} output with call_id {id}.")
        } else {
            continue;
        };
        return Err(Refusal::invalid(problem).param("input"));
    }
    Ok(())
}

/// Checks that no message separates a call from its output, as DeepSeek requires.
fn check_uninterrupted(items: &[InputItem]) -> Result<(), Refusal> {
    let mut pending: Vec<String> = Vec::new();
    for item in items {
        let id = item.text_of("call_id");
        if item.kind.is_call() {
            pending.push(id);
        } else if item.kind.is_output() {
            pending.retain(|call| *call != id);
        } else if let (ItemKind::Message | ItemKind::Reply, Some(call)) =
            (item.kind, pending.first())
        {
            let message = format!("No tool output found for tool call {call}.");
            return Err(Refusal::invalid(message));
        }
    }
    Ok(())
}

fn fill_turn(turn: &mut Turn, root: Node<'_>, items: &[InputItem]) {
    turn.elements.extend(list(root, "tools").map(PromptElement::new));
    turn.elements.extend(root.present("instructions").map(PromptElement::new));
    let mut was_models = false;
    for item in items {
        let tree = item.json.tree();
        let node = tree.root();
        turn.elements.push(PromptElement::new(node));
        if item.kind == ItemKind::Message && member_is(node, "role", "user") {
            turn.start_user_turn(openai::text(node.get("content")));
        } else if item.kind.is_call() {
            turn.called.push(item.text_of("name"));
            turn.expected_replies.push(ReplyKey::Call(item.text_of("call_id")));
        } else if item.kind.is_output() && !item.is_notification() {
            turn.results.push(openai::text(node.get("output")));
        }
        turn.compacted |= item.kind == ItemKind::Compaction;
        let is_models = item.kind.is_model_output();
        turn.step += usize::from(is_models && !was_models);
        was_models = is_models;
    }
}
