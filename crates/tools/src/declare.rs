//! Tool declarations in TOML, JSON or a command-line argument.
//!
//! ```toml
//! [mcp.files]
//! command = "npx"
//! args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
//!
//! [http.weather]
//! description = "The weather of a city."
//! url = "https://api.example.com/weather/{city}"
//! headers = { Authorization = "Bearer ${WEATHER_KEY}" }
//! ```
//!
//! Parsing a declaration opens no connection and starts no process. All problems are reported at
//! once, each with its position and a suggested fix. Problem messages never contain a secret.

mod line;

use std::ops::RangeInclusive;
use std::sync::Arc;

use throughline_agent::{Tool, ToolSpec};
use throughline_json::Name;

use crate::client;
use crate::http::{HttpBody, HttpConfig, HttpTool, InvalidTool};
use crate::mcp::{Approval, McpConfig, McpError, McpServer, Transport};
use crate::name;
use crate::reader::{Diagnostics, Phrases, Problems, Section, Value, Variables};

/// Parts of error messages that are specific to tool declarations.
const PHRASES: Phrases = Phrases {
    unknown_key: "unknown key",
    root: "at the top level",
    known_keys: "valid keys are",
    string: "a string",
    duration: "a duration of at most one day",
    size: |key| {
        format!("a number of bytes, at most 1GiB: write {key} = \"1MiB\", or a plain number")
    },
    largest_size: 1 << 30,
};

const TABLES: [&str; 2] = ["mcp", "http"];

const MCP_KEYS: [&str; 11] = [
    "command",
    "args",
    "env",
    "directory",
    "url",
    "headers",
    "tools",
    "approval",
    "start_timeout",
    "timeout",
    "largest_answer",
];

const HTTP_KEYS: [&str; 12] = [
    "description",
    "method",
    "url",
    "query",
    "headers",
    "body",
    "schema",
    "errors",
    "idempotent",
    "approval",
    "timeout",
    "largest_answer",
];

/// System variables that a child process receives if they are set. Most executables need them, and
/// none of them is secret.
const USUAL: [&str; 16] = [
    "APPDATA",
    "HOME",
    "LANG",
    "LOCALAPPDATA",
    "LOGNAME",
    "PATH",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SHELL",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TERM",
    "TMPDIR",
    "USER",
    "USERPROFILE",
];

/// Declarations of MCP servers and HTTP tools. Nothing is opened until [`ToolDeclarations::open`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ToolDeclarations {
    /// Servers declared as `[mcp.…]`.
    pub mcp: Vec<McpConfig>,
    /// HTTP tools declared as `[http.…]`.
    pub http: Vec<HttpConfig>,
}

