//! The settings of a Call, in this wire's words and within this endpoint's limits.

use std::borrow::Cow;

use throughline_core::{
    Call, Channel, Choice, Json, Name, NativeReasoning, Output, Profile, Switch, json,
};

use crate::chat::{contract, wire};
use crate::draft::{self, Draft};
use crate::effort;

/// The members that ask for reasoning, in whichever dialect.
const SWITCHES: [&str; 6] =
    ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "think"];

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call) {
    if draft.differs(|s| &s.reasoning) {
        match &call.settings.reasoning {
            Some(reasoning) => put_reasoning(draft, reasoning, call),
            None => {
                for key in SWITCHES {
                    if draft.was(key).is_some() {
                        draft.remove(key);
                    }
                }
            }
        }
    }
    if wire::speaks_native(&call.target) {
        put_native(draft, call);
    } else {
        put_limit(draft, call);
        put_sampling(draft, call);
        put_choice(draft, call);
        put_output(draft, call);
    }
    put_stream(draft, call);
}

fn put_stream(draft: &mut Draft<'_>, call: &Call) {
    // Ollama's native API streams unless told not to; all others have to be asked.
    let default = wire::speaks_native(&call.target);
    let was = draft.was("stream").and_then(|was| was.tree().root().bool()).unwrap_or(default);
    if was != call.stream {
        draft.put("stream", call.stream.into());
    }
    let is_told = call.extras.iter().any(|extra| &*extra.key == "stream_options");
    let is_fresh = draft.source().is_none() && call.stream && !is_told;
    let counts_unasked =
        matches!(call.target.provider.dialect.channel, Channel::Thinking | Channel::Chunks);
    if is_fresh && !counts_unasked {
        draft.put(
            "stream_options",
            json::object(|o| {
                o.bool("include_usage", true);
            }),
        );
    }
}

