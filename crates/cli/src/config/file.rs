//! Parses `throughline.toml`. The text and the environment variables are parameters, so this module
//! does no I/O.

use std::path::Path;
use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::matches_pattern;
use throughline_json::Name;
use throughline_provider::{EnvLookup, EnvWarning};
use throughline_server::Passthrough;
use throughline_server::StorePolicy;
use throughline_spec::RedactionPolicy;
use throughline_tools::reader::{Diagnostics, Phrases, Section, Value};
use throughline_tools::suggest::{closest, did_you_mean};
use throughline_tools::{Problem, Problems, ToolDeclarations};

use super::Config;
use super::builtin::{self, SIMULATORS};
use super::catalog::{self, CatalogSettings};
use super::environment::is_address;
use super::key;
use super::provider;
use super::routes::{Destination, ProviderSettings, Route, Routes};
use super::settings::{
    AgentSettings, CAPTURE_MODES, GatewaySettings, PREFIX_POLICIES, Price, Prices, REPLAY_MODES,
    STORE_FAILURES, ServerSettings, StoreSettings, Timeouts, TlsFiles,
};
use super::{console, opentelemetry, retention, tracing};
use crate::amount;
use crate::args::LOG_LEVELS;

/// Wording of messages about the configuration file.
const PHRASES: Phrases = Phrases {
    unknown_key: "unknown key",
    root: "at the top of the file",
    known_keys: "valid keys are",
    string: "a string",
    duration: "a duration of at most one day",
    size: |key| format!("a number of bytes: write {key} = \"64MiB\", or a plain number"),
    largest_size: u64::MAX,
};

/// Top-level tables that this module parses.
const OWN: [&str; 12] = [
    "server",
    "console",
    "store",
    "gateway",
    "agents",
    "catalog",
    "redaction",
    "retention",
    "providers",
    "routes",
    "prices",
    "tracing",
];
/// Top-level tables that declare tools and are parsed by `throughline_tools`.
const TOOLS: [&str; 2] = ["mcp", "http"];

/// A parsed configuration, and the problems that were found.
pub(crate) struct ParsedConfig {
    /// The parsed configuration, which is valid only if `errors` is empty.
    pub(crate) config: Config,
    /// Errors, ordered by their position in the text.
    pub(crate) errors: Vec<Problem>,
    /// Warnings, ordered by their position in the text.
    pub(crate) warnings: Vec<Problem>,
    /// Environment variables that hold an invalid address or region.
    pub(crate) env_warnings: Vec<EnvWarning>,
}

/// Parses a configuration. An empty text yields the defaults, with keys from the environment
/// variables.
pub(crate) fn read(text: &str, catalog: &Catalog, variable: EnvLookup<'_>) -> ParsedConfig {
    let mut notes = Diagnostics::new(text, &PHRASES, variable);
    let mut config = Config::default();
    let mut env_warnings = Vec::new();
    match Value::from_toml(text) {
        Ok(value) => {
            if let Some(root) = Section::root(&value) {
                env_warnings = fill(&mut config, &root, catalog, &mut notes);
                match ToolDeclarations::read(text, &root, variable) {
                    Ok(tools) => config.tools = tools,
                    Err(Problems(problems)) => notes.errors.extend(problems),
                }
            }
        }
        Err((at, message)) => notes.error(at, format!("invalid TOML: {message}")),
    }
    notes.sort();
    let Diagnostics { errors, warnings, lines, .. } = notes;
    config.lines = lines;
    ParsedConfig { config, errors, warnings, env_warnings }
}

/// Parses only the `[catalog]` table. Returns the first problem of the table or the TOML syntax.
pub(crate) fn catalog_settings(
    text: &str,
    config: Option<&Path>,
) -> Result<CatalogSettings, Problem> {
    let mut notes = Diagnostics::new(text, &PHRASES, &|_| None);
    let mut settings = CatalogSettings::default();
    match Value::from_toml(text) {
        Ok(value) => {
            let section =
                Section::root(&value).and_then(|root| root.section("catalog", &mut notes));
            if let Some(section) = section {
                settings = catalog::settings(&section, &mut notes);
            }
        }
        Err((at, message)) => notes.error(at, format!("invalid TOML: {message}")),
    }
    notes.sort();
    settings.resolve(config);
    notes.errors.into_iter().next().map_or(Ok(settings), Err)
}

