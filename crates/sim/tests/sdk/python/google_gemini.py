"""The official `google-genai` client against generateContent and streamGenerateContent."""

from google import genai
from google.genai import errors, types
from common import DESCRIPTIONS, QUESTION, SCHEMAS, main, refused, run_tool

MODEL = "gemini-3-pro-preview"
CONFIG = types.GenerateContentConfig(
    tools=[
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(name=n, description=DESCRIPTIONS[n], parameters_json_schema=s)
                for n, s in SCHEMAS.items()
            ]
        )
    ],
    thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level="LOW"),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def client(url):
    return genai.Client(api_key="sim-key", http_options=types.HttpOptions(base_url=url))


def ask(url, contents, stream):
    gemini = client(url)
    if not stream:
        response = gemini.models.generate_content(model=MODEL, contents=contents, config=CONFIG)
        assert response.usage_metadata.thoughts_token_count > 0
        return response.candidates[0].content
    parts = []
    for chunk in gemini.models.generate_content_stream(model=MODEL, contents=contents, config=CONFIG):
        parts += chunk.candidates[0].content.parts or []
    return types.Content(role="model", parts=parts)


def results(content):
    parts = [
        types.Part.from_function_response(
            name=p.function_call.name, response={"result": run_tool(p.function_call.name, p.function_call.args)}
        )
        for p in content.parts
        if p.function_call
    ]
    return types.Content(role="user", parts=parts)


def user(text):
    return types.Content(role="user", parts=[types.Part(text=text)])


def two_turns(url, stream):
    contents = [user(QUESTION)]
    called, signed, finals = [], 0, 0
    for _ in range(8):
        content = ask(url, contents, stream)
        signed += sum(1 for p in content.parts if p.thought_signature)
        calls = [p.function_call.name for p in content.parts if p.function_call]
        called += calls
        contents.append(content)
        if calls:
            contents.append(results(content))
            continue
        assert any(p.text and not p.thought for p in content.parts)
        finals += 1
        if finals == 2:
            break
        contents.append(user("Thank you. And once more, please."))
    assert finals == 2 and signed >= 2 and set(called) == set(SCHEMAS), (finals, signed, called)


def loop(url):
    content = ask(url, [user(QUESTION)], False)
    return [user(QUESTION), content, results(content)], content


def dropped(url):
    contents, content = loop(url)
    for part in content.parts:
        part.thought_signature = None
    refused(errors.ClientError, lambda: ask(url, contents, False), "missing a thought_signature", "400")
    refused(errors.ClientError, lambda: ask(url, contents, True), "missing a thought_signature")


def altered(url):
    contents, content = loop(url)
    call = next(p for p in content.parts if p.function_call and p.thought_signature)
    call.thought_signature = call.thought_signature[:-4] + b"\x00\x01\x02\x03"
    refused(errors.ClientError, lambda: ask(url, contents, False), "Corrupted thought signature", "INVALID_ARGUMENT")


def counts_and_models(url):
    gemini = client(url)
    assert gemini.models.count_tokens(model=MODEL, contents=QUESTION).total_tokens > 0
    assert any("gemini" in model.name for model in gemini.models.list())


main(
    whole=lambda url: two_turns(url, False),
    streamed=lambda url: two_turns(url, True),
    dropped=dropped,
    altered=altered,
    counts_and_models=counts_and_models,
)
