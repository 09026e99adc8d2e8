"""The official `anthropic` client, through the gateway."""

import anthropic
from common import DESCRIPTIONS, SCHEMAS, main

TOOLS = [{"name": n, "description": DESCRIPTIONS[n], "input_schema": s} for n, s in SCHEMAS.items()]


class Client:
    def __init__(self, url, model):
        self.client = anthropic.Anthropic(base_url=url, api_key="no-key", max_retries=0)
        self.model = model

    def user(self, text):
        return {"role": "user", "content": text}

    def ask(self, history, stream):
        thinking = {"type": "enabled", "budget_tokens": 2048, "display": "summarized"}
        request = dict(model=self.model, max_tokens=8192, thinking=thinking, tools=TOOLS, messages=history)
        if stream:
            with self.client.messages.stream(**request) as events:
                message = events.get_final_message()
        else:
            message = self.client.messages.create(**request)
        self.whole = message
        calls = any(b.type == "tool_use" for b in message.content)
        assert message.stop_reason == ("tool_use" if calls else "end_turn"), message.stop_reason
        assert message.usage.output_tokens > 0
        return [{"role": "assistant", "content": message.content}]

    def calls(self, said):
        return [(b.id, b.name, b.input) for b in said[0]["content"] if b.type == "tool_use"]

    def results(self, results):
        content = [{"type": "tool_result", "tool_use_id": key, "content": text} for key, _, text in results]
        return [{"role": "user", "content": content}]

    def thoughts(self, said):
        thoughts = [b for b in said[0]["content"] if b.type == "thinking"]
        assert all(b.signature for b in thoughts), thoughts
        return len(thoughts)

    def least_thoughts(self):
        return 2

    def text(self, said):
        return "".join(b.text for b in said[0]["content"] if b.type == "text")

    def stripped(self, said):
        kept = [b for b in said[0]["content"] if b.type not in ("thinking", "redacted_thinking")]
        return [{"role": "assistant", "content": kept}]


if __name__ == "__main__":
    main(Client)
