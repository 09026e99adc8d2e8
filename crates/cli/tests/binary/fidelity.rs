//! Tests of `throughline fidelity`: a direct connection, the gateway, proxies that damage requests,
//! and gateways that cannot be measured.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::support::serving::GatewayProcess;
use crate::support::{CommandOutput, file, scratch, throughline};

/// Returns a loopback address that no process listens on.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Runs the benchmark and returns its output and its cases.
fn measure(gateway: &str, simulators: &str, options: &[&str]) -> (CommandOutput, Vec<Value>) {
    let url = format!("http://{gateway}");
    let fixed = ["fidelity", "--gateway", &url, "--listen", simulators, "--format", "json"];
    let output = throughline(&[&fixed, options].concat(), b"");
    let report: Value = serde_json::from_str(&output.out).unwrap_or_default();
    assert!(report.is_null() || report["throughline"] == env!("CARGO_PKG_VERSION"), "{report}");
    let cases = report["cases"].as_array().cloned().unwrap_or_default();
    (output, cases)
}

fn number(case: &Value, name: &str) -> u64 {
    case[name].as_u64().unwrap_or_else(|| panic!("{name} is not a number in {case}"))
}

/// Returns the numbers of kept, lost and altered Seals, refusals and errors.
fn counts(case: &Value) -> [u64; 5] {
    ["kept", "lost", "altered", "refused", "errors"].map(|name| number(case, name))
}

/// Edits a request on its way to the simulators.
type RequestEdit = fn(&mut Value);

/// Forwards requests to the simulators, and edits each request on the way.
fn damaging_proxy(simulators: &str, edit: RequestEdit) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let simulators = simulators.to_owned();
    thread::spawn(move || {
        for connection in listener.incoming() {
            // The benchmark closes connections between requests, which is not an error.
            drop(forward(&mut connection.unwrap(), &simulators, edit));
        }
    });
    address
}

/// Forwards one request and its response, then closes the connection.
fn forward(client: &mut TcpStream, to: &str, edit: RequestEdit) -> std::io::Result<()> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let (head, body) = loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&received);
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let size = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let (start, size): (usize, usize) = (head.len() + 4, size.unwrap_or(0));
        if received.len() >= start + size {
            break (head.to_owned(), received[start..start + size].to_vec());
        }
    };
    let mut request: Value = serde_json::from_slice(&body).unwrap();
    edit(&mut request);
    let body = request.to_string();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let is_kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !["content-length", "connection", "host"].contains(&name.as_str())
    };
    let headers: Vec<&str> = headers.lines().filter(is_kept).collect();
    let mut upstream = TcpStream::connect(to)?;
    let request = format!(
        "{line}\r\n{}\r\nhost: {to}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        headers.join("\r\n"),
        body.len()
    );
    upstream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    upstream.read_to_end(&mut response)?;
    client.write_all(&response)
}

fn content_blocks(request: &mut Value) -> impl Iterator<Item = &mut Vec<Value>> {
    let messages = request["messages"].as_array_mut().into_iter().flatten();
    messages.filter_map(|message| message["content"].as_array_mut())
}

fn drop_thinking(request: &mut Value) {
    for blocks in content_blocks(request) {
        blocks.retain(|block| block["type"] != "thinking");
    }
}

fn edit_signatures(request: &mut Value) {
    for block in content_blocks(request).flatten().filter(|block| block["type"] == "thinking") {
        let signature = block["signature"].as_str().unwrap_or_default().to_owned();
        let (start, end) = signature.split_at(signature.len() / 2);
        let letter = if end.starts_with('A') { "B" } else { "A" };
        block["signature"] = format!("{start}{letter}{}", &end[1..]).into();
    }
}

fn drop_tools(request: &mut Value) {
    if let Some(members) = request.as_object_mut() {
        members.remove("tools");
    }
}

fn reverse_tools(request: &mut Value) {
    if let Some(tools) = request["tools"].as_array_mut() {
        tools.reverse();
    }
}

