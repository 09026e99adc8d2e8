//! `throughline rules`: lists the audit rules.

pub(crate) mod example;
mod page;
mod rule_page;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_codec::{CODECS, Catalog, Rule, put_evidence};
use throughline_core::{Origin, Profile, Provider, Target, Wire};
use throughline_json::{self as json, Name};

use crate::args::Rules;
use crate::cmd::report::{sentence, style_of};
use crate::config::load_catalog;
use crate::input::rows::RequestCatalog;
use crate::print::failure::Result;
use crate::print::listing::{Cell, Column, table_in};
use crate::print::text;

pub(crate) fn run(options: &Rules) -> Result<()> {
    if let Some(folder) = &options.pages {
        return write_pages(folder, &RequestCatalog::read(&options.catalog, None)?);
    }
    let is_wanted = |wire: &Wire| options.wire.as_ref().is_none_or(|wanted| wire == wanted);
    let codecs = CODECS.iter().filter(|codec| is_wanted(&codec.wire()));
    let wires: Vec<&[&'static Rule]> = codecs.map(|codec| codec.rules()).collect();
    let catalog = &load_catalog(options.catalog.config.as_deref())?.shared.current();
    if options.markdown {
        let page = match (&options.wire, wires.first()) {
            (Some(_), Some(rules)) => page::wire(rules, catalog),
            (Some(_) | None, _) => page::questions(&wires, catalog),
        };
        return text::write_out(page.as_bytes());
    }
    options.format.print(|| tables(&wires, catalog), || json_of(&wires, catalog))
}

/// Writes the page of each rule to `FOLDER/ID.md`.
fn write_pages(folder: &Path, rows: &RequestCatalog) -> Result<()> {
    for rule in all() {
        let file = folder.join(format!("{}.md", rule.id));
        let parent = file.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        text::write_file(&file, rule_page::page(rule, rows).as_bytes())?;
    }
    let pages = text::count(all().count(), "page");
    text::note(&format!("{pages} written to {}", folder.display()));
    Ok(())
}

pub(crate) fn all() -> impl Iterator<Item = &'static Rule> + Clone {
    CODECS.iter().flat_map(|codec| codec.rules().iter().copied())
}

/// Model families and providers that a rule applies to.
pub(crate) struct Scope<'c> {
    catalog: &'c Catalog,
    pub(crate) profiles: BTreeSet<Name>,
    pub(crate) providers: BTreeSet<Name>,
    applies_to_all_families: bool,
    applies_to_all_endpoints: bool,
}

impl<'c> Scope<'c> {
    /// Determines the scope by evaluating the rule for each model family at each endpoint that uses
    /// the rule's wire.
    pub(crate) fn for_rule(rule: &Rule, catalog: &'c Catalog) -> Self {
        let rows = catalog.providers().iter().filter(|row| row.wire == rule.wire);
        let (mut profiles, mut providers) = (BTreeSet::new(), BTreeSet::new());
        for row in rows.clone() {
            for profile in catalog.profiles() {
                if (rule.applies)(&target(catalog, row, profile)) {
                    profiles.insert(Name::from(profile.name.as_str()));
                    providers.insert(Arc::clone(&row.name));
                }
            }
        }
        Self {
            catalog,
            applies_to_all_families: profiles.len() == catalog.profiles().len(),
            applies_to_all_endpoints: providers.len() == rows.count(),
            profiles,
            providers,
        }
    }

    /// Describes the scope, as in `claude* (not claude-3)` or `every model at deepseek`. If more
    /// than two vendors match, only the families of one vendor are named: the vendor in the rule's
    /// example.
    pub(crate) fn phrase(&self, rule: &Rule) -> String {
        let example = self.catalog.profile(rule.example.model);
        let own = stem(&example.name);
        let vendors: BTreeSet<&str> = self.profiles.iter().map(|name| stem(name)).collect();
        let is_crowd = vendors.len() > 2 && vendors.contains(own);
        let families = if self.profiles.is_empty() {
            "no model of the catalog".to_owned()
        } else if self.applies_to_all_families {
            "every model".to_owned()
        } else if is_crowd {
            let theirs = self.profiles.iter().filter(|name| stem(name) == own);
            let theirs = families(&theirs.cloned().collect(), self.catalog);
            format!("{theirs} and models of other vendors")
        } else {
            families(&self.profiles, self.catalog)
        };
        if self.applies_to_all_endpoints || self.providers.is_empty() {
            return families;
        }
        let endpoints: Vec<&str> = self.providers.iter().map(AsRef::as_ref).collect();
        format!("{families} at {}", endpoints.join(", "))
    }
}

