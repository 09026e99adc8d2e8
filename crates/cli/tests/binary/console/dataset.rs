//! Tests that lists of many calls, runs and Threads cost no more than short lists: in the size of
//! responses and in the number of elements on the page. `THROUGHLINE_CASES` sets the number of
//! calls.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use throughline_core::{Append, Batch, LogOpening, Store as _, Tenant, pack_events};
use throughline_store::Options;
use throughline_testkit::{cases, figure};

use crate::console::driver::Browser;
use crate::console::{
    DESKTOP, PHONE, assert_fits, assert_no_complaints, browser, check_both_themes,
};
use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

/// Number of calls that one run and one conversation of several turns are added for.
const CALLS_PER_RUN: u32 = 20;
const CALLS_PER_THREAD: u32 = 200;
/// Every call with a number divisible by this one fails, except those for the other model.
const FAILING: u32 = 5;
/// Every call with a number divisible by this one is for the other model.
const OTHER_MODEL: u32 = 7;
/// Number of calls from which on the test also opens every page.
const REALISTIC: u32 = 10_000;
/// Maximum number of logs with calls that an overview covers.
const MOST_COVERED: u32 = 50_000;
/// Maximum number of elements on a page.
const MOST_ELEMENTS: u64 = 2_000;

/// A connection that stays open, so that a hundred thousand calls need one port.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Self {
        Self { reader: BufReader::new(TcpStream::connect(address).unwrap()) }
    }

    /// Sends a request and returns the response body.
    fn send(&mut self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), None);
        while self.reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
            line.clear();
        }
        let mut answer = vec![0; length.expect("a response with a length")];
        self.reader.read_exact(&mut answer).unwrap();
        answer
    }

    /// Makes the calls with these numbers. One in [`FAILING`] fails, and one conversation in
    /// [`CALLS_PER_THREAD`] calls continues with another model.
    fn seed_calls(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let text = format!("Question {number}: is it warmer in Rome or in Oslo?");
            let mut messages = vec![json!({"role": "user", "content": text})];
            if number.is_multiple_of(FAILING) {
                let result =
                    json!({"type": "tool_result", "tool_use_id": "none", "content": "24 °C"});
                messages = vec![json!({"role": "user", "content": [result]})];
            }
            let model = ["sim/claude-sonnet-4-5", "sim/gpt-5.2"]
                [usize::from(number.is_multiple_of(OTHER_MODEL))];
            let body = json!({"model": model, "max_tokens": 64, "messages": messages});
            let answer = self.send("POST", "/v1/messages", &body);
            if number % CALLS_PER_THREAD == 1 {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                messages.push(json!({"role": "assistant", "content": answer["content"]}));
                messages.push(json!({"role": "user", "content": "And tomorrow?"}));
                let next = json!({"model": "sim/gpt-5.2", "max_tokens": 64, "messages": messages});
                self.send("POST", "/v1/messages", &next);
            }
        }
    }
}

/// Writes runs of agents: completed, failed, and resumed after a crash.
fn seed_runs(store: &TestStore, numbers: std::ops::Range<u32>) {
    store.with_journal(&Options::default(), async |journal| {
        for number in numbers {
            let crash = "the process that received the answer exited";
            let (status, events) = match number % 3 {
                0 => ("failed", vec![json!({"type": "run", "status": "failed", "reason": "the model is not available"})]),
                1 => ("completed", vec![
                    json!({"type": "turn", "phase": "start", "turn": 1, "model": "sim/claude-sonnet-4-5"}),
                    json!({"type": "turn", "phase": "discarded", "turn": 1, "reason": crash}),
                    json!({"type": "turn", "phase": "start", "turn": 1, "model": "sim/claude-sonnet-4-5"}),
                    json!({"type": "turn", "phase": "end", "turn": 1}),
                ]),
                _ => ("completed", vec![json!({"type": "message", "role": "assistant", "content": "Done"})]),
            };
            let title = json!({"type": "message", "role": "user", "content": format!("Task {number}")});
            let events: Vec<String> =
                std::iter::once(&title).chain(&events).map(Value::to_string).collect();
            let thread = format!("thread_seeded_{number}");
            let run = Append::new(format!("run_seeded_{number}"))
                .opening(LogOpening::run(&*thread))
                .record(pack_events(events.iter().map(String::as_bytes)))
                .status(status);
            let thread = Append::new(thread).opening(LogOpening::thread());
            let batch = Batch::new(Tenant::from("default")).append(thread).append(run);
            journal.commit(batch).await.unwrap();
        }
    });
}

