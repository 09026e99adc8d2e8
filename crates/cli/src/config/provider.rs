//! Parses one `[providers.NAME]` section.

use std::sync::Arc;

use throughline_codec::{CODECS, Catalog};
use throughline_core::{Dialect, Provider, Wire};
use throughline_json::Name;
use throughline_provider::{EnvAddress, address_from_env, in_region};
use throughline_tools::reader::{Diagnostics, Section};
use throughline_tools::suggest::{closest, did_you_mean};

use super::builtin::{self, SIMULATORS};
use super::routes::{Credential, Endpoint, ProviderSettings};
use super::secret::Secret;

/// Row for endpoints that implement a known wire but are not in the catalog.
const PLAIN: &str = "compatible";

/// Keys that the section may have.
const KEYS: &[&str] =
    &["kind", "wire", "base_url", "aws_region", "api_key_env", "api_key", "models"];

/// Parses one provider.
pub(super) fn read(
    name: &str,
    section: &Section<'_>,
    catalog: &Catalog,
    notes: &mut Diagnostics<'_>,
) -> Option<ProviderSettings> {
    section.reject_unknown_keys(KEYS, notes);
    check_name(name, section, notes);
    let row = row(name, section, catalog, notes);
    let own = own_key(section, notes);
    let models = models(name, row.as_ref(), section, notes);
    let mut row = row?;
    let region = region(&row, section, notes);
    let (base_url, said_by) = address(name, &row, region, section, notes)?;
    row.base_url = base_url;
    let mut credential = own.unwrap_or_else(|| builtin::credential(&row, catalog, notes.variables));
    if let (Credential::Aws(keys), Some(region)) = (&mut credential, region) {
        keys.region = Some(Name::from(region));
    }
    Some(ProviderSettings {
        name: Name::from(name),
        endpoint: Endpoint::Remote(Arc::new(row)),
        credential,
        models,
        line: Some(notes.line(section.at)),
        variable: said_by,
    })
}

fn check_name(name: &str, section: &Section<'_>, notes: &mut Diagnostics<'_>) {
    if name == SIMULATORS {
        let message = "the provider `sim` is built in: choose another name";
        notes.error(section.at, message);
    }
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 100 || !name.chars().all(is_good) {
        let message = "a provider's name may contain only letters, digits, `-`, `_` and `.`: \
                       it precedes the slash in model names";
        notes.error(section.at, message);
    }
}

/// Returns the claimed patterns; by default a provider named like its row claims the row's
/// patterns.
fn models(
    name: &str,
    row: Option<&Provider>,
    section: &Section<'_>,
    notes: &mut Diagnostics<'_>,
) -> Vec<Name> {
    if !section.has("models") {
        let is_row = row.is_some_and(|row| *row.name == *name);
        return if is_row { builtin::claims(name) } else { Vec::new() };
    }
    let Some(found) = section.texts("models", "\"claude-*\"", notes) else { return Vec::new() };
    if found.is_empty() {
        let message = format!(
            "`models` is empty: list patterns such as \"claude-*\", or omit it \
             and request {name}/model"
        );
        notes.error(section.value_at("models"), message);
    }
    found.into_iter().map(|(_, pattern)| Name::from(pattern)).collect()
}

/// Returns the catalog row, on the configured wire.
fn row(
    name: &str,
    section: &Section<'_>,
    catalog: &Catalog,
    notes: &mut Diagnostics<'_>,
) -> Option<Provider> {
    let wires: Vec<Wire> = CODECS.iter().map(|codec| codec.wire()).collect();
    let wires: Vec<(&str, &Wire)> = wires.iter().map(|wire| (wire.as_str(), wire)).collect();
    let wire = section.choice("wire", &wires, notes).cloned();
    if section.has("wire") && wire.is_none() {
        return None;
    }
    let kind = if section.has("kind") {
        Some(kind(section, catalog, notes)?)
    } else {
        catalog.provider(name)
    };
    let mut row = match (kind, wire) {
        (Some(kind), None) => Provider::clone(&kind),
        (Some(kind), Some(wire)) => catalog
            .provider_on_wire(&kind.name, &wire)
            .map_or_else(|| generic_row(&kind.name, wire, catalog), |row| Provider::clone(&row)),
        (None, Some(wire)) if section.has("base_url") => generic_row(name, wire, catalog),
        (None, _) => {
            let message = format!(
                "[providers.{name}] has no type: write kind = \"anthropic\" or another \
                 row, or both `wire` and `base_url`"
            );
            notes.error(section.at, message);
            return None;
        }
    };
    if *row.name == *PLAIN {
        row.name = Name::from(name);
    }
    Some(row)
}

/// Returns the address and the variable it came from, if any. The file takes precedence over the
/// variable, the variable over the catalog.
fn address(
    name: &str,
    row: &Provider,
    region: Option<&str>,
    section: &Section<'_>,
    notes: &mut Diagnostics<'_>,
) -> Option<(Name, Option<Name>)> {
    if section.has("base_url") {
        return Some((base_url(section, notes)?, None));
    }
    if let Some(base_url) = region.and_then(|region| in_region(row, region)) {
        return Some((base_url, None));
    }
    // The list of built-in providers reports invalid variables.
    if let Ok(Some(EnvAddress { base_url, variable })) = address_from_env(row, notes.variables) {
        return Some((base_url, Some(variable)));
    }
    if builtin::is_complete(&row.base_url) {
        return Some((Arc::clone(&row.base_url), None));
    }
    let example = match &*row.base_url {
        "" => "https://host/v1",
        usual => usual,
    };
    let message = format!(
        "[providers.{name}] needs an address: write base_url = \"{example}\"{}",
        if example.contains('{') { ", and replace the part in braces" } else { "" }
    );
    notes.error(section.at, message);
    None
}

