//! Verifies index rows: the MACs of a table's rows must add up to the sums that the writers stored.

use std::collections::HashMap;

use throughline_core::Tenant;

use crate::journal::Journal;
use crate::journal::verify::{Ledger, VerifyError, VerifyFailure, broken, fail};
use crate::row_mac::{IndexTable, RowSnapshot, STORE_TABLES, SegmentSums, Sum, TENANT_TABLES};

impl RowSnapshot {
    fn name(&self, tenant: i64) -> String {
        match self.names.get(&tenant) {
            Some(name) => format!("(tenant {name})"),
            None => format!("(of no tenant: {tenant})"),
        }
    }

    /// Describes the first sum of row MACs that differs from the stored sum. The verification of
    /// one tenant ignores store-wide sums.
    fn first_mismatch(&self, of: Option<&Tenant>) -> Option<VerifyFailure> {
        if of.is_none() && self.tally.is_none() {
            let problem = "are missing, or their MAC does not match";
            return Some(broken("the sums of the whole store", problem));
        }
        let mut stored: HashMap<i64, SegmentSums> = HashMap::new();
        for segment in &self.segments {
            let Some(sums) = &segment.sums else {
                let place =
                    format!("the chain of {} {}", segment.writer, self.name(segment.tenant));
                return Some(broken(place, "has a row whose MAC does not match"));
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
            let wrong = TENANT_TABLES
                .iter()
                .find_map(|table| differs(table, counted.get(table), stored.get(table)));
            if let Some((place, problem)) = wrong {
                return Some(broken(format!("{place} {}", self.name(tenant)), problem));
            }
        }
        let tally = self.tally?;
        let wrong = STORE_TABLES
            .iter()
            .find_map(|table| differs(table, self.store.get(table), tally.sums.get(table)));
        wrong.map(|(place, problem)| broken(place, problem))
    }
}

fn differs(table: &IndexTable, counted: Sum, stored: Sum) -> Option<(String, String)> {
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
    /// Verifies that no index row in scope was changed, added or removed. The rows are read in one
    /// snapshot, so concurrent writers do not interfere.
    pub(super) async fn verify_rows(&self, ledger: &mut Ledger) -> Result<(), VerifyError> {
        let of = ledger.scope.as_ref();
        let read = self.backend.read_rows(self.keys.row_key(), of).await?;
        if let Some(wrong) = read.first_mismatch(of) {
            return Err(VerifyError::Broken(wrong));
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
            return fail(place, "are older than a signed manifest states");
        }
        Ok(())
    }
}
