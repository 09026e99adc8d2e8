//! What a run is in a few numbers. They are read from its events, each of which is read once by a process; and all again once
//! something of the tenant was destroyed, for its words may have been.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use throughline_core::{
    Era, Json, LogHead, LogId, Name, Node, RedactionPolicy, Store, StoreError, Tenant, json, unpack,
};

use crate::console::{first_words, tree_of};

/// How many runs are remembered.
const MOST: usize = 4096;
/// How many records are read at a time.
const PAGE: u32 = 256;
/// How long a title is at most.
const TITLE: usize = 140;

/// What a run is in a few numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// The last record that was read, and the era in which it stood.
    read: u64,
    era: Era,
    pub(crate) title: Option<Name>,
    /// The models that were asked, in the order in which they came in.
    pub(crate) models: Vec<Name>,
    turns: u64,
    tools: u64,
    thoughts: u64,
    sealed: u64,
    kept: u64,
    restored: u64,
    reshaped: u64,
    elided: u64,
    tokens: Option<Json>,
    cost: Option<Json>,
}

impl Summary {
    /// Puts all of it but the title and the models.
    pub(crate) fn put(&self, o: &mut json::Object<'_>) {
        o.number("turns", self.turns).number("tools", self.tools);
        o.object("thoughts", |o| {
            o.number("had", self.thoughts).number("sealed_bytes", self.sealed);
            o.number("kept", self.kept).number("restored", self.restored);
            o.number("reshaped", self.reshaped).number("elided", self.elided);
        });
        o.raw("tokens", self.tokens.as_ref().unwrap_or(&Json::null()));
        o.raw("cost_usd", self.cost.as_ref().unwrap_or(&Json::null()));
    }

    fn take(&mut self, event: &Bytes, policy: &RedactionPolicy) {
        // Pieces are most of what there is, and say nothing that is counted.
        if event.starts_with(br#"{"type":"stream""#) {
            return;
        }
        let Some(tree) = tree_of(event) else { return };
        let said = tree.root();
        let number = |name: &str| said.get(name).and_then(Node::u64).unwrap_or(0);
        let is = |name: &str, value: &str| said.get(name).is_some_and(|node| node.is(value));
        match said.text_of("type").as_deref() {
            Some("message") if self.title.is_none() && is("role", "user") => {
                let words = said.text_of("content").unwrap_or_default();
                self.title = Some(first_words(&policy.redact_text(&words), TITLE).into());
            }
            Some("turn") if is("phase", "start") => {
                let model = said.name_of("model").filter(|model| !self.models.contains(model));
                self.models.extend(model);
                self.turns = self.turns.max(number("turn"));
            }
            Some("tool_call") if is("phase", "start") => self.tools += 1,
            Some("thought") if is("phase", "end") => {
                self.thoughts += 1;
                self.sealed += number("sealedBytes");
            }
            Some("replay") => {
                self.kept += number("kept");
                self.restored += number("restored");
                self.reshaped += number("reshaped");
                self.elided += number("elided");
            }
            Some("usage") => {
                self.tokens = said.present("total").map(Node::json).or(self.tokens.take());
                self.cost = said.present("totalCostUsd").map(Node::json).or(self.cost.take());
            }
            _ => {}
        }
    }
}

/// The runs that were looked at lately.
#[derive(Default)]
pub(crate) struct Summaries(Mutex<HashMap<(Tenant, LogId), Arc<Summary>>>);

impl Summaries {
    /// The run as it stands in that era.
    pub(crate) async fn of(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        head: &LogHead,
        era: Era,
    ) -> Result<Arc<Summary>, StoreError> {
        let key = (tenant.clone(), head.log.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let known = known.filter(|known| known.era == era);
        if let Some(known) = known.as_ref().filter(|known| known.read >= head.last) {
            return Ok(Arc::clone(known));
        }
        let fresh = || Summary { era, ..Summary::default() };
        let mut summary = known.map_or_else(fresh, |known| Summary::clone(&known));
        let policy = RedactionPolicy::default();
        loop {
            let records = store.read(tenant, &head.log, summary.read, PAGE).await?;
            let Some(last) = records.last() else { break };
            summary.read = last.seq;
            for record in &records {
                for (_, event) in unpack(record).unwrap_or_default() {
                    summary.take(&event, &policy);
                }
            }
        }
        let summary = Arc::new(summary);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key, Arc::clone(&summary));
        Ok(summary)
    }
}
