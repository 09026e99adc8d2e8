//! What a turn of an agent costs besides the model: at turn 5,000 and at turn 10; and at turn 1,000 beside the same agent on
//! LangGraph, with its checkpoints in SQLite. A turn is: the user says something, the model calls a tool, the tool answers,
//! the model answers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a program has no interface")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_testkit::python;

use support::{Cost, Load, measuring, median};

/// Until where the long conversation goes, and from where a short one is measured.
const LONG: usize = 5_000;
const SHORT: usize = 10;
/// Where an agent is held against LangGraph's.
const PEER: usize = 1_000;
/// How many of those turns LangGraph plays. Each of its steps stores the whole state, so it would need hours for all.
const PLAYED: usize = 100;
/// How many turns are measured at each place, and how many of LangGraph's.
const WINDOW: usize = 100;
const PEER_WINDOW: usize = 5;

fn main() {
    let turns = |turns: usize| if measuring() { turns } else { turns / 100 };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let (early, late) = runtime.block_on(growth(turns(LONG)));
    println!("A turn without the model's time and the tool's, in µs: medians of {WINDOW}");
    println!("{:<36} {:>10} {:>10} {:>7} {:>7}", "", "turn 10", turns(LONG), "ratio", "target");
    for (name, of, target) in [
        ("Throughline, SQLite: wall", wall as fn(&Cost) -> Duration, "≤ 1.30"),
        ("Throughline, SQLite: CPU", cpu, ""),
    ] {
        let (early, late) = (micros(median(&early, of)), micros(median(&late, of)));
        println!("{name:<36} {early:>10.0} {late:>10.0} {:>7.2} {target:>7}", late / early);
    }
    let smart = runtime.block_on(at_turn(true, turns(PEER)));
    let whole = runtime.block_on(at_turn(false, turns(PEER)));
    let peer = measuring().then(langgraph);
    println!("At turn {}", turns(PEER));
    println!(
        "{:<36} {:>10} {:>10} {:>10} {:>7} {:>8}",
        "", "CPU µs", "wall µs", "stored MB", "CPU ×", "stored ×"
    );
    for (name, figures) in [
        ("Throughline, SQLite, with summaries", Some(smart)),
        ("Throughline, SQLite, all is shown", Some(whole)),
        ("LangGraph, SQLite, all is shown", peer),
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
        "×: how often LangGraph's holds ours. Its bytes are those after {PLAYED} turns: it is given the rest of the \
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

/// The tenth turns of short conversations, and the latest of a long one, in turns: so whatever else the machine does, it does
/// to both.
async fn growth(turns: usize) -> (Vec<Cost>, Vec<Cost>) {
    let mut load = Load::new(true).await;
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
        load.go_back();
        late.push(load.turn().await);
    }
    (early, late)
}

/// What a turn costs at a place, in microseconds and bytes.
#[derive(Clone, Copy)]
struct Figures {
    cpu: f64,
    wall: f64,
    stored: f64,
}

async fn at_turn(summarises: bool, turns: usize) -> Figures {
    let mut load = Load::new(summarises).await;
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

/// The same turns on LangGraph, in an environment that is made on the first run.
fn langgraph() -> Figures {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/langgraph");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("langgraph");
    let python = python(&home, &here.join("../../../store/benches/langgraph/requirements.txt"));
    let folder = support::Place::new("langgraph");
    let mut command = Command::new(python);
    command.arg(here.join("turns.py")).arg(folder.file("store.db"));
    let ran = command.args([PLAYED, PEER, PEER_WINDOW].map(|number| number.to_string())).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "LangGraph failed: {}", String::from_utf8_lossy(&ran.stderr));
    let figures = String::from_utf8(ran.stdout).unwrap();
    let figures: Vec<f64> =
        figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
    Figures { cpu: figures[0], wall: figures[1], stored: figures[2] }
}
