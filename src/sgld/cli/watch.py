"""`sgld watch`: a run that goes on, in the terminal or as a page on this machine alone."""

from __future__ import annotations

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

from ..errors import SGLDError, UsageError, plain
from .app import Run, command, typer

__all__ = ["Page", "watch"]

EVERY = 2.0  # seconds between looks
HOST = "127.0.0.1"
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    # the page has no scripts, and would run none; it asks nobody for anything
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@command("sgld watch run/ --page")
def watch(
    run: Run,
    page: Annotated[
        bool,
        typer.Option("--page", help="A live page on 127.0.0.1 instead, for this machine alone."),
    ] = False,
    port: Annotated[int, typer.Option("--port", help="Of the page; 0 takes a free one.")] = 0,
    once: Annotated[bool, typer.Option("--once", help="Say how it stands, and end.")] = False,
) -> None:
    """How a run stands while it goes on: draws, R-hat, ESS, time left; the verdict comes at its end.

    What is shown is what the last checkpoint holds (--checkpoint-every of the run).
    """
    from ..report.live import as_lines, read_live

    live = read_live(run)  # a wrong directory is answered before anything is served
    if not 0 <= port < 2**16:
        raise UsageError(f"--port must lie between 0 and {2**16 - 1}. Got {port}.")
    if page:
        _serve(run, port)
        return
    if once or not sys.stdout.isatty():
        typer.echo(as_lines(live))
        return
    from rich.live import Live as Shown
    from rich.text import Text

    with Shown(Text(as_lines(live)), auto_refresh=False) as shown:
        while not live.finished:
            time.sleep(EVERY)
            live = read_live(run)
            shown.update(Text(as_lines(live)), refresh=True)


def _serve(run: Path, port: int) -> None:
    """Serve the page until Ctrl-C."""
    with Page(run, port) as server:
        typer.echo(f"http://{HOST}:{server.server_port}/  (Ctrl-C ends it)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


class Page(ThreadingHTTPServer):
    """One page, made anew at every request, on the loopback address."""

    daemon_threads = True

    def __init__(self, run: Path, port: int) -> None:
        super().__init__((HOST, port), _Answer)
        self.run = run

    @property
    def names(self) -> tuple[str, ...]:
        """Under which it may be asked for: a page of elsewhere that has its name lead here may not."""
        return tuple(f"{host}:{self.server_port}" for host in (HOST, "localhost"))


class _Answer(BaseHTTPRequestHandler):
    server: Page
    server_version, sys_version = "sgld", ""

    def do_GET(self) -> None:
        """The page, and nothing else that is asked for."""
        from ..report.live import as_page, read_live

        # a page of another site may ask, though it may not read the answer: asking costs the run
        if (
            self.headers.get("Sec-Fetch-Site") == "cross-site"
            or self.headers.get("Host") not in self.server.names
        ):
            self.send_error(403, "only for this machine")
            return
        if self.path != "/":
            self.send_error(404)
            return
        try:
            live = read_live(self.server.run)
            content = as_page(live, self.server.run.resolve().name)
        except SGLDError as error:
            from html import escape

            content = f"<!doctype html><title>sgld</title><p>{escape(plain(str(error)))}</p>"
        self._send(content.encode())

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not written down."""
