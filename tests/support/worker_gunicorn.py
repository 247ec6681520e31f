"""A WSGI application for gunicorn that locks, and its configuration.

It is loaded before the workers are forked (``--preload``): they inherit the client and its counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from redlock_fast import FastRedlock
from redlock_fast.prometheus import RedlockCollector

client = FastRedlock(
    os.environ["MASTERS"].split(), node_timeout=5.0, connect_timeout=20.0, check_masters="off"
)
metrics = RedlockCollector(every=0.05)
metrics.add(client, "shop", latency=True, durations=True)
with client.lock("before", label="preload"):
    pass


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/metrics":
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        body = generate_latest(registry)
    elif path == "/keep":
        client.lock("kept").acquire()
        body = str(os.getpid()).encode()
    else:
        with client.lock(path, label="request"):
            body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def child_exit(server: Any, worker: Any) -> None:
    """Gunicorn calls it in its first process: the gauges of a worker that has ended go."""
    mark_process_dead(worker.pid)
