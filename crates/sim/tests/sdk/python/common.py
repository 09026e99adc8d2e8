"""Shared by the scripts: the offered tools, and the reporting of checks."""

import json
import sys

QUESTION = "What is the weather in Paris, and what time is it there?"

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
    "get_time": {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    },
}
DESCRIPTIONS = {"get_weather": "The weather in a city.", "get_time": "The time in a zone."}


def run_tool(name, arguments):
    """Check the arguments of a call against the schema and return a result."""
    schema = SCHEMAS[name]
    for key in schema["required"]:
        assert isinstance(arguments[key], str), f"{name}: {key} is not a string in {arguments}"
    return json.dumps({"tool": name, "result": "sunny and noon"})


def refused(raises, attempt, *words):
    """Assert that the SDK raises its own error with the provider's message."""
    try:
        attempt()
    except raises as error:
        text = str(error)
        for word in words:
            assert word in text, f"expected {word!r} in: {text}"
        return error
    raise AssertionError(f"was accepted, but should have been refused with {words}")


def main(**checks):
    """Run the checks against the simulator at the URL in the script's argument."""
    url = sys.argv[1]
    for name, check in checks.items():
        check(url)
        print(f"ok {name}")
