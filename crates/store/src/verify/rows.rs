//! Index rows: the MACs of all rows of a table must add up to the sums that the writers stored.

use std::collections::HashMap;

use throughline_core::{Name, Tenant};

use crate::journal::Journal;
use crate::row_mac::{OF_STORE, OF_TENANTS, RowMac, SegmentSums, StoreSums, Sum, Table, Tally};
use crate::verify::{Broken, Fault, Ledger, broken};

/// The writer of the segments that hold the first count of a store.
pub(crate) const FIRST_COUNT: &str = "first-count";

/// Prints that a store of schema version 1 gets its MACs, with its number of records; or that it has them.
#[expect(clippy::print_stderr, reason = "a large store takes minutes, and there is no log here")]
pub(crate) fn report_migration(store: &str, records: Option<i64>) {
    match records {
        Some(records) => eprintln!("migrating {store} to schema version 2: {records} records"),
        None => eprintln!("migrated {store} to schema version 2"),
    }
}

/// The index rows and the sums of a store, as of one moment.
#[derive(Default)]
pub(crate) struct RowsRead {
    pub(crate) names: HashMap<i64, Tenant>,
    pub(crate) segments: Vec<SegmentRead>,
    /// The MACs of all rows, by the tenant's number.
    pub(crate) tenants: HashMap<i64, SegmentSums>,
    /// The stored sums of the whole store; nothing if they are gone or their MAC does not hold.
    pub(crate) tally: Option<Tally>,
    /// The MACs of all rows of the tables that belong to the whole store.
    pub(crate) store: StoreSums,
}

/// The row of a segment.
pub(crate) struct SegmentRead {
    pub(crate) tenant: i64,
    pub(crate) writer: Name,
    pub(crate) changes: i64,
    /// Nothing if the MAC of the row does not hold.
    pub(crate) sums: Option<SegmentSums>,
}

impl RowsRead {
    /// Adds a row.
    pub(crate) fn count(&mut self, table: &Table, tenant: Option<i64>, mac: RowMac) {
        match tenant {
            Some(tenant) => self.tenants.entry(tenant).or_default().add(table, mac),
            None => self.store.add(table, mac),
        }
    }

    fn name(&self, tenant: i64) -> String {
        match self.names.get(&tenant) {
            Some(name) => format!("(tenant {name})"),
            None => format!("(of no tenant: {tenant})"),
        }
    }

    /// The first sum that does not hold. The sums of the whole store are not a tenant's concern.
    fn wrong_sum(&self, of: Option<&Tenant>) -> Option<Broken> {
        if of.is_none() && self.tally.is_none() {
            let problem = "are gone, or their MAC does not hold";
            return Some(broken("the sums of the whole store", problem));
        }
        let mut stored: HashMap<i64, SegmentSums> = HashMap::new();
        for segment in &self.segments {
            let Some(sums) = &segment.sums else {
                let place =
                    format!("the chain of {} {}", segment.writer, self.name(segment.tenant));
                return Some(broken(&place, "has a row whose MAC does not hold"));
            };
            stored.entry(segment.tenant).or_default().merge(sums);
        }
        let none = SegmentSums::default();
        let mut tenants: Vec<i64> = self.tenants.keys().chain(stored.keys()).copied().collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            let (counted, stored) = (self.tenants.get(&tenant), stored.get(&tenant));
            let (counted, stored) = (counted.unwrap_or(&none), stored.unwrap_or(&none));
            let wrong = OF_TENANTS
                .iter()
                .find_map(|table| differs(table, counted.of(table), stored.of(table)));
            if let Some((place, problem)) = wrong {
                return Some(broken(&format!("{place} {}", self.name(tenant)), &problem));
            }
        }
        let tally = self.tally?;
        let wrong = OF_STORE
            .iter()
            .find_map(|table| differs(table, self.store.of(table), tally.sums.of(table)));
        wrong.map(|(place, problem)| broken(&place, &problem))
    }
}

fn differs(table: &Table, counted: Sum, stored: Sum) -> Option<(String, String)> {
    if counted == stored {
        return None;
    }
    let problem = match counted.rows - stored.rows {
        0 => "were changed: their MACs do not add up".to_owned(),
        more @ 1.. => format!("are {more} more than were written"),
        fewer => format!("are {} fewer than were written", fewer.unsigned_abs()),
    };
    Some((format!("the rows of {}", table.name), problem))
}

impl Journal {
    /// Every index row of the tenant, or of all of them, is as it was written, and none was added or removed. The rows are
    /// read in one snapshot, so that writers do not disturb it.
    pub(super) async fn prove_rows(&self, ledger: &mut Ledger) -> Result<(), Fault> {
        let of = ledger.scope.as_ref();
        let read = self.backend.read_rows(self.keys.row_key(), of).await?;
        if let Some(wrong) = read.wrong_sum(of) {
            return Err(wrong.into());
        }
        let mut states = HashMap::new();
        for segment in &read.segments {
            let Some(tenant) = read.names.get(&segment.tenant) else { continue };
            let sums = segment.sums.as_ref().map(SegmentSums::digest).unwrap_or_default();
            states.insert(Some((tenant.clone(), segment.writer.clone())), (segment.changes, sums));
        }
        let tally = read.tally.unwrap_or_default();
        states.insert(None, (tally.changes, tally.sums.digest()));
        for (segment, (changes, digest)) in ledger.rows.drain() {
            let found = states.get(&segment).copied().unwrap_or((0, [0; 32]));
            if found.0 > changes || found == (changes, digest) {
                continue;
            }
            let place = match segment {
                Some((tenant, writer)) => format!("the rows of {writer} (tenant {tenant})"),
                None => "the rows of the whole store".to_owned(),
            };
            let problem = "are older than a signed manifest says";
            return Err(broken(&place, problem).into());
        }
        Ok(())
    }
}
