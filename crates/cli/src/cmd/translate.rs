//! `throughline translate`: translates a request to another provider's API.

use owo_colors::{OwoColorize as _, Style};
use throughline_codec::{Codec, Document, HistoryFormat, codec, describe, fates_json};
use throughline_core::{Call, Disposition, EncodedRequest, Fate, Item, Wire};

use crate::args::{DocumentSource, Translate};
use crate::input::documents::{self, DocumentOwner};
use crate::input::rows::RequestCatalog;
use crate::input::{self, Input};
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Cell, Column, table_in};
use crate::print::text::{self, Report};

pub(crate) fn run(options: &Translate) -> Result<()> {
    match &options.from {
        DocumentSource::Wire(wire) => translate_request(options, wire),
        DocumentSource::History(format) => translate_history(options, *format),
    }
}

/// Translates a conversation in a documented format to a request.
fn translate_history(options: &Translate, format: HistoryFormat) -> Result<()> {
    let input = Input::read(&options.file)?;
    let to = codec_of(&options.to)?;
    let Some(model) = options.model.as_deref() else {
        let message = "a conversation does not name the target model; specify it with --model";
        return Err(Failure::Usage(message.to_owned()));
    };
    let rows = RequestCatalog::read(&options.catalog, None)?;
    let to_provider = options.to_provider.as_deref();
    let target = input::decode_context(&rows, &options.to, to_provider, model)?.target;
    let from_provider = options.from_provider.as_deref();
    let stays = from_provider.is_none_or(|name| *name == *target.origin.provider);
    let from_model = options.from_model.as_deref().or(stays.then_some(model));
    let is_named = options.from_model.is_some() || from_provider.is_some();
    let from_model = from_model.filter(|_| is_named);
    let owner = DocumentOwner::resolve(&rows, format, from_provider, from_model, "default")?;
    let history = documents::read(&input, format, owner.as_ref(), "--from-provider")?;
    input::note_unknown_model(&throughline_codec::DecodeContext::of(target.clone()));
    let mut call = Call::new(target);
    call.items = history.items;
    let encoded = to.encode(&call).map_err(|error| input.bad_data(error))?;
    write(options, &call, &encoded)
}

fn codec_of(wire: &Wire) -> Result<&'static dyn Codec> {
    codec(wire).ok_or_else(|| Failure::Usage(format!("no codec registered for wire `{wire}`")))
}

fn translate_request(options: &Translate, from_wire: &Wire) -> Result<()> {
    let input = Input::read(&options.file)?;
    let (from, to) = (codec_of(from_wire)?, codec_of(&options.to)?);
    let kind = input.kind(Some(from_wire))?;
    if kind.document != Document::Request {
        let message = format!("{} is not a request; only requests can be translated", input.name);
        return Err(Failure::BadData(message));
    }
    let rows = RequestCatalog::read(&options.catalog, None)?;
    let context =
        |model| input::decode_context(&rows, from_wire, options.from_provider.as_deref(), model);
    let request = input.request(from, &context(options.model.as_deref().unwrap_or("unknown"))?);
    let named_model = from.model_of(&request).filter(|model| &**model != "unknown");
    let source_model = named_model.as_deref().or(options.model.as_deref()).unwrap_or("unknown");
    let source = context(source_model)?;
    let provider = match (&options.to_provider, *from_wire == options.to) {
        (None, true) => options.from_provider.as_deref(),
        (target_provider, _) => target_provider.as_deref(),
    };
    let model = options.model.as_deref().unwrap_or(source_model);
    let is_moved = *from_wire != options.to || options.to_provider != options.from_provider;
    if is_moved && model == "unknown" {
        let message = "the request does not name its model; specify the target model with --model";
        return Err(Failure::Usage(message.to_owned()));
    }
    let target = input::decode_context(&rows, &options.to, provider, model)?;
    input::note_unknown_model(&target);
    let mut call = from.decode_request(&request, &source).map_err(|error| input.bad_data(error))?;
    call.target = target.target;
    let mut encoded = to.encode(&call).map_err(|error| input.bad_data(error))?;
    let moved = call.target.origin.provider != source.target.origin.provider;
    if moved && options.model.is_none() {
        let message = format!("`{model}` was not changed; specify the target model with --model");
        encoded.warnings.push(throughline_core::Warning::new("model", message));
    }
    write(options, &call, &encoded)
}

