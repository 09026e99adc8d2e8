//! Tests hostile texts: no script runs in the browser, and no escape sequence reaches the terminal.

use serde_json::{Value, json};
use throughline_core::{
    Append, Batch, Body, Item, ItemPosition, LogId, LogOpening, NewRecord, Role, Store as _,
    Tenant, pack_events, store_items,
};
use throughline_store::{Options, about_item};

use crate::console::driver::Browser;
use crate::console::stage::{ConsoleFixture, find_id};

/// Returns a hundred hostile texts. Each sets a flag if it runs as a script.
fn texts() -> Vec<String> {
    let script = "window.__ran=1";
    let seeds = [
        format!("<script>{script}</script>"),
        format!("</script><script>{script}</script>"),
        format!("<img src=x onerror=\"{script}\">"),
        format!("<svg onload=\"{script}\">"),
        format!("<svg><script>{script}</script></svg>"),
        format!("<iframe srcdoc=\"<script>parent.{script}</script>\"></iframe>"),
        format!("<a href=\"javascript:{script}\">press me</a>"),
        format!("[press me](javascript:{script})"),
        format!("![x](x\" onerror=\"{script})"),
        format!("<details open ontoggle=\"{script}\">"),
        format!("<input autofocus onfocus=\"{script}\">"),
        format!("<body onload=\"{script}\">"),
        format!("<style>@import 'javascript:{script}';</style>"),
        "<meta http-equiv=\"refresh\" content=\"0;url=https://example.com\">".to_owned(),
        "<base href=\"https://example.com/\">".to_owned(),
        format!("<object data=\"data:text/html,<script>{script}</script>\"></object>"),
        format!("\"><script>{script}</script>"),
        format!("'-{script}-'"),
        format!("{{{{constructor.constructor('{script}')()}}}}"),
        format!("${{{script}}}"),
        format!("<template><script>{script}</script></template>"),
        format!("<math><mi xlink:href=\"javascript:{script}\">x</mi></math>"),
        format!("data:text/html,<script>{script}</script>"),
        "\u{1b}[31mred\u{1b}[0m \u{1b}[2J\u{1b}[H".to_owned(),
        "\u{1b}]0;a title\u{7} \u{1b}]8;;https://example.com\u{7}link\u{1b}]8;;\u{7}".to_owned(),
        "\u{1b}]52;c;c2VjcmV0\u{7}".to_owned(),
        "\u{9b}31m and \u{9d}0;title\u{9c}".to_owned(),
        "\u{1b}P1$r\u{1b}\\ \u{1b}[6n \u{1b}[>c".to_owned(),
        "one\rtwo\u{8}\u{8}\u{8}three\u{b}\u{c}\u{7f}\u{0}".to_owned(),
        "\u{202e}gnp.exe\u{202c} \u{2066}isolated\u{2069} \u{200f}\u{200e}\u{61c}".to_owned(),
        "\u{2028}\u{2029}\u{feff}\u{200b}".to_owned(),
        format!("{}<script>{script}</script>", "x".repeat(200_000)),
        "\n".repeat(5_000),
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".repeat(300),
        "Z\u{351}\u{36b}\u{343}\u{36a}\u{302}a\u{321}\u{34a}".repeat(400),
    ];
    let wrappings: [fn(&str) -> String; 3] = [
        |text| text.to_owned(),
        |text| format!("# Title\n\n- {text}\n"),
        |text| format!("```html\n{text}\n```"),
    ];
    let all = wrappings.iter().flat_map(|wrap| seeds.iter().map(move |seed| wrap(seed)));
    all.take(100).collect()
}

