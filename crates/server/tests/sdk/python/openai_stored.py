"""The official `openai` client's Responses with `previous_response_id`: the gateway stores the conversation."""

import json

import openai
from common import AGAIN, DESCRIPTIONS, QUESTION, SCHEMAS, main, run_tool

TOOLS = [
    {"type": "function", "name": n, "description": DESCRIPTIONS[n], "parameters": s, "strict": False}
    for n, s in SCHEMAS.items()
]


def connect(url, model):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="no-key", max_retries=0), model


def ask(client, model, stream, **request):
    request = dict(model=model, tools=TOOLS, reasoning={"effort": "medium", "summary": "auto"}, **request)
    if not stream:
        return client.responses.create(**request)
    with client.responses.stream(**request) as events:
        return events.get_final_response()


def hold(connected, stream, _lossy):
    """Two questions with tool loops; each call sends only new input."""
    client, model = connected
    said, previous, finals, responses = QUESTION, None, 0, []
    while finals < 2:
        request = {} if previous is None else {"previous_response_id": previous}
        response = ask(client, model, stream, input=said, **request)
        assert response.status == "completed", response
        responses.append(response)
        assert len(responses) < 12, "the conversation does not end"
        previous = response.id
        calls = [item for item in response.output if item.type == "function_call"]
        if calls:
            outputs = [(c.call_id, run_tool(c.name, json.loads(c.arguments))) for c in calls]
            said = [{"type": "function_call_output", "call_id": key, "output": text} for key, text in outputs]
            continue
        assert response.output_text, response
        finals += 1
        said = AGAIN
    assert len({response.id for response in responses}) == len(responses), "ids are said twice"
    check_kept(client, responses)
    return len(responses)


def check_kept(client, responses):
    before = 0
    for response, earlier in zip(responses, [None, *responses]):
        kept = client.responses.retrieve(response.id)
        assert kept.id == response.id, kept
        assert plain(kept.output) == plain(response.output), kept
        assert kept.previous_response_id == (earlier.id if earlier else None), kept
        listed = list(client.responses.input_items.list(response.id, order="asc", limit=2))
        ids = [item.id for item in listed]
        assert len(set(ids)) == len(ids), ids
        assert len(ids) > before, f"{len(ids)} items after {before}"
        before = len(ids) + len(response.output)
        first = listed[0]
        assert first.role == "user" and first.content[0].text == QUESTION, first
        newest = client.responses.input_items.list(response.id).data
        assert [item.id for item in newest] == ids[::-1][:20], newest
    last = responses[-1].id
    client.responses.delete(last)
    for gone in (lambda: client.responses.retrieve(last), lambda: client.responses.input_items.list(last)):
        try:
            gone()
        except openai.NotFoundError:
            continue
        raise AssertionError("it is still there")
    try:
        ask(client, responses[-1].model, False, input=AGAIN, previous_response_id=last)
    except openai.NotFoundError as error:
        assert error.code == "previous_response_not_found", error
    except openai.NotFoundError as error:
        assert "model" in str(error), error
    else:
        raise AssertionError("a deleted response was gone on from")
    assert client.responses.retrieve(responses[0].id).id == responses[0].id


def plain(output):
    """The items without the members that only a streaming client adds."""
    items = [item.model_dump(exclude_none=True) for item in output]
    for item in items:
        for part in [item, *item.get("content", [])]:
            part.pop("parsed", None), part.pop("parsed_arguments", None)
    return items


main(connect, hold)
