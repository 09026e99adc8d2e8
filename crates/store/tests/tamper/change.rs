//! Makes random changes directly in the database, bypassing the store.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use throughline_testkit::TestRng;

/// The tables that verification covers: all except `leases`.
pub(crate) const TABLES: [&str; 13] = [
    "tenants",
    "logs",
    "records",
    "salts",
    "blobs",
    "segments",
    "manifests",
    "once",
    "pending",
    "turns",
    "turn_keys",
    "api_keys",
    "kept",
];

/// Describes a change that was made to the database.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) table: &'static str,
    description: String,
    /// The locations that verification may report for this change. If the list is empty, any
    /// location is accepted.
    pub(crate) places: Vec<String>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.table, self.description)
    }
}

/// The column names and values of a row.
type TableRow = Vec<(String, Value)>;

impl Change {
    /// Makes a random change. Returns `None` if the table's constraints reject it.
    pub(crate) fn make(db: &Connection, dice: &mut TestRng) -> Option<Self> {
        drop_triggers(db);
        let table = *dice.pick(&TABLES)?;
        let (description, places) = match dice.below(10) {
            0 | 1 => (delete(db, table, dice)?, Vec::new()),
            2 | 3 => (swap(db, table, dice)?, Vec::new()),
            4 => (insert(db, table, dice)?, Vec::new()),
            5 => (move_to_other_tenant(db, table, dice)?, Vec::new()),
            _ => flip(db, table, dice)?,
        };
        Some(Self { table, description, places })
    }
}

/// Drops the triggers that prevent writes by older versions of Throughline. An attacker could drop
/// them too.
pub(crate) fn drop_triggers(db: &Connection) {
    db.execute_batch(
        "DROP TRIGGER IF EXISTS segments_are_added_with_a_mac;
         DROP TRIGGER IF EXISTS segments_change_with_their_mac;
         DROP TRIGGER IF EXISTS api_keys_are_added_with_a_mac;
         DROP TRIGGER IF EXISTS api_keys_change_with_their_mac;
         DROP TRIGGER IF EXISTS records_are_added_with_a_span;",
    )
    .unwrap();
}

/// Returns whether verification covers a column. Informational times are not covered.
fn is_proven(table: &str, column: &str) -> bool {
    column != "created" && (table, column) != ("logs", "updated")
}

