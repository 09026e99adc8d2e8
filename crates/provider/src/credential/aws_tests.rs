//! Tests of the sources in the AWS default chain against local services.

use std::path::Path;
use std::sync::{Arc, Mutex};

use aws_types::os_shim_internal::Env;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::AwsChain;
use crate::credential::{AwsSettings, Secret, SecretSource as _};

const EXPIRY: &str = "2100-01-01T00:00:00Z";

/// Serves the metadata service of EC2, the endpoint of ECS, STS and SSO, and records requests.
struct Identity {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Identity {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read(&mut socket).await;
                let body = respond(&request);
                let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
                let length = body.len();
                let head = "connection: close\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600";
                let response = format!(
                    "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                log.lock().unwrap().push(request);
                socket.write_all(response.as_bytes()).await.unwrap();
            }
        });
        Self { url, requests }
    }

    /// Fetches keys with these variables. Further variables lead all services to this server.
    /// Returns the id, the secret, the session token, and the sources that provided them.
    async fn fetch(&self, home: &Path, variables: &[(&str, &str)]) -> Result<[String; 4], String> {
        let home = home.to_str().unwrap();
        let fixed = [
            ("HOME", home),
            ("AWS_ENDPOINT_URL_STS", &self.url),
            ("AWS_ENDPOINT_URL_SSO", &self.url),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &self.url),
        ];
        let all: Vec<(&str, &str)> = fixed.into_iter().chain(variables.iter().copied()).collect();
        let region = Some("eu-west-1".into());
        let mut chain = AwsChain::new(AwsSettings { profile: None, region });
        chain.variables = Env::from_slice(&all);
        let fetched = chain.fetch(Timestamp::UNIX_EPOCH).await?;
        let Secret::Aws(keys) = fetched.secret else { panic!("AWS keys") };
        assert_eq!(keys.region.as_deref(), Some("eu-west-1"));
        let token = keys.session_token.map(|token| token.reveal().to_owned()).unwrap_or_default();
        let (id, secret) = (keys.id.to_string(), keys.secret.reveal().to_owned());
        Ok([id, secret, token, fetched.provider.unwrap_or_default()])
    }

    /// Returns whether the last request contains all of the texts.
    fn last_contains(&self, texts: &[&str]) -> bool {
        let requests = self.requests.lock().unwrap();
        let last = requests.last().unwrap();
        texts.iter().all(|text| last.contains(text))
    }
}

/// Reads a request with a content length.
async fn read(socket: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8(bytes.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return text;
        }
    }
}

/// Returns the body for a request; empty for an unknown path.
fn respond(request: &str) -> String {
    let json = |id: &str| {
        format!(
            r#"{{"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
            "AccessKeyId": "{id}", "SecretAccessKey": "secret", "Token": "token",
            "Expiration": "{EXPIRY}"}}"#
        )
    };
    let line = request.lines().next().unwrap_or_default();
    let action = |name: &str| request.contains(&format!("Action={name}&"));
    let sts = |name: &str, id: &str| {
        format!(
            "<{name}Response><{name}Result><Credentials><AccessKeyId>{id}</AccessKeyId>\
             <SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>\
             <Expiration>{EXPIRY}</Expiration></Credentials></{name}Result></{name}Response>"
        )
    };
    if line.starts_with("PUT /latest/api/token") {
        "session".to_owned()
    } else if line.contains("/latest/meta-data/iam/security-credentials") {
        // The service lists the role, and then returns its keys.
        let is_list = line.ends_with("/ HTTP/1.1") || line.ends_with("credentials HTTP/1.1");
        if is_list { "role".to_owned() } else { json("EC2") }
    } else if line.starts_with("GET /ecs") {
        json("ECS")
    } else if action("AssumeRole") {
        sts("AssumeRole", "ROLE")
    } else if action("AssumeRoleWithWebIdentity") {
        sts("AssumeRoleWithWebIdentity", "WEB")
    } else if line.starts_with("GET /federation/credentials") {
        r#"{"roleCredentials": {"accessKeyId": "SSO", "secretAccessKey": "secret",
        "sessionToken": "token", "expiration": 4102444800000}}"#
            .to_owned()
    } else {
        String::new()
    }
}

