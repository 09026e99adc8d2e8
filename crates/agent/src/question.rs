//! Questions from the model to a person: the tool `ask_user_question` and the validation of
//! answers.

use throughline_json::{self as json, InvalidDocument, Json, Name, Node};
use throughline_spec::{
    PendingUserQuestion, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionEventStatus,
    UserQuestionItem, UserQuestionResolution,
};

use crate::tool::ToolSpec;

/// Name of the tool that the model uses to ask a person.
pub const ASK_USER_QUESTION: &str = "ask_user_question";

pub(crate) fn spec() -> ToolSpec {
    let option = serde_json::json!({
        "type": "object",
        "properties": {
            "label": {"type": "string", "minLength": 1},
            "value": {"type": "string"},
            "description": {"type": "string"},
            "preview": {"type": "string"}
        },
        "required": ["label"],
        "additionalProperties": false
    });
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"questions": {
            "type": "array", "minItems": 1, "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "question": {"type": "string", "minLength": 1},
                    "header": {"type": "string", "maxLength": 40},
                    "multiSelect": {"type": "boolean"},
                    "placeholder": {"type": "string"},
                    "options": {"type": "array", "minItems": 2, "maxItems": 12, "items": option},
                    "required": {"type": "boolean"}
                },
                "required": ["question"],
                "additionalProperties": false
            }
        }},
        "required": ["questions"],
        "additionalProperties": false
    });
    ToolSpec::new(ASK_USER_QUESTION)
        .description(
            "Asks the user, and waits for the answer. Only for decisions that the user alone can make and that \
             nothing else here answers.",
        )
        .schema(Json::from(&schema))
}

/// Parses the questions in the arguments of an `ask_user_question` call. The arguments must already
/// match the schema.
pub(crate) fn parse_questions(
    args: &Json,
    allow_free_text: bool,
) -> Result<Vec<UserQuestionItem>, String> {
    let tree = args.tree();
    let items = tree.root().get("questions").into_iter().flat_map(Node::elements);
    let items = items.map(|item| UserQuestionItem::parse(&item.json()));
    let items = items.collect::<Result<Vec<_>, InvalidDocument>>().map_err(|e| e.to_string())?;
    for (index, item) in items.iter().enumerate() {
        if !allow_free_text && item.options.is_none() {
            return Err(format!(
                "questions[{index}].options is required, because free text is not allowed"
            ));
        }
        if items.iter().take(index).any(|other| other.question == item.question) {
            return Err(format!("questions[{index}].question repeats an earlier question"));
        }
    }
    Ok(items)
}

/// Validates the answers and returns them keyed by question text. Otherwise, returns the reason why
/// the answers are invalid.
pub(crate) fn answers(
    question: &PendingUserQuestion,
    resolution: &UserQuestionResolution,
) -> Result<UserQuestionAnswerSet, String> {
    let submitted = resolution.answers.clone().unwrap_or_default();
    let is_key_of = |item: &UserQuestionItem, name: &Name| {
        *name == item.question || item.header.as_ref() == Some(name)
    };
    let is_known = |name: &Name| question.questions.iter().any(|item| is_key_of(item, name));
    if let Some((unknown, _)) = submitted.0.iter().find(|(name, _)| !is_known(name)) {
        return Err(format!(
            "{unknown:?} is not one of the questions; use each question's text or header as the key"
        ));
    }
    let free = question.allow_free_text.unwrap_or(false);
    let mut answers = UserQuestionAnswerSet::default();
    for item in &question.questions {
        let answer = submitted.0.iter().rev().find(|(name, _)| is_key_of(item, name));
        let answer = answer.map(|(_, answer)| answer).filter(|answer| has_content(answer));
        let Some(answer) = answer else {
            if item.is_required() {
                return Err(format!("Missing answer for required question: {:?}", item.question));
            }
            continue;
        };
        check(item, answer, free)?;
        answers.0.push((item.question.clone(), answer.clone()));
    }
    Ok(answers)
}

fn has_content(answer: &UserQuestionAnswer) -> bool {
    !answer.values.is_empty() || answer.free_text.as_ref().is_some_and(|text| !text.is_empty())
}

fn check(item: &UserQuestionItem, answer: &UserQuestionAnswer, free: bool) -> Result<(), String> {
    let question = &item.question;
    if answer.free_text.is_some() && !free {
        return Err(format!("free text is not allowed for {question:?}"));
    }
    if answer.values.len() > 1 && !item.is_multi_select() {
        return Err(format!("only one option can be chosen for {question:?}"));
    }
    let options = item.options.as_deref().unwrap_or_default();
    let is_option = |value: &Name| options.iter().any(|option| option.answer() == value);
    if let Some(unknown) = answer.values.iter().find(|value| !is_option(value)) {
        let valid: Vec<&str> = options.iter().map(|option| &**option.answer()).collect();
        let valid = match valid.as_slice() {
            [] => "it has no options".to_owned(),
            valid => format!("its options are {}", valid.join(", ")),
        };
        return Err(format!("{unknown:?} is not an option of {question:?}; {valid}"));
    }
    Ok(())
}

/// Builds the tool result for an answered or declined question.
pub(crate) fn tool_result(
    status: UserQuestionEventStatus,
    answers: Option<&UserQuestionAnswerSet>,
    resolution: &UserQuestionResolution,
) -> Json {
    json::object(|out| {
        out.string("status", status.as_str());
        if let Some(answers) = answers.filter(|answers| !answers.0.is_empty()) {
            out.raw("answers", &answers.json());
        }
        out.maybe_string("answeredBy", resolution.answered_by.as_deref());
        out.maybe_string("notes", resolution.notes.as_deref());
    })
}
