//! Computes the smallest change that makes a provider accept a request.
//!
//! Each [`Finding`](crate::Finding) can provide a [`Fix`](crate::Fix), which consists of edits to
//! the request text. Repair applies the fixes that do not overlap, audits again, and repeats until
//! no fix is left. It never invents a signature and never turns a thought into text. Values are
//! restored byte for byte as issued. Values that cannot be restored are removed together with the
//! parts that depend on them.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;
use throughline_core::{
    Body, Disposition, ElisionReason, EncodedRequest, Fate, Item, Request, Seal, Target,
};
use throughline_json::{Tree, work};

use crate::audit::{Audit, Rule, Severity, Transcript, Verdict, apply, audit, select_compatible};
use crate::{Codec, CodecError, DecodeContext};

/// The maximum number of audits. One fix may reveal the next problem, but the loop must end.
const PASSES: usize = 32;

/// The lowest severity of findings that a repair fixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairLevel {
    /// Fix only violations that the provider would reject.
    #[default]
    Refused,
    /// Also fix violations that the provider would accept with degraded results.
    Degraded,
}

/// A repaired request, with the applied fixes and an audit of the repaired request.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The repaired request; the original bytes if nothing changed.
    pub request: Request,
    /// The applied fixes, in the order of application.
    pub fixes: Vec<AppliedFix>,
    /// The audit of the request after the repair.
    pub audit: Audit,
}

/// A fix that a repair applied, as reported to the user.
#[derive(Clone, Debug)]
pub struct AppliedFix {
    /// The rule whose violation was fixed.
    pub rule: &'static Rule,
    /// The path of the fixed element in the request as it was before this fix.
    pub path: String,
    /// The description of the violation, from the finding.
    pub message: String,
    /// The effect of the fix, for example `removes the unsigned thinking block`.
    pub what: String,
}

/// Fixes violations that `target` would reject. With [`RepairLevel::Degraded`], also fixes
/// violations that degrade the result.
pub fn repair(
    transcript: &Transcript<'_>,
    target: &Target,
    reach: RepairLevel,
) -> Result<Repair, CodecError> {
    let mut repair = repair_at(transcript, target, Severity::Refuse, Vec::new())?;
    if reach == RepairLevel::Degraded && repair.audit.verdict() != Verdict::Refuse {
        let again = Transcript { request: &repair.request, ..*transcript };
        let further = repair_at(&again, target, Severity::Degrade, repair.fixes.clone())?;
        // Keep the first repair if fixing degradations caused a rejection.
        if further.audit.verdict() != Verdict::Refuse {
            repair = further;
        }
    }
    Ok(repair)
}

/// Applies all fixes for findings whose severity is at least `least`.
fn repair_at(
    transcript: &Transcript<'_>,
    target: &Target,
    least: Severity,
    mut applied: Vec<AppliedFix>,
) -> Result<Repair, CodecError> {
    let mut request = transcript.request.clone();
    for _ in 0..PASSES {
        let audited = audit(&Transcript { request: &request, ..*transcript }, target)?;
        let findings = audited.findings.iter().filter(|finding| finding.severity >= least);
        let fixable = findings.filter_map(|finding| Some((finding, finding.auto_fix.as_ref()?)));
        let (findings, fixes): (Vec<_>, Vec<_>) = fixable.unzip();
        let selected = select_compatible(&fixes).into_iter();
        let selected = selected.filter_map(|at| Some((*findings.get(at)?, *fixes.get(at)?)));
        let edits: Vec<_> = selected.clone().flat_map(|(_, fix)| &fix.edits).collect();
        let body = if edits.is_empty() {
            request.body.clone()
        } else {
            apply(&Tree::parse(request.body.clone())?, &edits)
        };
        if body == request.body {
            return Ok(Repair { request, fixes: applied, audit: audited });
        }
        applied.extend(selected.map(|(finding, fix)| AppliedFix {
            rule: finding.rule,
            path: finding.path.clone(),
            message: finding.message.clone(),
            what: fix.what.clone(),
        }));
        request.body = body;
    }
    let audited = audit(&Transcript { request: &request, ..*transcript }, target)?;
    Ok(Repair { request, fixes: applied, audit: audited })
}

/// Replaces the encoded request with `repaired`, and marks reasoning that the repair removed as
/// elided. Returns whether the repair removed content or switched reasoning off.
pub(crate) fn refresh_fates(
    to: &dyn Codec,
    target: &Target,
    encoded: &mut EncodedRequest,
    repaired: Request,
) -> Result<bool, CodecError> {
    let context = DecodeContext::of(target.clone());
    let before = to.decode_request(&encoded.request, &context)?;
    let after = to.decode_request(&repaired, &context)?;
    let seals = after.items.iter().flat_map(|item| &item.seals).map(Seal::reveal_to_tenant);
    let mut seals: HashMap<&Bytes, usize> = count_values(seals);
    let mut thoughts = count_values(after.items.iter().filter_map(thought_text));
    let is_sent = |fate: &&mut Fate| !matches!(fate.visible, Disposition::Elided(_));
    let sent: Vec<&mut Fate> = encoded.fates.iter_mut().filter(is_sent).collect();
    let mut says_less = after.items.len() < before.items.len()
        || after.tools.len() < before.tools.len()
        || (before.settings.reasoning != after.settings.reasoning);
    // Fates are matched to the decoded Items by position, so they cannot be updated if the counts
    // differ.
    let items: Vec<&Item> = before.system.iter().chain(&before.items).collect();
    if sent.len() == items.len() {
        for (fate, item) in sent.into_iter().zip(items) {
            if thought_text(item).is_some_and(|text| !take(&mut thoughts, &text)) {
                fate.visible = Disposition::Elided(ElisionReason::ByPolicy);
                says_less = true;
            }
            for (did, seal) in fate.seals.iter_mut().zip(&item.seals) {
                if !take(&mut seals, &seal.reveal_to_tenant()) {
                    *did = Disposition::Elided(ElisionReason::ByPolicy);
                    says_less = true;
                }
            }
        }
    }
    encoded.prefix = to.encode(&after)?.prefix;
    encoded.request = repaired;
    Ok(says_less)
}

fn thought_text(item: &Item) -> Option<&str> {
    matches!(item.body, Body::Thought(_)).then(|| item.visible().unwrap_or_default())
}

fn count_values<T: Eq + Hash>(values: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_insert(0) += 1);
    counts
}

/// Decrements the count of a value; returns false if the count is already zero.
fn take<T: Eq + Hash>(counts: &mut HashMap<T, usize>, value: &T) -> bool {
    work::step();
    let count = counts.get_mut(value).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
}
