//! Tests that planted keys and Seals appear in no log, metric, error or panic message.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;
use crate::support::throughline_with;

fn canary(number: u32) -> String {
    format!("cAnArY{number:02}xQ7Zp9Lw3Vt5Rk8Jm2Nb6Hd4Gf")
}

/// Returns request headers that contain every kind of secret.
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

/// Starts a provider that sends `answer` to each request and closes the connection. If `answer` is
/// empty, the provider never responds.
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
                if let Some(value) = lower.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).ok();
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

/// A fake provider whose responses may contain secrets.
struct Provider {
    name: &'static str,
    address: String,
    /// The parts of the provider's responses that the gateway may forward verbatim to callers.
    verbatim: Vec<String>,
}

impl Provider {
    fn new(name: &'static str, status: &str, headers: &str, body: &str, verbatim: &[&str]) -> Self {
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let verbatim = verbatim.iter().map(ToString::to_string).collect();
        Self { name, address: provider(answer), verbatim }
    }

    /// Creates a provider whose responses contain no secret.
    fn without_secrets(name: &'static str, address: String) -> Self {
        Self { name, address, verbatim: Vec::new() }
    }
}

/// Returns providers that refuse, return garbage, fail, redirect, are unreachable, or never
/// respond.
fn providers() -> Vec<Provider> {
    let (secret, header) = (canary(17), format!("x-secret: {}", canary(18)));
    // The gateway must not forward the cookie to the caller.
    let head = format!("set-cookie: a={}\r\n{header}\r\n", canary(18));
    let message = format!(r#""message":"{secret}""#);
    let refusal = format!(r#"{{"type":"error","error":{{"type":"x",{message}}}}}"#);
    let frame = format!("data: {{{secret}");
    let (event_stream, html) = ("content-type: text/event-stream\r\n", format!("<p>{secret}</p>"));
    let garbage = format!("{head}{event_stream}");
    let location = format!("location: http://127.0.0.1:9/{secret}\r\n");
    vec![
        Provider::new("refuses", "400 Bad", &head, &refusal, &[&message, &header]),
        Provider::new("garbage", "200 OK", &garbage, &format!("{frame}\n\n"), &[&frame, &header]),
        Provider::new("plain", "200 OK", "content-type: text/html\r\n", &html, &[&html]),
        Provider::new("broken", "500 Oh", "content-type: text/html\r\n", &html, &[&html]),
        Provider::new("elsewhere", "302 Found", &location, "", &[]),
        Provider::without_secrets("nowhere", "http://127.0.0.1:9".to_owned()),
        Provider::without_secrets("silent", provider(String::new())),
    ]
}

/// Writes a configuration that contains secrets.
fn configure(store: &TestStore, providers: &[Provider]) {
    let rows = providers.iter().map(|Provider { name, address, .. }| {
        let key = match *name {
            "garbage" => "api_key_env = \"WORK_KEY\"".to_owned(),
            _ => format!("api_key = \"{}\"", canary(19)),
        };
        format!("[providers.{name}]\nkind = \"anthropic\"\nbase_url = \"{address}\"\n{key}\n")
    });
    let limits = "[gateway]\nbody_limit = \"64KiB\"\n[gateway.timeouts]\nfirst_byte = \"1s\"\n";
    let config: String = rows.chain([limits.to_owned()]).collect();
    std::fs::write(store.file("throughline.toml"), config).unwrap();
}

/// The gateway's responses to callers, without the texts that a provider supplied.
#[derive(Default)]
struct CallerResponses {
    text: String,
    /// The texts that were removed from the responses because a provider supplied them.
    theirs: BTreeSet<String>,
}

impl CallerResponses {
    fn note(&mut self, response: &str, theirs: &[String]) {
        let mut ours = response.to_owned();
        for text in theirs.iter().filter(|text| response.contains(*text)) {
            ours = ours.replace(text, "");
            self.theirs.insert(text.clone());
        }
        self.text.push_str(&ours);
    }
}

/// Builds a request in which every part of the conversation contains a secret.
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

/// Returns the Gemini simulator's error for an invalid signature. The error quotes the signature,
/// as Google's error does.
fn gemini_signature_error() -> String {
    format!(r#"Base64 decoding failed for \"{}\""#, canary(12))
}

/// Sends valid and invalid requests in every dialect, with secrets in every part.
fn send_requests(serving: &GatewayProcess, providers: &[Provider]) -> CallerResponses {
    let query = format!("?key={}&secret={}", canary(10), canary(10));
    let mut responses = CallerResponses::default();
    let models = providers.iter().map(|provider| (provider.name, "claude", &*provider.verbatim));
    let simulated = [("sim", "claude-sonnet-4-5", &[][..]), ("sim", "gpt-5.2", &[])];
    for (provider, model, theirs) in models.chain(simulated) {
        let model = format!("{provider}/{model}");
        for stream in [false, true] {
            for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
                let (path, body) = (format!("{path}{query}"), conversation(&model, stream));
                responses.note(&serving.send("POST", &path, &headers(1), &body), theirs);
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
    responses
        .note(&serving.send("POST", &gemini, &headers(1), &signed), &[gemini_signature_error()]);
    for (path, body) in [
        ("/v1/responses", opaque),
        ("/v1/responses", format!(r#"{{"model":"sim/gpt-5.2","input":"{}"#, canary(14))),
        ("/v1/responses", format!(r#"{{"input":"{}"}}"#, canary(14))),
        ("/v1/messages", canary(14).repeat(4000)),
        ("/v1/messages", conversation("unknown/claude", false)),
        ("/nowhere", "{}".to_owned()),
    ] {
        responses.note(&serving.send("POST", path, &headers(1), &body), &[]);
    }
    responses
}

#[test]
fn planted_secrets_appear_nowhere() {
    let store = TestStore::without_database("secrets");
    let providers = providers();
    configure(&store, &providers);
    let (work, openai) = (canary(20), canary(16));
    let environment = [("WORK_KEY", work.as_str()), ("OPENAI_API_KEY", openai.as_str())];
    let mut serving = GatewayProcess::start(&store.folder, &environment, &["--log", "debug"]);
    let mut responses = send_requests(&serving, &providers);
    // Send an invalid key after the first key was created.
    let key = store.json(&["keys", "create"])["key"].as_str().unwrap().to_owned();
    let wrong = format!("authorization: Bearer tl_{}\r\n", canary(1));
    let response =
        serving.send("POST", "/v1/messages", &wrong, &conversation("sim/gpt-5.2", false));
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    responses.note(&response, &[]);
    let metrics = serving.send("GET", "/metrics", &format!("x-api-key: {key}\r\n"), "");
    assert!(metrics.contains("throughline_calls_total{"), "{metrics}");
    assert_eq!(serving.stop(), 0);
    let shown = throughline_with(&environment, &store.folder, &["config", "show"], b"");
    let checked = throughline_with(&environment, &store.folder, &["config", "check"], b"");
    for status in [200, 400, 401, 404, 413, 500, 502, 504] {
        assert!(
            responses.text.contains(&format!("HTTP/1.1 {status} ")),
            "no response has status {status}"
        );
    }
    let mut theirs = BTreeSet::from([gemini_signature_error()]);
    theirs.extend(providers.iter().flat_map(|provider| provider.verbatim.clone()));
    assert_eq!(responses.theirs, theirs, "callers receive the provider's texts");
    let outputs = [
        ("welcome", serving.welcome.clone()),
        ("log", serving.errors()),
        ("metrics", metrics),
        ("answers", responses.text),
        ("config show", format!("{}{}", shown.out, shown.err)),
        ("config check", format!("{}{}", checked.out, checked.err)),
        ("usage", store.run(&["usage", "--format", "json"]).out),
    ];
    assert!(outputs[1].1.lines().count() > 30, "the log lists the calls: {}", outputs[1].1);
    for (name, text) in &outputs {
        assert!(!text.is_empty(), "{name} is empty");
        for number in 1..=20 {
            assert!(!text.contains(&canary(number)), "canary {number} is in the {name}: {text}");
        }
        assert!(!text.contains(&key), "the key is in the {name}: {text}");
    }
}
