"""Letta's own client with simulated models: two questions with tools, whole and streamed by token.

Arguments: the gateway's address, a key, and the models.
"""

import sys

from common import AGAIN, QUESTION
from letta_client import Letta

URL, KEY, *MODELS = sys.argv[1:]
CLIENT = Letta(base_url=URL, api_key=KEY, max_retries=0)


def ask(agent, text, tokens):
    """The messages of the answer and the number of deltas."""
    said = [{"role": "user", "content": text}]
    if not tokens:
        answer = CLIENT.agents.messages.create(agent.id, messages=said)
        assert answer.stop_reason.stop_reason == "end_turn", answer
        return answer.messages
    with CLIENT.agents.messages.stream(agent.id, messages=said, stream_tokens=True, background=True) as stream:
        chunks = [chunk for chunk in stream if chunk.message_type != "ping"]
    assert chunks[-2].stop_reason == "end_turn", chunks
    assert [chunk.seq_id for chunk in chunks] == list(range(1, len(chunks) + 1))
    listed = [one for one in CLIENT.runs.messages.list(chunks[0].run_id) if one.message_type != "user_message"]
    pieces = {}
    for chunk in chunks:
        text = getattr(chunk, "reasoning", None) or getattr(chunk, "content", None)
        if text:
            pieces[chunk.id] = pieces.get(chunk.id, "") + text
    for one in listed:
        text = getattr(one, "reasoning", None) or getattr(one, "content", None)
        assert not text or pieces[one.id] == text, (pieces, one)
    signed = {chunk.id: chunk.signature for chunk in chunks if getattr(chunk, "signature", None)}
    assert signed == {one.id: one.signature for one in listed if getattr(one, "signature", None)}
    return listed


def converse(model, tokens):
    agent = CLIENT.agents.create(name="Ada", model=model, tools=["get_weather", "get_time"])
    called, thoughts = set(), 0
    for text in (QUESTION, AGAIN):
        messages = ask(agent, text, tokens)
        called |= {
            call.name for one in messages if one.message_type == "tool_call_message" for call in one.tool_calls
        }
        thoughts += sum(one.message_type.endswith("reasoning_message") for one in messages)
        assert messages[-1].message_type == "assistant_message", messages
        # Renaming the agent does not affect its thoughts.
        CLIENT.agents.update(agent.id, name="Eve")
    assert called >= {"get_weather", "get_time"}, called
    return thoughts


for MODEL in MODELS:
    for TOKENS in (False, True):
        found = converse(MODEL, TOKENS)
        assert found >= 1, MODEL
        print(f"ok {MODEL} {'token by token' if TOKENS else 'whole'}: {found} thoughts")
