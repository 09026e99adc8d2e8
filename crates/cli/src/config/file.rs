//! What `throughline.toml` says. The text and the variables are given: nothing here reads a file or the environment.

use std::net::SocketAddr;
use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::{Json, Name, RedactionPolicy, fits};
use throughline_provider::{Lookup, Unheard};
use throughline_server::Passthrough;
use throughline_server::StorePolicy;
use throughline_tools::{Declared, Problems};
use toml::de::DeTable;

use super::Config;
use super::builtin::{self, SIMULATORS};
use super::likeness::{closest, did_you_mean};
use super::provider;
use super::reader::{At, Notes, Problem, Section};
use super::routes::{Destination, ProviderSettings, Route, Routes};
use super::settings::{
    Agents, Capture, Gateway, LogLevel, PREFIX_POLICIES, Price, Prices, ReplayMode, STORE_FAILURES,
    Server, StoreSettings, Timeouts,
};
use super::tracing;

/// The tables that are read here.
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
/// Those that declare tools, which are read where tools are.
const TOOLS: [&str; 2] = ["mcp", "http"];

/// A configuration that was read, and what was noted on the way.
pub(crate) struct Reading {
    /// What holds where nothing is wrong.
    pub(crate) config: Config,
    /// What must be mended, in the order of the text.
    pub(crate) errors: Vec<Problem>,
    /// What is worth knowing, in the order of the text.
    pub(crate) warnings: Vec<Problem>,
    /// Variables that should say where a provider is, and do not.
    pub(crate) unheard: Vec<Unheard>,
}

/// Reads a configuration. An empty text gives the defaults, with the keys that the variables hold.
pub(crate) fn read(text: &str, catalog: &Catalog, variable: Lookup<'_>) -> Reading {
    let mut notes = Notes::on(text);
    let mut config = Config::default();
    let parsed = DeTable::parse(text);
    match &parsed {
        Ok(table) => {
            fill(&mut config, &Section::root(table), catalog, variable, &mut notes);
            read_documents(text, &Section::root(table), variable, &mut config, &mut notes);
        }
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            notes.error(at, format!("this is not TOML: {}", error.message()));
        }
    }
    let Notes { mut errors, mut warnings, unheard, lines, .. } = notes;
    errors.sort_by_key(|problem| (problem.line, problem.column));
    warnings.sort_by_key(|problem| (problem.line, problem.column));
    config.lines = lines;
    Reading { config, errors, warnings, unheard }
}

/// A table of prices: its version, and what it says.
pub(crate) fn price_table(text: &str) -> (String, Prices) {
    let mut notes = Notes::on(text);
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
    variable: Lookup<'_>,
    notes: &mut Notes<'_>,
) {
    root.takes_only(&[&OWN[..], &TOOLS].concat(), notes);
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
    let rest = rest.into_iter().map(|row| builtin::moved(row, &providers, catalog));
    let rest: Vec<ProviderSettings> = rest.collect();
    providers.extend(rest);
    let mut routes = Routes::new(providers, Vec::new());
    let mut read: Vec<Route> = Vec::new();
    for section in root.list("routes", notes) {
        let Some(route) = route(&section, &routes, &is_replaced, notes) else { continue };
        if let Some(earlier) = read.iter().find(|earlier| earlier.model == route.model) {
            let message = format!(
                "there is a route for `{}` in line {} already: put all targets into one",
                route.model, earlier.line
            );
            notes.error(section.at, message);
        }
        read.push(route);
    }
    routes = Routes::new(routes.providers().to_vec(), read);
    config.routes = routes;
}

fn server(section: &Section<'_, '_>, notes: &mut Notes<'_>) -> Server {
    section.takes_only(&["listen", "allow_open", "hosts", "log"], notes);
    let mut server = Server::default();
    if let Some(At { at, value }) = section.text("listen", "127.0.0.1:4400", notes) {
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
                let message = "`hosts` has names without scheme, port and `*`: write \
                               hosts = [\"gateway.example.com\"]";
                notes.error(host.at, message);
            }
        }
        server.hosts = hosts.value.iter().map(|host| Name::from(host.value)).collect();
    }
    server.log = section.choice("log", LogLevel::ALL, notes).unwrap_or(server.log);
    server
}

