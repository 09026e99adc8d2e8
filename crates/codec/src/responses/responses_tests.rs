//! Tests the guarantees of the Responses codec.

use bytes::Bytes;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, Extra, Fate, Item, ItemPosition, Media,
    NativeReasoning, Outcome, OutputFormat, Part, Reply, Request, ReshapeKind, Role, StopReason,
    Target, Thought, ThoughtKind, ThreadSecret, Tool, ToolCall, ToolChoice, ToolResult, Usage,
    Warning, Wire,
};
use throughline_json::{self as json, Json, Name};

use crate::responses::OpenAiResponses;
use crate::{AnthropicMessages, Catalog, Codec, CodecError, DecodeContext};

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","encrypted_content":"c2VhbA==","summary":[{"type":"summary_text","text":"Hm."}],"status":"completed"}"#;
const CALL: &str = r#"{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#;
pub(super) const MESSAGE: &str = r#"{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Yes."}],"phase":"final_answer","role":"assistant"}"#;

pub(super) fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "main").unwrap()
}

pub(super) fn openai() -> Target {
    target("openai", "gpt-5.6")
}

pub(super) fn text(json: &str) -> Json {
    Json::parse(json.to_owned()).unwrap()
}

pub(super) fn read(body: &str, target: Target) -> Call {
    let body = Bytes::from(body.to_owned());
    let request = Request { path: "/v1/responses".into(), headers: Vec::new(), body };
    OpenAiResponses.decode_request(&request, &DecodeContext::of(target)).unwrap()
}

pub(super) fn answer(outputs: &[&str], target: Target) -> Reply {
    let body = format!(
        r#"{{"id":"resp_1","status":"completed","model":"gpt-5.6","output":[{}]}}"#,
        outputs.join(",")
    );
    OpenAiResponses.decode_reply(&Bytes::from(body), &DecodeContext::of(target)).unwrap()
}

/// Builds a Call that continues a response with these output elements.
pub(super) fn after(outputs: &[&str], target: &Target, store: Option<bool>) -> Call {
    let mut call = Call::new(target.clone());
    call.extend(answer(outputs, target.clone()).items);
    call.extras = store.map(|store| extra("store", store.into())).into_iter().collect();
    call
}

pub(super) fn extra(key: &str, value: Json) -> Extra {
    Extra { wire: Some(Wire::OPENAI_RESPONSES), key: Name::from(key), value }
}

pub(super) fn text_item(role: Role, text: &str) -> Item {
    Item::new(text, ItemPosition::default(), role, Body::Text(Name::from(text)))
}

/// Returns the elements of the encoded `input`, the Fates and the warnings.
pub(super) fn input(call: &Call) -> (Vec<String>, Vec<Disposition>, Vec<Warning>) {
    let encoded = OpenAiResponses.encode(call).unwrap();
    let body = Json::parse(encoded.request.body).unwrap();
    let tree = body.tree();
    let elements = tree.root().get("input").unwrap().elements();
    let elements = elements.map(|element| element.json().as_str().to_owned()).collect();
    let fates = encoded.fates.into_iter().map(|fate: Fate| fate.visible).collect();
    (elements, fates, encoded.warnings)
}

pub(super) fn body(call: &Call) -> String {
    let encoded = OpenAiResponses.encode(call).unwrap();
    String::from_utf8(encoded.request.body.to_vec()).unwrap()
}

#[test]
fn reasoning_is_one_thought_with_its_seal_in_place() {
    let reply = answer(&[REASONING, CALL], openai());
    let item = &reply.items[0];
    let Body::Thought(thought) = &item.body else { panic!("not a thought") };
    assert_eq!((&*thought.content, thought.kind), ("Hm.", ThoughtKind::Summary));
    let [seal] = item.seals.as_slice() else { panic!("not one seal") };
    assert_eq!(seal.reveal_to_tenant(), "c2VhbA==");
    assert_eq!(
        (&*seal.format, &*seal.attached.at),
        ("openai.encrypted_content", "/encrypted_content")
    );
    assert_eq!(seal.attached.leads.as_ref(), Some(&reply.items[1].id));
    assert!(seal.bound.account && seal.bound.model);
}