/// The sizes in bytes of the first rows and of filtered rows.
fn sizes(client: &mut Client) -> [usize; 4] {
    let paths =
        ["calls?limit=50", "calls?limit=20&status=failed", "runs?limit=5", "threads?limit=50"];
    paths.map(|path| {
        let body = client.send("GET", &format!("/v1/throughline/{path}"), &json!(null));
        let list: Value = serde_json::from_slice(&body).unwrap();
        let name = path.split('?').next().unwrap();
        let rows = list[name].as_array().unwrap().len();
        assert!(rows >= 5, "{path}: {rows} rows");
        body.len()
    })
}

#[test]
fn lists_of_many_calls_stay_small() {
    let all = cases(450);
    let few = (all / 100).max(150);
    let store = TestStore::without_database("console-dataset");
    let serving = GatewayProcess::start(&store.folder, &[], &["--log", "error"]);
    let mut client = Client::connect(&serving.address);
    client.seed_calls(0..few);
    seed_runs(&store, 0..few / CALLS_PER_RUN);
    let short = sizes(&mut client);
    client.seed_calls(few..all);
    seed_runs(&store, few / CALLS_PER_RUN..all / CALLS_PER_RUN);
    let long = sizes(&mut client);
    for (short, long) in short.into_iter().zip(long) {
        assert!(2 * long <= 3 * short, "{long} B of {all} calls, {short} B of {few} calls");
    }
    figure("bytes of the first rows of calls, failed calls, runs and Threads", format!("{long:?}"));
    figure("the same with a hundredth of the calls, or with 150", format!("{short:?}"));
    check_overview(&mut client, all);
    let Some((browser, axe)) = browser() else { return };
    check_elements(&browser, &serving);
    if all >= REALISTIC {
        for question in ["Task: what is the time?", "Task: what is the date?"] {
            let run = ["run", question, "--model", "sim/claude-sonnet-4-5", "--tool", "now=date"];
            let output = store.run_with(&[], &run, b"");
            assert_eq!(output.code, 0, "{}", output.err);
        }
        check_pages(&browser, &serving, &mut client, &axe);
    }
}

/// Gets the overview until it covers all calls, or the most that it can cover.
fn check_overview(client: &mut Client, all: u32) {
    let (mut times, mut covered) = (0, None);
    let overview = loop {
        let body = client.send("GET", "/v1/throughline/overview", &json!(null));
        let overview: Value = serde_json::from_slice(&body).unwrap();
        times += 1;
        let recorded = overview["total"]["recorded"].as_u64();
        assert!(recorded > covered, "overview {times} covers no more calls: {overview}");
        covered = recorded;
        if overview["reading"] == json!(false) {
            break overview;
        }
        assert_eq!(overview["complete"], json!(false), "{overview}");
    };
    figure("overviews until all calls are read", times);
    let is_covered = all <= MOST_COVERED;
    assert_eq!(overview["complete"], json!(is_covered), "{overview}");
    assert_ne!(overview["total"]["failed"], json!(0), "{overview}");
    if is_covered {
        // Conversations continue with the calls 1, 1 + CALLS_PER_THREAD, and so on.
        let recorded = all + (all - 1).div_ceil(CALLS_PER_THREAD);
        let failed = all.div_ceil(FAILING) - all.div_ceil(FAILING * OTHER_MODEL);
        let total = &overview["total"];
        assert_eq!([&total["recorded"], &total["failed"]], [&json!(recorded), &json!(failed)]);
    }
}

