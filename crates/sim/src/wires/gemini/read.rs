//! Reads generateContent requests: settings, contents, and the signatures on parts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use throughline_core::{Contract, Profile};
use throughline_json::Node;

use crate::cache::PromptElement;
use crate::digest::Digest;
use crate::keys::{SealError, SealFormat};
use crate::ledger::{ReplyKey, Verdict};
use crate::turn::{OfferedTool, Operation, Refusal, SimRequest, ToolChoice, Turn, ensure};
use crate::wires::gemini::{continuation, get};
use crate::wires::{Exchange, empty_schema, is_true, list, member_is, string, value};

/// Documented placeholder signatures, for history that did not come from Gemini.
const STAND_INS: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

pub(super) fn read(exchange: &mut Exchange<'_>) -> Result<Turn, Refusal> {
    let request = exchange.request;
    let root = request.body.root();
    // A countTokens request may contain a whole generateContent request.
    let root = get(root, "generateContentRequest").unwrap_or(root);
    let contents: Vec<Node<'_>> = list(root, "contents").collect();
    ensure!(!contents.is_empty(), "* GenerateContentRequest.contents: contents is not specified");
    let mut turn = exchange.new_turn();
    read_settings(&mut turn, request, root)?;
    check_results(&contents)?;
    for (at, content) in contents.iter().enumerate() {
        for (number, part) in parts(*content).enumerate().filter(|_| is_model_content(*content)) {
            check_signature(exchange, &turn, &format!("contents[{at}].parts[{number}]"), part)?;
        }
    }
    check_first_calls(request, &turn.target.profile, &contents)?;
    fill_turn(&mut turn, root, &contents);
    continuation::check(exchange, &mut turn, root)?;
    turn.expected_replies =
        contents.iter().flat_map(|content| reply_keys(request, *content)).collect();
    Ok(turn)
}

/// Returns the digest of a text, to which the text's signature is bound.
pub(super) fn signed(text: &str) -> Digest {
    Digest::new("throughline-sim gemini text", text)
}

fn read_settings(turn: &mut Turn, request: &SimRequest, root: Node<'_>) -> Result<(), Refusal> {
    let config = get(root, "generationConfig");
    let of_config = |key: &str| config.and_then(|config| get(config, key));
    let thinking = of_config("thinkingConfig");
    let of_thinking = |key: &str| thinking.and_then(|thinking| get(thinking, key));
    let profile = &turn.target.profile;
    let level = of_thinking("thinkingLevel").and_then(Node::text);
    if let Some(level) = level.as_deref() {
        check_level(profile, level)?;
    }
    let budget = of_thinking("thinkingBudget").and_then(number);
    if let Some(budget) = budget {
        check_budget(profile, budget)?;
    }
    let is_off = budget == Some(0);
    turn.shows = of_thinking("includeThoughts").and_then(Node::bool).unwrap_or(false);
    ensure!(
        !turn.shows || !is_off,
        "Unable to submit request because Thinking_config.include_thoughts is only enabled when \
         thinking is enabled."
    );
    let is_asked = budget.is_some() || level.is_some();
    let can = profile.thinks_by_default || profile.budget.is_some() || !profile.levels.is_empty();
    turn.thinks = !is_off && (profile.thinks_by_default || (is_asked && can));
    turn.stream = request.verb == Operation::Stream;
    turn.max_tokens = of_config("maxOutputTokens").and_then(Node::u64);
    let schema = ["responseJsonSchema", "responseSchema"].into_iter().find_map(of_config);
    let wants_json = of_config("responseMimeType").is_some_and(|kind| kind.is("application/json"));
    turn.schema = schema.map(value).or(wants_json.then_some(Value::Bool(true)));
    let tools = list(root, "tools").filter_map(|tool| get(tool, "functionDeclarations"));
    turn.tools = tools.flat_map(Node::elements).filter_map(parse_tool).collect();
    turn.choice = choice(root);
    Ok(())
}

/// Parses an integer. Google also accepts integers as strings.
fn number(node: Node<'_>) -> Option<i64> {
    let text = node.number().map(Cow::Borrowed).or_else(|| node.text())?;
    text.parse().ok()
}

fn check_level(profile: &Profile, level: &str) -> Result<(), Refusal> {
    ensure!(!profile.levels.is_empty(), "Thinking level is not supported for this model.");
    ensure!(
        profile.levels.iter().any(|known| known.eq_ignore_ascii_case(level)),
        "Thinking level {} is not supported for this model. Please retry with other thinking level.",
        level.to_ascii_uppercase()
    );
    Ok(())
}