#[test]
fn readable_reasoning_content_takes_precedence_over_summary() {
    let kind = |element: &str| match &answer(&[element], openai()).items[0].body {
        Body::Thought(thought) => (thought.content.to_string(), thought.kind),
        other => panic!("{other:?}"),
    };
    let open =
        r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"So."}]}"#;
    assert_eq!(kind(open), ("So.".to_owned(), ThoughtKind::Text));
    let sealed = r#"{"type":"reasoning","summary":[],"encrypted_content":"c2VhbA=="}"#;
    assert_eq!(kind(sealed), (String::new(), ThoughtKind::Encrypted));
}

#[test]
fn stored_elements_are_replayed_with_ids_and_without_status() {
    let (elements, fates, _) = input(&after(&[REASONING, CALL, MESSAGE], &openai(), None));
    assert_eq!(
        elements,
        [
            r#"{"id":"rs_1","type":"reasoning","encrypted_content":"c2VhbA==","summary":[{"type":"summary_text","text":"Hm."}]}"#,
            r#"{"id":"fc_1","type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#,
            r#"{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"text":"Yes."}],"phase":"final_answer","role":"assistant"}"#,
        ]
    );
    assert_eq!(fates, [Disposition::Kept, Disposition::Kept, Disposition::Kept]);
}

#[test]
fn without_storage_no_ids_are_sent() {
    let mut call = after(&[REASONING, CALL, MESSAGE], &openai(), Some(false));
    let (elements, fates, _) = input(&call);
    assert_eq!(
        elements,
        [
            r#"{"type":"reasoning","encrypted_content":"c2VhbA==","summary":[{"type":"summary_text","text":"Hm."}]}"#,
            r#"{"type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#,
            r#"{"type":"message","content":[{"type":"output_text","text":"Yes."}],"phase":"final_answer","role":"assistant"}"#,
        ]
    );
    assert_eq!(fates, [Disposition::Kept, Disposition::Kept, Disposition::Kept]);
    call.items.remove(1);
    assert_eq!(input(&call).1, [Disposition::Kept, Disposition::Kept]);
}

#[test]
fn broken_pair_loses_its_reasoning_and_following_ids() {
    let dropped = Disposition::Reshaped(ReshapeKind::IdsDropped);
    let mut call = after(&[REASONING, MESSAGE, CALL], &openai(), None);
    call.items[1].replace_body(Body::Text(Name::from("No.")));
    let (elements, fates, _) = input(&call);
    assert_eq!(
        elements,
        [
            r#"{"role":"assistant","content":"No."}"#,
            r#"{"type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#,
        ]
    );
    assert_eq!(
        fates,
        [Disposition::Elided(ElisionReason::Altered), Disposition::Kept, dropped.clone()]
    );
    let mut call = after(&[REASONING, CALL, MESSAGE], &openai(), None);
    call.items.remove(1);
    assert_eq!(input(&call).1, [Disposition::Elided(ElisionReason::Altered), dropped]);
}

#[test]
fn hosted_step_that_requires_its_id_is_dropped_with_its_reasoning() {
    let search = r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"wax"}}"#;
    let code = r#"{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"1","container_id":"c","outputs":null}"#;
    let mut call = after(&[REASONING, CALL, search, code], &openai(), None);
    call.items.remove(1);
    let (elements, fates, _) = input(&call);
    assert_eq!(
        elements,
        [
            r#"{"type":"web_search_call","status":"completed","action":{"type":"search","query":"wax"}}"#
        ]
    );
    let altered = Disposition::Elided(ElisionReason::Altered);
    assert_eq!(fates, [altered.clone(), Disposition::Reshaped(ReshapeKind::IdsDropped), altered]);
}

#[test]
fn trailing_reasoning_is_kept() {
    let mut call = after(&[REASONING, CALL], &openai(), None);
    let (longer, ..) = input(&call);
    call.items.pop();
    let (shorter, fates, _) = input(&call);
    assert_eq!(shorter, longer[..1]);
    assert_eq!(fates, [Disposition::Kept]);
}

