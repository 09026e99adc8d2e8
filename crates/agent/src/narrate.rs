//! Narrates a run: describes its events, and the reasons for them, in plain sentences.
//!
//! Ephemeral messages are included and marked as ephemeral. Text deltas are skipped, because a
//! later event contains the whole text. The redaction policy is applied before a sentence is built.

use std::collections::BTreeSet;

use throughline_json::{Json, Name};
use throughline_spec::{
    GateEvent, GatePhase, HandoffEvent, MessageEvent, PlanEvent, RedactionPolicy, ReplayEvent,
    RunEvent, RunStatusEvent, ThoughtEvent, ThoughtPhase, ToolApprovalEvent,
    ToolApprovalEventStatus, ToolCallEvent, ToolCallPhase, TurnEvent, TurnPhase, UsageEvent,
    UserQuestionEvent, UserQuestionEventStatus,
};

/// Field of the `tool_call` event that marks an unknown outcome, which `phase` cannot express.
pub(crate) const OUTCOME: &str = "outcome";
pub(crate) const UNKNOWN: &str = "unknown";

/// Maximum length of a quotation, in characters.
const LONGEST: usize = 600;

/// Describes each event in one sentence. Deltas are skipped, because a later event repeats their
/// text.
pub fn narrate<'e>(
    events: impl IntoIterator<Item = &'e RunEvent>,
    policy: &RedactionPolicy,
) -> String {
    let mut narrator = Narrator::new(policy);
    let sentences = events.into_iter().filter_map(|event| narrator.push(event));
    sentences.map(|sentence| sentence + "\n").collect()
}

/// Builds sentences from a run's events one at a time, and tracks earlier events that affect later
/// sentences.
#[derive(Debug)]
pub struct Narrator<'p> {
    policy: &'p RedactionPolicy,
    started: BTreeSet<Name>,
    /// Tool calls that started, but whose end was not recorded.
    lost: BTreeSet<Name>,
    /// Whether the model produced output in the current attempt.
    has_output: bool,
    /// The `start` event of the current attempt.
    current_start: Option<TurnEvent>,
    /// The `start` event of an attempt that was discarded without output.
    discarded_start: Option<TurnEvent>,
    answer: Option<Name>,
    has_named_run: bool,
}

impl<'p> Narrator<'p> {
    /// Creates a narrator for one run. Push all events of the run, starting with the first.
    pub fn new(policy: &'p RedactionPolicy) -> Self {
        Self {
            policy,
            started: BTreeSet::new(),
            lost: BTreeSet::new(),
            has_output: false,
            current_start: None,
            discarded_start: None,
            answer: None,
            has_named_run: false,
        }
    }

    /// Returns the sentence for the next event, or `None` if the event adds no information.
    pub fn push(&mut self, event: &RunEvent) -> Option<String> {
        let mut aside = "";
        match event {
            RunEvent::ToolCall(call) if call.phase == ToolCallPhase::Start => {
                self.lost.retain(|lost| Some(lost) != call.id.as_ref());
                self.started.extend(call.id.clone());
            }
            RunEvent::ToolCall(call) if call.phase == ToolCallPhase::Error => {
                // Older journals have no `outcome` member; they contain a request for a decision
                // instead.
                let is_lost = call.id.as_ref().is_some_and(|id| self.lost.contains(id));
                if is_lost || is_unknown(call) {
                    return sentence(&RunEvent::ToolCall(without_duration(call)), self.policy);
                }
            }
            RunEvent::ToolApproval(waits) if waits.status == ToolApprovalEventStatus::Pending => {
                let call = waits.tool_call_id.as_ref();
                if let Some(call) = call.filter(|call| self.started.contains(*call)) {
                    self.lost.insert(call.clone());
                    aside = " It was started before, and its end was not recorded.";
                }
            }
            RunEvent::Thought(_) | RunEvent::Stream(_) => self.has_output = true,
            RunEvent::Message(message) if &*message.role == "assistant" => {
                self.answer = Some(message.content.clone());
            }
            RunEvent::FinalAnswer(answer) if self.answer.as_ref() == Some(&answer.content) => {
                // The last message repeats the final answer.
                return None;
            }
            RunEvent::Turn(turn) => {
                let had_output = std::mem::take(&mut self.has_output);
                match turn.phase {
                    TurnPhase::Start => {
                        let earlier = self.discarded_start.take();
                        let is_repeated =
                            earlier.is_some_and(|earlier| is_same_request(&earlier, turn));
                        self.current_start = Some(turn.clone());
                        // The process that stored the first event may have exited before it sent
                        // the request, as `throughline answer` does.
                        if is_repeated {
                            return None;
                        }
                    }
                    TurnPhase::Discarded => {
                        let start = self.current_start.take();
                        // An attempt without output has no partial answer to discard.
                        if !had_output {
                            self.discarded_start = start;
                            return None;
                        }
                    }
                    TurnPhase::End => self.current_start = None,
                }
            }
            // A retry after a failure is a further request.
            RunEvent::Gate(_) => self.discarded_start = None,
            RunEvent::Run(run) if std::mem::replace(&mut self.has_named_run, true) => {
                // The first sentence already contains the id of the run.
                let run = RunStatusEvent { run_id: None, ..run.clone() };
                return sentence(&RunEvent::Run(run), self.policy);
            }
            _ => {}
        }
        Some(sentence(event, self.policy)? + aside)
    }
}

