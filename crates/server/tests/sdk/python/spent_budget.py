"""The official clients with their default retries, and a key whose budget is used up.

Arguments: the gateway's address, an ignored word, and the name of a client.
"""

import sys

import anthropic
import boto3
import openai
from google import genai
from google.genai import types

MODEL = "claude-sonnet-4-5"


def openai_chat(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="tl_key")
    client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])


def openai_responses(url):
    openai.OpenAI(base_url=f"{url}/v1", api_key="tl_key").responses.create(model=MODEL, input="Hello")


def anthropic_messages(url):
    client = anthropic.Anthropic(base_url=url, api_key="tl_key")
    client.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello"}])


def google_gemini(url):
    client = genai.Client(api_key="tl_key", http_options=types.HttpOptions(base_url=url))
    client.models.generate_content(model=MODEL, contents="Hello")


def boto3_converse(url):
    secret = dict(aws_access_key_id="no-key", aws_secret_access_key="no-key")
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=url, **secret)

    def authorize(request, **_):
        # The client sends a bearer token only to HTTPS endpoints.
        del request.headers["Authorization"]
        request.headers["Authorization"] = "Bearer tl_key"

    client.meta.events.register("before-send.bedrock-runtime.*", authorize)
    client.converse(modelId=MODEL, messages=[{"role": "user", "content": [{"text": "Hello"}]}])


url, _, name = sys.argv[1:]
try:
    globals()[name](url)
except Exception as error:  # Each client has its own type.
    assert "budget" in str(error), error
    print(f"ok {type(error).__name__}")
