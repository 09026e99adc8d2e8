//! The tidy test: what the eye forgets in review, checked over the whole tree.
//!
//! Each check gathers every problem before it fails, and each problem says what is wrong, where,
//! and what to do about it.

#![expect(clippy::panic, reason = "a tree that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use throughline_testkit::workspace_root;

const EVERYTHING: &[&str] = &[
    "agent",
    "codec",
    "core",
    "provider",
    "server",
    "sim",
    "store",
    "throughline",
    "tools",
    "trace",
];

/// Which crates of ours each crate may depend on. Nothing may depend on `testkit` but tests.
const ARROWS: &[(&str, &[&str])] = &[
    ("agent", &["core"]),
    ("cli", EVERYTHING),
    ("codec", &["core"]),
    ("core", &[]),
    ("provider", &["codec", "core"]),
    ("server", &["agent", "codec", "core"]),
    ("sim", &["codec", "core"]),
    ("store", &["core"]),
    ("testkit", &["core"]),
    ("throughline", EVERYTHING),
    ("tools", &["agent", "core"]),
    ("trace", &["core", "tools"]),
];

/// The wires that must exist. A further folder counts as a wire once it implements `Codec`.
const WIRES: [&str; 5] = ["anthropic", "responses", "chat", "gemini", "converse"];

const ROOMS: [&str; 6] =
    ["mod.rs", "wire.rs", "encode.rs", "decode.rs", "stream.rs", "contract.rs"];

const MOST_LINES: usize = 600;

/// Files that may be longer than `MOST_LINES`, each with a comment that says why.
const LONG_FILES: &[&str] = &[];

/// What counts as source: written by hand, and read by people. Recorded data may contain anything.
const SOURCE_EXTENSIONS: [&str; 11] =
    ["", "css", "html", "js", "md", "rs", "sh", "toml", "ts", "yaml", "yml"];

/// Folders in which one machine keeps its work. They are spelled in two halves so that this file
/// passes its own check.
const MACHINE_FOLDERS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

