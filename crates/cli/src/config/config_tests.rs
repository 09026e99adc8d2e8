//! Tests of configuration parsing and of the reported problems.

use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::Credential as Key;
use throughline_server::{PrefixPolicy, ReplayMode};
use throughline_store::Durability;

use super::Config;
use super::builtin::simulated_model_hint;
use super::file::{ParsedConfig, read};
use super::routes::{Credential, Endpoint};
use super::settings::{Price, Timeouts};

const WHOLE: &str = r#"
[server]
listen = "0.0.0.0:80"
allow_open = true
hosts = ["gateway.example.com"]
[store]
url = "postgres://me@db/threads"
master_key_env = "MASTER"
[gateway]
replay = "enforce"
capture = "relaxed"
prefix = "drop_block"
body_limit = "1MiB"
depth_limit = 0x40
max_streams = 1_000
entry_limit = 5_000
item_limit = 500
tool_limit = 50
max_request_memory = "2GiB"
cache_size = "32MiB"
passthrough = ["GET /v1/videos/*", "/v1/evals*"]
[gateway.timeouts]
client_headers = 5
slow_reader = "10s"
connect = "500ms"
first_byte = "2m"
idle = "1h"
capture = "1s"
shutdown = "3s"
[providers.work-claude]
kind = "anthropic"
api_key_env = "WORK_KEY"
models = ["claude-*"]
[providers.proxy]
kind = "openai"
wire = "openai-chat"
base_url = "https://proxy.example/v1/"
api_key = "sk-proxy"
[providers.own]
wire = "gemini"
base_url = "http://localhost:9000"
[providers.deepseek]
[[routes]]
model = "fast"
targets = ["proxy/gpt-5"]
[prices."gpt-5*"]
input = 1.25
output = 10
[prices.gpt-5-mini]
cached = 0.025
"#;

