"""What the scripts share: the tools that are offered, and how a script reports."""

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
    """Answers a call, and checks that its arguments fit the schema."""
    schema = SCHEMAS[name]
    for key in schema["required"]:
        assert isinstance(arguments[key], str), f"{name}: {key} is not a string in {arguments}"
    return json.dumps({"tool": name, "result": "sunny and noon"})


def refused(raises, attempt, *words):
    """The SDK must raise its own error, in the provider's words."""
    try:
        attempt()
    except raises as error:
        text = str(error)
        for word in words:
            assert word in text, f"expected {word!r} in: {text}"
        return error
    raise AssertionError(f"was accepted, but should have been refused with {words}")


def main(**checks):
    """Runs the checks against the simulator whose address is the script's argument."""
    url = sys.argv[1]
    for name, check in checks.items():
        check(url)
        print(f"ok {name}")