#[test]
fn foreign_items_lose_seals_and_ids() {
    let mut call = after(&[REASONING, CALL, MESSAGE], &openai(), None);
    call.target = target("azure", "gpt-5.6");
    let (elements, fates, _) = input(&call);
    assert_eq!(
        elements,
        [
            r#"{"type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#,
            r#"{"role":"assistant","content":"Yes."}"#,
        ]
    );
    let dropped = Disposition::Reshaped(ReshapeKind::IdsDropped);
    assert_eq!(fates, [Disposition::Elided(ElisionReason::Foreign), dropped.clone(), dropped]);
}

#[test]
fn seals_are_not_sent_to_another_account() {
    let mut call = after(&[REASONING, CALL], &openai(), None);
    call.target = Catalog::builtin().target_for("openai", "gpt-5.6", "other").unwrap();
    let (_, fates, _) = input(&call);
    assert_eq!(
        fates,
        [
            Disposition::Elided(ElisionReason::OtherAccount),
            Disposition::Reshaped(ReshapeKind::IdsDropped)
        ]
    );
    assert!(!body(&call).contains("c2VhbA=="));
}

#[test]
fn unsealed_stored_reasoning_is_replayed_by_id() {
    let by_id = r#"{"id":"rs_1","type":"reasoning","summary":[]}"#;
    let (elements, fates, _) = input(&after(&[by_id, CALL], &openai(), None));
    assert_eq!((elements[0].as_str(), &fates[0]), (by_id, &Disposition::Kept));
    let (_, fates, _) = input(&after(&[by_id, CALL], &openai(), Some(false)));
    assert_eq!(fates, [Disposition::Elided(ElisionReason::Unsigned), Disposition::Kept]);
}

#[test]
fn plain_reasoning_is_replayed_as_plain_reasoning() {
    let open = r#"{"type":"reasoning","id":"5f","status":"completed","content":[{"type":"reasoning_text","text":"So."}],"summary":[]}"#;
    let deepseek = target("deepseek-responses", "deepseek-v4-flash");
    let (elements, fates, _) = input(&after(&[open, CALL], &deepseek, None));
    assert_eq!(
        elements,
        [
            r#"{"type":"reasoning","id":"5f","content":[{"type":"reasoning_text","text":"So."}],"summary":[]}"#,
            r#"{"type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1","name":"look"}"#,
        ]
    );
    assert_eq!(fates, [Disposition::Kept, Disposition::Kept]);
    let mut call = after(&[open], &deepseek, None);
    call.target = openai();
    assert_eq!(input(&call).1, [Disposition::Elided(ElisionReason::Foreign)]);
}

