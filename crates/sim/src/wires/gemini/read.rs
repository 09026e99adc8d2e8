//! Reads requests: the settings, the contents, and the signatures on their parts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use throughline_core::{Contract, Profile};
use throughline_json::Node;

use crate::cache::PromptElement;
use crate::digest::Digest;
use crate::keys::{SealError, SealFormat};
use crate::ledger::{EntryBuilder, ReplyKey, Verdict};
use crate::state::SimState;
use crate::turn::{OfferedTool, Operation, Refusal, SimRequest, ToolChoice, Turn};
use crate::wires::Exchange;
use crate::wires::gemini::get;
use crate::wires::openai;

/// Documented placeholder signatures for history from another source.
const STAND_INS: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Reads a request or returns the provider's error.
pub(super) fn read(exchange: Exchange<'_>) -> Result<Turn, Refusal> {
    let Exchange { asking, world, record } = exchange;
    let root = asking.body.root();
    // A countTokens request may wrap the whole request.
    let root = get(root, "generateContentRequest").unwrap_or(root);
    let contents: Vec<Node<'_>> =
        root.get("contents").into_iter().flat_map(Node::elements).collect();
    if contents.is_empty() {
        return Err(Refusal::invalid(
            "* GenerateContentRequest.contents: contents is not specified",
        ));
    }
    let target = world.catalog.target(&asking.row, &asking.model, &asking.account.hex(8));
    let mut turn = Turn::new(target);
    settings(&mut turn, asking, root)?;
    matching(&contents)?;
    let reader = SignatureChecker { asking, world, turn: &turn };
    for (at, content) in
        contents.iter().enumerate().filter(|(_, content)| is_model_content(**content))
    {
        for (number, part) in parts(*content).enumerate() {
            reader.part(&format!("contents[{at}].parts[{number}]"), part, record)?;
        }
    }
    reader.check_first_calls(&contents)?;
    listen(&mut turn, root, &contents);
    turn.owed = contents.iter().flat_map(|content| owed(asking, *content)).collect();
    Ok(turn)
}

/// Returns the digest of a signed text.
pub(super) fn signed(text: &str) -> Digest {
    Digest::new("throughline-sim gemini text", text)
}

fn settings(turn: &mut Turn, asking: &SimRequest, root: Node<'_>) -> Result<(), Refusal> {
    let config = get(root, "generationConfig");
    let of_config = |key: &str| config.and_then(|config| get(config, key));
    let thinking = of_config("thinkingConfig");
    let of_thinking = |key: &str| thinking.and_then(|thinking| get(thinking, key));
    let profile = turn.target.profile.clone();
    let level = of_thinking("thinkingLevel").and_then(Node::text);
    if let Some(level) = level.as_deref() {
        check_level(&profile, level)?;
    }
    let budget = of_thinking("thinkingBudget").and_then(number);
    if let Some(budget) = budget {
        check_budget(&profile, budget)?;
    }
    let is_off = budget == Some(0);
    turn.shows = of_thinking("includeThoughts").and_then(Node::bool).unwrap_or(false);
    if turn.shows && is_off {
        let message = "Unable to submit request because Thinking_config.include_thoughts is only enabled when thinking is enabled.";
        return Err(Refusal::invalid(message));
    }
    let is_asked = budget.is_some() || level.is_some();
    let can = profile.thinks_by_default || profile.budget.is_some() || !profile.levels.is_empty();
    turn.thinks = !is_off && (profile.thinks_by_default || (is_asked && can));
    turn.stream = asking.verb == Operation::Stream;
    turn.max_tokens = of_config("maxOutputTokens").and_then(Node::u64);
    let schema = ["responseJsonSchema", "responseSchema"].into_iter().find_map(of_config);
    let wants_json = of_config("responseMimeType").is_some_and(|kind| kind.is("application/json"));
    turn.schema = schema.map(openai::value).or(wants_json.then_some(Value::Bool(true)));
    turn.tools = tools(root);
    turn.choice = choice(root);
    Ok(())
}

/// Parses an integer, which Google also accepts as a string.
fn number(node: Node<'_>) -> Option<i64> {
    let text = node.number().map(Cow::Borrowed).or_else(|| node.text())?;
    text.parse().ok()
}

