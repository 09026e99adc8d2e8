//! Plans the replies of simulated models. Replies are deterministic, and contain non-ASCII
//! characters that careless encoders corrupt.
//!
//! By default, a model thinks, calls each offered tool once, thinks again, and answers with the
//! tool results. It does not call tools that start subagents, wait for a person, change the
//! session, manage an agent's own state or use the network, and stops after [`MAX_ROUNDS`] rounds
//! of calls.

use throughline_core::{StopReason, Usage};

use crate::agent_tools::{is_callable, requests_summary, sample_arguments};
use crate::digest::Digest;
use crate::schema;
use crate::state::SimState;
use crate::turn::{
    OfferedTool, Refusal, ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, ToolChoice, Turn,
    output,
};

#[cfg(test)]
#[path = "planner_tests.rs"]
mod planner_tests;

/// Maximum number of replies with tool calls after a user message, so that every agent loop ends.
pub(crate) const MAX_ROUNDS: usize = 16;

/// Plans the reply to a request and estimates the token usage. Scripted replies take precedence.
pub(crate) fn plan(
    request: &SimRequest,
    turn: &Turn,
    state: &SimState,
) -> Result<ReplyPlan, Refusal> {
    let asks_for_all = request.header("x-sim-parallel").is_some_and(|value| value.trim() == "true")
        || turn.user_text.contains(crate::PARALLEL_CALLS);
    let parallel = asks_for_all || state.options.parallel;
    let input = state.cache.read_and_write(owner(request), &turn.elements);
    if !turn.demoted
        && let Some(scripted) = state.script.next(turn, input, request.nonce)
    {
        return scripted;
    }
    let mut plan = decide(turn, parallel, request.nonce);
    if let Some(ReplyPart::Thought { text, display }) = plan.parts.first()
        && request.has_fallback()
    {
        let text = format!("{text} Another model continues.");
        plan.parts.insert(1, ReplyPart::Thought { text, display: *display });
    }
    let output = output(&plan.parts);
    plan.usage = Usage { output: output.output, thought: output.thought, ..input };
    Ok(plan)
}

/// Returns the digest of the account, provider and model. Requests with the same digest share one
/// prompt cache.
pub(crate) fn owner(request: &SimRequest) -> Digest {
    request.account.and(request.row.name.as_bytes()).and(request.model.as_bytes())
}

/// Returns the name that the ledger uses for a stop reason.
pub(crate) fn stop_word(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::Done => "done",
        StopReason::Tools => "tools",
        StopReason::Length => "length",
        StopReason::Sequence(_) => "sequence",
        StopReason::Paused => "paused",
        StopReason::Refused(_) => "refused",
        StopReason::Cut => "cut",
        StopReason::Other(_) => "other",
    }
}

/// Plans a reply without consulting the script.
pub(crate) fn decide(turn: &Turn, parallel: bool, nonce: Digest) -> ReplyPlan {
    if turn.demoted {
        let stop = StopReason::Refused("reasoning_extraction".into());
        return ReplyPlan { parts: Vec::new(), stop, usage: Usage::default() };
    }
    if turn.compacts {
        let parts = vec![ReplyPart::Text(compaction(turn, nonce))];
        return ReplyPlan { parts, stop: StopReason::Done, usage: Usage::default() };
    }
    let calls = next_calls(turn, parallel);
    let mut parts = Vec::new();
    if turn.thinks {
        let text = thought(turn, &calls, nonce);
        parts.push(ReplyPart::Thought { text, display: display(turn) });
    }
    if calls.is_empty() {
        parts.push(ReplyPart::Text(answer(turn, nonce)));
        return ReplyPlan { parts, stop: StopReason::Done, usage: Usage::default() };
    }
    for tool in calls {
        let arguments = sample_arguments(tool, &turn.user_text, nonce);
        parts.push(ReplyPart::Call { name: tool.name.clone(), arguments });
    }
    ReplyPlan { parts, stop: StopReason::Tools, usage: Usage::default() }
}

/// The prompt that triggers redacted thinking, which Anthropic documents for testing clients.
const REDACTS: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING";

