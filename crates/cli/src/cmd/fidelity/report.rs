//! The results of a benchmark, as a table and as JSON.

use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;
use throughline_sim::LedgerEntry;

use super::score::{CaseScore, Tally};
use crate::args::Format;
use crate::print::failure::Result;
use crate::print::listing::{Cell, Column, table};
use crate::print::text::{count, push_line};

/// The results for one gateway.
#[derive(Debug, Serialize)]
pub(super) struct FidelityReport {
    pub(super) gateway: String,
    pub(super) url: String,
    /// Version of Throughline, whose client and simulators measured the gateway.
    pub(super) throughline: &'static str,
    /// Start of the first case, in UTC.
    pub(super) started: String,
    pub(super) cases: Vec<CaseReport>,
}

/// The result of one case.
#[derive(Debug, Serialize)]
pub(super) struct CaseReport {
    wire: &'static str,
    case: &'static str,
    streamed: bool,
    /// Why the gateway does not support the case; the counts are then zero.
    unsupported: Option<String>,
    requests: usize,
    #[serde(flatten)]
    tally: Tally,
    notes: Vec<String>,
    ledger: Vec<LedgerEntry>,
}

impl CaseReport {
    pub(super) fn new(
        wire: &'static str,
        case: &'static str,
        streamed: bool,
        score: CaseScore,
    ) -> Self {
        let CaseScore { tally, requests, notes, unsupported, ledger, .. } = score;
        Self { wire, case, streamed, unsupported, requests, tally, notes, ledger }
    }
}

/// The streamed and the complete variant of a case, as one row of the table.
struct ReportRow<'r> {
    wire: &'r str,
    case: &'r str,
    tally: Tally,
    /// Whether the gateway supports at least one variant.
    is_supported: bool,
}

impl FidelityReport {
    /// Returns whether every supported case kept all Seals, and no request failed.
    pub(super) fn is_faithful(&self) -> bool {
        self.cases.iter().all(|case| case.tally.is_faithful())
    }

    /// Returns whether the gateway supports at least one case.
    pub(super) fn is_measured(&self) -> bool {
        self.cases.iter().any(|case| case.unsupported.is_none())
    }

    /// Returns the reason for the first failure.
    pub(super) fn first_note(&self) -> Option<&str> {
        self.cases.iter().flat_map(|case| &case.notes).map(String::as_str).next()
    }

    pub(super) fn print(&self, format: Format) -> Result<()> {
        format.print(|| self.text(), || self)
    }

    fn text(&self) -> String {
        let mut rows: Vec<ReportRow<'_>> = Vec::new();
        let mut total = Tally::default();
        for case in &self.cases {
            total += case.tally;
            let is_supported = case.unsupported.is_none();
            let last = rows.last_mut();
            match last.filter(|row| row.wire == case.wire && row.case == case.case) {
                Some(row) => {
                    row.tally += case.tally;
                    row.is_supported |= is_supported;
                }
                None => rows.push(ReportRow {
                    wire: case.wire,
                    case: case.case,
                    tally: case.tally,
                    is_supported,
                }),
            }
        }
        rows.push(ReportRow { wire: "all", case: "", tally: total, is_supported: true });
        let mut page = format!("{} {}\n\n", "fidelity of".bold(), self.gateway.cyan().bold());
        page.push_str(&table(columns(&rows)));
        page.push('\n');
        self.push_notes(&mut page);
        let unsupported = self.cases.iter().filter(|case| case.unsupported.is_some()).count();
        let cases = count(self.cases.len(), "case");
        push_line(&mut page, &format!("{cases}, {unsupported} of them not supported (n/a)"));
        page
    }

    /// Lists the reasons why cases failed or are not supported. Equal reasons are listed once.
    fn push_notes(&self, page: &mut String) {
        let mut printed: Vec<(&str, &str, &str)> = Vec::new();
        for case in &self.cases {
            for note in case.notes.iter().chain(&case.unsupported) {
                let key = (case.wire, case.case, note.as_str());
                if !printed.contains(&key) {
                    printed.push(key);
                    let name = format!("{} {}", case.wire, case.case);
                    push_line(page, &format!("  {} {note}", name.dimmed()));
                }
            }
        }
        if !printed.is_empty() {
            page.push('\n');
        }
    }
}

fn columns(rows: &[ReportRow<'_>]) -> Vec<Column> {
    let numbers = |head: &'static str, read: fn(&Tally) -> usize, style: Style| {
        let cells = rows.iter().map(move |row| match (row.is_supported, read(&row.tally)) {
            (false, _) => Cell::styled("n/a", Style::new().dimmed()),
            (true, 0) => Cell::from("0"),
            (true, number) => Cell::styled(number.to_string(), style),
        });
        Column::numbers(head, cells)
    };
    let (good, bad) = (Style::new().green(), Style::new().red());
    vec![
        Column::new("wire", rows.iter().map(|row| row.wire)),
        Column::new("case", rows.iter().map(|row| row.case)),
        numbers("kept", |tally| tally.kept, good),
        numbers("lost", |tally| tally.lost, bad),
        numbers("altered", |tally| tally.altered, bad),
        numbers("refused", |tally| tally.refused, bad),
        numbers("errors", |tally| tally.errors, bad),
        Column::numbers("prefix kept", rows.iter().map(|row| prefix_share(&row.tally))),
        Column::numbers(
            "bytes changed",
            rows.iter().map(|row| {
                row.tally.bytes_changed.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string())
            }),
        ),
    ]
}

fn prefix_share(tally: &Tally) -> String {
    match (tally.prefix_kept * 100).checked_div(tally.prefix_total) {
        Some(share) => format!("{share} %"),
        None => "–".to_owned(),
    }
}
