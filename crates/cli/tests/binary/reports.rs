//! Snapshots of the text report for every rule, one file per wire: position, excerpt, carets,
//! provider error and fix.

use std::fmt::Write as _;

use throughline_codec::{CODECS, Rule};

use crate::support::{scratch, throughline_in};

#[test]
fn every_rule_example_matches_its_snapshot() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for codec in CODECS.iter().filter(|codec| !codec.rules().is_empty()) {
            let reports: Vec<String> = codec.rules().iter().map(|rule| report(rule)).collect();
            insta::assert_snapshot!(codec.wire().as_str().to_owned(), reports.join("\n\n"));
        }
    });
}

/// Returns the output of `audit` for the failing example of a rule.
fn report(rule: &Rule) -> String {
    let example = &rule.example;
    let folder = scratch(&format!("report-{}", rule.id.replace('/', "-")));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("request.json"), example.failing).unwrap();
    let mut arguments = vec!["audit", "--wire", rule.wire.as_str()];
    arguments.extend(["--provider", example.provider, "--model", example.model]);
    let names: Vec<String> =
        (0..example.prior.len()).map(|number| format!("prior-{number}.json")).collect();
    for (name, text) in names.iter().zip(example.prior) {
        std::fs::write(folder.join(name), text).unwrap();
        arguments.extend(["--prior", name]);
    }
    arguments.push("request.json");
    let output = throughline_in(&folder, &arguments, b"");
    let mut report = format!("# {}\n", rule.id);
    write!(report, "{}{}", output.err, output.out).unwrap();
    report.trim_end().to_owned()
}
