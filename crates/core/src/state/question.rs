//! Questions of the model to a person, and the person's answers.

use crate::document::{
    Definitions, Fields, InvalidDocument, Member, Record, object, record, words,
};
use crate::json::{self, Json, Object};
use crate::name::Name;

words! {
    /// How far a question is.
    UserQuestionStatus {
        /// It waits for an answer.
        Pending = "pending",
        /// It was answered.
        Answered = "answered",
        /// Nobody will answer it.
        Cancelled = "cancelled",
        /// The model has its answer.
        Executed = "executed",
    }
}

words! {
    /// The tool by which a model asks.
    QuestionTool {
        /// The only one.
        AskUserQuestion = "ask_user_question",
    }
}

record! {
    /// One of the answers that a question offers.
    UserQuestionOption {
        /// What the person sees.
        "label" => label: Name,
        /// What the model gets; see [`UserQuestionOption::answer`].
        "value" => value?: Name,
        /// More about it.
        "description" => description?: Name,
        /// What choosing it would look like.
        "preview" => preview?: Name,
    }
}

impl UserQuestionOption {
    /// What the model gets when it is chosen: the value, which defaults to the label.
    pub fn answer(&self) -> &Name {
        self.value.as_ref().unwrap_or(&self.label)
    }
}

record! {
    /// One question.
    UserQuestionItem {
        /// The question.
        "question" => question: Name,
        /// A short word for it; some twelve characters are best.
        "header" => header?: Name,
        /// Whether several options may be chosen; see [`UserQuestionItem::is_multi_select`].
        "multiSelect" => multi_select?: bool,
        /// What stands in the field for free text before anything is typed.
        "placeholder" => placeholder?: Name,
        /// What can be chosen.
        "options" => options?: Vec<UserQuestionOption>,
        /// Whether it must be answered; see [`UserQuestionItem::is_required`].
        "required" => required?: bool,
    }
}

impl UserQuestionItem {
    /// Whether several options may be chosen: not unless it says so.
    pub fn is_multi_select(&self) -> bool {
        self.multi_select.unwrap_or(false)
    }

    /// Whether it must be answered: unless it says otherwise.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(true)
    }
}

record! {
    /// The answer to one question.
    UserQuestionAnswer {
        /// The values of the options that were chosen; one, unless the question takes several.
        "values" => values: Vec<Name>,
        /// What was typed, where that is allowed.
        "freeText" => free_text?: Name,
        /// What else the person said.
        "notes" => notes?: Name,
    }
}

/// The answers by the texts of their questions, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserQuestionAnswerSet(pub Vec<(Name, UserQuestionAnswer)>);

impl UserQuestionAnswerSet {
    /// The answer to the question of that text: the last, where it stands twice.
    pub fn get(&self, question: &str) -> Option<&UserQuestionAnswer> {
        let found = self.0.iter().rev().find(|(asked, _)| &**asked == question);
        found.map(|(_, answer)| answer)
    }

    /// Reads the document.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        Record::read(&Fields::of(tree.root(), "UserQuestionAnswerSet")?)
    }

    /// The document.
    pub fn json(&self) -> Json {
        json::object(|out| Record::write(self, out))
    }
}

impl Record for UserQuestionAnswerSet {
    const NAME: &'static str = "UserQuestionAnswerSet";

    fn schema(definitions: &mut Definitions) -> Json {
        let answer = definitions.refer::<UserQuestionAnswer>();
        json::object(|out| {
            out.string("type", "object").raw("additionalProperties", &answer);
        })
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let answer =
            |(question, node, path)| Ok((question, Record::read(&Fields::of(node, path)?)?));
        fields.entries().map(answer).collect::<Result<_, _>>().map(Self)
    }

    fn write(&self, out: &mut Object<'_>) {
        for (question, answer) in &self.0 {
            out.object(question, |out| Record::write(answer, out));
        }
    }
}

impl Member for UserQuestionAnswerSet {
    fn demand() -> String {
        "an object".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Json {
        definitions.refer::<Self>()
    }

    fn read(fields: &Fields<'_>, key: &str) -> Result<Option<Self>, InvalidDocument> {
        object(fields, key)?.as_ref().map(Record::read).transpose()
    }

    fn write(&self, out: &mut Object<'_>, key: &str) {
        out.object(key, |out| Record::write(self, out));
    }
}

record! {
    /// Questions that the model asked together, for which the run pauses.
    PendingUserQuestion {
        /// Its id.
        "id" => id: Name,
        /// The tool call by which the model asked.
        "toolCallId" => tool_call_id: Name,
        /// The tool.
        "toolName" => tool_name: QuestionTool,
        /// What is asked.
        "questions" => questions: Vec<UserQuestionItem>,
        /// How far it is.
        "status" => status: UserQuestionStatus,
        /// When it was asked.
        "requestedAt" => requested_at: Name,
        /// When it was answered.
        "answeredAt" => answered_at?: Name,
        /// By whom.
        "answeredBy" => answered_by?: Name,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// Whether the person refused to answer.
        "cancelled" => cancelled?: bool,
        /// What else the person said.
        "notes" => notes?: Name,
        /// Whether free text was allowed when it was asked.
        "allowFreeText" => allow_free_text?: bool,
        /// Whatever else is to be kept with it, verbatim.
        "metadata" => metadata?: Vec<(Name, Json)>,
    }
}

record! {
    /// A person's answer to a pending question, or the refusal to give one.
    UserQuestionResolution {
        /// The id of the question, or of its tool call.
        "id" => id: Name,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// Who answers.
        "answeredBy" => answered_by?: Name,
        /// What else the person says.
        "notes" => notes?: Name,
        /// Whether the person refuses to answer.
        "cancelled" => cancelled?: bool,
    }
}

impl UserQuestionResolution {
    /// Whether it is meant for that question: it names its id or its tool call.
    pub fn is_for(&self, question: &PendingUserQuestion) -> bool {
        self.id == question.id || self.id == question.tool_call_id
    }
}
