//! Parses `throughline.toml`. The text and the variables are passed in; this module does no I/O.

use std::net::SocketAddr;
use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::{Json, Name, RedactionPolicy, matches_pattern};
use throughline_provider::{EnvLookup, EnvWarning};
use throughline_server::Passthrough;
use throughline_server::StorePolicy;
use throughline_tools::{Problems, ToolDeclarations};
use toml::de::DeTable;

use super::Config;
use super::builtin::{self, SIMULATORS};
use super::provider;
use super::reader::{Diagnostics, Problem, Section, SpannedValue};
use super::routes::{Destination, ProviderSettings, Route, Routes};
use super::settings::{
    AgentSettings, Capture, GatewaySettings, PREFIX_POLICIES, Price, Prices, ReplayMode,
    STORE_FAILURES, ServerSettings, StoreSettings, Timeouts,
};
use super::suggest::{closest, did_you_mean};
use super::tracing;
use crate::args::LogLevel;

/// Tables that this module parses.
const OWN: [&str; 9] = [
    "server",
    "store",
    "gateway",
    "agents",
    "redaction",
    "providers",
    "routes",
    "prices",
    "tracing",
];
/// Tables that declare tools, which `throughline_tools` parses.
const TOOLS: [&str; 2] = ["mcp", "http"];

/// A parsed configuration with its problems.
pub(crate) struct ParsedConfig {
    /// Valid only if `errors` is empty.
    pub(crate) config: Config,
    /// Errors in the order of the text.
    pub(crate) errors: Vec<Problem>,
    /// Warnings in the order of the text.
    pub(crate) warnings: Vec<Problem>,
    /// Variables whose address or region is invalid.
    pub(crate) unheard: Vec<EnvWarning>,
}

/// Parses a configuration. An empty text gives the defaults with the keys of the variables.
pub(crate) fn read(text: &str, catalog: &Catalog, variable: EnvLookup<'_>) -> ParsedConfig {
    let mut notes = Diagnostics::new(text);
    let mut config = Config::default();
    let parsed = DeTable::parse(text);
    match &parsed {
        Ok(table) => {
            fill(&mut config, &Section::root(table), catalog, variable, &mut notes);
            read_documents(text, &Section::root(table), variable, &mut config, &mut notes);
        }
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            notes.error(at, format!("invalid TOML: {}", error.message()));
        }
    }
    let Diagnostics { mut errors, mut warnings, unheard, lines, .. } = notes;
    errors.sort_by_key(|problem| (problem.line, problem.column));
    warnings.sort_by_key(|problem| (problem.line, problem.column));
    config.lines = lines;
    ParsedConfig { config, errors, warnings, unheard }
}

/// Parses a price table: its version and its prices.
pub(crate) fn price_table(text: &str) -> (String, Prices) {
    let mut notes = Diagnostics::new(text);
    let Ok(table) = DeTable::parse(text) else { return Default::default() };
    let root = Section::root(&table);
    let version = root.text("version", "2026-01-01", &mut notes);
    let version = version.map(|version| version.value.to_owned()).unwrap_or_default();
    let prices = root.section("prices", &mut notes);
    (version, prices.map(|section| prices_of(&section, &mut notes)).unwrap_or_default())
}

