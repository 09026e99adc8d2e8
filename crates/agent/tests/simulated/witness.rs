//! Wraps the models, compares each request with the simulators' verdict on the request, and records
//! violations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use throughline_core::{
    Body, Call, Disposition, ElisionReason, Fate, Item, ItemId, Model, ModelError, ModelFuture,
    ModelRegistry, Origin, Target,
};
use throughline_provider::EndpointModels;
use throughline_sim::{LedgerEntry, ReturnedSeal, Simulator, Verdict};

/// Wrapper around the models that checks every request.
pub(crate) struct VerifyingModels {
    models: EndpointModels,
    observations: Arc<Mutex<Observations>>,
    simulator: Arc<Simulator>,
}

/// Observations and violations recorded so far.
#[derive(Default)]
pub(crate) struct Observations {
    /// Item ids of the last request for a turn: the id of the summary, if any, and the ids of the
    /// other Items.
    last: Option<(Option<ItemId>, Vec<ItemId>)>,
    /// For each sealed Item, the summary that preceded the Item when the provider issued it.
    behind: HashMap<ItemId, Option<ItemId>>,
    /// Descriptions of violations.
    pub(crate) objections: Vec<String>,
    pub(crate) requests: u64,
    /// Number of Seals that were sent back to their model.
    pub(crate) replayed: u64,
    /// Number of Seals that were withheld because they belong to another model or because their
    /// prefix was summarised.
    pub(crate) withheld: u64,
    pub(crate) summaries: std::collections::BTreeSet<ItemId>,
}

impl VerifyingModels {
    pub(crate) fn new(models: EndpointModels, simulator: Arc<Simulator>) -> Self {
        Self { models, observations: Arc::default(), simulator }
    }

    pub(crate) fn observations(&self) -> std::sync::MutexGuard<'_, Observations> {
        self.observations.lock().unwrap()
    }
}

impl ModelRegistry for VerifyingModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = self.models.model(name)?;
        let (observations, simulator) =
            (Arc::clone(&self.observations), Arc::clone(&self.simulator));
        Ok(Arc::new(VerifyingModel { model, observations, simulator }))
    }
}

struct VerifyingModel {
    model: Arc<dyn Model>,
    observations: Arc<Mutex<Observations>>,
    simulator: Arc<Simulator>,
}

impl Model for VerifyingModel {
    fn target(&self) -> &Target {
        self.model.target()
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        Box::pin(async move {
            self.observations.lock().unwrap().check_prefix(&call);
            let stream = self.model.send(call.clone()).await?;
            // Requests are sequential, so the last ledger entry belongs to this request.
            let entry = self.simulator.last_entry().expect("the question is in the ledger");
            self.observations.lock().unwrap().compare(&call, &stream.fates, &entry);
            Ok(stream)
        })
    }
}

impl Observations {
    /// Checks that each request extends the previous request, unless a new summary replaced the
    /// beginning of the conversation.
    fn check_prefix(&mut self, call: &Call) {
        let is_own = |id: &ItemId| !matches!(&*id.0, "reflection" | "conversation");
        if call.items.is_empty() || !call.items.iter().all(|item| is_own(&item.id)) {
            return;
        }
        let stored = call.items.iter().filter(|item| !item.ephemeral);
        let (summaries, others): (Vec<_>, Vec<_>) =
            stored.partition(|item| matches!(item.body, Body::Summary { .. }));
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

    /// Checks that every Seal the model can read was sent, and that the simulators accepted all
    /// sent Seals.
    fn compare(&mut self, call: &Call, fates: &[Fate], entry: &LedgerEntry) {
        let target = &call.target;
        self.requests += 1;
        let summaries = call.items.iter().filter(|item| matches!(item.body, Body::Summary { .. }));
        let summary = summaries.map(|item| item.id.clone()).next();
        let mut sent = 0;
        for item in &call.items {
            let Some(fate) = fates.iter().find(|fate| fate.item == item.id) else {
                self.objections.push(format!("{} has no fate", item.id.0));
                continue;
            };
            let is_moved = self.behind.get(&item.id).is_some_and(|behind| *behind != summary);
            for (owner, disposition) in sealed(item, fate, &entry.wire) {
                let is_readable = owner.provider == target.origin.provider
                    && target.profile.reads_seals_of(&owner.family);
                match disposition {
                    Disposition::Kept if is_readable => sent += 1,
                    Disposition::Elided(_) if !is_readable => self.withheld += 1,
                    // The prefix to which this Seal is bound was summarised later.
                    Disposition::Elided(ElisionReason::PrefixChanged) if is_moved => {
                        self.withheld += 1;
                    }
                    disposition => {
                        let (from, to) = (&owner.asked, target.model());
                        self.objections.push(format!("a seal of {from} is {disposition} for {to}"));
                    }
                }
            }
        }
        self.replayed += sent;
        // A placeholder for another provider's reasoning is not a Seal.
        let is_seal =
            |returned: &&ReturnedSeal| returned.verdict != Verdict::Dropped("stand_in".to_owned());
        let returned: Vec<&ReturnedSeal> = entry.returned.iter().filter(is_seal).collect();
        let all_accepted = returned.iter().all(|returned| returned.verdict == Verdict::Accepted);
        // A prefix-bound model does not need the Seals whose prefix was summarised.
        let is_bound = target.profile.bound.prefix && !self.summaries.is_empty();
        let is_valid = entry.status == 200 && all_accepted && (entry.lost == 0 || is_bound);
        let returned = u64::try_from(returned.len()).unwrap();
        if !is_valid || returned != sent || entry.model != target.model() {
            self.objections.push(format!("{sent} Seals were sent, and received as {entry:?}"));
        }
    }
}

/// Returns the owner and disposition of each Seal of an Item. On a wire without Seals, the Thought
/// itself counts as sealed.
fn sealed<'i>(item: &'i Item, fate: &'i Fate, wire: &str) -> Vec<(&'i Origin, &'i Disposition)> {
    let plain = item.origin.as_ref().filter(|origin| {
        let is_thought = matches!(item.body, Body::Thought(_));
        is_thought && wire == "openai-chat" && origin.wire.as_str() == wire
    });
    let seals = item.seals.iter().map(|seal| &*seal.owner).zip(&fate.seals);
    seals.chain(plain.map(|origin| (&**origin, &fate.visible))).collect()
}
