//! `throughline inbox`: lists pending questions and approvals.

use std::collections::BTreeMap;

use owo_colors::OwoColorize as _;
use throughline_agent::State;
use throughline_core::{LogId, PendingEntry, PendingStatus, Store as _};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{RedactionPolicy, ThoughtRedaction, UserQuestionItem};

use crate::agent::{
    self, AgentContext, CommandHints, ModelAccess, REJECT_EFFECT, UNKNOWN_OUTCOME, approvals,
    option_lines, questions,
};
use crate::args::{Inbox, StoreArgs};
use crate::print::failure::Result;
use crate::print::text::{minute, one_line, plain, push_line, width, wrapped};

pub(crate) fn run(options: &Inbox) -> Result<()> {
    agent::with(&options.common.at, ModelAccess::NoModels, async |context| {
        let run = options.run.as_deref().map(LogId::from);
        let entries = entries(context, run.as_ref()).await?;
        let json = || {
            json::object(|o| {
                o.array("waiting", |list| {
                    for entry in &entries {
                        list.object(|o| entry.put(o));
                    }
                });
            })
        };
        options.common.format.print(|| page_of(&entries, &options.common.at), json)
    })
}

/// A pending approval or question, with details from its run.
struct InboxEntry {
    pending: PendingEntry,
    /// Name and arguments of the tool that needs approval; `None` for questions.
    call: Option<(Name, Json)>,
    /// Whether the tool call was started earlier and its outcome is unknown.
    is_lost: bool,
    questions: Vec<Json>,
    /// Whether the questions can be answered with free text.
    allows_text: bool,
}

async fn entries(context: &AgentContext, run: Option<&LogId>) -> Result<Vec<InboxEntry>> {
    if let Some(run) = run {
        context.run(context.runner.status(&context.tenant, run)).await?;
    }
    let pending = context.run(context.journal.pending(&context.tenant, run)).await?;
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let mut entries = Vec::new();
    for pending in pending.into_iter().filter(|pending| pending.status == PendingStatus::Open) {
        if !states.contains_key(&pending.log) {
            // A log that is not a run has no state, so its request is listed without details.
            states.insert(pending.log.clone(), context.state(&pending.log).await.ok());
        }
        let state = states.get(&pending.log).and_then(Option::as_ref);
        entries.push(InboxEntry::new(pending, state, &context.policy));
    }
    Ok(entries)
}

impl InboxEntry {
    fn new(pending: PendingEntry, state: Option<&State>, policy: &RedactionPolicy) -> Self {
        let shown = |value: &Json| policy.redact_json(value, ThoughtRedaction::Redact).into_owned();
        let approval =
            state.and_then(|state| approvals(state).find(|request| request.id == pending.id));
        let call = approval.map(|request| (request.tool_name.clone(), shown(&request.args)));
        let question =
            state.and_then(|state| questions(state).find(|request| request.id == pending.id));
        let allows_text = question.and_then(|request| request.allow_free_text).unwrap_or(false);
        let questions = question.into_iter().flat_map(|request| &request.questions);
        let questions = questions.map(|question| shown(&question.json())).collect();
        let is_lost = state.is_some_and(|state| state.is_lost(&pending.id));
        Self { pending, call, is_lost, questions, allows_text }
    }

    fn put(&self, o: &mut json::Object<'_>) {
        let PendingEntry { id, kind, log, opened, expires, .. } = &self.pending;
        o.string("id", id).string("kind", kind).string("run", &log.0);
        o.string("opened", &opened.to_string());
        match expires {
            Some(at) => o.string("expires", &at.to_string()),
            None => o.null("expires"),
        };
        if let Some((tool, args)) = &self.call {
            o.string("tool", tool).raw("args", args);
        }
        if self.is_lost {
            o.string("outcome", "unknown");
        }
        if !self.questions.is_empty() {
            o.array("questions", |list| {
                for question in &self.questions {
                    list.raw(question);
                }
            });
            o.bool("allowFreeText", self.allows_text);
        }
    }

    /// Describes the request in plain text: the call, or each question with its options.
    fn describe(&self, width: usize) -> Vec<String> {
        if let Some((tool, args)) = &self.call {
            return vec![one_line(&plain(&format!("{tool} {}", args.as_str())), width)];
        }
        let mut lines = Vec::new();
        for item in &self.items() {
            lines.extend(wrapped(&plain(&item.question), width));
            for option in option_lines(item, self.allows_text) {
                let option = wrapped(&option, width.saturating_sub(5));
                let indents = ["  ", "     "].into_iter().chain(std::iter::repeat("     "));
                lines.extend(indents.zip(option).map(|(indent, line)| format!("{indent}{line}")));
            }
        }
        lines
    }

    /// Returns the questions of the request.
    fn items(&self) -> Vec<UserQuestionItem> {
        let items = self.questions.iter().map(UserQuestionItem::parse);
        items.filter_map(Result::ok).collect()
    }
}

fn page_of(entries: &[InboxEntry], at: &StoreArgs) -> String {
    if entries.is_empty() {
        return "there are no pending requests\n".to_owned();
    }
    let (hint, width) = (CommandHints::new(at, None), width(std::io::stdout()));
    let mut page = String::new();
    for entry in entries {
        let PendingEntry { id, kind, log, opened, expires, .. } = &entry.pending;
        let until = expires.map(|at| format!(", until {}", minute(at))).unwrap_or_default();
        let head =
            format!("{} of {}, since {}{until}", plain(kind), plain(&log.0), minute(*opened));
        push_line(&mut page, &format!("{}  {head}", plain(id).bold()));
        for line in entry.describe(width - 2) {
            push_line(&mut page, &format!("  {line}"));
        }
        if entry.is_lost {
            let effects = format!("if you approve this call, it runs again; {REJECT_EFFECT}");
            push_line(&mut page, &format!("  {UNKNOWN_OUTCOME}: {effects}"));
        }
        let command = match &**kind {
            "approval" => format!("{} or reject", hint.command("approve", id)),
            "question" => hint.answer(id, &entry.items()),
            _ => "the client that runs the tool returns its result".to_owned(),
        };
        push_line(&mut page, &format!("  {}", command.dimmed()));
    }
    page
}
