//! Tests of the addresses that the gateway listens on, and of requests through a reverse proxy.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

fn get_over_unix(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn unix_socket_is_served_and_only_an_unused_file_is_replaced() {
    let store = TestStore::without_database("listen-unix");
    let socket = store.file("gateway.sock");
    let address = format!("unix:{}", socket.display());
    let mut serving = GatewayProcess::start_at(&address, &store.folder, &[], &[]);
    assert!(serving.welcome.contains("--unix-socket"), "{}", serving.welcome);
    for path in ["/healthz", "/readyz", "/v1/models"] {
        let response = get_over_unix(&socket, path);
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    }
    let output = store.run(&["serve", "--listen", &address]);
    assert_eq!((output.code, output.out.as_str()), (1, ""), "{}", output.err);
    assert!(output.err.contains("is in use; stop the process"), "{}", output.err);
    assert!(get_over_unix(&socket, "/healthz").starts_with("HTTP/1.1 200"));
    // A crash leaves the file, which the next process replaces.
    serving.kill();
    assert!(socket.exists());
    let mut serving = GatewayProcess::start_at(&address, &store.folder, &[], &[]);
    assert!(get_over_unix(&socket, "/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(serving.stop(), 0);
    assert!(!socket.exists(), "a stopped gateway removes its socket");
    fs::write(&socket, "text").unwrap();
    let output = store.run(&["serve", "--listen", &address]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.err.contains("is not a socket"), "{}", output.err);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "text");
}

/// The removal of a socket file at the end must not remove the socket of another process.
#[test]
fn stopped_gateway_keeps_the_socket_of_another_process() {
    let store = TestStore::without_database("listen-unix-other");
    let socket = store.file("gateway.sock");
    let address = format!("unix:{}", socket.display());
    let mut serving = GatewayProcess::start_at(&address, &store.folder, &[], &[]);
    fs::remove_file(&socket).unwrap();
    let _other = UnixListener::bind(&socket).unwrap();
    assert_eq!(serving.stop(), 0);
    assert!(socket.exists());
}

#[test]
fn host_names_and_bare_ports_are_accepted() {
    let store = TestStore::without_database("listen-names");
    for (listen, options) in [("localhost:0", &[][..]), (":0", &["--allow-open"]), ("[::1]:0", &[])]
    {
        if listen.starts_with('[') && TcpListener::bind("[::1]:0").is_err() {
            println!("SKIPPED {listen}: this machine has no IPv6");
            continue;
        }
        let mut serving = GatewayProcess::start_at(listen, &store.folder, &[], options);
        let response = serving.send("GET", "/healthz", "", "");
        assert!(response.starts_with("HTTP/1.1 200"), "{listen}: {response}");
        assert_eq!(serving.stop(), 0);
    }
    // All interfaces need keys.
    let output = store.run(&["serve", "--listen", ":0"]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("reachable from other machines"), "{}", output.err);
    for (listen, problem) in [
        ("4400", "expected HOST:PORT"),
        ("localhost", "expected HOST:PORT"),
        ("unix:", "expected HOST:PORT"),
    ] {
        let output = store.run(&["serve", "--listen", listen]);
        assert_eq!(output.code, 2, "{listen}: {}", output.err);
        assert!(output.err.contains(problem), "{listen}: {}", output.err);
    }
    let output = store.run(&["serve", "--listen", "no-such-host.invalid:0"]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.err.contains("cannot resolve the host name"), "{}", output.err);
    let unix = ["serve", "--listen", "unix:a.sock", "--tls-cert", "a", "--tls-key", "b"];
    let output = store.run(&unix);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("not encrypted"), "{}", output.err);
}

/// A reverse proxy on the same machine connects from a loopback address and may send a local
/// `Host`. Without keys, it would open the gateway to every client of the proxy.
#[test]
fn gateway_without_keys_refuses_forwarded_requests() {
    let store = TestStore::without_database("listen-forwarded");
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    for header in ["x-forwarded-for: 203.0.113.9", "forwarded: for=203.0.113.9", "x-real-ip: ::1"] {
        let response = serving.send("GET", "/v1/models", &format!("{header}\r\n"), "");
        assert!(response.starts_with("HTTP/1.1 403"), "{header}: {response}");
        assert!(response.contains("throughline keys create"), "{response}");
    }
    assert!(serving.send("GET", "/v1/models", "", "").starts_with("HTTP/1.1 200"));
    // Probes need no key.
    let response = serving.send("GET", "/healthz", "x-forwarded-for: 203.0.113.9\r\n", "");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(serving.stop(), 0);
    let key = store.json(&["keys", "create"]);
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let headers = format!(
        "x-forwarded-for: 203.0.113.9\r\nauthorization: Bearer {}\r\n",
        key["key"].as_str().unwrap()
    );
    let response = serving.send("GET", "/v1/models", &headers, "");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(serving.stop(), 0);
}
