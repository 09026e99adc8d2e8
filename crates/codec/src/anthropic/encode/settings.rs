//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;

use throughline_core::{Call, Choice, Json, Node, Output, json};

use crate::anthropic::contract;
use crate::claude::{self, Asking, Decision};
use crate::draft::{self, Draft};

/// What is asked for when the Call does not say: the wire demands a number.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Writes every setting that is not already in the source as it should be. A Call that was meant for another model is
/// looked at anew: what that one took, this one may refuse.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call, messages: &[Json]) {
    let settings = &call.settings;
    let mut asking = Asking::of(draft.was("thinking").as_ref());
    let mut max_tokens = settings.max_tokens;
    let is_reconsidered = draft.differs(|s| &s.reasoning) || draft.is_retargeted();
    if is_reconsidered {
        (asking, max_tokens) = put_thinking(draft, call, messages);
    }
    if draft.source().is_none() && max_tokens.is_none() {
        draft.warn("max_tokens", format!("the wire demands it; {DEFAULT_MAX_TOKENS} was chosen"));
        max_tokens = Some(DEFAULT_MAX_TOKENS);
    }
    if max_tokens != settings.max_tokens || draft.differs(|s| &s.max_tokens) {
        draft.set("max_tokens", max_tokens.map(Json::from));
    }
    put_sampling(draft, call, asking, is_reconsidered);
    if draft.differs(|s| &s.stop) {
        let stop = json::array(|a| {
            for stop in &settings.stop {
                a.string(stop);
            }
        });
        draft.set("stop_sequences", (!settings.stop.is_empty()).then_some(stop));
    }
    put_choice(draft, call, asking, is_reconsidered);
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

fn put_thinking(draft: &mut Draft<'_>, call: &Call, messages: &[Json]) -> (Asking, Option<u64>) {
    let is_loop_unsigned = contract::needs_thinking_first(messages);
    let decision = match &call.settings.reasoning {
        Some(reasoning) => claude::decide(draft, reasoning, &call.target.profile, is_loop_unsigned),
        None => Decision::silent(),
    };
    let was = draft.was("thinking");
    let is_said = match (&was, &decision.thinking) {
        (Some(was), Some(thinking)) => was.says_the_same_as(thinking),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !is_said {
        draft.set("thinking", decision.thinking.clone());
    }
    put_output_config(draft, "effort", decision.effort.clone());
    let max_tokens = claude::with_room(draft, call.settings.max_tokens, &decision);
    (decision.asking, max_tokens)
}

fn put_output_config(draft: &mut Draft<'_>, key: &'static str, value: Option<Json>) {
    let base = draft.latest("output_config");
    let tree = base.as_ref().map(Json::tree);
    let said = tree.as_ref().and_then(|tree| tree.root().get(key)).map(Node::json);
    if said == value {
        return;
    }
    let config = draft::edited(base.as_ref(), &[(Cow::Borrowed(key), value)]);
    let is_empty = config.as_str() == "{}";
    draft.set("output_config", (!is_empty).then_some(config));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, asking: Asking, is_reconsidered: bool) {
    let settings = &call.settings;
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
        ("top_k", &settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    let is_refused = claude::refuses_sampling(&call.target.profile, asking);
    for (key, value, differs) in all {
        if is_refused && (differs || is_reconsidered) && value.is_some() {
            draft.warn(key, "this model sets it itself while it thinks; it was left out");
            draft.remove(key);
        } else if differs {
            draft.set(key, value.clone());
        }
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, asking: Asking, is_reconsidered: bool) {
    let settings = &call.settings;
    let is_refused = |c: &Choice| contract::refuses_choice(&call.target.profile, asking, c);
    let is_revised = is_reconsidered && settings.choice.as_ref().is_some_and(is_refused);
    if !is_revised && !draft.differs(|s| &s.choice) && !draft.differs(|s| &s.parallel) {
        return;
    }
    let parallel = settings.parallel;
    let mut choice = draft.fitting_choice();
    if choice.is_none() && parallel == Some(false) && draft.latest("tools").is_some() {
        choice = Some(Choice::Auto);
    }
    if choice.as_ref().is_some_and(is_refused) {
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
