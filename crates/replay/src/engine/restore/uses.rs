//! Decides how each matched turn is used: what replaces it, and what is reported.

use std::ops::Range;
use std::sync::Arc;

use throughline_core::{Call, Disposition, ElisionReason, Fate, Item, ItemId, Target, TurnId};

use crate::engine::chain::ChainTurn;
use crate::engine::compare::{self, Similarity};
use crate::engine::plain::{self, PlainThoughts};
use crate::engine::restore::{TurnMatch, TurnSearch};
use crate::engine::splice::Patch;
use crate::engine::turn_cache::Captured;
use crate::finding::RestoreIssue;
use crate::turn::ParentTurn;

/// How the matched turns are used. `parent` and `signed` belong to the turn with the highest index.
#[derive(Default)]
pub(super) struct TurnUses {
    pub(super) patches: Vec<Patch>,
    pub(super) owners: Vec<(Range<usize>, Arc<Captured>)>,
    pub(super) parent: Option<(usize, ParentTurn)>,
    pub(super) signed: Option<(usize, ParentTurn)>,
}

impl TurnUses {
    pub(super) fn add(
        &mut self,
        search: &mut TurnSearch<'_>,
        call: &Call,
        at: usize,
        matched: TurnMatch,
    ) {
        let Some(turn) = search.turns.get(at) else { return };
        let is_newest = |turn: &Option<(usize, ParentTurn)>| {
            turn.as_ref().is_none_or(|(newest, _)| at > *newest)
        };
        // A reply that continues the last turn has the same parent as that turn.
        let is_last = turn.items.end == call.items.len();
        if !is_last && is_newest(&self.parent) {
            self.parent = Some((at, matched.parent.clone()));
        }
        let Some((captured, evidence)) = matched.captured else { return };
        if compare::has_signed_prefix(&captured, &call.target) && is_newest(&self.signed) {
            self.signed = Some((at, matched.parent));
        }
        match search.decide(turn, &matched.node, &captured, &call.target) {
            TurnAction::Replace(items) => {
                let (range, node) = (turn.items.clone(), matched.node);
                self.patches.push(Patch { range, node, items, evidence });
            }
            TurnAction::Keep => self.owners.push((turn.items.clone(), captured)),
            TurnAction::Nothing => {}
        }
    }
}

/// How to treat a turn in the request that matches a captured turn.
enum TurnAction {
    /// Replace the turn with these Items.
    Replace(Vec<Item>),
    /// Leave the turn unchanged.
    Keep,
    /// Restore nothing, because the client edited text that the turn's Seals cover.
    Nothing,
}

impl TurnSearch<'_> {
    /// Decides how to treat a matched turn, and reports the client's alterations.
    fn decide(
        &mut self,
        turn: &ChainTurn,
        node: &TurnId,
        captured: &Captured,
        target: &Target,
    ) -> TurnAction {
        let items = self.items.get(turn.items.clone()).unwrap_or_default();
        for item in compare::altered(items, captured) {
            self.report_on(&item.id, RestoreIssue::Altered);
        }
        if !compare::is_from_target(captured, target) {
            return TurnAction::Keep;
        }
        let is_current = || {
            let start = || plain::start_of_tool_loop(self.items);
            turn.items.start >= *self.loop_start.get_or_init(start)
        };
        let follows_calls = || plain::follows_calls(self.items, turn.items.start);
        let plain = PlainThoughts::of(items, captured, target, is_current, follows_calls);
        if let PlainThoughts::Omit(why) = plain {
            self.omit(items, node, captured, target, why);
        }
        if plain != PlainThoughts::Restore && compare::is_intact(items, captured) {
            return TurnAction::Keep;
        }
        let issued = match compare::likeness(turn, items, captured) {
            Similarity::Same => Some(captured.items.clone()),
            Similarity::Edited | Similarity::Grown | Similarity::Other => {
                compare::edited(turn, items, captured)
            }
        };
        match issued {
            Some(mut issued) => {
                if matches!(plain, PlainThoughts::Omit(_)) {
                    issued.retain(|item| {
                        !plain::is_plain(item, target) || compare::has_thought(items, item)
                    });
                }
                TurnAction::Replace(issued)
            }
            None => {
                self.report(items, RestoreIssue::Edited);
                TurnAction::Nothing
            }
        }
    }

    /// Records the Fates of the plain Thoughts that the client dropped and that are not restored.
    fn omit(
        &mut self,
        items: &[Item],
        node: &TurnId,
        captured: &Captured,
        target: &Target,
        why: ElisionReason,
    ) {
        let omitted = plain::dropped(items, &captured.items, target).map(|thought| Fate {
            item: ItemId::from(format!("{node}.{}", thought.id)),
            visible: Disposition::Elided(why),
            seals: Vec::new(),
        });
        self.omitted.extend(omitted);
    }
}
