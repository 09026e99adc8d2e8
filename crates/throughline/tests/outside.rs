//! Tests that a program outside the workspace can capture and restore with its own HTTP client.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use throughline_sim::{Options, start};
use throughline_testkit::{Folder, workspace_root};

/// Writes a package that depends on the facade crate by path.
fn write_package(folder: &Path) {
    let root = workspace_root();
    let files = root.join("crates/throughline/tests/outside");
    let manifest = fs::read_to_string(files.join("package.toml")).unwrap();
    let manifest = manifest.replace("CRATES", &root.join("crates").display().to_string());
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    fs::create_dir(folder.join("src")).unwrap();
    fs::copy(files.join("program.rs"), folder.join("src/main.rs")).unwrap();
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_program_captures_and_restores() {
    let folder = Folder::new("outside");
    write_package(&folder);
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap();
    let settings = workspace_root().join(".cargo/config.toml");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--offline", "--config"]).arg(settings);
    cargo.arg("--target-dir").arg(target);
    run(cargo.current_dir(&*folder).env("CARGO_INCREMENTAL", "0"));

    let simulator = start(Options::default()).await.unwrap();
    let address = simulator.address().to_string();
    let store = format!("sqlite://{}", folder.join("store.db").display());
    let printed = run(Command::new(target.join("debug/outside")).args([&address, &store]));
    assert_eq!(printed, "restored bit for bit: true\nstop reason: end_turn\n");
    let ledger = simulator.ledger();
    assert!(ledger.returned().count() > 0 && ledger.all_verified(), "{ledger:?}");
}
