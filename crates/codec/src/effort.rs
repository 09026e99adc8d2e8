//! How hard to think, in the words and numbers that a model takes.

use throughline_core::Profile;

use crate::draft::Draft;

/// The efforts that providers know, from least to most.
const LADDER: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The budget of thinking tokens that an effort stands for, on models that take budgets only.
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

/// The effort that a budget of thinking tokens stands for, on models that take efforts only: the least whose own budget
/// holds it.
pub(crate) fn of_budget(tokens: u64) -> &'static str {
    let holds = |effort: &&&str| budget(Some(effort)) >= tokens;
    LADDER.iter().find(holds).copied().unwrap_or("xhigh")
}

/// The nearest effort that the model takes, and a warning where it is another one. A model of which nothing is known
/// is asked for what was said.
pub(crate) fn fitting(draft: &mut Draft<'_>, effort: &str, profile: &Profile) -> Option<String> {
    nearest(draft, effort, &profile.efforts, profile)
}

/// The nearest of the words that the model takes for its effort or level, whatever their case.
pub(crate) fn nearest(
    draft: &mut Draft<'_>,
    wanted: &str,
    taken: &[String],
    profile: &Profile,
) -> Option<String> {
    if let Some(word) = taken.iter().find(|taken| taken.eq_ignore_ascii_case(wanted)) {
        return Some(word.clone());
    }
    if profile.name == "unknown" {
        return Some(wanted.to_owned());
    }
    let nearest = closest(wanted, taken).cloned();
    let message = match &nearest {
        Some(nearest) => {
            format!("{} does not take `{wanted}`; `{nearest}` was asked for", profile.name)
        }
        None => format!("{} takes no effort; `{wanted}` was left out", profile.name),
    };
    draft.warn("reasoning.effort", message);
    nearest
}

/// The nearest of these words for an effort or level, whatever their case.
pub(crate) fn closest<'t>(wanted: &str, taken: &'t [String]) -> Option<&'t String> {
    let find = |word: &str| taken.iter().find(|taken| taken.eq_ignore_ascii_case(word));
    let wanted = rung(wanted)?;
    // Whoever asks for a little thought does not ask for none.
    let ladder = LADDER.iter().enumerate().filter(|(_, word)| **word != "none");
    let fitting = ladder.filter_map(|(at, word)| Some((at, find(word)?)));
    fitting.min_by_key(|(at, _)| at.abs_diff(wanted)).map(|(_, word)| word)
}

/// How hard an effort is, in comparison with others; nothing where it is none that is known.
pub(crate) fn rung(effort: &str) -> Option<usize> {
    LADDER.iter().position(|word| word.eq_ignore_ascii_case(effort))
}

/// The words as a sentence of ours has them: `low`, `medium` and `high`.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{budget, of_budget};

    #[test]
    fn a_budget_is_the_least_effort_that_holds_it() {
        for effort in ["none", "minimal", "low", "medium", "high", "xhigh"] {
            assert_eq!(of_budget(budget(Some(effort))), effort);
        }
        assert_eq!([1, 1025, 9000, 99_999].map(of_budget), ["minimal", "low", "high", "xhigh"]);
    }
}
