//! Finds and removes Thoughts that a client sends back as text.
//!
//! Some clients turn another model's reasoning into plain or tagged text, but a provider's Thought
//! must not become text for another model. A text counts as a Thought only if it equals a Thought
//! captured in the same turn, ignoring tags and surrounding white space.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use throughline_core::{
    Body, Call, Disposition, ElisionReason, Fate, Item, Role, StoreError, Tenant, TurnId, VaultKey,
    VaultTurn,
};

use crate::engine::Replay;
use crate::engine::chain::{Chain, ChainTurn, VisibleDigests};
use crate::engine::step::Predecessor;
use crate::engine::turn_cache::Captured;
use crate::engine::vault::{LoadedTurn, VaultSearch};
use crate::finding::{Finding, RestoreIssue};

/// The tags that clients put around Thoughts.
const TAGS: [&str; 4] = ["think", "thinking", "reasoning", "thought"];
/// An untagged turn with more texts than this is not looked up with one text omitted.
const MAX_TEXTS: usize = 4;
/// Maximum number of turns per request that are looked up with texts omitted.
const MOST_TURNS: usize = 64;
/// Maximum number of captured turns that are compared with one turn of a request. Turns of several
/// conversations have the same key if the conversations have equal openings.
const MOST_CANDIDATES: u32 = 8;

/// The Items of a turn, with `None` for each Item that is a Thought sent as text.
pub(super) type CleanedItems = Vec<Option<Item>>;

/// Findings and Fates for Thoughts that the client had sent as text and that were removed.
#[derive(Default)]
pub(super) struct RemovedThoughts {
    pub(super) findings: Vec<Finding>,
    pub(super) fates: Vec<Fate>,
}

impl RemovedThoughts {
    /// Removes the Thoughts from the turns of a Call.
    pub(super) fn remove(
        call: &mut Call,
        turns: &[ChainTurn],
        mut cleaned: HashMap<usize, CleanedItems>,
    ) -> Self {
        let mut removed = Self::default();
        let received = std::mem::take(&mut call.items);
        let mut next = 0;
        for (at, turn) in turns.iter().enumerate() {
            let Some(without) = cleaned.remove(&at) else { continue };
            call.items.extend_from_slice(received.get(next..turn.items.start).unwrap_or_default());
            next = turn.items.end;
            let items = received.get(turn.items.clone()).unwrap_or_default();
            for (was, now) in items.iter().zip(without) {
                if now.as_ref() != Some(was) {
                    let item = was.id.clone();
                    removed.findings.push(Finding { item, problem: RestoreIssue::ThoughtAsText });
                }
                match now {
                    Some(item) => call.items.push(item),
                    None => {
                        let (item, visible) =
                            (was.id.clone(), Disposition::Elided(ElisionReason::Foreign));
                        removed.fates.push(Fate { item, visible, seals: Vec::new() });
                    }
                }
            }
        }
        call.items.extend_from_slice(received.get(next..).unwrap_or_default());
        removed
    }
}

/// Returns the turn's Items without the texts that equal captured Thoughts; `None` if no text
/// equals a captured Thought.
pub(super) fn without_thoughts(items: &[Item], captured: &Captured) -> Option<CleanedItems> {
    let texts = || captured.items.iter().filter_map(text_of).map(str::trim);
    let may_be_thought = |text: &str| {
        let text = text.trim();
        (text.starts_with('<') || thoughts_in(&captured.items).any(|known| text.starts_with(known)))
            && !texts().any(|own| own == text)
    };
    // A cheap check comes first, because most turns contain no Thoughts as text. The turn's own
    // texts are kept.
    if !items.iter().filter_map(text_of).any(may_be_thought) {
        return None;
    }
    let thoughts = thoughts_of(&captured.items);
    let is_thought = |text: &str| {
        let text = text.trim();
        !text.is_empty() && thoughts.iter().any(|known| known == text)
    };
    let mut has_thought = false;
    let cleaned = items.iter().map(|item| {
        let Some(text) = text_of(item).filter(|_| item.role == Role::Assistant) else {
            return Some(item.clone());
        };
        if texts().any(|own| own == text.trim()) {
            return Some(item.clone());
        }
        if is_thought(text) {
            has_thought = true;
            return None;
        }
        let Some(rest) = strip_tagged_thoughts(text, is_thought) else { return Some(item.clone()) };
        has_thought = true;
        rewritten(item, rest)
    });
    let cleaned: CleanedItems = cleaned.collect();
    has_thought.then_some(cleaned)
}

