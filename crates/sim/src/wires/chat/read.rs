//! Reads Chat Completions requests, with the checks of each provider.

use std::collections::HashMap;

use throughline_core::{
    CallIds, Contract, ForcedTools, Profile, ReasoningChannel as Channel, ReasoningSwitch as Switch,
};
use throughline_json::Node;

use crate::cache::PromptElement;
use crate::ledger::{ReplyKey, Verdict};
use crate::state::SimState;
use crate::turn::{Refusal, SimRequest, Turn, ensure};
use crate::wires::chat::details::{self, Vendor};
use crate::wires::chat::text_key;
use crate::wires::openai::{self, SettingPaths};
use crate::wires::{Exchange, is_true, list, member_is, string};

const PATHS: SettingPaths = SettingPaths {
    nests_tools: true,
    format_type: "/response_format/type",
    format_schema: "/response_format/json_schema/schema",
};

pub(super) fn read(exchange: &mut Exchange<'_>) -> Result<Turn, Refusal> {
    let request = exchange.request;
    let root = request.body.root();
    let messages: Vec<Node<'_>> = list(root, "messages").collect();
    if request.model.is_empty() {
        return Err(openai::missing("model"));
    }
    if messages.is_empty() {
        return Err(openai::missing("messages"));
    }
    let mut turn = exchange.new_turn();
    read_settings(&mut turn, request, root)?;
    let channel = request.row.dialect.channel;
    if channel == Channel::Chunks {
        check_keys(&messages)?;
    }
    check_call_ids(request, &messages)?;
    check_results(request, &messages)?;
    check_reasoning(&turn, request, &messages)?;
    fill_turn(&mut turn, root, &messages, exchange.state);
    if channel == Channel::Tags {
        // Reasoning in tags is part of the text, so clients must return it in every turn.
        turn.expected_replies = messages.iter().filter_map(|message| reply_key(*message)).collect();
    } else if is_reasoning_demanded(&turn, request) {
        turn.expected_replies = replies_in_tool_turns(&messages);
    }
    if channel == Channel::Details {
        details::check(exchange, &turn, &messages)?;
    } else {
        record_thoughts(exchange, &messages);
    }
    Ok(turn)
}

fn read_settings(turn: &mut Turn, request: &SimRequest, root: Node<'_>) -> Result<(), Refusal> {
    openai::read_settings(turn, request, &PATHS);
    let profile = &turn.target.profile;
    let dialect = &request.row.dialect;
    let effort = root.present("reasoning_effort").and_then(Node::text);
    let effort = effort.as_deref();
    // A vendor's own endpoint rejects an effort for models without this setting. Other servers
    // ignore it.
    let knows_all = matches!(&*request.row.name, "openai-chat" | "azure-chat" | "xai-chat");
    let is_checked = dialect.switch == Switch::Effort && (knows_all || !profile.efforts.is_empty());
    let checked = effort.filter(|_| is_checked);
    openai::check_effort(profile, &request.model, checked, "reasoning_effort")?;
    turn.thinks = thinks(profile, dialect.switch, root, effort);
    let is_router = dialect.channel == Channel::Details;
    let is_forced = turn.choice.is_forced();
    if is_router && is_forced && Vendor::from_profile(profile) == Vendor::Claude {
        // Claude rejects thinking with a forced tool, so the router silently disables thinking.
        turn.thinks = false;
    }
    if let Some(param) = openai::fixed_sampling(turn, root).filter(|_| !is_router) {
        let setting =
            root.get(param).map(Node::raw).map(String::from_utf8_lossy).unwrap_or_default();
        let message = format!(
            "Unsupported value: '{param}' does not support {setting} with this model. Only the default (1) value is supported."
        );
        return Err(Refusal::invalid(message).param(param).code("unsupported_value"));
    }
    let is_renamed = profile.name == "openai-o" && !is_router;
    if is_renamed && root.present("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        return Err(Refusal::invalid(message).param("max_tokens").code("unsupported_parameter"));
    }
    check_tools(turn, request)?;
    let is_refused = profile.forced_tools == ForcedTools::RefusedWhileThinking && turn.thinks;
    ensure!(!is_refused || !is_forced, "Thinking mode does not support this tool_choice");
    let (format, include) = (root.present("reasoning_format"), root.present("include_reasoning"));
    if &*request.row.name == "groq" && format.is_some() && include.is_some() {
        let message = "cannot specify both `include_reasoning` and `reasoning_format`";
        return Err(Refusal::invalid(message).param("reasoning_format"));
    }
    let is_hidden = format.is_some_and(|format| format.is("hidden"))
        || include.is_some_and(|include| include.bool() == Some(false))
        || root.get("reasoning").is_some_and(|reasoning| is_true(reasoning, "exclude"));
    turn.shows = !is_hidden;
    let most = root.present("max_completion_tokens").or_else(|| root.present("max_tokens"));
    turn.max_tokens = most.and_then(Node::u64);
    Ok(())
}

