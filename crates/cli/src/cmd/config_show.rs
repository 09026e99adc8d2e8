//! `throughline config show`: prints the effective configuration and the source of each value.
//! Secrets are masked completely.

use std::time::Duration;

use owo_colors::OwoColorize as _;
use serde::Serialize;
use serde_json::{Value, json};
use throughline_core::PlainReplay;
use throughline_json::Name;
use throughline_provider::{AWS_ACCESS_KEY_ID, AwsKeys};
use throughline_server::SignInSettings;

use crate::amount::{dollars, exact_bytes};
use crate::args::{ConfigShow, LOG_LEVELS};
use crate::config::environment::{default_url, variable};
use crate::config::pool::{BALANCES, BOUND_POLICIES};
use crate::config::prices::PriceTable;
use crate::config::retention::shown_age;
use crate::config::routes::{
    AccountSettings, Credential, Destination, Endpoint, PoolSettings, ProviderSettings, Route,
};
use crate::config::settings::{
    CAPTURE_MODES, PREFIX_POLICIES, Price, REPLAY_MODES, STORE_FAILURES, config_name,
};
use crate::config::{Config, OidcConfig, load, shown_variable};
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Column, table};
use crate::print::text::{self, plain, push_line, wrapped};
use throughline_store::without_password;

/// Placeholder that is printed instead of a secret.
const MASK: &str = "…";

pub(crate) fn run(options: &ConfigShow) -> Result<()> {
    let config = load(options.config.as_deref())?;
    if let Some(model) = &options.model {
        let destinations = config.routes.resolve(model);
        let destinations = destinations.map_err(|error| Failure::Usage(error.to_string()))?;
        let all: Vec<_> = destinations
            .iter()
            .filter_map(|destination| TargetRow::new(&config, destination))
            .collect();
        return options.format.print(|| targets_text(&all), || targets_json(&all));
    }
    let values = values(&config)?;
    options.format.print(|| text_of(&config, &values), || json_of(&config, &values))
}

/// A configuration value and the place where the value was set.
#[derive(Serialize)]
pub(crate) struct ConfigValue {
    pub(crate) key: String,
    value: String,
    from: String,
}

