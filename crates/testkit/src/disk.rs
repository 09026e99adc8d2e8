//! A small, private disk for one test, so that filling the disk does not affect other tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the mount point of the disk, set in the process that runs the test
/// body.
const DISK: &str = "THROUGHLINE_TEST_DISK";

/// Runs the body of a test on a new disk with a size of `kilobytes`. If no disk can be mounted,
/// prints that the test was skipped.
///
/// Only a separate process can mount a disk privately. The calling test is therefore started again,
/// alone, in a mount namespace. `test` is the full name of that test.
///
/// # Panics
///
/// If the test fails in the separate process.
pub fn on_small_disk(test: &str, kilobytes: u32, body: impl FnOnce(&Path)) {
    if let Some(disk) = disk() {
        return body(&disk);
    }
    let folder = std::env::temp_dir().join(format!("throughline-{}-{test}", std::process::id()));
    let Ok(program) = std::env::current_exe() else {
        return crate::skip("the path of the test binary is unknown");
    };
    if std::fs::create_dir_all(&folder).is_err() {
        return crate::skip("cannot create a mount point for a disk");
    }
    let script = format!(
        "mount -t tmpfs -o size={kilobytes}k tmpfs \"$1\" || exit 77; \
         {DISK}=\"$1\" exec \"$2\" --exact \"$3\" --nocapture"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(&folder).arg(program).arg(test);
    let output = command.output();
    // Only the empty mount point is left.
    drop(std::fs::remove_dir(&folder));
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output {
        Ok(output) if output.status.success() => println!("{}", lossy(&output.stdout)),
        // If the test did not start, its output does not contain this line.
        Ok(output) if !lossy(&output.stdout).contains("running 1 test") => {
            crate::skip(&format!("cannot mount a disk here: {}", lossy(&output.stderr).trim()));
        }
        Ok(output) => panic!("{}{}", lossy(&output.stdout), lossy(&output.stderr)),
        Err(error) => crate::skip(&format!("cannot mount a disk here: {error}")),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the restarted test gets its disk by environment variable"
)]
fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}
