//! Searches files for secrets that they must not contain, in windows of 16 bytes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

const WINDOW: usize = 16;

/// Bytes that no file may contain once they are destroyed, split into windows of 16 bytes.
pub(crate) struct Secrets {
    db: Connection,
    file: PathBuf,
    /// Windows of salts that the files contain until the salts are destroyed.
    salts: HashSet<[u8; WINDOW]>,
    /// Windows of sealed bytes that the files contain until these bytes are destroyed.
    sealed: HashSet<[u8; WINDOW]>,
    /// Windows that no file may ever contain: plain text, keys, and salts in the format of key
    /// files.
    never: HashSet<[u8; WINDOW]>,
}

impl Secrets {
    /// Opens a store's database file to collect secrets from it.
    pub(crate) fn of(file: &Path) -> Self {
        let db = Connection::open(file).unwrap();
        let (salts, sealed, never) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { db, file: file.to_owned(), salts, sealed, never }
    }

    pub(crate) fn add_text(&mut self, text: &[u8]) {
        self.never.extend(windows(text));
    }

    /// Adds the salts, keys and sealed bytes of these records.
    pub(crate) fn gather(&mut self, log: &str, seqs: &[i64]) {
        for seq in seqs {
            let filter = format!("l.name = ?1 AND r.seq = {seq}");
            self.gather_where(&filter, log);
        }
    }

    /// Adds the salts, keys and sealed bytes of a log, except those of its erasure records.
    pub(crate) fn gather_all(&mut self, log: &str) {
        self.gather_where("l.name = ?1", log);
    }

