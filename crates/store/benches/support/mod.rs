//! Code that the benches share: folders, generated text and timing.

#![allow(dead_code, reason = "each bench uses only a part of this module")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use throughline_testkit::TestRng;

/// Returns whether this run takes measurements. `cargo test` runs benches only to check that they
/// work.
pub(crate) fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// A folder that is deleted on drop.
pub(crate) struct BenchFolder(PathBuf);

impl BenchFolder {
    pub(crate) fn new(name: &str) -> Self {
        // Use the disk of the build folder, because a temporary folder may be in memory, where a
        // sync costs nothing.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = target.join(format!("bench-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the total size of the files in the folder, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn text(dice: &mut TestRng, length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+";
    (0..length).map(|_| char::from(LETTERS[dice.below(LETTERS.len())])).collect()
}

pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// Awaits a future and returns its duration and result.
pub(crate) async fn time<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let done = work.await;
    (start.elapsed(), done)
}
