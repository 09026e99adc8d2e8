//! Parses a tool declaration from one command-line argument, the value of `--tool`.
//!
//! ```text
//! mcp:npx -y some-server .             a process, named after its program
//! mcp:files=npx -y some-server .       the same, named files
//! mcp:https://example.com/mcp          an HTTP endpoint, named after its host
//! http:weather=GET https://example.com/weather/{city}
//! ```

use throughline_agent::ToolSpec;
use throughline_json::Name;

use crate::client;
use crate::declare::{PHRASES, ToolDeclarations, system_variables};
use crate::http::{HttpBody, HttpConfig, HttpTool};
use crate::mcp::{McpConfig, Transport};
use crate::name;
use crate::reader::{Diagnostics, Problems, Variables};
use crate::suggest::{closest, did_you_mean};

const ADVICE: &str = "write mcp:COMMAND, mcp:URL or http:NAME=URL, or declare the tool in a file, under `[mcp.NAME]` or `[http.NAME]`";

pub(super) fn read(text: &str, variables: Variables<'_>) -> Result<ToolDeclarations, Problems> {
    let mut notes = Diagnostics::new(text, &PHRASES, variables);
    let mut declared = ToolDeclarations::default();
    match text.split_once(':') {
        Some(("mcp", rest)) => declared.mcp.extend(server(rest.trim(), &mut notes)),
        Some(("http", rest)) => declared.http.extend(tool(rest.trim(), &mut notes)),
        Some((kind, _)) if !kind.contains(char::is_whitespace) => {
            let close = did_you_mean(&closest(&format!("{kind}:"), ["mcp:", "http:"]));
            let close = if close.is_empty() { ";".to_owned() } else { close };
            notes.error(0, format!("unknown tool kind `{kind}`{close} {ADVICE}"));
        }
        _ => notes.error(0, format!("the tool kind is missing: {ADVICE}")),
    }
    notes.finish(declared)
}

fn server(text: &str, notes: &mut Diagnostics<'_>) -> Option<McpConfig> {
    let (name, rest) = split_name(text);
    let rest = notes.expand_variables(0, rest)?;
    if rest.trim().is_empty() {
        notes.error(0, format!("the server's command or URL is missing: {ADVICE}"));
        return None;
    }
    let (reach, default_name) = if rest.contains("://") && !rest.contains(char::is_whitespace) {
        let url = client::parse(&rest);
        let url =
            url.map_err(|reason| notes.error(0, format!("the server's URL {reason}"))).ok()?;
        let host = url.host_str().unwrap_or_default().to_owned();
        (Transport::Http { url: rest, headers: Vec::new() }, host)
    } else {
        let mut words = split_words(&rest)
            .map_err(|quote| notes.error(0, format!("the quote {quote} is not closed")))
            .ok()?
            .into_iter();
        let command = words.next().unwrap_or_default();
        let program = command.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let usual = system_variables(notes);
        let args = words.collect();
        (Transport::Process { command, args, env: Vec::new(), usual, directory: None }, program)
    };
    let name = name.map_or_else(|| sanitize_name(&default_name), str::to_owned);
    if !name::is_valid_server(&name) {
        let message = format!(
            "`{name}` is not a valid server name: write mcp:NAME=…, with letters and digits, a letter first"
        );
        notes.error(0, message);
        return None;
    }
    Some(McpConfig::new(name.into(), reach))
}

fn tool(text: &str, notes: &mut Diagnostics<'_>) -> Option<HttpConfig> {
    let (name, rest) = split_name(text);
    let Some(name) = name else {
        let message = "the name of the tool is missing: write http:NAME=URL, such as \
                       http:weather=https://example.com/weather/{city}";
        notes.error(0, message);
        return None;
    };
    let rest = notes.expand_variables(0, rest)?;
    let (method, url) = rest.split_once(char::is_whitespace).unwrap_or(("GET", &rest));
    let mut spec = ToolSpec::new(Name::from(name));
    spec.idempotent = matches!(method, "GET" | "HEAD");
    let mut config = HttpConfig::new(spec, method, url.trim());
    if matches!(method, "POST" | "PUT" | "PATCH") {
        config.body = HttpBody::Json;
    }
    if let Err(invalid) = HttpTool::new(config.clone()) {
        notes.error(0, format!("the tool's {} {}", invalid.member, invalid.reason));
    }
    Some(config)
}

/// Splits `name=rest` at the first `=`. Returns no name if the text before the `=` cannot be a
/// name.
fn split_name(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.contains(|c: char| c.is_whitespace() || matches!(c, ':' | '/' | '?'))
    };
    match text.split_once('=').filter(|(name, _)| is_name(name)) {
        Some((name, rest)) => (Some(name), rest),
        None => (None, text),
    }
}

/// Derives a valid name by replacing each run of invalid characters with `_`.
fn sanitize_name(name: &str) -> String {
    let stem = name.strip_suffix(".exe").unwrap_or(name);
    let parts = stem.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// Splits a command line into words like a shell. Quoted white space does not separate words.
fn split_words(text: &str) -> Result<Vec<String>, char> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.map_or(Ok(words), Err)
}
