//! `throughline man`: writes a man page for each command.

use std::path::Path;

use anyhow::Context as _;

use crate::args::Man;
use crate::parser;
use crate::print::failure::Result;
use crate::print::text;

pub(crate) fn run(options: &Man) -> Result<()> {
    let mut command = parser::new();
    let Some(folder) = &options.output else {
        return text::write_out(&page(command)?);
    };
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
    command.build();
    let pages = write(folder, &command, "throughline")?;
    text::note(&format!("{} written to {shown}", text::count(pages, "page")));
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).context("cannot render the manual page")?;
    Ok(page)
}

/// Writes the man pages of a command and its subcommands. Returns the number of pages.
fn write(folder: &Path, command: &clap::Command, name: &str) -> Result<usize> {
    let titled = command.clone().name(name.to_owned()).display_name(name.to_owned());
    text::write_file(&folder.join(format!("{name}.1")), &page(titled)?)?;
    let mut pages = 1;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        pages += write(folder, inner, &format!("{name}-{}", inner.get_name()))?;
    }
    Ok(pages)
}
