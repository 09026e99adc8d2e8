//! Requests, read: the settings, the contents, and the signatures on their parts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use throughline_core::{Contract, Node, Profile};

use crate::cache::Element;
use crate::digest::Mark;
use crate::keys::{Forged, Form};
use crate::ledger::{Landmark, Record, Verdict};
use crate::turn::{Asking, Choice, Offered, Refusal, Turn, Verb};
use crate::wires::gemini::get;
use crate::wires::openai;
use crate::world::World;

/// What the documentation gives for history that came from elsewhere.
const STAND_INS: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Reads a request.
pub(super) fn read(asking: &Asking, world: &World, record: &mut Record) -> Result<Turn, Refusal> {
    let root = asking.body.root();
    // A request for the number of tokens may hold the whole request that it is about.
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
    let reader = Reader { asking, world, turn: &turn };
    for (at, content) in contents.iter().enumerate().filter(|(_, content)| is_models(**content)) {
        for (number, part) in parts(*content).enumerate() {
            reader.part(&format!("contents[{at}].parts[{number}]"), part, record)?;
        }
    }
    reader.first_calls(&contents)?;
    listen(&mut turn, root, &contents);
    turn.owed = contents.iter().flat_map(|content| owed(asking, *content)).collect();
    Ok(turn)
}

/// What a signed part says, for knowing it again.
pub(super) fn signed(text: &str) -> Mark {
    Mark::of("throughline-sim gemini text", text)
}

fn settings(turn: &mut Turn, asking: &Asking, root: Node<'_>) -> Result<(), Refusal> {
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
    turn.stream = asking.verb == Verb::Stream;
    turn.max_tokens = of_config("maxOutputTokens").and_then(Node::u64);
    let schema = ["responseJsonSchema", "responseSchema"].into_iter().find_map(of_config);
    let wants_json = of_config("responseMimeType").is_some_and(|kind| kind.is("application/json"));
    turn.schema = schema.map(openai::value).or(wants_json.then_some(Value::Bool(true)));
    turn.tools = tools(root);
    turn.choice = choice(root);
    Ok(())
}

/// A whole number, which Google writes as a string as well.
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

fn tools(root: Node<'_>) -> Vec<Offered> {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    let declared = tools
        .flat_map(|tool| get(tool, "functionDeclarations").into_iter().flat_map(Node::elements));
    let offered = declared.filter_map(|function| {
        let schema = ["parametersJsonSchema", "parameters"].iter().find_map(|k| get(function, k));
        let empty = || json!({"type": "object", "properties": {}});
        let schema = schema.map_or_else(empty, openai::value);
        let name = function.text_of("name")?.into_owned();
        Some(Offered { name, schema, custom: false })
    });
    offered.collect()
}

fn choice(root: Node<'_>) -> Choice {
    let config = get(root, "toolConfig").and_then(|config| get(config, "functionCallingConfig"));
    let Some(config) = config else { return Choice::Auto };
    let mode = config.text_of("mode").unwrap_or_default().to_ascii_uppercase();
    let mut allowed = get(config, "allowedFunctionNames").into_iter().flat_map(Node::elements);
    match (mode.as_str(), allowed.next().and_then(Node::text)) {
        ("NONE", _) => Choice::Never,
        ("ANY", Some(name)) => Choice::Tool(name.into_owned()),
        ("ANY", None) => Choice::Any,
        (_, _) => Choice::Auto,
    }
}

fn is_models(content: Node<'_>) -> bool {
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

/// Every call of a step has its answer in what comes next.
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
        if is_models(*content) {
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
    // Calls that nobody has answered yet are the end of an unfinished request, which is answered as it is.
    if is_waiting { differs(asked, answered) } else { Ok(()) }
}

struct Reader<'a> {
    asking: &'a Asking,
    world: &'a World,
    turn: &'a Turn,
}

