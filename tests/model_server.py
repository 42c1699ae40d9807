"""A model server for tests: real HTTP on loopback, Ollama's ``/api/chat``, and every fault it can have."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler", dict[str, Any]], None]


@dataclass
class ModelServer:
    """What a server saw and does; ``behaviours`` are used up one per call, then ``behaviour``."""

    behaviour: Behaviour
    behaviours: list[Behaviour] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    port: int = 0
    working: int = 0
    most_working: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)
    _stop: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        """As in ``OLLAMA_HOST``."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Stop listening and cut every open connection."""
        self._stop()


class Handler(BaseHTTPRequestHandler):
    """One connection; keeps it open between requests, as Ollama does."""

    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Count where a redirect led to."""
        self.model.paths.append(self.path)
        self.reply(200, b"{}")

    def do_POST(self) -> None:
        """Answer as the next behaviour says."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.model
        with model.mutex:
            model.paths.append(self.path)
            model.requests.append(body)
            model.headers.append(dict(self.headers))
            model.connections.add(self.client_address)
            model.working += 1
            model.most_working = max(model.most_working, model.working)
            behave = model.behaviours.pop(0) if model.behaviours else model.behaviour
        try:
            with contextlib.suppress(OSError):
                behave(self, body)
        finally:
            with model.mutex:
                model.working -= 1

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """A whole response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        """End the connection in the middle of whatever was said."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def data_of(body: dict[str, Any]) -> dict[str, Any]:
    """The facts in a prompt, read as a model would read them."""
    text = body["messages"][-1]["content"]
    found: dict[str, Any] = json.loads(re.search(r"<data>\n(.*)\n</data>", text, re.DOTALL)[1])  # type: ignore[index]
    return found


def says(answer: str | Callable[[dict[str, Any]], str], **more: object) -> Behaviour:
    """Answer with a text, or with one made of the facts in the prompt."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        text = answer if isinstance(answer, str) else answer(data_of(body))
        message = {"role": "assistant", "content": text}
        reply = {"model": body["model"], "message": message, "done": True, "done_reason": "stop", **more}
        handler.reply(200, json.dumps(reply).encode(), Content_Type="application/json")

    return behave


def polishes(facts: dict[str, Any]) -> str:
    """An honest rewording."""
    return str(facts["thesis"]).replace(" shows a ", " exhibits a ")


def status(code: int, **headers: str) -> Behaviour:
    """Answer with a status only."""
    return lambda handler, _: handler.reply(code, b"", **headers)


def raw(body: bytes, **headers: str) -> Behaviour:
    """Answer with these bytes."""
    return lambda handler, _: handler.reply(200, body, **headers)


def cuts(handler: Handler, _: dict[str, Any]) -> None:
    """Promise more than is sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"message"')
    handler.wfile.flush()
    handler.cut()


def drips(handler: Handler, _: dict[str, Any]) -> None:
    """Send a byte now and then, for ever: no single wait is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def is_silent(release: threading.Event) -> Behaviour:
    """Say nothing until the test is over."""
    return lambda _handler, _body: release.wait(60) and None


@contextlib.contextmanager
def serving(behaviour: Behaviour, *behaviours: Behaviour) -> Iterator[ModelServer]:
    """Run a server on a free port of loopback."""
    model = ModelServer(behaviour, list(behaviours))
    handler = type("BoundHandler", (Handler,), {"model": model})

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def __init__(self) -> None:
            self.open: list[socket.socket] = []
            super().__init__(("127.0.0.1", 0), handler)

        def get_request(self) -> tuple[socket.socket, Any]:
            connection, address = super().get_request()
            self.open.append(connection)
            return connection, address

    server = Server()
    model.port = server.server_address[1]
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    stopped = threading.Event()

    def stop() -> None:
        if stopped.is_set():
            return
        stopped.set()
        # From another thread, as a behaviour may be what kills the server.
        server.shutdown()
        server.server_close()
        for connection in server.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    model._stop = stop
    try:
        yield model
    finally:
        stop()
        thread.join()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
