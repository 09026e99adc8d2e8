//! Tests of `throughline check`: which checks fail, and what the output contains.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use crate::support::kept::TestStore;

const GOOD: &str = "sk-good-a1B2a1B2a1B2a1B2";
const BAD: &str = "sk-bad-c3D4c3D4c3D4c3D4";

/// A provider that lists its models for one key only.
fn provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 8192];
            let length = stream.read(&mut head).unwrap();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let is_list = head.starts_with("GET /v1/models ");
            let (status, body) = match (is_list, head.contains(GOOD)) {
                (true, true) => ("200 OK", r#"{"data":[{"id":"m"}]}"#),
                (true, false) => ("401 Unauthorized", r#"{"error":{"message":"bad key"}}"#),
                (false, _) => ("404 Not Found", "{}"),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                 connection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

/// Returns the result and the fix of a check.
fn row(report: &Value, name: &str) -> (String, Option<String>) {
    let rows = report["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    let row = row.unwrap_or_else(|| panic!("{name} is not in {report}"));
    (row["result"].as_str().unwrap().to_owned(), row["fix"].as_str().map(str::to_owned))
}

#[test]
fn keys_store_and_address_are_tested() {
    let store = TestStore::without_database("check");
    let url = provider();
    let settings = |name: &str, key: &str| {
        format!(
            "[providers.{name}]\nwire = \"openai-chat\"\nbase_url = \"{url}/v1\"\napi_key{key}\n"
        )
    };
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let config = format!("{listen}{}", settings("good", &format!(" = \"{GOOD}\"")));
    fs::write(store.file("throughline.toml"), &config).unwrap();
    let output = store.run(&["check", "--format", "json"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["verdict"], "ok", "{report}");
    for name in ["configuration", "catalog", "listen address", "store", "provider good"] {
        assert_eq!(row(&report, name), ("ok".to_owned(), None), "{name}: {report}");
    }
    assert!(!store.file("a.db").exists(), "the check creates no store");

    store.with_journal(&throughline_store::Options::default(), async |_| {});
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = [
        format!("[server]\nlisten = \"{}\"\n", used.local_addr().unwrap()),
        settings("good", &format!(" = \"{GOOD}\"")),
        settings("bad", "_env = \"BAD_KEY\""),
        settings("unset", "_env = \"UNSET_KEY\""),
        settings("closed", &format!(" = \"{GOOD}\"")).replace(&url, &format!("http://{closed}")),
    ];
    fs::write(store.file("throughline.toml"), config.concat()).unwrap();
    for format in ["json", "text"] {
        let environment = [("BAD_KEY", BAD)];
        let output = store.run_with(&environment, &["check", "--format", format], b"");
        assert_eq!((output.code, output.err.as_str()), (1, ""), "{}", output.out);
        for secret in [GOOD, BAD] {
            assert!(!output.out.contains(secret), "{}", output.out);
        }
        if format == "text" {
            assert!(output.out.contains("4 checks failed"), "{}", output.out);
            assert!(output.out.contains("what to do"), "{}", output.out);
            continue;
        }
        let report: Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!(report["verdict"], "failed");
        for name in ["configuration", "store", "provider good"] {
            assert_eq!(row(&report, name).0, "ok", "{report}");
        }
        for (name, fix) in [
            ("listen address", "stop the program"),
            ("provider bad", "replace the key"),
            ("provider unset", "set $UNSET_KEY"),
            ("provider closed", "check the base_url"),
        ] {
            let (result, advice) = row(&report, name);
            assert_eq!(result, "failed", "{name}: {report}");
            assert!(advice.unwrap().contains(fix), "{name}: {report}");
        }
        assert!(report.to_string().contains("schema version 3"), "{report}");
    }
}

#[test]
fn invalid_configuration_and_files_fail() {
    let store = TestStore::without_database("check-invalid");
    fs::write(store.file("throughline.toml"), "[gateway]\nreplay = \"sometimes\"\n").unwrap();
    let output = store.run(&["check"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""), "{}", output.out);
    assert!(output.out.contains("throughline.toml:2"), "{}", output.out);
    let config =
        "[server]\nlisten = \"127.0.0.1:0\"\n[server.tls]\ncert = \"a.crt\"\nkey = \"a.key\"\n";
    fs::write(store.file("throughline.toml"), config).unwrap();
    let output = store.run(&["check", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, row(&report, "TLS files").0.as_str()), (1, "failed"), "{report}");
    let output = store.run(&["check", "--config", "missing.toml"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""), "{}", output.err);
    // The store is no store.
    fs::write(store.file("throughline.toml"), "[server]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    fs::write(store.file("a.db"), "text ".repeat(1000)).unwrap();
    let output = store.run(&["check", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, row(&report, "store").0.as_str()), (1, "failed"), "{report}");
}
