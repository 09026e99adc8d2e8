//! Parses one `[providers.NAME]` section.

use std::sync::Arc;

use throughline_codec::{CODECS, Catalog, is_provider_name};
use throughline_core::{Dialect, PlainReplay, Provider, Wire};
use throughline_json::{Name, StringEnum};
use throughline_provider::{CredentialSettings, EnvAddress, address_from_env, in_region};
use throughline_tools::reader::{Diagnostics, Section};
use throughline_tools::suggest::{closest, did_you_mean};

use super::builtin::{self, SIMULATORS};
use super::key::{own_key, with_credential_keys};
use super::pool;
use super::routes::{Credential, Endpoint, PoolSettings, ProviderSettings};

/// Catalog entry for endpoints that implement a known wire but are not in the catalog.
const PLAIN: &str = "compatible";

/// Keys that a `[providers.NAME]` section may have.
const KEYS: &[&str] = &[
    "kind",
    "wire",
    "base_url",
    "aws_region",
    "api_key_env",
    "api_key",
    "models",
    "replay_plain",
    "accepted_tags",
    "pool",
    "balance",
    "when_unavailable",
    "cooldown",
];

pub(super) fn read(
    name: &str,
    section: &Section<'_>,
    catalog: &Catalog,
    notes: &mut Diagnostics<'_>,
) -> Option<ProviderSettings> {
    section.reject_unknown_keys(&with_credential_keys(KEYS), notes);
    ProviderReader { name, section, catalog, notes }.read()
}

/// Parses a section and reports its problems.
struct ProviderReader<'r, 's, 'n> {
    name: &'r str,
    section: &'r Section<'s>,
    catalog: &'r Catalog,
    notes: &'r mut Diagnostics<'n>,
}

impl<'s> ProviderReader<'_, 's, '_> {
    fn read(mut self) -> Option<ProviderSettings> {
        if self.name == SIMULATORS {
            // The keys of the section do not matter, so they are not checked.
            let message = "the provider `sim` is built in: choose another name";
            self.notes.error(self.section.at, message);
            return None;
        }
        self.check_name();
        let row = self.row();
        let pool = pool::read(self.name, self.section, self.notes).map(Arc::new);
        let own = match &pool {
            Some(pool) => Some(pool.credential()),
            None => own_key(self.section, "provider", self.notes),
        };
        let models = self.models(row.as_ref());
        let replay_plain = self.replay_plain();
        let mut row = row?;
        row.replay_plain = replay_plain;
        let region = self.region(&row);
        let (base_url, variable) = self.address(&row, region)?;
        row.base_url = base_url;
        row.dialect.accepted_tags.extend(self.accepted_tags());
        let default = || builtin::credential(&row, self.catalog, self.notes.variables);
        let mut credential = own.unwrap_or_else(default);
        self.check_signing(&row, &credential, pool.as_deref());
        if let Some(region) = region.map(Name::from) {
            match &mut credential {
                Credential::Aws(keys) => keys.region = Some(region),
                Credential::Dynamic(CredentialSettings::Aws(aws)) => aws.region = Some(region),
                Credential::Dynamic(_)
                | Credential::Callers
                | Credential::Open
                | Credential::Own { .. }
                | Credential::Missing { .. } => {}
            }
        }
        Some(ProviderSettings {
            name: Name::from(self.name),
            endpoint: Endpoint::Remote(Arc::new(row)),
            credential,
            models,
            line: Some(self.notes.line(self.section.at)),
            variable,
            pool,
        })
    }

    fn check_name(&mut self) {
        if !is_provider_name(self.name) {
            let message = "a provider's name may contain only letters, digits, `-`, `_` and `.`: \
                           it precedes the slash in model names";
            self.notes.error(self.section.at, message);
        }
    }

    /// Returns the patterns of the model names that the provider serves. By default, a provider
    /// with the name of a catalog entry gets the patterns of that entry.
    fn models(&mut self, row: Option<&Provider>) -> Vec<Name> {
        let (name, section) = (self.name, self.section);
        if !section.has("models") {
            let is_row = row.is_some_and(|row| *row.name == *name);
            return if is_row { builtin::claims(name) } else { Vec::new() };
        }
        let patterns = section.texts("models", "\"claude-*\"", self.notes);
        if patterns.as_ref().is_some_and(Vec::is_empty) {
            let message = format!(
                "`models` is empty: list patterns such as \"claude-*\", or omit it \
                 and request {name}/model"
            );
            self.notes.error(section.value_at("models"), message);
        }
        let patterns = patterns.unwrap_or_default().into_iter();
        patterns.map(|(_, pattern)| Name::from(pattern)).collect()
    }

    /// Returns whether reasoning without a Seal is restored in requests to the provider.
    fn replay_plain(&mut self) -> PlainReplay {
        let all: Vec<_> = PlainReplay::ALL.iter().map(|mode| (mode.as_str(), *mode)).collect();
        self.section.choice("replay_plain", &all, self.notes).unwrap_or_default()
    }

