//! Reads requests: settings and messages, with the checks of each row's endpoint.

use std::sync::Arc;

use serde_json::Value;
use throughline_core::{
    CallIds, Contract, ForcedTools, Profile, ReasoningChannel, ReasoningSwitch,
};
use throughline_json::Node;

use crate::cache::PromptElement;
use crate::ledger::{EntryBuilder, ReplyKey, Verdict};
use crate::state::SimState;
use crate::turn::{Operation, Refusal, SimRequest, Turn};
use crate::wires::Exchange;
use crate::wires::chat::details::{self, Vendor};
use crate::wires::chat::text_key;
use crate::wires::openai;

/// Reads a request or returns the provider's error.
pub(super) fn read(exchange: Exchange<'_>) -> Result<Turn, Refusal> {
    let Exchange { asking, world, record } = exchange;
    let root = asking.body.root();
    let messages: Vec<Node<'_>> =
        root.get("messages").into_iter().flat_map(Node::elements).collect();
    for (key, is_there) in [("model", !asking.model.is_empty()), ("messages", !messages.is_empty())]
    {
        if !is_there {
            let message = format!("Missing required parameter: '{key}'.");
            let refusal = Refusal::invalid(message).param(key);
            return Err(refusal.code("missing_required_parameter"));
        }
    }
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let mut turn = Turn::new(target);
    settings(&mut turn, asking, root)?;
    if asking.row.dialect.channel == ReasoningChannel::Chunks {
        check_keys(&messages)?;
    }
    call_ids(asking, &messages)?;
    answered(asking, &messages)?;
    demanded(&turn, asking, &messages)?;
    listen(&mut turn, root, &messages, world);
    if asking.row.dialect.channel == ReasoningChannel::Tags {
        // Reasoning between tags is part of the text, so it must come back in every turn.
        turn.owed = messages.iter().filter_map(|message| landmark(*message)).collect();
    }
    match asking.row.dialect.channel {
        ReasoningChannel::Details => details::check(asking, &turn, &messages, world, record)?,
        ReasoningChannel::AsEmitted
        | ReasoningChannel::None
        | ReasoningChannel::ReasoningContent
        | ReasoningChannel::Reasoning
        | ReasoningChannel::Thinking
        | ReasoningChannel::Chunks
        | ReasoningChannel::Tags => texts(asking, &messages, world, record),
    }
    Ok(turn)
}

fn settings(turn: &mut Turn, asking: &SimRequest, root: Node<'_>) -> Result<(), Refusal> {
    let profile = Arc::clone(&turn.target.profile);
    let dialect = &asking.row.dialect;
    let effort = root.present("reasoning_effort").and_then(Node::text);
    let effort = effort.as_deref();
    // A vendor's own endpoint rejects efforts for models without this setting; other servers ignore
    // them.
    let knows_all = matches!(&*asking.row.name, "openai-chat" | "azure-chat" | "xai-chat");
    if dialect.switch == ReasoningSwitch::Effort
        && let Some(effort) = effort
        && !profile.efforts.iter().any(|known| known == effort)
        && (knows_all || !profile.efforts.is_empty())
    {
        let (model, param) = (&asking.model, "reasoning_effort");
        return Err(openai::unsupported_effort(&profile, model, effort, param));
    }
    turn.choice = openai::choice(root);
    turn.thinks = thinks(&profile, dialect.switch, root, effort);
    let is_router = dialect.channel == ReasoningChannel::Details;
    if is_router && turn.choice.is_forced() && Vendor::from_profile(&profile) == Vendor::Claude {
        // The router silently drops thinking, because Claude rejects it with a forced tool.
        turn.thinks = false;
    }
    let is_fixed = profile.fixed_sampling || (profile.unsampled_while_reasoning && turn.thinks);
    if let Some(param) = openai::sampling(root).filter(|_| is_fixed && !is_router) {
        let said = root.get(param).map(Node::raw).map(String::from_utf8_lossy).unwrap_or_default();
        let message = format!(
            "Unsupported value: '{param}' does not support {said} with this model. Only the default (1) value is supported."
        );
        return Err(Refusal::invalid(message).param(param).code("unsupported_value"));
    }
    let is_renamed = profile.name == "openai-o" && !is_router;
    if is_renamed && root.present("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        return Err(Refusal::invalid(message).param("max_tokens").code("unsupported_parameter"));
    }
    let is_refused = profile.forced_tools == ForcedTools::RefusedWhileThinking && turn.thinks;
    if is_refused && turn.choice.is_forced() {
        return Err(Refusal::invalid("Thinking mode does not support this tool_choice"));
    }
    let (format, include) = (root.present("reasoning_format"), root.present("include_reasoning"));
    if &*asking.row.name == "groq" && format.is_some() && include.is_some() {
        let message = "cannot specify both `include_reasoning` and `reasoning_format`";
        return Err(Refusal::invalid(message).param("reasoning_format"));
    }
    let is_hidden = format.is_some_and(|format| format.is("hidden"))
        || include.is_some_and(|include| include.bool() == Some(false))
        || root.at("/reasoning/exclude").and_then(Node::bool) == Some(true);
    turn.shows = !is_hidden;
    turn.stream = asking.verb == Operation::Stream
        || root.get("stream").and_then(Node::bool).unwrap_or(false);
    turn.tools = openai::tools(root, true);
    turn.parallel = root.present("parallel_tool_calls").and_then(Node::bool);
    turn.schema = match root.at("/response_format/type").and_then(Node::text).as_deref() {
        Some("json_schema") => root.at("/response_format/json_schema/schema").map(openai::value),
        Some("json_object") => Some(Value::Bool(true)),
        Some(_) | None => None,
    };
    let most = root.present("max_completion_tokens").or_else(|| root.present("max_tokens"));
    turn.max_tokens = most.and_then(Node::u64);
    Ok(())
}

