//! Keys and seals that are planted everywhere appear in no log, metric, error or panic.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};
use throughline_testkit::figure;

use crate::support::kept::Kept;
use crate::support::serving::Serving;
use crate::support::throughline_with;
use crate::traces::Receiver;

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

/// A provider that answers each request with this, and closes; one that has nothing to say never does.
fn provider(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            if answer.is_empty() {
                silent.push(stream);
                continue;
            }
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

/// A provider whose words hold secrets.
struct Provider {
    name: &'static str,
    address: String,
    /// What it says that its callers may hear, word for word. They hear nothing else of it.
    said: Vec<String>,
}

impl Provider {
    fn new(name: &'static str, status: &str, headers: &str, body: &str, said: &[&str]) -> Self {
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let said = said.iter().map(ToString::to_string).collect();
        Self { name, address: provider(answer), said }
    }

    /// A provider at that address, which says nothing.
    fn without_words(name: &'static str, address: String) -> Self {
        Self { name, address, said: Vec::new() }
    }
}

/// Providers that refuse, talk nonsense, are broken, point elsewhere, are not there, and are silent.
fn providers() -> Vec<Provider> {
    let (word, header) = (canary(17), format!("x-secret: {}", canary(18)));
    // The cookie is between the provider and us.
    let head = format!("set-cookie: a={}\r\n{header}\r\n", canary(18));
    let message = format!(r#""message":"{word}""#);
    let refusal = format!(r#"{{"type":"error","error":{{"type":"x",{message}}}}}"#);
    let frame = format!("data: {{{word}");
    let (event_stream, html) = ("content-type: text/event-stream\r\n", format!("<p>{word}</p>"));
    let garbage = format!("{head}{event_stream}");
    let location = format!("location: http://127.0.0.1:9/{word}\r\n");
    vec![
        Provider::new("refuses", "400 Bad", &head, &refusal, &[&message, &header]),
        Provider::new("garbage", "200 OK", &garbage, &format!("{frame}\n\n"), &[&frame, &header]),
        Provider::new("plain", "200 OK", "content-type: text/html\r\n", &html, &[&html]),
        Provider::new("broken", "500 Oh", "content-type: text/html\r\n", &html, &[&html]),
        Provider::new("elsewhere", "302 Found", &location, "", &[]),
        Provider::without_words("nowhere", "http://127.0.0.1:9".to_owned()),
        Provider::without_words("silent", provider(String::new())),
    ]
}

/// A configuration with secrets.
fn configure(kept: &Kept, providers: &[Provider]) {
    let rows = providers.iter().map(|Provider { name, address, .. }| {
        let key = match *name {
            "garbage" => "api_key_env = \"WORK_KEY\"".to_owned(),
            _ => format!("api_key = \"{}\"", canary(19)),
        };
        format!("[providers.{name}]\nkind = \"anthropic\"\nbase_url = \"{address}\"\n{key}\n")
    });
    let limits = "[gateway]\nbody_limit = \"64KiB\"\n[gateway.timeouts]\nfirst_byte = \"1s\"\n";
    let config: String = rows.chain([limits.to_owned()]).collect();
    std::fs::write(kept.file("throughline.toml"), config).unwrap();
}

/// What callers heard, but for what a provider itself said, which is theirs to hear.
#[derive(Default)]
struct Heard {
    text: String,
    /// What was left out because a provider had said it.
    theirs: BTreeSet<String>,
}

impl Heard {
    fn note(&mut self, said: &str, theirs: &[String]) {
        let mut ours = said.to_owned();
        for words in theirs.iter().filter(|words| said.contains(*words)) {
            ours = ours.replace(words, "");
            self.theirs.insert(words.clone());
        }
        self.text.push_str(&ours);
    }
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

/// What the simulator of Gemini says to a signature that is none: like Google, it quotes it.
fn simulated_words() -> String {
    format!(r#"Base64 decoding failed for \"{}\""#, canary(12))
}

/// Asks in every dialect, well and badly, with secrets everywhere.
fn ask(serving: &Serving, providers: &[Provider]) -> Heard {
    let query = format!("?key={}&secret={}", canary(10), canary(10));
    let mut heard = Heard::default();
    let models = providers.iter().map(|provider| (provider.name, "claude", &*provider.said));
    let simulated = [("sim", "claude-sonnet-4-5", &[][..]), ("sim", "gpt-5.2", &[])];
    for (provider, model, theirs) in models.chain(simulated) {
        let model = format!("{provider}/{model}");
        for stream in [false, true] {
            for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
                let (path, body) = (format!("{path}{query}"), conversation(&model, stream));
                heard.note(&serving.said("POST", &path, &headers(1), &body), theirs);
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
    heard.note(&serving.said("POST", &gemini, &headers(1), &signed), &[simulated_words()]);
    for (path, body) in [
        ("/v1/responses", opaque),
        ("/v1/responses", format!(r#"{{"model":"sim/gpt-5.2","input":"{}"#, canary(14))),
        ("/v1/responses", format!(r#"{{"input":"{}"}}"#, canary(14))),
        ("/v1/messages", canary(14).repeat(4000)),
        ("/v1/messages", conversation("nobody/claude", false)),
        ("/nowhere", "{}".to_owned()),
    ] {
        heard.note(&serving.said("POST", path, &headers(1), &body), &[]);
    }
    heard
}

#[test]
fn canaries_are_told_nowhere() {
    let kept = Kept::nothing("secrets");
    let providers = providers();
    configure(&kept, &providers);
    let (work, openai) = (canary(20), canary(16));
    let environment = [("WORK_KEY", work.as_str()), ("OPENAI_API_KEY", openai.as_str())];
    let mut serving = Serving::start(&kept.folder, &environment, &["--log", "debug"]);
    let mut heard = ask(&serving, &providers);
    // With a key that is none, once there are keys.
    let key = kept.json(&["keys", "create"])["key"].as_str().unwrap().to_owned();
    let wrong = format!("authorization: Bearer tl_{}\r\n", canary(1));
    let said = serving.said("POST", "/v1/messages", &wrong, &conversation("sim/gpt-5.2", false));
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    heard.note(&said, &[]);
    let metrics = serving.said("GET", "/metrics", &format!("x-api-key: {key}\r\n"), "");
    assert!(metrics.contains("throughline_calls_total{"), "{metrics}");
    assert_eq!(serving.stop(), 0);
    let shown = throughline_with(&environment, &kept.folder, &["config", "show"], b"");
    let checked = throughline_with(&environment, &kept.folder, &["config", "check"], b"");
    for status in [200, 400, 401, 404, 413, 500, 502, 504] {
        assert!(heard.text.contains(&format!("HTTP/1.1 {status} ")), "nobody heard {status}");
    }
    let mut theirs = BTreeSet::from([simulated_words()]);
    theirs.extend(providers.iter().flat_map(|provider| provider.said.clone()));
    assert_eq!(heard.theirs, theirs, "what a provider says is heard");
    let told = [
        ("welcome", serving.welcome.clone()),
        ("log", serving.errors()),
        ("metrics", metrics),
        ("answers", heard.text),
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

/// Every simulated thought ends in a note that nobody else had.
const NOTE: &str = "note [0-9a-f]{6}";

/// Thoughts with a pattern of the policy appear redacted in every GET route, command, sink and export; the model gets them back whole.
#[test]
fn what_no_thought_may_say_is_shown_nowhere() {
    let note = regex::Regex::new(NOTE).unwrap();
    let kept = Kept::nothing("secrets-thoughts");
    let receivers = ["http", "otlp"].map(|kind| (kind, Receiver::start(&["200 OK"])));
    let sinks = receivers.iter().map(|(kind, receiver)| {
        format!(
            "[tracing.sinks.{kind}]\nkind = \"{kind}\"\nurl = \"http://{}\"\n",
            receiver.address
        )
    });
    let sinks: String = sinks.collect();
    let config = format!(
        "[server]\nlog = \"debug\"\n[redaction]\nthinkingPatterns = [\"{NOTE}\"]\n\
         [tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n{sinks}"
    );
    std::fs::write(kept.file("throughline.toml"), &config).unwrap();
    let mut serving = Serving::start(&kept.folder, &[], &[]);
    let mut views: Vec<(String, String)> = Vec::new();
    let value = |said: &str, begins: &str| {
        let found = said.find(begins).unwrap_or_else(|| panic!("no {begins} in {said}"));
        said[found..].split('"').next().unwrap().to_owned()
    };
    let ids = {
        let mut ask = |method: &str, path: &str, body: &str| {
            let said = serving.said(method, path, "", body);
            assert!(said.starts_with("HTTP/1.1 200"), "{method} {path}: {said}");
            views.push((format!("{method} {path}"), said.clone()));
            said
        };
        let reflects = r#"{"reasoning":{"level":"high","reflection":{"cadence":"after_tool"}}}"#;
        let agent =
            format!(r#"{{"name":"Ada","model":"sim/claude-sonnet-4-5","throughline":{reflects}}}"#);
        let agent = value(&ask("POST", "/v1/agents/", &agent), "agent-");
        let messages = format!("/v1/agents/{agent}/messages");
        let told = ask("POST", &messages, r#"{"input":"Hello"}"#);
        assert!(told.contains("reasoning_message") && told.contains("[REDACTED]"), "{told}");
        let run = value(&told, "run_").split('.').next().unwrap().to_owned();
        let tokens = r#"{"input":"And again","stream_tokens":true}"#;
        let streamed = ask("POST", &format!("{messages}/stream"), tokens);
        assert!(streamed.contains("[REDACTED]") && streamed.contains("[DONE]"), "{streamed}");
        let conversation = ask("POST", &format!("/v1/conversations/?agent_id={agent}"), "{}");
        let conversation = value(&conversation, "conv-");
        let said = format!("/v1/conversations/{conversation}/messages");
        ask("POST", &said, r#"{"input":"Here too","streaming":false}"#);
        for path in ["stream?starting_after=0", "stream"] {
            ask("GET", &format!("/v1/runs/{run}/{path}"), "");
        }
        [("agent", agent), ("run", run), ("conversation", conversation)]
    };
    let run = ids[1].1.clone();
    let mut ids: BTreeMap<String, String> =
        ids.into_iter().map(|(name, id)| (name.to_owned(), id)).collect();
    // A client of the gateway gets its own answer whole: it has to send it back.
    let question = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [{"role": "user", "content": "Hello"}]});
    let answer = serving.said("POST", "/v1/messages", "", &question.to_string());
    assert!(note.is_match(&answer), "{answer}");
    let (_, content) = answer.split_once("\r\n\r\n").unwrap();
    let content = serde_json::from_str::<Value>(content).unwrap()["content"].clone();
    let mut again = question;
    again["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": content}),
        json!({"role": "user", "content": "And again"}),
    ]);
    let answer = serving.said("POST", "/v1/messages", "", &again.to_string());
    assert!(note.is_match(&answer), "the provider accepts what it issued: {answer}");
    let found = answer.to_ascii_lowercase().find("x-throughline-call: ").unwrap();
    let call = answer[found..].lines().next().unwrap().split_once(": ").unwrap().1;
    ids.insert("call".to_owned(), call.to_owned());
    ids.insert("schema".to_owned(), "run-event".to_owned());
    ids.insert("block".to_owned(), "none".to_owned());
    // Every thread: the agent's, and the client's conversation.
    let listed = serving.said("GET", "/v1/throughline/threads", "", "");
    let (_, listed) = listed.split_once("\r\n\r\n").unwrap();
    let listed: Value = serde_json::from_str(listed).unwrap();
    let threads: Vec<String> = listed["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(threads.iter().any(|thread| thread.starts_with("conversation-")), "{threads:?}");
    let document = serving.said("GET", "/openapi.json", "", "");
    let (_, document) = document.split_once("\r\n\r\n").unwrap();
    let document: Value = serde_json::from_str(document).unwrap();
    let mut routes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if item.get("get").is_none() {
            continue;
        }
        routes += 1;
        for thread in &threads {
            let mut path = path.replace("{thread}", thread);
            for (name, id) in &ids {
                path = path.replace(&format!("{{{name}}}"), id);
            }
            assert!(!path.contains('{'), "no id for {path}");
            let said = serving.said("GET", &path, "", "");
            let is_found = said.starts_with("HTTP/1.1 200");
            assert!(is_found || path.ends_with("/blocks/none"), "GET {path}: {said}");
            if path.ends_with("/snapshot") {
                // Another store continues from a snapshot, so it has what the provider issued.
                assert!(note.is_match(&said), "{said}");
            } else {
                views.push((format!("GET {path}"), said));
            }
            if !item.to_string().contains("thread") {
                break;
            }
        }
    }
    let own = format!("/v1/throughline/calls/{call}");
    views.push((format!("GET {own}"), serving.said("GET", &own, "", "")));
    figure("thinkingPatterns: GET routes of the OpenAPI document without a match", routes);
    assert!(routes > 40, "{routes}");
    assert_eq!(serving.stop(), 0);
    views.push(("the log".to_owned(), serving.errors()));
    for format in ["text", "json"] {
        let model = ["--model", "sim/claude-sonnet-4-5", "--tool", "now=date"];
        let run = [&["run", "What is the time?", "--format", format][..], &model].concat();
        let ran = kept.run(&run);
        assert_eq!(ran.code, 0, "{}", ran.err);
        views.push((format!("run --format {format}"), format!("{}{}", ran.out, ran.err)));
    }
    let narrated = kept.run(&["narrate", &run]);
    assert!(narrated.out.contains("[REDACTED]"), "{}", narrated.out);
    views.push(("narrate".to_owned(), narrated.out));
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["items", &run],
        vec!["runs"],
        vec!["threads"],
        vec!["inbox"],
        vec!["export"],
        vec!["traces", "export", &run],
        vec!["traces", "export", &run, "--as", "otlp", "--output", "trace.otlp"],
    ];
    commands.extend(threads.iter().map(|thread| vec!["items", &**thread]));
    for command in &commands {
        let formats: &[&str] = if command[0] == "traces" { &["text"] } else { &["text", "json"] };
        for format in formats {
            let ran = kept.run(&[&command[..], &["--format", format]].concat());
            assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
            views.push((format!("{command:?} --format {format}"), ran.out + &ran.err));
        }
    }
    let bytes = std::fs::read(kept.file("trace.otlp")).unwrap();
    views.push(("trace.otlp".to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
    let (mut folders, mut has_thoughts) = (vec![kept.file("traces")], false);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let said = std::fs::read_to_string(&path).unwrap();
                has_thoughts |= said.contains("throughline.thinking");
                views.push((format!("the file sink: {}", path.display()), said));
            }
        }
    }
    assert!(has_thoughts, "the file sink has redacted thoughts");
    for (kind, receiver) in &receivers {
        let sent = receiver.sent();
        assert!(!sent.is_empty(), "{kind}");
        for sent in sent {
            let said = String::from_utf8_lossy(&sent.body).into_owned();
            views.push((format!("the {kind} sink"), said));
        }
    }
    figure("thinkingPatterns: outputs without a match", views.len());
    for (view, said) in &views {
        assert!(!note.is_match(said), "{view} has it: {said}");
    }
    let stored = kept.run(&["narrate", &run, "--no-redaction"]);
    assert!(note.is_match(&stored.out), "the store has it whole: {}", stored.out);
    let full = kept.run(&["export", "--full"]);
    assert!(note.is_match(&full.out), "a full export has it whole");
}
