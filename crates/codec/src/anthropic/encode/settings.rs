//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;

use throughline_core::{Call, Choice, Json, Mode, NativeReasoning, Node, Output, Profile, json};

use crate::anthropic::contract::{self, Asking};
use crate::draft::{self, Draft};
use crate::effort;

/// What is asked for when the Call does not say: the wire demands a number.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call, messages: &[Json]) {
    let settings = &call.settings;
    let profile = &*call.target.profile;
    let mut asking = asked_in(draft);
    let mut max_tokens = settings.max_tokens;
    if draft.differs(|s| &s.reasoning)
        && let Some(reasoning) = &settings.reasoning
    {
        asking = put_thinking(draft, reasoning, profile, messages, &mut max_tokens);
    }
    if draft.source().is_none() && max_tokens.is_none() {
        draft.warn("max_tokens", format!("the wire demands it; {DEFAULT_MAX_TOKENS} was chosen"));
        max_tokens = Some(DEFAULT_MAX_TOKENS);
    }
    if max_tokens != settings.max_tokens || draft.differs(|s| &s.max_tokens) {
        draft.set("max_tokens", max_tokens.map(Json::from));
    }
    put_sampling(draft, call, asking);
    if draft.differs(|s| &s.stop) {
        let stop = json::array(|a| {
            for stop in &settings.stop {
                a.string(stop);
            }
        });
        draft.set("stop_sequences", (!settings.stop.is_empty()).then_some(stop));
    }
    put_choice(draft, call, asking);
    if draft.differs(|s| &s.output) {
        let format = match &settings.output {
            Some(Output::Schema { schema, .. }) => Some(json::object(|o| {
                o.string("type", "json_schema").raw("schema", schema);
            })),
            Some(Output::Json) => {
                draft.warn("output", "this wire takes a schema only; any JSON cannot be asked for");
                None
            }
            None => None,
        };
        put_output_config(draft, "format", format);
    }
}

/// How the source asks for thinking.
fn asked_in(draft: &Draft<'_>) -> Asking {
    let Some(thinking) = draft.was("thinking") else { return Asking::Silent };
    match thinking.tree().root().text_of("type").as_deref() {
        Some("enabled") => Asking::Manual,
        Some("disabled") => Asking::Off,
        Some(_) => Asking::Adaptive,
        None => Asking::Silent,
    }
}

fn put_thinking(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
    messages: &[Json],
    max_tokens: &mut Option<u64>,
) -> Asking {
    if profile.modes.is_empty() && profile.name != "unknown" {
        draft.warn(
            "reasoning",
            format!("{} does not reason; the setting was left out", profile.name),
        );
        return Asking::Silent;
    }
    if reasoning.is_off() {
        return put_off(draft, profile);
    }
    let display =
        reasoning.include_thoughts.map(|shown| if shown { "summarized" } else { "omitted" });
    let is_manual = !profile.takes(Mode::Adaptive)
        || (reasoning.budget_tokens.is_some() && profile.takes(Mode::Enabled));
    if !is_manual {
        if let Some(budget) = reasoning.budget_tokens {
            let message = format!("{} takes no budget; {budget} was left out", profile.name);
            draft.warn("reasoning.budget_tokens", message);
        }
        draft.put(
            "thinking",
            json::object(|o| {
                o.string("type", "adaptive").maybe_string("display", display);
            }),
        );
        let effort =
            reasoning.effort.as_deref().map(|effort| effort::fitting(draft, effort, profile));
        put_output_config(draft, "effort", effort.flatten().map(|effort| json::string(&effort)));
        return Asking::Adaptive;
    }
    if needs_thinking_first(messages) {
        let message =
            "the open tool loop began without this model's thinking; it was left off until it ends";
        draft.warn("reasoning", message);
        return Asking::Silent;
    }
    let wanted = reasoning.budget_tokens.unwrap_or(effort::budget(reasoning.effort.as_deref()));
    let budget = wanted.max(contract::LEAST_BUDGET);
    if budget != wanted {
        draft.warn(
            "reasoning.budget_tokens",
            format!("{wanted} is too few; {budget} was asked for"),
        );
    }
    let enough = budget + contract::LEAST_ANSWER;
    match *max_tokens {
        Some(given) if given > budget => {}
        Some(given) => {
            let message = format!(
                "{given} leaves no room beside {budget} thinking tokens; raised to {enough}"
            );
            draft.warn("max_tokens", message);
            *max_tokens = Some(enough);
        }
        None => *max_tokens = Some(enough.max(4096)),
    }
    draft.put(
        "thinking",
        json::object(|o| {
            o.string("type", "enabled").number("budget_tokens", budget);
            // The older models show their thoughts unasked and do not know the word.
            if profile.takes(Mode::Adaptive) {
                o.maybe_string("display", display);
            }
        }),
    );
    Asking::Manual
}

