"""The official `boto3` client of Amazon Bedrock's Converse, through the gateway.

The client sends a bearer token only to HTTPS endpoints, so it signs its requests here. The gateway
has no keys, and ignores the signature.
"""

import json

import boto3
from common import DESCRIPTIONS, SCHEMAS, main

TOOLS = {
    "tools": [
        {"toolSpec": {"name": n, "description": DESCRIPTIONS[n], "inputSchema": {"json": s}}} for n, s in SCHEMAS.items()
    ]
}


class Client:
    def __init__(self, url, model):
        secret = dict(aws_access_key_id="no-key", aws_secret_access_key="no-key")
        self.client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=url, **secret)
        self.model = model

    def user(self, text):
        return {"role": "user", "content": [{"text": text}]}

    def ask(self, history, stream):
        request = dict(
            modelId=self.model,
            messages=history,
            toolConfig=TOOLS,
            inferenceConfig={"maxTokens": 8192},
            additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 2048}},
        )
        if stream:
            message, stop = self.joined(self.client.converse_stream(**request)["stream"])
        else:
            response = self.client.converse(**request)
            message, stop = response["output"]["message"], response["stopReason"]
            assert response["usage"]["outputTokens"] > 0
        calls = any("toolUse" in block for block in message["content"])
        assert stop == ("tool_use" if calls else "end_turn"), stop
        return [message]

    def joined(self, events):
        """The message that a stream contains, and its stop reason."""
        blocks, stop = {}, None
        for event in events:
            if "contentBlockStart" in event:
                start = event["contentBlockStart"]
                blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
            elif "contentBlockDelta" in event:
                delta, index = event["contentBlockDelta"]["delta"], event["contentBlockDelta"]["contentBlockIndex"]
                if "text" in delta:
                    blocks.setdefault(index, {"text": ""})["text"] += delta["text"]
                elif "toolUse" in delta:
                    blocks[index]["toolUse"]["input"] += delta["toolUse"]["input"]
                elif "redactedContent" in delta["reasoningContent"]:
                    blocks[index] = {"reasoningContent": delta["reasoningContent"]}
                else:
                    empty = {"reasoningContent": {"reasoningText": {"text": ""}}}
                    thought = blocks.setdefault(index, empty)["reasoningContent"]["reasoningText"]
                    for key, value in delta["reasoningContent"].items():
                        thought[key] = thought.get(key, "") + value
            elif "messageStop" in event:
                stop = event["messageStop"]["stopReason"]
        content = [blocks[index] for index in sorted(blocks)]
        for block in content:
            if "toolUse" in block:
                block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
        return {"role": "assistant", "content": content}, stop

    def calls(self, said):
        calls = [block["toolUse"] for block in said[0]["content"] if "toolUse" in block]
        return [(call["toolUseId"], call["name"], call["input"]) for call in calls]

    def results(self, results):
        content = [{"toolResult": {"toolUseId": key, "content": [{"text": text}]}} for key, _, text in results]
        return [{"role": "user", "content": content}]

    def thoughts(self, said):
        return sum("reasoningContent" in block for block in said[0]["content"])

    def least_thoughts(self):
        return 2

    def text(self, said):
        return "".join(block.get("text", "") for block in said[0]["content"])

    def stripped(self, said):
        kept = [block for block in said[0]["content"] if "reasoningContent" not in block]
        return [{"role": "assistant", "content": kept}]


main(Client)