    fn gather_where(&mut self, filter: &str, log: &str) {
        let find = format!(
            "SELECT s.epoch, s.salt, r.content FROM records r JOIN logs l ON l.id = r.log
             JOIN salts s ON s.record = r.id WHERE {filter}
             AND r.kind NOT IN ('forgotten', 'expired')"
        );
        let mut find = self.db.prepare(&find).unwrap();
        let rows = find.query_map(params![log], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?))
        });
        let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
        drop(find);
        assert!(!rows.is_empty(), "{log} has nothing");
        for (epoch, salt, content) in rows {
            if epoch == 0 {
                for purpose in ["commitment", "content"] {
                    let purpose = format!("throughline 2026 store {purpose}");
                    self.never.extend(windows(&blake3::derive_key(&purpose, &salt)));
                }
            }
            self.add_salt(&salt);
            self.sealed.extend(windows(&content));
        }
    }

    /// Returns the content of the last pack in a log.
    pub(crate) fn pack(&self, log: &str) -> Vec<u8> {
        let find = "SELECT r.content FROM records r JOIN logs l ON l.id = r.log
                    WHERE l.name = ?1 AND r.span > 0 ORDER BY r.id DESC LIMIT 1";
        self.db.query_row(find, [log], |row| row.get(0)).unwrap()
    }

    /// Adds the salt of a record in the last pack of a log, given its number.
    pub(crate) fn gather_packed_salt(&mut self, log: &str, seq: i64) {
        let find = "SELECT s.salt FROM records r JOIN logs l ON l.id = r.log
                    JOIN salts s ON s.record = r.id - (r.seq - ?2)
                    WHERE l.name = ?1 AND r.span > 0 ORDER BY r.id DESC LIMIT 1";
        let salt: Vec<u8> = self.db.query_row(find, params![log, seq], |row| row.get(0)).unwrap();
        self.add_salt(&salt);
    }

    /// Adds the bytes of a pack that the pack no longer contains.
    pub(crate) fn add_difference(&mut self, before: &[u8], after: &[u8]) {
        let kept: HashSet<_> = windows(after).collect();
        self.sealed.extend(windows(before).filter(|window| !kept.contains(window)));
    }

    /// Adds the sealed bytes and the key of a blob. Does nothing if the store has a master key.
    pub(crate) fn gather_blob(&mut self, content: &str) {
        let secret = "SELECT value FROM kept WHERE name = 'secret'";
        let secret: Vec<u8> = self.db.query_row(secret, [], |row| row.get(0)).unwrap();
        let (epoch, secret) = secret.split_at(4);
        // The mark of a store whose rows have MACs follows the secret.
        let (secret, _) = secret.split_at(32);
        if epoch != [0; 4] {
            return;
        }
        let keyed = |purpose: &str| {
            let mut hasher = blake3::Hasher::new_keyed(secret.try_into().unwrap());
            hasher.update(purpose.as_bytes()).update(b"\nacme\n").update(content.as_bytes());
            *hasher.finalize().as_bytes()
        };
        self.never.extend(windows(&keyed("blob key")));
        let find = "SELECT content FROM blobs WHERE hash = ?1";
        let sealed: Vec<u8> =
            self.db.query_row(find, [keyed("blob")], |row| row.get(0)).expect("the blob is known");
        self.sealed.extend(windows(&sealed));
    }

    /// Adds a salt in the formats of the database and of key files.
    fn add_salt(&mut self, salt: &[u8]) {
        self.salts.extend(windows(salt));
        let digits = salt.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
        self.never.extend(windows(digits.as_bytes()));
    }

    pub(crate) fn gather_salts(&mut self) {
        let mut find = self.db.prepare("SELECT salt FROM salts").unwrap();
        let salts = find.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        for salt in salts {
            self.salts.extend(windows(&salt.unwrap()));
        }
    }

    /// Asserts that the search works: it finds the salts and sealed bytes that are not destroyed
    /// yet.
    pub(crate) fn assert_search_works(&self) {
        let folder = self.file.parent().unwrap();
        let found: HashSet<[u8; WINDOW]> = files(folder)
            .iter()
            .flat_map(|(_, bytes)| windows(bytes).filter(|window| self.is_kept(window)))
            .collect();
        // Windows of a value that crosses a page boundary are not contiguous in the file.
        let kept = self.salts.len() + self.sealed.len();
        assert!(found.len() * 100 >= kept * 95, "{} of {kept}", found.len());
    }

    fn is_kept(&self, window: &[u8; WINDOW]) -> bool {
        self.salts.contains(window) || self.sealed.contains(window)
    }

    /// Asserts that no file contains any of the windows. Sealed bytes may remain in the backup and
    /// its copies, because no remaining key decrypts them. Returns the number of windows and the
    /// number of searched bytes.
    pub(crate) fn assert_in_no_file(&self, folder: &Path) -> (usize, usize) {
        let mut searched = 0;
        // Look up the first three bytes first, which rules out most windows quickly.
        let mut beginnings = vec![false; 1 << 24];
        for window in self.salts.iter().chain(&self.sealed).chain(&self.never) {
            beginnings[beginning(window)] = true;
        }
        for (name, bytes) in files(folder) {
            searched += bytes.len();
            let is_backup = ["backup.db", "copy.db"].contains(&&*name);
            let mut found = 0;
            let mut first = None;
            for (position, window) in windows(&bytes).enumerate() {
                if !beginnings[beginning(&window)] {
                    continue;
                }
                let is_sealed = !is_backup && self.sealed.contains(&window);
                if is_sealed || self.salts.contains(&window) || self.never.contains(&window) {
                    found += 1;
                    first.get_or_insert(position);
                }
            }
            assert_eq!(found, 0, "{found} windows are in {name}, the first at {first:?}");
        }
        (self.salts.len() + self.sealed.len() + self.never.len(), searched)
    }
}

fn windows(bytes: &[u8]) -> impl Iterator<Item = [u8; WINDOW]> {
    bytes.windows(WINDOW).map(|window| window.try_into().unwrap())
}

fn beginning(window: &[u8; WINDOW]) -> usize {
    usize::from(window[0]) << 16 | usize::from(window[1]) << 8 | usize::from(window[2])
}

/// Returns the name and bytes of each file in the folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        })
        .collect()
}
