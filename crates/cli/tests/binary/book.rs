//! Tests of the book as a whole: its table of contents, its generated pages, and the values in its
//! tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throughline_codec::CODECS;
use throughline_testkit::{figure, skip, workspace_root};

use crate::console::driver::Browser;
use crate::docs::{pages, relative_path};
use crate::support::kept::TestStore;
use crate::support::{scratch, throughline};

fn page(name: &str) -> String {
    std::fs::read_to_string(workspace_root().join("docs").join(name)).unwrap()
}

/// Returns the pages that the table of contents lists, with their depths.
fn chapters() -> Vec<(usize, String)> {
    let chapter = regex::Regex::new(r"^( *)(?:- )?\[[^\]]+\]\(([^)]+)\)$").unwrap();
    let mut chapters = Vec::new();
    for (number, line) in (1..).zip(page("SUMMARY.md").lines()) {
        if line.is_empty() || line.starts_with("# ") {
            continue;
        }
        let captures = chapter.captures(line);
        let captures = captures.unwrap_or_else(|| panic!("SUMMARY.md:{number}: {line}"));
        assert_eq!(captures[1].len() % 4, 0, "SUMMARY.md:{number}: indent by four spaces: {line}");
        chapters.push((captures[1].len() / 4, captures[2].to_owned()));
    }
    chapters
}

#[test]
fn table_of_contents_lists_every_page_once() {
    let chapters = chapters();
    let mut listed = BTreeSet::new();
    for (_, name) in &chapters {
        assert!(listed.insert(name.as_str()), "docs/SUMMARY.md lists {name} twice");
        assert!(workspace_root().join("docs").join(name).exists(), "there is no docs/{name}");
    }
    for ((before, _), (depth, name)) in chapters.iter().zip(chapters.iter().skip(1)) {
        assert!(*depth <= before + 1, "docs/SUMMARY.md: {name} skips a level");
    }
    for page in pages() {
        let name = relative_path(&page);
        let Some(name) = name.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md") else {
            continue;
        };
        assert!(listed.contains(name), "docs/SUMMARY.md does not list {name}");
    }
    figure("pages of the book", listed.len());
}

/// Links that leave the book, although the published book contains only the files in `docs`.
const OUTSIDE_LINKS: &[&str] = &["docs/security.md: ../SECURITY.md"];

