//! `throughline stats`: prints the number of threads, runs and records in a store, their total
//! size, and what `[retention]` deletes.

use std::time::Duration;

use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_json::StringEnum as _;
use throughline_store::{ClassStats, RetentionClass, Stats};

use crate::args::CommonArgs;
use crate::clock;
use crate::config::retention::{TRACES, shown_age};
use crate::config::{self, Config};
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Column, table};
use crate::print::text::{day, plain, push_line, stored_size};
use crate::retention::{class_stats, trace_folders, trace_stats};
use crate::store::{self, IfMissing, OpenStore};

/// The stored data of a class of `[retention]`.
struct ClassRow {
    class: &'static str,
    age: Option<Duration>,
    stats: ClassStats,
}

/// The counts of a store.
struct StoreCounts<'s> {
    url: &'s str,
    key: String,
    stats: Stats,
    classes: Vec<ClassRow>,
}

pub(crate) fn run(options: &CommonArgs) -> Result<()> {
    let config = config::load(options.at.config.as_deref())?;
    store::with(&options.at, IfMissing::FailsReadOnly, |store| {
        let counts = StoreCounts {
            url: store.journal.url(),
            key: store.journal.public_key(),
            stats: store.run(store.journal.stats())?,
            classes: classes(store, &config)?,
        };
        options.format.print(|| text_of(&counts), || json_of(&counts))
    })
}

/// Counts the data of each class.
fn classes(store: &OpenStore, config: &Config) -> Result<Vec<ClassRow>> {
    let now = clock::now();
    let mut rows = Vec::new();
    for class in RetentionClass::ALL {
        let age = config.retention.age(*class);
        let stats = store.run(class_stats(&store.journal, *class, age, now))?;
        rows.push(ClassRow { class: class.as_str(), age, stats });
    }
    let folders = trace_folders(&config.tracing);
    let age = config.retention.traces;
    let stats = trace_stats(&folders, age, now, false);
    let stats = stats.map_err(|error| Failure::unreadable("cannot read the traces", &error))?;
    rows.push(ClassRow { class: TRACES, age, stats });
    Ok(rows)
}

fn text_of(StoreCounts { url, key, stats: counted, classes }: &StoreCounts<'_>) -> String {
    let mut out = format!("{}\n{}\n", plain(url).bold(), format!("signs as {key}").dimmed());
    let large = match counted.blobs {
        0 => String::new(),
        blobs => format!(", {blobs} of them large ({})", stored_size(counted.blob_bytes)),
    };
    for (label, number) in [
        ("tenants", counted.tenants.to_string()),
        ("threads", counted.threads.to_string()),
        ("runs", counted.runs.to_string()),
        ("records", format!("{}{large}", counted.records)),
        ("captured turns", counted.turns.to_string()),
        ("pending requests", counted.pending.to_string()),
        ("chains", counted.segments.to_string()),
        ("signed manifests", counted.manifests.to_string()),
        ("content", stored_size(counted.content_bytes)),
        ("on disk", stored_size(counted.disk_bytes)),
    ] {
        push_line(&mut out, &format!("  {label:<22}{number}"));
    }
    let kept = |row: &ClassRow| row.age.map_or_else(|| "forever".to_owned(), shown_age);
    let expired = |row: &ClassRow| match (row.age, row.stats.expired) {
        (None, _) => "nothing".to_owned(),
        (Some(_), expired) if expired.logs == 0 => "nothing".to_owned(),
        (Some(_), expired) => format!("{} ({})", expired.logs, stored_size(expired.bytes)),
    };
    out.push('\n');
    out.push_str(&table(vec![
        Column::new("class", classes.iter().map(|row| row.class)),
        Column::numbers("stored", classes.iter().map(|row| row.stats.logs.to_string())),
        Column::new(
            "since",
            classes.iter().map(|row| row.stats.since.map(day).unwrap_or_default()),
        ),
        Column::new("kept for", classes.iter().map(kept)),
        Column::new("will be deleted", classes.iter().map(expired)),
        Column::new("counted", classes.iter().map(|row| meaning(row.class))).droppable().dimmed(),
    ]));
    out
}

/// Describes what a class of `[retention]` counts. The class `threads` has fewer Threads than the
/// store, which is easy to mistake for an error.
fn meaning(class: &str) -> &'static str {
    match class {
        "requests" => "conversations of calls through the gateway",
        "bodies" => "those conversations with request bodies",
        "threads" => "other Threads, except those of existing agents",
        "runs" => "runs that have ended",
        "traces" => "sessions in the folders of trace sinks",
        _ => "",
    }
}

fn json_of(StoreCounts { url, key, stats: counted, classes }: &StoreCounts<'_>) -> Value {
    let classes = classes.iter().map(|ClassRow { class, age, stats }| {
        let value = json!({
            "stored": stats.logs,
            "since": stats.since.map(|since| since.to_string()),
            "kept_seconds": age.map(|age| age.as_secs()),
            "expired": stats.expired.logs,
            "expired_bytes": stats.expired.bytes,
        });
        ((*class).to_owned(), value)
    });
    json!({
        "store": url,
        "public_key": key,
        "tenants": counted.tenants,
        "threads": counted.threads,
        "runs": counted.runs,
        "records": counted.records,
        "content_bytes": counted.content_bytes,
        "blobs": counted.blobs,
        "blob_bytes": counted.blob_bytes,
        "turns": counted.turns,
        "pending": counted.pending,
        "segments": counted.segments,
        "manifests": counted.manifests,
        "disk_bytes": counted.disk_bytes,
        "retention": classes.collect::<serde_json::Map<_, _>>(),
    })
}