fn store(section: &Section<'_, '_>, variable: Lookup<'_>, notes: &mut Notes<'_>) -> StoreSettings {
    section.takes_only(&["url", "master_key_env"], notes);
    let url = section.text("url", "sqlite:///srv/throughline.db", notes);
    let url = url.filter(|url| {
        let is_known = crate::store::is_address(url.value);
        if !is_known {
            notes.error(
                url.at,
                "`url` is of no known kind: write sqlite://FILE or postgres://USER@HOST/DATABASE",
            );
        }
        is_known
    });
    let master_key_env = provider::variable_name("master_key_env", section, notes);
    if let Some(At { at, value }) = master_key_env.filter(|name| variable(name.value).is_none()) {
        let shown = provider::shown_variable(value);
        notes.warning(at, format!("{shown} is not set: set it, or the store cannot be opened"));
    }
    StoreSettings {
        url: url.map(|url| url.value.to_owned()),
        master_key_env: master_key_env.map(|name| Name::from(name.value)),
    }
}

fn agents(section: &Section<'_, '_>, notes: &mut Notes<'_>) -> Agents {
    const LEAST: Duration = Duration::from_millis(100);
    let usual = Agents::default();
    section.takes_only(&["lease", "max_steps", "max_runs_per_tenant"], notes);
    let lease = section.time("lease", notes);
    if lease.is_some_and(|lease| lease < LEAST) {
        notes.error(section.key_at("lease"), "`lease` is too short: write lease = \"15s\"");
    }
    let mut count = |name, usual| section.count(name, usual, notes).unwrap_or(usual);
    Agents {
        lease: lease.unwrap_or(usual.lease),
        max_steps: count("max_steps", usual.max_steps),
        max_runs_per_tenant: count("max_runs_per_tenant", usual.max_runs_per_tenant),
    }
}

/// What is declared in words of its own: tools, and what nobody is shown.
fn read_documents(
    text: &str,
    root: &Section<'_, '_>,
    variable: Lookup<'_>,
    config: &mut Config,
    notes: &mut Notes<'_>,
) {
    let Ok(whole) = toml::from_str::<toml::Table>(text) else { return };
    if let Some(section) = root.section("redaction", notes) {
        match whole.get("redaction").map(redaction) {
            Some(Ok(policy)) => config.redaction = Some(policy),
            Some(Err(problem)) => notes.error(section.at, problem),
            None => {}
        }
    }
    // What has no place at the top of the file was said already.
    let others: Vec<&str> =
        whole.keys().map(String::as_str).filter(|key| !TOOLS.contains(key)).collect();
    match Declared::toml(text, &others, variable) {
        Ok(tools) => config.tools = tools,
        Err(Problems(problems)) => notes.errors.extend(problems.into_iter().map(problem)),
    }
}

/// The policy, by the names that its document has.
fn redaction(said: &toml::Value) -> Result<RedactionPolicy, String> {
    let said = serde_json::to_string(said).map_err(|error| error.to_string())?;
    let said = Json::parse(said).map_err(|error| error.to_string())?;
    RedactionPolicy::parse(&said).map_err(|error| error.to_string())
}

/// What is wrong with the declaration of a tool.
fn problem(problem: throughline_tools::Problem) -> Problem {
    let throughline_tools::Problem { line, column, message } = problem;
    Problem { line, column, message }
}

