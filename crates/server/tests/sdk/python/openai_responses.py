"""The official `openai` client's Responses, through the gateway."""

import json

import openai
from common import DESCRIPTIONS, SCHEMAS, main

TOOLS = [
    {"type": "function", "name": n, "description": DESCRIPTIONS[n], "parameters": s, "strict": False}
    for n, s in SCHEMAS.items()
]


class Client:
    def __init__(self, url, model):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="no-key", max_retries=0)
        self.model = model

    def user(self, text):
        return {"role": "user", "content": text}

    def ask(self, history, stream):
        request = dict(
            model=self.model,
            input=history,
            tools=TOOLS,
            store=False,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "medium", "summary": "auto"},
        )
        if stream:
            with self.client.responses.stream(**request) as events:
                done = [event.item for event in events if event.type == "response.output_item.done"]
                response = events.get_final_response()
            assert [item.type for item in done] == [item.type for item in response.output], done
        else:
            response = self.client.responses.create(**request)
        self.whole = response
        assert response.status == "completed" and response.usage.output_tokens > 0, response
        ours = {"parsed", "parsed_arguments"}
        items = [item.model_dump(exclude_none=True) for item in response.output]
        return [{k: v for k, v in item.items() if k not in ours} for item in items]

    def calls(self, said):
        calls = [i for i in said if i["type"] == "function_call"]
        return [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in calls]

    def results(self, results):
        return [{"type": "function_call_output", "call_id": key, "output": text} for key, _, text in results]

    def thoughts(self, said):
        thoughts = [i for i in said if i["type"] == "reasoning"]
        assert all(i["encrypted_content"] for i in thoughts), thoughts
        return len(thoughts)

    def least_thoughts(self):
        return 2

    def text(self, said):
        return "".join(part["text"] for i in said if i["type"] == "message" for part in i["content"])

    def stripped(self, said):
        return [i for i in said if i["type"] != "reasoning"]


main(Client)