/// Rejects function tools for OpenAI's newer models while the model thinks.
fn check_tools(turn: &Turn, request: &SimRequest) -> Result<(), Refusal> {
    let limit = turn.target.profile.notes.get("chat-tools");
    let limit = limit.filter(|_| &*request.row.name == "openai-chat" && turn.thinks);
    let Some(limit) = limit.filter(|_| turn.tools.iter().any(|tool| !tool.custom)) else {
        return Ok(());
    };
    let remedy = if limit == "unless-none" {
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
    } else {
        "Please use /v1/responses instead."
    };
    let message = format!(
        "Function tools with reasoning_effort are not supported for {} in /v1/chat/completions. {remedy}",
        request.model
    );
    Err(Refusal::invalid(message).param("reasoning_effort"))
}

/// Returns whether the model thinks, according to the provider's setting for thinking.
fn thinks(profile: &Profile, switch: Switch, root: Node<'_>, effort: Option<&str>) -> bool {
    let switched = match switch {
        Switch::Effort if member_is(root, "prompt_mode", "reasoning") => return true,
        Switch::Effort => return openai::thinks(profile, effort),
        Switch::Object => {
            let Some(object) = root.present("reasoning") else {
                return openai::thinks(profile, effort);
            };
            let is_off = object.get("enabled").and_then(Node::bool) == Some(false)
                || member_is(object, "effort", "none");
            Some(!is_off)
        }
        Switch::Toggle => {
            let Some(kind) = root.at("/thinking/type").and_then(Node::text) else {
                return openai::thinks(profile, effort);
            };
            Some(kind != "disabled")
        }
        Switch::Flag => root.get("enable_thinking").and_then(Node::bool),
        Switch::Think => root.get("think").and_then(|think| think.bool().or(Some(true))),
        Switch::None => None,
    };
    match switched {
        Some(true) => profile.can_think(),
        Some(false) => profile.always_thinks,
        None => profile.thinks_by_default || profile.always_thinks,
    }
}

