//! MACs of index rows, and the sums of these MACs.
//!
//! The chain protects the records. The other tables (logs, turns, API keys …) control who may write
//! and what lookups find, so changes there must be detected too. Each row in these tables has a MAC
//! under a key that derives from the store's secret: `sha256(key, sha256(row))`, which PostgreSQL
//! can compute as well. The MACs themselves are not stored. Each segment (tenant and writer) stores
//! two values per table: the XOR of row MACs, and the number of rows. Both values cover the rows
//! that this writer added, minus those that it removed. Changing a row removes the old MAC and adds
//! the new one.
//!
//! Every commit writes the segment's row anyway, so the sums need no further write. Each node
//! writes only its own segments, so no two nodes change the same row. The segment's row has its own
//! MAC, so that a sum cannot be replaced. The sums of store-wide tables (tenants, manifests,
//! internal values) are stored in one internal value, the tally.
//!
//! Verification computes the sums of all of a tenant's rows, in one snapshot, and compares them
//! with the sums in the tenant's segments. The sums differ if a row was changed, added, removed,
//! moved or duplicated. Leases, `created` and `logs.updated` are not covered: leases expire, and
//! these times are informational. Columns that can be derived from the records (such as `logs.last`
//! and `logs.bytes`) are left out. A plain append therefore changes only the sum of `records`.
//!
//! PostgreSQL computes the MACs in the function that writes the rows, so the row key is sent to the
//! server with each group of batches. The row key cannot sign manifests or compute API key MACs:
//! see `protection.rs`.

use std::collections::HashMap;
use std::fmt::Write as _;

use throughline_core::{Digest, Tenant};
use throughline_json::Name;

use crate::cipher::Secret;
use crate::hex::{hex, push_hex};
use crate::sha256::sha256;

/// Name of the internal value that holds the sums of the store-wide tables.
pub(crate) const TALLY_NAME: &str = "tally";

/// The value of a column, as input to a MAC.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'r> {
    Null,
    Number(i64),
    Text(&'r [u8]),
    Bytes(&'r [u8]),
}

/// Builds an array of [`Field`]s.
macro_rules! fields {
    ($($value:expr),* $(,)?) => { [$($crate::row_mac::Field::from($value)),*] };
}
pub(crate) use fields;

impl From<i64> for Field<'_> {
    fn from(number: i64) -> Self {
        Field::Number(number)
    }
}

impl From<i16> for Field<'_> {
    fn from(number: i16) -> Self {
        Field::Number(number.into())
    }
}

impl<'r> From<&'r str> for Field<'r> {
    fn from(text: &'r str) -> Self {
        Field::Text(text.as_bytes())
    }
}

impl<'r> From<&'r [u8]> for Field<'r> {
    fn from(bytes: &'r [u8]) -> Self {
        Field::Bytes(bytes)
    }
}

impl<'r> From<&'r Digest> for Field<'r> {
    fn from(digest: &'r Digest) -> Self {
        Field::Bytes(digest)
    }
}

impl<'r, T: Into<Field<'r>>> From<Option<T>> for Field<'r> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Field::Null, Into::into)
    }
}

/// A table and the columns that its row MACs cover.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IndexTable {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static str,
    /// Index of the column that holds the tenant's id; `None` for store-wide tables.
    pub(crate) tenant: Option<usize>,
    /// Index of the table's sum within [`Sums`].
    place: usize,
}

/// Declares tables: index in [`Sums`], name, index of the tenant column, and covered columns.
macro_rules! tables {
    ($($table:ident: $place:literal, $name:literal, $tenant:expr, $columns:literal;)*) => {
        $(pub(crate) static $table: IndexTable =
            IndexTable { name: $name, columns: $columns, tenant: $tenant, place: $place };)*
    };
}

tables! {
    LOGS: 0, "logs", Some(1), "id, tenant, name, kind, of, fork, fork_at, status, gone";
    RECORDS: 1, "records", Some(1), "id, tenant, log, seq, segment, position";
    TURNS: 2, "turns", Some(1), "id, tenant, name, parent, log, first, last, prefix";
    TURN_KEYS: 3, "turn_keys", Some(0), "tenant, kind, hash, turn";
    ONCE: 4, "once", Some(0), "tenant, name, receipt";
    PENDING: 5, "pending", Some(0), "tenant, id, kind, log, seq, opened, expires, taken";
    API_KEYS: 6, "api_keys", Some(0), "tenant, id, label, limits, hash, revoked, mac";
    TENANTS: 0, "tenants", None, "id, name, era";
    MANIFESTS: 1, "manifests", None, "id, body, signature";
    KEPT: 2, "kept", None, "name, value";
}

