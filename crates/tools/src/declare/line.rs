//! A tool in one line, as `--tool` takes it.
//!
//! ```text
//! mcp:npx -y some-server .             a process; it is called after its program
//! mcp:files=npx -y some-server .       the same, called files
//! mcp:https://example.com/mcp          an address; it is called after its host
//! http:weather=GET https://example.com/weather/{city}
//! ```

use throughline_agent::ToolSpec;
use throughline_core::Name;

use crate::client;
use crate::declare::reader::{Notes, Problems, closest};
use crate::declare::{Declared, Variables, usual};
use crate::http::{HttpBody, HttpConfig, HttpTool};
use crate::mcp::{McpConfig, Reach};
use crate::name;

const ADVICE: &str = "write mcp:COMMAND, mcp:URL or http:NAME=URL, or put the tool into a file with `[mcp.…]` or `[http.…]`";

/// Reads one line.
pub(super) fn read(text: &str, variables: Variables<'_>) -> Result<Declared, Problems> {
    let mut notes = Notes::on(text, variables);
    let mut declared = Declared::default();
    match text.split_once(':') {
        Some(("mcp", rest)) => declared.mcp.extend(server(rest.trim(), &mut notes)),
        Some(("http", rest)) => declared.http.extend(tool(rest.trim(), &mut notes)),
        Some((kind, _)) if !kind.contains(char::is_whitespace) => {
            let close = closest(kind, &["mcp", "http"]);
            let close =
                close.map_or_else(String::new, |close| format!("; did you mean `{close}:`?"));
            notes.error(0, format!("there are no tools of the kind `{kind}`{close} {ADVICE}"));
        }
        _ => notes.error(0, format!("this does not say what kind of tool it is: {ADVICE}")),
    }
    notes.end(declared)
}

fn server(text: &str, notes: &mut Notes<'_>) -> Option<McpConfig> {
    let (name, rest) = named(text);
    let rest = notes.fill(0, rest)?;
    if rest.trim().is_empty() {
        notes.error(0, format!("this does not say how the server is reached: {ADVICE}"));
        return None;
    }
    let (reach, usually) = if rest.contains("://") && !rest.contains(char::is_whitespace) {
        let url = reqwest::Url::parse(&rest).map_err(|error| format!("cannot be read: {error}"));
        let checked = url.and_then(|url| client::check(&url).map(|()| url));
        let url = checked.map_err(|reason| notes.error(0, format!("the address {reason}"))).ok()?;
        let host = url.host_str().unwrap_or_default().to_owned();
        (Reach::Http { url: rest, headers: Vec::new() }, host)
    } else {
        let mut words = words(&rest)
            .map_err(|quote| notes.error(0, format!("there is a {quote} without its end")))
            .ok()?
            .into_iter();
        let command = words.next().unwrap_or_default();
        let program = command.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let usual = usual(notes);
        let args = words.collect();
        (Reach::Process { command, args, env: Vec::new(), usual, directory: None }, program)
    };
    let name = name.map_or_else(|| plain(&usually), str::to_owned);
    if !name::is_good(&name) || name.len() > 32 || name.contains("__") {
        let message = format!(
            "`{name}` is no name for a server: write mcp:NAME=…, with letters and digits, a letter first"
        );
        notes.error(0, message);
        return None;
    }
    Some(McpConfig::new(name.into(), reach))
}

fn tool(text: &str, notes: &mut Notes<'_>) -> Option<HttpConfig> {
    let (name, rest) = named(text);
    let Some(name) = name else {
        let message = "this does not say what the tool is called: write http:NAME=URL, as \
                       http:weather=https://example.com/weather/{city}";
        notes.error(0, message);
        return None;
    };
    let rest = notes.fill(0, rest)?;
    let (method, url) = rest.split_once(char::is_whitespace).unwrap_or(("GET", &rest));
    let mut spec = ToolSpec::new(Name::from(name));
    spec.idempotent = matches!(method, "GET" | "HEAD");
    let mut config = HttpConfig::new(spec, method, url.trim());
    if matches!(method, "POST" | "PUT" | "PATCH") {
        config.body = HttpBody::Json;
    }
    if let Err(invalid) = HttpTool::new(config.clone()) {
        notes.error(0, format!("the {} of the tool {}", invalid.member, invalid.reason));
    }
    Some(config)
}

/// The name before a `=`, and the rest. A `=` further on belongs to the rest.
fn named(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.contains(|c: char| c.is_whitespace() || matches!(c, ':' | '/' | '?'))
    };
    match text.split_once('=').filter(|(name, _)| is_name(name)) {
        Some((name, rest)) => (Some(name), rest),
        None => (None, text),
    }
}

/// A name made of another: what no provider takes becomes `_`, once.
fn plain(name: &str) -> String {
    let stem = name.strip_suffix(".exe").unwrap_or(name);
    let words = stem.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

/// Words as a shell splits them: quotes hold together what has white space in it.
fn words(text: &str) -> Result<Vec<String>, char> {
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
