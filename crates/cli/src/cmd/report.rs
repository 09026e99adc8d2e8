//! Prints audit findings: the position, the provider's error and the fix.

use std::collections::HashSet;

use owo_colors::{OwoColorize as _, Style};
use throughline_codec::{Audit, Finding, Severity, Verdict, shorten_opaque_words};
use throughline_json::Tree;
use throughline_spec::ReplayAudit;
use unicode_width::UnicodeWidthStr as _;

use crate::input::subject::Subject;
use crate::print::excerpt::{Annotation, SourceText};
use crate::print::text::{count, plain, push_line, wrapped};

/// Formats audit findings about the request `tree`, at most `width` columns wide.
pub(crate) fn findings(name: &str, tree: &Tree, findings: &[&Finding], width: usize) -> String {
    let source = SourceText::new(tree);
    let mut explained = HashSet::new();
    let findings = findings.iter().map(|finding| {
        let is_new = explained.insert(finding.rule.id);
        format_finding(name, &source, finding, is_new, width)
    });
    findings.collect::<Vec<_>>().join("\n")
}

/// Formats the replay violations of a conversation's assistant turns, one per line.
pub(crate) fn turns(name: &str, turns: &[(u32, ReplayAudit)], width: usize) -> String {
    let mut out = String::new();
    for (message, audit) in turns {
        for violation in &audit.violations {
            let text = format!("{name}: message {message}: {violation}");
            for line in wrapped(&plain(&text), width) {
                push_line(&mut out, &line.style(style_of(Severity::Refuse)).to_string());
            }
        }
    }
    out
}

/// Formats the verdict on a request and its assistant turns as one line.
pub(crate) fn verdict(
    verdict: Verdict,
    audit: &Audit,
    turns: &[(u32, ReplayAudit)],
    subject: &Subject,
) -> String {
    let (mark, style) = match verdict {
        Verdict::Accept => ("✓", Style::new().green()),
        Verdict::Degrade => ("!", style_of(Severity::Degrade)),
        Verdict::Refuse => ("✗", style_of(Severity::Refuse)),
    };
    let replay = turns.iter().map(|(_, audit)| audit.violations.len()).sum::<usize>();
    let mut violations = Vec::new();
    violations.extend(Some(replay).filter(|n| *n > 0).map(|n| count(n, "replay violation")));
    for (severity, noun) in [
        (Severity::Refuse, "refusal"),
        (Severity::Degrade, "degradation"),
        (Severity::Note, "note"),
    ] {
        let findings = audit.findings.iter().filter(|finding| finding.severity == severity);
        violations.extend(Some(findings.count()).filter(|n| *n > 0).map(|n| count(n, noun)));
    }
    let violations =
        if violations.is_empty() { "no violations".to_owned() } else { violations.join(", ") };
    let sealed = audit.summary.signed_count;
    let carried = match audit.summary.item_count {
        0 => "no reasoning".to_owned(),
        items => format!("{}, {sealed} sealed", count(items, "reasoning item")),
    };
    let target = &subject.target;
    let target_text = format!("· {} at {}", plain(target.model()), plain(&target.origin.provider));
    let heading = format!("{mark} {}:", verdict.as_str());
    let mut line = format!(
        "{} {violations} · {carried} {}\n",
        heading.style(style.bold()),
        target_text.dimmed()
    );
    if sealed > 0 && subject.prior.is_empty() {
        let message = "  without --prior, seals are not compared with the issued ones";
        push_line(&mut line, &message.dimmed().to_string());
    }
    line
}

pub(crate) fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Refuse => Style::new().red(),
        Severity::Degrade => Style::new().yellow(),
        Severity::Note => Style::new().cyan(),
    }
}

fn format_finding(
    name: &str,
    source: &SourceText<'_>,
    finding: &Finding,
    is_new: bool,
    width: usize,
) -> String {
    let style = style_of(finding.severity).bold();
    let rule = finding.rule;
    let digits = source.digits(&finding.range);
    let head = format!("{}[{}]", finding.severity.as_str(), rule.id);
    let title = sentence(rule.title);
    let lines = behind(&format!("{head}:"), &title, width);
    let lines: Vec<String> = lines.iter().map(|line| line.bold().to_string()).collect();
    let mut out = format!("{}: {}\n", head.style(style), lines.join("\n    "));
    let (line, column) = source.position(finding.range.start);
    let path = if finding.path.is_empty() { "the request" } else { &finding.path };
    let location = format!("{}:{line}:{column}", plain(name));
    let path = format!("({})", plain(path)).dimmed().to_string();
    push_line(&mut out, &format!("{:digits$}{} {location} {path}", "", "-->".blue().bold()));
    let message = shorten_opaque_words(&sentence(&finding.message));
    let label = if message == title { "" } else { &message };
    let mark = Annotation { range: finding.range.clone(), label, style };
    out.push_str(&source.draw(&mark, digits, width));
    push_line(&mut out, &format!("{:digits$} {}", "", "|".blue().bold()));
    let mut footer = |heading: &str, text: &str| {
        let indent = digits + heading.width() + 5;
        // A bare URL is not wrapped, so that it can be copied. A URL inside a sentence is wrapped
        // as a word.
        let is_address = text.contains("://") && text.split_whitespace().count() <= 2;
        let room = if is_address { usize::MAX } else { width.saturating_sub(indent) };
        let lines = wrapped(&plain(text), room).join(&format!("\n{:indent$}", ""));
        let (sign, heading) = ("=".blue().bold().to_string(), format!("{heading}:"));
        push_line(&mut out, &format!("{:digits$} {sign} {} {lines}", "", heading.bold()));
    };
    if let Some(error) = &finding.provider_error {
        footer("provider says", &shorten_opaque_words(error));
    }
    if !finding.fix.is_empty() {
        footer("help", &finding.fix);
    }
    // The reference and the evidence are printed once per rule, not once per finding.
    if is_new {
        footer("see", &format!("throughline explain {}", rule.id));
        footer("see", &rule.url());
        for source in rule.evidence {
            let kind = source.kind.as_str();
            let colon = if source.url().is_some() { "" } else { ":" };
            footer("evidence", &format!("{kind}{colon} {}", source.at));
        }
    }
    out
}

/// Wraps text that follows a heading, with continuation lines indented by four columns.
fn behind(head: &str, text: &str, width: usize) -> Vec<String> {
    // The heading contains colour codes, so a placeholder of the same visible width is wrapped
    // instead.
    let stand_in = "x".repeat(head.width());
    let lines = wrapped(&format!("{stand_in} {}", plain(text)), width.saturating_sub(4));
    let lines = lines.iter().map(|line| line.strip_prefix(&*stand_in).unwrap_or(line).trim_start());
    lines.map(str::to_owned).collect()
}

/// Removes trailing white space and a final full stop.
pub(crate) fn sentence(text: &str) -> String {
    text.trim_end().strip_suffix('.').unwrap_or(text.trim_end()).to_owned()
}