fn check_level(profile: &Profile, level: &str) -> Result<(), Refusal> {
    if profile.levels.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        return Ok(());
    }
    let message = if profile.levels.is_empty() {
        "Thinking level is not supported for this model.".to_owned()
    } else {
        format!(
            "Thinking level {} is not supported for this model. Please retry with other thinking level.",
            level.to_ascii_uppercase()
        )
    };
    Err(Refusal::invalid(message))
}

fn check_budget(profile: &Profile, budget: i64) -> Result<(), Refusal> {
    let Some(limits) = profile.budget else { return Ok(()) };
    let is_good = match budget {
        -1 => true,
        0 => limits.zero,
        budget => u64::try_from(budget).is_ok_and(|b| (limits.min..=limits.max).contains(&b)),
    };
    if is_good {
        return Ok(());
    }
    let (min, max) = (if limits.zero { 0 } else { limits.min }, limits.max);
    Err(Refusal::invalid(format!(
        "The thinking budget ({budget}) is invalid. Please choose a value between {min} and {max}."
    )))
}

fn tools(root: Node<'_>) -> Vec<OfferedTool> {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    let declared = tools
        .flat_map(|tool| get(tool, "functionDeclarations").into_iter().flat_map(Node::elements));
    let offered = declared.filter_map(|function| {
        let schema = ["parametersJsonSchema", "parameters"].iter().find_map(|k| get(function, k));
        let empty = || json!({"type": "object", "properties": {}});
        let schema = schema.map_or_else(empty, openai::value);
        let name = function.text_of("name")?.into_owned();
        Some(OfferedTool { name, schema, custom: false })
    });
    offered.collect()
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
    content.get("role").is_some_and(|role| role.is("model"))
}

fn parts(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    content.get("parts").into_iter().flat_map(Node::elements)
}

fn calls(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    parts(content).filter(|part| get(*part, "functionCall").is_some())
}

fn answers(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    parts(content).filter_map(|part| get(part, "functionResponse"))
}

/// Checks that the numbers of calls and results of each step are equal.
fn matching(contents: &[Node<'_>]) -> Result<(), Refusal> {
    let mut asked = 0;
    let mut answered = 0;
    let mut is_waiting = false;
    let differs = |asked: usize, answered: usize| {
        if asked == answered {
            return Ok(());
        }
        Err(Refusal::invalid(
            "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
        ))
    };
    for content in contents {
        if is_model_content(*content) {
            if is_waiting {
                differs(asked, answered)?;
                (asked, answered, is_waiting) = (0, 0, false);
            }
            asked += calls(*content).count();
        } else {
            answered += answers(*content).count();
            is_waiting = true;
        }
    }
    // Calls at the end without results belong to an unfinished request, which is accepted.
    if is_waiting { differs(asked, answered) } else { Ok(()) }
}

struct SignatureChecker<'a> {
    asking: &'a SimRequest,
    world: &'a SimState,
    turn: &'a Turn,
}

