//! Finds the objects that forms and uploaded files reference.
//!
//! A provider parses a form (`multipart/form-data`) field by field, and reads the requests of a
//! batch line by line from an uploaded file. Fields and lines can reference objects, so this module
//! parses both as strictly as a provider might. An ambiguous form is refused.

use bytes::Bytes;
use throughline_json::{Name, Tree};

use crate::gateway::objects::body::{ids_of_field, members_of, normalize_name, object_ids};
use crate::gateway::objects::{ObjectRef, parse_line};
use throughline_replay::Family;

/// One part of a multipart body.
struct FormPart {
    /// The name of the field; empty if the body is not a form.
    name: Name,
    is_file: bool,
    content: Bytes,
}

/// Returns the objects that a form or an uploaded file references. The error is a message for the
/// caller.
pub(crate) fn ids_in_form(
    family: Family,
    content_type: &str,
    body: &Bytes,
) -> Result<Vec<ObjectRef>, String> {
    let parts = parts(content_type, body)
        .map_err(|reason| format!("cannot read the multipart body: {reason}"))?;
    let is_batch = parts.iter().any(|part| {
        !part.is_file && &*part.name == "purpose" && part.content.trim_ascii() == b"batch"
    });
    let mut found = Vec::new();
    for part in &parts {
        if !part.is_file && !part.name.is_empty() {
            let value = String::from_utf8_lossy(part.content.trim_ascii());
            found.extend(ids_of_field(family, &part.name, &value));
        }
        found.extend(ids_in_lines(family, &part.content, is_batch && part.is_file)?);
    }
    Ok(found)
}

/// Returns the JSON that describes a file in a `multipart/related` body.
pub(crate) fn file_description(content_type: &str, body: &Bytes) -> Option<Tree> {
    let first = parts(content_type, body).ok()?.into_iter().next()?;
    Tree::parse(first.content).ok()
}

/// Returns the objects that the lines of an uploaded file reference. Every line of a batch must be
/// JSON. In other files, a line is refused if it starts like JSON, references an object and cannot
/// be parsed. A provider's parser might accept such a line.
pub(crate) fn ids_in_lines(
    family: Family,
    body: &Bytes,
    is_batch: bool,
) -> Result<Vec<ObjectRef>, String> {
    let mut found = Vec::new();
    let (mut start, mut number) = (0, 0);
    while start < body.len() {
        let rest = body.get(start..).unwrap_or_default();
        let end = memchr::memchr2(b'\n', b'\r', rest).map_or(body.len(), |at| start + at);
        let line = body.slice(start..end);
        start = end + 1;
        number += 1;
        match parse_line(&line) {
            Some(tree) => found.extend(object_ids(family, &tree)),
            None if is_batch && !line.trim_ascii().is_empty() => {
                return Err(format!("line {number} of the batch file is not a JSON object"));
            }
            None if names_object(family, &line) => {
                return Err(format!(
                    "line {number} of the file refers to a provider object but is not valid JSON, \
                     so the owner of the object cannot be checked"
                ));
            }
            None => {}
        }
    }
    Ok(found)
}

/// Returns whether a less strict parser might find an object reference in a line that is not JSON.
fn names_object(family: Family, line: &[u8]) -> bool {
    if line.trim_ascii_start().first() != Some(&b'{') {
        return false;
    }
    let text = String::from_utf8_lossy(line);
    text.contains("\\u")
        || text.split('"').any(|member| {
            let member = normalize_name(family, member.into());
            members_of(family).iter().any(|(name, _, _)| *name == &*member)
        })
}

