//! `throughline config check`: validates a configuration and lists its problems.

use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_tools::Problem;

use crate::args::ConfigCheck;
use crate::config::file::ParsedConfig;
use crate::config::read_config;
use crate::print::failure::Failure;
use crate::print::text::{self, count, plain, push_line};

pub(crate) fn run(options: &ConfigCheck) -> Result<ExitCode, Failure> {
    let reading = read_config(options.config.as_deref())?;
    let answered = text::answer(&options.printing, || told(&reading), || json_of(&reading));
    answered.or_else(Failure::ignore_closed_pipe)?;
    Ok(if reading.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(reading: &ParsedConfig) -> String {
    let ParsedConfig { config, errors, warnings, env_warnings } = reading;
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
    let mut tell = |word: String, problem: &Problem| {
        let Problem { line, column, message } = problem;
        push_line(&mut out, &format!("{word} {name}:{line}:{column}: {}", plain(message)));
    };
    for problem in warnings {
        tell("warning:".yellow().bold().to_string(), problem);
    }
    for problem in errors {
        tell("error:".red().bold().to_string(), problem);
    }
    let verdict = match errors.len() {
        0 => format!("{} {name} is valid", text::mark(true)),
        number => format!("{} {name} has {}", text::mark(false), count(number, "error")),
    };
    push_line(&mut out, &verdict);
    out
}

fn json_of(reading: &ParsedConfig) -> Value {
    let ParsedConfig { config, errors, warnings, env_warnings } = reading;
    let problems = |problems: &[Problem]| -> Vec<Value> {
        let problem = |Problem { line, column, message }: &Problem| json!({ "line": line, "column": column, "message": message });
        problems.iter().map(problem).collect()
    };
    let variables = env_warnings
        .iter()
        .map(|warning| json!({ "variable": warning.variable, "message": warning.problem }));
    json!({
        "verdict": if errors.is_empty() { "ok" } else { "wrong" },
        "file": config.file.as_ref().map(|file| file.display().to_string()),
        "errors": problems(errors),
        "warnings": problems(warnings),
        "unheard": variables.collect::<Vec<_>>(),
    })
}
