"""Command `sgld watch`: show a running run in the terminal, or as a page for this machine only."""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ...errors import SGLDError, UsageError, first_line
from .app import Run, command, typer

READ_SECONDS = 2.0  # seconds between reads of the run
MAX_CORE_SHARE = 0.1  # share of a core that pages may use
HOST = "127.0.0.1"
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    # the page has no scripts, runs none, and requests nothing from elsewhere
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@command("sgld watch run/ --page")
def watch(
    run: Run,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Serve a live page on 127.0.0.1 instead: every user of this machine can open it, but no other machine.",
        ),
    ] = False,
    port: Annotated[int, typer.Option("--port", help="Port of the page; 0: a free one.")] = 0,
    once: Annotated[bool, typer.Option("--once", help="Print progress and exit.")] = False,
) -> None:
    """Show the progress of a run: draws, R-hat, ESS, time left; the verdict comes at its end.

    The values are those of the last checkpoint (--checkpoint-every of the run).
    """
    from ..report.live import Reader, as_lines

    reader = Reader(run)
    live = reader.read()  # raises for a wrong directory before anything is served
    if not 0 <= port < 2**16:
        raise UsageError(f"--port must lie between 0 and {2**16 - 1}. Got {port}.")
    if page:
        _serve(run, port)
        return
    if once or not sys.stdout.isatty():
        typer.echo(as_lines(live))
        return
    from rich.live import Live as Display
    from rich.text import Text

    with Display(Text(as_lines(live)), auto_refresh=False) as display:
        while live.state == "running":
            began = time.process_time()
            live = reader.read()
            display.update(Text(as_lines(live)), refresh=True)
            time.sleep(_rest(time.process_time() - began, READ_SECONDS))


def _rest(spent: float, least: float) -> float:
    """Return the seconds to wait so that computing takes at most MAX_CORE_SHARE of a core."""
    return max(least, spent * (1 - MAX_CORE_SHARE) / MAX_CORE_SHARE)


def _serve(run: Path, port: int) -> None:
    """Serve the page until Ctrl-C."""
    with Page(run, port) as server:
        typer.echo(f"http://{HOST}:{server.server_port}/  (press Ctrl-C to stop)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


class Answer(NamedTuple):
    """HTTP answer: the status and the page."""

    status: int
    content: bytes


class Shown:
    """Page that one thread at a time computes for all requests, within MAX_CORE_SHARE of a core."""

    def __init__(self, run: Path) -> None:
        from ..report.live import Reader

        self.run, self._reader = run, Reader(run)
        self._busy = threading.Lock()
        self._answer: Answer | None = None
        self._until = -1.0  # time.monotonic() until which the answer is valid

    def answer(self) -> Answer:
        """Return the last page, or a new one if it is old and no thread is computing one."""
        last = self._answer
        if last is not None and (time.monotonic() < self._until or self._busy.locked()):
            return last
        with self._busy:  # the first thread computes; threads that waited use its result
            if self._answer is None or time.monotonic() >= self._until:
                began = time.process_time()
                self._answer = self._made()
                self._until = time.monotonic() + _rest(time.process_time() - began, READ_SECONDS)
            return self._answer

    def _made(self) -> Answer:
        from ..report.live import as_error_page, as_page

        name = self.run.resolve().name
        try:
            return Answer(200, as_page(self._reader.read(), name).encode())
        except SGLDError as error:
            return Answer(500, as_error_page(str(error), name).encode())
        except Exception as error:  # the next page may succeed after any error
            said = f"the run could not be read: {type(error).__name__}: {first_line(error)}"
            return Answer(500, as_error_page(said, name).encode())


class Page(ThreadingHTTPServer):
    """Server of one page on the loopback address."""

    daemon_threads = True

    def __init__(self, run: Path, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.shown = Shown(run)

    @property
    def names(self) -> tuple[str, ...]:
        """Host names that requests may use.

        A foreign name that resolves to this machine is refused, so that no page of another site
        reads the run.
        """
        hosts = (HOST, "localhost")
        whole = tuple(f"{host}:{self.server_port}" for host in hosts)
        return whole + (hosts if self.server_port == 80 else ())  # browsers leave out port 80

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection that the client closed early."""


class _Handler(BaseHTTPRequestHandler):
    server: Page
    server_version, sys_version = "sgld", ""

    def do_GET(self) -> None:
        """Send the page; refuse any other path."""
        # a page of another site could send requests without reading the answer, which slows the run
        elsewhere = self.headers.get("Sec-Fetch-Site") == "cross-site"
        if elsewhere or self.headers.get("Host") not in self.server.names:
            self.send_error(403, "only for this machine")
            return
        if self.path != "/":
            self.send_error(404)
            return
        answer = self.server.shown.answer()
        self.send_response(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log of requests."""
