//! Tests of the console in Chromium, driven over `WebDriver`. `scripts/ui` and `scripts/browser`
//! install the required software. If the software is missing, the tests are skipped and pass.
//!
//! | file | content |
//! |---|---|
//! | `driver.rs` | the browser |
//! | `counts.rs` | the demo's killed run: every page and export has the same counts |
//! | `stage.rs`, `story.toml` | the store that the pages show, scripted by simulators |
//! | `proxy.rs` | a proxy that can be cut, and a model that streams on command |
//! | `lists.rs` | lists, the palette, the overview, the page of a call, the playground |
//! | `provider_sign_in.rs` | sign-in at an identity provider |
//! | `overview.rs` | the routes for the overview and for calls |
//! | `hostile.rs` | texts that try to inject scripts or terminal escapes |
//! | `long.rs` | runs with a hundred and with ten thousand events |
//! | `settings.rs` | settings, keys, actions on runs, comparison, columns, and the API page |
//! | `dataset.rs` | lists of many calls, runs and Threads |

mod counts;
mod dataset;
pub(crate) mod driver;
mod hostile;
mod lists;
mod long;
mod overview;
mod provider_sign_in;
mod proxy;
mod settings;
mod stage;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use throughline_testkit::{pictures, skip, workspace_root};

use self::driver::Browser;
use self::proxy::ModelPiece;
use self::stage::{ConsoleFixture, ScenarioIds, find_id};
use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

/// Starts the browser and loads the axe script; `None` if either is not installed.
fn browser() -> Option<(Browser, String)> {
    let axe = std::fs::read_to_string(workspace_root().join("ui/node_modules/axe-core/axe.min.js"));
    let setup = axe.ok().and_then(|axe| Some((Browser::start()?, axe)));
    if setup.is_none() {
        skip("the console in Chromium: run scripts/ui and scripts/browser first");
    }
    setup
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
    let fixture = ConsoleFixture::new("console");
    let ids = fixture.play();
    lists::prepare(&fixture);
    browser.open(&fixture.page("runs"));
    browser.wait_for_text("Ship version 2.4.0 of checkout");
    check_pages(&browser, &fixture, &ids, &axe);
    check_narrow_window(&browser, &fixture, &ids, &axe);
    check_streaming(&browser, &fixture);
    check_decisions(&browser, &fixture);
    check_views(&browser, &fixture, &ids);
    check_traces(&browser, &fixture, &ids);
    check_keyboard(&browser, &fixture);
    lists::check_filters(&browser, &fixture);
    lists::check_rows(&browser, &fixture);
    lists::check_palette(&browser, &fixture, &axe);
    lists::check_overview(&browser, &fixture);
    lists::check_call(&browser, &fixture);
    assert_no_complaints(&browser);
    lists::check_playground(&browser, &fixture);
    // The call to an unknown model fails.
    assert_only_complaint(&browser, "/v1/messages");
    check_erasure(&browser, &fixture, &ids);
    assert_no_complaints(&browser);
    hostile::assert_texts_stay_inert(&browser, &fixture);
    long::compare_open_times(&browser, &fixture);
    check_paging(&browser, &fixture);
    assert_no_complaints(&browser);
    check_sign_in(&browser, &fixture, &axe);
}

#[test]
fn console_sign_in_at_an_identity_provider() {
    let Some((browser, axe)) = browser() else { return };
    provider_sign_in::check(&browser, &axe);
}

#[test]
fn console_counts_of_the_killed_run_agree() {
    let Some((browser, _)) = browser() else { return };
    counts::assert_counts_agree(&browser);
    assert_no_complaints(&browser);
}

