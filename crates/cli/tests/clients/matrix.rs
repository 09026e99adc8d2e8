//! The matrix of all clients and target models, which `scripts/soak` runs and prints as a table.

use std::panic::{AssertUnwindSafe, catch_unwind};

use throughline_testkit::{ClientMatrixFilter, skip};

use crate::ai_sdk::AI_SDK;
use crate::claude_code::CLAUDE_CODE;
use crate::codex::CODEX;
use crate::gemini_cli::GEMINI_CLI;
use crate::opencode::OPENCODE;
use crate::program::ClientProgram;
use crate::session::{BEDROCK, CLAUDE, DEEPSEEK, GEMINI, GPT, LedgerFigures, Session};

/// One model for each wire.
const TARGETS: [&str; 5] = [CLAUDE, GPT, DEEPSEEK, GEMINI, BEDROCK];

/// The head of the printed table.
const HEADER: [&str; 2] = [
    "| client | target | session | requests | issued | returned | stand-ins | refused | lost | altered | result |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
];

/// A session of the matrix.
struct MatrixCell {
    title: String,
    tasks: Vec<(&'static str, usize)>,
}

#[test]
fn client_matrix_has_no_refusal_and_no_lost_seal() {
    let Some(filter) = ClientMatrixFilter::from_env() else {
        return skip("the client matrix: scripts/soak runs it");
    };
    let programs = [&CLAUDE_CODE, &CODEX, &GEMINI_CLI, &OPENCODE].into_iter().chain(AI_SDK);
    println!("FIGURE the client matrix:\n{}", HEADER.join("\n"));
    let mut failures = Vec::new();
    for program in programs {
        for (number, cell) in cells().into_iter().enumerate() {
            if !filter.selects(&format!("{} {}", program.name, cell.title)) {
                continue;
            }
            let (figures, result) = match run(program, number, &cell) {
                Ok(Some(figures)) => (figures, "ok"),
                Ok(None) => (LedgerFigures::default(), "skipped"),
                Err(failure) => {
                    failures.push(format!("{}, {}: {failure}", program.name, cell.title));
                    (LedgerFigures::default(), "FAILED")
                }
            };
            println!("{}", row(program, &cell, figures, result));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns the sessions of one client: a loop of 21 rounds and a resumed loop with each model, and
/// one session that changes the model before every task.
fn cells() -> Vec<MatrixCell> {
    let loops = TARGETS.map(|model| MatrixCell {
        title: format!("{} | 21 rounds, then 3 resumed", model.trim_start_matches("sim/")),
        tasks: vec![(model, 21), (model, 3)],
    });
    let models = [CLAUDE, GPT, GEMINI, DEEPSEEK, CLAUDE, BEDROCK, GPT, GEMINI];
    let switch = MatrixCell {
        title: "all five | 8 tasks, each with another model".to_owned(),
        tasks: models.map(|model| (model, 3)).to_vec(),
    };
    loops.into_iter().chain([switch]).collect()
}

/// Runs a session. Returns `None` if the client is not installed, and the message of a failed check
/// as an error.
fn run(
    program: &ClientProgram,
    number: usize,
    cell: &MatrixCell,
) -> Result<Option<LedgerFigures>, String> {
    let name = format!("matrix-{}-{number}", program.name.replace(' ', "-"));
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let mut session = Session::start(program, &name, &cell.tasks)?;
        session.run_all();
        Some(session.assert_complete())
    }));
    checked.map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => "the session panicked without a message".to_owned(),
    })
}

fn row(program: &ClientProgram, cell: &MatrixCell, figures: LedgerFigures, result: &str) -> String {
    let LedgerFigures { requests, refused, issued, returned, lost, altered, stand_ins } = figures;
    format!(
        "| {} | {} | {requests} | {issued} | {returned} | {stand_ins} | {refused} | {lost} | {altered} | {result} |",
        program.name, cell.title
    )
}
