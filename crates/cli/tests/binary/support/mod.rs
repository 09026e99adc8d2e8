//! Runs the `throughline` binary and prepares its input.

pub(crate) mod home;
pub(crate) mod kept;
pub(crate) mod serving;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use throughline_testkit::workspace_root;

pub(crate) use self::serving::without_keys;

/// Output and exit code of a command.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary in the workspace directory.
pub(crate) fn throughline(arguments: &[&str], input: &[u8]) -> CommandOutput {
    throughline_in(&workspace_root(), arguments, input)
}

/// Runs the binary in a directory.
pub(crate) fn throughline_in(folder: &Path, arguments: &[&str], input: &[u8]) -> CommandOutput {
    throughline_with(&[], folder, arguments, input)
}

/// Runs the binary in a directory with additional environment variables, and without the user's
/// provider and client variables.
pub(crate) fn throughline_with(
    environment: &[(&str, &str)],
    folder: &Path,
    arguments: &[&str],
    input: &[u8],
) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let mut child = without_keys(&mut command)
        .env_remove("THROUGHLINE_STORE")
        .env_remove("THROUGHLINE_MASTER_KEY")
        .env("TZ", "UTC")
        .envs(environment.iter().copied())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that rejects its arguments does not read its input, so a closed pipe is ignored.
    child.stdin.take().unwrap().write_all(input).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CommandOutput {
        code: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Returns a path for a temporary file.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Writes a temporary file and returns its path as an argument.
pub(crate) fn file(name: &str, text: impl AsRef<[u8]>) -> String {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let path = scratch(name);
    // Other tests may read the same file concurrently, so the file is replaced atomically.
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = scratch(&format!("{name}.{}.{number}", std::process::id()));
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, &path).unwrap();
    path.into_os_string().into_string().unwrap()
}
