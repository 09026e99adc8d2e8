"""Runs the turns of the bench on LangGraph's prebuilt agent, with SQLite checkpoints.

Prints the CPU and wall time of a late turn in microseconds, without the model's time, and the
bytes that are stored after the turns that were played.
"""

import os
import sqlite3
import statistics
import sys
import time
import warnings

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

warnings.simplefilter("ignore")
from langgraph.prebuilt import create_react_agent  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+"
away = 0.0


def text(seed, length):
    """Returns text that does not repeat; the Rust bench generates the same."""
    state, letters = (seed * 0x9E3779B97F4A7C15 + 1) % 2**64, []
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        letters.append(LETTERS[(state >> 33) % len(LETTERS)])
    return "".join(letters)


@tool
def look(at: int) -> str:
    """Looks at a place."""
    global away
    began = time.perf_counter()
    found = text(at * 3 + 1, 600)
    away += time.perf_counter() - began
    return found


class Scripted(BaseChatModel):
    """Calls the tool, and answers after its result."""

    turn: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        global away
        began = time.perf_counter()
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage(text(self.turn * 3 + 2, 400))
        else:
            call = {"name": "look", "args": {"at": self.turn}, "id": f"call_{self.turn}"}
            said = AIMessage("", tool_calls=[call])
        said.usage_metadata = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        away += time.perf_counter() - began
        return ChatResult(generations=[ChatGeneration(message=said)])


def past(turn):
    """Returns the messages of a turn that is inserted into the state without being played."""
    call = {"name": "look", "args": {"at": turn}, "id": f"call_{turn}"}
    return [
        HumanMessage(text(turn * 3, 120), id=f"h{turn}"),
        AIMessage("", tool_calls=[call], id=f"c{turn}"),
        ToolMessage(text(turn * 3 + 1, 600), tool_call_id=f"call_{turn}", id=f"t{turn}"),
        AIMessage(text(turn * 3 + 2, 400), id=f"a{turn}"),
    ]


def main():
    global away
    place, played, turns, window = sys.argv[1], *map(int, sys.argv[2:])
    model = Scripted()
    saver = SqliteSaver(sqlite3.connect(place, check_same_thread=False))
    agent = create_react_agent(model, [look], checkpointer=saver, prompt="You look at places.")
    config = {"configurable": {"thread_id": "thread"}}

    def turn():
        global away
        model.turn += 1
        said = text(model.turn * 3, 120)
        away, began = 0.0, time.perf_counter()
        agent.invoke({"messages": [("user", said)]}, config)
        return time.perf_counter() - began - away

    for _ in range(played):
        turn()
    stored = sum(os.path.getsize(file) for file in (place, place + "-wal") if os.path.exists(file))
    # Each step stores the whole state again, so playing all turns would take hours and gigabytes.
    # The remaining turns are inserted with one update.
    rest = [message for number in range(played + 1, turns + 1) for message in past(number)]
    agent.update_state(config, {"messages": rest}, as_node="agent")
    model.turn = turns
    began = time.process_time()
    walls = [turn() for _ in range(window)]
    cpu = (time.process_time() - began) / window
    print(cpu * 1e6, statistics.median(walls) * 1e6, stored)


if __name__ == "__main__":
    main()
