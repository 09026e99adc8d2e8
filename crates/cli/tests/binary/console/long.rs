//! Tests that a run with ten thousand events opens as fast as a run with a hundred, and scrolls
//! smoothly.

use serde_json::{Value, json};
use throughline_core::{Append, Batch, Store as _, Tenant, pack_events};
use throughline_store::Options;
use throughline_testkit::figure;

use crate::console::driver::Browser;
use crate::console::stage::{ConsoleFixture, find_id};

/// Number of measurements per run. The test compares their medians.
const TIMES: usize = 5;
/// Maximum number of elements on a page.
const NODES: u64 = 2_000;

/// Opens a short and a long run alternately, and compares the times.
pub(crate) fn compare_open_times(browser: &Browser, fixture: &ConsoleFixture) {
    let short = run_with_events(fixture, 100);
    let long = run_with_events(fixture, 10_000);
    browser.prepare(READABLE);
    // Measurements alternate, so that other load affects both runs equally.
    let (mut shorts, mut longs) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        shorts.push(open_time(browser, fixture, &short));
        longs.push(open_time(browser, fixture, &long));
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (short, long) = (middle(&mut shorts), middle(&mut longs));
    figure("a run of 100 events opens in the console within", format!("{short:.0} ms"));
    figure("a run of 10,000 events opens in the console within", format!("{long:.0} ms"));
    figure("10,000 events against 100, at most 1.5", format!("{:.2}", long / short));
    browser.wait("document.querySelector('.connection.ended')");
    let rows = browser.wait("Number(document.querySelector('.virtual li').getAttribute('aria-setsize')) >= 7000 && document.querySelector('.virtual li').getAttribute('aria-setsize')");
    figure("rows of the long timeline", rows.as_str().unwrap());
    let scrolling = scroll(browser);
    let most = scrolling["nodes"].as_u64().unwrap();
    figure("most elements on the page while scrolling", most);
    let time = |name: &str| scrolling[name].as_f64().unwrap();
    figure(
        "frames while scrolling",
        format!(
            "{:.1} ms median, {:.1} ms at 95 %, {:.1} ms at most",
            time("middle"),
            time("high"),
            time("most")
        ),
    );
    figure("the console's script, compressed", format!("{} B", weight(browser)));
    assert!(most <= NODES, "{most} elements");
    assert!(weight(browser) <= 120_000);
}

/// Starts a real run and appends events to its log until it has `events` events.
fn run_with_events(fixture: &ConsoleFixture, events: u64) -> String {
    let agent = "kind = \"minimal\"\nreasoning = { level = \"high\", reflection = false }\n";
    let output = fixture.run(
        agent,
        &["Count up", "--model", "sim/claude-sonnet-4-5", "--tool", "count=echo counted"],
    );
    let run = find_id(&output.err, "run_");
    fixture.store.with_journal(&Options::default(), async |journal| {
        let (tenant, log) = (Tenant::from("default"), run.as_str().into());
        let head = journal.log(&tenant, &log).await.unwrap().unwrap();
        let added: Vec<String> = (head.events..events).map(event).collect();
        for chunk in added.chunks(100) {
            let append =
                Append::new(run.clone()).record(pack_events(chunk.iter().map(String::as_bytes)));
            journal.commit(Batch::new(tenant.clone()).append(append)).await.unwrap();
        }
    });
    run
}

/// Returns an event that adds or changes a row of the timeline.
fn event(number: u64) -> String {
    let turn = number / 8;
    let event: Value = match number % 8 {
        0 => {
            json!({"type": "turn", "phase": "start", "turn": turn, "model": "sim/claude-sonnet-4-5"})
        }
        1 => {
            json!({"type": "thought", "phase": "end", "turn": turn, "id": format!("t{number}"), "sealedBytes": 432,
            "text": format!("Step {number}: what is known so far is enough for the next call, and the one after it can wait for its answer.")})
        }
        2 => {
            json!({"type": "tool_call", "phase": "start", "name": "count", "id": format!("c{turn}"), "args": {"from": number}})
        }
        3 => {
            json!({"type": "tool_call", "phase": "success", "name": "count", "id": format!("c{turn}"), "result": "counted", "durationMs": 3})
        }
        4 => {
            json!({"type": "reflection", "id": format!("r{number}"), "turn": turn, "text": "It goes as planned."})
        }
        5 => json!({"type": "progress", "message": format!("{number} of many")}),
        6 => {
            json!({"type": "message", "role": "assistant", "content": format!("Counted up to {number}."), "id": format!("m{number}")})
        }
        _ => {
            json!({"type": "usage", "usage": {"inputTokens": 900, "outputTokens": 40, "totalTokens": 940}, "costUsd": 0.001})
        }
    };
    event.to_string()
}

/// Script that records the time of the frame in which the page becomes readable. Polling from the
/// test would detect this frame too late.
const READABLE: &str = "new MutationObserver((_, observer) => {
    if (document.querySelectorAll('.row').length < 8 || !document.querySelector('.facts')) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => window.__readable = performance.now()));
}).observe(document, { childList: true, subtree: true });";

/// Returns the milliseconds from entering a run's address until the page is readable.
fn open_time(browser: &Browser, fixture: &ConsoleFixture, run: &str) -> f64 {
    browser.open("about:blank");
    browser.open(&fixture.page(&format!("run/{run}")));
    let at = browser.wait("window.__readable");
    // The rest of the run loads later and must not move the visible rows.
    browser.wait("document.querySelector('.connection.ended')");
    let scroll_top = browser.run("return document.querySelector('.virtual').scrollTop");
    assert_eq!(scroll_top.as_f64(), Some(0.0));
    at.as_f64().unwrap()
}

/// Scrolls through the whole page. Returns the frame times and the maximum number of elements.
fn scroll(browser: &Browser) -> Value {
    browser.wait(
        "(window.__scrolled ??= (() => {
            const box = document.querySelector('.virtual');
            const frames = []; let nodes = 0; let last = performance.now(); let count = 0;
            const step = () => {
                const now = performance.now(); frames.push(now - last); last = now;
                nodes = Math.max(nodes, document.querySelectorAll('*').length);
                box.scrollTop = count < 200 ? box.scrollTop + 240 : (box.scrollHeight * ((count * 37) % 100)) / 100;
                if (++count < 260) requestAnimationFrame(step);
                else {
                    frames.sort((a, b) => a - b);
                    window.__result = { nodes, middle: frames[frames.length >> 1], high: frames[Math.floor(frames.length * 0.95)], most: frames[frames.length - 1] };
                }
            };
            requestAnimationFrame(step); return 1;
        })(), window.__result)",
    )
}

fn weight(browser: &Browser) -> u64 {
    let bytes = browser.wait(
        "(window.__weighing ??= (async () => {
            const script = await fetch(document.querySelector('script[src]').src);
            const packed = await new Response(script.body.pipeThrough(new CompressionStream('gzip'))).arrayBuffer();
            window.__weight = packed.byteLength;
        })(), window.__weight)",
    );
    bytes.as_u64().unwrap()
}
