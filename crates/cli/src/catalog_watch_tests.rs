//! Tests of the watcher: which files it applies, and which it refuses.

use std::path::Path;

use throughline_codec::{Catalog, CatalogSecret, SignatureError, sign_catalog};

use super::{CatalogChange, CatalogWatcher};
use crate::config::{CatalogFileError, CatalogSettings, InstalledCatalog};

fn secret() -> CatalogSecret {
    "5".repeat(64).parse().unwrap()
}

/// Returns a signed catalog with one profile for `example-1`.
fn signed(version: &str, name: &str) -> String {
    let rows = format!("[[profile]]\nname = \"{name}\"\nmodels = [\"example-1\"]\n");
    sign_catalog(&format!("[catalog]\nversion = \"{version}\"\n{rows}"), &secret())
}

fn install(path: &Path, text: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(&part, path).unwrap();
}

#[test]
fn only_valid_newer_files_change_the_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog.toml");
    let trusted_keys = vec![secret().public_key()];
    let settings = CatalogSettings { file: Some(path.clone()), trusted_keys };
    let installed = InstalledCatalog::load(settings);
    let shared = installed.shared.clone();
    let family = || shared.current().profile("example-1").name.clone();
    let mut watcher = CatalogWatcher::new(installed);
    assert_eq!((watcher.check(), family()), (None, "unknown".to_owned()));

    let first = "2027-03-01".parse().unwrap();
    install(&path, &signed("2027-03-01", "first"));
    assert_eq!(watcher.check(), Some(CatalogChange::Updated(first)));
    assert_eq!((watcher.check(), family()), (None, "first".to_owned()));
    let in_flight = shared.current();

    let refused = |watcher: &mut CatalogWatcher, text: &str, error: CatalogFileError| {
        install(&path, text);
        assert_eq!(watcher.check(), Some(CatalogChange::Refused(error)));
        assert_eq!(watcher.check(), None, "a refusal is reported once");
        assert_eq!(family(), "first");
    };
    let valid = signed("2027-03-02", "second");
    let forged = valid.replace("second", "forged");
    refused(&mut watcher, &forged, SignatureError::Mismatch.into());
    refused(&mut watcher, &valid[..valid.len() - 9], SignatureError::Mismatch.into());
    refused(&mut watcher, "[catalog]\nversion = \"2027-03-02\"\n", SignatureError::Unsigned.into());
    let stranger: CatalogSecret = "6".repeat(64).parse().unwrap();
    let untrusted = SignatureError::Untrusted(stranger.public_key());
    refused(&mut watcher, &sign_catalog(&valid, &stranger), untrusted.into());
    let version = "2027-02-28".parse().unwrap();
    let older = CatalogFileError::OlderThanInstalled { version, installed: first };
    refused(&mut watcher, &signed("2027-02-28", "older"), older);
    refused(&mut watcher, &signed("2027-03-01", "other"), CatalogFileError::SameVersion(first));
    let version = "2020-01-01".parse().unwrap();
    let builtin = Catalog::builtin().version().unwrap();
    let oldest = CatalogFileError::OlderThanBuiltin { version, builtin };
    refused(&mut watcher, &signed("2020-01-01", "oldest"), oldest);

    install(&path, &valid);
    assert_eq!(watcher.check(), Some(CatalogChange::Updated("2027-03-02".parse().unwrap())));
    assert_eq!(family(), "second");
    assert_eq!(in_flight.profile("example-1").name, "first", "open requests keep their catalog");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(watcher.check(), Some(CatalogChange::Removed));
    assert_eq!((watcher.check(), family()), (None, "unknown".to_owned()));

    // The versions before the removed file stay refused.
    let (version, installed) = (first, "2027-03-02".parse().unwrap());
    install(&path, &signed("2027-03-01", "first"));
    let older = CatalogFileError::OlderThanInstalled { version, installed };
    assert_eq!(watcher.check(), Some(CatalogChange::Refused(older)));
    install(&path, &signed("2027-03-02", "other"));
    let changed = CatalogFileError::SameVersion(installed);
    assert_eq!(watcher.check(), Some(CatalogChange::Refused(changed)));
    assert_eq!(family(), "unknown");
    install(&path, &valid);
    assert_eq!(watcher.check(), Some(CatalogChange::Updated(installed)));
    assert_eq!(family(), "second");
}
