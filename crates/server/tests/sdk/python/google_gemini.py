"""The official `google-genai` client, through the gateway."""

from common import DESCRIPTIONS, SCHEMAS, main
from google import genai
from google.genai import types

CONFIG = types.GenerateContentConfig(
    tools=[
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(name=n, description=DESCRIPTIONS[n], parameters_json_schema=s)
                for n, s in SCHEMAS.items()
            ]
        )
    ],
    thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level="LOW"),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def told(response):
    """A response without connection headers."""
    return response.model_dump(mode="json", exclude={"sdk_http_response"})


class Client:
    def __init__(self, url, model):
        self.client = genai.Client(api_key="no-key", http_options=types.HttpOptions(base_url=url))
        self.model = model

    def user(self, text):
        return types.Content(role="user", parts=[types.Part(text=text)])

    def ask(self, history, stream):
        request = dict(model=self.model, contents=history, config=CONFIG)
        if not stream:
            response = self.client.models.generate_content(**request)
            self.whole = told(response)
            assert response.candidates[0].finish_reason == "STOP", response
            return [response.candidates[0].content]
        parts, finish, self.whole = [], None, []
        for chunk in self.client.models.generate_content_stream(**request):
            self.whole.append(told(chunk))
            candidate = chunk.candidates[0]
            finish = candidate.finish_reason or finish
            parts += (candidate.content.parts or []) if candidate.content else []
        assert finish == "STOP", finish
        return [types.Content(role="model", parts=parts)]

    def calls(self, said):
        calls = [p.function_call for p in said[0].parts if p.function_call]
        return [(c.id, c.name, c.args) for c in calls]

    def results(self, results):
        parts = [
            types.Part(function_response=types.FunctionResponse(id=key, name=name, response={"result": text}))
            for key, name, text in results
        ]
        return [types.Content(role="user", parts=parts)]

    def thoughts(self, said):
        return sum(1 for p in said[0].parts if p.thought_signature)

    def least_thoughts(self):
        return 2

    def text(self, said):
        return "".join(p.text for p in said[0].parts if p.text and not p.thought)

    def stripped(self, said):
        kept = [p.model_copy(update={"thought_signature": None}) for p in said[0].parts if not p.thought]
        return [types.Content(role="model", parts=kept)]


if __name__ == "__main__":
    main(Client)
