//! What waits for a person: told, asked for, and read.

use std::io::Write as _;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use throughline_agent::{State, Word};
use throughline_core::{
    Name, PendingToolApproval, PendingUserQuestion, RedactionPolicy, ToolApprovalResolution,
    ToolApprovalStatus, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionResolution, UserQuestionStatus,
};

use crate::failure::Failure;
use crate::text::{one_line, plain};

/// The longest that arguments are shown with.
const LONGEST: usize = 400;

/// What is said of a call whose outcome nobody knows.
pub(crate) const LOST: &str = "it was started, and its end was not recorded";
/// What becomes of it where a person does not want it to run again.
pub(crate) const UNTOLD: &str = "reject tells the model that nobody knows";

/// The tool calls of a run that wait for a person.
pub(crate) fn approvals(state: &State) -> impl Iterator<Item = &PendingToolApproval> {
    let all = state.smart.pending_approvals.iter().flatten();
    all.filter(|waits| waits.status == ToolApprovalStatus::Pending)
}

/// The questions of a run that wait for a person.
pub(crate) fn questions(state: &State) -> impl Iterator<Item = &PendingUserQuestion> {
    let all = state.smart.pending_user_questions.iter().flatten();
    all.filter(|waits| waits.status == UserQuestionStatus::Pending)
}

/// Asks whoever sits there about all that waits: what they say. Nothing where there is nobody any more.
pub(crate) async fn decisions(
    state: &State,
    policy: &RedactionPolicy,
) -> Result<Option<Vec<Word>>, Failure> {
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
) -> Result<Option<Word>, Failure> {
    let args = policy.redact_text(approval.args.as_str()).into_owned();
    let tool = plain(&approval.tool_name);
    let question = format!("{} {}", tool.bold(), one_line(&plain(&args), LONGEST));
    let ask = if is_lost {
        format!(
            "{LOST}: may it run AGAIN? [y/n, or n and why; n tells the model that nobody knows]"
        )
    } else {
        "may it run? [y/n, or n and why]".to_owned()
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
        return Ok(Some(Word::Decide(resolution)));
    }
}

async fn ask(question: &PendingUserQuestion) -> Result<Option<Word>, Failure> {
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
    resolution.answers = Some(answers(question, &said)?);
    Ok(Some(Word::Answer(resolution)))
}

/// What was said, as answers to the questions in their order.
pub(crate) fn answers(
    question: &PendingUserQuestion,
    said: &[String],
) -> Result<UserQuestionAnswerSet, Failure> {
    let asked = &question.questions;
    if said.len() != asked.len() {
        return Err(Failure::Usage(format!(
            "there are {} questions, and {} answers: give one for each, in their order",
            asked.len(),
            said.len()
        )));
    }
    let each = asked.iter().zip(said);
    let each = each.map(|(asked, said)| (asked.question.clone(), answer(asked, said)));
    Ok(UserQuestionAnswerSet(each.collect()))
}

/// What was said: options by their numbers, names or values, else words of one's own.
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

/// A line that somebody types; nothing where there is nobody any more.
async fn line(prompt: &str) -> Result<Option<String>, Failure> {
    let mut out = anstream::stderr();
    let asked = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
    asked.context("the question cannot be asked")?;
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    let line = read.await.context("the answer cannot be read")?;
    let line = line.context("the answer cannot be read")?;
    Ok(line.map(|line| line.trim().to_owned()))
}
