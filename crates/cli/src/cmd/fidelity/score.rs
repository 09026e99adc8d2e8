//! Scores a case from the simulators' ledger.

use std::collections::HashSet;
use std::ops::AddAssign;

use serde::Serialize;
use serde_json::Value;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use throughline_codec::Catalog;
use throughline_core::{PlainReasoning, Wire};
use throughline_sim::{LedgerEntry, ReturnedSeal, Verdict};

use super::dialect::prompt_tokens;

#[cfg(test)]
#[path = "score_tests.rs"]
mod score_tests;

/// The counts of one or more cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    /// Seals that came back unchanged, with the content that they belong to, in the next request to
    /// a model that can read them.
    pub(super) kept: usize,
    /// Seals that did not come back.
    pub(super) lost: usize,
    /// Seals that came back changed, moved, or with changed content.
    pub(super) altered: usize,
    /// Requests that the simulated provider refused.
    pub(super) refused: usize,
    /// Requests that failed in the gateway, or responses that the client cannot read.
    pub(super) errors: usize,
    /// Prompt tokens that the provider read from its cache.
    pub(super) prefix_kept: u64,
    /// Prompt tokens that repeat the previous request of the conversation.
    pub(super) prefix_total: u64,
    /// Bytes of the prompt that the gateway removed or added; `None` if the gateway translates.
    pub(super) bytes_changed: Option<u64>,
}

impl Tally {
    /// Returns whether the gateway kept every Seal and no request failed.
    pub(super) fn is_faithful(&self) -> bool {
        self.lost + self.altered + self.refused + self.errors == 0
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.kept += other.kept;
        self.lost += other.lost;
        self.altered += other.altered;
        self.refused += other.refused;
        self.errors += other.errors;
        self.prefix_kept += other.prefix_kept;
        self.prefix_total += other.prefix_total;
        self.bytes_changed = match (self.bytes_changed, other.bytes_changed) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
    }
}

/// The score of a case while it runs.
#[derive(Debug, Default)]
pub(super) struct CaseScore {
    pub(super) tally: Tally,
    /// Number of requests that the client sent.
    pub(super) requests: usize,
    /// Reasons for refusals and errors.
    pub(super) notes: Vec<String>,
    /// Why the gateway does not support the case.
    pub(super) unsupported: Option<String>,
    /// The ledger entries of the case.
    pub(super) ledger: Vec<LedgerEntry>,
    seals: Vec<PendingSeal>,
    /// Digests of all Seals that the conversation received.
    issued: HashSet<String>,
    /// Whether the client itself changed the prefix of the next request.
    is_prefix_changed: bool,
    /// The last successful request to each provider and model: its number of input tokens.
    previous: Vec<(String, String, u64)>,
}

/// A Seal whose return is not decided yet.
#[derive(Debug)]
struct PendingSeal {
    seal: String,
    /// Model family that issued the Seal.
    family: String,
    /// Whether the client must return the Seal. A Seal is not due if the client removed its content
    /// or changed the prefix that the Seal is bound to, or if the provider does not use it.
    is_due: bool,
}

/// A request of the client, as the simulators received it.
pub(super) struct ScoredRequest<'r> {
    /// Ledger entries of the request; more than one if the gateway retried it.
    pub(super) entries: &'r [LedgerEntry],
    /// The last request that the simulators received.
    pub(super) received: Option<Value>,
    /// The request that a client without losses sends; `None` if the gateway translates requests.
    pub(super) complete: Option<&'r Value>,
    pub(super) catalog: &'r Catalog,
}

impl CaseScore {
    /// Creates the score of a case that the gateway does not support.
    pub(super) fn unsupported(reason: &str) -> Self {
        Self { unsupported: Some(reason.to_owned()), ..Self::default() }
    }

    /// Records that the client changed the system prompt. Seals that are bound to the former prefix
    /// are no longer due.
    pub(super) fn change_prefix(&mut self) {
        self.is_prefix_changed = true;
        for seal in &mut self.seals {
            let profiles = Catalog::builtin().profiles();
            let issuer = profiles.iter().find(|profile| profile.name == seal.family);
            seal.is_due = seal.is_due && !issuer.is_some_and(|issuer| issuer.bound.prefix);
        }
    }

    /// Records that the client replaced its history. Only the Seals of the last response remain
    /// due, because that response contains the compaction, if the provider compacts.
    pub(super) fn compact(&mut self) {
        self.is_prefix_changed = true;
        let last = self
            .ledger
            .last()
            .filter(|last| last.issued.iter().any(|issued| issued.kind.contains("compaction")));
        let kept: Vec<&String> =
            last.into_iter().flat_map(|last| &last.issued).map(|issued| &issued.seal).collect();
        self.seals.retain(|pending| kept.contains(&&pending.seal));
    }

