//! A disk of its own for one test: small, so that it can be full, and private, so that nobody else notices.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set for a test that runs on its own disk, to where that is.
const DISK: &str = "THROUGHLINE_TEST_DISK";

/// Runs the body of a test on a disk of that many kilobytes, or says that it was skipped.
///
/// A disk can be mounted for one process only if that is a process of its own. So the test that calls this is started once
/// more, alone, in a mount namespace; `test` is its full name.
///
/// # Panics
///
/// Where the test fails on its own disk.
pub fn on_small_disk(test: &str, kilobytes: u32, body: impl FnOnce(&Path)) {
    if let Some(disk) = disk() {
        return body(&disk);
    }
    let folder = std::env::temp_dir().join(format!("throughline-{}-{test}", std::process::id()));
    let Ok(program) = std::env::current_exe() else { return crate::skip("who runs is not known") };
    if std::fs::create_dir_all(&folder).is_err() {
        return crate::skip("there is no folder for a disk");
    }
    let script = format!(
        "mount -t tmpfs -o size={kilobytes}k tmpfs \"$1\" || exit 77; \
         {DISK}=\"$1\" exec \"$2\" --exact \"$3\" --nocapture"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(&folder).arg(program).arg(test);
    let done = command.output();
    // Only the empty folder is left of it.
    drop(std::fs::remove_dir(&folder));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done {
        Ok(done) if done.status.success() => println!("{}", said(&done.stdout)),
        // What did not even start says nothing of its own.
        Ok(done) if !said(&done.stdout).contains("running 1 test") => {
            crate::skip(&format!("no disk can be mounted here: {}", said(&done.stderr).trim()));
        }
        Ok(done) => panic!("{}{}", said(&done.stdout), said(&done.stderr)),
        Err(error) => crate::skip(&format!("no disk can be mounted here: {error}")),
    }
}

#[expect(clippy::disallowed_methods, reason = "the test that is started again is told so")]
fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}
