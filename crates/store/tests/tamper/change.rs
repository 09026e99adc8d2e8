//! Changes behind the store's back.

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};
use throughline_testkit::Dice;

/// The tables of the journal.
const TABLES: [&str; 7] = ["records", "records", "salts", "blobs", "segments", "manifests", "logs"];

/// What must come of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is found.
    Found,
    /// It is found, at one of these places.
    Breaks(Vec<String>),
    /// Nothing that the journal says was changed; see the top of `tamper.rs`.
    SaysNothing,
}

/// A change that was made.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: &'static str,
    what: String,
    pub(crate) outcome: Outcome,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.what)
    }
}

/// A row, with its columns' names.
struct Row {
    id: i64,
    values: Vec<(String, Value)>,
}

impl Change {
    /// Makes one, if the table takes it.
    pub(crate) fn make(db: &Connection, dice: &mut Dice) -> Option<Self> {
        // Tenants are few; one in a while is enough.
        let table = if dice.below(20) == 0 { "tenants" } else { *dice.pick(&TABLES)? };
        match dice.below(8) {
            0 => delete(db, table, dice),
            1 => swap(db, table, dice),
            2 => insert(db, table, dice),
            _ => flip(db, table, dice),
        }
    }
}

/// The number of a row is called otherwise among the salts.
fn key(table: &str) -> &'static str {
    if table == "salts" { "record" } else { "id" }
}

