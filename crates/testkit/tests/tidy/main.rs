//! Checks of the whole source tree for problems that reviews easily miss.
//!
//! Each check collects all problems before it fails. Each problem states what is wrong, where, and
//! what to do.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "an unreadable tree fails the test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod deny;
mod modules;
mod profiles;
mod tree;
mod words;

use throughline_testkit::workspace_root;

use crate::tree::sources;

const ALL_CRATES: &[&str] = &[
    "agent",
    "codec",
    "core",
    "json",
    "provider",
    "replay",
    "server",
    "sim",
    "spec",
    "store",
    "throughline",
    "tools",
    "trace",
];

/// The workspace crates that each crate may depend on. Only tests may depend on `testkit`.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("agent", &["core", "json", "spec"]),
    ("cli", ALL_CRATES),
    ("codec", &["core", "json", "spec"]),
    ("core", &["json"]),
    ("json", &[]),
    ("provider", &["codec", "core", "json"]),
    ("replay", &["codec", "core", "json"]),
    ("server", &["agent", "codec", "core", "json", "replay", "spec"]),
    ("sim", &["codec", "core", "json"]),
    ("spec", &["core", "json"]),
    ("store", &["core", "json", "spec"]),
    ("testkit", &["core"]),
    ("throughline", ALL_CRATES),
    ("tools", &["agent", "core", "json"]),
    ("trace", &["core", "json", "spec", "tools"]),
];

/// Folders of the required wires. Any other folder counts as a wire if its `mod.rs` implements
/// `Codec`.
const WIRES: [&str; 5] = ["anthropic", "responses", "chat", "gemini", "converse"];

const WIRE_FILES: [&str; 6] =
    ["mod.rs", "wire.rs", "encode.rs", "decode.rs", "stream.rs", "contract.rs"];

const MOST_LINES: usize = 600;

/// Files that may be longer than `MOST_LINES`. Each entry needs a comment with the reason.
const LONG_FILES: &[&str] = &[];

/// Path prefixes that exist only on one machine. Each string is split, so that this file passes its
/// own check.
const MACHINE_FOLDERS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