/// Returns the configured AWS region.
fn region<'s>(
    row: &Provider,
    section: &Section<'s>,
    notes: &mut Diagnostics<'_>,
) -> Option<&'s str> {
    const EXAMPLE: &str = "eu-west-1";
    let region = section.text("aws_region", EXAMPLE, notes)?;
    let problem = if in_region(row, EXAMPLE).is_none() {
        "`aws_region` applies to AWS only: write kind = \"bedrock\", or remove it"
    } else if in_region(row, region).is_none() {
        "`aws_region` must be an AWS region: write aws_region = \"eu-west-1\""
    } else {
        return Some(region);
    };
    notes.error(section.value_at("aws_region"), problem);
    None
}

/// Builds a row for an endpoint of which only the wire is known.
fn generic_row(name: &str, wire: Wire, catalog: &Catalog) -> Provider {
    let like = catalog.provider_on_wire(PLAIN, &wire);
    Provider {
        name: Name::from(name),
        wire,
        base_url: Name::from(""),
        key_env: catalog.provider(name).and_then(|row| row.key_env.clone()),
        dialect: like.map_or_else(Dialect::default, |row| row.dialect.clone()),
    }
}

fn kind(
    section: &Section<'_>,
    catalog: &Catalog,
    notes: &mut Diagnostics<'_>,
) -> Option<Arc<Provider>> {
    let kind = section.text("kind", "anthropic", notes)?;
    let names: Vec<&str> = catalog.providers().iter().map(|row| &*row.name).collect();
    let close = did_you_mean(&closest(kind, names.iter().copied()));
    let expected = format_args!("one of {}{close}", names.join(", "));
    section.parse("kind", |_| catalog.provider(kind), expected, notes)
}

/// Returns the address without a trailing slash.
fn base_url(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<Name> {
    let url = section.text("base_url", "https://host/v1", notes)?;
    // The value may contain a password, so the message does not repeat it.
    let expected = "an http or https address without user, password, query and braces: write \
                    base_url = \"https://host/v1\"";
    let parse = |_| is_address(url).then(|| Name::from(url.trim_end_matches('/')));
    section.parse("base_url", parse, expected, notes)
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let is_good =
        |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '{' | '}' | '\\');
    !host.is_empty() && !host.starts_with(':') && rest.chars().all(is_good)
}

/// Returns the key that the section configures, if any.
fn own_key(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<Credential> {
    if section.has("api_key") && section.has("api_key_env") {
        let message = "both `api_key` and `api_key_env` are set: keep only one, \
                       preferably the variable";
        notes.error(section.key_at("api_key"), message);
    }
    if let Some(key) = section.text("api_key", "…", notes) {
        let at = section.value_at("api_key");
        return Some(check_header_value(key.to_owned(), None, at, "`api_key`", notes));
    }
    let name = variable_name("api_key_env", section, notes)?;
    let (at, variable) = (section.value_at("api_key_env"), Name::from(name));
    let Some(key) = (notes.variables)(name) else {
        let message =
            format!("{} is not set; this provider cannot be used without it", shown_variable(name));
        notes.warning(at, message);
        return Some(Credential::Missing { variable });
    };
    let what = format!("the key in {}", shown_variable(name));
    Some(check_header_value(key.trim().to_owned(), Some(variable), at, &what, notes))
}

/// Checks that a key is valid in a header.
fn check_header_value(
    key: String,
    variable: Option<Name>,
    at: usize,
    what: &str,
    notes: &mut Diagnostics<'_>,
) -> Credential {
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        let message = format!("{what} has a character that is invalid in a header: copy it again");
        notes.error(at, message);
    }
    Credential::Own { key: Secret::new(key), variable }
}

/// Returns the name of a variable. If the value looks like a secret, the error does not repeat it.
pub(super) fn variable_name<'s>(
    key: &str,
    section: &Section<'s>,
    notes: &mut Diagnostics<'_>,
) -> Option<&'s str> {
    let name = section.text(key, "WORK_KEY", notes)?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins_well = !name.starts_with(|c: char| c.is_ascii_digit());
    let is_name = begins_well && name.chars().all(is_good);
    let expected =
        format_args!("the name of a variable, not the secret itself: write {key} = \"WORK_KEY\"");
    section.parse(key, |_| is_name.then_some(name), expected, notes)
}

/// Formats a variable for display; a value that does not look like a name may be a misplaced
/// secret.
pub(crate) fn shown_variable(name: &str) -> String {
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_word = name.contains('_') || !name.contains(|c: char| c.is_ascii_digit());
    if name.len() <= 60 && is_word && name.chars().all(is_usual) {
        format!("${name}")
    } else {
        "a variable whose name looks like a secret".to_owned()
    }
}
