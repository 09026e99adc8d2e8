//! Python environments with pinned packages, for comparison measurements.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the Python interpreter of an environment at `home` with these requirements. Creates the
/// environment on the first call.
///
/// # Panics
///
/// If the environment cannot be created.
pub fn python(home: &Path, requirements: &Path) -> PathBuf {
    let python = home.join("bin/python");
    if home.join("ready").exists() {
        return python;
    }
    let run = |command: &mut Command, advice: &str| {
        let succeeded = command.status().is_ok_and(|status| status.success());
        assert!(succeeded, "{command:?} failed: {advice}");
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(home), "install python3-venv");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(install.arg(requirements), "is the network available?");
    if let Err(error) = std::fs::write(home.join("ready"), "") {
        panic!("{} cannot be written: {error}", home.display());
    }
    python
}
