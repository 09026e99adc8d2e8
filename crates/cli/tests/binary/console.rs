//! Tests of the console in Chromium, driven over `WebDriver`. `scripts/ui` and `scripts/browser`
//! install the requirements. Without them, the tests are skipped and pass.
//!
//! | file | content |
//! |---|---|
//! | `driver.rs` | the browser |
//! | `counts.rs` | the demo's killed run: every page and export has the same counts |
//! | `stage.rs`, `story.toml` | the store that the pages show, scripted by simulators |
//! | `proxy.rs` | a proxy that can be cut, and a model that streams on command |
//! | `hostile.rs` | texts that try to inject scripts or terminal escapes |
//! | `long.rs` | runs with a hundred and with ten thousand events |

mod counts;
mod driver;
mod hostile;
mod long;
mod proxy;
mod stage;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use throughline_testkit::{pictures, skip, workspace_root};

use self::driver::Browser;
use self::proxy::ModelPiece;
use self::stage::{ConsoleFixture, ScenarioIds, named};
use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

/// Starts the browser and loads the axe script; `None` if they are not installed.
fn browser() -> Option<(Browser, String)> {
    let axe = std::fs::read_to_string(workspace_root().join("ui/node_modules/axe-core/axe.min.js"));
    let found = axe.ok().and_then(|axe| Some((Browser::start()?, axe)));
    if found.is_none() {
        skip("the console in Chromium: run scripts/ui and scripts/browser first");
    }
    found
}