/// Returns the signature of a part, if it is not empty.
fn signature(part: Node<'_>) -> Option<Cow<'_, str>> {
    let text = get(part, "thoughtSignature").and_then(Node::text)?;
    Some(text).filter(|text| !text.is_empty())
}

/// Returns whether a signature is a documented placeholder, plain or in base64.
pub(crate) fn is_placeholder_signature(signature: &str) -> bool {
    let decoded = SealFormat::Gemini.decode(signature);
    STAND_INS.iter().any(|known| {
        *known == signature || decoded.as_deref().is_some_and(|bytes| bytes == known.as_bytes())
    })
}

impl SignatureChecker<'_> {
    /// Verifies the signature of a part, if it has one.
    fn part(&self, path: &str, part: Node<'_>, record: &mut EntryBuilder) -> Result<(), Refusal> {
        let Some(signature) = signature(part) else { return Ok(()) };
        if is_placeholder_signature(&signature) {
            record.record_returned(&signature, path, Verdict::Dropped("stand_in".to_owned()));
            return Ok(());
        }
        let opened = self.world.keys.open(&self.asking.row.name, SealFormat::Gemini, &signature);
        let profile = &self.turn.target.profile;
        let claims = match opened {
            Ok(claims) if !profile.bound.account || claims.account == self.asking.account => claims,
            Err(SealError::NotBase64) => {
                record.record_returned(&signature, path, Verdict::Refused("not_base64".to_owned()));
                let message = format!(
                    "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for \"{signature}\""
                );
                return Err(Refusal::invalid(message));
            }
            Ok(_) | Err(SealError::Empty | SealError::Unknown) => {
                record.record_returned(&signature, path, Verdict::Refused("corrupted".to_owned()));
                return Err(Refusal::invalid("Corrupted thought signature."));
            }
        };
        let text = part.text_of("text").filter(|_| claims.kind == "text");
        // If another signature covers this text, the signature was only moved, which has no known
        // effect.
        let is_said = |text: &str| {
            let landmark = ReplyKey::Text(Some(self.asking.account), text.to_owned());
            !self.world.book.answers(&landmark).is_empty()
        };
        let is_edited = text.is_some_and(|text| {
            !text.is_empty() && claims.text != signed(&text) && !is_said(&text)
        });
        let verdict = if !profile.reads_seals_of(&claims.family) {
            Verdict::Dropped("other_model".to_owned())
        } else if is_edited {
            Verdict::Dropped("text_edited".to_owned())
        } else {
            Verdict::Accepted
        };
        // Both base64 alphabets encode the same bytes, so the ledger uses the standard one.
        let standard = SealFormat::Gemini.decode(&signature).map(|bytes| STANDARD.encode(bytes));
        record.record_returned(standard.as_deref().unwrap_or(&signature), path, verdict);
        Ok(())
    }

    /// Requires a signature on the first call of each step of the current turn.
    fn check_first_calls(&self, contents: &[Node<'_>]) -> Result<(), Refusal> {
        if self.turn.target.profile.contract == Contract::Stateless {
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
            if signature(first).is_some() {
                continue;
            }
            let name = get(first, "functionCall").and_then(|call| call.text_of("name"));
            return Err(self.unsigned(&name.unwrap_or_default(), at));
        }
        Ok(())
    }

    fn unsigned(&self, name: &str, at: usize) -> Refusal {
        if &*self.asking.row.name == "vertex" {
            return Refusal::invalid(format!(
                "Function call `{name}` in the `{at}.` content block is missing a `thought_signature`."
            ));
        }
        Refusal::invalid(format!(
            "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
            at + 1
        ))
    }
}

/// Fills the turn from the contents.
fn listen(turn: &mut Turn, root: Node<'_>, contents: &[Node<'_>]) {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    turn.elements.extend(tools.map(PromptElement::new));
    turn.elements.extend(get(root, "systemInstruction").map(PromptElement::new));
    for content in contents {
        turn.elements.push(PromptElement::new(*content));
        if is_model_content(*content) {
            turn.step += 1;
            let names = calls(*content).filter_map(|part| get(part, "functionCall"));
            let names = names.map(|call| call.text_of("name").unwrap_or_default().into_owned());
            turn.called.extend(names);
            continue;
        }
        let answers: Vec<_> = answers(*content).collect();
        if answers.is_empty() {
            let texts = parts(*content).filter_map(|part| part.text_of("text"));
            turn.start_user_turn(texts.collect::<Vec<_>>().join("\n"));
        }
        turn.results.extend(answers.into_iter().map(result_text));
    }
}

/// Returns the keys of a model content. Every signature of any turn must come back.
fn owed(asking: &SimRequest, content: Node<'_>) -> Vec<ReplyKey> {
    if !is_model_content(content) {
        return Vec::new();
    }
    let is_thought = |part: &Node<'_>| part.get("thought").and_then(Node::bool).unwrap_or_default();
    let (thoughts, texts): (Vec<_>, Vec<_>) = parts(content).partition(is_thought);
    let text_of = |part: &Node<'_>| part.text_of("text").map(Cow::into_owned);
    let thoughts = thoughts.iter().filter_map(text_of).map(ReplyKey::Thought);
    let said: String = texts.iter().filter_map(text_of).collect();
    let said = Some(ReplyKey::Text(Some(asking.account), said));
    let ids = calls(content).filter_map(|part| get(part, "functionCall")?.text_of("id"));
    let ids = ids.map(|id| ReplyKey::Call(id.into_owned()));
    thoughts.chain(said).chain(ids).collect()
}

/// Returns a function response as text: its only member if that is a string, else the raw JSON.
fn result_text(answer: Node<'_>) -> String {
    let Some(response) = answer.get("response") else { return String::new() };
    let mut members = response.members();
    match (members.next().and_then(|(_, value)| value.text()), members.next()) {
        (Some(text), None) => text.into_owned(),
        (_, _) => String::from_utf8_lossy(response.raw()).into_owned(),
    }
}
