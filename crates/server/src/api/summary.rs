//! Summarises runs for lists: title, models, counts, tokens and cost. A process reads each event
//! once and caches the result.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    ErasureEpoch, LogHead, LogId, Record, Store, StoreError, Tenant, unpack_events,
};
use throughline_json::{Json, Name, Number, Object};
use throughline_spec::{RedactionPolicy, ReflectionUsage, RunCounts, RunEvent, RunFold};

use crate::api::log_cache::DerivedLogCache;
use crate::records::{RecordPages, StoreResult, parse_event};

/// Maximum number of cached summaries.
const MOST: usize = 4096;
/// Maximum length of a title in characters.
const MAX_TITLE: usize = 140;

/// A run's title, counts, tokens and cost, from the records read so far.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The first words of the first user message, redacted.
    pub title: Option<Name>,
    fold: RunFold,
    tokens: Option<Json>,
    cost: Option<Json>,
}

impl Summary {
    /// Reads the summary of a run from its log.
    pub async fn read(
        store: &dyn Store,
        tenant: &Tenant,
        run: &LogId,
        policy: &RedactionPolicy,
    ) -> Result<Self, StoreError> {
        let mut summary = Self::default();
        let mut pages = RecordPages::new(store, tenant, run, 0);
        while let Some(records) = pages.next().await? {
            for record in &records {
                summary.take(record, policy);
            }
        }
        Ok(summary)
    }

    /// Returns the requested models, in the order of their first call.
    pub fn models(&self) -> &[Name] {
        self.fold.models()
    }

    /// Counts from the fold that the trace and the thought map also use.
    pub(crate) fn counts(&self) -> RunCounts {
        self.fold.counts()
    }

    /// Returns the cost of the run's model calls in dollars; `None` if it is unknown.
    pub fn cost_usd(&self) -> Option<f64> {
        self.cost.as_ref()?.as_str().parse().ok()
    }

    /// Writes the counts, tokens and cost.
    pub(crate) fn put(&self, o: &mut Object<'_>) {
        self.counts().write_members(o);
        o.raw("tokens", self.tokens.as_ref().unwrap_or(&Json::null()));
        o.raw("cost_usd", self.cost.as_ref().unwrap_or(&Json::null()));
    }

    fn take(&mut self, record: &Record, policy: &RedactionPolicy) {
        let Ok(events) = unpack_events(record) else {
            self.fold.skip_erased();
            return;
        };
        for (_, event) in events {
            let Some(event) = parse_counted_event(event) else { continue };
            self.fold.push(record.at, &event);
            match &event {
                RunEvent::Message(event) if self.title.is_none() && &*event.role == "user" => {
                    let text = policy.redact_text(&event.content);
                    self.title = Some(first_words(&text, MAX_TITLE).into());
                }
                RunEvent::Usage(event) => {
                    let tokens = event.total.as_ref().map(ReflectionUsage::json);
                    self.tokens = tokens.or(self.tokens.take());
                    let cost = event.total_cost_usd.as_ref().map(Number::json);
                    self.cost = cost.or(self.cost.take());
                }
                _ => {}
            }
        }
    }
}

/// Parses an event that can change a summary. Most events in a Journal are pieces of text, which
/// cannot change a summary and are skipped unparsed.
pub(crate) fn parse_counted_event(event: Bytes) -> Option<RunEvent> {
    if event.starts_with(br#"{"type":"stream""#) {
        return None;
    }
    parse_event(event)
}

/// Caches run summaries by tenant and run.
pub(crate) struct SummaryCache(DerivedLogCache<Summary>);

impl Default for SummaryCache {
    fn default() -> Self {
        Self(DerivedLogCache::new(MOST))
    }
}

impl SummaryCache {
    /// Returns the summary of a run, as of this erasure epoch.
    pub(crate) async fn get(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
        policy: &RedactionPolicy,
    ) -> StoreResult<Arc<Summary>> {
        let add = |summary: &mut Summary, record: &Record| summary.take(record, policy);
        self.0.get(store, tenant, head, era, add).await
    }
}

/// Returns the first words of a text on one line, truncated to `most` characters.
pub(crate) fn first_words(text: &str, most: usize) -> String {
    let mut excerpt = String::new();
    for word in text.split_whitespace() {
        if excerpt.chars().count() + word.chars().count() > most {
            excerpt.extend(word.chars().take(most.saturating_sub(excerpt.chars().count())));
            excerpt.push('…');
            break;
        }
        if !excerpt.is_empty() {
            excerpt.push(' ');
        }
        excerpt.push_str(word);
    }
    excerpt
}