/// Returns all scalar values in the order of the configuration file.
pub(crate) fn values(config: &Config) -> Result<Vec<ConfigValue>> {
    let Config { server, gateway, store, .. } = config;
    let mut values = Vec::new();
    let mut put = |key: &str, value: String| {
        let line = config.lines.get(key).copied();
        let from = line.map_or_else(|| "default".to_owned(), from);
        values.push(ConfigValue { key: key.to_owned(), value, from });
    };
    put("server.listen", server.listen.to_string());
    if let Some(files) = &server.tls {
        put("server.tls.cert", files.cert.display().to_string());
        put("server.tls.key", files.key.display().to_string());
    }
    put("server.allow_open", server.allow_open.to_string());
    put("server.hosts", shown_list(&server.hosts));
    put("server.log", config_name(LOG_LEVELS, &server.log).to_owned());
    for (key, value) in config.console.iter().flat_map(sign_in_values) {
        put(&format!("console.oidc.{key}"), value);
    }
    let url = store.url.clone().map_or_else(default_url, Ok)?;
    put("store.url", without_password(&url));
    if let Some(url) = &store.listen_url {
        put("store.listen_url", without_password(url));
    }
    if let Some(name) = &store.master_key_env {
        put("store.master_key_env", shown_variable(name));
    }
    put("agents.lease", shown_time(config.agents.lease));
    put("agents.max_steps", config.agents.max_steps.to_string());
    put("agents.max_runs_per_tenant", config.agents.max_runs_per_tenant.to_string());
    let catalog = &config.catalog.settings;
    if !catalog.trusted_keys.is_empty() {
        let keys: Vec<Name> =
            catalog.trusted_keys.iter().map(|key| key.to_string().into()).collect();
        put("catalog.trusted_keys", shown_list(&keys));
        let path = catalog.path().map(|path| path.display().to_string());
        put("catalog.file", path.unwrap_or_else(|| "none".to_owned()));
    }
    put("gateway.replay", config_name(REPLAY_MODES, &gateway.replay).to_owned());
    put("gateway.capture", config_name(CAPTURE_MODES, &gateway.capture).to_owned());
    put("gateway.prefix", config_name(PREFIX_POLICIES, &gateway.prefix).to_owned());
    put("gateway.body_limit", exact_bytes(gateway.body_limit));
    put("gateway.depth_limit", gateway.depth_limit.to_string());
    put("gateway.entry_limit", gateway.entry_limit.to_string());
    put("gateway.item_limit", gateway.item_limit.to_string());
    put("gateway.tool_limit", gateway.tool_limit.to_string());
    put("gateway.max_streams", gateway.max_streams.to_string());
    put("gateway.max_request_memory", exact_bytes(gateway.max_request_memory));
    put("gateway.cache_size", exact_bytes(gateway.cache_size));
    put("gateway.passthrough", shown_list(&gateway.passthrough));
    // The URL may contain a secret.
    let webhook = if gateway.budget_webhook.is_some() { "set" } else { "none" };
    put("gateway.budget_webhook", webhook.to_owned());
    let on_failure = config_name(STORE_FAILURES, &gateway.store.on_failure);
    put("gateway.on_store_failure", on_failure.to_owned());
    put("gateway.key_grace", shown_time(gateway.store.key_grace));
    let mut timeouts = gateway.timeouts;
    for (name, time) in timeouts.by_name() {
        put(&format!("gateway.timeouts.{name}"), shown_time(*time));
    }
    for provider in config.routes.providers().iter().filter(|provider| provider.line.is_some()) {
        let key = |name: &str| format!("providers.{}.{name}", provider.name);
        let mode = replay_plain(provider);
        if mode != PlainReplay::Auto {
            put(&key("replay_plain"), mode.as_str().to_owned());
        }
        if let Some(PoolSettings { options, .. }) = provider.pool.as_deref() {
            put(&key("balance"), config_name(BALANCES, &options.balance).to_owned());
            let policy = config_name(BOUND_POLICIES, &options.bound);
            put(&key("when_unavailable"), policy.to_owned());
            put(&key("cooldown"), shown_time(options.cooldown));
        }
        let tags = accepted_tags(provider);
        if !tags.is_empty() {
            put(&key("accepted_tags"), tags.join(", "));
        }
    }
    for (name, age) in config.retention.by_name() {
        let age = age.map_or_else(|| "forever".to_owned(), shown_age);
        put(&format!("retention.{name}"), age);
    }
    put("retention.interval", shown_age(config.retention.interval));
    let tracing = &config.tracing;
    if tracing.is_on() {
        put("tracing.mode", tracing.mode.as_str().to_owned());
        put("tracing.log_data", tracing.log_data.to_string());
        put("tracing.redact", tracing.redact.to_string());
        for sink in &tracing.sinks {
            let headers = sink.headers.iter().map(|(name, _)| format!(", {name}: {MASK}"));
            let (kind, headers) = (sink.kind.as_str(), headers.collect::<String>());
            put(&format!("tracing.sinks.{}", sink.name), format!("{kind} to {}{headers}", sink.to));
        }
    }
    apply_environment(&mut values)?;
    Ok(values)
}

/// Replaces the values that environment variables override.
fn apply_environment(values: &mut Vec<ConfigValue>) -> Result<()> {
    for (key, name) in
        [("store.url", "THROUGHLINE_STORE"), ("store.master_key", "THROUGHLINE_MASTER_KEY")]
    {
        let Some(value) = variable(name)? else { continue };
        let value = if key == "store.url" { without_password(&value) } else { MASK.to_owned() };
        let value = ConfigValue { key: key.to_owned(), value, from: format!("${name}") };
        match values.iter_mut().find(|known| known.key == key) {
            Some(known) => *known = value,
            None => values.push(value),
        }
    }
    Ok(())
}