/// Returns the text of each readable Thought in a turn.
fn thoughts_in(items: &[Item]) -> impl Iterator<Item = &str> {
    let thoughts = items.iter().filter_map(|item| {
        if let Body::Thought(thought) = &item.body { Some(thought.content.trim()) } else { None }
    });
    thoughts.filter(|text| !text.is_empty())
}

/// Returns the readable Thoughts of a turn: each Thought separately, and all Thoughts joined with
/// each separator that clients use.
pub(super) fn thoughts_of(items: &[Item]) -> Vec<String> {
    let thoughts: Vec<&str> = thoughts_in(items).collect();
    let mut known: Vec<String> = thoughts.iter().map(|text| (*text).to_owned()).collect();
    if thoughts.len() > 1 {
        known.extend(["\n\n", "\n", ""].map(|between| thoughts.join(between)));
    }
    known
}

fn text_of(item: &Item) -> Option<&str> {
    if let Body::Text(text) = &item.body { Some(text) } else { None }
}

/// Returns the Item with a new text; `None` if the new text is blank.
fn rewritten(item: &Item, text: &str) -> Option<Item> {
    if text.trim().is_empty() {
        return None;
    }
    let mut item = item.clone();
    item.replace_body(Body::Text(text.into()));
    Some(item)
}

/// Returns the part of a text after its leading tagged Thoughts; `None` if the text starts with no
/// tagged Thought.
fn strip_tagged_thoughts(text: &str, is_thought: impl Fn(&str) -> bool) -> Option<&str> {
    let mut rest = text;
    while let Some((inner, after)) = tagged(rest) {
        if !is_thought(inner) {
            break;
        }
        rest = after;
    }
    (rest.len() < text.len()).then(|| rest.trim_start())
}

/// Returns the text inside a leading tag, and the text after the closing tag.
pub(super) fn tagged(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start().strip_prefix('<')?;
    let (head, rest) = rest.split_once('>')?;
    let name = head.split(char::is_whitespace).next()?;
    TAGS.iter().find(|tag| **tag == name)?;
    rest.split_once(&format!("</{name}>"))
}

/// The captured turns that were already matched, by turn index.
#[derive(Clone, Copy)]
pub(super) struct KnownTurns<'m> {
    /// The content of turns that match or may match.
    pub(super) captured: &'m HashMap<usize, Arc<Captured>>,
    /// The ids of turns that match.
    pub(super) ids: &'m HashMap<usize, TurnId>,
}

/// The turns of a request that contain Thoughts as text.
#[derive(Default)]
pub(super) struct CleanedTurns {
    /// Their Items without these texts, by turn index.
    pub(super) items: HashMap<usize, CleanedItems>,
    /// The id of the last turn of the request, if this search found it.
    pub(super) last: Option<TurnId>,
}

