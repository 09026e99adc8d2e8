//! `throughline connect`: points a client at the gateway. It prints the client's settings, writes
//! them to the client's configuration, undoes that, or runs the client with them.

mod files;
mod launch;
mod merge;
mod plan;
mod settings;
mod show;
mod target;

use std::path::PathBuf;

use owo_colors::OwoColorize as _;

use crate::args::Connect;
use crate::clients::{ClientEntry, clients};
use crate::config;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Column, table};
use crate::print::text;

use self::files::UndoneFile;
use self::plan::{PlannedFile, plan};
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
        return undo(client);
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
    if options.write {
        write(client, &target)
    } else if options.run {
        target.check_gateway()?;
        launch::launch(client, target, &options.arguments)
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
    let mut page = String::new();
    for file in &planned {
        let backup = files::write(&client.name, file)?;
        text::push_line(&mut page, &format!("{} {}", text::mark(true), short_path(&file.path)));
        let backup = match backup {
            Some(backup) => format!("  backup {}", short_path(&backup)),
            None => "  new file".to_owned(),
        };
        text::push_line(&mut page, &backup.dimmed().to_string());
    }
    let start = client.program.as_deref().unwrap_or(&client.name).bold().to_string();
    let undo = format!("throughline connect {} --undo", client.name).bold().to_string();
    let (title, url, model) = (&client.title, &target.url, &target.model);
    text::push_line(&mut page, &format!("\n{title} now uses {model} at {url}."));
    text::push_line(&mut page, &format!("Start it with {start}. Undo this with {undo}."));
    text::write_styled(&page)?;
    if let Err(failure) = target.check_gateway() {
        text::note(&failure.to_string());
    }
    Ok(())
}

fn undo(client: &ClientEntry) -> Result<()> {
    let paths: Vec<PathBuf> = client.files.iter().map(file_path).collect::<Result<_>>()?;
    let mut page = String::new();
    for file in files::undo(&client.name, &paths)? {
        let (path, what) = match &file {
            UndoneFile::Restored(path) => (path, "restored"),
            UndoneFile::Removed(path) => (path, "removed"),
        };
        text::push_line(&mut page, &format!("{} {what} {}", text::mark(true), short_path(path)));
    }
    text::write_styled(&page)
}