/// The pages of the data set: the lists with and without filters, runs, and answered, failed and
/// switched conversations.
fn pages(client: &mut Client) -> Vec<(&'static str, String)> {
    let mut first = |list: &str, query: &str| {
        let path = format!("/v1/throughline/{list}?limit=1&{query}");
        let body = client.send("GET", &path, &json!(null));
        let found: Value = serde_json::from_slice(&body).unwrap();
        found[list][0].clone()
    };
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    let runs = ["time", "date"].map(|word| id(&first("runs", &format!("search=the%20{word}"))));
    let (answered, failed) = (first("calls", "status=ok"), first("calls", "status=failed"));
    let switched = first("calls", "model=sim/gpt-5.2");
    let switched = switched["thread"].as_str().unwrap();
    let lists = [
        "overview",
        "calls",
        "calls?status=failed",
        "calls?model=gpt-5.2&range=7d&sort=-tokens",
        "runs",
        "runs?status=failed",
        "threads",
        "threads?search=Question",
        "usage",
        "inbox",
        "journal",
        "playground",
        "doctor",
        "settings",
        "settings?tab=routes",
        "settings?tab=data",
        "api",
    ];
    let lists = lists.map(|page| (page, page.to_owned()));
    let mut pages = lists.to_vec();
    pages.extend([
        ("run", format!("run/{}", runs[0])),
        ("trace", format!("trace/{}", runs[0])),
        ("compare", format!("compare/{}/{}", runs[0], runs[1])),
        ("call", format!("call/{}", id(&answered))),
        ("failed call", format!("call/{}", id(&failed))),
        ("conversation", format!("thread/{switched}")),
        ("map", format!("map/{switched}")),
    ]);
    pages
}

/// Opens each page in the windows of a desktop and of a phone, and reloads it: the same rows are
/// shown, nothing scrolls sideways, and axe finds nothing above minor in either theme.
fn check_pages(browser: &Browser, serving: &GatewayProcess, client: &mut Client, axe: &str) {
    let rows = "document.querySelector('main table[aria-rowcount]')?.getAttribute('aria-rowcount') ?? 'none'";
    // The connection of the client closes while the browser is busy.
    let pages = pages(client);
    for (width, height) in [PHONE, DESKTOP] {
        browser.resize(width, height);
        for (name, path) in &pages {
            browser.open("about:blank");
            browser.open(&format!("http://{}/#/{path}", serving.address));
            let is_loaded = "document.querySelector('h1') && !document.querySelector('.loading')";
            browser.wait(is_loaded);
            let before = browser.run(&format!("return [location.hash, {rows}]"));
            browser.run("location.reload()");
            browser.wait(is_loaded);
            browser.wait(&format!(
                "JSON.stringify([location.hash, {rows}]) === {:?}",
                before.to_string()
            ));
            assert_fits(browser, name, width);
            let file: String =
                path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            check_both_themes(browser, &format!("set-{width}-{file}"), axe);
            browser.run("delete document.documentElement.dataset.theme");
        }
    }
    assert_no_complaints(browser);
}

/// Opens each list, loads older rows, scrolls to the end, and counts the elements.
fn check_elements(browser: &Browser, serving: &GatewayProcess) {
    let mut most = 0;
    for page in ["overview", "calls", "calls?status=failed", "runs", "threads"] {
        browser.open("about:blank");
        browser.open(&format!("http://{}/#/{page}", serving.address));
        browser.wait("document.querySelector('main table tbody tr')");
        for _ in 0..3 {
            let elements = browser.run("return document.querySelectorAll('*').length");
            most = most.max(elements.as_u64().unwrap());
            let older = "[...document.querySelectorAll('main .actions button')].find((one) => one.innerText.startsWith('Load older'))";
            let count =
                "Number(document.querySelector('main table').getAttribute('aria-rowcount'))";
            let before = browser.run(&format!("return {count}"));
            let is_loading = browser
                .run(&format!("const button = {older}; button?.click(); return Boolean(button)"));
            if is_loading == json!(true) {
                browser.wait(&format!("{count} > {before}"));
            }
            browser.run("document.querySelector('main').scrollTop = 1e6");
            browser.wait("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        }
    }
    figure("most elements on a page with lists", most);
    assert!(most <= MOST_ELEMENTS, "{most} elements");
    assert_no_complaints(browser);
}
