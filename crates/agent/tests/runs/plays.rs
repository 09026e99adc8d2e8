//! Scenarios: complete, deterministic conversations that together use every feature.

use throughline_agent::{
    AgentConfig, AskUser, ContextPolicy, Decision, GateRule, Handoff, OutputContract, RunCommand,
    RunSpec, State, ToolAnswer, ToolCompletion, ToolSpec,
};
use throughline_core::{Body, Call, ModelErrorKind, Role};
use throughline_json::Json;
use throughline_spec::{
    ReasoningConfig, ToolApprovalResolution, UserQuestionAnswer, UserQuestionAnswerSet,
    UserQuestionResolution,
};

use crate::harness::{ScriptedAnswer, ScriptedModels};

#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) casting: fn() -> RunSpec,
    pub(crate) models: fn() -> ScriptedModels,
    /// User messages, one per turn.
    pub(crate) messages: &'static [&'static str],
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "tools",
        casting: tools,
        models: tools_models,
        messages: &["Do it.", "Do it again.", "And again."],
    },
    Scenario {
        name: "people",
        casting: people,
        models: people_models,
        messages: &["Ask me.", "And again.", "Once more."],
    },
    Scenario {
        name: "gate",
        casting: gate,
        models: gate_models,
        messages: &[
            "Count.",
            "Count on.",
            "Once more.",
            "Count further.",
            "Count on.",
            "And more.",
            "More.",
            "The last.",
        ],
    },
    Scenario {
        name: "long",
        casting: long,
        models: long_models,
        messages: &[
            "First, look.",
            "Second, look.",
            "Third, look.",
            "What did the first say?",
            "Well?",
            "Sixth, look.",
            "Seventh, look.",
            "What did the first say?",
            "Ninth, look.",
            "Last, look.",
        ],
    },
    Scenario {
        name: "company",
        casting: company,
        models: company_models,
        messages: &[
            "Sell me one.",
            "Why?",
            "Another.",
            "And another.",
            "One more.",
            "Still one.",
            "The last.",
        ],
    },
];

const CLAUDE: &str = "claude-sonnet-4-5";
const OTHER: &str = "claude-opus-4-5";

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// Returns the number of tool results since the last user message.
fn results_in_turn(call: &Call) -> usize {
    let is_user = |body: &Body| matches!(body, Body::Text(_));
    let last = call
        .items
        .iter()
        .rposition(|item| item.role == Role::User && !item.ephemeral && is_user(&item.body));
    let since = &call.items[last.unwrap_or(0)..];
    since.iter().filter(|item| matches!(item.body, Body::Result(_))).count()
}

fn last_user_message(call: &Call) -> String {
    let texts = call.items.iter().rev().filter(|item| item.role == Role::User);
    let mut texts = texts.filter_map(|item| item.visible());
    texts.next().unwrap_or_default().to_owned()
}