/// The client reaches the simulators without a gateway, so only its own losses count.
#[test]
fn direct_connection_loses_only_what_the_client_drops() {
    let simulators = free_address();
    let setup = file(
        "direct.toml",
        "[wires.chat-translated]\nunsupported = \"the simulators translate nothing\"\n",
    );
    let (output, cases) = measure(&simulators, &simulators, &["--setup", &setup]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert_eq!(cases.len(), 72);
    for case in &cases {
        let (wire, name) = (case["wire"].as_str().unwrap(), case["case"].as_str().unwrap());
        if wire == "chat-translated" {
            assert_eq!(case["unsupported"], "the simulators translate nothing");
            continue;
        }
        let [kept, lost, altered, refused, errors] = counts(case);
        assert_eq!((errors, &case["unsupported"]), (0, &Value::Null), "{case}");
        match name {
            "lossy-client" => assert!(lost + refused > 0 && kept == 0, "{case}"),
            // Claude binds its Seals to the system prompt.
            "prefix-change" if ["messages", "converse"].contains(&wire) => {
                assert_eq!((lost, altered, refused), (0, 0, 1), "{case}");
            }
            _ => {
                assert!(kept > 3 && (lost, altered, refused) == (0, 0, 0), "{case}");
                assert_eq!(number(case, "bytes_changed"), 0, "{case}");
                assert_eq!(number(case, "prefix_kept"), number(case, "prefix_total"), "{case}");
            }
        }
    }
}

#[test]
fn throughline_loses_nothing() {
    let simulators = free_address();
    let folder = fresh_folder("fidelity-gateway");
    let providers =
        [("anthropic", ""), ("openai", "/v1"), ("deepseek", ""), ("gemini", ""), ("bedrock", "")];
    let providers = providers.map(|(provider, version)| {
        format!(
            "[providers.{provider}]\nbase_url = \"http://{simulators}/at/{provider}{version}\"\n\
             api_key = \"sim-key\"\n"
        )
    });
    let config = format!("[gateway]\ncapture = \"relaxed\"\n{}", providers.concat());
    std::fs::write(folder.join("throughline.toml"), config).unwrap();
    let gateway = GatewayProcess::start(&folder, &[], &["--log", "off"]);
    let (output, cases) = measure(&gateway.address, &simulators, &["--name", "Throughline"]);
    assert_eq!(output.code, 0, "{}\n{}", output.err, output.out);
    assert_eq!(cases.len(), 72);
    let (mut kept, mut supported) = (0, 0);
    for case in &cases {
        let [own, lost, altered, refused, errors] = counts(case);
        assert_eq!([lost, altered, refused, errors], [0; 4], "{case}");
        kept += own;
        supported += usize::from(case["unsupported"].is_null());
    }
    assert_eq!(supported, 72, "the gateway supports every case");
    assert!(kept > 500, "{kept} Seals kept");
}

#[test]
fn losses_of_a_damaging_proxy_are_counted_exactly() {
    let options = ["--wire", "messages", "--case", "tool-loop"];
    // Nine responses with one Seal each. The last response has no next request.
    let cases: [(RequestEdit, [u64; 5], bool); 4] = [
        (drop_thinking, [0, 8, 0, 0, 0], true),
        (edit_signatures, [0, 0, 1, 1, 0], true),
        (drop_tools, [0, 0, 0, 0, 1], true),
        (reverse_tools, [8, 0, 0, 0, 0], false),
    ];
    for (edit, expected, is_lossy) in cases {
        let simulators = free_address();
        let proxy = damaging_proxy(&simulators, edit);
        let (output, cases) = measure(&proxy, &simulators, &options);
        assert_eq!(output.code, i32::from(is_lossy), "{}", output.err);
        assert_eq!(cases.len(), 2, "{}", output.err);
        for case in &cases {
            assert_eq!(counts(case), expected, "{case}");
            assert!(number(case, "bytes_changed") > 0, "{case}");
            let ledger = case["ledger"].as_array().unwrap();
            assert_eq!(ledger.len() as u64, number(case, "requests"), "{case}");
        }
    }
}

#[test]
fn results_are_printed_as_a_table() {
    let simulators = free_address();
    let url = format!("http://{simulators}");
    let options = ["fidelity", "--gateway", &url, "--listen", &simulators, "--name", "direct"];
    let cases = ["--wire", "messages", "--case", "tool-loop", "--case", "lossy-client"];
    let output = throughline(&[&options[..], &cases].concat(), b"");
    assert_eq!(output.code, 1, "{}", output.err);
    for expected in ["fidelity of direct", "prefix kept", "messages  tool-loop", "100 %"] {
        assert!(output.out.contains(expected), "{expected:?} is not in\n{}", output.out);
    }
    assert!(output.out.ends_with("4 cases, 0 of them not supported (n/a)\n"), "{}", output.out);
}

#[test]
fn unsupported_paths_are_not_failures() {
    let simulators = free_address();
    let setup = file("elsewhere.toml", "[wires.messages]\npath = \"/elsewhere\"\n");
    let options = ["--setup", &setup, "--case", "tool-loop", "--wire", "messages"];
    let with_responses = [&options[..], &["--wire", "responses"]].concat();
    let (output, cases) = measure(&simulators, &simulators, &with_responses);
    assert_eq!(output.code, 0, "{}", output.err);
    let (unsupported, measured): (Vec<_>, Vec<_>) =
        cases.iter().partition(|case| case["wire"] == "messages");
    assert_eq!((unsupported.len(), measured.len()), (2, 2), "{}", output.out);
    for case in unsupported {
        assert_eq!(case["unsupported"], "the gateway returned 404");
        assert_eq!(counts(case), [0; 5]);
    }
    for case in measured {
        assert!(case["unsupported"].is_null() && number(case, "kept") > 0, "{case}");
    }

    // A benchmark that measured no case proves nothing about the gateway.
    let simulators = free_address();
    let (output, cases) = measure(&simulators, &simulators, &options);
    assert_eq!((output.code, cases.len()), (2, 2), "{}", output.err);
    assert!(output.err.contains("supports none of the 2 selected cases"), "{}", output.err);
}

#[test]
fn gateways_that_cannot_be_measured_are_reported() {
    let simulators = free_address();
    let (output, _) = measure(&free_address(), &simulators, &["--wait", "0"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("cannot reach the gateway at http://127.0.0.1:"), "{}", output.err);

    // This gateway has another upstream than the simulators of the benchmark.
    let elsewhere = GatewayProcess::start(&fresh_folder("fidelity-elsewhere"), &[], &[]);
    let setup =
        file("own-simulators.toml", "[wires.messages]\nmodel = \"sim/claude-sonnet-5-5\"\n");
    let options = ["--setup", &setup, "--wire", "messages"];
    let (output, _) = measure(&elsewhere.address, &free_address(), &options);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("no request reached the simulators at"), "{}", output.err);

    // This gateway has no key for the provider and rejects each request itself.
    let folder = fresh_folder("fidelity-keyless");
    let config = "[providers.anthropic]\napi_key_env = \"NO_SUCH_FIDELITY_KEY\"\n";
    std::fs::write(folder.join("throughline.toml"), config).unwrap();
    let keyless = GatewayProcess::start(&folder, &[], &[]);
    let options = ["--wire", "messages", "--wait", "0"];
    let (output, _) = measure(&keyless.address, &free_address(), &options);
    assert_eq!((output.code, output.out.as_str()), (2, ""), "{}", output.err);
    for expected in ["(the gateway returned ", "no request reached the simulators", "--key-env"] {
        assert!(output.err.contains(expected), "{expected:?}: {}", output.err);
    }

    let (output, _) = measure(&free_address(), &elsewhere.address, &["--wait", "0"]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("is in use"), "{}", output.err);
}

fn fresh_folder(name: &str) -> std::path::PathBuf {
    let folder = scratch(name);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn invalid_options_of_the_benchmark_are_rejected() {
    let unknown_wire = file("unknown-wire.toml", "[wires.telepathy]\npath = \"/mind\"\n");
    let unknown_case =
        file("unknown-case.toml", "[wires.chat.unsupported_cases]\nmind-reading = \"no reason\"\n");
    let unknown_key = file("unknown-key.toml", "[wires.chat]\nmodle = \"x\"\n");
    let header_name = file("header-name.toml", "[headers]\nx-a = \"1\"\n\"x b\" = \"2\"\n");
    let header_value =
        file("header-value.toml", "[wires.chat]\nother_headers = { x-a = \"\"\"1\n2\"\"\" }\n");
    let outside = file("path-outside.toml", "\n\n[wires.chat]\npath = \"/a/../b\"\n");
    let relative = file("path-relative.toml", "[wires.chat]\npath = \"v1\"\n");
    for (options, code, message) in [
        (["--setup", &header_name], 65, "header-name.toml: line 3: `x b` is not a valid header"),
        (
            ["--setup", &header_value],
            65,
            "header-value.toml: line 2: the value of the header `x-a`",
        ),
        (["--setup", &outside], 65, "path-outside.toml: line 4: the path `/a/../b` must start"),
        (["--setup", &relative], 65, "path-relative.toml: line 2: the path `v1` must start"),
        (["--setup", &unknown_wire], 65, "unknown wire `telepathy`; the wires are messages,"),
        (["--setup", &unknown_case], 65, "unknown case `mind-reading`; the cases are tool-loop,"),
        (["--setup", &unknown_key], 65, "unknown field `modle`"),
        (["--setup", "no-such-setup.toml"], 2, "cannot read no-such-setup.toml"),
        (["--key-env", "NO_SUCH_FIDELITY_KEY"], 2, "NO_SUCH_FIDELITY_KEY is not set"),
        (["--wire", "telepathy"], 2, "invalid value 'telepathy'"),
    ] {
        let (output, _) = measure("127.0.0.1:1", "127.0.0.1:0", &options);
        assert_eq!(output.code, code, "{options:?}: {}", output.err);
        assert!(output.err.contains(message), "{options:?}: {}", output.err);
    }
    let output = throughline(&["fidelity", "--gateway", "nowhere"], b"");
    assert_eq!(output.code, 2);
    assert!(output.err.contains("--gateway nowhere is not valid"), "{}", output.err);
}
