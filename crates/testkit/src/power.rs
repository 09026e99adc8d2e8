//! A virtual disk that loses power.
//!
//! [`record`] installs a SQLite VFS that logs every change and every sync of the files in one
//! folder. The operating system still provides files, locks and shared memory. A [`Disk`] then
//! replays the [`IoLog`] up to any point and simulates a power loss there. Synced data remains. Any
//! part of the unsynced data may remain: whole writes or single sectors, length changes, and new or
//! removed file names.
//!
//! The disk gives the guarantees of real disks: a sync is durable, and a torn write damages no
//! bytes outside the written range. SQLite assumes the second guarantee too, under the name
//! `SQLITE_IOCAP_POWERSAFE_OVERWRITE`. Shared memory is lost.

mod vfs;

use std::path::Path;

use crate::rng::TestRng;

/// The number of bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// A change to a file, or a mark. Files are identified by their index in [`IoLog`].
#[derive(Clone, Debug)]
pub(crate) enum IoEvent {
    /// An empty file was created.
    Create(usize),
    /// Bytes were written: file, offset and data.
    Write(usize, usize, Vec<u8>),
    /// The length of a file was changed: file and new length.
    Truncate(usize, usize),
    /// All earlier changes to the file became durable.
    Sync(usize),
    /// The file names in the folder became durable, but not the data.
    SyncNames,
    /// The file was deleted.
    Delete(usize),
    /// The test has received this many acknowledgements so far.
    Mark(usize),
}

/// A running recording. A process can run only one recording at a time.
pub struct Recorder(());

/// Starts recording changes to the files in this folder, for the whole process. Syncs of files
/// elsewhere have no effect from now on, so that checking many images is fast.
///
/// # Panics
///
/// If SQLite rejects the VFS.
pub fn record(folder: &Path) -> Recorder {
    vfs::install();
    vfs::begin(folder);
    Recorder(())
}

impl Recorder {
    /// Records how many writes were acknowledged so far.
    pub fn mark(&self, count: usize) {
        vfs::note(IoEvent::Mark(count));
    }

    /// Stops the recording and returns the recorded changes.
    pub fn stop(self) -> IoLog {
        let (names, events) = vfs::end();
        IoLog { names, events }
    }
}

/// All recorded changes to the files in a folder, in order.
pub struct IoLog {
    names: Vec<String>,
    events: Vec<IoEvent>,
}

impl IoLog {
    /// Returns the number of points at which power can be lost: before each event, and after the
    /// last event.
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// Returns how many writes were recorded.
    pub fn writes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, IoEvent::Write(..))).count()
    }

    /// Returns how many file syncs were recorded.
    pub fn syncs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, IoEvent::Sync(_))).count()
    }

    /// Returns the empty disk before the first event.
    pub fn disk(&self) -> Disk<'_> {
        let files = self.names.iter().map(|_| DiskFile::default()).collect();
        Disk { log: self, at: 0, files, marked: 0 }
    }
}

/// The simulated disk at one point of the recording.
pub struct Disk<'t> {
    log: &'t IoLog,
    at: usize,
    files: Vec<DiskFile>,
    marked: usize,
}

#[derive(Default)]
struct DiskFile {
    /// The durable data; `None` if the file does not durably exist.
    durable: Option<Vec<u8>>,
    /// Changes since the last sync, in order.
    unsynced: Vec<IoEvent>,
}

/// The files that remain after a power loss.
pub struct Image {
    /// Name and data of each file.
    pub files: Vec<(String, Vec<u8>)>,
    /// Number of unsynced changes that were lost.
    pub lost: usize,
    /// Number of writes that were torn, so that only some of their sectors remain.
    pub torn: usize,
}

/// Selects the unsynced changes that remain after a power loss.
#[derive(Clone, Copy)]
enum WriteOrder {
    /// All unsynced changes are lost.
    Nothing,
    /// All unsynced changes remain, as if only the process was killed.
    Everything,
    /// All changes up to some point remain, and the last of these changes is torn.
    First,
    /// Any subset of the unsynced changes remains, and remaining writes may be torn.
    Anything,
}

