//! Tool names that every provider accepts: 1 to 64 letters, digits, `_` or `-`, not starting with a
//! digit or `-`.

use throughline_json::Name;

/// Maximum length of a tool name that every provider accepts.
const LONGEST: usize = 64;

/// Length of the digest at the end of a tool name that had to be changed.
const DIGEST: usize = 8;

/// Returns the name that models use to call a server's tool: `server__tool`. A name that had to be
/// changed ends with a digest of the original name, so that names stay distinct.
pub(crate) fn tool_name(server: &str, tool: &str) -> Name {
    let full_name = format!("{server}__{tool}");
    if is_valid(&full_name) {
        return full_name.into();
    }
    let digest = blake3::hash(format!("{server}\0{tool}").as_bytes()).to_hex();
    let digest = digest.get(..DIGEST).unwrap_or_default();
    let mut name: String =
        full_name.chars().map(|c| if is_valid_char(c) { c } else { '_' }).collect();
    if !name.starts_with(is_valid_start) {
        name.insert(0, '_');
    }
    name.truncate(LONGEST - DIGEST - 1);
    format!("{name}_{digest}").into()
}

/// Returns whether every provider accepts the name.
pub(crate) fn is_valid(name: &str) -> bool {
    name.len() <= LONGEST && name.starts_with(is_valid_start) && name.chars().all(is_valid_char)
}

/// Returns whether a server may have this name. The name becomes a prefix of the server's tool
/// names, so it must leave room for them.
pub(crate) fn is_valid_server(name: &str) -> bool {
    is_valid(name) && name.len() <= 32 && !name.contains("__")
}

fn is_valid_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_valid_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod name_tests {
    use super::{is_valid, tool_name};

    #[test]
    fn valid_names_are_unchanged() {
        assert_eq!(&*tool_name("files", "read_file"), "files__read_file");
    }

    #[test]
    fn changed_names_stay_distinct() {
        let long = "x".repeat(80);
        let longer = format!("{long}y");
        let names = [
            tool_name("files", "read.file"),
            tool_name("files", "read/file"),
            tool_name("files", "lies das Blatt"),
            tool_name("files", &long),
            tool_name("files", &longer),
            tool_name("7", "zip"),
            tool_name("файлы", "читать"),
        ];
        for (position, name) in names.iter().enumerate() {
            assert!(is_valid(name), "{name}");
            assert!(!names[..position].contains(name), "{name}");
        }
        assert_eq!(tool_name("files", &long), tool_name("files", &long));
    }
}
