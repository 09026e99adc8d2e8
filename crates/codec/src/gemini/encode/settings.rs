//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;

use throughline_core::{Call, Choice, Json, NativeReasoning, Output, Profile, Tool, Wire, json};

use crate::draft::{self, Draft};
use crate::gemini::contract;
use crate::gemini::encode::spelling;
use crate::gemini::path::{self, Path};
use crate::gemini::wire;
use crate::{edit, effort};

/// Members of one object that have to change, by their camelCase names.
type Changes = Vec<(Cow<'static, str>, Option<Json>)>;

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_retargeted = draft.is_retargeted() || is_for_another_model(draft, call);
    let mut changes = remaining(draft, call, "generationConfig");
    let mut push = |key: &'static str, value| changes.push((Cow::Borrowed(key), value));
    if draft.differs(|s| &s.max_tokens) {
        push("maxOutputTokens", settings.max_tokens.map(Json::from));
    }
    let sampling = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("topP", &settings.top_p, draft.differs(|s| &s.top_p)),
        ("topK", &settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    for (key, value, differs) in sampling {
        let is_refused = call.target.profile.fixed_sampling && value.is_some();
        if is_refused && (differs || is_retargeted) {
            draft.warn(key, "this model sets it itself; it was left out");
            push(key, None);
        } else if differs {
            push(key, value.clone());
        }
    }
    if draft.differs(|s| &s.stop) {
        let stop = json::array(|a| {
            for stop in &settings.stop {
                a.string(stop);
            }
        });
        push("stopSequences", (!settings.stop.is_empty()).then_some(stop));
    }
    if draft.differs(|s| &s.output) {
        changes.extend(output(settings.output.as_ref()));
    }
    let key = spelling(draft, ["generationConfig", "generation_config"]);
    let base = draft.latest(key).filter(|base| base.bytes().first() == Some(&b'{'));
    let more = remaining(draft, call, "generationConfig.thinkingConfig");
    let is_reconsidered = draft.differs(|s| &s.reasoning) || is_retargeted;
    if is_reconsidered || !more.is_empty() {
        let mut thinking = match &settings.reasoning {
            _ if !is_reconsidered => Changes::new(),
            Some(reasoning) => thinking(draft, reasoning, &call.target.profile),
            None => thoughtless(),
        };
        thinking.extend(more);
        let tree = base.as_ref().map(Json::tree);
        let before = tree.as_ref().and_then(|tree| wire::get(tree.root(), "thinkingConfig"));
        let before = before.filter(|before| before.is_object()).map(throughline_core::Node::json);
        if let Some(config) = changed(before.as_ref(), &thinking) {
            let config = (config.as_str() != "{}").then_some(config);
            changes.push((Cow::Borrowed("thinkingConfig"), config));
        }
    }
    if let Some(config) = changed(base.as_ref(), &changes) {
        draft.put(key, config);
    }
    put_choice(draft, call);
}

/// The members of an object that no setting speaks for and that do not stand in the source: they were read one by one,
/// and come together again.
fn remaining(draft: &mut Draft<'_>, call: &Call, object: &str) -> Changes {
    let mut found = Changes::new();
    for extra in call.extras.iter().filter(|extra| extra.wire == Some(Wire::GEMINI)) {
        let Some((parent, name)) = extra.key.rsplit_once('.') else { continue };
        if wire::is_path(parent, object) {
            let is_there = draft.source().is_some_and(|source| {
                edit::place_in(&source.request.body, extra.value.bytes()).is_some()
            });
            if !is_there {
                draft.remove(extra.key.to_string());
                found.push((Cow::Owned(name.to_owned()), Some(extra.value.clone())));
            }
        }
    }
    found
}

/// Whether the source asked another model, whose words for thinking this one may not know.
fn is_for_another_model(draft: &Draft<'_>, call: &Call) -> bool {
    let path = draft.source().and_then(|source| Path::parse(&source.request.path));
    path.is_some_and(|path| path.model != path::bare(call.target.model()))
}

/// The object with these changes, in the spelling that it has; nothing where nothing changes.
fn changed(base: Option<&Json>, changes: &Changes) -> Option<Json> {
    let tree = base.map(Json::tree);
    let spelled = |name: &str| {
        let found = tree.as_ref().and_then(|tree| wire::member(tree.root(), name));
        found.map(|(key, _)| Cow::Owned(key.into_owned()))
    };
    let changes: Vec<(Cow<'static, str>, Option<Json>)> = changes
        .iter()
        .filter_map(|(name, value)| match (spelled(name), value) {
            (None, None) => None,
            (Some(key), value) => Some((key, value.clone())),
            (None, Some(value)) => Some((name.clone(), Some(value.clone()))),
        })
        .collect();
    (!changes.is_empty()).then(|| draft::edited(base, &changes))
}

fn output(output: Option<&Output>) -> Changes {
    let mime = output.map(|_| json::string("application/json"));
    let schema = match output {
        Some(Output::Schema { schema, .. }) => Some(schema.clone()),
        Some(Output::Json) | None => None,
    };
    named([("responseMimeType", mime), ("responseSchema", None), ("responseJsonSchema", schema)])
}

fn named<const N: usize>(members: [(&'static str, Option<Json>); N]) -> Changes {
    members.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect()
}

/// Nothing said of thinking.
fn thoughtless() -> Changes {
    named([("includeThoughts", None), ("thinkingBudget", None), ("thinkingLevel", None)])
}

/// How to think: a level for models that have levels, else a budget.
fn thinking(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Changes {
    let is_unknown = profile.name == "unknown";
    // A model of which nothing is known is asked for what was said.
    let takes_levels = if is_unknown {
        reasoning.budget_tokens.is_none() && !reasoning.is_off()
    } else {
        !profile.levels.is_empty()
    };
    if !takes_levels && profile.budget.is_none() && !is_unknown {
        if !reasoning.is_off() {
            let message = format!("{} does not reason; the setting was left out", profile.name);
            draft.warn("reasoning", message);
        }
        return thoughtless();
    }
    let (level, budget) = match (reasoning.is_off(), takes_levels) {
        (true, true) => (level_off(draft, profile), None),
        (true, false) => (None, Some(budget_off(draft, profile))),
        (false, true) => (level(draft, reasoning, profile), None),
        (false, false) => (None, size(draft, reasoning, profile)),
    };
    let is_silent = budget.as_ref().is_some_and(|budget| budget.as_str() == "0");
    let mut shown = reasoning.include_thoughts;
    if is_silent && shown == Some(true) {
        // "include_thoughts is only enabled when thinking is enabled."
        draft.warn("reasoning.include_thoughts", "there are no thoughts to show; it was left out");
    }
    if is_silent {
        shown = None;
    }
    named([
        ("includeThoughts", shown.map(Json::from)),
        ("thinkingBudget", budget),
        ("thinkingLevel", level.map(|level| json::string(&level))),
    ])
}

fn budget_off(draft: &mut Draft<'_>, profile: &Profile) -> Json {
    let budget = contract::fitting_budget(0, profile.budget.as_ref());
    if budget > 0 {
        let message = format!("{} cannot stop thinking; {budget} was asked for", profile.name);
        draft.warn("reasoning", message);
    }
    Json::from(budget)
}

fn level_off(draft: &mut Draft<'_>, profile: &Profile) -> Option<String> {
    let least = profile.levels.first().cloned();
    if let Some(level) = &least {
        let message = format!("{} cannot stop thinking; `{level}` was asked for", profile.name);
        draft.warn("reasoning", message);
    }
    least
}

fn level(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Option<String> {
    let wanted = match (reasoning.effort.as_deref(), reasoning.budget_tokens) {
        (Some(effort), budget) => {
            if let Some(budget) = budget {
                let message = format!("{} takes levels; {budget} was left out", profile.name);
                draft.warn("reasoning.budget_tokens", message);
            }
            effort
        }
        (None, Some(budget)) => {
            let level = effort::of_budget(budget);
            let message = format!("{} takes levels; {budget} was read as `{level}`", profile.name);
            draft.warn("reasoning.budget_tokens", message);
            level
        }
        (None, None) => return None,
    };
    effort::nearest(draft, wanted, &profile.levels, profile)
}

/// A budget, or `-1`, which leaves the size to the model where it would not think unasked.
fn size(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Option<Json> {
    let limits = profile.budget.as_ref();
    match (reasoning.budget_tokens, reasoning.effort.as_deref()) {
        (Some(wanted), effort) => {
            let budget = contract::fitting_budget(wanted, limits);
            if budget != wanted {
                let message =
                    format!("{} does not take {wanted}; {budget} was asked for", profile.name);
                draft.warn("reasoning.budget_tokens", message);
            }
            if let Some(effort) = effort.filter(|_| limits.is_some()) {
                let message = format!("{} takes a budget; `{effort}` was left out", profile.name);
                draft.warn("reasoning.effort", message);
            }
            Some(Json::from(budget))
        }
        (None, Some(effort)) => {
            Some(Json::from(contract::fitting_budget(effort::budget(Some(effort)), limits)))
        }
        (None, None) if reasoning.enabled == Some(true) && !profile.thinks_by_default => {
            Json::parse("-1").ok()
        }
        (None, None) => None,
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call) {
    if draft.differs(|s| &s.parallel) && call.settings.parallel == Some(false) {
        draft.warn("parallel", "this wire cannot ask for one tool at a time; it was left out");
    }
    let is_reconsidered = call.settings.choice.is_some() && has_other_tools(draft, call);
    let more = remaining(draft, call, "toolConfig");
    let mut changes = Changes::new();
    if draft.differs(|s| &s.choice) || is_reconsidered {
        changes.push((Cow::Borrowed("functionCallingConfig"), calling(draft)));
    }
    changes.extend(more);
    let key = spelling(draft, ["toolConfig", "tool_config"]);
    let base = draft.latest(key).filter(|base| base.bytes().first() == Some(&b'{'));
    if let Some(config) = changed(base.as_ref(), &changes) {
        draft.set(key, (config.as_str() != "{}").then_some(config));
    }
}

/// Whether other tools are sent than the source had.
fn has_other_tools(draft: &Draft<'_>, call: &Call) -> bool {
    let element = |tool: &Tool| {
        let native = tool.native.as_ref()?;
        draft.source().and_then(|source| {
            edit::place_in(&source.request.body, native.envelope.as_ref()?.json.bytes())
        })
    };
    let had = draft.was("tools").map(|tools| tools.tree().root().elements().count());
    let mut elements: Vec<_> =
        call.tools.iter().map(|tool| element(tool).map(|e| e.start)).collect();
    let is_new = elements.iter().any(Option::is_none);
    elements.dedup();
    draft.source().is_some() && (is_new || elements.len() != had.unwrap_or(0))
}

/// Which tools to call.
fn calling(draft: &mut Draft<'_>) -> Option<Json> {
    let mode = |mode: &str, allowed: Option<&str>| {
        json::object(|o| {
            o.string("mode", mode);
            if let Some(allowed) = allowed {
                o.array("allowedFunctionNames", |a| {
                    a.string(allowed);
                });
            }
        })
    };
    match draft.fitting_choice() {
        Some(Choice::Auto) => Some(mode("AUTO", None)),
        Some(Choice::None) => Some(mode("NONE", None)),
        Some(Choice::Any) => Some(mode("ANY", None)),
        Some(Choice::Tool(name)) => Some(mode("ANY", Some(&name))),
        Some(Choice::Other(own)) if own.tree().root().text_of("mode").is_some() => Some(own),
        Some(Choice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    }
}
