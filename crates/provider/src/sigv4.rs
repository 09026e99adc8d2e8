//! AWS Signature Version 4 for Bedrock.
//!
//! Before signing, each segment of the request path is escaped once more, as every service except
//! S3 requires.

use std::collections::BTreeMap;
use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use throughline_core::Credential;
use throughline_json::Name;

/// Access keys of an AWS account or role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    /// Access key id, which is not secret.
    pub id: Name,
    /// Secret access key, which signs requests.
    pub secret: Credential,
    /// Session token, which is required for a role's temporary keys.
    pub session_token: Option<Credential>,
    /// Region for signatures if the host does not contain one.
    pub region: Option<Name>,
}

/// The parts of a request that the signature covers.
pub(crate) struct SignedParts<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Additional headers to sign, with lower-case names.
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
}

/// Extracts the region from an AWS host such as `bedrock-runtime.eu-west-1.amazonaws.com`.
pub(crate) fn region_from_host(host: &str) -> Option<&str> {
    host.split('.').find(|label| {
        let mut parts = label.split('-').rev();
        let digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let letters =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
        parts.next().is_some_and(digits) && parts.clone().count() >= 2 && parts.all(letters)
    })
}

/// Returns the headers that authenticate a request.
pub(crate) fn sign(
    keys: &AwsKeys,
    region: &str,
    service: &str,
    at: Timestamp,
    request: &SignedParts<'_>,
) -> Vec<(&'static str, String)> {
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = at.strftime("%Y%m%d").to_string();
    let mut added = vec![("x-amz-date", time.clone())];
    if let Some(token) = &keys.session_token {
        added.push(("x-amz-security-token", token.reveal().to_owned()));
    }
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    let request_headers = request.headers.iter().copied();
    for (name, value) in
        request_headers.chain(added.iter().map(|(name, value)| (*name, value.as_str())))
    {
        headers.insert(name, value.split_whitespace().collect::<Vec<&str>>().join(" "));
    }
    let signed = headers.keys().copied().collect::<Vec<&str>>().join(";");
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let digest = hex(&Sha256::digest(canonical(request, &headers, &signed)));
    let text_to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let secret = format!("AWS4{}", keys.secret.reveal());
    let key = [day.as_str(), region, service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac(&key, part.as_bytes()));
    let signature = hex(&hmac(&key, text_to_sign.as_bytes()));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
        keys.id
    );
    added.push(("authorization", authorization));
    added
}

fn canonical(request: &SignedParts<'_>, headers: &BTreeMap<&str, String>, signed: &str) -> String {
    let path: Vec<String> = request.path.split('/').map(escaped).collect();
    let mut query: Vec<(&str, &str)> = request
        .query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{}\n{}\n{}\n", request.method, path.join("/"), query.join("&"));
    for (name, value) in headers {
        text.push_str(&[*name, ":", value, "\n"].concat());
    }
    text.push_str(&["\n", signed, "\n", &hex(&Sha256::digest(request.body))].concat());
    text
}

/// Percent-encodes a path segment except for unreserved characters.
fn escaped(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            append(&mut text, format_args!("%{byte:02X}"));
        }
    }
    text
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length, so this cannot fail.
    let mac = Hmac::<Sha256>::new_from_slice(key);
    mac.map(|mac| mac.chain_update(text).finalize().into_bytes().to_vec()).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        append(&mut text, format_args!("{byte:02x}"));
    }
    text
}

fn append(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    text.write_fmt(more).unwrap_or_default();
}

#[cfg(test)]
#[path = "sigv4_tests.rs"]
mod sigv4_tests;
