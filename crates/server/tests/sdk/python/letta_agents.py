"""Letta's own client, unmodified: agents, messages, resumed streams, approvals, client tools, conversations and forks.

Arguments: the gateway's address, a key, and a model.
"""

import random
import sys

import httpx
import letta_client
from letta_client import Letta

URL, KEY, MODEL = sys.argv[1:4]
CLIENT = Letta(base_url=URL, api_key=KEY, max_retries=0)


def agent(**more):
    members = {"name": "Ada", "model": MODEL, "system": "Be kind.", "tools": ["get_weather", "send_mail"], **more}
    return CLIENT.agents.create(**members)


def user(text, **more):
    return {"role": "user", "content": text, **more}


def kinds(messages):
    return [message.message_type for message in messages]


def agents():
    made = agent(tags=["a", "b"], metadata={"x": 1}, memory_blocks=[{"label": "human", "value": "Likes tea."}])
    assert made.blocks[0].label == "human" and made.tags == ["a", "b"] and made.metadata == {"x": 1}
    assert CLIENT.agents.retrieve(made.id).name == "Ada"
    assert CLIENT.agents.update(made.id, name="Eve").name == "Eve"
    others = [agent(name=f"agent {number}").id for number in range(4)]
    listed = [found.id for found in CLIENT.agents.list(limit=2)]
    assert listed == [*reversed(others), made.id], listed
    assert [found.id for found in CLIENT.agents.list(tags=["a"])] == [made.id]
    for gone in others:
        CLIENT.agents.delete(gone)
    try:
        CLIENT.agents.retrieve(others[0])
        raise AssertionError("it was deleted")
    except letta_client.NotFoundError:
        pass


def messages():
    ada = agent()
    said = CLIENT.agents.messages.create(ada.id, messages=[user("What is the weather?")])
    assert kinds(said.messages) == [
        "reasoning_message", "reasoning_message", "tool_call_message", "tool_return_message",
        "reasoning_message", "reasoning_message", "assistant_message",
    ], kinds(said.messages)
    assert said.stop_reason.stop_reason == "end_turn" and said.usage.step_count == 2
    signatures = [message.signature for message in said.messages if message.message_type == "reasoning_message"]
    assert len(set(signatures)) == 4 and all(signatures), signatures
    assert said.messages[2].tool_call.name == "get_weather" and said.messages[3].status == "success"
    CLIENT.agents.messages.create(ada.id, input="Hello")
    listed = list(CLIENT.agents.messages.list(ada.id, limit=3))
    assert len(listed) == 12 and listed[-1].message_type == "user_message", kinds(listed)
    run = CLIENT.runs.retrieve(said.messages[0].run_id)
    assert run.agent_id == ada.id and run.status == "completed" and run.stop_reason == "end_turn"
    assert len(list(CLIENT.runs.messages.list(run.id))) == 8
    assert len(list(CLIENT.runs.steps.list(run.id))) == 2
    assert CLIENT.runs.usage.retrieve(run.id).total_tokens == 220
    assert len(list(CLIENT.runs.list(agent_id=ada.id))) == 2
    later = CLIENT.agents.messages.create_async(ada.id, messages=[user("slow")])
    try:
        CLIENT.agents.messages.create(ada.id, messages=[user("other")])
        raise AssertionError("a run is on")
    except letta_client.ConflictError as error:
        assert error.body["detail"]["run_id"] == later.id, error.body
    assert CLIENT.agents.messages.cancel(ada.id) == {later.id: "cancelled"}
    try:
        CLIENT.agents.messages.create(ada.id, messages=[user("a", otid="x"), user("b", otid="x")])
        raise AssertionError("two otids are the same")
    except letta_client.UnprocessableEntityError as error:
        assert "the otid x is repeated" in str(error), error
    CLIENT.agents.messages.reset(ada.id)
    assert list(CLIENT.agents.messages.list(ada.id)) == []