/// Error from opening declared tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A server cannot be opened, or its tools cannot be listed.
    #[error(transparent)]
    Mcp(#[from] McpError),
    /// The declaration of an HTTP tool is invalid.
    #[error(transparent)]
    Http(#[from] InvalidTool),
    /// Two tools have the same name.
    #[error("two tools have the name `{0}`; rename one of them")]
    Twice(Name),
}

impl ToolDeclarations {
    /// Parses a TOML document. Top-level keys in `others` are allowed and ignored.
    pub fn toml(text: &str, others: &[&str], variables: Variables<'_>) -> Result<Self, Problems> {
        Self::read_document(text, "TOML", &Value::from_toml(text), others, variables)
    }

    /// Parses a JSON document with the same structure as the TOML document. Top-level keys in
    /// `others` are allowed and ignored.
    pub fn json(text: &str, others: &[&str], variables: Variables<'_>) -> Result<Self, Problems> {
        Self::read_document(text, "JSON", &Value::from_json(text), others, variables)
    }

    /// Parses the value of `--tool`, such as `mcp:npx -y some-server`,
    /// `mcp:files=https://example.com/mcp` or `http:weather=GET https://example.com/{city}`.
    pub fn line(text: &str, variables: Variables<'_>) -> Result<Self, Problems> {
        line::read(text, variables)
    }

    /// Appends the declarations in `others` to this list of declarations.
    #[must_use]
    pub fn merge(mut self, others: Self) -> Self {
        self.mcp.extend(others.mcp);
        self.http.extend(others.http);
        self
    }

    /// Opens all declared MCP servers, and returns their tools and the HTTP tools. Fails if two
    /// tools have the same name.
    pub async fn open(self) -> Result<Vec<Arc<dyn Tool>>, OpenError> {
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for config in self.http {
            tools.push(Arc::new(HttpTool::new(config)?));
        }
        for config in self.mcp {
            tools.extend(McpServer::open(config).await?.tools().await?);
        }
        let mut names: Vec<Name> = tools.iter().map(|tool| tool.spec().name).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair.first() == pair.last());
        match twice.and_then(<[Name]>::first) {
            Some(name) => Err(OpenError::Twice(name.clone())),
            None => Ok(tools),
        }
    }

    /// Reads the tool tables under `root`, the top-level table of a parsed document. The caller
    /// must read all other keys.
    pub fn read(
        text: &str,
        root: &Section<'_>,
        variables: Variables<'_>,
    ) -> Result<Self, Problems> {
        let mut notes = Diagnostics::new(text, &PHRASES, variables);
        let declared = Self::read_tables(root, &mut notes);
        notes.finish(declared)
    }

    fn read_document(
        text: &str,
        format: &str,
        value: &Result<Value, (usize, String)>,
        others: &[&str],
        variables: Variables<'_>,
    ) -> Result<Self, Problems> {
        let mut notes = Diagnostics::new(text, &PHRASES, variables);
        let mut declared = Self::default();
        match value.as_ref().map(Section::root) {
            Ok(Some(root)) => {
                root.reject_unknown_keys(&[&TABLES, others].concat(), &mut notes);
                declared = Self::read_tables(&root, &mut notes);
            }
            Ok(None) => {
                let message = "tool declarations must be an object with the keys `mcp` and `http`";
                notes.error(0, message);
            }
            Err((at, problem)) => {
                notes.error(*at, format!("invalid {format}: {problem}"));
            }
        }
        notes.finish(declared)
    }

    fn read_tables(root: &Section<'_>, notes: &mut Diagnostics<'_>) -> Self {
        let mut declared = Self::default();
        if let Some(servers) = root.section("mcp", notes) {
            for (name, section) in servers.sections(notes) {
                if !name::is_valid_server(name) {
                    let message = format!(
                        "the server name `{name}` is invalid: use at most 32 letters, digits, `_` \
                         and `-`, starting with a letter and without two `_` in a row"
                    );
                    notes.error(section.at, message);
                }
                declared.mcp.extend(server(name, &section, notes));
            }
        }
        if let Some(tools) = root.section("http", notes) {
            for (name, section) in tools.sections(notes) {
                declared.http.extend(tool(name, &section, notes));
            }
        }
        declared
    }
}