    /// Counts a request that failed in the gateway.
    pub(super) fn add_error(&mut self, note: String) {
        self.tally.errors += 1;
        self.notes.push(note);
    }

    /// Scores a request.
    pub(super) fn add_request(&mut self, request: &ScoredRequest<'_>) {
        self.requests += 1;
        // A gateway may retry a refused request. The refusal still counts once.
        let refused =
            request.entries.iter().find_map(|entry| Some((entry, entry.refused.as_ref()?)));
        if let Some((entry, reason)) = refused {
            self.tally.refused += 1;
            self.notes.push(format!("{} refused a request: {reason}", entry.provider));
        }
        let follows_calls = self.ledger.last().is_some_and(calls_tools);
        self.ledger.extend_from_slice(request.entries);
        let Some(last) = request.entries.last() else { return };
        self.score_seals(last, request.catalog, follows_calls);
        self.score_prefix(last);
        if let Some((complete, received)) = request.complete.zip(request.received.as_ref()) {
            let changed = changed_bytes(complete, received);
            self.tally.bytes_changed = Some(self.tally.bytes_changed.unwrap_or(0) + changed);
        }
    }

    /// Scores the Seals of a request. `follows_calls` states whether the request contains the
    /// results of tool calls.
    fn score_seals(&mut self, entry: &LedgerEntry, catalog: &Catalog, follows_calls: bool) {
        let profile = catalog.profile(&entry.model);
        let mut missing = 0;
        let pending = std::mem::take(&mut self.seals);
        for seal in pending {
            if !profile.reads_seals_of(&seal.family) {
                self.seals.push(seal);
                continue;
            }
            let returned = entry.returned.iter().find(|returned| returned.seal == seal.seal);
            match returned.map(|returned| &returned.verdict) {
                Some(Verdict::Accepted) => self.tally.kept += 1,
                Some(Verdict::Dropped(_) | Verdict::Refused(_)) => {
                    self.tally.altered += usize::from(seal.is_due);
                }
                None => missing += usize::from(seal.is_due),
            }
        }
        let is_unknown = |returned: &&ReturnedSeal| {
            let is_stand_in = returned.verdict == Verdict::Dropped("stand_in".to_owned());
            !is_stand_in && !self.issued.contains(&returned.seal)
        };
        // An unknown Seal is a changed Seal of this conversation.
        let changed = entry.returned.iter().filter(is_unknown).count().min(missing);
        self.tally.altered += changed;
        self.tally.lost += missing - changed;
        // A provider that demands plain reasoning uses it only in turns that call tools.
        let is_unused = entry.wire == Wire::OPENAI_CHAT.as_str()
            && profile.plain() == PlainReasoning::Demanded
            && !follows_calls
            && !calls_tools(entry);
        for issued in &entry.issued {
            self.issued.insert(issued.seal.clone());
            let (seal, family) = (issued.seal.clone(), profile.name.clone());
            self.seals.push(PendingSeal { seal, family, is_due: !is_unused });
        }
    }

    fn score_prefix(&mut self, entry: &LedgerEntry) {
        let is_excluded = std::mem::take(&mut self.is_prefix_changed);
        if entry.refused.is_some() {
            return;
        }
        let is_same = |(provider, model, _): &&mut (String, String, u64)| {
            *provider == entry.provider && *model == entry.model
        };
        match self.previous.iter_mut().find(is_same) {
            Some((.., input)) => {
                if !is_excluded {
                    self.tally.prefix_kept += entry.cached.min(*input);
                    self.tally.prefix_total += *input;
                }
                *input = entry.input;
            }
            None => {
                let (provider, model) = (entry.provider.clone(), entry.model.clone());
                self.previous.push((provider, model, entry.input));
            }
        }
    }
}

/// Returns whether a response calls tools.
fn calls_tools(entry: &LedgerEntry) -> bool {
    entry.stop.as_deref() == Some("tools")
}

/// Returns the number of bytes that differ between the prompts of two requests: the bytes of all
/// JSON tokens that only one of the prompts contains, in order.
fn changed_bytes(sent: &Value, received: &Value) -> u64 {
    let (sent, received) = (prompt_tokens(sent), prompt_tokens(received));
    let size = |tokens: Option<&[String]>| -> usize {
        tokens.unwrap_or_default().iter().map(String::len).sum()
    };
    let changes = capture_diff_slices(Algorithm::Myers, &sent, &received);
    let bytes: usize = changes
        .iter()
        .filter(|change| !matches!(change, DiffOp::Equal { .. }))
        .map(|change| size(sent.get(change.old_range())) + size(received.get(change.new_range())))
        .sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
