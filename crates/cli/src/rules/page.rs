//! The rule book as pages of the documentation: for each error of a provider, what it means and what to do.

use throughline_codec::{Catalog, Rule, Severity};

use super::Scope;
use crate::text::push_line;

/// Where the rules of wires are told of on pages of their own.
const PAGES: &str = "providers";

/// The page of error messages: all rules of all wires.
pub(super) fn questions(wires: &[&[&'static Rule]]) -> String {
    let mut page = String::from(
        "# Error messages\n\n\
         What a provider says, what it means, and what to do. This page is written by `throughline rules --markdown`, from the \
         same rules that `throughline audit` checks; `throughline explain RULE` shows a request that breaks one, and the \
         same mended. `…` stands for what depends on the request.\n\n\
         Behind the gateway none of these should reach you: it puts back what a client lost, and mends what would be refused.\n",
    );
    for rules in wires {
        let Some(first) = rules.first() else { continue };
        let wire = first.wire.as_str();
        push_line(&mut page, &format!("\n## {wire}\n\nIts own page: [{wire}]({PAGES}/{wire}.md)."));
        for rule in *rules {
            page.push_str(&question(rule));
        }
    }
    page
}

fn question(rule: &Rule) -> String {
    let said = match rule.provider_error {
        Some(said) => format!("> {}\n", escaped(said).replace('\n', "\n> ")),
        None if rule.severity == Severity::Refuse => {
            "*Its words are not known: the answer is an HTTP error.*\n".to_owned()
        }
        None => "*The provider says nothing.*\n".to_owned(),
    };
    format!(
        "\n### {}\n\n{said}\n{}\n\n**What it means.** {}\n\n**What to do.** {}\n",
        escaped(rule.title),
        about(rule),
        escaped(rule.why),
        escaped(rule.fix)
    )
}

/// The page of one wire: who speaks it, and what is refused there.
pub(super) fn wire(rules: &[&'static Rule]) -> String {
    let Some(first) = rules.first() else { return String::new() };
    let wire = &first.wire;
    let rows = Catalog::builtin().providers().iter().filter(|row| row.wire == *wire);
    let mut page = format!(
        "# {wire}\n\nThis page is written by `throughline rules --wire {wire} --markdown`.\n\n\
         ## Who speaks it\n\n| provider | address | key |\n|---|---|---|\n"
    );
    for row in rows {
        let key =
            row.key_env.as_deref().map_or_else(|| "none".to_owned(), |key| format!("`{key}`"));
        push_line(&mut page, &format!("| `{}` | `{}` | {key} |", row.name, row.base_url));
    }
    page.push_str("\n## Its rules\n");
    for rule in rules {
        let said =
            rule.provider_error.map(|said| format!("\nIt says: `{}`\n", said.replace('`', "'")));
        let told = format!(
            "\n### {}\n\n{}\n\n{}\n{}\n{}",
            escaped(rule.title),
            about(rule),
            escaped(rule.why),
            said.unwrap_or_default(),
            evidence(rule)
        );
        push_line(&mut page, &told);
    }
    page
}

/// The rule's name, how grave it is, and whom it applies to.
fn about(rule: &Rule) -> String {
    let grave = match rule.severity {
        Severity::Refuse => "refused",
        Severity::Degrade => "accepted, with less",
        Severity::Note => "worth knowing",
    };
    format!("`{}` · {grave} · {}", rule.id, escaped(&Scope::of(rule).phrase(rule)))
}

/// How it is known.
fn evidence(rule: &Rule) -> String {
    let known = rule.evidence.iter().map(|source| match source.url() {
        Some(url) => format!("[{}]({url})", source.kind.as_str()),
        None => format!("{}: {}", source.kind.as_str(), escaped(source.at)),
    });
    format!("Known from {}.", known.collect::<Vec<_>>().join(", "))
}

/// A text in which Markdown finds nothing to do but code.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut is_code = false;
    for c in text.chars() {
        match c {
            '`' => is_code = !is_code,
            '<' | '>' | '*' | '_' | '[' | ']' | '|' if !is_code => shown.push('\\'),
            _ => {}
        }
        shown.push(c);
    }
    shown
}