/// Writes the hostile texts as thoughts, tool results, messages and titles. Then checks the pages
/// and the terminal output.
pub(crate) fn assert_texts_stay_inert(browser: &Browser, fixture: &ConsoleFixture) {
    let texts = texts();
    assert_eq!(texts.len(), 100);
    let agent = "kind = \"minimal\"\nreasoning = { level = \"high\", reflection = false }\n";
    let short: Vec<&str> =
        texts.iter().map(String::as_str).filter(|text| text.len() < 500).collect();
    std::fs::write(fixture.store.file("hostile.txt"), short.join("\n")).unwrap();
    let arguments =
        [&*texts[0], "--model", "sim/claude-sonnet-4-5", "--tool", "read=cat hostile.txt"];
    let output = fixture.run(agent, &arguments);
    assert_plain(&output.out);
    assert_plain(&output.err);
    let run = find_id(&output.err, "run_");
    write(fixture, &run, &texts);
    browser.open(&fixture.page(&format!("run/{run}")));
    browser.wait("document.querySelector('.connection.ended')");
    scroll_through(browser);
    browser.open(&fixture.page(&format!("trace/{run}")));
    browser.wait("document.querySelectorAll('.span').length > 8");
    scroll_through(browser);
    for page in ["runs", "thread/thread_hostile"] {
        browser.open(&fixture.page(page));
        browser.wait(
            "Number(document.querySelector('main table')?.getAttribute('aria-rowcount')) > 100",
        );
        if page.starts_with("thread/") {
            browser.wait("document.querySelectorAll('.chat .part').length >= 100");
            browser.run("document.querySelectorAll('button.more').forEach((one) => one.click())");
        }
        scroll_list(browser);
    }
    browser.open(&fixture.page(&format!("compare/{run}/{run}")));
    browser.wait("document.querySelectorAll('.compare .part').length > 100");
    browser.run("document.querySelectorAll('button.more').forEach((one) => one.click())");
    assert_untouched(browser);
    check_calls(browser, fixture, &short);
    for command in [
        vec!["narrate", &*run],
        vec!["items", "thread_hostile"],
        vec!["runs", "--limit", "200"],
        vec!["threads"],
    ] {
        let output = fixture.run_command(&command);
        assert_plain(&output.out);
        assert_plain(&output.err);
    }
}

/// Sends the hostile texts through the gateway, and checks the pages that show calls. The
/// simulators repeat the text in their answer.
fn check_calls(browser: &Browser, fixture: &ConsoleFixture, texts: &[&str]) {
    let mut sent = vec![texts.join("\n")];
    sent.extend(texts.iter().take(12).map(|text| (*text).to_owned()));
    for text in &sent {
        let body = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 4096,
            "messages": [{"role": "user", "content": text}]});
        let answer = fixture.send("POST", "/v1/messages", &body);
        assert_eq!(answer["type"], "message", "{answer}");
    }
    let calls = fixture.send("GET", "/v1/throughline/calls?limit=20", &json!(null));
    for call in calls["calls"].as_array().unwrap().iter().take(sent.len()) {
        browser.open(&fixture.page(&format!("call/{}", call["id"].as_str().unwrap())));
        browser.wait("document.querySelector('.answer .part.text')");
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); document.querySelectorAll('button.more').forEach((one) => one.click())");
        assert_untouched(browser);
    }
    for page in [
        "calls",
        "overview",
        "calls?search=%3Cscript%3E&sort=%3Cimg%3E&range=%22%3E&hide=%3Cimg%3E",
        "settings?tab=%3Cimg%3E",
        "settings?tab=values&search=%3Cscript%3E",
        "api?op=%3Cimg%20src=x%20onerror=window.__ran=1%3E&search=%3Cscript%3E",
        "compare/%3Cimg%20src=x%20onerror=window.__ran=1%3E",
    ] {
        browser.open("about:blank");
        browser.open(&fixture.page(page));
        browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
        assert_untouched(browser);
    }
}