fn server(name: &str, section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<McpConfig> {
    section.reject_unknown_keys(&MCP_KEYS, notes);
    let reach = transport(section, notes);
    let approvals = [
        ("never", Approval::Never),
        ("destructive", Approval::Destructive),
        ("always", Approval::Always),
    ];
    let approval = section.choice("approval", &approvals, notes);
    let only = section.texts("tools", "\"read_file\"", notes);
    let (start, time) = (section.time("start_timeout", notes), section.time("timeout", notes));
    let largest = largest_answer(section, notes);
    let mut config = McpConfig::new(name.into(), reach?);
    config.only = only.map(names);
    config.approval = approval.unwrap_or(config.approval);
    config.start_timeout = start.unwrap_or(config.start_timeout);
    config.timeout = time.unwrap_or(config.timeout);
    config.largest_answer = largest.unwrap_or(config.largest_answer);
    Some(config)
}

fn transport(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<Transport> {
    let process_keys = ["command", "args", "env", "directory"];
    let http_keys = ["url", "headers"];
    let reject_keys = |own: &str, foreign: &[&'static str], notes: &mut Diagnostics<'_>| {
        for key in foreign.iter().filter(|key| section.has(key)) {
            let message = format!(
                "`{key}` cannot be combined with `{own}`: a server is a process or an HTTP endpoint"
            );
            notes.error(section.key_at(key), message);
        }
    };
    if section.has("command") {
        reject_keys("command", &http_keys, notes);
        let command = section.filled("command", "npx", notes);
        let args = section.filled_texts("args", "\"-y\", \"some-server\"", notes);
        let (args, usual) = (args.unwrap_or_default(), system_variables(notes));
        let env = section.secrets("env", "KEY", notes);
        let directory = section.filled("directory", "/srv/files", notes).map(Into::into);
        return Some(Transport::Process { command: command?, args, env, usual, directory });
    }
    if section.has("url") {
        reject_keys("url", &process_keys, notes);
        let url = section.filled("url", "https://example.com/mcp", notes);
        let headers = section.secrets("headers", "Authorization", notes);
        let url = url?;
        if let Err(reason) = client::parse(&url) {
            notes.error(section.value_at("url"), format!("`url` {reason}"));
        }
        return Some(Transport::Http { url, headers });
    }
    let message = format!(
        "{} needs a `command` or a `url`: write command = \"npx\" for a process, or url = \"https://…\" for an HTTP endpoint",
        section.header
    );
    notes.error(section.at, message);
    None
}

/// Returns the system variables in `USUAL` that are set.
fn system_variables(notes: &Diagnostics<'_>) -> Vec<(Name, Name)> {
    let value = |name: &&str| Some((Name::from(*name), Name::from((notes.variables)(name)?)));
    USUAL.iter().filter_map(value).collect()
}

fn tool(name: &str, section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<HttpConfig> {
    section.reject_unknown_keys(&HTTP_KEYS, notes);
    let url = section.filled("url", "https://example.com/{argument}", notes);
    if !section.has("url") {
        let header = &section.header;
        let message =
            format!("{header} needs a `url`: write url = \"https://example.com/{{argument}}\"");
        notes.error(section.at, message);
    }
    let is_complete = url.is_some();
    let method = section.text("method", "GET", notes).unwrap_or("GET");
    let mut config = HttpConfig::new(ToolSpec::new(name), method, url.unwrap_or_default());
    let spec = &mut config.spec;
    let example = "What it does, for the model.";
    spec.description = section.text("description", example, notes).map(Name::from);
    let schema = "a JSON Schema: write schema = { type = \"object\" }";
    spec.schema = section.json("schema", schema, notes);
    let is_read_only = matches!(method, "GET" | "HEAD");
    spec.idempotent = section.flag("idempotent", notes).unwrap_or(is_read_only);
    let approval = section.choice("approval", &[("never", false), ("always", true)], notes);
    spec.needs_approval = approval.unwrap_or(false);
    config.query = section.texts("query", "\"limit\"", notes).map(names).unwrap_or_default();
    config.headers = section.secrets("headers", "Authorization", notes);
    config.body = body(method, section, notes);
    config.errors = statuses(section, notes).unwrap_or(config.errors);
    config.timeout = section.time("timeout", notes).unwrap_or(config.timeout);
    config.largest_answer = largest_answer(section, notes).unwrap_or(config.largest_answer);
    if is_complete {
        check_tool(&config, section, notes);
    }
    is_complete.then_some(config)
}

fn names(texts: Vec<(usize, &str)>) -> Vec<Name> {
    texts.into_iter().map(|(_, text)| Name::from(text)).collect()
}

fn largest_answer(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<usize> {
    section.bytes("largest_answer", notes).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Returns the status code ranges under `errors`, written as `404` or `"5xx"`.
fn statuses(
    section: &Section<'_>,
    notes: &mut Diagnostics<'_>,
) -> Option<Vec<RangeInclusive<u16>>> {
    let status = |value: &Value| {
        let code = value.whole().and_then(|number| u16::try_from(number).ok());
        if let Some(code) = code.filter(|code| (100..=599).contains(code)) {
            return Some(code..=code);
        }
        let hundred: u16 = value.text()?.strip_suffix("xx")?.parse().ok()?;
        (1..=5).contains(&hundred).then_some(100 * hundred..=100 * hundred + 99)
    };
    let statuses = |value: &Value| value.list()?.iter().map(status).collect();
    let expected = "a list of statuses: write errors = [404, \"5xx\"]";
    section.parse("errors", statuses, expected, notes)
}

/// Runs the checks of [`HttpTool::new`] and reports errors at their position in the document.
fn check_tool(config: &HttpConfig, section: &Section<'_>, notes: &mut Diagnostics<'_>) {
    if let Err(invalid) = HttpTool::new(config.clone()) {
        let InvalidTool { tool, member, reason } = invalid;
        match member {
            "name" => {
                notes.error(section.at, format!("the tool name `{tool}` is invalid: it {reason}"));
            }
            _ => notes.error(section.value_at(member), format!("`{member}` {reason}")),
        }
    }
}

/// Reads the key `body`. By default, methods that usually have a body send the arguments as JSON.
fn body(method: &str, section: &Section<'_>, notes: &mut Diagnostics<'_>) -> HttpBody {
    let usual = match method {
        "POST" | "PUT" | "PATCH" => HttpBody::Json,
        _ => HttpBody::None,
    };
    match section.text("body", "json", notes) {
        None => usual,
        Some("none") => HttpBody::None,
        Some("json") => HttpBody::Json,
        Some("form") => HttpBody::Form,
        Some(text) => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(argument) => HttpBody::Argument(argument.into()),
            None => {
                let message = "`body` must be one of none, json, form, or one argument: write body = \"json\" or \
                               body = \"{argument}\"";
                notes.error(section.value_at("body"), message);
                usual
            }
        },
    }
}

#[cfg(test)]
#[path = "declare/declare_tests.rs"]
mod declare_tests;
