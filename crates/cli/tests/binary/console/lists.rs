//! Tests filters in the URL, sorting, copying, the keyboard, the command palette, the overview and
//! the page of a call.

use std::process::Command;

use serde_json::{Value, json};
use throughline_core::{Append, Batch, LogOpening, Store as _, Tenant, pack_events};
use throughline_store::Options;
use throughline_testkit::{skip, workspace_root};

use crate::console::driver::Browser;
use crate::console::stage::ConsoleFixture;
use crate::support::throughline_in;

const ROWS: &str = "document.querySelectorAll('main tbody tr').length";

/// Replaces the clipboard, which a headless browser does not offer, by a variable.
fn watch_clipboard(browser: &Browser) {
    browser.run(
        "navigator.clipboard.writeText = (text) => { window.__copied = text; return Promise.resolve(); }",
    );
}

fn choose(browser: &Browser, label: &str, value: &str) {
    browser.wait(&format!(
        "(() => {{ const field = document.querySelector('select[aria-label={label}]'); \
         field.value = '{value}'; field.dispatchEvent(new Event('change', {{bubbles: true}})); return true; }})()"
    ));
}

/// Creates a failed call, and a run that no process drives.
pub(crate) fn prepare(fixture: &ConsoleFixture) {
    let result = json!({"type": "tool_result", "tool_use_id": "none", "content": "24 °C"});
    let wrong = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 64,
        "messages": [{"role": "user", "content": [result]}]});
    let answer = fixture.send("POST", "/v1/messages", &wrong);
    assert_eq!(answer["type"], "error", "{answer}");
    let event = json!({"type": "message", "role": "user", "content": "Left behind"}).to_string();
    fixture.store.with_journal(&Options::default(), async |journal| {
        let thread = Append::new("thread_interrupted").opening(LogOpening::thread());
        let run = Append::new("run_interrupted")
            .opening(LogOpening::run("thread_interrupted"))
            .record(pack_events([event.as_bytes()]))
            .status("running");
        let batch = Batch::new(Tenant::from("default")).append(thread).append(run);
        journal.commit(batch).await.unwrap();
    });
}

/// Filters survive a reload and the back button, an empty list offers to clear the filters, and the
/// rows and the view can be saved.
pub(crate) fn check_filters(browser: &Browser, fixture: &ConsoleFixture) {
    browser.open("about:blank");
    browser.open(&fixture.page("calls"));
    let all = browser.wait(ROWS).as_u64().unwrap();
    choose(browser, "Status", "failed");
    let is_filtered = format!(
        "location.hash === '#/calls?status=failed' && {ROWS} > 0 && {ROWS} < {all} && \
         [...document.querySelectorAll('main tbody tr')].every((row) => row.querySelector('.status.bad'))"
    );
    browser.wait(&is_filtered);
    browser.run("location.reload()");
    browser.wait(&is_filtered);
    browser.wait("document.querySelector('select[aria-label=Status]').value === 'failed'");
    browser.click("Save view");
    browser.wait_for_text("Remove saved view");
    let csv = "[...document.querySelectorAll('button')].find((one) => /^Save \\d+ rows as CSV$/.test(one.innerText))";
    browser.wait(&format!(
        "(() => {{ const create = URL.createObjectURL; URL.createObjectURL = (blob) => {{ window.__saved = blob; return create(blob); }}; {csv}.click(); return true; }})()"
    ));
    let text = browser.wait("window.__saved?.text()");
    let lines: Vec<&str> = text.as_str().unwrap().lines().collect();
    assert!(lines[0].starts_with("id,thread,at,") && lines.len() >= 2, "{lines:?}");
    browser.run("document.querySelector('td.title a').click()");
    browser.wait("location.hash.startsWith('#/call/')");
    browser.wait_for_text("The call failed, so there is no answer.");
    browser.run("history.back()");
    browser.wait(&is_filtered);
    browser.fill("document.querySelector('input[type=search]')", "zzz-no-call");
    browser.wait("location.hash.includes('search=zzz-no-call')");
    browser.wait_for_text("No matching calls");
    browser.click("Clear all filters");
    browser.wait(&format!("location.hash === '#/calls' && {ROWS} === {all}"));
    browser.wait("document.querySelector('input[type=search]').value === ''");
    browser.open(&fixture.page("runs?status=interrupted"));
    browser.wait_for_text("Left behind");
    browser.wait(&format!(
        "{ROWS} === 1 && document.querySelector('td .status.warn').innerText === 'interrupted'"
    ));
}

