//! `throughline items`: shows the records of a thread or run.

use std::ops::RangeInclusive;

use owo_colors::OwoColorize as _;
use throughline_core::{Content, LogId, Record, Store as _, kind};
use throughline_json::{self as json, Json};
use throughline_spec::RedactionPolicy;
use unicode_width::UnicodeWidthStr as _;

use crate::args::Items;
use crate::cmd::record::{self, RecordSummary, describe};
use crate::config;
use crate::print::failure::Failure;
use crate::print::listing;
use crate::print::text::{self, one_line, plain, push_line, size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Items) -> Result<(), Failure> {
    let policy = match &options.redaction {
        Some(file) => record::policy(file)?,
        None if options.no_redaction => RedactionPolicy::nothing(),
        None => config::redaction(options.at.config.as_deref())?,
    };
    store::with(&options.at, IfMissing::FailsReadOnly, |opened| {
        let log = LogId::from(options.thread.as_str());
        let head = opened.log(&log)?;
        let limit = options.limit.saturating_add(1);
        let read = opened.journal.read(&opened.tenant, &log, options.after, limit);
        let mut records = opened.run(read)?;
        let next = listing::cut(&mut records, options.limit).map(|record| record.seq);
        let rewound = ValidRanges(head.valid_ranges(head.last));
        text::answer(
            &options.printing,
            || match (records.is_empty(), options.after) {
                (true, 0) => format!("{} is empty\n", plain(&log.0)),
                (true, _) => format!("{} ends at {}\n", plain(&log.0), head.last),
                (false, _) => page_of(&records, next, &rewound, &policy),
            },
            || json_of(&log, &records, next, &rewound, &policy),
        )
    })
}

/// Ranges of records that are still valid. Later history continued from an earlier record.
struct ValidRanges(Vec<RangeInclusive<u64>>);

impl ValidRanges {
    fn excludes(&self, record: &Record) -> bool {
        !self.0.iter().any(|span| span.contains(&record.seq))
    }
}

fn page_of(
    records: &[Record],
    next: Option<u64>,
    rewound: &ValidRanges,
    policy: &RedactionPolicy,
) -> String {
    let width = text::width(std::io::stdout());
    let last = records.last().map_or(0, |record| record.seq);
    let digits = last.to_string().len().max(3);
    let described: Vec<RecordSummary> = records.iter().map(|one| describe(one, policy)).collect();
    let kinds = records.iter().map(|record| plain(&record.kind).width()).max().unwrap_or(0);
    let ids = described.iter().map(|told| plain(&told.id).width()).max().unwrap_or(0);
    let mut out = String::new();
    for (record, described) in records.iter().zip(&described) {
        let mut words = vec![format!("{:digits$}", record.seq).dimmed().to_string()];
        let kind = format!("{:kinds$}", plain(&record.kind));
        words.push(if *record.kind == *kind::ITEM { kind } else { kind.dimmed().to_string() });
        let mut taken = digits + kinds + 4;
        // Ids are never truncated, because `forget` takes them.
        if ids > 0 {
            words.push(format!("{:ids$}", plain(&described.id)).dimmed().to_string());
            taken += ids + 2;
        }
        if rewound.excludes(record) {
            words.push("rewound".yellow().to_string());
            taken += 9;
        }
        words.push(told(record, described, width.saturating_sub(taken)));
        push_line(&mut out, words.join("  ").trim_end());
    }
    if let Some(next) = next {
        out.push_str(&listing::next_page_hint(&next.to_string()));
    }
    out
}

/// Describes a record in one line of at most `room` columns.
fn told(record: &Record, described: &RecordSummary, room: usize) -> String {
    let content = match &record.content {
        Content::Gone(why) => return format!("{}", why.red()),
        Content::Here(content) => content,
    };
    let sealed = (!described.seals.is_empty())
        .then(|| format!("sealed: {}", size(described.seals.iter().sum())));
    let what = one_line(&plain(&described.what), room / 2);
    let is_plain = described.text.is_empty() && sealed.is_none();
    let measured = is_plain.then(|| size(content.len()));
    // The text gets the columns that the other parts leave.
    let others = [Some(&what), sealed.as_ref(), measured.as_ref()].into_iter().flatten();
    let taken: usize = others.filter(|word| !word.is_empty()).map(|word| word.width() + 2).sum();
    let text = one_line(&plain(&described.text), room.saturating_sub(taken).max(12));
    let mut words: Vec<String> = Vec::new();
    if !what.is_empty() {
        let is_models = what.starts_with("assistant") || what.starts_with("model");
        let is_tools = what.starts_with("tool");
        words.push(match (is_models, is_tools) {
            (true, _) => what.cyan().to_string(),
            (false, true) => what.magenta().to_string(),
            (false, false) => what.bold().to_string(),
        });
    }
    words.extend((!text.is_empty()).then_some(text));
    words.extend(sealed.map(|sealed| sealed.green().to_string()));
    words.extend(measured.map(|measured| measured.dimmed().to_string()));
    words.join("  ")
}

fn json_of(
    log: &LogId,
    records: &[Record],
    next: Option<u64>,
    rewound: &ValidRanges,
    policy: &RedactionPolicy,
) -> Json {
    json::object(|o| {
        o.string("thread", &log.0);
        o.array("records", |list| {
            for record in records {
                list.object(|o| put_record(o, record, rewound, policy));
            }
        });
        match next {
            Some(next) => o.number("next", next),
            None => o.null("next"),
        };
    })
}

fn put_record(
    o: &mut json::Object<'_>,
    record: &Record,
    rewound: &ValidRanges,
    policy: &RedactionPolicy,
) {
    o.number("seq", record.seq).string("kind", &record.kind).string("at", &record.at.to_string());
    match &record.content {
        Content::Here(content) => {
            o.number("size", u64::try_from(content.len()).unwrap_or(u64::MAX));
            o.bool("rewound", rewound.excludes(record));
            record::put_content(o, record, policy);
        }
        Content::Gone(why) => {
            // The size of erased content is not stored.
            o.null("size").bool("rewound", rewound.excludes(record));
            o.string("gone", &why.to_string());
        }
    }
}
