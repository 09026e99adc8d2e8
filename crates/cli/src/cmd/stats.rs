//! `throughline stats`: prints the number of threads, runs and records in a store, and their total
//! size.

use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_store::Stats;

use crate::args::CommonArgs;
use crate::print::failure::Result;
use crate::print::text::{plain, push_line, stored_size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &CommonArgs) -> Result<()> {
    store::with(&options.at, IfMissing::FailsReadOnly, |store| {
        let counted = store.run(store.journal.stats())?;
        let (url, key) = (store.journal.url(), store.journal.public_key());
        let (text, json) = (|| text_of(url, &key, &counted), || json_of(url, &key, &counted));
        options.format.print(text, json)
    })
}

fn text_of(url: &str, key: &str, counted: &Stats) -> String {
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
    out
}

fn json_of(url: &str, key: &str, counted: &Stats) -> Value {
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
    })
}