/// Returns whether two `start` events belong to the same request.
fn is_same_request(one: &TurnEvent, other: &TurnEvent) -> bool {
    (one.turn, &one.model, &one.purpose) == (other.turn, &other.model, &other.purpose)
}

fn is_unknown(call: &ToolCallEvent) -> bool {
    let outcome = call.extras.iter().find(|(name, _)| **name == *OUTCOME);
    outcome.is_some_and(|(_, value)| value.tree().root().is(UNKNOWN))
}

/// Removes the duration from the event of a call with an unknown outcome, because that duration
/// includes the wait for a decision.
fn without_duration(call: &ToolCallEvent) -> ToolCallEvent {
    let mut call = ToolCallEvent { duration_ms: None, ..call.clone() };
    if !is_unknown(&call) {
        call.extras.push((Name::from(OUTCOME), throughline_json::string(UNKNOWN)));
    }
    call
}

/// Describes one event in a sentence; `None` for an event that a later event repeats.
pub fn sentence(event: &RunEvent, policy: &RedactionPolicy) -> Option<String> {
    let document = event.json();
    let redacted = policy.redact_event(&event.name(), &document);
    let Ok(event) = RunEvent::parse(&redacted) else {
        return Some(format!("An event of type {} was redacted.", event.name()));
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
            let trigger = phrase(event.trigger, |trigger| format!(" ({})", trigger.as_str()));
            format!("The agent noted{trigger}: {}", quoted(&event.text))
        }
        RunEvent::Summarization(event) => {
            let messages = event.messages_compressed.unwrap_or_default();
            let sizes = event.token_count_before.zip(event.token_count_after);
            let sizes = phrase(sizes, |(from, to)| format!(", from {from} tokens to {to}"));
            let summary = quoted(&event.summary);
            format!("The agent summarised {messages} older items{sizes}: {summary}")
        }
        RunEvent::Handoff(event) => handoff(event),
        RunEvent::Limit(event) => {
            let (allowed, actual) = (event.allowed.as_str(), event.actual.as_str());
            format!("The run reached its limit {}: {actual} of {allowed}.", event.limit)
        }
        RunEvent::Gate(event) => gate(event),
        RunEvent::Replay(event) => replay(event)?,
        RunEvent::Usage(event) => usage(event)?,
        RunEvent::FinalAnswer(event) => format!("The agent answered: {}", quoted(&event.content)),
        RunEvent::Cancelled(event) => {
            format!("The run was asked to stop{}.", because(event.reason.as_deref()))
        }
        RunEvent::Subagent(event) => {
            format!("The subagent {} reported: {}.", event.name, event.phase.as_str())
        }
        RunEvent::Guardrail(event) => {
            let reason = because(event.reason.as_deref());
            format!("A guardrail decided {}{reason}.", event.disposition.as_str())
        }
        RunEvent::Unknown(event) => format!("An unknown event: {}", clipped(event.as_str())),
        RunEvent::Stream(_) | RunEvent::Progress(_) | RunEvent::Metadata(_) => return None,
    })
}