fn rows(db: &Connection, table: &str) -> Vec<Row> {
    let mut find = db.prepare(&format!("SELECT * FROM {table} ORDER BY {}", key(table))).unwrap();
    let names: Vec<String> = find.column_names().map(str::to_owned).collect();
    let rows = find.query_map([], |row| {
        let values: Vec<(String, Value)> = names
            .iter()
            .enumerate()
            .map(|(place, name)| Ok((name.clone(), row.get(place)?)))
            .collect::<Result<_, rusqlite::Error>>()?;
        Ok(Row { id: row.get(0)?, values })
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Flips one bit of one column.
fn flip(db: &Connection, table: &str, dice: &mut Dice) -> Option<Change> {
    let rows = rows(db, table);
    let row = dice.pick(&rows)?;
    let (column, value) = dice.pick(&row.values)?;
    let changed = match value {
        // Nothing can be made something, and something nothing.
        Value::Null => match column.as_str() {
            "rewinds" | "status" => Value::Text("1:0".into()),
            "content" => Value::Blob(vec![0; 20]),
            _ => Value::Integer(1 + i64::try_from(dice.below(3)).unwrap()),
        },
        Value::Integer(number) => {
            let bit = if dice.below(3) == 0 { dice.below(64) } else { dice.below(6) };
            Value::Integer(number ^ (1_i64.rotate_left(u32::try_from(bit).unwrap())))
        }
        Value::Real(_) => return None,
        Value::Text(text) => {
            let mut bytes = text.clone().into_bytes();
            let place = dice.below(bytes.len());
            *bytes.get_mut(place)? ^= 1 << dice.below(7);
            Value::Text(String::from_utf8(bytes).ok()?)
        }
        Value::Blob(bytes) => {
            let mut bytes = bytes.clone();
            let place = dice.below(bytes.len());
            *bytes.get_mut(place)? ^= 1 << dice.below(8);
            Value::Blob(bytes)
        }
    };
    let outcome = outcome_of_flip(db, table, column, row, &changed);
    let update = format!("UPDATE {table} SET {column} = ?2 WHERE {} = ?1", key(table));
    db.execute(&update, params![row.id, changed]).ok()?;
    let what = format!("{table}.{column} of {} from {value:?} to {changed:?}", row.id);
    Some(Change { kind: "flips", what, outcome })
}

fn outcome_of_flip(
    db: &Connection,
    table: &str,
    column: &str,
    row: &Row,
    changed: &Value,
) -> Outcome {
    let is_empty = |sql: &str| {
        db.query_row(sql, [row.id], |row| row.get::<_, i64>(0)).is_ok_and(|count| count == 0)
    };
    match (table, column) {
        ("logs", "status" | "created" | "updated") | ("tenants", "created" | "era") => {
            Outcome::SaysNothing
        }
        ("manifests", "id") if keeps_order(db, row.id, changed) => Outcome::SaysNothing,
        ("segments", "writer" | "tenant" | "id" | "link")
            if is_empty("SELECT position FROM segments WHERE id = ?1") =>
        {
            Outcome::SaysNothing
        }
        // These belong to what the record's row itself says; other columns say whose it is, and where it stands.
        (
            "records",
            "kind" | "at" | "events" | "last_event" | "about" | "size" | "commitment" | "link"
            | "content" | "blob" | "seq",
        ) => {
            let seq = Some(changed).filter(|_| column == "seq");
            places_of(db, row.id, seq)
        }
        _ => Outcome::Found,
    }
}

/// Whether a manifest with another number stands where it stood.
fn keeps_order(db: &Connection, id: i64, changed: &Value) -> bool {
    let Value::Integer(new) = changed else { return false };
    let (low, high) = (id.min(*new), id.max(*new));
    // Only those of the same writer follow each other.
    let between =
        "SELECT count(*) FROM manifests m, manifests o WHERE o.id = ?3 AND m.id BETWEEN ?1 AND ?2
                   AND m.id <> o.id AND substr(m.body, 1, 130) = substr(o.body, 1, 130)";
    db.query_row(between, [low, high, id], |row| row.get::<_, i64>(0)).unwrap() == 0
}

/// How a proof names that record: by its number, old or new. Where the row itself cannot be read, the store is named.
fn places_of(db: &Connection, id: i64, seq: Option<&Value>) -> Outcome {
    let find = "SELECT r.seq, l.name, t.name FROM records r JOIN logs l ON l.id = r.log
                JOIN tenants t ON t.id = r.tenant WHERE r.id = ?1";
    let places = db.query_row(find, [id], |row| {
        let (old, log, tenant): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let new = match seq {
            Some(Value::Integer(new)) => (*new).max(0),
            Some(_) | None => old,
        };
        let place = |seq| format!("record {seq} of {log} (tenant {tenant})");
        Ok(vec![place(old), place(new), "the store".to_owned()])
    });
    Outcome::Breaks(places.unwrap())
}

fn delete(db: &Connection, table: &str, dice: &mut Dice) -> Option<Change> {
    let rows = rows(db, table);
    let row = dice.pick(&rows)?;
    let outcome = match table {
        // The last of its series is missed by nobody but who has seen it.
        "manifests" if is_last_of_series(db, row.id) => Outcome::SaysNothing,
        "segments"
            if row
                .values
                .iter()
                .any(|(name, value)| name == "position" && *value == Value::Integer(0)) =>
        {
            Outcome::SaysNothing
        }
        _ => Outcome::Found,
    };
    db.execute(&format!("DELETE FROM {table} WHERE {} = ?1", key(table)), [row.id]).ok()?;
    Some(Change { kind: "deletions", what: format!("{table} {}", row.id), outcome })
}

fn is_last_of_series(db: &Connection, id: i64) -> bool {
    keeps_order(db, id, &Value::Integer(i64::MAX))
}

/// Gives two rows each other's contents.
fn swap(db: &Connection, table: &str, dice: &mut Dice) -> Option<Change> {
    let rows = rows(db, table);
    let (one, other) = (dice.pick(&rows)?, dice.pick(&rows)?);
    if one.id == other.id {
        return None;
    }
    // Two series of manifests may stand in any order among each other.
    if table == "manifests" {
        return None;
    }
    let same = one.values.iter().zip(&other.values).skip(1).all(|(one, other)| one == other);
    if same {
        return None;
    }
    for row in [one, other] {
        db.execute(&format!("DELETE FROM {table} WHERE {} = ?1", key(table)), [row.id]).ok()?;
    }
    for (id, row) in [(one.id, other), (other.id, one)] {
        put(db, table, id, row)?;
    }
    let what = format!("{table} {} and {}", one.id, other.id);
    Some(Change { kind: "swaps", what, outcome: Outcome::Found })
}

fn put(db: &Connection, table: &str, id: i64, row: &Row) -> Option<()> {
    let values = row.values.iter().enumerate();
    let values =
        values.map(|(at, (_, value))| if at == 0 { Value::Integer(id) } else { value.clone() });
    let marks = vec!["?"; row.values.len()].join(", ");
    db.execute(&format!("INSERT INTO {table} VALUES ({marks})"), params_from_iter(values)).ok()?;
    Some(())
}

/// Adds a copy of a row, changed as much as the table demands.
fn insert(db: &Connection, table: &str, dice: &mut Dice) -> Option<Change> {
    let mut rows = rows(db, table);
    let place = dice.below(rows.len());
    let last = rows.iter().map(|row| row.id).max()?;
    let row = rows.get_mut(place)?;
    let id = last + 1 + i64::try_from(dice.below(3)).unwrap();
    for (name, value) in &mut row.values {
        match (name.as_str(), value) {
            ("seq", Value::Integer(seq)) => *seq += 1000,
            ("name" | "writer", Value::Text(name)) => name.push('x'),
            ("hash", Value::Blob(hash)) => *hash.first_mut()? ^= 1,
            (_, _) => {}
        }
    }
    // A tenant without anything says nothing.
    let outcome = if table == "tenants" { Outcome::SaysNothing } else { Outcome::Found };
    let is_empty = |(name, value): &(String, Value)| {
        (table, name.as_str()) == ("segments", "position") && *value == Value::Integer(0)
    };
    if row.values.iter().any(is_empty) {
        return None;
    }
    put(db, table, id, row)?;
    Some(Change { kind: "insertions", what: format!("{table} {} as {id}", row.id), outcome })
}

/// Cuts off the last records of the first tenant, and makes everything else agree: as if they had never been written.
pub(crate) fn cut_off(db: &Connection, dice: &mut Dice) {
    let count = 1 + i64::try_from(dice.below(6)).unwrap();
    db.execute_batch(&format!(
        "CREATE TEMP TABLE cut AS SELECT r.id, r.log, r.segment FROM records r JOIN tenants t ON t.id = r.tenant
         WHERE t.name = 'one' ORDER BY r.id DESC LIMIT {count};
         DELETE FROM salts WHERE record IN (SELECT id FROM cut);
         DELETE FROM records WHERE id IN (SELECT id FROM cut);
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

/// A copy of an export with one change.
pub(crate) fn of_export(export: &[u8], dice: &mut Dice) -> (Vec<u8>, String) {
    loop {
        let (changed, what) =
            if dice.below(2) == 0 { other_lines(export, dice) } else { other_bytes(export, dice) };
        if changed != export {
            return (changed, what);
        }
    }
}

fn other_lines(export: &[u8], dice: &mut Dice) -> (Vec<u8>, String) {
    let mut lines: Vec<&[u8]> = export.split_inclusive(|byte| *byte == b'\n').collect();
    let (one, other) = (dice.below(lines.len()), dice.below(lines.len()));
    let what = match dice.below(3) {
        0 => {
            lines.remove(one);
            format!("line {one} is not there")
        }
        1 => {
            lines.insert(other, lines[one]);
            format!("line {one} stands again at {other}")
        }
        _ => {
            lines.swap(one, other);
            format!("lines {one} and {other} are swapped")
        }
    };
    (lines.concat(), what)
}

fn other_bytes(export: &[u8], dice: &mut Dice) -> (Vec<u8>, String) {
    let mut changed = export.to_vec();
    let place = dice.below(changed.len());
    let what = match dice.below(6) {
        0 => {
            changed.truncate(place);
            "and all after it are not there"
        }
        1 => {
            changed.remove(place);
            "is not there"
        }
        2 => {
            changed.insert(place, b" \n0a\"}"[dice.below(6)]);
            "stands after another"
        }
        _ => {
            changed[place] ^= 1 << dice.below(8);
            "is another"
        }
    };
    let before = String::from_utf8_lossy(&export[place.saturating_sub(20)..place]);
    (changed, format!("byte {place} {what}, after {before:?}"))
}
