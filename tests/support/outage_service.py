"""A web service with locks, metrics and a log of JSON: a process for the rehearsal of an outage.

It prints its port. ``/hold`` acquires eight locks that are renewed, ``/orders/N`` answers under a lock,
``/job`` is a job that runs once in the fleet, and ``/metrics`` is what Prometheus scrapes.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

from flask import Flask
from prometheus_client import CollectorRegistry, generate_latest

from redlock_fast.integrations.flask import Redlock
from redlock_fast.prometheus import RedlockCollector
from redlock_fast.telemetry import fields


class Json(logging.Formatter):
    """One object a line, with all fields of the library's records."""

    def format(self, record: logging.LogRecord) -> str:
        known = {name: getattr(record, name) for name in fields("")}
        return json.dumps({"level": record.levelname, "text": record.getMessage(), **known})


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """stderr has nothing but the log."""


def main() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json())
    logger = logging.getLogger("redlock_fast")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    app = Flask(__name__)
    app.config["REDLOCK_FAST"] = json.loads(os.environ["SETTINGS"])
    redlock = Redlock(app)
    client = app.extensions["REDLOCK_FAST"]
    registry = CollectorRegistry()
    RedlockCollector(registry).add(client, "orders")
    held = [client.lock(f"held:{number}", auto_extend=True) for number in range(8)]

    @app.get("/hold")
    def hold() -> str:
        return str(sum(lock.acquire() for lock in held))

    @app.get("/orders/<number>")
    @redlock.synchronized("orders:{number}", timeout=0)
    def ship(number: str) -> str:
        return number

    @app.get("/job")
    @client.single_run("nightly")
    def job() -> str:
        with client.single_run("nightly") as again:
            return "twice" if again else "once"

    @app.get("/metrics")
    def metrics() -> str:
        return generate_latest(registry).decode()

    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
