//! The smallest change after which a provider would take a request.
//!
//! Each [`Finding`] brings its own [`Mend`](crate::Mend): edits on the text. Repair makes those that do not meet, looks
//! again, and goes on until nothing is left to mend. It invents no signature and says no thought aloud: what comes back
//! from the past is byte for byte what was issued, and what cannot come back is left out with what depends on it.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;
use throughline_core::{Body, Did, Encoded, Fate, Item, Request, Seal, Target, Tree, Why, work};

use crate::audit::{Audit, Finding, Rule, Severity, Transcript, Verdict, apply, audit, compatible};
use crate::{Asked, Codec, CodecError};

/// How many times a request is looked at again. One mend may uncover the next, but not for ever.
const PASSES: usize = 32;

/// How far a repair goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Only what would be refused.
    #[default]
    Refused,
    /// Also what would be taken at a cost.
    Degraded,
}

/// A request after repair.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The request; the very bytes that came where nothing had to change.
    pub request: Request,
    /// What was done, in order.
    pub mended: Vec<Mended>,
    /// What a provider would still say.
    pub audit: Audit,
}

/// One thing that was mended.
#[derive(Clone, Debug)]
pub struct Mended {
    /// The rule that demanded it.
    pub rule: &'static Rule,
    /// The place, in the request as it was at that time.
    pub path: String,
    /// What was wrong.
    pub message: String,
    /// What was done, as the start of a sentence.
    pub what: String,
}

/// Mends what `target` would refuse.
pub fn repair(
    transcript: &Transcript<'_>,
    target: &Target,
    reach: Reach,
) -> Result<Repair, CodecError> {
    let mut repair = mended_at(transcript, target, Severity::Refuse, Vec::new())?;
    if reach == Reach::Degraded && repair.audit.verdict() != Verdict::Refuse {
        let again = Transcript { request: &repair.request, ..*transcript };
        let further = mended_at(&again, target, Severity::Degrade, repair.mended.clone())?;
        // What only costs is not worth a refusal.
        if further.audit.verdict() != Verdict::Refuse {
            repair = further;
        }
    }
    Ok(repair)
}

/// Mends everything that is at least so grave.
fn mended_at(
    transcript: &Transcript<'_>,
    target: &Target,
    least: Severity,
    mut mended: Vec<Mended>,
) -> Result<Repair, CodecError> {
    let mut request = transcript.request.clone();
    for _ in 0..PASSES {
        let looked = audit(&Transcript { request: &request, ..*transcript }, target)?;
        let is_meant = |finding: &&Finding| finding.severity >= least && finding.mend.is_some();
        let findings: Vec<&Finding> = looked.findings.iter().filter(is_meant).collect();
        let mends: Vec<_> = findings.iter().filter_map(|finding| finding.mend.as_ref()).collect();
        let taken = compatible(&mends);
        let edits: Vec<_> = taken
            .iter()
            .filter_map(|number| mends.get(*number))
            .flat_map(|mend| &mend.edits)
            .collect();
        if edits.is_empty() {
            return Ok(Repair { request, mended, audit: looked });
        }
        let body = apply(&Tree::parse(request.body.clone())?, &edits);
        if body == request.body {
            return Ok(Repair { request, mended, audit: looked });
        }
        for number in taken {
            if let (Some(finding), Some(mend)) = (findings.get(number), mends.get(number)) {
                mended.push(Mended {
                    rule: finding.rule,
                    path: finding.path.clone(),
                    message: finding.message.clone(),
                    what: mend.what.clone(),
                });
            }
        }
        request.body = body;
    }
    let looked = audit(&Transcript { request: &request, ..*transcript }, target)?;
    Ok(Repair { request, mended, audit: looked })
}

/// Takes a repaired request instead of the one that was encoded, and notes in the Fates which reasoning it no longer has.
/// Returns whether the repaired request says less: something was removed from it, or thinking was switched off.
pub fn recount(
    to: &dyn Codec,
    target: &Target,
    encoded: &mut Encoded,
    mended: Request,
) -> Result<bool, CodecError> {
    let asked = Asked::of(target.clone());
    let before = to.decode_request(&encoded.request, &asked)?;
    let after = to.decode_request(&mended, &asked)?;
    let seals = after.items.iter().flat_map(|item| &item.seals).map(Seal::reveal_to_tenant);
    let mut seals: Counted<&Bytes> = Counted::new(seals);
    let mut thoughts: Counted<&str> = Counted::new(after.items.iter().filter_map(thought));
    let is_sent = |fate: &&mut Fate| !matches!(fate.visible, Did::Elided(_));
    let sent: Vec<&mut Fate> = encoded.fates.iter_mut().filter(is_sent).collect();
    let mut says_less = after.items.len() < before.items.len()
        || after.tools.len() < before.tools.len()
        || (before.settings.reasoning != after.settings.reasoning);
    // The Items of a request that was read again stand as they stood; where that is not so, nothing is known of them.
    let items: Vec<&Item> = before.system.iter().chain(&before.items).collect();
    if sent.len() == items.len() {
        for (fate, item) in sent.into_iter().zip(items) {
            if thought(item).is_some_and(|text| !thoughts.take(&text)) {
                fate.visible = Did::Elided(Why::ByPolicy);
                says_less = true;
            }
            for (did, seal) in fate.seals.iter_mut().zip(&item.seals) {
                if !seals.take(&seal.reveal_to_tenant()) {
                    *did = Did::Elided(Why::ByPolicy);
                    says_less = true;
                }
            }
        }
    }
    encoded.prefix = to.encode(&after)?.prefix;
    encoded.request = mended;
    Ok(says_less)
}

fn thought(item: &Item) -> Option<&str> {
    matches!(item.body, Body::Thought(_)).then(|| item.visible().unwrap_or_default())
}

/// Values with how often each of them is there.
struct Counted<T>(HashMap<T, usize>);

impl<T: Eq + Hash> Counted<T> {
    fn new(values: impl Iterator<Item = T>) -> Self {
        let mut counts = HashMap::new();
        for value in values {
            *counts.entry(value).or_insert(0) += 1;
        }
        Self(counts)
    }

    /// Takes one copy of the value out; false where none is left.
    fn take(&mut self, value: &T) -> bool {
        work::step();
        match self.0.get_mut(value) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            Some(_) | None => false,
        }
    }
}
