//! Tests of the simulator process: startup message, responses, exclusive port, and shutdown.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;
use crate::support::{file, throughline};

/// Starts the simulators on a free port. Returns the process, its output and its address.
fn started() -> (Child, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["sim", "--listen", "127.0.0.1:0", "--seed", "7"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut welcome = String::new();
    for line in lines.by_ref() {
        welcome.push_str(&line);
        welcome.push('\n');
        if line.contains("Ctrl-C") {
            break;
        }
    }
    let address = welcome.split_once("http://").unwrap().1;
    let address = address.split_whitespace().next().unwrap().to_owned();
    (child, welcome, address)
}

#[test]
fn simulator_prints_examples_answers_and_stops() {
    let (mut child, welcome, address) = started();
    for expected in [
        format!("curl http://{address}/v1/messages --json"),
        format!("curl http://{address}/v1/responses --json"),
        format!("curl http://{address}/v1/chat/completions --json"),
        format!("http://{address}/v1beta/models/gemini-3.8-flash:generateContent"),
        format!("export OPENAI_BASE_URL=http://{address}/v1"),
        "seed 7".to_owned(),
    ] {
        assert!(welcome.contains(&expected), "{expected:?} is not in\n{welcome}");
    }
    let mut connection = TcpStream::connect(&address).unwrap();
    let request =
        format!("GET /v1/models HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let output = throughline(&["sim", "--listen", &address], b"");
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    assert!(output.err.contains(&format!("{address} is in use")), "{}", output.err);

    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn invalid_options_are_rejected_before_listening() {
    let script = file("script.toml", "[[turn]]\nsays = \"Hello\"\n");
    for (arguments, message) in [
        (["--fault", "earthquake"], "`earthquake` is not a fault"),
        (["--listen", "nowhere"], "expected HOST:PORT, where HOST is an IP address"),
        (["--listen", "127.0.0.1"], "expected HOST:PORT, where HOST is an IP address"),
        (["--listen", "nowhere:80"], "expected HOST:PORT, where HOST is an IP address"),
        (["--script", &script], "script.toml:"),
        (["--account-created", "soon"], "expected a date such as"),
    ] {
        let output = throughline(&["sim", arguments[0], arguments[1]], b"");
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{arguments:?}");
        assert!(output.err.contains(message), "{arguments:?}: {}", output.err);
    }
    // No machine has an address in this network, which is reserved for documentation.
    let output = throughline(&["sim", "--listen", "192.0.2.1:8127"], b"");
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    let expected = "cannot listen on 192.0.2.1:8127, because this machine does not have that IP";
    assert!(output.err.contains(expected), "{}", output.err);
    let output = throughline(&["sim", "--script", "no-such-script.toml"], b"");
    assert_eq!(output.code, 2);
    assert!(output.err.contains("cannot read no-such-script.toml"), "{}", output.err);
}

/// Returns the JSON body of a response.
fn body(response: &str) -> serde_json::Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response}"));
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[test]
fn serve_scripts_its_simulators_and_returns_their_ledger() {
    let store = TestStore::without_database("serve-script");
    let script = "[[turn]]\ntexts = [\"Scripted.\"]\n";
    std::fs::write(store.file("turns.toml"), script).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &["--script", "turns.toml"]);
    let json = "content-type: application/json\r\n";
    let request = serde_json::json!({"model": "sim/gpt-5.6-sol", "input": "Hello"}).to_string();
    for expected in [true, false] {
        let reply = serving.send("POST", "/v1/responses", json, &request);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert_eq!(reply.contains("Scripted."), expected, "{reply}");
    }
    let requests = |path: &str| -> Vec<u64> {
        let ledger = body(&serving.send("GET", path, "", ""));
        let entries = ledger["entries"].as_array().unwrap().clone();
        assert!(entries.iter().all(|entry| entry["model"] == "gpt-5.6-sol"), "{ledger}");
        entries.iter().map(|entry| entry["request"].as_u64().unwrap()).collect()
    };
    assert_eq!(requests("/v1/throughline/sim/ledger"), [1, 2]);
    assert_eq!(requests("/v1/throughline/sim/ledger?after=1"), [2]);
    let reply = serving.send("GET", "/v1/throughline/sim/ledger?after=abc", "", "");
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    assert!(reply.contains("`after` is `abc`; use the number of a ledger entry"), "{reply}");
}

/// The ledger covers all tenants, so no key may read it.
#[test]
fn gateway_with_keys_does_not_return_the_simulators_ledger() {
    let store = TestStore::without_database("serve-ledger-keys");
    let keys = ["one", "two"].map(|tenant| {
        let created = store.json(&["keys", "create", "--tenant", tenant]);
        created["key"].as_str().unwrap().to_owned()
    });
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    for key in keys {
        let headers = format!("authorization: Bearer {key}\r\n");
        let reply = serving.send("GET", "/v1/throughline/sim/ledger", &headers, "");
        assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
        assert!(reply.contains("covers all tenants"), "{reply}");
    }
    let reply = serving.send("GET", "/v1/throughline/sim/ledger", "", "");
    assert!(reply.starts_with("HTTP/1.1 401"), "{reply}");
}

#[test]
fn serve_rejects_an_invalid_script_before_it_opens_the_store() {
    let store = TestStore::without_database("serve-invalid-script");
    std::fs::write(store.file("turns.toml"), "[[turn]]\ntexts = [\"a\"]\nround = \"x\"\n").unwrap();
    let output = store.run(&["serve", "--script", "turns.toml"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains("turns.toml:3: "), "{}", output.err);
    assert!(
        output.err.contains("a number, or a list of the first and last number"),
        "{}",
        output.err
    );
}
