//! `throughline show`: prints the messages, thoughts and Seals in a document.

use std::borrow::Cow;
use std::collections::HashMap;

use owo_colors::{OwoColorize as _, Style};
use throughline_codec::{DecodeContext, Document, HistoryFormat, StreamDecoder};
use throughline_core::{
    Body, Call, CallId, Event, Failure as ProviderFailure, Item, Media, Outcome, Part, Reply, Role,
    StopReason, ThoughtKind,
};
use throughline_json::{self as json, Json, Node};

use crate::args::{Format, Show};
use crate::input::documents::{self, DocumentOwner};
use crate::input::rows::RequestCatalog;
use crate::input::{self, DocumentKind, Input};
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, compact, count, plain, size, wrapped, write_styled};

/// Maximum length of a text that is printed in full without `--full`.
const SHORT: usize = 600;

enum Shown {
    Call(Box<Call>),
    Reply(Box<Reply>),
    /// A provider error, with the partial reply that preceded it.
    Failure(ProviderFailure, Option<Box<Reply>>),
}

pub(crate) fn run(options: &Show) -> Result<()> {
    let input = Input::read(&options.file)?;
    if let Some(format) = options.from {
        return show_history(options, &input, format);
    }
    let kind = input.kind(options.wire.as_ref())?;
    let wire = kind.codec.wire();
    let rows = RequestCatalog::read(&options.catalog, None)?;
    let context_for =
        |model: &str| input::decode_context(&rows, &wire, options.provider.as_deref(), model);
    let mut context = context_for(options.model.as_deref().unwrap_or("unknown"))?;
    let request = input.request(kind.codec, &context);
    if options.model.is_none()
        && kind.document == Document::Request
        && let Some(model) = kind.codec.model_of(&request)
    {
        context = context_for(&model)?;
    }
    let shown = read(&input, &kind, &context, &request)?;
    match options.format {
        Format::Json => text::write_json(&json_of(&kind, &context, &shown)),
        Format::Text => {
            if kind.document == Document::Request {
                input::note_unknown_model(&context);
            }
            write_styled(&timeline(&kind, &context, &shown, options.full))
        }
    }
}

/// Shows a conversation in a documented format.
fn show_history(options: &Show, input: &Input, format: HistoryFormat) -> Result<()> {
    let rows = RequestCatalog::read(&options.catalog, None)?;
    let (provider, model) = (options.provider.as_deref(), options.model.as_deref());
    let owner = DocumentOwner::resolve(&rows, format, provider, model, "default")?;
    let history = documents::read(input, format, owner.as_ref(), "--provider")?;
    let origin = owner.as_ref().map(|owner| &owner.target.origin);
    let items = &history.items;
    match options.format {
        Format::Json => text::write_json(&json::object(|o| {
            o.string("format", format.as_str()).string("document", "history");
            o.maybe_string("provider", origin.map(|origin| &*origin.provider));
            o.maybe_string("model", origin.map(|origin| &*origin.asked));
            put_items(o, items);
        })),
        Format::Text => {
            let width = text::width(std::io::stdout());
            let mut page = Page { out: String::new(), is_full: options.full, width };
            let model = origin.map_or("unknown", |origin| &origin.asked);
            let provider = origin.map_or("unknown provider", |origin| &origin.provider);
            page.title(format.as_str(), "history", model, provider);
            page.items(items);
            page.totals(items.iter());
            write_styled(&page.out)
        }
    }
}