/// Column titles sort the rows, ids can be copied, and `j`, `k`, `c` and Enter work on the rows.
pub(crate) fn check_rows(browser: &Browser, fixture: &ConsoleFixture) {
    const ENTER: &str = "\u{e007}";
    browser.open("about:blank");
    browser.open(&fixture.page("calls"));
    browser.wait(ROWS);
    let sort = "[...document.querySelectorAll('th .sort')].find((one) => one.innerText.trim().startsWith('Tokens'))";
    browser.run(&format!("{sort}.click()"));
    browser.wait("location.hash === '#/calls?sort=-tokens'");
    browser.wait("document.querySelector('th[aria-sort=descending]')");
    let tokens = browser.run("return [...document.querySelectorAll('td[data-label=Tokens]')].map((cell) => parseInt(cell.innerText.replaceAll(',', ''), 10) || -1)");
    let tokens: Vec<i64> = tokens.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    assert!(tokens.is_sorted_by(|one, next| one >= next), "{tokens:?}");
    watch_clipboard(browser);
    browser.run("document.querySelector('tbody .copy').click()");
    browser.wait("window.__copied === document.querySelector('tbody tr').dataset.id");
    browser.press(&["j", "j", "k", "j"]);
    browser.wait("document.activeElement === document.querySelectorAll('td.title a')[1]");
    browser.press(&["c"]);
    browser.wait("window.__copied === document.querySelectorAll('tbody tr')[1].dataset.id");
    let id = browser.run("return document.querySelectorAll('tbody tr')[1].dataset.id");
    browser.press(&[ENTER]);
    browser.wait(&format!("location.hash === '#/call/' + {id}"));
    browser.run("document.querySelector('.times').click()");
    browser.open(&fixture.page("calls"));
    browser.wait("/^\\d+ \\w+ \\d{4}, \\d\\d:\\d\\d:\\d\\d [\\w+:]+$/.test(document.querySelector('td time').innerText)");
    browser.run("document.querySelector('.times').click()");
    browser.wait("/ago|now/.test(document.querySelector('td time').innerText)");
}

/// Opens a page by its name and a Thread by its title from the command palette.
pub(crate) fn check_palette(browser: &Browser, fixture: &ConsoleFixture, axe: &str) {
    const CONTROL: &str = "\u{e009}";
    const ENTER: &str = "\u{e007}";
    browser.open(&fixture.page("runs"));
    browser.wait(ROWS);
    browser.press_with(CONTROL, "k");
    browser.wait("document.querySelector('dialog.palette[open] input') === document.activeElement");
    super::check_both_themes(browser, "palette", axe);
    browser.wait("[...document.querySelectorAll('.palette li')].some((one) => one.innerText.includes('Calls: status failed'))");
    browser.press(&["d", "o", "c", "t", ENTER]);
    browser.wait("location.hash === '#/doctor' && !document.querySelector('dialog')");
    browser.press_with(CONTROL, "k");
    let input = "document.querySelector('dialog.palette input')";
    browser.fill(input, "Is it warmer in Rome");
    let entry = "[...document.querySelectorAll('.palette li')].find((one) => one.querySelector('.tag').innerText === 'Thread')";
    browser.wait(&format!("{entry}?.innerText.includes('Is it warmer in Rome')"));
    browser.run(&format!("{entry}.click()"));
    browser.wait("location.hash.startsWith('#/thread/conversation-')");
    browser.wait("!document.querySelector('dialog')");
}

