//! Names that every provider takes: letters, digits, `_` and `-`, at most 64 of them, and no digit or `-` first.

use throughline_core::Name;

/// The longest name that every provider takes.
const LONGEST: usize = 64;

/// How much of a digest stands in a name that had to be changed.
const DIGEST: usize = 8;

/// What a model calls a server's tool: `server__tool`. A name that had to be changed ends in a digest of what it was, so
/// that no two tools of a server have the same.
pub(crate) fn joined(server: &str, tool: &str) -> Name {
    let wanted = format!("{server}__{tool}");
    if is_good(&wanted) {
        return wanted.into();
    }
    let digest = blake3::hash(format!("{server}\0{tool}").as_bytes()).to_hex();
    let digest = digest.get(..DIGEST).unwrap_or_default();
    let mut name: String = wanted.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
    if !name.starts_with(begins) {
        name.insert(0, '_');
    }
    name.truncate(LONGEST - DIGEST - 1);
    format!("{name}_{digest}").into()
}

/// Whether every provider takes the name.
pub(crate) fn is_good(name: &str) -> bool {
    name.len() <= LONGEST && name.starts_with(begins) && name.chars().all(is_taken)
}

fn begins(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_taken(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod name_tests {
    use super::{is_good, joined};

    #[test]
    fn names_are_kept_where_every_provider_takes_them() {
        assert_eq!(&*joined("files", "read_file"), "files__read_file");
    }

    #[test]
    fn names_that_had_to_be_changed_stay_apart() {
        let long = "x".repeat(80);
        let longer = format!("{long}y");
        let names = [
            joined("files", "read.file"),
            joined("files", "read/file"),
            joined("files", "lies das Blatt"),
            joined("files", &long),
            joined("files", &longer),
            joined("7", "zip"),
            joined("файлы", "читать"),
        ];
        for (position, name) in names.iter().enumerate() {
            assert!(is_good(name), "{name}");
            assert!(!names[..position].contains(name), "{name}");
        }
        assert_eq!(joined("files", &long), joined("files", &long));
    }
}
