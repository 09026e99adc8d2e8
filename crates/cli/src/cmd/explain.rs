//! `throughline explain`: explains one rule with a request that breaks it.

use bytes::Bytes;
use owo_colors::OwoColorize as _;
use similar::{ChangeTag, TextDiff};
use throughline_codec::{Audit, Catalog, Document, Finding, Rule, Transcript, audit, codec};
use throughline_core::Request;
use throughline_json::{Name, Tree};
use throughline_tools::suggest::did_you_mean;

use crate::args::Explain;
use crate::cmd::report::style_of;
use crate::cmd::rules::{Scope, all};
use crate::input::Input;
use crate::input::past::PriorBuilder;
use crate::input::rows::RequestCatalog;
use crate::print::excerpt::{Annotation, SourceText};
use crate::print::failure::Failure;
use crate::print::mask::masked;
use crate::print::text::{self, continued, plain, wrapped};

/// Maximum number of suggestions for an unknown rule.
const SUGGESTIONS: usize = 3;

pub(crate) fn run(options: &Explain) -> Result<(), Failure> {
    let rule = find(options.rule.trim())?;
    let width = text::width(std::io::stdout());
    text::write_styled(&explanation(rule, width))
}

/// Finds a rule by its full id, or by the unambiguous part after the slash.
fn find(name: &str) -> Result<&'static Rule, Failure> {
    if let Some(rule) = all().find(|rule| rule.id.eq_ignore_ascii_case(name)) {
        return Ok(rule);
    }
    let short = |rule: &&'static Rule| {
        rule.id.split_once('/').is_some_and(|(_, short)| short.eq_ignore_ascii_case(name))
    };
    let called: Vec<&'static Rule> = all().filter(short).collect();
    if let [only] = called.as_slice() {
        return Ok(only);
    }
    let is_ambiguous = !called.is_empty();
    let close = if is_ambiguous { called } else { nearest(name) };
    let close: Vec<&str> = close.iter().map(|rule| rule.id).collect();
    let hint = if close.is_empty() { ";".to_owned() } else { did_you_mean(&close) };
    let what = if is_ambiguous { "matches several rules" } else { "is not a rule" };
    Err(Failure::Usage(format!("`{name}` {what}{hint} `throughline rules` lists all rules")))
}

/// Returns the rules with the most similar names.
fn nearest(name: &str) -> Vec<&'static Rule> {
    let name = name.to_ascii_lowercase();
    let mut scored: Vec<(f64, &'static Rule)> = all()
        .map(|rule| {
            let short = rule.id.split_once('/').map_or(rule.id, |(_, short)| short);
            let likeness = strsim::normalized_damerau_levenshtein(&name, rule.id)
                .max(strsim::normalized_damerau_levenshtein(&name, short));
            let is_part = name.len() > 3 && rule.id.contains(&name);
            (if is_part { 1.0 } else { likeness }, rule)
        })
        .filter(|(likeness, _)| *likeness > 0.3)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(SUGGESTIONS).map(|(_, rule)| rule).collect()
}

fn explanation(rule: &Rule, width: usize) -> String {
    let mut page = ExplainPage { out: String::new(), width };
    let severity = rule.severity.as_str();
    page.line(
        &format!("{}[{}]", severity, rule.id).style(style_of(rule.severity).bold()).to_string(),
    );
    page.title(rule.title);
    let applies = format!("On {}, for {}.", rule.wire, Scope::for_rule(rule).phrase(rule));
    page.paragraph("", &applies);
    page.section("Why", rule.why);
    if let Some(error) = rule.provider_error {
        page.heading("Provider error");
        for line in wrapped(&plain(error), width.saturating_sub(4)) {
            page.line(&format!("  {} {line}", "│".red()));
        }
    }
    page.example(rule);
    page.section("Fix", rule.fix);
    page.heading("Evidence");
    for source in rule.evidence {
        page.line(&format!("  {:<13} {}", source.kind.as_str(), source.at));
    }
    page.out
}

/// Output that is being written.
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

    fn title(&mut self, title: &str) {
        for line in wrapped(title, self.width) {
            self.line(&line.bold().to_string());
        }
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

    /// Prints a request that breaks the rule, with the place marked, and its fix.
    fn example(&mut self, rule: &Rule) {
        let example = &rule.example;
        for document in example.prior {
            let tree = Tree::parse(*document).ok();
            let codec = codec(&rule.wire);
            let kind = tree.zip(codec).and_then(|(tree, codec)| codec.recognise(tree.root()));
            self.heading(match kind {
                Some(Document::Request) => "Earlier request",
                Some(Document::Response | Document::Event) | None => "Earlier response",
            });
            self.text(document);
        }
        self.heading("A request that breaks it");
        self.line(&format!("  {}", format!("{} · {}", example.provider, example.model).dimmed()));
        let body = Bytes::from_static(example.failing.as_bytes());
        let Ok(tree) = Tree::parse(body) else { return self.text(example.failing) };
        let found = audit_example(rule);
        let marks = found.as_ref().and_then(|audit| place(audit, rule));
        let mark = marks.map(|finding| Annotation {
            place: finding.range.clone(),
            label: &finding.message,
            style: style_of(finding.severity).bold(),
        });
        self.out.push_str(&SourceText::new(&tree).draw_whole(mark.as_ref(), self.width));
        if example.fixed != example.failing && !example.fixed.is_empty() {
            self.heading("Repaired");
            self.difference(example.failing, example.fixed);
        }
    }

    /// Prints a document with line numbers, or as a paragraph if it is a single line.
    fn text(&mut self, document: &str) {
        match Tree::parse(document.to_owned()) {
            Ok(tree) if document.trim().contains('\n') => {
                self.out.push_str(&SourceText::new(&tree).draw_whole(None, self.width));
            }
            Ok(_) | Err(_) => self.paragraph("  ", &plain(&masked(document.trim()))),
        }
    }

    /// Prints the changed lines with some context.
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

/// Audits the example of a rule.
fn audit_example(rule: &Rule) -> Option<Audit> {
    let example = &rule.example;
    let codec = codec(&rule.wire)?;
    let target = Catalog::builtin().target_for(example.provider, example.model, "default").ok()?;
    let rows = RequestCatalog::read(None).ok()?;
    let mut past = PriorBuilder::new(&target, &rows, "default");
    for document in example.prior {
        let bytes = Bytes::from_static(document.as_bytes());
        past.add(&Input { name: rule.id.to_owned(), bytes }).ok()?;
    }
    let prior = past.finish();
    let failing = Request {
        path: Name::from(codec.path(&target, false)),
        headers: Vec::new(),
        body: Bytes::from_static(example.failing.as_bytes()),
    };
    audit(&Transcript::new(codec, &failing).with_prior(&prior), &target).ok()
}

/// Returns the finding that breaks the rule in the example.
fn place<'a>(audit: &'a Audit, rule: &Rule) -> Option<&'a Finding> {
    audit.findings.iter().find(|finding| finding.rule.id == rule.id)
}