/// Finds turns in a request that contain Thoughts as text.
pub(super) async fn clean(
    replay: &Replay,
    (tenant, end_user): (&Tenant, Option<&str>),
    call: &Call,
    turns: &[ChainTurn],
    known: KnownTurns<'_>,
) -> Result<CleanedTurns, StoreError> {
    let mut cleaned: HashMap<usize, CleanedItems> = HashMap::new();
    for (at, captured) in known.captured {
        let items = turns.get(*at).map(|turn| items_of(call, turn)).unwrap_or_default();
        if let Some(without) = without_thoughts(items, captured) {
            cleaned.insert(*at, without);
        }
    }
    let open = turns.iter().enumerate().filter(|(at, _)| !known.captured.contains_key(at));
    let open = open.filter(|(_, turn)| may_hold(items_of(call, turn)));
    let open: HashSet<usize> = open.map(|(at, _)| at).take(MOST_TURNS).collect();
    let Some(last_open) = open.iter().max() else {
        return Ok(CleanedTurns { items: cleaned, last: None });
    };
    let mut vault = VaultSearch::new(replay, tenant, end_user);
    let mut beginning = Call::new(call.target.clone());
    beginning.system.clone_from(&call.system);
    let mut chain = Chain::of(&beginning, tenant, end_user);
    let (mut before, mut seen, mut next): (Vec<Item>, usize, usize) = (Vec::new(), 0, 0);
    let mut predecessors = vec![Predecessor::Start];
    let mut looked_up = 0;
    for (at, turn) in turns.iter().enumerate() {
        before.extend_from_slice(call.items.get(next..turn.items.start).unwrap_or_default());
        next = turn.items.end;
        chain.extend(&before, seen);
        let items = items_of(call, turn);
        let mut ids: Vec<TurnId> = known.ids.get(&at).cloned().into_iter().collect();
        let is_open = open.contains(&at);
        // The steps of later turns need the id of this turn, even if it contains no Thought.
        let is_needed = ids.is_empty() && turn.digest.is_some() && at < *last_open;
        if is_open || is_needed && looked_up < MOST_TURNS {
            looked_up += usize::from(!is_open);
            let found = by_digest(&mut vault, &chain, &predecessors, items, is_open).await?;
            cleaned.extend(found.cleaned.map(|without| (at, without)));
            if !found.ids.is_empty() {
                ids = found.ids;
            }
        }
        if turn.digest.is_some() {
            predecessors = ids.into_iter().map(Predecessor::Turn).collect();
        }
        seen = before.len();
        match cleaned.get(&at) {
            Some(without) => before.extend(without.iter().flatten().cloned()),
            None => before.extend_from_slice(items),
        }
        chain.extend(&before, seen);
        seen = before.len();
    }
    let last = match predecessors.as_slice() {
        [Predecessor::Turn(id)] => Some(id.clone()),
        // Several turns are ambiguous.
        [..] => None,
    };
    Ok(CleanedTurns { items: cleaned, last })
}

fn items_of<'c>(call: &'c Call, turn: &ChainTurn) -> &'c [Item] {
    call.items.get(turn.items.clone()).unwrap_or_default()
}

/// Whether a turn may contain a Thought as text: a text starts with a tag, or the turn has several
/// texts.
fn may_hold(items: &[Item]) -> bool {
    if items.iter().any(|item| item.role != Role::Assistant) {
        return false;
    }
    let texts = || items.iter().filter_map(text_of).filter(|text| !text.trim().is_empty());
    texts().any(|text| tagged(text).is_some()) || (2..=MAX_TEXTS).contains(&texts().count())
}

/// The captured turns that a turn of a request can be.
#[derive(Default)]
struct TurnCandidates {
    /// Their ids; empty if there are more than [`MOST_CANDIDATES`].
    ids: Vec<TurnId>,
    /// The turn's Items without Thoughts, if it contains Thoughts as text.
    cleaned: Option<CleanedItems>,
}