/// Returns whether the model thinks, according to the row's own switch.
fn thinks(
    profile: &Profile,
    switch: ReasoningSwitch,
    root: Node<'_>,
    effort: Option<&str>,
) -> bool {
    let switched = match switch {
        ReasoningSwitch::Effort => {
            let is_prompted = root.get("prompt_mode").is_some_and(|mode| mode.is("reasoning"));
            return is_prompted || openai::thinks(profile, effort);
        }
        ReasoningSwitch::Object => {
            let Some(object) = root.present("reasoning") else {
                return openai::thinks(profile, effort);
            };
            let is_off = object.get("enabled").and_then(Node::bool) == Some(false)
                || object.get("effort").is_some_and(|effort| effort.is("none"));
            Some(!is_off)
        }
        ReasoningSwitch::Toggle => {
            match root.at("/thinking/type").and_then(Node::text).as_deref() {
                Some("disabled") => Some(false),
                Some(_) => Some(true),
                None => return openai::thinks(profile, effort),
            }
        }
        ReasoningSwitch::Flag => root.get("enable_thinking").and_then(Node::bool),
        ReasoningSwitch::Think => root.get("think").and_then(|think| think.bool().or(Some(true))),
        ReasoningSwitch::None => None,
    };
    match switched {
        Some(true) => profile.can_think(),
        Some(false) => profile.always_thinks,
        None => profile.thinks_by_default || profile.always_thinks,
    }
}

