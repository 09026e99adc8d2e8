//! Summarises the Fates of the Thoughts and Seals in one model call.

use std::collections::HashSet;

use throughline_core::{Disposition, Fate, ItemId};
use throughline_json::{self as json, Json, Name};
use throughline_spec::ReplayEvent;

/// Number of Thoughts and Seals per Fate.
#[derive(Default)]
struct FateCounts {
    kept: u64,
    restored: u64,
    reshaped: u64,
    elided: u64,
}

impl FateCounts {
    fn count(&mut self, disposition: &Disposition) {
        match disposition {
            Disposition::Kept => self.kept += 1,
            Disposition::Restored(_) => self.restored += 1,
            Disposition::Reshaped(_) => self.reshaped += 1,
            Disposition::Elided(_) => self.elided += 1,
        }
    }
}

/// Builds the event that reports the Fates of one Call; `None` if the Call had no Thoughts or
/// Seals. `thoughts` contains the ids of the Call's Thought Items.
pub(crate) fn replay_event(
    fates: &[Fate],
    thoughts: &HashSet<ItemId>,
    turn: u64,
) -> Option<ReplayEvent> {
    let (mut counts, mut seals) = (FateCounts::default(), FateCounts::default());
    let mut reasons: Vec<(Name, u64)> = Vec::new();
    // Spans of consecutive Items with the same Fate: first Item, Fate and number of Items.
    let mut spans: Vec<(&Name, Name, u64)> = Vec::new();
    for fate in fates {
        let visible = thoughts.contains(&fate.item).then_some(&fate.visible);
        if let Some(disposition) = visible {
            counts.count(disposition);
        }
        for disposition in &fate.seals {
            seals.count(disposition);
        }
        for disposition in visible.into_iter().chain(&fate.seals) {
            let Disposition::Elided(reason) = disposition else { continue };
            let reason = Name::from(reason.to_string());
            match reasons.iter_mut().find(|(listed, _)| *listed == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        // A sealed Item is listed under the Fate of its first Seal.
        let Some(disposition) = fate.seals.first().or(visible) else { continue };
        let disposition = Name::from(disposition.to_string());
        match spans.last_mut() {
            Some((_, last, count)) if *last == disposition => *count += 1,
            _ => spans.push((&fate.item.0, disposition, 1)),
        }
    }
    if spans.is_empty() {
        return None;
    }
    let member = |(name, count): (&str, u64)| (Name::from(name), Json::from(count));
    let some = |count: u64| (count > 0).then_some(count);
    let FateCounts { kept, restored, reshaped, elided } = seals;
    let seals =
        [("kept", kept), ("restored", restored), ("reshaped", reshaped), ("elided", elided)];
    let seals: Vec<_> = seals.into_iter().filter(|(_, count)| *count > 0).map(member).collect();
    let reasons: Vec<_> = reasons.iter().map(|(reason, count)| member((reason, *count))).collect();
    let spans = json::array(|list| {
        for (first, disposition, count) in &spans {
            list.array(|span| {
                span.string(first).string(disposition).number(*count);
            });
        }
    });
    Some(ReplayEvent {
        turn: Some(turn),
        kept: Some(counts.kept),
        restored: some(counts.restored),
        reshaped: some(counts.reshaped),
        elided: some(counts.elided),
        why: (!reasons.is_empty()).then_some(reasons),
        seals: (!seals.is_empty()).then_some(seals),
        fates: Some(spans),
        ..ReplayEvent::default()
    })
}