/// Returns the values of `[console.oidc]`. The client secret is masked.
fn sign_in_values(oidc: &OidcConfig) -> Vec<(&'static str, String)> {
    let SignInSettings { name, url, rules, lifetime, needs_verified_email } = &oidc.sign_in;
    let secret = match &oidc.secret {
        Credential::Open => "none".to_owned(),
        Credential::Missing { variable } | Credential::Own { variable: Some(variable), .. } => {
            shown_variable(variable)
        }
        Credential::Dynamic(settings) => settings.to_string(),
        Credential::Own { variable: None, .. } | Credential::Callers | Credential::Aws(_) => {
            MASK.to_owned()
        }
    };
    let rules = rules.iter().map(|rule| {
        let people = [&rule.groups[..], &rule.emails].concat();
        Name::from(format!("{}: {} of {}", people.join(" or "), rule.role, rule.tenant.0))
    });
    vec![
        ("issuer", oidc.issuer.to_string()),
        ("client_id", oidc.client_id.to_string()),
        ("client_secret", secret),
        ("name", name.to_string()),
        ("scopes", shown_list(&oidc.scopes)),
        ("groups_claim", oidc.groups_claim.to_string()),
        ("url", url.as_deref().unwrap_or("none").to_owned()),
        ("session", shown_time(*lifetime)),
        ("require_verified_email", needs_verified_email.to_string()),
        ("rules", shown_list(&rules.collect::<Vec<_>>())),
    ]
}

