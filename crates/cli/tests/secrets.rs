//! Keys and seals that are planted everywhere appear in no log, metric, error or panic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "the store for tests can do more")]

#[path = "support/kept.rs"]
mod kept;
#[path = "support/serving.rs"]
mod serving;
mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use crate::kept::Kept;
use crate::serving::Serving;
use crate::support::throughline_with;

/// A secret that stands nowhere else.
fn canary(number: u32) -> String {
    format!("cAnArY{number:02}xQ7Zp9Lw3Vt5Rk8Jm2Nb6Hd4Gf")
}

/// Headers with secrets of every kind.
fn headers(first: u32) -> String {
    let names = [
        "authorization: Bearer",
        "x-api-key:",
        "x-goog-api-key:",
        "api-key:",
        "cookie: session=",
        "proxy-authorization: Basic",
        "x-custom-secret:",
        "x-throughline-token:",
        "x-throughline-user:",
        "openai-organization:",
    ];
    let lines = (first..).zip(names).map(|(number, name)| format!("{name} {}\r\n", canary(number)));
    lines.collect()
}

/// A provider that answers each request with this, and closes.
fn provider(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|_| line != "\r\n") && !line.is_empty() {
                let lower = line.to_ascii_lowercase();
                if let Some(said) = lower.strip_prefix("content-length: ") {
                    length = said.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).ok();
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

/// Notes what we say ourselves. What a provider says is its caller's to hear, and stands behind the id of the call.
fn note(errors: &mut String, said: &str) {
    if !said.contains("x-throughline-call") {
        errors.push_str(said);
    }
}

/// Providers whose words hold secrets, and a configuration that does.
fn configure(kept: &Kept) {
    let refusal =
        format!(r#"{{"type":"error","error":{{"type":"x","message":"{}"}}}}"#, canary(17));
    let head = format!("set-cookie: a={}\r\nx-secret: {}", canary(18), canary(18));
    let refuses = provider(format!(
        "HTTP/1.1 400 Bad\r\n{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{refusal}",
        refusal.len()
    ));
    let garbage = provider(format!(
        "HTTP/1.1 200 OK\r\n{head}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {{{}\n\n",
        canary(17)
    ));
    let elsewhere = provider(format!(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/{}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        canary(17)
    ));
    let row = |name: &str, url: &str, key: &str| {
        format!("[providers.{name}]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n{key}\n")
    };
    let config = [
        row("refuses", &refuses, &format!("api_key = \"{}\"", canary(19))),
        row("garbage", &garbage, "api_key_env = \"WORK_KEY\""),
        row("elsewhere", &elsewhere, &format!("api_key = \"{}\"", canary(19))),
        row("nowhere", "http://127.0.0.1:9", &format!("api_key = \"{}\"", canary(19))),
        "[gateway]\nbody_limit = \"64KiB\"\n".to_owned(),
    ];
    std::fs::write(kept.file("throughline.toml"), config.concat()).unwrap();
}

/// A conversation whose every part is a secret.
fn conversation(model: &str, stream: bool) -> String {
    let seals = format!(
        r#"{{"type":"thinking","thinking":"{}","signature":"{}"}},{{"type":"redacted_thinking","data":"{}"}}"#,
        canary(11),
        canary(12),
        canary(13)
    );
    format!(
        r#"{{"model":"{model}","max_tokens":4096,"stream":{stream},"system":"{}","metadata":{{"user_id":"{}"}},"messages":[{{"role":"user","content":"{}"}},{{"role":"assistant","content":[{seals},{{"type":"text","text":"Yes"}}]}},{{"role":"user","content":"Go on"}}]}}"#,
        canary(14),
        canary(15),
        canary(14)
    )
}

/// Asks in every dialect, well and badly, with secrets everywhere; gives the errors that are our own.
fn ask(serving: &Serving) -> String {
    let query = format!("?key={}&secret={}", canary(10), canary(10));
    let mut errors = String::new();
    for model in [
        "refuses/claude",
        "garbage/claude",
        "elsewhere/claude",
        "nowhere/claude",
        "sim/claude-sonnet-4-5",
        "sim/gpt-5.2",
    ] {
        for stream in [false, true] {
            for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
                let (path, body) = (format!("{path}{query}"), conversation(model, stream));
                note(&mut errors, &serving.said("POST", &path, &headers(1), &body));
            }
        }
    }
    let opaque = format!(
        r#"{{"model":"sim/gpt-5.2","store":false,"input":[{{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"{}"}},{{"role":"user","content":"Hello"}}]}}"#,
        canary(12)
    );
    let signed = format!(
        r#"{{"contents":[{{"role":"model","parts":[{{"text":"a","thoughtSignature":"{}"}}]}},{{"role":"user","parts":[{{"text":"Hello"}}]}}]}}"#,
        canary(12)
    );
    let gemini = format!("/v1beta/models/sim/gemini-3-pro-preview:generateContent{query}");
    for (path, body) in [
        ("/v1/responses", opaque),
        (&gemini, signed),
        ("/v1/responses", format!(r#"{{"model":"sim/gpt-5.2","input":"{}"#, canary(14))),
        ("/v1/responses", format!(r#"{{"input":"{}"}}"#, canary(14))),
        ("/v1/messages", canary(14).repeat(4000)),
        ("/nowhere", "{}".to_owned()),
    ] {
        note(&mut errors, &serving.said("POST", path, &headers(1), &body));
    }
    errors
}

#[test]
fn canaries_are_told_nowhere() {
    let kept = Kept::nothing("secrets");
    configure(&kept);
    let (work, openai) = (canary(20), canary(16));
    let environment = [("WORK_KEY", work.as_str()), ("OPENAI_API_KEY", openai.as_str())];
    let mut serving = Serving::start(&kept.folder, &environment, &["--log", "debug"]);
    let mut errors = ask(&serving);
    // With a key that is none, once there are keys.
    let key = kept.json(&["keys", "create"])["key"].as_str().unwrap().to_owned();
    let wrong = format!("authorization: Bearer tl_{}\r\n", canary(1));
    let said = serving.said("POST", "/v1/messages", &wrong, &conversation("sim/gpt-5.2", false));
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    errors.push_str(&said);
    let metrics = serving.said("GET", "/metrics", &format!("x-api-key: {key}\r\n"), "");
    assert!(metrics.contains("throughline_calls_total{"), "{metrics}");
    assert_eq!(serving.stop(), 0);
    let shown = throughline_with(&environment, &kept.folder, &["config", "show"], b"");
    let checked = throughline_with(&environment, &kept.folder, &["config", "check"], b"");
    let told = [
        ("welcome", serving.welcome.clone()),
        ("log", serving.errors()),
        ("metrics", metrics),
        ("errors", errors),
        ("config show", format!("{}{}", shown.out, shown.err)),
        ("config check", format!("{}{}", checked.out, checked.err)),
        ("usage", kept.run(&["usage", "--format", "json"]).out),
    ];
    assert!(told[1].1.lines().count() > 30, "the log tells of the calls: {}", told[1].1);
    for (what, text) in &told {
        assert!(!text.is_empty(), "{what} says nothing");
        for number in 1..=20 {
            assert!(!text.contains(&canary(number)), "canary {number} is in the {what}: {text}");
        }
        assert!(!text.contains(&key), "the key is in the {what}: {text}");
    }
}
