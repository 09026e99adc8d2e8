//! `throughline items`: prints the records of a thread or run.

use owo_colors::OwoColorize as _;
use throughline_core::{Content, LogId, Record, Store as _, kind};
use throughline_json::{self as json, Json};
use throughline_spec::RedactionPolicy;
use unicode_width::UnicodeWidthStr as _;

use crate::args::Items;
use crate::cmd::record::{self, RecordSummary, describe};
use crate::print::failure::Result;
use crate::print::listing;
use crate::print::text::{self, one_line, plain, push_line, size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Items) -> Result<()> {
    let policy = if options.no_redaction {
        RedactionPolicy::nothing()
    } else {
        record::policy(options.redaction.as_ref(), options.common.at.config.as_deref())?
    };
    store::with(&options.common.at, IfMissing::FailsReadOnly, |store| {
        let log = LogId::from(options.thread.as_str());
        let head = store.log(&log)?;
        let limit = options.limit.saturating_add(1);
        let read = store.journal.read(&store.tenant, &log, options.after, limit);
        let mut records = store.run(read)?;
        let next = listing::cut(&mut records, options.limit).map(|record| record.seq);
        // Records after a rewind point are no longer part of the history.
        let valid = head.valid_ranges(head.last);
        let is_rewound = |record: &Record| !valid.iter().any(|span| span.contains(&record.seq));
        let page = RecordPage { records: &records, next, is_rewound: &is_rewound, policy: &policy };
        let text = || match (records.is_empty(), options.after) {
            (true, 0) => format!("{} is empty\n", plain(&log.0)),
            (true, _) => format!("{} ends at {}\n", plain(&log.0), head.last),
            (false, _) => page.text(),
        };
        options.common.format.print(text, || page.json(&log))
    })
}

struct RecordPage<'r> {
    records: &'r [Record],
    next: Option<u64>,
    is_rewound: &'r dyn Fn(&Record) -> bool,
    policy: &'r RedactionPolicy,
}

impl RecordPage<'_> {
    fn text(&self) -> String {
        let width = text::width(std::io::stdout());
        let last = self.records.last().map_or(0, |record| record.seq);
        let digits = last.to_string().len().max(3);
        let summaries = self.records.iter().map(|record| describe(record, self.policy));
        let summaries: Vec<RecordSummary> = summaries.collect();
        let kinds = self.records.iter().map(|record| plain(&record.kind).width()).max();
        let kinds = kinds.unwrap_or(0);
        let ids = summaries.iter().map(|summary| plain(&summary.id).width()).max().unwrap_or(0);
        let mut out = String::new();
        for (record, summary) in self.records.iter().zip(&summaries) {
            let mut cells = vec![format!("{:digits$}", record.seq).dimmed().to_string()];
            let kind = format!("{:kinds$}", plain(&record.kind));
            cells.push(if *record.kind == *kind::ITEM { kind } else { kind.dimmed().to_string() });
            let mut used_width = digits + kinds + 4;
            // Ids are never truncated, because they are arguments of `throughline forget`.
            if ids > 0 {
                cells.push(format!("{:ids$}", plain(&summary.id)).dimmed().to_string());
                used_width += ids + 2;
            }
            if (self.is_rewound)(record) {
                cells.push("rewound".yellow().to_string());
                used_width += 9;
            }
            cells.push(one_record(record, summary, width.saturating_sub(used_width)));
            push_line(&mut out, cells.join("  ").trim_end());
        }
        out.extend(self.next.map(|next| listing::next_page_hint(&next.to_string())));
        out
    }

    fn json(&self, log: &LogId) -> Json {
        json::object(|o| {
            o.string("thread", &log.0);
            o.array("records", |list| {
                for record in self.records {
                    list.object(|o| self.put(o, record));
                }
            });
            match self.next {
                Some(next) => o.number("next", next),
                None => o.null("next"),
            };
        })
    }

    fn put(&self, o: &mut json::Object<'_>, record: &Record) {
        let is_rewound = (self.is_rewound)(record);
        o.number("seq", record.seq).string("kind", &record.kind);
        o.string("at", &record.at.to_string());
        match &record.content {
            Content::Here(content) => {
                o.number("size", u64::try_from(content.len()).unwrap_or(u64::MAX));
                o.bool("rewound", is_rewound);
                record::put_content(o, record, self.policy);
            }
            // The size of erased content is not stored.
            Content::Gone(why) => {
                o.null("size").bool("rewound", is_rewound).string("gone", &why.to_string());
            }
        }
    }
}

/// Formats a record as one line of at most `room` columns.
fn one_record(record: &Record, summary: &RecordSummary, room: usize) -> String {
    let content = match &record.content {
        Content::Gone(why) => return format!("{}", why.red()),
        Content::Here(content) => content,
    };
    let sealed = (!summary.seals.is_empty())
        .then(|| format!("sealed: {}", size(summary.seals.iter().sum())));
    let label = one_line(&plain(&summary.label), room / 2);
    let is_plain = summary.text.is_empty() && sealed.is_none();
    let measured = is_plain.then(|| size(content.len()));
    // The text gets the columns that the other fields leave.
    let other_cells = [Some(&label), sealed.as_ref(), measured.as_ref()].into_iter().flatten();
    let used_width: usize =
        other_cells.filter(|word| !word.is_empty()).map(|word| word.width() + 2).sum();
    let text = one_line(&plain(&summary.text), room.saturating_sub(used_width).max(12));
    let mut cells: Vec<String> = Vec::new();
    if label.starts_with("assistant") || label.starts_with("model") {
        cells.push(label.cyan().to_string());
    } else if label.starts_with("tool") {
        cells.push(label.magenta().to_string());
    } else if !label.is_empty() {
        cells.push(label.bold().to_string());
    }
    cells.extend((!text.is_empty()).then_some(text));
    cells.extend(sealed.map(|sealed| sealed.green().to_string()));
    cells.extend(measured.map(|measured| measured.dimmed().to_string()));
    cells.join("  ")
}
