//! What was found in a request, told to people: each finding with its place, the provider's words and what to do.

use std::collections::HashSet;

use owo_colors::{OwoColorize as _, Style};
use throughline_codec::{Audit, Finding, Severity, Verdict, without_long_words};
use throughline_core::Tree;
use unicode_width::UnicodeWidthStr as _;

use crate::excerpt::{Mark, Source};
use crate::subject::Subject;
use crate::text::{count, plain, push_line, wrapped};

/// The findings of an audit of `tree`, drawn into `width` columns.
pub(crate) fn findings(name: &str, tree: &Tree, findings: &[&Finding], width: usize) -> String {
    let source = Source::new(tree);
    let mut taught = HashSet::new();
    let told = findings.iter().map(|finding| {
        let is_new = taught.insert(finding.rule.id);
        one(name, &source, finding, is_new, width)
    });
    told.collect::<Vec<_>>().join("\n")
}

/// What the provider would do, in a line.
pub(crate) fn verdict(audit: &Audit, subject: &Subject) -> String {
    let verdict = audit.verdict();
    let (mark, style) = match verdict {
        Verdict::Accept => ("✓", Style::new().green()),
        Verdict::Degrade => ("!", style_of(Severity::Degrade)),
        Verdict::Refuse => ("✗", style_of(Severity::Refuse)),
    };
    let found = |severity: Severity, noun: &str| {
        let findings = audit.findings.iter().filter(|finding| finding.severity == severity);
        Some(findings.count()).filter(|number| *number > 0).map(|number| count(number, noun))
    };
    let found: Vec<String> = [
        found(Severity::Refuse, "refusal"),
        found(Severity::Degrade, "degradation"),
        found(Severity::Note, "note"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let found = if found.is_empty() { "no rule objects".to_owned() } else { found.join(", ") };
    let carried = match audit.summary.item_count {
        0 => "no reasoning".to_owned(),
        items => {
            format!("{}, {} sealed", count(items, "reasoning item"), audit.summary.signed_count)
        }
    };
    let target = &subject.target;
    let to = format!("· {} at {}", plain(target.model()), plain(&target.origin.provider));
    let word = format!("{mark} {}:", verdict.as_str());
    let mut line = format!("{} {found} · {carried} {}\n", word.style(style.bold()), to.dimmed());
    if audit.summary.signed_count > 0 && subject.prior.is_empty() {
        let message = "  without --prior, seals are not compared with what was issued";
        push_line(&mut line, &message.dimmed().to_string());
    }
    line
}

/// The colour of what is that grave.
pub(crate) fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Refuse => Style::new().red(),
        Severity::Degrade => Style::new().yellow(),
        Severity::Note => Style::new().cyan(),
    }
}

fn one(name: &str, source: &Source<'_>, finding: &Finding, is_new: bool, width: usize) -> String {
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
    let place = format!("{}:{line}:{column}", plain(name));
    let path = format!("({})", plain(path)).dimmed().to_string();
    push_line(&mut out, &format!("{:digits$}{} {place} {path}", "", "-->".blue().bold()));
    let message = without_long_words(&sentence(&finding.message));
    let label = if message == title { "" } else { &message };
    out.push_str(&source.draw(&Mark { place: finding.range.clone(), label, style }, digits, width));
    push_line(&mut out, &format!("{:digits$} {}", "", "|".blue().bold()));
    let mut footer = |word: &str, text: &str| {
        let indent = digits + word.width() + 5;
        // An address is not broken: nobody could follow it. In a sentence it is a word among others.
        let is_address = text.contains("://") && text.split_whitespace().count() <= 2;
        let room = if is_address { usize::MAX } else { width.saturating_sub(indent) };
        let lines = wrapped(&plain(text), room).join(&format!("\n{:indent$}", ""));
        let word = format!("{word}:").bold().to_string();
        let sign = "=".blue().bold().to_string();
        push_line(&mut out, &format!("{:digits$} {sign} {word} {lines}", ""));
    };
    if let Some(error) = &finding.provider_error {
        footer("provider says", &without_long_words(error));
    }
    if !finding.fix.is_empty() {
        footer("help", &finding.fix);
    }
    // Once is enough: the tenth block without a signature is known from the same page as the first.
    if is_new {
        footer("see", &format!("throughline explain {}", rule.id));
        for source in rule.evidence {
            let kind = source.kind.as_str();
            let colon = if source.url().is_some() { "" } else { ":" };
            footer("evidence", &format!("{kind}{colon} {}", source.at));
        }
    }
    out
}

/// A text in the columns that its head leaves it, with the other lines four columns in.
fn behind(head: &str, text: &str, width: usize) -> Vec<String> {
    // The head is wrapped with its text and taken off again: its colours have no width.
    let stand_in = "x".repeat(head.width());
    let lines = wrapped(&format!("{stand_in} {}", plain(text)), width.saturating_sub(4));
    let lines = lines.iter().map(|line| line.strip_prefix(&*stand_in).unwrap_or(line).trim_start());
    lines.map(str::to_owned).collect()
}

/// A sentence as a compiler says it, without its full stop.
pub(crate) fn sentence(text: &str) -> String {
    text.trim_end().strip_suffix('.').unwrap_or(text.trim_end()).to_owned()
}