fn fill(
    config: &mut Config,
    root: &Section<'_, '_>,
    catalog: &Catalog,
    variable: EnvLookup<'_>,
    notes: &mut Diagnostics<'_>,
) {
    root.reject_unknown_keys(&[&OWN[..], &TOOLS].concat(), notes);
    if let Some(section) = root.section("server", notes) {
        config.server = server(&section, notes);
    }
    if let Some(section) = root.section("store", notes) {
        config.store = store(&section, variable, notes);
    }
    if let Some(section) = root.section("gateway", notes) {
        config.gateway = gateway(&section, notes);
    }
    if let Some(section) = root.section("agents", notes) {
        config.agents = agents(&section, notes);
    }
    if let Some(section) = root.section("prices", notes) {
        config.prices = prices_of(&section, notes);
    }
    if let Some(section) = root.section("tracing", notes) {
        config.tracing = tracing::read(&section, variable, notes);
    }
    let sections = root.section("providers", notes);
    let sections = sections.map(|all| all.sections(notes)).unwrap_or_default();
    let mut providers: Vec<ProviderSettings> = Vec::new();
    let mut claimed: Vec<(String, Name)> = Vec::new();
    for (name, section) in &sections {
        if let Some(read) = provider::read(name, section, catalog, variable, notes) {
            note_claims(&read, section, &mut claimed, notes);
            providers.push(read);
        }
    }
    let is_replaced = |name: &str| sections.iter().any(|(own, _)| *own == name);
    let rest = builtin::providers(catalog, variable, notes).into_iter();
    let rest: Vec<ProviderSettings> =
        rest.filter(|row| *row.name == *SIMULATORS || !is_replaced(&row.name)).collect();
    let rest = rest.into_iter().map(|row| builtin::apply_overrides(row, &providers, catalog));
    let rest: Vec<ProviderSettings> = rest.collect();
    providers.extend(rest);
    let mut routes = Routes::new(providers, Vec::new());
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
    routes = Routes::new(routes.providers().to_vec(), read);
    config.routes = routes;
}

fn server(section: &Section<'_, '_>, notes: &mut Diagnostics<'_>) -> ServerSettings {
    section.reject_unknown_keys(&["listen", "allow_open", "hosts", "log"], notes);
    let mut server = ServerSettings::default();
    if let Some(SpannedValue { at, value }) = section.text("listen", "127.0.0.1:4400", notes) {
        match value.parse::<SocketAddr>() {
            Ok(address) => server.listen = address,
            Err(_) => notes.error(
                at,
                "`listen` must be an address with a port: write listen = \"127.0.0.1:4400\", \
                 or \"[::1]:4400\"",
            ),
        }
    }
    server.allow_open = section.flag("allow_open", notes).unwrap_or(server.allow_open);
    if let Some(hosts) = section.texts("hosts", "\"gateway.example.com\"", notes) {
        for host in &hosts.value {
            if host.value.contains(['/', ':', '*', ' ']) {
                let message = "`hosts` takes names without scheme, port and `*`: write \
                               hosts = [\"gateway.example.com\"]";
                notes.error(host.at, message);
            }
        }
        server.hosts = hosts.value.iter().map(|host| Name::from(host.value)).collect();
    }
    server.log = section.choice("log", LogLevel::ALL, notes).unwrap_or(server.log);
    server
}

fn store(
    section: &Section<'_, '_>,
    variable: EnvLookup<'_>,
    notes: &mut Diagnostics<'_>,
) -> StoreSettings {
    section.reject_unknown_keys(&["url", "master_key_env"], notes);
    let url = section.text("url", "sqlite:///srv/throughline.db", notes);
    let url = url.filter(|url| {
        let is_known = crate::config::store_url::is_address(url.value);
        if !is_known {
            notes.error(
                url.at,
                "`url` has an unknown scheme: write sqlite://FILE or postgres://USER@HOST/DATABASE",
            );
        }
        is_known
    });
    let master_key_env = provider::variable_name("master_key_env", section, notes);
    if let Some(SpannedValue { at, value }) =
        master_key_env.filter(|name| variable(name.value).is_none())
    {
        let shown = provider::shown_variable(value);
        notes.warning(at, format!("{shown} is not set; the store cannot be opened without it"));
    }
    StoreSettings {
        url: url.map(|url| url.value.to_owned()),
        master_key_env: master_key_env.map(|name| Name::from(name.value)),
    }
}

