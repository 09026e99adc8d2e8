//! Tests of the file watch: which changes it reports, and when.

use std::fs;
use std::os::unix::fs::symlink;

use super::FileWatch;

#[test]
fn change_is_reported_once_and_only_after_it_settles() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&path, "1").unwrap();
    let mut watch = FileWatch::new(vec![path.clone(), other.clone()]);
    assert!(!watch.has_settled_change());
    fs::write(&path, "22").unwrap();
    assert!(!watch.has_settled_change(), "the file may still be written");
    fs::write(&path, "333").unwrap();
    assert!(!watch.has_settled_change(), "the file changed again");
    assert!(watch.has_settled_change());
    assert!(!watch.has_settled_change(), "a change is reported once");
    fs::write(&other, "1").unwrap();
    assert!(!watch.has_settled_change());
    assert!(watch.has_settled_change(), "a new file is a change");
    fs::remove_file(&other).unwrap();
    assert!(!watch.has_settled_change());
    assert!(watch.has_settled_change(), "a removed file is a change");
}

/// An editor replaces a file by a rename. Kubernetes replaces the link to the folder that holds all
/// files of a volume. Both new files may have the length and the time of the old file.
#[test]
fn renamed_files_and_replaced_links_are_changes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for version in ["v1", "v2"] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("config"), version).unwrap();
    }
    symlink("v1", at("..data")).unwrap();
    symlink("..data/config", at("config")).unwrap();
    let mut watch = FileWatch::new(vec![at("config")]);
    symlink("v2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert!(!watch.has_settled_change());
    assert!(watch.has_settled_change());
    fs::write(at("part"), "v3").unwrap();
    fs::rename(at("part"), at("v2").join("config")).unwrap();
    assert!(!watch.has_settled_change());
    assert!(watch.has_settled_change());
}
