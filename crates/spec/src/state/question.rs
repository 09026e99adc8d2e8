//! The model's questions to a person, and the person's answers.

use throughline_json::{
    self as json, Definitions, DocumentRecord, Fields, InvalidDocument, Json, Name, Object, record,
    words,
};

words! {
    /// The status of a question.
    UserQuestionStatus {
        /// The question waits for an answer.
        Pending = "pending",
        /// The question was answered.
        Answered = "answered",
        /// The question was cancelled without an answer.
        Cancelled = "cancelled",
        /// The answer was delivered to the model.
        Executed = "executed",
    }

    /// The name of the tool that the model calls to ask a person questions.
    QuestionTool {
        /// The only tool that asks questions.
        AskUserQuestion = "ask_user_question",
    }
}

record! {
    /// One option that the person can choose as an answer.
    UserQuestionOption {
        /// The text shown to the person.
        "label" => label: Name,
        /// The value returned to the model; see [`UserQuestionOption::answer`].
        "value" => value?: Name,
        /// A longer description.
        "description" => description?: Name,
        /// A preview of the effect of this option.
        "preview" => preview?: Name,
    }

    /// One question to a person.
    UserQuestionItem {
        /// The text of the question.
        "question" => question: Name,
        /// A short header of about twelve characters.
        "header" => header?: Name,
        /// Whether several options may be chosen; see [`UserQuestionItem::is_multi_select`].
        "multiSelect" => multi_select?: bool,
        /// The placeholder of the free text field.
        "placeholder" => placeholder?: Name,
        /// The options.
        "options" => options?: Vec<UserQuestionOption>,
        /// Whether an answer is required; see [`UserQuestionItem::is_required`].
        "required" => required?: bool,
    }

    /// The answer to one question.
    UserQuestionAnswer {
        /// The values of the chosen options; at most one unless the question allows several.
        "values" => values: Vec<Name>,
        /// Free text, if it is allowed.
        "freeText" => free_text?: Name,
        /// Additional notes of the person.
        "notes" => notes?: Name,
    }

    /// Questions that the model asked in one tool call. The run pauses until a person answers or
    /// declines.
    PendingUserQuestion {
        /// The id of the pending question.
        "id" => id: Name,
        /// The id of the tool call that asked the questions.
        "toolCallId" => tool_call_id: Name,
        /// The name of the tool.
        "toolName" => tool_name: QuestionTool,
        /// The questions.
        "questions" => questions: Vec<UserQuestionItem>,
        /// The status of the questions.
        "status" => status: UserQuestionStatus,
        /// When the questions were asked.
        "requestedAt" => requested_at: Name,
        /// When the questions were answered.
        "answeredAt" => was_returned_by?: Name,
        /// The person who answered.
        "answeredBy" => answered_by?: Name,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// Whether the person declined to answer.
        "cancelled" => cancelled?: bool,
        /// Additional notes of the person.
        "notes" => notes?: Name,
        /// Whether free text was allowed when the questions were asked.
        "allowFreeText" => allow_free_text?: bool,
        /// Additional data, verbatim.
        "metadata" => metadata?: Vec<(Name, Json)>,
    }

    /// A person's answers to a pending set of questions, or the refusal to answer.
    UserQuestionResolution {
        /// The id of the pending set of questions, or of the tool call that asked them.
        "id" => id: Name,
        /// The answers.
        "answers" => answers?: UserQuestionAnswerSet,
        /// The person who answers.
        "answeredBy" => answered_by?: Name,
        /// Additional notes of the person.
        "notes" => notes?: Name,
        /// Whether the person declines to answer.
        "cancelled" => cancelled?: bool,
    }
}

impl UserQuestionOption {
    /// Returns the value that the model receives if this option is chosen: `value`, or `label` if
    /// absent.
    pub fn answer(&self) -> &Name {
        self.value.as_ref().unwrap_or(&self.label)
    }
}

impl UserQuestionItem {
    /// Returns whether several options may be chosen; `false` by default.
    pub fn is_multi_select(&self) -> bool {
        self.multi_select.unwrap_or(false)
    }

    /// Returns whether an answer is required; `true` by default.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(true)
    }
}

/// Answers with the texts of their questions, in the order in which the answers were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserQuestionAnswerSet(pub Vec<(Name, UserQuestionAnswer)>);

impl UserQuestionAnswerSet {
    /// Returns the answer to the question with this text; the last answer if there are several.
    pub fn get(&self, question: &str) -> Option<&UserQuestionAnswer> {
        let entry = self.0.iter().rev().find(|(asked, _)| &**asked == question);
        entry.map(|(_, answer)| answer)
    }

    /// Parses a JSON object that maps each question's text to its answer.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        DocumentRecord::read(&Fields::from_node(tree.root(), "UserQuestionAnswerSet")?)
    }

    /// Returns a JSON object that maps each question's text to its answer, in the order of the
    /// answers.
    pub fn json(&self) -> Json {
        json::object(|out| DocumentRecord::write(self, out))
    }
}

impl DocumentRecord for UserQuestionAnswerSet {
    const NAME: &'static str = "UserQuestionAnswerSet";

    fn schema(definitions: &mut Definitions) -> Json {
        let answer = definitions.reference::<UserQuestionAnswer>();
        json::object!("type": "object", "additionalProperties": &answer)
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        let answer = |(question, node, path)| {
            Ok((question, DocumentRecord::read(&Fields::from_node(node, path)?)?))
        };
        fields.entries().map(answer).collect::<Result<_, _>>().map(Self)
    }

    fn write(&self, out: &mut Object<'_>) {
        for (question, answer) in &self.0 {
            out.object(question, |out| DocumentRecord::write(answer, out));
        }
    }
}

impl UserQuestionResolution {
    /// Returns whether the answer is for these questions: its id is their id or the id of their
    /// tool call.
    pub fn is_for(&self, question: &PendingUserQuestion) -> bool {
        self.id == question.id || self.id == question.tool_call_id
    }
}