    /// Returns the tags of caller-supplied Thoughts that the provider accepts.
    fn accepted_tags(&mut self) -> Vec<String> {
        const KEY: &str = "accepted_tags";
        let all = self.section.any_texts(KEY, "\"my-handle-v1\"", self.notes).unwrap_or_default();
        let (tags, empty): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, tag)| !tag.trim().is_empty());
        for (at, _) in empty {
            self.notes.error(at, format!("`{KEY}` must not contain an empty tag: remove it"));
        }
        tags.into_iter().map(|(_, tag)| tag.to_owned()).collect()
    }

    /// Returns the catalog entry for the provider, with the configured wire.
    fn row(&mut self) -> Option<Provider> {
        let Self { name, section, catalog, notes } = self;
        let wires: Vec<Wire> = CODECS.iter().map(|codec| codec.wire()).collect();
        let wires: Vec<(&str, &Wire)> = wires.iter().map(|wire| (wire.as_str(), wire)).collect();
        let wire = section.choice("wire", &wires, notes).cloned();
        if section.has("wire") && wire.is_none() {
            return None;
        }
        let kind = if section.has("kind") {
            let kind = section.text("kind", "anthropic", notes)?;
            let names: Vec<&str> = catalog.providers().iter().map(|row| &*row.name).collect();
            let close = did_you_mean(&closest(kind, names.iter().copied()));
            let expected = format_args!("one of {}{close}", names.join(", "));
            Some(section.parse("kind", |_| catalog.provider(kind), expected, notes)?)
        } else {
            catalog.provider(name)
        };
        let mut row = match (kind, wire) {
            (Some(kind), None) => Provider::clone(&kind),
            (Some(kind), Some(wire)) => match catalog.provider_on_wire(&kind.name, &wire) {
                Some(row) => Provider::clone(&row),
                None => generic_row(&kind.name, wire, catalog),
            },
            // A wire without a kind means an unknown vendor: on chat, the entry `compatible`.
            (None, Some(wire)) => generic_row(name, wire, catalog),
            (None, None) => {
                let message = format!(
                    "[providers.{name}] has no `kind`: write kind = \"anthropic\" or another \
                     provider, or set both `wire` and `base_url`"
                );
                notes.error(section.at, message);
                return None;
            }
        };
        if *row.name == *PLAIN {
            row.name = Name::from(*name);
        }
        Some(row)
    }

    /// Returns the base URL, and the environment variable that set the URL, if any. The file takes
    /// precedence over the variable, and the variable takes precedence over the catalog.
    fn address(&mut self, row: &Provider, region: Option<&str>) -> Option<(Name, Option<Name>)> {
        let Self { name, section, notes, .. } = self;
        if section.has("base_url") {
            let url = section.text("base_url", "https://host/v1", notes)?;
            // The value may contain a password, so the message does not repeat it.
            let expected = "an http or https URL without user name, password, query or braces: \
                            write base_url = \"https://host/v1\"";
            let parse = |_| is_address(url).then(|| Name::from(url.trim_end_matches('/')));
            return Some((section.parse("base_url", parse, expected, notes)?, None));
        }
        if let Some(base_url) = region.and_then(|region| in_region(row, region)) {
            return Some((base_url, None));
        }
        // Invalid variables are reported when the built-in providers are listed.
        if let Ok(Some(EnvAddress { base_url, variable })) = address_from_env(row, notes.variables)
        {
            return Some((base_url, Some(variable)));
        }
        if builtin::is_complete(&row.base_url) {
            return Some((Arc::clone(&row.base_url), None));
        }
        let example = if row.base_url.is_empty() { "https://host/v1" } else { &*row.base_url };
        let braces = if example.contains('{') { ", and replace the part in braces" } else { "" };
        let message =
            format!("[providers.{name}] needs an address: write base_url = \"{example}\"{braces}");
        notes.error(section.at, message);
        None
    }

    /// Reports AWS credentials for a provider whose requests are not signed.
    fn check_signing(&mut self, row: &Provider, own: &Credential, pool: Option<&PoolSettings>) {
        let is_aws = |credential: &Credential| {
            matches!(credential, Credential::Dynamic(CredentialSettings::Aws(_)))
        };
        let accounts = pool.iter().flat_map(|pool| &pool.accounts);
        let is_used = is_aws(own) || accounts.map(|account| &account.credential).any(is_aws);
        if is_used && row.wire != Wire::BEDROCK_CONVERSE {
            let message = "credentials = \"aws\" requires the wire bedrock-converse: write \
                           kind = \"bedrock\", or set `api_key_env`";
            self.notes.error(self.section.at, message);
        }
    }

    fn region(&mut self, row: &Provider) -> Option<&'s str> {
        const EXAMPLE: &str = "eu-west-1";
        let region = self.section.text("aws_region", EXAMPLE, self.notes)?;
        let problem = if in_region(row, EXAMPLE).is_none() {
            "`aws_region` applies to AWS only: write kind = \"bedrock\", or remove it"
        } else if in_region(row, region).is_none() {
            "`aws_region` must be an AWS region: write aws_region = \"eu-west-1\""
        } else {
            return Some(region);
        };
        self.notes.error(self.section.value_at("aws_region"), problem);
        None
    }
}

/// Builds a catalog entry for an endpoint whose wire is known but whose vendor is not.
fn generic_row(name: &str, wire: Wire, catalog: &Catalog) -> Provider {
    let like = catalog.provider_on_wire(PLAIN, &wire);
    Provider {
        name: Name::from(name),
        wire,
        base_url: Name::from(""),
        key_env: catalog.provider(name).and_then(|row| row.key_env.clone()),
        dialect: like.map_or_else(Dialect::default, |row| row.dialect.clone()),
        replay_plain: PlainReplay::default(),
    }
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let is_good =
        |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '{' | '}' | '\\');
    !host.is_empty() && !host.starts_with(':') && rest.chars().all(is_good)
}
