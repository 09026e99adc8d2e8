//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;

use throughline_core::{Call, Choice, Json, NativeReasoning, Node, Output, Profile, json};

use crate::claude::{self, Asking};
use crate::converse::contract::{self, Family};
use crate::draft::{self, Draft};
use crate::effort;

/// Where a family's own settings stand.
const FIELDS: &str = "additionalModelRequestFields";

type Changes = Vec<(&'static str, Option<Json>)>;

/// Writes every setting that is not already in the source as it should be. A Call that was meant for another model is
/// looked at anew: what that one took, this one may refuse.
pub(super) fn put(
    draft: &mut Draft<'_>,
    call: &Call,
    messages: &[Json],
    tools: &[Json],
    is_retargeted: bool,
) {
    let settings = &call.settings;
    let mut asking = Asking::of(field(draft, "thinking").as_ref());
    let mut max_tokens = settings.max_tokens;
    let is_reconsidered = is_retargeted || draft.differs(|s| &s.reasoning);
    if is_reconsidered {
        (asking, max_tokens) = put_reasoning(draft, call, messages);
    }
    let mut inference: Changes = Vec::new();
    if max_tokens != settings.max_tokens || draft.differs(|s| &s.max_tokens) {
        inference.push(("maxTokens", max_tokens.map(Json::from)));
    }
    put_sampling(draft, call, asking, is_reconsidered, &mut inference);
    if draft.differs(|s| &s.stop) {
        let stop = json::array(|a| {
            for stop in &settings.stop {
                a.string(stop);
            }
        });
        inference.push(("stopSequences", (!settings.stop.is_empty()).then_some(stop)));
    }
    edit(draft, "inferenceConfig", inference);
    put_tools(draft, call, asking, tools, is_reconsidered);
    if draft.differs(|s| &s.output) {
        let format = match &settings.output {
            Some(Output::Schema { name, schema, .. }) => Some(text_format(name.as_deref(), schema)),
            Some(Output::Json) => {
                draft.warn("output", "this wire takes a schema only; any JSON cannot be asked for");
                None
            }
            None => None,
        };
        edit(draft, "outputConfig", vec![("textFormat", format)]);
    }
}

/// Changes members of an object of the request, if they do not say so already.
fn edit(draft: &mut Draft<'_>, member: &'static str, changes: Changes) {
    let base = draft.latest(member).filter(|base| base.tree().root().is_object());
    let tree = base.as_ref().map(Json::tree);
    let is_new = |(key, value): &(&'static str, Option<Json>)| {
        let said = tree.as_ref().and_then(|tree| tree.root().get(key)).map(Node::json);
        match (said, value) {
            (Some(said), Some(value)) => !said.says_the_same_as(value),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    };
    let changes: Vec<_> = changes
        .into_iter()
        .filter(is_new)
        .map(|(key, value)| (Cow::Borrowed(key), value))
        .collect();
    if !changes.is_empty() {
        draft.put(member, draft::edited(base.as_ref(), &changes));
    }
}

/// What a member of the family's own settings says now.
fn field(draft: &Draft<'_>, key: &str) -> Option<Json> {
    draft.latest(FIELDS)?.tree().root().present(key).map(Node::json)
}

/// Asks for reasoning in the words of the model's family, and takes every other family's words away.
fn put_reasoning(draft: &mut Draft<'_>, call: &Call, messages: &[Json]) -> (Asking, Option<u64>) {
    let profile = &*call.target.profile;
    let mut max_tokens = call.settings.max_tokens;
    let mut decision = claude::Decision::silent();
    let (mut config, mut effort_word) = (None, None);
    if let Some(reasoning) = &call.settings.reasoning {
        match Family::of(profile) {
            Family::Claude => {
                let is_loop_unsigned = needs_thinking_first(messages);
                decision = claude::decide(draft, reasoning, profile, is_loop_unsigned);
                max_tokens = claude::with_room(draft, max_tokens, &decision);
            }
            Family::Nova => config = Some(nova(draft, reasoning, profile)),
            Family::OpenAi => effort_word = open_ai(draft, reasoning, profile),
            Family::Other => {
                let is_default = profile.thinks_by_default
                    && !reasoning.is_off()
                    && reasoning.effort.is_none()
                    && reasoning.budget_tokens.is_none();
                if !is_default {
                    let name = &profile.name;
                    let message = format!("{name} has no switch for it here; it was left out");
                    draft.warn("reasoning", message);
                }
            }
        }
    }
    let output = field(draft, "output_config");
    let change = [(Cow::Borrowed("effort"), decision.effort.clone())];
    let output = (output.is_some() || decision.effort.is_some())
        .then(|| draft::edited(output.as_ref(), &change))
        .filter(|output| output.as_str() != "{}");
    let changes = vec![
        ("thinking", decision.thinking.clone()),
        ("output_config", output),
        ("reasoningConfig", config),
        ("reasoning_effort", effort_word),
    ];
    edit(draft, FIELDS, changes);
    (decision.asking, max_tokens)
}

fn nova(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Json {
    if reasoning.is_off() {
        return json::object(|o| {
            o.string("type", "disabled");
        });
    }
    warn_of_budget(draft, reasoning, profile);
    let effort = reasoning.effort.as_deref().unwrap_or("medium");
    let effort = effort::fitting(draft, effort, profile);
    json::object(|o| {
        o.string("type", "enabled").maybe_string("maxReasoningEffort", effort.as_deref());
    })
}

fn open_ai(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Option<Json> {
    if reasoning.is_off() && profile.always_thinks {
        draft.warn("reasoning", format!("{} cannot stop thinking", profile.name));
        return None;
    }
    warn_of_budget(draft, reasoning, profile);
    let effort = reasoning.effort.as_deref()?;
    effort::fitting(draft, effort, profile).map(|effort| json::string(&effort))
}

fn warn_of_budget(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    if let Some(budget) = reasoning.budget_tokens {
        let message = format!("{} takes no budget; {budget} was left out", profile.name);
        draft.warn("reasoning.budget_tokens", message);
    }
}

/// Whether the last assistant message is in a tool loop and does not begin with thinking: with a manual budget that
/// is refused.
fn needs_thinking_first(messages: &[Json]) -> bool {
    let has = |message: Node<'_>, key: &str| {
        let mut blocks = message.get("content").into_iter().flat_map(Node::elements);
        blocks.any(|block| block.get(key).is_some())
    };
    let is_loop = messages.last().is_some_and(|last| has(last.tree().root(), "toolResult"));
    let assistant = messages
        .iter()
        .rev()
        .map(Json::tree)
        .find(|message| message.root().get("role").is_some_and(|role| role.is("assistant")));
    let Some(assistant) = assistant.filter(|_| is_loop) else { return false };
    assistant.root().at("/content/0/reasoningContent").is_none()
}

fn put_sampling(
    draft: &mut Draft<'_>,
    call: &Call,
    asking: Asking,
    is_reconsidered: bool,
    inference: &mut Changes,
) {
    let settings = &call.settings;
    let profile = &*call.target.profile;
    let is_refused = claude::refuses_sampling(profile, asking);
    let allowed = |draft: &mut Draft<'_>, key: &'static str, value: &Option<Json>| {
        if is_refused && value.is_some() {
            draft.warn(key, "this model sets it itself while it thinks; it was left out");
        }
        value.clone().filter(|_| !is_refused)
    };
    if is_reconsidered || draft.differs(|s| &s.temperature) {
        inference.push(("temperature", allowed(draft, "temperature", &settings.temperature)));
    }
    if is_reconsidered || draft.differs(|s| &s.top_p) {
        inference.push(("topP", allowed(draft, "top_p", &settings.top_p)));
    }
    if !is_reconsidered && !draft.differs(|s| &s.top_k) {
        return;
    }
    let top_k = allowed(draft, "top_k", &settings.top_k);
    // Of all sampling settings only this one is left to the families.
    let (mut flat, mut nested) = (None, None);
    match (Family::of(profile), top_k) {
        (Family::Claude, top_k) => flat = top_k,
        (Family::Nova, top_k) => nested = top_k,
        (Family::OpenAi | Family::Other, Some(_)) => {
            draft.warn("top_k", format!("{} has no place for it here", profile.name));
        }
        (Family::OpenAi | Family::Other, None) => {}
    }
    let config = field(draft, "inferenceConfig");
    let change = [(Cow::Borrowed("topK"), nested.clone())];
    let config = (config.is_some() || nested.is_some())
        .then(|| draft::edited(config.as_ref(), &change))
        .filter(|config| config.as_str() != "{}");
    edit(draft, FIELDS, vec![("top_k", flat), ("inferenceConfig", config)]);
}

fn put_tools(
    draft: &mut Draft<'_>,
    call: &Call,
    asking: Asking,
    tools: &[Json],
    is_reconsidered: bool,
) {
    let settings = &call.settings;
    if draft.differs(|s| &s.parallel) && settings.parallel == Some(false) {
        draft.warn("parallel", "this wire cannot forbid calls side by side");
    }
    let was = draft.latest("toolConfig");
    let tree = was.as_ref().map(Json::tree);
    let list = tree.as_ref().and_then(|tree| tree.root().get("tools"));
    let said: Vec<Json> = list.into_iter().flat_map(Node::elements).map(Node::json).collect();
    let has_no_tools = tools.is_empty();
    let mut changes: Changes = Vec::new();
    if *tools != *said {
        changes.push(("tools", Some(json::array_of(tools))));
    }
    if is_reconsidered || draft.differs(|s| &s.choice) {
        changes.push(("toolChoice", choice(draft, call, asking, has_no_tools)));
    }
    if has_no_tools {
        // Tools are what the object must have.
        if !said.is_empty() {
            draft.remove("toolConfig");
        }
        return;
    }
    edit(draft, "toolConfig", changes);
}

fn choice(draft: &mut Draft<'_>, call: &Call, asking: Asking, has_no_tools: bool) -> Option<Json> {
    let word = |key: &str, name: Option<&str>| {
        Some(json::object(|o| {
            o.object(key, |o| {
                o.maybe_string("name", name);
            });
        }))
    };
    let choice = call.settings.choice.as_ref()?;
    if has_no_tools {
        if matches!(choice, Choice::Any | Choice::Tool(_)) {
            draft.warn("tool_choice", "there are no tools to choose from; it was left out");
        }
        return None;
    }
    if contract::refuses_choice(&call.target.profile, asking, choice) {
        draft.warn(
            "tool_choice",
            "this model cannot be told which tool to call; it was left free to choose",
        );
        return word("auto", None);
    }
    match choice {
        Choice::Auto => word("auto", None),
        Choice::Any => word("any", None),
        Choice::Tool(name) => word("tool", Some(name)),
        Choice::None => {
            draft.warn("tool_choice", "this wire cannot forbid tools; it was left out");
            None
        }
        Choice::Other(said) => {
            // What this wire said itself needs no word of ours.
            let own = draft.source().is_some_and(|source| {
                source.settings.choice.as_ref() == call.settings.choice.as_ref()
            });
            if !own {
                draft.warn("tool_choice", "this wire has no such choice; it was left out");
            }
            own.then(|| said.clone())
        }
    }
}

fn text_format(name: Option<&str>, schema: &Json) -> Json {
    json::object(|o| {
        o.string("type", "json_schema").object("structure", |o| {
            o.object("jsonSchema", |o| {
                o.string("schema", schema.as_str()).maybe_string("name", name);
            });
        });
    })
}
