//! Checks the rules in `deny.toml` offline: with `cargo deny` if it is installed, else with `cargo
//! metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use throughline_testkit::workspace_root;

use crate::{assert_tidy, read};

#[test]
fn dependencies_keep_the_rules_of_deny_toml() {
    let cargo = |arguments: &[&str]| {
        Command::new("cargo").args(arguments).current_dir(workspace_root()).output()
    };
    if cargo(&["deny", "--version"]).is_ok_and(|version| version.status.success()) {
        println!("FIGURE deny.toml checked by: cargo deny");
        let arguments = ["deny", "--offline", "check", "bans", "licenses", "sources"];
        let checked = cargo(&arguments).expect("cargo runs");
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "cargo deny: {errors}");
        return;
    }
    println!("FIGURE deny.toml checked by: cargo metadata");
    // Without a platform filter, cargo needs packages for other platforms, which a build never
    // downloads.
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let arguments = ["metadata", "--format-version", "1", "--offline", "--locked"];
    let metadata = cargo(&[&arguments[..], &["--filter-platform", host]].concat());
    let metadata = metadata.expect("cargo runs");
    let errors = String::from_utf8_lossy(&metadata.stderr).into_owned();
    assert!(metadata.status.success(), "cargo metadata: {errors}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("cargo prints JSON");
    let rules: toml::Table = toml::from_str(&read("deny.toml")).expect("deny.toml is TOML");
    let mut problems = banned_dependencies(&metadata, &rules);
    problems.extend(refused_licences(&metadata, &rules));
    problems.extend(foreign_sources(&metadata));
    assert_tidy(&problems);
}

/// Returns the dependencies on banned crates. A crate that is listed as a wrapper of a banned crate
/// may depend on it.
fn banned_dependencies(metadata: &Value, rules: &toml::Table) -> Vec<String> {
    let names = package_names(metadata);
    let bans = rules.get("bans").and_then(|bans| bans.get("deny")).and_then(toml::Value::as_array);
    let mut problems = Vec::new();
    for ban in bans.into_iter().flatten() {
        let name = ban.get("crate").and_then(toml::Value::as_str).unwrap_or_default();
        let wrappers = ban.get("wrappers").and_then(toml::Value::as_array);
        let wrappers: BTreeSet<&str> =
            wrappers.into_iter().flatten().filter_map(toml::Value::as_str).collect();
        for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
            let user = names.get(node["id"].as_str().unwrap_or_default());
            let user = user.copied().unwrap_or_default();
            let depends = node["deps"].as_array().into_iter().flatten().any(|dependency| {
                let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
                let is_built = kinds.into_iter().any(|kind| kind["kind"] != "dev");
                is_built && names.get(dependency["pkg"].as_str().unwrap_or_default()) == Some(&name)
            });
            if depends && !wrappers.contains(user) {
                problems.push(format!(
                    "{user} depends on {name}, which deny.toml allows only in {wrappers:?}"
                ));
            }
        }
    }
    problems
}

/// Returns the packages whose licence is not allowed.
fn refused_licences(metadata: &Value, rules: &toml::Table) -> Vec<String> {
    let allowed = rules.get("licenses").and_then(|licences| licences.get("allow"));
    let allowed: BTreeSet<&str> = allowed
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or_default();
            let is_allowed = is_licence_allowed(licence, &allowed);
            (!is_allowed).then(|| format!("{} has the licence `{licence}`", package["name"]))
        })
        .collect()
}

/// Evaluates a licence expression with `OR`, `AND` and parentheses. Old packages use `/` for `OR`.
fn is_licence_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    split_outside(expression, " OR ").iter().any(|alternative| {
        split_outside(alternative, " AND ").iter().all(|part| {
            let part = part.trim();
            match part.strip_prefix('(').and_then(|part| part.strip_suffix(')')) {
                Some(inner) => is_licence_allowed(inner, allowed),
                None => allowed.contains(part),
            }
        })
    })
}

/// Splits a text at each separator that is outside parentheses.
fn split_outside(text: &str, separator: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for piece in text.split_inclusive(separator) {
        let last = parts.last_mut().expect("there is a part");
        last.push_str(piece);
        let is_closed = last.matches('(').count() == last.matches(')').count();
        if is_closed && let Some(bare) = last.strip_suffix(separator) {
            *last = bare.to_owned();
            parts.push(String::new());
        }
    }
    parts
}

/// Returns the packages that come neither from the workspace nor from a registry.
fn foreign_sources(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| {
            package["source"].as_str().is_some_and(|source| !source.starts_with("registry+"))
        })
        .map(|package| format!("{} comes from {}", package["name"], package["source"]))
        .collect()
}

fn package_names(metadata: &Value) -> BTreeMap<&str, &str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect()
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Unicode-3.0"]);
    for (expression, is_allowed) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(is_licence_allowed(expression, &allowed), is_allowed, "{expression}");
    }
}