fn read(
    input: &Input,
    kind: &DocumentKind,
    context: &DecodeContext,
    request: &throughline_core::Request,
) -> Result<Shown> {
    let codec = kind.codec;
    let read = match (kind.document, kind.framing) {
        (_, Some(framing)) => {
            let mut decoder = StreamDecoder::with_framing(codec, context, framing);
            let mut events = decoder.push(&input.bytes).map_err(|error| input.bad_data(error))?;
            events.extend(decoder.finish().map_err(|error| input.bad_data(error))?);
            let (mut failed, mut ended) = (None, None);
            for event in events {
                match event {
                    Event::Failed(failure) => failed = failed.or(Some(failure)),
                    Event::Ended(reply) => ended = ended.or(Some(reply)),
                    _ => {}
                }
            }
            if let Some(failure) = failed {
                return Ok(Shown::Failure(failure, ended.filter(|reply| !reply.items.is_empty())));
            }
            let empty =
                || Failure::BadData(format!("{}: the stream contains no response", input.name));
            return ended.map(Shown::Reply).ok_or_else(empty);
        }
        (Document::Request, None) => {
            codec.decode_request(request, context).map(|call| Shown::Call(Box::new(call)))
        }
        (Document::Response | Document::Event, None) => {
            codec.decode_reply(&input.bytes, context).map(|reply| Shown::Reply(Box::new(reply)))
        }
    };
    match read {
        Err(throughline_codec::CodecError::Provider(failure)) => Ok(Shown::Failure(*failure, None)),
        read => read.map_err(|error| input.bad_data(error)),
    }
}

fn timeline(kind: &DocumentKind, context: &DecodeContext, shown: &Shown, is_full: bool) -> String {
    let width = text::width(std::io::stdout());
    let mut page = Page { out: String::new(), is_full, width };
    let wire = kind.codec.wire();
    let origin = &context.target.origin;
    match shown {
        Shown::Call(call) => {
            page.title(wire.as_str(), "request", &origin.asked, &origin.provider);
            page.settings(call);
            page.items(&call.system);
            page.items(&call.items);
            page.totals(call.system.iter().chain(&call.items));
        }
        Shown::Reply(reply) => {
            let document = if kind.framing.is_some() { "stream" } else { "response" };
            page.title(wire.as_str(), document, &reply.origin.answered, &origin.provider);
            page.items(&reply.items);
            page.stop(reply);
            page.totals(reply.items.iter());
        }
        Shown::Failure(failure, before) => {
            page.title(wire.as_str(), "error", &origin.asked, &origin.provider);
            if let Some(reply) = before {
                page.items(&reply.items);
                page.line("");
            }
            let kind = failure.kind.as_deref().map(|kind| format!("{kind}: ")).unwrap_or_default();
            let message = plain(&format!("{kind}{}", failure.message));
            let message = wrapped(&message, width.saturating_sub(2)).join("\n  ");
            page.line(&format!("{} {message}", "✗".red().bold()));
        }
    }
    page.out
}

/// Buffers the command's output, which is printed at the end.
struct Page {
    out: String,
    is_full: bool,
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn title(&mut self, wire: &str, document: &str, model: &str, provider: &str) {
        let model = if model == "unknown" { "no model named".to_owned() } else { plain(model) };
        let from = format!("· {provider}");
        self.line(&format!("{} {document}  {model} {}", wire.bold(), from.dimmed()));
    }

    fn settings(&mut self, call: &Call) {
        let settings = &call.settings;
        let mut parts = Vec::new();
        parts.extend(settings.max_tokens.map(|count| format!("at most {count} tokens")));
        if let Some(reasoning) = &settings.reasoning {
            let state = if reasoning.is_off() { "reasoning off" } else { "reasoning" };
            let mut details = vec![state.to_owned()];
            details.extend(reasoning.effort.as_ref().map(|effort| format!("effort {effort}")));
            details.extend(reasoning.budget_tokens.map(|budget| format!("budget {budget}")));
            parts.push(details.join(", "));
        }
        parts.extend(call.stream.then(|| "streamed".to_owned()));
        parts.extend(call.resumes.as_ref().map(|id| format!("continues {id}")));
        if !call.tools.is_empty() {
            let names = call.tools.iter().map(|tool| &*tool.name);
            let names = names.map(|name| if name.is_empty() { "unnamed" } else { name });
            parts.push(format!("tools {}", names.collect::<Vec<_>>().join(", ")));
        }
        for line in wrapped(&plain(&parts.join(" · ")), self.width) {
            self.line(&line.dimmed().to_string());
        }
    }