/// If a client switches from GPT to Gemini and back to GPT, the map shows that GPT received its own
/// Seal again.
#[test]
fn console_map_shows_a_seal_kept_after_a_switch_and_back() {
    let store = TestStore::without_database("map-switch");
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    let parse = |response: &str| -> Value {
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
    };
    let mut input = Vec::new();
    let (gpt, gemini) = ("sim/gpt-5.2", "sim/gemini-3-pro-preview");
    for (model, text) in [(gpt, "Hello"), (gemini, "And you?"), (gpt, "And again?")] {
        input.push(json!({"role": "user", "content": text}));
        let body = json!({"model": model, "store": false, "input": input,
            "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"}});
        let answer = parse(&serving.send("POST", "/v1/responses", "", &body.to_string()));
        let output = answer["output"].as_array().unwrap_or_else(|| panic!("{answer}"));
        input.extend(output.iter().cloned());
    }
    let calls = parse(&serving.send("GET", "/v1/throughline/calls", "", ""));
    let thread = calls["calls"][0]["thread"].as_str().unwrap();
    let map = parse(&serving.send("GET", &format!("/v1/throughline/threads/{thread}/map"), "", ""));
    let calls = map["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3, "{map:#}");
    let returned: Vec<u64> =
        calls[0]["returned"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!(!returned.is_empty(), "{map:#}");
    let fate_of = |call: &Value, item: u64| {
        let spans = call["spans"].as_array().unwrap().iter();
        let mut covering = spans.filter(|span| {
            let (first, count) = (span[0].as_u64().unwrap(), span[1].as_u64().unwrap());
            (first..first + count).contains(&item)
        });
        covering.next().map(|span| span[2].as_str().unwrap().to_owned())
    };
    for item in returned {
        let second = fate_of(&calls[1], item).unwrap();
        assert!(second.starts_with("elided: foreign"), "{second}: {map:#}");
        assert_eq!(fate_of(&calls[2], item).as_deref(), Some("kept"), "{map:#}");
    }
    let others = calls[1]["returned"].as_array().unwrap().iter().filter_map(Value::as_u64);
    for item in others {
        let third = fate_of(&calls[2], item).unwrap_or_default();
        assert!(third.starts_with("elided"), "{item} {third}: {map:#}");
    }
}

/// Returns the screenshot name and the URL path of each page.
fn pages(ids: &ScenarioIds) -> Vec<(&'static str, String)> {
    vec![
        ("overview", "overview".to_owned()),
        ("runs", "runs".to_owned()),
        ("timeline", format!("run/{}", ids.trip)),
        ("timeline-release", format!("run/{}", ids.release)),
        ("timeline-gate", format!("run/{}", ids.gate)),
        ("timeline-sealed", format!("run/{}", ids.sealed)),
        ("trace", format!("trace/{}", ids.trip)),
        ("threads", "threads".to_owned()),
        ("thread", format!("thread/{}", ids.thread)),
        ("conversation", format!("thread/{}", ids.conversation)),
        ("map", format!("map/{}", ids.thread)),
        ("map-gateway", format!("map/{}", ids.conversation)),
        ("calls", "calls".to_owned()),
        ("replay", format!("call/{}", ids.call)),
        ("inbox", "inbox".to_owned()),
        ("journal", "journal".to_owned()),
        ("usage", "usage".to_owned()),
        ("playground", "playground".to_owned()),
        ("doctor", "doctor".to_owned()),
        ("compare", format!("compare/{}/{}", ids.trip, ids.sealed)),
        ("settings", "settings".to_owned()),
        ("settings-routes", "settings?tab=routes".to_owned()),
        ("settings-providers", "settings?tab=providers".to_owned()),
        ("settings-data", "settings?tab=data".to_owned()),
        ("settings-values", "settings?tab=values".to_owned()),
        ("api", "api?op=GET%20/v1/throughline/runs".to_owned()),
    ]
}

/// Sizes of the windows of a desktop and of a phone.
const DESKTOP: (u32, u32) = (1440, 900);
const PHONE: (u32, u32) = (390, 844);

/// Checks every page in both themes for accessibility violations, and takes screenshots if
/// requested.
fn check_pages(browser: &Browser, fixture: &ConsoleFixture, ids: &ScenarioIds, axe: &str) {
    browser.resize(DESKTOP.0, DESKTOP.1);
    for (name, path) in pages(ids) {
        browser.open("about:blank");
        browser.open(&fixture.page(&path));
        wait_for_page(browser, name);
        assert_fits(browser, name, DESKTOP.0);
        check_both_themes(browser, name, axe);
    }
    browser.open(&fixture.page("").replace("/#/", "/docs"));
    browser.wait("document.querySelector('h1')");
    check_both_themes(browser, "docs", axe);
    browser.resize(1280, 900);
    assert_no_complaints(browser);
}

/// Asserts that the page does not scroll sideways.
fn assert_fits(browser: &Browser, name: &str, width: u32) {
    let wide = browser.run("const main = document.querySelector('main'); return Math.max(document.documentElement.scrollWidth, main.scrollWidth)");
    assert!(wide.as_u64().unwrap() <= width.into(), "{name} is {wide} wide");
}

/// Checks the accessibility of the current page in both themes, and takes screenshots.
fn check_both_themes(browser: &Browser, name: &str, axe: &str) {
    browser.run(&format!("{axe}; return true"));
    for theme in ["light", "dark"] {
        browser.prefer_scheme(theme);
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        assert_accessible(browser, &format!("{name}, {theme}"));
        save_screenshot(browser, &format!("{name}-{theme}"));
    }
    browser.prefer_scheme("");
}

/// Saves a screenshot if screenshots are requested.
fn save_screenshot(browser: &Browser, name: &str) {
    if let Some(folder) = pictures() {
        let picture = STANDARD.decode(browser.screenshot()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}

/// Waits until the named page has loaded its content.
fn wait_for_page(browser: &Browser, name: &str) {
    browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
    match name {
        "overview" => {
            browser.wait("document.querySelectorAll('.chart canvas').length === 6");
        }
        "replay" => browser.wait_for_text("Fate of each part"),
        "timeline" => {
            browser.wait_for_text("Final answer");
            browser.wait("document.querySelector('.row.thought .seal.intact')");
        }
        "timeline-release" => browser.wait_for_text("waiting for approval"),
        "timeline-gate" => browser.wait_for_text("not in the Thread"),
        "timeline-sealed" => browser.wait_for_text("sealed by provider"),
        "trace" => {
            browser.wait_for_text("execute_tool weather");
            browser.run("document.querySelector('.span.ai_call button').click()");
            browser.wait_for_text("throughline.thinking");
        }
        "journal" => {
            browser.click("Verify every link, content and signature");
            browser.wait_for_text("The Journal is intact");
        }
        "doctor" => {
            browser.click("Use an example");
            browser.click("Audit request");
            browser.wait_for_text("The provider would reject this request");
        }
        _ => {}
    }
}

/// Asserts that axe finds no accessibility violation above minor.
fn assert_accessible(browser: &Browser, page: &str) {
    let violations = browser.wait(
        "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)",
    );
    let violations = violations.as_array().unwrap().iter();
    let serious = violations.filter(|violation| violation["impact"] != "minor");
    let serious: Vec<Value> = serious
        .map(|violation| json!({"rule": violation["id"], "nodes": violation["nodes"].as_array().unwrap().iter().take(3).map(|node| node["html"].clone()).collect::<Vec<_>>(), "why": violation["nodes"][0]["failureSummary"]}))
        .collect();
    assert!(serious.is_empty(), "{page}: {serious:#?}");
}

/// Opens a run while it streams, cuts the connection, and checks that the page catches up without
/// gaps or duplicates.
fn check_streaming(browser: &Browser, fixture: &ConsoleFixture) {
    let agent = json!({"name": "Slow", "model": "slow/deepseek-chat"});
    let agent = fixture.send("POST", "/v1/agents/", &agent);
    let path = format!("/v1/agents/{}/messages/async", agent["id"].as_str().unwrap());
    let run = fixture.send("POST", &path, &json!({"input": "Count slowly, please"}));
    let run = run["id"].as_str().unwrap();
    let numbers = |from: u32, to: u32| {
        (from..to).map(|n| format!("number {n} ")).collect::<Vec<_>>().concat()
    };
    fixture
        .slow
        .send(ModelPiece::Thought("I count them one by one, as I was asked to do. ".to_owned()));
    fixture.slow.send(ModelPiece::Text(numbers(0, 20)));
    browser.open(&fixture.page(&format!("run/{run}")));
    browser.wait_for_text("I count them one by one");
    browser.wait_for_text("number 17");
    browser.wait("document.querySelector('.connection.live')");
    assert_no_complaints(browser);
    fixture.proxy.cut();
    browser.wait("document.querySelector('.connection.lost')");
    for part in 2..6 {
        fixture.slow.send(ModelPiece::Text(numbers(part * 10, part * 10 + 10)));
    }
    fixture.proxy.restore();
    browser.wait("document.querySelector('.connection.live')");
    browser.wait_for_text("number 57");
    let script = "[...document.querySelectorAll('.row.message.own .long-text')].map((one) => one.innerText).join('')";
    let text = browser.run(&format!("return {script}"));
    let text = text.as_str().unwrap().trim().to_owned();
    assert!(text.contains("number 57") && numbers(0, 60).starts_with(&text), "{text}");
    fixture.slow.send(ModelPiece::Text(numbers(60, 70)));
    fixture.slow.send(ModelPiece::End);
    browser.wait("document.querySelector('.connection.ended')");
    browser.wait_for_text("Final answer");
    let text = browser.run(&format!("return {script}"));
    assert_eq!(text.as_str().unwrap().trim(), numbers(0, 70).trim());
    assert_only_complaint(browser, "net::ERR_");
}

/// Approves, edits and rejects tool calls, and answers a question.
fn check_decisions(browser: &Browser, fixture: &ConsoleFixture) {
    let agent = "kind = \"minimal\"\nreasoning = { level = \"high\", reflection = false }\n";
    let begin = |text: &str| {
        let sim = ["--model", "sim/claude-sonnet-4-5", "--tool", "send=cat", "--approve", "send"];
        find_id(&fixture.run(agent, &[&[text], &sim[..]].concat()).err, "run_")
    };
    let resume = |run: &str| fixture.run_command(&["resume", run, "--tool", "send=cat"]).err;
    let runs = ["Approve this", "Edit this", "Reject this"].map(begin);
    browser.open(&fixture.page("inbox"));
    let within = |text: &str, selector: &str| {
        format!(
            "[...document.querySelectorAll('.card')].find((card) => card.innerText.includes('{text}'))?.querySelector('{selector}')"
        )
    };
    let press = |text: &str, button: &str| {
        browser.wait(&format!(
            "(() => {{ const card = [...document.querySelectorAll('.card')].find((card) => card.innerText.includes('{text}')); \
             const found = [...card.querySelectorAll('button')].find((one) => one.innerText === '{button}'); found.click(); return true; }})()"
        ));
    };
    press("Approve this", "Approve");
    browser.wait_for_text("send was approved.");
    let args = fixture.run_command(&["narrate", &runs[0]]).out;
    assert!(args.contains("console approved the tool send"), "{args}");
    assert!(resume(&runs[0]).contains("← send"));
    press("Edit this", "Edit");
    browser.fill(&within("Edit this", "textarea"), r#"{"input": "edited by a person"}"#);
    press("Edit this", "Approve the edited call");
    browser.wait_for_text("send was approved with your arguments.");
    let stderr = resume(&runs[1]);
    assert!(stderr.contains("edited by a person"), "{stderr}");
    press("Reject this", "Reject");
    browser.fill(&within("Reject this", "input"), "not on a Friday");
    press("Reject this", "Reject the call");
    browser.wait_for_text("send was rejected.");
    resume(&runs[2]);
    for (run, text) in [(&runs[1], "edited by a person"), (&runs[2], "not on a Friday")] {
        browser.open(&fixture.page(&format!("run/{run}")));
        browser.wait_for_text(text);
        browser.wait_for_text("by console");
    }
    browser.open(&fixture.page("inbox"));
    browser.wait_for_text("How should the table be migrated?");
    browser.wait("[...document.querySelectorAll('.option pre')].some((one) => one.innerText.includes('ALTER TABLE'))");
    for option in ["Copy and swap", "Support", "On call"] {
        browser.wait(&format!(
            "(() => {{ const found = [...document.querySelectorAll('.option')].find((one) => one.querySelector('strong').innerText === '{option}'); found.querySelector('input').click(); return true; }})()"
        ));
    }
    press("How should the table be migrated?", "Answer");
    browser.wait_for_text("The answer was sent to the agent.");
    browser.open(&fixture.page("runs"));
    browser.click("Migrate the orders table");
    browser.wait_for_text("answered by console");
    browser.wait_for_text("Copy and swap");
    browser.wait_for_text("Support, On call");
    browser.wait_for_text("I copy the table in batches");
    assert_no_complaints(browser);
}

/// Opens a replay view, verifies the Journal, audits a request, and switches the theme.
fn check_views(browser: &Browser, fixture: &ConsoleFixture, ids: &ScenarioIds) {
    browser.open(&fixture.page(&format!("call/{}", ids.call)));
    browser.wait_for_text("Fate of each part");
    browser.wait_for_text("restored");
    browser.wait("document.querySelectorAll('.difference .plus').length > 1");
    // A thought is shown before its answer, even if the provider sent it last.
    browser.open(&fixture.page(&format!("run/{}", ids.sealed)));
    browser.wait(
        "document.querySelector('.row.thought p.sealed') && document.querySelector('.row.final')",
    );
    let order = browser.run("return [...document.querySelectorAll('.row.thought, .row.final')].map((row) => row.matches('.thought'))");
    assert_eq!(order, json!([true, false]));
    browser.open(&fixture.page("doctor"));
    browser.click("Use an example");
    browser.run("const to = [...document.querySelectorAll('select')][1]; to.value = 'gemini'; to.dispatchEvent(new Event('change', {bubbles: true}))");
    browser.click("Audit request");
    browser.wait_for_text("The provider would reject this request");
    browser.wait_for_text("Provider error");
    browser.wait("document.querySelector('.difference')");
    browser.wait_for_text("at gemini");
    browser.open(&fixture.page("journal"));
    browser.click("Verify every link, content and signature");
    browser.wait_for_text("The Journal is intact");
    browser.click("Dark");
    browser.wait("getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 20)'");
    browser.click("Light");
    browser.wait("getComputedStyle(document.body).backgroundColor === 'rgb(247, 248, 248)'");
    browser.click("Auto");
    assert_no_complaints(browser);
}

/// Opens a trace from its run and from an exported file, and rejects a file that is not a trace.
fn check_traces(browser: &Browser, fixture: &ConsoleFixture, ids: &ScenarioIds) {
    let spans = "document.querySelectorAll('.span').length";
    browser.open(&fixture.page(&format!("run/{}", ids.trip)));
    browser.click("Trace");
    browser.wait_for_text("execute_tool weather");
    let count = browser.wait(spans);
    browser.run("document.querySelector('.span.tool_call button').click()");
    browser.wait_for_text("gen_ai.tool.call.result");
    browser.wait("/°C, (sunny|rain)/.test(document.querySelector('.span dl').innerText)");
    let (file, field) =
        (fixture.store.file("trace.json"), "document.querySelector('input[type=file]')");
    fixture.run_command(&["traces", "export", &ids.trip, "--output", "trace.json"]);
    browser.open(&fixture.page("trace"));
    browser.wait_for_text("No trace selected");
    browser.upload(field, &fixture.store.file("story.toml"));
    browser.wait_for_text("This file is not a Throughline trace");
    browser.upload(field, &file);
    assert_eq!(browser.wait(spans), count);
    browser.wait_for_text("Where is it warmer on Saturday");
    assert_no_complaints(browser);
}

/// Checks that forgotten content is marked as forgotten on every page.
fn check_erasure(browser: &Browser, fixture: &ConsoleFixture, ids: &ScenarioIds) {
    fixture.run_command(&["forget", "--thread", &ids.gate_thread, "--yes"]);
    let ScenarioIds { gate, gate_thread, .. } = ids;
    for (path, text) in [
        (format!("run/{gate}"), "The content of this run was erased"),
        (format!("run/{gate}"), "events were erased"),
        (format!("trace/{gate}"), "forgotten"),
        (format!("thread/{gate_thread}"), "The content of this Thread was erased"),
        (format!("map/{gate_thread}"), "Erased Thread"),
        ("threads".to_owned(), "Erased: "),
    ] {
        browser.open(&fixture.page(&path));
        browser.wait_for_text(text);
        let page = browser.run("return document.body.textContent");
        let page = page.as_str().unwrap();
        assert!(
            !page.contains("Sum up the week") && !page.contains("14 changes"),
            "{path}: {page}"
        );
    }
    assert_no_complaints(browser);
}

/// Uses only the keyboard: skips the menu, changes pages, searches, opens the list of shortcuts,
/// and opens a run.
fn check_keyboard(browser: &Browser, fixture: &ConsoleFixture) {
    const TAB: &str = "\u{e004}";
    const ENTER: &str = "\u{e007}";
    const ESCAPE: &str = "\u{e00c}";
    browser.open("about:blank");
    browser.open(&fixture.page("runs"));
    browser.wait_for_text("Ship version 2.4.0 of checkout");
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
    // After the filters, the focus is on the first column title.
    browser.press(&[TAB, TAB, TAB, TAB, "j"]);
    browser.wait("document.activeElement.matches('td a') && getComputedStyle(document.activeElement).outlineStyle !== 'none'");
    browser.press(&[ENTER]);
    browser.wait("location.hash.startsWith('#/run/')");
    browser.wait_for_text("a night train from Munich");
    assert_no_complaints(browser);
}

/// Checks that every page fits into the window of a phone, and into one of 360 pixels.
fn check_narrow_window(browser: &Browser, fixture: &ConsoleFixture, ids: &ScenarioIds, axe: &str) {
    for (name, path) in pages(ids) {
        browser.resize(PHONE.0, PHONE.1);
        browser.open(&fixture.page(&path));
        browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
        if name == "timeline" {
            browser.wait("document.querySelector('.row.thought .seal.intact')");
        }
        assert_fits(browser, name, PHONE.0);
        if pictures().is_some() {
            check_both_themes(browser, &format!("narrow-{name}"), axe);
        } else {
            browser.run(&format!("{axe}; return true"));
            assert_accessible(browser, &format!("narrow {name}"));
        }
        browser.resize(360, PHONE.1);
        assert_fits(browser, name, 360);
    }
    browser.run("delete document.documentElement.dataset.theme");
    browser.resize(1280, 900);
    assert_no_complaints(browser);
}

/// Returns a JavaScript expression that is true if the list on the page has this many rows.
fn listed(rows: usize) -> String {
    let count = "Number(document.querySelector('main table')?.getAttribute('aria-rowcount'))";
    format!("{count} === {}", rows + 1)
}

/// Loads older entries after the first page of a table.
fn check_paging(browser: &Browser, fixture: &ConsoleFixture) {
    let calls =
        |query: &str| fixture.send("GET", &format!("/v1/throughline/calls?{query}"), &json!(null));
    let before = calls("limit=200")["calls"].as_array().unwrap().len();
    for number in 0..105 {
        let body = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 64,
            "messages": [{"role": "user", "content": format!("Conversation {number}")}]});
        fixture.send("POST", "/v1/messages", &body);
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
    browser.open(&fixture.page("calls"));
    browser.wait(&listed(100));
    browser.click("Load older calls");
    browser.wait(&listed(all.len()));
    browser.open(&fixture.page("threads"));
    browser.wait(&listed(100));
    browser.click("Load older Threads");
    browser.wait(&format!("!({})", listed(100)));
    // Only rows near the visible part of the page exist.
    browser.wait(
        "(() => { const main = document.querySelector('main'); main.scrollTop += 400; \
         return main.textContent.includes('Where is it warmer on Saturday'); })()",
    );
}

/// Checks that the console requires a key once the store contains a key.
fn check_sign_in(browser: &Browser, fixture: &ConsoleFixture, axe: &str) {
    let key = |label: &str, limits: &[&str]| {
        let created = fixture.store.json(&[&["keys", "create", "--label", label], limits].concat());
        created["key"].as_str().unwrap().to_owned()
    };
    let own = key("console", &["--budget-usd", "20"]);
    let tests = key("continuous integration", &["--budget-tokens", "5000", "--models", "sim/*"]);
    browser.open("about:blank");
    // The gateway notices the new key within a second.
    browser.open(&fixture.page("runs"));
    browser.wait("document.querySelector('input[name=key]')");
    check_both_themes(browser, "signin", axe);
    let field = "document.querySelector('input[name=key]')";
    browser.fill(field, "tl_nothing");
    browser.click("Sign in");
    browser.wait_for_text("This key is not valid for this gateway");
    browser.fill(field, &own);
    browser.click("Sign in");
    browser.wait_for_text("Count up");
    for (key, text) in [(&own, "Hello"), (&tests, "Is it warm?"), (&tests, "And tomorrow?")] {
        let body = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 2048,
            "messages": [{"role": "user", "content": text}]});
        let headers = format!("authorization: Bearer {key}\r\n");
        let response = fixture.serving.send("POST", "/v1/messages", &headers, &body.to_string());
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    browser.open(&fixture.page("usage"));
    browser.wait_for_text("continuous integration");
    browser.wait("document.querySelectorAll('.meter').length === 2");
    check_both_themes(browser, "usage", axe);
    browser.click("Sign out");
    browser.wait("document.querySelector('input[name=key]')");
    assert_only_complaint(browser, "401");
}
