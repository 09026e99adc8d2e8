//! Tests that the facade re-exports every name explicitly and only once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;

use throughline_testkit::workspace_root;

/// Returns the names that a source file re-exports, after renames with `as`.
fn exported_names(source: &str) -> Vec<String> {
    let code: Vec<&str> = source.lines().filter(|line| !line.trim().starts_with("//")).collect();
    let code = code.join("\n");
    let mut names = Vec::new();
    for statement in code.split("pub use ").skip(1) {
        let (path, _) = statement.split_once(';').unwrap();
        let list = path.rsplit_once("::").unwrap().1.trim_matches(['{', '}']);
        let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.extend(list.map(|name| name.rsplit(" as ").next().unwrap_or(name).to_owned()));
    }
    names
}

#[test]
fn every_name_is_exported_once_and_explicitly() {
    let mut files_by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(workspace_root().join("crates/throughline/src")).unwrap() {
        let path = entry.unwrap().path();
        for name in exported_names(&fs::read_to_string(&path).unwrap()) {
            files_by_name.entry(name).or_default().push(path.display().to_string());
        }
    }
    assert!(files_by_name.len() > 300, "only {} names were read", files_by_name.len());
    assert!(!files_by_name.contains_key("*"), "glob re-export: {:?}", files_by_name["*"]);
    files_by_name.retain(|_, files| files.len() > 1);
    assert!(files_by_name.is_empty(), "exported twice: {files_by_name:?}");
}