fn put_off(draft: &mut Draft<'_>, profile: &Profile) -> Asking {
    if profile.takes(Mode::Disabled) {
        draft.put(
            "thinking",
            json::object(|o| {
                o.string("type", "disabled");
            }),
        );
        return Asking::Off;
    }
    if profile.takes(Mode::BetweenTools) {
        let message =
            format!("{} cannot stop thinking; it was asked to between tools only", profile.name);
        draft.warn("reasoning", message);
        draft.put(
            "thinking",
            json::object(|o| {
                o.string("type", "between_tools");
            }),
        );
        return Asking::Adaptive;
    }
    draft.remove("thinking");
    if profile.thinks_by_default || profile.always_thinks {
        draft.warn("reasoning", format!("{} cannot stop thinking", profile.name));
        return Asking::Silent;
    }
    Asking::Off
}

/// Whether the last assistant message is in a tool loop and does not begin with thinking: with a manual budget that
/// is refused.
fn needs_thinking_first(messages: &[Json]) -> bool {
    let Some(answers) = messages.last().map(Json::tree) else { return false };
    let is_answer = |block: Node<'_>| block.get("type").is_some_and(|kind| kind.is("tool_result"));
    let is_loop = answers.root().get("content").is_some_and(|c| c.elements().any(is_answer));
    let assistant = messages
        .iter()
        .rev()
        .map(Json::tree)
        .find(|message| message.root().get("role").is_some_and(|role| role.is("assistant")));
    let Some(assistant) = assistant.filter(|_| is_loop) else { return false };
    let first = assistant.root().at("/content/0/type").and_then(Node::text);
    !matches!(first.as_deref(), Some("thinking" | "redacted_thinking"))
}

fn put_output_config(draft: &mut Draft<'_>, key: &'static str, value: Option<Json>) {
    let base = draft.latest("output_config");
    if value.is_none() && base.is_none() {
        return;
    }
    let config = draft::edited(base.as_ref(), &[(Cow::Borrowed(key), value)]);
    let is_empty = config.as_str() == "{}";
    draft.set("output_config", (!is_empty).then_some(config));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, asking: Asking) {
    let settings = &call.settings;
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
        ("top_k", &settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    let is_refused = contract::refuses_sampling(&call.target.profile, asking);
    for (key, value, differs) in all {
        if is_refused && differs && value.is_some() {
            draft.warn(key, "this model sets it itself while it thinks; it was left out");
            draft.remove(key);
        } else if differs {
            draft.set(key, value.clone());
        }
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, asking: Asking) {
    let settings = &call.settings;
    if !draft.differs(|s| &s.choice) && !draft.differs(|s| &s.parallel) {
        return;
    }
    let parallel = settings.parallel;
    let mut choice = settings.choice.clone();
    if choice.is_none() && parallel == Some(false) && !call.tools.is_empty() {
        choice = Some(Choice::Auto);
    }
    if choice.as_ref().is_some_and(|c| contract::refuses_choice(&call.target.profile, asking, c)) {
        draft.warn(
            "tool_choice",
            "this model cannot be told which tool to call; it was left free to choose",
        );
        choice = Some(Choice::Auto);
    }
    let word = |kind: &str, name: Option<&str>| {
        json::object(|o| {
            o.string("type", kind).maybe_string("name", name);
            if let (Some(parallel), true) = (parallel, kind != "none") {
                o.bool("disable_parallel_tool_use", !parallel);
            }
        })
    };
    let value = match choice {
        Some(Choice::Auto) => Some(word("auto", None)),
        Some(Choice::None) => Some(word("none", None)),
        Some(Choice::Any) => Some(word("any", None)),
        Some(Choice::Tool(name)) => Some(word("tool", Some(&name))),
        Some(Choice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}