fn check_budget(profile: &Profile, budget: i64) -> Result<(), Refusal> {
    let Some(limits) = profile.budget else { return Ok(()) };
    let is_valid = match budget {
        -1 => true,
        0 => limits.zero,
        budget => u64::try_from(budget).is_ok_and(|b| (limits.min..=limits.max).contains(&b)),
    };
    let (min, max) = (if limits.zero { 0 } else { limits.min }, limits.max);
    ensure!(
        is_valid,
        "The thinking budget ({budget}) is invalid. Please choose a value between {min} and {max}."
    );
    Ok(())
}

fn parse_tool(function: Node<'_>) -> Option<OfferedTool> {
    let schema = ["parametersJsonSchema", "parameters"].iter().find_map(|key| get(function, key));
    let schema = schema.map_or_else(empty_schema, value);
    Some(OfferedTool::new(string(function, "name")?, schema))
}

fn choice(root: Node<'_>) -> ToolChoice {
    let config = get(root, "toolConfig").and_then(|config| get(config, "functionCallingConfig"));
    let Some(config) = config else { return ToolChoice::Auto };
    let mode = config.text_of("mode").unwrap_or_default().to_ascii_uppercase();
    let mut allowed = get(config, "allowedFunctionNames").into_iter().flat_map(Node::elements);
    match (mode.as_str(), allowed.next().and_then(Node::text)) {
        ("NONE", _) => ToolChoice::Never,
        ("ANY", Some(name)) => ToolChoice::Tool(name.into_owned()),
        ("ANY", None) => ToolChoice::Any,
        (_, _) => ToolChoice::Auto,
    }
}

fn is_model_content(content: Node<'_>) -> bool {
    member_is(content, "role", "model")
}

fn parts(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    list(content, "parts")
}

fn calls(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    parts(content).filter(|part| get(*part, "functionCall").is_some())
}

fn results(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    parts(content).filter_map(|part| get(part, "functionResponse"))
}