fn specs() -> Vec<ToolSpec> {
    let any = || json(r#"{"type":"object"}"#);
    vec![
        ToolSpec::new("look").schema(any()).idempotent(),
        ToolSpec::new("pay").schema(json(r#"{"type":"object","required":["sum"]}"#)),
        ToolSpec::new("sign").schema(any()).needs_approval(),
        ToolSpec::new("open_door").schema(any()).client(),
    ]
}

fn reflecting() -> ReasoningConfig {
    ReasoningConfig::parse(&json(
        r#"{"level":"low","reflection":{"enabled":true,"cadence":"after_tool","maxPerRun":2}}"#,
    ))
    .unwrap()
}

fn tools() -> RunSpec {
    let mut agent = AgentConfig::smart(CLAUDE).reasoning(&reflecting());
    agent.limits.max_parallel_tools = Some(2);
    RunSpec::single_agent(agent, specs())
}

fn tools_models() -> ScriptedModels {
    const PLAN: &str = r#"{"operation":"write","todoList":[{"id":1,"step":"look","status":"in-progress"},{"id":2,"step":"pay"}]}"#;
    ScriptedModels::default().with(CLAUDE, |call| {
        if last_user_message(call).starts_with("Before you go on") {
            return ScriptedAnswer::Text("The looks agree; paying is next.");
        }
        match results_in_turn(call) {
            0 => ScriptedAnswer::Calls(&[
                ("manage_todo_list", PLAN),
                ("look", r#"{"at":"a"}"#),
                ("look", r#"{"at":"b"}"#),
                ("look", r#"{"at":"c"}"#),
            ]),
            4 => ScriptedAnswer::Calls(&[
                ("pay", r#"{"sum":1}"#),
                ("pay", r#"{"no":1}"#),
                ("pay", r#"{"sum":2}"#),
            ]),
            7 => ScriptedAnswer::Calls(&[("look", r#"{"at":"d"}"#), ("pay", r#"{"sum":3}"#)]),
            _ => ScriptedAnswer::Text("Done."),
        }
    })
}

fn people() -> RunSpec {
    let mut agent = AgentConfig::minimal(CLAUDE);
    agent.human_in_the_loop.ask_user = Some(AskUser::default());
    RunSpec::single_agent(agent, specs())
}

fn people_models() -> ScriptedModels {
    const ASK: &str =
        r#"{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]}"#;
    ScriptedModels::default().with(CLAUDE, |call| match results_in_turn(call) {
        0 => ScriptedAnswer::Calls(&[
            ("sign", r#"{"what":"a"}"#),
            ("pay", r#"{"sum":1}"#),
            ("sign", r#"{"what":"b"}"#),
        ]),
        3 => ScriptedAnswer::Calls(&[
            ("ask_user_question", ASK),
            ("open_door", "{}"),
            ("look", r#"{"at":"x"}"#),
        ]),
        6 => ScriptedAnswer::Calls(&[("sign", r#"{"what":"c"}"#)]),
        _ => ScriptedAnswer::Text("Thank you."),
    })
}

fn gate() -> RunSpec {
    let mut agent = AgentConfig::minimal(CLAUDE);
    agent.output = Some(OutputContract {
        schema: json(r#"{"type":"object","required":["n"]}"#),
        name: None,
        native: false,
    });
    agent.gate.other_models = vec![OTHER.into()];
    agent.gate.rules.push(GateRule {
        when: vec!["5xx-transient".into()],
        attempts_below: None,
        same_error_times: None,
        then: Decision::RetryOther,
        label: None,
        feedback: None,
    });
    RunSpec::single_agent(agent, specs())
}

fn gate_models() -> ScriptedModels {
    let script = |call: &Call| match (
        results_in_turn(call),
        call.items.iter().filter(|item| item.ephemeral).count(),
    ) {
        (0, _) => ScriptedAnswer::Calls(&[("pay", r#"{"sum":5}"#)]),
        (_, 0) => ScriptedAnswer::Text("no"),
        (_, 2) => ScriptedAnswer::Text(r#"{"m":1}"#),
        _ => ScriptedAnswer::Text(r#"{"n":1}"#),
    };
    ScriptedModels::default()
        .with(CLAUDE, move |call| match last_user_message(call).as_str() {
            "Count on." => ScriptedAnswer::Fails(ModelErrorKind::Transient),
            _ => script(call),
        })
        .with(OTHER, |_| ScriptedAnswer::Text(r#"{"n":2}"#))
}

fn long() -> RunSpec {
    let mut agent = AgentConfig::smart(CLAUDE);
    agent.planning = Some(false);
    agent.context = ContextPolicy {
        summarise: Some(true),
        trigger_tokens: Some(220),
        keep_turns: Some(1),
        model: None,
    };
    RunSpec::single_agent(agent, specs())
}

fn long_models() -> ScriptedModels {
    const LONG: &str = r#"{"at":"a long and winding description of a place that is worth many words and is described at length so that it fills the room that there is"}"#;
    const BACK: &str = r#"{"executionId":"call_0_0"}"#;
    ScriptedModels::default().with(CLAUDE, |call| {
        if call.tools.is_empty() {
            return ScriptedAnswer::Text(r#"{"summary":"They looked at places.","stable_facts":[{"key":"place","value":"a"}]}"#);
        }
        match (last_user_message(call).as_str(), results_in_turn(call)) {
            ("What did the first say?", 0) => ScriptedAnswer::Calls(&[("get_tool_response", BACK)]),
            (message, 0) if message.ends_with("look.") => ScriptedAnswer::Calls(&[("look", LONG), ("pay", r#"{"sum":9}"#)]),
            _ => ScriptedAnswer::Text("It is a place that is worth many words, and so is this answer, which goes on for a while."),
        }
    })
}

fn company() -> RunSpec {
    let mut clerk = AgentConfig::minimal(CLAUDE).with_name("clerk");
    clerk.handoffs = vec![Handoff { to: "manager".into(), description: None }];
    let mut manager = AgentConfig::minimal(OTHER).with_name("manager");
    manager.handoffs = vec![Handoff { to: "clerk".into(), description: None }];
    manager.limits.max_tool_calls = Some(2);
    let mut casting = RunSpec::single_agent(clerk, specs());
    casting.agents.insert("manager".into(), manager);
    casting
}

fn company_models() -> ScriptedModels {
    ScriptedModels::default()
        .with(CLAUDE, |call| match results_in_turn(call) {
            0 => ScriptedAnswer::Calls(&[("pay", r#"{"sum":1}"#)]),
            1 => ScriptedAnswer::Calls(&[("transfer_to_manager", r#"{"reason":"a discount"}"#)]),
            _ => ScriptedAnswer::Text("Here you are."),
        })
        .with(OTHER, |call| {
            if matches!(call.settings.choice, Some(throughline_core::ToolChoice::None)) {
                return ScriptedAnswer::Text("No more discounts.");
            }
            ScriptedAnswer::Calls(&[("pay", r#"{"sum":2}"#), ("pay", r#"{"sum":3}"#)])
        })
}

/// Returns the scripted reaction to the first pending request, and whether this reaction decides
/// the outcome of a lost call. Returns `None` if no request is pending.
pub(crate) fn reaction(state: &State) -> Option<(RunCommand, bool)> {
    let open = state.progress.calls.iter().find(|call| call.stage.pending().is_some())?;
    let mut approvals = state.smart.pending_approvals.iter().flatten();
    let approval = approvals.rfind(|entry| Some(&entry.id) == open.stage.pending());
    if let Some(approval) = approval {
        let is_lost = approval.metadata.iter().flatten().any(|(name, _)| &**name == "outcome");
        let args = approval.args.as_str();
        let mut decision =
            ToolApprovalResolution::new(approval.id.clone(), !is_lost && !args.contains("\"b\""));
        decision.approved_args = args.contains("\"c\"").then(|| json(r#"{"what":"changed"}"#));
        decision.decided_by = Some("ann".into());
        return Some((RunCommand::Decide(decision), is_lost));
    }
    let mut questions = state.smart.pending_user_questions.iter().flatten();
    let question = questions.rfind(|entry| Some(&entry.id) == open.stage.pending());
    if let Some(question) = question {
        let mut answer = UserQuestionResolution::new(question.id.clone());
        let red = UserQuestionAnswer::new(vec!["Red".into()]);
        answer.answers = Some(UserQuestionAnswerSet(vec![("Which?".into(), red)]));
        return Some((RunCommand::Answer(answer), false));
    }
    let completion =
        ToolCompletion { call: open.id.clone(), answer: ToolAnswer::text("It is open.") };
    Some((RunCommand::Return(vec![completion]), false))
}
