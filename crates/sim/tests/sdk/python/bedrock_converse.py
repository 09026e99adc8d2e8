"""The official `boto3` client against converse and converse-stream."""

import json

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from common import DESCRIPTIONS, QUESTION, SCHEMAS, main, refused, run_tool

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
TOOLS = {
    "tools": [
        {"toolSpec": {"name": n, "description": DESCRIPTIONS[n], "inputSchema": {"json": s}}}
        for n, s in SCHEMAS.items()
    ]
}


def client(url):
    return boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="SIMKEY",
        aws_secret_access_key="sim-secret",
        config=Config(retries={"total_max_attempts": 1}),
    )


def ask(url, messages, stream):
    request = dict(
        modelId=MODEL,
        messages=messages,
        toolConfig=TOOLS,
        inferenceConfig={"maxTokens": 8192},
        additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 2048}},
    )
    if not stream:
        response = client(url).converse(**request)
        assert response["usage"]["outputTokens"] > 0
        return response["output"]["message"], response["stopReason"]
    blocks, stop, usage = {}, None, None
    for event in client(url).converse_stream(**request)["stream"]:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
        elif "contentBlockDelta" in event:
            add(blocks, event["contentBlockDelta"])
        elif "messageStop" in event:
            stop = event["messageStop"]["stopReason"]
        elif "metadata" in event:
            usage = event["metadata"]["usage"]
    assert usage["outputTokens"] > 0
    content = [blocks[index] for index in sorted(blocks)]
    for block in content:
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    return {"role": "assistant", "content": content}, stop


def add(blocks, event):
    index, delta = event["contentBlockIndex"], event["delta"]
    if "text" in delta:
        blocks.setdefault(index, {"text": ""})["text"] += delta["text"]
    elif "toolUse" in delta:
        blocks[index]["toolUse"]["input"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        thought = blocks.setdefault(index, {"reasoningContent": {"reasoningText": {"text": ""}}})
        thought = thought["reasoningContent"]["reasoningText"]
        thought["text"] += delta["reasoningContent"].get("text", "")
        if "signature" in delta["reasoningContent"]:
            thought["signature"] = delta["reasoningContent"]["signature"]


def results(message):
    content = [
        {
            "toolResult": {
                "toolUseId": b["toolUse"]["toolUseId"],
                "content": [{"text": run_tool(b["toolUse"]["name"], b["toolUse"]["input"])}],
            }
        }
        for b in message["content"]
        if "toolUse" in b
    ]
    return {"role": "user", "content": content}


def user(text):
    return {"role": "user", "content": [{"text": text}]}


def two_turns(url, stream):
    messages = [user(QUESTION)]
    called, thoughts, finals = [], 0, 0
    for _ in range(8):
        message, stop = ask(url, messages, stream)
        reasoning = [b["reasoningContent"]["reasoningText"] for b in message["content"] if "reasoningContent" in b]
        assert all(r["text"] and r["signature"] for r in reasoning), reasoning
        thoughts += len(reasoning)
        called += [b["toolUse"]["name"] for b in message["content"] if "toolUse" in b]
        messages.append(message)
        if stop == "tool_use":
            messages.append(results(message))
            continue
        assert stop == "end_turn", stop
        finals += 1
        if finals == 2:
            break
        messages.append(user("Thank you. And once more, please."))
    assert finals == 2 and thoughts >= 2 and set(called) == set(SCHEMAS), (finals, thoughts, called)


def loop(url):
    message, _ = ask(url, [user(QUESTION)], False)
    return message, [user(QUESTION), message, results(message)]


def dropped(url):
    message, messages = loop(url)
    message["content"] = [b for b in message["content"] if "reasoningContent" not in b]
    refused(ClientError, lambda: ask(url, messages, False), "ValidationException", "Expected `thinking`")
    refused(ClientError, lambda: ask(url, messages, True), "ValidationException", "Expected `thinking`")


def unsigned(url):
    message, messages = loop(url)
    for block in message["content"]:
        if "reasoningContent" in block:
            del block["reasoningContent"]["reasoningText"]["signature"]
    refused(ClientError, lambda: ask(url, messages, False), "ValidationException", "signature: Field required")


main(
    whole=lambda url: two_turns(url, False),
    streamed=lambda url: two_turns(url, True),
    dropped=dropped,
    unsigned=unsigned,
)