/// Checks that each step has as many results as calls. Calls at the end of the request need no
/// results, because the client has not run them yet.
fn check_results(contents: &[Node<'_>]) -> Result<(), Refusal> {
    let (mut called, mut answered, mut is_answered) = (0, 0, false);
    for content in contents.iter().map(Some).chain([None]) {
        let is_models = content.is_none_or(|content| is_model_content(*content));
        if is_models && is_answered {
            ensure!(
                called == answered,
                "Please ensure that the number of function response parts is equal to the number \
                 of function call parts of the function call turn."
            );
            (called, answered, is_answered) = (0, 0, false);
        }
        let Some(content) = content else { break };
        if is_models {
            called += calls(*content).count();
        } else {
            answered += results(*content).count();
            is_answered = true;
        }
    }
    Ok(())
}

/// Returns the signature of a part; `None` if the signature is missing or empty.
fn signature(part: Node<'_>) -> Option<Cow<'_, str>> {
    let text = get(part, "thoughtSignature").and_then(Node::text)?;
    Some(text).filter(|text| !text.is_empty())
}

/// Returns whether a signature is a documented placeholder, plain or encoded in base64.
pub(crate) fn is_placeholder_signature(signature: &str) -> bool {
    let decoded = SealFormat::Gemini.decode(signature);
    STAND_INS.iter().any(|known| {
        *known == signature || decoded.as_deref().is_some_and(|bytes| bytes == known.as_bytes())
    })
}

/// Converts a signature to the standard base64 alphabet, which the ledger uses. Gemini accepts both
/// alphabets.
pub(crate) fn standard_base64(signature: &str) -> String {
    let decoded = SealFormat::Gemini.decode(signature);
    decoded.map_or_else(|| signature.to_owned(), |bytes| STANDARD.encode(bytes))
}

fn check_signature(
    exchange: &mut Exchange<'_>,
    turn: &Turn,
    path: &str,
    part: Node<'_>,
) -> Result<(), Refusal> {
    let Exchange { request, state, record } = exchange;
    let Some(signature) = signature(part) else { return Ok(()) };
    if is_placeholder_signature(&signature) {
        record.record_returned(&signature, path, Verdict::dropped("stand_in"));
        return Ok(());
    }
    let profile = &turn.target.profile;
    let claims = match state.keys.open(&request.row.name, SealFormat::Gemini, &signature) {
        Ok(claims) if !profile.bound.account || claims.account == request.account => claims,
        Err(SealError::NotBase64) => {
            record.record_returned(&signature, path, Verdict::refused("not_base64"));
            return Err(Refusal::invalid(format!(
                "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for \"{signature}\""
            )));
        }
        Ok(_) | Err(SealError::Empty | SealError::Unknown) => {
            record.record_returned(&signature, path, Verdict::refused("corrupted"));
            return Err(Refusal::invalid("Corrupted thought signature."));
        }
    };
    let text = part.text_of("text").filter(|_| claims.kind == "text");
    // If another reply contains this text, the signature was only moved, which has no known effect.
    let is_signed_elsewhere = |text: &str| {
        let key = ReplyKey::Text(Some(request.account), text.to_owned());
        !state.ledger.replies(&key).is_empty()
    };
    let is_edited = text.is_some_and(|text| {
        !text.is_empty() && claims.text != signed(&text) && !is_signed_elsewhere(&text)
    });
    let verdict = if !profile.reads_seals_of(&claims.family) {
        Verdict::dropped("other_model")
    } else if is_edited {
        Verdict::dropped("text_edited")
    } else {
        Verdict::Accepted
    };
    record.record_returned(&standard_base64(&signature), path, verdict);
    Ok(())
}

/// Checks that the first call of each step in the current turn has a signature.
fn check_first_calls(
    request: &SimRequest,
    profile: &Profile,
    contents: &[Node<'_>],
) -> Result<(), Refusal> {
    if profile.contract == Contract::Stateless {
        return Ok(());
    }
    let is_new = |content: &Node<'_>| {
        !is_model_content(*content)
            && parts(*content).any(|part| get(part, "functionResponse").is_none())
    };
    let current = contents.iter().rposition(is_new).unwrap_or_default();
    let mut is_step_signed = false;
    for (at, content) in contents.iter().enumerate().skip(current) {
        if !is_model_content(*content) {
            is_step_signed = false;
            continue;
        }
        let Some(first) = calls(*content).next().filter(|_| !is_step_signed) else { continue };
        is_step_signed = true;
        if signature(first).is_none() {
            let name = get(first, "functionCall").and_then(|call| call.text_of("name"));
            let name = name.unwrap_or_default();
            return Err(Refusal::invalid(if &*request.row.name == "vertex" {
                format!(
                    "Function call `{name}` in the `{at}.` content block is missing a `thought_signature`."
                )
            } else {
                unsigned_call_message(&name, at)
            }));
        }
    }
    Ok(())
}

/// Returns Gemini's error message for an unsigned call. `at` is the index of the content with the
/// call.
pub(crate) fn unsigned_call_message(name: &str, at: usize) -> String {
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
        at + 1
    )
}

fn fill_turn(turn: &mut Turn, root: Node<'_>, contents: &[Node<'_>]) {
    turn.elements.extend(list(root, "tools").map(PromptElement::new));
    turn.elements.extend(get(root, "systemInstruction").map(PromptElement::new));
    for content in contents {
        turn.elements.push(PromptElement::new(*content));
        if is_model_content(*content) {
            turn.step += 1;
            let calls = calls(*content).filter_map(|part| get(part, "functionCall"));
            turn.called.extend(calls.map(|call| string(call, "name").unwrap_or_default()));
            continue;
        }
        if results(*content).next().is_none() {
            let texts = parts(*content).filter_map(|part| part.text_of("text"));
            turn.start_user_turn(texts.collect::<Vec<_>>().join("\n"));
        }
        turn.results.extend(results(*content).map(result_text));
    }
}

/// Returns the keys of the reply that a model content came from. Clients must return the signatures
/// of that reply in every later turn.
fn reply_keys(request: &SimRequest, content: Node<'_>) -> Vec<ReplyKey> {
    if !is_model_content(content) {
        return Vec::new();
    }
    let (thoughts, texts): (Vec<_>, Vec<_>) =
        parts(content).partition(|part| is_true(*part, "thought"));
    let text_of = |part: &Node<'_>| string(*part, "text");
    let thoughts = thoughts.iter().filter_map(text_of).map(ReplyKey::Thought);
    let text = ReplyKey::Text(Some(request.account), texts.iter().filter_map(text_of).collect());
    let ids = calls(content).filter_map(|part| string(get(part, "functionCall")?, "id"));
    thoughts.chain([text]).chain(ids.map(ReplyKey::Call)).collect()
}

/// Returns a function response as text. If the response has only one member and it is a string,
/// returns that string; otherwise returns the raw JSON.
fn result_text(answer: Node<'_>) -> String {
    let Some(response) = answer.get("response") else { return String::new() };
    let mut members = response.members();
    match (members.next().and_then(|(_, value)| value.text()), members.next()) {
        (Some(text), None) => text.into_owned(),
        (_, _) => String::from_utf8_lossy(response.raw()).into_owned(),
    }
}
