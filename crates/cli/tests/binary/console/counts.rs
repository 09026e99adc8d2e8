//! Checks that every page and export has the same counts for the demo run whose process was killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use throughline_testkit::figure;

use crate::console::driver::Browser;
use crate::console::save_screenshot;
use crate::support::kept::TestStore;
use crate::support::serving::send_request;
use crate::support::{throughline_in, without_keys};

/// Counts of a run. The keys are the names that the pages show.
type Counts = BTreeMap<String, u64>;

const NAMES: [&str; 6] = ["turns", "attempts", "received", "kept", "restored", "elided"];
const SPANS: [&str; 6] = [
    "throughline.turns",
    "throughline.attempts",
    "throughline.thoughts",
    "throughline.fates.kept",
    "throughline.fates.restored",
    "throughline.fates.elided",
];

/// A demo process whose gateway keeps running after the demo.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    fn start(home: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        let mut child = without_keys(&mut command)
            .args(["demo", "--home", home.to_str().unwrap()])
            .env_remove("THROUGHLINE_STORE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let open = lines
            .find(|line| line.contains("Open the console"))
            .expect("the demo keeps the gateway open");
        let (_, address) = open.split_once("http://").unwrap();
        let address = address.split(['/', ' ']).next().unwrap().to_owned();
        // Discard the rest of the output, so that the process never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn get(&self, path: &str) -> Value {
        let response =
            send_request(&self.address, "GET", &format!("/v1/throughline/{path}"), "", "");
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // A demo that gets SIGTERM also stops its gateway.
        drop(Command::new("kill").arg(self.child.id().to_string()).status());
        drop(self.child.wait());
    }
}

fn row_counts(row: &Value) -> Counts {
    let value = |name: &str| row[name].as_u64().or_else(|| row["thoughts"][name].as_u64());
    NAMES.iter().map(|name| ((*name).to_owned(), value(name).unwrap())).collect()
}

fn trace_counts(trace: &Value) -> Counts {
    let value = |key: &str| trace["summary"][key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    NAMES.iter().zip(SPANS).map(|(name, key)| ((*name).to_owned(), value(key))).collect()
}

/// Reads the attributes of the last span in an OpenTelemetry protobuf message. This is the run's
/// span.
fn otlp_counts(bytes: &[u8]) -> Counts {
    let value = |key: &str| {
        // A KeyValue: the key, then field 2 with an AnyValue, whose field 3 is a varint.
        let needle = [&[0x0a, u8::try_from(key.len()).unwrap()][..], key.as_bytes()].concat();
        let mut windows = bytes.windows(needle.len()).enumerate();
        let index = windows.rfind(|(_, part)| *part == needle).map(|(index, _)| index);
        let index = index.unwrap_or_else(|| panic!("no {key}"));
        let value = &bytes[index + needle.len()..];
        assert_eq!((value[0], value[2]), (0x12, 0x18), "{key}");
        let digits = value[3..].iter().enumerate().take(usize::from(value[1]) - 1);
        digits.fold(0, |sum, (index, byte)| sum | u64::from(byte & 0x7f) << (7 * index))
    };
    NAMES.iter().zip(SPANS).map(|(name, key)| ((*name).to_owned(), value(key))).collect()
}

/// Returns the counts that a page shows within an element.
fn page_counts(browser: &Browser, within: &str) -> Counts {
    let all = format!(
        "Object.fromEntries([...document.querySelectorAll('{within} [data-count]')].map((one) => \
         [one.dataset.count, parseInt(one.innerText, 10)]))"
    );
    let counts = browser.wait(&format!(
        "(() => {{ const all = {all}; return Object.keys(all).length >= 6 && all }})()"
    ));
    let counts = counts.as_object().unwrap().iter();
    let counts = counts.filter(|(name, _)| NAMES.contains(&name.as_str()));
    counts.map(|(name, value)| (name.clone(), value.as_u64().unwrap())).collect()
}

fn count_elements(browser: &Browser, selector: &str) -> u64 {
    let script = format!("return document.querySelectorAll('{selector}').length");
    browser.run(&script).as_u64().unwrap()
}

/// Returns whether a turn in the timeline is a reflection or a summary.
fn is_aside(turn: &Value) -> bool {
    let turn = turn.as_str().unwrap();
    turn.contains("reflection") || turn.contains("summary")
}

/// Asserts that the counts in a map's legend match the drawn cells.
fn assert_legend_agrees(browser: &Browser) -> Value {
    let legend = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('[data-legend]')].map((one) => \
         [one.dataset.legend, parseInt(one.innerText, 10)]))",
    );
    for (state, times) in legend.as_object().unwrap() {
        let cells = count_elements(browser, &format!("[data-cell=\"{state}\"]"));
        assert_eq!(Some(cells), times.as_u64(), "{state}: {legend}");
    }
    legend
}

/// Opens a page in a window that is large enough for every row, and takes screenshots in both
/// themes.
fn open(browser: &Browser, demo: &Demo, path: &str) {
    browser.open("about:blank");
    browser.open(&format!("http://{}/#/{path}", demo.address));
    browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
}

fn save_screenshots(browser: &Browser, name: &str) {
    for theme in ["light", "dark"] {
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        save_screenshot(browser, &format!("{name}-{theme}"));
    }
}