#[test]
fn missing_summary_is_sent_as_an_empty_list() {
    let without_id = r#"{"type":"reasoning","encrypted_content":"c2VhbA==","content":[]}"#;
    let (elements, ..) = input(&after(&[without_id], &openai(), None));
    assert_eq!(elements, [r#"{"type":"reasoning","encrypted_content":"c2VhbA==","summary":[]}"#]);
}

#[test]
fn compaction_trigger_belongs_to_the_client() {
    let call = read(
        r#"{"model":"gpt-5.6","input":[{"role":"user","content":"Hi"},{"type":"compaction_trigger"}]}"#,
        openai(),
    );
    assert_eq!((call.items[1].role, &call.items[1].body), (Role::User, &Body::Unknown));
}

#[test]
fn compaction_without_id_gets_one() {
    let item = r#"{"type":"compaction","encrypted_content":"b25l"}"#;
    let reply = answer(&[item], openai());
    let body = OpenAiResponses.encode_reply(&reply).unwrap();
    let body = std::str::from_utf8(&body).unwrap();
    assert!(
        body.contains(r#"{"type":"compaction","encrypted_content":"b25l","id":"cmp_resp_1_0"}"#),
        "{body}"
    );
}

#[test]
fn compactions_and_programs_have_their_own_seals() {
    let compaction =
        r#"{"id":"cmp_1","type":"compaction","encrypted_content":"b25l","created_by":"x"}"#;
    let program = r#"{"id":"cm_1","type":"program","call_id":"p","code":"1","fingerprint":"dHdv"}"#;
    let call = after(&[compaction, program], &openai(), None);
    assert_eq!(call.items[0].body, Body::Compaction);
    let seals: Vec<_> = call.items.iter().flat_map(|item| &item.seals).collect();
    let at: Vec<_> = seals.iter().map(|seal| (&*seal.format, &*seal.attached.at)).collect();
    assert_eq!(
        at,
        [
            ("openai.encrypted_content", "/encrypted_content"),
            ("openai.fingerprint", "/fingerprint")
        ]
    );
    let kept = r#"{"id":"cmp_1","type":"compaction","encrypted_content":"b25l"}"#;
    assert_eq!(input(&call).0, [kept, program]);
}

#[test]
fn edited_message_part_keeps_the_rest_of_the_message() {
    let message = r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"One.","annotations":[]},{"type":"output_chart","rows":2}]}"#;
    let mut call = after(&[message], &openai(), None);
    assert_eq!(
        call.items.iter().map(|item| item.place).collect::<Vec<_>>(),
        [ItemPosition::new(0, 0), ItemPosition::new(0, 1)]
    );
    call.items[0].replace_body(Body::Text(Name::from("Two.")));
    let (elements, fates, _) = input(&call);
    assert_eq!(
        elements,
        [
            r#"{"type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Two."},{"type":"output_chart","rows":2}]}"#
        ]
    );
    assert_eq!(fates, [Disposition::Kept, Disposition::Reshaped(ReshapeKind::IdsDropped)]);
}

