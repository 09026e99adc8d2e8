//! Explains each case in which the first gateway kept more reasoning than another one, with the
//! entries of the simulators' ledger in the raw results.

use serde_json::Value;

use crate::fidelity_table::{cases, name, rows};

#[cfg(test)]
#[path = "fidelity_evidence_tests.rs"]
mod fidelity_evidence_tests;

/// Maximum number of characters of a provider's or a gateway's message in the table.
const LONGEST_MESSAGE: usize = 110;

/// What the ledgers of two gateways show about the same request.
#[derive(Debug, PartialEq, Eq)]
struct CaseEvidence {
    wire: String,
    case: String,
    /// The gateways whose ledgers show the same.
    gateways: Vec<String>,
    /// The first entry of the other gateway with a loss.
    loss: String,
    /// The entry of the same request through the first gateway.
    own: String,
}

/// Returns a table with the ledger's evidence for each case in which the first gateway did better.
pub(crate) fn to_markdown(reports: &[Value]) -> String {
    let mut lines = vec![
        "| wire | case | gateway | first loss in its ledger | the same request through Throughline |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(collect(reports).into_iter().map(|evidence| {
        let CaseEvidence { wire, case, gateways, loss, own } = evidence;
        format!("| {wire} | {case} | {} | {loss} | {own} |", gateways.join(", "))
    }));
    lines.join("\n") + "\n"
}

fn collect(reports: &[Value]) -> Vec<CaseEvidence> {
    let Some((own, others)) = reports.split_first() else { return Vec::new() };
    let mut found: Vec<CaseEvidence> = Vec::new();
    for (wire, case) in rows(reports) {
        for other in others {
            let Some((own_case, lossy)) = lossy_case(own, other, &wire, &case) else { continue };
            let (loss, own) = compare(own_case, lossy);
            let gateway = name(other).to_owned();
            let is_same = |known: &&mut CaseEvidence| {
                known.wire == wire && known.case == case && known.loss == loss && known.own == own
            };
            match found.iter_mut().find(is_same) {
                Some(known) => known.gateways.push(gateway),
                None => found.push(CaseEvidence {
                    wire: wire.clone(),
                    case: case.clone(),
                    gateways: vec![gateway],
                    loss,
                    own,
                }),
            }
        }
    }
    found
}

/// Returns the first mode of a case in which the other gateway did worse, with complete or with
/// streamed responses, as measured through both gateways.
fn lossy_case<'r>(
    own: &'r Value,
    other: &'r Value,
    wire: &str,
    case: &str,
) -> Option<(&'r Value, &'r Value)> {
    [false, true].into_iter().find_map(|is_streamed| {
        let find = |report: &'r Value| {
            cases(report).iter().find(|it| {
                it["wire"] == wire && it["case"] == case && it["streamed"] == is_streamed
            })
        };
        let (own, other) = (find(own)?, find(other)?);
        let is_lossy =
            other["unsupported"].is_null() && number(other, "kept") < number(own, "kept");
        is_lossy.then_some((own, other))
    })
}

/// Describes the first entry with a loss, and the entry of the same request in the other ledger.
/// Retries follow a refusal, so entries before the first loss have the same positions.
fn compare(own: &Value, lossy: &Value) -> (String, String) {
    let entries = ledger(lossy);
    let is_loss = |entry: &Value| !entry["refused"].is_null() || number(entry, "lost") > 0;
    match entries.iter().position(is_loss) {
        Some(index) => {
            let same = ledger(own).get(index).map_or_else(|| "–".to_owned(), describe);
            let loss = entries.get(index).map(describe).unwrap_or_default();
            (format!("request {}: {loss}", index + 1), format!("request {}: {same}", index + 1))
        }
        None => {
            let note = lossy["notes"].get(0).and_then(Value::as_str).unwrap_or("no entry");
            let next = entries.len();
            let same = ledger(own).get(next).map_or_else(|| "–".to_owned(), describe);
            let loss = format!("request {}: the gateway failed: {}", next + 1, shorten(note));
            (loss, format!("request {}: {same}", next + 1))
        }
    }
}

/// Describes an entry: the provider's error, the returned Seals and the missing Seals.
fn describe(entry: &Value) -> String {
    let returned = entry["returned"].as_array().map(Vec::as_slice).unwrap_or_default();
    let accepted = returned.iter().filter(|seal| seal["verdict"] == "accepted").count();
    let refused = match entry["refused"].as_str() {
        Some(error) => format!("refused: “{}”; ", shorten(error)),
        None => String::new(),
    };
    let seals = if returned.len() == 1 { "Seal" } else { "Seals" };
    let lost = match number(entry, "lost") {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    format!("{refused}{} {seals} returned, {accepted} accepted{lost}", returned.len())
}

/// Returns a message for a cell of a table, at most [`LONGEST_MESSAGE`] characters long.
fn shorten(message: &str) -> String {
    let message = message.replace('|', "\\|").replace('\n', " ");
    if message.chars().count() <= LONGEST_MESSAGE {
        return message;
    }
    let start: String = message.chars().take(LONGEST_MESSAGE).collect();
    format!("{}…", start.trim_end())
}

fn ledger(case: &Value) -> &[Value] {
    case["ledger"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}
