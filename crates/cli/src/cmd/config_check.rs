//! `throughline config check`: validates a configuration and lists its problems.

use std::process::ExitCode;

use owo_colors::{OwoColorize as _, Style};
use serde_json::{Value, json};
use throughline_provider::EnvWarning;
use throughline_tools::Problem;

use crate::args::ConfigCheck;
use crate::config::file::ParsedConfig;
use crate::config::read_config;
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, count, plain, push_line};

pub(crate) fn run(options: &ConfigCheck) -> Result<ExitCode> {
    let parsed = read_config(options.config.as_deref())?;
    let printed = options.format.print(|| text_of(&parsed), || json_of(&parsed));
    printed.or_else(Failure::ignore_closed_pipe)?;
    Ok(if parsed.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text_of(parsed: &ParsedConfig) -> String {
    let ParsedConfig { config, errors, warnings, env_warnings } = parsed;
    let mut out = String::new();
    for warning in env_warnings {
        push_line(&mut out, &format!("{} ${warning}", "warning:".yellow().bold()));
    }
    let Some(file) = &config.file else {
        let verdict = "there is no throughline.toml here nor in your configuration directory; \
                       all values are defaults";
        push_line(&mut out, &format!("{} {verdict}", text::mark(true)));
        return out;
    };
    let name = plain(&file.display().to_string());
    for (label, style, problems) in
        [("warning:", Style::new().yellow(), warnings), ("error:", Style::new().red(), errors)]
    {
        for problem in problems {
            let label = label.style(style.bold()).to_string();
            push_line(&mut out, &format!("{label} {name}:{}", plain(&problem.to_string())));
        }
    }
    let verdict = match errors.len() {
        0 => format!("{} {name} is valid", text::mark(true)),
        number => format!("{} {name} has {}", text::mark(false), count(number, "error")),
    };
    push_line(&mut out, &verdict);
    out
}

fn json_of(parsed: &ParsedConfig) -> Value {
    let ParsedConfig { config, errors, warnings, env_warnings } = parsed;
    let problems = |problems: &[Problem]| -> Vec<Value> {
        let problem = |Problem { line, column, message }: &Problem| json!({ "line": line, "column": column, "message": message });
        problems.iter().map(problem).collect()
    };
    let variable =
        |warning: &EnvWarning| json!({ "variable": warning.variable, "message": warning.problem });
    json!({
        "verdict": if errors.is_empty() { "ok" } else { "wrong" },
        "file": config.file.as_ref().map(|file| file.display().to_string()),
        "errors": problems(errors),
        "warnings": problems(warnings),
        "unheard": env_warnings.iter().map(variable).collect::<Vec<_>>(),
    })
}
