//! The narrative of a run: a plain account of what happened and why, made from its events.
//!
//! What was said to the model and is kept in no Thread is told all the same, and marked. Pieces of what is told whole later
//! are left out. Everything is redacted as the policy says before it becomes words.

use std::collections::BTreeSet;

use throughline_core::{
    GateEvent, GatePhase, HandoffEvent, Json, MessageEvent, Name, PlanEvent, RedactionPolicy,
    ReplayEvent, RunEvent, RunStatusEvent, ThoughtEvent, ThoughtPhase, ToolApprovalEvent,
    ToolApprovalEventStatus, ToolCallEvent, ToolCallPhase, TurnEvent, TurnPhase, UsageEvent,
    UserQuestionEvent, UserQuestionEventStatus,
};

/// The longest that something is quoted with, in characters.
const LONGEST: usize = 600;

/// What happened in a run and why: a sentence for each event that is more than a piece of another.
pub fn narrate<'e>(
    events: impl IntoIterator<Item = &'e RunEvent>,
    policy: &RedactionPolicy,
) -> String {
    let mut narrative = String::new();
    let mut before = Before::default();
    for event in events {
        let aside = before.aside(event);
        if let (Some(sentence), Some(aside)) = (sentence(event, policy), aside) {
            narrative.push_str(&sentence);
            narrative.push_str(aside);
            narrative.push('\n');
        }
    }
    narrative
}

/// What was told before, as far as it changes what the next event means.
#[derive(Default)]
struct Before {
    /// The calls of tools that were begun.
    begun: BTreeSet<Name>,
    /// Whether the model said anything in its turn.
    has_said: bool,
}

impl Before {
    /// What else is to be said of an event; nothing where it is not to be told.
    fn aside(&mut self, event: &RunEvent) -> Option<&'static str> {
        match event {
            RunEvent::ToolCall(call) if call.phase == ToolCallPhase::Start => {
                self.begun.extend(call.id.clone());
            }
            RunEvent::ToolApproval(waits) if waits.status == ToolApprovalEventStatus::Pending => {
                let call = waits.tool_call_id.as_ref();
                if call.is_some_and(|call| self.begun.contains(call)) {
                    return Some(" It was begun before, and nobody saw its end.");
                }
            }
            RunEvent::Thought(_) | RunEvent::Stream(_) => self.has_said = true,
            RunEvent::Turn(turn) => {
                let had_said = std::mem::take(&mut self.has_said);
                // Where nothing was said, nothing was thrown away.
                return (turn.phase != TurnPhase::Discarded || had_said).then_some("");
            }
            _ => {}
        }
        Some("")
    }
}

/// What one event says, as a sentence; nothing where it is a piece of what is told whole.
pub fn sentence(event: &RunEvent, policy: &RedactionPolicy) -> Option<String> {
    let document = event.json();
    let redacted = policy.redact_event(&event.name(), &document);
    let Ok(event) = RunEvent::parse(&redacted) else {
        return Some(format!("Something happened that is not told ({}).", event.name()));
    };
    Some(match &event {
        RunEvent::Run(event) => run(event),
        RunEvent::Message(event) => message(event),
        RunEvent::Turn(event) => turn(event)?,
        RunEvent::Thought(event) => thought(event, policy)?,
        RunEvent::ToolCall(event) => tool_call(event)?,
        RunEvent::ToolApproval(event) => approval(event),
        RunEvent::UserQuestion(event) => question(event),
        RunEvent::Plan(event) => plan(event)?,
        RunEvent::Reflection(event) => {
            let trigger = event.trigger.as_ref().map(|trigger| format!(" ({})", trigger.as_str()));
            format!("It noted{}: {}", trigger.unwrap_or_default(), quoted(&event.text))
        }
        RunEvent::Summarization(event) => {
            let messages = event.messages_compressed.unwrap_or_default();
            let sizes = event.token_count_before.zip(event.token_count_after);
            let sizes = sizes.map(|(before, after)| format!(", from {before} tokens to {after}"));
            let sizes = sizes.unwrap_or_default();
            let summary = quoted(&event.summary);
            format!("What was old, {messages} parts, was summarised{sizes}: {summary}")
        }
        RunEvent::Handoff(event) => handoff(event),
        RunEvent::Limit(event) => {
            let (allowed, actual) = (event.allowed.as_str(), event.actual.as_str());
            format!("The limit {} was reached: {actual}, and {allowed} are allowed.", event.limit)
        }
        RunEvent::Gate(event) => gate(event),
        RunEvent::Replay(event) => replay(event)?,
        RunEvent::Usage(event) => usage(event)?,
        RunEvent::FinalAnswer(event) => format!("It answered: {}", quoted(&event.content)),
        RunEvent::Cancelled(event) => {
            let reason = event.reason.as_deref().unwrap_or("nobody said why");
            format!("Somebody stopped it: {reason}.")
        }
        RunEvent::Subagent(event) => {
            format!("The agent {}, which works for it: {}.", event.name, event.phase.as_str())
        }
        RunEvent::Guardrail(event) => {
            let reason = event.reason.as_deref().unwrap_or("no reason was given");
            format!("A guardrail said {}: {reason}.", event.disposition.as_str())
        }
        RunEvent::Unknown(event) => format!("Also: {}", clipped(event.as_str())),
        RunEvent::Stream(_) | RunEvent::Progress(_) | RunEvent::Metadata(_) => return None,
    })
}

