//! What the simulated models think: always the same about the same, with letters that careless encoders spoil.
//!
//! By default a model thinks, calls each tool that it is offered once, thinks again and answers with what the tools said.

use serde_json::Value;
use throughline_core::{Stop, Usage};

use crate::cache::tokens;
use crate::digest::Mark;
use crate::schema;
use crate::turn::{Asking, Choice, Offered, Part, Plan, Refusal, Telling, Turn};
use crate::world::World;

/// What to answer to a request, and what it costs.
pub(crate) fn plan(asking: &Asking, turn: &Turn, world: &World) -> Result<Plan, Refusal> {
    let asks_for_all = asking.header("x-sim-parallel").is_some_and(|value| value.trim() == "true");
    let parallel = asks_for_all || world.options.parallel;
    let input = world.cache.read_and_write(owner(asking), &turn.elements);
    if !turn.demoted
        && let Some(scripted) = world.playing.next(turn, input, asking.nonce)
    {
        return scripted;
    }
    let mut plan = decide(turn, parallel, asking.nonce);
    let output = output(&plan.parts);
    plan.usage = Usage { output: output.output, thought: output.thought, ..input };
    Ok(plan)
}

/// Whose cache a request reads.
pub(crate) fn owner(asking: &Asking) -> Mark {
    asking.account.and(asking.row.name.as_bytes()).and(asking.model.as_bytes())
}

/// Why an answer ended, in a word for the ledger.
pub(crate) fn stop_word(stop: &Stop) -> &'static str {
    match stop {
        Stop::Done => "done",
        Stop::Tools => "tools",
        Stop::Length => "length",
        Stop::Sequence(_) => "sequence",
        Stop::Paused => "paused",
        Stop::Refused(_) => "refused",
        Stop::Cut => "cut",
        Stop::Other(_) => "other",
    }
}

/// What to answer.
pub(crate) fn decide(turn: &Turn, parallel: bool, nonce: Mark) -> Plan {
    if turn.demoted {
        let stop = Stop::Refused("reasoning_extraction".into());
        return Plan { parts: Vec::new(), stop, usage: Usage::default() };
    }
    let calls = next_calls(turn, parallel);
    let mut parts = Vec::new();
    if turn.thinks {
        let text = thought(turn, &calls, nonce);
        parts.push(Part::Thought { text, telling: telling(turn) });
    }
    if calls.is_empty() {
        parts.push(Part::Text(answer(turn, nonce)));
        return Plan { parts, stop: Stop::Done, usage: Usage::default() };
    }
    for tool in calls {
        let arguments = if tool.custom {
            Value::String("naïve café ☕".to_owned())
        } else {
            schema::fitting(&tool.schema, nonce.and(&tool.name))
        };
        parts.push(Part::Call { name: tool.name.clone(), arguments });
    }
    Plan { parts, stop: Stop::Tools, usage: Usage::default() }
}

/// Anthropic documents a text with which its models redact what they think, so that clients can be tested.
const REDACTS: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING";

fn telling(turn: &Turn) -> Telling {
    let is_claude = turn.target.profile.name.starts_with("claude");
    let redacts = is_claude && turn.asked.contains(REDACTS);
    if redacts { Telling::Redacted } else { Telling::AsAsked }
}

/// What an answer costs to say.
pub(crate) fn output(parts: &[Part]) -> Usage {
    let mut usage = Usage::default();
    for part in parts {
        let spent = match part {
            Part::Thought { text, .. } | Part::Text(text) => tokens(text.len()),
            Part::Call { name, arguments } => 8 + tokens(name.len() + arguments.to_string().len()),
        };
        if let Part::Thought { .. } = part {
            usage.thought += spent;
        }
        usage.output += spent;
    }
    usage
}

fn next_calls(turn: &Turn, parallel: bool) -> Vec<&Offered> {
    let is_called = |tool: &&Offered| turn.called.contains(&tool.name);
    let mut fresh = turn.tools.iter().filter(|tool| !is_called(tool));
    match &turn.choice {
        Choice::Never => Vec::new(),
        Choice::Tool(name) => {
            turn.tools.iter().find(|tool| tool.name == *name).into_iter().collect()
        }
        Choice::Any => fresh.next().or(turn.tools.first()).into_iter().collect(),
        Choice::Auto if turn.parallel.unwrap_or(parallel) => fresh.collect(),
        Choice::Auto => fresh.next().into_iter().collect(),
    }
}

fn thought(turn: &Turn, calls: &[&Offered], nonce: Mark) -> String {
    const OPENINGS: [&str; 4] = [
        "Let me think this through — carefully, not naïvely.",
        "First things first: what is really being asked?",
        "Hmm… there are two ways to read this. 🤔",
        "Okay, step by step, comme il faut.",
    ];
    let opening = OPENINGS.get(nonce.and("opening").below(OPENINGS.len())).copied().unwrap_or("");
    let asked = excerpt(&turn.asked);
    let heard = match turn.results.last() {
        Some(result) => format!(" The tool said “{}”.", excerpt(result)),
        None => String::new(),
    };
    let names: Vec<&str> = calls.iter().map(|tool| tool.name.as_str()).collect();
    let next = if names.is_empty() {
        "Nothing is left to look up, so I can answer now ✅".to_owned()
    } else {
        format!("I still need `{}` → call it.", names.join("`, `"))
    };
    // The number makes each thought one that nobody else had.
    let number = nonce.and("number").hex(6);
    format!("{opening} The user says “{asked}”.{heard} {next} (note {number})")
}

fn answer(turn: &Turn, nonce: Mark) -> String {
    if let Some(schema) = &turn.schema {
        return schema::fitting(schema, nonce).to_string();
    }
    let asked = excerpt(&turn.asked);
    if turn.results.is_empty() {
        return format!("Here is my answer to “{asked}”: it depends — but mostly yes. 🙂");
    }
    let results: Vec<String> = turn.results.iter().map(|result| excerpt(result)).collect();
    format!("You asked “{asked}”. What I found: {}. Voilà ✨", results.join("; "))
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 60 {
        return line;
    }
    line.chars().take(59).chain(['…']).collect()
}