/// Splits a `multipart/…` body into its parts.
fn parts(content_type: &str, body: &Bytes) -> Result<Vec<FormPart>, &'static str> {
    let (kind, parameters) =
        content_type.split_once(';').ok_or("the Content-Type header has no boundary")?;
    let is_form = kind.trim().eq_ignore_ascii_case("multipart/form-data");
    let mut boundaries = parse_parameters(parameters)?.into_iter();
    let mut boundaries = boundaries.by_ref().filter(|(name, _)| name == "boundary");
    let boundary = boundaries.next().map(|(_, value)| value).filter(|value| !value.is_empty());
    let boundary = boundary.ok_or("the Content-Type header has no boundary")?;
    if boundaries.next().is_some() {
        return Err("the Content-Type header has two boundaries");
    }
    let first = format!("--{boundary}");
    let between = format!("\r\n--{boundary}");
    let mut at = if body.starts_with(first.as_bytes()) {
        first.len()
    } else if body.starts_with(between.as_bytes()) {
        between.len()
    } else {
        return Err("the body does not begin with the boundary");
    };
    let mut parts = Vec::new();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        if !rest.starts_with(b"\r\n") {
            return Err("a boundary is not followed by a line break");
        }
        at += 2;
        let rest = body.get(at..).unwrap_or_default();
        let end = memchr::memmem::find(rest, between.as_bytes())
            .ok_or("a part has no closing boundary")?;
        parts.push(part(&body.slice(at..at + end), is_form)?);
        at += end + between.len();
    }
}

/// Parses a part: its headers, an empty line, and its content.
fn part(text: &Bytes, is_form: bool) -> Result<FormPart, &'static str> {
    let end = memchr::memmem::find(text, b"\r\n\r\n").ok_or("a part has no headers")?;
    let head = std::str::from_utf8(text.get(..end).unwrap_or_default());
    let head = head.map_err(|_| "a header of a part is not UTF-8")?;
    let content = text.slice(end + 4..);
    let mut dispositions = Vec::new();
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or("a part has a header without a colon")?;
        match &*name.trim().to_ascii_lowercase() {
            "content-disposition" => dispositions.push(value),
            "content-transfer-encoding"
                if !["binary", "8bit", "7bit"].contains(&&*value.trim().to_ascii_lowercase()) =>
            {
                return Err("a part has an unsupported Content-Transfer-Encoding");
            }
            _ => {}
        }
    }
    if !is_form {
        return Ok(FormPart { name: Name::from(""), is_file: true, content });
    }
    let [disposition] = *dispositions else {
        return Err("each part of the form must have exactly one name");
    };
    let (_, parameters) = disposition.split_once(';').ok_or("a part has no name")?;
    let parameters = parse_parameters(parameters)?;
    if parameters.iter().any(|(name, _)| name == "name*") {
        return Err("a part has an encoded name (`name*`), which is not supported");
    }
    let mut names = parameters.iter().filter(|(name, _)| name == "name");
    let (Some((_, name)), None) = (names.next(), names.next()) else {
        return Err("each part of the form must have exactly one name");
    };
    let is_file = parameters.iter().any(|(name, _)| name.starts_with("filename"));
    Ok(FormPart { name: Name::from(&**name), is_file, content })
}

