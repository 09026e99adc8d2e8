//! `throughline check`: tests a configuration against its providers, its store and this machine.
//! The output contains no key.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use owo_colors::Style;
use serde_json::{Value, json};
use throughline_core::{Provider, Store as _, StoreError, Upstream as _};
use throughline_json::Name;
use throughline_provider::{CredentialSource, FetchError, Http};
use throughline_server::model_list_request;
use throughline_store::open;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::args::CheckArgs;
use crate::cmd::serve::bind::ResolvedAddress;
use crate::cmd::serve::parts::load_tls;
use crate::config::file::ParsedConfig;
use crate::config::{Config, Credential, Endpoint, read_config, shown_variable};
use crate::credentials::SharedCredentials;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Cell, Column, table};
use crate::print::text::{self, count, plain, push_line};
use crate::router::{account_endpoint, endpoints};
use crate::store::{
    IfMissing, closed_folder, open_failure, open_options, runtime, without_password,
};

/// Base URL for the simulated endpoints, which are not tested.
const NO_SIMULATORS: &str = "http://127.0.0.1:9";

/// Maximum number of configuration errors that are listed.
const LISTED: usize = 5;

pub(crate) fn run(options: &CheckArgs) -> Result<ExitCode> {
    let parsed = read_config(options.common.at.config.as_deref())?;
    let checks = runtime(Builder::new_multi_thread())?.block_on(run_checks(options, &parsed));
    let is_ok = checks.iter().all(|check| check.result != CheckResult::Failed);
    let printed = options.common.format.print(|| text_of(&checks), || json_of(&checks));
    printed.or_else(Failure::ignore_closed_pipe)?;
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Passed,
    Failed,
    Skipped,
}

impl CheckResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The result of one check.
struct CheckRow {
    name: String,
    result: CheckResult,
    detail: String,
    /// What to do if the check failed.
    fix: Option<String>,
}

impl CheckRow {
    fn passed(name: impl Into<String>, detail: impl Into<String>) -> Self {
        let (name, detail) = (name.into(), detail.into());
        Self { name, result: CheckResult::Passed, detail, fix: None }
    }

    fn skipped(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { result: CheckResult::Skipped, ..Self::passed(name, detail) }
    }

    fn failed(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { result: CheckResult::Failed, fix, ..Self::passed(name, detail) }
    }

    /// Creates a row from a failure, whose message states the problem and the fix, separated by a
    /// semicolon.
    fn from_failure(name: impl Into<String>, failure: &Failure) -> Self {
        let message = failure.to_string();
        match message.split_once("; ") {
            Some((detail, fix)) => Self::failed(name, detail, fix),
            None => Self::failed(name, message, "see docs/configuration.md"),
        }
    }
}

async fn run_checks(options: &CheckArgs, parsed: &ParsedConfig) -> Vec<CheckRow> {
    let mut checks = configuration(parsed);
    if !parsed.errors.is_empty() {
        return checks;
    }
    let config = &parsed.config;
    let limit = Duration::from_secs(options.timeout);
    checks.push(catalog(config));
    checks.extend(config.server.tls.as_ref().map(|files| match load_tls(files) {
        Ok(settings) => match settings.expired_at(crate::clock::now()) {
            Some(end) => {
                let detail = format!("the certificate expired on {end}");
                CheckRow::failed("TLS files", detail, "install a renewed certificate")
            }
            None => CheckRow::passed("TLS files", "the certificate and the key match"),
        },
        Err(Failure::Usage(problem)) => {
            CheckRow::failed("TLS files", problem, "check the paths in [server.tls]")
        }
        Err(failure) => {
            let fix = "install the certificate chain and its private key in PEM format";
            CheckRow::failed("TLS files", failure.to_string(), fix)
        }
    }));
    checks.push(within(limit, "listen address", listen_address(config)).await);
    checks.push(within(limit, "store", store(options)).await);
    checks.extend(providers(config, limit).await);
    checks
}

/// Runs a check with a time limit.
async fn within(limit: Duration, name: &str, check: impl Future<Output = CheckRow>) -> CheckRow {
    timeout(limit, check).await.unwrap_or_else(|_| {
        let detail = format!("no response within {} s", limit.as_secs());
        CheckRow::failed(name, detail, "check the network, or allow more time with --timeout")
    })
}