/// The tables whose sums are stored in segments, in the same order as the sums.
pub(crate) static TENANT_TABLES: [&IndexTable; 7] =
    [&LOGS, &RECORDS, &TURNS, &TURN_KEYS, &ONCE, &PENDING, &API_KEYS];
/// The tables whose sums are stored in the tally, in the same order as the sums.
pub(crate) static STORE_TABLES: [&IndexTable; 3] = [&TENANTS, &MANIFESTS, &KEPT];

/// The sums that a segment stores, one per table in [`TENANT_TABLES`].
pub(crate) type SegmentSums = Sums<7>;
/// The sums that the tally stores, one per table in [`STORE_TABLES`].
pub(crate) type StoreSums = Sums<3>;

/// The key for index row MACs.
#[derive(Clone)]
pub(crate) struct RowKey(Secret);

impl RowKey {
    pub(crate) fn new(key: Secret) -> Self {
        Self(key)
    }

    /// Returns the raw key, which is sent to PostgreSQL's functions.
    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    /// Returns the row's MAC as a [`Sum`] over one row.
    pub(crate) fn row(&self, table: &IndexTable, fields: &[Field<'_>]) -> Sum {
        let mac = self.mac(table.name, fields);
        let half = |from: usize| {
            let bytes = mac.get(from..).and_then(<[u8]>::first_chunk).copied();
            i64::from_be_bytes(bytes.unwrap_or_default())
        };
        Sum { high: half(0), low: half(8), rows: 1 }
    }

    /// Returns the MAC of a segment's row.
    pub(crate) fn segment(&self, segment: &SegmentRow) -> Digest {
        let SegmentRow { id, tenant, writer, position, link, changes, sums } = segment;
        let fields = fields![*id, *tenant, &**writer, *position, link, *changes, &**sums];
        self.mac("segments", &fields)
    }

    fn mac(&self, name: &str, fields: &[Field<'_>]) -> Digest {
        let (mut digits, mut text) = (itoa::Buffer::new(), Vec::with_capacity(256));
        text.extend_from_slice(name.as_bytes());
        for field in fields {
            text.push(b'\n');
            match field {
                // No other value is encoded as a dash.
                Field::Null => text.push(b'-'),
                Field::Number(number) => {
                    text.extend_from_slice(digits.format(*number).as_bytes());
                }
                Field::Text(bytes) => {
                    text.extend_from_slice(digits.format(bytes.len()).as_bytes());
                    text.push(b':');
                    text.extend_from_slice(bytes);
                }
                Field::Bytes(bytes) => push_hex(&mut text, bytes),
            }
        }
        sha256(&[self.bytes(), &sha256(&[&text])])
    }
}

impl std::fmt::Debug for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RowKey(…)")
    }
}

/// The columns of a segment's row that its MAC covers.
pub(crate) struct SegmentRow {
    pub(crate) id: i64,
    pub(crate) tenant: i64,
    pub(crate) writer: Name,
    pub(crate) position: i64,
    pub(crate) link: Digest,
    /// Number of times the row was written.
    pub(crate) changes: i64,
    pub(crate) sums: String,
}

impl SegmentRow {
    /// Returns the segment's state. Its `sums` are `None` unless `mac` is the correct MAC of this
    /// row.
    pub(crate) fn into_snapshot(self, key: &RowKey, mac: Option<&[u8]>) -> SegmentSnapshot {
        let is_valid = mac.is_some_and(|mac| mac == key.segment(&self));
        let sums = SegmentSums::parse(&self.sums).filter(|_| is_valid);
        let Self { tenant, writer, changes, .. } = self;
        SegmentSnapshot { tenant, writer, changes, sums }
    }
}

/// The XOR of row MACs, truncated to 128 bits, and the number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    high: i64,
    low: i64,
    pub(crate) rows: i64,
}

impl Sum {
    /// XORs the MAC into this sum and adds `rows` to the row count. `rows` is negative if a row is
    /// removed.
    fn change(&mut self, Sum { high, low, .. }: Sum, rows: i64) {
        self.high ^= high;
        self.low ^= low;
        self.rows = self.rows.wrapping_add(rows);
    }
}

/// One [`Sum`] per table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sums<const TABLES: usize>([Sum; TABLES]);

impl<const TABLES: usize> Default for Sums<TABLES> {
    fn default() -> Self {
        Self([Sum::default(); TABLES])
    }
}

impl<const TABLES: usize> Sums<TABLES> {
    /// Adds a row's MAC to the table's sum.
    pub(crate) fn add(&mut self, table: &IndexTable, row: Sum) {
        self.change(table, row, 1);
    }

    /// Removes a row's MAC from the table's sum.
    pub(crate) fn remove(&mut self, table: &IndexTable, row: Sum) {
        self.change(table, row, -1);
    }

