//! `throughline catalog`: shows, checks, installs and signs catalogs of providers and models.

mod install;

use std::cmp::Ordering;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde_json::{Map, Value, json};
use throughline_codec::{
    Catalog, CatalogProblem, CatalogSecret, CatalogUpdate, sign_catalog, verify_catalog,
};
use throughline_core::{ModelMatch, Profile, Provider};
use zeroize::Zeroizing;

use crate::args::{CatalogCheck, CatalogInstall, CatalogShow, CatalogSign};
use crate::config::{
    CatalogFile, CatalogFileError, InstalledCatalog, check_version, load_catalog,
    load_catalog_settings, read_bytes,
};
use crate::input::rows::UNKNOWN;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Column, table};
use crate::print::text::{self, count, plain, push_line};

/// Prints the rows in effect, or the row that applies to one model.
pub(crate) fn show(options: &CatalogShow) -> Result<()> {
    let installed = load_catalog(options.catalog.config.as_deref())?;
    let catalog = installed.shared.current();
    let Some(model) = &options.model else {
        return options.format.print(|| rows_text(&installed), || rows_json(&installed));
    };
    let profile = catalog.profile(model);
    let text = || {
        if profile.name == UNKNOWN {
            let treated = "it is treated as a model without special requirements";
            return format!("no model family matches {}; {treated}\n", plain(model));
        }
        let from = describe_source(&installed, is_installed_profile(&installed, &profile));
        let (name, from) = (profile.name.bold(), from.dimmed());
        format!("{name}  {from}\n{}{}", substitute_note(&profile, model), row_text(&profile))
    };
    let json = || {
        let mut entry = json!({ "model": model });
        put(&mut entry, header_json(&installed));
        put(&mut entry, json!({ "profile": profile_json(&installed, &profile) }));
        entry
    };
    options.format.print(text, json)
}

/// Notes that no row lists the version of a model; empty if the profile lists it.
fn substitute_note(profile: &Profile, model: &str) -> String {
    let matches = profile.models.iter().filter_map(|pattern| ModelMatch::new(pattern, model));
    let row = match matches.max().and_then(ModelMatch::other_version) {
        None => return String::new(),
        Some(Ordering::Greater) => "a newer row",
        Some(Ordering::Less | Ordering::Equal) => "the newest row",
    };
    let model = plain(model);
    format!("  no row lists the version of {model}; {row} of its series applies\n")
}

/// Returns whether a row comes from the installed file.
fn is_installed_profile(installed: &InstalledCatalog, row: &Profile) -> bool {
    installed.file.iter().any(|file| file.update.profiles().iter().any(|known| **known == *row))
}

fn is_installed_provider(installed: &InstalledCatalog, row: &Provider) -> bool {
    installed.file.iter().any(|file| file.update.providers().iter().any(|known| **known == *row))
}

fn source_name(is_installed: bool) -> &'static str {
    if is_installed { "installed" } else { "built in" }
}

/// Describes where a row comes from, with the version of its catalog.
fn describe_source(installed: &InstalledCatalog, is_installed: bool) -> String {
    match &installed.file {
        Some(file) if is_installed => {
            let path = plain(&file.path.display().to_string());
            format!("installed, {}, {path}", file.update.version)
        }
        Some(_) | None => format!("built in, {}", builtin_version()),
    }
}

fn builtin_version() -> String {
    Catalog::builtin().version().map(|version| version.to_string()).unwrap_or_default()
}

fn rows_text(installed: &InstalledCatalog) -> String {
    let catalog = installed.shared.current();
    let mut out = String::new();
    let head = describe_source(installed, installed.file.is_some());
    push_line(&mut out, &format!("{}\n", format!("catalog: {head}").bold()));
    let (profiles, providers) = (catalog.profiles(), catalog.providers());
    let profile_source = |row: &Profile| source_name(is_installed_profile(installed, row));
    let provider_source = |row: &Provider| source_name(is_installed_provider(installed, row));
    out.push_str(&table(vec![
        Column::new("profile", profiles.iter().map(|row| plain(&row.name))),
        Column::new("from", profiles.iter().map(|row| profile_source(row))),
        Column::new("models", profiles.iter().map(|row| plain(&row.models.join(" ")))),
    ]));
    out.push('\n');
    out.push_str(&table(vec![
        Column::new("provider", providers.iter().map(|row| plain(&row.name))),
        Column::new("from", providers.iter().map(|row| provider_source(row))),
        Column::new("wire", providers.iter().map(|row| plain(row.wire.as_str()))),
        Column::new("address", providers.iter().map(|row| plain(&row.base_url))),
    ]));
    out
}

/// Lists the settings of a profile that differ from the defaults.
fn row_text(profile: &Profile) -> String {
    let members = |profile: &Profile| match serde_json::to_value(profile) {
        Ok(Value::Object(members)) => members,
        Ok(_) | Err(_) => Map::new(),
    };
    let mut settings = members(profile);
    let defaults = members(&Profile::default());
    settings.retain(|key, value| key != "name" && defaults.get(key) != Some(value));
    let value = |value: &Value| match value {
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    };
    table(vec![
        Column::new("", settings.keys().map(|key| format!("  {key}"))),
        Column::new("", settings.values().map(value)),
    ])
}