    /// Prints the Items, with a heading whenever the role changes.
    fn items<'i>(&mut self, items: &'i [Item]) {
        let name = |item: &'i Item| match &item.body {
            Body::Call(call) => Some((&call.id, &*call.name)),
            _ => None,
        };
        let names: HashMap<&CallId, &str> = items.iter().filter_map(name).collect();
        let is_text = |item: &Item| matches!(item.body, Body::Text(_));
        let mut last: Option<&Item> = None;
        for item in items {
            let is_same = |last: &&Item| last.role == item.role && last.ephemeral == item.ephemeral;
            match last.filter(is_same) {
                None => self.heading(item),
                // Print a separator between two adjacent texts.
                Some(last) if is_text(last) && is_text(item) => {
                    self.line(&format!("  {}", "╌".dimmed()));
                }
                Some(_) => {}
            }
            self.item(item, &names);
            last = Some(item);
        }
    }

    fn heading(&mut self, item: &Item) {
        let style = match item.role {
            Role::System | Role::Developer | Role::User => Style::new(),
            Role::Assistant => Style::new().cyan(),
            Role::Tool => Style::new().magenta(),
        };
        let flag = item.ephemeral.then(|| format!("  {}", "ephemeral".dimmed()));
        let role = role_word(item.role).style(style.bold()).to_string();
        self.line(&format!("\n{role}{}", flag.unwrap_or_default()));
    }

    /// Prints one Item as plain text, or as a label with its content indented below.
    fn item(&mut self, item: &Item, names: &HashMap<&CallId, &str>) {
        let (mark, label, text) = describe(item, names);
        if !label.is_empty() {
            self.line(&format!("  {mark} {label}"));
            self.paragraph("    ", &text);
        } else if text.is_empty() {
            self.line(&format!("  {}", "│ empty".dimmed()));
        } else {
            self.paragraph("  ", &text);
        }
        for seal in &item.seals {
            let (owner, bytes) = (&seal.owner.provider, size(seal.len()));
            let mark = "●".green().to_string();
            self.line(&format!("    {mark} sealed by {owner}: {bytes} ({})", seal.format));
        }
        if let Body::Thought(thought) = &item.body {
            if !thought.whole {
                self.line(&format!("    {} cut off: cannot be replayed", "○".red()));
            } else if item.seals.is_empty() {
                self.line(&format!("    {} not sealed", "○".yellow()));
            }
        }
    }

    fn paragraph(&mut self, indent: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let bar = format!("{indent}{}", "│".dimmed());
        let total = text.chars().count();
        let is_cut = !self.is_full && total > SHORT;
        let mut shown: String =
            if is_cut { text.chars().take(SHORT).collect() } else { text.to_owned() };
        if is_cut && let Some(end) = shown.rfind(char::is_whitespace).filter(|end| *end > SHORT / 2)
        {
            shown.truncate(end);
        }
        for line in wrapped(&plain(&shown), self.width.saturating_sub(indent.len() + 2)) {
            self.line(&format!("{bar} {line}"));
        }
        if is_cut {
            let rest = total - shown.chars().count();
            let rest = format!("… and {rest} more characters; use --full to show them");
            self.line(&format!("{bar} {}", rest.dimmed()));
        }
    }

    fn stop(&mut self, reply: &Reply) {
        let usage = &reply.usage;
        let is_short =
            matches!(reply.stop, StopReason::Length | StopReason::Refused(_) | StopReason::Cut);
        let mark = if is_short { format!("{} ", "!".red().bold()) } else { String::new() };
        let part = |count: u64, word: &str| {
            if count > 0 { format!(" ({count} {word})") } else { String::new() }
        };
        let mut tokens = String::new();
        if usage.total() > 0 {
            let (cached, thought) = (part(usage.cached, "cached"), part(usage.thought, "thought"));
            let (input, output) = (usage.input, usage.output);
            tokens = format!(" · tokens in {input}{cached} · out {output}{thought}");
        }
        self.line(&format!("\n{mark}{}{}", plain(&stop_word(&reply.stop)), tokens.dimmed()));
        if reply.stop == StopReason::Cut {
            self.line("  the stream ended early: no part of it can be replayed");
        }
    }

    fn totals<'i>(&mut self, items: impl Iterator<Item = &'i Item> + Clone) {
        let thoughts = items.clone().filter(|item| matches!(item.body, Body::Thought(_))).count();
        let calls = items.clone().filter(|item| matches!(item.body, Body::Call(_))).count();
        let seals: usize = items.clone().map(|item| item.seals.len()).sum();
        let mut totals = vec![count(items.count(), "item")];
        for (number, noun) in [(thoughts, "thought"), (seals, "seal"), (calls, "tool call")] {
            totals.extend((number > 0).then(|| count(number, noun)));
        }
        self.line(&format!("\n{}", totals.join(" · ").bold()));
    }
}