/// Rejects message members that Mistral's schema does not allow. Mistral accepts reasoning only in
/// content chunks.
fn check_keys(messages: &[Node<'_>]) -> Result<(), Refusal> {
    for (at, message) in messages.iter().enumerate() {
        let forbidden = ["reasoning_content", "reasoning", "reasoning_details"];
        if let Some(key) = forbidden.into_iter().find(|key| message.get(key).is_some()) {
            let role = message.text_of("role").unwrap_or_default();
            let refusal = Refusal::new(422, "Extra inputs are not permitted");
            let param = format!("messages.{at}.{role}.{key}");
            return Err(refusal.kind("extra_forbidden").param(param));
        }
    }
    Ok(())
}

fn check_call_ids(request: &SimRequest, messages: &[Node<'_>]) -> Result<(), Refusal> {
    if request.row.dialect.call_ids != CallIds::Nine {
        return Ok(());
    }
    let is_valid = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    for message in messages {
        let mut ids = calls(*message).filter_map(|call| call.text_of("id"));
        let invalid = ids.find(|id| !is_valid(id));
        let result = message.text_of("tool_call_id").filter(|id| !is_valid(id));
        if let Some(id) = invalid.or(result) {
            let message =
                format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            return Err(Refusal::invalid(message).code("3280"));
        }
    }
    Ok(())
}

pub(super) fn calls(message: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    list(message, "tool_calls")
}

/// Checks that each call is directly followed by its result, and that each result has a call.
fn check_results(request: &SimRequest, messages: &[Node<'_>]) -> Result<(), Refusal> {
    // Skip endpoints that are not known to check this.
    if !request.row.dialect.pairs_calls {
        return Ok(());
    }
    let refuse = |message: String, at: usize| {
        if request.row.dialect.channel == Channel::Chunks {
            let message = "Not the same number of function calls and responses";
            return Err(Refusal::invalid(message).code("3230"));
        }
        Err(Refusal::invalid(message).param(format!("messages.[{at}].role")))
    };
    let mut pending: Vec<String> = Vec::new();
    let mut answered: HashMap<String, usize> = HashMap::new();
    for (at, message) in messages.iter().map(Some).chain([None]).enumerate() {
        if let Some(message) = message.filter(|message| member_is(**message, "role", "tool")) {
            let id = message.text_of("tool_call_id").unwrap_or_default();
            let Some(index) = pending.iter().position(|call| **call == *id) else {
                if let Some(first) = answered.get(&*id) {
                    let message = format!(
                        "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{first}] and messages[{at}]."
                    );
                    return refuse(message, at);
                }
                let message = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
                return refuse(message.to_owned(), at);
            };
            answered.insert(pending.remove(index), at);
            continue;
        }
        answered.clear();
        if !pending.is_empty() {
            let ids = pending.join(", ");
            let message = format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
            );
            return refuse(message, at);
        }
        let calls = message.into_iter().flat_map(|message| calls(*message));
        pending = calls.filter_map(|call| string(call, "id")).collect();
    }
    Ok(())
}

/// Returns whether the endpoint rejects tool calls without their reasoning.
fn is_reasoning_demanded(turn: &Turn, request: &SimRequest) -> bool {
    request.row.dialect.demanded_with_tools
        && turn.target.profile.contract != Contract::Stateless
        && turn.thinks
}

/// Returns the keys of all replies in turns that call tools: the replies with calls, and the answer
/// after their results. DeepSeek's guide demands the reasoning of all of them in every later
/// request. Reports disagree on whether a missing key is an error in the answer, so the ledger
/// counts such reasoning as lost, and the request is not rejected.
fn replies_in_tool_turns(messages: &[Node<'_>]) -> Vec<ReplyKey> {
    let mut keys = Vec::new();
    let mut has_called = false;
    for message in messages {
        if member_is(*message, "role", "user") {
            has_called = false;
        }
        has_called |= calls(*message).next().is_some();
        keys.extend(reply_key(*message).filter(|_| has_called));
    }
    keys
}

/// Checks that messages with tool calls contain the reasoning for these calls, if the model thinks.
fn check_reasoning(
    turn: &Turn,
    request: &SimRequest,
    messages: &[Node<'_>],
) -> Result<(), Refusal> {
    let is_demanded = is_reasoning_demanded(turn, request);
    let key = text_key(request.row.dialect.channel).filter(|_| is_demanded);
    let Some(key) = key else { return Ok(()) };
    // Sources disagree on whether an empty text is enough for every model. Known endpoints accept
    // it.
    let is_incomplete = |message: &Node<'_>| {
        !message.present(key).is_some_and(Node::is_string) && calls(*message).next().is_some()
    };
    let Some(at) = messages.iter().position(is_incomplete) else { return Ok(()) };
    Err(Refusal::invalid(match (&*request.row.name, turn.target.profile.name.as_str()) {
        ("moonshot", _) => format!(
            "thinking is enabled but {key} is missing in assistant tool call message at index {at}"
        ),
        (_, "deepseek-v3.2") => format!(
            "Missing {key} field in the assistant message at message index {at}. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        ),
        (_, _) => format!("The {key} in the thinking mode must be passed back to the API."),
    }))
}

/// Records thoughts that a client returned as text. Providers never reject such thoughts, so an
/// edited thought is recorded as dropped.
fn record_thoughts(exchange: &mut Exchange<'_>, messages: &[Node<'_>]) {
    let channel = exchange.request.row.dialect.channel;
    for (at, message) in messages.iter().enumerate() {
        if !member_is(*message, "role", "assistant") {
            continue;
        }
        let text = match text_key(channel) {
            Some(key) => string(*message, key),
            None => reasoning_in_content(channel, *message),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        let verdict = if text.trim().chars().count() < 12 {
            Verdict::Accepted
        } else if !exchange.state.ledger.contains_thought(&text) {
            Verdict::dropped("altered")
        } else if is_on_another_reply(*message, &ReplyKey::Thought(text.clone()), exchange.state) {
            Verdict::dropped("moved")
        } else {
            Verdict::Accepted
        };
        exchange.record.record_returned(&text, format!("messages[{at}]"), verdict);
    }
}

/// Returns whether a message contains a thought from a different reply.
pub(super) fn is_on_another_reply(message: Node<'_>, thought: &ReplyKey, state: &SimState) -> bool {
    reply_key(message).is_some_and(|reply_key| state.ledger.are_apart(thought, &reply_key))
}

/// Returns the key of an assistant message: the id of its first call, or its visible text if it has
/// no calls.
fn reply_key(message: Node<'_>) -> Option<ReplyKey> {
    if !member_is(message, "role", "assistant") {
        return None;
    }
    if let Some(id) = calls(message).find_map(|call| string(call, "id")) {
        return Some(ReplyKey::Call(id));
    }
    let text = openai::text(message.get("content"));
    let visible = text.rsplit_once("</think>").map_or(text.as_str(), |(_, rest)| rest.trim_start());
    Some(ReplyKey::Text(None, visible.to_owned()))
}

/// Returns the thought that is part of a message's content, as a chunk or in tags.
fn reasoning_in_content(channel: Channel, message: Node<'_>) -> Option<String> {
    let content = message.present("content")?;
    if channel == Channel::Chunks {
        let thinking = content.elements().find_map(|chunk| chunk.get("thinking"))?;
        return Some(openai::text(Some(thinking)));
    }
    let text = openai::text(Some(content));
    let (_, rest) = text.split_once("<think>").filter(|_| channel == Channel::Tags)?;
    let (thought, _) = rest.split_once("</think>")?;
    Some(thought.trim().to_owned())
}

fn fill_turn(turn: &mut Turn, root: Node<'_>, messages: &[Node<'_>], state: &SimState) {
    turn.elements.extend(list(root, "tools").map(PromptElement::new));
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
                    turn.expected_replies.extend(string(call, "id").map(ReplyKey::Call));
                }
                let is_tagged = ["<think>", "<thinking>"].iter().any(|tag| text.contains(tag));
                turn.demoted |= is_claude && (is_tagged || state.ledger.contains_thought(&text));
            }
            Some(_) | None => {}
        }
    }
}
