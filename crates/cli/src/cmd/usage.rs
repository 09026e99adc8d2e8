//! `throughline usage`: reports the usage and cost of calls through the gateway.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use throughline_core::{Store as _, Tenant};
use throughline_server::{UsageAmount, UsageKey, usage_log};

use crate::amount::dollars;
use crate::args::{Usage, UsageBy};
use crate::print::failure::Result;
use crate::print::listing::{Column, table};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing, OpenStore};

/// Number of records that are read from the store at a time.
const PAGE: u32 = 1000;

/// Values of the `--by` fields. The value of `key` is `None` for calls without an API key.
type GroupKey = Vec<Option<String>>;

pub(crate) fn run(options: &Usage) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let sums = sums(store, &options.by)?;
        let table = || usage_table(&options.by, &sums);
        let text = if sums.is_empty() { store.empty_message("calls")? } else { table() };
        options.common.format.print(|| text, || json_of(&options.by, &store.tenant, &sums))
    })
}

fn sums(store: &OpenStore, by: &[UsageBy]) -> Result<BTreeMap<GroupKey, UsageAmount>> {
    let (tenant, log) = usage_log();
    let mut sums = BTreeMap::new();
    if store.run(store.journal.log(&tenant, &log))?.is_none() {
        return Ok(sums);
    }
    let mut after = 0;
    loop {
        let records = store.run(store.journal.read(&tenant, &log, after, PAGE))?;
        let Some(last) = records.last() else { return Ok(sums) };
        after = last.seq;
        for record in records.iter().filter(|record| &*record.kind == "usage") {
            let day = text::day(record.at);
            let lines = record.content.bytes().map(UsageKey::lines).unwrap_or_default();
            for (line, used) in lines.iter().filter(|(line, _)| line.tenant == store.tenant) {
                let group = by.iter().map(|by| part(*by, line, &day)).collect();
                sums.entry(group).or_insert_with(UsageAmount::default).add(used);
            }
        }
    }
}

fn part(by: UsageBy, line: &UsageKey, day: &str) -> Option<String> {
    match by {
        UsageBy::Key => line.key.as_ref().map(ToString::to_string),
        UsageBy::Provider => Some(line.provider.to_string()),
        UsageBy::Model => Some(line.model.to_string()),
        UsageBy::Day => Some(day.to_owned()),
    }
}

fn usage_table(by: &[UsageBy], sums: &BTreeMap<GroupKey, UsageAmount>) -> String {
    let group = |(index, by): (usize, &UsageBy)| {
        let cells = sums.keys().map(|group| match group.get(index) {
            Some(Some(part)) => plain(part),
            Some(None) | None => "none".to_owned(),
        });
        Column::new(by.as_str(), cells)
    };
    let mut columns: Vec<Column> = by.iter().enumerate().map(group).collect();
    let numbers =
        |head, number: fn(&UsageAmount) -> String| Column::numbers(head, sums.values().map(number));
    columns.push(numbers("calls", |used| used.calls.to_string()));
    columns.push(numbers("input", |used| used.tokens.input.to_string()));
    columns.push(numbers("cached", |used| used.tokens.cached.to_string()).droppable());
    columns.push(numbers("output", |used| used.tokens.output.to_string()));
    columns.push(numbers("thought", |used| used.tokens.thought.to_string()).droppable());
    columns.push(numbers("cost", |used| match used.unpriced {
        0 => dollars(used.micro_usd()),
        all if all == used.calls => "no price".to_owned(),
        _ => format!("{} or more", dollars(used.micro_usd())),
    }));
    table(columns)
}

fn json_of(by: &[UsageBy], tenant: &Tenant, sums: &BTreeMap<GroupKey, UsageAmount>) -> Value {
    let usage = sums.iter().map(|(group, used)| {
        let mut row: Map<String, Value> = Map::new();
        row.extend(by.iter().zip(group).map(|(by, part)| (by.as_str().to_owned(), json!(part))));
        let numbers = [
            ("calls", used.calls),
            ("unpriced", used.unpriced),
            ("input", used.tokens.input),
            ("cached", used.tokens.cached),
            ("written", used.tokens.written),
            ("output", used.tokens.output),
            ("thought", used.tokens.thought),
            ("micro_usd", used.micro_usd()),
        ];
        row.extend(numbers.map(|(name, number)| (name.to_owned(), json!(number))));
        row
    });
    json!({ "tenant": tenant.0, "usage": usage.collect::<Vec<_>>() })
}
