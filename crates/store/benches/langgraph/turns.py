"""Runs the turns of the bench on LangGraph's checkpointers: each turn invokes a graph that returns 4 KB."""

import os
import random
import statistics
import string
import sys
import time
from operator import add
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

TURN = 4096
TURNS = 400
LETTERS = string.ascii_letters + string.digits + " +"


class State(TypedDict):
    messages: Annotated[list[str], add]


def answer(_state):
    return {"messages": ["".join(random.choices(LETTERS, k=TURN))]}


def graph(saver):
    built = StateGraph(State)
    built.add_node("answer", answer)
    built.add_edge(START, "answer")
    built.add_edge("answer", END)
    return built.compile(checkpointer=saver)


def run(name, saver, size):
    """Prints a table row at a quarter of the turns and at the end, to show the growth."""
    compiled = graph(saver)
    config = {"configurable": {"thread_id": "thread"}}
    appends, before, early_open = [], size(), None
    for turn in range(1, TURNS + 1):
        start = time.perf_counter()
        compiled.invoke({"messages": ["go on"]}, config)
        appends.append(time.perf_counter() - start)
        if turn == 100:
            early_open = opening(compiled, config)
        if turn in (TURNS // 4, TURNS):
            raw = turn * TURN
            late = statistics.median(appends[-50:])
            early = statistics.median(appends[50:150] if turn > 150 else appends[50:])
            opened = opening(compiled, config) / early_open
            print(
                f"{name:<26} {turn:>7} {raw / 1e6:>10.1f} {(size() - before) / raw:>12.2f}"
                f" {late / early:>12.2f} {opened:>14.2f}",
                flush=True,
            )


def opening(compiled, config):
    times = []
    for _ in range(15):
        start = time.perf_counter()
        compiled.get_state(config)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    kind, place = sys.argv[1:]
    random.seed(7)
    if kind == "sqlite":
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(place, check_same_thread=False)
        files = (place, place + "-wal")
        run(
            "LangGraph, SQLite",
            SqliteSaver(connection),
            lambda: sum(os.path.getsize(file) for file in files if os.path.exists(file)),
        )
    else:
        import psycopg

        from langgraph.checkpoint.postgres import PostgresSaver

        name = f"langgraph_{os.getpid()}"
        with psycopg.connect(place, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}")
        head, _, query = place.partition("?")
        url = head.rsplit("/", 1)[0] + "/" + name + ("?" + query if query else "")
        with psycopg.connect(url, autocommit=True) as asking, PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            run(
                "LangGraph, PostgreSQL",
                saver,
                lambda: asking.execute("SELECT pg_database_size(current_database())").fetchone()[0],
            )
        with psycopg.connect(place, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


if __name__ == "__main__":
    main()
