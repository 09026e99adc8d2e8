//! Parses request headers from command-line options. Credentials are rejected, so that no output
//! can contain them.

use throughline_json::Name;

use crate::print::failure::{Failure, Result};

/// Parts of header names that indicate a credential.
const SECRET_NAMES: [&str; 8] =
    ["auth", "key", "token", "cookie", "secret", "password", "credential", "x-amz-s"];

/// Prefixes of values that indicate a credential.
const SECRET_VALUES: [&str; 8] =
    ["bearer ", "basic ", "sk-", "sk_", "xai-", "gsk_", "aiza", "aws4-hmac"];

/// Parses headers written as `NAME: VALUE`.
pub(crate) fn parse(headers: &[String]) -> Result<Vec<(Name, Name)>> {
    headers.iter().enumerate().map(|(index, header)| parse_header(index + 1, header)).collect()
}

fn parse_header(number: usize, header: &str) -> Result<(Name, Name)> {
    // Messages never repeat the value, because a malformed header may still be a key.
    let pair = header.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
    let pair = pair.filter(|(name, _)| !name.is_empty() && name.bytes().all(is_token));
    let Some((name, value)) = pair else {
        let form = "must have the form 'NAME: VALUE'";
        return Err(Failure::Usage(format!("--header number {number} {form}")));
    };
    let (lower, begins) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
    let is_secret = SECRET_NAMES.iter().any(|word| lower.contains(word))
        || SECRET_VALUES.iter().any(|start| begins.starts_with(start));
    if is_secret {
        return Err(Failure::Usage(format!(
            "--header `{name}` looks like a credential; omit this header: this command sends no \
             request, and your shell history would keep the credential"
        )));
    }
    Ok((Name::from(name), Name::from(value)))
}

/// Returns whether HTTP allows the byte in a header name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
