//! Maps reasoning efforts to the effort levels and token budgets that a model accepts.

use throughline_core::{NativeReasoning, Profile};
use throughline_json::{Name, Node};

use crate::draft::Draft;

/// All effort levels in ascending order.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Returns the thinking budget in tokens for an effort, for models that accept only budgets.
pub(crate) fn budget(effort: Option<&str>) -> u64 {
    match effort {
        Some("none") => 0,
        Some("minimal") => 1024,
        Some("low") => 2048,
        Some("high") => 16_384,
        Some("xhigh" | "max") => 32_768,
        Some(_) | None => 8192,
    }
}

/// Returns the lowest effort whose budget covers `tokens`, for models that accept only efforts.
pub(crate) fn effort_for_budget(tokens: u64) -> &'static str {
    let holds = |effort: &&&str| budget(Some(effort)) >= tokens;
    EFFORTS.iter().find(holds).copied().unwrap_or("xhigh")
}

/// Returns the nearest effort that the model accepts, and warns if it differs from the requested
/// effort. For a model without a profile, the requested effort is sent unchanged.
pub(crate) fn supported_effort(
    draft: &mut Draft<'_>,
    effort: &str,
    profile: &Profile,
) -> Option<String> {
    nearest_or_warn(draft, effort, &profile.efforts, profile)
}

/// Returns the effort in `supported` that is nearest to `requested`, ignoring case, and warns if
/// the two differ.
pub(crate) fn nearest_or_warn(
    draft: &mut Draft<'_>,
    requested: &str,
    supported: &[String],
    profile: &Profile,
) -> Option<String> {
    if let Some(exact) =
        supported.iter().find(|supported| supported.eq_ignore_ascii_case(requested))
    {
        return Some(exact.clone());
    }
    if profile.name == "unknown" {
        return Some(requested.to_owned());
    }
    let nearest = closest(requested, supported).cloned();
    let name = &profile.name;
    let message = match &nearest {
        Some(nearest) => {
            format!("{name} does not accept effort `{requested}`; `{nearest}` was sent instead")
        }
        None if supported.is_empty() => {
            format!("{name} accepts no effort setting; `{requested}` was omitted")
        }
        None => {
            let accepted: Vec<&str> = supported.iter().map(String::as_str).collect();
            let accepted = quoted_list(&accepted);
            format!("{name} accepts the efforts {accepted}; `{requested}` was omitted")
        }
    };
    draft.warn("reasoning.effort", message);
    nearest
}

/// Returns the effort in `supported` that is nearest to `requested`, ignoring case. Never returns
/// `none`.
pub(crate) fn closest<'t>(requested: &str, supported: &'t [String]) -> Option<&'t String> {
    let find = |name: &str| supported.iter().find(|supported| supported.eq_ignore_ascii_case(name));
    let requested = effort_rank(requested)?;
    // A request for some reasoning must never turn into a request for none.
    let ladder = EFFORTS.iter().enumerate().filter(|(_, name)| **name != "none");
    let fitting = ladder.filter_map(|(at, name)| Some((at, find(name)?)));
    fitting.min_by_key(|(at, _)| at.abs_diff(requested)).map(|(_, name)| name)
}

/// Returns the index of an effort in [`EFFORTS`]; `None` for an unknown effort.
pub(crate) fn effort_rank(effort: &str) -> Option<usize> {
    EFFORTS.iter().position(|name| name.eq_ignore_ascii_case(effort))
}

/// Reads Claude's thinking settings, which have the same format on Anthropic's API and Bedrock.
/// `switch` is the object whose `type` turns reasoning on or off.
pub(crate) fn read_thinking(
    thinking: Option<Node<'_>>,
    switch: Option<Node<'_>>,
    effort: Option<Name>,
) -> Option<NativeReasoning> {
    if switch.is_none() && effort.is_none() {
        return None;
    }
    let kind = switch.and_then(|switch| switch.text_of("type"));
    let display = thinking.and_then(|thinking| thinking.text_of("display"));
    Some(NativeReasoning {
        enabled: kind.map(|kind| kind != "disabled"),
        effort,
        budget_tokens: thinking.and_then(|t| t.get("budget_tokens")).and_then(Node::u64),
        include_thoughts: display.map(|display| display != "omitted"),
        provider_extras: Vec::new(),
    })
}

/// Formats values for a sentence, for example "`low`, `medium` and `high`".
pub(crate) fn quoted_list(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Formats values as OpenAI's errors list them: `'low', 'medium', and 'high'`.
pub(crate) fn quoted_series(values: &[String], quote: char) -> String {
    let quoted: Vec<String> = values.iter().map(|name| format!("{quote}{name}{quote}")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [one, other] => format!("{one} and {other}"),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{budget, effort_for_budget};

    #[test]
    fn effort_for_budget_is_the_lowest_effort_that_covers_it() {
        for effort in ["none", "minimal", "low", "medium", "high", "xhigh"] {
            assert_eq!(effort_for_budget(budget(Some(effort))), effort);
        }
        assert_eq!(
            [1, 1025, 9000, 99_999].map(effort_for_budget),
            ["minimal", "low", "high", "xhigh"]
        );
    }
}
