//! Reads Converse requests as strictly as Bedrock and its models do.

use std::borrow::Cow;

use throughline_core::{ForcedTools, Profile};
use throughline_json::Node;

use crate::cache::PromptElement;
use crate::digest::{Digest, canonical_bytes};
use crate::turn::{OfferedTool, Operation, Refusal, ToolChoice, Turn};
use crate::wires::Exchange;
use crate::wires::claude::settings::{self, Settings};
use crate::wires::claude::{Block, Dialogue, Message, Role, is_claude, seals, structure};

/// Reads a request or returns the provider's error.
pub(super) fn read(exchange: Exchange<'_>) -> Result<Turn, Refusal> {
    let Exchange { asking, world, record } = exchange;
    let root = asking.body.root();
    // The operation that counts tokens wraps the request in one of several input kinds.
    let counted = root.at("/input/converse").filter(|_| asking.verb == Operation::Count);
    let body = counted.unwrap_or(root);
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let profile = std::sync::Arc::clone(&target.profile);
    let dialogue = dialogue(body)?;
    check_texts(&dialogue)?;
    let settings = settings_of(body);
    let mut turn = Turn::new(target);
    check_calls(&dialogue)?;
    if is_claude(&profile) {
        settings::check(&settings, &profile, forced_tools(&profile)).map_err(passed_on)?;
        structure::check(&dialogue, &profile, settings.requested_thinking()).map_err(passed_on)?;
        let checked = seals::check(&dialogue, &settings, &profile, asking, world, record);
        let checked = checked.map_err(passed_on)?;
        turn.behind = checked.behind;
        turn.notices = checked.notices;
        turn.demoted = dialogue.has_thoughts_as_text(world);
        turn.config = Some(settings.config());
    } else if profile.notes.get("empty-signature").is_some_and(|rule| rule == "refused") {
        check_signatures(&dialogue)?;
    }
    turn.stream = asking.verb == Operation::Stream;
    turn.tools = tools(body);
    turn.thinks = thinks(&settings, &profile, body, &dialogue);
    turn.shows = settings.shows(&profile);
    turn.max_tokens = settings.max_tokens;
    dialogue.fill_turn(&mut turn);
    turn.elements = elements(body, &settings);
    turn.choice = settings.choice;
    Ok(turn)
}

/// Wraps a model's error as Bedrock does.
fn passed_on(refusal: Refusal) -> Refusal {
    let message = format!("The model returned the following errors: {}", refusal.message);
    Refusal { message, ..refusal }
}

/// Returns the rule for forced tools; Bedrock is stricter than the model's vendor.
fn forced_tools(profile: &Profile) -> ForcedTools {
    match profile.notes.get("forced-tools-on-bedrock").map(String::as_str) {
        Some("refused-while-thinking") => ForcedTools::RefusedWhileThinking,
        Some(_) | None => profile.forced_tools,
    }
}

/// Returns whether the model thinks. Nova has its own switch.
fn thinks(settings: &Settings<'_>, profile: &Profile, body: Node<'_>, dialogue: &Dialogue) -> bool {
    let own = body.at("/additionalModelRequestFields/reasoningConfig/type");
    match own.and_then(Node::text).as_deref() {
        Some("enabled") => true,
        Some(_) => false,
        None => settings.thinks(profile, dialogue.is_in_loop()),
    }
}

fn check_texts(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, message) in dialogue.messages.iter().enumerate() {
        for (place, block) in message.blocks.iter().enumerate() {
            if matches!(block, Block::Text(text) if text.trim().is_empty()) {
                return Err(Refusal::invalid(format!(
                    "The text field in the ContentBlock object at messages.{number}.content.{place} \
                     is blank. Add text to the text field, and try again."
                )));
            }
        }
    }
    Ok(())
}

/// Rejects empty signatures for models that do not sign.
fn check_signatures(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, message) in dialogue.messages.iter().enumerate() {
        for (place, block) in message.blocks.iter().enumerate() {
            if matches!(block, Block::Thinking { signature: Some(s), .. } if s.is_empty()) {
                return Err(Refusal::invalid(format!(
                    "The signature field in the ReasoningTextBlock object at \
                     messages.{number}.content.{place}.reasoningContent.reasoningText is blank. Add \
                     a value to the signature field, or remove it, and try again."
                )));
            }
        }
    }
    Ok(())
}

/// Checks that each call has a result in the next message, and each result a call in the previous
/// one.
fn check_calls(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, message) in dialogue.messages.iter().enumerate() {
        let next = dialogue.messages.get(number + 1);
        let is_answered =
            |call: &str| next.is_some_and(|next| next.answers().any(|(_, answer)| answer == call));
        let unanswered: Vec<&str> = message.calls().filter(|call| !is_answered(call)).collect();
        if message.role == Role::Assistant && !unanswered.is_empty() {
            return Err(Refusal::invalid(format!(
                "Expected toolResult blocks at messages.{}.content for the following Ids: {}",
                number + 1,
                unanswered.join(", ")
            )));
        }
        let before = number.checked_sub(1).and_then(|before| dialogue.messages.get(before));
        let is_asked =
            |answer: &str| before.is_some_and(|before| before.calls().any(|call| call == answer));
        if message.answers().any(|(_, answer)| !is_asked(answer)) {
            return Err(Refusal::invalid(format!(
                "The number of toolResult blocks at messages.{number}.content exceeds the number of \
                 toolUse blocks of previous turn."
            )));
        }
    }
    Ok(())
}

