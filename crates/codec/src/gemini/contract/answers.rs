//! Calls and their answers: as many of the one as of the other, side by side.

use std::collections::{HashMap, HashSet};

use throughline_core::{Node, work};

use crate::gemini::contract::rules::ANSWERS_DO_NOT_MATCH;
use crate::gemini::contract::view::{Content, Part, View};
use crate::gemini::wire::{self, Kind};
use crate::{Edit, Finding, Findings, Mend};

const UNEQUAL: &str = "Please ensure that the number of function response parts is equal to the number of function call \
                       parts of the function call turn.";
const APART: &str =
    "Please ensure that function response turn comes immediately after a function call turn.";

/// Looks at every step and what answers it. Contents in a row of one speaker are one step: so they were accepted.
pub(super) fn look(view: &View<'_>, findings: &mut Findings<'_>) {
    let mut before: &[Content<'_>] = &[];
    for run in view.contents.chunk_by(|one, next| one.is_models == next.is_models) {
        let is_models = run.first().is_some_and(|content| content.is_models);
        let is_answer = before.iter().any(|content| content.of_kind(Kind::Call).next().is_some());
        if !is_models && is_answer {
            compare(before, run, findings);
        } else if !is_models {
            for part in run.iter().flat_map(|content| content.of_kind(Kind::Answer)) {
                stray(run, part, findings);
            }
        }
        before = run;
    }
}

/// Whether a step has as many answers as calls.
fn compare(step: &[Content<'_>], answers: &[Content<'_>], findings: &mut Findings<'_>) {
    let calls: Vec<&Part<'_>> = step.iter().flat_map(|c| c.of_kind(Kind::Call)).collect();
    let given: Vec<&Part<'_>> = answers.iter().flat_map(|c| c.of_kind(Kind::Answer)).collect();
    if calls.len() == given.len() {
        return;
    }
    let (unanswered, mut uncalled) = unmatched(&calls, &given);
    uncalled.extend(media_of_doubles(answers, &uncalled));
    let (calls_word, given_word) = (counted(calls.len(), "call"), counted(given.len(), "answer"));
    let message = format!("this step makes {calls_word}, and has {given_word} behind it");
    let Some(place) = step.last() else { return };
    let edits: Vec<Edit> =
        removed(step, &unanswered).into_iter().chain(removed(answers, &uncalled)).collect();
    let what = match (unanswered.is_empty(), uncalled.is_empty()) {
        (false, _) => "removes the calls that were never answered",
        (true, _) => "removes the answers to calls that were never made",
    };
    findings.add(
        Finding::at(&ANSWERS_DO_NOT_MATCH, place.node, message)
            .under(place.path())
            .answered(UNEQUAL)
            .mended((!edits.is_empty()).then(|| Mend::new(what, edits))),
    );
}

/// The media beside answers that came twice: they came twice, too.
fn media_of_doubles<'p, 'c>(
    answers: &'p [Content<'c>],
    uncalled: &[&'p Part<'c>],
) -> Vec<&'p Part<'c>> {
    let is_uncalled = |part: &Part<'c>| {
        uncalled.iter().any(|other| (other.content, other.index) == (part.content, part.index))
    };
    let (mut given, mut media, mut doubles) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut is_behind_double = false;
    for part in answers.iter().flat_map(|content| &content.parts) {
        if part.kind == Kind::Answer {
            let is_new = given.insert(part.node.raw());
            is_behind_double = !is_new && is_uncalled(part);
        } else if wire::present(part.node, "inlineData").is_some() {
            let is_new = media.insert(part.node.raw());
            doubles.extend((is_behind_double && !is_new).then_some(part));
        }
    }
    doubles
}

fn counted(count: usize, word: &str) -> String {
    match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        several => format!("{several} {word}s"),
    }
}

/// The calls without an answer, and the answers without a call: by id where both have one, else by name, in order.
fn unmatched<'p, 'c>(
    calls: &[&'p Part<'c>],
    given: &[&'p Part<'c>],
) -> (Vec<&'p Part<'c>>, Vec<&'p Part<'c>>) {
    let key = |part: &Part<'c>| {
        let id = part.value.text_of("id").filter(|id| !id.is_empty());
        id.map_or_else(|| (false, part.function()), |id| (true, id.into_owned()))
    };
    let mut open: HashMap<(bool, String), Vec<&'p Part<'c>>> = HashMap::new();
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
    // Where calls and answers name each other differently, only the surplus is certain.
    let surplus = calls.len().abs_diff(given.len());
    if calls.len() > given.len() {
        let keep = unanswered.len().saturating_sub(surplus);
        (unanswered.split_off(keep), Vec::new())
    } else {
        let keep = uncalled.len().saturating_sub(surplus);
        (Vec::new(), uncalled.split_off(keep))
    }
}

/// Takes parts away; a content that would be left empty goes whole.
fn removed(contents: &[Content<'_>], parts: &[&Part<'_>]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let first = contents.first().map_or(0, |content| content.index);
    // The parts are in order, and so are the contents: each run of parts is of one content.
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

/// An answer that follows no call.
fn stray(run: &[Content<'_>], part: &Part<'_>, findings: &mut Findings<'_>) {
    let name = part.function();
    let message = format!("this answers `{name}`, and no call stands right before it");
    let edits = removed(run, &[part]);
    findings.add(
        Finding::at(&ANSWERS_DO_NOT_MATCH, part.node, message)
            .under(part.path())
            .answered(APART)
            .advised("Send the call back before its answer, or leave the answer out too.")
            .mended(Some(Mend::new("removes the answer whose call is gone", edits))),
    );
}
