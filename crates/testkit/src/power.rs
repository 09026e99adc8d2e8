//! A virtual disk that loses power.
//!
//! [`record`] installs a VFS layer in SQLite that logs every change and every sync of the files of
//! one folder. Files, locks and shared memory are still the system's. A [`Disk`] then replays the
//! [`Tape`] up to any point and loses power there. Synced data remains. Of the unsynced data any
//! part may remain: each write as a whole or in sectors, each change of a length, each new or
//! removed name.
//!
//! The disk gives the guarantees of real disks: a sync is durable, and a torn write damages no byte
//! outside of it. SQLite relies on this too, as `SQLITE_IOCAP_POWERSAFE_OVERWRITE`. Shared memory
//! is lost.

mod vfs;

use std::path::Path;

use crate::rng::TestRng;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// A change to a file, or a mark.
#[derive(Clone, Debug)]
pub(crate) enum IoEvent {
    /// The file was created, empty.
    Create(usize),
    /// Bytes were written at an offset.
    Write(usize, usize, Vec<u8>),
    /// The length of the file was changed.
    Truncate(usize, usize),
    /// All changes to the file so far are durable.
    Sync(usize),
    /// The folder's file names are durable, but not the contents.
    SyncNames,
    /// The file was deleted.
    Delete(usize),
    /// The total number of acknowledgements so far.
    Mark(usize),
}

/// A running recording.
pub struct Recorder(());

/// Starts recording the files of this folder, for the whole process. Files elsewhere are no longer
/// synced, so that checking many images is fast.
///
/// # Panics
///
/// If SQLite rejects the VFS layer.
pub fn record(folder: &Path) -> Recorder {
    vfs::install();
    vfs::begin(folder);
    Recorder(())
}

impl Recorder {
    /// Records the total number of acknowledgements so far.
    pub fn mark(&self, count: usize) {
        vfs::note(IoEvent::Mark(count));
    }

    /// Stops the recording and returns it.
    pub fn stop(self) -> IoLog {
        let (names, events) = vfs::end();
        IoLog { names, events }
    }
}

/// All changes to the files of a folder.
pub struct IoLog {
    names: Vec<String>,
    events: Vec<IoEvent>,
}

impl IoLog {
    /// Returns the number of points at which power can be lost: one before each event, and one
    /// after the last.
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// Returns the number of writes.
    pub fn writes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, IoEvent::Write(..))).count()
    }

    /// Returns the number of syncs.
    pub fn syncs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, IoEvent::Sync(_))).count()
    }

    /// Returns the disk before the first event.
    pub fn disk(&self) -> Disk<'_> {
        let files = self.names.iter().map(|_| DiskFile::default()).collect();
        Disk { tape: self, at: 0, files, marked: 0 }
    }
}

/// The disk at a point of the recording.
pub struct Disk<'t> {
    tape: &'t IoLog,
    at: usize,
    files: Vec<DiskFile>,
    marked: usize,
}

#[derive(Default)]
struct DiskFile {
    /// The durable content; `None` if the file does not durably exist.
    durable: Option<Vec<u8>>,
    /// The changes since the last sync.
    unsynced: Vec<IoEvent>,
}

/// The files after a power loss.
pub struct Image {
    /// The names and contents of the files.
    pub files: Vec<(String, Vec<u8>)>,
    /// The number of lost changes.
    pub lost: usize,
    /// The number of torn writes.
    pub torn: usize,
}

/// The effect of a power loss on unsynced data.
#[derive(Clone, Copy)]
enum WriteOrder {
    /// All of it is lost.
    Nothing,
    /// All of it remains, as if only the process was killed.
    Everything,
    /// The first changes remain, the last of them torn.
    First,
    /// Any part remains, in any order.
    Anything,
}

impl Disk<'_> {
    /// Replays up to this point.
    pub fn play_to(&mut self, point: usize) {
        let events = self.tape.events.get(self.at..point).unwrap_or_default();
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

    /// Returns the number of acknowledgements up to here.
    pub fn marked(&self) -> usize {
        self.marked
    }

    /// Returns the files after a power loss at this point.
    pub fn lose_power(&self, dice: &mut TestRng) -> Image {
        let mut image = Image { files: Vec::new(), lost: 0, torn: 0 };
        let mood = match dice.below(8) {
            0 => WriteOrder::Nothing,
            1 => WriteOrder::Everything,
            2 | 3 => WriteOrder::First,
            _ => WriteOrder::Anything,
        };
        for (name, file) in self.tape.names.iter().zip(&self.files) {
            if let Some(bytes) = file.survive(mood, dice, &mut image) {
                image.files.push((name.clone(), bytes));
            }
        }
        image
    }
}

impl Image {
    /// Writes the files into a folder and removes everything else in it.
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
            // Earlier writes belong to another file of that name.
            let event = self.unsynced.drain(..=last).next_back();
            if let Some(event) = event {
                apply(&mut self.durable, &event);
            }
        }
    }

    fn survive(&self, mood: WriteOrder, dice: &mut TestRng, image: &mut Image) -> Option<Vec<u8>> {
        let mut bytes = self.durable.clone();
        let first = match mood {
            WriteOrder::Nothing => 0,
            WriteOrder::Everything => self.unsynced.len(),
            WriteOrder::First => dice.below(self.unsynced.len() + 1),
            WriteOrder::Anything => usize::MAX,
        };
        for (place, event) in self.unsynced.iter().enumerate() {
            let (kept, torn) = match mood {
                WriteOrder::Nothing | WriteOrder::Everything => (place < first, false),
                WriteOrder::First => (place <= first, place == first),
                WriteOrder::Anything => (dice.below(2) == 0, dice.below(3) == 0),
            };
            if !kept {
                image.lost += 1;
                if matches!(event, IoEvent::Create(_)) {
                    // Later writes have no file name.
                    break;
                }
                continue;
            }
            match event {
                IoEvent::Write(file, at, written) if torn => {
                    image.torn += 1;
                    for (from, piece) in sectors(*at, written) {
                        if dice.below(2) == 0 {
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

/// Splits a write into sectors.
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
            if let Some(place) = bytes.get_mut(*at..end) {
                place.copy_from_slice(written);
            }
        }
        (IoEvent::Truncate(..) | IoEvent::Write(..), None)
        | (IoEvent::Sync(_) | IoEvent::SyncNames | IoEvent::Mark(_), _) => {}
    }
}

#[cfg(test)]
#[path = "power_tests.rs"]
mod tests;
