//! Reads Messages API requests as strictly as Anthropic does.

use throughline_json::{JsonKind, Node};

use crate::cache::PromptElement;
use crate::digest::{Digest, canonical_bytes};
use crate::turn::{OfferedTool, Operation, Refusal, SimRequest, ToolChoice, Turn};
use crate::wires::Exchange;
use crate::wires::claude::settings::{self, Settings};
use crate::wires::claude::{Block, Dialogue, Message, Role, is_claude, seals, structure};

/// Reads a request or returns the provider's error.
pub(super) fn read(exchange: Exchange<'_>) -> Result<Turn, Refusal> {
    let Exchange { asking, world, record } = exchange;
    let body = asking.body.root();
    check_body(asking, body)?;
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let profile = std::sync::Arc::clone(&target.profile);
    let dialogue = dialogue(body)?;
    let settings = settings_of(asking, body);
    let mut turn = Turn::new(target);
    if is_claude(&profile) {
        check_extras(body)?;
        settings::check(&settings, &profile, profile.forced_tools)?;
        for effort in message_efforts(body) {
            settings::check_effort(&effort, &profile)?;
        }
        structure::check(&dialogue, &profile, settings.requested_thinking())?;
        let checked = seals::check(&dialogue, &settings, &profile, asking, world, record)?;
        turn.behind = checked.behind;
        turn.notices = checked.notices;
        turn.demoted = dialogue.has_thoughts_as_text(world);
        turn.config = Some(settings.config());
    }
    turn.stream = body.get("stream").and_then(Node::bool) == Some(true);
    turn.tools = tools(body);
    turn.parallel = body
        .at("/tool_choice/disable_parallel_tool_use")
        .and_then(Node::bool)
        .and_then(|is_disabled| is_disabled.then_some(false));
    turn.thinks = settings.thinks(&profile, dialogue.is_in_loop());
    turn.shows = settings.shows(&profile);
    turn.schema = schema(body);
    turn.max_tokens = settings.max_tokens;
    dialogue.fill_turn(&mut turn);
    turn.elements = elements(body, &settings);
    turn.choice = settings.choice;
    Ok(turn)
}

/// Checks the members that every request must have.
fn check_body(asking: &SimRequest, body: Node<'_>) -> Result<(), Refusal> {
    if !body.is_object() {
        return Err(Refusal::invalid("Input should be a valid dictionary"));
    }
    if asking.model.is_empty() {
        return Err(Refusal::invalid("model: Field required"));
    }
    let Some(messages) = body.get("messages") else {
        return Err(Refusal::invalid("messages: Field required"));
    };
    if !messages.is_array() {
        return Err(Refusal::invalid("messages: Input should be a valid list"));
    }
    if messages.elements().next().is_none() {
        return Err(Refusal::invalid("messages: at least one message is required"));
    }
    if asking.verb != Operation::Count && body.get("max_tokens").and_then(Node::u64).is_none() {
        return Err(Refusal::invalid("max_tokens: Field required"));
    }
    Ok(())
}

/// Checks members that only Claude's own endpoints support.
fn check_extras(body: Node<'_>) -> Result<(), Refusal> {
    if body.present("compaction").is_some() && body.present("context_management").is_some() {
        return Err(Refusal::invalid(
            "compaction: cannot be combined with `context_management`. Set only one of them.",
        ));
    }
    let messages = body.get("messages").into_iter().flat_map(Node::elements);
    for (number, message) in messages.enumerate() {
        let blocks = message.get("content").into_iter().flat_map(Node::elements);
        for (place, block) in blocks.enumerate() {
            let is_compaction = block.get("type").is_some_and(|kind| kind.is("compaction"));
            if is_compaction && block.get("content").is_some_and(|content| content.is("")) {
                return Err(Refusal::invalid(format!(
                    "messages.{number}.content.{place}.compaction.content: String should have at \
                     least 1 character"
                )));
            }
        }
    }
    Ok(())
}

/// Returns the efforts set by system messages within the conversation.
fn message_efforts(body: Node<'_>) -> Vec<String> {
    let messages = body.get("messages").into_iter().flat_map(Node::elements);
    let efforts = messages.filter_map(|message| message.at("/output_config/effort")?.text());
    efforts.map(std::borrow::Cow::into_owned).collect()
}

fn settings_of<'t>(asking: &SimRequest, body: Node<'t>) -> Settings<'t> {
    let headers = asking.headers.get_all("anthropic-beta");
    let listed = headers.iter().filter_map(|value| value.to_str().ok());
    let betas = listed.flat_map(|list| list.split(',')).map(|beta| beta.trim().to_owned());
    Settings {
        thinking: body.present("thinking"),
        effort: body
            .at("/output_config/effort")
            .and_then(Node::text)
            .map(std::borrow::Cow::into_owned),
        max_tokens: body.get("max_tokens").and_then(Node::u64),
        temperature: body.present("temperature"),
        top_p: body.present("top_p"),
        top_k: body.present("top_k"),
        choice: choice(body),
        has_tools: body.get("tools").is_some_and(|tools| tools.elements().next().is_some()),
        betas: betas.collect(),
    }
}

