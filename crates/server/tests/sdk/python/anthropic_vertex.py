"""The official `anthropic` client for Vertex AI, through the gateway."""

import anthropic
import anthropic_messages
from common import main


class Client(anthropic_messages.Client):
    def __init__(self, url, model):
        self.client = anthropic.AnthropicVertex(
            base_url=f"{url}/v1", access_token="no-key", project_id="p", region="us-east5", max_retries=0
        )
        self.model = model


main(Client)
