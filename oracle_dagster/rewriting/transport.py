"""One question to a model: Ollama's ``/api/chat``, without streaming.

Everything that can go wrong is one of a few kinds, and no message holds a prompt, an answer or an address
with a password. Repeating, budget and trust are not decided here.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from oracle_dagster.storage.database import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST_VARIABLE: Final = "OLLAMA_HOST"
DEFAULT_PORT: Final = 11434
ANSWER_BYTES: Final = 256 * 1024
_HOST: Final = re.compile(r"[\w.:-]+")
_OK: Final = 200
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERRORS: Final = 500


class HostError(StorageError):
    """The address of the model server cannot be read."""


class CallError(Exception):
    """A call that gave no answer.

    ``kind`` says how, for the log; ``transient`` whether another attempt may help.
    """

    def __init__(self, kind: str, *, transient: bool = False) -> None:
        """Keep the kind."""
        super().__init__(kind)
        self.kind = kind
        self.transient = transient


def server_url(text: str) -> httpx.URL:
    """The address of the server as Ollama's own client reads it from ``OLLAMA_HOST``.

    >>> [str(server_url(text)) for text in ("", "example.org", "0.0.0.0:1234", "https://example.org/models/")]
    ['http://127.0.0.1:11434', 'http://example.org:11434', 'http://127.0.0.1:1234', 'https://example.org/models']

    Raises:
        HostError: not an address. The message does not show it: it may hold a password.

    """
    stripped = text.strip().strip("\"'").rstrip("/")
    given = "://" in stripped
    try:
        parts = urlsplit(stripped if given else f"http://{stripped}")
        url = httpx.URL(parts.geturl())
        port = parts.port
    except (ValueError, httpx.InvalidURL):
        url, parts, port = httpx.URL(""), urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(parts.hostname or "localhost"):
        raise HostError(
            f"{HOST_VARIABLE} is not an address; write it like 127.0.0.1:11434 or https://models.example.org"
        )
    if port is None and not given:
        port = DEFAULT_PORT
    # What a server listens on is no address to call.
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(url.host, url.host)  # noqa: S104
    return url.copy_with(host=host, port=port)


class ModelServer:
    """A server that speaks Ollama's API; connections are kept and may be used from several threads."""

    def __init__(self, address: str, *, connections: int, answer_bytes: int = ANSWER_BYTES) -> None:
        """Remember the address; nothing is sent.

        Args:
            address: as in ``OLLAMA_HOST``; may hold a user and a password.
            connections: open at once at most.
            answer_bytes: an answer longer than this is given up.

        Raises:
            HostError: not an address.

        """
        url = server_url(address)
        self._answer_bytes = answer_bytes
        self._client = httpx.Client(
            base_url=url.copy_with(userinfo=b""),
            auth=(url.username, url.password) if url.username != "" else None,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,  # the prompt goes where the operator said and nowhere else
            trust_env=False,  # nor through a proxy meant for other traffic
            headers={"Accept-Encoding": "identity"},  # nothing small may unpack to something large
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def chat(self, model: str, system: str, user: str, *, timeout_s: float, answer_tokens: int) -> str:
        """Ask once.

        Args:
            model: name of the model.
            system: what it is told to do.
            user: what it is given.
            timeout_s: until the whole answer must have come.
            answer_tokens: the most it may write.

        Returns:
            Its answer, of any content; may be empty.

        Raises:
            CallError: there was none.

        """
        request = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "stream": False,
            "think": False,
            "options": {"temperature": 0, "num_predict": answer_tokens},
        }
        deadline = time.monotonic() + timeout_s
        try:
            with self._client.stream("POST", "/api/chat", json=request, timeout=timeout_s) as response:
                _require_ok(response)
                body = b"".join(self._pieces(response, deadline))
        except httpx.TimeoutException:
            raise CallError("timeout", transient=True) from None
        except httpx.ConnectError:
            raise CallError("connection_refused", transient=True) from None
        except httpx.TransportError:
            raise CallError("connection_cut", transient=True) from None
        except httpx.HTTPError:
            raise CallError("bad_response") from None
        return _content(body)

    def _pieces(self, response: httpx.Response, deadline: float) -> Iterator[bytes]:
        size = 0
        for piece in response.iter_raw():
            size += len(piece)
            if size > self._answer_bytes:
                raise CallError("too_large")
            if time.monotonic() > deadline:
                raise CallError("timeout", transient=True)
            yield piece


def _require_ok(response: httpx.Response) -> None:
    status = response.status_code
    if response.has_redirect_location or response.is_redirect:
        raise CallError("redirect")
    if status != _OK:
        transient = status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS
        raise CallError(f"http_{status}", transient=transient)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise CallError("bad_response")


def _content(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise CallError("bad_json") from None
    message = answer.get("message") if isinstance(answer, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise CallError("bad_json")
    if answer.get("done") is False or answer.get("done_reason") == "length":
        raise CallError("cut_short")
    return content