/// Parses a price table. Returns the version and the prices of the table.
pub(crate) fn price_table(text: &str) -> (String, Prices) {
    let mut notes = Diagnostics::new(text, &PHRASES, &|_| None);
    let Ok(value) = Value::from_toml(text) else { return Default::default() };
    let Some(root) = Section::root(&value) else { return Default::default() };
    let version = root.text("version", "2026-01-01", &mut notes).unwrap_or_default().to_owned();
    let prices = root.section("prices", &mut notes);
    (version, prices.map(|section| prices_of(&section, &mut notes)).unwrap_or_default())
}

/// Parses all tables except those that declare tools, and returns warnings about environment
/// variables with invalid values.
fn fill(
    config: &mut Config,
    root: &Section<'_>,
    catalog: &Catalog,
    notes: &mut Diagnostics<'_>,
) -> Vec<EnvWarning> {
    root.reject_unknown_keys(&[&OWN[..], &TOOLS].concat(), notes);
    config.server =
        root.section("server", notes).map(|section| server(&section, notes)).unwrap_or_default();
    config.console =
        root.section("console", notes).and_then(|section| console::read(&section, notes));
    config.store =
        root.section("store", notes).map(|section| store(&section, notes)).unwrap_or_default();
    config.gateway =
        root.section("gateway", notes).map(|section| gateway(&section, notes)).unwrap_or_default();
    config.agents =
        root.section("agents", notes).map(|section| agents(&section, notes)).unwrap_or_default();
    config.prices =
        root.section("prices", notes).map(|section| prices_of(&section, notes)).unwrap_or_default();
    config.tracing = root
        .section("tracing", notes)
        .map(|section| tracing::read(&section, notes))
        .unwrap_or_default();
    config.retention = root
        .section("retention", notes)
        .map(|section| retention::read(&section, notes))
        .unwrap_or_default();
    opentelemetry::apply(&mut config.tracing, notes.variables);
    // The caller loads the catalog. Here, the table is only checked.
    if let Some(section) = root.section("catalog", notes) {
        drop(catalog::settings(&section, notes));
    }
    config.redaction = redaction(root, notes);
    let sections = root.section("providers", notes);
    let sections = sections.map(|all| all.sections(notes)).unwrap_or_default();
    let mut providers: Vec<ProviderSettings> = Vec::new();
    let mut claimed: Vec<(String, Name)> = Vec::new();
    for (name, section) in &sections {
        if let Some(read) = provider::read(name, section, catalog, notes) {
            note_claims(&read, section, &mut claimed, notes);
            providers.push(read);
        }
    }
    let is_replaced = |name: &str| sections.iter().any(|(own, _)| *own == name);
    let (rest, env_warnings) = builtin::providers(catalog, notes.variables);
    let rest = rest.into_iter();
    let rest = rest.filter(|row| *row.name == *SIMULATORS || !is_replaced(&row.name));
    let rest = rest.map(|row| builtin::apply_overrides(row, &providers, catalog));
    let rest: Vec<ProviderSettings> = rest.collect();
    providers.extend(rest);
    let routes = Routes::new(providers, Vec::new());
    let mut read: Vec<Route> = Vec::new();
    for section in root.list("routes", notes) {
        let Some(route) = route(&section, &routes, &is_replaced, notes) else { continue };
        if let Some(earlier) = read.iter().find(|earlier| earlier.model == route.model) {
            let message = format!(
                "a route for `{}` is already defined in line {}: merge their targets",
                route.model, earlier.line
            );
            notes.error(section.at, message);
        }
        read.push(route);
    }
    config.routes = Routes::new(routes.providers().to_vec(), read);
    env_warnings
}

