//! Notes about destroyed content: a record in each affected log, and an internal value that lists
//! the remaining cleanup.

use bytes::Bytes;
use throughline_core::{LogId, NewRecord, StoreError, Tenant};
use throughline_json::{self as json, Node, Tree};

use crate::cipher;
use crate::hex::hex;
use crate::rejection::corrupt;
use crate::row::ErasureReason;
use crate::sealed_batch::Erasure;

/// Name prefix of a note about destroyed content that some file may still contain.
pub(super) const DESTROYED: &str = "destroyed ";

/// Name prefix of a note about destroyed content that an unreachable backup still contains.
pub(super) const UNREACHED: &str = "unreached ";

/// Builds the record that lists which content was destroyed.
pub(super) fn notice(erase: &Erasure) -> NewRecord {
    let entry = json::object(|entry| write_erasure(entry, erase));
    NewRecord { at: erase.noted_at, ..NewRecord::new(erase.reason.kind(), entry.bytes().clone()) }
}

fn write_erasure(entry: &mut json::Object<'_>, erase: &Erasure) {
    match &erase.seqs {
        None => {
            entry.bool("all", true);
        }
        Some(seqs) => {
            entry.array("seqs", |list| {
                for seq in seqs {
                    list.number(*seq);
                }
            });
        }
    }
    if erase.checkpoints {
        entry.bool("checkpoints", true);
    }
}

/// Builds the note that is stored until the destroyed content is gone from all files. Returns a
/// unique name for the note and its text, which lists the erasures. All erasures must have the same
/// reason.
pub(super) fn note(tenant: &Tenant, erases: &[Erasure]) -> Result<(String, Bytes), StoreError> {
    let kind = erases.first().map(|erase| erase.reason.kind()).unwrap_or_default();
    let note = json::object(|note| {
        note.string("tenant", &tenant.0).string("kind", kind);
        note.array("logs", |list| {
            for erase in erases {
                list.object(|entry| {
                    entry.string("log", &erase.log.0);
                    write_erasure(entry, erase);
                });
            }
        });
    });
    let name = format!("{DESTROYED}{}", hex(&cipher::random::<8>()?));
    Ok((name, note.bytes().clone()))
}

pub(super) fn read_note(note: &Bytes) -> Result<(Tenant, Vec<Erasure>), StoreError> {
    let damaged = || corrupt!("a stored note about destroyed contents is damaged");
    parse_note(note).ok_or_else(damaged)
}

fn parse_note(note: &Bytes) -> Option<(Tenant, Vec<Erasure>)> {
    let tree = Tree::parse(note.clone()).ok()?;
    let root = tree.root();
    let reason = ErasureReason::from_kind(&root.text_of("kind")?)?;
    let erase = |entry: Node<'_>| {
        let log = LogId(entry.name_of("log")?);
        let Some(seqs) = entry.get("seqs") else { return Some(Erasure::all(log, reason)) };
        let seqs = seqs.elements().map(Node::u64).collect::<Option<_>>()?;
        let checkpoints = entry.get("checkpoints").and_then(Node::bool).unwrap_or(false);
        Some(Erasure { checkpoints, ..Erasure::records(log, seqs, reason) })
    };
    let erases = root.get("logs")?.elements().map(erase).collect::<Option<_>>()?;
    Some((Tenant(root.name_of("tenant")?), erases))
}
