//! Seals a batch: encrypts the content of its records.

use jiff::Timestamp;
use throughline_core::{Append, Batch, NewRecord, Tenant, kind};
use throughline_json as json;

use crate::cipher::{self, SaltBytes};
use crate::keys::Keys;
use crate::rejection::{self, Result};
use crate::sealed_batch::{
    Erasure, Guard, SealedAppend, SealedBatch, SealedBlob, SealedRecord, SealedTurn,
};

/// Content of at least this many bytes is stored as a blob. Equal content of one tenant shares a
/// blob.
const LARGE: usize = 16 << 10;

pub(super) fn seal(keys: &Keys, batch: Batch) -> Result<SealedBatch> {
    rejection::check(&batch)?;
    let Batch { tenant, once, appends, vault, asks, takes } = batch;
    let appends = appends.into_iter().map(|append| seal_append(keys, &tenant, append));
    let appends = appends.collect::<Result<_, _>>()?;
    let vault = vault.into_iter().map(|node| SealedTurn {
        id: node.id,
        parent: node.parent,
        keys: node.keys.iter().map(|key| keys.vault(&tenant, key)).collect(),
        log: node.log,
        prefix: node.prefix,
    });
    let vault = vault.collect();
    let once = once.into_iter().map(|name| (keys.once(&tenant, &name), name)).collect();
    let (erases, keys) = (Vec::new(), Vec::new());
    Ok(SealedBatch { tenant, once, appends, vault, asks, takes, erases, keys })
}

/// Seals the batch of an operator command. Operator commands can write regardless of leases.
pub(super) fn seal_as_operator(
    keys: &Keys,
    batch: Batch,
    erases: Vec<Erasure>,
) -> Result<SealedBatch> {
    let mut sealed = seal(keys, batch)?;
    sealed.erases = erases;
    for append in &mut sealed.appends {
        append.guard = Guard::Operator;
    }
    Ok(sealed)
}

fn seal_append(keys: &Keys, tenant: &Tenant, append: Append) -> Result<SealedAppend> {
    let Append { log, opening, expect, fence, records, rewind_to, status } = append;
    let rewind = rewind_to.map(|to| {
        let content = json::object(|rewind| {
            rewind.number("to", to);
        });
        NewRecord::new(kind::REWIND, content.bytes().clone())
    });
    let records: Vec<_> = rewind.into_iter().chain(records).collect();
    let salts = cipher::salts(records.len())?;
    let records = records.into_iter().zip(&*salts);
    let records = records.map(|(record, salt)| seal_record(keys, tenant, record, salt));
    let records = records.collect::<Result<_, _>>()?;
    let guard = fence.map_or(Guard::Free, Guard::Behind);
    Ok(SealedAppend { log, opening, expect, guard, records, rewind_to, status })
}

fn seal_record(
    keys: &Keys,
    tenant: &Tenant,
    record: NewRecord,
    salt: &SaltBytes,
) -> Result<SealedRecord> {
    let commitment = cipher::commitment(salt, &record.content);
    let (content, blob) = if record.content.len() < LARGE {
        (cipher::seal(salt, &record.content)?, None)
    } else {
        let (id, key) = keys.blob(tenant, &record.content);
        let content = cipher::seal_under(&key, &record.content)?;
        (cipher::seal(salt, &*key)?, Some(SealedBlob { id, content }))
    };
    Ok(SealedRecord {
        about: record.about.map(|about| keys.about(tenant, &about)),
        kind: record.kind,
        at: record.at.map(Timestamp::as_millisecond),
        events: record.events,
        size: u64::try_from(record.content.len()).unwrap_or(u64::MAX),
        commitment,
        content,
        salt: keys.wrap(salt)?,
        blob,
    })
}