fn run(event: &RunStatusEvent) -> String {
    let run = event.run_id.as_deref().map_or_else(String::new, |run| format!(" {run}"));
    let reason = event.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    match &*event.status {
        "running" => {
            let agent = event.agent.as_deref().map(|agent| format!(" with the agent {agent}"));
            format!("The run{run} is at work{}{reason}.", agent.unwrap_or_default())
        }
        "waiting" => format!("The run{run} waits for somebody{reason}."),
        status => format!("The run{run} is {status}{reason}."),
    }
}

fn message(event: &MessageEvent) -> String {
    let mark = if event.ephemeral == Some(true) { " (ephemeral: in no thread)" } else { "" };
    format!("The {} said{mark}: {}", event.role, quoted(&event.content))
}

fn turn(event: &TurnEvent) -> Option<String> {
    let number = event.turn;
    let purpose = event.purpose.as_deref().map(|purpose| format!(" for a {purpose}"));
    let purpose = purpose.unwrap_or_default();
    match event.phase {
        TurnPhase::Start => {
            let model = event.model.as_deref().unwrap_or("the model");
            Some(format!("Turn {number}: {model} was asked{purpose}."))
        }
        TurnPhase::Discarded => {
            let reason = event.reason.as_deref().unwrap_or("nobody said why");
            Some(format!("What it had said in turn {number} was thrown away: {reason}."))
        }
        TurnPhase::End => None,
    }
}

fn thought(event: &ThoughtEvent, policy: &RedactionPolicy) -> Option<String> {
    if event.phase == ThoughtPhase::Delta {
        return None;
    }
    let sealed = event.sealed_bytes.map(|bytes| format!("{bytes} bytes of it sealed"));
    Some(match (event.text.as_deref(), sealed) {
        (Some(text), sealed) => {
            let text = policy.redact_thought(text);
            let sealed = sealed.map(|sealed| format!(" ({sealed})")).unwrap_or_default();
            format!("It thought{sealed}: {}", quoted(&text))
        }
        (None, Some(sealed)) => format!("It thought, and does not tell what ({sealed})."),
        (None, None) => return None,
    })
}

fn tool_call(event: &ToolCallEvent) -> Option<String> {
    let name = &event.name;
    let took = event.duration_ms.as_ref().map(|took| format!(" after {} ms", took.as_str()));
    let took = took.unwrap_or_default();
    Some(match event.phase {
        ToolCallPhase::Start => {
            let args = event.args.as_ref().map(|args| format!(" with {}", value(args)));
            format!("The tool {name} was begun{}.", args.unwrap_or_default())
        }
        ToolCallPhase::Success => {
            let result = event.result.as_ref().map(|result| format!(": {}", value(result)));
            format!("The tool {name} answered{took}{}", result.unwrap_or_default())
        }
        ToolCallPhase::Error => {
            let problem = event.error.as_ref().map_or("nobody knows why", |e| &e.message);
            format!("The tool {name} failed{took}: {}", clipped(problem))
        }
        ToolCallPhase::Skipped => {
            let problem = event.error.as_ref().map_or("it was left out", |e| &e.message);
            format!("The tool {name} was not run: {}", clipped(problem))
        }
        ToolCallPhase::Progress => return None,
    })
}

fn approval(event: &ToolApprovalEvent) -> String {
    let ToolApprovalEvent { id, tool_name, .. } = event;
    let by = event.decided_by.as_deref().unwrap_or("Somebody");
    let comment = event.comment.as_deref().map(|comment| format!(": {}", quoted(comment)));
    let comment = comment.unwrap_or_default();
    match event.status.as_str() {
        "pending" => {
            let args = event.args.as_ref().map(|args| format!(" with {}", value(args)));
            let args = args.unwrap_or_default();
            format!("The tool {tool_name} may run{args} only if somebody allows it ({id}).")
        }
        status => format!("{by} {status} the tool {tool_name} ({id}){comment}."),
    }
}