    fn change(&mut self, table: &IndexTable, row: Sum, rows: i64) {
        if let Some(sum) = self.0.get_mut(table.place) {
            sum.change(row, rows);
        }
    }

    /// Adds the sums in `other` to these sums, table by table.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, other)| sum.change(other, other.rows));
    }

    pub(crate) fn get(&self, table: &IndexTable) -> Sum {
        self.0.get(table.place).copied().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the stored text: three numbers per table, separated by spaces.
    pub(crate) fn print(&self) -> String {
        // Three numbers of up to 20 characters, each with a space.
        let mut text = String::with_capacity(63 * TABLES);
        for (index, Sum { high, low, rows }) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            // Writing to memory does not fail.
            let _written = write!(text, "{space}{high} {low} {rows}");
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let mut sums = Self::default();
        for sum in &mut sums.0 {
            *sum = Sum { high: next()?, low: next()?, rows: next()? };
        }
        // A segment's MAC covers the text, so each value must have exactly one text form.
        (sums.print() == text).then_some(sums)
    }

    /// Returns the SHA-256 digest of these sums, as listed in manifests.
    pub(crate) fn digest(&self) -> Digest {
        sha256(&[self.print().as_bytes()])
    }
}

/// The sums of the store-wide tables, stored as the internal value [`TALLY_NAME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of times the tally was written.
    pub(crate) changes: i64,
    pub(crate) sums: StoreSums,
}

impl Tally {
    /// Returns the stored text: the number of changes, the sums and the MAC, one per line.
    pub(crate) fn print(&self, key: &RowKey) -> String {
        let (changes, sums) = (self.changes, self.sums.print());
        let mac = key.mac(TALLY_NAME, &fields![changes, &*sums]);
        format!("{changes}\n{sums}\n{}", hex(&mac))
    }

    /// Parses the stored text. Returns `None` if its MAC does not match.
    pub(crate) fn parse(key: &RowKey, stored: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(stored).ok()?;
        let mut lines = text.split('\n');
        let changes = lines.next()?.parse().ok()?;
        let tally = Self { changes, sums: StoreSums::parse(lines.next()?)? };
        (tally.print(key) == text).then_some(tally)
    }
}

/// The state of a segment's row sums, as listed in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowState {
    /// Tenant and writer of the segment; `None` for the store-wide tables.
    pub segment: Option<(Tenant, Name)>,
    /// Number of times the sums were written.
    pub changes: i64,
    /// SHA-256 digest of the stored sums.
    pub digest: Digest,
}

impl RowState {
    /// Builds a segment's state from its stored sums. For the tally, `segment` is `None`.
    pub(crate) fn new(segment: Option<(Tenant, Name)>, changes: i64, sums: &str) -> Self {
        Self { segment, changes, digest: sha256(&[sums.as_bytes()]) }
    }

    /// Builds the tally's state from its stored text.
    pub(crate) fn of_store(stored: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(stored).ok()?.split('\n');
        Some(Self::new(None, lines.next()?.parse().ok()?, lines.next()?))
    }
}

/// The stored row sums and the sums computed from the index rows, from one snapshot of the
/// database.
#[derive(Default)]
pub(crate) struct RowSnapshot {
    pub(crate) names: HashMap<i64, Tenant>,
    pub(crate) segments: Vec<SegmentSnapshot>,
    /// Computed sums of each tenant's rows, by tenant id.
    pub(crate) tenants: HashMap<i64, SegmentSums>,
    /// Stored sums of the store-wide tables; `None` if they are missing or their MAC does not
    /// match.
    pub(crate) tally: Option<Tally>,
    /// Computed sums of the store-wide tables.
    pub(crate) store: StoreSums,
}

/// The stored sums of a segment.
pub(crate) struct SegmentSnapshot {
    pub(crate) tenant: i64,
    pub(crate) writer: Name,
    pub(crate) changes: i64,
    /// `None` if the MAC of the segment's row does not match.
    pub(crate) sums: Option<SegmentSums>,
}

impl RowSnapshot {
    /// Adds a row's MAC to the tenant's sums, or to the store-wide sums if `tenant` is `None`.
    pub(crate) fn count(&mut self, table: &IndexTable, tenant: Option<i64>, row: Sum) {
        match tenant {
            Some(tenant) => self.tenants.entry(tenant).or_default().add(table, row),
            None => self.store.add(table, row),
        }
    }

    /// Removes a row's MAC from the tenant's sums.
    pub(crate) fn uncount(&mut self, table: &IndexTable, tenant: i64, row: Sum) {
        self.tenants.entry(tenant).or_default().remove(table, row);
    }
}

#[cfg(test)]
#[path = "row_mac_tests.rs"]
mod row_mac_tests;
