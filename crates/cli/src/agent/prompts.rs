//! Pending approvals and questions: lists them, prompts the user for decisions, and parses the
//! answers.

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use throughline_agent::{RunCommand, State};
use throughline_json::Name;
use throughline_spec::{
    PendingToolApproval, PendingUserQuestion, RedactionPolicy, ToolApprovalResolution,
    ToolApprovalStatus, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionResolution, UserQuestionStatus,
};

use crate::print::failure::{Failure, Result};
use crate::print::text::{self, one_line, plain};

/// Maximum length of printed call arguments.
const LONGEST: usize = 400;

/// Message for a tool call whose outcome is unknown.
pub(crate) const UNKNOWN_OUTCOME: &str = "this call was started, but no result was recorded";
/// Message about the effect of rejecting a tool call whose outcome is unknown.
pub(crate) const REJECT_EFFECT: &str =
    "if you reject this call, the model receives the outcome \"unknown\"";

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

/// Prompts for all pending requests and returns the decisions; `None` if the input ends first.
pub(crate) async fn prompt_decisions(
    state: &State,
    policy: &RedactionPolicy,
) -> Result<Option<Vec<RunCommand>>> {
    let mut commands = Vec::new();
    for approval in approvals(state) {
        let command = decide(approval, state.is_lost(&approval.id), policy).await?;
        let Some(command) = command else { return Ok(None) };
        commands.push(command);
    }
    for question in questions(state) {
        let Some(command) = ask(question).await? else { return Ok(None) };
        commands.push(command);
    }
    Ok(Some(commands))
}

async fn decide(
    approval: &PendingToolApproval,
    is_lost: bool,
    policy: &RedactionPolicy,
) -> Result<Option<RunCommand>> {
    let args = one_line(&plain(&policy.redact_text(approval.args.as_str())), LONGEST);
    let question = if is_lost {
        format!(
            "{UNKNOWN_OUTCOME}. Run the call AGAIN? [y/n, or n and a reason; if you enter n, the \
             model receives the outcome \"unknown\"]"
        )
    } else {
        "Approve this call? [y/n, or n and a reason]".to_owned()
    };
    let prompt = format!("{} {args} {question} ", plain(&approval.tool_name).bold());
    loop {
        let Some(line) = read_line(&prompt).await? else { return Ok(None) };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
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

async fn ask(question: &PendingUserQuestion) -> Result<Option<RunCommand>> {
    let mut answers = Vec::new();
    for item in &question.questions {
        let options = option_lines(item).into_iter().map(|line| format!("  {line}\n"));
        let options: String = options.collect();
        let prompt = format!("{}\n{options}> ", plain(&item.question).bold());
        let Some(answer) = read_line(&prompt).await? else { return Ok(None) };
        answers.push(answer);
    }
    let mut resolution = UserQuestionResolution::new(question.id.clone());
    resolution.answers = Some(parse_answers(question, &answers)?);
    Ok(Some(RunCommand::Answer(resolution)))
}

/// Describes the options of a question, one numbered line per option.
pub(crate) fn option_lines(item: &UserQuestionItem) -> Vec<String> {
    let options = item.options.iter().flatten().enumerate().map(|(number, option)| {
        let description = option.description.as_deref().unwrap_or_default();
        let description = if description.is_empty() { "" } else { &format!(": {description}") };
        let line = format!("{}{description}", option.label);
        format!("{}  {}", number + 1, plain(&line).replace('\n', " "))
    });
    options.collect()
}

/// Parses one answer per question; answers must be in the order of the questions.
pub(crate) fn parse_answers(
    question: &PendingUserQuestion,
    answers: &[String],
) -> Result<UserQuestionAnswerSet> {
    let items = &question.questions;
    let (expected, given) = (items.len(), answers.len());
    if expected != given {
        return Err(Failure::Usage(format!(
            "there are {expected} questions but {given} answers; give one answer per question, in order"
        )));
    }
    let answers = items.iter().zip(answers);
    let answers = answers.map(|(item, text)| (item.question.clone(), parse_answer(item, text)));
    Ok(UserQuestionAnswerSet(answers.collect()))
}

/// Parses an answer. Options can be given by number, name or value; any other answer is free text.
fn parse_answer(item: &UserQuestionItem, text: &str) -> UserQuestionAnswer {
    let options = item.options.as_deref().unwrap_or_default();
    let find = |choice: &str| {
        let choice = choice.trim();
        let number = choice.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_number = number.and_then(|index| options.get(index));
        let is_same = |text: &str| text.eq_ignore_ascii_case(choice);
        let by_name = || options.iter().find(|o| is_same(&o.label) || is_same(o.answer()));
        by_number.or_else(by_name).map(|option| option.answer().clone())
    };
    let parts: Vec<&str> =
        if item.is_multi_select() { text.split(',').collect() } else { vec![text] };
    let chosen: Option<Vec<Name>> = parts.into_iter().map(find).collect();
    let free_text = chosen.is_none().then(|| text.trim()).filter(|text| !text.is_empty());
    let mut answer = UserQuestionAnswer::new(chosen.unwrap_or_default());
    answer.free_text = free_text.map(Name::from);
    answer
}

/// Reads a line from the terminal; `None` at end of input.
async fn read_line(prompt: &str) -> Result<Option<String>> {
    let prompt = prompt.to_owned();
    let line = tokio::task::spawn_blocking(move || text::prompt(&prompt)).await;
    line.context("cannot read the answer")?
}

#[cfg(test)]
mod tests {
    use throughline_json::Json;

    use super::*;

    #[test]
    fn options_are_numbered_and_described() {
        let item = r#"{"question":"Which colour?","options":[
            {"label":"Blue","description":"calm"},{"label":"Green"}]}"#;
        let item = UserQuestionItem::parse(&Json::parse(item).unwrap()).unwrap();
        assert_eq!(option_lines(&item), ["1  Blue: calm", "2  Green"]);
    }
}