fn rows(db: &Connection, table: &str) -> Vec<TableRow> {
    let mut find = db.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
    let names: Vec<String> = find.column_names().map(str::to_owned).collect();
    let rows = find.query_map([], |row| {
        let value = |(index, name): (usize, &String)| Ok((name.clone(), row.get(index)?));
        names.iter().enumerate().map(value).collect::<Result<TableRow, rusqlite::Error>>()
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn remove(db: &Connection, table: &str, row: &TableRow) -> Option<()> {
    let same: Vec<String> =
        (1..).zip(row).map(|(index, (name, _))| format!("{name} IS ?{index}")).collect();
    let delete = format!("DELETE FROM {table} WHERE {}", same.join(" AND "));
    let removed = db.execute(&delete, params_from_iter(row.iter().map(|(_, value)| value))).ok()?;
    (removed == 1).then_some(())
}

fn put(db: &Connection, table: &str, row: &TableRow) -> Option<()> {
    let marks = vec!["?"; row.len()].join(", ");
    let values = row.iter().map(|(_, value)| value);
    let insert = format!("INSERT INTO {table} VALUES ({marks})");
    db.execute(&insert, params_from_iter(values)).ok().map(drop)
}

fn replace(db: &Connection, table: &str, row: &TableRow, index: usize, value: Value) -> Option<()> {
    let mut changed = row.clone();
    changed.get_mut(index)?.1 = value;
    remove(db, table, row)?;
    put(db, table, &changed)
}

/// Flips one bit in one column, or replaces NULL with a value.
fn flip(db: &Connection, table: &str, dice: &mut TestRng) -> Option<(String, Vec<String>)> {
    let rows = rows(db, table);
    let row = dice.pick(&rows)?;
    let index = dice.below(row.len());
    let (column, value) = row.get(index)?;
    if !is_proven(table, column) {
        return None;
    }
    let changed = match value {
        Value::Null => match column.as_str() {
            "status" | "parent" if dice.below(2) == 0 => Value::Text(String::new()),
            "rewinds" | "status" | "parent" => Value::Text("1:0".into()),
            "content" | "prefix" | "mac" if dice.below(2) == 0 => Value::Blob(Vec::new()),
            "content" | "prefix" | "mac" => Value::Blob(vec![0; 32]),
            _ => Value::Integer(1 + i64::try_from(dice.below(3)).unwrap()),
        },
        Value::Integer(number) => {
            let bit = if dice.below(3) == 0 { dice.below(64) } else { dice.below(6) };
            Value::Integer(number ^ (1_i64.rotate_left(u32::try_from(bit).unwrap())))
        }
        Value::Real(_) => return None,
        Value::Text(text) if text.is_empty() => Value::Text("x".into()),
        Value::Text(text) => {
            let mut bytes = text.clone().into_bytes();
            let index = dice.below(bytes.len());
            *bytes.get_mut(index)? ^= 1 << dice.below(7);
            Value::Text(String::from_utf8(bytes).ok()?)
        }
        Value::Blob(bytes) if bytes.is_empty() => Value::Blob(vec![1]),
        Value::Blob(bytes) => {
            let mut bytes = bytes.clone();
            let index = dice.below(bytes.len());
            *bytes.get_mut(index)? ^= 1 << dice.below(8);
            Value::Blob(bytes)
        }
    };
    let places = match (table, column.as_str()) {
        // These columns belong to the record itself. The other columns determine its owner and
        // position.
        (
            "records",
            "kind" | "at" | "events" | "last_event" | "about" | "size" | "commitment" | "link"
            | "content" | "blob" | "seq",
        ) => places_of(db, row, Some(&changed).filter(|_| column == "seq")),
        _ => Vec::new(),
    };
    replace(db, table, row, index, changed.clone())?;
    Some((format!("{column} from {value:?} to {changed:?}"), places))
}

/// Returns the locations that verification may report for a changed record. They are the record
/// under its old or new number, any record of the same pack, and the whole store for a row that
/// cannot be read.
fn places_of(db: &Connection, row: &TableRow, seq: Option<&Value>) -> Vec<String> {
    let find = "SELECT r.seq, l.name, t.name, coalesce(r.span, 0) FROM records r
                JOIN logs l ON l.id = r.log JOIN tenants t ON t.id = r.tenant WHERE r.id = ?1";
    let places = db.query_row(find, [&row[0].1], |row| {
        let (old, log, tenant): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let span: i64 = row.get(3)?;
        let new = match seq {
            Some(Value::Integer(new)) => (*new).max(0),
            Some(_) | None => old,
        };
        let place = |seq| format!("record {seq} of {log} (tenant {tenant})");
        let packed = (old - span..=old).chain(new.saturating_sub(span)..=new);
        Ok(packed.map(place).chain(["the store".to_owned()]).collect())
    });
    places.unwrap()
}

fn delete(db: &Connection, table: &str, dice: &mut TestRng) -> Option<String> {
    let rows = rows(db, table);
    let row = dice.pick(&rows)?;
    remove(db, table, row)?;
    Some(format!("deleted {row:?}"))
}

/// Swaps the values that two rows have in one column.
fn swap(db: &Connection, table: &str, dice: &mut TestRng) -> Option<String> {
    let rows = rows(db, table);
    let (row_a, row_b) = (dice.pick(&rows)?, dice.pick(&rows)?);
    let index = dice.below(row_a.len());
    let ((column, value_a), (_, value_b)) = (row_a.get(index)?, row_b.get(index)?);
    // If two rows differ only in this column, swapping the values would change nothing.
    let is_alone = (0..row_a.len()).all(|at| at == index || row_a.get(at) == row_b.get(at));
    if value_a == value_b || is_alone || !is_proven(table, column) {
        return None;
    }
    remove(db, table, row_a)?;
    remove(db, table, row_b)?;
    for (row, value) in [(row_a, value_b), (row_b, value_a)] {
        let mut changed = row.clone();
        changed.get_mut(index)?.1 = value.clone();
        put(db, table, &changed)?;
    }
    Some(format!("swapped {column} of {row_a:?} and {row_b:?}"))
}

fn move_to_other_tenant(db: &Connection, table: &str, dice: &mut TestRng) -> Option<String> {
    let rows = rows(db, table);
    let row = dice.pick(&rows)?;
    let column = row.iter().position(|(name, _)| name == "tenant")?;
    let tenants: Vec<i64> = (1..=2).collect();
    let tenant = Value::Integer(*dice.pick(&tenants)?);
    if row[column].1 == tenant {
        return None;
    }
    replace(db, table, row, column, tenant)?;
    Some(format!("moved {row:?} to another tenant"))
}

/// Inserts a copy of a row, changed only as far as the table's constraints require.
fn insert(db: &Connection, table: &str, dice: &mut TestRng) -> Option<String> {
    let rows = rows(db, table);
    let mut row = dice.pick(&rows)?.clone();
    let number = |row: &TableRow| match row.first() {
        Some((_, Value::Integer(number))) => *number,
        _ => 0,
    };
    let last = rows.iter().map(number).max()?;
    for (name, value) in &mut row {
        match (name.as_str(), value) {
            ("id" | "record", Value::Integer(id)) => *id = last + 1,
            ("seq", Value::Integer(seq)) if table == "records" => *seq += 1000,
            ("name" | "writer" | "id", Value::Text(name)) => name.push('x'),
            ("hash" | "name", Value::Blob(hash)) => *hash.first_mut()? ^= 1,
            (_, _) => {}
        }
    }
    put(db, table, &row)?;
    Some(format!("added {row:?}"))
}

/// Removes the last records of the first tenant, and updates all dependent rows as if these records
/// had never been written.
pub(crate) fn cut_off(db: &Connection, dice: &mut TestRng) {
    let count = 1 + i64::try_from(dice.below(6)).unwrap();
    drop_triggers(db);
    db.execute_batch(&format!(
        "CREATE TEMP TABLE cut AS SELECT r.id, r.log, r.segment FROM records r JOIN tenants t ON t.id = r.tenant
         WHERE t.name = 'one' ORDER BY r.id DESC LIMIT {count};
         DELETE FROM records WHERE id IN (SELECT id FROM cut);
         DELETE FROM salts WHERE NOT EXISTS (SELECT 1 FROM records r
             WHERE r.id BETWEEN salts.record AND salts.record + 255
             AND r.id - coalesce(r.span, 0) <= salts.record);
         DELETE FROM blobs WHERE id NOT IN (SELECT blob FROM records WHERE blob IS NOT NULL);
         UPDATE logs SET
             last = coalesce((SELECT max(seq) FROM records r WHERE r.log = logs.id), coalesce(fork_at, 0)),
             events = coalesce((SELECT max(last_event) FROM records r WHERE r.log = logs.id), 0),
             bytes = coalesce((SELECT sum(size) FROM records r WHERE r.log = logs.id), 0)
         WHERE id IN (SELECT log FROM cut);
         UPDATE segments SET
             link = coalesce((SELECT link FROM records r WHERE r.segment = segments.id
                              ORDER BY position DESC LIMIT 1), zeroblob(32)),
             position = coalesce((SELECT max(position) FROM records r WHERE r.segment = segments.id), 0)
         WHERE id IN (SELECT segment FROM cut);
         DELETE FROM manifests WHERE id > 1;"
    ))
    .unwrap();
}

/// Returns a copy of an export with one change.
pub(crate) fn change_export(export: &[u8], dice: &mut TestRng) -> (Vec<u8>, String) {
    loop {
        let (changed, description) =
            if dice.below(2) == 0 { other_lines(export, dice) } else { other_bytes(export, dice) };
        if changed != export {
            return (changed, description);
        }
    }
}

fn other_lines(export: &[u8], dice: &mut TestRng) -> (Vec<u8>, String) {
    let mut lines: Vec<&[u8]> = export.split_inclusive(|byte| *byte == b'\n').collect();
    let (first, second) = (dice.below(lines.len()), dice.below(lines.len()));
    let description = match dice.below(3) {
        0 => {
            lines.remove(first);
            format!("line {first} is not there")
        }
        1 => {
            lines.insert(second, lines[first]);
            format!("line {first} stands again at {second}")
        }
        _ => {
            lines.swap(first, second);
            format!("lines {first} and {second} are swapped")
        }
    };
    (lines.concat(), description)
}

fn other_bytes(export: &[u8], dice: &mut TestRng) -> (Vec<u8>, String) {
    let mut changed = export.to_vec();
    let position = dice.below(changed.len());
    let effect = match dice.below(6) {
        0 => {
            changed.truncate(position);
            "and all after it are not there"
        }
        1 => {
            changed.remove(position);
            "is not there"
        }
        2 => {
            changed.insert(position, b" \n0a\"}"[dice.below(6)]);
            "stands after another"
        }
        _ => {
            changed[position] ^= 1 << dice.below(8);
            "is another"
        }
    };
    let before = String::from_utf8_lossy(&export[position.saturating_sub(20)..position]);
    (changed, format!("byte {position} {effect}, after {before:?}"))
}
