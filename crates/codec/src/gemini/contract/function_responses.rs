//! Checks that function calls and responses match in number and are adjacent.

use std::collections::{HashMap, HashSet};

use throughline_json::{Node, work};

use crate::gemini::contract::rules::ANSWERS_DO_NOT_MATCH;
use crate::gemini::contract::view::{GeminiContent, GeminiPart, GeminiRequest};
use crate::gemini::wire::{self, GeminiPartKind};
use crate::{Edit, Finding, Findings, Fix};

const COUNT_MISMATCH_ERROR: &str = "Please ensure that the number of function response parts is equal to the number of function call \
                       parts of the function call turn.";
const APART: &str =
    "Please ensure that function response turn comes immediately after a function call turn.";

/// Checks every step and its responses. Consecutive contents of one role form one step, as in
/// accepted requests.
pub(super) fn look(view: &GeminiRequest<'_>, findings: &mut Findings<'_>) {
    let mut before: &[GeminiContent<'_>] = &[];
    for run in view.contents.chunk_by(|one, next| one.is_models == next.is_models) {
        let is_models = run.first().is_some_and(|content| content.is_models);
        let is_answer = before
            .iter()
            .any(|content| content.parts_of_kind(GeminiPartKind::Call).next().is_some());
        if !is_models && is_answer {
            compare(before, run, findings);
        } else if !is_models {
            for part in run.iter().flat_map(|content| content.parts_of_kind(GeminiPartKind::Answer))
            {
                report_stray(run, part, findings);
            }
        }
        before = run;
    }
}

/// Checks that a step has as many responses as calls.
fn compare(step: &[GeminiContent<'_>], answers: &[GeminiContent<'_>], findings: &mut Findings<'_>) {
    let calls: Vec<&GeminiPart<'_>> =
        step.iter().flat_map(|c| c.parts_of_kind(GeminiPartKind::Call)).collect();
    let given: Vec<&GeminiPart<'_>> =
        answers.iter().flat_map(|c| c.parts_of_kind(GeminiPartKind::Answer)).collect();
    if calls.len() == given.len() {
        return;
    }
    let (unanswered, mut uncalled) = unmatched(&calls, &given);
    uncalled.extend(media_of_duplicates(answers, &uncalled));
    let (calls_word, given_word) =
        (count_phrase(calls.len(), "call"), count_phrase(given.len(), "response"));
    let message = format!("this step has {calls_word}, but {given_word} after it");
    let Some(place) = step.last() else { return };
    let edits: Vec<Edit> =
        removed(step, &unanswered).into_iter().chain(removed(answers, &uncalled)).collect();
    let what = match (unanswered.is_empty(), uncalled.is_empty()) {
        (false, _) => "removes the calls without responses",
        (true, _) => "removes the responses without calls",
    };
    findings.add(
        Finding::at(&ANSWERS_DO_NOT_MATCH, place.node, message)
            .with_path(place.path())
            .with_provider_error(COUNT_MISMATCH_ERROR)
            .with_auto_fix((!edits.is_empty()).then(|| Fix::new(what, edits))),
    );
}

/// Returns the media next to repeated responses, which are repeated too.
fn media_of_duplicates<'p, 'c>(
    answers: &'p [GeminiContent<'c>],
    uncalled: &[&'p GeminiPart<'c>],
) -> Vec<&'p GeminiPart<'c>> {
    let is_uncalled = |part: &GeminiPart<'c>| {
        uncalled.iter().any(|other| (other.content, other.index) == (part.content, part.index))
    };
    let (mut given, mut media, mut doubles) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut is_behind_double = false;
    for part in answers.iter().flat_map(|content| &content.parts) {
        if part.kind == GeminiPartKind::Answer {
            let is_new = given.insert(part.node.raw());
            is_behind_double = !is_new && is_uncalled(part);
        } else if wire::present(part.node, "inlineData").is_some() {
            let is_new = media.insert(part.node.raw());
            doubles.extend((is_behind_double && !is_new).then_some(part));
        }
    }
    doubles
}

fn count_phrase(count: usize, word: &str) -> String {
    match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        several => format!("{several} {word}s"),
    }
}

/// Returns the calls without a response and the responses without a call. Pairs are matched by id
/// if both have one, otherwise by name, in order.
fn unmatched<'p, 'c>(
    calls: &[&'p GeminiPart<'c>],
    given: &[&'p GeminiPart<'c>],
) -> (Vec<&'p GeminiPart<'c>>, Vec<&'p GeminiPart<'c>>) {
    let key = |part: &GeminiPart<'c>| {
        let id = part.value.text_of("id").filter(|id| !id.is_empty());
        id.map_or_else(|| (false, part.function()), |id| (true, id.into_owned()))
    };
    let mut open: HashMap<(bool, String), Vec<&'p GeminiPart<'c>>> = HashMap::new();
    for call in calls.iter().rev() {
        open.entry(key(call)).or_default().push(call);
    }
    let mut uncalled = Vec::new();
    for answer in given {
        if open.get_mut(&key(answer)).and_then(Vec::pop).is_none() {
            uncalled.push(*answer);
        }
    }
    let mut unanswered: Vec<_> = open.into_values().flatten().collect();
    unanswered.sort_by_key(|part| (part.content, part.index));
    // If calls and responses use different names, only the surplus is certain.
    let surplus = calls.len().abs_diff(given.len());
    if calls.len() > given.len() {
        let keep = unanswered.len().saturating_sub(surplus);
        (unanswered.split_off(keep), Vec::new())
    } else {
        let keep = uncalled.len().saturating_sub(surplus);
        (Vec::new(), uncalled.split_off(keep))
    }
}

/// Removes parts; a content that would become empty is removed entirely.
fn removed(contents: &[GeminiContent<'_>], parts: &[&GeminiPart<'_>]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let first = contents.first().map_or(0, |content| content.index);
    // Parts and contents are in order, so each run of parts belongs to one content.
    for here in parts.chunk_by(|one, next| one.content == next.content) {
        let content = here.first().and_then(|part| part.content.checked_sub(first));
        let Some(content) = content.and_then(|place| contents.get(place)) else { continue };
        let here: Vec<Node<'_>> = here.iter().map(|part| part.node).collect();
        work::steps(here.len());
        if here.len() == content.parts.len() {
            edits.push(Edit::Remove(content.node.range()));
        } else {
            edits.extend(here.iter().map(|node| Edit::Remove(node.range())));
        }
    }
    edits
}

/// Reports a response that follows no call.
fn report_stray(run: &[GeminiContent<'_>], part: &GeminiPart<'_>, findings: &mut Findings<'_>) {
    let name = part.function();
    let message = format!("this is a response of `{name}`, but no call directly precedes it");
    let edits = removed(run, &[part]);
    findings.add(
        Finding::at(&ANSWERS_DO_NOT_MATCH, part.node, message)
            .with_path(part.path())
            .with_provider_error(APART)
            .with_fix("Send the call back before its response, or omit the response too.")
            .with_auto_fix(Fix::new("removes the response without a call", edits)),
    );
}
