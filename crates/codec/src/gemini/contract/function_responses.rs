//! Checks that function calls and responses match in number and are adjacent.

use std::collections::{HashMap, HashSet};

use throughline_json::work;

use crate::gemini::contract::rules::ANSWERS_DO_NOT_MATCH;
use crate::gemini::contract::view::{GeminiContent, GeminiPart, GeminiRequest};
use crate::gemini::wire::{self, GeminiPartKind};
use crate::{Edit, Finding, Findings, Fix};

const COUNT_MISMATCH_ERROR: &str = "Please ensure that the number of function response parts is equal to the number of function call \
                       parts of the function call turn.";
const APART: &str =
    "Please ensure that function response turn comes immediately after a function call turn.";

/// Checks every step and its responses. Consecutive `content` objects with the same role count as
/// one step, because recorded requests with such objects were accepted.
pub(super) fn check(view: &GeminiRequest<'_>, findings: &mut Findings<'_>) {
    let mut before: &[GeminiContent<'_>] = &[];
    for run in view.contents.chunk_by(|one, next| one.is_models == next.is_models) {
        if !run.first().is_some_and(|content| content.is_models) {
            let calls = parts_of_kind(before, GeminiPartKind::Call);
            let answers = parts_of_kind(run, GeminiPartKind::Answer);
            if calls.is_empty() {
                findings.extend(answers.into_iter().map(|part| stray_finding(run, part)));
            } else if calls.len() != answers.len() {
                findings.extend(count_finding((before, &calls), (run, &answers)));
            }
        }
        before = run;
    }
}

fn parts_of_kind<'p, 'c>(
    contents: &'p [GeminiContent<'c>],
    kind: GeminiPartKind,
) -> Vec<&'p GeminiPart<'c>> {
    contents.iter().flat_map(|content| content.parts_of_kind(kind)).collect()
}

/// Reports a step that has more or fewer responses than calls.
fn count_finding<'p, 'c>(
    (step, calls): (&'p [GeminiContent<'c>], &[&'p GeminiPart<'c>]),
    (answers, responses): (&'p [GeminiContent<'c>], &[&'p GeminiPart<'c>]),
) -> Option<Finding> {
    let (unanswered, mut uncalled) = unmatched(calls, responses);
    uncalled.extend(media_of_duplicates(answers, &uncalled));
    let (call_count, response_count) =
        (count_phrase(calls.len(), "call"), count_phrase(responses.len(), "response"));
    let message = format!("this step has {call_count}, but {response_count} after it");
    let mut edits = removal_edits(step, &unanswered);
    edits.extend(removal_edits(answers, &uncalled));
    let description = if unanswered.is_empty() {
        "removes the responses without calls"
    } else {
        "removes the calls without responses"
    };
    let fix = (!edits.is_empty()).then(|| Fix::new(description, edits));
    let finding = Finding::at(&ANSWERS_DO_NOT_MATCH, step.last()?.node, message);
    Some(finding.with_provider_error(COUNT_MISMATCH_ERROR).with_auto_fix(fix))
}

/// Returns the duplicate media parts that follow a duplicate function response.
fn media_of_duplicates<'p, 'c>(
    answers: &'p [GeminiContent<'c>],
    uncalled: &[&'p GeminiPart<'c>],
) -> Vec<&'p GeminiPart<'c>> {
    let is_uncalled = |part: &GeminiPart<'c>| {
        uncalled.iter().any(|other| (other.content, other.index) == (part.content, part.index))
    };
    let (mut responses, mut media, mut doubles) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut is_behind_double = false;
    for part in answers.iter().flat_map(|content| &content.parts) {
        if part.kind == GeminiPartKind::Answer {
            let is_new = responses.insert(part.node.raw());
            is_behind_double = !is_new && is_uncalled(part);
        } else if wire::present(part.node, "inlineData").is_some() {
            let is_new = media.insert(part.node.raw());
            doubles.extend((is_behind_double && !is_new).then_some(part));
        }
    }
    doubles
}

fn count_phrase(count: usize, noun: &str) -> String {
    match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        several => format!("{several} {noun}s"),
    }
}

/// Returns the calls without a response and the responses without a call. A call and a response are
/// matched by id if both have one, otherwise by name, in order.
fn unmatched<'p, 'c>(
    calls: &[&'p GeminiPart<'c>],
    responses: &[&'p GeminiPart<'c>],
) -> (Vec<&'p GeminiPart<'c>>, Vec<&'p GeminiPart<'c>>) {
    let key = |part: &GeminiPart<'c>| {
        let id = part.value.text_of("id").filter(|id| !id.is_empty());
        id.map_or_else(|| (false, part.function()), |id| (true, id))
    };
    let mut open: HashMap<_, Vec<&'p GeminiPart<'c>>> = HashMap::new();
    for call in calls.iter().rev() {
        open.entry(key(call)).or_default().push(call);
    }
    let is_uncalled =
        |answer: &&&'p GeminiPart<'c>| open.get_mut(&key(answer)).and_then(Vec::pop).is_none();
    let mut uncalled: Vec<_> = responses.iter().filter(is_uncalled).copied().collect();
    let mut unanswered: Vec<_> = open.into_values().flatten().collect();
    unanswered.sort_by_key(|part| (part.content, part.index));
    // If calls and responses use different names, only the difference in number is certain.
    let surplus = calls.len().abs_diff(responses.len());
    let take_surplus = |parts: &mut Vec<_>| parts.split_off(parts.len().saturating_sub(surplus));
    if calls.len() > responses.len() {
        (take_surplus(&mut unanswered), Vec::new())
    } else {
        (Vec::new(), take_surplus(&mut uncalled))
    }
}

/// Builds edits that remove parts. A `content` object that would become empty is removed entirely.
fn removal_edits(contents: &[GeminiContent<'_>], parts: &[&GeminiPart<'_>]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let first = contents.first().map_or(0, |content| content.index);
    // Parts are in request order, so each run of parts belongs to one `content` object.
    for here in parts.chunk_by(|one, next| one.content == next.content) {
        let content = here.first().and_then(|part| part.content.checked_sub(first));
        let Some(content) = content.and_then(|place| contents.get(place)) else { continue };
        work::steps(here.len());
        if here.len() == content.parts.len() {
            edits.push(Edit::Remove(content.node.range()));
        } else {
            edits.extend(here.iter().map(|part| Edit::Remove(part.node.range())));
        }
    }
    edits
}

/// Reports a function response that does not directly follow a call.
fn stray_finding(run: &[GeminiContent<'_>], part: &GeminiPart<'_>) -> Finding {
    let name = part.function();
    let message = format!("this is a response of `{name}`, but no call directly precedes it");
    Finding::at(&ANSWERS_DO_NOT_MATCH, part.node, message)
        .with_provider_error(APART)
        .with_fix("Send the call back before its response, or omit the response too.")
        .fixed_by(
            "removes the function response, which has no matching call",
            removal_edits(run, &[part]),
        )
}
