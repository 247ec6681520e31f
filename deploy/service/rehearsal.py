"""All on this machine: five real masters, the service in two processes, load; one master dies half-way.

    pip install -r requirements.txt 'redlock-fast[embedded]'
    python rehearsal.py --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from load import Report, load, tell

from redlock_fast.embedded import Masters

HERE = Path(__file__).parent


@contextmanager
def serving(environment: Mapping[str, str]) -> Iterator[str]:
    """A process of the service; its URL. It can be asked at once: connections wait until it is up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Connections inherit it. uvicorn takes what --fd gives it for a unix socket, and would leave it out.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(HERE)]
        command += ["--fd", str(listener.fileno()), "--log-level", "warning"]
        process = subprocess.Popen(command, env={**os.environ, **environment}, pass_fds=[listener.fileno()])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait()


def metric(url: str, name: str) -> float:
    """The sum of all samples of that name on the service's metrics page."""
    page = httpx.get(f"{url}/metrics", trust_env=False, timeout=30.0).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))


async def with_a_failure(masters: Masters, urls: Sequence[str], seconds: float, **how: int) -> Report:
    """Load, of which a master sees only the first half."""
    running = asyncio.ensure_future(load(urls, seconds=seconds, **how))
    await asyncio.sleep(seconds / 2)
    await asyncio.to_thread(masters[0].kill)
    return await running


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--services", type=int, default=2)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--counters", type=int, default=20)
    given = parser.parse_args()
    with ExitStack() as stack:
        masters = stack.enter_context(Masters(5))
        database = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "counters.sqlite"
        environment = {"REDLOCK_FAST_MASTERS": " ".join(masters.urls), "DATABASE": str(database)}
        urls = [stack.enter_context(serving(environment)) for _ in range(given.services)]
        before = sum(metric(url, "process_cpu_seconds_total") for url in urls)
        how = {"clients": given.clients, "counters": given.counters}
        report = asyncio.run(with_a_failure(masters, urls, given.seconds, **how))
        failed = tell(report, database)
        busy = sum(metric(url, "process_cpu_seconds_total") for url in urls) - before
        print(f"CPU of the services: {busy / max(1, report.done.total()) * 1e6:,.0f} µs per request")
        lost = sum(metric(url, "redlock_fast_lost_total") for url in urls)
        print(f"locks lost: {lost:.0f}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