fn shown_list(list: &[Name]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn shown_time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

fn text_of(config: &Config, values: &[ConfigValue]) -> String {
    let mut out = String::new();
    let file = config.file.as_ref().map(|file| plain(&file.display().to_string()));
    let none = || "no throughline.toml: all values are defaults".to_owned();
    push_line(&mut out, &format!("{}\n", file.unwrap_or_else(none).bold()));
    out.push_str(&table(vec![
        Column::new("key", values.iter().map(|entry| &entry.key)),
        Column::new("value", values.iter().map(|entry| plain(&entry.value))),
        Column::new("from", values.iter().map(|entry| &entry.from)),
    ]));
    out.push_str(&providers_text(config.routes.providers()));
    let routes = config.routes.routes();
    let targets = |route: &Route| plain(&route_targets(route).join(", "));
    // Tools are listed by name only: their addresses and commands may contain secrets.
    let servers = config.tools.mcp.iter().map(|server| ("mcp server", &server.name));
    let own = config.tools.http.iter().map(|tool| ("http tool", &tool.spec.name));
    let tools: Vec<_> = servers.chain(own).collect();
    let prices = &config.prices.0;
    let sums = |head, sum: fn(&Price) -> Option<u64>| {
        let shown = |(_, price): &(_, Price)| sum(price).map(dollars).unwrap_or_default();
        Column::numbers(head, prices.iter().map(shown))
    };
    for columns in [
        vec![
            Column::new("route", routes.iter().map(|route| plain(&route.model))),
            Column::new("from", routes.iter().map(|route| from(route.line))),
            Column::new("targets", routes.iter().map(targets)),
        ],
        vec![
            Column::new("for agents", tools.iter().map(|(kind, _)| *kind)),
            Column::new("name", tools.iter().map(|(_, name)| plain(name))),
        ],
        vec![
            Column::new("price of", prices.iter().map(|(model, _)| plain(model))),
            sums("input", |price| price.input),
            sums("output", |price| price.output),
            sums("cached", |price| price.cached),
            sums("written", |price| price.written),
        ],
    ] {
        if columns.iter().any(|column| !column.is_empty()) {
            out.extend(["\n", &table(columns)]);
        }
    }
    out
}

pub(crate) fn route_targets(route: &Route) -> Vec<String> {
    route.targets.iter().map(ToString::to_string).collect()
}

/// Returns whether a provider is configured, has a key, or is simulated.
pub(crate) fn is_own(provider: &ProviderSettings) -> bool {
    provider.is_configured()
        || !provider.credential.may_be_callers()
        || provider.endpoint == Endpoint::Simulators
}

/// Lists the providers that are configured or have a key. All other providers are listed by name
/// only.
fn providers_text(all: &[ProviderSettings]) -> String {
    let (own, others): (Vec<_>, Vec<_>) = all.iter().partition(|provider| is_own(provider));
    let mut out = String::from("\n");
    out.push_str(&table(vec![
        Column::new("provider", own.iter().map(|provider| plain(&provider.name))),
        Column::new("wire", own.iter().map(|provider| address(provider).0)).droppable(),
        Column::new("address", own.iter().map(|provider| plain(address(provider).1))),
        Column::new("key", own.iter().map(|provider| shown_key(provider))),
        Column::new("from", own.iter().map(|provider| provider_source(provider))).droppable(),
        Column::new("models", own.iter().map(|provider| plain(&provider.models.join(" ")))),
    ]));
    let is_open = |provider: &&ProviderSettings| provider.credential == Credential::Open;
    let (open, callers): (Vec<_>, Vec<_>) = others.into_iter().partition(is_open);
    push_line(&mut out, "");
    for (audience, all) in [("for callers with their own key", callers), ("for all callers", open)]
    {
        let names: Vec<&str> = all.iter().map(|provider| &*provider.name).collect();
        let line = format!("built in, {audience}: {}", names.join(", "));
        for line in wrapped(&line, text::width(std::io::stdout())) {
            push_line(&mut out, &line.dimmed().to_string());
        }
    }
    out
}

/// Returns the wire and the base URL of a provider.
pub(crate) fn address(provider: &ProviderSettings) -> (&str, &str) {
    match &provider.endpoint {
        Endpoint::Simulators => ("all", "built in"),
        Endpoint::Remote(row) => (row.wire.as_str(), &row.base_url),
    }
}

/// Returns the provider's setting for reasoning without a Seal.
fn replay_plain(provider: &ProviderSettings) -> PlainReplay {
    match &provider.endpoint {
        Endpoint::Simulators => PlainReplay::default(),
        Endpoint::Remote(row) => row.replay_plain,
    }
}

/// Returns the tags of caller-supplied Thoughts that the provider accepts.
fn accepted_tags(provider: &ProviderSettings) -> &[String] {
    match &provider.endpoint {
        Endpoint::Simulators => &[],
        Endpoint::Remote(row) => &row.dialect.accepted_tags,
    }
}

fn shown_key(provider: &ProviderSettings) -> String {
    match (&provider.pool, &provider.credential) {
        (Some(pool), _) => {
            let account = |account: &AccountSettings| {
                let AccountSettings { name, credential, weight } = account;
                format!("{name}: {}, weight {weight}", shown_credential(credential))
            };
            pool.accounts.iter().map(account).collect::<Vec<_>>().join("; ")
        }
        (None, Credential::Open) if provider.endpoint == Endpoint::Simulators => "none".to_owned(),
        (None, credential) => shown_credential(credential),
    }
}

fn shown_credential(credential: &Credential) -> String {
    match credential {
        Credential::Callers => "the caller's".to_owned(),
        Credential::Open => "the caller's, or none".to_owned(),
        Credential::Own { variable: None, .. } => MASK.to_owned(),
        Credential::Own { variable: Some(name), .. } => shown_variable(name),
        Credential::Aws(AwsKeys { region, .. }) => {
            let region = region.as_ref().map(|region| format!(" for {region}"));
            shown_variable(AWS_ACCESS_KEY_ID) + &region.unwrap_or_default()
        }
        Credential::Dynamic(settings) => settings.to_string(),
        Credential::Missing { variable } => format!("{} is not set", shown_variable(variable)),
    }
}

/// Returns where a provider is defined: in the file, by an environment variable, or as a built-in.
fn provider_source(provider: &ProviderSettings) -> String {
    match (provider.line, &provider.variable) {
        (Some(line), _) => from(line),
        (None, Some(variable)) => shown_variable(variable),
        (None, None) => "built in".to_owned(),
    }
}

fn from(line: usize) -> String {
    format!("line {line}")
}

fn json_of(config: &Config, values: &[ConfigValue]) -> Value {
    let provider = |provider: &ProviderSettings| {
        let (wire, address) = address(provider);
        json!({
            "name": provider.name,
            "wire": wire,
            "address": address,
            "key": shown_key(provider),
            "models": provider.models,
            "replay_plain": replay_plain(provider).as_str(),
            "accepted_tags": accepted_tags(provider),
            "pool": provider.pool.as_ref().map(|pool| pool_json(pool)),
            "from": provider_source(provider),
        })
    };
    let route = |route: &Route| {
        let targets = route_targets(route);
        json!({ "model": route.model, "targets": targets, "from": from(route.line) })
    };
    let price = |(model, price): &(Name, Price)| with_price(json!({ "model": model }), price);
    json!({
        "file": config.file.as_ref().map(|file| file.display().to_string()),
        "values": values,
        "providers": config.routes.providers().iter().map(provider).collect::<Vec<_>>(),
        "routes": config.routes.routes().iter().map(route).collect::<Vec<_>>(),
        "prices": config.prices.0.iter().map(price).collect::<Vec<_>>(),
    })
}

/// Returns the accounts of a pool and its settings, without keys.
fn pool_json(pool: &PoolSettings) -> Value {
    let account = |account: &AccountSettings| {
        let AccountSettings { name, credential, weight } = account;
        json!({ "name": name, "key": shown_credential(credential), "weight": weight })
    };
    json!({
        "accounts": pool.accounts.iter().map(account).collect::<Vec<_>>(),
        "balance": config_name(BALANCES, &pool.options.balance),
        "when_unavailable": config_name(BOUND_POLICIES, &pool.options.bound),
        "cooldown": shown_time(pool.options.cooldown),
    })
}

/// A target that a model name resolves to.
struct TargetRow<'r> {
    destination: &'r Destination,
    wire: String,
    address: &'r str,
    key: String,
    price: Price,
}

