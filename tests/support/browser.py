"""A real browser, Chromium without a window: a script in a page reports what it sees of pages of a folder."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Debian's package has the first name.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Seconds for all that a script does, on a busy machine.
DEADLINE = 240.0
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def report_of(folder: Path, script: str) -> Any:
    """Open a page with ``script`` beside those of ``folder``. Returns the JSON that it sends to /report."""
    with _served(folder, script) as (address, reports), _running(f"{address}/script.html", ()):
        return reports.get(timeout=DEADLINE)


def screenshot(folder: Path, page: str, width: int, height: int, to: Path) -> None:
    """A picture of ``page`` as PNG."""
    with _served(folder, "") as (address, _), tempfile.TemporaryDirectory() as profile:
        options = (f"--window-size={width},{height}", f"--screenshot={to}", f"--user-data-dir={profile}")
        assert CHROMIUM is not None
        subprocess.run(
            [CHROMIUM, *FLAGS, *options, f"{address}/{page}"],
            check=True,
            capture_output=True,
            timeout=DEADLINE,
        )


@contextlib.contextmanager
def _served(folder: Path, script: str) -> Iterator[tuple[str, queue.SimpleQueue[Any]]]:
    """The address of a server with the files of ``folder`` and the script, and what is reported to it."""
    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/script.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<!doctype html><body><script>{script}</script>".encode())

        def do_POST(self) -> None:
            reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", reports
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def _running(url: str, options: tuple[str, ...]) -> Iterator[None]:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [CHROMIUM, *FLAGS, "--window-size=1500,1000", f"--user-data-dir={profile}", *options]
        process = subprocess.Popen(
            [*arguments, "--remote-debugging-port=0", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()
