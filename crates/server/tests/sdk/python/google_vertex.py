"""The official `google-genai` client in its Vertex mode, through the gateway."""

import google_gemini
from common import main
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials


class Client(google_gemini.Client):
    def __init__(self, url, model):
        self.client = genai.Client(
            vertexai=True,
            project="p",
            location="us-central1",
            credentials=Credentials(token="no-key"),
            http_options=types.HttpOptions(base_url=url),
        )
        self.model = model


main(Client)
