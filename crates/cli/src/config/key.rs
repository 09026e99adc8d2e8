//! Parses the API keys of providers and accounts, and the names of the variables that hold keys.

use throughline_codec::is_variable_name;
use throughline_core::Credential as Key;
use throughline_json::Name;
use throughline_tools::reader::{Diagnostics, Section};

use super::routes::Credential;

/// Returns the credential in the section; `None` if the section configures no credential. `owner`
/// is what the section describes, for messages.
pub(super) fn own_key(
    section: &Section<'_>,
    owner: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    if section.has("api_key") && section.has("api_key_env") {
        let message = "both `api_key` and `api_key_env` are set: keep only one, \
                       preferably the variable";
        notes.error(section.key_at("api_key"), message);
    }
    let (key, variable, at, key_source) = match section.text("api_key", "…", notes) {
        Some(key) => (key.to_owned(), None, section.value_at("api_key"), "`api_key`".to_owned()),
        None => {
            let name = variable_name("api_key_env", section, notes)?;
            let (at, variable) = (section.value_at("api_key_env"), Name::from(name));
            let shown = shown_variable(name);
            let Some(key) = (notes.variables)(name) else {
                let message = format!("{shown} is not set; this {owner} cannot be used without it");
                notes.warning(at, message);
                return Some(Credential::Missing { variable });
            };
            (key.trim().to_owned(), Some(variable), at, format!("the key in {shown}"))
        }
    };
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        let message = format!(
            "{key_source} contains a character that is invalid in an HTTP header: copy the key again"
        );
        notes.error(at, message);
    }
    Some(Credential::Own { key: Key::new(key), variable })
}

/// Reads a setting that names an environment variable. If the value looks like a secret, the error
/// message omits the value.
pub(super) fn variable_name<'s>(
    key: &str,
    section: &Section<'s>,
    notes: &mut Diagnostics<'_>,
) -> Option<&'s str> {
    let name = section.text(key, "WORK_KEY", notes)?;
    let is_name = is_variable_name(name);
    let expected =
        format_args!("the name of a variable, not the secret itself: write {key} = \"WORK_KEY\"");
    section.parse(key, |_| is_name.then_some(name), expected, notes)
}

/// Formats the name of an environment variable for display. A value that does not look like a name
/// is hidden, because it may be a misplaced secret.
pub(crate) fn shown_variable(name: &str) -> String {
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_word = name.contains('_') || !name.contains(|c: char| c.is_ascii_digit());
    if name.len() <= 60 && is_word && name.chars().all(is_usual) {
        format!("${name}")
    } else {
        "a variable whose name looks like a secret".to_owned()
    }
}