fn question(event: &UserQuestionEvent) -> String {
    let by = event.answered_by.as_deref().unwrap_or("Somebody");
    match event.status {
        UserQuestionEventStatus::Pending => {
            let asked = event.questions.iter().flatten().map(|asked| quoted(&asked.question));
            let asked = asked.collect::<Vec<_>>().join(" and ");
            format!("It asks a person ({}): {asked}", event.id)
        }
        UserQuestionEventStatus::Answered => {
            let answers = event.answers.iter().flat_map(|answers| &answers.0);
            let answers = answers.map(|(asked, answer)| {
                let free = answer.free_text.iter();
                let words: Vec<&str> = answer.values.iter().chain(free).map(|w| &**w).collect();
                format!("{} to {}", quoted(&words.join(", ")), quoted(asked))
            });
            let answers = answers.collect::<Vec<_>>().join(" and ");
            format!("{by} answered ({}): {answers}", event.id)
        }
        UserQuestionEventStatus::Cancelled => {
            format!("{by} did not want to answer ({}).", event.id)
        }
    }
}

fn plan(event: &PlanEvent) -> Option<String> {
    let steps = event.todo_list.as_ref()?;
    let told = steps.iter().map(|step| format!("{} [{}]", step.step, step.status.as_str()));
    let version = event.version.map(|version| format!(" {version}")).unwrap_or_default();
    Some(format!("Its plan{version}: {}.", told.collect::<Vec<_>>().join("; ")))
}

fn handoff(event: &HandoffEvent) -> String {
    let from = event.from.as_deref().unwrap_or("nobody");
    let to = event.to.as_deref().unwrap_or("nobody");
    if &*event.tool_name == "switch_model" {
        return format!("From now on {to} is asked instead of {from}.");
    }
    format!("{from} handed over to {to}.")
}

fn gate(event: &GateEvent) -> String {
    let attempt = event.attempt;
    let kind = event.error_kind.as_deref().unwrap_or("unknown");
    let why = event.message.as_deref().map(|why| format!(": {}", clipped(why)));
    let why = why.unwrap_or_default();
    let to = event.to_model.as_deref().map(|to| format!(" of {to}")).unwrap_or_default();
    match event.phase {
        GatePhase::Retried => {
            format!("Attempt {attempt} was not taken ({kind}), and it is asked for again{to}{why}")
        }
        GatePhase::Recovered => format!("Attempt {attempt} was taken after all."),
        GatePhase::Failed => format!("Attempt {attempt} was the last one ({kind}){why}"),
    }
}

fn replay(event: &ReplayEvent) -> Option<String> {
    let count = |number: Option<u64>, words: &str| {
        number.filter(|number| *number > 0).map(|number| format!("{number} {words}"))
    };
    let told: Vec<String> = [
        count(event.kept, "as they were"),
        count(event.restored, "put back"),
        count(event.reshaped, "in other words"),
        count(event.elided, "left out"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if told.is_empty() {
        return None;
    }
    let why: Vec<&str> = event.why.iter().flatten().map(|(why, _)| &**why).collect();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    Some(format!("Of its earlier thoughts it was sent {}{why}.", told.join(", ")))
}

fn usage(event: &UsageEvent) -> Option<String> {
    let usage = event.usage.as_ref()?;
    let (read, wrote) = (usage.input_tokens?, usage.output_tokens?);
    let thought = usage.reasoning_tokens.map(|number| format!(", {number} of them thought"));
    let thought = thought.unwrap_or_default();
    let cost = event.total_cost_usd.as_ref().and_then(|cost| cost.as_str().parse::<f64>().ok());
    let cost = cost.map(|cost| format!("; ${cost:.4} so far")).unwrap_or_default();
    Some(format!("It read {read} tokens and wrote {wrote}{thought}{cost}."))
}

/// A value for a reader: the text itself where it is one.
fn value(value: &Json) -> String {
    match value.tree().root().name() {
        Some(text) => quoted(&text),
        None => clipped(value.as_str()).to_string(),
    }
}

fn quoted(text: &str) -> String {
    format!("“{}”", clipped(text))
}

/// The beginning of a text, on one line.
fn clipped(text: &str) -> Name {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => Name::from(format!("{}…", line.get(..end).unwrap_or_default())),
        None => Name::from(line),
    }
}

#[cfg(test)]
#[path = "narrate_tests.rs"]
mod narrate_tests;