fn header_json(installed: &InstalledCatalog) -> Value {
    let version = installed.shared.current().version();
    json!({
        "version": version.map(|version| version.to_string()),
        "builtin": builtin_version(),
        "file": installed.file.as_ref().map(|file| json!({
            "path": file.path.display().to_string(),
            "version": file.update.version.to_string(),
            "signed_by": file.signed_by.to_string(),
        })),
    })
}

fn profile_json(installed: &InstalledCatalog, row: &Profile) -> Value {
    let from = source_name(is_installed_profile(installed, row));
    json!({ "name": row.name, "from": from, "row": row })
}

fn rows_json(installed: &InstalledCatalog) -> Value {
    let catalog = installed.shared.current();
    let provider = |row: &Provider| {
        let from = source_name(is_installed_provider(installed, row));
        json!({ "name": row.name, "from": from, "row": provider_fields(row) })
    };
    let profiles: Vec<Value> =
        catalog.profiles().iter().map(|row| profile_json(installed, row)).collect();
    let providers: Vec<Value> = catalog.providers().iter().map(|row| provider(row)).collect();
    let mut all = header_json(installed);
    put(&mut all, json!({ "profiles": profiles, "providers": providers }));
    all
}

/// Returns a provider row. The keys are those of the TOML row.
fn provider_fields(row: &Provider) -> Value {
    json!({
        "name": row.name,
        "wire": row.wire.as_str(),
        "base-url": row.base_url,
        "key-env": row.key_env,
        "dialect": row.dialect,
    })
}

/// Adds the members of an object to another object.
fn put(object: &mut Value, more: Value) {
    if let (Value::Object(members), Value::Object(more)) = (object, more) {
        members.extend(more);
    }
}

/// The result of checking a catalog file.
struct CheckReport {
    /// The checked file; `None` if no catalog is installed.
    file: Option<String>,
    signed_by: Option<String>,
    update: Option<CatalogUpdate>,
    /// All errors, with the line if the error is on one.
    errors: Vec<(Option<usize>, String)>,
}