impl<'r> TargetRow<'r> {
    fn new(config: &'r Config, destination: &'r Destination) -> Option<Self> {
        let provider = config.routes.provider(&destination.provider)?;
        let wire = provider
            .row_for(&destination.model, &config.catalog.shared.current())?
            .wire
            .to_string();
        let prices = PriceTable::with(config.prices.clone());
        let price = prices.known_price(&destination.provider, &destination.model);
        let (address, key) = (address(provider).1, shown_key(provider));
        Some(Self { destination, wire, address, key, price })
    }
}

fn with_price(mut object: Value, price: &Price) -> Value {
    let prices = [
        ("input_micro_usd", json!(price.input)),
        ("output_micro_usd", json!(price.output)),
        ("cached_micro_usd", json!(price.cached)),
        ("written_micro_usd", json!(price.written)),
    ];
    if let Value::Object(members) = &mut object {
        members.extend(prices.map(|(name, price)| (name.to_owned(), price)));
    }
    object
}

fn targets_text(all: &[TargetRow<'_>]) -> String {
    let mut out = String::new();
    for (number, TargetRow { destination, wire, address, key, price }) in (1..).zip(all) {
        let mut about = format!("{wire} at {address}, key: {key}");
        if let Price { input: Some(input), output: Some(output), .. } = price {
            about.extend([", ", &dollars(*input), " in and ", &dollars(*output), " out"]);
        }
        let name = plain(&destination.to_string());
        push_line(&mut out, &format!("{number}. {}  {}", name.bold(), plain(&about).dimmed()));
    }
    out
}

fn targets_json(all: &[TargetRow<'_>]) -> Value {
    let targets = all.iter().map(|TargetRow { destination, wire, address, key, price }| {
        let Destination { provider, model } = destination;
        let target = json!({ "provider": provider, "model": model, "wire": wire, "address": address, "key": key });
        with_price(target, price)
    });
    json!({ "targets": targets.collect::<Vec<_>>() })
}
