//! The layer under SQLite: it forwards everything to the system's own, and writes down what changes files.
//!
//! SQLite asks a `sqlite3_vfs` for files, and each file for its methods. Ours allocates room for its own few bytes before
//! the room of the real file, and hands every call on with the place of the real one.

#![expect(unsafe_code, reason = "SQLite's layers are structs of C functions")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi;

use super::Event;

/// What is recorded now.
struct Recording {
    folder: PathBuf,
    names: Vec<String>,
    events: Vec<Event>,
}

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

/// Our own part of an open file; the real one follows it.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    /// The number of the recorded file; negative for others.
    number: i64,
    /// Whether the next sync is to keep the folder's names too: so it is for logs and journals that may be new.
    names_too: i64,
}

/// The layer that was the default before, for the functions that need it.
struct Real(*mut ffi::sqlite3_vfs);
// SAFETY: SQLite's layers are registered for ever, never change after that, and are made to be used from any thread.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

static REAL: std::sync::OnceLock<Real> = std::sync::OnceLock::new();

/// Makes the layer the default one, once.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a null name asks for the default layer, which lives for ever. The copy of it that is registered lives for
        // ever too, because it is leaked.
        let taken = unsafe {
            ffi::sqlite3_initialize();
            let real = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!real.is_null(), "SQLite has no default layer");
            let mut ours = *real;
            ours.zName = c"throughline-power".as_ptr();
            ours.pNext = std::ptr::null_mut();
            ours.szOsFile += c_int::try_from(size_of::<File>()).unwrap_or(c_int::MAX);
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            REAL.get_or_init(|| Real(real));
            ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1)
        };
        assert!(taken == ffi::SQLITE_OK, "SQLite does not take the layer: {taken}");
    });
}

/// Records the files of that folder from now on.
pub(super) fn begin(folder: &Path) {
    let folder = folder.to_owned();
    *recording() = Some(Recording { folder, names: Vec::new(), events: Vec::new() });
}

/// What was recorded.
pub(super) fn end() -> (Vec<String>, Vec<Event>) {
    let recorded = recording().take();
    recorded.map(|recorded| (recorded.names, recorded.events)).unwrap_or_default()
}

/// Records something.
pub(super) fn note(event: Event) {
    if let Some(recording) = &mut *recording() {
        recording.events.push(event);
    }
}

fn recording() -> MutexGuard<'static, Option<Recording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    /// The number of the file with that path, if it is one of ours.
    fn number(&mut self, path: &Path) -> Option<usize> {
        let name = path.strip_prefix(&self.folder).ok()?.to_string_lossy().into_owned();
        let known = self.names.iter().position(|known| *known == name);
        Some(known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        }))
    }
}

/// The path that a C string holds.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    const RECORDED: c_int =
        ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let Some(Real(real)) = REAL.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: SQLite gives a name that is null or a C string, and a file with the room that the layer asked for: ours, and
    // after it the real one's. The real layer fills its part in before anything else is called.
    unsafe {
        let path = path_of(name).filter(|_| flags & RECORDED != 0);
        // A program may make an empty file itself, and then give it to SQLite.
        let is_empty =
            |path: &PathBuf| std::fs::metadata(path).map_or(true, |file| file.len() == 0);
        let is_new = path.as_ref().is_some_and(is_empty);
        let existed = path.as_ref().is_some_and(|path| path.exists());
        let inner = inner(file);
        (*inner).pMethods = std::ptr::null();
        let Some(open) = (**real).xOpen else { return ffi::SQLITE_CANTOPEN };
        let opened = open(*real, name, inner, flags, out);
        (*file).pMethods =
            if (*inner).pMethods.is_null() { std::ptr::null() } else { &raw const METHODS };
        let mut number = None;
        if let (Some(recording), Some(path)) = (&mut *recording(), path) {
            let known = recording.names.len();
            number = recording.number(&path);
            let is_new = is_new && (!existed || recording.names.len() > known);
            if let Some(number) = number.filter(|_| is_new && opened == ffi::SQLITE_OK) {
                recording.events.push(Event::Create(number));
            }
        }
        let ours = file.cast::<File>();
        (*ours).number = number.map_or(-1, |number| i64::try_from(number).unwrap_or(-1));
        let may_be_new = flags & ffi::SQLITE_OPEN_CREATE != 0;
        (*ours).names_too = i64::from(may_be_new && flags & ffi::SQLITE_OPEN_MAIN_DB == 0);
        opened
    }
}

