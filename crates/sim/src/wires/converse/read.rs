//! Reads Converse requests as strictly as Bedrock and its models do.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{ForcedTools, Profile};
use throughline_json::Node;

use crate::digest::canonical_bytes;
use crate::turn::{OfferedTool, Operation, Refusal, ToolChoice, Turn, ensure};
use crate::wires::claude::settings::Settings;
use crate::wires::claude::{self, Block, Dialogue, Message, Role, is_claude};
use crate::wires::{Exchange, list, parsed, string};

pub(super) fn read(exchange: &mut Exchange<'_>) -> Result<Turn, Refusal> {
    let request = exchange.request;
    let root = request.body.root();
    // A token-count request wraps the Converse request.
    let counted = root.at("/input/converse").filter(|_| request.verb == Operation::Count);
    let body = counted.unwrap_or(root);
    let mut turn = exchange.new_turn();
    let profile = Arc::clone(&turn.target.profile);
    let dialogue = dialogue(body)?;
    check_texts(&dialogue)?;
    let settings = settings(body);
    check_calls(&dialogue)?;
    if is_claude(&profile) {
        let checked =
            claude::check(exchange, &mut turn, &dialogue, &settings, forced_tools(&profile));
        // Bedrock wraps errors from the model.
        checked.map_err(|refusal| {
            let message = format!("The model returned the following errors: {}", refusal.message);
            Refusal { message, ..refusal }
        })?;
    } else if profile.notes.get("empty-signature").is_some_and(|rule| rule == "refused") {
        check_signatures(&dialogue)?;
    }
    turn.stream = request.verb == Operation::Stream;
    turn.tools = tools(body).filter_map(parse_tool).collect();
    // Nova models have their own setting for thinking.
    let kind = body.at("/additionalModelRequestFields/reasoningConfig/type").and_then(Node::text);
    turn.thinks = match kind {
        Some(kind) => kind == "enabled",
        None => settings.thinks(&profile, dialogue.is_in_loop()),
    };
    turn.elements = claude::elements(tools(body), system(body), &settings, list(body, "messages"));
    dialogue.fill_turn(&mut turn, settings);
    Ok(turn)
}

/// Returns the rule for forced tools. The rule may be stricter on Bedrock than on the vendor's own
/// API.
fn forced_tools(profile: &Profile) -> ForcedTools {
    match profile.notes.get("forced-tools-on-bedrock").map(String::as_str) {
        Some("refused-while-thinking") => ForcedTools::RefusedWhileThinking,
        Some(_) | None => profile.forced_tools,
    }
}

fn check_texts(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, index, block) in dialogue.blocks() {
        ensure!(
            !matches!(block, Block::Text(text) if text.trim().is_empty()),
            "The text field in the ContentBlock object at messages.{number}.content.{index} is \
             blank. Add text to the text field, and try again."
        );
    }
    Ok(())
}

/// Rejects empty signatures. Used for models that do not sign.
fn check_signatures(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, index, block) in dialogue.blocks() {
        ensure!(
            !matches!(block, Block::Thinking { signature: Some(s), .. } if s.is_empty()),
            "The signature field in the ReasoningTextBlock object at \
             messages.{number}.content.{index}.reasoningContent.reasoningText is blank. Add a \
             value to the signature field, or remove it, and try again."
        );
    }
    Ok(())
}

/// Checks that each call has one result in the next message, and that each result has a call in the
/// previous message.
fn check_calls(dialogue: &Dialogue) -> Result<(), Refusal> {
    for unpaired in dialogue.unpaired_tools() {
        let number = unpaired.number;
        ensure!(
            unpaired.unanswered.is_empty(),
            "Expected toolResult blocks at messages.{}.content for the following Ids: {}",
            number + 1,
            unpaired.unanswered.join(", ")
        );
        ensure!(
            unpaired.unexpected.is_none() && unpaired.repeated.is_none(),
            "The number of toolResult blocks at messages.{number}.content exceeds the number of \
             toolUse blocks of previous turn."
        );
    }
    Ok(())
}