#[test]
fn book_links_only_to_its_own_files() {
    let link = regex::Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut problems = Vec::new();
    for page in pages().into_iter().filter(|page| relative_path(page).starts_with("docs/")) {
        let name = relative_path(&page);
        let depth = name.matches('/').count() - 1;
        for captures in link.captures_iter(&std::fs::read_to_string(&page).unwrap()) {
            let target = &captures[1];
            let link = format!("{name}: {target}");
            if target.matches("../").count() > depth && !OUTSIDE_LINKS.contains(&link.as_str()) {
                problems.push(link);
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new(), "these links are outside of the book");
}

/// Returns the mdBook that `scripts/book` installed, or the one on the path.
fn mdbook() -> Option<PathBuf> {
    let installed = workspace_root().join("target/mdbook/bin/mdbook");
    [installed, PathBuf::from("mdbook")].into_iter().find(|program| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

/// Questions of newcomers as they would type them into the search, and the pages with the answers.
const SEARCHES: &[(&str, &str)] = &[
    ("connect Claude Code", "clients/claude-code.html"),
    ("try without key", "quickstart.html"),
    ("codex encrypted content switch model", "clients/codex.html"),
    ("key with monthly budget", "configuration.html"),
    ("several nodes", "several-nodes.html"),
    ("how long are prompts stored", "stored-data.html"),
    ("erase data of one person", "stored-data.html"),
    ("rotate provider key", "key-rotation.html"),
    ("add own endpoint vllm", "add-provider.html"),
    ("python agent with a tool", "agents-in-code.html"),
    ("hardware requests per second", "sizing.html"),
    ("timeout default", "limits.html"),
    ("approve a tool call", "console.html"),
    ("compare with litellm", "comparison.html"),
    ("database fails", "operations.html"),
    ("which data leaves the machine", "stored-data.html"),
    ("expected thinking but found tool_use", "rules/anthropic/tool-loop-needs-thinking.html"),
];

/// Number of results that a reader looks at.
const LOOKED_AT: usize = 8;

#[test]
fn mdbook_builds_the_book_with_a_search_that_finds_answers() {
    let Some(mdbook) = mdbook() else {
        skip("the book: run scripts/book first; the workflow `docs` builds and publishes it");
        return;
    };
    let folder = scratch("book");
    let output = Command::new(mdbook)
        .args(["build", "--dest-dir"])
        .arg(&folder)
        .arg(workspace_root().join("docs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (_, name) in chapters() {
        let html = folder.join(name).with_extension("html");
        assert!(html.exists(), "mdbook did not write {}", html.display());
    }
    let Some(browser) = Browser::start() else {
        skip("the search of the book in Chromium: run scripts/browser first");
        return;
    };
    let results = "[...document.querySelectorAll('#mdbook-searchresults li > a')]";
    let mut misses = Vec::new();
    for (words, page) in SEARCHES {
        browser.open("about:blank");
        let query = words.replace(' ', "%20");
        browser.open(&format!("file://{}/quickstart.html?search={query}", folder.display()));
        browser.wait(&format!("{results}.length > 0"));
        let found = browser.run(&format!("return {results}.map((one) => one.pathname)"));
        let found: Vec<String> = serde_json::from_value(found).unwrap();
        let place = found.iter().position(|path| path.ends_with(&format!("/{page}")));
        if place.is_none_or(|place| place >= LOOKED_AT) {
            misses.push(format!("{words}: {page} is at {place:?}"));
        }
    }
    assert_eq!(misses, Vec::<String>::new(), "correct the words of these pages");
    figure("searches of newcomers that the book answers", SEARCHES.len());
}

#[test]
fn generated_rule_book_pages_are_current() {
    let is_written = |name: &str, arguments: &[&str]| {
        let written = throughline(&[&["rules", "--markdown"], arguments].concat(), b"");
        assert_eq!((written.code, written.err.as_str()), (0, ""));
        let line = arguments.join(" ");
        assert!(
            page(name) == written.out,
            "docs/{name} is outdated; regenerate it: throughline rules --markdown {line} > docs/{name}"
        );
    };
    is_written("faq.md", &[]);
    let questions = page("faq.md");
    let mut rules = 0;
    for codec in CODECS {
        let wire = codec.wire();
        is_written(&format!("providers/{wire}.md"), &["--wire", wire.as_str()]);
        for rule in codec.rules() {
            assert!(questions.contains(&format!("`{}`", rule.id)), "{} is missing", rule.id);
            rules += 1;
        }
    }
    figure("rules that the page of error messages covers", rules);
}

#[test]
fn rule_pages_are_current() {
    let written = scratch("rule-pages");
    std::fs::remove_dir_all(&written).ok();
    let output = throughline(&["rules", "--pages", written.to_str().unwrap()], b"");
    assert_eq!(output.code, 0, "{}", output.err);
    let (expected, found) = (files(&written), files(&workspace_root().join("docs/rules")));
    let hint = "run: rm -r docs/rules && throughline rules --pages docs/rules";
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "docs/rules has other files than the rules; {hint}"
    );
    for (name, text) in &expected {
        assert!(found[name] == *text, "docs/rules/{name} is outdated; {hint}");
    }
    for rule in CODECS.iter().flat_map(|codec| codec.rules()) {
        let text = &expected[&format!("{}.md", rule.id)];
        for heading in [
            "What happens",
            "The provider's error",
            "Why",
            "How to fix it",
            "Example",
            "What Throughline does",
            "Evidence",
        ] {
            assert!(text.contains(&format!("\n## {heading}\n")), "{}: {heading}", rule.id);
        }
        assert_eq!(
            rule.url(),
            format!("https://throughline.github.io/throughline/rules/{}.html", rule.id)
        );
    }
    figure("rules with a page of their own", expected.len());
}

/// Returns the files in a directory tree, by their relative paths.
fn files(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                files.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

/// Compares the table of settings with the defaults that the binary reports.
#[test]
fn limits_page_has_the_default_of_every_setting() {
    let store = TestStore::without_database("limits");
    std::fs::create_dir_all(&store.folder).unwrap();
    let output = store.run_with(&[], &["config", "show", "--format", "json"], b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let shown: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let text = page("limits.md");
    let row = regex::Regex::new(r"(?m)^\| `([a-z_]+\.[a-z_.]+)` \| ([^|]+) \|").unwrap();
    let rows: BTreeMap<&str, &str> = row
        .captures_iter(&text)
        .map(|row| row.extract())
        .map(|(_, [key, value])| (key, value))
        .collect();
    let mut expected = BTreeMap::new();
    for value in shown["values"].as_array().unwrap() {
        let (key, default) = (value["key"].as_str().unwrap(), value["value"].as_str().unwrap());
        // The default location of the store depends on the user.
        if key != "store.url" {
            expected.insert(
                key,
                if default == "none" { "none".to_owned() } else { format!("`{default}`") },
            );
        }
    }
    for (key, default) in &expected {
        let found = rows.get(key);
        assert_eq!(found, Some(&default.as_str()), "docs/limits.md: the default of `{key}`");
    }
    for key in rows.keys() {
        assert!(expected.contains_key(key), "docs/limits.md: `{key}` is not a setting");
    }
}

/// Fixed limits that the book states, each with the file and the constant that define it.
const FIXED_LIMITS: &[(&str, &str, &str)] = &[
    (
        "one frame of a stream | 64 MiB |",
        "server/src/gateway/answer.rs",
        "LARGEST_ANSWER: usize = 64 << 20;",
    ),
    (
        "gzip members in a request body | 1,024 |",
        "server/src/gateway/decompress.rs",
        "MAX_FRAMES: usize = 1024;",
    ),
    (
        "large is 256 KiB and more |",
        "server/src/telemetry/cpu_pool.rs",
        "LARGE: usize = 256 << 10;",
    ),
    (
        "buffers for a slow client | 64 KiB |",
        "server/src/gateway/stream/sink.rs",
        "AHEAD: u32 = 64 << 10;",
    ),
    (
        "HTTP/2 streams per connection | 256 |",
        "server/src/listen.rs",
        "MAX_STREAMS_PER_CONNECTION: u32 = 256;",
    ),
    ("if keys exist | seven eighths |", "server/src/telemetry/fair_pool.rs", "RESERVED: u64 = 8;"),
    (
        "reserves from a budget | 4,096 |",
        "server/src/telemetry/estimate.rs",
        "DEFAULT_OUTPUT: u64 = 4096;",
    ),
    (
        "lease of a crashed node | 30 s |",
        "server/src/telemetry/budget/slice.rs",
        "LEASE: u64 = 30_000;",
    ),
    ("failed request to a provider | 2 |", "provider/src/retry.rs", "retries: 2,"),
    (
        "model at an endpoint | 10 | 503 for this model for 10 s |",
        "provider/src/breaker.rs",
        "failures: 10, pause: Duration::from_secs(10)",
    ),
    (
        "a sign-in at an identity provider | 10 minutes |",
        "server/src/sign_in/pages.rs",
        "PENDING_LIFETIME: u32 = 600",
    ),
    (
        "a provider's model list | 10 minutes |",
        "server/src/gateway/models/discovery.rs",
        "LIFETIME: Duration = Duration::from_mins(10);",
    ),
    (
        "models in a provider's list | 2,000 |",
        "server/src/gateway/models/discovery.rs",
        "MOST_MODELS: usize = 2_000;",
    ),
    (
        "label in the metrics | 500 |",
        "server/src/telemetry/metrics.rs",
        "MOST_MODELS: usize = 500;",
    ),
    (
        "kind in a call record | 256 |",
        "replay/src/call_record/report.rs",
        "MAX_LISTED: usize = 256;",
    ),
    (
        "that a provider requests | 1 hour |",
        "server/src/account_pool.rs",
        "LONGEST_COOLDOWN: Duration = Duration::from_hours(1);",
    ),
    ("named lanes | 32 |", "server/src/gateway/websocket.rs", "MAX_LANES: usize = 32;"),
    ("running responses | 16 |", "server/src/gateway/websocket.rs", "MAX_RUNNING: usize = 16;"),
    ("waiting requests | 64 |", "server/src/gateway/websocket.rs", "MAX_WAITING: usize = 64;"),
    (
        "without a request | 15 minutes |",
        "server/src/telemetry/sockets.rs",
        "idle: Duration::from_mins(15),",
    ),
    (
        "lifetime of a socket | 60 minutes |",
        "server/src/telemetry/sockets.rs",
        "lifetime: Duration::from_hours(1),",
    ),
    (
        "| `fast` | 8 | 3 | 32,000 | 24,000 |",
        "agent/src/limits.rs",
        "Self::Fast => (8, 3, 32_000, 24_000, 8)",
    ),
    (
        "`custom` | 20 | 5 | 96,000 | 72,000 |",
        "agent/src/limits.rs",
        "Self::Balanced | Self::Custom => (20, 5, 96_000, 72_000, 16)",
    ),
    (
        "| `deep` | 40 | 8 | 200,000 | 150,000 |",
        "agent/src/limits.rs",
        "Self::Deep => (40, 8, 200_000, 150_000, 30)",
    ),
    (
        "| `research` | 80 | 10 | 400,000 | 300,000 |",
        "agent/src/limits.rs",
        "Self::Research => (80, 10, 400_000, 300_000, 60)",
    ),
    ("without `max_steps` | 50 |", "server/src/letta/agent_config.rs", "STEPS: u64 = 50;"),
    ("`ctx` of a Thread | 64 KiB |", "agent/src/state.rs", "MAX_CONTEXT: usize = 64 << 10;"),
    (
        "shell command as a tool | 256 KiB |",
        "cli/src/agent/program.rs",
        "MAX_RESULT: usize = 256 << 10;",
    ),
    ("MCP or HTTP tool | 1 MiB;", "tools/src/mcp.rs", "largest_answer: 1 << 20,"),
    (
        "start of an MCP server | 30 s;",
        "tools/src/mcp.rs",
        "start_timeout: Duration::from_secs(30),",
    ),
    ("call of an MCP tool | 5 minutes;", "tools/src/mcp.rs", "timeout: Duration::from_mins(5),"),
    ("call of an HTTP tool | 30 s;", "tools/src/http.rs", "timeout: Duration::from_secs(30),"),
    (
        "several records contain it | 16 KB and more |",
        "store/src/journal/seal.rs",
        "LARGE: usize = 16 << 10;",
    ),
    (
        "with `capture = \"relaxed\"` | at most 50 ms |",
        "store/src/sqlite/writer.rs",
        "MAX_UNFLUSHED: Duration = Duration::from_millis(50);",
    ),
    (
        "while a process writes | at most 1 s |",
        "store/src/sqlite/writer.rs",
        "MAX_UNSIGNED: Duration = Duration::from_secs(1);",
    ),
    (
        "after which writes fail | 3 s |",
        "store/src/postgres/writer.rs",
        "OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);",
    ),
];

#[test]
fn limits_page_has_the_fixed_limits_of_the_code() {
    let text = page("limits.md");
    for (documented, file, constant) in FIXED_LIMITS {
        assert!(text.contains(documented), "docs/limits.md does not state: {documented}");
        let source = std::fs::read_to_string(workspace_root().join("crates").join(file)).unwrap();
        assert!(
            source.contains(constant),
            "crates/{file} does not contain `{constant}`; correct docs/limits.md: {documented}"
        );
    }
}

/// Compares the figures of the comparison with those of the benchmark's page.
#[test]
fn comparison_has_the_figures_of_the_fidelity_page() {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let (benchmark, comparison) = (page("fidelity.md"), page("comparison.md"));
    let table = |text: &str, heading: &str| -> Vec<Vec<String>> {
        let lines = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
        lines.take_while(|line| line.starts_with('|')).map(cells).collect()
    };
    let measured = table(&benchmark, "| gateway | kept | lost | altered |");
    let columns = [0, 1, 2, 4, 5, 6];
    let expected: Vec<Vec<&str>> =
        measured.iter().map(|row| columns.map(|column| row[column].as_str()).to_vec()).collect();
    assert!(!expected.is_empty(), "docs/fidelity.md has no table of results");
    assert_eq!(
        table(&comparison, "| gateway | reasoning kept |"),
        expected,
        "docs/comparison.md must have the figures of docs/fidelity.md"
    );
}