impl Disk<'_> {
    /// Applies the recorded events up to the given point.
    pub fn play_to(&mut self, point: usize) {
        let events = self.log.events.get(self.at..point).unwrap_or_default();
        for event in events {
            match event {
                IoEvent::Mark(count) => self.marked = *count,
                IoEvent::SyncNames => self.files.iter_mut().for_each(DiskFile::sync_name),
                IoEvent::Sync(file) => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.sync();
                    }
                }
                IoEvent::Create(file)
                | IoEvent::Write(file, ..)
                | IoEvent::Truncate(file, _)
                | IoEvent::Delete(file) => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.unsynced.push(event.clone());
                    }
                }
            }
        }
        self.at = self.at.max(point);
    }

    /// Returns how many writes were acknowledged up to this point.
    pub fn marked(&self) -> usize {
        self.marked
    }

    /// Returns the files after a power loss at this point. `rng` chooses which unsynced changes
    /// remain.
    pub fn lose_power(&self, rng: &mut TestRng) -> Image {
        let mut image = Image { files: Vec::new(), lost: 0, torn: 0 };
        let order = match rng.below(8) {
            0 => WriteOrder::Nothing,
            1 => WriteOrder::Everything,
            2 | 3 => WriteOrder::First,
            _ => WriteOrder::Anything,
        };
        for (name, file) in self.log.names.iter().zip(&self.files) {
            if let Some(bytes) = file.survive(order, rng, &mut image) {
                image.files.push((name.clone(), bytes));
            }
        }
        image
    }
}

impl Image {
    /// Writes the files into a folder and removes everything else in the folder.
    ///
    /// # Panics
    ///
    /// If the folder cannot be written.
    pub fn write_to(&self, folder: &Path) {
        drop(std::fs::remove_dir_all(folder));
        let written = std::fs::create_dir_all(folder).and_then(|()| {
            self.files.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes))
        });
        if let Err(error) = written {
            panic!("cannot write to {}: {error}", folder.display());
        }
    }
}

impl DiskFile {
    fn sync(&mut self) {
        for event in std::mem::take(&mut self.unsynced) {
            apply(&mut self.durable, &event);
        }
    }

    fn sync_name(&mut self) {
        let names = |event: &IoEvent| matches!(event, IoEvent::Create(_) | IoEvent::Delete(_));
        if let Some(last) = self.unsynced.iter().rposition(names) {
            // Drop the earlier writes, because they belong to another file of the same name.
            let event = self.unsynced.drain(..=last).next_back();
            if let Some(event) = event {
                apply(&mut self.durable, &event);
            }
        }
    }

    fn survive(&self, order: WriteOrder, rng: &mut TestRng, image: &mut Image) -> Option<Vec<u8>> {
        let mut bytes = self.durable.clone();
        let first = match order {
            WriteOrder::Nothing => 0,
            WriteOrder::Everything => self.unsynced.len(),
            WriteOrder::First => rng.below(self.unsynced.len() + 1),
            WriteOrder::Anything => usize::MAX,
        };
        for (index, event) in self.unsynced.iter().enumerate() {
            let (kept, torn) = match order {
                WriteOrder::Nothing | WriteOrder::Everything => (index < first, false),
                WriteOrder::First => (index <= first, index == first),
                WriteOrder::Anything => (rng.below(2) == 0, rng.below(3) == 0),
            };
            if !kept {
                image.lost += 1;
                if matches!(event, IoEvent::Create(_)) {
                    // The file does not exist, so its later writes are lost too.
                    break;
                }
                continue;
            }
            match event {
                IoEvent::Write(file, at, written) if torn => {
                    image.torn += 1;
                    for (from, piece) in sectors(*at, written) {
                        if rng.below(2) == 0 {
                            apply(&mut bytes, &IoEvent::Write(*file, from, piece.to_vec()));
                        }
                    }
                }
                event => apply(&mut bytes, event),
            }
        }
        bytes
    }
}

/// Splits a write at sector boundaries.
fn sectors(at: usize, mut written: &[u8]) -> Vec<(usize, &[u8])> {
    let mut pieces = Vec::new();
    let mut from = at;
    while !written.is_empty() {
        let room = SECTOR - from % SECTOR;
        let (piece, rest) = written.split_at(room.min(written.len()));
        pieces.push((from, piece));
        from += piece.len();
        written = rest;
    }
    pieces
}

fn apply(bytes: &mut Option<Vec<u8>>, event: &IoEvent) {
    match (event, bytes.as_mut()) {
        (IoEvent::Create(_), _) => *bytes = Some(Vec::new()),
        (IoEvent::Delete(_), _) => *bytes = None,
        (IoEvent::Truncate(_, length), Some(bytes)) => bytes.resize(*length, 0),
        (IoEvent::Write(_, at, written), Some(bytes)) => {
            let end = at + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            if let Some(target) = bytes.get_mut(*at..end) {
                target.copy_from_slice(written);
            }
        }
        (IoEvent::Truncate(..) | IoEvent::Write(..), None)
        | (IoEvent::Sync(_) | IoEvent::SyncNames | IoEvent::Mark(_), _) => {}
    }
}

#[cfg(test)]
#[path = "power_tests.rs"]
mod tests;
