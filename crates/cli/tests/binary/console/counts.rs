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
use crate::support::serving::said_at;
use crate::support::{throughline_in, without_keys};

/// Counts of a run, keyed by their names on the pages.
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

/// A demo process whose gateway stays open.
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
        let said = said_at(&self.address, "GET", &format!("/v1/throughline/{path}"), "", "");
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn of_row(row: &Value) -> Counts {
    let value = |name: &str| row[name].as_u64().or_else(|| row["thoughts"][name].as_u64());
    NAMES.iter().map(|name| ((*name).to_owned(), value(name).unwrap())).collect()
}

fn of_trace(trace: &Value) -> Counts {
    let value = |key: &str| trace["summary"][key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    NAMES.iter().zip(SPANS).map(|(name, key)| ((*name).to_owned(), value(key))).collect()
}

/// Reads the attributes of the last span in an OpenTelemetry protobuf message. This is the run's
/// span.
fn of_otlp(bytes: &[u8]) -> Counts {
    let value = |key: &str| {
        // A KeyValue: the key, then field 2 with an AnyValue, whose field 3 is a varint.
        let named = [&[0x0a, u8::try_from(key.len()).unwrap()][..], key.as_bytes()].concat();
        let mut places = bytes.windows(named.len()).enumerate();
        let place = places.rfind(|(_, part)| *part == named).map(|(place, _)| place);
        let place = place.unwrap_or_else(|| panic!("no {key}"));
        let value = &bytes[place + named.len()..];
        assert_eq!((value[0], value[2]), (0x12, 0x18), "{key}");
        let digits = value[3..].iter().enumerate().take(usize::from(value[1]) - 1);
        digits.fold(0, |sum, (place, byte)| sum | u64::from(byte & 0x7f) << (7 * place))
    };
    NAMES.iter().zip(SPANS).map(|(name, key)| ((*name).to_owned(), value(key))).collect()
}

/// Returns the counts that a page shows within an element.
fn of_page(browser: &Browser, within: &str) -> Counts {
    let all = format!(
        "Object.fromEntries([...document.querySelectorAll('{within} [data-count]')].map((one) => \
         [one.dataset.count, parseInt(one.innerText, 10)]))"
    );
    let shown = browser.wait(&format!(
        "(() => {{ const all = {all}; return Object.keys(all).length >= 6 && all }})()"
    ));
    let shown = shown.as_object().unwrap().iter();
    let shown = shown.filter(|(name, _)| NAMES.contains(&name.as_str()));
    shown.map(|(name, value)| (name.clone(), value.as_u64().unwrap())).collect()
}

fn number(browser: &Browser, selector: &str) -> u64 {
    let number = format!("return document.querySelectorAll('{selector}').length");
    browser.run(&number).as_u64().unwrap()
}

/// Returns whether a turn in the timeline is a reflection or a summary.
fn is_aside(turn: &Value) -> bool {
    let turn = turn.as_str().unwrap();
    turn.contains("reflection") || turn.contains("summary")
}

/// Asserts that the counts in a map's legend match the drawn cells.
fn legend_agrees(browser: &Browser) -> Value {
    let legend = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('[data-legend]')].map((one) => \
         [one.dataset.legend, parseInt(one.innerText, 10)]))",
    );
    for (state, times) in legend.as_object().unwrap() {
        let cells = number(browser, &format!("[data-cell=\"{state}\"]"));
        assert_eq!(Some(cells), times.as_u64(), "{state}: {legend}");
    }
    legend
}

/// Opens a page in a window that is large enough for every row, and takes screenshots in both
/// themes.
fn open(browser: &Browser, demo: &Demo, place: &str) {
    browser.open("about:blank");
    browser.open(&format!("http://{}/#/{place}", demo.address));
    browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
}

fn pictures(browser: &Browser, name: &str) {
    for theme in ["light", "dark"] {
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        save_screenshot(browser, &format!("{name}-{theme}"));
    }
}

