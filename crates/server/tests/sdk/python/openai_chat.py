"""The official `openai` client's chat completions, through the gateway."""

import json

import openai
from common import DESCRIPTIONS, SCHEMAS, main

TOOLS = [
    {"type": "function", "function": {"name": n, "description": DESCRIPTIONS[n], "parameters": s}}
    for n, s in SCHEMAS.items()
]


class Client:
    def __init__(self, url, model):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="no-key", max_retries=0)
        self.model = model

    def user(self, text):
        return {"role": "user", "content": text}

    def ask(self, history, stream):
        request = dict(model=self.model, messages=history, tools=TOOLS, reasoning_effort="medium")
        if stream:
            with self.client.chat.completions.stream(**request) as events:
                self.whole = events.get_final_completion()
        else:
            self.whole = self.client.chat.completions.create(**request)
        choice = self.whole.choices[0]
        message = choice.message
        assert choice.finish_reason == ("tool_calls" if message.tool_calls else "stop"), choice
        said = message.model_dump(exclude_none=True)
        said.pop("parsed", None)
        for call in said.get("tool_calls", []):
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        return [said]

    def calls(self, said):
        calls = said[0].get("tool_calls", [])
        return [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]

    def results(self, results):
        return [{"role": "tool", "tool_call_id": key, "content": text} for key, _, text in results]

    def thoughts(self, said):
        return 1 if said[0].get("reasoning_content") else 0

    def least_thoughts(self):
        # This dialect cannot request a summary of hidden reasoning.
        return 2 if "claude" in self.model or "deepseek" in self.model else 0

    def text(self, said):
        return said[0].get("content")

    def stripped(self, said):
        reasoning = ("reasoning_content", "reasoning", "reasoning_details")
        return [{k: v for k, v in said[0].items() if k not in reasoning}]


main(Client)
