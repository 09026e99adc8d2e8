//! Checks that the rule files and the declared rules match.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::CODECS;
use crate::audit::rule::Rule;
use crate::audit::rule_book::RuleFile;

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn declared_rules() -> impl Iterator<Item = &'static Rule> {
    CODECS.iter().flat_map(|codec| codec.rules()).copied()
}

#[test]
fn each_row_of_the_rule_files_is_a_declared_rule() {
    let mut listed = Vec::new();
    let files = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("rules"));
    for path in files.iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(path).unwrap();
        let file: RuleFile =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        listed.extend(file.rule.into_iter().map(|row| row.id));
    }
    let mut declared: Vec<&str> = declared_rules().map(|rule| rule.id).collect();
    listed.sort();
    declared.sort_unstable();
    assert_eq!(listed, declared, "the rows of rules/*.toml and the declared rules differ");
}

#[test]
fn each_example_file_belongs_to_a_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules/examples");
    let rules = entries(&folder).into_iter().flat_map(|prefix| entries(&prefix));
    let found: BTreeSet<PathBuf> = rules.flat_map(|rule| entries(&rule)).collect();
    let mut used = BTreeSet::new();
    for rule in declared_rules() {
        let prior = (1..=rule.example.prior.len()).map(|number| format!("prior-{number}.json"));
        let names = prior.chain(["failing.json".to_owned(), "fixed.json".to_owned()]);
        used.extend(names.map(|name| folder.join(rule.id).join(name)));
    }
    assert_eq!(found, used, "the files in rules/examples and the examples of the rules differ");
}
