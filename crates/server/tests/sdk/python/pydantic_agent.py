"""Agents of `pydantic-ai` through the gateway, in every dialect that it supports."""

import dataclasses

from common import AGAIN, QUESTION, main, run_tool
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider


def models(url, name):
    """The model in each dialect.

    The framework cannot derive from an unknown OpenAI name that the model reasons and where its
    thoughts are returned, so the settings state both.
    """
    openai = OpenAIProvider(base_url=f"{url}/v1", api_key="no-key")
    profile = OpenAIModelProfile(
        supports_thinking=True,
        openai_supports_reasoning=True,
        openai_supports_encrypted_reasoning_content=True,
        openai_chat_thinking_field="reasoning_content",
        openai_chat_send_back_thinking_parts="field",
    )
    return {
        "messages": AnthropicModel(name, provider=AnthropicProvider(base_url=url, api_key="no-key")),
        "responses": OpenAIResponsesModel(name, provider=openai, profile=profile),
        "chat": OpenAIChatModel(name, provider=openai, profile=profile),
        "gemini": GoogleModel(name, provider=GoogleProvider(base_url=url, api_key="no-key")),
    }


def stripped(messages):
    """The history without reasoning: no thoughts and no signed values."""
    kept = []
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = [p for p in message.parts if not isinstance(p, ThinkingPart)]
            parts = [dataclasses.replace(p, provider_details=None) for p in parts]
            message = dataclasses.replace(message, parts=parts)
        kept.append(message)
    return kept


def get_weather(city: str) -> str:
    """The weather in a city."""
    return run_tool("get_weather", {"city": city})


def get_time(zone: str) -> str:
    """The time in a zone."""
    return run_tool("get_time", {"zone": zone})


def ask(agent, question, history, stream):
    if not stream:
        return agent.run_sync(question, message_history=history).all_messages()
    result = agent.run_stream_sync(question, message_history=history)
    assert "".join(result.stream_text(delta=True))
    return result.all_messages()


def hold(models, stream, lossy):
    answers = 0
    for dialect, model in models.items():
        capabilities = [ProcessHistory(stripped)] if lossy else []
        settings = {"thinking": "medium", "max_tokens": 16384}
        agent = Agent(model, tools=[get_weather, get_time], model_settings=settings, capabilities=capabilities)
        try:
            history = ask(agent, QUESTION, None, stream)
            history = ask(agent, AGAIN, history, stream)
        except Exception as error:
            raise RuntimeError(f"{dialect}: {type(error).__name__}: {error}") from error
        said = [m for m in history if isinstance(m, ModelResponse)]
        called = {p.tool_name for m in said for p in m.parts if isinstance(p, ToolCallPart)}
        assert called == {"get_weather", "get_time"}, (dialect, called)
        answers += len(said)
    return answers


main(models, hold)