fn choice(body: Node<'_>) -> ToolChoice {
    let choice = body.present("tool_choice");
    let kind = choice.and_then(|choice| choice.text_of("type"));
    match kind.as_deref() {
        Some("any") => ToolChoice::Any,
        Some("none") => ToolChoice::Never,
        Some("tool") => {
            let name = choice.and_then(|choice| choice.text_of("name")).unwrap_or_default();
            ToolChoice::Tool(name.into_owned())
        }
        Some(_) | None => ToolChoice::Auto,
    }
}

/// Returns the client's tools: those with a schema.
fn tools(body: Node<'_>) -> Vec<OfferedTool> {
    let tools = body.get("tools").into_iter().flat_map(Node::elements);
    tools
        .filter_map(|tool| {
            let schema = serde_json::from_slice(tool.present("input_schema")?.raw()).ok()?;
            Some(OfferedTool { name: tool.text_of("name")?.into_owned(), schema, custom: false })
        })
        .collect()
}

fn schema(body: Node<'_>) -> Option<serde_json::Value> {
    let format = body.at("/output_config/format").or_else(|| body.get("output_format"))?;
    serde_json::from_slice(format.present("schema")?.raw()).ok()
}

/// Lists tools, system prompt, thinking settings and messages in rendering order.
fn elements(body: Node<'_>, settings: &Settings<'_>) -> Vec<PromptElement> {
    let tools = body.get("tools").into_iter().flat_map(Node::elements);
    let mut elements: Vec<PromptElement> = tools.map(PromptElement::new).collect();
    if let Some(system) = body.present("system") {
        match system.shape() {
            JsonKind::Array => elements.extend(system.elements().map(PromptElement::new)),
            JsonKind::Null
            | JsonKind::Bool
            | JsonKind::Number
            | JsonKind::String
            | JsonKind::Object => {
                elements.push(PromptElement::new(system));
            }
        }
    }
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
            Some("system") => Role::System,
            Some(other) => {
                return Err(Refusal::invalid(format!(
                    "messages.{number}.role: Unexpected role \"{other}\". Allowed roles are \
                     \"user\" or \"assistant\"."
                )));
            }
            None => {
                return Err(Refusal::invalid(format!("messages.{number}.role: Field required")));
            }
        };
        let content = message.present("content");
        // A system message may contain only settings.
        if content.is_none() && role != Role::System {
            return Err(Refusal::invalid(format!("messages.{number}.content: Field required")));
        }
        let blocks = match content.and_then(Node::text) {
            Some(text) => vec![Block::Text(text.into_owned())],
            None => content.into_iter().flat_map(Node::elements).map(block).collect(),
        };
        messages.push(Message { role, blocks });
    }
    let system = body.present("system");
    let system: Vec<u8> = system.map(texts).unwrap_or_default();
    let tools = body.present("tools").map(canonical_bytes).unwrap_or_default();
    Ok(Dialogue {
        system: Digest::new("throughline-sim system", system),
        tools: Digest::new("throughline-sim tools", tools),
        messages,
    })
}

fn block(block: Node<'_>) -> Block {
    let text = |key: &str| block.text_of(key).map(std::borrow::Cow::into_owned);
    match block.text_of("type").as_deref() {
        Some("thinking") => Block::Thinking {
            text: text("thinking").unwrap_or_default(),
            signature: text("signature"),
        },
        Some("redacted_thinking") => Block::Redacted { data: text("data") },
        Some("text") => Block::Text(text("text").unwrap_or_default()),
        Some("tool_use") => {
            let (id, name) = (text("id").unwrap_or_default(), text("name").unwrap_or_default());
            let input = block.get("input").map(canonical_bytes).unwrap_or_default();
            let said = [id.as_bytes(), name.as_bytes(), &input].join(&0);
            Block::Call { id, name, said }
        }
        Some("tool_result") => Block::Answer {
            id: text("tool_use_id").unwrap_or_default(),
            text: block.get("content").map(readable).unwrap_or_default(),
            said: canonical_bytes(block),
        },
        kind => {
            Block::Other { kind: kind.unwrap_or_default().to_owned(), said: canonical_bytes(block) }
        }
    }
}

/// Returns the text of a system prompt. A string and a single block are equivalent.
fn texts(system: Node<'_>) -> Vec<u8> {
    match system.text() {
        Some(text) => text.into_owned().into_bytes(),
        None => {
            let texts = system.elements().filter_map(|block| block.text_of("text"));
            texts.collect::<Vec<_>>().join("\u{0}").into_bytes()
        }
    }
}

/// Returns the text of a tool result.
fn readable(content: Node<'_>) -> String {
    match content.text() {
        Some(text) => text.into_owned(),
        None => {
            let texts = content.elements().filter_map(|block| block.text_of("text"));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}
