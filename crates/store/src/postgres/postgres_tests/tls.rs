//! Tests of TLS with a real server and its own CA: all modes, a wrong CA, an expired certificate,
//! another host, client certificates.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use throughline_testkit::{Cluster, Folder};

use super::*;
use crate::postgres::connect::Server;
use crate::sync::blocking;

/// A CA whose certificate is in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = folder.join(format!("{name}.crt"));
        let signed = params.self_signed(&key).unwrap();
        write_pem(&certificate, "CERTIFICATE", signed.der());
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Issues a certificate for a host or client, and returns the files of the certificate and its
    /// private key.
    fn issue(&self, folder: &Path, name: &str, expires: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(expires, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str| folder.join(format!("{name}-{expires}.{ending}"));
        write_pem(&file("crt"), "CERTIFICATE", signed.der());
        write_pem(&file("key"), "PRIVATE KEY", &key.serialize_der());
        (file("crt"), file("key"))
    }
}

fn write_pem(file: &Path, label: &str, der: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"));
    std::fs::write(file, pem).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Connects and returns whether the connection is encrypted.
async fn connect(url: String) -> Result<bool, String> {
    let shown = url.clone();
    let connected = async {
        let server = blocking(move || Server::at(&url, 1, false)).await?;
        let client = server.client().await?;
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        client.query_one(sql, &[]).await.map_err(|error| server.error(error))
    };
    let row = connected.await.map_err(|error| error.to_string())?;
    let is_encrypted = row.get(0);
    assert!(!shown.contains("sslmode=verify") || is_encrypted, "{shown}");
    Ok(is_encrypted)
}

#[track_caller]
fn assert_refused(outcome: Result<bool, String>, expected: &str) {
    let error = outcome.expect_err("the connection is refused");
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    assert!(error.contains("; "), "the error states what to do: {error}");
}

async fn enable_tls(cluster: &Arc<Cluster>, files: &(PathBuf, PathBuf), ca: &Path) {
    let (cluster, (certificate, key), ca) = (Arc::clone(cluster), files.clone(), ca.to_owned());
    let enabled = move || cluster.enable_tls(&certificate, &key, &ca);
    tokio::task::spawn_blocking(enabled).await.unwrap();
}

#[tokio::test]
async fn tls_modes_check_what_they_promise() {
    let folder = Folder::new("postgres-tls");
    let (ca, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    let cluster = tokio::task::spawn_blocking(|| Arc::new(Cluster::start())).await.unwrap();
    let port = cluster.url.rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
    let url = |host: &str, parameters: &str| {
        format!("postgres://throughline:hunter2@{host}:{port}/postgres?{parameters}")
    };
    let root = |authority: &Authority| format!("sslrootcert={}", authority.certificate.display());

    // A server without TLS.
    for mode in ["", "sslmode=prefer", "sslmode=disable"] {
        assert_eq!(connect(url("localhost", mode)).await, Ok(false), "{mode}");
    }
    for mode in ["require", "verify-full"] {
        let outcome = connect(url("localhost", &format!("sslmode={mode}&{}", root(&ca)))).await;
        let expected = format!("the server does not support TLS, but sslmode={mode} requires it; ");
        assert_refused(outcome, &expected);
    }

    // A certificate for localhost.
    enable_tls(&cluster, &ca.issue(&folder, "localhost", 2099), &ca.certificate).await;
    assert_eq!(connect(url("localhost", "sslmode=disable")).await, Ok(false));
    for (host, mode) in [
        ("localhost", String::new()),
        ("localhost", "sslmode=prefer".to_owned()),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", format!("sslmode=require&{}", root(&ca))),
        ("127.0.0.1", format!("sslmode=verify-ca&{}", root(&ca))),
        ("localhost", format!("sslmode=verify-full&{}", root(&ca))),
    ] {
        assert_eq!(connect(url(host, &mode)).await, Ok(true), "{host} {mode}");
    }
    let verified = format!("sslmode=verify-full&{}", root(&ca));
    assert_refused(
        connect(url("127.0.0.1", &verified)).await,
        "the server's certificate is for localhost, not for 127.0.0.1; connect to a host name in \
         the certificate",
    );
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let outcome = connect(url("localhost", &format!("sslmode={mode}&{}", root(&other)))).await;
        let file = other.certificate.display();
        let expected = format!(
            "the server's certificate was not issued by a CA in sslrootcert={file}; set sslrootcert"
        );
        assert_refused(outcome, &expected);
    }
    let outcome = connect(url("localhost", "sslmode=verify-full")).await;
    assert_refused(outcome, "root certificates; set sslrootcert");

    // An expired certificate.
    enable_tls(&cluster, &ca.issue(&folder, "localhost", 2020), &ca.certificate).await;
    assert_eq!(connect(url("localhost", "sslmode=require")).await, Ok(true));
    for mode in ["verify-ca", "verify-full"] {
        let outcome = connect(url("localhost", &format!("sslmode={mode}&{}", root(&ca)))).await;
        let expected = "the server's certificate expired at 2020-01-01T00:00:00Z; renew";
        assert_refused(outcome, expected);
    }

    // A CA certificate as the server's own certificate.
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let files = (folder.join("self.crt"), folder.join("self.key"));
    write_pem(&files.0, "CERTIFICATE", params.self_signed(&key).unwrap().der());
    write_pem(&files.1, "PRIVATE KEY", &key.serialize_der());
    enable_tls(&cluster, &files, &ca.certificate).await;
    let mode = format!("sslmode=verify-full&sslrootcert={}", files.0.display());
    assert_refused(connect(url("localhost", &mode)).await, "uses a CA certificate as its own");

    // The whole store works with TLS and a client certificate.
    enable_tls(&cluster, &ca.issue(&folder, "localhost", 2099), &ca.certificate).await;
    assert_client_certificates(&cluster, &folder, &port, &ca, &other).await;
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

/// Checks a user that the server accepts only with a client certificate.
async fn assert_client_certificates(
    cluster: &Cluster,
    folder: &Path,
    port: &str,
    ca: &Authority,
    other: &Authority,
) {
    let admin = client(&format!("{}?sslmode=disable", cluster.url)).await;
    admin.batch_execute("CREATE ROLE certified SUPERUSER LOGIN").await.unwrap();
    let url = |files: Option<&(PathBuf, PathBuf)>| {
        let (certificate, key) = files.map(|(certificate, key)| (certificate, key)).unzip();
        let shown = |name: &str, file: Option<&PathBuf>| {
            file.map(|file| format!("&{name}={}", file.display())).unwrap_or_default()
        };
        format!(
            "postgres://certified@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={}{}{}",
            ca.certificate.display(),
            shown("sslcert", certificate),
            shown("sslkey", key)
        )
    };
    let refused = connect(url(None)).await.unwrap_err();
    assert!(refused.contains("connection requires a valid client certificate"), "{refused}");
    let wrong = other.issue(folder, "certified", 2098);
    let refused = connect(url(Some(&wrong))).await.unwrap_err();
    assert!(refused.contains("the server rejected the client certificate"), "{refused}");
    let files = ca.issue(folder, "certified", 2099);
    let node = node(&url(Some(&files)), "w1").await;
    commit(&node, adding([opened("a", [record("x")])])).await.unwrap();
    assert_eq!(contents(&node, "a").await, [(1, "x".to_owned())]);
    let sql = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
               WHERE a.usename = 'certified' AND NOT s.ssl";
    assert_eq!(admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&files.1, open_to_all).unwrap();
    assert_refused(connect(url(Some(&files))).await, "other users can read the private key");
}