fn put_limit(draft: &mut Draft<'_>, call: &Call) {
    if !draft.differs(|s| &s.max_tokens) {
        return;
    }
    let key = if draft.was("max_completion_tokens").is_some() {
        "max_completion_tokens"
    } else if draft.was("max_tokens").is_some() {
        "max_tokens"
    } else if contract::wants_completion_tokens(&call.target) {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    draft.set(key, call.settings.max_tokens.map(Json::from));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
        ("top_k", &settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    for (key, value, differs) in all {
        if !differs {
            continue;
        }
        let refusal = if value.is_none() {
            None
        } else if call.target.profile.fixed_sampling {
            Some("this model sets it itself; it was left out")
        } else if key == "top_k" && contract::is_strict(&call.target) {
            Some("this endpoint does not know it; it was left out")
        } else {
            None
        };
        match refusal {
            Some(message) => {
                draft.warn(key, message);
                draft.remove(key);
            }
            None => draft.set(key, value.clone()),
        }
    }
    if draft.differs(|s| &s.stop) {
        draft.set("stop", stop_list(&settings.stop));
    }
}

fn stop_list(stop: &[Name]) -> Option<Json> {
    let list = || {
        json::array(|a| {
            for stop in stop {
                a.string(stop);
            }
        })
    };
    (!stop.is_empty()).then(list)
}

fn put_choice(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    if draft.differs(|s| &s.parallel) {
        draft.set("parallel_tool_calls", settings.parallel.map(Json::from));
    }
    if !draft.differs(|s| &s.choice) {
        return;
    }
    let is_off = settings.reasoning.as_ref().is_some_and(NativeReasoning::is_off);
    let is_refused = |choice: &Choice| contract::refuses_choice(&call.target, is_off, choice);
    let value = match &settings.choice {
        Some(choice) if is_refused(choice) => {
            draft.warn(
                "tool_choice",
                "this model cannot be told which tool to call; it was left free to choose",
            );
            Some(json::string("auto"))
        }
        Some(Choice::Auto) => Some(json::string("auto")),
        Some(Choice::None) => Some(json::string("none")),
        Some(Choice::Any) => Some(json::string("required")),
        Some(Choice::Tool(name)) => Some(json::object(|o| {
            o.string("type", "function").object("function", |o| {
                o.string("name", name);
            });
        })),
        Some(Choice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}

fn put_output(draft: &mut Draft<'_>, call: &Call) {
    if !draft.differs(|s| &s.output) {
        return;
    }
    let format = call.settings.output.as_ref().map(|output| match output {
        Output::Json => json::object(|o| {
            o.string("type", "json_object");
        }),
        Output::Schema { name, schema, strict } => json::object(|o| {
            o.string("type", "json_schema").object("json_schema", |o| {
                // The wire demands a name.
                o.string("name", name.as_deref().unwrap_or("answer")).raw("schema", schema);
                if let Some(strict) = strict {
                    o.bool("strict", *strict);
                }
            });
        }),
    });
    draft.set("response_format", format);
}

/// Ollama's native API: sampling in `options`, the schema in `format`, no choice of tools.
fn put_native(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let options = [
        ("num_predict", draft.differs(|s| &s.max_tokens), settings.max_tokens.map(Json::from)),
        ("temperature", draft.differs(|s| &s.temperature), settings.temperature.clone()),
        ("top_p", draft.differs(|s| &s.top_p), settings.top_p.clone()),
        ("top_k", draft.differs(|s| &s.top_k), settings.top_k.clone()),
        ("stop", draft.differs(|s| &s.stop), stop_list(&settings.stop)),
    ];
    let changes: Vec<_> = options
        .into_iter()
        .filter_map(|(key, differs, value)| differs.then_some((Cow::Borrowed(key), value)))
        .collect();
    if !changes.is_empty() {
        let base = draft.latest("options");
        draft.put("options", draft::edited(base.as_ref(), &changes));
    }
    if draft.differs(|s| &s.output) {
        let format = settings.output.as_ref().map(|output| match output {
            Output::Json => json::string("json"),
            Output::Schema { schema, .. } => schema.clone(),
        });
        draft.set("format", format);
    }
    if draft.differs(|s| &s.choice) && !matches!(settings.choice, None | Some(Choice::Auto)) {
        draft.warn("tool_choice", "this endpoint has no choice of tools; it was left out");
    }
    if draft.differs(|s| &s.parallel) && settings.parallel.is_some() {
        draft.warn("parallel_tool_calls", "this endpoint does not know it; it was left out");
    }
}

fn put_reasoning(draft: &mut Draft<'_>, reasoning: &NativeReasoning, call: &Call) {
    let switch = call.target.provider.dialect.switch;
    let profile = &*call.target.profile;
    if reasoning.is_off() && profile.always_thinks && switch != Switch::Object {
        draft.warn("reasoning", format!("{} cannot stop thinking", profile.name));
        return;
    }
    if reasoning.include_thoughts == Some(false) && switch != Switch::Object {
        draft.warn("reasoning.include_thoughts", "this endpoint cannot hide its thoughts");
    }
    let takes_budget = matches!(switch, Switch::Object | Switch::Flag);
    if let Some(budget) = reasoning.budget_tokens.filter(|_| !takes_budget && !reasoning.is_off()) {
        let message = format!("this endpoint takes no budget; {budget} became an effort");
        draft.warn("reasoning.budget_tokens", message);
    }
    match switch {
        Switch::Effort => put_effort(draft, reasoning, profile),
        Switch::Object => put_object(draft, reasoning),
        Switch::Toggle => put_toggle(draft, reasoning, profile),
        Switch::Flag => put_flag(draft, reasoning),
        Switch::Think => put_think(draft, reasoning, profile),
        Switch::None => {
            draft.warn("reasoning", "this endpoint has no switch for it; it was left out");
        }
    }
}

/// The effort that was asked for, in words or as a budget.
fn wanted_effort(reasoning: &NativeReasoning) -> Option<Name> {
    if reasoning.is_off() {
        return Some(Name::from("none"));
    }
    let of_budget = |budget: u64| match budget {
        0 => "none",
        1..=1024 => "minimal",
        1025..=4096 => "low",
        4097..=12_288 => "medium",
        12_289.. => "high",
    };
    let budget = || reasoning.budget_tokens.map(|budget| Name::from(of_budget(budget)));
    reasoning.effort.clone().or_else(budget)
}

fn put_effort(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    let asks_to_think = reasoning.enabled == Some(true) && !profile.thinks_by_default;
    let wanted = wanted_effort(reasoning).or_else(|| asks_to_think.then(|| Name::from("medium")));
    let effort = wanted.and_then(|wanted| effort::fitting(draft, &wanted, profile));
    draft.set("reasoning_effort", effort.map(|effort| json::string(&effort)));
}

fn put_object(draft: &mut Draft<'_>, reasoning: &NativeReasoning) {
    let is_sized = reasoning.effort.is_some() || reasoning.budget_tokens.is_some();
    if reasoning.effort.is_some() && reasoning.budget_tokens.is_some() && !reasoning.is_off() {
        draft.warn(
            "reasoning.effort",
            "this endpoint takes an effort or a budget; the budget was sent",
        );
    }
    let exclude = reasoning.include_thoughts.map(|included| !included);
    let text = |value: &str| Some(json::string(value));
    let (effort, budget) = match (reasoning.is_off(), reasoning.budget_tokens) {
        (true, _) => (text("none"), None),
        (false, Some(budget)) => (None, Some(Json::from(budget))),
        (false, None) => (reasoning.effort.as_deref().and_then(text), None),
    };
    let enabled = reasoning.enabled.filter(|enabled| *enabled && !is_sized).map(Json::from);
    let changes = [
        (Cow::Borrowed("effort"), effort),
        (Cow::Borrowed("max_tokens"), budget),
        (Cow::Borrowed("enabled"), enabled),
        (Cow::Borrowed("exclude"), exclude.map(Json::from)),
    ];
    let base = draft.latest("reasoning");
    draft.put("reasoning", draft::edited(base.as_ref(), &changes));
}

fn put_toggle(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    let kind = if reasoning.is_off() { "disabled" } else { "enabled" };
    let base = draft.latest("thinking");
    let changes = [(Cow::Borrowed("type"), Some(json::string(kind)))];
    draft.put("thinking", draft::edited(base.as_ref(), &changes));
    let wanted = wanted_effort(reasoning).filter(|_| !reasoning.is_off());
    let Some(wanted) = wanted else {
        if draft.was("reasoning_effort").is_some() {
            draft.remove("reasoning_effort");
        }
        return;
    };
    let effort = effort::fitting(draft, &wanted, profile);
    draft.set("reasoning_effort", effort.map(|effort| json::string(&effort)));
}

fn put_flag(draft: &mut Draft<'_>, reasoning: &NativeReasoning) {
    let is_on = !reasoning.is_off();
    draft.put("enable_thinking", is_on.into());
    let of_effort = || reasoning.effort.as_deref().map(|effort| effort::budget(Some(effort)));
    let budget = reasoning.budget_tokens.or_else(of_effort).filter(|_| is_on);
    if budget.is_some() || draft.was("thinking_budget").is_some() {
        draft.set("thinking_budget", budget.map(Json::from));
    }
}

fn put_think(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    let wanted = wanted_effort(reasoning).filter(|_| !reasoning.is_off());
    // A model that takes no efforts is switched on, whatever effort was wanted.
    let effort = wanted.filter(|_| !profile.efforts.is_empty());
    let effort = effort.and_then(|effort| effort::fitting(draft, &effort, profile));
    let think = match effort {
        Some(effort) => json::string(&effort),
        None => Json::from(!reasoning.is_off()),
    };
    draft.put("think", think);
}
