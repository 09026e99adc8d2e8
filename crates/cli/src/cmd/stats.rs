//! `throughline stats`: prints counts and sizes of a store.

use owo_colors::OwoColorize as _;
use throughline_core::{Json, json};
use throughline_store::Stats as Counted;

use crate::args::Stats;
use crate::print::failure::Failure;
use crate::print::text::{self, plain, push_line, stored_size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Stats) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::FailsReadOnly, |opened| {
        let counted = opened.run(opened.journal.stats())?;
        let (url, key) = (opened.journal.url(), opened.journal.public_key());
        text::answer(
            &options.printing,
            || told(url, &key, &counted),
            || json_of(url, &key, &counted),
        )
    })
}

fn told(url: &str, key: &str, counted: &Counted) -> String {
    let mut out = String::new();
    push_line(&mut out, &plain(url).bold().to_string());
    push_line(&mut out, &format!("signs as {key}").dimmed().to_string());
    let large = match counted.blobs {
        0 => String::new(),
        blobs => format!(", {blobs} of them large ({})", stored_size(counted.blob_bytes)),
    };
    for (what, number) in [
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
        push_line(&mut out, &format!("  {what:<22}{number}"));
    }
    out
}

fn json_of(url: &str, key: &str, counted: &Counted) -> Json {
    json::object(|o| {
        o.string("store", url).string("public_key", key);
        o.number("tenants", counted.tenants).number("threads", counted.threads);
        o.number("runs", counted.runs).number("records", counted.records);
        o.number("content_bytes", counted.content_bytes);
        o.number("blobs", counted.blobs).number("blob_bytes", counted.blob_bytes);
        o.number("turns", counted.turns).number("pending", counted.pending);
        o.number("segments", counted.segments).number("manifests", counted.manifests);
        o.number("disk_bytes", counted.disk_bytes);
    })
}
