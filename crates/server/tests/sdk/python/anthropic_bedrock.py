"""The official `anthropic` client for Amazon Bedrock, through the gateway."""

import anthropic
import anthropic_messages
from common import main


class Client(anthropic_messages.Client):
    def __init__(self, url, model):
        self.client = anthropic.AnthropicBedrock(
            base_url=url, api_key="no-key", aws_region="us-east-1", max_retries=0
        )
        self.model = model


main(Client)
