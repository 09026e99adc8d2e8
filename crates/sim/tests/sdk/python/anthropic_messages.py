"""The official `anthropic` client against /v1/messages."""

import anthropic
from common import DESCRIPTIONS, QUESTION, SCHEMAS, main, refused, run_tool

TOOLS = [{"name": n, "description": DESCRIPTIONS[n], "input_schema": s} for n, s in SCHEMAS.items()]


def client(url):
    return anthropic.Anthropic(base_url=url, api_key="sim-key", max_retries=0)


def ask(url, messages, stream):
    request = dict(
        model="claude-sonnet-4-5",
        max_tokens=8192,
        thinking={"type": "enabled", "budget_tokens": 2048},
        tools=TOOLS,
        messages=messages,
    )
    if not stream:
        return client(url).messages.create(**request)
    with client(url).messages.stream(**request) as events:
        kinds = [event.type for event in events]
        assert "content_block_delta" in kinds and kinds[-1] == "message_stop", kinds
        return events.get_final_message()


def results(message):
    return [
        {"type": "tool_result", "tool_use_id": b.id, "content": run_tool(b.name, b.input)}
        for b in message.content
        if b.type == "tool_use"
    ]


def two_turns(url, stream):
    messages = [{"role": "user", "content": QUESTION}]
    called, thoughts, finals = [], 0, 0
    for _ in range(8):
        message = ask(url, messages, stream)
        signed = [b for b in message.content if b.type == "thinking"]
        assert all(b.signature and b.thinking for b in signed), message.content
        thoughts += len(signed)
        assert message.usage.output_tokens > 0 and message.usage.input_tokens >= 0
        called += [b.name for b in message.content if b.type == "tool_use"]
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason == "tool_use":
            messages.append({"role": "user", "content": results(message)})
            continue
        assert message.stop_reason == "end_turn", message.stop_reason
        finals += 1
        if finals == 2:
            break
        messages.append({"role": "user", "content": "Thank you. And once more, please."})
    assert finals == 2 and thoughts >= 2 and set(called) == set(SCHEMAS), (finals, thoughts, called)


def loop_start(url):
    messages = [{"role": "user", "content": QUESTION}]
    message = ask(url, messages, False)
    assert message.stop_reason == "tool_use"
    return messages, message


def dropped(url):
    messages, message = loop_start(url)
    kept = [b for b in message.content if b.type != "thinking"]
    messages += [{"role": "assistant", "content": kept}, {"role": "user", "content": results(message)}]
    refused(anthropic.BadRequestError, lambda: ask(url, messages, False), "Expected `thinking`", "400")
    refused(anthropic.BadRequestError, lambda: ask(url, messages, True), "Expected `thinking`")


def altered(url):
    messages, message = loop_start(url)
    content = [b.model_dump(exclude_none=True) for b in message.content]
    content[0]["signature"] = content[0]["signature"][:-8] + "AAAAAAA="
    messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results(message)}]
    refused(anthropic.BadRequestError, lambda: ask(url, messages, False), "Invalid `signature` in `thinking` block")


def counts_and_models(url):
    count = client(url).messages.count_tokens(
        model="claude-sonnet-4-5", messages=[{"role": "user", "content": QUESTION}]
    )
    assert count.input_tokens > 0
    assert any("claude" in model.id for model in client(url).models.list())


main(
    whole=lambda url: two_turns(url, False),
    streamed=lambda url: two_turns(url, True),
    dropped=dropped,
    altered=altered,
    counts_and_models=counts_and_models,
)
