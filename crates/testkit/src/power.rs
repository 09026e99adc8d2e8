//! A disk that loses power.
//!
//! [`record`] puts a layer under SQLite that writes down, for the files of one folder, everything that changes them and
//! every sync. Nothing else is different: files, locks and shared memory are the system's own. A [`Disk`] then plays the
//! [`Tape`] up to any point and loses power there: what was synced is on it, and of what was not, any part may be:
//! each write as a whole or in sectors, each change of a length, each new or removed name.
//!
//! What the layer promises is what disks do: a sync holds, and a write that is torn hurts no byte outside of it (SQLite
//! counts on that too, and calls it `SQLITE_IOCAP_POWERSAFE_OVERWRITE`). Shared memory is lost.

mod vfs;

use std::path::Path;

use crate::dice::Dice;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// Something that happened to a file, or was told.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The file came into being, empty.
    Create(usize),
    /// Bytes were written at a place.
    Write(usize, usize, Vec<u8>),
    /// The file was given another length.
    Truncate(usize, usize),
    /// Everything that happened to the file until now stays.
    Sync(usize),
    /// Which files there are in the folder stays, if not what is in them.
    SyncNames,
    /// The file was removed.
    Delete(usize),
    /// Something was acknowledged: so many things until now.
    Mark(usize),
}

/// A recording that goes on.
pub struct Recorder(());

/// Records what happens to the files of that folder from now on, in the whole process. Files elsewhere are not synced
/// from now on, so that looking at many images is quick.
///
/// # Panics
///
/// Where SQLite does not take the layer.
pub fn record(folder: &Path) -> Recorder {
    vfs::install();
    vfs::begin(folder);
    Recorder(())
}

impl Recorder {
    /// Notes that so many things are acknowledged now.
    pub fn mark(&self, count: usize) {
        vfs::note(Event::Mark(count));
    }

    /// The recording. Nothing more is recorded.
    pub fn stop(self) -> Tape {
        let (names, events) = vfs::end();
        Tape { names, events }
    }
}

/// Everything that happened to the files of a folder.
pub struct Tape {
    names: Vec<String>,
    events: Vec<Event>,
}

impl Tape {
    /// How many points there are at which power can be lost: one before each event, and one after the last.
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// How many times something was written.
    pub fn writes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Write(..))).count()
    }

    /// How many times something was synced.
    pub fn syncs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Sync(_))).count()
    }

    /// The disk before anything happened.
    pub fn disk(&self) -> Disk<'_> {
        let files = self.names.iter().map(|_| File::default()).collect();
        Disk { tape: self, at: 0, files, marked: 0 }
    }
}

/// The disk at some point.
pub struct Disk<'t> {
    tape: &'t Tape,
    at: usize,
    files: Vec<File>,
    marked: usize,
}

#[derive(Default)]
struct File {
    /// What stays whatever happens; nothing if there is no such file.
    durable: Option<Vec<u8>>,
    /// What happened since.
    unsynced: Vec<Event>,
}

/// What was left after a loss of power.
pub struct Image {
    /// The names of the files that are there, and their contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// How many changes were lost.
    pub lost: usize,
    /// How many writes were torn.
    pub torn: usize,
}

/// How a loss of power treats what was not synced.
#[derive(Clone, Copy)]
enum Mood {
    /// All of it is lost.
    Nothing,
    /// All of it is there: the process was killed, and not the machine.
    Everything,
    /// What came first is there, the last of it torn.
    First,
    /// Anything may be, in any order.
    Anything,
}

impl Disk<'_> {
    /// Plays on, up to that point.
    pub fn play_to(&mut self, point: usize) {
        let events = self.tape.events.get(self.at..point).unwrap_or_default();
        for event in events {
            match event {
                Event::Mark(count) => self.marked = *count,
                Event::SyncNames => self.files.iter_mut().for_each(File::sync_name),
                Event::Sync(file) => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.sync();
                    }
                }
                Event::Create(file)
                | Event::Write(file, ..)
                | Event::Truncate(file, _)
                | Event::Delete(file) => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.unsynced.push(event.clone());
                    }
                }
            }
        }
        self.at = self.at.max(point);
    }

    /// How many things had been acknowledged.
    pub fn marked(&self) -> usize {
        self.marked
    }

    /// What is left if power is lost here.
    pub fn lose_power(&self, dice: &mut Dice) -> Image {
        let mut image = Image { files: Vec::new(), lost: 0, torn: 0 };
        let mood = match dice.below(8) {
            0 => Mood::Nothing,
            1 => Mood::Everything,
            2 | 3 => Mood::First,
            _ => Mood::Anything,
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
    /// Writes the files into a folder, and nothing else is left in it.
    ///
    /// # Panics
    ///
    /// Where that is not possible.
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

impl File {
    fn sync(&mut self) {
        for event in std::mem::take(&mut self.unsynced) {
            apply(&mut self.durable, &event);
        }
    }

    fn sync_name(&mut self) {
        let names = |event: &Event| matches!(event, Event::Create(_) | Event::Delete(_));
        if let Some(last) = self.unsynced.iter().rposition(names) {
            // What was written before belongs to another file of that name.
            let event = self.unsynced.drain(..=last).next_back();
            if let Some(event) = event {
                apply(&mut self.durable, &event);
            }
        }
    }

    fn survive(&self, mood: Mood, dice: &mut Dice, image: &mut Image) -> Option<Vec<u8>> {
        let mut bytes = self.durable.clone();
        let first = match mood {
            Mood::Nothing => 0,
            Mood::Everything => self.unsynced.len(),
            Mood::First => dice.below(self.unsynced.len() + 1),
            Mood::Anything => usize::MAX,
        };
        for (place, event) in self.unsynced.iter().enumerate() {
            let (kept, torn) = match mood {
                Mood::Nothing | Mood::Everything => (place < first, false),
                Mood::First => (place <= first, place == first),
                Mood::Anything => (dice.below(2) == 0, dice.below(3) == 0),
            };
            if !kept {
                image.lost += 1;
                if matches!(event, Event::Create(_)) {
                    // Whatever was written to it afterwards has no name.
                    break;
                }
                continue;
            }
            match event {
                Event::Write(file, at, written) if torn => {
                    image.torn += 1;
                    for (from, piece) in sectors(*at, written) {
                        if dice.below(2) == 0 {
                            apply(&mut bytes, &Event::Write(*file, from, piece.to_vec()));
                        }
                    }
                }
                event => apply(&mut bytes, event),
            }
        }
        bytes
    }
}

/// A write in the pieces that a disk writes as a whole.
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

fn apply(bytes: &mut Option<Vec<u8>>, event: &Event) {
    match (event, bytes.as_mut()) {
        (Event::Create(_), _) => *bytes = Some(Vec::new()),
        (Event::Delete(_), _) => *bytes = None,
        (Event::Truncate(_, length), Some(bytes)) => bytes.resize(*length, 0),
        (Event::Write(_, at, written), Some(bytes)) => {
            let end = at + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            if let Some(place) = bytes.get_mut(*at..end) {
                place.copy_from_slice(written);
            }
        }
        (Event::Truncate(..) | Event::Write(..), None)
        | (Event::Sync(_) | Event::SyncNames | Event::Mark(_), _) => {}
    }
}

#[cfg(test)]
#[path = "power_tests.rs"]
mod tests;
