//! Tests of `throughline check`: which checks fail, and what the output contains.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, wait_until};

const GOOD: &str = "sk-good-a1B2a1B2a1B2a1B2";
const BAD: &str = "sk-bad-c3D4c3D4c3D4c3D4";

/// A configuration whose listener encrypts its connections.
const TLS: &str =
    "[server]\nlisten = \"127.0.0.1:0\"\n[server.tls]\ncert = \"a.crt\"\nkey = \"a.key\"\n";

/// Checks a configuration of which this check fails, and returns the report.
fn failed_check(store: &TestStore, config: &str, check: &str) -> Value {
    fs::write(store.file("throughline.toml"), config).unwrap();
    let output = store.run(&["check", "--format", "json"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, row(&report, check).0.as_str()), (1, "failed"), "{report}");
    report
}

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
fn credential_sources_are_tested_and_named() {
    let store = TestStore::without_database("check-sources");
    let url = provider();
    let key = store.file("key");
    fs::write(&key, GOOD).unwrap();
    let adc = store.file("adc.json");
    fs::write(&adc, r#"{"type": "service_account", "client_email": "a", "private_key": "b"}"#)
        .unwrap();
    let settings = |name: &str, source: &str| {
        format!("[providers.{name}]\nwire = \"openai-chat\"\nbase_url = \"{url}/v1\"\n{source}\n")
    };
    let key = key.display();
    let config = [
        "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        settings("file", &format!("key_file = \"{key}\"")),
        settings("command", &format!("key_command = [\"cat\", \"{key}\"]")),
        settings("rejected", &format!("key_command = [\"echo\", \"{BAD}\"]")),
        settings("missing", &format!("key_file = \"{key}-missing\"")),
        settings("google", "credentials = \"google\""),
    ];
    fs::write(store.file("throughline.toml"), config.concat()).unwrap();
    let environment = [("GOOGLE_APPLICATION_CREDENTIALS", adc.to_str().unwrap())];
    let output = store.run_with(&environment, &["check", "--format", "json"], b"");
    assert_eq!((output.code, output.err.as_str()), (1, ""), "{}", output.out);
    assert!(!output.out.contains(GOOD) && !output.out.contains(BAD), "{}", output.out);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    let google = format!("{}: the private key is not an RSA key in PEM format", adc.display());
    for (name, result, detail, fix) in [
        ("file", "ok", format!("the provider accepts the file {key}"), None),
        ("command", "ok", "the provider accepts the command cat".to_owned(), None),
        (
            "rejected",
            "failed",
            "the provider refuses the command echo (401)".to_owned(),
            Some("replace the key"),
        ),
        (
            "missing",
            "failed",
            format!("the file {key}-missing: the file does not exist"),
            Some("write the API key"),
        ),
        ("google", "failed", google, Some("set GOOGLE_APPLICATION_CREDENTIALS")),
    ] {
        let rows = report["checks"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == format!("provider {name}")).unwrap();
        assert_eq!(row["result"], result, "{row}");
        assert!(row["detail"].as_str().unwrap().contains(&detail), "{row}");
        let advice = row["fix"].as_str();
        assert_eq!(advice.is_some(), fix.is_some(), "{row}");
        assert!(advice.unwrap_or_default().contains(fix.unwrap_or_default()), "{row}");
    }
}

#[test]
fn invalid_configuration_and_files_fail() {
    let store = TestStore::without_database("check-invalid");
    fs::write(store.file("throughline.toml"), "[gateway]\nreplay = \"sometimes\"\n").unwrap();
    let output = store.run(&["check"]);
    assert_eq!((output.code, output.err.as_str()), (1, ""), "{}", output.out);
    assert!(output.out.contains("throughline.toml:2"), "{}", output.out);
    failed_check(&store, TLS, "TLS files");
    let output = store.run(&["check", "--config", "missing.toml"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""), "{}", output.err);
    // The store is no store.
    fs::write(store.file("a.db"), "text ".repeat(1000)).unwrap();
    failed_check(&store, "[server]\nlisten = \"127.0.0.1:0\"\n", "store");
}

#[test]
fn expired_certificate_fails() {
    let store = TestStore::without_database("check-expired");
    let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (parameters.not_before, parameters.not_after) =
        (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 6, 5));
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let write = |name: &str, label: &str, der: &[u8]| {
        let text = STANDARD.encode(der);
        let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        fs::write(store.file(name), pem).unwrap();
    };
    write("a.crt", "CERTIFICATE", certificate.der());
    write("a.key", "PRIVATE KEY", &key.serialize_der());
    let report = failed_check(&store, TLS, "TLS files");
    assert!(report.to_string().contains("expired on 2021-06-05"), "{report}");
    // The gateway uses the certificate, and warns at the start and after each reload.
    let mut serving = GatewayProcess::start_at("127.0.0.1:0", &store.folder, &[], &[]);
    let errors = serving.errors();
    assert!(errors.contains("a.crt expired on 2021-06-05"), "{errors}");
    serving.signal("HUP");
    wait_until("a warning after the reload", || {
        serving.errors().contains(r#""event":"certificate_expired""#)
    });
    assert_eq!(serving.stop(), 0);
}
