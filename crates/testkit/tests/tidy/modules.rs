//! Checks the modules of each crate: no import cycles, no duplicate type names, no stop-listed
//! names.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Source, sources};
use crate::{assert_tidy, file_name};

/// Type names that do not describe a value. Use a technical noun instead.
const STOPPED_TYPE_NAMES: &[&str] = &[
    "Again",
    "Answered",
    "Answering",
    "Asked",
    "Asking",
    "At",
    "Begun",
    "Behind",
    "Book",
    "Came",
    "Cast",
    "Casting",
    "Coming",
    "Cut",
    "Did",
    "Door",
    "Doomed",
    "Dresser",
    "Drives",
    "Ended",
    "Era",
    "Flight",
    "Found",
    "Gone",
    "Heard",
    "Hearing",
    "Held",
    "Hot",
    "House",
    "How",
    "Keeper",
    "Keeps",
    "Kept",
    "Known",
    "Leaving",
    "Left",
    "Letter",
    "Likeness",
    "Looked",
    "Lore",
    "Mend",
    "Mended",
    "Mood",
    "Mortal",
    "Naive",
    "Named",
    "Nobody",
    "On",
    "Outgoing",
    "Parcel",
    "Passage",
    "Phonebook",
    "Placed",
    "Ready",
    "Reached",
    "Remembered",
    "Said",
    "Saying",
    "Sight",
    "Sorted",
    "Story",
    "Tape",
    "Teller",
    "Telling",
    "Told",
    "Trouble",
    "Unheard",
    "Using",
    "Wanted",
    "What",
    "Whereabouts",
    "Whole",
    "Why",
    "Wish",
    "Wishes",
    "Word",
    "Written",
];

#[test]
fn top_level_modules_of_a_crate_have_no_cycle() {
    let mut problems = Vec::new();
    for (name, modules) in crates() {
        let cycles = cycles(&modules);
        println!("FIGURE module cycles in crates/{name}: {}", cycles.len());
        for cycle in cycles {
            problems.push(format!(
                "crates/{name}: the modules {} import each other: move the shared part into a \
                 module that imports none of them",
                cycle.join(", ")
            ));
        }
    }
    assert_tidy(&problems);
}

#[test]
fn no_type_name_is_declared_twice_in_a_crate() {
    let mut declared: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for source in crate_sources() {
        let crate_name = crate_of(&source.path);
        for name in top_level_types(&source.text) {
            declared.entry((crate_name.clone(), name)).or_default().push(source.path.clone());
        }
    }
    let twice: Vec<_> = declared.iter().filter(|(_, paths)| paths.len() > 1).collect();
    println!("FIGURE type names declared twice in a crate: {}", twice.len());
    let problems: Vec<String> = twice
        .into_iter()
        .map(|((_, name), paths)| {
            format!("the type {name} is declared in {}: give each its own name", paths.join(", "))
        })
        .collect();
    assert_tidy(&problems);
}

#[test]
fn type_names_are_nouns_of_the_field() {
    let mut problems = Vec::new();
    for source in crate_sources() {
        for name in top_level_types(&source.text) {
            if STOPPED_TYPE_NAMES.contains(&name.as_str()) {
                problems.push(format!(
                    "{}: the type {name} is stop-listed: name it after what the value is",
                    source.path
                ));
            }
        }
    }
    println!("FIGURE stop-listed type names: {}", problems.len());
    assert_tidy(&problems);
}

/// Returns the library sources of all crates, without tests.
fn crate_sources() -> Vec<Source> {
    let mut found = sources();
    found.retain(|source| source.is_rust() && source.is_in_a_crates("src") && !source.is_test());
    found
}

fn crate_of(path: &str) -> String {
    path.split('/').nth(1).unwrap_or_default().to_owned()
}

