//! `throughline explain`: explains a rule, with an example of a request that breaks the rule.

use bytes::Bytes;
use owo_colors::OwoColorize as _;
use similar::{ChangeTag, TextDiff};
use strsim::normalized_damerau_levenshtein;
use throughline_codec::{Rule, audit};
use throughline_json::Tree;
use throughline_tools::suggest::did_you_mean;

use crate::args::Explain;
use crate::cmd::report::style_of;
use crate::cmd::rules::example::{is_request, on_failing_example};
use crate::cmd::rules::{Scope, all};
use crate::input::rows::RequestCatalog;
use crate::print::excerpt::{Annotation, SourceText};
use crate::print::failure::{Failure, Result};
use crate::print::mask::masked;
use crate::print::text::{self, continued, plain, wrapped};

/// Maximum number of suggestions for an unknown rule.
const SUGGESTIONS: usize = 3;

pub(crate) fn run(options: &Explain) -> Result<()> {
    let rule = find(options.rule.trim())?;
    let rows = RequestCatalog::read(&options.catalog, None)?;
    text::write_styled(&explanation(rule, &rows, text::width(std::io::stdout())))
}

/// Finds a rule by its full id, or by the part of its id after the slash if that part is
/// unambiguous.
fn find(name: &str) -> Result<&'static Rule> {
    if let Some(rule) = all().find(|rule| rule.id.eq_ignore_ascii_case(name)) {
        return Ok(rule);
    }
    let short = |rule: &&'static Rule| {
        rule.id.split_once('/').is_some_and(|(_, short)| short.eq_ignore_ascii_case(name))
    };
    let matching: Vec<&'static Rule> = all().filter(short).collect();
    if let [only] = matching.as_slice() {
        return Ok(only);
    }
    let is_ambiguous = !matching.is_empty();
    let close = if is_ambiguous { matching } else { nearest(name) };
    let close: Vec<&str> = close.iter().map(|rule| rule.id).collect();
    let hint = if close.is_empty() { ";".to_owned() } else { did_you_mean(&close) };
    let problem = if is_ambiguous { "matches several rules" } else { "is not a rule" };
    Err(Failure::Usage(format!("`{name}` {problem}{hint} `throughline rules` lists all rules")))
}

/// Returns the rules whose ids are most similar to `name`.
fn nearest(name: &str) -> Vec<&'static Rule> {
    let name = name.to_ascii_lowercase();
    let score = |rule: &'static Rule| {
        let short = rule.id.split_once('/').map_or(rule.id, |(_, short)| short);
        let likeness = normalized_damerau_levenshtein(&name, rule.id)
            .max(normalized_damerau_levenshtein(&name, short));
        let is_part = name.len() > 3 && rule.id.contains(&name);
        (if is_part { 1.0 } else { likeness }, rule)
    };
    let mut scored: Vec<_> = all().map(score).filter(|(score, _)| *score > 0.3).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(SUGGESTIONS).map(|(_, rule)| rule).collect()
}

fn explanation(rule: &Rule, rows: &RequestCatalog, width: usize) -> String {
    let mut page = ExplainPage { out: String::new(), width };
    let head = format!("{}[{}]", rule.severity.as_str(), rule.id);
    page.line(&head.style(style_of(rule.severity).bold()).to_string());
    for line in wrapped(rule.title, width) {
        page.line(&line.bold().to_string());
    }
    let scope = Scope::for_rule(rule, rows.catalog());
    let applies = format!("On {}, for {}.", rule.wire, scope.phrase(rule));
    page.paragraph("", &applies);
    page.section("Why", rule.why);
    if let Some(error) = rule.provider_error {
        page.heading("Provider error");
        for line in wrapped(&plain(error), width.saturating_sub(4)) {
            page.line(&format!("  {} {line}", "│".red()));
        }
    }
    page.example(rule, rows);
    page.section("Fix", rule.fix);
    page.heading("Evidence");
    for source in rule.evidence {
        page.line(&format!("  {:<13} {}", source.kind.as_str(), source.at));
    }
    page.heading("Page");
    page.line(&format!("  {}", rule.url()));
    page.out
}

/// Buffers the command's output, which is printed at the end.
struct ExplainPage {
    out: String,
    width: usize,
}

impl ExplainPage {
    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn heading(&mut self, heading: &str) {
        self.line("");
        self.line(&heading.bold().to_string());
    }

    fn paragraph(&mut self, indent: &str, text: &str) {
        for line in wrapped(text, self.width.saturating_sub(indent.len())) {
            self.line(&format!("{indent}{line}"));
        }
    }

    fn section(&mut self, heading: &str, text: &str) {
        if !text.is_empty() {
            self.heading(heading);
            self.paragraph("  ", &plain(text));
        }
    }

    /// Prints a request that breaks the rule with the violation marked, followed by the fix.
    fn example(&mut self, rule: &Rule, rows: &RequestCatalog) {
        let example = &rule.example;
        for document in example.prior {
            let is_request = is_request(rule, document);
            self.heading(if is_request { "Earlier request" } else { "Earlier response" });
            self.text(document);
        }
        self.heading("A request that breaks it");
        self.line(&format!("  {}", format!("{} · {}", example.provider, example.model).dimmed()));
        let body = Bytes::from_static(example.failing.as_bytes());
        let Ok(tree) = Tree::parse(body) else { return self.text(example.failing) };
        let audit = on_failing_example(rule, rows, audit);
        let mut findings = audit.iter().flat_map(|audit| &audit.findings);
        let finding = findings.find(|finding| finding.rule.id == rule.id);
        let mark = finding.map(|finding| Annotation {
            range: finding.range.clone(),
            label: &finding.message,
            style: style_of(finding.severity).bold(),
        });
        self.out.push_str(&SourceText::new(&tree).draw_whole(mark.as_ref(), self.width));
        if example.fixed != example.failing && !example.fixed.is_empty() {
            self.heading("Repaired");
            self.difference(example.failing, example.fixed);
        }
    }

    /// Prints a document with line numbers, or as a paragraph if the document is a single line.
    fn text(&mut self, document: &str) {
        match Tree::parse(document.to_owned()) {
            Ok(tree) if document.trim().contains('\n') => {
                self.out.push_str(&SourceText::new(&tree).draw_whole(None, self.width));
            }
            Ok(_) | Err(_) => self.paragraph("  ", &plain(&masked(document.trim()))),
        }
    }

    /// Prints a diff of the failing and the fixed request, with two lines of context.
    fn difference(&mut self, failing: &str, fixed: &str) {
        let (failing, fixed) = (masked(failing), masked(fixed));
        let diff = TextDiff::from_lines(&failing, &fixed);
        let room = self.width.saturating_sub(4);
        for (number, group) in diff.grouped_ops(2).iter().enumerate() {
            if number > 0 {
                self.line(&format!("  {}", "…".dimmed()));
            }
            for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
                let line = plain(change.value().trim_end());
                for line in continued(&line, room) {
                    self.line(&match change.tag() {
                        ChangeTag::Delete => format!("  {} {}", "-".red().bold(), line.red()),
                        ChangeTag::Insert => format!("  {} {}", "+".green().bold(), line.green()),
                        ChangeTag::Equal => format!("    {line}"),
                    });
                }
            }
        }
    }
}