/// The signature of a part, unless it says nothing.
fn signature(part: Node<'_>) -> Option<Cow<'_, str>> {
    let text = get(part, "thoughtSignature").and_then(Node::text)?;
    Some(text).filter(|text| !text.is_empty())
}

/// Whether a signature is one that the documentation gives, as it is or in base64.
pub(crate) fn is_stand_in(signature: &str) -> bool {
    let decoded = Form::Gemini.decode(signature);
    STAND_INS.iter().any(|known| {
        *known == signature || decoded.as_deref().is_some_and(|bytes| bytes == known.as_bytes())
    })
}

impl Reader<'_> {
    /// Verifies the signature of a part, where it has one.
    fn part(&self, path: &str, part: Node<'_>, record: &mut Record) -> Result<(), Refusal> {
        let Some(signature) = signature(part) else { return Ok(()) };
        if is_stand_in(&signature) {
            record.give_back(&signature, path, Verdict::Dropped("stand_in".to_owned()));
            return Ok(());
        }
        let opened = self.world.keys.open(&self.asking.row.name, Form::Gemini, &signature);
        let profile = &self.turn.target.profile;
        let claims = match opened {
            Ok(claims) if !profile.bound.account || claims.account == self.asking.account => claims,
            Err(Forged::NotBase64) => {
                record.give_back(&signature, path, Verdict::Refused("not_base64".to_owned()));
                let message = format!(
                    "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for \"{signature}\""
                );
                return Err(Refusal::invalid(message));
            }
            Ok(_) | Err(Forged::Empty | Forged::Unknown) => {
                record.give_back(&signature, path, Verdict::Refused("corrupted".to_owned()));
                return Err(Refusal::invalid("Corrupted thought signature."));
            }
        };
        let text = part.text_of("text").filter(|_| claims.kind == "text");
        // What another signature is for was only moved, which is not known to cost anything.
        let is_said = |text: &str| {
            let landmark = Landmark::Text(Some(self.asking.account), text.to_owned());
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
        // Either alphabet of base64 says the same bytes, so the ledger knows them by one.
        let standard = Form::Gemini.decode(&signature).map(|bytes| STANDARD.encode(bytes));
        record.give_back(standard.as_deref().unwrap_or(&signature), path, verdict);
        Ok(())
    }

    /// Whatever the model called in the current turn, the first call of each step carries a signature.
    fn first_calls(&self, contents: &[Node<'_>]) -> Result<(), Refusal> {
        if self.turn.target.profile.contract == Contract::Stateless {
            return Ok(());
        }
        let is_new = |content: &Node<'_>| {
            !is_models(*content)
                && parts(*content).any(|part| get(part, "functionResponse").is_none())
        };
        let current = contents.iter().rposition(is_new).unwrap_or_default();
        let mut is_step_signed = false;
        for (at, content) in contents.iter().enumerate().skip(current) {
            if !is_models(*content) {
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

/// Notes what was said, and how it was written.
fn listen(turn: &mut Turn, root: Node<'_>, contents: &[Node<'_>]) {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    turn.elements.extend(tools.map(Element::of));
    turn.elements.extend(get(root, "systemInstruction").map(Element::of));
    for content in contents {
        turn.elements.push(Element::of(*content));
        if is_models(*content) {
            turn.step += 1;
            let names = calls(*content).filter_map(|part| get(part, "functionCall"));
            let names = names.map(|call| call.text_of("name").unwrap_or_default().into_owned());
            turn.called.extend(names);
            continue;
        }
        let answers: Vec<_> = answers(*content).collect();
        if answers.is_empty() {
            let texts = parts(*content).filter_map(|part| part.text_of("text"));
            turn.user_said(texts.collect::<Vec<_>>().join("\n"));
        }
        turn.results.extend(answers.into_iter().map(said));
    }
}

/// By what an answer of the model's is known. All that it signed belongs back, on calls and on texts, in whichever turn.
fn owed(asking: &Asking, content: Node<'_>) -> Vec<Landmark> {
    if !is_models(content) {
        return Vec::new();
    }
    let is_thought = |part: &Node<'_>| part.get("thought").and_then(Node::bool).unwrap_or_default();
    let (thoughts, texts): (Vec<_>, Vec<_>) = parts(content).partition(is_thought);
    let text_of = |part: &Node<'_>| part.text_of("text").map(Cow::into_owned);
    let thoughts = thoughts.iter().filter_map(text_of).map(Landmark::Thought);
    let said: String = texts.iter().filter_map(text_of).collect();
    let said = Some(Landmark::Text(Some(asking.account), said));
    let ids = calls(content).filter_map(|part| get(part, "functionCall")?.text_of("id"));
    let ids = ids.map(|id| Landmark::Call(id.into_owned()));
    thoughts.chain(said).chain(ids).collect()
}

/// What an answer says: its only member where it has one text, else all of it.
fn said(answer: Node<'_>) -> String {
    let Some(response) = answer.get("response") else { return String::new() };
    let mut members = response.members();
    match (members.next().and_then(|(_, value)| value.text()), members.next()) {
        (Some(text), None) => text.into_owned(),
        (_, _) => String::from_utf8_lossy(response.raw()).into_owned(),
    }
}