/// Checks for keys that Mistral's schema forbids; it allows reasoning only as chunks.
fn check_keys(messages: &[Node<'_>]) -> Result<(), Refusal> {
    for (at, message) in messages.iter().enumerate() {
        let forbidden = ["reasoning_content", "reasoning", "reasoning_details"];
        let Some(key) = forbidden.into_iter().find(|key| message.get(key).is_some()) else {
            continue;
        };
        let role = message.text_of("role").unwrap_or_default();
        let refusal = Refusal::new(422, "Extra inputs are not permitted").kind("extra_forbidden");
        return Err(refusal.param(format!("messages.{at}.{role}.{key}")));
    }
    Ok(())
}

fn call_ids(asking: &SimRequest, messages: &[Node<'_>]) -> Result<(), Refusal> {
    if asking.row.dialect.call_ids != CallIds::Nine {
        return Ok(());
    }
    let named = messages.iter().flat_map(|message| {
        let calls = calls(*message).filter_map(|call| call.text_of("id"));
        calls.chain(message.text_of("tool_call_id")).collect::<Vec<_>>()
    });
    let is_good = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    for id in named {
        if !is_good(&id) {
            let message =
                format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            return Err(Refusal::invalid(message).code("3280"));
        }
    }
    Ok(())
}

/// Iterates over the tool calls of a message.
pub(super) fn calls(message: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    message.present("tool_calls").into_iter().flat_map(Node::elements)
}

/// Checks that a result for every call follows directly, and that every result has a call.
fn answered(asking: &SimRequest, messages: &[Node<'_>]) -> Result<(), Refusal> {
    // Some endpoints are not known to check this.
    if !asking.row.dialect.pairs_calls {
        return Ok(());
    }
    let mut waiting: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let is_answer = message.get("role").is_some_and(|role| role.is("tool"));
        if is_answer {
            let id = message.text_of("tool_call_id").unwrap_or_default();
            let Some(found) = waiting.iter().position(|call| **call == *id) else {
                let message = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
                return Err(unanswered(asking, message.to_owned(), at));
            };
            waiting.remove(found);
            continue;
        }
        check_none_pending(asking, &waiting, at)?;
        let ids = calls(*message).filter_map(|call| call.text_of("id"));
        waiting = ids.map(std::borrow::Cow::into_owned).collect();
    }
    check_none_pending(asking, &waiting, messages.len())
}

fn check_none_pending(asking: &SimRequest, waiting: &[String], at: usize) -> Result<(), Refusal> {
    if waiting.is_empty() {
        return Ok(());
    }
    let message = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        waiting.join(", ")
    );
    Err(unanswered(asking, message, at))
}

fn unanswered(asking: &SimRequest, message: String, at: usize) -> Refusal {
    if asking.row.dialect.channel == ReasoningChannel::Chunks {
        let message = "Not the same number of function calls and responses";
        return Refusal::invalid(message).code("3230");
    }
    Refusal::invalid(message).param(format!("messages.[{at}].role"))
}

/// Checks that messages with calls contain their reasoning while the model thinks.
fn demanded(turn: &Turn, asking: &SimRequest, messages: &[Node<'_>]) -> Result<(), Refusal> {
    let dialect = &asking.row.dialect;
    let is_demanded = dialect.demanded_with_tools
        && turn.target.profile.contract != Contract::Stateless
        && turn.thinks;
    let Some(key) = text_key(dialect.channel).filter(|_| is_demanded) else { return Ok(()) };
    for (at, message) in messages.iter().enumerate() {
        // Sources disagree whether an empty text suffices for every model; known endpoints accept
        // it.
        let is_there = message.present(key).is_some_and(Node::is_string);
        if is_there || calls(*message).next().is_none() {
            continue;
        }
        let message = match (&*asking.row.name, turn.target.profile.name.as_str()) {
            ("moonshot", _) => format!(
                "thinking is enabled but {key} is missing in assistant tool call message at index {at}"
            ),
            (_, "deepseek-v3.2") => format!(
                "Missing {key} field in the assistant message at message index {at}. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
            ),
            (_, _) => {
                format!("The {key} in the thinking mode must be passed back to the API.")
            }
        };
        return Err(Refusal::invalid(message));
    }
    Ok(())
}

/// Records the thoughts returned as text. Providers do not reject them; an edited text counts as
/// dropped.
fn texts(asking: &SimRequest, messages: &[Node<'_>], world: &SimState, record: &mut EntryBuilder) {
    let channel = asking.row.dialect.channel;
    for (at, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(|role| role.is("assistant")) {
            continue;
        }
        let text = match text_key(channel) {
            Some(key) => message.text_of(key).map(std::borrow::Cow::into_owned),
            None => reasoning_in_content(channel, *message),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        let verdict = if text.trim().chars().count() < 12 {
            Verdict::Accepted
        } else if !world.book.contains_thought(&text) {
            Verdict::Dropped("altered".to_owned())
        } else if is_on_another_reply(*message, &ReplyKey::Thought(text.clone()), world) {
            Verdict::Dropped("moved".to_owned())
        } else {
            Verdict::Accepted
        };
        record.record_returned(&text, format!("messages[{at}]"), verdict);
    }
}

/// Returns whether a thought is attached to a reply other than its own.
pub(super) fn is_on_another_reply(message: Node<'_>, thought: &ReplyKey, world: &SimState) -> bool {
    landmark(message).is_some_and(|landmark| world.book.are_apart(thought, &landmark))
}

/// Returns the key of an assistant message: its first call, else its visible text.
fn landmark(message: Node<'_>) -> Option<ReplyKey> {
    if !message.get("role").is_some_and(|role| role.is("assistant")) {
        return None;
    }
    if let Some(id) = calls(message).find_map(|call| call.text_of("id")) {
        return Some(ReplyKey::Call(id.into_owned()));
    }
    let text = openai::text(message.get("content"));
    let aloud = text.rsplit_once("</think>").map_or(text.as_str(), |(_, aloud)| aloud.trim_start());
    Some(ReplyKey::Text(None, aloud.to_owned()))
}

/// Returns the thought inside a message's content, as a chunk or between tags.
fn reasoning_in_content(channel: ReasoningChannel, message: Node<'_>) -> Option<String> {
    let content = message.present("content")?;
    if channel == ReasoningChannel::Chunks {
        let mut chunks = content.elements();
        let thinking = chunks.find_map(|chunk| chunk.get("thinking"))?;
        return Some(openai::text(Some(thinking)));
    }
    let text = openai::text(Some(content));
    let (_, rest) = text.split_once("<think>").filter(|_| channel == ReasoningChannel::Tags)?;
    let (thought, _) = rest.split_once("</think>")?;
    Some(thought.trim().to_owned())
}

/// Fills the turn from the messages.
fn listen(turn: &mut Turn, root: Node<'_>, messages: &[Node<'_>], world: &SimState) {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    turn.elements.extend(tools.map(PromptElement::new));
    let is_claude = Vendor::from_profile(&turn.target.profile) == Vendor::Claude;
    for message in messages {
        turn.elements.push(PromptElement::new(*message));
        let text = openai::text(message.get("content"));
        match message.text_of("role").as_deref() {
            Some("user") => turn.start_user_turn(text),
            Some("tool") => turn.results.push(text),
            Some("assistant") => {
                turn.step += 1;
                for call in calls(*message) {
                    let name = ["/function/name", "/custom/name"];
                    let name = name.iter().find_map(|at| call.at(at)?.text());
                    turn.called.push(name.unwrap_or_default().into_owned());
                    let id = call.text_of("id").map(std::borrow::Cow::into_owned);
                    turn.owed.extend(id.map(ReplyKey::Call));
                }
                let is_tagged = ["<think>", "<thinking>"].iter().any(|tag| text.contains(tag));
                turn.demoted |= is_claude && (is_tagged || world.book.contains_thought(&text));
            }
            Some(_) | None => {}
        }
    }
}
