//! What the benches share: where stores are made, how contents look, and how times are compared.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use throughline_testkit::Dice;

/// Whether this is a measurement: `cargo test` runs benches only to see that they work.
pub(crate) fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// A folder that is deleted in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        // Beside the build, on the same disk: a folder for temporary files may lie in memory, where a sync costs nothing.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = target.join(format!("bench-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The bytes of all its files.
    pub(crate) fn size(&self) -> u64 {
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Text that does not repeat itself.
pub(crate) fn text(dice: &mut Dice, length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+";
    (0..length).map(|_| char::from(LETTERS[dice.below(LETTERS.len())])).collect()
}

/// The middle one.
pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// How long it takes.
pub(crate) async fn time<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let done = work.await;
    (start.elapsed(), done)
}
