//! A SQLite VFS that forwards all calls to the default VFS and records changes to files.
//!
//! SQLite opens files through a `sqlite3_vfs` and calls the methods of each file. This VFS
//! allocates a header in front of each underlying file, and forwards every call with the address of
//! the underlying file.

#![expect(unsafe_code, reason = "a SQLite VFS is a struct of C functions")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi;

use super::IoEvent;

struct ActiveRecording {
    folder: PathBuf,
    names: Vec<String>,
    events: Vec<IoEvent>,
}

static RECORDING: Mutex<Option<ActiveRecording>> = Mutex::new(None);

/// Header of an open file. The underlying file follows it in memory.
#[repr(C)]
struct VfsFile {
    base: ffi::sqlite3_file,
    /// Index of the recorded file; negative if the file is not recorded.
    number: i64,
    /// Whether the next sync also makes the file names in the folder durable, as for new WALs and
    /// journals.
    names_too: i64,
}

/// The VFS that was the default before this one.
struct DefaultVfs(*mut ffi::sqlite3_vfs);
// SAFETY: a VFS stays registered forever, never changes after that, and may be used from any
// thread.
unsafe impl Send for DefaultVfs {}
// SAFETY: as above.
unsafe impl Sync for DefaultVfs {}

static REAL: std::sync::OnceLock<DefaultVfs> = std::sync::OnceLock::new();

/// Registers this VFS as the default, once per process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a null name returns the default VFS, which lives forever. The registered copy
        // lives forever too, because it is leaked.
        let status = unsafe {
            ffi::sqlite3_initialize();
            let real = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!real.is_null(), "SQLite has no default VFS");
            let mut ours = *real;
            ours.zName = c"throughline-power".as_ptr();
            ours.pNext = std::ptr::null_mut();
            ours.szOsFile += c_int::try_from(size_of::<VfsFile>()).unwrap_or(c_int::MAX);
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            REAL.get_or_init(|| DefaultVfs(real));
            ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1)
        };
        assert!(status == ffi::SQLITE_OK, "SQLite rejects the VFS layer: {status}");
    });
}

/// Starts recording changes to the files in this folder.
pub(super) fn begin(folder: &Path) {
    let folder = folder.to_owned();
    *recording() = Some(ActiveRecording { folder, names: Vec::new(), events: Vec::new() });
}

/// Stops the recording. Returns the file names and the events.
pub(super) fn end() -> (Vec<String>, Vec<IoEvent>) {
    let recorded = recording().take();
    recorded.map(|recorded| (recorded.names, recorded.events)).unwrap_or_default()
}

/// Adds an event to the current recording, if there is one.
pub(super) fn note(event: IoEvent) {
    if let Some(recording) = &mut *recording() {
        recording.events.push(event);
    }
}

fn recording() -> MutexGuard<'static, Option<ActiveRecording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ActiveRecording {
    /// Returns the index of the file with this path, or `None` if it is outside the recorded
    /// folder.
    fn number(&mut self, path: &Path) -> Option<usize> {
        let name = path.strip_prefix(&self.folder).ok()?.to_string_lossy().into_owned();
        let position = self.names.iter().position(|existing| *existing == name);
        Some(position.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        }))
    }
}

