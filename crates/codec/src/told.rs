//! What the doctor says, as JSON: the same words for the command line and for whoever asks over HTTP.
//!
//! Seals are told by their length and owner, never by their bytes.

use throughline_core::{Body, Call, Did, Encoded, Item, Json, json};

use crate::audit::{Audit, Finding, Rule};
use crate::repair::Mended;

/// From this many letters on, a word that looks like base64 is not read by people.
const LONG: usize = 80;

/// The verdict on a request, and what was found in it.
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
    o.string("path", &finding.path).string("message", &without_long_words(&finding.message));
    match &finding.provider_error {
        Some(error) => o.string("provider_error", &without_long_words(error)),
        None => o.null("provider_error"),
    };
    o.string("fix", &finding.fix);
    o.array("evidence", |a| put_evidence(a, finding.rule));
}

/// How a rule is known: by a `url`, or by a `source` that has none.
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

/// What was changed so that a request is taken.
pub fn mended_json(mended: &[Mended]) -> Json {
    json::array(|a| {
        for change in mended {
            a.object(|o| {
                o.string("rule", change.rule.id).string("path", &change.path);
                o.string("message", &without_long_words(&change.message));
                o.string("change", &without_long_words(&change.what));
            });
        }
    })
}

/// Whom a translated request is for, and what became of each Item and Seal on the way.
pub fn fates_json(call: &Call, encoded: &Encoded) -> Json {
    json::object(|o| {
        o.string("wire", call.target.origin.wire.as_str());
        o.string("provider", &call.target.origin.provider).string("model", call.target.model());
        o.string("path", &encoded.request.path);
        o.array("fates", |a| {
            for (item, fate) in call.system.iter().chain(&call.items).zip(&encoded.fates) {
                a.object(|o| {
                    o.string("item", &fate.item.0).string("says", &describe(item));
                    put_did(o, "visible", &fate.visible);
                    o.array("seals", |a| {
                        for (seal, did) in item.seals.iter().zip(&fate.seals) {
                            a.object(|o| {
                                o.string("format", &seal.format).number("bytes", seal.len() as u64);
                                o.string("owner", &seal.owner.provider);
                                put_did(o, "did", did);
                            });
                        }
                    });
                });
            }
        });
        o.array("warnings", |a| {
            for warning in &encoded.warnings {
                a.object(|o| {
                    o.string("setting", &warning.setting).string("message", &warning.message);
                });
            }
        });
    })
}

fn put_did(o: &mut json::Object<'_>, key: &str, did: &Did) {
    o.string(key, did.word());
    match did {
        Did::Kept => {}
        Did::Restored(evidence) => {
            o.string(&format!("{key}_evidence"), &evidence.to_string());
        }
        Did::Reshaped(how) => {
            o.string(&format!("{key}_how"), &how.to_string());
        }
        Did::Elided(why) => {
            o.string(&format!("{key}_why"), &why.to_string());
        }
    }
}

/// An Item in a few words, as they came: who writes to a terminal looks at them first.
pub fn describe(item: &Item) -> String {
    let short = |text: &str| {
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = line.chars().take(40).collect();
        let dots = if line.chars().count() > 40 { "…" } else { "" };
        format!("{cut}{dots}")
    };
    match &item.body {
        Body::Text(text) if text.trim().is_empty() => "an empty text".to_owned(),
        Body::Text(text) | Body::Summary { text, .. } => short(text),
        Body::Thought(thought) if thought.content.is_empty() => "a sealed thought".to_owned(),
        Body::Thought(thought) => format!("thought: {}", short(&thought.content)),
        Body::Call(call) => format!("call {}", call.name),
        Body::Result(result) => format!("result of {}", result.call.0),
        Body::Hosted(hosted) if hosted.is_result => format!("result of {}", hosted.name),
        Body::Hosted(hosted) => format!("hosted {}", hosted.name),
        Body::Media(_) => "media".to_owned(),
        Body::Compaction => "a compaction".to_owned(),
        Body::Unknown => "something unknown".to_owned(),
    }
}

/// A sentence in which no word is long and unreadable: some clients hide seals in the ids of calls.
pub fn without_long_words(text: &str) -> String {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_letter) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|c| !is_letter(c)).unwrap_or(word.len()));
        shown.push_str(before);
        // An address is long, and is to be read.
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

/// A number of bytes, for people.
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
