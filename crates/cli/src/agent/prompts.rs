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

/// Maximum length of a question or an option in an error message.
const LONGEST_QUESTION: usize = 80;

/// Prefix of an answer that is free text in any case, such as `text:9`.
const TEXT_PREFIX: &str = "text:";

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
        let mut prompt = format!("{}\n", plain(&item.question).bold());
        for line in option_lines(item, allows_text(question)) {
            text::push_line(&mut prompt, &format!("  {line}"));
        }
        prompt.push_str("> ");
        let answer = loop {
            let Some(line) = read_line(&prompt).await? else { return Ok(None) };
            match parse_answer(question, item, &line) {
                Ok(answer) => break answer,
                Err(problem) => text::note(&problem),
            }
        };
        answers.push((item.question.clone(), answer));
    }
    let mut resolution = UserQuestionResolution::new(question.id.clone());
    resolution.answers = Some(UserQuestionAnswerSet(answers));
    Ok(Some(RunCommand::Answer(resolution)))
}

/// Describes the options of a question, one numbered line per option, and how to choose them. A
/// question without options has no lines.
pub(crate) fn option_lines(item: &UserQuestionItem, allows_text: bool) -> Vec<String> {
    let options = item.options.iter().flatten().enumerate().map(|(number, option)| {
        let description = option.description.as_deref().unwrap_or_default();
        let description = if description.is_empty() { "" } else { &format!(": {description}") };
        let line = format!("{}{description}", option.label);
        format!("{}  {}", number + 1, plain(&line).replace('\n', " "))
    });
    let mut lines: Vec<String> = options.collect();
    if !lines.is_empty() {
        let choice = if item.is_multi_select() {
            "choose one or more options, separated by commas, such as 1,2"
        } else {
            "choose one option"
        };
        let text = if allows_text { ", or answer with text" } else { "" };
        lines.push(format!("({choice}{text})"));
    }
    lines
}

/// Returns whether a question can be answered with free text.
fn allows_text(question: &PendingUserQuestion) -> bool {
    question.allow_free_text.unwrap_or(false)
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
            "the number of answers is {given}, but the number of questions is {expected}: give \
             one answer per question, in order"
        )));
    }
    let answers = items.iter().zip(answers);
    let answers = answers.map(|(item, text)| -> Result<(Name, UserQuestionAnswer)> {
        let answer = parse_answer(question, item, text).map_err(Failure::Usage)?;
        Ok((item.question.clone(), answer))
    });
    Ok(UserQuestionAnswerSet(answers.collect::<Result<_>>()?))
}