/// Scrolls through a long table, of which only the rows near the visible part exist.
fn scroll_list(browser: &Browser) {
    let mut at = -1;
    loop {
        let position = browser.wait("(() => { const main = document.querySelector('main'); main.scrollTop += 500; return String(Math.round(main.scrollTop)); })()");
        let next: i64 = position.as_str().unwrap().parse().unwrap();
        browser.wait("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        assert_untouched(browser);
        if next == at {
            break;
        }
        at = next;
    }
}

/// Scrolls a long page to its end and expands every element.
fn scroll_through(browser: &Browser) {
    let mut at = -1;
    loop {
        let position = browser.wait("(() => { const box = document.querySelector('.virtual'); box.scrollTop += box.clientHeight + 700; return String(Math.round(box.scrollTop)); })()");
        let next: i64 = position.as_str().unwrap().parse().unwrap();
        if next == at {
            break;
        }
        at = next;
        browser.run("document.querySelectorAll('.span > button[aria-expanded=false]').forEach((one) => one.click())");
        browser.wait("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        assert_untouched(browser);
    }
}

/// Asserts that no script ran and that the page contains no injected element.
fn assert_untouched(browser: &Browser) {
    let state = browser.run(
        "const odd = document.querySelectorAll('main script, main iframe, main img, main object, main style, main meta, main base, main math, main template, main input[autofocus], a[href^=\"javascript\" i], a[href^=\"data\" i]'); \
         return { ran: window.__ran ?? null, odd: [...odd].map((one) => one.outerHTML.slice(0, 200)), hidden: /[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069\\u061c\\u200b\\u200e\\u200f\\ufeff]/.test(document.querySelector('main').textContent) }",
    );
    assert_eq!(state, json!({"ran": null, "odd": [], "hidden": false}));
}

/// Asserts that terminal output has no control characters.
fn assert_plain(output: &str) {
    let odd = output.chars().find(|letter| {
        (letter.is_control() && !matches!(letter, '\n' | '\t'))
            || matches!(letter, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' | '\u{feff}')
    });
    assert_eq!(odd, None, "{:?}", output.chars().take(400).collect::<String>());
}

/// Writes the hostile texts as thoughts, tool results and messages of a run, and as titles of a
/// hundred other runs.
fn write(fixture: &ConsoleFixture, run: &str, texts: &[String]) {
    let thread = LogId::from("thread_hostile");
    let mut events: Vec<Value> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let id = format!("hostile.{number}");
        events.push(json!({"type": "thought", "phase": "end", "turn": 1, "text": text, "id": id}));
        events.push(json!({"type": "tool_call", "phase": "success", "name": text, "id": id, "args": {"it": text}, "result": text}));
        events.push(json!({"type": "message", "role": "assistant", "content": text}));
        events.push(json!({"type": "reflection", "id": id, "turn": 1, "text": text}));
    }
    let events: Vec<String> = events.iter().map(Value::to_string).collect();
    let titles = texts.iter().enumerate().map(|(number, text)| {
        let event = json!({"type": "message", "role": "user", "content": text}).to_string();
        Append::new(format!("run_hostile_{number}"))
            .opening(LogOpening::run("thread_hostile"))
            .record(pack_events([event.as_bytes()]))
            .status("completed")
    });
    let items: Vec<Item> = (0..)
        .zip(texts)
        .map(|(number, text)| {
            let role = if number % 2 == 0 { Role::User } else { Role::Assistant };
            let body = Body::Text(text.as_str().into());
            Item::new(format!("i{number}"), ItemPosition::new(number, 0), role, body)
        })
        .collect();
    let items = store_items(&items).into_iter().zip(&items).map(|(stored, item)| {
        let about = about_item(&thread, &item.id.0);
        NewRecord::new("item", stored.json.bytes().clone()).about(about)
    });
    let mut thread_log = Append::new("thread_hostile").opening(LogOpening::thread());
    for item in items {
        thread_log = thread_log.record(item);
    }
    fixture.store.with_journal(&Options::default(), async |journal| {
        let tenant = Tenant::from("default");
        journal.commit(Batch::new(tenant.clone()).append(thread_log)).await.unwrap();
        for title in titles {
            journal.commit(Batch::new(tenant.clone()).append(title)).await.unwrap();
        }
        for chunk in events.chunks(50) {
            let packed = pack_events(chunk.iter().map(String::as_bytes));
            let append = Append::new(run.to_owned()).record(packed);
            journal.commit(Batch::new(tenant.clone()).append(append)).await.unwrap();
        }
    });
}