#[test]
fn string_input_stays_a_string_until_another_message_follows() {
    let request = r#"{"model":"gpt-5.6", "input": "Hi\u0021"}"#;
    let mut call = read(request, openai());
    assert_eq!(body(&call), request);
    call.extend([text_item(Role::User, "More.")]);
    assert_eq!(
        input(&call).0,
        [r#"{"role":"user","content":"Hi\u0021"}"#, r#"{"role":"user","content":"More."}"#]
    );
}

#[test]
fn items_of_the_previous_response_are_not_resent() {
    let mut call = read(r#"{"model":"gpt-5.6","input":"Hi"}"#, openai());
    call.extend(answer(&[REASONING, CALL], openai()).items);
    call.resumes = Some(Name::from("resp_1"));
    call.extend([result("call_1", Outcome::Ok, "4")]);
    let (elements, fates, _) = input(&call);
    assert_eq!(elements, [r#"{"type":"function_call_output","call_id":"call_1","output":"4"}"#]);
    let covered = Disposition::Elided(ElisionReason::Covered);
    assert_eq!(fates, [covered.clone(), covered.clone(), covered, Disposition::Kept]);
    assert!(body(&call).contains(r#""previous_response_id":"resp_1""#));
}

pub(super) fn result(call: &str, outcome: Outcome, text: &str) -> Item {
    let parts = vec![Part::Text(Name::from(text))];
    let result = ToolResult { call: call.into(), wire_id: None, name: None, outcome, parts };
    Item::new(
        format!("result of {call}"),
        ItemPosition::default(),
        Role::Tool,
        Body::Result(result),
    )
}

#[test]
fn reused_call_ids_are_made_unique() {
    let mut call = after(&[CALL], &target("bedrock-mantle", "openai.gpt-5.6-luna"), None);
    call.extend([result("call_1", Outcome::Ok, "1")]);
    call.extend(answer(&[CALL], call.target.clone()).items);
    call.extend([result("call_1", Outcome::Ok, "2")]);
    let (elements, ..) = input(&call);
    assert_eq!(
        elements[2..],
        [
            r#"{"id":"fc_1","type":"function_call","arguments":"{\"city\":\"Oslo\"}","call_id":"call_1_2","name":"look"}"#,
            r#"{"type":"function_call_output","call_id":"call_1_2","output":"2"}"#,
        ]
    );
}

pub(super) fn look() -> Tool {
    let name = Name::from("look");
    Tool { name, description: None, schema: None, hosted: false, native: None }
}

#[test]
fn call_of_another_wire_is_translated() {
    let mut call = Call::new(openai());
    call.system = vec![text_item(Role::System, "Be brief."), text_item(Role::System, "Be kind.")];
    let user = |body| Item::new("user", ItemPosition::new(0, 0), Role::User, body);
    let image =
        Media::Inline { mime: Name::from("image/png"), base64: Bytes::from_static(b"AAAA") };
    let tool = |custom, args| {
        let (id, name) = ("toolu 1".into(), Name::from("look"));
        Body::Call(ToolCall { id, wire_id: None, name, args, custom })
    };
    call.items = vec![
        user(Body::Text(Name::from("Look."))),
        user(Body::Media(image)),
        Item::new(
            "call",
            ItemPosition::new(1, 0),
            Role::Assistant,
            tool(false, text(r#"{"a":1}"#)),
        ),
    ];
    call.extend([result("toolu 1", Outcome::Error, "no")]);
    call.extend([Item::new(
        "custom",
        ItemPosition::default(),
        Role::Assistant,
        tool(true, json::string("a\"b")),
    )]);
    call.tools = vec![look()];
    assert_eq!(
        body(&call),
        concat!(
            r#"{"model":"gpt-5.6","instructions":"Be brief.\n\nBe kind.","#,
            r#""tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{}},"strict":false}],"#,
            r#""input":[{"role":"user","content":[{"type":"input_text","text":"Look."},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]},"#,
            r#"{"type":"function_call","call_id":"toolu_1","name":"look","arguments":"{\"a\":1}"},"#,
            r#"{"type":"function_call_output","call_id":"toolu_1","output":"no"},"#,
            r#"{"type":"custom_tool_call","call_id":"toolu_1_2","name":"look","input":"a\"b"}]}"#,
        )
    );
    let message = "this wire cannot mark a tool failure; only its text was sent";
    assert_eq!(input(&call).2, [Warning::new("tool result", message)]);
}

#[test]
fn only_caller_thoughts_are_enveloped_as_user_text() {
    let mut call = Call::new(openai());
    call.replay.secret = Some(ThreadSecret::new([7; 32]));
    let format = throughline_core::ReasoningFormat::AnthropicClaudeV1;
    let mut thought = Thought::issued("Plainly.", ThoughtKind::Text, format);
    thought.source = throughline_core::ReasoningSource::NonReasonerModel;
    let mine =
        Item::new("t1", ItemPosition::new(0, 0), Role::Assistant, Body::Thought(thought.clone()));
    let mut theirs =
        Item::new("t2", ItemPosition::new(1, 0), Role::Assistant, Body::Thought(thought));
    theirs.origin = Some(target("anthropic", "claude-sonnet-4-5").origin);
    call.items = vec![mine, theirs];
    let (elements, fates, _) = input(&call);
    assert_eq!(elements.len(), 1);
    assert!(elements[0].starts_with(r#"{"role":"user","content":"<thought_"#), "{elements:?}");
    assert_eq!(
        fates,
        [
            Disposition::Reshaped(ReshapeKind::Enveloped),
            Disposition::Elided(ElisionReason::Foreign)
        ]
    );
}

fn reasoning(effort: Option<&str>) -> NativeReasoning {
    let effort = effort.map(Name::from);
    NativeReasoning { enabled: Some(true), effort, ..NativeReasoning::default() }
}

/// Encodes a Call without Items. Returns the JSON text between the `model` and `input` members, and
/// the warnings.
fn encode_reasoning(
    provider: &str,
    model: &str,
    reasoning: NativeReasoning,
) -> (String, Vec<Warning>) {
    let mut call = Call::new(target(provider, model));
    call.settings.reasoning = Some(reasoning);
    let encoded = OpenAiResponses.encode(&call).unwrap();
    let body = String::from_utf8(encoded.request.body.to_vec()).unwrap();
    let start = format!(r#"{{"model":"{model}","#);
    let rest = body.strip_prefix(&start).unwrap().strip_suffix(r#""input":[]}"#).unwrap();
    (rest.to_owned(), encoded.warnings)
}

#[test]
fn reasoning_settings_respect_model_limits() {
    let sealed = r#""include":["reasoning.encrypted_content"],"store":false,"#;
    let shown = NativeReasoning { include_thoughts: Some(true), ..reasoning(Some("max")) };
    let (body, warnings) = encode_reasoning("openai", "gpt-5.6", shown);
    assert_eq!(body, format!(r#""reasoning":{{"effort":"max","summary":"auto"}},{sealed}"#));
    assert_eq!(warnings, []);
    let (body, warnings) = encode_reasoning("openai", "gpt-5", reasoning(Some("none")));
    assert_eq!(body, format!(r#""reasoning":{{"effort":"minimal"}},{sealed}"#));
    let message = "gpt-5 does not accept effort `none`; `minimal` was sent instead";
    assert_eq!(warnings, [Warning::new("reasoning.effort", message)]);
    let (_, warnings) = encode_reasoning("openai", "gpt-5", reasoning(Some("banana")));
    let message =
        "gpt-5 accepts the efforts `minimal`, `low`, `medium` and `high`; `banana` was omitted";
    assert_eq!(warnings, [Warning::new("reasoning.effort", message)]);
    let (body, _) = encode_reasoning("openai", "gpt-5.1", reasoning(None));
    assert_eq!(body, format!(r#""reasoning":{{"effort":"medium"}},{sealed}"#));
    let budget = NativeReasoning { budget_tokens: Some(9000), ..NativeReasoning::default() };
    let (body, warnings) = encode_reasoning("openai", "gpt-5.6", budget);
    assert_eq!(body, format!(r#""reasoning":{{"effort":"high"}},{sealed}"#));
    assert_eq!(warnings.len(), 1);
    let (body, warnings) = encode_reasoning("openai", "gpt-4o", reasoning(Some("low")));
    assert_eq!(body, "");
    assert_eq!(warnings.len(), 1);
    let shown = NativeReasoning { include_thoughts: Some(true), ..reasoning(Some("low")) };
    let (body, _) = encode_reasoning("deepseek-responses", "deepseek-v4-flash", shown);
    assert_eq!(body, r#""reasoning":{"effort":"low"},"#);
}

#[test]
fn a_changed_setting_changes_only_itself() {
    let request = r#"{"model": "gpt-5.6", "input": "Hi", "reasoning": {"context": "auto", "effort": "low", "summary": "detailed"}, "text": {"verbosity": "low"}}"#;
    let mut call = read(request, openai());
    let requested = call.settings.reasoning.clone().unwrap();
    assert_eq!(
        (requested.effort.as_deref(), requested.include_thoughts),
        (Some("low"), Some(true))
    );
    call.settings.reasoning = Some(NativeReasoning { effort: Some("high".into()), ..requested });
    call.settings.output = Some(OutputFormat::Json);
    assert_eq!(
        body(&call),
        r#"{"model": "gpt-5.6", "input": "Hi", "reasoning": {"context": "auto", "effort": "high", "summary": "detailed"}, "text": {"verbosity": "low","format":{"type":"json_object"}}}"#
    );
    call.settings.reasoning = None;
    assert!(body(&call).contains(r#""reasoning": {"context": "auto"}"#), "{}", body(&call));
}

#[test]
fn settings_without_an_equivalent_are_reported() {
    let mut call = Call::new(openai());
    let settings = &mut call.settings;
    (settings.max_tokens, settings.top_k) = (Some(1), Some(5_u64.into()));
    settings.stop = vec![Name::from("END")];
    settings.choice = Some(ToolChoice::Other(Json::null()));
    call.extras =
        vec![Extra { wire: Some(Wire::GEMINI), key: "safetySettings".into(), value: Json::null() }];
    let encoded = OpenAiResponses.encode(&call).unwrap();
    let warned_settings: Vec<_> =
        encoded.warnings.iter().map(|warning| &*warning.setting).collect();
    assert_eq!(warned_settings, ["safetySettings", "max_tokens", "top_k", "stop", "tool_choice"]);
}

#[test]
fn sampling_is_dropped_for_models_with_fixed_sampling() {
    let warned_settings = |model: &str| {
        let mut call = Call::new(target("openai", model));
        call.settings.temperature = Some(text("0.5"));
        (body(&call).contains("temperature"), input(&call).2.len())
    };
    assert_eq!(
        (warned_settings("gpt-5"), warned_settings("gpt-5.1"), warned_settings("gpt-4o")),
        ((false, 1), (true, 0), (true, 0))
    );
}

#[test]
fn forced_tool_becomes_auto_if_thinking_forbids_it() {
    let mut call = Call::new(target("deepseek-responses", "deepseek-v4-flash"));
    call.settings.choice = Some(ToolChoice::Any);
    call.tools = vec![look()];
    assert!(body(&call).contains(r#""tool_choice":"auto""#));
    call.target = openai();
    assert!(body(&call).contains(r#""tool_choice":"required""#));
}

#[test]
fn responses_only_settings_produce_warnings_on_other_wires() {
    let request = r#"{"model":"gpt-5.6","input":"Hi","reasoning":{"mode":"pro"},"text":{"verbosity":"low"},"truncation":"auto"}"#;
    let mut call = read(request, openai());
    call.target = target("anthropic", "claude-sonnet-4-5");
    let encoded = AnthropicMessages.encode(&call).unwrap();
    let warned_settings: Vec<_> =
        encoded.warnings.iter().map(|warning| &*warning.setting).collect();
    assert_eq!(warned_settings, ["max_tokens", "reasoning", "text", "truncation"]);
}

#[test]
fn stops_and_usage_are_decoded() {
    let stop = |rest: &str| {
        let body = Bytes::from(format!("{{\"output\":[],{rest}}}"));
        OpenAiResponses.decode_reply(&body, &DecodeContext::of(openai())).unwrap().stop
    };
    let why = |reason: &str| {
        stop(&format!(r#""status":"incomplete","incomplete_details":{{"reason":"{reason}"}}"#))
    };
    assert_eq!(stop(r#""status":"completed""#), StopReason::Done);
    assert_eq!(why("max_output_tokens"), StopReason::Length);
    assert_eq!(why("content_filter"), StopReason::Refused("content_filter".into()));
    assert_eq!(why("tired"), StopReason::Other("tired".into()));
    assert_eq!(stop(r#""status":"cancelled""#), StopReason::Other("cancelled".into()));
    assert_eq!(answer(&[CALL], openai()).stop, StopReason::Tools);
    let usage = r#"{"output":[],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3}}}"#;
    let reply =
        OpenAiResponses.decode_reply(&Bytes::from(usage), &DecodeContext::of(openai())).unwrap();
    assert_eq!(reply.usage, Usage { input: 9, cached: 4, written: 2, output: 7, thought: 3 });
}

#[test]
fn provider_error_is_decoded_as_failure() {
    let body = r#"{"error":{"code":null,"message":"Item 'rs_1' of type 'reasoning' was provided without its required following item.","param":"input","type":"invalid_request_error"}}"#;
    let error = OpenAiResponses.decode_reply(&Bytes::from(body), &DecodeContext::of(openai()));
    let Err(CodecError::Provider(failure)) = error else { panic!("expected a failure") };
    assert_eq!(failure.kind.as_deref(), Some("invalid_request_error"));
    assert!(failure.message.ends_with("required following item."));
}

#[test]
fn malformed_request_is_rejected_with_its_path() {
    for body in [r#"{"model":"gpt-5","messages":[]}"#, r#"{"input":{}}"#, "[]"] {
        let body = Bytes::from(body);
        let request = Request { path: "/".into(), headers: Vec::new(), body };
        let error =
            OpenAiResponses.decode_request(&request, &DecodeContext::of(openai())).unwrap_err();
        assert!(matches!(error, CodecError::Shape { .. }), "{error}");
    }
}