fn run(event: &RunStatusEvent) -> String {
    let run = phrase(event.run_id.as_deref(), |run| format!(" {run}"));
    let reason = because(event.reason.as_deref().filter(|reason| *reason != &*event.status));
    match &*event.status {
        "running" => {
            let agent = phrase(event.agent.as_ref(), |agent| format!(" with the agent {agent}"));
            format!("The run{run} is running{agent}{reason}.")
        }
        "waiting" => match event.reason.as_deref() {
            Some(reason) if reason.starts_with("waits for ") => format!("The run{run} {reason}."),
            _ => format!("The run{run} is waiting{reason}."),
        },
        "cancelled" => format!("The run{run} was cancelled{reason}."),
        status @ ("completed" | "failed") => format!("The run{run} {status}{reason}."),
        status => format!("The run{run} has the status {status}{reason}."),
    }
}

fn message(event: &MessageEvent) -> String {
    let ephemeral = event.ephemeral.filter(|is_ephemeral| *is_ephemeral);
    let mark = ephemeral.map_or("", |_| " (ephemeral: not kept in the thread)");
    format!("The {} said{mark}: {}", event.role, quoted(&event.content))
}

fn turn(event: &TurnEvent) -> Option<String> {
    let number = event.turn;
    let purpose = phrase(event.purpose.as_ref(), |purpose| format!(" for a {purpose}"));
    match event.phase {
        TurnPhase::Start => {
            let model = event.model.as_deref().unwrap_or("the model");
            Some(format!("Turn {number}: the agent asked {model}{purpose}."))
        }
        TurnPhase::Discarded => {
            let reason = because(event.reason.as_deref());
            Some(format!("The partial answer of turn {number} was discarded{reason}."))
        }
        TurnPhase::End => None,
    }
}

fn thought(event: &ThoughtEvent, policy: &RedactionPolicy) -> Option<String> {
    if event.phase == ThoughtPhase::Delta {
        return None;
    }
    let sealed = event.sealed_bytes.map(|bytes| format!("{bytes} bytes sealed"));
    Some(match (event.text.as_deref(), sealed) {
        (Some(text), sealed) => {
            let text = policy.redact_thought(text);
            let sealed = phrase(sealed, |sealed| format!(" ({sealed})"));
            format!("The model thought{sealed}: {}", quoted(&text))
        }
        (None, Some(sealed)) => format!("The model thought, without readable text ({sealed})."),
        (None, None) => return None,
    })
}

fn tool_call(event: &ToolCallEvent) -> Option<String> {
    let name = &event.name;
    let took = phrase(event.duration_ms.as_ref(), |took| format!(" after {} ms", took.as_str()));
    let end = |text: Option<String>| text.map_or_else(|| ".".into(), |text| format!(": {text}"));
    let problem = end(event.error.as_ref().map(|error| clipped(&error.message).to_string()));
    Some(match event.phase {
        ToolCallPhase::Start => {
            let args = phrase(event.args.as_ref(), |args| format!(" with {}", value(args)));
            format!("The tool {name} started{args}.")
        }
        ToolCallPhase::Success => {
            let result = end(event.result.as_ref().map(value));
            format!("The tool {name} succeeded{took}{result}")
        }
        ToolCallPhase::Error if is_unknown(event) => {
            format!("The outcome of the tool {name} is unknown{problem}")
        }
        ToolCallPhase::Error => format!("The tool {name} failed{took}{problem}"),
        ToolCallPhase::Skipped => format!("The tool {name} was not run{problem}"),
        ToolCallPhase::Progress => return None,
    })
}

fn approval(event: &ToolApprovalEvent) -> String {
    let ToolApprovalEvent { id, tool_name, status, .. } = event;
    if *status == ToolApprovalEventStatus::Pending {
        let args = phrase(event.args.as_ref(), |args| format!(" with {}", value(args)));
        return format!("The tool {tool_name} may run{args} only after an approval ({id}).");
    }
    let comment = phrase(event.comment.as_ref(), |comment| format!(": {}", quoted(comment)));
    match event.decided_by.as_deref() {
        Some(by) => format!("{by} {status} the tool {tool_name} ({id}){comment}."),
        None => format!("The tool {tool_name} was {status} ({id}){comment}."),
    }
}