/// Writes the translated request, and the Fate of each of its parts.
fn write(options: &Translate, call: &Call, encoded: &EncodedRequest) -> Result<()> {
    let fates = fates_json(call, encoded);
    let report = Report { option: "--fates", file: options.fates.as_deref(), json: &fates };
    report.write_file([&options.file])?;
    text::write_document(&encoded.request.body)?;
    if !report.print() {
        print_fates(options.from.as_str(), call, encoded);
    }
    Ok(())
}

/// Prints the Fate of each Item and of the Item's Seals.
fn print_fates(from: &str, call: &Call, encoded: &EncodedRequest) {
    let origin = &call.target.origin;
    let items = || call.system.iter().chain(&call.items).zip(&encoded.fates);
    anstream::eprintln!();
    let wires = format!("{from} → {}", origin.wire);
    anstream::eprintln!("{}  {}", wires.bold(), text::plain(call.target.model()));
    let endpoint = format!("{} · POST {}", origin.provider, text::plain(&encoded.request.path));
    anstream::eprintln!("{}\n", endpoint.dimmed());
    let mark = |(_, fate): (_, &Fate)| {
        let all = fate.seals.iter().chain([&fate.visible]).map(display);
        let style = all.max_by_key(|(severity, ..)| *severity).map(|(.., style)| style);
        Cell::styled(display(&fate.visible).1, style.unwrap_or_default().bold())
    };
    let columns = vec![
        Column::new("", items().map(mark)),
        Column::new("", items().map(|(item, _)| text::plain(&item.id.0))).dimmed(),
        Column::new("", items().map(|(item, _)| text::plain(&describe(item)))),
        Column::new("", items().map(|(item, fate)| describe_fate(item, fate))),
    ];
    anstream::eprint!("{}", table_in(columns, text::width(std::io::stderr())));
    let visible = count_fates(items().map(|(_, fate)| &fate.visible));
    let seals = count_fates(items().flat_map(|(_, fate)| &fate.seals));
    let sealed = if seals.is_empty() { String::new() } else { format!("; seals: {seals}") };
    anstream::eprintln!("\n{}", format!("items: {visible}{sealed}").bold());
    for warning in &encoded.warnings {
        let message = format!("{}: {}", warning.setting, warning.message);
        text::notice("warning:", Style::new().yellow(), &message);
    }
}

/// Describes the Fates of an Item and its Seals. A Seal is described separately only if its Fate
/// differs from the Fate of the Item.
fn describe_fate(item: &Item, fate: &Fate) -> String {
    let mut fates: Vec<(&Disposition, usize, usize)> = Vec::new();
    for (seal, did) in item.seals.iter().zip(&fate.seals) {
        match fates.iter_mut().find(|(other, ..)| *other == did) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + seal.len()),
            None => fates.push((did, 1, seal.len())),
        }
    }
    let visible = fate.visible.to_string();
    let word = fate.visible.as_str();
    let why = visible.strip_prefix(word).unwrap_or_default();
    let (mut with, mut apart) = (String::new(), String::new());
    for (did, count, bytes) in fates {
        let size = text::size(bytes);
        let seals = if count == 1 { "seal".to_owned() } else { format!("{count} seals") };
        if *did == fate.visible {
            with = format!(" with its {seals} of {size}");
        } else {
            apart = format!("{apart}\nits {seals} of {size} {did}");
        }
    }
    format!("{word}{with}{why}{apart}")
}

/// Counts Items or Seals by Fate, as `= 5 kept · × 1 elided`.
fn count_fates<'d>(dids: impl Iterator<Item = &'d Disposition>) -> String {
    let mut counts: Vec<(&Disposition, usize)> = Vec::new();
    for did in dids {
        match counts.iter_mut().find(|(other, _)| other.as_str() == did.as_str()) {
            Some((_, count)) => *count += 1,
            None => counts.push((did, 1)),
        }
    }
    let counts = counts.iter().map(|(fate, count)| {
        let ((_, mark, _), word) = (display(fate), fate.as_str());
        format!("{mark} {count} {word}")
    });
    counts.collect::<Vec<_>>().join(" · ")
}

/// Returns the severity, mark and colour for a Fate.
fn display(fate: &Disposition) -> (u8, &'static str, Style) {
    match fate {
        Disposition::Kept => (0, "=", Style::new().green()),
        Disposition::Restored(_) => (1, "+", Style::new().cyan()),
        Disposition::Reshaped(_) => (2, "~", Style::new().yellow()),
        Disposition::Elided(_) => (3, "×", Style::new().red()),
    }
}