fn server(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> ServerSettings {
    section.reject_unknown_keys(&["listen", "tls", "allow_open", "hosts", "log"], notes);
    let mut server = ServerSettings::default();
    if let Some(text) = section.text("listen", "127.0.0.1:4400", notes) {
        let expected = "an address with a port: write listen = \"127.0.0.1:4400\", \
                        \"localhost:4400\", \":4400\" or \"unix:/run/throughline.sock\"";
        let address = section.parse("listen", |_| text.parse().ok(), expected, notes);
        server.listen = address.unwrap_or(server.listen);
    }
    server.tls = section.section("tls", notes).and_then(|section| tls(&section, notes));
    server.allow_open = section.flag("allow_open", notes).unwrap_or(server.allow_open);
    let hosts = section.texts("hosts", "\"gateway.example.com\"", notes);
    for (at, host) in hosts.unwrap_or_default() {
        if host.contains(['/', ':', '*', ' ']) {
            let message = "`hosts` must list host names without scheme, port or `*`: write \
                           hosts = [\"gateway.example.com\"]";
            notes.error(at, message);
        }
        server.hosts.push(Name::from(host));
    }
    server.log = section.choice("log", LOG_LEVELS, notes).unwrap_or(server.log);
    server
}

fn tls(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<TlsFiles> {
    section.reject_unknown_keys(&["cert", "key"], notes);
    for key in ["cert", "key"].into_iter().filter(|key| !section.has(key)) {
        let message = format!(
            "this table has no `{key}`: write cert = \"/etc/throughline/tls.crt\" and \
             key = \"/etc/throughline/tls.key\""
        );
        notes.error(section.at, message);
    }
    let cert = section.text("cert", "/etc/throughline/tls.crt", notes);
    let key = section.text("key", "/etc/throughline/tls.key", notes);
    Some(TlsFiles { cert: cert?.into(), key: key?.into() })
}

fn store(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> StoreSettings {
    section.reject_unknown_keys(&["url", "listen_url", "master_key_env"], notes);
    let url = section.text("url", "sqlite:///srv/throughline.db", notes);
    if url.is_some_and(|url| !is_address(url)) {
        let message =
            "`url` has an unknown scheme: write sqlite://FILE or postgres://USER@HOST/DATABASE";
        notes.error(section.value_at("url"), message);
    }
    let listen_url = section.text("listen_url", "postgres://USER@HOST/DATABASE", notes);
    let is_postgres =
        |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
    if listen_url.is_some_and(|url| !is_postgres(url)) {
        let message = "`listen_url` must be the URL of the PostgreSQL server itself, for a direct \
                       connection: write postgres://USER@HOST/DATABASE";
        notes.error(section.value_at("listen_url"), message);
    } else if listen_url.is_some() && !url.is_some_and(is_postgres) {
        let message = "`listen_url` needs a `url` that starts with postgres://, such as the URL of \
                       PgBouncer";
        notes.error(section.value_at("listen_url"), message);
    }
    let master_key_env = key::variable_name("master_key_env", section, notes);
    if let Some(name) = master_key_env.filter(|name| (notes.variables)(name).is_none()) {
        let shown = key::shown_variable(name);
        let message = format!("{shown} is not set; the store cannot be opened without it");
        notes.warning(section.value_at("master_key_env"), message);
    }
    StoreSettings {
        url: url.map(str::to_owned),
        listen_url: listen_url.map(str::to_owned),
        master_key_env: master_key_env.map(Name::from),
    }
}

fn agents(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> AgentSettings {
    const LEAST: Duration = Duration::from_millis(100);
    let defaults = AgentSettings::default();
    section.reject_unknown_keys(&["lease", "max_steps", "max_runs_per_tenant"], notes);
    let lease = section.time("lease", notes);
    if lease.is_some_and(|lease| lease < LEAST) {
        notes.error(
            section.key_at("lease"),
            "`lease` must be at least 100ms: write lease = \"15s\"",
        );
    }
    let mut count = |name, default| section.count(name, default, notes).unwrap_or(default);
    AgentSettings {
        lease: lease.unwrap_or(defaults.lease),
        max_steps: count("max_steps", defaults.max_steps),
        max_runs_per_tenant: count("max_runs_per_tenant", defaults.max_runs_per_tenant),
    }
}

/// Parses the `[redaction]` table.
fn redaction(root: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<RedactionPolicy> {
    let policy = root.json("redaction", "a table: write [redaction]", notes)?;
    let policy = RedactionPolicy::parse(&policy);
    policy.map_err(|error| notes.error(root.key_at("redaction"), error.to_string())).ok()
}

fn gateway(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> GatewaySettings {
    section.reject_unknown_keys(
        &[
            "replay",
            "capture",
            "prefix",
            "body_limit",
            "depth_limit",
            "entry_limit",
            "item_limit",
            "tool_limit",
            "max_streams",
            "max_request_memory",
            "cache_size",
            "passthrough",
            "budget_webhook",
            "on_store_failure",
            "key_grace",
            "timeouts",
        ],
        notes,
    );
    let defaults = GatewaySettings::default();
    let passthrough = section.texts("passthrough", "\"GET /v1/videos/*\"", notes);
    let passthrough = passthrough.unwrap_or_default();
    for (at, pattern) in &passthrough {
        if let Err(error) = Passthrough::new([*pattern]) {
            notes.error(*at, format!("`passthrough` has an invalid pattern: {error}"));
        }
    }
    let on_failure = section.choice("on_store_failure", STORE_FAILURES, notes);
    let store = StorePolicy {
        on_failure: on_failure.unwrap_or(defaults.store.on_failure),
        key_grace: section.time("key_grace", notes).unwrap_or(defaults.store.key_grace),
    };
    let timeouts = section.section("timeouts", notes);
    let timeouts = timeouts.map_or(defaults.timeouts, |section| self::timeouts(&section, notes));
    let bytes = |key, default, notes: &mut _| section.bytes(key, notes).unwrap_or(default);
    let count = |key, default, notes: &mut _| section.count(key, default, notes).unwrap_or(default);
    GatewaySettings {
        store,
        replay: section.choice("replay", REPLAY_MODES, notes).unwrap_or(defaults.replay),
        capture: section.choice("capture", CAPTURE_MODES, notes).unwrap_or(defaults.capture),
        prefix: section.choice("prefix", PREFIX_POLICIES, notes).unwrap_or(defaults.prefix),
        body_limit: bytes("body_limit", defaults.body_limit, notes),
        depth_limit: count("depth_limit", defaults.depth_limit, notes),
        entry_limit: count("entry_limit", defaults.entry_limit, notes),
        item_limit: count("item_limit", defaults.item_limit, notes),
        tool_limit: count("tool_limit", defaults.tool_limit, notes),
        max_request_memory: bytes("max_request_memory", defaults.max_request_memory, notes),
        cache_size: bytes("cache_size", defaults.cache_size, notes),
        max_streams: count("max_streams", defaults.max_streams, notes),
        passthrough: passthrough.iter().map(|(_, pattern)| Name::from(*pattern)).collect(),
        budget_webhook: section
            .text("budget_webhook", "https://example.com/alerts", notes)
            .map(Name::from),
        timeouts,
    }
}

fn timeouts(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let fields = timeouts.by_name();
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    section.reject_unknown_keys(&names, notes);
    for (name, field) in fields {
        if let Some(time) = section.time(name, notes) {
            *field = time;
        }
    }
    timeouts
}

fn prices_of(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Prices {
    let mut prices = Vec::new();
    for (model, section) in section.sections(notes) {
        section.reject_unknown_keys(&["input", "output", "cached", "written"], notes);
        let mut dollars = |key| {
            let price = |value: &Value| amount::micro_dollars(value.number()?.parse().ok()?);
            let expected = "a price in dollars per million tokens: write";
            section.parse(key, price, format_args!("{expected} {key} = 2.50"), notes)
        };
        let price = Price {
            input: dollars("input"),
            output: dollars("output"),
            cached: dollars("cached"),
            written: dollars("written"),
        };
        if price.input.is_some() != price.output.is_some() {
            let missing = if price.input.is_some() { "output" } else { "input" };
            let message = format!(
                "[prices.\"{model}\"] has no `{missing}`: calls of models without a built-in price \
                 have a cost only if both `input` and `output` are set"
            );
            notes.warning(section.at, message);
        }
        prices.push((Name::from(model), price));
    }
    Prices(prices)
}

fn route(
    section: &Section<'_>,
    routes: &Routes,
    is_declared: &dyn Fn(&str) -> bool,
    notes: &mut Diagnostics<'_>,
) -> Option<Route> {
    section.reject_unknown_keys(&["model", "targets"], notes);
    for key in ["model", "targets"].into_iter().filter(|key| !section.has(key)) {
        let message = format!(
            "this route has no `{key}`: write model = \"fast\" and targets = [\"openai/gpt-5\"]"
        );
        notes.error(section.at, message);
    }
    let model = section.text("model", "fast", notes);
    let targets = section.texts("targets", "\"openai/gpt-5\"", notes)?;
    if targets.is_empty() {
        let message = "`targets` is empty: add at least one PROVIDER/model";
        notes.error(section.value_at("targets"), message);
    }
    let parse = |(at, target)| self::target(at, target, routes, is_declared, notes);
    let targets = targets.into_iter().filter_map(parse).collect();
    Some(Route { model: Name::from(model?), targets, line: notes.line(section.at) })
}

fn target(
    at: usize,
    target: &str,
    routes: &Routes,
    is_declared: &dyn Fn(&str) -> bool,
    notes: &mut Diagnostics<'_>,
) -> Option<Destination> {
    if let Some(found) = routes.parse_destination(target) {
        return Some(found);
    }
    let message = match target.split_once('/') {
        None => format!("the target `{target}` has no provider: write PROVIDER/{target}"),
        Some((SIMULATORS, model)) => {
            let hint = builtin::simulated_model_hint();
            format!("the simulators have no model `{model}`: {hint}")
        }
        // Problems of this provider were already reported at its own section.
        Some((name, _)) if is_declared(name) => return None,
        Some((name, _)) => {
            let names = routes.providers().iter().map(|provider| &*provider.name);
            let close = match did_you_mean(&closest(name, names)) {
                close if close.is_empty() => format!(": add [providers.{name}]"),
                close => close,
            };
            format!("the target `{target}` names an unknown provider{close}")
        }
    };
    notes.error(at, message);
    None
}

/// Reports patterns that occur twice in the file. Also reports patterns that can never match
/// because they start with the provider's name.
fn note_claims(
    provider: &ProviderSettings,
    section: &Section<'_>,
    claimed: &mut Vec<(String, Name)>,
    notes: &mut Diagnostics<'_>,
) {
    let at = section.key_at("models");
    for pattern in &provider.models {
        let lower = pattern.to_ascii_lowercase();
        if let Some((_, other)) = claimed.iter().find(|(claim, _)| *claim == lower) {
            let message = if *other == provider.name {
                format!("`{pattern}` is listed twice in `models`: remove one")
            } else {
                format!(
                    "`{pattern}` is also claimed by [providers.{other}]: remove it from one of them, \
                     and reach the other as {}/model",
                    provider.name
                )
            };
            notes.error(at, message);
        }
        let prefix = format!("{}/", provider.name);
        if matches_pattern(&format!("{prefix}*"), pattern) {
            let rest = pattern.get(prefix.len()..).unwrap_or_default();
            let message = format!("`{pattern}` starts with the provider's name: write \"{rest}\"");
            notes.error(at, message);
        }
        claimed.push((lower, provider.name.clone()));
    }
}
