//! JSON reports of audits, repairs and translations, shared by the command line and the HTTP API.
//!
//! Reports show the length and owner of a Seal, never its bytes.

use throughline_core::{Body, Call, Disposition, EncodedRequest, Item};
use throughline_json::{self as json, Json};

use crate::audit::{Audit, Finding, Rule};
use crate::repair::AppliedFix;

/// The minimum length in bytes at which a base64-like word is shortened.
const LONG: usize = 80;

/// Formats an audit as JSON: the wire, model, verdict and findings.
pub fn audit_json(audited: &Audit) -> Json {
    json::object(|o| {
        o.string("wire", audited.wire.as_str()).string("model", &audited.model);
        o.string("verdict", audited.verdict().as_str());
        o.object("summary", |o| audited.summary.write(o));
        o.array("findings", |a| {
            for finding in &audited.findings {
                a.object(|o| put_finding(o, finding));
            }
        });
    })
}

fn put_finding(o: &mut json::Object<'_>, finding: &Finding) {
    o.string("rule", finding.rule.id).string("severity", finding.severity.as_str());
    o.string("path", &finding.path).string("message", &shorten_opaque_words(&finding.message));
    match &finding.provider_error {
        Some(error) => o.string("provider_error", &shorten_opaque_words(error)),
        None => o.null("provider_error"),
    };
    o.string("fix", &finding.fix).string("url", &finding.rule.url());
    o.array("evidence", |a| put_evidence(a, finding.rule));
}

/// Writes the evidence for a rule. Each source has a `url`, or a `source` name if it has no URL.
pub fn put_evidence(a: &mut json::Array<'_>, rule: &Rule) {
    for source in rule.evidence {
        a.object(|o| {
            o.string("kind", source.kind.as_str());
            match source.url() {
                Some(url) => o.string("url", url),
                None => o.string("source", source.at),
            };
        });
    }
}

/// Formats the changes that a repair made as a JSON array.
pub fn applied_fixes_json(fixes: &[AppliedFix]) -> Json {
    json::array(|a| {
        for change in fixes {
            a.object(members! {
                "rule": change.rule.id, "path": change.path,
                "message": shorten_opaque_words(&change.message),
                "change": shorten_opaque_words(&change.what),
            });
        }
    })
}

/// Formats the target of a translated request and the Fate of each Item and Seal as JSON.
pub fn fates_json(call: &Call, encoded: &EncodedRequest) -> Json {
    json::object(|o| {
        o.string("wire", call.target.origin.wire.as_str());
        o.string("provider", &call.target.origin.provider).string("model", call.target.model());
        o.string("path", &encoded.request.path);
        o.array("fates", |a| {
            for (item, fate) in call.system.iter().chain(&call.items).zip(&encoded.fates) {
                a.object(|o| {
                    o.string("item", &fate.item.0).string("description", &describe(item));
                    put_disposition(o, "visible", &fate.visible);
                    o.array("seals", |a| {
                        for (seal, did) in item.seals.iter().zip(&fate.seals) {
                            a.object(|o| {
                                o.string("format", &seal.format).number("bytes", seal.len() as u64);
                                o.string("owner", &seal.owner.provider);
                                put_disposition(o, "did", did);
                            });
                        }
                    });
                });
            }
        });
        o.array("warnings", |a| {
            for warning in &encoded.warnings {
                a.object(members! { "setting": warning.setting, "message": warning.message });
            }
        });
    })
}

fn put_disposition(o: &mut json::Object<'_>, key: &str, did: &Disposition) {
    o.string(key, did.as_str());
    let (suffix, reason) = match did {
        Disposition::Kept => return,
        Disposition::Restored(evidence) => ("evidence", evidence.to_string()),
        Disposition::Reshaped(how) => ("how", how.to_string()),
        Disposition::Elided(why) => ("why", why.to_string()),
    };
    o.string(&format!("{key}_{suffix}"), &reason);
}

/// Describes an Item in a few words. The text is not escaped; callers that write to a terminal must
/// sanitise it.
pub fn describe(item: &Item) -> String {
    let short = |text: &str| {
        let joined: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = joined.chars().take(40).collect();
        let dots = if joined.chars().count() > 40 { "…" } else { "" };
        format!("{cut}{dots}")
    };
    match &item.body {
        Body::Text(text) if text.trim().is_empty() => "empty text".to_owned(),
        Body::Text(text) | Body::Summary { text, .. } => short(text),
        Body::Thought(thought) if thought.content.is_empty() => "sealed thought".to_owned(),
        Body::Thought(thought) => format!("thought: {}", short(&thought.content)),
        Body::Call(call) => format!("call {}", call.name),
        Body::Result(result) => format!("result of {}", result.call.0),
        Body::Hosted(hosted) if hosted.is_result => format!("result of {}", hosted.name),
        Body::Hosted(hosted) => format!("hosted {}", hosted.name),
        Body::Media(_) => "media".to_owned(),
        Body::Compaction => "compaction".to_owned(),
        Body::Unknown => "unknown".to_owned(),
    }
}

/// Shortens long base64-like words, because some clients hide Seals in call ids.
pub fn shorten_opaque_words(text: &str) -> String {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_letter) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|c| !is_letter(c)).unwrap_or(word.len()));
        shown.push_str(before);
        // Keep URLs readable.
        if word.len() < LONG || before.ends_with("://") || word.contains("//") {
            shown.push_str(word);
        } else {
            shown.extend(["‹", &size(word.len()), "›"]);
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Formats a number of bytes with a unit, for display.
pub fn size(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal place is shown")]
    let bytes_f = bytes as f64;
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} KB", bytes_f / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes_f / 1e6),
        1_000_000_000.. => format!("{:.1} GB", bytes_f / 1e9),
    }
}