fn question(event: &UserQuestionEvent) -> String {
    let (id, by) = (&event.id, event.answered_by.as_deref());
    match event.status {
        UserQuestionEventStatus::Pending => {
            let questions = event.questions.iter().flatten().map(|item| quoted(&item.question));
            let questions = questions.collect::<Vec<_>>().join(" and ");
            format!("The agent asked a person ({id}): {questions}")
        }
        UserQuestionEventStatus::Answered => {
            let answers = event.answers.iter().flat_map(|answers| &answers.0);
            let answers = answers.map(|(question, answer)| {
                let free = answer.free_text.iter();
                let values: Vec<&str> = answer.values.iter().chain(free).map(|w| &**w).collect();
                format!("{} to {}", quoted(&values.join(", ")), quoted(question))
            });
            let answers = answers.collect::<Vec<_>>().join(" and ");
            format!("{} answered ({id}): {answers}", by.unwrap_or("The question was"))
        }
        UserQuestionEventStatus::Cancelled => match by {
            Some(by) => format!("{by} declined to answer ({id})."),
            None => format!("The question was not answered ({id})."),
        },
    }
}

fn plan(event: &PlanEvent) -> Option<String> {
    let steps = event.todo_list.as_ref()?;
    let steps = steps.iter().map(|step| format!("{} [{}]", step.step, step.status.as_str()));
    let version = phrase(event.version, |version| format!(" {version}"));
    Some(format!("The plan{version}: {}.", steps.collect::<Vec<_>>().join("; ")))
}

fn handoff(event: &HandoffEvent) -> String {
    if &*event.tool_name == "switch_model" {
        let from = phrase(event.from.as_ref(), |from| format!(" from {from}"));
        let to = event.to.as_deref().unwrap_or("another model");
        return format!("The run switched{from} to {to}.");
    }
    let from = phrase(event.from.as_ref(), |from| format!(" {from}"));
    let to = event.to.as_deref().unwrap_or("another agent");
    format!("The agent{from} handed over to {to}.")
}

fn gate(event: &GateEvent) -> String {
    let attempt = event.attempt;
    let kind = event.error_kind.as_deref().unwrap_or("unknown");
    let reason = phrase(event.message.as_ref(), |reason| format!(": {}", clipped(reason)));
    let to = phrase(event.to_model.as_ref(), |to| format!(" with {to}"));
    match event.phase {
        GatePhase::Retried => {
            format!("Attempt {attempt} failed ({kind}), and the agent tries again{to}{reason}")
        }
        GatePhase::Recovered => format!("Attempt {attempt} succeeded."),
        GatePhase::Failed => {
            format!("Attempt {attempt} failed and was the last one ({kind}){reason}")
        }
    }
}

fn replay(event: &ReplayEvent) -> Option<String> {
    let count = |number: Option<u64>, label: &str| {
        number.filter(|number| *number > 0).map(|number| format!("{number} {label}"))
    };
    let counts = [
        count(event.kept, "unchanged"),
        count(event.restored, "restored"),
        count(event.reshaped, "reshaped"),
        count(event.elided, "left out"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if counts.is_empty() {
        return None;
    }
    let reasons: Vec<&str> = event.why.iter().flatten().map(|(reason, _)| &**reason).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    Some(format!("Earlier thoughts in the request: {}{reasons}.", counts.join(", ")))
}

fn usage(event: &UsageEvent) -> Option<String> {
    let usage = event.usage.as_ref()?;
    let (read, wrote) = (usage.input_tokens?, usage.output_tokens?);
    let thought =
        phrase(usage.reasoning_tokens, |count| format!(", {count} of them for reasoning"));
    let cost = event.total_cost_usd.as_ref().and_then(|cost| cost.as_str().parse::<f64>().ok());
    let cost = phrase(cost, |cost| format!("; ${cost:.4} so far"));
    Some(format!("The model read {read} tokens and wrote {wrote}{thought}{cost}."))
}

fn phrase<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map(format).unwrap_or_default()
}

/// Formats a reason to append to a sentence. Returns an empty string for `None`.
fn because(reason: Option<&str>) -> String {
    phrase(reason, |reason| format!(": {reason}"))
}

/// Formats a JSON value for display. A JSON string appears as quoted text.
fn value(value: &Json) -> String {
    match value.tree().root().name() {
        Some(text) => quoted(&text),
        None => clipped(value.as_str()).to_string(),
    }
}

fn quoted(text: &str) -> String {
    format!("“{}”", clipped(text))
}

/// Collapses a text to one line and truncates it to `LONGEST` characters.
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
