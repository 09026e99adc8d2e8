//! Formats the results of the fidelity benchmark as Markdown tables.

use serde_json::Value;

/// The counts of some cases of one gateway.
#[derive(Default)]
struct FidelityCounts {
    kept: u64,
    lost: u64,
    altered: u64,
    refused: u64,
    errors: u64,
    prefix_kept: u64,
    prefix_total: u64,
    bytes_changed: Option<u64>,
    cases: usize,
    unsupported: usize,
}

impl FidelityCounts {
    fn add(&mut self, case: &Value) {
        let number = |name: &str| case[name].as_u64().unwrap_or_default();
        self.cases += 1;
        self.unsupported += usize::from(!case["unsupported"].is_null());
        self.kept += number("kept");
        self.lost += number("lost");
        self.altered += number("altered");
        self.refused += number("refused");
        self.errors += number("errors");
        self.prefix_kept += number("prefix_kept");
        self.prefix_total += number("prefix_total");
        if let Some(bytes) = case["bytes_changed"].as_u64() {
            self.bytes_changed = Some(self.bytes_changed.unwrap_or_default() + bytes);
        }
    }

    fn prefix_share(&self) -> String {
        let share = (self.prefix_kept * 100).checked_div(self.prefix_total);
        share.map_or_else(|| "–".to_owned(), |share| format!("{share} %"))
    }

    fn bytes(&self) -> String {
        self.bytes_changed.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string())
    }

    /// Formats the counts of one wire and case: the kept Seals, then everything that went wrong.
    fn cell(&self) -> String {
        if self.cases == self.unsupported {
            return "n/a".to_owned();
        }
        let problems = [
            ("lost", self.lost),
            ("altered", self.altered),
            ("refused", self.refused),
            ("failed", self.errors),
        ];
        let problems = problems.iter().filter(|(_, number)| *number > 0);
        let problems: Vec<String> =
            problems.map(|(name, number)| format!("{number} {name}")).collect();
        let kept = format!("{} kept", self.kept);
        if problems.is_empty() { kept } else { format!("{kept}, **{}**", problems.join(", ")) }
    }
}

/// Returns the counts of all cases as CSV, with one row for each gateway, wire, case and mode.
pub(crate) fn to_csv(reports: &[Value]) -> String {
    const COUNTS: [&str; 9] = [
        "requests",
        "kept",
        "lost",
        "altered",
        "refused",
        "errors",
        "prefix_kept",
        "prefix_total",
        "bytes_changed",
    ];
    let mut lines = vec![format!("gateway,wire,case,responses,supported,{}", COUNTS.join(","))];
    for report in reports {
        for case in cases(report) {
            let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
            let mode = if case["streamed"] == true { "streamed" } else { "complete" };
            let supported = if case["unsupported"].is_null() { "yes" } else { "no" };
            let counts = COUNTS.map(|name| match &case[name] {
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            });
            let (wire, scenario, counts) = (text("wire"), text("case"), counts.join(","));
            lines.push(format!("{},{wire},{scenario},{mode},{supported},{counts}", name(report)));
        }
    }
    lines.join("\n") + "\n"
}

/// Returns one table with the sums of each gateway, and one with the counts of each case.
pub(crate) fn to_markdown(reports: &[Value]) -> String {
    let names: Vec<&str> = reports.iter().map(name).collect();
    let mut lines = vec![
        "| gateway | kept | lost | altered | refused | failed | n/a | prefix kept | bytes changed |"
            .to_owned(),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|".to_owned(),
    ];
    // Each case runs with complete and with streamed responses.
    let total = rows(reports).len() * 2;
    lines.extend(reports.iter().map(|report| sums(report, total)));
    lines.push(format!("\n| wire | case | {} |", names.join(" | ")));
    lines.push(format!("|---|---|{}", "---|".repeat(names.len())));
    for (wire, scenario) in rows(reports) {
        let cells = reports.iter().map(|report| {
            let mut counts = FidelityCounts::default();
            let is_own = |case: &&Value| case["wire"] == wire && case["case"] == scenario;
            for case in cases(report).iter().filter(is_own) {
                counts.add(case);
            }
            counts.cell()
        });
        lines.push(format!("| {wire} | {scenario} | {} |", cells.collect::<Vec<_>>().join(" | ")));
    }
    lines.join("\n") + "\n"
}

/// Returns the row with the sums of one gateway.
fn sums(report: &Value, total: usize) -> String {
    let mut all = FidelityCounts::default();
    for case in cases(report) {
        all.add(case);
    }
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        name(report),
        all.kept,
        all.lost,
        all.altered,
        all.refused,
        all.errors,
        total.saturating_sub(all.cases - all.unsupported),
        all.prefix_share(),
        all.bytes()
    )
}

pub(crate) fn name(report: &Value) -> &str {
    report["gateway"].as_str().unwrap_or_default()
}

pub(crate) fn cases(report: &Value) -> &[Value] {
    report["cases"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the wires and cases of all reports, in order.
pub(crate) fn rows(reports: &[Value]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for case in reports.iter().flat_map(cases) {
        let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
        let row = (text("wire"), text("case"));
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}