def whole(chunks):
    """Join deltas by message."""
    joined = {}
    for chunk in chunks:
        text = getattr(chunk, "reasoning", None) or getattr(chunk, "content", None)
        if isinstance(text, str):
            joined[chunk.id] = joined.get(chunk.id, "") + text
    return joined


def streams():
    ada = agent()
    for tokens in (False, True):
        with CLIENT.agents.messages.stream(ada.id, messages=[user("weather")], stream_tokens=tokens) as stream:
            chunks = [chunk for chunk in stream if chunk.message_type != "ping"]
        assert kinds(chunks)[-2:] == ["stop_reason", "usage_statistics"], kinds(chunks)
        listed = whole(CLIENT.runs.messages.list(chunks[0].run_id))
        told = whole(chunks)
        assert told and all(listed[key] == text for key, text in told.items()), (told, listed)
    assert len(chunks) > 12


def background():
    """Cut the connection at random and resume the stream from the last number."""
    dice = random.Random(7)
    ada = agent()
    for number in range(8):
        seen, run, after = [], None, 0
        while not seen or seen[-1].message_type != "usage_statistics":
            if run is None:
                said = [user(f"weather {number}", otid=f"otid-{number}")]
                stream = CLIENT.agents.messages.stream(ada.id, messages=said, stream_tokens=True, background=True)
            else:
                stream = CLIENT.runs.messages.stream(run, starting_after=after)
            left = dice.randint(1, 6)
            for chunk in stream:
                if chunk.message_type == "ping":
                    continue
                seen.append(chunk)
                run, after = chunk.run_id, chunk.seq_id
                left -= 1
                if left == 0:
                    break
            stream.close()
        numbers = [chunk.seq_id for chunk in seen]
        assert numbers == list(range(1, len(seen) + 1)), numbers
        listed = whole(CLIENT.runs.messages.list(run))
        assert all(listed[key] == text for key, text in whole(seen).items())


def approvals():
    ada = agent()
    said = CLIENT.agents.messages.create(ada.id, messages=[user("Send two mails.")])
    assert said.stop_reason.stop_reason == "requires_approval"
    request = said.messages[-1]
    assert request.message_type == "approval_request_message" and len(request.tool_calls) == 2
    try:
        CLIENT.agents.messages.create(ada.id, messages=[user("Hello?")])
        raise AssertionError("a person must decide first")
    except letta_client.ConflictError as error:
        assert error.body["detail"]["pending_request_id"] == request.id, error.body
    decided = [
        {"type": "approval", "tool_call_id": request.tool_calls[0].tool_call_id, "approve": True},
        {"type": "approval", "tool_call_id": request.tool_calls[1].tool_call_id, "approve": False, "reason": "no"},
    ]
    decisions = [{"type": "approval", "approvals": decided}]
    with CLIENT.agents.messages.stream(ada.id, messages=decisions, stream_tokens=True) as stream:
        chunks = [chunk for chunk in stream if chunk.message_type != "ping"]
    assert "tool_return_message" in kinds(chunks) and chunks[-2].stop_reason == "end_turn", kinds(chunks)
    try:
        CLIENT.agents.messages.create(ada.id, messages=decisions)
        raise AssertionError("it was decided")
    except letta_client.ConflictError:
        pass
    assert "approval_response_message" in kinds(CLIENT.agents.messages.list(ada.id))


