//! Checks the build profiles in the workspace's `Cargo.toml`.

use std::collections::BTreeSet;

use super::{assert_tidy, read};

/// The profiles `dist` and `bench` inherit the package overrides of `release`. A package without
/// its own override in `dist` would be optimised less than the rest of the binary.
#[test]
fn published_profiles_override_every_package_of_release() {
    let manifest: toml::Table = toml::from_str(&read("Cargo.toml")).expect("Cargo.toml is TOML");
    let packages = |profile: &str| -> BTreeSet<String> {
        let overrides = &manifest["profile"][profile]["package"];
        overrides.as_table().expect("overrides are a table").keys().cloned().collect()
    };
    let release = packages("release");
    assert!(!release.is_empty());
    let problems: Vec<String> = ["dist", "bench"]
        .iter()
        .flat_map(|profile| {
            let overridden = packages(profile);
            let missing: Vec<String> = release.difference(&overridden).cloned().collect();
            missing.into_iter().map(move |package| {
                format!("Cargo.toml: [profile.{profile}.package] has no entry for {package}")
            })
        })
        .collect();
    assert_tidy(&problems);
}