fn stop_word(stop: &StopReason) -> Cow<'_, str> {
    Cow::Borrowed(match stop {
        StopReason::Done => "done",
        StopReason::Tools => "waits for tools",
        StopReason::Length => "reached the token limit",
        StopReason::Sequence(_) => "reached a stop sequence",
        StopReason::Paused => "paused",
        StopReason::Refused(why) => return Cow::Owned(format!("refused: {why}")),
        StopReason::Cut => "cut off",
        StopReason::Other(word) => word,
    })
}

pub(crate) fn role_word(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// Returns the mark, label and text that represent an Item.
fn describe(item: &Item, names: &HashMap<&CallId, &str>) -> (String, String, String) {
    match &item.body {
        Body::Text(text) => (String::new(), String::new(), text.to_string()),
        Body::Summary { text, .. } => ("≡".to_owned(), "summary".to_owned(), text.to_string()),
        Body::Thought(thought) => {
            let kind = kind_word(thought.kind);
            ("◆".cyan().to_string(), format!("thought, {kind}"), thought.content.to_string())
        }
        Body::Call(call) => {
            let label =
                format!("calls {}  {}", plain(&call.name).bold(), plain(&call.id.0).dimmed());
            ("▸".magenta().to_string(), label, compact(call.args.as_str()))
        }
        Body::Result(result) => {
            let outcome = match result.outcome {
                Outcome::Ok => None,
                Outcome::Error => Some("failed"),
                Outcome::Unknown => Some("outcome unknown"),
                Outcome::Denied => Some("denied"),
            };
            let outcome = outcome.map(|word| format!(", {}", word.red())).unwrap_or_default();
            let name = result.name.as_deref().or_else(|| names.get(&result.call).copied());
            let (name, id) = (plain(name.unwrap_or("a call")), plain(&result.call.0));
            let label = format!("answers {}{outcome}  {}", name.bold(), id.dimmed());
            let parts: Vec<String> = result.parts.iter().map(part_text).collect();
            ("◂".magenta().to_string(), label, parts.join("\n"))
        }
        Body::Hosted(hosted) => {
            let label = if hosted.is_result { "result of" } else { "provider runs" };
            let label = format!("{label} {}", plain(&hosted.name).bold());
            ("▹".magenta().to_string(), label, hosted.visible.to_string())
        }
        Body::Media(media) => ("▣".to_owned(), media_word(media), String::new()),
        Body::Compaction => ("≡".cyan().to_string(), "compaction".to_owned(), String::new()),
        Body::Unknown => {
            let kind = kind_of(item).map(|kind| format!("  {}", plain(&kind).dimmed()));
            let label = format!("unknown, kept unchanged{}", kind.unwrap_or_default());
            ("?".yellow().to_string(), label, String::new())
        }
    }
}

/// Returns the `type` of an Item's original JSON. If there is no `type`, returns the name of the
/// first field.
fn kind_of(item: &Item) -> Option<String> {
    let tree = item.native.as_ref()?.json.tree();
    let kind = tree.root().get("type").and_then(Node::text);
    let kind = kind.or_else(|| tree.root().members().next()?.0.text());
    kind.map(|kind| kind.chars().take(40).collect())
}

fn kind_word(kind: ThoughtKind) -> &'static str {
    match kind {
        ThoughtKind::Text => "text",
        ThoughtKind::Summary => "summary",
        ThoughtKind::Encrypted => "encrypted",
    }
}

fn part_text(part: &Part) -> String {
    match part {
        Part::Text(text) => text.to_string(),
        Part::Value(value) => value.as_str().to_owned(),
        Part::Media(media) => format!("[{}]", media_word(media)),
        Part::Unknown(_, _) => "[unknown part]".to_owned(),
    }
}