unsafe extern "C" fn delete(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    let Some(Real(real)) = REAL.get() else { return ffi::SQLITE_IOERR_DELETE };
    // SAFETY: SQLite gives a C string, and the real layer takes the same.
    unsafe {
        let Some(delete) = (**real).xDelete else { return ffi::SQLITE_IOERR_DELETE };
        let deleted = delete(*real, name, sync_folder);
        if let (Some(recording), Some(path)) = (&mut *recording(), path_of(name))
            && deleted == ffi::SQLITE_OK
            && let Some(number) = recording.number(&path)
        {
            recording.events.push(Event::Delete(number));
            if sync_folder != 0 {
                recording.events.push(Event::SyncNames);
            }
        }
        deleted
    }
}

/// The real file of one of ours.
///
/// # Safety
///
/// `file` has the room that the layer asked for.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the caller says so.
    unsafe { file.cast::<File>().add(1).cast() }
}

/// Records a change of a file that is recorded.
///
/// # Safety
///
/// `file` is one that `open` filled in.
unsafe fn changed(file: *mut ffi::sqlite3_file, event: impl FnOnce(usize) -> Event) {
    // SAFETY: the caller says so.
    if let Ok(number) = usize::try_from(unsafe { (*file.cast::<File>()).number }) {
        note(event(number));
    }
}

fn place(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite gives a file that `open` filled in, and that many bytes.
    unsafe {
        let inner = inner(file);
        let Some(write) = (*(*inner).pMethods).xWrite else { return ffi::SQLITE_IOERR_WRITE };
        let written = write(inner, bytes, length, at);
        if written == ffi::SQLITE_OK {
            let length = usize::try_from(length).unwrap_or(0);
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length);
            changed(file, |number| Event::Write(number, place(at), bytes.to_vec()));
        }
        written
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: SQLite gives a file that `open` filled in.
    unsafe {
        let inner = inner(file);
        let Some(truncate) = (*(*inner).pMethods).xTruncate else {
            return ffi::SQLITE_IOERR_TRUNCATE;
        };
        let truncated = truncate(inner, length);
        if truncated == ffi::SQLITE_OK {
            changed(file, |number| Event::Truncate(number, place(length)));
        }
        truncated
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // The disk is played by us: what the real one does costs time and proves nothing.
    // SAFETY: SQLite gives a file that `open` filled in.
    unsafe {
        changed(file, Event::Sync);
        if std::mem::take(&mut (*file.cast::<File>()).names_too) != 0 {
            changed(file, |_| Event::SyncNames);
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    what: c_int,
    argument: *mut c_void,
) -> c_int {
    // A hint about the size makes the real layer write by itself, where nobody sees it.
    if what == ffi::SQLITE_FCNTL_SIZE_HINT || what == ffi::SQLITE_FCNTL_CHUNK_SIZE {
        return ffi::SQLITE_OK;
    }
    // SAFETY: SQLite gives a file that `open` filled in, and an argument that suits the question.
    unsafe {
        let inner = inner(file);
        match (*(*inner).pMethods).xFileControl {
            Some(control) => control(inner, what, argument),
            None => ffi::SQLITE_NOTFOUND,
        }
    }
}

/// Hands a call on to the real file.
macro_rules! forward {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*) else $otherwise:expr;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $kind)*) -> c_int {
            // SAFETY: SQLite gives a file that `open` filled in; everything else is for the real one.
            unsafe {
                let inner = inner(file);
                match (*(*inner).pMethods).$method {
                    Some(method) => method(inner $(, $argument)*),
                    None => $otherwise,
                }
            }
        }
    )*};
}

forward! {
    close = xClose() else ffi::SQLITE_OK;
    read = xRead(bytes: *mut c_void, length: c_int, at: i64) else ffi::SQLITE_IOERR_READ;
    file_size = xFileSize(size: *mut i64) else ffi::SQLITE_IOERR_FSTAT;
    lock = xLock(how: c_int) else ffi::SQLITE_IOERR_LOCK;
    unlock = xUnlock(how: c_int) else ffi::SQLITE_IOERR_UNLOCK;
    check_reserved_lock = xCheckReservedLock(out: *mut c_int) else ffi::SQLITE_IOERR_LOCK;
    sector_size = xSectorSize() else 4096;
    device_characteristics = xDeviceCharacteristics() else 0;
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void)
        else ffi::SQLITE_IOERR_SHMMAP;
    shm_lock = xShmLock(at: c_int, count: c_int, flags: c_int) else ffi::SQLITE_IOERR_SHMLOCK;
    shm_unmap = xShmUnmap(delete: c_int) else ffi::SQLITE_OK;
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: SQLite gives a file that `open` filled in.
    unsafe {
        let inner = inner(file);
        if let Some(barrier) = (*(*inner).pMethods).xShmBarrier {
            barrier(inner);
        }
    }
}

/// Version 2: shared memory, and no mapping of the file itself, which would be written to behind our back.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