fn variables(name: &str) -> Option<String> {
    let value = match name {
        "WORK_KEY" => " sk-work\n",
        "MASTER" => "00",
        "DEEPSEEK_API_KEY" => "sk-deep",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str) -> ParsedConfig {
    read(text, Catalog::builtin(), &variables)
}

fn errors(text: &str) -> Vec<String> {
    parse(text).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_key_is_read() {
    let ParsedConfig { config, errors, warnings, .. } = parse(WHOLE);
    assert_eq!((errors, warnings), (vec![], vec![]));
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:80");
    assert!(config.server.allow_open);
    assert_eq!(config.store.url.as_deref(), Some("postgres://me@db/threads"));
    assert_eq!(config.store.master_key_env.as_deref(), Some("MASTER"));
    let gateway = &config.gateway;
    assert_eq!(
        (gateway.replay, gateway.capture, gateway.prefix),
        (ReplayMode::Enforce, Durability::Relaxed, PrefixPolicy::DropBlock)
    );
    assert_eq!((gateway.body_limit, gateway.depth_limit, gateway.max_streams), (1 << 20, 64, 1000));
    assert_eq!((gateway.entry_limit, gateway.item_limit, gateway.tool_limit), (5_000, 500, 50));
    assert_eq!((gateway.max_request_memory, gateway.cache_size), (2 << 30, 32 << 20));
    assert_eq!(
        gateway.passthrough,
        ["GET /v1/videos/*", "/v1/evals*"].map(throughline_json::Name::from)
    );
    assert_eq!(config.server.hosts, ["gateway.example.com"].map(throughline_json::Name::from));
    let timeouts = Timeouts {
        client_headers: Duration::from_secs(5),
        client_body: Duration::from_secs(30),
        slow_reader: Duration::from_secs(10),
        connect: Duration::from_millis(500),
        first_byte: Duration::from_mins(2),
        idle: Duration::from_hours(1),
        capture: Duration::from_secs(1),
        shutdown: Duration::from_secs(3),
        queue: Duration::from_secs(10),
    };
    assert_eq!(gateway.timeouts, timeouts);
    assert_eq!(config.lines["gateway.timeouts.idle"], 27);
    let price = |model: &str| config.prices.price_for("openai", model);
    let dear = Price { input: Some(1_250_000), output: Some(10_000_000), ..Price::default() };
    assert_eq!(price("gpt-5.6"), Some(dear));
    assert_eq!(price("gpt-5-mini"), Some(Price { cached: Some(25_000), ..Price::default() }));
    assert_eq!(price("o3"), None);
}

#[test]
fn provider_sections_override_catalog_rows() {
    let config = parse(WHOLE).config;
    let found = |name: &str| {
        let provider = config.routes.provider(name).unwrap();
        let Endpoint::Remote(row) = &provider.endpoint else { panic!("{name} is elsewhere") };
        let row = (&*row.name, row.wire.as_str(), &*row.base_url);
        let models: Vec<&str> = provider.models.iter().map(|model| &**model).collect();
        (row, provider.credential.clone(), models, provider.line)
    };
    let own = |key: &str, variable: Option<&str>| Credential::Own {
        key: Key::new(key),
        variable: variable.map(Into::into),
    };
    let claude = ("anthropic", "anthropic-messages", "https://api.anthropic.com");
    let work = own("sk-work", Some("WORK_KEY"));
    assert_eq!(found("work-claude"), (claude, work, vec!["claude-*"], Some(30)));
    // If another wire is configured, the catalog entry of the same kind on that wire is used.
    let chat = ("openai-chat", "openai-chat", "https://proxy.example/v1");
    assert_eq!(found("proxy"), (chat, own("sk-proxy", None), vec![], Some(34)));
    let gemini = ("own", "gemini", "http://localhost:9000");
    assert_eq!(found("own"), (gemini, Credential::Open, vec![], Some(39)));
    // A provider with the name of a catalog entry uses that entry.
    let deep = ("deepseek", "openai-chat", "https://api.deepseek.com");
    let key = own("sk-deep", Some("DEEPSEEK_API_KEY"));
    assert_eq!(found("deepseek"), (deep, key, vec!["deepseek-*"], Some(42)));
    let names = config.routes.providers().iter().filter(|one| &*one.name == "deepseek");
    assert_eq!(names.count(), 1, "it replaces the built-in one");
}

#[test]
fn empty_file_gives_the_defaults() {
    let ParsedConfig { config, errors, warnings, .. } = parse("# nothing\n");
    assert_eq!((errors, warnings), (vec![], vec![]));
    let defaults = Config::default();
    assert_eq!((&config.server, &config.store), (&defaults.server, &defaults.store));
    assert_eq!((&config.gateway, &config.agents), (&defaults.gateway, &defaults.agents));
    assert_eq!((&config.prices, &config.lines), (&defaults.prices, &defaults.lines));
    assert!(config.tools.mcp.is_empty() && config.tools.http.is_empty());
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:4400");
    assert_eq!(config.gateway.replay, ReplayMode::Repair);
    assert!(!config.server.allow_open);
}

#[test]
fn unknown_keys_are_errors_with_a_suggestion() {
    for (text, expected) in [
        ("[sever]", "1:2: unknown key `sever` at the top of the file; did you mean `server`?"),
        (
            "port = 1",
            "1:1: unknown key `port` at the top of the file; valid keys are server, console, store, gateway, \
             agents, catalog, redaction, retention, providers, routes, prices, tracing, mcp, http",
        ),
        ("[server]\nlisen = \"x\"", "2:1: unknown key `lisen` in [server]; did you mean `listen`?"),
        (
            "[gateway]\n  \"rëplay\" = 1",
            "2:3: unknown key `rëplay` in [gateway]; did you mean `replay`?",
        ),
        (
            "[gateway.timeouts]\nidel = 1",
            "2:1: unknown key `idel` in [gateway.timeouts]; did you mean `idle`?",
        ),
        (
            "[providers.a]\nkind = \"openai\"\napikey = \"canary\"",
            "3:1: unknown key `apikey` in [providers.a]; did you mean `api_key`?",
        ),
        (
            "[[routes]]\nmodel = \"a\"\ntargets = [\"sim/gpt-5\"]\ntarget = 1",
            "4:1: unknown key `target` in [[routes]]; did you mean `targets`?",
        ),
        (
            "[prices.a]\ninputs = 1",
            "2:1: unknown key `inputs` in [prices.a]; did you mean `input`?",
        ),
    ] {
        assert_eq!(errors(text), [expected]);
    }
}

#[test]
fn invalid_values_are_reported_with_an_example() {
    let bytes = "must be a number of bytes: write body_limit = \"64MiB\", or a plain number";
    let time = "must be a duration of at most one day: write idle = \"30s\", \"500ms\" or \"5m\", or a \
                number of seconds";
    let listen = "`listen` must be an address with a port: write listen = \"127.0.0.1:4400\", \
                  \"localhost:4400\", \":4400\" or \"unix:/run/throughline.sock\"";
    let replay = "`replay` must be one of observe, repair, enforce, off";
    let price = "`input` must be a price in dollars per million tokens: write input = 2.50";
    for (text, expected) in [
        ("server = 1", "1:10: `server` must be a table: write [server]".to_owned()),
        ("[server]\nlisten = \"4400\"", format!("2:10: {listen}")),
        (
            "[server.tls]\ncert = \"a.crt\"",
            "1:9: this table has no `key`: write cert = \"/etc/throughline/tls.crt\" and key = \
             \"/etc/throughline/tls.key\""
                .to_owned(),
        ),
        (
            "[server]\nlisten = 4400",
            "2:10: `listen` must be a string: write listen = \"127.0.0.1:4400\"".to_owned(),
        ),
        (
            "[server]\nlisten = \"\"",
            "2:10: `listen` must not be empty: write listen = \"127.0.0.1:4400\"".to_owned(),
        ),
        (
            "[server]\nallow_open = 1",
            "2:14: `allow_open` must be true or false: write allow_open = true".to_owned(),
        ),
        (
            "[store]\nurl = \"canary\"",
            "2:7: `url` has an unknown scheme: write sqlite://FILE or postgres://USER@HOST/DATABASE"
                .to_owned(),
        ),
        ("[gateway]\nreplay = \"repare\"", format!("2:10: {replay}; did you mean `repair`?")),
        ("[gateway]\nreplay = true", format!("2:10: {replay}")),
        (
            "[gateway]\ncapture = \"fast\"",
            "2:11: `capture` must be one of durable, relaxed".to_owned(),
        ),
        (
            "[gateway]\nprefix = \"drop_blok\"",
            "2:10: `prefix` must be one of append, freeze, freeze_or_error, drop_block, error, drop, refuse; did you mean `drop_block` or `drop`?"
                .to_owned(),
        ),
        ("[gateway]\nbody_limit = \"much\"", format!("2:14: `body_limit` {bytes}")),
        ("[gateway]\nbody_limit = 0", format!("2:14: `body_limit` {bytes}")),
        (
            "[gateway]\npassthrough = [\"FETCH /v1/videos\"]",
            "2:16: `passthrough` has an invalid pattern: `FETCH` is not a supported method; use \
             GET, HEAD, POST, PUT, PATCH, DELETE"
                .to_owned(),
        ),
        (
            "[server]\nhosts = [\"http://gateway\"]",
            "2:10: `hosts` must list host names without scheme, port or `*`: write \
             hosts = [\"gateway.example.com\"]"
                .to_owned(),
        ),
        (
            "[gateway]\nmax_streams = -1",
            "2:15: `max_streams` must be a whole number of at least 1: write max_streams = 4096"
                .to_owned(),
        ),
        ("[gateway.timeouts]\nidle = \"5 days\"", format!("2:8: `idle` {time}")),
        ("[gateway.timeouts]\nidle = 0", format!("2:8: `idle` {time}")),
        ("[gateway.timeouts]\nidle = \"99999999999999999h\"", format!("2:8: `idle` {time}")),
        ("[prices.a]\ninput = -1", format!("2:9: {price}")),
        ("[prices.a]\ninput = nan", format!("2:9: {price}")),
        ("routes = 1", "1:10: `routes` must be a list of tables: write [[routes]]".to_owned()),
    ] {
        assert_eq!(errors(text), [expected], "{text}");
    }
}

#[test]
fn toml_syntax_errors_do_not_repeat_the_text() {
    for text in [
        "[providers.a]\napi_key = sk-canary\n",
        "[providers.a]\napi_key = \"sk-canary\n",
        "[providers.a]\napi_key = 'sk-canary\"\n",
        "[providers.a]\nsk-canary\n",
        "[providers.a]\napi_key = \"a\"\napi_key = \"sk-canary\"\n",
        "api_key sk-canary",
    ] {
        let messages = errors(text);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains(": invalid TOML: "), "{messages:?}");
        assert!(!messages[0].contains("canary"), "{messages:?}");
    }
}

#[test]
fn invalid_providers_are_reported() {
    let key = "`api_key_env` must be the name of a variable, not the secret itself: write \
               api_key_env = \"WORK_KEY\"";
    let address = "`base_url` must be an http or https URL without user name, password, query or \
                   braces: write base_url = \"https://host/v1\"";
    let name = "a provider's name may contain only letters, digits, `-`, `_` and `.`: it precedes \
                the slash in model names";
    let no_type = "has no `kind`: write kind = \"anthropic\" or another provider, or set both \
                `wire` and `base_url`";
    for (text, expected) in [
        ("[providers.a]", format!("1:12: [providers.a] {no_type}")),
        ("[providers.a]\nwire = \"gemini\"", "1:12: [providers.a] needs an address: write base_url = \"https://host/v1\"".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nreplay_plain = \"sometimes\"", "3:16: `replay_plain` must be one of auto, always, never".to_owned()),
        ("[providers.a]\nbase_url = \"http://h\"", format!("1:12: [providers.a] {no_type}")),
        ("[providers.a]\nkind = \"azure\"", "1:12: [providers.a] needs an address: write base_url = \"https://{resource}.openai.azure.com/openai/v1\", and replace the part in braces".to_owned()),
        ("[providers.a]\nkind = \"compatible\"", "1:12: [providers.a] needs an address: write base_url = \"https://host/v1\"".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nwire = \"chat\"", "3:8: `wire` must be one of anthropic-messages, openai-responses, gemini, bedrock-converse, openai-chat; did you mean `openai-chat`?".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nmodels = []", "3:10: `models` is empty: list patterns such as \"claude-*\", or omit it and request a/model".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nmodels = \"gpt-*\"", "3:10: `models` must be a list of strings: write models = [\"claude-*\"]".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nmodels = [\"a/x\"]", "3:1: `a/x` starts with the provider's name: write \"x\"".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nmodels = [\"x\", \"X\"]", "3:1: `X` is listed twice in `models`: remove one".to_owned()),
        ("[providers.a]\nkind = \"openai\"\nmodels = [\"x*\"]\n[providers.b]\nkind = \"xai\"\nmodels = [\"x*\"]", "6:1: `x*` is also claimed by [providers.a]: remove it from one of them, and reach the other as b/model".to_owned()),
        ("[providers.a]\nkind = \"openai\"\napi_key = \"canary\"\napi_key_env = \"WORK_KEY\"", "3:1: both `api_key` and `api_key_env` are set: keep only one, preferably the variable".to_owned()),
        ("[providers.a]\nkind = \"openai\"\napi_key = \"\"", "3:11: `api_key` must not be empty: write api_key = \"…\"".to_owned()),
        ("[providers.a]\nkind = \"openai\"\napi_key = \"canary\\ncanary\"", "3:11: `api_key` contains a character that is invalid in an HTTP header: copy the key again".to_owned()),
        ("[providers.a]\nkind = \"openai\"\napi_key_env = \"sk-canary\"", format!("3:15: {key}")),
        ("[providers.a]\nkind = \"openai\"\nbase_url = \"http://me:canary@h\"", format!("3:12: {address}")),
        ("[providers.a]\nkind = \"openai\"\nbase_url = \"https://h/?key=canary\"", format!("3:12: {address}")),
        ("[providers.a]\nkind = \"openai\"\nbase_url = \"ftp://h\"", format!("3:12: {address}")),
        ("[providers.a]\nkind = \"openai\"\nbase_url = \"https:///v1\"", format!("3:12: {address}")),
        ("[providers.\"a/b\"]\nkind = \"openai\"", format!("1:12: {name}")),
        ("[providers.sim]\nkind = \"openai\"", "1:12: the provider `sim` is built in: choose another name".to_owned()),
        ("[[providers.sim.pool]]\nname = \"a\"", "1:13: the provider `sim` is built in: choose another name".to_owned()),
    ] {
        assert_eq!(errors(text), [expected], "{text}");
    }
    let messages = errors("[providers.a]\nkind = \"antropic\"");
    assert!(
        messages[0].starts_with("2:8: `kind` must be one of anthropic, openai, openai-chat, azure")
    );
    assert!(messages[0].ends_with("gpustack; did you mean `anthropic`?"), "{messages:?}");
}

#[test]
fn unset_variables_are_warnings() {
    let text = "[store]\nmaster_key_env = \"NO_KEY\"\n[providers.a]\nkind = \"openai\"\n\
                api_key_env = \"NO_KEY\"\n[providers.b]\nkind = \"openai\"\n\
                api_key_env = \"gsk_canary0123\"";
    let ParsedConfig { config, errors, warnings, .. } = parse(text);
    assert_eq!(errors, []);
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let not_set = "is not set; this provider cannot be used without it";
    assert_eq!(
        warnings,
        [
            "2:18: $NO_KEY is not set; the store cannot be opened without it".to_owned(),
            format!("5:15: $NO_KEY {not_set}"),
            // A value that does not look like a variable name may be the key itself.
            format!("8:15: a variable whose name looks like a secret {not_set}"),
        ]
    );
    let missing = Credential::Missing { variable: "NO_KEY".into() };
    assert_eq!(config.routes.provider("a").unwrap().credential, missing);
}

#[test]
fn invalid_routes_are_reported() {
    let route = |rest: &str| format!("[[routes]]\nmodel = \"a\"\n{rest}");
    let missing = |key: &str| {
        format!(
            "1:1: this route has no `{key}`: write model = \"fast\" and targets = [\"openai/gpt-5\"]"
        )
    };
    for (text, expected) in [
        (
            route("targets = []"),
            "3:11: `targets` is empty: add at least one PROVIDER/model".to_owned(),
        ),
        (
            route("targets = [\"gpt-5\"]"),
            "3:12: the target `gpt-5` has no provider: write PROVIDER/gpt-5".to_owned(),
        ),
        (
            route("targets = [\"opnai/gpt-5\"]"),
            "3:12: the target `opnai/gpt-5` names an unknown provider; did you mean `openai`?"
                .to_owned(),
        ),
        (
            route("targets = [\"unknown/x\"]"),
            "3:12: the target `unknown/x` names an unknown provider: add [providers.unknown]"
                .to_owned(),
        ),
        (
            route("targets = [\"sim/llama\"]"),
            format!("3:12: the simulators have no model `llama`: {}", simulated_model_hint()),
        ),
        (route(""), missing("targets")),
        ("[[routes]]\ntargets = [\"sim/gpt-5\"]".to_owned(), missing("model")),
        (
            format!("{0}\n{0}", route("targets = [\"sim/gpt-5\"]")),
            "4:1: a route for `a` is already defined in line 1: merge their targets".to_owned(),
        ),
    ] {
        assert_eq!(errors(&text), [expected], "{text}");
    }
    // An invalid provider is reported once, and not again for each route that uses it.
    let text = "[providers.b]\nkind = \"azure\"\n[[routes]]\nmodel = \"a\"\ntargets = [\"b/x\"]";
    assert_eq!(errors(text).len(), 1);
}

#[test]
fn invalid_trace_sinks_are_reported() {
    let sink = |rest: &str| format!("[tracing.sinks.a]\n{rest}");
    for (text, expected) in [
        (sink(""), "1:16: a sink needs a `kind`: one of file, http, cognipeer, otlp"),
        (
            sink("kind = \"otlp\""),
            "1:16: this sink needs `url`: write url = \"http://127.0.0.1:4318\"",
        ),
        (
            sink("kind = \"file\"\nfolder = \"traces\"\nurl = \"http://a\""),
            "4:1: a sink of kind file does not take `url`: write folder = \"traces\"",
        ),
        (
            sink("kind = \"http\"\nurl = \"http://a\"\nvalue = \"canary\""),
            "4:1: `value` needs `header`: write header = \"authorization\"",
        ),
        (
            sink("kind = \"http\"\nurl = \"http://a\"\nheader = \"x-key\""),
            "4:10: `header` needs a `value` or a `value_env`",
        ),
        (
            sink("kind = \"cognipeer\""),
            "1:16: a sink of kind cognipeer needs `api_key_env`: \
             write api_key_env = \"COGNIPEER_API_KEY\"",
        ),
        (
            sink("kind = \"http\"\nurl = \"http://a\"\napi_key = \"canary\""),
            "4:1: `api_key` applies only to a sink of kind cognipeer: use `header`",
        ),
        (
            sink("kind = \"cognipeer\"\napi_key = \"canary\"\napi_key_env = \"WORK_KEY\""),
            "4:15: `api_key` is also set: keep only one of them",
        ),
    ] {
        assert_eq!(errors(&text), [expected], "{text}");
    }
    let hosted = sink("kind = \"cognipeer\"\napi_key_env = \"WORK_KEY\"");
    let ParsedConfig { config, errors, .. } = read(&hosted, Catalog::builtin(), &variables);
    assert!(errors.is_empty());
    let hosted = &config.tracing.sinks[0];
    let header = &hosted.headers[0];
    let bearer = format!("Bearer {}", variables("WORK_KEY").unwrap());
    assert_eq!((&*hosted.to, &*header.0), (throughline_trace::COGNIPEER_URL, "authorization"));
    assert_eq!(header.1.reveal(), bearer);
    let valid = "[tracing]\nmode = \"streaming\"\nlog_data = false\npatience = \"2s\"\n[tracing.sinks.a]\nkind = \"otlp\"\nurl = \"http://a\"\nheader = \"x-key\"\nvalue_env = \"WORK_KEY\"";
    let ParsedConfig { config, errors, .. } = read(valid, Catalog::builtin(), &variables);
    assert!(errors.is_empty());
    let tracing = config.tracing;
    assert!(tracing.is_on() && !tracing.log_data && tracing.redact);
    assert_eq!((tracing.mode.as_str(), tracing.patience), ("streaming", Duration::from_secs(2)));
    let header = &tracing.sinks[0].headers[0];
    assert_eq!((&*header.0, header.1.reveal()), ("x-key", variables("WORK_KEY").unwrap().as_str()));
}

#[test]
fn agent_tools_and_redaction_are_read() {
    let text = "[agents]\nlease = \"2s\"\nmax_steps = 30\nmax_runs_per_tenant = 4\n[redaction]\nthinkingPatterns = [\"plan [A-Z]\"]\n\
                [http.look]\nurl = \"http://localhost/look/{at}\"\n[mcp.files]\ncommand = \"npx\"\n";
    let ParsedConfig { config, errors, .. } = read(text, Catalog::builtin(), &|_| None);
    assert_eq!(errors, []);
    assert_eq!(config.agents.lease, Duration::from_secs(2));
    assert_eq!((config.agents.max_steps, config.agents.max_runs_per_tenant), (30, 4));
    assert_eq!((config.tools.http.len(), config.tools.mcp.len()), (1, 1));
    assert_eq!(config.redaction.map(|policy| policy.thinking_patterns.len()), Some(1));
    for (text, expected) in [
        ("[agents]\nlease = \"1ms\"", "2:1: `lease` must be at least 100ms: write lease = \"15s\""),
        ("[http.look]", "1:7: [http.look] needs a `url`"),
        ("[redaction]\nthinkingPatterns = [\"(\"]", "1:2: "),
    ] {
        let ParsedConfig { errors, .. } = read(text, Catalog::builtin(), &|_| None);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(messages.len() == 1 && messages[0].starts_with(expected), "{messages:?}");
    }
}

#[test]
fn half_a_price_is_a_warning() {
    let ParsedConfig { errors, warnings, .. } = parse("[prices.a]\ninput = 1\n");
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(errors, []);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("[prices.\"a\"] has no `output`"), "{warnings:?}");
}