fn media_word(media: &Media) -> String {
    match media {
        Media::Inline { mime, base64 } => {
            let padding = base64.iter().rev().take_while(|byte| **byte == b'=').count();
            format!("{}, {}", plain(mime), size((base64.len() - padding) * 3 / 4))
        }
        Media::Remote { uri, .. } => plain(uri),
    }
}

fn json_of(kind: &DocumentKind, context: &DecodeContext, shown: &Shown) -> Json {
    let wire = kind.codec.wire();
    json::object(|o| {
        o.string("wire", wire.as_str()).string("provider", &context.target.origin.provider);
        match shown {
            Shown::Call(call) => {
                o.string("document", "request").string("model", call.target.model());
                o.bool("stream", call.stream);
                if let Some(count) = call.settings.max_tokens {
                    o.number("max_tokens", count);
                }
                if let Some(reasoning) = &call.settings.reasoning {
                    o.object("reasoning", |o| {
                        o.bool("on", !reasoning.is_off());
                        o.maybe_string("effort", reasoning.effort.as_deref());
                        if let Some(budget) = reasoning.budget_tokens {
                            o.number("budget_tokens", budget);
                        }
                    });
                }
                o.raw("tools", &strings(call.tools.iter().map(|tool| &*tool.name)));
                put_items(o, call.system.iter().chain(&call.items));
            }
            Shown::Reply(reply) => {
                o.string("document", if kind.framing.is_some() { "stream" } else { "response" });
                o.string("model", &reply.origin.answered).maybe_string("id", reply.id.as_deref());
                o.string("stop", &stop_word(&reply.stop));
                o.object("usage", |o| {
                    let usage = &reply.usage;
                    o.number("input", usage.input).number("cached", usage.cached);
                    o.number("written", usage.written).number("output", usage.output);
                    o.number("thought", usage.thought);
                });
                put_items(o, &reply.items);
            }
            Shown::Failure(failure, _) => {
                o.string("document", "error").maybe_string("kind", failure.kind.as_deref());
                o.string("message", &failure.message);
            }
        }
    })
}

fn put_items<'i>(o: &mut json::Object<'_>, items: impl IntoIterator<Item = &'i Item>) {
    o.array("items", |list| {
        for item in items {
            list.object(|o| put_item(o, item));
        }
    });
}

fn put_item(o: &mut json::Object<'_>, item: &Item) {
    o.string("id", &item.id.0);
    o.number("message", u64::from(item.place.message)).number("part", u64::from(item.place.part));
    o.string("role", role_word(item.role));
    match &item.body {
        Body::Text(text) => o.string("kind", "text").string("text", text),
        Body::Summary { text, .. } => o.string("kind", "summary").string("text", text),
        Body::Thought(thought) => o
            .string("kind", "thought")
            .string("thought", kind_word(thought.kind))
            .string("text", &thought.content)
            .bool("whole", thought.whole)
            .string("format", thought.format.as_str()),
        Body::Call(call) => {
            o.string("kind", "call").string("call", &call.id.0).string("name", &call.name);
            o.raw("arguments", &call.args)
        }
        Body::Result(result) => {
            o.string("kind", "result").string("call", &result.call.0);
            o.bool("ok", result.outcome == Outcome::Ok);
            o.raw("parts", &strings(result.parts.iter().map(part_text)))
        }
        Body::Hosted(hosted) => {
            o.string("kind", "hosted").string("name", &hosted.name);
            o.bool("result", hosted.is_result)
        }
        Body::Media(media) => o.string("kind", "media").string("media", &media_word(media)),
        Body::Compaction => o.string("kind", "compaction"),
        Body::Unknown => o.string("kind", "unknown"),
    };
    o.array("seals", |a| {
        for seal in &item.seals {
            a.object(|o| {
                o.string("format", &seal.format).number("bytes", seal.len() as u64);
                o.string("owner", &seal.owner.provider).string("at", &seal.attached.at);
            });
        }
    });
}

fn strings(texts: impl Iterator<Item = impl AsRef<str>>) -> Json {
    json::array(|list| {
        for text in texts {
            list.string(text.as_ref());
        }
    })
}