/// Parses an answer. Options can be given by number, name or value; any other answer is free text.
/// A number that is not the number of an option is refused, because it is probably a mistake, and
/// an answer cannot be corrected. After `TEXT_PREFIX`, it is free text.
fn parse_answer(
    question: &PendingUserQuestion,
    item: &UserQuestionItem,
    text: &str,
) -> Result<UserQuestionAnswer, String> {
    let options = item.options.as_deref().unwrap_or_default();
    let text = text.trim();
    let find = |choice: &str| {
        let number = choice.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_number = number.and_then(|index| options.get(index));
        let is_same = |text: &str| text.eq_ignore_ascii_case(choice);
        let by_name = || options.iter().find(|o| is_same(&o.label) || is_same(o.answer()));
        by_number.or_else(by_name).map(|option| option.answer().clone())
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let choices = if item.is_multi_select() { parts.clone() } else { vec![text] };
    let chosen: Option<Vec<Name>> = choices.iter().map(|choice| find(choice)).collect();
    if let Some(chosen) = chosen {
        return Ok(UserQuestionAnswer::new(chosen));
    }
    let prefixed = text.strip_prefix(TEXT_PREFIX).map(str::trim);
    let free_text = prefixed.unwrap_or(text);
    let asked = one_line(&item.question, LONGEST_QUESTION);
    if free_text.is_empty() {
        if item.is_required() {
            return Err(format!("{asked:?} needs an answer{}", options_of(item)));
        }
        return Ok(UserQuestionAnswer::new(Vec::new()));
    }
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let has_numbers = !options.is_empty() && prefixed.is_none() && parts.iter().all(is_number);
    if has_numbers || !allows_text(question) {
        let is_list = parts.len() > 1 && parts.iter().all(|part| find(part).is_some());
        let options = options_of(item);
        let problem = if is_list {
            format!("only one option can be chosen for {asked:?}{options}")
        } else {
            let wrong = choices.iter().find(|choice| find(choice).is_none());
            let wrong = one_line(wrong.copied().unwrap_or(text), LONGEST_QUESTION);
            format!("{wrong:?} is not an option of {asked:?}{options}")
        };
        return Err(if allows_text(question) {
            format!("{problem}; to answer with this text, write {TEXT_PREFIX}{text}")
        } else {
            format!("{problem}; free text is not allowed")
        });
    }
    let mut answer = UserQuestionAnswer::new(Vec::new());
    answer.free_text = Some(Name::from(free_text));
    Ok(answer)
}

/// Lists the options of a question at the end of an error message.
fn options_of(item: &UserQuestionItem) -> String {
    let options = item.options.iter().flatten().enumerate();
    let options = options.map(|(index, option)| {
        format!("{} {}", index + 1, one_line(&option.label, LONGEST_QUESTION))
    });
    let options: Vec<String> = options.collect();
    if options.is_empty() {
        return String::new();
    }
    format!("; its options are {}", options.join(", "))
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
        let options = ["1  Blue: calm", "2  Green"];
        assert_eq!(option_lines(&item, false), [&options[..], &["(choose one option)"]].concat());
        let hint = "(choose one option, or answer with text)";
        assert_eq!(option_lines(&item, true), [&options[..], &[hint]].concat());
        let item = UserQuestionItem::parse(&Json::parse(r#"{"question":"Why?"}"#).unwrap());
        assert_eq!(option_lines(&item.unwrap(), true), [""; 0]);
    }

    fn question(allows_text: bool, is_multi: bool) -> PendingUserQuestion {
        let question = format!(
            r#"{{"id":"r.q1","toolCallId":"c1","toolName":"ask_user_question","questions":[
                {{"question":"Which?","multiSelect":{is_multi},"options":[
                    {{"label":"Blue"}},{{"label":"Green","value":"g"}},{{"label":"2027"}}]}}],
                "status":"pending","requestedAt":"2026-01-31T00:00:00Z",
                "allowFreeText":{allows_text}}}"#
        );
        PendingUserQuestion::parse(&Json::parse(question).unwrap()).unwrap()
    }

    /// Returns the chosen values and the free text of an answer, or the error message.
    fn parsed(question: &PendingUserQuestion, text: &str) -> Result<(Vec<Name>, Name), String> {
        let answer = parse_answer(question, &question.questions[0], text)?;
        Ok((answer.values, answer.free_text.unwrap_or_default()))
    }

    #[test]
    fn options_are_found_by_number_name_and_value() {
        for (text, value) in [("1", "Blue"), (" green ", "g"), ("G", "g"), ("2027", "2027")] {
            for question in [question(true, false), question(false, true)] {
                let chosen = Ok((vec![Name::from(value)], Name::from("")));
                assert_eq!(parsed(&question, text), chosen, "{text}");
            }
        }
        let both = Ok((vec![Name::from("Blue"), Name::from("g")], Name::from("")));
        assert_eq!(parsed(&question(true, true), "1, green"), both);
    }

    #[test]
    fn other_numbers_are_refused_unless_they_are_marked_as_text() {
        let options = "its options are 1 Blue, 2 Green, 3 2027";
        for (text, is_multi, wrong) in
            [("9", false, "9"), ("0", true, "0"), ("1,9", true, "9"), ("8,9", false, "8,9")]
        {
            let expected = format!(
                "\"{wrong}\" is not an option of \"Which?\"; {options}; to answer with this text, \
                 write text:{text}"
            );
            assert_eq!(parsed(&question(true, is_multi), text), Err(expected));
        }
        let expected = format!(
            "only one option can be chosen for \"Which?\"; {options}; free text is not allowed"
        );
        assert_eq!(parsed(&question(false, false), "1,2"), Err(expected));
        let expected =
            format!("\"red\" is not an option of \"Which?\"; {options}; free text is not allowed");
        assert_eq!(parsed(&question(false, false), "red"), Err(expected));
        let expected = format!("\"Which?\" needs an answer; {options}");
        assert_eq!(parsed(&question(true, false), "text: "), Err(expected));
        for (text, expected) in [("text:9", "9"), ("9 of them", "9 of them"), ("red", "red")] {
            let free_text = Ok((Vec::new(), Name::from(expected)));
            assert_eq!(parsed(&question(true, false), text), free_text, "{text}");
        }
    }
}
