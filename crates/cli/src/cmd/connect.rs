//! `throughline connect`: points a client at the gateway. It prints the client's settings, writes
//! them to the client's configuration, undoes that, or runs the client with them.

mod conflicts;
mod files;
mod launch;
mod merge;
mod plan;
mod probe;
mod settings;
mod show;
mod target;

use std::path::PathBuf;

use owo_colors::{OwoColorize as _, Style};
use throughline_tools::suggest::did_you_mean;

use crate::args::Connect;
use crate::clients::{ClientEntry, clients};
use crate::config;
use crate::config::routes::UnknownModelError;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Column, table};
use crate::print::text;

use self::files::FileBackup;
use self::plan::{PlannedFile, plan};
use self::probe::{GatewayStatus, probe};
use self::settings::file_path;
pub(crate) use self::show::exports;
use self::show::short_path;
pub(crate) use self::target::{ConnectTarget, GatewayKey, KEY_VARIABLE, default_model};

pub(crate) fn run(options: &Connect) -> Result<()> {
    let clients = clients().map_err(|error| {
        Failure::Outside(anyhow::anyhow!("the built-in list of clients is invalid: {error}"))
    })?;
    let Some(name) = &options.client else { return text::write_styled(&list(&clients)) };
    // The command line accepts only names in the list.
    let Some(client) = clients.iter().find(|client| client.name == *name) else {
        return Err(Failure::Usage(format!("there is no client `{name}`")));
    };
    if options.undo {
        return undo(client, options.force);
    }
    let config = config::load(options.config.as_deref())?;
    let target = ConnectTarget::resolve(options, client, &config)?;
    if options.model.is_none() && target.model != client.model {
        let (chosen, usual) = (&target.model, &client.model);
        text::note(&format!(
            "the model is {chosen}, a simulation, because the configuration and the environment of \
             this command have no key for {usual}; if the gateway has one, add `--model {usual}`"
        ));
    }
    // With --url, the gateway may have another configuration than this command.
    if let (Some(model), None) = (&options.model, &options.url)
        && let Err(UnknownModelError { model, close, .. }) = config.routes.resolve(model)
    {
        text::note(&format!(
            "the configuration of this command has no model `{model}`, so a gateway with this \
             configuration accepts it only if the tenant has a route with this name{}",
            did_you_mean(&close)
        ));
    }
    if options.write {
        write(client, &target)
    } else if options.run {
        match probe(&target)? {
            GatewayStatus::Ready => launch::launch(client, target, &options.arguments),
            GatewayStatus::Unavailable(problem) | GatewayStatus::KeyRefused(problem) => {
                Err(Failure::Outside(anyhow::anyhow!(problem)))
            }
        }
    } else {
        text::write_out(show::settings_text(client, &target)?.as_bytes())
    }
}

fn list(clients: &[ClientEntry]) -> String {
    let can_write = |client: &ClientEntry| if client.files.is_empty() { "" } else { "yes" };
    let columns = vec![
        Column::new("client", clients.iter().map(|client| client.name.as_str())),
        Column::new("name", clients.iter().map(|client| client.title.as_str())),
        Column::new("dialect", clients.iter().map(|client| client.dialect.as_str())),
        Column::new("--write", clients.iter().map(can_write)),
        Column::new("default model", clients.iter().map(|client| client.model.as_str())),
        Column::new("page", clients.iter().map(|client| format!("docs/{}", client.page)))
            .droppable()
            .dimmed(),
    ];
    let usage = "throughline connect CLIENT [--print | --write | --run]".bold().to_string();
    format!("{}\n{usage}\n", table(columns))
}

fn write(client: &ClientEntry, target: &ConnectTarget) -> Result<()> {
    if client.files.is_empty() {
        let (title, name) = (&client.title, &client.name);
        return Err(Failure::Usage(format!(
            "{title} has no configuration file that connect can write: use `throughline connect \
             {name} --print`, or `--run` to run a program with the settings"
        )));
    }
    let planned = client.files.iter().map(|file| plan(client, file, target));
    let planned: Vec<PlannedFile> = planned.collect::<Result<_>>()?;
    // A refused key would make every request fail. A gateway that does not run can be started
    // later.
    let problem = match probe(target)? {
        GatewayStatus::Ready => None,
        GatewayStatus::Unavailable(problem) => Some(problem),
        GatewayStatus::KeyRefused(problem) => {
            return Err(Failure::Outside(anyhow::anyhow!(problem)));
        }
    };
    let mut page = String::new();
    for file in &planned {
        let backup = files::write(&client.name, file)?;
        text::push_line(&mut page, &format!("{} {}", text::mark(true), short_path(&file.path)));
        let backup = match backup {
            FileBackup::NewFile => "  new file".to_owned(),
            FileBackup::Kept(backup) => format!("  backup {}", short_path(&backup)),
            FileBackup::Missing(backup) => format!(
                "  the backup {} was deleted, so --undo cannot restore the former file",
                short_path(&backup)
            ),
        };
        text::push_line(&mut page, &backup.dimmed().to_string());
    }
    text::push_line(&mut page, &next_steps(client, target));
    text::write_styled(&page)?;
    for warning in conflicts::warnings(client, target)?.iter().chain(&problem) {
        text::notice("warning:", Style::new().yellow(), warning);
    }
    Ok(())
}

/// Describes how to start the client after its files were written.
fn next_steps(client: &ClientEntry, target: &ConnectTarget) -> String {
    let program = client.program.as_deref().unwrap_or(&client.name);
    // The client reads variables that are in none of its files from the environment.
    let is_written = client.files.iter().any(|file| file.environment.is_some());
    let variables = if is_written { Vec::new() } else { exports(client, target) };
    let start = [variables, vec![program.to_owned()]].concat().join(" ").bold().to_string();
    let undo = format!("throughline connect {} --undo", client.name).bold().to_string();
    let (title, url, model) = (&client.title, &target.url, &target.model);
    match &client.next {
        Some(next) => format!(
            "\n{title} can now use {model} at {url}.\nStart it with {start}. {next}\nUndo this with \
             {undo}."
        ),
        None => format!(
            "\n{title} now uses {model} at {url}.\nStart it with {start}. Undo this with {undo}."
        ),
    }
}

fn undo(client: &ClientEntry, is_forced: bool) -> Result<()> {
    let paths: Vec<PathBuf> = client.files.iter().map(file_path).collect::<Result<_>>()?;
    let mut page = String::new();
    for file in files::undo(&client.name, &paths, is_forced)? {
        let what = if file.is_restored { "restored" } else { "removed" };
        let path = short_path(&file.path);
        text::push_line(&mut page, &format!("{} {what} {path}", text::mark(true)));
        if let Some(changed) = &file.changed {
            let line = format!("  the changed file is now {}", short_path(changed));
            text::push_line(&mut page, &line.dimmed().to_string());
        }
    }
    text::write_styled(&page)
}
