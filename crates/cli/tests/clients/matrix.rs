//! The matrix of all clients and target models, which `scripts/soak` runs and prints as a table.

use std::panic::{AssertUnwindSafe, catch_unwind};

use throughline_testkit::{skip, whole_client_matrix};

use crate::ai_sdk::AI_SDK;
use crate::claude_code::CLAUDE_CODE;
use crate::codex::CODEX;
use crate::gemini_cli::GEMINI_CLI;
use crate::opencode::OPENCODE;
use crate::program::ClientProgram;
use crate::session::{BEDROCK, CLAUDE, DEEPSEEK, GEMINI, GPT, LedgerFigures, Session};

/// One model for each wire.
const TARGETS: [&str; 5] = [CLAUDE, GPT, DEEPSEEK, GEMINI, BEDROCK];

/// A session of the matrix.
struct MatrixCell {
    title: String,
    tasks: Vec<(&'static str, usize)>,
}

#[test]
fn client_matrix_has_no_refusal_and_no_lost_seal() {
    if !whole_client_matrix() {
        return skip("the client matrix: scripts/soak runs it");
    }
    let programs = [&CLAUDE_CODE, &CODEX, &GEMINI_CLI, &OPENCODE].into_iter().chain(AI_SDK);
    let mut rows = vec![
        "| client | target | session | requests | issued | returned | stand-ins | refused | lost | altered | result |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut failures = Vec::new();
    for program in programs {
        for (number, cell) in cells().into_iter().enumerate() {
            match run(program, number, &cell) {
                Ok(Some(figures)) => rows.push(row(program, &cell, figures, "ok")),
                Ok(None) => rows.push(row(program, &cell, LedgerFigures::default(), "skipped")),
                Err(failure) => {
                    rows.push(row(program, &cell, LedgerFigures::default(), "FAILED"));
                    failures.push(format!("{}, {}: {failure}", program.name, cell.title));
                }
            }
        }
    }
    println!("FIGURE the client matrix:\n{}", rows.join("\n"));
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
