//! Pending approvals and questions: listing, prompting and parsing of answers.

use std::io::Write as _;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use throughline_agent::{RunCommand, State};
use throughline_json::Name;
use throughline_spec::{
    PendingToolApproval, PendingUserQuestion, RedactionPolicy, ToolApprovalResolution,
    ToolApprovalStatus, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionResolution, UserQuestionStatus,
};

use crate::print::failure::Failure;
use crate::print::text::{one_line, plain};

/// Maximum length of displayed arguments.
const LONGEST: usize = 400;

/// Description of a call whose outcome is unknown.
pub(crate) const UNKNOWN_OUTCOME: &str = "this call was started, but no result was recorded";
/// Effect of a rejection on such a call.
pub(crate) const REJECT_EFFECT: &str = "rejecting reports an unknown outcome to the model";

/// Returns the pending tool approvals of a run.
pub(crate) fn approvals(state: &State) -> impl Iterator<Item = &PendingToolApproval> {
    let all = state.smart.pending_approvals.iter().flatten();
    all.filter(|waits| waits.status == ToolApprovalStatus::Pending)
}

/// Returns the pending questions of a run.
pub(crate) fn questions(state: &State) -> impl Iterator<Item = &PendingUserQuestion> {
    let all = state.smart.pending_user_questions.iter().flatten();
    all.filter(|waits| waits.status == UserQuestionStatus::Pending)
}

/// Prompts for all pending requests and returns the decisions; `None` at end of input.
pub(crate) async fn prompt_decisions(
    state: &State,
    policy: &RedactionPolicy,
) -> Result<Option<Vec<RunCommand>>, Failure> {
    let mut words = Vec::new();
    for approval in approvals(state) {
        let Some(word) = decide(approval, state.is_lost(&approval.id), policy).await? else {
            return Ok(None);
        };
        words.push(word);
    }
    for question in questions(state) {
        let Some(word) = ask(question).await? else { return Ok(None) };
        words.push(word);
    }
    Ok(Some(words))
}

async fn decide(
    approval: &PendingToolApproval,
    is_lost: bool,
    policy: &RedactionPolicy,
) -> Result<Option<RunCommand>, Failure> {
    let args = policy.redact_text(approval.args.as_str()).into_owned();
    let tool = plain(&approval.tool_name);
    let question = format!("{} {}", tool.bold(), one_line(&plain(&args), LONGEST));
    let ask = if is_lost {
        format!(
            "{UNKNOWN_OUTCOME}. Run it AGAIN? [y/n, or n and a reason; n reports an unknown outcome to the model]"
        )
    } else {
        "Approve this call? [y/n, or n and a reason]".to_owned()
    };
    loop {
        let prompt = format!("{question} {ask} ");
        let Some(said) = line(&prompt).await? else { return Ok(None) };
        let (word, rest) = said.split_once(char::is_whitespace).unwrap_or((&said, ""));
        let approved = match word.to_ascii_lowercase().as_str() {
            "y" | "yes" => true,
            "n" | "no" => false,
            _ => continue,
        };
        let mut resolution = ToolApprovalResolution::new(approval.id.clone(), approved);
        let comment = rest.trim();
        resolution.comment = (!comment.is_empty()).then(|| Name::from(comment));
        return Ok(Some(RunCommand::Decide(resolution)));
    }
}

async fn ask(question: &PendingUserQuestion) -> Result<Option<RunCommand>, Failure> {
    let mut said = Vec::new();
    for item in &question.questions {
        let options = item.options.iter().flatten().enumerate().map(|(number, option)| {
            let about = option.description.as_deref().map(|about| format!(": {about}"));
            let about = plain(&about.unwrap_or_default());
            format!("  {}  {}{about}\n", number + 1, plain(&option.label))
        });
        let options: String = options.collect();
        let prompt = format!("{}\n{options}> ", plain(&item.question).bold());
        let Some(answer) = line(&prompt).await? else { return Ok(None) };
        said.push(answer);
    }
    let mut resolution = UserQuestionResolution::new(question.id.clone());
    resolution.answers = Some(parse_answers(question, &said)?);
    Ok(Some(RunCommand::Answer(resolution)))
}

/// Matches answers to the questions in order.
pub(crate) fn parse_answers(
    question: &PendingUserQuestion,
    said: &[String],
) -> Result<UserQuestionAnswerSet, Failure> {
    let asked = &question.questions;
    if said.len() != asked.len() {
        return Err(Failure::Usage(format!(
            "there are {} questions but {} answers; give one answer per question, in order",
            asked.len(),
            said.len()
        )));
    }
    let each = asked.iter().zip(said);
    let each = each.map(|(asked, said)| (asked.question.clone(), answer(asked, said)));
    Ok(UserQuestionAnswerSet(each.collect()))
}

/// Parses an answer: options by number, name or value, else free text.
fn answer(asked: &UserQuestionItem, said: &str) -> UserQuestionAnswer {
    let options = asked.options.as_deref().unwrap_or_default();
    let find = |word: &str| {
        let word = word.trim();
        let number = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_number = number.and_then(|place| options.get(place));
        let is_it = |text: &str| text.eq_ignore_ascii_case(word);
        let by_name = || options.iter().find(|o| is_it(&o.label) || is_it(o.answer()));
        by_number.or_else(by_name).map(|option| option.answer().clone())
    };
    let parts: Vec<&str> =
        if asked.is_multi_select() { said.split(',').collect() } else { vec![said] };
    let chosen: Option<Vec<Name>> = parts.into_iter().map(find).collect();
    match chosen {
        Some(values) => UserQuestionAnswer::new(values),
        None => {
            let mut answer = UserQuestionAnswer::new(Vec::new());
            let said = said.trim();
            answer.free_text = (!said.is_empty()).then(|| Name::from(said));
            answer
        }
    }
}

/// Reads a line from the terminal; `None` at end of input.
async fn line(prompt: &str) -> Result<Option<String>, Failure> {
    let mut out = anstream::stderr();
    let asked = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
    asked.context("the question cannot be printed")?;
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    let line = read.await.context("the answer cannot be read")?;
    let line = line.context("the answer cannot be read")?;
    Ok(line.map(|line| line.trim().to_owned()))
}