fn agents(section: &Section<'_, '_>, notes: &mut Diagnostics<'_>) -> AgentSettings {
    const LEAST: Duration = Duration::from_millis(100);
    let usual = AgentSettings::default();
    section.reject_unknown_keys(&["lease", "max_steps", "max_runs_per_tenant"], notes);
    let lease = section.time("lease", notes);
    if lease.is_some_and(|lease| lease < LEAST) {
        notes.error(section.key_at("lease"), "`lease` is too short: write lease = \"15s\"");
    }
    let mut count = |name, usual| section.count(name, usual, notes).unwrap_or(usual);
    AgentSettings {
        lease: lease.unwrap_or(usual.lease),
        max_steps: count("max_steps", usual.max_steps),
        max_runs_per_tenant: count("max_runs_per_tenant", usual.max_runs_per_tenant),
    }
}

/// Parses sections with their own formats: tools and redaction.
fn read_documents(
    text: &str,
    root: &Section<'_, '_>,
    variable: EnvLookup<'_>,
    config: &mut Config,
    notes: &mut Diagnostics<'_>,
) {
    let Ok(whole) = toml::from_str::<toml::Table>(text) else { return };
    if let Some(section) = root.section("redaction", notes) {
        match whole.get("redaction").map(redaction) {
            Some(Ok(policy)) => config.redaction = Some(policy),
            Some(Err(problem)) => notes.error(section.at, problem),
            None => {}
        }
    }
    // Unknown top-level keys were already reported.
    let others: Vec<&str> =
        whole.keys().map(String::as_str).filter(|key| !TOOLS.contains(key)).collect();
    match ToolDeclarations::toml(text, &others, variable) {
        Ok(tools) => config.tools = tools,
        Err(Problems(problems)) => notes.errors.extend(problems.into_iter().map(problem)),
    }
}

/// Deserializes the policy by its documented names.
fn redaction(said: &toml::Value) -> Result<RedactionPolicy, String> {
    let said = serde_json::to_string(said).map_err(|error| error.to_string())?;
    let said = Json::parse(said).map_err(|error| error.to_string())?;
    RedactionPolicy::parse(&said).map_err(|error| error.to_string())
}

/// Converts a problem with a tool declaration.
fn problem(problem: throughline_tools::Problem) -> Problem {
    let throughline_tools::Problem { line, column, message } = problem;
    Problem { line, column, message }
}

fn gateway(section: &Section<'_, '_>, notes: &mut Diagnostics<'_>) -> GatewaySettings {
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
            "passthrough",
            "on_store_failure",
            "key_grace",
            "timeouts",
        ],
        notes,
    );
    let usual = GatewaySettings::default();
    let timeouts = section.section("timeouts", notes);
    let passthrough = section.texts("passthrough", "\"GET /v1/videos/*\"", notes);
    let passthrough = passthrough.map(|patterns| patterns.value).unwrap_or_default();
    for SpannedValue { at, value } in &passthrough {
        if let Err(error) = Passthrough::new([*value]) {
            notes.error(*at, format!("`passthrough` has an invalid pattern: {error}"));
        }
    }
    let on_failure = section.choice("on_store_failure", STORE_FAILURES, notes);
    let store = StorePolicy {
        on_failure: on_failure.unwrap_or(usual.store.on_failure),
        key_grace: section.time("key_grace", notes).unwrap_or(usual.store.key_grace),
    };
    GatewaySettings {
        store,
        replay: section.choice("replay", ReplayMode::ALL, notes).unwrap_or(usual.replay),
        capture: section.choice("capture", Capture::ALL, notes).unwrap_or(usual.capture),
        prefix: section.choice("prefix", PREFIX_POLICIES, notes).unwrap_or(usual.prefix),
        body_limit: section.bytes("body_limit", notes).unwrap_or(usual.body_limit),
        depth_limit: section
            .count("depth_limit", usual.depth_limit, notes)
            .unwrap_or(usual.depth_limit),
        entry_limit: section
            .count("entry_limit", usual.entry_limit, notes)
            .unwrap_or(usual.entry_limit),
        item_limit: section
            .count("item_limit", usual.item_limit, notes)
            .unwrap_or(usual.item_limit),
        tool_limit: section
            .count("tool_limit", usual.tool_limit, notes)
            .unwrap_or(usual.tool_limit),
        max_request_memory: section
            .bytes("max_request_memory", notes)
            .unwrap_or(usual.max_request_memory),
        max_streams: section
            .count("max_streams", usual.max_streams, notes)
            .unwrap_or(usual.max_streams),
        passthrough: passthrough.iter().map(|pattern| Name::from(pattern.value)).collect(),
        timeouts: timeouts.map_or(usual.timeouts, |section| self::timeouts(&section, notes)),
    }
}

