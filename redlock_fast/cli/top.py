"""``redlock-fast top``: a live view of the masters, and of the locks that they have."""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..masters.key_scan import Server, Servers
from ..wire.text import clean
from .live import watch
from .locks import Search, Snapshot, as_json, exit_code, lock_table
from .settings import load
from .tables import Table, show

#: The statistics of INFO that are shown: calls of these commands, of all programs.
GRANTS = ("set", "evalsha", "eval", "fcall")
RELEASES = ("delifeq", "delex")
CALLS = re.compile(rb"^cmdstat_([a-z|]+):calls=(\d+)", re.MULTILINE)
TRACKING = re.compile(rb"^tracking_clients:(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MasterFrame:
    """One master in one frame; None: unknown. ``faults``: frames without its answer, since the start.

    ``attempts``, ``releases``: calls per second of the commands that acquire or extend, and of those that
    only release. ``waiting``: connections that wait by push. ``round_trip``: seconds.
    """

    name: str
    error: str
    faults: int
    round_trip: float | None = None
    attempts: float | None = None
    releases: float | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """``queued``: for each key the callers in the queue of a fair lock."""

    masters: list[MasterFrame]
    seen: Snapshot
    queued: dict[bytes, int]


@dataclass(frozen=True, slots=True)
class _Figures:
    """What one master reports. ``calls``: of each command, since its start. ``at``: monotonic seconds."""

    at: float
    round_trip: float
    calls: dict[bytes, int]
    waiting: int | None


class Monitor:
    """Reads one frame after another."""

    def __init__(self, servers: Servers, search: Search) -> None:
        self._servers = servers
        self._search = search
        self._before: dict[str, _Figures | None] = {}
        self._faults: dict[str, int] = {server.name: 0 for server in servers.all}

    def frame(self) -> Frame:
        self._servers.begin_again()
        timeout = self._search.reading.timeout
        figures = list(self._servers.each(_figures, timeout))
        seen = self._search.read(self._servers)
        keys = sorted({one.key for one in seen.locks})
        queued = dict.fromkeys(keys, 0)
        for lengths in self._servers.each(lambda server: _queue_lengths(server, keys), timeout):
            for key, length in zip(keys, lengths or (), strict=False):
                queued[key] = max(queued[key], length)
        masters = [self._master(*pair) for pair in zip(self._servers.all, figures, strict=True)]
        return Frame(masters, seen, queued)

    def _master(self, server: Server, now: _Figures | None) -> MasterFrame:
        before, self._before[server.name] = self._before.get(server.name), now
        if now is None or server.error:
            self._faults[server.name] += 1
        faults = self._faults[server.name]
        if now is None:
            return MasterFrame(server.name, server.error, faults)
        attempts, releases = (_rate(before, now, names) for names in (GRANTS, RELEASES))
        return MasterFrame(server.name, server.error, faults, now.round_trip, attempts, releases, now.waiting)


def run(options: argparse.Namespace) -> int:
    """Show frames. Returns 0; with --once 69 if no quorum answered."""
    reading = load(options).reading()
    prefix = reading.prefix
    search = Search(reading, options.pattern, options.limit, options.interval)
    with Servers(reading.targets, reading.timeout) as servers:
        monitor = Monitor(servers, search)
        if not options.once and not options.json:
            return watch(
                monitor.frame,
                lambda frame: tables_of(frame, prefix),
                options.interval,
                instead="use --once or --json",
            )
        while True:
            frame = monitor.frame()
            if options.json:
                print(json.dumps(_as_json(frame, prefix)), flush=True)
            else:
                for columns, rows in tables_of(frame, prefix):
                    show(columns, rows)
                    print()
            if options.once:
                return exit_code(frame.seen, quiet=options.json)
            time.sleep(options.interval)


def tables_of(frame: Frame, prefix: bytes) -> list[Table]:
    """The table of the masters, their errors, and the table of the locks."""
    columns = ["", "master", "state", "round trip", "acquire/s", "release/s", "waiting", "faults"]
    rows = [[str(place), *_row(one)] for place, one in enumerate(frame.masters, 1)]
    errors = [[str(n), clean(one.error)] for n, one in enumerate(frame.masters, 1) if one.error]
    names, locks = lock_table(frame.seen, prefix)
    queued = [str(frame.queued[one.key] or "-") for one in frame.seen.locks]
    locks = [[*row[:3], waiters, *row[3:]] for row, waiters in zip(locks, queued, strict=True)]
    tables: list[Table] = [
        (columns, rows),
        (("", "error"), errors),
        ([*names[:3], "queue", *names[3:]], locks),
    ]
    return [table for table in tables if table[1]]


def _row(one: MasterFrame) -> list[str]:
    round_trip = "-" if one.round_trip is None else f"{one.round_trip * 1000:.2f} ms"
    rates = ("-" if rate is None else f"{rate:,.1f}" for rate in (one.attempts, one.releases))
    waiting = "-" if one.waiting is None else f"{one.waiting:,}"
    return [one.name, "down" if one.error else "up", round_trip, *rates, waiting, f"{one.faults:,}"]


def _as_json(frame: Frame, prefix: bytes) -> dict[str, Any]:
    locks = [as_json(one, prefix) | {"queue": frame.queued[one.key]} for one in frame.seen.locks]
    return {
        "time": time.time(),
        "masters": [asdict(one) for one in frame.masters],
        "locks": locks,
        "complete": frame.seen.complete,
    }


# --- questions to one master ----------------------------------------------------------------------


def _figures(server: Server) -> _Figures:
    server.ask([])  # connects
    begin = time.monotonic()
    server.ask([(b"PING",)], errors=True)
    end = time.monotonic()
    clients, stats = server.ask([(b"INFO", b"clients"), (b"INFO", b"commandstats")], errors=True)
    text = stats if isinstance(stats, bytes) else b""  # an error, or what no server sends
    calls = {name: int(count[:18]) for name, count in CALLS.findall(text)}
    return _Figures(end, end - begin, calls, _count(TRACKING, clients))


def _count(pattern: re.Pattern[bytes], text: Any) -> int | None:
    found = pattern.search(text) if isinstance(text, bytes) else None
    return int(found[1][:18]) if found else None


def _queue_lengths(server: Server, keys: Sequence[bytes]) -> list[int]:
    replies = server.ask([(b"ZCARD", b"{%b}:q" % key) for key in keys], errors=True) if keys else []
    return [reply if isinstance(reply, int) else 0 for reply in replies]


def _rate(before: _Figures | None, now: _Figures, names: Sequence[str]) -> float | None:
    """Calls of the commands per second; None for the first frame and after a restart."""
    if before is None or not now.calls:
        return None
    calls = [sum(one.calls.get(name.encode(), 0) for name in names) for one in (before, now)]
    rate = (calls[1] - calls[0]) / (now.at - before.at) if now.at > before.at else math.nan
    return rate if rate >= 0 else None