/// Checks a file, or the installed one, and reports all errors.
pub(crate) fn check(options: &CatalogCheck) -> Result<ExitCode> {
    let settings = load_catalog_settings(options.catalog.config.as_deref())?;
    let path = options.file.clone().or_else(|| settings.path());
    let bytes = match &path {
        None => None,
        Some(path) => read_bytes(path).map_err(|error| refusal(path, &error))?,
    };
    if let (None, Some(file)) = (&bytes, &options.file) {
        return Err(Failure::Usage(format!(
            "cannot read {}: there is no such file",
            file.display()
        )));
    }
    let mut report = CheckReport { file: None, signed_by: None, update: None, errors: Vec::new() };
    if let (Some(bytes), Some(path)) = (bytes, &path) {
        report.file = Some(path.display().to_string());
        match verify_catalog(&bytes, &settings.trusted_keys) {
            Ok(key) => report.signed_by = Some(key.to_string()),
            Err(error) => report.errors.push((Some(1), error.to_string())),
        }
        report.read_rows(&bytes);
    }
    if let (Some(update), Some(_)) = (&report.update, &options.file) {
        let installed = InstalledCatalog::load(settings);
        let installed = installed.file.as_ref().map(|file| &file.update);
        if let Err(error) = check_version(update, installed) {
            report.errors.push((None, error.to_string()));
        }
    }
    let printed = options.format.print(|| report.text(), || report.json());
    printed.or_else(Failure::ignore_closed_pipe)?;
    Ok(if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl CheckReport {
    fn read_rows(&mut self, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.errors.push((None, CatalogFileError::NotText.to_string()));
        };
        match CatalogUpdate::parse(text) {
            Ok(update) => self.update = Some(update),
            Err(problems) => {
                let error = |CatalogProblem { line, message }| (Some(line), message);
                self.errors.extend(problems.into_iter().map(error));
            }
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let Some(file) = &self.file else {
            let verdict = "no catalog is installed; only the built-in rows are in effect";
            push_line(&mut out, &format!("{} {verdict}", text::mark(true)));
            return out;
        };
        let name = plain(file);
        for (line, message) in &self.errors {
            let place = line.map_or_else(|| name.clone(), |line| format!("{name}:{line}"));
            push_line(&mut out, &format!("{} {place}: {}", "error:".red().bold(), plain(message)));
        }
        let verdict = match (self.errors.len(), &self.update) {
            (0, Some(update)) => {
                let (version, rows) = (update.version, describe_rows(update));
                format!("{} {name} is valid: version {version}, {rows}", text::mark(true))
            }
            (number, _) => format!("{} {name} has {}", text::mark(false), count(number, "error")),
        };
        push_line(&mut out, &verdict);
        out.push_str(&self.update.as_ref().map(added_text).unwrap_or_default());
        out
    }

    fn json(&self) -> Value {
        let error =
            |(line, message): &(Option<usize>, String)| json!({ "line": line, "message": message });
        json!({
            "verdict": if self.errors.is_empty() { "ok" } else { "wrong" },
            "file": self.file,
            "version": self.update.as_ref().map(|update| update.version.to_string()),
            "signed_by": self.signed_by,
            "profiles": self.update.as_ref().map(|update| update.profiles().len()),
            "providers": self.update.as_ref().map(|update| update.providers().len()),
            "added_providers": self.update.as_ref().map(added_json),
            "errors": self.errors.iter().map(error).collect::<Vec<_>>(),
        })
    }
}

fn describe_rows(update: &CatalogUpdate) -> String {
    let profiles = count(update.profiles().len(), "profile");
    let providers = count(update.providers().len(), "provider");
    format!("{profiles} and {providers}")
}

/// Lists the providers that a file adds, with the address and the key variable of each. The gateway
/// sends the value of this variable to this address.
fn added_text(update: &CatalogUpdate) -> String {
    let mut out = String::new();
    for row in update.added_providers() {
        let (name, wire) = (plain(&row.name), plain(row.wire.as_str()));
        let address = if row.base_url.is_empty() { "none".into() } else { plain(&row.base_url) };
        let key = row.key_env.as_deref().map_or_else(|| "none".into(), plain);
        let line = format!("  new provider {name} ({wire}): address {address}, key from {key}");
        push_line(&mut out, &line);
    }
    out
}

fn added_json(update: &CatalogUpdate) -> Value {
    update.added_providers().map(|row| provider_fields(row)).collect()
}

fn refusal(path: &Path, error: &CatalogFileError) -> Failure {
    let message = format!("{}: {error}", path.display());
    match error {
        CatalogFileError::Unreadable(_) => Failure::Usage(message),
        CatalogFileError::TooLarge
        | CatalogFileError::NotText
        | CatalogFileError::Signature(_)
        | CatalogFileError::Invalid(_)
        | CatalogFileError::OlderThanBuiltin { .. }
        | CatalogFileError::OlderThanInstalled { .. }
        | CatalogFileError::SameVersion(_) => Failure::BadData(message),
    }
}

/// Verifies a file and installs it.
pub(crate) fn update(options: &CatalogInstall) -> Result<()> {
    let settings = load_catalog_settings(options.catalog.config.as_deref())?;
    let path = settings.path().ok_or_else(|| {
        let message = "cannot determine the home directory; set HOME, or set file under [catalog] \
                       in throughline.toml";
        Failure::Usage(message.to_owned())
    })?;
    let read = CatalogFile::read(&options.file, &settings.trusted_keys);
    let file = read.map_err(|error| refusal(&options.file, &error))?.ok_or_else(|| {
        Failure::Usage(format!("cannot read {}: there is no such file", options.file.display()))
    })?;
    let previous = InstalledCatalog::load(settings).file;
    check_version(&file.update, previous.as_ref().map(|file| &file.update))
        .map_err(|error| refusal(&options.file, &error))?;
    install::replace(&path, &file.bytes)
        .with_context(|| format!("cannot install {}", path.display()))?;
    let replaced = previous.map(|previous| previous.update.version.to_string());
    let version = file.update.version.to_string();
    let text = || {
        let (mark, shown) = (text::mark(true), plain(&path.display().to_string()));
        let rows = describe_rows(&file.update);
        let added = added_text(&file.update);
        let start = "  the gateway offers new providers after its next start\n";
        let start = if added.is_empty() { "" } else { start };
        format!("{mark} version {version} is installed as {shown}: {rows}\n{added}{start}")
    };
    let json = || {
        json!({
            "installed": path.display().to_string(),
            "version": version,
            "replaced": replaced,
            "signed_by": file.signed_by.to_string(),
            "profiles": file.update.profiles().len(),
            "providers": file.update.providers().len(),
            "added_providers": added_json(&file.update),
        })
    };
    options.format.print(text, json)
}

/// Signs a file in place.
pub(crate) fn sign(options: &CatalogSign) -> Result<()> {
    let (name, key) = (options.file.display(), options.key.display());
    let secret = Zeroizing::new(text::read_file(&options.key)?);
    let secret: CatalogSecret =
        secret.parse().map_err(|error| Failure::Usage(format!("{key}: {error}")))?;
    let content = text::read_file(&options.file)?;
    let parse = |content: &str| {
        CatalogUpdate::parse(content).map_err(|problems| {
            let lines = problems.iter().map(|problem| format!("{name}:{problem}"));
            Failure::BadData(lines.collect::<Vec<_>>().join("\n"))
        })
    };
    // The first parse reports the lines of the input, the second one checks the result.
    parse(&content)?;
    let signed = sign_catalog(&content, &secret);
    let update = parse(&signed)?;
    install::replace(&options.file, signed.as_bytes())
        .with_context(|| format!("cannot write {name}"))?;
    let public_key = secret.public_key().to_string();
    let version = update.version.to_string();
    let text = || {
        let (mark, name) = (text::mark(true), plain(&name.to_string()));
        format!("{mark} {name} is signed: version {version}\n  public key {}\n", public_key.bold())
    };
    let json = || json!({ "file": name.to_string(), "version": version, "public_key": public_key });
    options.format.print(text, json)
}
