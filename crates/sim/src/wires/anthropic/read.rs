//! Reads Messages API requests as strictly as Anthropic does.

use std::sync::Arc;

use throughline_json::Node;

use crate::digest::canonical_bytes;
use crate::turn::{OfferedTool, Operation, Refusal, SimRequest, ToolChoice, Turn, ensure};
use crate::wires::anthropic::compaction;
use crate::wires::claude::settings::Settings;
use crate::wires::claude::{self, Block, Dialogue, Message, Role, is_claude, system_messages};
use crate::wires::{Exchange, is_true, list, member_is, parsed, string};

pub(super) fn read(exchange: &mut Exchange<'_>) -> Result<Turn, Refusal> {
    let request = exchange.request;
    let body = request.body.root();
    check_body(request, body)?;
    let mut turn = exchange.new_turn();
    let profile = Arc::clone(&turn.target.profile);
    let dialogue = dialogue(body)?;
    let settings = settings(request, body);
    if is_claude(&profile) {
        check_extras(body)?;
        compaction::check_request(request, body, &settings)?;
        claude::check(exchange, &mut turn, &dialogue, &settings, profile.forced_tools)?;
        compaction::check_blocks(exchange, body)?;
        turn.compacts = settings.compacts;
    }
    turn.stream = is_true(body, "stream");
    let tools = system_messages::offered_tools(body, &settings)?;
    turn.tools = tools.into_iter().filter_map(parse_tool).collect();
    let choice = body.get("tool_choice");
    let is_single = choice.is_some_and(|choice| is_true(choice, "disable_parallel_tool_use"));
    turn.parallel = is_single.then_some(false);
    turn.thinks = settings.thinks(&profile, dialogue.is_in_loop());
    let format = body.at("/output_config/format").or_else(|| body.get("output_format"));
    turn.schema = format.and_then(|format| format.present("schema")).and_then(parsed);
    let text = body.present("system").filter(|system| !system.is_array());
    let system = text.into_iter().chain(list(body, "system"));
    turn.elements =
        claude::elements(list(body, "tools"), system, &settings, list(body, "messages"));
    if is_claude(&profile) && request.row.dialect.compacts {
        turn.compacts_first = compaction::reaches_threshold(body, &settings, &turn.elements)?;
    }
    dialogue.fill_turn(&mut turn, settings);
    Ok(turn)
}

/// Checks that the members required in every request are present and valid.
fn check_body(request: &SimRequest, body: Node<'_>) -> Result<(), Refusal> {
    ensure!(body.is_object(), "Input should be a valid dictionary");
    ensure!(!request.model.is_empty(), "model: Field required");
    let messages = body.get("messages");
    ensure!(messages.is_some(), "messages: Field required");
    ensure!(messages.is_some_and(Node::is_array), "messages: Input should be a valid list");
    let has_messages = list(body, "messages").next().is_some();
    ensure!(has_messages, "messages: at least one message is required");
    let has_limit = body.get("max_tokens").and_then(Node::u64).is_some();
    ensure!(has_limit || request.verb == Operation::Count, "max_tokens: Field required");
    Ok(())
}

/// Checks request members that only Claude models support.
fn check_extras(body: Node<'_>) -> Result<(), Refusal> {
    ensure!(
        body.present("compaction").is_none() || body.present("context_management").is_none(),
        "compaction: cannot be combined with `context_management`. Set only one of them."
    );
    for (number, message) in list(body, "messages").enumerate() {
        for (place, block) in list(message, "content").enumerate() {
            ensure!(
                !member_is(block, "type", "compaction") || !member_is(block, "content", ""),
                "messages.{number}.content.{place}.compaction.content: String should have at least \
                 1 character"
            );
        }
    }
    Ok(())
}

fn settings<'t>(request: &SimRequest, body: Node<'t>) -> Settings<'t> {
    let effort_of = |node: Node<'_>| string(node.get("output_config")?, "effort");
    let headers = request.headers.get_all("anthropic-beta");
    let listed = headers.iter().filter_map(|value| value.to_str().ok());
    let betas = listed.flat_map(|list| list.split(',')).map(|beta| beta.trim().to_owned());
    Settings {
        thinking: body.present("thinking"),
        effort: effort_of(body),
        max_tokens: body.get("max_tokens").and_then(Node::u64),
        temperature: body.present("temperature"),
        top_p: body.present("top_p"),
        top_k: body.present("top_k"),
        choice: body.present("tool_choice").map(choice).unwrap_or_default(),
        has_tools: list(body, "tools").next().is_some(),
        betas: betas.collect(),
        message_efforts: list(body, "messages").filter_map(effort_of).collect(),
        compacts: body.present("compaction").is_some(),
    }
}

fn choice(choice: Node<'_>) -> ToolChoice {
    match choice.text_of("type").as_deref() {
        Some("any") => ToolChoice::Any,
        Some("none") => ToolChoice::Never,
        Some("tool") => ToolChoice::Tool(string(choice, "name").unwrap_or_default()),
        Some(_) | None => ToolChoice::Auto,
    }
}

/// Returns a tool that the client runs; `None` for a tool without a schema, because the provider
/// runs such tools.
fn parse_tool(tool: Node<'_>) -> Option<OfferedTool> {
    let schema = parsed(tool.present("input_schema")?)?;
    Some(OfferedTool::new(string(tool, "name")?, schema))
}

/// Converts the conversation to the form shared by all wires that serve Claude.
fn dialogue(body: Node<'_>) -> Result<Dialogue, Refusal> {
    let mut messages = Vec::new();
    for (number, message) in list(body, "messages").enumerate() {
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
        // A system message may contain only settings and no content.
        let is_complete = content.is_some() || role == Role::System;
        ensure!(is_complete, "messages.{number}.content: Field required");
        let blocks = match content.and_then(Node::text) {
            Some(text) => vec![Block::Text(text.into_owned())],
            None => list(message, "content").map(block).collect(),
        };
        messages.push(Message { role, blocks });
    }
    // A plain string and a list with a single block are equivalent.
    let system = body.present("system").map(|system| joined_text(system, "\u{0}"));
    Ok(Dialogue::new(&system.unwrap_or_default(), body.present("tools"), messages))
}

fn block(block: Node<'_>) -> Block {
    let text = |key: &str| string(block, key).unwrap_or_default();
    match block.text_of("type").as_deref() {
        Some("thinking") => {
            Block::Thinking { text: text("thinking"), signature: string(block, "signature") }
        }
        Some("redacted_thinking") => Block::Redacted { data: string(block, "data") },
        Some("text") => Block::Text(text("text")),
        Some("tool_use") => Block::call(text("id"), text("name"), block.get("input")),
        Some("tool_result") => Block::Answer {
            id: text("tool_use_id"),
            text: block
                .get("content")
                .map(|content| joined_text(content, "\n"))
                .unwrap_or_default(),
            content: canonical_bytes(block),
        },
        // The compaction of an edit is part of the reply whose Seals were issued without it.
        Some("compaction") if block.present("signature").is_none() => {
            Block::Other { kind: "compaction".to_owned(), content: Vec::new() }
        }
        kind => Block::Other {
            kind: kind.unwrap_or_default().to_owned(),
            content: canonical_bytes(block),
        },
    }
}

/// Returns a string as is, or joins the texts of a list of blocks.
fn joined_text(content: Node<'_>, separator: &str) -> String {
    match content.text() {
        Some(text) => text.into_owned(),
        None => {
            let texts = content.elements().filter_map(|block| block.text_of("text"));
            texts.collect::<Vec<_>>().join(separator)
        }
    }
}
