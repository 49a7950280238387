"""The page of a run that is going on, served to this machine alone.

The browser asks every two seconds whether there is anything newer than what it shows. Reading a large run takes a
while, so after each reading there is a rest of several times its length.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from adafed.errors import AdafedError
from adafed.page.body import facts_line, sections
from adafed.page.html import content, page
from adafed.page.model import Report

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")  # a page of another site that has pointed its name here asks by that name
REST = 5.0  # times the reading itself, between two readings


class Watched:
    """The newest report, and a word that changes with it."""

    def __init__(self, make: Callable[[], Report]) -> None:
        self._make = make
        self._lock = Lock()
        self._known: tuple[Report, str] | None = None
        self._next = 0.0

    def newest(self) -> tuple[Report, str]:
        with self._lock:
            if self._known is None or time.monotonic() >= self._next:
                began = time.monotonic()
                self._known = self._read()
                self._next = time.monotonic() + REST * (time.monotonic() - began)
            return self._known

    def _read(self) -> tuple[Report, str]:
        try:
            found = self._make()
        except AdafedError:
            if self._known is None:
                raise
            return self._known  # a file in the middle of being written: what is known stays
        return found, "-".join(f"{run.done}.{len(run.at)}" for run in found.runs)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, watched: Watched, port: int) -> None:
        self.watched = watched
        try:
            super().__init__((HERE, port), _Handler)
        except OSError as error:
            raise AdafedError(f"--port {port} cannot be used: {error.strerror}; leave it out for a free one") from None

    def handle_error(self, *_: object) -> None:
        """A browser that has gone away in the middle of an answer is nothing to tell of."""

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        if host not in NAMES:
            self._answer(403, "text/plain", b"this page is for this machine alone")
            return
        asked = urlsplit(self.path)
        try:
            if asked.path == "/":
                self._answer(200, "text/html", page(*self.server.watched.newest()).encode("utf-8", "replace"))
            elif asked.path == "/live":
                self._newer(parse_qs(asked.query).get("seen", [""])[0])
            else:
                self._answer(404, "text/plain", b"there is one page: /")
        except AdafedError as error:
            self._answer(503, "text/plain", str(error).encode("utf-8", "replace"))

    def _newer(self, seen: str) -> None:
        report, now = self.server.watched.newest()
        if seen == now:
            self._answer(204, "text/plain", b"")
            return
        told: dict[str, Any] = {
            "main": "\n".join(sections(report).values()),
            "facts": facts_line(report),
            "data": content(report, now),
        }
        self._answer(200, "application/json", json.dumps(told, allow_nan=False).encode())

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """A line for every question would bury the address."""


@contextmanager
def serving(make: Callable[[], Report], port: int = 0) -> Iterator[Server]:
    watched = Watched(make)
    watched.newest()  # what is wrong with the paths is told before anything is served
    server = Server(watched, port)
    try:
        yield server
    finally:
        server.server_close()