/// Converts a C string to a path.
///
/// # Safety
///
/// `name` must be null or a C string.
unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
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
    let Some(DefaultVfs(real)) = REAL.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: SQLite passes a name that is null or a C string, and a file with the requested space:
    // for the header and the underlying file. The default VFS initialises its part before any other
    // call.
    unsafe {
        let path = path_of(name).filter(|_| flags & RECORDED != 0);
        // The caller may have created an empty file before SQLite opens it.
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
            let count_before = recording.names.len();
            number = recording.number(&path);
            let is_new = is_new && (!existed || recording.names.len() > count_before);
            if let Some(number) = number.filter(|_| is_new && opened == ffi::SQLITE_OK) {
                recording.events.push(IoEvent::Create(number));
            }
        }
        let ours = file.cast::<VfsFile>();
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
    let Some(DefaultVfs(real)) = REAL.get() else { return ffi::SQLITE_IOERR_DELETE };
    // SAFETY: SQLite passes a C string, which the default VFS accepts.
    unsafe {
        let Some(delete) = (**real).xDelete else { return ffi::SQLITE_IOERR_DELETE };
        let deleted = delete(*real, name, sync_folder);
        if let (Some(recording), Some(path)) = (&mut *recording(), path_of(name))
            && deleted == ffi::SQLITE_OK
            && let Some(number) = recording.number(&path)
        {
            recording.events.push(IoEvent::Delete(number));
            if sync_folder != 0 {
                recording.events.push(IoEvent::SyncNames);
            }
        }
        deleted
    }
}

/// Returns the underlying file that a file of this VFS wraps.
///
/// # Safety
///
/// `file` must point to memory of the size that this VFS requested in `szOsFile`.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: guaranteed by the caller.
    unsafe { file.cast::<VfsFile>().add(1).cast() }
}

/// Records a change to a file, if the file is recorded.
///
/// # Safety
///
/// `file` must have been initialised by `open`.
unsafe fn record(file: *mut ffi::sqlite3_file, event: impl FnOnce(usize) -> IoEvent) {
    // SAFETY: guaranteed by the caller.
    if let Ok(number) = usize::try_from(unsafe { (*file.cast::<VfsFile>()).number }) {
        note(event(number));
    }
}

fn to_usize(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite passes a file that `open` initialised, and this many bytes.
    unsafe {
        let inner = inner(file);
        let Some(write) = (*(*inner).pMethods).xWrite else { return ffi::SQLITE_IOERR_WRITE };
        let written = write(inner, bytes, length, at);
        if written == ffi::SQLITE_OK {
            let length = usize::try_from(length).unwrap_or(0);
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length);
            record(file, |number| IoEvent::Write(number, to_usize(at), bytes.to_vec()));
        }
        written
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: SQLite passes a file that `open` initialised.
    unsafe {
        let inner = inner(file);
        let Some(truncate) = (*(*inner).pMethods).xTruncate else {
            return ffi::SQLITE_IOERR_TRUNCATE;
        };
        let truncated = truncate(inner, length);
        if truncated == ffi::SQLITE_OK {
            record(file, |number| IoEvent::Truncate(number, to_usize(length)));
        }
        truncated
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // The disk is simulated, so a real sync would only take time.
    //
    // SAFETY: SQLite passes a file that `open` initialised.
    unsafe {
        record(file, IoEvent::Sync);
        if std::mem::take(&mut (*file.cast::<VfsFile>()).names_too) != 0 {
            record(file, |_| IoEvent::SyncNames);
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // A size hint makes the default VFS write by itself, and these writes would not be recorded.
    if operation == ffi::SQLITE_FCNTL_SIZE_HINT || operation == ffi::SQLITE_FCNTL_CHUNK_SIZE {
        return ffi::SQLITE_OK;
    }
    // SAFETY: SQLite passes a file that `open` initialised, and a matching argument.
    unsafe {
        let inner = inner(file);
        match (*(*inner).pMethods).xFileControl {
            Some(control) => control(inner, operation, argument),
            None => ffi::SQLITE_NOTFOUND,
        }
    }
}

/// Defines methods that only forward the call to the underlying file.
macro_rules! forward {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*) else $otherwise:expr;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $kind)*) -> c_int {
            // SAFETY: SQLite passes a file that `open` initialised. The underlying file accepts the
            // other arguments.
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
    // SAFETY: SQLite passes a file that `open` initialised.
    unsafe {
        let inner = inner(file);
        if let Some(barrier) = (*(*inner).pMethods).xShmBarrier {
            barrier(inner);
        }
    }
}

/// Version 2 offers shared memory, but no memory mapping, because mapped writes would not be
/// recorded.
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