fn gateway(section: &Section<'_, '_>, notes: &mut Notes<'_>) -> Gateway {
    section.takes_only(
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
    let usual = Gateway::default();
    let timeouts = section.section("timeouts", notes);
    let passthrough = section.texts("passthrough", "\"GET /v1/videos/*\"", notes);
    let passthrough = passthrough.map(|patterns| patterns.value).unwrap_or_default();
    for At { at, value } in &passthrough {
        if let Err(error) = Passthrough::new([*value]) {
            notes.error(*at, format!("`passthrough` has a pattern that cannot be read: {error}"));
        }
    }
    let on_failure = section.choice("on_store_failure", STORE_FAILURES, notes);
    let store = StorePolicy {
        on_failure: on_failure.unwrap_or(usual.store.on_failure),
        key_grace: section.time("key_grace", notes).unwrap_or(usual.store.key_grace),
    };
    Gateway {
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

fn timeouts(section: &Section<'_, '_>, notes: &mut Notes<'_>) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let places = timeouts.by_name();
    let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
    section.takes_only(&names, notes);
    for (name, place) in places {
        if let Some(time) = section.time(name, notes) {
            *place = time;
        }
    }
    timeouts
}

fn prices_of(section: &Section<'_, '_>, notes: &mut Notes<'_>) -> Prices {
    let mut prices = Vec::new();
    for (model, section) in section.sections(notes) {
        section.takes_only(&["input", "output", "cached", "written"], notes);
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
    notes: &mut Notes<'_>,
) -> Option<Route> {
    section.takes_only(&["model", "targets"], notes);
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
        notes.error(targets.at, "`targets` is empty: name at least one PROVIDER/model");
    }
    let found = targets.value.iter();
    let found = found.filter_map(|target| self::target(*target, routes, is_declared, notes));
    let targets = found.collect();
    Some(Route { model: Name::from(model?.value), targets, line: notes.line(section.at) })
}

fn target(
    target: At<&str>,
    routes: &Routes,
    is_declared: &dyn Fn(&str) -> bool,
    notes: &mut Notes<'_>,
) -> Option<Destination> {
    let At { at, value } = target;
    if let Some(found) = routes.named(value) {
        return Some(found);
    }
    match value.split_once('/') {
        None => {
            let message = format!("the target `{value}` names no provider: write PROVIDER/{value}");
            notes.error(at, message);
        }
        Some((SIMULATORS, model)) => notes.error(
            at,
            format!("the simulators have no `{model}`: write a name as sim/claude-sonnet-5"),
        ),
        // What is wrong with a provider of this file was said where it stands.
        Some((name, _)) if is_declared(name) => {}
        Some((name, _)) => {
            let names = routes.providers().iter().map(|provider| &*provider.name);
            let close = match did_you_mean(&closest(name, names)) {
                close if close.is_empty() => format!(": add [providers.{name}]"),
                close => close,
            };
            notes.error(
                at,
                format!("the target `{value}` goes to a provider that does not exist{close}"),
            );
        }
    }
    None
}

/// Notes the patterns of a provider that another one of the file has too, and those that nothing can fit.
fn note_claims(
    provider: &ProviderSettings,
    section: &Section<'_, '_>,
    claimed: &mut Vec<(String, Name)>,
    notes: &mut Notes<'_>,
) {
    let at = section.key_at("models");
    for pattern in &provider.models {
        let lower = pattern.to_ascii_lowercase();
        if let Some((_, other)) = claimed.iter().find(|(known, _)| *known == lower) {
            let message = if *other == provider.name {
                format!("`{pattern}` stands twice in `models`: write it once")
            } else {
                format!(
                    "`{pattern}` is claimed by [providers.{other}] too: leave it to one of them, \
                     and reach the other as {}/model",
                    provider.name
                )
            };
            notes.error(at, message);
        }
        let prefix = format!("{}/", provider.name);
        if fits(&format!("{prefix}*"), pattern) {
            let rest = pattern.get(prefix.len()..).unwrap_or_default();
            let message =
                format!("`{pattern}` has the provider's name before it: write \"{rest}\"");
            notes.error(at, message);
        }
        claimed.push((lower, provider.name.clone()));
    }
}