/// Parses the parameters of a header: `name=value` and `name="value"`, separated by semicolons.
fn parse_parameters(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or("a parameter has no value")?;
        let name = name.trim().to_ascii_lowercase();
        let after = after.trim_start();
        let (value, left) = if let Some(quoted) = after.strip_prefix('"') {
            let mut value = String::new();
            let mut letters = quoted.char_indices();
            let end = loop {
                match letters.next() {
                    Some((at, '"')) => break at,
                    Some((_, '\\')) => value.extend(letters.next().map(|(_, letter)| letter)),
                    Some((_, letter)) => value.push(letter),
                    None => return Err("a quoted header parameter has no closing quote"),
                }
            };
            (value, quoted.get(end + 1..).unwrap_or_default())
        } else {
            let end = after.find(';').unwrap_or(after.len());
            let (value, left) = after.split_at(end);
            (value.trim().to_owned(), left)
        };
        found.push((name, value));
        let left = left.trim_start();
        rest = match left.strip_prefix(';') {
            Some(next) => next.trim_start(),
            None if left.is_empty() => "",
            None => return Err("unexpected text after a quoted header parameter"),
        };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const FORM: &str = "multipart/form-data; boundary=\"b\"";

    fn refs(family: Family, body: &str) -> Result<Vec<String>, String> {
        let found = ids_in_form(family, FORM, &Bytes::from(body.to_owned()))?;
        let text =
            |named: &ObjectRef| format!("{} {}", named.object.kind.as_str(), named.object.id);
        Ok(found.iter().map(text).collect())
    }

    fn field(name: &str, value: &str) -> String {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n--b--\r\n"
        )
    }

    #[test]
    fn form_fields_name_objects() {
        for (name, found) in [
            ("file_id", &["file x"][..]),
            ("file_ids[]", &["file x"]),
            ("chunking[file_id]", &["file x"]),
            ("container", &["container x"]),
            ("prompt", &[]),
            ("prompt[id]", &["prompt x"]),
            ("model", &[]),
        ] {
            assert_eq!(refs(Family::OpenAi, &field(name, "x")).unwrap(), found, "{name}");
        }
        assert_eq!(refs(Family::Anthropic, &field("thread", "x")).unwrap(), ["thread x"]);
    }

    #[test]
    fn batch_lines_must_be_json() {
        let form = |purpose: &str, file: &str| {
            format!(
                "--b\r\ncontent-disposition: form-data; name=purpose\r\n\r\n{purpose}\r\n--b\r\n\
                 content-disposition: form-data; name=\"file\"; filename=\"a;b.jsonl\"\r\n\
                 content-type: application/jsonl\r\n\r\n{file}\r\n--b--\r\n"
            )
        };
        let line = r#"{"body":{"previous_response_id":"r"}}"#;
        assert_eq!(refs(Family::OpenAi, &form("batch", line)).unwrap(), ["response r"]);
        let two = form("batch", &format!("{line}\r{line}\n\n"));
        assert_eq!(refs(Family::OpenAi, &two).unwrap().len(), 2);
        for lax in [r#"{"file_id":"x","y":NaN}"#, "text", "\u{feff}[1]"] {
            assert!(refs(Family::OpenAi, &form("batch", lax)).is_err(), "{lax}");
        }
        let other = |file: &str| refs(Family::OpenAi, &form("user_data", file));
        assert!(other("text\n{\n  \"any\": 1,\n}\n").is_ok());
        assert!(other(r#"{"file_id":"x","y":NaN}"#).is_err());
        assert!(other(r#"{"file\u005fid":"x","y":NaN}"#).is_err());
    }

    #[test]
    fn ambiguous_forms_are_refused() {
        let ambiguous = [
            "--c\r\n\r\n\r\n--c--",
            "preamble\r\n--b\r\n\r\n\r\n--b--",
            "--b\r\ncontent-disposition: form-data\r\n\r\nx\r\n--b--",
            "--b\r\ncontent-disposition: form-data; name=a; name=file_id\r\n\r\nx\r\n--b--",
            "--b\r\ncontent-disposition: form-data; name*=utf-8''file_id\r\n\r\nx\r\n--b--",
            "--b\r\ncontent-disposition: form-data; name=a\r\n\r\nx",
            "--b\r\ncontent-disposition: form-data; name=\"a\r\n\r\nx\r\n--b--",
            "--b\r\ncontent-disposition: form-data; name=a\r\ncontent-transfer-encoding: base64\r\n\r\nx\r\n--b--",
        ];
        for body in ambiguous {
            assert!(refs(Family::OpenAi, body).is_err(), "{body}");
        }
        let body = Bytes::from(field("file_id", "x"));
        for kind in ["multipart/form-data", "multipart/form-data; boundary=b; boundary=c"] {
            assert!(ids_in_form(Family::OpenAi, kind, &body).is_err(), "{kind}");
        }
    }
}