fn configuration(parsed: &ParsedConfig) -> Vec<CheckRow> {
    let Some(file) = &parsed.config.file else {
        return vec![CheckRow::passed("configuration", "no file; all values are defaults")];
    };
    let name = plain(&file.display().to_string());
    if parsed.errors.is_empty() {
        let warnings = match parsed.warnings.len() {
            0 => String::new(),
            number => format!(" with {}", count(number, "warning")),
        };
        return vec![CheckRow::passed("configuration", format!("{name} is valid{warnings}"))];
    }
    let row = |problem: &dyn std::fmt::Display| {
        let fix = format!("correct the file; `throughline config check --config {name}` lists all");
        CheckRow::failed("configuration", plain(&format!("{name}:{problem}")), fix)
    };
    parsed.errors.iter().take(LISTED).map(|problem| row(problem)).collect()
}

fn catalog(config: &Config) -> CheckRow {
    let catalog = &config.catalog;
    if let Some(warning) = catalog.warning() {
        let fix = "install a valid file with `throughline catalog update`, or delete this one";
        return CheckRow::failed("catalog", plain(&warning), fix);
    }
    let version = catalog.shared.current().version();
    let version = version.map(|version| version.to_string()).unwrap_or_default();
    let source = if catalog.file.is_some() { "installed" } else { "built in" };
    CheckRow::passed("catalog", format!("{version}, {source}"))
}

/// Opens and closes the socket of the gateway.
async fn listen_address(config: &Config) -> CheckRow {
    const NAME: &str = "listen address";
    let listen = &config.server.listen;
    let bound = async { ResolvedAddress::resolve(listen).await?.bind(listen).await };
    match bound.await {
        Ok(_) => CheckRow::passed(NAME, format!("{listen} is free")),
        Err(failure) => CheckRow::from_failure(NAME, &failure),
    }
}

/// Opens the store, writes to it and reads its schema version. A missing store is not created.
async fn store(options: &CheckArgs) -> CheckRow {
    const NAME: &str = "store";
    let at = &options.common.at;
    let (url, how) = match open_options(at, IfMissing::Fails) {
        Ok(found) => found,
        Err(failure) => return CheckRow::from_failure(NAME, &failure),
    };
    let shown = plain(&without_password(&url));
    let journal = match open(&url, &how).await {
        Ok(journal) => journal,
        Err(StoreError::NotFound { .. }) => return missing_store(&url, &shown),
        Err(error) => return CheckRow::from_failure(NAME, &open_failure(error, &url)),
    };
    let tested = async {
        journal.probe().await?;
        journal.schema_version().await
    };
    let tested = tested.await;
    let closed = journal.close().await;
    match tested.and_then(|version| closed.map(|()| version)) {
        Ok(version) => {
            CheckRow::passed(NAME, format!("{shown} accepts writes, schema version {version}"))
        }
        Err(error) => {
            let fix = "check the permissions and the free space of the store";
            CheckRow::failed(NAME, format!("{shown}: {error}"), fix)
        }
    }
}

/// Reports a store that `throughline serve` will create, if its folder accepts files.
fn missing_store(url: &str, shown: &str) -> CheckRow {
    if closed_folder(url).is_none() {
        return CheckRow::passed("store", format!("{shown} does not exist; `serve` creates it"));
    }
    let detail = format!("{shown} does not exist and cannot be created");
    CheckRow::failed("store", detail, "make the folder writable for this user")
}

/// A key to test with a request.
struct KeyTest {
    name: String,
    endpoint: Name,
    provider: Arc<Provider>,
    credential: Credential,
}

/// Tests the keys of all providers at the same time.
async fn providers(config: &Config, limit: Duration) -> Vec<CheckRow> {
    let built = endpoints(config, NO_SIMULATORS, &SharedCredentials::default())
        .and_then(|all| Http::new(all, Arc::new(crate::clock::now)));
    let http = match built {
        Ok(http) => http,
        Err(error) => {
            let fix = "correct the base_url of the provider";
            return vec![CheckRow::failed("providers", error.to_string(), fix)];
        }
    };
    let tests = key_tests(config);
    if tests.is_empty() {
        let detail = "no provider has a key; the simulators need none";
        return vec![CheckRow::skipped("providers", detail)];
    }
    let tests = tests.iter().map(|test| within(limit, &test.name, key(&http, test)));
    join_all(tests).await
}

/// Lists the keys of the operator: configured keys, and keys in the usual environment variables.
fn key_tests(config: &Config) -> Vec<KeyTest> {
    let mut tests = Vec::new();
    for settings in config.routes.providers() {
        let Endpoint::Remote(provider) = &settings.endpoint else { continue };
        let mut add = |name: String, endpoint: Name, credential: &Credential| {
            let is_tested = match credential {
                Credential::Own { .. } | Credential::Aws(_) | Credential::Dynamic(_) => true,
                Credential::Callers | Credential::Open | Credential::Missing { .. } => {
                    settings.line.is_some()
                }
            };
            if is_tested {
                let (provider, credential) = (Arc::clone(provider), credential.clone());
                let name = format!("provider {}", plain(&name));
                tests.push(KeyTest { name, endpoint, provider, credential });
            }
        };
        let Some(pool) = &settings.pool else {
            add(settings.name.to_string(), settings.name.clone(), &settings.credential);
            continue;
        };
        for account in &pool.accounts {
            let endpoint = account_endpoint(&settings.name, &account.name);
            add(endpoint.to_string(), endpoint.clone(), &account.credential);
        }
    }
    tests
}