/// Looks up a turn by its chain key and its steps as received, one step for each possible
/// predecessor. If `may_clean`, also looks it up by the keys that it would have without its tagged
/// texts, or without one of its texts.
async fn by_digest(
    vault: &mut VaultSearch<'_>,
    chain: &Chain,
    predecessors: &[Predecessor],
    items: &[Item],
    may_clean: bool,
) -> Result<TurnCandidates, StoreError> {
    let (end_user, input) = (vault.end_user(), chain.input_digest());
    let keys_of = |items: &[Item]| -> Vec<VaultKey> {
        let Some((digest, visible)) = chain.turn_after(items) else { return Vec::new() };
        let steps = input.iter().flat_map(|input| {
            predecessors.iter().map(move |turn| turn.step(end_user, input, &visible))
        });
        std::iter::once(digest).chain(steps).map(VaultKey::Chain).collect()
    };
    let received = keys_of(items);
    let candidates = if may_clean { cleaned_candidates(items) } else { Vec::new() };
    let cleaned = candidates.iter().map(|items| {
        let items: Vec<Item> = items.iter().flatten().cloned().collect();
        keys_of(&items)
    });
    let cleaned: Vec<_> = cleaned.filter(|keys| *keys != received).collect();
    vault.look_up(received.iter().chain(cleaned.iter().flatten()).cloned().collect()).await?;
    for keys in chain_key_and_steps(&received) {
        let (turns, is_complete) = turns_with(vault, keys).await?;
        if !turns.is_empty() {
            let ids = turns.into_iter().filter(|_| is_complete).map(|turn| turn.id).collect();
            return Ok(TurnCandidates { ids, cleaned: None });
        }
    }
    // Another model's reply to the same request can have the chain key, but no such Thought.
    for keys in cleaned.iter().flat_map(|keys| chain_key_and_steps(keys)) {
        let (turns, is_complete) = turns_with(vault, keys).await?;
        let mut matches = Vec::new();
        for turn in turns {
            let LoadedTurn::Here(captured) = vault.load(&turn).await? else { continue };
            let Some(without) = without_thoughts(items, &captured) else { continue };
            let remaining: Vec<Item> = without.iter().flatten().cloned().collect();
            if VisibleDigests::of(&remaining) == captured.visible {
                matches.push((turn.id, without));
            }
        }
        let (ids, mut all_cleaned): (Vec<_>, Vec<_>) = matches.into_iter().unzip();
        // Turns that disagree about the Thoughts are ambiguous.
        all_cleaned.dedup();
        if let Ok([cleaned]) = <[CleanedItems; 1]>::try_from(all_cleaned) {
            let ids = if is_complete { ids } else { Vec::new() };
            return Ok(TurnCandidates { ids, cleaned: Some(cleaned) });
        }
    }
    Ok(TurnCandidates::default())
}

/// Returns the Items without their tagged texts, and without each one of their texts.
fn cleaned_candidates(items: &[Item]) -> Vec<CleanedItems> {
    let untagged = items.iter().map(|item| {
        match text_of(item).and_then(|text| strip_tagged_thoughts(text, |_| true)) {
            Some(rest) => rewritten(item, rest),
            None => Some(item.clone()),
        }
    });
    let mut candidates: Vec<CleanedItems> = vec![untagged.collect()];
    for (omitted, item) in items.iter().enumerate() {
        if text_of(item).is_some_and(|text| !text.trim().is_empty()) {
            let rest = items.iter().enumerate();
            let rest = rest.map(|(at, item)| (at != omitted).then(|| item.clone()));
            candidates.push(rest.collect());
        }
    }
    candidates
}

/// Splits the keys of a turn into its chain key, which is the first one, and its steps.
fn chain_key_and_steps(keys: &[VaultKey]) -> [&[VaultKey]; 2] {
    let (chain, steps) = keys.split_at(keys.len().min(1));
    [chain, steps]
}

/// Returns the newest turns with one of these keys. The second value is `false` if there are more
/// turns.
async fn turns_with(
    vault: &VaultSearch<'_>,
    keys: &[VaultKey],
) -> Result<(Vec<VaultTurn>, bool), StoreError> {
    let (mut turns, mut is_complete) = (Vec::new(), true);
    for key in keys {
        let Some(found) = vault.result(key) else { continue };
        is_complete &= found.siblings < MOST_CANDIDATES;
        turns.extend(vault.newest(key, MOST_CANDIDATES).await?);
    }
    let most = usize::try_from(MOST_CANDIDATES).unwrap_or(usize::MAX);
    is_complete &= turns.len() <= most;
    turns.truncate(most);
    Ok((turns, is_complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_tags_are_split_from_the_rest() {
        assert_eq!(tagged("<think>a</think>b"), Some(("a", "b")));
        assert_eq!(tagged(" \n<thought id=\"1\">a</thought>"), Some(("a", "")));
        assert_eq!(tagged("<b>a</b>"), None);
        assert_eq!(tagged("<think>a"), None);
        let all = |_: &str| true;
        assert_eq!(
            strip_tagged_thoughts("<think>a</think><reasoning>b</reasoning>\nc", all),
            Some("c")
        );
        assert_eq!(strip_tagged_thoughts("c <think>a</think>", all), None);
        assert_eq!(strip_tagged_thoughts("<think>a</think>b", |_| false), None);
    }
}
