//! Builds the command-line parser from the options: adds `--json` to every command with `--format`,
//! and groups the commands in the main help.

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::args::Options;
use crate::print::text::{self, push_line, wrapped};

/// Maximum width of the help, as in the help of single commands.
const WIDEST: usize = 100;

/// All commands in the order of the help, in groups.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["demo", "serve", "connect", "check"]),
    (
        "Agents",
        &[
            "run", "resume", "inbox", "answer", "approve", "reject", "cancel", "narrate",
            "snapshot", "traces",
        ],
    ),
    ("Requests", &["show", "audit", "repair", "translate", "rules", "explain"]),
    ("Simulators", &["sim", "fidelity"]),
    ("Gateway", &["keys", "usage", "config", "catalog"]),
    (
        "Store",
        &[
            "runs", "threads", "items", "export", "import", "fork", "verify", "forget", "prune",
            "backup", "restore", "migrate", "stats", "rotate",
        ],
    ),
    ("This program", &["env", "man", "completions", "help"]),
];

/// Returns the parser of all commands and options.
pub(crate) fn new() -> Command {
    let command = with_json(Options::command());
    let template = help_template(&command);
    command.help_template(template)
}

/// Adds `--json` to a command and its subcommands, if they have `--format`.
fn with_json(command: Command) -> Command {
    let command = command.mut_subcommands(with_json);
    let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    if !has("format") {
        return command;
    }
    let conflicts: Vec<&'static str> =
        ["format", "markdown", "pages"].into_iter().filter(|id| has(id)).collect();
    let json = Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON; the same as --format json")
        .help_heading(None::<&'static str>)
        .conflicts_with_all(conflicts);
    command.mut_arg("format", |format| format.default_value_if("json", "true", "json")).arg(json)
}

/// Returns the template of the main help, which lists the commands in groups.
fn help_template(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let commands = GROUPS.iter().flat_map(|(_, names)| *names);
    let column = 4 + commands.map(|name| name.len()).max().unwrap_or(0);
    let room = text::width(std::io::stdout()).min(WIDEST).saturating_sub(column);
    let mut list = String::new();
    for (title, names) in GROUPS {
        push_line(&mut list, &format!("{header}{title}:{header:#}"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(
                || "Print this message or the help of a command".to_owned(),
                ToString::to_string,
            );
            let indent = format!("\n{:column$}", "");
            let about = wrapped(&about, room).join(&indent);
            let padding = " ".repeat(column.saturating_sub(2 + name.len()));
            push_line(&mut list, &format!("  {literal}{name}{literal:#}{padding}{about}"));
        }
        list.push('\n');
    }
    let options = format!("{header}Options:{header:#}");
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{options}\n{{options}}{{after-help}}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::FromArgMatches as _;

    use super::*;
    use crate::args::{Command as Subcommand, Format};

    #[test]
    fn every_command_is_in_one_group() {
        let mut parser = new();
        parser.build();
        let commands: BTreeSet<&str> = parser.get_subcommands().map(Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), commands);
        assert_eq!(listed.len(), commands.len(), "a command is listed twice");
    }

    #[test]
    fn json_is_the_same_as_format_json() {
        let format = |arguments: &[&str]| {
            let matches = new().try_get_matches_from([&["throughline"], arguments].concat());
            match Options::from_arg_matches(&matches?)?.command {
                Subcommand::Runs(runs) => Ok(runs.common.format),
                other => panic!("{other:?}"),
            }
        };
        let format =
            |arguments: &[&str]| format(arguments).map_err(|error: clap::Error| error.kind());
        assert_eq!(format(&["runs"]), Ok(Format::Text));
        assert_eq!(format(&["runs", "--json"]), Ok(Format::Json));
        assert_eq!(format(&["runs", "--format", "json"]), Ok(Format::Json));
        let conflict = clap::error::ErrorKind::ArgumentConflict;
        assert_eq!(format(&["runs", "--json", "--format", "text"]), Err(conflict));
    }

    #[test]
    fn every_command_with_a_format_has_json() {
        let mut pending = vec![new()];
        let mut found = 0;
        while let Some(command) = pending.pop() {
            let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
            assert_eq!(has("format"), has("json"), "{}", command.get_name());
            found += usize::from(has("json"));
            pending.extend(command.get_subcommands().cloned());
        }
        assert!(found > 20, "{found}");
    }
}