/// Tests a key with a request for the model list.
async fn key(http: &Http, test: &KeyTest) -> CheckRow {
    let name = test.name.clone();
    let source = match &test.credential {
        Credential::Own { variable: Some(variable), .. } => shown_variable(variable),
        Credential::Own { variable: None, .. } => "the configured key".to_owned(),
        Credential::Aws(_) => "the AWS keys".to_owned(),
        Credential::Dynamic(settings) => match source_in_use(http, &test.endpoint).await {
            Some(Ok(source)) => plain(&source),
            Some(Err(error)) => {
                let detail = plain(&format!("{}: {}", error.origin, error.problem));
                return CheckRow::failed(name, detail, error.advice);
            }
            None => plain(&settings.to_string()),
        },
        Credential::Open => "no key".to_owned(),
        Credential::Callers => {
            return CheckRow::skipped(name, "each request uses the caller's key");
        }
        Credential::Missing { variable } => {
            let variable = shown_variable(variable);
            let fix = format!("set {variable}, or remove the provider");
            return CheckRow::failed(name, format!("{variable} is not set"), fix);
        }
    };
    let Some(request) = model_list_request(&test.endpoint, &test.provider) else {
        let detail = format!("{source} is set; no free request of this API tests it");
        return CheckRow::skipped(name, detail);
    };
    match http.send(request).await {
        Ok(answer) => match answer.status {
            200..300 => CheckRow::passed(name, format!("the provider accepts {source}")),
            status @ (401 | 403) => {
                let fix = "replace the key with a valid key of this provider";
                CheckRow::failed(name, format!("the provider refuses {source} ({status})"), fix)
            }
            status @ (404 | 405 | 501) => {
                let detail = format!("reachable, but without a model list ({status})");
                CheckRow::skipped(name, detail)
            }
            status => {
                let fix = "try again later, or check the base_url of the provider";
                CheckRow::failed(name, format!("the provider returned status {status}"), fix)
            }
        },
        Err(error) => {
            let fix = "check the base_url of the provider and the network";
            CheckRow::failed(name, plain(&error.to_string()), fix)
        }
    }
}

/// Fetches the credential of an endpoint from its source, and describes the source that provided
/// it. Returns `None` if the endpoint has no such credential.
async fn source_in_use(http: &Http, endpoint: &str) -> Option<Result<String, FetchError>> {
    match &http.endpoint(endpoint)?.credential {
        CredentialSource::Dynamic(credential) => Some(credential.test(crate::clock::now()).await),
        CredentialSource::Key(_)
        | CredentialSource::Aws(_)
        | CredentialSource::Caller
        | CredentialSource::Open
        | CredentialSource::Missing(_) => None,
    }
}

fn text_of(checks: &[CheckRow]) -> String {
    let result = |check: &CheckRow| {
        let style = match check.result {
            CheckResult::Passed => Style::new().green(),
            CheckResult::Failed => Style::new().red(),
            CheckResult::Skipped => Style::new().dimmed(),
        };
        Cell::styled(check.result.as_str(), style)
    };
    let mut columns = vec![
        Column::new("check", checks.iter().map(|check| check.name.as_str())),
        Column::new("result", checks.iter().map(result)).unwrapped(),
        Column::new("detail", checks.iter().map(|check| check.detail.as_str())),
    ];
    let failed = checks.iter().filter(|check| check.result == CheckResult::Failed).count();
    if failed > 0 {
        let fix = |check: &CheckRow| check.fix.clone().unwrap_or_default();
        columns.push(Column::new("what to do", checks.iter().map(fix)));
    }
    let mut out = table(columns);
    let verdict = match failed {
        0 => format!("{} no check failed", text::mark(true)),
        number => format!("{} {} failed", text::mark(false), count(number, "check")),
    };
    push_line(&mut out, &verdict);
    out
}

fn json_of(checks: &[CheckRow]) -> Value {
    let is_ok = checks.iter().all(|check| check.result != CheckResult::Failed);
    let rows = checks.iter().map(|CheckRow { name, result, detail, fix }| {
        json!({ "name": name, "result": result.as_str(), "detail": detail, "fix": fix })
    });
    json!({
        "verdict": if is_ok { "ok" } else { "failed" },
        "checks": rows.collect::<Vec<_>>(),
    })
}
