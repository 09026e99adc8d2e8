"""Shared by the scripts: the tools, the conversation, and the report."""

import json
import sys

QUESTION = "What is the weather in Paris, and what time is it there?"
AGAIN = "Thank you. And once more, please."

SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "get_time": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
}
DESCRIPTIONS = {"get_weather": "The weather in a city.", "get_time": "The time in a zone."}


def run_tool(name, arguments):
    """Run a tool call and check its arguments against the schema."""
    for key in SCHEMAS[name]["required"]:
        assert isinstance(arguments[key], str), f"{name}: {key} is not a string in {arguments}"
    return json.dumps({"tool": name, "result": "sunny and noon"})


def converse(client, stream, lossy):
    """Two questions with tool loops. A lossy client sends no reasoning back. Return the number of answers."""
    history, called, thoughts, finals, answers = [client.user(QUESTION)], set(), 0, 0, 0
    while finals < 2:
        said = client.ask(history, stream)
        answers += 1
        assert answers < 12, "the conversation does not end"
        calls = client.calls(said)
        called |= {name for _, name, _ in calls}
        thoughts += client.thoughts(said)
        history += client.stripped(said) if lossy else said
        if calls:
            history += client.results([(key, name, run_tool(name, arguments)) for key, name, arguments in calls])
            continue
        assert client.text(said), said
        finals += 1
        history.append(client.user(AGAIN))
    assert called == set(SCHEMAS), called
    assert thoughts >= client.least_thoughts(), thoughts
    return answers


def tell(client, stream):
    """Send one request and print the parsed response."""
    client.ask([client.user(QUESTION)], stream)
    print(json.dumps(client.whole, default=lambda said: said.model_dump(mode="json"), sort_keys=True))


def main(connect, hold=converse):
    """Arguments: the gateway's address, `honest`, `lossy` or `tell`, and the models.

    Run a whole and a streamed conversation per model.
    """
    url, keeping, *models = sys.argv[1:]
    if keeping == "tell":
        for model in models:
            tell(connect(url, model), False)
            tell(connect(url, model), True)
        return
    for model in models:
        for stream in (False, True):
            how = "streamed" if stream else "whole"
            try:
                answers = hold(connect(url, model), stream, keeping == "lossy")
            except Exception as error:
                raise SystemExit(f"{model} {keeping} {how}: {type(error).__name__}: {error}") from error
            print(f"ok {model} {keeping} {how}: {answers} answers")