pub(crate) fn assert_counts_agree(browser: &Browser) {
    let store = TestStore::without_database("console-counts");
    let home = store.file("home");
    let demo = Demo::start(&home);
    let rows = demo.get("runs")["runs"].as_array().unwrap().clone();
    let crashed: Vec<&Value> = rows.iter().filter(|row| row["discarded"] != json!(0)).collect();
    let [row] = crashed[..] else { panic!("one run was killed: {rows:?}") };
    let (run, thread) = (row["id"].as_str().unwrap(), row["thread"].as_str().unwrap());
    let counts = row_counts(row);
    assert!(counts["kept"] > 0 && counts["attempts"] > counts["turns"], "{counts:?}");
    // Compare the counts in the API, the trace and its exports.
    assert_eq!(row_counts(&demo.get(&format!("runs/{run}"))), counts, "one run");
    assert_eq!(trace_counts(&demo.get(&format!("runs/{run}/trace"))), counts, "trace");
    let map = demo.get(&format!("threads/{thread}/map"));
    let of_run = map["runs"].as_array().unwrap().iter().find(|one| one["id"] == run).unwrap();
    assert_eq!(row_counts(of_run), counts, "map");
    let url = format!("sqlite://{}", home.join("demo.db").display());
    let export = ["traces", "export", run, "--store", &url];
    let session = throughline_in(&store.folder, &export, b"");
    assert_eq!(session.code, 0, "{}", session.err);
    assert_eq!(trace_counts(&serde_json::from_str(&session.out).unwrap()), counts, "traces export");
    let file = store.file("trace.otlp");
    let otlp = [&export[..], &["--as", "otlp", "--output", file.to_str().unwrap()]].concat();
    assert_eq!(throughline_in(&store.folder, &otlp, b"").code, 0);
    assert_eq!(otlp_counts(&std::fs::read(file).unwrap()), counts, "OTLP");
    // Compare the counts on the pages.
    browser.resize(1280, 8000);
    open(browser, &demo, &format!("run/{run}"));
    browser.wait("document.querySelector('.connection.ended')");
    browser.wait(&format!(
        "document.querySelector('[data-count=kept]')?.innerText === '{}'",
        counts["kept"]
    ));
    assert_eq!(page_counts(browser, "aside"), counts, "timeline");
    let discarded = row["discarded"].as_u64().unwrap();
    let drawn = "[...document.querySelectorAll('.virtual > ol > li')]";
    browser.wait(&format!("{drawn}.length == {drawn}[0].getAttribute('aria-setsize')"));
    let turns = browser
        .run("return [...document.querySelectorAll('.row.turn h3')].map((one) => one.innerText)");
    let of_asides = turns.as_array().unwrap().iter().filter(|turn| is_aside(turn)).count() as u64;
    let rows = count_elements(browser, ".row.turn") - of_asides;
    assert_eq!(rows, counts["attempts"], "a row for each attempt: {turns}");
    assert_eq!(count_elements(browser, ".row.turn.discarded"), discarded);
    assert_eq!(
        count_elements(browser, ".row.thought .seal"),
        counts["received"],
        "accepted thoughts"
    );
    let partial = count_elements(browser, ".row.thought .tag.warn");
    assert!((1..=discarded).contains(&partial), "{partial} partial thoughts were discarded");
    let names = browser.run(
        "return [...document.querySelectorAll('.row.note .label')].map((one) => one.innerText)",
    );
    let count = |name: &str| {
        let names = names.as_array().unwrap().iter().filter_map(Value::as_str);
        names.filter(|label| label.eq_ignore_ascii_case(name)).count() as u64
    };
    // A response that a gate rejects is discarded without a crash.
    let (stopped, resumed) = (count("Process stopped"), count("Resumed"));
    assert!((1..=discarded).contains(&stopped), "the crash has a row: {names}");
    assert_eq!(stopped, resumed, "the resumption has a row: {names}");
    save_screenshots(browser, "counts-timeline");
    open(browser, &demo, &format!("trace/{run}"));
    assert_eq!(page_counts(browser, ".trace"), counts, "trace page");
    save_screenshots(browser, "counts-trace");
    open(browser, &demo, &format!("map/{thread}"));
    assert_eq!(page_counts(browser, &format!("tr[data-run=\"{run}\"]")), counts, "map page");
    let nodes = count_elements(browser, &format!("a[href$=\"{run}\"] .node:not(.aside)"));
    assert_eq!(nodes, counts["attempts"], "a node for each attempt");
    let legend = assert_legend_agrees(browser);
    save_screenshots(browser, "counts-map");
    // Check the maps of gateway clients too.
    let threads = demo.get("threads")["threads"].as_array().unwrap().clone();
    let of_clients = threads.iter().filter(|thread| thread["kind"] == "gateway");
    for thread in of_clients.filter_map(|thread| thread["id"].as_str()).take(3) {
        open(browser, &demo, &format!("map/{thread}"));
        browser.wait("document.querySelector('[data-legend]')");
        assert_legend_agrees(browser);
    }
    browser.resize(1280, 900);
    figure("the killed run of the demo, on every page and export", format!("{counts:?}"));
    figure("the legend and the cells of its thought map", legend.to_string());
}
