//! Models behind a witness, who sees each question and what the simulators made of it, and objects to what may not be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use throughline_core::{
    Asking, Body, Call, Did, Fate, Item, ItemId, Model, ModelError, Models, Origin, Target, Why,
};
use throughline_provider::EndpointModels;
use throughline_sim::{Entry, Returned, Simulator, Verdict};

/// Models behind a witness.
pub(crate) struct Witness {
    models: EndpointModels,
    seen: Arc<Mutex<Seen>>,
    simulator: Arc<Simulator>,
}

/// What the witness saw.
#[derive(Default)]
pub(crate) struct Seen {
    /// What was asked last of the conversation itself: its summary, and its other Items.
    last: Option<(Option<ItemId>, Vec<ItemId>)>,
    /// The summary that each sealed Item was issued behind.
    behind: HashMap<ItemId, Option<ItemId>>,
    /// What may not be.
    pub(crate) objections: Vec<String>,
    /// Questions that were answered.
    pub(crate) asked: u64,
    /// Seals that went back.
    pub(crate) replayed: u64,
    /// Seals that stayed behind, because their reader is another, or what stood before them was summarised.
    pub(crate) withheld: u64,
    /// Summaries that questions were asked behind.
    pub(crate) summaries: std::collections::BTreeSet<ItemId>,
}

impl Witness {
    pub(crate) fn new(models: EndpointModels, simulator: Arc<Simulator>) -> Self {
        Self { models, seen: Arc::default(), simulator }
    }

    pub(crate) fn account(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }
}

impl Models for Witness {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = self.models.model(name)?;
        let (seen, simulator) = (Arc::clone(&self.seen), Arc::clone(&self.simulator));
        Ok(Arc::new(Witnessed { model, seen, simulator }))
    }
}

struct Witnessed {
    model: Arc<dyn Model>,
    seen: Arc<Mutex<Seen>>,
    simulator: Arc<Simulator>,
}

impl Model for Witnessed {
    fn target(&self) -> &Target {
        self.model.target()
    }

    fn ask(&self, call: Call) -> Asking<'_> {
        Box::pin(async move {
            self.seen.lock().unwrap().hear(&call);
            let saying = self.model.ask(call.clone()).await?;
            // One question at a time is asked, so the last entry is its own.
            let entry = self.simulator.last_entry().expect("the question is in the ledger");
            self.seen.lock().unwrap().compare(&call, &saying.fates, &entry);
            Ok(saying)
        })
    }
}

impl Seen {
    /// A conversation only grows, unless a summary takes the place of its beginning.
    fn hear(&mut self, call: &Call) {
        let is_own = |id: &ItemId| !matches!(&*id.0, "reflection" | "conversation");
        if call.items.is_empty() || !call.items.iter().all(|item| is_own(&item.id)) {
            return;
        }
        let kept = call.items.iter().filter(|item| !item.ephemeral);
        let (summaries, others): (Vec<_>, Vec<_>) =
            kept.partition(|item| matches!(item.body, Body::Summary { .. }));
        let summary = summaries.first().map(|item| item.id.clone());
        let others: Vec<ItemId> = others.iter().map(|item| item.id.clone()).collect();
        self.summaries.extend(summary.clone());
        let before = self.last.as_ref().and_then(|(summary, _)| summary.clone());
        for item in call.items.iter().filter(|item| !item.seals.is_empty()) {
            self.behind.entry(item.id.clone()).or_insert_with(|| before.clone());
        }
        if let Some((before, items)) = &self.last
            && *before == summary
            && !others.starts_with(items)
        {
            self.objections.push(format!("{others:?} does not go on from {items:?}"));
        }
        self.last = Some((summary, others));
    }

    /// Every seal that its reader can read went along, and the simulators took each.
    fn compare(&mut self, call: &Call, fates: &[Fate], entry: &Entry) {
        let target = &call.target;
        self.asked += 1;
        let summaries = call.items.iter().filter(|item| matches!(item.body, Body::Summary { .. }));
        let summary = summaries.map(|item| item.id.clone()).next();
        let mut kept = 0;
        for item in &call.items {
            let Some(fate) = fates.iter().find(|fate| fate.item == item.id) else {
                self.objections.push(format!("{} has no fate", item.id.0));
                continue;
            };
            let is_moved = self.behind.get(&item.id).is_some_and(|behind| *behind != summary);
            for (owner, did) in sealed(item, fate, &entry.wire) {
                let is_readable = owner.provider == target.origin.provider
                    && target.profile.reads_seals_of(&owner.family);
                match did {
                    Did::Kept if is_readable => kept += 1,
                    Did::Elided(_) if !is_readable => self.withheld += 1,
                    // What stood before it when it was issued is summarised by now.
                    Did::Elided(Why::PrefixChanged) if is_moved => self.withheld += 1,
                    did => {
                        let (from, to) = (&owner.asked, target.model());
                        self.objections.push(format!("a seal of {from} is {did} for {to}"));
                    }
                }
            }
        }
        self.replayed += kept;
        // A stand-in, where a provider takes one for what another made, is nobody's seal.
        let is_seal = |back: &&Returned| back.verdict != Verdict::Dropped("stand_in".to_owned());
        let back: Vec<&Returned> = entry.returned.iter().filter(is_seal).collect();
        let is_taken = back.iter().all(|back| back.verdict == Verdict::Accepted);
        // What a summary stands before is not owed to a model that reads nothing behind it.
        let is_bound = target.profile.bound.prefix && !self.summaries.is_empty();
        let is_whole = entry.status == 200 && is_taken && (entry.lost == 0 || is_bound);
        let back = u64::try_from(back.len()).unwrap();
        if !is_whole || back != kept || entry.model != target.model() {
            self.objections.push(format!("{kept} seals went along, and came so: {entry:?}"));
        }
    }
}

/// What an Item has that only its maker reads: seals, or on a wire that knows none, its thought.
fn sealed<'i>(item: &'i Item, fate: &'i Fate, wire: &str) -> Vec<(&'i Origin, &'i Did)> {
    let plain = item.origin.as_ref().filter(|origin| {
        let is_thought = matches!(item.body, Body::Thought(_));
        is_thought && wire == "openai-chat" && origin.wire.as_str() == wire
    });
    let seals = item.seals.iter().map(|seal| &*seal.owner).zip(&fate.seals);
    seals.chain(plain.map(|origin| (&**origin, &fate.visible))).collect()
}