/// The figures of the overview are those of the API, and they link to lists of the same calls.
pub(crate) fn check_overview(browser: &Browser, fixture: &ConsoleFixture) {
    let overview = fixture.send("GET", "/v1/throughline/overview", &json!(null));
    let total = &overview["total"];
    browser.open("about:blank");
    browser.open(&fixture.page(""));
    browser.wait("document.querySelectorAll('.chart canvas').length === 6");
    let figure = |name: &str| {
        let text =
            browser.wait(&format!("document.querySelector('[data-figure={name}]').innerText"));
        text.as_str().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    let expected = |name: &str| total[name].as_u64().unwrap();
    assert_eq!(figure("calls"), expected("calls"));
    assert_eq!(figure("failed"), expected("failed"));
    assert_eq!(figure("restored"), expected("restored"));
    assert_eq!(figure("avoided"), expected("rejections_avoided"));
    assert!(expected("restored") > 0 && expected("rejections_avoided") > 0, "{total:#}");
    browser.click("Errors");
    browser.wait(&format!(
        "location.hash === '#/calls?range=7d&status=failed' && {ROWS} === {}",
        expected("failed")
    ));
    browser.run("history.back()");
    browser.click("Thoughts restored");
    browser.wait(&format!("{ROWS} === {}", expected("restored_calls")));
    browser.run("history.back()");
    browser.click("30 days");
    browser.wait("location.hash === '#/overview?range=30d' || location.hash === '#/?range=30d'");
}

/// The page of a call shows the answer, the avoided rejection and the restored lines. Its request
/// can be copied as a command and as a file for `throughline audit`.
pub(crate) fn check_call(browser: &Browser, fixture: &ConsoleFixture) {
    let calls = fixture.send("GET", "/v1/throughline/calls?restored=true", &json!(null));
    let call =
        calls["calls"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    browser.open("about:blank");
    browser.open(&fixture.page(&format!("call/{call}")));
    browser.wait("document.querySelector('.answer .part.thought .seal') && document.querySelector('.answer .part.text, .answer .part.tool')");
    browser.wait("document.querySelector('[data-avoided=\"anthropic/tool-loop-needs-thinking\"]')");
    browser.wait("document.querySelectorAll('.difference .restored').length >= 2");
    browser.wait("document.querySelectorAll('.waterfall .lane i').length === 3");
    // The answer comes first.
    let order = browser
        .run("return [...document.querySelectorAll('main section > h2')].map((one) => one.id)");
    assert_eq!(
        order,
        json!(["answer", "restored", "difference", "findings", "fates", "timing", "cost"])
    );
    watch_clipboard(browser);
    browser.click("Copy as curl");
    let command = browser.wait("window.__copied");
    let command = command.as_str().unwrap();
    assert!(command.starts_with("curl 'http://") && command.contains("/v1/messages'"), "{command}");
    browser.run("window.__copied = ''");
    browser.click("Copy as Python");
    let program = browser.wait("window.__copied");
    check_python(fixture, program.as_str().unwrap());
    browser.run("window.__copied = ''");
    browser.click("Copy fixture for throughline audit");
    let fixture_text = browser.wait("window.__copied");
    std::fs::write(fixture.store.file("call.json"), fixture_text.as_str().unwrap()).unwrap();
    let audited =
        throughline_in(&fixture.store.folder, &["audit", "call.json", "--format", "json"], b"");
    let audited: Value = serde_json::from_str(&audited.out)
        .unwrap_or_else(|error| panic!("{error}: {}", audited.err));
    assert_eq!(audited["verdict"], "refuse", "{audited:#}");
    browser.click("Show in Thread");
    browser.wait(&format!("document.querySelector('.chat select')?.value === '{call}'"));
    browser.wait("document.querySelector('.chat .part.thought .seal.restored')");
    browser.wait("document.querySelector('.chat .mark + .part.thought')");
    browser.run("[...document.querySelectorAll('main .switch button')].find((one) => one.innerText === 'Calls').click()");
    browser.wait(&format!("location.hash.endsWith('?call={call}&tab=calls')"));
    browser.wait(&format!("document.querySelector('tr[aria-current]')?.dataset.id === '{call}'"));
}

/// Runs a copied program with the official SDK, which receives an answer from the gateway.
fn check_python(fixture: &ConsoleFixture, program: &str) {
    assert!(program.contains("client.messages.create(\n    model="), "{program}");
    let python = workspace_root().join("target/sdks/python/bin/python");
    if !python.exists() {
        skip("the copied Python program: run scripts/sdks first");
        return;
    }
    let file = fixture.store.file("call.py");
    std::fs::write(&file, program).unwrap();
    let output = Command::new(python).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Message("), "{program}\n{output:?}");
}

/// Sends messages from the playground, which drops Thoughts like many clients. The gateway restores
/// them, and leaves out another provider's Thoughts after a switch.
pub(crate) fn check_playground(browser: &Browser, fixture: &ConsoleFixture) {
    browser.open("about:blank");
    browser.open(&fixture.page("playground?model=sim/claude-sonnet-4-5"));
    let say = |text: &str| {
        browser.fill("document.querySelector('.composer textarea')", text);
        browser.run("document.querySelector('.composer button.primary').click()");
        browser.wait("document.querySelector('.composer textarea').value === ''");
        browser.wait(&format!(
            "document.querySelector('.chat')?.textContent.includes({}) && document.querySelector('.chat .mark ~ .part')",
            json!(text)
        ));
    };
    say("Is it warmer in Rome or in Oslo?");
    browser.wait("/^Result of get_weather/.test(document.querySelector('.composer label:has(textarea)').innerText)");
    say("24 °C in Rome");
    browser.wait("document.querySelectorAll('.chat .part.thought .seal.restored').length === 1");
    browser.fill("document.querySelector('.composer input[list]')", "sim/gpt-5.2");
    browser.wait("location.hash === '#/playground?model=sim%2Fgpt-5.2'");
    say("And by train?");
    browser.wait("[...document.querySelectorAll('.chat .mark')].some((one) => one.innerText.includes('gpt-5.2'))");
    browser.wait("!document.querySelector('.chat .part.thought .seal.restored')");
    browser.fill("document.querySelector('.composer input[list]')", "sim/unknown");
    browser.fill("document.querySelector('.composer textarea')", "Hello?");
    browser.run("document.querySelector('.composer button.primary').click()");
    browser.wait_for_text("there is no model `sim/unknown`");
}
