"""A small MCP server in the standard library, over standard streams or streamable HTTP.

Its tools cover the cases of the tests: every kind of result, progress, delays, refusals and exits.
"""

import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 5
# Whether the server accepts only the protocol of 2026-07-28.
MODERN = "modern" in sys.argv
released = threading.Event()
cancelled = queue.Queue()
secret = os.environ.get("API_KEY", "")


def tool(name, properties=None, **annotations):
    schema = {"type": "object", "properties": properties or {}, "required": list(properties or {})}
    told = {"name": name, "description": f"Does {name}.", "inputSchema": schema}
    if annotations:
        told["annotations"] = annotations
    return told


TOOLS = [
    tool("echo", {"text": {"type": "string"}}, readOnlyHint=True),
    tool("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}, idempotentHint=True, destructiveHint=False),
    tool("picture"),
    tool("fail"),
    tool("refuse"),
    tool("wait"),
    tool("release"),
    tool("die", destructiveHint=True),
    tool("die_reading", readOnlyHint=True),
    tool("huge", {"bytes": {"type": "integer"}}),
    tool("stall"),
    tool("cancelled"),
    tool("environment"),
    tool("process"),
    {"name": "odd name/of.a tool", "inputSchema": {}},
]


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(name, arguments, progress):
    """Returns the result of a call, or None."""
    if name == "echo":
        return text(arguments["text"])
    if name == "add":
        value = {"sum": arguments["a"] + arguments["b"]}
        return text(json.dumps(value), structuredContent=value)
    if name == "picture":
        return {
            "content": [
                {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///notes.txt", "name": "notes", "mimeType": "text/plain"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "embedded words"}},
            ],
            "structuredContent": {"pictures": 1},
        }
    if name == "fail":
        return text(f"the key {secret} is not good", isError=True)
    if name == "wait":
        progress(1, 2, "half way")
        released.wait()
        return text("released")
    if name == "release":
        released.set()
        return text("done")
    if name in ("die", "die_reading"):
        sys.stderr.write(f"fatal: out of cheese, with {secret}\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "huge":
        return text("é" * (arguments["bytes"] // 2))
    if name == "stall":
        progress(1, None, None)
        return None
    if name == "cancelled":
        return text(cancelled.get())
    if name == "environment":
        return text(" ".join(sorted(os.environ)))
    if name == "process":
        return text(str(os.getpid()))
    return text("odd indeed")


def answer(request, send):
    """Answers one request."""
    number, params = request["id"], request.get("params", {})
    kind = {"resultType": "complete"} if MODERN else {}
    reply = lambda result: send({"jsonrpc": "2.0", "id": number, "result": {**kind, **result}})
    method = request["method"]
    if method == "initialize" and MODERN:
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "initialize is not supported"}})
    elif method == "server/discover" and MODERN:
        found = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        reply({**found, "ttlMs": 0, "cacheScope": "private"})
    elif method == "initialize":
        info = {"name": "outside", "version": "1"}
        version = params["protocolVersion"]
        reply({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        start = int(params.get("cursor", "0"))
        page = {"tools": TOOLS[start : start + PAGE]}
        if start + PAGE < len(TOOLS):
            page["nextCursor"] = str(start + PAGE)
        reply(page)
    elif method == "tools/call" and params["name"] != "refuse":
        token = params.get("_meta", {}).get("progressToken")

        def progress(done, total, message):
            told = {"progressToken": token, "progress": done, "total": total, "message": message}
            told = {key: value for key, value in told.items() if value is not None}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})

        result = call(params["name"], params.get("arguments", {}), progress)
        if result is not None:
            reply(result)
    else:
        error = {"code": -32601, "message": f"not with {secret}" if secret else "not here"}
        send({"jsonrpc": "2.0", "id": number, "error": error})


def hear(message):
    """Handles a notification."""
    if message["method"] == "notifications/cancelled":
        cancelled.put(message["params"]["reason"])


def over_streams():
    lock = threading.Lock()

    def send(message):
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    sys.stderr.write("ready, and talkative\n" * 5000)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=answer, args=(message, send), daemon=True).start()
        elif "method" in message:
            hear(message)


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()

    def log_message(self, *_):
        pass

    def plain(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if secret and self.headers.get("authorization") != f"Bearer {secret}":
            return self.plain(401)
        starts = message.get("method") == "initialize"
        if not starts and self.headers.get("mcp-session-id") not in self.sessions:
            return self.plain(404)
        if "id" not in message or "method" not in message:
            hear(message)
            return self.plain(202)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        if starts:
            session = f"{os.getpid()}-{len(self.sessions)}"
            self.sessions.add(session)
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.close_connection = True
        stalls = message.get("params", {}).get("name") == "stall"

        def send(told):
            self.wfile.write(f"event: message\ndata: {json.dumps(told)}\n\n".encode())
            self.wfile.flush()

        answer(message, send)
        if stalls:
            threading.Event().wait()


def over_http(port):
    server = ThreadingHTTPServer(("127.0.0.1", port), Door)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        over_streams()
    else:
        over_http(int(sys.argv[2]))