#[test]
fn arrows_between_crates_point_down() {
    let mut problems = Vec::new();
    for crate_folder in folders_in(&workspace_root().join("crates")) {
        let name = file_name(&crate_folder);
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            problems.push(format!(
                "crates/{name} is not on the map: add it to ARROWS in this test and to \
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
                    "crates/{name}/Cargo.toml ships throughline-testkit: move it under \
                     [dev-dependencies]"
                ));
            } else if !allowed.contains(&dependency.as_str()) {
                problems.push(format!(
                    "crates/{name}/Cargo.toml depends on {dependency}, but {name} may use only \
                     {allowed:?}: meet through a port in core instead, and let the cli join them"
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn the_simulators_come_to_their_own_verdicts() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("crates/sim/src/")) {
        for (number, line) in source.numbered_lines() {
            if let Some(borrowed) = borrowed_verdict(line) {
                problems.push(format!(
                    "{}:{number} uses `{borrowed}`: a simulator that asks the audit or a codec \
                     whether a request is good proves nothing about them; read the raw JSON and \
                     verify it with the simulator's own keys and state",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn every_wire_has_the_same_rooms() {
    let source = workspace_root().join("crates/codec/src");
    let mut problems = Vec::new();
    for wire in wires(&source) {
        let missing: Vec<&str> =
            ROOMS.into_iter().filter(|room| !source.join(&wire).join(room).is_file()).collect();
        if !missing.is_empty() {
            problems.push(format!(
                "crates/codec/src/{wire} has no {missing:?}: every wire folder has the same six \
                 files, so that who knows one knows all; add what is missing"
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
                 nobody can find it"
            )
        })
        .collect();
    assert_tidy(&problems);
}

#[test]
fn every_module_says_what_it_is_for() {
    let problems: Vec<String> = sources()
        .into_iter()
        .filter(|source| source.is_rust() && source.is_in_a_crates("src"))
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| {
            format!(
                "{} does not begin with a module doc: open it with //! and a sentence on what \
                 it holds and why",
                source.path
            )
        })
        .collect();
    assert_tidy(&problems);
}

#[test]
fn no_source_names_a_folder_of_one_machine() {
    let mut problems = Vec::new();
    for source in sources() {
        for (number, line) in source.numbered_lines() {
            if let Some(folder) = machine_folder(line) {
                problems.push(format!(
                    "{}:{number} names a path under {folder}: write it relative to the workspace, \
                     or choose a neutral example such as /srv/example",
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
                    "{}:{number} ignores a test: mend it, or delete it and say why in the commit; \
                     a test that needs absent data calls throughline_testkit::skip",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

#[test]
fn files_end_early() {
    let mut problems = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        let is_code = source.is_rust() && !source.is_test();
        if is_code && lines > MOST_LINES && !LONG_FILES.contains(&source.path.as_str()) {
            problems.push(format!(
                "{} has {lines} lines, more than {MOST_LINES}: split it where its reader changes \
                 the subject, or add it to LONG_FILES in this test with the reason",
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
        let [_, rule, test, file] = cells[..] else {
            problems.push(format!("docs/specification.md: a row is not of four cells: {row}"));
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
        // An example is a program, as the cli is.
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
fn the_checks_can_tell_right_from_wrong() {
    let [machine, ..] = MACHINE_FOLDERS;
    assert_eq!(machine_folder(&format!("see {machine}notes.md")), Some(machine));
    assert_eq!(machine_folder(&format!("see `{machine}notes.md`")), Some(machine));
    assert_eq!(machine_folder(&format!("https://example.com{machine}notes.md")), None);
    assert_eq!(machine_folder(&format!("../..{machine}notes.md")), None);

    assert!(ignores_a_test("    #[ignore]"));
    assert!(ignores_a_test("#[ignore = \"slow\"]"));
    assert!(ignores_a_test("#[cfg_attr(windows, ignore)]"));
    assert!(!ignores_a_test("// Never write #[ignore] here."));

    assert_eq!(borrowed_verdict("use throughline_codec::audit;"), Some("audit"));
    assert_eq!(borrowed_verdict("use crate::chat::contract;"), Some("::contract"));
    assert_eq!(borrowed_verdict("if profile.contract != Contract::Stateless {"), None);
    assert_eq!(borrowed_verdict("let turn = read(asking); // and no audit"), None);

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

/// What of a line takes a verdict on a request from elsewhere. Facts about models are shared; what follows from them
/// is not.
fn borrowed_verdict(line: &str) -> Option<&'static str> {
    const BORROWED: [&str; 7] = [
        "audit",
        "Audit",
        "Violation",
        "contract::",
        "::contract",
        "decode_request",
        "throughline_codec::guess",
    ];
    let code = line.split("//").next().unwrap_or_default();
    BORROWED.into_iter().find(|word| code.contains(word))
}

fn assert_tidy(problems: &[String]) {
    assert!(problems.is_empty(), "not tidy:\n  {}\n", problems.join("\n  "));
}

/// Crates of ours that this one is built with, by the name of their folder. What only its tests
/// use is free, because no user of the crate ever compiles it.
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

/// The wire folders: those that must exist, and any other that implements a codec.
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

/// The modules that the `CODECS` slice names, as `anthropic` in `&anthropic::Anthropic`.
fn registry(library: &str) -> Option<BTreeSet<String>> {
    let (_, declaration) = library.split_once("CODECS:")?;
    let (_, value) = declaration.split_once('=')?;
    let (slice, _) = value.split_once("];")?;
    let modules = slice
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
        .filter(|word| word.starts_with(char::is_lowercase) && *word != "crate")
        .map(str::to_owned);
    Some(modules.collect())
}

/// The machine's folder that an absolute path in this line lies under. A path with a host or a
/// relative part before the folder is somebody else's.
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

/// One file written by hand, with its path from the workspace root.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether it lies in this folder of some crate, as in `crates/core/src/item.rs`.
    fn is_in_a_crates(&self, folder: &str) -> bool {
        let mut parts = self.path.split('/');
        parts.next() == Some("crates") && parts.nth(1) == Some(folder)
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("_tests.rs")
            || self.is_in_a_crates("tests")
            || self.is_in_a_crates("benches")
    }

    fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every source file of the tree, sorted by path. What is not text is no source.
fn sources() -> Vec<Source> {
    let root = workspace_root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        folders.extend(folders_in(&folder));
        for path in files_in(&folder) {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            if !SOURCE_EXTENSIONS.contains(&extension.as_ref()) {
                continue;
            }
            if let (Ok(text), Ok(inside)) = (fs::read_to_string(&path), path.strip_prefix(&root)) {
                found.push(Source { path: inside.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(!found.is_empty(), "no source files under {}", root.display());
    found
}

/// The folders directly in a folder, but for those that tools fill.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    entries_in(folder)
        .into_iter()
        .filter(|path| path.is_dir() && !path.is_symlink())
        .filter(|path| !["target", ".git", "node_modules"].contains(&file_name(path).as_str()))
        .collect()
}

/// The files directly in a folder. In a linked worktree `.git` is a file, and git's own.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| path.is_file() && file_name(path) != ".git";
    entries_in(folder).into_iter().filter(is_ours).collect()
}

fn entries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// A file of the tree; empty where there is none.
fn read(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path)).unwrap_or_default()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
