"""The official `openai` client against /v1/responses."""

import json

import openai
from common import DESCRIPTIONS, QUESTION, SCHEMAS, main, refused, run_tool

TOOLS = [
    {"type": "function", "name": n, "description": DESCRIPTIONS[n], "parameters": s, "strict": False}
    for n, s in SCHEMAS.items()
]


def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sim-key", max_retries=0)


def ask(url, items, stream, store=False):
    request = dict(
        model="gpt-5.2",
        input=items,
        tools=TOOLS,
        store=store,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "medium", "summary": "auto"},
    )
    if not stream:
        return client(url).responses.create(**request)
    final, kinds = None, []
    for event in client(url).responses.create(stream=True, **request):
        kinds.append(event.type)
        if event.type == "response.completed":
            final = event.response
    assert "response.output_item.added" in kinds and "response.output_item.done" in kinds, kinds
    return final


def streamed_items(url, items, store=False):
    """Return the items of `output_item.done`, which a client must send back."""
    request = dict(
        model="gpt-5.2", input=items, tools=TOOLS, store=store,
        include=["reasoning.encrypted_content"], reasoning={"effort": "medium", "summary": "auto"},
    )
    done = []
    for event in client(url).responses.create(stream=True, **request):
        if event.type == "response.output_item.done":
            done.append(event.item)
    return done


def outputs(items):
    return [
        {"type": "function_call_output", "call_id": i.call_id, "output": run_tool(i.name, json.loads(i.arguments))}
        for i in items
        if i.type == "function_call"
    ]


def plain(items):
    return [i.model_dump(exclude_none=True) for i in items]


def two_turns(url, stream, store=False):
    items = [{"role": "user", "content": QUESTION}]
    called, thoughts, finals = [], 0, 0
    for _ in range(8):
        if stream:
            output = streamed_items(url, items, store)
        else:
            response = ask(url, items, False, store)
            assert response.usage.output_tokens_details.reasoning_tokens > 0
            output = response.output
        reasoning = [i for i in output if i.type == "reasoning"]
        assert all(i.encrypted_content for i in reasoning)
        thoughts += len(reasoning)
        calls = [i for i in output if i.type == "function_call"]
        called += [i.name for i in calls]
        items += plain(output)
        if calls:
            items += outputs(output)
            continue
        assert any(i.type == "message" for i in output)
        finals += 1
        if finals == 2:
            break
        items.append({"role": "user", "content": "Thank you. And once more, please."})
    assert finals == 2 and thoughts >= 2 and set(called) == set(SCHEMAS), (finals, thoughts, called)


def altered(url):
    items = [{"role": "user", "content": QUESTION}]
    response = ask(url, items, False)
    sent = plain(response.output)
    reasoning = next(i for i in sent if i["type"] == "reasoning")
    reasoning["encrypted_content"] = reasoning["encrypted_content"][:-8] + "AAAAAAA="
    items += sent + outputs(response.output)
    error = refused(openai.BadRequestError, lambda: ask(url, items, False), "could not be verified")
    assert error.code == "invalid_encrypted_content", error.code


def unpaired(url):
    items = [{"role": "user", "content": QUESTION}]
    response = ask(url, items, False, store=True)
    sent = plain(response.output)
    for item in sent:
        if item["type"] == "function_call":
            del item["id"]
    items += sent + outputs(response.output)
    refused(
        openai.BadRequestError,
        lambda: ask(url, items, False, store=True),
        "of type 'reasoning' was provided without its required following item",
    )


def resumed(url):
    first = ask(url, [{"role": "user", "content": QUESTION}], False, store=True)
    request = dict(model="gpt-5.2", input=outputs(first.output), tools=TOOLS)
    again = client(url).responses.create(previous_response_id=first.id, **request)
    assert again.output
    refused(
        openai.OpenAIError,
        lambda: client(url).responses.create(previous_response_id="resp_nowhere", **request),
        "Previous response with id 'resp_nowhere' not found",
    )


main(
    whole=lambda url: two_turns(url, False),
    streamed=lambda url: two_turns(url, True),
    stored=lambda url: two_turns(url, False, store=True),
    completed=lambda url: ask(url, [{"role": "user", "content": QUESTION}], True).output[0].id,
    altered=altered,
    unpaired=unpaired,
    resumed=resumed,
)