/// Creates a home directory with the shared AWS files.
fn home(config: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".aws");
    std::fs::create_dir_all(folder.join("sso/cache")).unwrap();
    std::fs::write(folder.join("config"), config).unwrap();
    home
}

#[tokio::test]
async fn environment_takes_precedence() {
    let (identity, home) = (Identity::start().await, home(""));
    let variables =
        [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "t")];
    let keys = identity.fetch(home.path(), &variables).await.unwrap();
    assert_eq!(keys, ["ENV", "s", "t", "environment variables"]);
    assert_eq!(identity.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn profiles_provide_keys_processes_and_roles() {
    let home = home(
        "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = secret\n\
         [profile role]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n\
         [profile process]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \
         \"PROCESS\", \"SecretAccessKey\": \"secret\", \"SessionToken\": \"token\"}'\n",
    );
    let identity = Identity::start().await;
    for (profile, expected) in [
        ("base", ["BASE", "secret", ""]),
        ("role", ["ROLE", "secret", "token"]),
        ("process", ["PROCESS", "secret", "token"]),
    ] {
        let keys = identity.fetch(home.path(), &[("AWS_PROFILE", profile)]).await.unwrap();
        assert_eq!(keys[..3], expected, "{profile}");
        assert!(keys[3].contains("a profile"), "{}", keys[3]);
    }
    let role = "RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fr";
    assert!(identity.last_contains(&["Action=AssumeRole&", role, "Credential=BASE/"]));
    // A changed file is read again by the next fetch.
    let file = home.path().join(".aws/config");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("= BASE", "= ROTATED")).unwrap();
    let keys = identity.fetch(home.path(), &[("AWS_PROFILE", "base")]).await.unwrap();
    assert_eq!(keys[0], "ROTATED");
}

#[tokio::test]
async fn sso_session_is_exchanged_for_keys() {
    let home = home(
        "[default]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = role\n\
         [sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://work.example/start\n",
    );
    // The file name is the SHA-1 digest of the session's name.
    let cache = home.path().join(".aws/sso/cache/e274eeff768c6396088ec6eb091f4bf4d47ab1e0.json");
    let token = format!(r#"{{"accessToken": "login", "expiresAt": "{EXPIRY}"}}"#);
    std::fs::write(cache, token).unwrap();
    let identity = Identity::start().await;
    let keys = identity.fetch(home.path(), &[]).await.unwrap();
    assert_eq!(keys, ["SSO", "secret", "token", "SSO, a profile"]);
    assert!(identity.last_contains(&["account_id=123456789012", "role_name=role", "login"]));
}

#[tokio::test]
async fn web_identity_token_is_exchanged_for_keys() {
    let (identity, home) = (Identity::start().await, home(""));
    let token = home.path().join("token");
    std::fs::write(&token, "jwt").unwrap();
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r"),
    ];
    let keys = identity.fetch(home.path(), &variables).await.unwrap();
    assert_eq!(keys, ["WEB", "secret", "token", "a web identity"]);
    assert!(identity.last_contains(&["WebIdentityToken=jwt"]));
}

#[tokio::test]
async fn container_endpoint_and_instance_metadata_provide_keys() {
    let (identity, home) = (Identity::start().await, home(""));
    let url = format!("{}/ecs", identity.url);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "proof"),
    ];
    let keys = identity.fetch(home.path(), &variables).await.unwrap();
    assert_eq!(keys, ["ECS", "secret", "token", "the container endpoint"]);
    assert!(identity.last_contains(&["proof"]));
    let keys = identity.fetch(home.path(), &[]).await.unwrap();
    assert_eq!(keys, ["EC2", "secret", "token", "the EC2 metadata service"]);
    // Version 2 of the metadata service requires a session token.
    assert!(identity.last_contains(&["x-aws-ec2-metadata-token: session"]));
}

#[tokio::test]
async fn missing_credentials_are_reported() {
    let (identity, home) = (Identity::start().await, home(""));
    let variables = [("AWS_EC2_METADATA_DISABLED", "true")];
    let error = identity.fetch(home.path(), &variables).await.unwrap_err();
    assert!(error.starts_with("no source of the default chain has credentials ("), "{error}");
}
