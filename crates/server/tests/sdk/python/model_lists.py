"""The official clients list the gateway's models.

Arguments: the gateway's address, a word that is not used, and the expected models.
"""

import sys

import anthropic
import openai
from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials

url, _, *expected = sys.argv[1:]


def check_openai():
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="no-key", max_retries=0)
    assert [model.id for model in client.models.list()] == expected
    for name in expected:
        model = client.models.retrieve(name)
        assert (model.id, model.object) == (name, "model"), model
    try:
        client.models.retrieve("nothing")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
    else:
        raise AssertionError("an unknown model was returned")


def check_anthropic():
    client = anthropic.Anthropic(base_url=url, api_key="no-key", max_retries=0)
    # The client requests further pages until `has_more` is false.
    assert [model.id for model in client.models.list(limit=1)] == expected
    page = client.models.list(limit=2, before_id=expected[2])
    assert [model.id for model in page.data] == expected[:2] and not page.has_more
    claude = next(model for model in client.models.list() if "claude-sonnet-4-5" in model.id)
    assert claude.type == "model" and claude.max_input_tokens == 200_000, claude
    assert claude.display_name == "Claude Sonnet 4.5", claude
    assert claude.capabilities.thinking.types.enabled.supported, claude
    for name in expected:
        assert client.models.retrieve(name).id == name
    try:
        client.models.retrieve("nothing")
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error", error
    else:
        raise AssertionError("an unknown model was returned")


def check_google():
    client = genai.Client(api_key="no-key", http_options=types.HttpOptions(base_url=url))
    listed = list(client.models.list(config={"page_size": 2}))
    assert [model.name for model in listed] == [f"models/{name}" for name in expected]
    assert all("generateContent" in model.supported_actions for model in listed)
    for name in expected:
        assert client.models.get(model=f"models/{name}").name == f"models/{name}"
    try:
        client.models.get(model="models/nothing")
    except errors.ClientError as error:
        assert (error.code, error.status) == (404, "NOT_FOUND"), error
    else:
        raise AssertionError("an unknown model was returned")


def check_vertex():
    client = genai.Client(
        vertexai=True,
        project="p",
        location="us-central1",
        credentials=Credentials(token="no-key"),
        http_options=types.HttpOptions(base_url=url),
    )
    names = ["publishers/{}/models/{}".format(*name.split("/")) for name in expected]
    assert [model.name for model in client.models.list(config={"page_size": 3})] == names
    for name in expected:
        assert client.models.get(model=name).name == "publishers/{}/models/{}".format(*name.split("/"))


for check in (check_openai, check_anthropic, check_google, check_vertex):
    check()
    print(f"ok {check.__name__}")