fn display(turn: &Turn) -> ThoughtDisplay {
    let is_claude = turn.target.profile.name.starts_with("claude");
    let redacts = is_claude && turn.user_text.contains(REDACTS);
    if redacts { ThoughtDisplay::Redacted } else { ThoughtDisplay::AsAsked }
}

fn next_calls(turn: &Turn, parallel: bool) -> Vec<&OfferedTool> {
    let is_called = |tool: &OfferedTool| turn.called.contains(&tool.name);
    let mut fresh = turn.tools.iter().filter(|tool| !is_called(tool) && is_callable(tool));
    match &turn.choice {
        ToolChoice::Never => Vec::new(),
        ToolChoice::Tool(name) => {
            turn.tools.iter().find(|tool| tool.name == *name).into_iter().collect()
        }
        ToolChoice::Any => fresh.next().or(turn.tools.first()).into_iter().collect(),
        ToolChoice::Auto if ends_loop(turn) => Vec::new(),
        ToolChoice::Auto if turn.parallel.unwrap_or(parallel) => fresh.collect(),
        ToolChoice::Auto => fresh.next().into_iter().collect(),
    }
}

/// Returns whether a model without a script answers instead of calling tools: after the maximum
/// number of rounds, if the agent requests a summary, and after a compaction within the turn, which
/// removes the calls of the turn from the conversation.
fn ends_loop(turn: &Turn) -> bool {
    turn.round() >= MAX_ROUNDS || requests_summary(&turn.user_text) || turn.compacted
}

fn thought(turn: &Turn, calls: &[&OfferedTool], nonce: Digest) -> String {
    const OPENINGS: [&str; 4] = [
        "Let me think this through — carefully, not naïvely.",
        "First things first: what is really being asked?",
        "Hmm… there are two ways to read this. 🤔",
        "Okay, step by step, comme il faut.",
    ];
    let opening = nonce.and("opening").choose(&OPENINGS).copied().unwrap_or_default();
    let question = question(turn);
    let result = turn.results.last();
    let result = result.map(|result| format!(" The tool said “{}”.", excerpt(result)));
    let names: Vec<&str> = calls.iter().map(|tool| tool.name.as_str()).collect();
    let next = if names.is_empty() {
        "Nothing is left to look up, so I can answer now ✅".to_owned()
    } else {
        format!("I still need `{}` → call it.", names.join("`, `"))
    };
    // The number makes every thought unique.
    let number = nonce.and("number").hex(6);
    let result = result.unwrap_or_default();
    format!("{opening} The user says “{question}”.{result} {next} (note {number})")
}

fn answer(turn: &Turn, nonce: Digest) -> String {
    if let Some(schema) = &turn.schema {
        return schema::generate(schema, nonce).to_string();
    }
    let question = question(turn);
    if turn.results.is_empty() {
        return format!("Here is my answer to “{question}”: it depends — but mostly yes. 🙂");
    }
    let results: Vec<String> = turn.results.iter().map(|result| excerpt(result)).collect();
    format!("You asked “{question}”. What I found: {}. Voilà ✨", results.join("; "))
}

/// Returns the text of a compaction.
fn compaction(turn: &Turn, nonce: Digest) -> String {
    let question = question(turn);
    let results: Vec<String> = turn.results.iter().map(|result| excerpt(result)).collect();
    let number = nonce.and("compaction").hex(6);
    let results = if results.is_empty() { "none".to_owned() } else { results.join("; ") };
    format!("Résumé {number} → goal: “{question}”; results so far: {results}.")
}

/// Returns the start of the user's message, without the elements that coding agents put before the
/// user's own words.
fn question(turn: &Turn) -> String {
    excerpt(without_leading_elements(&turn.user_text))
}

/// Shortens a text to a single line of at most 60 characters.
fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 60 {
        return line;
    }
    line.chars().take(59).chain(['…']).collect()
}

/// Removes elements such as `<system-reminder>…</system-reminder>` from the start of a text, unless
/// nothing else remains.
fn without_leading_elements(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some((name, _)) = rest.strip_prefix('<').and_then(|tag| tag.split_once('>')) {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let end = format!("</{name}>");
        let element = rest.split_once(&*end).filter(|_| name.chars().all(is_name));
        let Some((_, after)) = element else { break };
        rest = after.trim_start();
    }
    if rest.is_empty() { text } else { rest }
}