def own_tools():
    ada = agent()
    tools = [{"name": "local_time", "description": "The time here.",
              "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}]
    said = CLIENT.agents.messages.create(ada.id, messages=[user("Look at the clock.")], client_tools=tools)
    call = said.messages[-1].tool_call
    assert said.stop_reason.stop_reason == "requires_approval" and call.name == "local_time"
    returned = [{"type": "tool", "tool_call_id": call.tool_call_id, "tool_return": "noon", "status": "success"}]
    said = CLIENT.agents.messages.create(
        ada.id, messages=[{"type": "approval", "approvals": returned}], client_tools=tools
    )
    assert said.messages[0].tool_return == "noon" and said.stop_reason.stop_reason == "end_turn"


def conversations():
    ada = agent()
    talk = CLIENT.conversations.create(agent_id=ada.id, summary="Tea")
    assert CLIENT.conversations.retrieve(talk.id).summary == "Tea"
    with CLIENT.conversations.messages.create(talk.id, messages=[user("One")]) as stream:
        chunks = [chunk for chunk in stream if chunk.message_type != "ping"]
    assert chunks[-2].stop_reason == "end_turn"
    assert len(list(CLIENT.conversations.messages.list(talk.id))) == 4
    fork = CLIENT.conversations.fork(talk.id)
    with CLIENT.conversations.messages.create(fork.id, messages=[user("Two")], background=True) as stream:
        run = next(chunk.run_id for chunk in stream if chunk.message_type != "ping")
    with CLIENT.conversations.messages.stream(fork.id, run_id=run, starting_after=2) as stream:
        rest = [chunk for chunk in stream if chunk.message_type != "ping"]
    assert rest[0].seq_id == 3 and rest[-1].message_type == "usage_statistics"
    assert len(list(CLIENT.conversations.messages.list(fork.id))) == 8
    assert len(list(CLIENT.conversations.messages.list(talk.id))) == 4
    assert CLIENT.conversations.messages.compact(fork.id).summary == "They talked."
    assert {found.id for found in CLIENT.conversations.list(agent_id=ada.id)} == {talk.id, fork.id}
    CLIENT.conversations.delete(fork.id)
    assert [found.id for found in CLIENT.conversations.list(agent_id=ada.id)] == [talk.id]


def lists():
    """Check that paging every list in both directions takes a number of requests bounded by its objects."""
    asked = []
    http = httpx.Client(event_hooks={"request": [asked.append]})
    client = Letta(base_url=URL, api_key=KEY, max_retries=0, http_client=http)
    ada = agent(memory_blocks=[{"label": f"b{number}", "value": "x"} for number in range(5)])
    for _ in range(2):
        CLIENT.agents.messages.create(ada.id, messages=[user("What is the weather?")])
    run = next(iter(CLIENT.runs.list(agent_id=ada.id))).id
    talk = CLIENT.conversations.create(agent_id=ada.id)
    with CLIENT.conversations.messages.create(talk.id, messages=[user("One")]) as stream:
        list(stream)
    pages = {
        "agents": lambda **page: client.agents.list(**page),
        "tools": lambda **page: client.tools.list(**page),
        "agents.tools": lambda **page: client.agents.tools.list(ada.id, **page),
        "agents.blocks": lambda **page: client.agents.blocks.list(ada.id, **page),
        "agents.messages": lambda **page: client.agents.messages.list(ada.id, **page),
        "runs": lambda **page: client.runs.list(agent_id=ada.id, **page),
        "runs.messages": lambda **page: client.runs.messages.list(run, **page),
        "runs.steps": lambda **page: client.runs.steps.list(run, **page),
        "conversations.messages": lambda **page: client.conversations.messages.list(talk.id, **page),
    }
    for name, page in pages.items():
        whole = [one.id for one in page(limit=1000)]
        del asked[:]
        assert [one.id for one in page(limit=1)] == whole, name
        forwards = len(asked)
        del asked[:]
        earlier = [one.id for one in page(limit=1, before=whole[-1])]
        assert sorted(earlier) == sorted(whole[:-1]), name
        assert forwards <= len(whole) + 1 and len(asked) <= len(whole) + 1, (name, forwards, len(asked))
        print(f"list {name}: {len(whole)} objects, {forwards} requests forwards, {len(asked)} backwards")
    listed = client.conversations.list(agent_id=ada.id)
    assert [found.id for found in listed] == [talk.id]


for part in (agents, messages, streams, background, approvals, own_tools, conversations, lists):
    part()
    print(f"ok {part.__name__}")