fn settings_of(body: Node<'_>) -> Settings<'_> {
    let own = body.present("additionalModelRequestFields");
    let inference = body.present("inferenceConfig");
    let text = |node: Node<'_>| node.text().map(Cow::into_owned);
    let betas = own.and_then(|own| own.get("anthropic_beta"));
    Settings {
        thinking: own.and_then(|own| own.present("thinking")),
        effort: own.and_then(|own| own.at("/output_config/effort")).and_then(text),
        max_tokens: inference.and_then(|i| i.get("maxTokens")).and_then(Node::u64),
        temperature: inference.and_then(|i| i.present("temperature")),
        top_p: inference.and_then(|i| i.present("topP")),
        top_k: own.and_then(|own| own.present("top_k")),
        choice: choice(body),
        has_tools: listed_tools(body).next().is_some(),
        betas: betas.into_iter().flat_map(Node::elements).filter_map(text).collect(),
    }
}

fn choice(body: Node<'_>) -> ToolChoice {
    let Some(choice) = body.at("/toolConfig/toolChoice") else { return ToolChoice::Auto };
    if choice.present("any").is_some() {
        return ToolChoice::Any;
    }
    let named = choice.present("tool").and_then(|tool| tool.text_of("name"));
    named.map_or(ToolChoice::Auto, |name| ToolChoice::Tool(name.into_owned()))
}

fn listed_tools(body: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let tools = body.at("/toolConfig/tools").into_iter().flat_map(Node::elements);
    tools.filter(|tool| tool.get("cachePoint").is_none())
}

fn tools(body: Node<'_>) -> Vec<OfferedTool> {
    listed_tools(body)
        .filter_map(|tool| {
            let spec = tool.present("toolSpec")?;
            let schema = serde_json::from_slice(spec.at("/inputSchema/json")?.raw()).ok()?;
            Some(OfferedTool { name: spec.text_of("name")?.into_owned(), schema, custom: false })
        })
        .collect()
}

/// Lists tools, system prompt, thinking settings and messages in rendering order.
fn elements(body: Node<'_>, settings: &Settings<'_>) -> Vec<PromptElement> {
    let mut elements: Vec<PromptElement> = listed_tools(body).map(PromptElement::new).collect();
    let system = body.get("system").into_iter().flat_map(Node::elements);
    elements.extend(system.filter(|s| s.get("cachePoint").is_none()).map(PromptElement::new));
    elements.push(PromptElement::from_setting(&settings.rendered()));
    let messages = body.get("messages").into_iter().flat_map(Node::elements);
    elements.extend(messages.map(PromptElement::new));
    elements
}

/// Converts the conversation to the form that all Claude wires share.
fn dialogue(body: Node<'_>) -> Result<Dialogue, Refusal> {
    let mut messages = Vec::new();
    let listed = body.get("messages").into_iter().flat_map(Node::elements);
    for (number, message) in listed.enumerate() {
        let role = match message.text_of("role").as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some(_) | None => {
                return Err(Refusal::invalid(format!(
                    "1 validation error detected: Value at 'messages.{}.member.role' failed to \
                     satisfy constraint: Member must satisfy enum value set: [user, assistant]",
                    number + 1
                )));
            }
        };
        let content = message.present("content").into_iter().flat_map(Node::elements);
        messages.push(Message { role, blocks: content.map(block).collect() });
    }
    if messages.is_empty() {
        return Err(Refusal::invalid(
            "A conversation must start with a user message. Try again with a conversation that \
             starts with a user message.",
        ));
    }
    let system = body.get("system").into_iter().flat_map(Node::elements);
    let texts: Vec<Cow<'_, str>> = system.filter_map(|block| block.text_of("text")).collect();
    let tools = body.at("/toolConfig/tools").map(canonical_bytes).unwrap_or_default();
    Ok(Dialogue {
        system: Digest::new("throughline-sim system", texts.join("\u{0}")),
        tools: Digest::new("throughline-sim tools", tools),
        messages,
    })
}

fn block(block: Node<'_>) -> Block {
    let owned = |node: Node<'_>, key: &str| node.text_of(key).map(Cow::into_owned);
    if let Some(text) = owned(block, "text") {
        return Block::Text(text);
    }
    if let Some(reasoning) = block.present("reasoningContent") {
        if let Some(text) = reasoning.present("reasoningText") {
            return Block::Thinking {
                text: owned(text, "text").unwrap_or_default(),
                signature: owned(text, "signature"),
            };
        }
        return Block::Redacted { data: owned(reasoning, "redactedContent") };
    }
    if let Some(call) = block.present("toolUse").filter(|call| call.get("type").is_none()) {
        let id = owned(call, "toolUseId").unwrap_or_default();
        let name = owned(call, "name").unwrap_or_default();
        let input = call.get("input").map(canonical_bytes).unwrap_or_default();
        let said = [id.as_bytes(), name.as_bytes(), &input].join(&0);
        return Block::Call { id, name, said };
    }
    if let Some(answer) = block.present("toolResult").filter(|answer| answer.get("type").is_none())
    {
        let parts = answer.get("content").into_iter().flat_map(Node::elements);
        let texts = parts.filter_map(|part| match owned(part, "text") {
            Some(text) => Some(text),
            None => Some(String::from_utf8_lossy(part.get("json")?.raw()).into_owned()),
        });
        return Block::Answer {
            id: owned(answer, "toolUseId").unwrap_or_default(),
            text: texts.collect::<Vec<_>>().join("\n"),
            said: canonical_bytes(answer),
        };
    }
    let kind = block.members().next().and_then(|(name, _)| name.text()).unwrap_or_default();
    // A cache marker has no content.
    let said = if kind == "cachePoint" { Vec::new() } else { canonical_bytes(block) };
    Block::Other { kind: kind.into_owned(), said }
}