/// Returns the target for a model family at a provider's endpoint.
fn target(catalog: &Catalog, row: &Arc<Provider>, profile: &Arc<Profile>) -> Target {
    let model = profile.models.first().map_or(&*profile.name, String::as_str).replace('*', "");
    let target = catalog.target(row, &model, "default");
    let family = Name::from(profile.name.as_str());
    let origin = Arc::new(Origin { family, ..Origin::clone(&target.origin) });
    Target { origin, profile: Arc::clone(profile), ..target }
}

/// Lists family names. If most families of a vendor are in the list, they are abbreviated as
/// `vendor*`.
fn families(chosen: &BTreeSet<Name>, catalog: &Catalog) -> String {
    let known: Vec<&str> = catalog.profiles().iter().map(|row| &*row.name).collect();
    let stems: BTreeSet<&str> = chosen.iter().map(|name| stem(name)).collect();
    let phrases = stems.iter().map(|vendor| {
        let theirs = known.iter().copied().filter(|name| stem(name) == *vendor);
        let (selected, others): (Vec<&str>, Vec<&str>) =
            theirs.partition(|name| chosen.contains(*name));
        // The general profile of a vendor has the vendor's name.
        let listed = |names: &[&str]| -> String {
            let shown = names.iter().map(|name| match name {
                general if *general == *vendor && selected.len() + others.len() > 1 => {
                    format!("{vendor} models without a version")
                }
                name => (*name).to_owned(),
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        match others.len() {
            0 if selected.len() > 1 => format!("{vendor}*"),
            excluded_count if excluded_count > 0 && excluded_count * 2 < selected.len() => {
                format!("{vendor}* (not {})", listed(&others))
            }
            _ => listed(&selected),
        }
    });
    phrases.collect::<Vec<_>>().join(", ")
}

/// Returns the vendor part of a family name: the letters at its start.
fn stem(name: &str) -> &str {
    let end = name.find(|c: char| !c.is_alphabetic()).unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}

fn tables(wires: &[&[&'static Rule]], catalog: &Catalog) -> String {
    let width = text::width(std::io::stdout());
    let mut out = String::new();
    for rules in wires {
        let Some(first) = rules.first() else { continue };
        let count = text::count(rules.len(), "rule");
        let wire = first.wire.as_str().bold().to_string();
        text::push_line(&mut out, &format!("{wire}  {}", count.dimmed()));
        let severity = |rule: &&Rule| Cell::styled(rule.severity.as_str(), style_of(rule.severity));
        let scope = |rule: &&Rule| Scope::for_rule(rule, catalog).phrase(rule);
        let columns = vec![
            Column::numbers("", rules.iter().map(severity)).unwrapped(),
            Column::new("", rules.iter().map(|rule| rule.id)).unwrapped(),
            Column::new("", rules.iter().map(|rule| sentence(rule.title))),
            Column::new("", rules.iter().map(scope)).dimmed(),
        ];
        text::push_line(&mut out, &table_in(columns, width));
    }
    let hint = "throughline explain RULE".bold().to_string();
    if out.is_empty() {
        out.push_str("there are no rules for this wire\n");
    } else {
        text::push_line(&mut out, &format!("{hint} explains a rule"));
    }
    out
}

fn json_of(wires: &[&[&'static Rule]], catalog: &Catalog) -> Vec<Value> {
    let rule = |rule: &&Rule| {
        let (scope, example) = (Scope::for_rule(rule, catalog), &rule.example);
        json!({
            "id": rule.id,
            "wire": rule.wire.as_str(),
            "severity": rule.severity.as_str(),
            "title": rule.title,
            "why": rule.why,
            "provider_error": rule.provider_error,
            "fix": rule.fix,
            "url": rule.url(),
            "profiles": scope.profiles,
            "providers": scope.providers,
            "evidence": json::array(|a| put_evidence(a, rule)),
            "example": {
                "provider": example.provider,
                "model": example.model,
                "prior": example.prior,
                "failing": example.failing,
                "fixed": example.fixed,
            },
        })
    };
    wires.iter().flat_map(|rules| rules.iter()).map(rule).collect()
}
