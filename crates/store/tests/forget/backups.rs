//! Tests of backup key files: which of them the store registers, and when it rewrites them.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use throughline_core::{Content, Store as _};
use throughline_store::{Journal, Options, key_file_of, restore};
use throughline_testkit::Folder;

use crate::secrets::Secrets;
use crate::{all, assert_intact, opened, tenant, write};

async fn forget(journal: &Journal) -> Vec<PathBuf> {
    let destroyed = journal.forget(&tenant(), &"doomed".into(), None).await.unwrap();
    destroyed.unreached.iter().map(|path| PathBuf::from(&**path)).collect()
}

/// Returns the names of the store's internal values that start with `begins`.
fn kept(store: &Path, begins: &str) -> Vec<String> {
    let db = Connection::open(store).unwrap();
    let mut find = db.prepare("SELECT name FROM kept WHERE name LIKE ?1 || '%'").unwrap();
    find.query_map([begins], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn keep(store: &Path, name: &str, value: &str) {
    let insert = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
    Connection::open(store).unwrap().execute(insert, (name, value.as_bytes())).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_key_file_is_reported_until_registered() {
    let folder = Folder::new("backup-rotated");
    let store = folder.join("store.db");
    let journal = opened(&store, None).await;
    write(&journal, 5).await;
    let (latest, earlier) = (folder.join("backup.db"), folder.join("copy.db"));
    journal.backup(&latest, &|_| {}).await.unwrap();
    std::fs::rename(&latest, &earlier).unwrap();
    std::fs::rename(key_file_of(&latest), key_file_of(&earlier)).unwrap();
    journal.backup(&latest, &|_| {}).await.unwrap();
    let mut secrets = Secrets::of(&store);
    secrets.gather_all("doomed");
    assert_eq!(forget(&journal).await, [key_file_of(&latest)]);
    let unknown = journal.register_keys(&folder.join("store.db")).await.unwrap_err().to_string();
    assert!(unknown.contains("is not a backup key file"), "{unknown}");
    assert!(journal.register_keys(&key_file_of(&earlier)).await.unwrap().is_empty());
    secrets.assert_in_no_file(&folder);
    for (number, backup) in [latest, earlier].into_iter().enumerate() {
        let to = folder.join(format!("restored-{number}.db"));
        let restored = restore(&backup, None, &to, &Options::default()).await.unwrap();
        assert_eq!(restored.without_key, 0);
        assert!(restored.gone > 5, "{restored:?}");
    }
    assert_intact(&journal).await;
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_store_leaves_the_key_files_of_the_original_alone() {
    let folder = Folder::new("backup-restored");
    let store = folder.join("store.db");
    let journal = opened(&store, None).await;
    write(&journal, 5).await;
    // Leave a cleanup note in the store, which the next backup then contains too.
    let lost_backup = folder.join("gone.db");
    journal.backup(&lost_backup, &|_| {}).await.unwrap();
    std::fs::remove_file(key_file_of(&lost_backup)).unwrap();
    journal.forget(&tenant(), &"doomed".into(), Some("doomed-1")).await.unwrap();
    assert_eq!(kept(&store, "unreached ").len(), 1);
    let backup = folder.join("backup.db");
    journal.backup(&backup, &|_| {}).await.unwrap();
    journal.close().await.unwrap();

    let before = std::fs::read(key_file_of(&backup)).unwrap();
    let new = folder.join("new.db");
    restore(&backup, None, &new, &Options::default()).await.unwrap();
    for begins in ["backup ", "destroyed ", "unreached "] {
        assert_eq!(kept(&new, begins), Vec::<String>::new());
    }
    let left: Vec<_> = std::fs::read_dir(&*folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".part"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    let copy = opened(&new, None).await;
    assert_intact(&copy).await;
    assert!(forget(&copy).await.is_empty());
    assert_intact(&copy).await;
    copy.close().await.unwrap();
    assert_eq!(std::fs::read(key_file_of(&backup)).unwrap(), before);
    // The original store still reaches its own key files.
    let journal = opened(&store, None).await;
    assert_eq!(forget(&journal).await, [key_file_of(&lost_backup)]);
    assert_ne!(std::fs::read(key_file_of(&backup)).unwrap(), before);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_backup_does_not_make_each_start_rewrite_the_others() {
    let folder = Folder::new("backup-deleted");
    let store = folder.join("store.db");
    let journal = opened(&store, None).await;
    write(&journal, 5).await;
    let (one, deleted) = (folder.join("backup.db"), folder.join("deleted.db"));
    for backup in [&one, &deleted] {
        journal.backup(backup, &|_| {}).await.unwrap();
    }
    std::fs::remove_file(&deleted).unwrap();
    std::fs::remove_file(key_file_of(&deleted)).unwrap();
    assert_eq!(forget(&journal).await, [key_file_of(&deleted)]);
    journal.close().await.unwrap();

    // Keep the file open, so that a new file cannot get the same inode number.
    let held = File::open(key_file_of(&one)).unwrap();
    let journal = opened(&store, None).await;
    assert!(is_same(&held, &key_file_of(&one)), "the key file was rewritten");
    let refused = journal.unregister_keys(&key_file_of(&one)).await.unwrap_err().to_string();
    assert!(
        refused.contains("still exists and is still updated when content is forgotten"),
        "{refused}"
    );
    assert!(journal.unregister_keys(&folder.join("unknown.keys")).await.is_err());
    assert!(journal.unregister_keys(&key_file_of(&deleted)).await.unwrap().is_empty());
    assert_eq!(kept(&store, "unreached "), Vec::<String>::new());
    assert_eq!(kept(&store, "backup ").len(), 1);
    assert_intact(&journal).await;
    journal.close().await.unwrap();
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().unwrap().ino() == std::fs::metadata(path).unwrap().ino()
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_killed_backup_are_removed() {
    let folder = Folder::new("backup-killed");
    let store = folder.join("store.db");
    let journal = opened(&store, None).await;
    write(&journal, 5).await;
    let backup = folder.join("killed.db");
    let keys = key_file_of(&backup);
    journal.backup(&backup, &|_| {}).await.unwrap();
    let part = |path: &Path| {
        path.with_extension(format!("{}.part", path.extension().unwrap().to_str().unwrap()))
    };
    let parts = [part(&backup), part(&keys)];
    std::fs::rename(&backup, &parts[0]).unwrap();
    std::fs::rename(&keys, &parts[1]).unwrap();
    // A backup that was interrupted before its first write has no files.
    let unmade = folder.join("unmade.db");
    let value = format!("making 0123 {}", key_file_of(&unmade).display());
    keep(&store, &format!("backup 0123 {}", unmade.display()), &value);

    // A process that is still writing the backup holds a lock on its key file.
    let writing = File::open(&parts[1]).unwrap();
    writing.lock().unwrap();
    let forget_one = async |item: &str| {
        let destroyed = journal.forget(&tenant(), &"doomed".into(), Some(item)).await.unwrap();
        destroyed.unreached
    };
    assert_eq!(forget_one("doomed-1").await, [keys.display().to_string().into()]);
    assert!(parts.iter().all(|part| part.exists()));
    let other = journal.backup(&backup, &|_| {}).await.unwrap_err().to_string();
    assert!(other.contains("another process is writing the backup"), "{other}");
    drop(writing);
    let mut secrets = Secrets::of(&store);
    secrets.gather("doomed", &[3]);
    assert!(forget_one("doomed-2").await.is_empty());
    secrets.assert_in_no_file(&folder);
    assert!(!parts.iter().any(|part| part.exists()));
    assert_eq!(kept(&store, "backup ").len(), 1);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_does_not_replace_a_file_that_was_created_meanwhile() {
    let folder = Folder::new("backup-meanwhile");
    let store = folder.join("store.db");
    let journal = opened(&store, None).await;
    write(&journal, 5).await;
    let backup = folder.join("backup.db");
    let keys = key_file_of(&backup);
    for (other, rest) in [(&backup, &keys), (&keys, &backup)] {
        let write_meanwhile = |_| std::fs::write(other, "another program's").unwrap();
        let refused = journal.backup(&backup, &write_meanwhile).await.unwrap_err().to_string();
        assert!(refused.contains("exists"), "{refused}");
        assert_eq!(std::fs::read(other).unwrap(), b"another program's");
        assert!(!rest.exists(), "{}", rest.display());
        assert_eq!(kept(&store, "backup "), Vec::<String>::new());
        std::fs::remove_file(other).unwrap();
    }
    journal.backup(&backup, &|_| {}).await.unwrap();
    let to = folder.join("new.db");
    restore(&backup, None, &to, &Options::default()).await.unwrap();
    let copy = opened(&to, None).await;
    assert!(
        all(&copy, "doomed").await.iter().all(|record| matches!(record.content, Content::Here(_)))
    );
    assert!(copy.log(&tenant(), &"other".into()).await.unwrap().is_some());
    copy.close().await.unwrap();
    journal.close().await.unwrap();
}
