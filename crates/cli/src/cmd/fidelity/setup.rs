//! The wires of the benchmark, and a setup file that adapts them to a gateway: other paths, headers
//! and model names, and what the gateway does not support.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::dialect::Dialect;
use super::scenario::Scenario;
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// A row of the benchmark: a dialect of the client, and the models that the client requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct BenchmarkWire {
    pub(super) name: &'static str,
    pub(super) dialect: Dialect,
    pub(super) model: &'static str,
    /// The model of the second turn when the client switches models.
    pub(super) other_model: &'static str,
    /// Whether the models' provider uses another wire, so that the gateway must translate.
    pub(super) is_translated: bool,
}

pub(super) const WIRES: [BenchmarkWire; 6] = [
    BenchmarkWire {
        name: "messages",
        dialect: Dialect::Messages,
        model: "claude-sonnet-5-5",
        other_model: "claude-opus-4-5",
        is_translated: false,
    },
    BenchmarkWire {
        name: "responses",
        dialect: Dialect::Responses,
        model: "gpt-5.6-sol",
        other_model: "gpt-5.5",
        is_translated: false,
    },
    BenchmarkWire {
        name: "chat",
        dialect: Dialect::Chat,
        model: "deepseek-v4-pro",
        other_model: "deepseek-v4-flash",
        is_translated: false,
    },
    BenchmarkWire {
        name: "gemini",
        dialect: Dialect::Gemini,
        model: "gemini-3.8-flash",
        other_model: "gemini-3.1-pro",
        is_translated: false,
    },
    BenchmarkWire {
        name: "converse",
        dialect: Dialect::Converse,
        model: "us.anthropic.claude-sonnet-5-5",
        other_model: "us.anthropic.claude-opus-4-6",
        is_translated: false,
    },
    BenchmarkWire {
        name: "chat-translated",
        dialect: Dialect::Chat,
        model: "claude-sonnet-5-5",
        other_model: "gemini-3.8-flash",
        is_translated: true,
    },
];

/// The contents of a setup file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GatewaySetup {
    /// Headers of all requests.
    headers: SpannedHeaders,
    /// Changes per wire, by the wire's name.
    wires: BTreeMap<String, WireSetup>,
}

/// Headers with their positions in the file.
type SpannedHeaders = BTreeMap<Spanned<String>, Spanned<String>>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WireSetup {
    /// Path that the gateway expects before the dialect's own path.
    path: Option<Spanned<String>>,
    model: Option<String>,
    other_model: Option<String>,
    headers: SpannedHeaders,
    /// Headers of requests for `other_model`, in addition to `headers`.
    other_headers: SpannedHeaders,
    /// Why the gateway does not support this wire.
    unsupported: Option<String>,
    /// Why the gateway does not support a case, by the case's name.
    unsupported_cases: BTreeMap<String, String>,
}

/// A wire with the changes from the setup file.
#[derive(Clone, Debug)]
pub(super) struct WireTarget {
    pub(super) wire: BenchmarkWire,
    pub(super) path: String,
    pub(super) model: String,
    pub(super) other_model: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) other_headers: BTreeMap<String, String>,
    unsupported: Option<String>,
    unsupported_cases: BTreeMap<String, String>,
}

impl WireTarget {
    /// Returns why the gateway does not support a case, if the setup file states it.
    pub(super) fn unsupported(&self, scenario: Scenario) -> Option<&str> {
        let case = self.unsupported_cases.get(scenario.name());
        self.unsupported.as_ref().or(case).map(String::as_str)
    }
}

impl GatewaySetup {
    /// Reads a setup file.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let content = text::read_file(file)?;
        let invalid = |message: String| Failure::BadData(format!("{}: {message}", file.display()));
        let setup: Self =
            toml::from_str(&content).map_err(|error| invalid(error.to_string().trim().into()))?;
        for (name, wire) in &setup.wires {
            if !WIRES.iter().any(|known| known.name == name) {
                let known = WIRES.map(|wire| wire.name).join(", ");
                return Err(invalid(format!("unknown wire `{name}`; the wires are {known}")));
            }
            let is_unknown =
                |case: &&String| !Scenario::ALL.iter().any(|scenario| scenario.name() == *case);
            if let Some(case) = wire.unsupported_cases.keys().find(is_unknown) {
                let known = Scenario::ALL.map(Scenario::name).join(", ");
                return Err(invalid(format!("unknown case `{case}`; the cases are {known}")));
            }
        }
        if let Some((position, problem)) = setup.invalid_value() {
            let before = content.get(..position).unwrap_or(&content);
            let line = before.matches('\n').count() + 1;
            return Err(invalid(format!("line {line}: {problem}")));
        }
        Ok(setup)
    }

    /// Returns the position of a header or a path that cannot be sent, and what is wrong with it.
    fn invalid_value(&self) -> Option<(usize, String)> {
        let wires = self.wires.values();
        let headers = wires.clone().flat_map(|wire| wire.headers.iter().chain(&wire.other_headers));
        let mut headers = self.headers.iter().chain(headers);
        let header = headers.find_map(|(name, value)| {
            if !is_header_name(name.get_ref()) {
                let problem = format!(
                    "`{}` is not a valid header name: use letters, digits and `-`",
                    name.get_ref().escape_default()
                );
                return Some((name.span().start, problem));
            }
            let problem = format!(
                "the value of the header `{}` must be one line of printable ASCII characters",
                name.get_ref()
            );
            (!is_header_value(value.get_ref())).then_some((value.span().start, problem))
        });
        let mut paths = wires.filter_map(|wire| wire.path.as_ref());
        let path = || {
            let path = paths.find(|path| !is_path(path.get_ref()))?;
            let problem = format!(
                "the path `{}` must start with `/`, and must not contain `..`, a query, a fragment \
                 or spaces",
                path.get_ref().escape_default()
            );
            Some((path.span().start, problem))
        };
        header.or_else(path)
    }

    /// Applies the setup to a wire.
    pub(super) fn target(&self, wire: BenchmarkWire) -> WireTarget {
        let own = self.wires.get(wire.name).cloned().unwrap_or_default();
        let mut headers = plain_headers(&self.headers);
        headers.extend(plain_headers(&own.headers));
        let mut other_headers = headers.clone();
        other_headers.extend(plain_headers(&own.other_headers));
        let path = own.path.map(Spanned::into_inner).unwrap_or_default();
        WireTarget {
            wire,
            path: path.trim_end_matches('/').to_owned(),
            model: own.model.unwrap_or_else(|| wire.model.to_owned()),
            other_model: own.other_model.unwrap_or_else(|| wire.other_model.to_owned()),
            headers,
            other_headers,
            unsupported: own.unsupported,
            unsupported_cases: own.unsupported_cases,
        }
    }
}

fn plain_headers(headers: &SpannedHeaders) -> BTreeMap<String, String> {
    let pairs = headers.iter().map(|(name, value)| (name.get_ref(), value.get_ref()));
    pairs.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns whether a text is a token of RFC 9110.
fn is_header_name(name: &str) -> bool {
    let is_token =
        |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    !name.is_empty() && name.chars().all(is_token)
}

fn is_header_value(value: &str) -> bool {
    value.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ' || letter == '\t')
}

/// Returns whether a text can precede the path of a request. An empty text adds nothing.
fn is_path(path: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_graphic() && !"?#\\".contains(letter);
    let is_inside = path.split('/').all(|part| !matches!(part, "." | ".."));
    path.is_empty() || (path.starts_with('/') && path.chars().all(is_plain) && is_inside)
}
