"""The official `openai` client against /v1/chat/completions, in the dialects of several vendors."""

import json

import openai
from common import DESCRIPTIONS, QUESTION, SCHEMAS, main, refused, run_tool

TOOLS = [
    {"type": "function", "function": {"name": n, "description": DESCRIPTIONS[n], "parameters": s}}
    for n, s in SCHEMAS.items()
]


def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sim-key", max_retries=0)


def ask(url, model, messages, stream):
    request = dict(model=model, messages=messages, tools=TOOLS)
    if "/" in model:
        request["extra_body"] = {"reasoning": {"effort": "medium"}}
    if not stream:
        choice = client(url).chat.completions.create(**request).choices[0]
        return choice.message.model_dump(exclude_none=True), choice.finish_reason
    message, finish = {"role": "assistant", "content": ""}, None
    for chunk in client(url).chat.completions.create(stream=True, **request):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            delta = choice.delta.model_dump(exclude_none=True)
            message["content"] += delta.get("content") or ""
            if "reasoning_content" in delta:
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for detail in delta.get("reasoning_details", []):
                merge_detail(message.setdefault("reasoning_details", []), detail)
            for call in delta.get("tool_calls", []):
                merge_call(message.setdefault("tool_calls", []), call)
    return message, finish


def merge_detail(details, new):
    for old in details:
        if old.get("index") == new.get("index") and old["type"] == new["type"]:
            for key in ("text", "summary"):
                if new.get(key):
                    old[key] = old.get(key, "") + new[key]
            old.update({k: v for k, v in new.items() if k in ("signature", "data") and v})
            return
    details.append(dict(new))


def merge_call(calls, new):
    index = new.pop("index")
    while len(calls) <= index:
        calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
    call = calls[index]
    call["id"] = new.get("id", call.get("id"))
    function = new.get("function", {})
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def answers(message):
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": run_tool(call["function"]["name"], json.loads(call["function"]["arguments"])),
        }
        for call in message.get("tool_calls", [])
    ]


def two_turns(url, model, key, stream):
    messages = [{"role": "user", "content": QUESTION}]
    called, thoughts, finals = [], 0, 0
    for _ in range(8):
        message, finish = ask(url, model, messages, stream)
        thoughts += bool(message.get(key)) if key else 0
        messages.append(message)
        called += [call["function"]["name"] for call in message.get("tool_calls", [])]
        if finish == "tool_calls":
            messages += answers(message)
            continue
        assert finish == "stop" and message["content"], message
        finals += 1
        if finals == 2:
            break
        messages.append({"role": "user", "content": "Thank you. And once more, please."})
    assert finals == 2 and set(called) == set(SCHEMAS), (finals, called)
    assert not key or thoughts >= 2, thoughts


def loop(url, model):
    messages = [{"role": "user", "content": QUESTION}]
    message, _ = ask(url, model, messages, False)
    return messages, message, answers(message)


def deepseek_dropped(url):
    messages, message, results = loop(url, "deepseek-v4")
    del message["reasoning_content"]
    messages += [message, *results]
    words = "The reasoning_content in the thinking mode must be passed back to the API."
    refused(openai.BadRequestError, lambda: ask(url, "deepseek-v4", messages, False), words)


def openrouter_altered(url):
    model = "anthropic/claude-sonnet-4.5"
    messages, message, results = loop(url, model)
    detail = next(d for d in message["reasoning_details"] if d.get("signature"))
    detail["signature"] = detail["signature"][:-8] + "AAAAAAA="
    messages += [message, *results]
    error = refused(openai.BadRequestError, lambda: ask(url, model, messages, False), "Provider returned error")
    assert "Invalid `signature` in `thinking` block" in error.body["metadata"]["raw"], error.body


def mistral_refuses_foreign_keys(url):
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi.", "reasoning_content": "a greeting"},
        {"role": "user", "content": "And again"},
    ]
    error = refused(
        openai.UnprocessableEntityError,
        lambda: client(url).chat.completions.create(model="mistral-medium-latest", messages=messages),
        "422",
    )
    assert "Extra inputs are not permitted" in error.response.text, error.response.text


main(
    openai_whole=lambda url: two_turns(url, "gpt-5.2", None, False),
    openai_streamed=lambda url: two_turns(url, "gpt-5.2", None, True),
    deepseek_whole=lambda url: two_turns(url, "deepseek-v4", "reasoning_content", False),
    deepseek_streamed=lambda url: two_turns(url, "deepseek-v4", "reasoning_content", True),
    openrouter_whole=lambda url: two_turns(url, "anthropic/claude-sonnet-4.5", "reasoning_details", False),
    openrouter_streamed=lambda url: two_turns(url, "anthropic/claude-sonnet-4.5", "reasoning_details", True),
    deepseek_dropped=deepseek_dropped,
    openrouter_altered=openrouter_altered,
    mistral_refuses_foreign_keys=mistral_refuses_foreign_keys,
)
