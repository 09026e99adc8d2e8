//! Measures the cost of an agent's turn, without the model. Compares turn 5,000 with turn 10, and
//! compares turn 1,000 in Throughline with turn 1,000 in LangGraph with SQLite checkpoints. A turn
//! consists of a user message, a tool call, the tool's result and an answer.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a binary has no public API")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_testkit::python;

use support::{Conversation, Cost, measuring, median};

/// Number of turns in the long conversation. `SHORT` is the turn at which short conversations are
/// measured.
const LONG: usize = 5_000;
const SHORT: usize = 10;
/// Turn at which Throughline and LangGraph are compared.
const PEER: usize = 1_000;
/// Number of turns that LangGraph plays. LangGraph stores the whole state at each step, so playing
/// all turns would take hours.
const PLAYED: usize = 100;
/// Number of Throughline turns per measurement. `PEER_WINDOW` is the number of LangGraph turns per
/// measurement.
const WINDOW: usize = 100;
const PEER_WINDOW: usize = 5;

fn main() {
    let turns = |turns: usize| if measuring() { turns } else { turns / 100 };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let (early, late) = runtime.block_on(growth(turns(LONG)));
    println!("Time per turn without model and tool, in µs: medians of {WINDOW}");
    println!("{:<36} {:>10} {:>10} {:>7} {:>7}", "", "turn 10", turns(LONG), "ratio", "target");
    for (name, of, target) in [
        ("Throughline, SQLite: wall", wall as fn(&Cost) -> Duration, "≤ 1.30"),
        ("Throughline, SQLite: CPU", cpu, ""),
    ] {
        let (early, late) = (micros(median(&early, of)), micros(median(&late, of)));
        println!("{name:<36} {early:>10.0} {late:>10.0} {:>7.2} {target:>7}", late / early);
    }
    let smart = runtime.block_on(at_turn(true, turns(PEER)));
    let full = runtime.block_on(at_turn(false, turns(PEER)));
    let peer = measuring().then(langgraph);
    println!("At turn {}", turns(PEER));
    println!(
        "{:<36} {:>10} {:>10} {:>10} {:>7} {:>8}",
        "", "CPU µs", "wall µs", "stored MB", "CPU ×", "stored ×"
    );
    for (name, figures) in [
        ("Throughline, SQLite, with summaries", Some(smart)),
        ("Throughline, SQLite, full history", Some(full)),
        ("LangGraph, SQLite, full history", peer),
    ] {
        let Some(Figures { cpu, wall, stored }) = figures else { continue };
        let times = |own: f64, other: Option<f64>| {
            other.map_or_else(String::new, |other| format!("{:.1}", other / own))
        };
        let (cpus, bytes) = (peer.map(|peer| peer.cpu), peer.map(|peer| peer.stored));
        println!(
            "{name:<36} {cpu:>10.0} {wall:>10.0} {:>10.1} {:>7} {:>8}",
            stored / 1e6,
            times(cpu, cpus),
            times(stored, bytes),
        );
    }
    println!("{:<36} {:>10} {:>10} {:>10} {:>7} {:>8}", "target", "", "", "", "≥ 10", "> 1");
    println!(
        "×: LangGraph's value divided by ours. Its stored bytes are those of {PLAYED} turns; it receives the rest of the \
         conversation at once."
    );
}

fn wall(cost: &Cost) -> Duration {
    cost.wall
}

fn cpu(cost: &Cost) -> Duration {
    cost.cpu
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Alternates between the tenth turn of a short conversation and the next turn of a long
/// conversation. Other load on the machine therefore affects both measurements equally.
async fn growth(turns: usize) -> (Vec<Cost>, Vec<Cost>) {
    let mut load = Conversation::new(true).await;
    for _ in 0..turns {
        load.turn().await;
    }
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..WINDOW {
        load.begin_another();
        for _ in 1..SHORT {
            load.turn().await;
        }
        early.push(load.turn().await);
        load.return_to_first();
        late.push(load.turn().await);
    }
    (early, late)
}

/// Cost of a turn in microseconds and bytes.
#[derive(Clone, Copy)]
struct Figures {
    cpu: f64,
    wall: f64,
    stored: f64,
}

async fn at_turn(summarises: bool, turns: usize) -> Figures {
    let mut load = Conversation::new(summarises).await;
    for _ in 0..turns {
        load.turn().await;
    }
    let stored = load.stored() as f64;
    let mut costs = Vec::new();
    for _ in 0..WINDOW {
        costs.push(load.turn().await);
    }
    Figures { cpu: micros(median(&costs, cpu)), wall: micros(median(&costs, wall)), stored }
}

/// Plays the same turns with LangGraph. The first call installs LangGraph in its own environment.
fn langgraph() -> Figures {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/langgraph");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("langgraph");
    let python = python(&home, &here.join("../../../store/benches/langgraph/requirements.txt"));
    let folder = support::BenchFolder::new("langgraph");
    let mut command = Command::new(python);
    command.arg(here.join("turns.py")).arg(folder.file("store.db"));
    let output =
        command.args([PLAYED, PEER, PEER_WINDOW].map(|number| number.to_string())).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "LangGraph failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let figures = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<f64> =
        figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
    Figures { cpu: figures[0], wall: figures[1], stored: figures[2] }
}