pub(crate) fn agree(browser: &Browser) {
    let kept = TestStore::nothing("console-counts");
    let home = kept.file("home");
    let demo = Demo::start(&home);
    let rows = demo.get("runs")["runs"].as_array().unwrap().clone();
    let crashed: Vec<&Value> = rows.iter().filter(|row| row["discarded"] != json!(0)).collect();
    let [row] = crashed[..] else { panic!("one run was killed: {rows:?}") };
    let (run, thread) = (row["id"].as_str().unwrap(), row["thread"].as_str().unwrap());
    let counts = of_row(row);
    assert!(counts["kept"] > 0 && counts["attempts"] > counts["turns"], "{counts:?}");
    // Compare the counts in the API, the trace and its exports.
    assert_eq!(of_row(&demo.get(&format!("runs/{run}"))), counts, "one run");
    assert_eq!(of_trace(&demo.get(&format!("runs/{run}/trace"))), counts, "trace");
    let map = demo.get(&format!("threads/{thread}/map"));
    let of_run = map["runs"].as_array().unwrap().iter().find(|one| one["id"] == run).unwrap();
    assert_eq!(of_row(of_run), counts, "map");
    let store = format!("sqlite://{}", home.join("demo.db").display());
    let export = ["traces", "export", run, "--store", &store];
    let session = throughline_in(&kept.folder, &export, b"");
    assert_eq!(session.code, 0, "{}", session.err);
    assert_eq!(of_trace(&serde_json::from_str(&session.out).unwrap()), counts, "traces export");
    let file = kept.file("trace.otlp");
    let otlp = [&export[..], &["--as", "otlp", "--output", file.to_str().unwrap()]].concat();
    assert_eq!(throughline_in(&kept.folder, &otlp, b"").code, 0);
    assert_eq!(of_otlp(&std::fs::read(file).unwrap()), counts, "OTLP");
    // Compare the counts on the pages.
    browser.size(1280, 8000);
    open(browser, &demo, &format!("run/{run}"));
    browser.wait("document.querySelector('.connection.ended')");
    browser.wait(&format!(
        "document.querySelector('[data-count=kept]')?.innerText === '{}'",
        counts["kept"]
    ));
    assert_eq!(of_page(browser, "aside"), counts, "timeline");
    let discarded = row["discarded"].as_u64().unwrap();
    let drawn = "[...document.querySelectorAll('.virtual > ol > li')]";
    browser.wait(&format!("{drawn}.length == {drawn}[0].getAttribute('aria-setsize')"));
    let turns = browser
        .run("return [...document.querySelectorAll('.row.turn h3')].map((one) => one.innerText)");
    let of_asides = turns.as_array().unwrap().iter().filter(|turn| is_aside(turn)).count() as u64;
    let rows = number(browser, ".row.turn") - of_asides;
    assert_eq!(rows, counts["attempts"], "a row for each attempt: {turns}");
    assert_eq!(number(browser, ".row.turn.discarded"), discarded);
    assert_eq!(number(browser, ".row.thought .seal"), counts["received"], "accepted thoughts");
    let partial = number(browser, ".row.thought .tag.warn");
    assert!((1..=discarded).contains(&partial), "{partial} partial thoughts were discarded");
    pictures(browser, "counts-timeline");
    open(browser, &demo, &format!("trace/{run}"));
    assert_eq!(of_page(browser, ".trace"), counts, "trace page");
    pictures(browser, "counts-trace");
    open(browser, &demo, &format!("map/{thread}"));
    assert_eq!(of_page(browser, &format!("tr[data-run=\"{run}\"]")), counts, "map page");
    let nodes = number(browser, &format!("a[href$=\"{run}\"] .node:not(.aside)"));
    assert_eq!(nodes, counts["attempts"], "a node for each attempt");
    let legend = legend_agrees(browser);
    pictures(browser, "counts-map");
    // Check the maps of gateway clients too.
    let threads = demo.get("threads")["threads"].as_array().unwrap().clone();
    let of_clients = threads.iter().filter(|thread| thread["kind"] == "gateway");
    for thread in of_clients.filter_map(|thread| thread["id"].as_str()).take(3) {
        open(browser, &demo, &format!("map/{thread}"));
        browser.wait("document.querySelector('[data-legend]')");
        legend_agrees(browser);
    }
    browser.size(1280, 900);
    figure("the killed run of the demo, on every page and export", format!("{counts:?}"));
    figure("the legend and the cells of its thought map", legend.to_string());
}