#[test]
fn crates_depend_only_on_allowed_crates() {
    let mut problems = Vec::new();
    for crate_folder in folders_in(&workspace_root().join("crates")) {
        let name = file_name(&crate_folder);
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(known, _)| *known == name)
        else {
            problems.push(format!(
                "crates/{name} is not listed: add it to ALLOWED_DEPENDENCIES in this test and to \
                 ARCHITECTURE.md, or move its code into a crate that exists"
            ));
            continue;
        };
        let manifest = fs::read_to_string(crate_folder.join("Cargo.toml"))
            .unwrap_or_else(|error| panic!("crates/{name}/Cargo.toml: {error}"));
        let manifest: toml::Table = toml::from_str(&manifest)
            .unwrap_or_else(|error| panic!("crates/{name}/Cargo.toml: {error}"));
        for dependency in our_dependencies(&manifest) {
            if dependency == "testkit" {
                problems.push(format!(
                    "crates/{name}/Cargo.toml depends on throughline-testkit: move it to \
                     [dev-dependencies]"
                ));
            } else if !allowed.contains(&dependency.as_str()) {
                problems.push(format!(
                    "crates/{name}/Cargo.toml depends on {dependency}, but {name} may use only \
                     {allowed:?}: define a port in core instead, and connect both in the cli"
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn simulators_judge_requests_independently() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("crates/sim/src/")) {
        for (number, line) in source.numbered_lines() {
            if let Some(borrowed) = find_borrowed_verdict(line) {
                problems.push(format!(
                    "{}:{number} uses `{borrowed}`: a simulator that uses the audit or a codec \
                     to judge a request is no independent check; read the raw JSON and \
                     verify it with the simulator's own keys and state",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn every_wire_has_the_same_files() {
    let source = workspace_root().join("crates/codec/src");
    let mut problems = Vec::new();
    for wire in wires(&source) {
        let missing: Vec<&str> = WIRE_FILES
            .into_iter()
            .filter(|file| !source.join(&wire).join(file).is_file())
            .collect();
        if !missing.is_empty() {
            problems.push(format!(
                "crates/codec/src/{wire} has no {missing:?}: every wire folder has the same six \
                 files, so that all wires are easy to navigate; add the missing ones"
            ));
        }
    }
    assert_tidy(&problems);
}

#[test]
fn every_wire_is_registered() {
    let source = workspace_root().join("crates/codec/src");
    let library = fs::read_to_string(source.join("lib.rs"))
        .unwrap_or_else(|error| panic!("crates/codec/src/lib.rs: {error}"));
    let Some(registry) = registry(&library) else {
        panic!("crates/codec/src/lib.rs has no CODECS slice: declare the registry of codecs there");
    };
    let problems: Vec<String> = wires(&source)
        .into_iter()
        .filter(|wire| !registry.contains(wire.as_str()))
        .map(|wire| {
            format!(
                "the wire {wire} is not in CODECS in crates/codec/src/lib.rs: add its line, or \
                 the codec cannot be found"
            )
        })
        .collect();
    assert_tidy(&problems);
}

#[test]
fn every_module_has_a_doc_comment() {
    let problems: Vec<String> = sources()
        .into_iter()
        .filter(|source| source.is_rust() && source.is_in_a_crates("src"))
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| {
            format!(
                "{} does not begin with a module doc: add //! and a sentence on what \
                 the module contains and why",
                source.path
            )
        })
        .collect();
    assert_tidy(&problems);
}

#[test]
fn no_source_contains_machine_paths() {
    let mut problems = Vec::new();
    for source in sources() {
        for (number, line) in source.numbered_lines() {
            if let Some(folder) = machine_folder(line) {
                problems.push(format!(
                    "{}:{number} contains a path under {folder}: write it relative to the workspace, \
                     or use a neutral example such as /srv/example",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn no_test_is_ignored() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (number, line) in source.numbered_lines() {
            if ignores_a_test(line) {
                problems.push(format!(
                    "{}:{number} ignores a test: fix it, or delete it and give the reason in the commit; \
                     a test that needs absent data calls throughline_testkit::skip",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn files_stay_below_the_line_limit() {
    let mut problems = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        let is_code = source.is_rust() && !source.is_test();
        if is_code && lines > MOST_LINES && !LONG_FILES.contains(&source.path.as_str()) {
            problems.push(format!(
                "{} has {lines} lines, more than {MOST_LINES}: split it by topic, \
                 or add it to LONG_FILES in this test with the reason",
                source.path
            ));
        }
    }
    for path in LONG_FILES {
        if !workspace_root().join(path).is_file() {
            problems.push(format!("{path} is in LONG_FILES but does not exist: remove its line"));
        }
    }
    assert_tidy(&problems);
}

#[test]
fn every_test_that_the_specification_names_exists() {
    let table = read("docs/specification.md");
    let mut problems = Vec::new();
    let rows = table.lines().filter(|line| line.starts_with("| 0"));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        // Some tables also have a column for the status.
        let [_, rule, .., test, file] = cells[..] else {
            problems.push(format!("docs/specification.md: a row has too few cells: {row}"));
            continue;
        };
        let test = test.trim_matches('`');
        if !read(file).contains(&format!("fn {test}(")) {
            problems.push(format!("docs/specification.md: {rule}: there is no {test} in {file}"));
        }
        count += 1;
    }
    assert!(count > 50, "only {count} rows were found");
    assert_tidy(&problems);
}

#[test]
fn only_the_cli_and_the_testkit_read_the_environment() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        // Examples are applications, so they may read the environment like the cli.
        let homes = ["crates/cli/", "crates/testkit/", "crates/throughline/examples/"];
        if homes.iter().any(|home| source.path.starts_with(home)) {
            continue;
        }
        for (number, line) in source.numbered_lines() {
            if !line.trim_start().starts_with("//") && line.contains("env::var") {
                problems.push(format!(
                    "{}:{number} reads the environment: take the value as an argument, and let \
                     the cli read it",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn checks_detect_violations() {
    let [machine, ..] = MACHINE_FOLDERS;
    assert_eq!(machine_folder(&format!("see {machine}notes.md")), Some(machine));
    assert_eq!(machine_folder(&format!("see `{machine}notes.md`")), Some(machine));
    assert_eq!(machine_folder(&format!("https://example.com{machine}notes.md")), None);
    assert_eq!(machine_folder(&format!("../..{machine}notes.md")), None);

    assert!(ignores_a_test("    #[ignore]"));
    assert!(ignores_a_test("#[ignore = \"slow\"]"));
    assert!(ignores_a_test("#[cfg_attr(windows, ignore)]"));
    assert!(!ignores_a_test("// Never write #[ignore] here."));

    assert_eq!(find_borrowed_verdict("use throughline_codec::audit;"), Some("audit"));
    assert_eq!(find_borrowed_verdict("use crate::chat::contract;"), Some("::contract"));
    assert_eq!(find_borrowed_verdict("if profile.contract != Contract::Stateless {"), None);
    assert_eq!(find_borrowed_verdict("let turn = read(asking); // and no audit"), None);

    let library = "pub static CODECS: &[&dyn Codec] = &[\n    // &gemini::Gemini,\n    \
                   &anthropic::Anthropic,\n];\nmod chat;";
    let registry = registry(library).unwrap_or_default();
    assert_eq!(registry, BTreeSet::from(["anthropic".to_owned()]));

    let manifest = "[dependencies]\nthroughline-core.workspace = true\nserde = \"1\"\n\
                    other = { package = \"throughline-sim\", path = \"../sim\" }\n\
                    [target.'cfg(unix)'.dependencies]\nthroughline = { path = \"..\" }\n\
                    [dev-dependencies]\nthroughline-testkit.workspace = true";
    let manifest: toml::Table = toml::from_str(manifest).expect("the example is TOML");
    assert_eq!(our_dependencies(&manifest), ["core", "sim", "throughline"]);
}

/// Returns the word that shows that this line of code uses another crate's verdict on a request.
/// Crates may share facts about models, but each must reach its own verdict.
fn find_borrowed_verdict(line: &str) -> Option<&'static str> {
    const BORROWED: [&str; 8] = [
        "audit",
        "Audit",
        "Violation",
        "contract::",
        "::contract",
        "decode_request",
        "throughline_codec::guess",
        "throughline_codec::detect",
    ];
    let code = line.split("//").next().unwrap_or_default();
    BORROWED.into_iter().find(|term| code.contains(term))
}

fn assert_tidy(problems: &[String]) {
    assert!(problems.is_empty(), "not tidy:\n  {}\n", problems.join("\n  "));
}

/// Returns the folder names of the workspace crates that a crate depends on. Dev-dependencies are
/// ignored, because users of the crate never compile them.
fn our_dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(toml::Value::as_table))
        .chain([manifest]);
    let mut names: Vec<String> = tables
        .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")])
        .flatten()
        .filter_map(toml::Value::as_table)
        .flatten()
        .map(|(key, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(key))
        .filter_map(|package| match package {
            "throughline" => Some("throughline".to_owned()),
            other => other.strip_prefix("throughline-").map(str::to_owned),
        })
        .collect();
    names.sort();
    names
}

/// Returns the names of the wire folders: the required folders, and all others that implement a
/// codec.
fn wires(source: &Path) -> BTreeSet<String> {
    let implements_a_codec = |folder: &PathBuf| {
        fs::read_to_string(folder.join("mod.rs")).is_ok_and(|text| text.contains("impl Codec for"))
    };
    folders_in(source)
        .into_iter()
        .filter(implements_a_codec)
        .map(|folder| file_name(&folder))
        .chain(WIRES.map(str::to_owned))
        .collect()
}

/// Returns the modules in the `CODECS` slice, such as `anthropic` in `&anthropic::Anthropic`.
fn registry(library: &str) -> Option<BTreeSet<String>> {
    let (_, declaration) = library.split_once("CODECS:")?;
    let (_, value) = declaration.split_once('=')?;
    let (slice, _) = value.split_once("];")?;
    let modules = slice
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
        .filter(|name| name.starts_with(char::is_lowercase) && *name != "crate")
        .map(str::to_owned);
    Some(modules.collect())
}

/// Returns the machine-specific folder that starts an absolute path in this line. Folders in URLs
/// or relative paths do not count.
fn machine_folder(line: &str) -> Option<&'static str> {
    let continues_a_path =
        |letter: char| letter.is_alphanumeric() || ['.', '_', '-'].contains(&letter);
    MACHINE_FOLDERS.into_iter().find(|folder| {
        line.match_indices(folder)
            .any(|(at, _)| !line.get(..at).is_some_and(|before| before.ends_with(continues_a_path)))
    })
}

fn ignores_a_test(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[ignore") || (line.starts_with("#[cfg_attr(") && line.contains("ignore"))
}

/// Returns the subfolders of a folder, without those that tools generate.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    entries_in(folder)
        .into_iter()
        .filter(|path| path.is_dir() && !path.is_symlink())
        .filter(|path| !["target", ".git", "node_modules"].contains(&file_name(path).as_str()))
        .collect()
}

/// Returns the files directly in a folder. In a linked worktree `.git` is a file, which is skipped.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.is_file() && file_name(path) != ".git";
    entries_in(folder).into_iter().filter(is_ours).collect()
}

fn entries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Returns the text of a file, or an empty string if it does not exist.
fn read(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path)).unwrap_or_default()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
