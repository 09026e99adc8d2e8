//! Encodes the settings of a Call within the model's limits.

use std::borrow::Cow;

use throughline_core::{Call, NativeReasoning, OutputFormat, Profile, Tool, ToolChoice};
use throughline_json::{self as json, Json, Node};

use crate::draft::{self, Draft};
use crate::gemini::encode::source_spelling;
use crate::gemini::path::{self, GeminiPath};
use crate::gemini::{WIRE, contract, wire};
use crate::{cross_wire, edit, effort};

/// The changed members of one object, by camelCase name; `None` removes a member.
type ConfigChanges = Vec<(Cow<'static, str>, Option<Json>)>;

/// Writes every setting that differs from the source request.
pub(super) fn put_settings(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_retargeted = draft.is_retargeted() || is_for_another_model(draft, call);
    let mut changes = unrepresented_members(draft, call, "generationConfig");
    let mut push = |key: &'static str, value| changes.push((Cow::Borrowed(key), value));
    if draft.differs(|s| &s.max_tokens) {
        push("maxOutputTokens", settings.max_tokens.map(Json::from));
    }
    let refusal = call.target.profile.fixed_sampling;
    let refusal = refusal.then_some("this model does not support it; it was left out");
    let names = ["temperature", "topP", "topK"];
    for (key, value) in
        cross_wire::sampling_changes(draft, call, &names, is_retargeted, |_| refusal)
    {
        push(key, value);
    }
    if draft.differs(|s| &s.stop) {
        push("stopSequences", draft::stop_list(settings));
    }
    if draft.differs(|s| &s.output) {
        changes.extend(output(settings.output.as_ref()));
    }
    let key = source_spelling(draft, ["generationConfig", "generation_config"]);
    let base = draft.current_value(key).filter(|base| base.bytes().first() == Some(&b'{'));
    let more = unrepresented_members(draft, call, "generationConfig.thinkingConfig");
    let is_reconsidered = draft.differs(|s| &s.reasoning) || is_retargeted;
    if is_reconsidered || !more.is_empty() {
        let mut thinking = match cross_wire::requested_reasoning(call, draft.wire()) {
            _ if !is_reconsidered => ConfigChanges::new(),
            Some(reasoning) => thinking_changes(draft, &reasoning, &call.target.profile),
            None => without_thinking(),
        };
        thinking.extend(more);
        let tree = base.as_ref().map(Json::tree);
        let before = tree.as_ref().and_then(|tree| wire::get(tree.root(), "thinkingConfig"));
        let before = before.filter(|before| before.is_object()).map(Node::json);
        if let Some(config) = apply_changes(before.as_ref(), &thinking) {
            let config = (config.as_str() != "{}").then_some(config);
            changes.push((Cow::Borrowed("thinkingConfig"), config));
        }
    }
    if let Some(config) = apply_changes(base.as_ref(), &changes) {
        draft.put(key, config);
    }
    put_choice(draft, call);
}

/// Collects members of `object` that have no setting and are not in the source body. Decoding
/// stored each such member as a separate extra, so encoding must put them back into the object.
fn unrepresented_members(draft: &mut Draft<'_>, call: &Call, object: &str) -> ConfigChanges {
    let mut found = ConfigChanges::new();
    for extra in call.extras.iter().filter(|extra| extra.wire == Some(WIRE)) {
        let Some((parent, name)) = extra.key.rsplit_once('.') else { continue };
        if wire::is_path(parent, object) {
            let is_there = draft.source().is_some_and(|source| {
                edit::range_in(&source.request.body, extra.value.bytes()).is_some()
            });
            if !is_there {
                draft.remove(extra.key.to_string());
                found.push((Cow::Owned(name.to_owned()), Some(extra.value.clone())));
            }
        }
    }
    found
}

/// Returns whether the source was written for another model, which may support other thinking
/// settings.
fn is_for_another_model(draft: &Draft<'_>, call: &Call) -> bool {
    let path = draft.source().and_then(|source| GeminiPath::parse(&source.request.path));
    path.is_some_and(|path| path.model != path::bare_model(call.target.model()))
}

/// Applies changes to `base`, using the spelling of names in `base`; returns `None` if nothing
/// changes.
fn apply_changes(base: Option<&Json>, changes: &ConfigChanges) -> Option<Json> {
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
    (!changes.is_empty()).then(|| draft::edit_object(base, &changes))
}

fn output(output: Option<&OutputFormat>) -> ConfigChanges {
    let mime = output.map(|_| json::string("application/json"));
    let schema = match output {
        Some(OutputFormat::Schema { schema, .. }) => Some(schema.clone()),
        Some(OutputFormat::Json) | None => None,
    };
    static_changes([
        ("responseMimeType", mime),
        ("responseSchema", None),
        ("responseJsonSchema", schema),
    ])
}

fn static_changes<const N: usize>(members: [(&'static str, Option<Json>); N]) -> ConfigChanges {
    members.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect()
}

/// Returns the changes that remove all thinking settings.
fn without_thinking() -> ConfigChanges {
    static_changes([("includeThoughts", None), ("thinkingBudget", None), ("thinkingLevel", None)])
}

/// Returns the changed thinking settings: a level if the model supports levels, else a budget.
fn thinking_changes(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> ConfigChanges {
    let is_unknown = profile.name == "unknown";
    // For an unknown model, keep the form that the Call uses.
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
        return without_thinking();
    }
    let (level, budget) = match (reasoning.is_off(), takes_levels) {
        (true, true) => (disabled_level(draft, profile), None),
        (true, false) => (None, Some(disabled_budget(draft, profile))),
        (false, true) => (level(draft, reasoning, profile), None),
        (false, false) => (None, budget_or_auto(draft, reasoning, profile)),
    };
    let is_silent = budget.as_ref().is_some_and(|budget| budget.as_str() == "0");
    let mut shown = reasoning.include_thoughts;
    if is_silent && shown == Some(true) {
        // "include_thoughts is only enabled when thinking is enabled."
        draft.warn("reasoning.include_thoughts", "the model does not think; it was left out");
    }
    if is_silent {
        shown = None;
    }
    static_changes([
        ("includeThoughts", shown.map(Json::from)),
        ("thinkingBudget", budget),
        ("thinkingLevel", level.map(|level| json::string(&level))),
    ])
}

fn disabled_budget(draft: &mut Draft<'_>, profile: &Profile) -> Json {
    let budget = contract::nearest_budget(0, profile.budget.as_ref());
    if budget > 0 {
        let message = format!("{} cannot disable thinking; {budget} was sent", profile.name);
        draft.warn("reasoning", message);
    }
    Json::from(budget)
}

fn disabled_level(draft: &mut Draft<'_>, profile: &Profile) -> Option<String> {
    let level = profile.levels.first()?;
    let message = format!("{} cannot disable thinking; `{level}` was sent", profile.name);
    draft.warn("reasoning", message);
    Some(level.clone())
}

fn level(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Option<String> {
    let (effort, budget) = (reasoning.effort.as_deref(), reasoning.budget_tokens);
    let requested = effort.or_else(|| budget.map(effort::effort_for_budget))?;
    if let Some(budget) = budget {
        let became = format!("became `{requested}`");
        let became = if effort.is_some() { "was left out" } else { &became };
        let message = format!("{} supports levels; {budget} {became}", profile.name);
        draft.warn("reasoning.budget_tokens", message);
    }
    effort::nearest_or_warn(draft, requested, &profile.levels, profile)
}

/// Returns a budget in tokens. `-1` lets a model that does not think by default choose the budget.
fn budget_or_auto(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<Json> {
    let (name, limits) = (&profile.name, profile.budget.as_ref());
    match (reasoning.budget_tokens, reasoning.effort.as_deref()) {
        (Some(wanted), effort) => {
            let budget = contract::nearest_budget(wanted, limits);
            if budget != wanted {
                let message = format!("{name} does not support {wanted}; {budget} was sent");
                draft.warn("reasoning.budget_tokens", message);
            }
            if let Some(effort) = effort.filter(|_| limits.is_some()) {
                let message = format!("{name} supports a budget; `{effort}` was left out");
                draft.warn("reasoning.effort", message);
            }
            Some(Json::from(budget))
        }
        (None, Some(effort)) => {
            Some(Json::from(contract::nearest_budget(effort::budget(Some(effort)), limits)))
        }
        (None, None) if reasoning.enabled == Some(true) && !profile.thinks_by_default => {
            Json::parse("-1").ok()
        }
        (None, None) => None,
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call) {
    if draft.differs(|s| &s.parallel) && call.settings.parallel == Some(false) {
        draft.warn("parallel", "this wire cannot disable parallel calls; it was left out");
    }
    let is_reconsidered = call.settings.choice.is_some() && has_other_tools(draft, call);
    let more = unrepresented_members(draft, call, "toolConfig");
    let mut changes = ConfigChanges::new();
    if draft.differs(|s| &s.choice) || is_reconsidered {
        changes.push((Cow::Borrowed("functionCallingConfig"), function_calling_config(draft)));
    }
    changes.extend(more);
    let key = source_spelling(draft, ["toolConfig", "tool_config"]);
    let base = draft.current_value(key).filter(|base| base.bytes().first() == Some(&b'{'));
    if let Some(config) = apply_changes(base.as_ref(), &changes) {
        draft.set(key, (config.as_str() != "{}").then_some(config));
    }
}

/// Returns whether the tools differ from the tools of the source request.
fn has_other_tools(draft: &Draft<'_>, call: &Call) -> bool {
    let element = |tool: &Tool| {
        let native = tool.native.as_ref()?;
        draft.source().and_then(|source| {
            edit::range_in(&source.request.body, native.envelope.as_ref()?.json.bytes())
        })
    };
    let had = draft.source_value("tools").map(|tools| tools.tree().root().elements().count());
    let mut elements: Vec<_> =
        call.tools.iter().map(|tool| element(tool).map(|e| e.start)).collect();
    let is_new = elements.iter().any(Option::is_none);
    elements.dedup();
    draft.source().is_some() && (is_new || elements.len() != had.unwrap_or(0))
}

/// Returns the `functionCallingConfig` for the tool choice.
fn function_calling_config(draft: &mut Draft<'_>) -> Option<Json> {
    let mode = |mode: &str| Some(object! { "mode": mode });
    match draft.supported_tool_choice() {
        Some(ToolChoice::Auto) => mode("AUTO"),
        Some(ToolChoice::None) => mode("NONE"),
        Some(ToolChoice::Any) => mode("ANY"),
        Some(ToolChoice::Tool(name)) => {
            Some(object! { "mode": "ANY", "allowedFunctionNames": [json::string(&name)] })
        }
        Some(ToolChoice::Other(own)) if own.tree().root().text_of("mode").is_some() => Some(own),
        Some(ToolChoice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    }
}