fn timeouts(section: &Section<'_, '_>, notes: &mut Diagnostics<'_>) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let places = timeouts.by_name();
    let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
    section.reject_unknown_keys(&names, notes);
    for (name, place) in places {
        if let Some(time) = section.time(name, notes) {
            *place = time;
        }
    }
    timeouts
}

fn prices_of(section: &Section<'_, '_>, notes: &mut Diagnostics<'_>) -> Prices {
    let mut prices = Vec::new();
    for (model, section) in section.sections(notes) {
        section.reject_unknown_keys(&["input", "output", "cached", "written"], notes);
        let price = Price {
            input: section.dollars("input", notes),
            output: section.dollars("output", notes),
            cached: section.dollars("cached", notes),
            written: section.dollars("written", notes),
        };
        prices.push((Name::from(model), price));
    }
    Prices(prices)
}

fn route(
    section: &Section<'_, '_>,
    routes: &Routes,
    is_declared: &dyn Fn(&str) -> bool,
    notes: &mut Diagnostics<'_>,
) -> Option<Route> {
    section.reject_unknown_keys(&["model", "targets"], notes);
    for key in ["model", "targets"] {
        if !section.has(key) {
            notes.error(
                section.at,
                format!(
                    "this route has no `{key}`: write model = \"fast\" and \
                     targets = [\"openai/gpt-5\"]"
                ),
            );
        }
    }
    let model = section.text("model", "fast", notes);
    let targets = section.texts("targets", "\"openai/gpt-5\"", notes)?;
    if targets.value.is_empty() {
        notes.error(targets.at, "`targets` is empty: add at least one PROVIDER/model");
    }
    let found = targets.value.iter();
    let found = found.filter_map(|target| self::target(*target, routes, is_declared, notes));
    let targets = found.collect();
    Some(Route { model: Name::from(model?.value), targets, line: notes.line(section.at) })
}

fn target(
    target: SpannedValue<&str>,
    routes: &Routes,
    is_declared: &dyn Fn(&str) -> bool,
    notes: &mut Diagnostics<'_>,
) -> Option<Destination> {
    let SpannedValue { at, value } = target;
    if let Some(found) = routes.parse_destination(value) {
        return Some(found);
    }
    match value.split_once('/') {
        None => {
            let message = format!("the target `{value}` has no provider: write PROVIDER/{value}");
            notes.error(at, message);
        }
        Some((SIMULATORS, model)) => notes.error(
            at,
            format!(
                "the simulators have no model `{model}`: use a name such as sim/claude-sonnet-5"
            ),
        ),
        // Problems of a provider in this file were reported at its own position.
        Some((name, _)) if is_declared(name) => {}
        Some((name, _)) => {
            let names = routes.providers().iter().map(|provider| &*provider.name);
            let close = match did_you_mean(&closest(name, names)) {
                close if close.is_empty() => format!(": add [providers.{name}]"),
                close => close,
            };
            notes.error(at, format!("the target `{value}` names an unknown provider{close}"));
        }
    }
    None
}

/// Reports patterns that two providers of the file claim, and patterns that can never match.
fn note_claims(
    provider: &ProviderSettings,
    section: &Section<'_, '_>,
    claimed: &mut Vec<(String, Name)>,
    notes: &mut Diagnostics<'_>,
) {
    let at = section.key_at("models");
    for pattern in &provider.models {
        let lower = pattern.to_ascii_lowercase();
        if let Some((_, other)) = claimed.iter().find(|(known, _)| *known == lower) {
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