fn settings(body: Node<'_>) -> Settings<'_> {
    let fields = body.present("additionalModelRequestFields");
    let field = |key: &str| fields.and_then(|fields| fields.present(key));
    let inference = body.present("inferenceConfig");
    let inference = |key: &str| inference.and_then(|inference| inference.present(key));
    let betas = fields.into_iter().flat_map(|fields| list(fields, "anthropic_beta"));
    Settings {
        thinking: field("thinking"),
        effort: field("output_config").and_then(|config| string(config, "effort")),
        max_tokens: inference("maxTokens").and_then(Node::u64),
        temperature: inference("temperature"),
        top_p: inference("topP"),
        top_k: field("top_k"),
        choice: choice(body),
        has_tools: tools(body).next().is_some(),
        betas: betas.filter_map(Node::text).map(Cow::into_owned).collect(),
        message_efforts: Vec::new(),
        compacts: false,
    }
}

fn choice(body: Node<'_>) -> ToolChoice {
    let Some(choice) = body.at("/toolConfig/toolChoice") else { return ToolChoice::Auto };
    if choice.present("any").is_some() {
        return ToolChoice::Any;
    }
    let named = choice.present("tool").and_then(|tool| string(tool, "name"));
    named.map_or(ToolChoice::Auto, ToolChoice::Tool)
}

/// Iterates over the tools, without cache markers.
fn tools(body: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let tools = body.get("toolConfig").into_iter().flat_map(|config| list(config, "tools"));
    tools.filter(|tool| tool.get("cachePoint").is_none())
}

fn parse_tool(tool: Node<'_>) -> Option<OfferedTool> {
    let spec = tool.present("toolSpec")?;
    let schema = parsed(spec.at("/inputSchema/json")?)?;
    Some(OfferedTool::new(string(spec, "name")?, schema))
}

/// Iterates over the system prompt blocks, without cache markers.
fn system(body: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    list(body, "system").filter(|block| block.get("cachePoint").is_none())
}

/// Converts the conversation to the form shared by all wires that serve Claude.
fn dialogue(body: Node<'_>) -> Result<Dialogue, Refusal> {
    let mut messages = Vec::new();
    for (number, message) in list(body, "messages").enumerate() {
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
        messages.push(Message { role, blocks: list(message, "content").map(block).collect() });
    }
    ensure!(
        !messages.is_empty(),
        "A conversation must start with a user message. Try again with a conversation that starts \
         with a user message."
    );
    let system = list(body, "system").filter_map(|block| block.text_of("text"));
    let system = system.collect::<Vec<_>>().join("\u{0}");
    Ok(Dialogue::new(&system, body.at("/toolConfig/tools"), messages))
}

fn block(block: Node<'_>) -> Block {
    let text = |node: Node<'_>, key: &str| string(node, key).unwrap_or_default();
    let untyped = |key: &str| block.present(key).filter(|node| node.get("type").is_none());
    if let Some(text) = string(block, "text") {
        return Block::Text(text);
    }
    if let Some(reasoning) = block.present("reasoningContent") {
        return match reasoning.present("reasoningText") {
            Some(thought) => Block::Thinking {
                text: text(thought, "text"),
                signature: string(thought, "signature"),
            },
            None => Block::Redacted { data: string(reasoning, "redactedContent") },
        };
    }
    if let Some(call) = untyped("toolUse") {
        return Block::call(text(call, "toolUseId"), text(call, "name"), call.get("input"));
    }
    if let Some(answer) = untyped("toolResult") {
        let texts = list(answer, "content").filter_map(|part| match string(part, "text") {
            Some(text) => Some(text),
            None => Some(String::from_utf8_lossy(part.get("json")?.raw()).into_owned()),
        });
        return Block::Answer {
            id: text(answer, "toolUseId"),
            text: texts.collect::<Vec<_>>().join("\n"),
            content: canonical_bytes(answer),
        };
    }
    let kind = block.members().next().and_then(|(name, _)| name.text()).unwrap_or_default();
    // Cache markers have no content, so that they do not affect Seals.
    let content = if kind == "cachePoint" { Vec::new() } else { canonical_bytes(block) };
    Block::Other { kind: kind.into_owned(), content }
}