/// Asserts that the browser logged only messages that contain `allowed`.
fn assert_only_complaint(browser: &Browser, allowed: &str) {
    let others: Vec<String> =
        browser.complaints().into_iter().filter(|line| !line.contains(allowed)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

fn assert_no_complaints(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn console_in_chromium() {
    let Some((browser, axe)) = browser() else { return };
    let stage = ConsoleFixture::set("console");
    let played = stage.play();
    browser.open(&stage.page("runs"));
    browser.reads("Ship version 2.4.0 of checkout");
    screens(&browser, &stage, &played, &axe);
    fits(&browser, &stage, &played);
    watches(&browser, &stage);
    decides(&browser, &stage);
    looks(&browser, &stage, &played);
    traces(&browser, &stage, &played);
    types(&browser, &stage);
    forgets(&browser, &stage, &played);
    assert_no_complaints(&browser);
    hostile::assert_texts_stay_inert(&browser, &stage);
    long::compare_open_times(&browser, &stage);
    check_paging(&browser, &stage);
    assert_no_complaints(&browser);
    check_sign_in(&browser, &stage, &axe);
}

#[test]
fn console_counts_of_the_killed_run_agree() {
    let Some((browser, _)) = browser() else { return };
    counts::agree(&browser);
    assert_no_complaints(&browser);
}

/// If a client switches from GPT to Gemini and back, the map shows that GPT's Seal was sent back.
#[test]
fn console_map_shows_a_seal_kept_after_a_switch_and_back() {
    let kept = TestStore::nothing("map-switch");
    let serving = GatewayProcess::start(&kept.folder, &[], &[]);
    let read = |said: &str| -> Value {
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    let mut input = Vec::new();
    let (gpt, gemini) = ("sim/gpt-5.2", "sim/gemini-3-pro-preview");
    for (model, words) in [(gpt, "Hello"), (gemini, "And you?"), (gpt, "And again?")] {
        input.push(json!({"role": "user", "content": words}));
        let body = json!({"model": model, "store": false, "input": input,
            "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"}});
        let answer = read(&serving.said("POST", "/v1/responses", "", &body.to_string()));
        let output = answer["output"].as_array().unwrap_or_else(|| panic!("{answer}"));
        input.extend(output.iter().cloned());
    }
    let calls = read(&serving.said("GET", "/v1/throughline/calls", "", ""));
    let thread = calls["calls"][0]["thread"].as_str().unwrap();
    let map = read(&serving.said("GET", &format!("/v1/throughline/threads/{thread}/map"), "", ""));
    let calls = map["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3, "{map:#}");
    let returned: Vec<u64> =
        calls[0]["returned"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!(!returned.is_empty(), "{map:#}");
    let did = |call: &Value, place: u64| {
        let spans = call["spans"].as_array().unwrap().iter();
        let mut held = spans.filter(|span| {
            let (first, count) = (span[0].as_u64().unwrap(), span[1].as_u64().unwrap());
            (first..first + count).contains(&place)
        });
        held.next().map(|span| span[2].as_str().unwrap().to_owned())
    };
    for place in returned {
        let second = did(&calls[1], place).unwrap();
        assert!(second.starts_with("elided: foreign"), "{second}: {map:#}");
        assert_eq!(did(&calls[2], place).as_deref(), Some("kept"), "{map:#}");
    }
    let others = calls[1]["returned"].as_array().unwrap().iter().filter_map(Value::as_u64);
    for place in others {
        let third = did(&calls[2], place).unwrap_or_default();
        assert!(third.starts_with("elided"), "{place} {third}: {map:#}");
    }
}

/// Returns each page's screenshot name and path.
fn pages(played: &ScenarioIds) -> Vec<(&'static str, String)> {
    vec![
        ("runs", "runs".to_owned()),
        ("timeline", format!("run/{}", played.trip)),
        ("timeline-release", format!("run/{}", played.release)),
        ("timeline-gate", format!("run/{}", played.gate)),
        ("timeline-sealed", format!("run/{}", played.sealed)),
        ("trace", format!("trace/{}", played.trip)),
        ("threads", "threads".to_owned()),
        ("thread", format!("thread/{}", played.thread)),
        ("map", format!("map/{}", played.thread)),
        ("map-gateway", format!("map/{}", played.conversation)),
        ("calls", "calls".to_owned()),
        ("replay", format!("call/{}", played.call)),
        ("inbox", "inbox".to_owned()),
        ("journal", "journal".to_owned()),
        ("usage", "usage".to_owned()),
        ("doctor", "doctor".to_owned()),
    ]
}

/// Checks every page in both themes for serious accessibility violations, and takes screenshots if
/// requested.
fn screens(browser: &Browser, stage: &ConsoleFixture, played: &ScenarioIds, axe: &str) {
    for (name, place) in pages(played) {
        browser.open("about:blank");
        browser.open(&stage.page(&place));
        settle(browser, name);
        shown(browser, name, axe);
    }
    assert_no_complaints(browser);
}

/// Checks the accessibility of the current page in both themes, and takes screenshots.
fn shown(browser: &Browser, name: &str, axe: &str) {
    browser.run(&format!("{axe}; return true"));
    for theme in ["light", "dark"] {
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        seriously(browser, &format!("{name}, {theme}"));
        save_screenshot(browser, &format!("{name}-{theme}"));
    }
}

/// Saves a screenshot if screenshots are requested.
fn save_screenshot(browser: &Browser, name: &str) {
    if let Some(folder) = pictures() {
        let picture = STANDARD.decode(browser.picture()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}

/// Waits until the named page has loaded its content.
fn settle(browser: &Browser, name: &str) {
    browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
    match name {
        "timeline" => {
            browser.reads("Final answer");
            browser.wait("document.querySelector('.row.thought .seal.intact')");
        }
        "timeline-release" => browser.reads("waiting for approval"),
        "timeline-gate" => browser.reads("not in the thread"),
        "timeline-sealed" => browser.reads("sealed by provider"),
        "trace" => {
            browser.reads("execute_tool weather");
            browser.run("document.querySelector('.span.ai_call button').click()");
            browser.reads("throughline.thinking");
        }
        "journal" => {
            browser.click("Verify every link, content and signature");
            browser.reads("The journal is intact");
        }
        "doctor" => {
            browser.click("Use an example");
            browser.click("Audit request");
            browser.reads("The provider would reject this request");
        }
        _ => {}
    }
}

/// Asserts that axe finds no serious accessibility violation.
fn seriously(browser: &Browser, place: &str) {
    let found = browser.wait(
        "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)",
    );
    let grave = found
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| matches!(one["impact"].as_str(), Some("serious" | "critical")));
    let grave: Vec<Value> = grave
        .map(|one| json!({"rule": one["id"], "nodes": one["nodes"].as_array().unwrap().iter().take(3).map(|node| node["html"].clone()).collect::<Vec<_>>(), "why": one["nodes"][0]["failureSummary"]}))
        .collect();
    assert!(grave.is_empty(), "{place}: {grave:#?}");
}

/// Opens a run while it streams, cuts the connection, and checks that the page catches up without
/// gaps or duplicates.
fn watches(browser: &Browser, stage: &ConsoleFixture) {
    let agent = json!({"name": "Slow", "model": "slow/deepseek-chat"});
    let agent = stage.said("POST", "/v1/agents/", &agent);
    let path = format!("/v1/agents/{}/messages/async", agent["id"].as_str().unwrap());
    let run = stage.said("POST", &path, &json!({"input": "Count slowly, please"}));
    let run = run["id"].as_str().unwrap();
    let words = |from: u32, to: u32| {
        (from..to).map(|n| format!("number {n} ")).collect::<Vec<_>>().concat()
    };
    stage
        .slow
        .say(ModelPiece::Thought("I count them one by one, as I was asked to do. ".to_owned()));
    stage.slow.say(ModelPiece::Text(words(0, 20)));
    browser.open(&stage.page(&format!("run/{run}")));
    browser.reads("I count them one by one");
    browser.reads("number 17");
    browser.wait("document.querySelector('.connection.live')");
    assert_no_complaints(browser);
    stage.proxy.cut();
    browser.wait("document.querySelector('.connection.lost')");
    for part in 2..6 {
        stage.slow.say(ModelPiece::Text(words(part * 10, part * 10 + 10)));
    }
    stage.proxy.restore();
    browser.wait("document.querySelector('.connection.live')");
    browser.reads("number 57");
    let shown = "[...document.querySelectorAll('.row.message.own .long-text')].map((one) => one.innerText).join('')";
    let seen = browser.run(&format!("return {shown}"));
    let seen = seen.as_str().unwrap().trim().to_owned();
    assert!(seen.contains("number 57") && words(0, 60).starts_with(&seen), "{seen}");
    stage.slow.say(ModelPiece::Text(words(60, 70)));
    stage.slow.say(ModelPiece::End);
    browser.wait("document.querySelector('.connection.ended')");
    browser.reads("Final answer");
    let seen = browser.run(&format!("return {shown}"));
    assert_eq!(seen.as_str().unwrap().trim(), words(0, 70).trim());
    assert_only_complaint(browser, "net::ERR_");
}

/// Approves, edits and rejects tool calls, and answers a question.
fn decides(browser: &Browser, stage: &ConsoleFixture) {
    let agent = "kind = \"minimal\"\nreasoning = { level = \"high\", reflection = false }\n";
    let begin = |words: &str| {
        let sim = ["--model", "sim/claude-sonnet-4-5", "--tool", "send=cat", "--approve", "send"];
        named(&stage.run(agent, &[&[words], &sim[..]].concat()).err, "run_")
    };
    let resume = |run: &str| stage.does(&["resume", run, "--tool", "send=cat"]).err;
    let runs = ["Approve this", "Edit this", "Reject this"].map(begin);
    browser.open(&stage.page("inbox"));
    let within = |words: &str, what: &str| {
        format!(
            "[...document.querySelectorAll('.card')].find((card) => card.innerText.includes('{words}'))?.querySelector('{what}')"
        )
    };
    let press = |words: &str, button: &str| {
        browser.wait(&format!(
            "(() => {{ const card = [...document.querySelectorAll('.card')].find((card) => card.innerText.includes('{words}')); \
             const found = [...card.querySelectorAll('button')].find((one) => one.innerText === '{button}'); found.click(); return true; }})()"
        ));
    };
    press("Approve this", "Approve");
    browser.reads("send was approved.");
    let args = stage.does(&["narrate", &runs[0]]).out;
    assert!(args.contains("console approved the tool send"), "{args}");
    assert!(resume(&runs[0]).contains("← send"));
    press("Edit this", "Edit");
    browser.fill(&within("Edit this", "textarea"), r#"{"input": "edited by a person"}"#);
    press("Edit this", "Approve the edited call");
    browser.reads("send was approved with your arguments.");
    let told = resume(&runs[1]);
    assert!(told.contains("edited by a person"), "{told}");
    press("Reject this", "Reject");
    browser.fill(&within("Reject this", "input"), "not on a Friday");
    press("Reject this", "Reject the call");
    browser.reads("send was rejected.");
    resume(&runs[2]);
    for (run, words) in [(&runs[1], "edited by a person"), (&runs[2], "not on a Friday")] {
        browser.open(&stage.page(&format!("run/{run}")));
        browser.reads(words);
        browser.reads("by console");
    }
    browser.open(&stage.page("inbox"));
    browser.reads("How should the table be migrated?");
    browser.wait("[...document.querySelectorAll('.option pre')].some((one) => one.innerText.includes('ALTER TABLE'))");
    for option in ["Copy and swap", "Support", "On call"] {
        browser.wait(&format!(
            "(() => {{ const found = [...document.querySelectorAll('.option')].find((one) => one.querySelector('strong').innerText === '{option}'); found.querySelector('input').click(); return true; }})()"
        ));
    }
    press("How should the table be migrated?", "Answer");
    browser.reads("The answer was sent to the agent.");
    browser.open(&stage.page("runs"));
    browser.click("Migrate the orders table");
    browser.reads("answered by console");
    browser.reads("Copy and swap");
    browser.reads("Support, On call");
    browser.reads("I copy the table in batches");
    assert_no_complaints(browser);
}

/// Opens a replay view, verifies the Journal, audits a request, and switches the theme.
fn looks(browser: &Browser, stage: &ConsoleFixture, played: &ScenarioIds) {
    browser.open(&stage.page(&format!("call/{}", played.call)));
    browser.reads("Fate of each part");
    browser.reads("restored");
    browser.wait("document.querySelectorAll('.difference .plus').length > 1");
    // A thought is shown before its answer, even if the provider sent it last.
    browser.open(&stage.page(&format!("run/{}", played.sealed)));
    browser.wait(
        "document.querySelector('.row.thought p.sealed') && document.querySelector('.row.final')",
    );
    let order = browser.run("return [...document.querySelectorAll('.row.thought, .row.final')].map((row) => row.matches('.thought'))");
    assert_eq!(order, json!([true, false]));
    browser.open(&stage.page("doctor"));
    browser.click("Use an example");
    browser.run("const to = [...document.querySelectorAll('select')][1]; to.value = 'gemini'; to.dispatchEvent(new Event('change', {bubbles: true}))");
    browser.click("Audit request");
    browser.reads("The provider would reject this request");
    browser.reads("Provider error");
    browser.wait("document.querySelector('.difference')");
    browser.reads("at gemini");
    browser.open(&stage.page("journal"));
    browser.click("Verify every link, content and signature");
    browser.reads("The journal is intact");
    browser.click("Dark");
    browser.wait("getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 20)'");
    browser.click("Light");
    browser.wait("getComputedStyle(document.body).backgroundColor === 'rgb(247, 248, 248)'");
    browser.click("Auto");
    assert_no_complaints(browser);
}

/// Opens a trace from its run and from an exported file, and rejects a file that is not a trace.
fn traces(browser: &Browser, stage: &ConsoleFixture, played: &ScenarioIds) {
    let spans = "document.querySelectorAll('.span').length";
    browser.open(&stage.page(&format!("run/{}", played.trip)));
    browser.click("Trace");
    browser.reads("execute_tool weather");
    let shown = browser.wait(spans);
    browser.run("document.querySelector('.span.tool_call button').click()");
    browser.reads("gen_ai.tool.call.result");
    browser.wait("/°C, (sunny|rain)/.test(document.querySelector('.span dl').innerText)");
    let (file, field) =
        (stage.kept.file("trace.json"), "document.querySelector('input[type=file]')");
    stage.does(&["traces", "export", &played.trip, "--output", "trace.json"]);
    browser.open(&stage.page("trace"));
    browser.reads("No trace selected");
    browser.give(field, &stage.kept.file("story.toml"));
    browser.reads("This file is not a Throughline trace");
    browser.give(field, &file);
    assert_eq!(browser.wait(spans), shown);
    browser.reads("Where is it warmer on Saturday");
    assert_no_complaints(browser);
}

/// Checks that forgotten content is marked as forgotten on every page.
fn forgets(browser: &Browser, stage: &ConsoleFixture, played: &ScenarioIds) {
    stage.does(&["forget", "--thread", &played.gate_thread, "--yes"]);
    let ScenarioIds { gate, gate_thread, .. } = played;
    for (place, words) in [
        (format!("run/{gate}"), "The content of this run was erased"),
        (format!("run/{gate}"), "events were erased"),
        (format!("trace/{gate}"), "forgotten"),
        (format!("thread/{gate_thread}"), "The content of this thread was erased"),
        (format!("map/{gate_thread}"), "Erased thread"),
        ("threads".to_owned(), "Erased: "),
    ] {
        browser.open(&stage.page(&place));
        browser.reads(words);
        let page = browser.run("return document.body.textContent");
        let page = page.as_str().unwrap();
        assert!(
            !page.contains("Sum up the week") && !page.contains("14 changes"),
            "{place}: {page}"
        );
    }
    assert_no_complaints(browser);
}

/// Uses only the keyboard: skips the menu, changes pages, searches, opens the list of shortcuts,
/// and opens a run.
fn types(browser: &Browser, stage: &ConsoleFixture) {
    const TAB: &str = "\u{e004}";
    const ENTER: &str = "\u{e007}";
    const ESCAPE: &str = "\u{e00c}";
    browser.open("about:blank");
    browser.open(&stage.page("runs"));
    browser.reads("Ship version 2.4.0 of checkout");
    browser.press(&[TAB]);
    browser.wait("document.activeElement.innerText === 'Skip to the content'");
    browser.press(&[ENTER]);
    browser.wait("document.activeElement.id === 'main'");
    browser.press(&["g", "i"]);
    browser.wait("location.hash === '#/inbox'");
    browser.press(&["g", "r"]);
    browser.wait("location.hash === '#/runs'");
    browser.press(&["?"]);
    browser.wait("document.querySelector('dialog[open]')");
    browser.press(&[ESCAPE]);
    browser.wait("!document.querySelector('dialog')");
    browser.press(&["/"]);
    browser.wait("document.activeElement.type === 'search'");
    browser.press(&["t", "r", "a", "i", "n"]);
    browser.wait("document.querySelectorAll('tbody tr').length === 1");
    browser.press(&[TAB, TAB, TAB]);
    browser.wait("document.activeElement.matches('td a') && getComputedStyle(document.activeElement).outlineStyle !== 'none'");
    browser.press(&[ENTER]);
    browser.wait("location.hash.startsWith('#/run/')");
    browser.reads("a night train from Munich");
    assert_no_complaints(browser);
}

/// Checks that every page fits into a window of 360 pixels.
fn fits(browser: &Browser, stage: &ConsoleFixture, played: &ScenarioIds) {
    browser.size(360, 740);
    for (name, place) in pages(played) {
        browser.open(&stage.page(&place));
        browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
        let wide = browser.run("const main = document.querySelector('main'); return Math.max(document.documentElement.scrollWidth, main.scrollWidth)");
        assert!(wide.as_u64().unwrap() <= 360, "{name} is {wide} wide");
        if matches!(name, "runs" | "timeline" | "trace" | "map" | "replay" | "inbox") {
            if name == "timeline" {
                browser.wait("document.querySelector('.row.thought .seal.intact')");
            }
            for theme in ["light", "dark"] {
                browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
                save_screenshot(browser, &format!("narrow-{name}-{theme}"));
            }
        }
    }
    browser.run("delete document.documentElement.dataset.theme");
    browser.size(1280, 900);
    assert_no_complaints(browser);
}

/// Loads older entries after the first page of a table.
fn check_paging(browser: &Browser, stage: &ConsoleFixture) {
    let calls =
        |query: &str| stage.said("GET", &format!("/v1/throughline/calls?{query}"), &json!(null));
    let before = calls("limit=200")["calls"].as_array().unwrap().len();
    for number in 0..105 {
        let body = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 64,
            "messages": [{"role": "user", "content": format!("Conversation {number}")}]});
        stage.said("POST", "/v1/messages", &body);
    }
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = calls(&format!("limit=25&after={after}"));
        for call in page["calls"].as_array().unwrap() {
            assert!(all.insert(call["id"].to_string()), "{call} is listed twice");
        }
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut after);
    }
    assert_eq!(all.len(), before + 105);
    browser.open(&stage.page("calls"));
    browser.wait("document.querySelectorAll('tbody tr').length === 100");
    browser.click("Load older calls");
    browser.wait(&format!("document.querySelectorAll('tbody tr').length === {}", all.len()));
    browser.open(&stage.page("threads"));
    browser.wait("document.querySelectorAll('tbody tr').length === 100");
    browser.click("Load older threads");
    browser.reads("Where is it warmer on Saturday");
}

/// Checks that the console requires a key once the store contains a key.
fn check_sign_in(browser: &Browser, stage: &ConsoleFixture, axe: &str) {
    let key = |label: &str, limits: &[&str]| {
        let made = stage.kept.json(&[&["keys", "create", "--label", label], limits].concat());
        made["key"].as_str().unwrap().to_owned()
    };
    let own = key("console", &["--budget-usd", "20"]);
    let tests = key("continuous integration", &["--budget-tokens", "2000", "--models", "sim/*"]);
    browser.open("about:blank");
    // The gateway notices the new key within a second.
    browser.open(&stage.page("runs"));
    browser.wait("document.querySelector('input[name=key]')");
    shown(browser, "signin", axe);
    let field = "document.querySelector('input[name=key]')";
    browser.fill(field, "tl_nothing");
    browser.click("Sign in");
    browser.reads("This key is not valid for this gateway");
    browser.fill(field, &own);
    browser.click("Sign in");
    browser.reads("Count up");
    for (key, words) in [(&own, "Hello"), (&tests, "Is it warm?"), (&tests, "And tomorrow?")] {
        let body = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 2048,
            "messages": [{"role": "user", "content": words}]});
        let headers = format!("authorization: Bearer {key}\r\n");
        let said = stage.serving.said("POST", "/v1/messages", &headers, &body.to_string());
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    }
    browser.open(&stage.page("usage"));
    browser.reads("continuous integration");
    browser.wait("document.querySelectorAll('.meter').length === 2");
    shown(browser, "usage", axe);
    browser.click("Sign out");
    browser.wait("document.querySelector('input[name=key]')");
    assert_only_complaint(browser, "401");
}
