"""A local server for the page, which is rebuilt while runs are going on."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bootdqn.errors import UserError, require
from bootdqn.report.page import Report

_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
_REST = 9
"""The next page is built only after this many times the last build time, to leave the machine to training."""


class _Pages:
    """The latest page with its version, rebuilt on request when files have changed."""

    def __init__(self, report: Report):
        self._report = report
        self._lock = threading.Lock()
        self._next = 0.0
        version = report.version()
        self._made = version, report.page(live=version)

    def version(self) -> str:
        """The version that the page would have now, or that of the last page while it is too early for another."""
        try:
            return self._made[0] if time.monotonic() < self._next else self._report.version()
        except (UserError, OSError):  # the runs have been removed; keep the last page
            return self._made[0]

    def page(self) -> str:
        """The page of the current `version`."""
        with self._lock:
            version, start = self.version(), time.monotonic()
            if version != self._made[0]:
                page = self._made[1]  # kept if the runs have been removed in the meantime
                with suppress(UserError, OSError):
                    page = self._report.page(live=version)
                self._made = version, page
                self._next = time.monotonic() + _REST * (time.monotonic() - start)
            return self._made[1]


def make_server(report: Report, port: int) -> ThreadingHTTPServer:
    """A server, for this machine only, of the page at `/` and its version at `/version`; port 0 is any free."""
    require(0 <= port < 2**16, f"a port is a number from 0 to {2**16 - 1}, got {port}")
    pages = _Pages(report)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A foreign site may resolve its name to this address (DNS rebinding); it must not read the page.
            if not _LOOPBACK.fullmatch(self.headers.get("Host", "")):
                self._answer(403, "text/plain", "this page is for this machine only")
            elif self.path == "/":
                self._answer(200, "text/html", pages.page())
            elif self.path == "/version":
                self._answer(200, "text/plain", pages.version())
            else:
                self._answer(404, "text/plain", "there is only /")

        def _answer(self, status: int, kind: str, content: str) -> None:
            body = content.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            with suppress(ConnectionError):  # the client has disconnected
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log single requests."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UserError(f"cannot serve at port {port}: {error.strerror}; choose another --port") from None


def serve(report: Report, port: int) -> None:
    """Serve the page until Ctrl-C."""
    with make_server(report, port) as server:
        print(
            f"report: http://127.0.0.1:{server.server_address[1]}/ follows the files; Ctrl-C ends it", flush=True
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