/// Maps each crate to its top-level modules, and each module to the modules that it imports.
fn crates() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let all = crate_sources();
    let mut crates = BTreeMap::new();
    for root in all.iter().filter(|source| is_root(&source.path)) {
        let name = crate_of(&root.path);
        let code = without_comments(&root.text);
        let modules = declared_modules(&code);
        let exports = reexports(&code);
        let mut imports: BTreeMap<String, BTreeSet<String>> =
            modules.iter().map(|module| (module.clone(), BTreeSet::new())).collect();
        let prefix = format!("crates/{name}/src/");
        for source in all.iter().filter(|source| source.path.starts_with(&prefix)) {
            let inside = source.path.strip_prefix(&prefix).unwrap_or_default();
            let module = inside.split(['/', '.']).next().unwrap_or_default();
            let Some(own) = imports.get_mut(module) else { continue };
            for first in crate_paths(&without_comments(&source.text)) {
                let target =
                    if modules.contains(&first) { Some(&first) } else { exports.get(&first) };
                own.extend(target.filter(|target| **target != *module).cloned());
            }
        }
        crates.insert(name, imports);
    }
    crates
}

fn is_root(path: &str) -> bool {
    path.matches('/').count() == 3
        && ["lib.rs", "main.rs"].contains(&file_name(path.as_ref()).as_str())
}

/// Returns the modules that a crate root declares in separate files.
fn declared_modules(code: &str) -> BTreeSet<String> {
    code.lines()
        .filter_map(|line| {
            let line = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned)
        })
        .collect()
}

/// Maps each name that a crate root re-exports to its module.
fn reexports(code: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in code.split(';') {
        let Some((_, path)) = statement.split_once("use crate::") else { continue };
        let Some((module, names)) = path.split_once("::") else { continue };
        for name in names.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            found.entry(name.to_owned()).or_insert_with(|| module.to_owned());
        }
    }
    found
}

/// Returns the first segment of each path that begins with `crate::`, including paths in braces.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, rest) in code.match_indices("crate::").map(|(at, mark)| code.split_at(at + mark.len()))
    {
        match rest.strip_prefix('{') {
            None => found.extend(identifier(rest)),
            Some(group) => {
                let (mut depth, mut is_first) = (1, true);
                for (at, letter) in group.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => is_first = true,
                        _ if depth == 1 && is_first && !letter.is_whitespace() => {
                            found.extend(group.get(at..).and_then(identifier));
                            is_first = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    found
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let name = text.get(..end.unwrap_or(text.len()))?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the groups of modules that import each other, directly or indirectly.
fn cycles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|module| {
            let mut seen = BTreeSet::new();
            let mut open = vec![module];
            while let Some(next) = open.pop() {
                let targets = imports.get(next).into_iter().flatten();
                open.extend(targets.filter(|target| seen.insert(*target)));
            }
            (module, seen)
        })
        .collect();
    let mut found = BTreeSet::new();
    for (module, targets) in &reached {
        if targets.contains(module) {
            let is_mutual =
                |other: &&&String| reached.get(**other).is_some_and(|back| back.contains(module));
            let group: Vec<String> =
                targets.iter().filter(is_mutual).map(|name| (**name).clone()).collect();
            found.insert(group);
        }
    }
    found.into_iter().collect()
}

/// Returns the types that a file declares at the top level.
fn top_level_types(text: &str) -> Vec<String> {
    let is_declared = |line: &str| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let line = line.strip_prefix("pub(super) ").unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        ["struct ", "enum ", "trait ", "type ", "union "]
            .iter()
            .find_map(|keyword| line.strip_prefix(keyword))
            .and_then(identifier)
    };
    text.lines().filter_map(is_declared).collect()
}

fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    text.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

#[test]
fn module_checks_detect_violations() {
    let code = "use crate::a::X;\nuse crate::{b::{Y, c::Z}, d};\nlet x = crate::e::f();";
    let names = ["a", "b", "d", "e"].map(str::to_owned);
    assert_eq!(crate_paths(code), BTreeSet::from(names));
    let graph = |edges: &[(&str, &[&str])]| {
        let edge = |(from, to): &(&str, &[&str])| {
            ((*from).to_owned(), to.iter().map(|name| (*name).to_owned()).collect())
        };
        edges.iter().map(edge).collect::<BTreeMap<String, BTreeSet<String>>>()
    };
    assert!(cycles(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let cyclic = cycles(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]));
    assert_eq!(cyclic, [["a", "b", "c"]]);
    let types =
        top_level_types("pub struct A;\npub(crate) enum B<T> {}\n    struct Inner;\ntype C = A;");
    assert_eq!(types, ["A", "B", "C"]);
}
